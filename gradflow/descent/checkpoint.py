"""State of a descent on disk: one file, replaced atomically, that only the same run goes on from."""

import hashlib
import io
import json
import os
import time
from pathlib import Path

import equinox as eqx
import jax
import numpy as np

from gradflow.descent.kernel import Inputs, Kernel, State, advance
from gradflow.errors import FlowError

EVERY_SECONDS = 10.0


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
        self.written = time.monotonic()

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
        header, _, payload = self.path.read_bytes().partition(b"\n")
        try:
            stored = json.loads(header)
            checksum = stored.pop("checksum")
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            raise self._damaged() from error
        if stored != self.identity:
            raise FlowError(
                f"checkpoint {str(self.path)!r} belongs to another run (loss, model, data, optimiser, steps, save_at, "
                "key or JAX version differ): choose another file or delete it"
            )
        if checksum != hashlib.sha256(payload).hexdigest():
            raise self._damaged()
        return eqx.tree_deserialise_leaves(io.BytesIO(payload), state)

    def _damaged(self) -> FlowError:
        return FlowError(f"checkpoint {str(self.path)!r} is damaged or no checkpoint: delete it to start again")

    def save(self, state: State, *, now: bool = False) -> None:
        """Write the state if the last write is long enough ago, or `now`."""
        if not now and time.monotonic() - self.written < EVERY_SECONDS:
            return
        payload = io.BytesIO()
        eqx.tree_serialise_leaves(payload, state)
        header = {**self.identity, "checksum": hashlib.sha256(payload.getbuffer()).hexdigest()}
        temporary = self.path.with_name(self.path.name + ".part")
        with temporary.open("wb") as file:
            file.write(json.dumps(header).encode() + b"\n" + payload.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self.path)
        self.written = time.monotonic()


def _identity(kernel: Kernel, state: State, inputs: Inputs, steps: int) -> dict[str, str]:
    data = hashlib.sha256()
    key = [] if inputs.key is None else [jax.random.key_data(inputs.key)]
    for x in [*state.params, *inputs.frozen, inputs.save_at, *key, *jax.tree.leaves(state.optimizer)]:
        data.update(f"{x.shape}{x.dtype}".encode() + np.asarray(x).tobytes())
    program = advance.lower(
        kernel, state, inputs, state.step
    ).as_text()  # holds the loss, the optimiser and its settings
    return {
        "numbers": data.hexdigest(),
        "program": hashlib.sha256(program.encode()).hexdigest(),
        "steps": str(steps),
        "jax": jax.__version__,
    }
