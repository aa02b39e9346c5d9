"""Laws 6 and 7: the clock tau = int |g| dt, in which one-sample orbits of all losses are one curve."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from gradflow.flow import gradient_flow
from gradflow.laws.paths import (
    Path,
    alignments,
    at_rows,
    drift,
    increasing,
    over_rows,
    softmax_path,
    softmax_temperature,
    value_path,
    value_rates,
)
from gradflow.laws.polarization.local import Local, centring, local
from gradflow.models import ValueSoftmax


class ClockRates(NamedTuple):
    """Residuals of law 6 at each row, in clock units.

    Attributes:
        alignment_sum: d(sum_i u_i)/dtau - r_V.
        alignment_square: d(|u|^2 / 2)/dtau - r_V z.
        value_square: d|V|_F^2/dtau + 2 r_V <g, beta> / |g|.
        margin: dz/dtau - (r_V |s|^2 + r_a |C u|^2 / T).
        growth: dz/dtau itself, which is positive.
    """

    alignment_sum: Float[Array, "... T"]
    alignment_square: Float[Array, "... T"]
    value_square: Float[Array, "... T"]
    margin: Float[Array, "... T"]
    growth: Float[Array, "... T"]


def clock_rates(
    loss: Callable, path: Path, args: PyTree, direction: Float[Array, " d"], rates: PyTree | None = None
) -> ClockRates:
    """Return the residuals of law 6 (derived), with the left sides from autodiff of the loss.

    Conditions: softmax of temperature T, one sample of unit norm along `direction` whose gradient is -gamma b*.

    Args:
        loss: of the run.
        path: a run or stacked models.
        args: data of the loss.
        direction: b*.
        rates: as given to `gf.gradient_flow`.

    Returns:
        One residual a row and identity.
    """
    models = softmax_path(path)

    def at(model):
        here = local(loss, model, args, rates)
        return _clock_rates(here, direction, softmax_temperature(model))

    return over_rows(at, models)


def _clock_rates(here: Local, direction: Float[Array, " d"], temperature) -> ClockRates:
    u, u_velocity = direction @ here.values, here.in_clock(direction @ here.value_velocity)
    s, beta = here.weights, here.values @ here.weights
    s_velocity = here.in_clock(centring(s, here.score_velocity) / temperature)
    z_velocity = u_velocity @ s + u @ s_velocity
    pull = here.in_clock(here.gradient @ beta)
    expected = here.rate_values * jnp.sum(s**2) + here.rate_scores * jnp.sum((centring(s, u) / temperature) ** 2)
    return ClockRates(
        alignment_sum=jnp.sum(u_velocity) - here.rate_values,
        alignment_square=u @ u_velocity - here.rate_values * (u @ s),
        value_square=2 * here.in_clock(jnp.sum(here.values * here.value_velocity)) + 2 * here.rate_values * pull,
        margin=z_velocity - expected,
        growth=z_velocity,
    )


def clock(path: Path, direction: Float[Array, " d"], rates: PyTree | None = None) -> Float[Array, "... T"]:
    """Return tau at each row since the first one, by law 6: sum_i u_i - r_V tau is constant.

    Conditions: one sample and weights that sum to one.

    Args:
        path: a run or stacked models.
        direction: b*.
        rates: as given to `gf.gradient_flow`.

    Returns:
        tau, 0 at the first row.
    """
    models = value_path(path)
    return drift(jnp.sum(alignments(models, direction), axis=-1), axis=-1) / value_rates(rates, models)[0]


class Clocked(eqx.Module):
    """A model that carries its clock; run it with `clocked(loss)`.

    Attributes:
        model: the model.
        tau: int |dL/dbeta| dt, 0 at the start.
    """

    model: Any
    tau: Float[Array, ""]

    @classmethod
    def start(cls, model: ValueSoftmax) -> "Clocked":
        """Set the clock of a model to 0."""
        return cls(model, jnp.zeros((), model.values.dtype))


@functools.cache
def clocked(loss: Callable) -> Callable:
    """Return a loss of `Clocked` models whose flow moves the model as `loss` does and tau by |g|.

    The clock has an own integral, beside law 6, for any number of samples: tau(inf) = int |g| dt is what the condition
    number, the loss and the norm of the target act through (derived here).

    Args:
        loss: a loss that reads the model through model() alone.

    Returns:
        The same function at each call for the same loss, so that its kernel is compiled once.
    """

    def with_clock(state: Clocked, args: PyTree) -> Float[Array, ""]:
        speed = jax.lax.stop_gradient(local(loss, state.model, args).speed)
        # The value is the loss's own; only the gradient with respect to tau is -|g|.
        return loss(state.model, args) - speed * (state.tau - jax.lax.stop_gradient(state.tau))

    return with_clock


def clock_drift(
    path: Path, direction: Float[Array, " d"], tau: Float[Array, "... T"], rates: PyTree | None = None
) -> Float[Array, "... T"]:
    """Return the drift of sum_i u_i / r_V - tau for a clock integrated on its own (law 6, derived).

    Conditions: one sample, weights that sum to one; the rate of tau in `clocked` is 1.

    Args:
        path: a run or stacked models.
        direction: b*.
        tau: clock at the same rows, from `Clocked`.
        rates: as given to `gf.gradient_flow`.

    Returns:
        The drift.
    """
    return clock(path, direction, rates) - drift(tau, axis=-1)


def alignment_loss(model: ValueSoftmax, direction: Float[Array, " d"]) -> Float[Array, ""]:
    """Return -<b*, beta>, whose gradient is -b* for ever: its flow time is the clock tau itself."""
    return -jnp.dot(direction, model(), precision="highest")


@eqx.filter_jit
def orbit(
    model: ValueSoftmax,
    direction: Float[Array, " d"],
    taus: Float[Array, " T"],
    rates: PyTree | None = None,
    rtol: Any = 1e-10,
) -> ValueSoftmax:
    """Integrate the one-sample orbit in its own clock.

    Args:
        model: at tau = 0.
        direction: b*.
        taus: clock times, not decreasing, from 0 on.
        rates: as given to `gf.gradient_flow`.
        rtol: relative tolerance.

    Returns:
        Models stacked along T.
    """
    horizon: Any = jnp.maximum(taus[-1], 1e-30)
    return gradient_flow(alignment_loss, model, direction, t1=horizon, ts=taus, rates=rates, rtol=rtol).observed


def orbit_gap(
    path: Path, direction: Float[Array, " d"], rates: PyTree | None = None, rtol: Any = 1e-10
) -> Float[Array, " T"]:
    """Return how far a run is from the orbit of its first row at equal clock (law 7, derived).

    The orbit does not depend on the loss: logistic, exponential and square loss (z(0) < y, tau < tau*) trace one curve,
    here that of the loss -<b*, beta>. Conditions: one sample, weights that sum to one.

    Args:
        path: a run or stacked models (T, ...).
        direction: b*.
        rates: as given to `gf.gradient_flow`.
        rtol: relative tolerance of the comparison orbit.

    Returns:
        max over values and scores of |u - u_orbit| and |a - a_orbit|.
    """
    models = value_path(path)
    taus = increasing(clock(models, direction, rates))
    return path_distance(models, orbit(at_rows(models, 0), direction, taus, rates, rtol), direction)


def path_distance(path: Path, other: Path, direction: Float[Array, " d"]) -> Float[Array, "... T"]:
    """Return max(|u - u'|, |a - a'|) at each row of two runs that are saved at equal clocks (law 7).

    Args:
        path: a run or stacked models.
        other: another one.
        direction: b*.

    Returns:
        The largest difference.
    """
    here, there = value_path(path), value_path(other)
    u_gap = jnp.abs(alignments(here, direction) - alignments(there, direction))
    return jnp.max(jnp.maximum(u_gap, jnp.abs(here.scores - there.scores)), axis=-1)
