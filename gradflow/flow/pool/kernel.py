"""The compiled pool: a block of members goes through lanes of one kind, or back and forth between two."""

import dataclasses
import functools
import itertools
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, PyTree

from gradflow.flow.controller import FlowController
from gradflow.flow.field import velocity
from gradflow.flow.kernel import Arguments, Kernel, is_stiff
from gradflow.flow.pool.drain import Drain, Pool, State, take
from gradflow.flow.pool.explicit import Explicit
from gradflow.flow.pool.rows import Held, Layout, Row, Work, first_row
from gradflow.flow.pool.stabilised import Stabilised
from gradflow.flow.solvers import Auto, choice_stats, count_gradients, held_by_stability
from gradflow.problem import check_loss
from gradflow.problem.room import era, note_kernel
from gradflow.trajectory import blank, observed_arrays
from gradflow.types import RESULTS, Number


@dataclasses.dataclass(frozen=True, eq=False)
class PoolKernel:
    """All that picks a compiled pool; equal ones are the same object, see `pool_kernel`.

    Attributes:
        flow: the structure of a member and what is done along the way.
        batched: one flag a fixed array: does each member have its own?
        lanes: members that advance together.
    """

    flow: Kernel
    batched: tuple[bool, ...]
    lanes: int


@functools.cache
def pool_kernel(flow: Kernel, batched: tuple[bool, ...], lanes: int) -> PoolKernel:
    """Return the kernel with these attributes, always the same: each call of a compiled function looks it up.

    To compare Equinox modules there would take longer than the call.
    """
    return PoolKernel(flow, batched, lanes)


class Block(NamedTuple):
    """Members of one call: arrays `(B, ...)`; those behind `count` are padding."""

    params: list[Any]
    held: Held
    t0: Number
    count: Number


class Shared(NamedTuple):
    """What all members read: fixed arrays without a member axis, and tolerances."""

    frozen: list[Number]
    rtol: Number
    atol: Number


class BlockEnd(NamedTuple):
    """Rows at the end of a block `(B, ...)`, what was observed `(B, T, ...)`, and how full the lanes were."""

    params: list[Array]
    t: Float[Array, " B"]
    observed: PyTree
    valid: Bool[Array, "B T"]
    result: RESULTS
    stats: dict[str, Array]
    work: Work


Kind = type[Explicit] | type[Stabilised]
FIRST_CALL = 1000  # iterations of a first call, which measures the speed
CALL_SECONDS = 0.3  # length of later ones: how long Ctrl-C waits
_compiled: set[Any] = set()
_compiling = threading.Lock()
_iterations: dict[tuple[PoolKernel, Kind], int] = {}  # of a call, as earlier blocks have measured it


def run(kernel: PoolKernel, block: Block, shared: Shared, cancelled: Callable[[], bool]) -> BlockEnd:
    """Integrate every member of a block, and wait for it.

    Each kind of lane is a kernel of its own, compiled when the first member asks for it.

    Args:
        kernel: what picks the compiled pool.
        block: the members.
        shared: what all of them read.
        cancelled: asked now and then; members that have not ended by then are marked as interrupted.

    Returns:
        Their ends.
    """
    solver = kernel.flow.solver
    kinds: list[Kind] = [Explicit]
    if isinstance(solver, Auto):
        kinds = [Stabilised] if solver.always_stabilised else [Explicit, Stabilised]
    pool = _once(_begin, (kernel, kinds[0]), block, shared)
    state = _drained(kernel, kinds[0], block, shared, pool, cancelled)
    for kind in itertools.cycle([*kinds[1:], kinds[0]]):
        if cancelled() or np.asarray(state.rows.finished).all():
            break
        pool = _once(_vacant, (kernel, kind), block, shared, state)
        state = _drained(kernel, kind, block, shared, pool, cancelled)
    return jax.block_until_ready(_once(_finish, (kernel,), block, shared, state))


