"""Runge-Kutta steps written out stage by stage.

Diffrax stacks the stages of a step and contracts them with the tableau, which compiles badly on a CPU: written out,
each stage is one fused sum and the same step costs a half to a fifth. Tableau, dense output and results are Diffrax's.
"""

from typing import TYPE_CHECKING, Any, ClassVar

import diffrax
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import PyTree

from gradflow.flow.solvers import dense

if TYPE_CHECKING:
    from typing import ClassVar as AbstractClassVar
else:
    from equinox import AbstractClassVar


class AbstractUnrolled(diffrax.AbstractAdaptiveSolver):
    """An explicit pair whose last stage is the first of the next step, with its stage sums written out.

    Attributes:
        tableau: of the pair, Diffrax's.
        reach: how far the stability region reaches along the negative real axis, in step size times spectral radius.
        dense: coefficients of the dense output, see `dense.polynomial`; None for the cubic through both ends.
    """

    tableau: AbstractClassVar[diffrax.ButcherTableau]
    reach: AbstractClassVar[float]
    dense: AbstractClassVar[Any]
    term_structure: ClassVar = diffrax.AbstractTerm

    def init(self, terms, t0, t1, y0, args):
        """Evaluate the first stage; later steps take it from the last stage before."""
        del t1
        return terms.vf(t0, y0, args)

    def func(self, terms, t0, y0, args):
        """Evaluate the field."""
        return terms.vf(t0, y0, args)

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        """Advance one step; see `diffrax.AbstractSolver.step`."""
        first = solver_state
        if made_jump is not False:
            first = lax.cond(made_jump, lambda: terms.vf(t0, y0, args), lambda: solver_state)
        points, stages = unrolled_stages(self.tableau, terms, t0, t1 - t0, y0, args, first)
        error = unrolled_error(self.tableau, t1 - t0, stages)
        saved = stacked_dense(t1 - t0, y0, points[-1], stages)
        return points[-1], error, saved, stages[-1], diffrax.RESULTS.successful


class Tsit5(AbstractUnrolled):
    """Tsitouras' 5(4) pair: 6 gradients a step.

    Usable in `diffrax.diffeqsolve` like `diffrax.Tsit5`, to which it agrees within rounding.
    """

    tableau: ClassVar = diffrax.Tsit5.tableau
    interpolation_cls: ClassVar = diffrax.Tsit5.interpolation_cls
    reach: ClassVar = 3.5
    dense: ClassVar = dense.TSIT5

    def order(self, terms):
        """Return the order of convergence."""
        del terms
        return 5


class Dopri8(AbstractUnrolled):
    """Dormand and Prince's 8(7) pair: 13 gradients a step, for tolerances of 1e-10 and below.

    Usable in `diffrax.diffeqsolve` like `diffrax.Dopri8`, to which it agrees within rounding.
    """

    tableau: ClassVar = diffrax.Dopri8.tableau
    interpolation_cls: ClassVar = diffrax.Dopri8.interpolation_cls
    reach: ClassVar = 5.1
    dense: ClassVar = dense.dopri8()

    def order(self, terms):
        """Return the order of convergence."""
        del terms
        return 8


class Bosh3(AbstractUnrolled):
    """Bogacki and Shampine's 3(2) pair: 3 gradients a step, for loose tolerances and kinks.

    Usable in `diffrax.diffeqsolve` like `diffrax.Bosh3`, to which it agrees within rounding.
    """

    tableau: ClassVar = diffrax.Bosh3.tableau
    interpolation_cls: ClassVar = diffrax.Bosh3.interpolation_cls
    reach: ClassVar = 2.5
    dense: ClassVar = None

    def order(self, terms):
        """Return the order of convergence."""
        del terms
        return 3


def unrolled_stages(tableau, terms, t0, dt, y0, args, first) -> tuple[list[PyTree], list[PyTree]]:
    """Return the points at which the field was evaluated, the new state last, and its values there."""
    points, stages = [y0], [first]
    for weights, c in zip(tableau.a_lower, tableau.c, strict=True):
        points.append(_add(y0, dt, weights, stages))
        stages.append(terms.vf(t0 + float(c) * dt, points[-1], args))
    return points, stages


def unrolled_error(tableau, dt, stages) -> PyTree:
    """Return the embedded error of a step."""
    return jax.tree.map(lambda *k: dt * _sum(tableau.b_error, k), *stages)


def interpolated(solver: AbstractUnrolled, theta, dt, y0, y1, stages) -> PyTree:
    """Return the dense output of a step at `theta`."""
    if solver.dense is None:
        return dense.cubic(theta, dt, y0, y1, stages[0], stages[-1])
    return dense.polynomial(solver.dense, theta, dt, y0, stages)


def stacked_dense(dt, y0, y1, stages) -> dict[str, Any]:
    """Return what Diffrax's dense output needs."""
    k = jax.tree.map(lambda *k: _times(dt, jnp.stack(k)), *stages)
    return {"y0": y0, "y1": y1, "k": k}


def _sum(weights, stages):
    """Return the weighted sum of stages; the last stage's own row is the solution's (first same as last)."""
    return sum(float(w) * k for w, k in zip(weights, stages, strict=False) if w)


def _add(y0, dt, weights, stages):
    return jax.tree.map(lambda y, *k: y + _times(dt, _sum(weights, k)), y0, *stages)


def _times(dt, slope):
    """Return dt * slope; a slope that is not finite has no derivative by dt, which is the plain product's 0 * NaN."""
    return jnp.where(jnp.isfinite(slope), dt, lax.stop_gradient(dt)) * slope
