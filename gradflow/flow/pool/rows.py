"""What the pool keeps of a member, and the rules by which a member ends."""

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from gradflow.flow.events import scalar
from gradflow.flow.kernel import Arguments, Kernel, gradient_budget
from gradflow.flow.solvers.auto import Choice, first_choice
from gradflow.types import RESULTS, Number

START_GRADIENTS = 2  # which choose the first step


class Held(NamedTuple):
    """What a lane reads of its member: its own data, rates, level, times; all shared arrays stay outside."""

    frozen: list[Number]
    rates: list[Number] | None
    level: Number
    t1: Number
    ts: Number


@dataclasses.dataclass(frozen=True)
class Layout:
    """How lanes keep the moving arrays of a member.

    Attributes:
        flow: structure of the member.
        shapes: of its moving arrays.
        packed: whether all of them lie in one vector. A loop over one vector costs less than one over each array, but
            each gradient has to be copied into it.
    """

    flow: Kernel
    shapes: tuple[tuple[int, ...], ...]
    packed: bool

    def pack(self, params: list[Array]) -> list[Array]:
        """Return the moving arrays as lanes keep them."""
        return [jnp.concatenate([x.reshape(-1) for x in params])] if self.packed else params

    def unpack(self, kept: list[Array]) -> list[Array]:
        """Return the arrays themselves."""
        if not self.packed:
            return kept
        ends = np.cumsum([math.prod(shape) for shape in self.shapes])
        parts = jnp.split(kept[0], ends[:-1])
        return [x.reshape(shape) for x, shape in zip(parts, self.shapes, strict=True)]

    def join(self, kept: list[Array], arguments: Arguments) -> tuple[PyTree, PyTree]:
        """Return `(model, args)`."""
        return self.flow.structure.join(self.unpack(kept), arguments.frozen)


class Row(NamedTuple):
    """Where a member stands, enough to go on in another lane.

    Attributes:
        params: moving arrays after the last accepted step; in a lane as its `Layout` keeps them.
        t: its time.
        dt: size of the next step, 0 where none has been chosen yet.
        saved: save times that have passed.
        steps: attempts.
        accepted: accepted ones.
        gradients: evaluated.
        stabilised_steps: accepted steps of the Chebyshev method.
        stiffness: largest spectral radius that was seen.
        choice: between the explicit and the Chebyshev method.
        finished: whether the member has ended.
        result: how.
    """

    params: list[Array]
    t: Float[Array, ""]
    dt: Float[Array, ""]
    saved: Int[Array, ""]
    steps: Int[Array, ""]
    accepted: Int[Array, ""]
    gradients: Int[Array, ""]
    stabilised_steps: Int[Array, ""]
    stiffness: Float[Array, ""]
    choice: Choice
    finished: Bool[Array, ""]
    result: RESULTS


class Taken(NamedTuple):
    """A step that a lane has just made, for the saves within it; `kept` is False where it was refused or unfinished."""

    kept: Bool[Array, ""]
    t0: Float[Array, ""]
    t1: Float[Array, ""]
    dense: dict[str, PyTree]


class Work(NamedTuple):
    """How full the lanes were: iterations of lanes that advanced a member, and of all lanes."""

    useful: Int[Array, ""]
    offered: Int[Array, ""]

    @classmethod
    def none(cls) -> "Work":
        """Return the count of no work."""
        return cls(jnp.zeros((), int), jnp.zeros((), int))

    def add(self, busy: Bool[Array, " L"]) -> "Work":
        """Count one iteration of all lanes."""
        return Work(self.useful + busy.sum(dtype=self.useful.dtype), self.offered + busy.size)


def select(condition: Bool[Array, ""], a: Any, b: Any) -> Any:
    """Return `a` where the condition holds, else `b`."""
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), a, b)


def first_row(params: list[Array], t0: Float[Array, ""], *, stabilised: bool) -> Row:
    """Return a member at its start."""
    zero, none = jnp.zeros((), jnp.int32), jnp.zeros_like(t0)
    return Row(
        params=params,
        t=t0,
        dt=none,
        saved=zero,
        steps=zero,
        accepted=zero,
        gradients=zero + START_GRADIENTS,
        stabilised_steps=zero,
        stiffness=none,
        choice=first_choice(t0, stabilised=stabilised),
        finished=jnp.zeros((), bool),
        result=either(jnp.zeros((), bool), RESULTS.successful, RESULTS.successful),
    )


def started(row: Row, slope: list[Array]) -> Row:
    """End a member whose loss or gradient is not finite where it starts."""
    finite = jnp.stack([jnp.isfinite(v).all() for v in slope]).all()
    return _end(row, ~finite, RESULTS.nonfinite_start)


def either(condition: Bool[Array, ""], a: Any, b: Any) -> RESULTS:
    """Return one of two result codes."""
    return RESULTS.where(condition, a, b)


def clipped(t, t_next, t1, kept) -> Float[Array, ""]:
    """Return the end of the next step, at the horizon if it would pass it; after a refusal half-way there."""
    return jnp.where(t_next >= t1, jnp.where(kept, t1, t + 0.5 * (t1 - t)), t_next)


def failed(row: Row, code: RESULTS, nonfinite, kinked) -> Row:
    """End a member whose step size control has given up, with the name of the reason."""
    okay = code == RESULTS.successful
    stuck = either(nonfinite, RESULTS.nonfinite_loss, RESULTS.dt_min_reached)
    named = RESULTS.where(kinked, RESULTS.kink, stuck)
    return row._replace(finished=row.finished | ~okay, result=RESULTS.where(okay | row.finished, row.result, named))


def closed(layout: Layout, row: Row, arguments: Arguments, t1, kept) -> Row:
    """End a member that has reached its horizon, its `stop` or `max_steps`."""
    row = stopped(layout, row, arguments, kept)
    row = _end(row, row.t >= t1, RESULTS.successful)
    spent = row.steps >= layout.flow.max_steps
    budget = gradient_budget(layout.flow)
    if budget is not None:
        spent = spent | (row.gradients >= budget)
    return _end(row, spent, RESULTS.max_steps_reached)


def stopped(layout: Layout, row: Row, arguments: Arguments, asked) -> Row:
    """End a member whose `stop` says so, where it is asked."""
    stop = layout.flow.stop
    if stop is None:
        return row
    says = scalar("stop", stop(row.t, *layout.join(row.params, arguments)))
    return _end(row, asked & says.astype(bool), RESULTS.event_occurred)


def _end(row: Row, condition, result) -> Row:
    ends = condition & ~row.finished
    return row._replace(finished=row.finished | ends, result=RESULTS.where(ends, result, row.result))
