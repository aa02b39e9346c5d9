"""What one token can do: how far the answer moves when it is replaced, and whether one replacement turns it.

They take any model that maps the tokens of one sequence (T,) to logits (T, C), or to the logits (C,) of one answer.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Shaped

from gradflow.diagnostics.arguments import as_float, as_mask, as_symbols, index_in, norms
from gradflow.errors import FlowError, is_traced, whole_number

Model = Callable[..., Any]


class Influence(NamedTuple):
    """How far the answer moves when a token is replaced, averaged over the replacements.

    Attributes:
        logits: L2 distance of the logits.
        kl: divergence of the changed prediction from the original, KL(original || changed), in nats.
        total_variation: distance of the two predictions, from 0 to 1.
    """

    logits: Float[Array, " T"]
    kl: Float[Array, " T"]
    total_variation: Float[Array, " T"]


class Attack(NamedTuple):
    """The best replacement of one token of each sequence.

    Attributes:
        right: whether the answer was the label before.
        success: whether it was, and is no longer.
        position: of the replaced token.
        token: put there.
        margin: logit of the label minus the largest other logit, after the replacement: negative if turned.
        rate: successes over sequences that were right; NaN where none was.
    """

    right: Bool[Array, " n"]
    success: Bool[Array, " n"]
    position: Int[Array, " n"]
    token: Int[Array, " n"]
    margin: Float[Array, " n"]
    rate: Float[Array, ""]


def token_influence(
    model: Model,
    tokens: Int[Array, " T"],
    replacements: Int[Array, " R"] | Int[Array, "T R"],
    row: int = -1,
    batch_size: int = 256,
) -> Influence:
    """Return how far the answer moves when each token is replaced, one at a time.

    A replacement that equals the token changes nothing and does not count.

    Args:
        model: `model(tokens)` gives logits.
        tokens: one sequence; map over several with `jax.vmap` or `jax.lax.map`.
        replacements: tokens to put in, drawn by the caller: the same at all positions, or a row for each.
        row: position whose logits are the answer; ignored by a model of one answer.
        batch_size: sequences the model reads at once; bounds the memory.

    Returns:
        A distance for each position; 0 where no replacement differs from the token.

    Raises:
        FlowError: if tokens or replacements are not whole numbers of these shapes, or the row is outside.
    """
    tokens = _sequences("tokens", tokens, 1)
    drawn = _whole("replacements", replacements)
    if drawn.ndim not in (1, 2) or drawn.shape[:-1] not in ((), tokens.shape) or not drawn.shape[-1]:
        raise FlowError(f"replacements has shape {drawn.shape}; pass (R,) or ({len(tokens)}, R) with R >= 1")
    drawn = jnp.broadcast_to(drawn, (len(tokens), drawn.shape[-1]))
    original = _answer(model, tokens, row)

    def moved(place: Int[Array, " 2"]) -> Influence:
        changed = tokens.at[place[0]].set(drawn[place[0], place[1]].astype(tokens.dtype))
        return _distances(original, _answer(model, changed, row))

    counts = drawn != tokens[:, None]
    distances = lax.map(moved, _places(*drawn.shape), batch_size=whole_number("batch_size", batch_size))
    return jax.tree.map(lambda each: _mean_where(each.reshape(drawn.shape), counts), distances)


def one_token_attack(
    model: Model,
    tokens: Int[Array, "n T"],
    labels: Int[Array, " n"],
    candidates: Int[Array, " K"],
    where: Bool[Array, "n T"] | None = None,
    row: int = -1,
    batch_size: int = 256,
) -> Attack:
    """Return the single replacement that hurts each answer most, tried exhaustively: every position by candidate.

    Args:
        model: `model(tokens)` gives logits.
        tokens: sequences.
        labels: right class of each.
        candidates: tokens to put in.
        where: True at positions that may be replaced; None: all, the one that is read included.
        row: position whose logits are the answer; ignored by a model of one answer.
        batch_size: sequences the model reads at once; bounds the memory.

    Returns:
        Whether each attack succeeded, where and with what, and the success rate. Where nothing may be replaced, the
        margin is infinite and the attack fails.

    Raises:
        FlowError: if the shapes do not fit, or something is no whole number or empty.
    """
    tokens = _sequences("tokens", tokens, 2)
    candidates = _whole("candidates", candidates)
    if candidates.ndim != 1 or not candidates.size:
        raise FlowError(f"candidates has shape {candidates.shape}; pass (K,) with K >= 1")
    labels = _labels(model, tokens, labels, row)
    allowed = as_mask("where", where, tokens.shape)
    places, size = _places(tokens.shape[1], len(candidates)), whole_number("batch_size", batch_size)

    def attacked(sequence: Int[Array, " T"], label: Int[Array, ""], free: Bool[Array, " T"]) -> Any:
        def margin(place: Int[Array, " 2"]) -> Float[Array, ""]:
            changed = sequence.at[place[0]].set(candidates[place[1]].astype(sequence.dtype))
            return jnp.where(free[place[0]], _margin(_answer(model, changed, row), label), jnp.inf)

        margins = lax.map(margin, places, batch_size=size)
        best = jnp.argmin(margins)
        before = _margin(_answer(model, sequence, row), label)
        return before > 0, places[best, 0], candidates[places[best, 1]], margins[best]

    right, position, token, least = lax.map(lambda each: attacked(*each), (tokens, labels, allowed))
    success = right & (least <= 0)
    rate = jnp.where(jnp.any(right), jnp.sum(success) / jnp.maximum(jnp.sum(right), 1), jnp.nan).astype(least.dtype)
    return Attack(right, success, position, token, least, rate)


def flip_rate(
    model: Model,
    tokens: Int[Array, "n T"],
    labels: Int[Array, " n"],
    key: Shaped[Array, ""],
    *,
    n_pairs: int = 500,
    per_head: bool = False,
    batch_size: int = 64,
) -> Float[Array, "..."]:
    """Return how often the one token that a head attends to most decides the answer (arXiv 2603.06248).

    Draw pairs of sequences with different labels. In one, replace the content token with the largest weight in the
    last row by the other's, shuffle the content, and keep the CLS token last. The rate is the fraction then predicted
    as the label of the one inserted token, over both directions. Of signed maps the largest weight is meant, not the
    largest magnitude.

    Args:
        model: `model(tokens, capture=True)` gives logits and a capture whose `attention` is (..., T, T), for instance
            (layer, head, T, T).
        tokens: sequences whose last token is CLS, or a batch of them (`batch.inputs`).
        labels: class of each.
        key: a typed key, for pairs and shuffles.
        n_pairs: how many are drawn, with replacement.
        per_head: return the rate of every head instead of the largest.
        batch_size: pairs at once; bounds the memory.

    Returns:
        The largest rate over the heads, or the rates.

    Raises:
        FlowError: if the shapes do not fit, there is no content, or all labels are equal. Under `jit` equal labels
            cannot be noticed, and give NaN.
    """
    tokens = _sequences("tokens", getattr(tokens, "inputs", tokens), 2)
    if tokens.shape[1] < 2:
        raise FlowError(f"tokens has shape {tokens.shape}; a flip needs a content token before the last")
    labels = _labels(model, tokens, labels, -1)
    if not is_traced(labels) and len(np.unique(labels)) < 2:
        raise FlowError("labels are all equal; a flip needs sequences of two labels")
    of_pairs, of_shuffles = jax.random.split(key)
    pairs = _pairs(of_pairs, labels, whole_number("n_pairs", n_pairs))

    def hits(each: tuple[Int[Array, " 2"], Shaped[Array, ""]]) -> Float[Array, "..."]:
        pair, shuffle = each
        (a, b), (label_a, label_b), (key_a, key_b) = tokens[pair], labels[pair], jax.random.split(shuffle)
        top_a, top_b = _top_content(model, a), _top_content(model, b)
        into_a = _inserted(model, a, top_a, b[top_b], label_b, key_a)
        return (into_a + _inserted(model, b, top_b, a[top_a], label_a, key_b)) / 2

    shuffles = jax.random.split(of_shuffles, len(pairs))
    rates = jnp.mean(lax.map(hits, (pairs, shuffles), batch_size=whole_number("batch_size", batch_size)), axis=0)
    rates = jnp.where(jnp.any(labels != labels[0]), rates, jnp.nan)
    return rates if per_head else jnp.max(rates)


def _top_content(model: Model, sequence: Int[Array, " T"]) -> Int[Array, "..."]:
    """Return the position of the content token that each head's last row weighs most."""
    _, capture = model(sequence, capture=True)
    return jnp.argmax(capture.attention[..., -1, :-1], axis=-1)


