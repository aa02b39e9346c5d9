"""What is measured of a head: its routing, its values, and how well the closed forms foresee one step of descent."""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from gradflow import losses
from gradflow.diagnostics import entropy, participation_ratio, shuffled, specialisation, value_pca
from gradflow.experiments.routing.config import CLASSES
from gradflow.experiments.routing.recall import right
from gradflow.laws.routing import HeadState, head_state, softmax_law
from gradflow.models import AttentionHead
from gradflow.observables import HeadObservables
from gradflow.types import Batch

OBSERVE = HeadObservables()
SHOWN = ("weights", "advantage", "values")  # kept of the first sequence, where the map has it


@eqx.filter_jit
def measure(
    heads: AttentionHead, batches: Batch, fresh: Batch, step_size: Float[Array, ""]
) -> dict[str, Float[Array, "seeds saves ..."]]:
    """Measure every saved head on the sequences that it was trained on.

    Args:
        heads: leaves (seeds, saves, ...).
        batches: sequences of each seed.
        fresh: sequences of each seed that were not trained on.
        step_size: of the step whose effect is foreseen.

    Returns:
        Arrays by name; what is a matrix is that of the first sequence.
    """
    arrays, static = eqx.partition(heads, eqx.is_array)

    def of_seed(member: tuple) -> dict[str, Array]:
        saves, batch, unseen = member
        return jax.vmap(lambda save: _measure(eqx.combine(save, static), batch, unseen, step_size))(saves)

    return jax.lax.map(of_seed, (arrays, batches, fresh))


def _measure(head: AttentionHead, batch: Batch, fresh: Batch, step_size: Array) -> dict[str, Array]:
    seen = OBSERVE(step_size, head, batch)
    scalars = {name: seen[name] for name in ("loss", "accuracy", "routing_norm", "value_norm")}
    logits = jax.vmap(head)(fresh.inputs)
    hits = jnp.where(fresh.mask, jnp.argmax(logits, axis=-1) == fresh.targets, False)
    matrices = {name: seen[name][0] for name in SHOWN if name in seen}
    found = scalars | matrices | _routing(seen["weights"], batch) | _cloud(seen["values"], batch)
    return found | _foreseen(head, batch, step_size) | {"fresh_accuracy": jnp.sum(hits) / jnp.sum(fresh.mask)}


def _routing(weights: Float[Array, "n T T"], batch: Batch) -> dict[str, Array]:
    """Return means over the questions: spread of attention, and what of it on stored pairs is on the right one."""
    total = jnp.sum(batch.mask)
    causal = jnp.tril(jnp.ones(weights.shape[-2:], bool))
    spread = entropy(weights / jnp.sum(weights, axis=-1, keepdims=True), where=causal, normalise=True)
    own, stored = right(batch)
    on_right, on_stored = jnp.sum(weights * own, axis=-1), jnp.sum(weights * stored, axis=-1)
    by_chance = shuffled(jax.random.key(0), batch.targets, rows=batch.mask)
    specialised = [
        jnp.mean(specialisation(weights, classes, CLASSES, where=causal, rows=batch.mask))
        for classes in (batch.targets, by_chance)
    ]
    return {
        "entropy": jnp.sum(jnp.where(batch.mask, spread, 0)) / total,
        "right": jnp.sum(jnp.where(batch.mask, on_right / on_stored, 0)) / total,
        "on_stored": jnp.sum(jnp.where(batch.mask, on_stored, 0)) / total,
        "specialisation": specialised[0],
        "specialisation_chance": specialised[1],
    }


def _cloud(values: Float[Array, "n T d_v"], batch: Batch) -> dict[str, Array]:
    """Return the shape of the cloud of stored values of all sequences."""
    stored = values[:, : batch.inputs.shape[-1] - CLASSES].reshape(-1, values.shape[-1])
    return {"participation": participation_ratio(stored), "cloud_share": jnp.sum(value_pca(stored).shares)}


