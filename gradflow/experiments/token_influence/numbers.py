"""Numbers of runs that claims and figures share."""

import numpy as np

from gradflow.experiments.base import Results
from gradflow.experiments.dots import mean
from gradflow.experiments.intervals import Interval
from gradflow.experiments.token_influence.config import LEARNT, Config, Shape


def named(config: Config, names: tuple[str, ...]) -> list[str]:
    """Return those of some maps that were run."""
    return [name for name in names if name in config.maps]


def at_end(config: Config, results: Results, name: str, reading: str) -> np.ndarray:
    """Return a reading of the runs of a map at the end, (seeds,)."""
    return results["maps"][reading][config.maps.index(name), :, -1]


def pooled(config: Config, results: Results, names: tuple[str, ...], reading: str) -> Interval:
    """Return a reading at the end as a mean over some maps and all seeds; a seed is drawn with all its maps."""
    return mean(np.stack([at_end(config, results, name, reading) for name in named(config, names)], axis=-1).mean(-1))


def uniform_sparsity(config: Config) -> float:
    """Return the sparsity of uniform attention over a sequence and CLS."""
    return 1 / config.task().length


def grid_values(config: Config, results: Results, name: str, shape: Shape, reading: str) -> np.ndarray:
    """Return a reading of the runs of a map and a shape that learn the task, at the smallest vocabulary."""
    chosen = results["grid"][reading][0, config.shapes.index(shape), config.grid_maps.index(name)].ravel()
    right = results["grid"]["accuracy"][0, config.shapes.index(shape), config.grid_maps.index(name)].ravel()
    return chosen[(right > LEARNT) & np.isfinite(chosen)]