def _inserted(
    model: Model,
    sequence: Int[Array, " T"],
    top: Int[Array, "..."],
    token: Int[Array, "..."],
    label: Int[Array, ""],
    key: Shaped[Array, ""],
) -> Float[Array, "..."]:
    """Return, for each head, 1 where another's token in place of the head's top one gives the other's label."""

    def one(place: Int[Array, ""], inserted: Int[Array, ""], shuffle: Shaped[Array, ""]) -> Bool[Array, ""]:
        content = jax.random.permutation(shuffle, sequence[:-1].at[place].set(inserted))
        return jnp.argmax(_answer(model, jnp.append(content, sequence[-1]), -1)) == label

    found = jax.vmap(one)(top.ravel(), token.ravel(), jax.random.split(key, top.size))
    return found.reshape(top.shape).astype(jnp.float32)


def _pairs(key: Shaped[Array, ""], labels: Int[Array, " n"], count: int) -> Int[Array, "count 2"]:
    """Return indices of sequences with different labels, the second drawn evenly among those that differ."""
    of_first, of_second = jax.random.split(key)
    first = jax.random.randint(of_first, (count,), 0, len(labels))
    differs = labels[first][:, None] != labels
    below = jnp.cumsum(differs, axis=-1)
    wanted = jax.random.uniform(of_second, (count,)) * below[:, -1]
    second = jnp.sum(below <= jnp.floor(wanted)[:, None], axis=-1)
    return jnp.stack([first, jnp.minimum(second, len(labels) - 1)], axis=-1)


