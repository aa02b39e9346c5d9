"""Laws 2 and 19: two values, where the orbit is a curve in the plane of w = u_1 - u_2 and D = a_1 - a_2."""

from typing import Any, NamedTuple

import diffrax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from gradflow.errors import FlowError
from gradflow.laws import invariants
from gradflow.laws.paths import Path, alignments, drift, increasing, softmax_path
from gradflow.laws.polarization.clock import clock
from gradflow.models import ValueSoftmax

TOLERANCE = 1e-12  # of the closed form's own integration in float64; float32 takes 1e-6


class PlaneGap(NamedTuple):
    """Distance of a run from the closed form at equal clock.

    Attributes:
        w: of w.
        D: of D.
        invariant: drift of w^2 / 2 - cosh D along the run.
    """

    w: Float[Array, " T"]
    D: Float[Array, " T"]
    invariant: Float[Array, " T"]


def hyperbolic(path: Path, rates: PyTree | None = None) -> Float[Array, "... T"]:
    """Return the drift of K = |v_1 - v_2|^2 / (2 r_V) - T^2 cosh((a_1 - a_2) / T) / r_a (law 2, derived).

    Conditions: softmax, n = 2. Any loss, data and d. Under gradient descent at a stable step size the drift is
    O(step size), about -0.036 lr for u(0) = (.3, -.1), a(0) = 0 at t = 1000.

    Args:
        path: a run or stacked models.
        rates: as given to `gf.gradient_flow`.

    Returns:
        K(t) - K(first row).
    """
    return drift(invariants.hyperbolic(_two(path), rates), axis=-1)


def plane(path: Path, direction: Float[Array, " d"]) -> tuple[Float[Array, "... T"], Float[Array, "... T"]]:
    """Return (w, D) = (u_1 - u_2, a_1 - a_2) along a run of two values."""
    models = _two(path)
    u = alignments(models, direction)
    return u[..., 0] - u[..., 1], models.scores[..., 0] - models.scores[..., 1]


def closed_form(
    w0: Float[Array, ""], D0: Float[Array, ""], taus: Float[Array, " T"]
) -> tuple[Float[Array, " T"], Float[Array, " T"]]:
    """Integrate dw/dtau = tanh(D/2), dD/dtau = w / (2 cosh^2(D/2)) (law 19, derived).

    Args:
        w0: w at tau = 0.
        D0: D at tau = 0.
        taus: clock times, not decreasing, from 0 on.

    Returns:
        (w, D) at the clock times.
    """
    start = jnp.stack([jnp.asarray(w0), jnp.asarray(D0)])
    tolerance = TOLERANCE if start.dtype == jnp.float64 else 1e-6
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(_plane_velocity),
        diffrax.Dopri8(),
        0.0,
        jnp.maximum(taus[-1], 1e-30),
        None,
        start,
        saveat=diffrax.SaveAt(ts=taus),
        stepsize_controller=diffrax.PIDController(rtol=tolerance, atol=tolerance),
        throw=False,
    )
    curve: Any = solution.ys
    return curve[:, 0], curve[:, 1]


def _plane_velocity(tau, state, args):
    w, D = state
    return jnp.stack([jnp.tanh(D / 2), w / (2 * jnp.cosh(D / 2) ** 2)])


def closed_form_gap(path: Path, direction: Float[Array, " d"]) -> PlaneGap:
    """Return how far a run of two values is from the closed form at equal clock (law 19, derived).

    Conditions: softmax, n = 2, one sample, unit rates and temperature. Any loss.

    Args:
        path: a run or stacked models (T, ...).
        direction: b*.

    Returns:
        Residuals at each row.
    """
    models = _two(path)
    w, D = plane(models, direction)
    w_exact, D_exact = closed_form(w[0], D[0], increasing(clock(models, direction)))
    return PlaneGap(w - w_exact, D - D_exact, drift(w**2 / 2 - jnp.cosh(D), axis=-1))


def _two(path: Path) -> ValueSoftmax:
    models = softmax_path(path)
    if models.scores.shape[-1] != 2:
        raise FlowError(f"path has n = {models.scores.shape[-1]} values: this law is about n = 2")
    return models
