"""A pool of lanes in one kernel: a lane whose member ended writes its result and loads the next member.

No lane waits for another. The kernel returns when it has no member left for an idle lane, so that the host can hand it
more while the other lanes stay where they are. Without `stop` all lanes run in phase and save together.
"""

import functools
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree, Shaped

from gradflow.descent import kernel as kernels
from gradflow.descent.kernel import Inputs, State
from gradflow.descent.lanes import LaneKernel, join, start
from gradflow.errors import FlowError, shown
from gradflow.problem.room import note_kernel
from gradflow.types import Number

IDLE = -1
Tree = TypeVar("Tree")


class Pool(NamedTuple):
    """What the lanes hold: the member's number (`IDLE` for none), its state and its own inputs."""

    member: Int[Array, " L"]
    state: State
    own: Inputs


class Feed(NamedTuple):
    """Members that wait: number in the ensemble, initial parameters and own inputs; `taken` of `count` are loaded."""

    member: Int[Array, " B"]
    params: list[Shaped[Array, "B ..."]]
    own: Inputs
    count: Int[Array, ""]
    taken: Int[Array, ""]


class Row(NamedTuple):
    """A member that ended, or many of them along axis 0; `stopped` by the user's function, `finite` at its end."""

    member: Int[Array, "..."]
    params: list[Array]
    saved: PyTree[Array]
    index: Int[Array, "..."]
    step: Int[Array, "..."]
    stopped: Bool[Array, "..."]
    finite: Bool[Array, "..."]
    stalled: Float[Array, "..."]


class Carry(NamedTuple):
    """What a call changes; the first `ended` rows of `out` are members that ended."""

    pool: Pool
    taken: Int[Array, ""]
    out: Row
    ended: Int[Array, ""]
    iteration: Int[Array, ""]


class _Signs(NamedTuple):
    """What the state of a lane calls for before its next step."""

    due: Bool[Array, " L"]
    stopped: Bool[Array, " L"]
    ended: Bool[Array, " L"]


def idle(kernel: LaneKernel, params: list[Array], own: Inputs, shared: Inputs) -> Pool:
    """Return a pool of idle lanes, shaped by any members."""
    shapes = jax.eval_shape(functools.partial(start, kernel), params, own, shared)
    state = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)
    member: Any = np.full(len(params[0]), IDLE)
    return Pool(member, state, own)


@functools.partial(jax.jit, static_argnums=0)
def run(
    kernel: LaneKernel,
    pool: Pool,
    feed: Feed,
    shared: Inputs,
    steps: Int[Number, ""],
    last: Bool[Number, ""],
    limit: Int[Number, ""],
) -> Carry:
    """Advance the lanes until one is idle for want of members, or for `limit` iterations.

    Args:
        kernel: structure of the ensemble.
        pool: the lanes.
        feed: members to load.
        shared: inputs that all members share.
        steps: length of a run that does not stop.
        last: no more members will come: go on until every lane is idle.
        limit: number of iterations of this call.

    Returns:
        The pool to go on from, how many of the feed are loaded, and the members that ended.
    """
    note_kernel()
    zero = jnp.zeros((), limit.dtype)

    def is_running(carry: Carry) -> Array:
        active = carry.pool.member != IDLE
        return (carry.iteration < limit) & active.any() & (last | active.all() | (carry.taken < feed.count))

    def serve(carry: Carry) -> Carry:
        old, new, signs, iteration = _march(kernel, shared, steps, limit, carry)
        save = _save_together if kernel.stop is None else _save_one_by_one
        new = save(kernel, shared, signs.due, old, new._replace(saved=carry.pool.state.saved), carry.pool.own)
        carry = carry._replace(pool=carry.pool._replace(state=new), iteration=iteration)
        return _load(kernel, feed, shared, _collect(kernel, shared, signs, old, carry))

    with jax.default_matmul_precision("highest"):
        carry = Carry(pool, feed.taken, _no_rows(pool, len(feed.member) + len(pool.member)), zero, zero)
        return lax.while_loop(is_running, serve, _load(kernel, feed, shared, carry))


def _march(kernel: LaneKernel, shared: Inputs, steps, limit, carry: Carry) -> tuple[State, State, _Signs, Array]:
    """Step all lanes until one of them has to save or to end; return the states before and after the last step."""
    # The look at a state comes before its step: the compiler evaluates a loss in `stop` once, for the gradient as well.
    own, active = carry.pool.own, carry.pool.member != IDLE

    def lane(state: State, own: Inputs) -> tuple[State, _Signs]:
        inputs = join(own, shared)
        proposal = kernels.propose(kernel.one, state, inputs)
        stopped, ended = jnp.array(False), state.step >= steps
        if kernel.stop is not None:
            stopped = _is_stopped(kernel, state, inputs)
            ended = ended | stopped | ~jnp.isfinite(proposal.value)
        return kernels.follow(state, proposal), _Signs(kernels.is_due(state, inputs), stopped, ended)

    def step(c: tuple[State, State, _Signs, Array]) -> tuple[State, State, _Signs, Array]:
        _, state, _, iteration = c
        new, signs = jax.vmap(lane)(state, own)
        return state, new, jax.tree.map(lambda sign: sign & active, signs), iteration + 1

    def is_quiet(c: tuple[State, State, _Signs, Array]) -> Array:
        return ~(c[2].due | c[2].ended).any() & (c[3] < limit)

    bare, nothing = carry.pool.state._replace(saved=()), jnp.zeros_like(active)
    return lax.while_loop(is_quiet, step, (bare, bare, _Signs(nothing, nothing, nothing), carry.iteration))


