"""State of an ensemble on disk: a folder with one file for each pool of lanes.

Each file holds its pool, the members handed to it and those that ended in it, so it is consistent by itself whenever it
was written. Members that no file names start again; since no member depends on its lane or its order, the results are
the same bit for bit.
"""

import dataclasses
import functools
import hashlib
import io
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from gradflow.descent import pool as pools
from gradflow.descent.checkpoint import Clock, damaged, digest, read, write
from gradflow.descent.results import Results
from gradflow.errors import FlowError

PATTERN = "lanes-*.ckpt"


@dataclasses.dataclass
class Slot:
    """A pool, and the members that belong to it.

    Attributes:
        number: of its file.
        pool: the lanes; their own inputs follow from the members.
        feed: members handed to the pool last.
        taken: how many of them are loaded.
        iterations: of the pool, until now.
        ended: members whose ends, or rows until they broke, are among the results.
        broken: those that broke, and the step where it was seen.
        clock: says when to write.
    """

    number: int
    pool: pools.Pool
    feed: np.ndarray = dataclasses.field(default_factory=lambda: np.arange(0))
    taken: int = 0
    iterations: int = 0
    ended: list[int] = dataclasses.field(default_factory=list)
    broken: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    clock: Clock = dataclasses.field(default_factory=Clock)

    @property
    def active(self) -> np.ndarray:
        """Which lanes hold a member."""
        return np.asarray(self.pool.member) != pools.IDLE

    def is_idle(self) -> bool:
        """Return whether nothing is left to do here without new members."""
        return self.taken == len(self.feed) and not self.active.any()

    def members(self) -> np.ndarray:
        """Return all members that belong here."""
        running = np.asarray(self.pool.member)[self.active]
        return np.concatenate([np.array(self.ended, int), running, self.feed[self.taken :]])


class LaneCheckpoint:
    """Writes slots now and then, and finds them again; another run's are refused, and nothing is ever unpickled."""

    def __init__(self, path: str | Path, identity: dict[str, str], results: Results):
        """Make the folder.

        Args:
            path: of the folder, which is made if there is none.
            identity: of the run.
            results: where ends are written, and read from.

        Raises:
            FlowError: if the path is a file, or cannot be made or written.
        """
        self.folder, self.identity, self.results = _folder(path), identity, results

    def load(self, like: pools.Pool) -> list[Slot]:
        """Return the stored slots, and write the ends that they hold into the results.

        Args:
            like: idle lanes of this run.

        Returns:
            A slot for each file.

        Raises:
            FlowError: if a file is damaged or belongs to another run.
        """
        return [self._load(path, like) for path in _files(self.folder)]

    def save(self, slot: Slot, *, now: bool = False) -> None:
        """Write a slot if its last write is long enough ago, or `now`."""
        if not (now or slot.clock.is_due()):
            return
        with slot.clock.writing():
            payload = io.BytesIO()
            for array in self._arrays(slot):
                np.save(payload, array, allow_pickle=False)
            write(self._path(slot.number), self.identity, payload.getbuffer())

    def _path(self, number: int) -> Path:
        return self.folder / PATTERN.replace("*", str(number))

    def _arrays(self, slot: Slot) -> Iterator[np.ndarray]:
        ended, broken = np.array(slot.ended, np.int64), np.array(slot.broken, np.int64).reshape(-1, 2)
        yield from (np.array([slot.iterations, slot.taken]), slot.feed, ended, broken, np.asarray(slot.pool.member))
        yield from map(np.asarray, jax.tree.leaves(slot.pool.state))
        yield from (target[ended] for target in self.results.arrays())

    def _load(self, path: Path, like: pools.Pool) -> Slot:
        payload = io.BytesIO(read(path, self.identity, place="folder"))
        following = functools.partial(np.load, payload, allow_pickle=False)
        try:
            (iterations, taken), feed, ended, broken, member = (following() for _ in range(5))
            state = jax.tree.map(lambda x: following().view(x.dtype), like.state)
            for target in self.results.arrays():
                target[ended] = following().view(target.dtype)
            number = int(path.stem.rpartition("-")[2])
        except (ValueError, EOFError, IndexError) as error:
            raise damaged(path) from error
        pool = like._replace(member=member, state=state)
        pairs = [(int(one), int(step)) for one, step in broken]
        return Slot(number, pool, feed, int(taken), int(iterations), ended.tolist(), pairs)


def identify(program: str, arrays: Iterable[Any], lanes: int) -> dict[str, str]:
    """Return what determines the numbers of an ensemble.

    Args:
        program: text of the kernel, which holds the loss, the optimiser and its settings.
        arrays: members, data, save steps, keys, hyper-parameters and the number of steps.
        lanes: members in one kernel.

    Returns:
        Names and hashes, as `read` and `write` take them.
    """
    return {
        "numbers": digest(arrays),
        "program": hashlib.sha256(program.encode()).hexdigest(),
        "lanes": str(lanes),
        "jax": jax.__version__,
    }


def stored_lanes(path: str | Path) -> int | None:
    """Return the number of lanes of the run in a folder, None where there is none to be read."""
    for file in _files(Path(path)):
        try:
            with file.open("rb") as stream:
                return max(1, int(json.loads(stream.readline())["lanes"]))
        except (ValueError, KeyError, TypeError):
            continue
    return None


def _folder(path: str | Path) -> Path:
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise FlowError(f"checkpoint is {str(path)!r}, a file: an ensemble needs a folder")
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise FlowError(f"checkpoint is {str(path)!r}: its parent does not exist or cannot be written") from error
    if not os.access(folder, os.W_OK):
        raise FlowError(f"checkpoint is {str(path)!r}: the folder cannot be written")
    return folder


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob(PATTERN)) if folder.is_dir() else []
