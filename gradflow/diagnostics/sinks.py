"""Attention sinks: how much of the attention goes to one key, most often the first; heads that only rest there."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Shaped

from gradflow.diagnostics.arguments import as_float, as_mask, index_in, norms
from gradflow.errors import FlowError, is_traced
from gradflow.types import Number

LATER_ROWS = slice(1, None)


class SinkToken(NamedTuple):
    """The key that collects most attention.

    Attributes:
        token: its position.
        share: of the attention that goes there.
    """

    token: Int[Array, "..."]
    share: Float[Array, "..."]


def sink_score(
    attention: Shaped[Array, "... T T"], query_rows: slice | Shaped[Array, " Q"] = LATER_ROWS
) -> Float[Array, "..."]:
    """Return the share of the attention that goes to key 0 (arXiv 2603.06248): sum_q A[q, 0] / sum_q sum_k A[q, k].

    Of a map whose rows do not sum to one it is a share of what the rows hold together, not a mass: small weights can
    still make a sink, and a row counts by its sum. Of signed weights it can leave [0, 1].

    Args:
        attention: weights, queries by keys.
        query_rows: queries that count. The default leaves out row 0: under a causal mask it is 1 for any head. The
            paper's induction task also leaves out the last two: `slice(1, -2)`.

    Returns:
        A score for each head and sequence; 0 where the rows hold no weight.

    Raises:
        FlowError: if the last two axes differ, or no row is left.
    """
    attention = _square(attention)
    rows = _rows(attention.shape, query_rows)
    # Sums over whole rows, of which some are taken: on a CPU that is ten times as fast as sums over some rows.
    to_sink, held = attention[..., 0][..., rows], jnp.sum(attention, axis=-1)[..., rows]
    return _share(jnp.sum(to_sink, axis=-1), jnp.sum(held, axis=-1))


def sink_token(attention: Shaped[Array, "... T T"], query_rows: slice | Shaped[Array, " Q"] = LATER_ROWS) -> SinkToken:
    """Return which key collects most attention, and its share: a sink need not be token 0.

    Of maps that are unnormalised or signed the share is what `sink_score` says of key 0.

    Args:
        attention: weights, queries by keys.
        query_rows: queries that count; see `sink_score`. The others must be finite all the same.

    Returns:
        Position and share for each head and sequence; the first of equals, and 0 with share 0 where the rows hold no
        weight.

    Raises:
        FlowError: if the last two axes differ, or no row is left.
    """
    attention = _square(attention)
    rows = _rows(attention.shape, query_rows)
    # Times 0 or 1, and constants where they can be: XLA fuses neither a selection nor a scatter into the sum on a CPU.
    # The barrier keeps it from summing anew for each use.
    each = rows == (jnp if is_traced(rows) else np).arange(attention.shape[-1])[:, None]
    counts = each.sum(axis=-1, keepdims=True).astype(attention.dtype)
    columns = lax.optimization_barrier(jnp.sum(attention * counts, axis=-2))
    token = jnp.argmax(columns, axis=-1)
    return SinkToken(token, _share(jnp.max(columns, axis=-1), jnp.sum(columns, axis=-1)))


def sink_rate(
    attention: Shaped[Array, "... T T"], epsilon: float = 0.3, key: int = 0, per_head: bool = False
) -> Float[Array, "..."]:
    """Return the fraction of heads for which key k is a sink (Gu et al., arXiv 2410.10781).

    A head is a sink when alpha_k = sum_{i >= k} A_ik / (T - k) exceeds epsilon. The rate depends on T, so state T next
    to it; the paper uses T = 64 and prints per cent. Row 0, trivially 1, adds 1 / T to alpha_0. With rows that do not
    sum to one, alpha is a mass and not a share; of signed weights it can have either sign.

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


