"""The choice between an explicit and a stabilised method, made by measuring stiffness while the flow runs."""

from typing import Any, ClassVar, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from gradflow.flow.controller import Estimate
from gradflow.flow.norms import norm
from gradflow.flow.solvers import chebyshev, dense
from gradflow.flow.solvers.chebyshev import ChebyshevState, Loop, Machine
from gradflow.flow.solvers.explicit import Tsit5, stacked_dense, unrolled_error, unrolled_stages

AT_THE_LIMIT = 0.75 * Tsit5.reach  # step size times stiffness above which stability holds the explicit step
PATIENCE = 12.0  # steps at the limit before the first change; doubled by each change back
EXPLICIT_GRADIENTS = len(Tsit5.tableau.c)  # of an explicit step
EXPLICIT_COST = EXPLICIT_GRADIENTS / Tsit5.reach  # gradients for a time of 1 / radius, at the limit
TRIAL = 5  # stabilised steps in a row that must have cost more before a change back


class Choice(NamedTuple):
    """Which method runs, and the evidence for the other one.

    Attributes:
        stabilised: whether the Chebyshev method runs.
        evidence: steps that spoke for the other method.
        patience: how much evidence a change to the Chebyshev method needs.
        switches: changes so far.
        since: time of the first change to the Chebyshev method; infinite if there was none.
    """

    stabilised: Bool[Array, ""]
    evidence: Float[Array, ""]
    patience: Float[Array, ""]
    switches: Int[Array, ""]
    since: Float[Array, ""]


def first_choice(t0, *, stabilised: bool = False) -> Choice:
    """Return the choice at the start of a run."""
    count, zero = jnp.zeros((), jnp.int32), jnp.zeros_like(t0)
    return Choice(jnp.asarray(stabilised), zero, zero + PATIENCE, count, t0 if stabilised else zero + jnp.inf)


def after_explicit(choice: Choice, t, limit_ratio) -> Choice:
    """Weigh an accepted explicit step.

    Args:
        choice: so far.
        t: time at the end of the step.
        limit_ratio: step size times the stiffness that the step itself saw, see `seen_stiffness`.

    Returns:
        The choice for the next step.
    """
    evidence = jnp.where(limit_ratio > AT_THE_LIMIT, choice.evidence + 1, jnp.maximum(choice.evidence - 1, 0))
    change = evidence >= choice.patience
    return choice._replace(
        stabilised=choice.stabilised | change,
        evidence=jnp.where(change, 0, evidence),
        switches=choice.switches + change,
        since=jnp.where(change, jnp.minimum(choice.since, t), choice.since),
    )


def after_stabilised(choice: Choice, dt, radius, gradients) -> Choice:
    """Weigh an accepted stabilised step against what explicit steps at their limit of stability would cost.

    That limit is the best an explicit method can do, so the comparison never changes back too early.

    Args:
        choice: so far.
        dt: size of the step.
        radius: spectral radius.
        gradients: that the stages took.

    Returns:
        The choice for the next step.
    """
    costs_more = gradients > EXPLICIT_COST * radius * dt
    evidence = jnp.where(costs_more, choice.evidence + 1, 0)
    change = evidence >= TRIAL
    return choice._replace(
        stabilised=choice.stabilised & ~change,
        evidence=jnp.where(change, 0, evidence),
        patience=jnp.where(change, 2 * choice.patience, choice.patience),
        switches=choice.switches + change,
    )


def seen_stiffness(points: list[PyTree], stages: list[PyTree]) -> Float[Array, ""]:
    """Return |f(a) - f(b)| / |a - b| of the last two stages, both at the end of the step (Hairer, Wanner, IV.2).

    Where stability holds the step, their difference lies along the stiffest directions.
    """
    change = norm(jax.tree.map(jnp.subtract, stages[-1], stages[-2]))
    distance = norm(jax.tree.map(jnp.subtract, points[-1], points[-2]))
    return lax.stop_gradient(jnp.where(distance > 0, change / jnp.where(distance > 0, distance, 1), 0))


class AutoState(NamedTuple):
    """What `Auto` remembers between two steps.

    Attributes:
        choice: which method runs.
        stiff: state of the Chebyshev method; its slope is the field at the current state for both methods.
        seen: largest stiffness that accepted steps saw.
        stabilised_steps: accepted steps of the Chebyshev method.
    """

    choice: Choice
    stiff: ChebyshevState
    seen: Float[Array, ""]
    stabilised_steps: Int[Array, ""]


class AutoInterpolation(diffrax.AbstractLocalInterpolation):
    """Dense output of either method: Tsit5's polynomial, or the cubic through both ends of a Chebyshev step."""

    t0: Any
    t1: Any
    y0: PyTree
    y1: PyTree
    k: PyTree
    stabilised: Bool[Array, ""]

    def evaluate(self, t0, t1=None, left=True):
        """Return the state at `t0`, or its change between two times."""
        if t1 is not None:
            return jax.tree.map(jnp.subtract, self.evaluate(t1, left=left), self.evaluate(t0, left=left))
        # A member that waits for others under `vmap` makes steps of size zero, whose derivative must stay finite.
        dt = jnp.where(self.t1 > self.t0, self.t1 - self.t0, 1)
        theta = (t0 - self.t0) / dt
        explicit = dense.polynomial(dense.TSIT5, theta, 1.0, self.y0, _rows(self.k, range(len(dense.TSIT5))))
        first, last = _rows(self.k, (0, len(dense.TSIT5) - 1))
        cubic = dense.cubic(theta, 1.0, self.y0, self.y1, first, last)
        return jax.tree.map(lambda a, b: jnp.where(self.stabilised, a, b), cubic, explicit)


