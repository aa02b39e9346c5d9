"""Lanes of one-step methods: each iteration of the pool is one attempt at a step."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from gradflow.flow.controller import ControllerState, FlowController
from gradflow.flow.kernel import Arguments
from gradflow.flow.pool.rows import Held, Row, Taken, Work, clipped, failed, select, started
from gradflow.flow.solvers import EXPLICIT_GRADIENTS, AbstractUnrolled, Auto, Tsit5
from gradflow.flow.solvers.auto import after_explicit, seen_stiffness
from gradflow.flow.solvers.explicit import interpolated, unrolled_error, unrolled_stages
from gradflow.types import RESULTS


class Lane(NamedTuple):
    """A member under way; `next_t` is the end of the next step."""

    row: Row
    next_t: Float[Array, ""]
    solver_state: PyTree
    controller_state: ControllerState


@dataclasses.dataclass(frozen=True)
class Explicit:
    """How lanes start and advance with a one-step method of Diffrax; `Auto` stands for its explicit half."""

    solver: diffrax.AbstractAdaptiveSolver
    terms: Any
    controller: FlowController

    @property
    def method(self) -> diffrax.AbstractAdaptiveSolver:
        """The method that makes the steps."""
        if isinstance(self.solver, Auto):
            return Tsit5()
        if isinstance(self.solver, diffrax.AbstractImplicitSolver):
            return _with_tolerances(self.solver, self.controller)
        return self.solver

    def start(self, row: Row, arguments: Arguments, t1) -> Lane:
        """Load a member."""
        method = self.method
        first, controller_state = self.controller.init(
            self.terms, row.t, t1, row.params, None, arguments, method.func, self._error_order()
        )
        first = jnp.where(row.dt > 0, row.t + row.dt, first)
        next_t = jnp.where(first >= t1, t1, first)
        state = method.init(self.terms, row.t, next_t, row.params, arguments)
        slope = self.terms.vf(row.t, row.params, arguments)  # the same gradient as that of the solver's start
        return Lane(started(row, slope), next_t, state, controller_state)

    def is_out(self, row: Row) -> Array:
        """Return whether the member has ended, or goes on with the other method."""
        return row.finished | row.choice.stabilised

    def advance(self, lanes: Lane, held: Held, arguments: Callable[[Held], Arguments]) -> tuple[Lane, Taken, Work]:
        """Attempt a step in each lane.

        Args:
            lanes: all of them.
            held: their members' own arrays.
            arguments: puts one member's arguments together.

        Returns:
            The lanes, the steps, and how full the lanes were.
        """
        work = Work.none().add(~jax.vmap(self.is_out)(lanes.row))
        lanes, taken = jax.vmap(lambda lane, held: self._advance(lane, arguments(held), held.t1))(lanes, held)
        return lanes, taken, work

    def _advance(self, lane: Lane, arguments: Arguments, t1) -> tuple[Lane, Taken]:
        row, live = lane.row, ~self.is_out(lane.row)
        y1, error, dense, state, choice, seen = self._attempt(lane, arguments)
        kept, t, next_t, _, controller_state, code = self.controller.adapt_step_size(
            row.t,
            lane.next_t,
            row.params,
            y1,
            arguments,
            error,
            self._error_order(),
            lane.controller_state,
        )
        moved = kept & live
        new = row._replace(
            params=select(moved, y1, row.params),
            t=jnp.where(moved, t, row.t),
            dt=jnp.where(live, controller_state.dt, row.dt),
            steps=row.steps + live,
            accepted=row.accepted + moved,
            gradients=row.gradients + live * EXPLICIT_GRADIENTS,  # of `Auto`; for other methods the steps are counted
            stiffness=jnp.where(live, jnp.maximum(row.stiffness, seen), row.stiffness),
            choice=select(moved, choice, row.choice),
        )
        new = failed(new, RESULTS.promote(code), controller_state.nonfinite, controller_state.kinked)
        after = Lane(
            row=new,
            next_t=jnp.where(live, clipped(t, next_t, t1, kept), lane.next_t),
            solver_state=select(moved, state, lane.solver_state),
            controller_state=select(live, controller_state, lane.controller_state),
        )
        return after, Taken(moved, row.t, lane.next_t, dense)

    def interpolate(self, taken: Taken, t) -> list[Array]:
        """Return the state at a time within the step."""
        method = self.method
        if isinstance(method, AbstractUnrolled):
            dt = taken.t1 - taken.t0
            return interpolated(method, (t - taken.t0) / dt, dt, **taken.dense)
        return method.interpolation_cls(t0=taken.t0, t1=taken.t1, **taken.dense).evaluate(t)

    def _attempt(self, lane: Lane, arguments: Arguments):
        row, method, dt = lane.row, self.method, lane.next_t - lane.row.t
        if isinstance(method, AbstractUnrolled):
            points, stages = unrolled_stages(
                method.tableau, self.terms, row.t, dt, row.params, arguments, lane.solver_state
            )
            error = unrolled_error(method.tableau, dt, stages)
            dense = {"y0": row.params, "y1": points[-1], "stages": tuple(stages)}
            choice, seen = row.choice, jnp.zeros_like(row.t)
            if isinstance(self.solver, Auto):
                seen = seen_stiffness(points, stages)
                choice = after_explicit(choice, lane.next_t, dt * seen)
            return points[-1], error, dense, stages[-1], choice, seen
        y1, error, dense, state, result = method.step(
            self.terms, row.t, lane.next_t, row.params, arguments, lane.solver_state, False
        )
        okay = diffrax.is_okay(result)
        error = jax.tree.map(lambda e: jnp.where(okay, e, jnp.inf), error)
        return y1, error, dense, state, row.choice, jnp.zeros_like(row.t)

    def _error_order(self) -> Any:
        return self.method.error_order(self.terms)


def _with_tolerances(solver: Any, controller: FlowController) -> diffrax.AbstractAdaptiveSolver:
    """Return an implicit solver whose root finder has the controller's tolerances where it has none of its own."""
    for name in ("rtol", "atol", "norm"):
        own: Any = getattr(solver.root_finder, name)
        if not (isinstance(own, float) or eqx.is_array(own) or callable(own)):
            solver = eqx.tree_at(lambda s, name=name: getattr(s.root_finder, name), solver, getattr(controller, name))
    return solver
