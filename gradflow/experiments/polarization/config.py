"""Settings of the experiment, and the draws of its ensembles."""

import dataclasses

import numpy as np

from gradflow.descent import log_steps
from gradflow.flow import log_times
from gradflow.models import paper

FIRST_TIME = 1e-2
PER_DECADE = 30
MILESTONES = np.array([1e3, 1e4, 1e5, 1e6])  # steps at which the golden numbers are given
CLOSE = 1e-9  # relative distance of two save times that count as one


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings; the defaults are the preset `quick`, which already holds the paper's own run.

    Attributes:
        horizon: last time of the flow.
        rtol: relative tolerance of every flow.
        descent_time: flow time t = eta k up to which gradient descent runs; the paper's 1e6 steps are 1e5.
        step_sizes: of the comparison of descent with flow; fractions of the paper's 0.1 share its save times.
        targets: targets y of the square loss.
        seeds: random starts of each kind.
        tau: clock to which the orbit is followed beyond the horizon.
    """

    horizon: float = 1e20
    rtol: float = 1e-10
    descent_time: float = 1e5
    step_sizes: tuple[float, ...] = (0.1, 0.05, 0.025, 0.0125)
    targets: tuple[float, ...] = (2.0, 4.0, 8.0)
    seeds: int = 24
    tau: float = 1000.0

    @classmethod
    def paper(cls) -> "Config":
        """Return the paper's settings: the same run, with finer step sizes and more seeds beside it."""
        return cls(step_sizes=(0.1, 0.05, 0.025, 0.0125, 0.00625), seeds=200)

    @property
    def steps(self) -> int:
        """Steps of the paper's descent."""
        return round(self.descent_time / paper.logistic().step_size)

    @property
    def save_at(self) -> np.ndarray:
        """Steps of the paper's descent that are saved: spaced in log k, with the milestones."""
        return np.union1d(log_steps(self.steps, 120), MILESTONES[self.steps >= MILESTONES].astype(int))

    @property
    def ts(self) -> np.ndarray:
        """Save times of the flow: 0, evenly in log t, and those of the descent."""
        count = round(PER_DECADE * np.log10(self.horizon / FIRST_TIME)) + 1
        return _distinct(
            np.append(log_times(FIRST_TIME, self.horizon, count), self.save_at * paper.logistic().step_size)
        )


def _distinct(times: np.ndarray) -> np.ndarray:
    """Sort times, and keep one of those that differ by rounding only."""
    times = np.sort(times)
    return times[np.append(True, np.diff(times) > CLOSE * times[1:])]
