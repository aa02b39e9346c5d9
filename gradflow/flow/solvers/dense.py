"""Dense output as one fused sum.

Diffrax evaluates its polynomials through stacked arrays and dot products, which costs an ensemble more than the step
itself when there are many save times.
"""

from collections.abc import Sequence

import diffrax
import jax
import numpy as np
from jaxtyping import PyTree

# b_i(theta) of Tsitouras, Comput. Math. Appl. 62 (2011), one row a stage, from theta up to theta^4.
TSIT5 = (
    (1.0, -2.7637061972748258, 2.9132554618219126, -1.0530884977290216),
    (0.0, 0.1317, -0.2234, 0.1017),
    (0.0, 3.9302962368947516, -5.9410338721315048, 2.4906272856512528),
    (0.0, -12.411077166933676, 30.338188630282321, -16.548102889244902),
    (0.0, 37.509313416511041, -88.178904894766404, 47.379521962819283),
    (0.0, -27.896526289197286, 65.091894674793664, -34.870657861496611),
    (0.0, 1.5, -4.0, 2.5),
)


def dopri8() -> tuple[tuple[float, ...], ...]:
    """Return the same of Dormand and Prince's eighth-order pair, which Diffrax lists from theta^6 down to theta."""
    coefficients = np.asarray(diffrax.Dopri8.interpolation_cls.eval_coeffs)  # pyright: ignore
    return tuple(map(tuple, coefficients[:, ::-1].tolist()))


def polynomial(coefficients: Sequence[Sequence[float]], theta, dt, y0: PyTree, stages: Sequence[PyTree]) -> PyTree:
    """Return y0 + dt sum_i b_i(theta) k_i.

    Args:
        coefficients: of b_i, one row a stage, from theta upwards.
        theta: place within the step, 0 to 1.
        dt: size of the step.
        y0: state at its start.
        stages: the field at each stage.

    Returns:
        The state at `theta`.
    """
    weights = [dt * _horner(row, theta) for row in coefficients]
    return jax.tree.map(lambda y, *k: y + sum(w * x for w, x in zip(weights, k, strict=True)), y0, *stages)


def _horner(row: Sequence[float], theta):
    total = row[-1]
    for coefficient in row[-2::-1]:
        total = coefficient + theta * total
    return theta * total


def cubic(theta, dt, y0: PyTree, y1: PyTree, f0: PyTree, f1: PyTree) -> PyTree:
    """Return the cubic Hermite polynomial through both ends of a step at `theta`."""
    rest = 1 - theta
    start, end = rest * rest * (1 + 2 * theta), theta * theta * (3 - 2 * theta)
    slope0, slope1 = dt * theta * rest * rest, -dt * theta * theta * rest
    return jax.tree.map(lambda a, b, c, d: start * a + end * b + slope0 * c + slope1 * d, y0, y1, f0, f1)
