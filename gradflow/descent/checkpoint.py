"""State of a descent on disk: one file, replaced atomically, that only the same run goes on from."""

import contextlib
import hashlib
import io
import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from gradflow.descent.kernel import Inputs, Kernel, State, advance
from gradflow.errors import FlowError

EVERY_SECONDS = 10.0
LONG_WRITE = 0.5  # seconds of a write above which writes become rarer, in proportion


class Clock:
    """Says when the next write is due: every ten seconds or so, and less often where a write takes long."""

    def __init__(self):
        """Start to wait."""
        self.written, self.took = time.monotonic(), 0.0

    def is_due(self) -> bool:
        """Return whether the last write is long enough ago."""
        return time.monotonic() - self.written >= EVERY_SECONDS * max(1.0, self.took / LONG_WRITE)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Time a write."""
        begin = time.monotonic()
        yield
        self.written = time.monotonic()
        self.took = self.written - begin


class Checkpoint:
    """Writes the state of a run now and then, and finds it again.

    The file starts with one JSON line that identifies the run: shapes, save steps, data and key. Another run's file is
    refused, and nothing is ever unpickled.
    """

    def __init__(self, path: str | Path, kernel: Kernel, state: State, inputs: Inputs, steps: int):
        """Identify the run by what determines its numbers.

        Args:
            path: the file; its folder must exist.
            kernel: structure of the run.
            state: initial state.
            inputs: data, save steps and key.
            steps: length of the run.

        Raises:
            FlowError: if the path is a folder, or its folder does not exist or cannot be written.
        """
        self.path = Path(path)
        if self.path.is_dir():
            raise FlowError(f"checkpoint is {str(path)!r}, a folder: give the path of a file")
        if not self.path.parent.is_dir() or not os.access(self.path.parent, os.W_OK):
            raise FlowError(f"checkpoint is {str(path)!r}: its folder does not exist or cannot be written")
        self.identity = _identity(kernel, state, inputs, steps)
        self.clock = Clock()

    def load(self, state: State) -> State:
        """Return the stored state, or `state` if there is none yet.

        Args:
            state: initial state.

        Returns:
            The state to go on from.

        Raises:
            FlowError: if the file is damaged or belongs to another run.
        """
        if not self.path.exists():
            return state
        return eqx.tree_deserialise_leaves(io.BytesIO(read(self.path, self.identity)), state)

    def save(self, state: State, *, now: bool = False) -> None:
        """Write the state if the last write is long enough ago, or `now`."""
        if not (now or self.clock.is_due()):
            return
        with self.clock.writing():
            payload = io.BytesIO()
            eqx.tree_serialise_leaves(payload, state)
            write(self.path, self.identity, payload.getbuffer())


def read(path: Path, identity: dict[str, str], *, place: str = "file") -> bytes:
    """Return what was written for a run.

    Args:
        path: the file.
        identity: of the run.
        place: what the user named, a file or a folder.

    Returns:
        What `write` was given.

    Raises:
        FlowError: if the file is damaged or belongs to another run.
    """
    header, _, payload = path.read_bytes().partition(b"\n")
    try:
        stored = json.loads(header)
        checksum = stored.pop("checksum")
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise damaged(path) from error
    if stored != identity:
        options = ", lanes" if "lanes" in identity else ""
        raise FlowError(
            f"checkpoint {str(path)!r} belongs to another run (loss, model, data, optimiser, steps, save_at, "
            f"key{options} or JAX version differ): choose another {place} or delete it"
        )
    if checksum != hashlib.sha256(payload).hexdigest():
        raise damaged(path)
    return payload


def damaged(path: Path) -> FlowError:
    """Return the error of a file that cannot be read."""
    return FlowError(f"checkpoint {str(path)!r} is damaged or no checkpoint: delete it to start again")


def write(path: Path, identity: dict[str, str], payload: bytes | memoryview) -> None:
    """Write a file that replaces the last one at once: at any moment one of both is there, whole.

    Args:
        path: the file.
        identity: of the run.
        payload: its state.
    """
    header = {**identity, "checksum": hashlib.sha256(payload).hexdigest()}
    temporary = path.with_name(path.name + ".part")
    with temporary.open("wb") as file:
        file.write(json.dumps(header).encode() + b"\n")
        file.write(payload)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def digest(arrays: Iterable[Any]) -> str:
    """Return a hash of shapes, dtypes and values."""
    data = hashlib.sha256()
    for x in arrays:
        values = jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x
        data.update(f"{values.shape}{values.dtype}".encode() + np.asarray(values).tobytes())
    return data.hexdigest()


def _identity(kernel: Kernel, state: State, inputs: Inputs, steps: int) -> dict[str, str]:
    key = [] if inputs.key is None else [inputs.key]
    program = advance.lower(
        kernel, state, inputs, state.step
    ).as_text()  # holds the loss, the optimiser and its settings
    return {
        "numbers": digest([*state.params, *inputs.frozen, inputs.save_at, *key, *jax.tree.leaves(state.optimizer)]),
        "program": hashlib.sha256(program.encode()).hexdigest(),
        "steps": str(steps),
        "jax": jax.__version__,
    }
