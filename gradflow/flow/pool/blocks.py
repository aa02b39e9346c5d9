"""The host's side of a pool: members dealt into blocks, blocks spread over cores or devices, results gathered."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from gradflow.devices import places, spread
from gradflow.flow.pool.kernel import Block, BlockEnd, PoolKernel, Shared, run, saved_bytes
from gradflow.flow.pool.rows import Held
from gradflow.problem import on_host
from gradflow.types import RESULTS

SHARES = 4  # blocks at least, for cores to share; whatever their number is, so that it does not change results
LARGEST_BLOCK = 4096
OBSERVED_BYTES = 2**25  # of one block


@dataclasses.dataclass
class Gathered:
    """Results of all members in NumPy arrays, filled block by block; rows of blocks that never ran stay blank."""

    params: list[np.ndarray]
    t: np.ndarray
    observed: PyTree
    valid: np.ndarray
    result: np.ndarray
    stats: dict[str, np.ndarray]
    useful: int = 0
    offered: int = 0

    @property
    def efficiency(self) -> float:
        """Part of the lanes' iterations that advanced a member."""
        return self.useful / max(self.offered, 1)


def block_size(count: int, lanes: int, observed_bytes: int) -> int:
    """Return members a block: a power of two, so that new ensemble sizes rarely compile again.

    Args:
        count: members in all.
        lanes: of the pool.
        observed_bytes: what one member saves.

    Returns:
        The size.
    """
    fitting = min(max(OBSERVED_BYTES // max(observed_bytes, 1), lanes), max(LARGEST_BLOCK, lanes))
    wanted = max(-(-count // SHARES), lanes)
    return min(1 << (wanted - 1).bit_length(), 1 << (fitting.bit_length() - 1))


def deal(order: np.ndarray, size: int) -> list[np.ndarray]:
    """Deal members like cards, so that every block gets its share of costly ones, and those first.

    Args:
        order: members, the costliest first.
        size: most members of a block.

    Returns:
        Members of each block.
    """
    count = -(-len(order) // size)
    return [order[first::count] for first in range(count)]


def run_blocks(
    kernel: PoolKernel,
    block: Block,
    shared: Shared,
    *,
    threads: int | None,
    devices: Any,
    show: Callable[[int], None],
) -> tuple[Gathered, bool]:
    """Run all members, block by block on all cores or devices.

    Args:
        kernel: what picks the compiled pool.
        block: all members at once; its count is not used.
        shared: arrays and tolerances that all members read.
        threads: see `places`.
        devices: see `places`.
        show: called with the members that have ended.

    Returns:
        The results, and whether Ctrl-C came before the last of them.
    """
    where = places(threads, devices)
    count = len(block.t0)
    size = block_size(count, kernel.lanes, saved_bytes(kernel, block, shared))
    # A flow to a longer horizon takes more steps; nothing else is known before it has run.
    blocks = deal(np.argsort(np.asarray(block.t0) - np.asarray(block.held.t1), kind="stable"), size)
    members = jax.tree.map(on_host, (block.params, block.held, block.t0))
    gathered: list[Gathered] = []
    ended = 0

    def work(job: int, device: Any, cancelled: Callable[[], bool]) -> BlockEnd:
        chosen = blocks[job]
        index = np.concatenate([chosen, np.full(size - len(chosen), chosen[0])])
        params, held, t0 = jax.tree.map(lambda x: x[index], members)
        mine = Block(params, Held(*held), t0, np.asarray(len(chosen), np.int32))
        mine, common = jax.device_put((mine, shared), device)
        return run(kernel, mine, common, cancelled)

    def collect(job: int, end: BlockEnd) -> None:
        nonlocal ended
        if not gathered:
            gathered.append(_allocate(end, count))
        _write(gathered[0], blocks[job], end)
        ended += len(blocks[job])
        show(ended)

    try:
        spread(len(blocks), where, work, collect)
    except KeyboardInterrupt:
        if not gathered:
            raise
        return gathered[0], True
    return gathered[0], False


def _allocate(end: BlockEnd, count: int) -> Gathered:
    """Return arrays for all members, blank: NaN, not valid, interrupted."""

    def blank(x):
        made = _aligned((count, *x.shape[1:]), x.dtype)
        made[...] = np.nan if np.issubdtype(made.dtype, np.inexact) else 0
        return made

    params, t, observed, valid, stats = jax.tree.map(blank, (end.params, end.t, end.observed, end.valid, end.stats))
    codes = np.full(count, int(RESULTS.interrupted._value), np.int32)
    return Gathered(params, t, observed, valid, codes, stats)


def _aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return an array that JAX takes over without a copy on a CPU, which needs 64-byte boundaries."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(shape)


def _write(all: Gathered, members: np.ndarray, end: BlockEnd) -> None:
    def write(into, x):
        into[members] = np.asarray(x)[: len(members)]

    jax.tree.map(
        write,
        (all.params, all.t, all.observed, all.valid, all.result, all.stats),
        (end.params, end.t, end.observed, end.valid, end.result._value, end.stats),
    )
    all.useful += int(end.work.useful)
    all.offered += int(end.work.offered)
