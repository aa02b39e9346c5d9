"""Attention sinks: how much of the attention goes to one key, most often the first."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from gradflow.diagnostics.arguments import as_float
from gradflow.errors import FlowError


def sink_score(
    attention: Shaped[Array, "... T T"], query_rows: slice | Shaped[Array, " Q"] = slice(1, None)
) -> Float[Array, "..."]:
    """Return the share of the attention that goes to key 0 (arXiv 2603.06248): sum_q A[q, 0] / sum_q sum_k A[q, k].

    Args:
        attention: weights, queries by keys.
        query_rows: queries that count. The default leaves out row 0: under a causal mask it is 1 for any head.

    Returns:
        A score for each head and sequence; 0 where the rows hold no weight. Signed weights can leave [0, 1].

    Raises:
        FlowError: if the last two axes differ, or no row is left.
    """
    attention = _square(attention)
    rows = attention[..., query_rows, :]
    if rows.ndim != attention.ndim or not rows.shape[-2]:
        raise FlowError(
            f"query_rows {query_rows} selects no row of attention {attention.shape}; the default leaves out row 0, "
            "so a sink score needs T >= 2"
        )
    total = jnp.sum(rows, axis=(-2, -1))
    return jnp.where(total == 0, 0, jnp.sum(rows[..., 0], axis=-1) / jnp.where(total == 0, 1, total))


def sink_rate(
    attention: Shaped[Array, "... T T"], epsilon: float = 0.3, key: int = 0, per_head: bool = False
) -> Float[Array, "..."]:
    """Return the fraction of heads for which key k is a sink (Gu et al., arXiv 2410.10781).

    A head is a sink when alpha_k = sum_{i >= k} A_ik / (T - k) exceeds epsilon. The rate depends on T, so state T next
    to it; the paper uses T = 64 and prints per cent.

    Args:
        attention: weights, queries by keys.
        epsilon: threshold of alpha.
        key: k, from 0.
        per_head: keep the last two leading axes, (layer, head), and average over the samples before them.

    Returns:
        One fraction, or one for each head.

    Raises:
        FlowError: if the last two axes differ, the key is outside them, or there is nothing to average over.
    """
    attention = _square(attention)
    length = attention.shape[-1]
    if not 0 <= key < length:
        raise FlowError(f"key is {key}; with T = {length} keys it must lie in [0, {length - 1}]")
    alpha = jnp.sum(attention[..., key:, key], axis=-1) / (length - key)
    averaged = tuple(range(max(alpha.ndim - 2, 0))) if per_head else tuple(range(alpha.ndim))
    if any(alpha.shape[axis] == 0 for axis in averaged):
        raise FlowError(f"attention has shape {attention.shape}; a rate over no head or sample is not defined")
    return jnp.mean((alpha > epsilon).astype(attention.dtype), axis=averaged)


def _square(attention: Shaped[Array, "... T T"]) -> Float[Array, "... T T"]:
    attention = as_float("attention", attention, ("T", "T"))
    if attention.shape[-1] != attention.shape[-2]:
        raise FlowError(f"attention has shape {attention.shape}; its last two axes, queries and keys, must be equal")
    return attention
