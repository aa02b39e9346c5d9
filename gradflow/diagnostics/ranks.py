"""Correlation of ranks."""

from functools import partial

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Shaped

from gradflow.diagnostics.arguments import as_float, as_mask, common_shape
from gradflow.errors import FlowError


def spearman(
    x: Shaped[Array, "... n"], y: Shaped[Array, "... n"], where: Bool[Array, "... n"] | None = None
) -> Float[Array, "..."]:
    """Return Spearman's rank correlation along the last axis; entries that are equal share their mean rank.

    Ranks are piecewise constant, so its gradient is 0.

    Args:
        x: numbers.
        y: numbers, broadcast against `x`.
        where: True where a pair takes part.

    Returns:
        Correlations from -1 to 1, in float32 or wider. 0 where one of the two is constant: it orders nothing. NaN where
        a number that takes part is NaN.

    Raises:
        FlowError: if an axis is missing, or the shapes do not fit.
    """
    x, y = as_float("x", x, ("n",)), as_float("y", y, ("n",))
    if x.shape[-1] != y.shape[-1]:
        raise FlowError(f"x has shape {x.shape} and y {y.shape}; their last axes must be equal")
    mask = as_mask("where", where, common_shape(x=x.shape, y=y.shape))
    x, y = (_centred_ranks(jnp.broadcast_to(part, mask.shape), mask) for part in (x, y))
    scale = jnp.sqrt(jnp.sum(x**2, axis=-1)) * jnp.sqrt(jnp.sum(y**2, axis=-1))
    return jnp.clip(jnp.sum(x * y, axis=-1) / jnp.where(scale == 0, 1, scale), -1, 1)


def _centred_ranks(numbers: Float[Array, "... n"], mask: Bool[Array, "... n"]) -> Float[Array, "... n"]:
    """Return mean ranks among the entries that take part, less their mean; 0 elsewhere, NaN if one of them is NaN."""
    numbers = jnp.where(mask, lax.stop_gradient(numbers), jnp.inf)
    ordered = jnp.sort(numbers, axis=-1)
    count = jnp.sum(mask, axis=-1, keepdims=True)
    smaller = _places_left(ordered, numbers)
    not_larger = jnp.minimum(_places_right(ordered, numbers), count)  # masked entries lie behind, at infinity
    ranks = (smaller + not_larger - count).astype(numbers.dtype) / 2
    return jnp.where(jnp.any(jnp.isnan(numbers), axis=-1, keepdims=True), jnp.nan, jnp.where(mask, ranks, 0))


_places_left = jnp.vectorize(partial(jnp.searchsorted, side="left"), signature="(n),(n)->(n)")
_places_right = jnp.vectorize(partial(jnp.searchsorted, side="right"), signature="(n),(n)->(n)")