def _drained(
    kernel: PoolKernel, kind: Kind, block: Block, shared: Shared, pool: Pool, cancelled: Callable[[], bool]
) -> State:
    """Advance every member until it has ended or asks for the other kind of lane."""
    # A first call without iterations compiles, and lets no other thread wait for more than that.
    going, limit = True, _iterations.get((kernel, kind), 0)
    while going and not cancelled():
        begin = time.perf_counter()
        pool, more = _once(_advance, (kernel, kind), block, shared, pool, np.asarray(limit, np.int32))
        going = bool(more)
        if limit == 0:
            limit = FIRST_CALL
        elif going:
            speed = CALL_SECONDS / max(time.perf_counter() - begin, 1e-4)
            limit = int(min(max(limit * min(speed, 10.0), 1), 2**30))
        _iterations[kernel, kind] = limit
    return pool.state


def _once(function: Callable, static: tuple, block: Block, shared: Shared, *rest: Any) -> Any:
    """Call a compiled function; its first call compiles while other threads wait, where JAX would let each compile."""
    leaves, structure = jax.tree.flatten((block, shared))
    config: Any = jax.config
    place = tuple(leaves[0].devices()), config.jax_enable_x64
    key = era(), function, static, structure, tuple((x.shape, x.dtype) for x in leaves), place
    if key in _compiled:
        return function(*static, block, shared, *rest)
    with _compiling:
        note_kernel()
        result = jax.block_until_ready(function(*static, block, shared, *rest))
        _compiled.add(key)
        return result


def _started(kernel: PoolKernel, block: Block, shared: Shared) -> State:
    """Return all members at their start, those of the padding as ended."""
    params, own = take((block.params, block.held.frozen), 0)
    check_loss(kernel.flow.structure, params, _frozen(kernel, own, shared))
    stabilised = isinstance(kernel.flow.solver, Auto) and kernel.flow.solver.always_stabilised
    rows = jax.vmap(functools.partial(first_row, stabilised=stabilised))(block.params, jnp.asarray(block.t0))
    rows = rows._replace(finished=jnp.arange(len(block.t0)) >= block.count)
    return State(rows, _room(kernel, block, shared), Work.none())


@functools.partial(jax.jit, static_argnums=(0, 1))
def _begin(kernel: PoolKernel, kind: Kind, block: Block, shared: Shared) -> Pool:
    return _drain(kernel, kind, block, shared).vacant(_started(kernel, block, shared))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _vacant(kernel: PoolKernel, kind: Kind, block: Block, shared: Shared, state: State) -> Pool:
    return _drain(kernel, kind, block, shared).vacant(state)


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=4)
def _advance(kernel: PoolKernel, kind: Kind, block: Block, shared: Shared, pool: Pool, limit) -> tuple[Pool, Array]:
    """Advance the members of a pool for some iterations, and return whether it has to go on."""
    drain = _drain(kernel, kind, block, shared)
    with jax.default_matmul_precision("highest"):
        pool = drain.advance(pool, limit)
    return pool, drain.is_going(pool)


def _drain(kernel: PoolKernel, kind: Kind, block: Block, shared: Shared) -> Drain:
    shapes = tuple(x.shape[1:] for x in block.params)
    layout = Layout(kernel.flow, shapes, packed=kind is Stabilised)

    def field(t, y, args: Arguments):
        return layout.pack(velocity(kernel.flow.structure, layout.unpack(y), args.frozen, args.rates))

    def observe(t, y, arguments: Arguments):
        return _observe(kernel, t, layout.unpack(y), arguments)

    terms = diffrax.ODETerm(field)
    made = kind(kernel.flow.solver, terms, FlowController(rtol=shared.rtol, atol=shared.atol))
    arguments = functools.partial(_arguments, kernel, shared)
    return Drain(layout, made, kernel.lanes, block.held, arguments, observe)


def _frozen(kernel: PoolKernel, own: list[Any], shared: Shared) -> list[Any]:
    mine, common = iter(own), iter(shared.frozen)
    return [next(mine) if flag else next(common) for flag in kernel.batched]


def _arguments(kernel: PoolKernel, shared: Shared, held: Held) -> Arguments:
    return Arguments(_frozen(kernel, held.frozen, shared), held.rates, held.level)


def _observe(kernel: PoolKernel, t, params, arguments: Arguments) -> PyTree[Array]:
    if kernel.flow.observe is None:
        return params
    return observed_arrays(kernel.flow.observe, t, *kernel.flow.structure.join(params, arguments.frozen))


