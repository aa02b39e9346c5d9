"""Numbers of runs that claims and figures share."""

import numpy as np

from gradflow.experiments.base import Results
from gradflow.experiments.induction.config import LEARNT, LEFT_OUT, SINK, Config


def row(config: Config, name: str) -> int:
    """Return the place of a map."""
    return config.maps.index(name)


def score(results: Results, place: int) -> np.ndarray:
    """Return the mean sink score of the last layer's heads along each run, (seeds, saves)."""
    return results["maps"]["sink"][place, :, :, -1].mean(axis=-1)


def accuracy(results: Results, place: int) -> np.ndarray:
    """Return the accuracy along each run, (seeds, saves)."""
    return results["maps"]["accuracy"][place]


def learnt(results: Results, place: int) -> bool:
    """Return whether most runs of a map end with the task learnt."""
    return bool((accuracy(results, place)[:, -1] > LEARNT).mean() > 0.5)


def when_learnt(right: np.ndarray) -> np.ndarray:
    """Return the first save at which accuracies (..., saves) are above the level, -1 where they never are."""
    above = right > LEARNT
    return np.where(above.any(axis=-1), above.argmax(axis=-1), -1)


def at(values: np.ndarray, saves: np.ndarray) -> np.ndarray:
    """Return values (..., saves) at one save each; NaN where it is -1."""
    chosen = np.take_along_axis(values, np.maximum(saves, 0)[..., None], -1)[..., 0]
    return np.where(saves < 0, np.nan, chosen)


def once_learnt(results: Results, place: int) -> np.ndarray:
    """Return the mean sink score of the last layer when each run has just learnt the task, (seeds,)."""
    return at(score(results, place), when_learnt(accuracy(results, place)))


def sinks(results: Results, place: int, saves: np.ndarray | None = None) -> float:
    """Return the share of the last layer's heads that are sinks, at one save a run, None for the last."""
    scores = np.moveaxis(results["maps"]["sink"][place, :, :, -1], -1, 0)  # head, seed, save
    chosen = scores[..., -1] if saves is None else at(scores, np.broadcast_to(saves, scores.shape[:2]))
    return float(np.mean(chosen[np.isfinite(chosen)] > SINK)) if np.isfinite(chosen).any() else np.nan


def uniform_score(config: Config) -> float:
    """Return the sink score of uniform causal attention: the mean of 1 / (i + 1) over the query rows that count."""
    return float(np.mean(1 / np.arange(2, config.task().length - LEFT_OUT + 1)))


def crossing(steps: np.ndarray, values: np.ndarray, level: float) -> float:
    """Return the first step at which a rising curve is above a level, linear between saves; NaN if it never is."""
    above = values > level
    if not above.any():
        return np.nan
    at = int(above.argmax())
    if not at:
        return float(steps[0])
    part = (level - values[at - 1]) / (values[at] - values[at - 1])
    return float(steps[at - 1] + part * (steps[at] - steps[at - 1]))


def onsets(results: Results, place: int) -> tuple[np.ndarray, np.ndarray]:
    """Return when accuracy and sink score of each run are half-way from their start to their end."""
    steps = results["maps"]["step"]

    def half(curves: np.ndarray) -> np.ndarray:
        return np.array([crossing(steps, curve, (curve[0] + curve[-1]) / 2) for curve in curves])

    return half(accuracy(results, place)), half(score(results, place))


def shape_scores(config: Config, results: Results, name: str, place: int) -> np.ndarray:
    """Return the mean sink score of each run of a map and a shape that learns the task, when it has."""
    runs = (slice(None), config.grid_maps.index(name), slice(None), slice(None), slice(None), place)
    scores = np.nanmean(results["grid"]["sink"][runs], axis=-1)
    found = at(scores, when_learnt(results["grid"]["accuracy"][runs]))
    return found[np.isfinite(found)]
