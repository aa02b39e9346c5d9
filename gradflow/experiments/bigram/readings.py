"""What is read off a model: losses by kind of position, and what each head does where it is needed and where not."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gradflow.diagnostics import entropy
from gradflow.experiments import texts
from gradflow.models import Capture, Transformer
from gradflow.types import Batch

KINDS = ("known", "other")  # rows of triggers that have occurred before; rows of other characters
PLACES = ("first token", "after an earlier one", "itself", "the one before", "elsewhere")
FIRST, ANSWER, PREVIOUS = 0, 1, 3  # places in the list above


def observe(step: Any, model: Transformer, args: tuple[Batch, Any], task: texts.BigramText) -> dict[str, Array]:
    """Return predictions and what each head does, on the sequences for evaluation.

    Args:
        step: not used.
        model: two layers or another number, L.
        args: the sequences, and what the loss takes besides.
        task: of the sequences.

    Returns:
        What `predictions` and `doings` do, `value_first` (L, H), the norm of the first token's value over the mean of
        the others', and of one sequence its `tokens` (T,), where it is `looked_up` (T,) and `example` (L, H, T, T).
    """
    del step
    batch = args[0]
    logits, capture = jax.vmap(functools.partial(model, capture=True))(batch.inputs)
    norms = jnp.linalg.norm(capture.values, axis=-1)
    ratio = norms[..., 0] / jnp.mean(norms[..., 1:], axis=-1)
    known = task.known(batch)
    shown = {"tokens": batch.inputs[0], "looked_up": known[0], "example": capture.attention[0]}
    found = predictions(logits, batch, task) | doings(model, capture, batch.inputs, rows(batch, task))
    return found | shown | {"value_first": jnp.mean(ratio, axis=0)}


def rows(batch: Batch, task: texts.BigramText) -> Bool[Array, "n kinds T"]:
    """Return which rows are of which of `KINDS`; the first row, which sees itself only, is none."""
    later = jnp.arange(batch.inputs.shape[1]) > 0
    return jnp.stack([task.known(batch), ~task.is_trigger(batch) & later], axis=1)


def predictions(logits: Float[Array, "n T C"], batch: Batch, task: texts.BigramText) -> dict[str, Array]:
    """Return how good predictions are at the positions that can be looked up, and at those that the table decides.

    Args:
        logits: of the model.
        batch: sequences with their targets.
        task: of the sequences.

    Returns:
        `known_loss` and `accuracy` where a trigger has occurred before, where the exact posterior loses 0 and a
        predictor that sees the trigger only `known_alone` at least; `new_loss` at its first occurrence, where the
        posterior loses log C; `other_loss` at other characters, where it loses `other_exact`; in nats, all on the
        same sequences.
    """
    surprise, trigger, known = texts.surprise(logits, batch), task.is_trigger(batch), task.known(batch)
    table = batch.mask & ~trigger
    right = jnp.argmax(logits, axis=-1) == batch.targets
    return {
        "known_loss": _mean(surprise, known),
        "known_alone": _alone(batch, known, logits.shape[-1]),
        "accuracy": _mean(right.astype(surprise.dtype), known),
        "new_loss": _mean(surprise, trigger & ~known),
        "other_loss": _mean(surprise, table),
        "other_exact": _mean(task.exact(batch).astype(surprise.dtype), table),
    }


def doings(
    model: Transformer, capture: Capture, tokens: Int[Array, "n T"], kinds: Bool[Array, "n kinds T"]
) -> dict[str, Array]:
    """Return where each head attends and how much it adds, as means over the rows of each kind.

    Args:
        model: for the output matrices.
        capture: of a batch.
        tokens: of the batch.
        kinds: which rows are of which kind.

    Returns:
        `share` (L, H, kinds, places), of a row's weight on each of `PLACES`; `mass` (L, H, kinds), the sum of a row;
        `added` (L, H, kinds), the norm of what a head adds to the residual stream.
    """
    mass = jnp.sum(capture.attention, axis=-1)
    shares = capture.attention / jnp.where(mass > 0, mass, 1)[..., None]
    matrices = jnp.stack([block.attention.w_o for block in model.blocks])
    added = jnp.linalg.norm(jnp.einsum("nlhtv,lhvd->nlhtd", capture.outputs, matrices), axis=-1)
    weights = (kinds / jnp.maximum(jnp.sum(kinds, axis=(0, 2))[:, None], 1)).astype(shares.dtype)
    place = places(tokens).astype(shares.dtype)
    return {
        "share": jnp.einsum("nlhqk,npqk,ncq->lhcp", shares, place, weights),
        "mass": jnp.einsum("nlhq,ncq->lhc", mass, weights),
        "added": jnp.einsum("nlhq,ncq->lhc", added, weights),
    }


def places(tokens: Int[Array, "n T"]) -> Bool[Array, "n places T T"]:
    """Return which key is at which of `PLACES` for each query; a key that is at several counts at the first of them."""
    position = jnp.arange(tokens.shape[1])
    query, key = position[:, None], position
    before = jnp.roll(tokens, 1, axis=1)  # the token before each key
    answer = (before[:, None, :] == tokens[:, :, None]) & (key > 0) & (key <= query)
    shape = (tokens.shape[0], len(position), len(position))
    wanted = [jnp.broadcast_to(found, shape) for found in (key == 0, answer, key == query, key == query - 1, key >= 0)]
    taken, found = jnp.zeros(shape, bool), []
    for mask in wanted:
        found.append(mask & ~taken)
        taken = taken | mask
    return jnp.stack(found, axis=1)


def _alone(batch: Batch, counts: Bool[Array, "n T"], size: int) -> Float[Array, ""]:
    """Return H(next | present) in nats at the positions that count: the least loss there without any context."""
    pairs = jnp.zeros((size, size)).at[batch.inputs, batch.targets].add(counts)
    joint = pairs / jnp.maximum(jnp.sum(pairs), 1)
    return jnp.sum(entropy(joint)) - entropy(jnp.sum(joint, axis=1))


def _mean(values: Float[Array, "n T"], counts: Bool[Array, "n T"]) -> Float[Array, ""]:
    return jnp.sum(jnp.where(counts, values, 0)) / jnp.maximum(jnp.sum(counts), 1)
