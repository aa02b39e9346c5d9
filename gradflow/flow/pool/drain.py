"""The loop of the pool: lanes advance, what they pass is saved, and a lane that is free loads the next member."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int, PyTree

from gradflow.flow.kernel import Arguments
from gradflow.flow.pool.crossing import refine
from gradflow.flow.pool.explicit import Explicit
from gradflow.flow.pool.rows import Held, Layout, Row, Taken, Work, closed, select, stopped
from gradflow.flow.pool.stabilised import Stabilised

FEW_LANES = 64  # up to which lanes load and write one by one; more of them, as on an accelerator, do it together


class State(NamedTuple):
    """All members: where they stand, what they saved `(B + 1, T, ...)`, and how full the lanes were so far.

    The last row of what is saved belongs to no member: lanes with nothing to save write there.
    """

    rows: Row
    saved: PyTree
    work: Work


class Pool(NamedTuple):
    """Carry of the loop.

    Attributes:
        lanes: members under way.
        index: which members they are; B for none.
        held: what these own.
        queue: members in the order in which they are loaded.
        next: place of the next one in the queue.
        count: length of the queue.
        state: of all members; those under way are written when they leave their lane.
    """

    lanes: Any
    index: Int[Array, " L"]
    held: Held
    queue: Int[Array, " B"]
    next: Int[Array, ""]
    count: Int[Array, ""]
    state: State


class Drain:
    """Runs all members that one kind of lane takes."""

    def __init__(
        self,
        layout: Layout,
        kind: Explicit | Stabilised,
        lanes: int,
        held: Held,
        arguments: Callable[[Held], Arguments],
        observe: Callable[[Any, list[Array], Arguments], PyTree],
    ):
        """Describe the loop.

        Args:
            layout: of a member.
            kind: of the lanes.
            lanes: how many.
            held: what each member owns `(B, ...)`.
            arguments: puts one member's arguments together.
            observe: what is saved of a member.
        """
        self.layout, self.kind, self.lanes, self.held = layout, kind, lanes, held
        self.arguments, self.observe = arguments, observe
        self.size, self.times = held.ts.shape

    def vacant(self, state: State) -> Pool:
        """Return a pool without members under way, and the queue of those that wait for this kind of lane."""
        waiting = ~jax.vmap(self.kind.is_out)(state.rows)
        first = take((state.rows, self.held), jnp.zeros(self.lanes, jnp.int32))
        shapes = jax.eval_shape(jax.vmap(self._start), *first)
        lanes = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        return Pool(
            lanes=lanes._replace(row=lanes.row._replace(finished=jnp.ones(self.lanes, bool))),
            index=jnp.full(self.lanes, self.size, jnp.int32),
            held=first[1],
            queue=jnp.argsort(~waiting, stable=True).astype(jnp.int32),
            next=jnp.zeros((), jnp.int32),
            count=waiting.sum(dtype=jnp.int32),
            state=state,
        )

    def is_going(self, pool: Pool) -> Bool[Array, ""]:
        """Return whether any member waits or is under way."""
        return (pool.next < pool.count) | jnp.any(pool.index < self.size)

    def advance(self, pool: Pool, limit: Int[Array, ""]) -> Pool:
        """Advance members until all have ended or ask for the other kind of lane, or for `limit` iterations."""
        load = self._load_one if self.lanes <= FEW_LANES else self._load_all

        def body(carry: tuple[Pool, Array]) -> tuple[Pool, Array]:
            pool, left = carry
            pool = lax.while_loop(lambda p: self._free(p).any(), load, pool)
            lanes, taken, work = self.kind.advance(pool.lanes, pool.held, self.arguments)
            lanes, saved = self._settle(pool, lanes, taken)
            state = State(pool.state.rows, saved, jax.tree.map(jnp.add, pool.state.work, work))
            return pool._replace(lanes=lanes, state=state), left - 1

        return lax.while_loop(lambda c: (c[1] > 0) & self.is_going(c[0]), body, (pool, limit))[0]

    def _start(self, row: Row, held: Held):
        arguments = self.arguments(held)
        lane = self.kind.start(row._replace(params=self.layout.pack(row.params)), arguments, held.t1)
        return lane._replace(row=stopped(self.layout, lane.row, arguments, row.steps == 0))

    def _row(self, lane: Row) -> Row:
        """Return a member as it leaves its lane."""
        return lane._replace(params=self.layout.unpack(lane.params))

    def _free(self, pool: Pool) -> Bool[Array, " L"]:
        """Return which lanes have something to write, or could load."""
        vacant = pool.index == self.size
        out = jax.vmap(self.kind.is_out)(pool.lanes.row)
        return jnp.where(vacant, pool.next < pool.count, out)

    def _load_one(self, pool: Pool) -> Pool:
        """Write the member of one free lane, and load the next into it."""
        lane = jnp.argmax(self._free(pool)).astype(jnp.uint32)
        old, row = _one((pool.index, pool.lanes.row), lane)
        place = jnp.minimum(old, self.size - 1)
        rows = pool.state.rows
        rows = _put_one(rows, place, select(old < self.size, self._row(row), _one(rows, place)))
        fresh = pool.next < pool.count
        new = _one(pool.queue, jnp.minimum(pool.next, self.size - 1))
        held, row = _one((self.held, rows), new)
        row = row._replace(finished=row.finished | ~fresh)  # a lane that stays empty must not look busy
        return pool._replace(
            lanes=_put_one(pool.lanes, lane, self._start(row, held)),
            index=_put_one(pool.index, lane, jnp.where(fresh, new, self.size)),
            held=_put_one(pool.held, lane, held),
            next=pool.next + fresh,
            state=pool.state._replace(rows=rows),
        )

    def _load_all(self, pool: Pool) -> Pool:
        """Write the members of all free lanes, and load the next into them."""
        free = self._free(pool)
        written = jnp.where(free, pool.index, self.size)  # out of range where there is nothing to write
        left = jax.vmap(self._row)(pool.lanes.row)
        rows = jax.tree.map(lambda x, y: x.at[written].set(y, mode="drop"), pool.state.rows, left)
        place = pool.next + jnp.cumsum(free, dtype=jnp.int32) - 1
        fresh = free & (place < pool.count)
        new = pool.queue[jnp.clip(place, 0, self.size - 1)]
        held = take(self.held, new)
        begun = jax.vmap(self._start)(take(rows, new), held)
        lanes, held = jax.vmap(select)(fresh, (begun, held), (pool.lanes, pool.held))
        return pool._replace(
            lanes=lanes,
            index=jnp.where(free, jnp.where(fresh, new, self.size), pool.index),
            held=held,
            next=pool.next + fresh.sum(dtype=jnp.int32),
            state=pool.state._replace(rows=rows),
        )

    def _settle(self, pool: Pool, lanes, taken: Taken) -> tuple[Any, PyTree]:
        """End members, and save what the steps have passed."""
        rows: Row = lanes.row
        if self.layout.flow.crossing is not None:

            def cross(before, row, taken, held):
                return refine(self.layout, self.kind, before, row, taken, self.arguments(held))

            rows = jax.vmap(cross)(pool.lanes.row, rows, taken, pool.held)

        def close(row, held, kept):
            return closed(self.layout, row, self.arguments(held), held.t1, kept)

        rows = jax.vmap(close)(rows, pool.held, taken.kept)
        if self.layout.flow.at_end:
            return lanes._replace(row=rows), pool.state.saved
        carry = rows, pool.state.saved
        save = functools.partial(self._save, pool, taken)
        rows, saved = lax.while_loop(lambda c: self._due(pool, taken, c[0])[0].any(), save, carry)
        return lanes._replace(row=rows), saved

    def _due(self, pool: Pool, taken: Taken, rows: Row) -> tuple[Array, Array]:
        """Return which lanes have passed their next save time, and that time."""
        at = jnp.minimum(rows.saved, self.times - 1)[:, None]
        upcoming = jnp.take_along_axis(pool.held.ts, at, 1)[:, 0]
        passed = (rows.saved < self.times) & (upcoming <= rows.t)
        return (pool.index < self.size) & taken.kept & passed, upcoming

    def _save(self, pool: Pool, taken: Taken, carry: tuple[Row, PyTree]) -> tuple[Row, PyTree]:
        """Save one row of every lane that is due."""
        rows, saved = carry
        due, t = self._due(pool, taken, rows)

        def look(t, taken, held):
            return self.observe(t, self.kind.interpolate(taken, t), self.arguments(held))

        seen = jax.vmap(look)(t, taken, pool.held)
        write = functools.partial(_write, jnp.where(due, pool.index, self.size), rows.saved)
        return rows._replace(saved=rows.saved + due), jax.tree.map(write, saved, seen)


def take(tree: Any, index) -> Any:
    """Return the members at an index."""
    return jax.tree.map(lambda x: x[index], tree)


# With an unsigned index JAX adds no code for negative ones, which counts where there are a hundred arrays to compile.
def _one(tree: Any, index) -> Any:
    return jax.tree.map(lambda x: lax.dynamic_index_in_dim(x, index.astype(jnp.uint32), keepdims=False), tree)


def _put_one(tree: Any, index, part: Any) -> Any:
    def put(x, y):
        return lax.dynamic_update_index_in_dim(x, jnp.asarray(y, x.dtype), index.astype(jnp.uint32), 0)

    return jax.tree.map(put, tree, part)


def _write(member, column, all: Array, x: Array) -> Array:
    """Write one row of each lane; on a CPU a scatter costs more than as many writes of their own."""
    if len(member) > FEW_LANES:
        return all.at[member, column].set(x)
    zero = jnp.zeros((), member.dtype)
    for lane in range(len(member)):
        at = member[lane], column[lane], *(zero,) * (x.ndim - 1)
        all = lax.dynamic_update_slice(all, x[lane][None, None], at)
    return all
