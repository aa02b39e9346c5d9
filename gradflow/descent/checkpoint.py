"""State of a descent on disk: one file, replaced atomically, that only the same run goes on from."""

import hashlib
import json
import os
import time
from pathlib import Path

import equinox as eqx
import jax
import numpy as np

from gradflow.descent.kernel import Inputs, Kernel, State
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
            FlowError: if the folder does not exist or cannot be written.
        """
        self.path = Path(path)
        if not self.path.parent.is_dir() or not os.access(self.path.parent, os.W_OK):
            raise FlowError(f"checkpoint is {str(path)!r}: its folder does not exist or cannot be written")
        self.identity = _identity(kernel, state, inputs, steps)
        self.written = time.monotonic()

    def load(self, state: State) -> State:
        """Return the stored state, or `state` if there is none yet."""
        if not self.path.exists():
            return state
        with self.path.open("rb") as file:
            if json.loads(file.readline()) != self.identity:
                raise FlowError(
                    f"checkpoint {str(self.path)!r} belongs to another run (model, data, optimiser, steps, save_at or key "
                    "differ): choose another file or delete it"
                )
            return eqx.tree_deserialise_leaves(file, state)

    def save(self, state: State) -> None:
        """Write the state if the last write is long enough ago."""
        if time.monotonic() - self.written < EVERY_SECONDS:
            return
        temporary = self.path.with_name(self.path.name + ".part")
        with temporary.open("wb") as file:
            file.write(json.dumps(self.identity).encode() + b"\n")
            eqx.tree_serialise_leaves(file, state)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self.path)
        self.written = time.monotonic()


def _identity(kernel: Kernel, state: State, inputs: Inputs, steps: int) -> dict[str, str]:
    data = hashlib.sha256()
    key = [] if inputs.key is None else [jax.random.key_data(inputs.key)]
    for x in [*state.params, *inputs.frozen, inputs.save_at, *key, *jax.tree.leaves(state.optimizer)]:
        data.update(f"{x.shape}{x.dtype}".encode() + np.asarray(x).tobytes())
    return {
        "numbers": data.hexdigest(),
        "structure": f"{jax.tree.structure(state)} {kernel.structure.treedef}",
        "steps": str(steps),
        "jax": jax.__version__,
    }
