"""How concentrated a row of attention weights is, and how far two rows are apart.

A masked entry is never read. A row without any weight, masked or all zero, measures 0, with zero gradients.
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Shaped

from gradflow.diagnostics.arguments import as_float, as_mask, common_shape


def entropy(
    weights: Shaped[Array, "..."],
    axis: int = -1,
    where: Bool[Array, "..."] | None = None,
    normalise: bool = False,
) -> Float[Array, "..."]:
    """Return -sum w log w along an axis, in nats, with 0 log 0 = 0.

    The true slope at w = 0 is infinite; here it is 0, so that gradients at a one-hot row stay finite.

    Args:
        weights: attention weights; rows that do not sum to one are not rescaled. A negative weight gives NaN: the
            entropy of signed weights is not defined.
        axis: along which a row lies.
        where: True where an entry takes part, for instance the causal mask; broadcast to the shape of `weights`.
        normalise: divide by the largest possible entropy, the log of the number of entries that take part; a row of
            one entry gives 0.

    Returns:
        Entropies in nats, or fractions of the largest one, in float32 or wider.

    Raises:
        FlowError: if `weights` has no axis, or `where` is not a mask of its shape.
    """
    weights = as_float("weights", weights, ("n",))
    mask = as_mask("where", where, weights.shape)
    counted = mask & (weights != 0)
    safe = jnp.where(counted, weights, 1)
    # Not `safe * -log(safe)`: that would be -0 for a one-hot row.
    total = jnp.sum(jnp.where(counted, safe * jnp.log(1 / safe), 0), axis=axis)
    if not normalise:
        return total
    length = jnp.sum(mask, axis=axis)
    return total / jnp.where(length > 1, jnp.log(jnp.maximum(length, 2).astype(total.dtype)), 1)


def effective_count(
    weights: Shaped[Array, "..."], axis: int = -1, where: Bool[Array, "..."] | None = None
) -> Float[Array, "..."]:
    """Return exp(entropy): how many equal weights a row that sums to one is worth, from 1 (one-hot) to n (uniform).

    Args:
        weights: attention weights.
        axis: along which a row lies.
        where: True where an entry takes part.

    Returns:
        Counts, in float32 or wider.
    """
    return jnp.exp(entropy(weights, axis, where))


def largest_weight(
    weights: Shaped[Array, "..."], axis: int = -1, where: Bool[Array, "..."] | None = None
) -> Float[Array, "..."]:
    """Return the largest weight of each row.

    Args:
        weights: attention weights.
        axis: along which a row lies.
        where: True where an entry takes part.

    Returns:
        Largest weights, in float32 or wider; 0 for a row without entries.
    """
    weights = as_float("weights", weights, ("n",))
    mask = as_mask("where", where, weights.shape)
    some = jnp.any(mask, axis=axis)
    largest = jnp.max(jnp.where(mask, weights, -jnp.inf), axis=axis, initial=-jnp.inf)
    return jnp.where(some, largest, 0)


def total_variation(
    p: Shaped[Array, "..."],
    q: Shaped[Array, "..."],
    axis: int = -1,
    where: Bool[Array, "..."] | None = None,
) -> Float[Array, "..."]:
    """Return the total variation distance of two rows, sum |p - q| / 2: 0 if equal, 1 if they share no entry.

    Rows that do not sum to one are not rescaled: then it is half their L1 distance, and can exceed 1.

    Args:
        p: weights.
        q: weights, broadcast against `p`.
        axis: along which a row lies, after broadcasting.
        where: True where an entry takes part, for instance the causal mask.

    Returns:
        Distances, in float32 or wider.

    Raises:
        FlowError: if one has no axis, or the shapes do not broadcast.
    """
    p, q = as_float("p", p, ("n",)), as_float("q", q, ("n",))
    mask = as_mask("where", where, common_shape(p=p.shape, q=q.shape))
    difference = jnp.where(mask, p - q, 0)
    # Not `abs`, whose slope at zero is one: equal rows are at the minimum.
    return jnp.sum(difference * lax.stop_gradient(jnp.sign(difference)), axis=axis) / 2
