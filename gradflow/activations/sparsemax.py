"""Sparsemax, the Euclidean projection onto the simplex."""

from typing import ClassVar

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Shaped

from gradflow.activations.base import AbstractActivation, as_float, row_maximum, row_sum


class Sparsemax(AbstractActivation):
    """s = argmin over the simplex of |s - a|^2, that is max(a_i - threshold, 0) (Martins and Astudillo, 2016).

    Kinked where an entry enters or leaves the support.
    """

    name: ClassVar[str] = "sparsemax"
    smooth: ClassVar[bool] = False
    normalised: ClassVar[bool] = True

    def weigh(self, scores: Float[Array, "*m n"], mask: Bool[Array, "*m n"] | None) -> Float[Array, "*m n"]:
        """Return the projection of each row over its unmasked entries."""
        # The threshold is at least max(a) - 1, so whatever lies below is out: cut there, huge gaps do no harm.
        gaps = jnp.maximum(scores - row_maximum(scores, mask), -2)
        gaps = gaps if mask is None else jnp.where(mask, gaps, -2)
        support = _support(lax.stop_gradient(gaps))
        # On a fixed support the threshold is linear in the scores, which gives the exact Jacobian I - 11^T / k.
        threshold = (row_sum(gaps, support) - 1) / jnp.sum(support, axis=-1, keepdims=True, dtype=scores.dtype)
        return jnp.where(support, jnp.maximum(gaps - threshold, 0), 0)

    def primitive(self, scores: Shaped[Array, "*m"]) -> Float[Array, "*m"]:
        """Return F(a) = a: its sum over a fixed support is conserved, and scores off the support do not move."""
        return as_float(scores)


def _support(gaps: Float[Array, "*m n"]) -> Bool[Array, "*m n"]:
    """Return the support of the projection: the largest k with 1 + k a_(k) > a_(1) + ... + a_(k)."""
    wide = gaps.astype(jnp.promote_types(gaps.dtype, jnp.float32))
    descending = -jnp.sort(-wide, axis=-1)
    cumulative = jnp.cumsum(descending, axis=-1)
    ranks = jnp.arange(1, wide.shape[-1] + 1, dtype=wide.dtype)
    size = jnp.sum(1 + ranks * descending > cumulative, axis=-1, keepdims=True)
    threshold = (jnp.take_along_axis(cumulative, size - 1, axis=-1) - 1) / size
    return wide > threshold
