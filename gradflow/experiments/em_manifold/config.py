"""Settings of the experiment."""

import dataclasses

import numpy as np

from gradflow.experiments.sticky_markov.config import (
    PAPER_CLOSED_STEPS,
    PAPER_LENGTH,
    PAPER_SEEDS,
    PAPER_STEPS,
    spaced,
)


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings; the defaults are the preset `quick`, which holds the paper's own runs.

    Attributes:
        seeds: of sequence, noise and initial weights; the means are the same for all.
        length: symbols of a sequence.
        steps: of descent.
        closed_steps: of descent with the closed-form M step, which is ours.
        step_size: of the leaves at rate 1.
        precision: of the gradient descents; the closed form and all that is measured are in float64.
        saves: of each run, evenly spaced; everything is measured at each.
        audit_length: symbols of the sequence on which one flow is checked against the laws.
    """

    seeds: tuple[int, ...] = PAPER_SEEDS
    length: int = PAPER_LENGTH
    steps: int = PAPER_STEPS
    closed_steps: int = PAPER_CLOSED_STEPS
    step_size: float = 0.01
    precision: str = "float32"
    saves: int = 41
    audit_length: int = 201

    @classmethod
    def paper(cls) -> "Config":
        """Return the same runs in float64 with more saves, and an audit of the whole sequence."""
        return cls(precision="float64", saves=201, audit_length=PAPER_LENGTH)

    @property
    def save_at(self) -> np.ndarray:
        """Steps of the descent that are saved."""
        return spaced(self.steps, self.saves)

    @property
    def closed_save_at(self) -> np.ndarray:
        """Steps with the closed-form M step that are saved."""
        return spaced(self.closed_steps, self.saves)