def _is_stopped(kernel: LaneKernel, state: State, inputs: Inputs) -> Array:
    assert kernel.stop is not None
    flag: Any = kernel.stop(state.step, *kernel.one.structure.join(state.params, inputs.frozen))
    if not eqx.is_array_like(flag) or jnp.shape(flag) or jnp.iscomplexobj(flag):
        raise FlowError(f"stop returns {shown(flag)}: it must return one boolean, such as `loss(model, args) < 1e-6`")
    return jnp.asarray(flag).astype(bool)


def _take(tree: Tree, index: Array) -> Tree:
    return jax.tree.map(lambda x: x[index], tree)


def _put(tree: Tree, index: Array, row: Tree) -> Tree:
    return jax.tree.map(lambda x, value: x.at[index].set(value), tree, row)


def _save_together(kernel: LaneKernel, shared: Inputs, due: Array, old: State, new: State, own: Inputs) -> State:
    """Save lanes in phase: those due have the same number of saved rows."""

    def write(state: State) -> State:
        def one(step: Array, params: list[Array], own: Inputs) -> PyTree[Array]:
            return kernels.observe_at(kernel.one, step, params, join(own, shared))

        rows, index = jax.vmap(one)(old.step, old.params, own), old.index[jnp.argmax(due)]

        def put(saved: Array, row: Array) -> Array:
            mask = due.reshape(-1, *(1,) * (row.ndim - 1))
            return saved.at[:, index].set(jnp.where(mask, row, saved[:, index]))

        return state._replace(saved=jax.tree.map(put, state.saved, rows), index=state.index + due)

    return lax.cond(due.any(), write, lambda state: state, new)


def _save_one_by_one(kernel: LaneKernel, shared: Inputs, due: Array, old: State, new: State, own: Inputs) -> State:
    """Save one lane after the other: those out of phase are rarely due together, and what is observed may be dear."""

    def write(carry: tuple[Array, State]) -> tuple[Array, State]:
        due, new = carry
        lane = jnp.argmax(due)
        row = kernels.observe_at(kernel.one, old.step[lane], _take(old.params, lane), join(_take(own, lane), shared))
        saved = jax.tree.map(lambda rows, x: rows.at[lane, old.index[lane]].set(x), new.saved, row)
        return due.at[lane].set(False), new._replace(saved=saved, index=new.index.at[lane].add(1))

    return lax.while_loop(lambda carry: carry[0].any(), write, (due, new))[1]


def _collect(kernel: LaneKernel, shared: Inputs, signs: _Signs, old: State, carry: Carry) -> Carry:
    """Write the members that ended, and leave their lanes idle."""
    pool = carry.pool

    def write(c: tuple[Array, Array, Row, Array]) -> tuple[Array, Array, Row, Array]:
        waiting, member, out, count = c
        lane = jnp.argmax(waiting)
        state, own = _take((old, pool.own), lane)
        proposal = kernels.propose(kernel.one, state, join(own, shared))
        row = Row(
            member=member[lane],
            params=state.params,
            saved=_take(pool.state.saved, lane),
            index=pool.state.index[lane],
            step=state.step,
            stopped=signs.stopped[lane],
            finite=kernels.all_finite(state.params, proposal.value, proposal.gradient),
            stalled=kernels.lost_fraction(state.params, proposal.updates),
        )
        return waiting.at[lane].set(False), member.at[lane].set(IDLE), _put(out, count, row), count + 1

    start = (signs.ended, pool.member, carry.out, carry.ended)
    _, member, out, count = lax.while_loop(lambda c: c[0].any(), write, start)
    return carry._replace(pool=pool._replace(member=member), out=out, ended=count)


def _load(kernel: LaneKernel, feed: Feed, shared: Inputs, carry: Carry) -> Carry:
    """Load members into the idle lanes, as long as there are any of both."""

    def is_wanted(c: tuple[Pool, Array]) -> Array:
        return (c[0].member == IDLE).any() & (c[1] < feed.count)

    def load(c: tuple[Pool, Array]) -> tuple[Pool, Array]:
        pool, taken = c
        lane = jnp.argmax(pool.member == IDLE)
        member, params, own = _take((feed.member, feed.params, feed.own), taken)
        zero = jnp.zeros((), pool.state.step.dtype)
        optimizer = kernel.one.transformation(join(own, shared)).init(kernel.one.structure.moving(params))
        # Rows saved by the lane's last member stay: they are written again before they count.
        fresh = State(params, optimizer, zero, (), zero, jnp.array(True))
        state = _put(pool.state._replace(saved=()), lane, fresh)._replace(saved=pool.state.saved)
        return Pool(pool.member.at[lane].set(member), state, _put(pool.own, lane, own)), taken + 1

    pool, taken = lax.while_loop(is_wanted, load, (carry.pool, carry.taken))
    return carry._replace(pool=pool, taken=taken)


def _no_rows(pool: Pool, count: int) -> Row:
    def blank(x: Array) -> Array:
        return jnp.zeros((count, *x.shape[1:]), x.dtype)

    state = pool.state
    params, saved = jax.tree.map(blank, (state.params, state.saved))
    flags = jnp.zeros(count, bool)
    stalled = jnp.zeros(count, jax.eval_shape(kernels.lost_fraction, state.params, state.params).dtype)
    zeros = blank(state.step)
    return Row(jnp.full(count, IDLE), params, saved, zeros, zeros, flags, flags, stalled)
