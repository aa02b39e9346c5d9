"""How large a result is and how it is cut, found out before anything runs."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax

from gradflow.errors import FlowError
from gradflow.sweep import machine
from gradflow.sweep.grid import Chunk, Grid
from gradflow.sweep.variables import Variable, check_equal, describe, row_bytes
from gradflow.sweep.work import Work

CHUNK_BYTES = 2**26  # of results, at most
INPUT_BYTES = 2**28  # of models and data, at most
MANY_GROUPS = 100
LARGE_BYTES = 2**30  # of stored models


@dataclasses.dataclass(frozen=True, eq=False)
class Layout:
    """The variables of a result, and the blocks that are run and stored as one.

    Attributes:
        variables: of each member.
        block: sizes of a chunk.
        bytes: of the whole result.
    """

    variables: list[Variable]
    block: tuple[int, ...]
    bytes: int

    def check_memory(self, max_bytes: float | None) -> None:
        """Refuse a result that is too large for memory.

        Args:
            max_bytes: the limit; None is half of what is free.

        Raises:
            FlowError: with its size and the limit.
        """
        limit = machine.free_memory() / 2 if max_bytes is None else max_bytes
        if self.bytes > limit:
            source = "half of the free memory" if max_bytes is None else "max_bytes"
            raise FlowError(
                f"the result takes {_size(self.bytes)}, more than {source} ({_size(limit)}): give store=PATH to write "
                "it chunk by chunk, save or observe less, or raise max_bytes"
            )

    def warning_of_size(self, free: int, *, parameters: bool) -> str | None:
        """Return what to say before a result goes to a disk with so many free bytes, None where it is small."""
        if self.bytes > free:
            return (
                f"the result takes {_size(self.bytes)} before compression, and the disk of store has {_size(free)} left"
            )
        if parameters and self.bytes > LARGE_BYTES:
            return f"with parameters=True the result takes {_size(self.bytes)} before compression"
        return None


def compiles(grid: Grid) -> str | None:
    """Return a warning where a sweep compiles for many groups, None where it does not."""
    if grid.groups <= MANY_GROUPS:
        return None
    axis = max((axis for axis in grid.axes.values() if axis.kind == "static"), key=lambda axis: len(axis.values))
    numbers = axis.labels.dtype.kind in "biuf"
    fix = (
        f"gf.Batched(...) shares one kernel among all values of {axis.name!r}" if numbers else "fewer values take less"
    )
    return f"the sweep has {grid.groups} static groups, and compiles for each ({len(axis.values)} {axis.name!r}): {fix}"


def lay_out(work: Work, chunk: int | None, usual: int, show: Callable[[float, str], None]) -> Layout:
    """Look at one member of every static group.

    Args:
        work: the sweep.
        chunk: members of a chunk as the user wants them.
        usual: members of a chunk where nothing asks for fewer.
        show: progress.

    Returns:
        The layout; it depends on the sweep alone.

    Raises:
        FlowError: if a builder fails, or groups give different observables.
    """
    groups = work.grid.first_chunks()
    variables, inputs = [], 0
    for chunk_of_one in groups:
        show(0, f"reading group {chunk_of_one.group + 1} of {len(groups)}")
        found, size = _look(work, chunk_of_one)
        inputs = max(inputs, size)
        if variables:
            check_equal(variables, found, work.where(chunk_of_one))
        variables = variables or found
    each = row_bytes(variables)
    fitting = min(usual, CHUNK_BYTES // each, INPUT_BYTES // max(inputs, 1))
    block = work.grid.block(max(fitting, 1) if chunk is None else chunk)
    return Layout(variables, block, each * math.prod(work.grid.shape))


def _look(work: Work, chunk: Chunk) -> tuple[list[Variable], int]:
    """Return the variables of a group, and the bytes of one member's model and data."""
    loss, model, args = work.member(chunk)
    method = work.method
    names = (*work.grid.axes, *work.grid.names)
    variables = describe(
        work.observe, (loss, model, args), method.saves(), method.unit, parameters=work.parameters, axes=names
    )
    return variables, sum(_bytes(leaf) for leaf in jax.tree.leaves((model, args)))


def _bytes(leaf: Any) -> int:
    return math.prod(leaf.shape) * leaf.dtype.itemsize if hasattr(leaf, "shape") else 0


def _size(number: float) -> str:
    units = ("bytes", "KiB", "MiB", "GiB", "TiB")
    power = min(int(math.log(max(number, 1), 1024)), len(units) - 1)
    return f"{number / 1024**power:.3g} {units[power]}"
