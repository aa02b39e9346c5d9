"""How concentrated a row of attention weights is, and how far two rows are apart.

A masked entry is never read. A row without any weight, masked or all zero, measures 0, with zero gradients.
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Shaped

from gradflow.diagnostics.arguments import as_float, as_mask, common_shape
from gradflow.errors import FlowError


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


def attention_entropy(
    attention: Shaped[Array, "... Q K"],
    *,
    causal: bool,
    where: Bool[Array, "... Q K"] | None = None,
    normalise: bool = True,
) -> Float[Array, "..."]:
    """Return each head's mean entropy over its queries, as a fraction of what the row could have: log of its length.

    A row is divided by its sum first, so that it says where the weight goes and elementwise maps compare with
    normalised ones. A row of one entry, as row 0 under a causal mask, has no choice and is left out, and so is a row
    without weight.

    Args:
        attention: weights, for instance `capture.attention` (layer, head, T, T): a mean over the last axis of the
            result is then the entropy by layer. A negative weight gives NaN.
        causal: whether a query sees itself and earlier keys only, so that weights above the diagonal are zero already;
            decides the length of its row.
        where: True where a query may see a key, on top of that; for padding `keep[..., None, :]`, which broadcasts.
        normalise: divide by the log of the row's length; False: nats.

    Returns:
        An entropy for each head and sequence; 0 where no row counts, as for T = 1.

    Raises:
        FlowError: if an axis is missing, `where` does not fit, or causal attention is not square.
    """
    attention = as_float("attention", attention, ("Q", "K"))
    queries, keys = attention.shape[-2:]
    if causal and queries != keys:
        raise FlowError(f"attention has shape {attention.shape}; causal attention has as many queries as keys")
    length = jnp.arange(1, keys + 1) if causal else jnp.full(queries, keys)
    if where is not None:
        mask = as_mask("where", where, attention.shape) & (jnp.tril(jnp.ones((queries, keys), bool)) | (not causal))
        attention, length = jnp.where(mask, attention, 0), jnp.sum(mask, axis=-1)
    # -sum p log p with p = w / S is log S - (sum w log w) / S. Neither a mask nor a selection of the entries above zero
    # stands inside the sum: on a CPU either takes three times as long.
    total, tiny = jnp.sum(attention, axis=-1), jnp.finfo(attention.dtype).tiny
    scale = jnp.where(total > 0, total, 1)
    spread = jnp.sum(attention * jnp.log(jnp.maximum(attention, tiny)), axis=-1)
    each = jnp.maximum(jnp.log(scale) - spread / scale, 0)
    each = jnp.where(jnp.min(attention, axis=-1, initial=0) < 0, jnp.nan, each)
    counts = (length > 1) & (total != 0)
    most = jnp.log(jnp.maximum(length, 2).astype(each.dtype)) if normalise else jnp.ones((), each.dtype)
    return jnp.sum(jnp.where(counts, each / most, 0), axis=-1) / jnp.maximum(jnp.sum(counts, axis=-1), 1)


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
    """Return the largest weight of each row; `largest_weight(attention).mean(-1)` is a head's mean over its queries.

    Of maps whose rows do not sum to one it is a weight and not a share, which does not compare between maps: divide
    the rows by their sums first. Of signed weights it is the largest, not the largest magnitude.

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
