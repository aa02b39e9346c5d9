"""Step size control that knows the ends of a training flow: a loss that turns NaN, and a slide along a kink."""

from collections.abc import Callable
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix as optx
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from gradflow.types import Number

FACTOR_MIN, FACTOR_MAX, SAFETY = 0.2, 10.0, 0.9
MAX_RETRIES = 60  # rejections in a row: the step has shrunk by 1e42
PROBE_EVERY = 32  # attempts between two measurements of the order of the error
PROBE_SHRINK = 0.25
HOPELESS = 1e4  # steps still to go at the present step size before the order of the error is measured,
STEADY = 1e-3  # when that size has also stopped growing with time: dt < STEADY * (t - t0)
KINK_ORDER = 2.5  # a jump of the field gives errors of order 1, a smooth field order 5 and more
ROUNDING = 8.0  # errors below this many eps / rtol are rounding, which no step size makes smaller
SMOOTH_ORDER = 14.0  # errors that fall faster than this come from a jump that the shorter step does not reach
KINK_EVIDENCE = 800  # some 13,000 steps: a ReLU network slides along one kink after another and leaves each of them


class Estimate(eqx.Module):
    """The error of a step, from a solver whose steps differ in order or in cost.

    Attributes:
        error: of each array.
        order: of the error in the step size.
        gradients: that the step took.
        noise: how many units in the last place of the state rounding may have left in the error.
        longest: largest next step that the solver can make.
    """

    error: PyTree
    order: Float[Array, ""]
    gradients: Int[Array, ""]
    noise: Float[Array, ""]
    longest: Float[Array, ""]


class ControllerState(eqx.Module):
    """What the controller remembers between two attempts at a step.

    Attributes:
        dt: size of the next step.
        t0: start.
        t1: horizon.
        attempts: attempts since the last probe.
        retries: rejections in a row.
        tried_dt: size of the last attempt if it was a probe, else 0.
        tried_error: its error in units of the tolerance.
        evidence: 2 for each probe whose error was of the order of a jump, less 1 for each of a smooth field.
        nonfinite: whether the last attempt met a NaN or an infinity.
        gradients: of the attempts so far, for solvers that tell.
        accepted: time and state after the last accepted step, if they are kept.
    """

    dt: Float[Array, ""]
    t0: Float[Array, ""]
    t1: Float[Array, ""]
    attempts: Int[Array, ""]
    retries: Int[Array, ""]
    tried_dt: Float[Array, ""]
    tried_error: Float[Array, ""]
    evidence: Int[Array, ""]
    nonfinite: Bool[Array, ""]
    gradients: Int[Array, ""]
    accepted: tuple[Float[Array, ""], PyTree] | None

    @property
    def kinked(self) -> Bool[Array, ""]:
        """Whether the errors are those of a field that jumps."""
        return self.evidence >= KINK_EVIDENCE


