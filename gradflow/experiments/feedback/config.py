"""Settings of the experiment; the paper publishes none, so these are ours."""

import dataclasses
from typing import NamedTuple

from gradflow.experiments.sequences import TASKS


class Kind(NamedTuple):
    """A head.

    Attributes:
        activation: name of its map.
        shared: whether values are X W_V; otherwise each position has its own.
        causal: whether a row attends to itself and earlier positions only.
    """

    activation: str
    shared: bool
    causal: bool


KINDS = {
    "free-values": Kind("softmax", False, True),
    "shared-values": Kind("softmax", True, True),
    "free-values-not-causal": Kind("softmax", False, False),
    "shared-values-not-causal": Kind("softmax", True, False),
    "free-values-sigmoid": Kind("sigmoid", False, True),
    "shared-values-sigmoid": Kind("sigmoid", True, True),
}
KEY_SIZE = VALUE_SIZE = 8
TRAINED, SHARP = 0.1, 1.0  # standard deviations of the weights at the start: the paper's, and one of sharp random heads


OWN, FREE, FROZEN = 0, 1, 2  # columns of `signs`: two predictions, and the first of what is seen


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings; the defaults are the preset `quick`.

    Attributes:
        seeds: draws of the sequence and of the head.
        lengths: of the sequence, rising; heads that are not causal have the last one only.
        times: of the flow at which a step is tried, rising from 0.
        step_sizes: of that step; the first is the paper's.
        rtol: relative tolerance of the flow between the steps.
    """

    seeds: int = 6
    lengths: tuple[int, ...] = (6, 12, 24)
    times: tuple[float, ...] = (0.0, 10.0, 30.0, 100.0, 1000.0)
    step_sizes: tuple[float, ...] = (0.01, 1.0)
    rtol: float = 1e-4

    @classmethod
    def paper(cls) -> "Config":
        """Return more draws, longer sequences and a later end."""
        return cls(
            seeds=30, lengths=(6, 12, 24, 48, 96), times=(0.0, 1.0, 10.0, 30.0, 100.0, 300.0, 1e3, 1e4), rtol=1e-6
        )

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks."""
        return tuple(TASKS)

    def values_column(self, size: int = 0) -> int:
        """Return the column of `signs` in which the values move and U follows, at a step size."""
        return FROZEN + 1 + size

    def joint_column(self, size: int = 0) -> int:
        """Return the column of `signs` in which everything moves, at a step size."""
        return FROZEN + 1 + len(self.step_sizes) + size

    def starts(self, causal: bool) -> list[tuple[int, float]]:
        """Return length and scale of the start of each group of members."""
        longest = self.lengths[-1]
        return [(length, TRAINED) for length in (self.lengths if causal else [longest])] + [(longest, SHARP)]
