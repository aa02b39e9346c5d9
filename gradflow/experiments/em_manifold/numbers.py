"""Numbers that claims and figures share: when an arm is at a level, and what it is at a given loss."""

import numpy as np

from gradflow.experiments.base import Results
from gradflow.experiments.intervals import Interval, mean_over_seeds, over_seeds
from gradflow.experiments.sticky_markov.arms import CLOSED, SGD, Arm
from gradflow.experiments.sticky_markov.numbers import at_end, curve, first_below


def steps(results: Results, arm: Arm) -> np.ndarray:
    """Return the steps at which an arm is measured."""
    return results["closed" if arm == CLOSED else "descent"]["step"].astype(float)


def direction(results: Results, name: str) -> float:
    """Return whether SGD raises (+1) or lowers (-1) a measure, on the mean over seeds."""
    values = curve(results, SGD, name)
    return 1.0 if values[:, -1].mean() > values[:, 0].mean() else -1.0


def steps_to(results: Results, arm: Arm, name: str, levels: np.ndarray) -> np.ndarray:
    """Return the step at which each seed of an arm first is at a level, from the side where SGD begins.

    Args:
        results: of all stages.
        arm: which.
        name: of the measure.
        levels: one a seed.

    Returns:
        Steps (S,); infinity where the level is never reached.
    """
    sign, times = -direction(results, name), steps(results, arm)
    pairs = zip(curve(results, arm, name), levels, strict=True)
    return np.array([float(first_below(times, sign * run, sign * level)) for run, level in pairs])


def sooner(results: Results, arm: Arm, name: str) -> Interval:
    """Return the length of SGD's run over the mean step at which an arm has what SGD ends with, seed by seed.

    A run that never has it counts with its last step; SGD itself comes out above 1 where its measure is not monotone.
    """
    last = steps(results, arm)[-1]
    reached = np.minimum(steps_to(results, arm, name, at_end(results, SGD, name)), last)
    with np.errstate(divide="ignore"):  # where an arm begins with it
        return over_seeds(len(reached), lambda index: last / reached[index].mean(axis=-1))


def at_loss(results: Results, arm: Arm, name: str, levels: np.ndarray) -> np.ndarray:
    """Return a measure of an arm where its loss first is at a level, between saves by interpolation.

    Args:
        results: of all stages.
        arm: which.
        name: of the measure.
        levels: a loss for each seed, in nats.

    Returns:
        Values (S,); NaN where a seed never is at the level.
    """
    times, found = steps(results, arm), []
    for losses, values, level in zip(curve(results, arm), curve(results, arm, name), levels, strict=True):
        when = float(first_below(times, losses, level))
        found.append(float(np.interp(when, times, values)) if np.isfinite(when) else np.nan)
    return np.array(found)


def difference(values: np.ndarray, others: np.ndarray) -> Interval:
    """Return the mean difference over the seeds that have both, paired."""
    both = np.isfinite(values) & np.isfinite(others)
    return mean_over_seeds((values - others)[both]) if both.any() else Interval(np.nan, np.nan, np.nan)
