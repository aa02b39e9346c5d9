"""Settings of the experiment; all are ours, because the paper publishes none."""

import dataclasses

import numpy as np

from gradflow.descent import log_steps

CLASSES = 4
ASKED = 2  # times that each stored key is asked for
D_K, D_V = 6, 6
SCALE = 0.3  # standard deviation of every entry at the start
ARMS = ("softmax", "meaningless", "uniform", "sigmoid")
LABELS = {
    "softmax": "softmax",
    "meaningless": "labels at random",
    "uniform": "routing kept uniform",
    "sigmoid": "elementwise sigmoid",
}


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings; the defaults are the preset `quick`.

    Attributes:
        pairs: numbers of stored pairs; a sequence has three times as many positions. The controls run at the middle
            one.
        seeds: draws of data and start.
        sequences: in the batch.
        steps: of gradient descent, all sequences in each.
        step_size: eta; the flow is followed to t = eta steps.
        large_step: a step size at which descent is no flow, for the control.
        saves: save times, evenly in log t.
        rtol: relative tolerance of the flow.
    """

    pairs: tuple[int, ...] = (4, 6, 8)
    seeds: int = 8
    sequences: int = 32
    steps: int = 2_000
    step_size: float = 0.5
    large_step: float = 16.0
    saves: int = 48
    rtol: float = 1e-8

    @classmethod
    def paper(cls) -> "Config":
        """Return larger settings; the paper's are not published."""
        return cls(pairs=(4, 6, 8, 12), seeds=20, sequences=128, steps=20_000, saves=80)

    @property
    def middle(self) -> int:
        """Number of pairs at which the controls run."""
        return self.pairs[len(self.pairs) // 2]

    @property
    def save_at(self) -> np.ndarray:
        """Steps that are saved, the start first."""
        return log_steps(self.steps, self.saves)

    @property
    def ts(self) -> np.ndarray:
        """Times that are saved: those of the steps."""
        return self.step_size * self.save_at