def _room(kernel: PoolKernel, block: Block, shared: Shared) -> PyTree[Array]:
    """Return room for what is saved along the way; nothing where only the end is."""
    if kernel.flow.at_end:
        return ()
    params, held, t0 = take((block.params, block.held, block.t0), 0)
    row = jax.eval_shape(lambda: _observe(kernel, t0, params, _arguments(kernel, shared, held)))
    size, times = block.held.ts.shape
    return jax.tree.map(lambda x: jnp.zeros((size + 1, times, *x.shape), x.dtype), row)


def saved_bytes(kernel: PoolKernel, block: Block, shared: Shared) -> int:
    """Return the bytes that one member saves along the way."""
    if kernel.flow.at_end:
        return 0
    arrays = block.params, block.held, block.t0
    params, held, t0 = jax.tree.map(lambda x: jax.ShapeDtypeStruct((1, *x.shape[1:]), x.dtype), arrays)
    room = jax.eval_shape(functools.partial(_room, kernel), Block(params, held, t0, block.count), shared)
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(room)) // 2  # the last row is no member's


@functools.partial(jax.jit, static_argnums=0)
def _finish(kernel: PoolKernel, block: Block, shared: Shared, state: State) -> BlockEnd:
    """Name stiff ends, fill in what is known at the start and at the end, and blank what was not reached."""
    rows = state.rows

    def last(row, held):
        return _observe(kernel, row.t, row.params, _arguments(kernel, shared, held))

    if kernel.flow.at_end:
        observed = jax.tree.map(lambda x: x[:, None], jax.vmap(last)(rows, block.held))
        valid = jnp.ones((len(rows.t), 1), bool)
    else:
        observed, valid = _with_start(kernel, block, shared, state)
    stats = {
        "num_steps": rows.steps,
        "num_accepted_steps": rows.accepted,
        "num_rejected_steps": rows.steps - rows.accepted,
        "num_gradients": count_gradients(kernel.flow.solver, rows.steps),
    }
    if isinstance(kernel.flow.solver, Auto):
        stats["num_gradients"] = rows.gradients
        stats |= choice_stats(rows.choice, rows.stabilised_steps, rows.stiffness)
    ended = jax.vmap(lambda finished, code: RESULTS.where(finished, code, RESULTS.interrupted))
    result = _named(kernel, block, shared, rows._replace(result=ended(rows.finished, rows.result)))
    return BlockEnd(rows.params, rows.t, observed, valid, result, stats, state.work)


def _with_start(kernel: PoolKernel, block: Block, shared: Shared, state: State):
    """Return what was observed; the state at t0 is known exactly, and exists even where no step succeeded."""

    def look(t, params, held):
        return _observe(kernel, t, params, _arguments(kernel, shared, held))

    at_start = block.held.ts[:, 0] == block.t0
    initial = jax.vmap(look)(block.t0, block.params, block.held)
    count = jnp.where(at_start, jnp.maximum(state.rows.saved, 1), state.rows.saved)
    valid = jnp.arange(block.held.ts.shape[1]) < count[:, None]

    def with_first(x, first):
        chosen = jnp.where(at_start.reshape((-1,) + (1,) * (first.ndim - 1)), first, x[:-1, 0])
        return x[:-1].at[:, 0].set(chosen)

    return blank(jax.tree.map(with_first, state.saved, initial), valid), valid


def _named(kernel: PoolKernel, block: Block, shared: Shared, rows: Row) -> RESULTS:
    """Tell members that ran out of steps at the limit of stability from those that merely ran out."""
    solver = kernel.flow.solver
    if isinstance(solver, diffrax.AbstractImplicitSolver):
        return rows.result
    out_of_steps = rows.result == RESULTS.max_steps_reached

    def stiff(row, held):
        return is_stiff(kernel.flow, row.params, _arguments(kernel, shared, held), jnp.asarray(True), row.dt)

    if isinstance(solver, Auto):  # which has measured it
        found = held_by_stability(rows.choice)
    else:
        found = lax.cond(
            out_of_steps.any(), lambda: jax.vmap(stiff)(rows, block.held), lambda: jnp.zeros_like(out_of_steps)
        )
    return jax.vmap(lambda is_stiff, code: RESULTS.where(is_stiff, RESULTS.stiff, code))(
        out_of_steps & found, rows.result
    )
