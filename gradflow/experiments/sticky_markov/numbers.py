"""Numbers that claims and figures share: losses of an arm, and when it reaches a level."""

from typing import Any

import numpy as np

from gradflow.experiments.base import Results
from gradflow.experiments.intervals import Interval, mean_over_seeds, over_seeds
from gradflow.experiments.sticky_markov.arms import CLOSED, EM, GRADIENT, SGD, Arm

UNIFORM = float(np.log(8))  # loss of a predictor that knows nothing, nats


def curve(results: Results, arm: Arm, name: str = "loss", stage: str = "descent") -> np.ndarray:
    """Return what was measured along an arm, (S, saves): of a descent, or of the flow."""
    if arm == CLOSED:
        return results["closed"][name][0]
    return results[stage][name][GRADIENT.index(arm)]


def at_end(results: Results, arm: Arm, name: str = "loss", stage: str = "descent") -> np.ndarray:
    """Return what was measured at the end of an arm, (S,)."""
    return curve(results, arm, name, stage)[:, -1]


def gain(results: Results, arm: Arm, stage: str = "descent") -> np.ndarray:
    """Return by how much an arm ends below SGD, seed by seed, in nats."""
    return at_end(results, SGD, stage=stage) - at_end(results, arm, stage=stage)


def mean_gain(results: Results, arm: Arm, stage: str = "descent") -> Interval:
    """Return the mean of the gain with its interval."""
    return mean_over_seeds(gain(results, arm, stage))


def gain_share(results: Results, arm: Arm) -> Interval:
    """Return the mean gain of an arm over that of EM."""
    gains, whole = gain(results, arm), gain(results, EM)
    with np.errstate(divide="ignore", invalid="ignore"):  # where EM gains nothing
        return over_seeds(len(gains), lambda index: gains[index].mean(axis=-1) / whole[index].mean(axis=-1))


def first_below(times: np.ndarray, losses: np.ndarray, level: Any) -> np.ndarray:
    """Return when a run first is at a level, between saves by interpolation; infinity if it never is.

    Args:
        times: of the saves.
        losses: of the run at each.
        level: one or many.

    Returns:
        A time for each level.
    """
    lowest = np.minimum.accumulate(losses)
    return np.interp(-np.asarray(level), -lowest, times, left=times[0], right=np.inf)


def speed_up(results: Results, arm: Arm, stage: str = "descent") -> Interval:
    """Return the length of the runs over the mean time at which an arm reaches the mean final loss of SGD.

    A run that does not reach it counts as if it did at its end.
    """
    times = results[stage]["step" if stage == "descent" else "t"].astype(float)
    reference, losses = at_end(results, SGD, stage=stage), curve(results, arm, stage=stage)

    def statistic(index: np.ndarray) -> np.ndarray:
        level = reference[index].mean(axis=-1)
        reached = np.stack([first_below(times, run, level) for run in losses], axis=-1)
        counted = np.take_along_axis(np.minimum(reached, times[-1]), index, axis=-1)
        return times[-1] / counted.mean(axis=-1)

    return over_seeds(len(losses), statistic)


def steps_to_sgd(results: Results, arm: Arm) -> np.ndarray:
    """Return the step at which each run of an arm reaches the mean final loss of SGD."""
    level, times = at_end(results, SGD).mean(), results["descent"]["step"].astype(float)
    return np.array([first_below(times, run, level) for run in curve(results, arm)])


def share_of_gap(results: Results, arm: Arm, floor: np.ndarray | float) -> Interval:
    """Return which part of the way from uniform to a floor an arm has gone.

    Args:
        results: of all stages.
        arm: which.
        floor: one loss for all seeds, or one a seed.

    Returns:
        A mean of ratios.
    """
    return mean_over_seeds((UNIFORM - at_end(results, arm)) / (UNIFORM - floor))
