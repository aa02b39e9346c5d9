"""Settings of the experiment; the paper publishes none, so these are ours."""

import dataclasses
from typing import NamedTuple

import numpy as np

from gradflow.experiments.sequences import TASKS
from gradflow.flow import log_times


class Arm(NamedTuple):
    """How a softmax head is trained.

    Attributes:
        values: rate of W_V.
        routing: rate of W_Q and W_K.
        decay: lambda in loss + lambda |theta|^2 / 2; 0 leaves separable data without a finite optimum.
    """

    values: float
    routing: float
    decay: float


ARMS = {
    "equal rates": Arm(1, 1, 0),
    "values x10": Arm(10, 1, 0),
    "routing x10": Arm(1, 10, 0),
    "weight decay": Arm(1, 1, 1e-3),
}
MAIN = next(iter(ARMS))
MAPS = ("softmax", "normalised-sigmoid", "normalised-softplus", "sigmoid", "uniform")
FREE = "free-scores"
KEY_SIZE = VALUE_SIZE = 8
SCALE = 0.1

# What freezes, and on which yardstick: TV of a row, or the distance still to go as a part of the whole way.
QUANTITIES = ("attention", "values", "w_v", "scores", "attention_way")


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings; the defaults are the preset `quick`.

    Attributes:
        seeds: draws of the sequence and of the head.
        length: positions of the sequence, T.
        horizons: times at which the same flow is taken as ended, rising.
        epsilons: levels below which a distance counts as frozen; the second is the one of figures and claims.
        rtol: relative tolerance of the flow.
        saves: save times of each run, evenly in log t.
    """

    seeds: int = 5
    length: int = 20
    horizons: tuple[float, ...] = (1e3, 1e4, 1e5)
    epsilons: tuple[float, ...] = (0.02, 0.05, 0.1)
    rtol: float = 1e-6
    saves: int = 61

    @classmethod
    def paper(cls) -> "Config":
        """Return longer sequences, more draws and a later end."""
        return cls(seeds=20, length=64, horizons=(1e3, 1e4, 1e5, 1e6), saves=121)

    @property
    def ts(self) -> np.ndarray:
        """Save times: 0, evenly in log t, and the horizons."""
        rest = log_times(0.1, self.horizons[-1], self.saves)
        return np.union1d(np.concatenate([[0.0], np.asarray(rest)[:-1]]), self.horizons)

    @property
    def level(self) -> int:
        """Index of the epsilon of figures and claims."""
        return min(1, len(self.epsilons) - 1)

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks."""
        return tuple(TASKS)
