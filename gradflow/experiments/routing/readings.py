"""Numbers that claims and figures share: curves of an arm, the shape of a path, when a loss has fallen."""

import numpy as np

from gradflow.experiments.base import Results
from gradflow.experiments.intervals import Interval, mean_over_seeds
from gradflow.experiments.routing.config import ARMS, D_V, Config
from gradflow.experiments.routing.stages import stage_name

POINTS = 40  # of a path, at equal distances along it
WALKS = 200  # random ones


def curve(config: Config, results: Results, key: str, arm: str = "softmax", pairs: int | None = None) -> np.ndarray:
    """Return what was measured along the flow of an arm (seeds, saves, ...), at the middle size unless said."""
    if arm == ARMS[0]:
        return results[stage_name(pairs or config.middle)][f"flow_{key}"]
    return results["controls"][f"{arm}_{key}"]


def every_size(config: Config, results: Results, key: str) -> np.ndarray:
    """Return what was measured along the flow of the softmax heads, (sizes, seeds, saves)."""
    return np.stack([curve(config, results, key, pairs=pairs) for pairs in config.pairs])


def mean(values: np.ndarray) -> Interval:
    """Return the mean over seeds with its 95 % bootstrap interval."""
    return mean_over_seeds(values)


def stored_values(config: Config, results: Results, arm: str = "softmax", pairs: int | None = None) -> np.ndarray:
    """Return the values of the stored pairs of the first sequence along the flow, (seeds, saves, pairs, d_v)."""
    return curve(config, results, "values", arm, pairs)[:, :, : pairs or config.middle]


def path_shares(config: Config, results: Results, arm: str = "softmax", pairs: int | None = None) -> np.ndarray:
    """Return the share of PC1 + PC2 of the path of all stored values taken as one vector, one a seed."""
    paths = stored_values(config, results, arm, pairs)
    return np.array([plane_share(evenly(path.reshape(len(path), -1))) for path in paths])


def walk_shares(config: Config, results: Results, pairs: int) -> np.ndarray:
    """Return the same share of random walks of W_V with as many steps as points, seen by the same sequence."""
    inputs = results[stage_name(pairs)]["inputs"][0, :pairs]
    steps = np.random.default_rng(0).normal(size=(WALKS, POINTS, inputs.shape[-1], D_V))
    walks = inputs @ np.cumsum(steps, axis=1)
    return np.array([plane_share(walk.reshape(POINTS, -1)) for walk in walks])


def evenly(path: np.ndarray) -> np.ndarray:
    """Return a path (saves, n) at equal distances along it: what is low-dimensional must not hang on the save times."""
    reached = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(path, axis=0), axis=-1))])
    places = np.linspace(0, reached[-1], POINTS)
    return np.stack([np.interp(places, reached, column) for column in path.T], axis=-1)


def plane_share(path: np.ndarray) -> float:
    """Return the share of the variance of a path (points, n) along its first two principal components."""
    centred = path - path.mean(axis=0)
    variances = np.linalg.eigvalsh(centred @ centred.T)
    return float(variances[-2:].sum() / variances.sum())


def rises(loss: np.ndarray) -> np.ndarray:
    """Return the share of steps from save to save at which a loss rises, or is not finite, one a seed."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.mean(~(np.diff(loss, axis=-1) <= 0), axis=-1)


def fall_time(ts: np.ndarray, loss: np.ndarray, part: float) -> np.ndarray:
    """Return when each loss (seeds, saves) has fallen by a part of its whole fall, linear between saves."""
    fallen = (loss[:, :1] - loss) / (loss[:, :1] - loss[:, -1:])
    return np.array([np.interp(part, np.maximum.accumulate(row), ts) for row in fallen])