def _answer(model: Model, sequence: Int[Array, " T"], row: int) -> Float[Array, " C"]:
    logits = as_float("logits", model(sequence), ("C",))
    return logits if logits.ndim == 1 else logits[index_in("row", row, logits.shape[0])]


def _margin(logits: Float[Array, " C"], label: Int[Array, ""]) -> Float[Array, ""]:
    """Return the logit of the label less the largest other one; a tie is not the label's."""
    own = jnp.arange(logits.shape[-1]) == label
    return jnp.sum(jnp.where(own, logits, 0)) - jnp.max(jnp.where(own, -jnp.inf, logits))


def _distances(original: Float[Array, " C"], changed: Float[Array, " C"]) -> Influence:
    before, after = jax.nn.log_softmax(original), jax.nn.log_softmax(changed)
    kl = jnp.maximum(jnp.sum(jnp.exp(before) * (before - after)), 0)
    return Influence(norms(changed - original), kl, jnp.sum(jnp.abs(jnp.exp(before) - jnp.exp(after))) / 2)


def _mean_where(values: Float[Array, "T R"], counts: Bool[Array, "T R"]) -> Float[Array, " T"]:
    return jnp.sum(jnp.where(counts, values, 0), axis=-1) / jnp.maximum(jnp.sum(counts, axis=-1), 1)


def _places(length: int, count: int) -> Int[Array, "places 2"]:
    return jnp.stack([axis.ravel() for axis in jnp.indices((length, count))], axis=-1)


def _whole(argument: str, numbers: Any) -> Int[Array, "..."]:
    numbers = jnp.asarray(numbers)
    if not jnp.issubdtype(numbers.dtype, jnp.integer):
        raise FlowError(f"{argument} has dtype {numbers.dtype}; pass tokens, whole numbers")
    return numbers


def _sequences(argument: str, tokens: Any, axes: int) -> Int[Array, "..."]:
    tokens = _whole(argument, tokens)
    if tokens.ndim != axes or not tokens.size:
        wanted = "(T,)" if axes == 1 else "(n, T)"
        raise FlowError(f"{argument} has shape {tokens.shape}; pass {wanted}, not empty")
    return tokens


def _labels(model: Model, tokens: Int[Array, "n T"], labels: Any, row: int) -> Int[Array, " n"]:
    """Return labels that are classes of the model's answer."""
    answer = jax.eval_shape(lambda sequence: _answer(model, sequence, row), tokens[0])
    return as_symbols("labels", labels, answer.shape[-1], len(tokens))
