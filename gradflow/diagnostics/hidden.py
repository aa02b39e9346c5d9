"""Outliers in hidden states, and tokens whose key, value or state is longer or shorter than the others'."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from gradflow.diagnostics.arguments import as_float, as_mask, index_in, masked_median, norms
from gradflow.errors import FlowError


class ActivationPeaks(NamedTuple):
    """The largest activation of each token in each layer.

    Attributes:
        magnitude: its size.
        feature: where it is.
        median: size of the layer's activations, over all tokens and features: the same for all tokens of a layer.
        ratio: magnitude / median; infinite where the median is 0, NaN where both are.
    """

    magnitude: Float[Array, "... T"]
    feature: Int[Array, "... T"]
    median: Float[Array, "... T"]
    ratio: Float[Array, "... T"]


def massive_activations(
    hidden: Shaped[Array, "... T d"], absolute: float = 100, relative: float = 1000
) -> Bool[Array, "... T d"]:
    """Return where an activation is massive (Sun et al., arXiv 2402.17762).

    It is when its magnitude exceeds `absolute` and is at least `relative` times the median magnitude of its hidden
    state: all positions and features of one layer.

    Args:
        hidden: hidden states; a single vector (d,) is a state of its own.
        absolute: threshold of the magnitude.
        relative: threshold in units of the median magnitude.

    Returns:
        True at each massive activation.
    """
    size = jnp.abs(as_float("hidden", hidden, ("d",)))
    median = jnp.median(size, axis=tuple(range(max(size.ndim - 2, 0), size.ndim)), keepdims=True)
    return (size > absolute) & (size >= relative * median)


def activation_peaks(hidden: Shaped[Array, "... T d"], where: Bool[Array, "... T"] | None = None) -> ActivationPeaks:
    """Return the largest activation of each layer and token beside the median: the numbers behind a massive one.

    Args:
        hidden: hidden states, for instance `capture.hidden` (L, T, d).
        where: True at tokens that count for the median, so that padding does not.

    Returns:
        Magnitude, feature, median and ratio of each token.

    Raises:
        FlowError: if an axis is missing or empty, or `where` is not a mask of the tokens.
    """
    size = jnp.abs(as_float("hidden", hidden, ("T", "d")))
    if not min(size.shape[-2:]):
        raise FlowError(f"hidden has shape {size.shape}; a peak needs a token with a feature")
    mask = jnp.broadcast_to(as_mask("where", where, size.shape[:-1])[..., None], size.shape)
    flat = (*size.shape[:-2], size.shape[-2] * size.shape[-1])
    magnitude, feature = jnp.max(size, axis=-1), jnp.argmax(size, axis=-1)
    median = jnp.broadcast_to(masked_median(size.reshape(flat), mask.reshape(flat))[..., None], magnitude.shape)
    return ActivationPeaks(magnitude, feature, median, _ratio(magnitude, median))


def relative_norm(
    vectors: Shaped[Array, "... T d"],
    token: int | Int[Array, "..."] = 0,
    where: Bool[Array, "... T"] | None = None,
) -> Float[Array, "..."]:
    """Return the norm of one token's vector over the median norm of the others: a sink's value is often small.

    Args:
        vectors: keys, values or hidden states of one sequence in a row, for instance `capture.values` (L, KV, T, d).
        token: the sink's position, one for all or one for each (layer, head), as `sink_token` gives it.
        where: True at tokens that count among the others, so that padding does not.

    Returns:
        Ratios: infinite where the others' median norm is 0, NaN where the token's is 0 as well or there is no other.

    Raises:
        FlowError: if an axis is missing, there is one token only, or the token is outside the sequence.
    """
    vectors = as_float("vectors", vectors, ("T", "d"))
    length = vectors.shape[-2]
    if length < 2:
        raise FlowError(f"vectors has shape {vectors.shape}; to compare a token with the others takes T >= 2")
    size = norms(vectors)
    token = jnp.broadcast_to(jnp.asarray(index_in("token", token, length)) % length, size.shape[:-1])
    chosen = jnp.arange(length) == token[..., None]
    others = masked_median(size, as_mask("where", where, size.shape) & ~chosen)
    return _ratio(jnp.sum(jnp.where(chosen, size, 0), axis=-1), others)


def _ratio(part: Float[Array, "..."], whole: Float[Array, "..."]) -> Float[Array, "..."]:
    undefined = jnp.where(part > 0, jnp.inf, jnp.nan)
    return jnp.where(whole == 0, undefined, part / jnp.where(whole == 0, 1, whole))
