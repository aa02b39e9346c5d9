"""Settings of the experiment."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from gradflow.activations import Normalised, Softmax, by_name, names
from gradflow.flow import log_times

LOSSES = ("square", "logistic", "exponential")
FEATURES = 8  # d; the many-sample problems have as many samples
SCORE = 1.0  # of every value at the start: ReLU, |a| and a^2 are singular at 0, the softmax sees no common shift
FIRST_TIME = 0.1
SAVES_PER_DECADE = 20


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings; the defaults are the preset `quick`.

    Attributes:
        maps: names of the score -> weight maps, the softmax first; each is one kernel.
        sliding_maps: maps whose flow ends at a kink, which takes long to be sure of.
        sizes: numbers n of values.
        scales: standard deviations of the values at the start, with one sample.
        kappas: condition numbers of the designs with many samples.
        kappa_scales: standard deviations of the values at the start, with many samples.
        seeds: random starts with one sample; other axes share them.
        kappa_seeds: random starts and designs with many samples.
        sliding_seeds: random starts of the sliding maps.
        target: y of the one sample, |y| of many, under the square loss.
        horizon: last time of the flows.
    """

    maps: tuple[str, ...] = (
        "softmax",
        "normalised-square",
        "normalised-softplus",
        "normalised-sigmoid",
        "normalised-relu",
        "sparsemax",
        "sigmoid",
        "linear",
        "exp",
    )
    sliding_maps: tuple[str, ...] = ("normalised-abs",)
    sizes: tuple[int, ...] = (4, 8, 16, 32)
    scales: tuple[float, ...] = (1e-4, 1e-3, 1e-2, 1e-1)
    kappas: tuple[float, ...] = (1.0, 3.0, 10.0, 30.0)
    kappa_scales: tuple[float, ...] = (1e-3, 1e-2, 1e-1)
    seeds: int = 8
    kappa_seeds: int = 6
    sliding_seeds: int = 2
    target: float = 4.0
    horizon: float = 1e12

    @classmethod
    def paper(cls) -> "Config":
        """Return every map of the library, longer sequences and more draws."""
        return cls(
            maps=tuple(name for name in names() if name not in cls.sliding_maps),
            sizes=(4, 8, 16, 32, 64),
            scales=(1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0),
            kappas=(1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 100.0),
            kappa_scales=(1e-4, 1e-3, 1e-2, 1e-1),
            seeds=32,
            kappa_seeds=16,
            sliding_seeds=8,
            horizon=1e16,
        )

    @property
    def ts(self) -> np.ndarray:
        """Save times: 0, then evenly in log t."""
        decades = np.log10(self.horizon / FIRST_TIME)
        return np.concatenate([[0.0], log_times(FIRST_TIME, self.horizon, round(decades * SAVES_PER_DECADE) + 1)])


def is_normalised(name: str) -> bool:
    """Return whether the weights of a map sum to one by construction."""
    return by_name(name).normalised


def is_smooth(name: str) -> bool:
    """Return whether a map has no kink."""
    return by_name(name).smooth


def log_slope(name: str) -> float | None:
    """Return k = f'/f at the first scores for a map f / sum f, the softmax among them; None for other maps."""
    activation = by_name(name)
    if not isinstance(activation, Normalised | Softmax):
        return None

    def log_ratio(scores):
        weights = activation(scores)
        return jnp.log(weights[0] / weights[1])

    return float(jax.grad(log_ratio)(jnp.full(2, SCORE))[0])
