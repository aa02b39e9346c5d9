"""Settings of the experiment."""

import dataclasses

import numpy as np

from gradflow.descent import log_steps
from gradflow.flow import log_times
from gradflow.models import paper

FIRST_TIME = 1.0


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings; the defaults are the preset `quick`, which already holds the paper's own runs.

    Attributes:
        kappas: condition numbers of the paper's runs.
        steps: of the paper's descent.
        horizon: time at which the flow has converged for every condition number.
        rtol: relative tolerance of the flows.
        size: d = n = N of the ensemble.
        seeds: of the ensemble.
        ensemble_kappas: its condition numbers.
        targets: norms |y| of its targets under the square loss.
        norms: norms of the solution: |beta*| under the square loss, the budget |beta| under the logistic loss.
    """

    kappas: tuple[float, ...] = (1.0, 2.0, 3.0, 4.0, 5.0)
    steps: int = 300_000
    horizon: float = 1e6
    rtol: float = 1e-10
    size: int = 10
    seeds: int = 10
    ensemble_kappas: tuple[float, ...] = (1.0, 2.0, 3.0, 5.0)
    targets: tuple[float, ...] = (2.0, 4.0, 6.0, 8.0)
    norms: tuple[float, ...] = (4.0, 8.0, 12.0, 16.0)

    @classmethod
    def paper(cls) -> "Config":
        """Return the paper's settings: the same runs, beside a larger ensemble."""
        return cls(seeds=50, ensemble_kappas=(1.0, 1.5, 2.0, 3.0, 5.0, 8.0), targets=(1.0, 2.0, 3.0, 4.0, 6.0, 8.0))

    @property
    def paper_time(self) -> float:
        """Flow time at which the paper's descent ends."""
        return self.steps * paper.condition_number(1.0).step_size

    @property
    def save_at(self) -> np.ndarray:
        """Steps of the descent that are saved."""
        return log_steps(self.steps, 60)

    @property
    def ts(self) -> np.ndarray:
        """Save times of the flow: 0, evenly in log t, and the time at which the paper's descent ends."""
        horizon = max(self.horizon, 2 * self.paper_time)
        return np.unique(np.concatenate([[0.0], log_times(FIRST_TIME, horizon, 160), [self.paper_time]]))