def _foreseen(head: AttentionHead, batch: Batch, step_size: Array) -> dict[str, Array]:
    """Take one step of descent, and compare the change of the weights with what the closed forms foresee."""
    states = jax.vmap(lambda x, y, counts: head_state(head, x, y, counts))(batch.inputs, batch.targets, batch.mask)
    share = 1 / len(batch.inputs)  # the loss is a mean over all questions, and every sequence has as many
    slope = eqx.filter_grad(losses.cross_entropy)(head, batch)
    after = eqx.apply_updates(head, jax.tree.map(lambda g: -step_size * g, slope))
    observed = _weights(after, batch) - states.weights
    kept = batch.mask[..., None] & states.mask
    softmax = softmax_law(states.weights, states.compatibility)
    uncentred = states.weights * states.compatibility
    carry, free = _carrier(states, batch.inputs), lambda scores: _pushed(states, -scores)
    predictions = {
        "law": carry(states.score_gradient),
        "uncentred": carry(uncentred),
        "softmax_law": carry(softmax),
        "alone": free(states.score_gradient),
        "alone_uncentred": free(uncentred),
    }
    predictions = {name: step_size * share * change for name, change in predictions.items()}
    found = {"observed": observed[0]} | {f"{name}_change": predictions[name][0] for name in ("law", "alone")}
    for name, change in predictions.items():
        found[f"{name}_residual"] = _size(observed - change, kept) / _positive(_size(observed, kept))
        found[f"{name}_correlation"] = _correlation(change, observed, kept)
    found["flipped_residual"] = _size(observed + predictions["law"], kept) / _positive(_size(observed, kept))
    agree = jnp.sign(predictions["alone"]) == jnp.sign(observed)
    moved = jnp.where(kept, jnp.abs(observed), 0)
    found["alone_sign"] = jnp.sum(moved * agree) / _positive(jnp.sum(moved))
    return found


def _carrier(states: HeadState, inputs: Float[Array, "n T d_in"]) -> Callable[[Array], Array]:
    """Return what turns D into dA: down to W_Q and W_K of all sequences, and up again to the scores of each.

    dW_Q = -sum X^T D K / sqrt(d_k), dW_K = -sum X^T D^T Q / sqrt(d_k), dS = (X dW_Q K^T + Q (X dW_K)^T) / sqrt(d_k).
    """
    queries, keys = states.queries, states.keys
    assert queries is not None and keys is not None
    root = math.sqrt(keys.shape[-1])

    def carry(gradient: Float[Array, "n T T"]) -> Float[Array, "n T T"]:
        of_queries = jnp.einsum("nid,nij,njk->dk", inputs, gradient, keys) / root
        of_keys = jnp.einsum("njd,nij,nik->dk", inputs, gradient, queries) / root
        scores = jnp.einsum("nid,dk,njk->nij", inputs, of_queries, keys)
        scores += jnp.einsum("nik,njd,dk->nij", queries, inputs, of_keys)
        return _pushed(states, -scores / root)

    return carry


def _pushed(states: HeadState, scores: Float[Array, "n T T"]) -> Float[Array, "n T T"]:
    """Return the first-order change of the weights under a change of the scores."""
    return jax.jvp(lambda s: states.activation(s, where=states.mask), (states.scores,), (scores,))[1]


def _weights(head: AttentionHead, batch: Batch) -> Float[Array, "n T T"]:
    return jax.vmap(lambda x: head(x, capture=True)[1].weights)(batch.inputs)


def _correlation(x: Array, y: Array, kept: Bool[Array, "n T T"]) -> Float[Array, ""]:
    """Return the cosine of two changes; those of a row sum to zero, so that it is their correlation as well."""
    return jnp.sum(jnp.where(kept, x * y, 0)) / _positive(_size(x, kept) * _size(y, kept))


def _size(x: Array, kept: Bool[Array, "n T T"]) -> Float[Array, ""]:
    return jnp.sqrt(jnp.sum(jnp.where(kept, x**2, 0)))


def _positive(x: Array) -> Array:
    return jnp.where(x > 0, x, 1)