def _rows(k: PyTree, indices) -> list[PyTree]:
    """Return slopes, times the step size, out of a stack of them."""
    return [jax.tree.map(lambda x, i=i: x[i], k) for i in indices]


class Auto(diffrax.AbstractAdaptiveSolver):
    """Tsit5 until stability holds its step, then the Chebyshev method for as long as that costs less.

    Made for `FlowController`, which it tells the order of each step's error.

    Attributes:
        always_stabilised: never use Tsit5.
        max_stages: of the Chebyshev method.
        loop: of the Chebyshev method.
    """

    always_stabilised: bool = False
    max_stages: int = 1000
    loop: Loop = "checkpointed"
    term_structure: ClassVar = diffrax.AbstractTerm
    interpolation_cls: ClassVar = AutoInterpolation

    def order(self, terms):
        """Return the order of convergence of the explicit method."""
        del terms
        return 5

    def error_order(self, terms):
        """Return the order of the error that chooses the first step."""
        del terms
        return 3 if self.always_stabilised else 5

    def init(self, terms, t0, t1, y0, args):
        """Evaluate the field."""
        stiff = chebyshev.initial_state(terms.vf(t0, y0, args), y0, jnp.asarray(t1 - t0))
        choice = first_choice(jnp.asarray(t0), stabilised=self.always_stabilised)
        return AutoState(choice, stiff, jnp.zeros_like(stiff.radius), jnp.zeros((), jnp.int32))

    def func(self, terms, t0, y0, args):
        """Evaluate the field."""
        return terms.vf(t0, y0, args)

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        """Advance one step; see `diffrax.AbstractSolver.step`."""
        del made_jump  # gradient flows have no jumps
        state: AutoState = solver_state
        dt = jnp.asarray(t1 - t0)

        def stabilised():
            return self._stabilised(terms, t0, dt, y0, args, state)

        def explicit():
            return self._explicit(terms, t0, dt, y0, args, state)

        chosen = stabilised() if self.always_stabilised else lax.cond(state.choice.stabilised, stabilised, explicit)
        return *chosen, diffrax.RESULTS.successful

    def _explicit(self, terms, t0, dt, y0, args, state: AutoState):
        points, stages = unrolled_stages(Tsit5.tableau, terms, t0, dt, y0, args, state.stiff.slope)
        error = unrolled_error(Tsit5.tableau, dt, stages)
        saved = stacked_dense(dt, y0, points[-1], stages) | {"stabilised": jnp.asarray(False)}
        seen = seen_stiffness(points, stages)
        after = state._replace(
            choice=after_explicit(state.choice, t0 + dt, dt * seen),
            # The next stabilised step finds its own radius.
            stiff=state.stiff._replace(slope=stages[-1], age=jnp.full_like(state.stiff.age, chebyshev.REFRESH)),
            seen=jnp.maximum(state.seen, seen),
        )
        one, cost = jnp.ones_like(dt), jnp.asarray(EXPLICIT_GRADIENTS, jnp.int32)
        estimate = Estimate(error, 5 * one, cost, one, jnp.inf * one)
        return points[-1], estimate, saved, after

    def _stabilised(self, terms, t0, dt, y0, args, state: AutoState):
        m, stiff = chebyshev.stabilised_step(
            terms, t0, dt, y0, args, state.stiff, self.max_stages, self.loop, state.choice.stabilised
        )
        choice = state.choice if self.always_stabilised else after_stabilised(state.choice, dt, m.radius, m.stages)
        after = state._replace(
            choice=choice,
            stiff=stiff,
            seen=jnp.maximum(state.seen, m.radius),
            stabilised_steps=state.stabilised_steps + 1,
        )
        estimate = stabilised_estimate(self, m, chebyshev.refused_error(m))
        return m.latest, estimate, stabilised_dense(m), after


def stabilised_estimate(solver: Auto, m: Machine, error: PyTree) -> Estimate:
    """Return the error of a stabilised step; rounding grows with the square of the number of stages."""
    stages = m.stages.astype(m.dt.dtype)
    longest = chebyshev.stable_step(solver.max_stages, m.radius)
    return Estimate(error, jnp.full_like(stages, 3), chebyshev.gradients(m), stages**2, longest)


def held_by_stability(choice: Choice) -> Bool[Array, "..."]:
    """Return whether the last steps were explicit and as long as stability lets them be."""
    return ~choice.stabilised & (choice.evidence > 1)


def choice_stats(choice: Choice, stabilised_steps, stiffness) -> dict[str, Array]:
    """Return what runs chose and why, as the entries of `Trajectory.stats`."""
    return {
        "num_chebyshev_steps": stabilised_steps,
        "num_switches": choice.switches,
        "stiff_since": choice.since,
        "stiffness": stiffness,
    }


def stabilised_dense(m: Machine) -> dict[str, Any]:
    """Return the dense output of a stabilised step in the shape of Tsit5's: seven slopes, of which two are used."""
    count = len(Tsit5.tableau.c) + 1

    def slopes(f0, f1):
        unused = jnp.zeros((count - 2, *f0.shape), f0.dtype)
        return jnp.concatenate([f0[None], unused, f1[None]])

    k = jax.tree.map(slopes, *chebyshev.dense_slopes(m))
    return {"y0": m.y0, "y1": m.latest, "k": k, "stabilised": jnp.asarray(True)}
