"""Lanes of the Chebyshev method: each iteration is one gradient, whatever the lane needs it for.

Members whose steps have different numbers of stages share a pool without waiting for the one with most of them.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int, PyTree

from gradflow.flow.controller import ControllerState, FlowController
from gradflow.flow.kernel import Arguments
from gradflow.flow.pool.rows import Held, Row, Taken, Work, clipped, failed, select, started
from gradflow.flow.solvers import chebyshev, dense
from gradflow.flow.solvers.auto import after_stabilised, stabilised_estimate
from gradflow.flow.solvers.chebyshev import Machine
from gradflow.types import RESULTS

ERROR_ORDER = 3


class Lane(NamedTuple):
    """A member under way.

    Attributes:
        row: where it stands; its parameters are those at the start of the step.
        machine: the step in progress, without those parameters.
        direction: of the largest eigenvalue.
        age: accepted steps since the spectral radius was estimated.
        controller_state: of the step size control.
    """

    row: Row
    machine: Machine
    direction: PyTree
    age: Int[Array, ""]
    controller_state: ControllerState


@dataclasses.dataclass(frozen=True)
class Stabilised:
    """How lanes start and advance with the Chebyshev method.

    Attributes:
        solver: with the most stages of a step.
        terms: of the differential equation.
        controller: of the step size.
        patience: part of the lanes that may wait, with a step done, before it is looked at.
    """

    solver: Any
    terms: Any
    controller: FlowController
    patience: float = 0.25

    def start(self, row: Row, arguments: Arguments, t1) -> Lane:
        """Load a member; its first gradients find the spectral radius."""
        # Members that come from explicit lanes bring the size of their next step along.
        known: Any = None if self.solver.always_stabilised else row.dt
        first, controller_state = self.controller.init(
            self.terms, row.t, t1, row.params, known, arguments, self.solver.func, ERROR_ORDER
        )
        slope = self.terms.vf(row.t, row.params, arguments)
        direction = chebyshev.first_direction(row.params)
        machine = chebyshev.begin(
            row.t,
            jnp.where(first >= t1, t1, first) - row.t,
            row.params,
            slope,
            direction,
            jnp.zeros_like(row.t),
            estimate=jnp.asarray(True),
        )
        return Lane(
            started(row, slope), machine._replace(y0=None), direction, jnp.zeros((), jnp.int32), controller_state
        )

    def is_out(self, row: Row) -> Array:
        """Return whether the member has ended, or goes on with the other method."""
        return row.finished | ~row.choice.stabilised

    def advance(self, lanes: Lane, held: Held, arguments: Callable[[Held], Arguments]) -> tuple[Lane, Taken, Work]:
        """Evaluate gradients until some lanes have a step done; accept or refuse those and begin the next.

        Args:
            lanes: all of them.
            held: their members' own arrays.
            arguments: puts one member's arguments together.

        Returns:
            The lanes, the steps that were done, and how full the lanes were.
        """
        live = ~jax.vmap(self.is_out)(lanes.row)
        enough = jnp.maximum(self.patience * live.sum(), 1)

        def running(lanes: Lane) -> Array:
            return live & jax.vmap(chebyshev.is_running)(lanes.machine)

        def going(carry: tuple[Lane, Work]) -> Array:
            busy = running(carry[0])
            return busy.any() & ((live & ~busy).sum() < enough)

        def one(lane: Lane, held: Held) -> Lane:
            machine = lane.machine._replace(y0=lane.row.params)
            return lane._replace(machine=chebyshev.advance(machine, self.terms, arguments(held))._replace(y0=None))

        def body(carry: tuple[Lane, Work]) -> tuple[Lane, Work]:
            lanes, work = carry
            return jax.vmap(one)(lanes, held), work.add(running(lanes))

        lanes, work = lax.while_loop(going, body, (lanes, Work.none()))
        lanes, taken = jax.vmap(lambda lane, held: self._attend(lane, arguments(held), held.t1))(lanes, held)
        return lanes, taken, work

    def interpolate(self, taken: Taken, t) -> list[Array]:
        """Return the state at a time within the step."""
        theta = (t - taken.t0) / (taken.t1 - taken.t0)
        return dense.cubic(theta, 1.0, **taken.dense)

    def _attend(self, lane: Lane, arguments: Arguments, t1) -> tuple[Lane, Taken]:
        """Complete a step that is done, and begin the stages of one whose spectral radius is known."""
        machine = lane.machine._replace(y0=lane.row.params)
        complete = (machine.phase == chebyshev.DONE) & ~self.is_out(lane.row)
        found = machine.phase == chebyshev.READY
        direction = select(found, machine.latest, lane.direction)
        ended, taken = self._complete(lane, machine, arguments, t1)
        lane = select(complete, ended, lane)._replace(direction=direction)
        machine = lane.machine._replace(y0=lane.row.params)
        begins = machine.phase == chebyshev.READY
        ready = select(begins, chebyshev.first_stage(machine, self.solver.max_stages), machine)
        ready = ready._replace(phase=jnp.where(self.is_out(lane.row), chebyshev.DONE, ready.phase), y0=None)
        return lane._replace(machine=ready), taken._replace(kept=taken.kept & complete)

    def _complete(self, lane: Lane, m: Machine, arguments: Arguments, t1) -> tuple[Lane, Taken]:
        """Accept or refuse a step that is done, and begin the next."""
        m, end = chebyshev.finish(m), m.t + m.dt
        estimate = stabilised_estimate(self.solver, m, chebyshev.refused_error(m))
        kept, t, next_t, _, controller_state, code = self.controller.adapt_step_size(
            m.t, end, m.y0, m.latest, arguments, estimate, ERROR_ORDER, lane.controller_state
        )
        age = jnp.where(m.iterations > 0, 0, lane.age) + kept
        dt = clipped(t, next_t, t1, kept) - t
        new = self._next_row(lane.row, m, t, kept, controller_state)
        new = failed(new, RESULTS.promote(code), controller_state.nonfinite, controller_state.kinked)
        following = chebyshev.begin(
            t,
            dt,
            new.params,
            select(kept, m.older, m.f0),
            lane.direction,
            m.radius,
            estimate=(age >= chebyshev.REFRESH) | ~kept,
        )
        after = Lane(new, following._replace(y0=None), lane.direction, age, controller_state)
        first, last = chebyshev.dense_slopes(m)
        return after, Taken(kept, m.t, end, {"y0": m.y0, "y1": m.latest, "f0": first, "f1": last})

    def _next_row(self, row: Row, m: Machine, t, kept, controller_state: ControllerState) -> Row:
        choice = row.choice
        if not self.solver.always_stabilised:
            choice = select(kept, after_stabilised(choice, m.dt, m.radius, m.stages), choice)
        return row._replace(
            params=select(kept, m.latest, m.y0),
            t=t,
            dt=controller_state.dt,
            steps=row.steps + 1,
            accepted=row.accepted + kept,
            gradients=row.gradients + chebyshev.gradients(m),
            stabilised_steps=row.stabilised_steps + kept,
            stiffness=jnp.maximum(row.stiffness, m.radius),
            choice=choice,
        )