def sparsity(
    attention: Shaped[Array, "... Q K"],
    row: int | Int[Array, ""] = -1,
    where: Bool[Array, "... K"] | None = None,
) -> Float[Array, "..."]:
    """Return the largest share in one row, max_k A[row, k] / sum_k A[row, k] (arXiv 2603.06248), clipped to [0, 1].

    It is the same for a map and for c times the map, so elementwise maps compare with normalised ones. Of signed
    weights only the clipping keeps it in [0, 1]: a row whose weights nearly cancel scores 1 however many it uses.

    Args:
        attention: weights, queries by keys.
        row: the query, for instance the CLS token's, which is last; negative numbers count from the end.
        where: True where a key takes part.

    Returns:
        A share for each head and sequence; 0 where the row holds no weight.

    Raises:
        FlowError: if an axis is missing, the row is outside it, or `where` does not fit.
    """
    attention = as_float("attention", attention, ("Q", "K"))
    weights = attention[..., index_in("row", row, attention.shape[-2]), :]
    mask = as_mask("where", where, weights.shape)
    largest = jnp.max(jnp.where(mask, weights, -jnp.inf), axis=-1, initial=-jnp.inf)
    share = _share(jnp.where(jnp.isinf(largest), 0, largest), jnp.sum(jnp.where(mask, weights, 0), axis=-1))
    return jnp.clip(share, 0, 1)


def head_norms(outputs: Shaped[Array, "... H T d"], where: Bool[Array, "... T"] | None = None) -> Float[Array, "... H"]:
    """Return the mean norm of each head's output in units of its layer's mean (arXiv 2504.03889, AHON LN).

    Args:
        outputs: weights times values of each head, for instance `capture.outputs`. The output matrix, which can
            amplify one head more than another, is not in it.
        where: True at tokens that count.

    Returns:
        Norms, whose mean over the heads is 1; 0 where the whole layer gives nothing.

    Raises:
        FlowError: if an axis is missing, or `where` is not a mask of its tokens.
    """
    outputs = as_float("outputs", outputs, ("H", "T", "d"))
    mask = as_mask("where", where, (*outputs.shape[:-3], outputs.shape[-2]))[..., None, :]
    count = jnp.maximum(jnp.sum(mask, axis=-1), 1)
    mean = jnp.sum(jnp.where(mask, norms(jnp.where(mask[..., None], outputs, 0)), 0), axis=-1) / count
    return _share(mean, jnp.sum(mean, axis=-1, keepdims=True) / max(mean.shape[-1], 1))


def dormant_heads(
    outputs: Shaped[Array, "... H T d"], threshold: float = 0.25, where: Bool[Array, "... T"] | None = None
) -> Bool[Array, "... H"]:
    """Return which heads are dormant: their mean output norm is below a fraction of their layer's mean.

    A head rests on an input when its attention is on a sink whose value is small, so that it adds nearly nothing, and
    may work on another input (Guo et al., arXiv 2410.13835). A sink alone does not make it dormant: the value decides.
    So the output is measured (Sandoval-Segura et al., arXiv 2504.03889); the threshold has to be stated with the
    result. For the definition by attention alone compare `sink_score` with a threshold.

    Args:
        outputs: weights times values of each head.
        threshold: in units of the layer's mean.
        where: True at tokens that count.

    Returns:
        True at each dormant head of each sequence. In a layer that gives nothing at all every head is. A layer's only
        head is its own yardstick, never dormant otherwise.

    Raises:
        FlowError: if an axis is missing, or `where` is not a mask of its tokens.
    """
    return head_norms(outputs, where) < threshold


def _rows(shape: tuple[int, ...], query_rows: slice | Shaped[Array, " Q"]) -> Int[Number, " Q"]:
    """Return the rows that count, one after the other; on the host, if they are known there."""
    if is_traced(query_rows):
        return jnp.atleast_1d(jnp.arange(shape[-2])[query_rows])
    chosen = query_rows if isinstance(query_rows, slice) else np.asarray(query_rows)
    try:
        rows = np.atleast_1d(np.arange(shape[-2])[chosen])
    except IndexError as error:
        raise FlowError(f"query_rows {query_rows} does not fit attention {shape}: {error}") from None
    if not rows.size:
        raise FlowError(
            f"query_rows {query_rows} selects no row of attention {shape}; the default leaves out row 0, "
            "so a sink score needs T >= 2"
        )
    return rows


def _share(part: Float[Array, "..."], whole: Float[Array, "..."]) -> Float[Array, "..."]:
    return jnp.where(whole == 0, 0, part / jnp.where(whole == 0, 1, whole))


def _square(attention: Shaped[Array, "... T T"]) -> Float[Array, "... T T"]:
    attention = as_float("attention", attention, ("T", "T"))
    if attention.shape[-1] != attention.shape[-2]:
        raise FlowError(f"attention has shape {attention.shape}; its last two axes, queries and keys, must be equal")
    return attention
