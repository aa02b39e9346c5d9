"""Elementwise maps that scale with the score: linear, absolute value, ReLU, square."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from gradflow.activations.base import AbstractHomogeneous, as_float


class Linear(AbstractHomogeneous):
    """f(a) = a. `Normalised(Linear())` is the paper's "Sum" map: signed, and singular where the scores sum to zero."""

    name: ClassVar[str] = "linear"
    smooth: ClassVar[bool] = True
    degree: ClassVar[int] = 1

    def map(self, scores: Float[Array, "*m"]) -> Float[Array, "*m"]:
        """Return a."""
        return scores

    def primitive(self, scores: Shaped[Array, "*m"]) -> Float[Array, "*m"]:
        """Return F(a) = a^2 / 2."""
        return _half_square(scores)


class Abs(AbstractHomogeneous):
    """f(a) = |a|, kinked at 0. `Normalised(Abs())` is the paper's "L1" map."""

    name: ClassVar[str] = "abs"
    smooth: ClassVar[bool] = False
    degree: ClassVar[int] = 1

    def map(self, scores: Float[Array, "*m"]) -> Float[Array, "*m"]:
        """Return |a|."""
        return jnp.abs(scores)

    def primitive(self, scores: Shaped[Array, "*m"]) -> Float[Array, "*m"]:
        """Return F(a) = a^2 / 2."""
        return _half_square(scores)


class ReLU(AbstractHomogeneous):
    """f(a) = max(a, 0), kinked at 0, where its slope is taken as 0."""

    name: ClassVar[str] = "relu"
    smooth: ClassVar[bool] = False
    degree: ClassVar[int] = 1

    def map(self, scores: Float[Array, "*m"]) -> Float[Array, "*m"]:
        """Return max(a, 0)."""
        return jnp.where(scores > 0, scores, 0)

    def primitive(self, scores: Shaped[Array, "*m"]) -> Float[Array, "*m"]:
        """Return F(a) = a^2 / 2; below zero the score does not move, and any function would do."""
        return _half_square(scores)


class Square(AbstractHomogeneous):
    """f(a) = a^2. `Normalised(Square())` obeys the exact replicator equation (law 17)."""

    name: ClassVar[str] = "square"
    smooth: ClassVar[bool] = True
    degree: ClassVar[int] = 2

    def map(self, scores: Float[Array, "*m"]) -> Float[Array, "*m"]:
        """Return a^2."""
        return scores * scores

    def primitive(self, scores: Shaped[Array, "*m"]) -> Float[Array, "*m"]:
        """Return F(a) = a^2 / 4."""
        return _half_square(scores) / 2


def _half_square(scores: Shaped[Array, "*m"]) -> Float[Array, "*m"]:
    scores = as_float(scores)
    return scores * (scores / 2)