class FlowController(diffrax.AbstractAdaptiveStepSizeController[ControllerState, None]):
    """Integral control of the scaled error, with an early end where no step size would help.

    When the step size has stopped growing and would need ten thousand further steps, every 32nd step is refused once on
    purpose and tried again at a quarter of its size: the ratio of the two errors measures their order. Order one, again
    and again, is the mark of a field that jumps across the trajectory.

    Attributes:
        rtol: relative tolerance.
        atol: absolute tolerance.
        norm: root mean square; for the choice of the first step and for implicit solvers.
        tiny: smallest step in units of the last place of t.
        budget: gradients after which the run ends as if out of steps, for solvers that tell what a step took.
        keep: whether to keep the state after the last accepted step. Where a crossing is refined for one member of a
            batch, Diffrax gives every other member that has ended the state of its last attempt, accepted or not.
    """

    rtol: float | Number
    atol: float | Number
    norm: Callable[[PyTree], Any] = eqx.field(default=optx.rms_norm, static=True)
    tiny: float = eqx.field(default=4.0, static=True)
    budget: int | None = eqx.field(default=None, static=True)
    keep: bool = eqx.field(default=False, static=True)

    def wrap(self, direction):
        """Return the controller itself: flows run forwards."""
        del direction
        return self

    def init(self, terms, t0, t1, y0, dt0, args, func, error_order):
        """Choose the first step by the field and its change (Hairer, Norsett, Wanner, II.4), as Diffrax does."""
        if dt0 is None:
            standard = diffrax.PIDController(rtol=self.rtol, atol=self.atol)
            first, _ = standard.init(terms, t0, t1, y0, None, args, func, error_order)
        else:
            first = t0 + dt0
        t0, t1, dt = jnp.asarray(t0), jnp.asarray(t1), jnp.asarray(first - t0)
        zero, count = jnp.zeros_like(t0), jnp.zeros((), jnp.int32)
        accepted = (t0, y0) if self.keep else None
        never = jnp.zeros((), bool)
        return first, ControllerState(dt, t0, t1, count, count, zero, zero, count, never, count, accepted)

    def adapt_step_size(self, t0, t1, y0, y1_candidate, args, y_error, error_order, controller_state):
        """Accept or refuse a step, choose the next one, and end the run where none can succeed."""
        del args
        state, dt = controller_state, jnp.asarray(t1 - t0)
        gradients, noise, longest = state.gradients, 1.0, None
        if isinstance(y_error, Estimate):
            gradients = gradients + y_error.gradients.astype(gradients.dtype)  # Diffrax makes floats of all of it
            noise, longest, error_order, y_error = y_error.noise, y_error.longest, y_error.order, y_error.error
        error = lax.stop_gradient(self._scaled_error(y0, y1_candidate, y_error).astype(dt.dtype))
        finite = jnp.isfinite(error)
        good = error < 1
        evidence = self._evidence(state, dt, error, noise)
        hopeless = ((state.t1 - t1) > HOPELESS * dt) & (dt < STEADY * (t0 - state.t0))
        probe = hopeless & (state.attempts >= PROBE_EVERY) & finite & (state.retries == 0) & (error > 0)
        keep = good & ~probe
        factor = SAFETY * jnp.maximum(error, 1e-30) ** (-1 / error_order)
        factor = jnp.clip(factor, jnp.where(good, 1.0, FACTOR_MIN), jnp.where(good, FACTOR_MAX, SAFETY))
        factor = jnp.where(probe, PROBE_SHRINK, jnp.where(finite, factor, FACTOR_MIN)).astype(dt.dtype)
        next_t0 = jnp.where(keep, t1, t0)
        next_dt = dt * factor if longest is None else jnp.minimum(dt * factor, longest)
        new = ControllerState(
            dt=jnp.asarray(next_dt),
            t0=state.t0,
            t1=state.t1,
            attempts=jnp.where(probe, 0, state.attempts + 1),
            retries=jnp.where(keep, 0, state.retries + 1),
            tried_dt=jnp.where(probe, dt, 0),
            tried_error=jnp.where(finite, error, 0),
            evidence=jnp.where(hopeless, evidence, 0),
            nonfinite=~finite,
            gradients=gradients,
            accepted=jax.tree.map(lambda new, old: jnp.where(keep, new, old), (t1, y1_candidate), state.accepted)
            if self.keep
            else None,
        )
        return keep, next_t0, next_t0 + next_dt, False, new, self._result(new, next_t0, keep)

    def _scaled_error(self, y0, y1, y_error):
        """Return the root mean square of the error in units of the tolerance."""

        def squares(a, b, error):
            tolerance = self.atol + self.rtol * jnp.maximum(jnp.abs(a), jnp.abs(b))
            smallest = jnp.finfo(tolerance.dtype).tiny  # with atol = 0 an entry that stays at 0 has none
            scaled = jnp.where(jnp.isfinite(b), error, jnp.inf) / jnp.maximum(tolerance, smallest)
            return jnp.sum(scaled * scaled)

        leaves = list(zip(jax.tree.leaves(y0), jax.tree.leaves(y1), jax.tree.leaves(y_error), strict=True))
        return jnp.sqrt(sum(squares(*leaf) for leaf in leaves) / sum(a.size for a, _, _ in leaves))

    def _evidence(self, state, dt, error, noise):
        """Update the evidence for a jump from the errors of a probe and of the quarter step that follows it."""
        # Rejections in a row are no evidence: every single crossing of a kink has them, and is passed in the end.
        rounding = ROUNDING * noise * jnp.finfo(error.dtype).eps / self.rtol
        probed = (state.tried_dt > 0) & jnp.isfinite(error)
        shrink = jnp.where(probed, state.tried_dt, 2) / jnp.where(probed, dt, 1)
        base = jnp.where(shrink > 1, shrink, 2)
        pair = probed & (state.tried_error > 0) & (error > rounding)
        order = jnp.log(jnp.where(pair, state.tried_error, 1) / jnp.where(pair, error, 1)) / jnp.log(base)
        missed = probed & (error <= rounding) & (state.tried_error > rounding * base**SMOOTH_ORDER)
        change = jnp.where((order < KINK_ORDER) | missed, 2, -1)
        return jnp.where(pair | missed, jnp.maximum(state.evidence + change, 0), state.evidence)

    def _result(self, new, t, keep):
        too_small = ~keep & (new.dt <= self.tiny * jnp.finfo(t.dtype).eps * jnp.abs(t))
        stuck = too_small | (new.retries >= MAX_RETRIES)
        result = diffrax.RESULTS.where(stuck, diffrax.RESULTS.dt_min_reached, diffrax.RESULTS.successful)
        if self.budget is not None:
            spent = (new.gradients >= self.budget) & (t < new.t1)
            result = diffrax.RESULTS.where(spent, diffrax.RESULTS.max_steps_reached, result)
        return diffrax.RESULTS.where(new.kinked, diffrax.RESULTS.internal_error, result)
