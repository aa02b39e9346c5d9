"""The compiled pool: a block of members, a few lanes, and a queue between them."""

import dataclasses
import functools
from typing import Any, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from gradflow.flow.controller import FlowController
from gradflow.flow.field import velocity
from gradflow.flow.kernel import Arguments, Kernel, is_stiff
from gradflow.flow.pool.crossing import refine
from gradflow.flow.pool.explicit import Explicit
from gradflow.flow.pool.rows import Held, Row, Taken, Work, closed
from gradflow.flow.pool.stabilised import Stabilised
from gradflow.flow.solvers import Auto
from gradflow.flow.solvers.auto import first_choice
from gradflow.problem import check_loss
from gradflow.trajectory import blank, observed_arrays
from gradflow.types import RESULTS, Number

START_GRADIENTS = 2  # which choose the first step


@dataclasses.dataclass(frozen=True)
class PoolKernel:
    """All that picks a compiled pool.

    Attributes:
        flow: the structure of a member and what is done along the way.
        batched: one flag a fixed array: does each member have its own?
        lanes: members that advance together.
    """

    flow: Kernel
    batched: tuple[bool, ...]
    lanes: int


class Block(NamedTuple):
    """Members of one call: arrays `(B, ...)`; those behind `count` are padding."""

    params: list[Array]
    held: Held
    t0: Float[Array, " B"]
    count: Number


class Shared(NamedTuple):
    """What all members read: fixed arrays without a member axis, and tolerances."""

    frozen: list[Array]
    rtol: Float[Array, ""]
    atol: Float[Array, ""]


class BlockEnd(NamedTuple):
    """Rows at the end of a block `(B, ...)`, what was observed `(B, T, ...)`, and how full the lanes were."""

    params: list[Array]
    t: Float[Array, " B"]
    observed: PyTree
    valid: Bool[Array, "B T"]
    result: RESULTS
    stats: dict[str, Array]
    work: Work


class _Pool(NamedTuple):
    """Carry of the loop: lanes, the member of each, the next in the queue, and all rows."""

    lanes: Any
    index: Int[Array, " L"]
    held: Held
    next: Int[Array, ""]
    rows: Row
    saved: PyTree
    work: Work


@functools.partial(jax.jit, static_argnums=0)
def run(kernel: PoolKernel, block: Block, shared: Shared) -> BlockEnd:
    """Integrate every member of a block."""
    with jax.default_matmul_precision("highest"):
        first = jax.tree.map(lambda x: x[0], (block.params, block.held.frozen))
        check_loss(kernel.flow.structure, first[0], _frozen(kernel, first[1], shared))
        rows = jax.vmap(functools.partial(_first_row, kernel, shared))(block.params, block.held, block.t0)
        rows = rows._replace(finished=rows.finished | (jnp.arange(len(block.t0)) >= block.count))
        state = rows, _empty(kernel, block, shared), Work.none()
        explicit, stabilised = _kinds(kernel, shared)
        if stabilised is None:
            state = _drain(kernel, explicit, block, shared, state)
        elif explicit is None:
            state = _drain(kernel, stabilised, block, shared, state)
        else:

            def both(state):
                return _drain(kernel, stabilised, block, shared, _drain(kernel, explicit, block, shared, state))

            state = lax.while_loop(lambda s: jnp.any(~s[0].finished), both, state)
        return _finish(kernel, block, shared, *state)


def _kinds(kernel: PoolKernel, shared: Shared) -> tuple[Explicit | None, Stabilised | None]:
    solver = kernel.flow.solver
    structure = kernel.flow.structure
    terms = diffrax.ODETerm(lambda t, y, args: velocity(structure, y, args.frozen, args.rates))
    controller = FlowController(rtol=shared.rtol, atol=shared.atol)
    if not isinstance(solver, Auto):
        return Explicit(solver, terms, controller), None
    stabilised = Stabilised(solver, terms, controller)
    return None if solver.always_stabilised else Explicit(solver, terms, controller), stabilised


def _frozen(kernel: PoolKernel, own: list[Array], shared: Shared) -> list[Array]:
    mine, common = iter(own), iter(shared.frozen)
    return [next(mine) if flag else next(common) for flag in kernel.batched]


def _arguments(kernel: PoolKernel, held: Held, shared: Shared) -> Arguments:
    return Arguments(_frozen(kernel, held.frozen, shared), held.rates, held.level)


