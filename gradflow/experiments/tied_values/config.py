"""Settings of the experiment, its models, and the numbers that an independent run of the paper's settings gives."""

import dataclasses
from typing import NamedTuple

import numpy as np

from gradflow.descent import log_steps

MODELS = ("tied", "untied", "tied-sigmoid")
LABELS = {"tied": "tied, softmax", "untied": "untied, softmax", "tied-sigmoid": "tied, sigmoid"}
COLOURS = {"tied": "softmax", "untied": "normalised-relu", "tied-sigmoid": "sigmoid"}  # whose looks they borrow


class Reference(NamedTuple):
    """End of an independent NumPy descent of the paper's setting.

    Attributes:
        loss: logistic loss.
        largest: largest weight.
        winner: norm of the winner's column of U.
        median: median norm of the columns.
    """

    loss: float
    largest: float
    winner: float
    median: float


REFERENCE = {
    10: Reference(0.002014286478567158, 0.9978080766107669, 6.354888741344391, 1.0940817522549837),
    20: Reference(0.0020279776404106948, 0.9985061805995329, 6.33455892168173, 1.0444107321681564),
    50: Reference(0.0020327518936988876, 0.9992972609815411, 6.314423272220314, 1.0123772660334498),
    100: Reference(0.0020442800750020474, 0.9996139002745176, 6.289479248379707, 1.0059778759702875),
}
REFERENCE_STEPS = 10_000


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings; the defaults are the preset `quick`, which holds the paper's own descents.

    Attributes:
        dimensions: D of U (D, D); the paper has 10, 20, 50 and 100.
        steps: of descent at step size 0.05.
        horizon: last time of the flow; descent covers `0.05 steps` of it.
        rtol: relative tolerance of the flow.
        saves: save times of each run, evenly in log t.
    """

    dimensions: tuple[int, ...] = (10, 20, 50, 100)
    steps: int = REFERENCE_STEPS
    horizon: float = 1e8
    rtol: float = 1e-9
    saves: int = 100

    @classmethod
    def paper(cls) -> "Config":
        """Return the paper's settings, with the flow followed further."""
        return cls(horizon=1e16, rtol=1e-10)

    @property
    def save_at(self) -> np.ndarray:
        """Steps of descent that are saved."""
        return log_steps(self.steps, self.saves)
