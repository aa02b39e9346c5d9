"""Every point is in one chunk, chunks are alike, and a point's hash depends on the point alone."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gradflow.sweep.axes import dimensions
from gradflow.sweep.grid import Grid

sizes = st.lists(st.tuples(st.integers(1, 7), st.booleans()), max_size=4)


def grid_of(shape: list[tuple[int, bool]]) -> Grid:
    """A grid whose axes are batched (floats) or static (integers)."""
    return Grid(
        dimensions({f"a{i}": [x * (1.0 if flag else 1) for x in range(n)] for i, (n, flag) in enumerate(shape)})
    )


@given(sizes, st.integers(1, 50))
def test_chunks_cover_the_grid_once(shape, members):
    grid = grid_of(shape)
    block = grid.block(members)
    chunks = list(grid.chunks(block))
    seen = np.zeros(grid.shape, int)
    for chunk in chunks:
        seen[chunk.region] += 1
        assert [part.start for part in chunk.region] == [i * b for i, b in zip(chunk.place, block, strict=True)]
    assert (seen == 1).all()
    assert np.prod(block, dtype=int) <= members
    assert len({chunk.place for chunk in chunks}) == len(chunks)
    assert sorted({chunk.group for chunk in chunks}) == list(range(grid.groups))


@given(sizes, st.integers(1, 50))
def test_members_are_the_points_of_the_chunk(shape, members):
    grid = grid_of(shape)
    block = grid.block(members)
    count = int(np.prod(block, dtype=int))
    for chunk in list(grid.chunks(block))[:5]:
        points = grid.members(chunk, count)
        index = [range(part.start, part.stop) for part in chunk.region]
        corners = np.stack([x.ravel() for x in np.meshgrid(*index, indexing="ij")]) if index else np.zeros((0, 1))
        for i, (_, flag) in enumerate(shape):
            if flag:
                padded = np.concatenate([corners[i], np.full(count - chunk.count, corners[i][-1])])
                np.testing.assert_array_equal(points.varied[f"a{i}"], padded)
            else:
                assert points.shared[f"a{i}"] == corners[i][0]


def test_blocks_are_whole_rows():
    grid = Grid(
        dimensions({"act": ["a", "b", "c"], "scale": [0.1, 1.0, 10.0], "kappa": np.arange(25.0), "seed": range(50)})
    )
    assert grid.block(2048) == (1, 1, 25, 50)
    assert grid.block(10_000) == (1, 3, 25, 50)
    assert grid.block(300) == (1, 1, 5, 50)
    assert grid.block(49) == (1, 1, 1, 25)
    assert grid.groups == 3


def test_digests_depend_on_the_point_alone():
    def digests(axes):
        grid = Grid(dimensions(axes))
        (chunk,) = grid.chunks(grid.shape)
        return grid.members(chunk, digest=True).digests.tolist()

    plain = digests({"a": [1.0, 2.0], "b": [0.5]})
    assert len({tuple(row) for row in plain}) == 2
    assert digests({"b": [0.5], "a": [2.0, 1.0]}) == plain[::-1]
    assert digests({"a": [1, 2.0, 3.0], "b": [0.5]})[:2] == plain
    assert digests({"a": [1.0, 2.0], "b": [0.5], "seed": [3]}) == plain
    assert digests({("a", "b"): [(1.0, 0.5), (2.0, 0.5)]}) == plain
    assert digests({}) == digests({"seed": [1]})