def _first_row(kernel: PoolKernel, shared: Shared, params: list[Array], held: Held, t0) -> Row:
    """Return a member at its start; one whose gradient is not finite there has ended."""
    arguments = _arguments(kernel, held, shared)
    slope = velocity(kernel.flow.structure, params, arguments.frozen, arguments.rates)
    finite = jnp.stack([jnp.isfinite(v).all() for v in slope]).all()
    zero, none = jnp.zeros((), jnp.int32), jnp.zeros_like(t0)
    solver = kernel.flow.solver
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
        choice=first_choice(t0, stabilised=isinstance(solver, Auto) and solver.always_stabilised),
        finished=~finite,
        result=RESULTS.where(finite, RESULTS.successful, RESULTS.nonfinite_start),
    )


def _observe(kernel: PoolKernel, t, params, arguments: Arguments) -> PyTree[Array]:
    if kernel.flow.observe is None:
        return params
    return observed_arrays(kernel.flow.observe, t, *kernel.flow.structure.join(params, arguments.frozen))


def _empty(kernel: PoolKernel, block: Block, shared: Shared) -> PyTree[Array]:
    """Allocate what is saved along the way; nothing where only the end is."""
    if kernel.flow.at_end:
        return ()
    params, held, t0 = _take((block.params, block.held, block.t0), 0)
    row = jax.eval_shape(lambda: _observe(kernel, t0, params, _arguments(kernel, held, shared)))
    return jax.tree.map(lambda x: jnp.zeros((*block.held.ts.shape, *x.shape), x.dtype), row)


def _take(tree: Any, index) -> Any:
    return jax.tree.map(lambda x: x[index], tree)


def _put(tree: Any, index, part: Any) -> Any:
    return jax.tree.map(lambda x, y: x.at[index].set(y), tree, part)


def _drain(kernel: PoolKernel, kind, block: Block, shared: Shared, state):
    """Run the pool over all rows that this kind of lane takes."""
    rows, saved, work = state
    size = len(block.t0)
    waiting = ~jax.vmap(kind.is_out)(_Waiting(rows))
    order, count = jnp.argsort(~waiting, stable=True).astype(jnp.int32), waiting.sum(dtype=jnp.int32)
    position = jnp.arange(kernel.lanes, dtype=jnp.int32)
    index = jnp.where(position < count, order[jnp.minimum(position, size - 1)], size)
    taken = jnp.minimum(index, size - 1)
    held = _take(block.held, taken)

    def arguments(held):
        return _arguments(kernel, held, shared)

    def start(row, held):
        return kind.start(row, arguments(held), held.t1)

    def load(pool: _Pool) -> _Pool:
        """Write one member that has ended, and load the next into its lane."""
        lane = jnp.argmax(_ended(kind, pool, size))
        old = pool.index[lane]
        rows = _put(pool.rows, old, _take(pool.lanes.row, lane))
        fresh = pool.next < count
        new = order[jnp.minimum(pool.next, size - 1)]
        held = _take(block.held, new)
        begun = start(_take(rows, new), held)
        return pool._replace(
            lanes=_put(pool.lanes, lane, begun),
            index=pool.index.at[lane].set(jnp.where(fresh, new, size)),
            held=_put(pool.held, lane, held),
            next=pool.next + fresh,
            rows=rows,
        )

    def body(pool: _Pool) -> _Pool:
        busy = pool.index < size
        lanes, taken, work = kind.advance(pool.lanes, pool.held, arguments)
        lanes, pool = _settle(kernel, kind, shared, pool, lanes, taken, busy)
        pool = pool._replace(lanes=lanes, work=jax.tree.map(jnp.add, pool.work, work))
        return lax.while_loop(lambda p: jnp.any(_ended(kind, p, size)), load, pool)

    begin = jnp.minimum(count, kernel.lanes)
    lanes = jax.vmap(start)(_take(rows, taken), held)
    pool = _Pool(lanes, index, held, begin, rows, saved, work)
    pool = lax.while_loop(lambda p: jnp.any(p.index < size), body, pool)
    return pool.rows, pool.saved, pool.work


class _Waiting(NamedTuple):
    """A row where a lane is expected."""

    row: Row


def _ended(kind, pool: _Pool, size: int) -> Bool[Array, " L"]:
    return jax.vmap(kind.is_out)(_Waiting(pool.lanes.row)) & (pool.index < size)


