"""Settings of the experiment."""

import dataclasses

import numpy as np

PAPER_SEEDS = (42, 2024, 1337, 7777, 9999)
PAPER_STEPS, PAPER_CLOSED_STEPS = 1000, 300
PAPER_LENGTH = 2000
PAPER_SPEED_UP = 2.3  # and 430 steps, of arXiv 2512.22473v1
PAPER_EM_STEPS = 430


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings; the defaults are the preset `quick`, which holds the paper's own runs.

    Attributes:
        seeds: of sequence, noise and initial weights; the means are the same for all.
        length: symbols of a sequence.
        steps: of descent.
        closed_steps: of descent with the closed-form M step, which is ours.
        step_size: of the leaves at rate 1.
        precision: of the gradient descents; the closed form, the flow and all that is measured are in float64.
        saves: of each run, evenly spaced; the loss is measured at each.
        measured: of these, how many have attention measured.
        rtol: relative tolerance of the flow.
        audited: saves of the flow, evenly spaced, at which every law is checked.
    """

    seeds: tuple[int, ...] = PAPER_SEEDS
    length: int = PAPER_LENGTH
    steps: int = PAPER_STEPS
    closed_steps: int = PAPER_CLOSED_STEPS
    step_size: float = 0.01
    precision: str = "float32"
    saves: int = 51
    measured: int = 11
    rtol: float = 1e-4
    audited: int = 3

    @classmethod
    def paper(cls) -> "Config":
        """Return the paper's settings: the same runs in float64 with more saves, and a flow of high accuracy."""
        return cls(precision="float64", saves=201, measured=51, rtol=1e-8, audited=11)

    @property
    def save_at(self) -> np.ndarray:
        """Steps of the descent that are saved."""
        return spaced(self.steps, self.saves)

    @property
    def closed_save_at(self) -> np.ndarray:
        """Steps with the closed-form M step that are saved."""
        return spaced(self.closed_steps, self.saves)

    @property
    def ts(self) -> np.ndarray:
        """Save times of the flow: where the descent is saved."""
        return self.step_size * self.save_at


def spaced(last: int, count: int) -> np.ndarray:
    """Return at most `count` whole numbers from 0 to `last`, evenly spaced."""
    return np.unique(np.linspace(0, last, count).round().astype(int))
