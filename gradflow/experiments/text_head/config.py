"""Settings of the experiment; the paper trains on no real text, so all of them are ours."""

import dataclasses

import numpy as np

from gradflow.flow import log_times

D_K = D_V = 16
SCALE = 0.1
SHOWN_FROM = 1.0  # first time that is saved after the start: nothing has moved before

ARMS = {
    "softmax": "attention",
    "uniform": "uniform attention",
    "own": "attention to the present character only",
}
QUANTITIES = ("attention", "values", "scores")  # whose freezing is timed


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings; the defaults are the preset `quick`.

    Attributes:
        seeds: runs, each with a window of the text and a start of its own; with more runs than windows they share.
        length: characters of a window, T.
        horizons: times at which the same flow is taken as ended, rising.
        epsilon: level below which a distance counts as frozen.
        smoothing: characters' worth of trust in the unigram, of the bigram that is held against unseen text.
        rtol: relative tolerance of the flow.
        saves: save times of each run, evenly in log t.
    """

    seeds: int = 5
    length: int = 500
    horizons: tuple[float, ...] = (1e3, 3e3, 1e4)
    epsilon: float = 0.05
    smoothing: float = 5.0
    rtol: float = 1e-4
    saves: int = 25

    @classmethod
    def paper(cls) -> "Config":
        """Return longer windows, more runs, a later end and a flow of higher accuracy."""
        return cls(seeds=10, length=1000, horizons=(1e3, 3e3, 1e4, 3e4), rtol=1e-6, saves=61)

    @property
    def ts(self) -> np.ndarray:
        """Save times: 0, evenly in log t, and the horizons."""
        rest = log_times(min(SHOWN_FROM, self.horizons[-1] / 2), self.horizons[-1], self.saves)
        return np.union1d(np.concatenate([[0.0], rest[:-1]]), self.horizons)
