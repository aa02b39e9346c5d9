"""The points of a sweep: groups that share a kernel, cut into blocks that run and are stored as one."""

import dataclasses
import functools
import hashlib
import itertools
import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from gradflow.sweep.axes import SEED, Axis, Dimension


@dataclasses.dataclass(frozen=True, eq=False)
class Chunk:
    """Members that run in one call: a block of the grid within one static group.

    Attributes:
        group: number of the static group.
        place: number of the block along each dimension.
        region: the block, as an index of the result.
    """

    group: int
    place: tuple[int, ...]
    region: tuple[slice, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the block."""
        return tuple(part.stop - part.start for part in self.region)

    @property
    def count(self) -> int:
        """Number of its members."""
        return math.prod(self.shape)


@dataclasses.dataclass(frozen=True, eq=False)
class Members:
    """The points of a chunk.

    Attributes:
        shared: value of each static axis.
        varied: values of each batched axis, one a member.
        seeds: value of the seed axis, one a member; None where there is none.
        digests: a stable hash of each point without its seed, `(M, 2)` 32-bit words.
    """

    shared: dict[str, Any]
    varied: dict[str, np.ndarray]
    seeds: np.ndarray | None
    digests: np.ndarray | None


@dataclasses.dataclass(frozen=True, eq=False)
class Grid:
    """The product of all dimensions.

    Attributes:
        dimensions: in the order of the result.
    """

    dimensions: tuple[Dimension, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the result."""
        return tuple(dimension.size for dimension in self.dimensions)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the result's dimensions."""
        return tuple(dimension.name for dimension in self.dimensions)

    @functools.cached_property
    def axes(self) -> dict[str, Axis]:
        """All axes by name."""
        return {axis.name: axis for dimension in self.dimensions for axis in dimension.axes}

    @property
    def groups(self) -> int:
        """Number of static groups."""
        return math.prod(dimension.size for dimension in self.dimensions if not dimension.batched)

    def block(self, members: int) -> tuple[int, ...]:
        """Return the sizes of a block of at most so many members.

        Blocks are rectangles, so that each is one chunk of every stored array: whole along the last dimensions, a part
        of one dimension, one value along those before.

        Args:
            members: how many at most.

        Returns:
            One size a dimension, 1 along static ones.
        """
        sizes, room = [], max(members, 1)
        for dimension in reversed(self.dimensions):
            size = min(dimension.size, room) if dimension.batched else 1
            if dimension.batched:
                size = math.ceil(dimension.size / math.ceil(dimension.size / size))
                room = room // size if size == dimension.size else 1
            sizes.append(size)
        return tuple(reversed(sizes))

    def chunks(self, block: tuple[int, ...]) -> Iterator[Chunk]:
        """Yield all chunks, group by group."""
        counts = [math.ceil(size / part) for size, part in zip(self.shape, block, strict=True)]
        batched = [dimension.batched for dimension in self.dimensions]
        fixed = [range(1 if flag else count) for count, flag in zip(counts, batched, strict=True)]
        moving = [range(count if flag else 1) for count, flag in zip(counts, batched, strict=True)]
        for group, outer in enumerate(itertools.product(*fixed)):
            for inner in itertools.product(*moving):
                place = tuple(a + b for a, b in zip(outer, inner, strict=True))
                yield Chunk(group, place, self._region(place, block))

    def _region(self, place: tuple[int, ...], block: tuple[int, ...]) -> tuple[slice, ...]:
        starts = [i * part for i, part in zip(place, block, strict=True)]
        return tuple(
            slice(start, min(start + part, size)) for start, part, size in zip(starts, block, self.shape, strict=True)
        )

    def first_chunks(self) -> list[Chunk]:
        """Return one chunk of a single member for each group."""
        places = itertools.product(*(range(1 if d.batched else d.size) for d in self.dimensions))
        ones = (1,) * len(self.dimensions)
        return [Chunk(group, place, self._region(place, ones)) for group, place in enumerate(places)]

    def members(self, chunk: Chunk, count: int | None = None, *, digest: bool = False) -> Members:
        """Return the points of a chunk, the last one repeated up to `count`.

        Args:
            chunk: the chunk.
            count: how many members to return; None for as many as there are.
            digest: whether to hash the points.

        Returns:
            The points.
        """
        index = np.indices(chunk.shape).reshape(len(chunk.shape), chunk.count)
        index = index + np.array([part.start for part in chunk.region], int).reshape(-1, 1)
        if count is not None and count > chunk.count:
            index = np.concatenate([index, np.repeat(index[:, -1:], count - chunk.count, axis=1)], axis=1)
        shared, varied = {}, {}
        for dimension, where in zip(self.dimensions, index, strict=True):
            for axis in dimension.axes:
                if axis.kind == "static":
                    shared[axis.name] = axis.values[where[0]]
                else:
                    varied[axis.name] = np.asarray(axis.values)[where]
        seeds = varied.get(SEED)
        if SEED in shared:
            seeds = np.full(index.shape[1], shared[SEED])
        return Members(shared, varied, seeds, self._digests(index) if digest else None)

    def _digests(self, index: np.ndarray) -> np.ndarray:
        return np.array([_digest(self.point(column)) for column in index.T], np.uint32).reshape(-1, 2)

    def point(self, index: Any) -> dict[str, Any]:
        """Return the labels of one point, given its place along each dimension."""
        return {
            axis.name: axis.labels[i].item()
            for dimension, i in zip(self.dimensions, index, strict=True)
            for axis in dimension.axes
        }


def _digest(point: dict[str, Any]) -> list[int]:
    """Return two words that depend on the point alone: not on the order or the type of its numbers, nor its seed."""
    named = {name: float(value) if isinstance(value, int) else value for name, value in point.items() if name != SEED}
    digest = hashlib.sha256(json.dumps(named, sort_keys=True).encode()).digest()
    return [int.from_bytes(digest[i : i + 4], "little") for i in (0, 4)]