def _settle(kernel: PoolKernel, kind, shared: Shared, pool: _Pool, lanes, taken: Taken, busy):
    """End members, and save what the steps have passed."""
    flow = kernel.flow
    rows: Row = lanes.row
    if flow.crossing is not None:
        before = pool.lanes.row

        def cross(old, row, taken, held):
            arguments = _arguments(kernel, held, shared)
            return refine(flow, kind, old, row, taken, arguments)

        rows = jax.vmap(cross)(before, rows, taken, pool.held)

    def close(row, held, taken):
        return closed(flow, row, _arguments(kernel, held, shared), held.t1, taken.kept)

    rows = jax.vmap(close)(rows, pool.held, taken)
    if flow.at_end:
        return lanes._replace(row=rows), pool
    size, times = len(pool.rows.t), pool.held.ts.shape[1]

    def due(rows: Row):
        upcoming = jnp.take_along_axis(pool.held.ts, jnp.minimum(rows.saved, times - 1)[:, None], 1)[:, 0]
        return busy & taken.kept & (rows.saved < times) & (upcoming <= rows.t), upcoming

    def save(carry):
        rows, saved = carry
        now, t = due(rows)

        def look(t, taken, held):
            return _observe(kernel, t, kind.interpolate(taken, t), _arguments(kernel, held, shared))

        seen = jax.vmap(look)(t, taken, pool.held)
        slot = jnp.where(now, pool.index, size)
        saved = jax.tree.map(lambda all, x: all.at[slot, rows.saved].set(x, mode="drop"), saved, seen)
        return rows._replace(saved=rows.saved + now), saved

    rows, saved = lax.while_loop(lambda carry: jnp.any(due(carry[0])[0]), save, (rows, pool.saved))
    return lanes._replace(row=rows), pool._replace(saved=saved)


def _finish(kernel: PoolKernel, block: Block, shared: Shared, rows: Row, saved, work: Work) -> BlockEnd:
    """Name stiff ends, fill in what is known at the start and at the end, and blank what was not reached."""

    def last(row, held):
        arguments = _arguments(kernel, held, shared)
        return _observe(kernel, row.t, row.params, arguments)

    if kernel.flow.at_end:
        observed = jax.tree.map(lambda x: x[:, None], jax.vmap(last)(rows, block.held))
        valid = jnp.ones((len(rows.t), 1), bool)
    else:
        observed, valid = _with_start(kernel, block, shared, rows, saved)
    stats = {
        "num_steps": rows.steps,
        "num_accepted_steps": rows.accepted,
        "num_rejected_steps": rows.steps - rows.accepted,
        "num_gradients": rows.gradients,
    }
    if isinstance(kernel.flow.solver, Auto):
        stats |= {
            "num_chebyshev_steps": rows.stabilised_steps,
            "num_switches": rows.choice.switches,
            "stiff_since": rows.choice.since,
            "stiffness": rows.stiffness,
        }
    return BlockEnd(rows.params, rows.t, observed, valid, _named(kernel, block, shared, rows), stats, work)


def _with_start(kernel: PoolKernel, block: Block, shared: Shared, rows: Row, saved):
    """Return what was observed; the state at t0 is known exactly, and exists even where no step succeeded."""

    def look(t, params, held):
        return _observe(kernel, t, params, _arguments(kernel, held, shared))

    at_start = block.held.ts[:, 0] == block.t0
    initial = jax.vmap(look)(block.t0, block.params, block.held)
    count = jnp.where(at_start, jnp.maximum(rows.saved, 1), rows.saved)
    valid = jnp.arange(block.held.ts.shape[1]) < count[:, None]

    def with_first(x, first):
        chosen = jnp.where(at_start.reshape((-1,) + (1,) * (first.ndim - 1)), first, x[:, 0])
        return x.at[:, 0].set(chosen)

    return blank(jax.tree.map(with_first, saved, initial), valid), valid


def _named(kernel: PoolKernel, block: Block, shared: Shared, rows: Row) -> RESULTS:
    """Tell members that ran out of steps at the limit of stability from those that merely ran out."""
    out_of_steps = rows.result == RESULTS.max_steps_reached
    if isinstance(kernel.flow.solver, diffrax.AbstractImplicitSolver):
        return rows.result

    def stiff(row, held):
        arguments = _arguments(kernel, held, shared)
        return is_stiff(kernel.flow, row.params, arguments, jnp.asarray(True), row.dt)

    found = lax.cond(
        out_of_steps.any(), lambda: jax.vmap(stiff)(rows, block.held), lambda: jnp.zeros_like(out_of_steps)
    )
    return jax.vmap(lambda is_stiff, code: RESULTS.where(is_stiff, RESULTS.stiff, code))(
        out_of_steps & found, rows.result
    )
