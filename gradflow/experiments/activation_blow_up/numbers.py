"""Numbers of runs that claims and figures share."""

import numpy as np

from gradflow.experiments.activation_blow_up.config import Config
from gradflow.experiments.base import Results

SPIKE = 0.5  # nats by which the loss must jump above its lowest so far
LOW = 1.0  # nats below which it must have been before


def runs(config: Config, results: Results, arm: str, reading: str, size: float, rate: int = 0) -> np.ndarray:
    """Return a reading along the runs of an arm and a size, (seeds, saves)."""
    return results[arm][reading][config.sizes.index(size), rate]


def spikes(loss: np.ndarray) -> np.ndarray:
    """Return at how many saves the loss of each run (..., saves) is far above its lowest so far, once it was low."""
    lowest = np.minimum.accumulate(np.nan_to_num(loss, nan=np.inf), axis=-1)[..., :-1]
    return ((lowest < LOW) & (loss[..., 1:] > lowest + SPIKE)).sum(axis=-1)


def falls(loss: np.ndarray) -> np.ndarray:
    """Return whether the loss of each run (..., saves) ever is low."""
    return np.any(loss < LOW, axis=-1)


def slopes(config: Config, results: Results, arm: str) -> np.ndarray:
    """Return by which power of the size the gradient of BOS's embedding falls before training, for each seed."""
    first, last = (
        runs(config, results, arm, "bos_gradient", size)[:, 0] for size in (config.sizes[-2], config.sizes[-1])
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(last / first) / np.log(config.sizes[-1] / config.sizes[-2])
