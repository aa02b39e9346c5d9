"""The shape of a cloud of vectors, and the angles between vectors."""

import math

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Shaped

from gradflow.diagnostics.arguments import as_float, as_mask, common_shape, rescaled
from gradflow.errors import FlowError, whole_number


def participation_ratio(vectors: Shaped[Array, "... N d"], centre: bool = True) -> Float[Array, "..."]:
    """Return the effective dimension of a cloud: (sum l)^2 / sum l^2 over the eigenvalues l of its covariance.

    It is computed from traces, without eigenvalues, so that its gradient is finite where eigenvalues coincide.

    Args:
        vectors: one vector a row.
        centre: subtract the mean vector first.

    Returns:
        Effective dimensions from 1 (a line) to min(N, d); 0 for a cloud without extent.
    """
    vectors = as_float("vectors", vectors, ("N", "d"))
    if centre:
        vectors = vectors - jnp.mean(vectors, axis=-2, keepdims=True)
    # The ratio does not depend on the scale; at scale one its squares neither underflow nor overflow.
    size = jnp.max(jnp.abs(vectors), axis=(-2, -1), keepdims=True, initial=0)
    vectors = vectors / jnp.where(size > 0, size, 1)
    if vectors.shape[-2] > vectors.shape[-1]:
        vectors = jnp.swapaxes(vectors, -2, -1)
    gram = jnp.matmul(vectors, jnp.swapaxes(vectors, -2, -1), precision="highest")
    trace, square = jnp.trace(gram, axis1=-2, axis2=-1), jnp.sum(gram**2, axis=(-2, -1))
    return jnp.where(square > 0, trace**2 / jnp.where(square > 0, square, 1), 0)


def key_orthogonality(keys: Shaped[Array, "... N d"], where: Bool[Array, "... N"] | None = None) -> Float[Array, "..."]:
    """Return the mean |cos| of the angle between two different keys: 0 if all are orthogonal (arXiv 2512.22471).

    Compare with `key_orthogonality_chance(d)`: more than d keys cannot all be orthogonal.

    Args:
        keys: one key a row; a zero key is orthogonal to all.
        where: True where a key takes part.

    Returns:
        Means from 0 to 1, in float32 or wider; 0 where there is no pair.

    Raises:
        FlowError: if an axis is missing, or `where` is not a mask of the keys.
    """
    keys = as_float("keys", keys, ("N", "d"))
    mask = as_mask("where", where, keys.shape[:-1])
    units = _units(jnp.where(mask[..., None], keys, 0))
    cosines = jnp.matmul(units, jnp.swapaxes(units, -2, -1), precision="highest")
    cosines = jnp.where(jnp.eye(keys.shape[-2], dtype=bool), 0, cosines)
    # Not `abs`, whose slope at zero is one: orthogonal keys are at the minimum.
    total = jnp.sum(cosines * lax.stop_gradient(jnp.sign(cosines)), axis=(-2, -1))
    count = jnp.sum(mask, axis=-1)
    return total / jnp.maximum(count * (count - 1), 1)


def key_orthogonality_chance(d: int) -> float:
    """Return the mean |cos| between random directions in d dimensions: Gamma(d/2) / (sqrt(pi) Gamma((d+1)/2)).

    Args:
        d: dimensions, >= 1.

    Returns:
        The mean: .142 for d = 32, .0577 for d = 192.

    Raises:
        FlowError: if `d` is no whole number above 0.
    """
    d = whole_number("d", d)
    return math.exp(math.lgamma(d / 2) - math.lgamma((d + 1) / 2)) / math.sqrt(math.pi)


def query_key_alignment(
    queries: Shaped[Array, "... Q d"],
    keys: Shaped[Array, "... K d"],
    weights: Shaped[Array, "... Q K"] | None = None,
    where: Bool[Array, "... Q K"] | None = None,
) -> Float[Array, "..."]:
    """Return the mean cosine of the angle between a query and the keys it attends to.

    Without weights it is that of all pairs, so the difference between the two says how selective the angles are.

    Args:
        queries: one query a row.
        keys: one key a row. A zero query or key has cosine 0 with all.
        weights: attention, each row divided by its sum so that queries count alike; None weighs all keys alike. A
            negative weight gives NaN.
        where: True where a pair takes part, for instance the causal mask.

    Returns:
        Means from -1 to 1, in float32 or wider; queries without any weight do not count, and 0 if none is left.

    Raises:
        FlowError: if the shapes do not fit.
    """
    queries, keys = as_float("queries", queries, ("Q", "d")), as_float("keys", keys, ("K", "d"))
    if queries.shape[-1] != keys.shape[-1]:
        raise FlowError(f"queries have shape {queries.shape} and keys {keys.shape}; their last axes must be equal")
    leading = common_shape(queries=queries.shape[:-2], keys=keys.shape[:-2])
    shape = (*leading, queries.shape[-2], keys.shape[-2])
    weights = jnp.ones(shape, queries.dtype) if weights is None else as_float("weights", weights, ("Q", "K"))
    mask = as_mask("where", where, common_shape(pairs=shape, weights=weights.shape))
    rows = rescaled(jnp.where(mask, weights, 0))
    # What takes part in no pair is never read, so that padding may hold anything.
    asks, answers = jnp.any(rows != 0, axis=-1), jnp.any(rows != 0, axis=-2)
    queries, keys = _units(jnp.where(asks[..., None], queries, 0)), _units(jnp.where(answers[..., None], keys, 0))
    cosines = jnp.matmul(queries, jnp.swapaxes(keys, -2, -1), precision="highest")
    return jnp.sum(rows * cosines, axis=(-2, -1)) / jnp.maximum(jnp.sum(asks, axis=-1), 1)


def _units(vectors: Float[Array, "... d"]) -> Float[Array, "... d"]:
    """Return vectors at length one; a zero vector stays zero, with zero gradient."""
    # The direction does not depend on the scale; at scale one its squares neither underflow nor overflow.
    size = lax.stop_gradient(jnp.max(jnp.abs(vectors), axis=-1, keepdims=True, initial=0))
    some = size > 0
    vectors = vectors / jnp.where(some, size, 1)
    square = jnp.sum(vectors**2, axis=-1, keepdims=True)
    return jnp.where(some, vectors / jnp.sqrt(jnp.where(some, square, 1)), 0)
