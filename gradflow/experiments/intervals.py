"""Statistics over runs with bootstrap intervals: a run is drawn whole, since what is inside it is dependent."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from gradflow.diagnostics import spearman

DRAWS = 2000
COVERED = 0.95  # of the intervals


class Interval(NamedTuple):
    """A number and its 95 % bootstrap interval.

    Attributes:
        value: of all runs.
        low: lower end.
        high: upper end.
    """

    value: float
    low: float
    high: float

    def __format__(self, spec: str) -> str:
        """Return `value [low, high]`, each in the format given."""
        return f"{self.value:{spec}} [{self.low:{spec}}, {self.high:{spec}}]"

    def text(self, digits: int = 3) -> str:
        """Return the number with its interval, to so many digits."""
        return f"{self:.{digits}f}"


def over_seeds(seeds: int, statistic: Callable[[np.ndarray], Any]) -> Interval:
    """Return a statistic of the seeds and its bootstrap interval; what is paired stays paired.

    Args:
        seeds: how many there are.
        statistic: of the indices of the seeds that count, along the last axis.

    Returns:
        The statistic of all seeds, and percentiles over resampled ones.
    """
    low, high = np.quantile(statistic(_drawn(seeds)), [(1 - COVERED) / 2, (1 + COVERED) / 2])
    return Interval(float(statistic(np.arange(seeds))), float(low), float(high))


def mean_over_seeds(values: np.ndarray) -> Interval:
    """Return the mean of what was measured for each seed (axis 0), with its interval."""
    means = values.reshape(len(values), -1).mean(axis=-1)
    return over_seeds(len(means), lambda index: means[index].mean(axis=-1))


def share(hits: np.ndarray, counts: np.ndarray) -> Interval:
    """Return a share in percent over runs.

    Args:
        hits: cases in each run where it is so.
        counts: cases in each run.

    Returns:
        100 sum(hits) / sum(counts); NaN without a case.
    """
    hits, counts = np.ravel(hits).astype(float), np.ravel(counts).astype(float)
    if not counts.sum():
        return Interval(np.nan, np.nan, np.nan)
    drawn = _drawn(len(hits))
    totals = counts[drawn].sum(axis=-1)
    parts = 100 * hits[drawn].sum(axis=-1)[totals > 0] / totals[totals > 0]
    return Interval(100 * hits.sum() / counts.sum(), *_ends(parts))


def median(values: np.ndarray) -> Interval:
    """Return the median over runs (axis 0) and whatever is inside them; NaN does not count."""
    values = np.asarray(values, float).reshape(len(values), -1)
    values = values[np.isfinite(values).any(axis=1)]
    if not len(values):
        return Interval(np.nan, np.nan, np.nan)
    drawn = values[_drawn(len(values))].reshape(DRAWS, -1)
    return Interval(float(np.nanmedian(values)), *_ends(np.nanmedian(drawn, axis=-1)))


def rank_correlation(x: np.ndarray, y: np.ndarray) -> float:
    """Return Spearman's rank correlation of two measures of the same runs."""
    return float(spearman(jnp.asarray(x), jnp.asarray(y)))


def _drawn(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, count, (DRAWS, count))


def _ends(values: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(values, (0.025, 0.975))
    return float(low), float(high)
