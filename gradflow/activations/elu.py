"""The exponential linear unit and its positive shift. Both are once continuously differentiable, no more."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from gradflow.activations.base import AbstractElementwise, AbstractPositive, as_float


class ELU(AbstractElementwise):
    """f(a) = a for a >= 0 and exp(a) - 1 below: signed, so a sum over it can vanish.

    `smooth` is True: the slope is continuous at 0, the curvature jumps, which costs a solver a few steps and no more.
    """

    name: ClassVar[str] = "elu"
    smooth: ClassVar[bool] = True

    def map(self, scores: Float[Array, "*m"]) -> Float[Array, "*m"]:
        """Return a, or exp(a) - 1 below zero."""
        return jnp.where(scores < 0, jnp.expm1(_negative_part(scores)), scores)

    def primitive(self, scores: Shaped[Array, "*m"]) -> Float[Array, "*m"]:
        """Return F(a) = a^2 / 2, or a + exp(-a) - 1 below zero (f / f' = 1 - exp(-a))."""
        scores = as_float(scores)
        negative = _negative_part(scores)
        return jnp.where(scores < 0, negative + jnp.expm1(-negative), scores * (scores / 2))


class ELU1(AbstractPositive):
    """f(a) = ELU(a) + 1, that is a + 1 for a >= 0 and exp(a) below, computed without the cancellation.

    `smooth` is True for the same reason as for `ELU`.
    """

    name: ClassVar[str] = "elu1"
    smooth: ClassVar[bool] = True

    def map(self, scores: Float[Array, "*m"]) -> Float[Array, "*m"]:
        """Return a + 1, or exp(a) below zero."""
        return jnp.where(scores < 0, jnp.exp(_negative_part(scores)), scores + 1)

    def log_map(self, scores: Float[Array, "*m"]) -> Float[Array, "*m"]:
        """Return log(a + 1), or a below zero."""
        return jnp.where(scores < 0, scores, jnp.log1p(jnp.where(scores < 0, 0, scores)))

    def primitive(self, scores: Shaped[Array, "*m"]) -> Float[Array, "*m"]:
        """Return F(a) = ((a + 1)^2 - 1) / 2, or a below zero."""
        scores = as_float(scores)
        return jnp.where(scores < 0, scores, scores * (scores / 2 + 1))


def _negative_part(scores: Float[Array, "*m"]) -> Float[Array, "*m"]:
    # Not jnp.minimum: at a tie its gradient is one half.
    return jnp.where(scores < 0, scores, 0)
