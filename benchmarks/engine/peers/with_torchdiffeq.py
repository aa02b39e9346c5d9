"""torchdiffeq: Dopri5 in PyTorch on all members as one system, with one step size for all of them."""

import numpy as np
import torch
from torchdiffeq import odeint

from benchmarks.engine.outcome import Outcome
from benchmarks.engine.peers.with_torchode import Field, tensors
from benchmarks.engine.problems import Ensemble, entropy, read_state, softmax


class Torchdiffeq:
    """The members of an ensemble with a common horizon, with the gradient of the loss written out, in float64."""

    def __init__(self, ensemble: Ensemble, threads: int = 1):
        """Turn arrays into tensors."""
        self.ensemble, self.threads = ensemble, threads
        _, self.d, self.n = ensemble.values.shape
        self.state, self.data = tensors(ensemble)
        ts = ensemble.t1[:1] if ensemble.ts is None else ensemble.ts
        self.ts = torch.as_tensor(np.concatenate([[0.0], ts]))

    def run(self, rtol: float):
        """Solve; return the states at the save times and the evaluations of the field."""
        torch.set_num_threads(self.threads)
        field, calls = Field(self.ensemble.kind, self.d, self.n), 0

        def velocity(t, y):
            nonlocal calls
            calls += 1
            return field(t, y, self.data)

        with torch.inference_mode():
            states = odeint(velocity, self.state, self.ts, rtol=rtol, atol=1e-3 * rtol, method="dopri5")
        return states, calls

    def read(self, raw) -> Outcome:
        """Return the answer of a run."""
        states, calls = np.moveaxis(raw[0][1:].numpy(), 0, 1), np.full(self.ensemble.members, raw[1])
        values, scores = read_state(states, self.d, self.n)
        saved = None if self.ensemble.ts is None else entropy(softmax(scores))
        return Outcome(values[:, -1], scores[:, -1], calls // 6, calls, saved)
