"""What attention knows about symbols: whose symbol is attended to, and whom a column serves.

Both measures are plug-in estimates from weights, which are biased upwards on short sequences. Their chance level is the
same measure with the symbols of the queries permuted: pass `shuffled(key, symbols)`.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from gradflow.diagnostics.arguments import as_float, as_mask, as_symbols, common_shape, rescaled
from gradflow.diagnostics.attention import entropy
from gradflow.errors import whole_number


def mutual_information(
    attention: Shaped[Array, "... Q K"],
    sources: Int[Array, "... K"],
    n_classes: int,
    queries: Int[Array, "... Q"] | None = None,
    where: Bool[Array, "... Q K"] | None = None,
    rows: Bool[Array, "... Q"] | None = None,
) -> Float[Array, "..."]:
    """Return the mutual information of a query's own symbol and the symbol it attends to, in bits.

    Draw a query i, then a key j from its row of attention: the pair (symbol of i, symbol of j) has the joint
    probabilities p(c, c') = mean_i 1[c_i = c] sum_j A_ij 1[c_j = c'], and this is I(c; c') of that table. Unlike the
    attention mass on the same symbol, it also sees a head that routes to other symbols systematically. A head that
    attends to its own position has I = H(c), without routing anything from elsewhere: mask the diagonal to leave that
    out.

    Args:
        attention: weights, queries by keys. Each row is divided by its sum, so that queries count alike; a row without
            weight does not count. A negative weight gives NaN: signed weights are no distribution.
        sources: symbol of each key, from 0 to `n_classes - 1`.
        n_classes: number of symbols, static.
        queries: symbol of each query, for instance its target; None is `sources`, for as many queries as keys.
        where: True where an entry takes part, for instance the causal mask.
        rows: True where a query counts.

    Returns:
        Bits, from 0 to log2(n_classes); 0 where no query counts.

    Raises:
        FlowError: if the shapes do not fit, or a symbol is outside the classes.
    """
    of_queries = {"sources": sources} if queries is None else {"queries": queries}
    attention, own = _checked({"attention": attention}, of_queries, n_classes, where, rows)
    sources = as_symbols("sources", sources, n_classes, attention.shape[-1])
    common_shape(attention=attention.shape[:-2], sources=sources.shape[:-1])
    held = jax.nn.one_hot(sources, n_classes, dtype=attention.dtype)
    attended = jnp.matmul(attention, held, precision="highest")
    # Under jit a symbol outside the classes is dropped with its weight, so the rest is divided by its sum here.
    joint = jnp.matmul(jnp.swapaxes(own, -2, -1), rescaled(attended), precision="highest")
    return _information(joint) / math.log(2)


def specialisation(
    responsibilities: Shaped[Array, "... Q K"],
    classes: Int[Array, "... Q"],
    n_classes: int,
    where: Bool[Array, "... Q K"] | None = None,
    rows: Bool[Array, "... Q"] | None = None,
) -> Float[Array, "..."]:
    """Return how far each column serves queries of one class: 1 - H(class | column) / H(class), mass-weighted.

    Column j serves class c in proportion to sum_i A_ij 1[c_i = c]; the entropy of that distribution, averaged over
    columns by their mass, is compared with the entropy of the classes themselves. So it is 0 where every column serves
    the classes at their base rates, and 1 where each serves one class only. For hard assignments it is the homogeneity
    of a clustering (Rosenberg and Hirschberg 2007). Under a causal mask late columns serve few queries, which looks
    like specialisation: compare with `shuffled` classes.

    Args:
        responsibilities: attention weights or posterior responsibilities, queries by columns. Each row is divided by
            its sum; a row without weight does not count, and a negative weight gives NaN.
        classes: class of each query, for instance its target.
        n_classes: number of classes, static.
        where: True where an entry takes part, for instance the causal mask.
        rows: True where a query counts.

    Returns:
        Fractions from 0 to 1; 0 where the queries are all of one class.

    Raises:
        FlowError: if the shapes do not fit, or a class is outside `n_classes`.
    """
    weights, own = _checked({"responsibilities": responsibilities}, {"classes": classes}, n_classes, where, rows)
    joint = jnp.matmul(jnp.swapaxes(own, -2, -1), weights, precision="highest")
    whole = entropy(rescaled(jnp.sum(joint, axis=-1)))
    several = whole != 0
    return jnp.where(several, jnp.minimum(_information(joint) / jnp.where(several, whole, 1), 1), 0)


def shuffled(
    key: Shaped[Array, ""], symbols: Int[Array, "... Q"], rows: Bool[Array, "... Q"] | None = None
) -> Int[Array, "... Q"]:
    """Return symbols in a random order, which keeps their frequencies and cuts every tie to the attention.

    Args:
        key: a typed key.
        symbols: of the queries.
        rows: True where a query counts; the others keep their symbol.

    Returns:
        The symbols, each sequence permuted by its own draw.
    """
    symbols = jnp.asarray(symbols)
    counted = as_mask("rows", rows, symbols.shape)
    draws = jax.random.uniform(key, symbols.shape)
    from_place = jnp.argsort(jnp.where(counted, draws, 2), axis=-1, stable=True)
    to_place = jnp.argsort(~counted, axis=-1, stable=True)
    moved = jnp.take_along_axis(symbols, from_place, axis=-1)
    return jnp.put_along_axis(symbols, to_place, moved, axis=-1, inplace=False)


def _checked(
    named_weights: dict[str, Any], named_symbols: dict[str, Any], n_classes: int, where: Any, rows: Any
) -> tuple[Float[Array, "... Q K"], Float[Array, "... Q C"]]:
    """Return rows that sum to one or hold nothing, and the one-hot symbols of the queries that count."""
    ((argument, weights),) = named_weights.items()
    ((of_queries, symbols),) = named_symbols.items()
    weights = as_float(argument, weights, ("Q", "K"))
    symbols = as_symbols(of_queries, symbols, whole_number("n_classes", n_classes), weights.shape[-2])
    common_shape(**{argument: weights.shape[:-1], of_queries: symbols.shape})
    mask = as_mask("where", where, weights.shape) & as_mask("rows", rows, weights.shape[:-1])[..., None]
    weights = rescaled(jnp.where(mask, weights, 0))
    own = jax.nn.one_hot(symbols, n_classes, dtype=weights.dtype)
    return weights, jnp.where(jnp.any(weights != 0, axis=-1, keepdims=True), own, 0)


def _information(joint: Float[Array, "... rows columns"]) -> Float[Array, "..."]:
    """Return the mutual information of a table of weights, in nats."""
    flat = rescaled(joint.reshape(*joint.shape[:-2], joint.shape[-2] * joint.shape[-1]))
    joint = flat.reshape(joint.shape)
    apart = entropy(jnp.sum(joint, axis=-1)) + entropy(jnp.sum(joint, axis=-2))
    return jnp.maximum(apart - entropy(flat), 0)  # rounding can leave it below zero
