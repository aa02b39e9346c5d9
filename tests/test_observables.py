"""What `HeadObservables` saves equals what the laws and the losses say of the same head."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradflow as gf
from gradflow.types import Batch

KEYS = jax.random.split(jax.random.key(0), 4)
INPUTS = jax.random.normal(KEYS[0], (3, 6, 5))
TARGETS = jax.random.randint(KEYS[1], (3, 6), 0, 4)
MASK = jnp.asarray([[True] * 6, [False] * 2 + [True] * 4, [False] * 6])
BATCH = Batch(INPUTS, TARGETS, MASK)
HEAD = gf.models.AttentionHead.normal(KEYS[2], 5, 3, 2, 4, scale=0.7)
MANY = gf.models.MultiHeadAttention.normal(KEYS[3], 2, 5, 3, 2, 4, scale=0.7)
OBSERVE = eqx.filter_jit(gf.HeadObservables())


@pytest.fixture(scope="module")
def seen():
    return OBSERVE(0.0, HEAD, BATCH)


def test_loss_and_speeds_are_those_of_the_whole_batch(seen):
    def loss(scores, values):
        def one(x, s, v):
            _, inside = HEAD(x, capture=True)
            weights = HEAD.activation(inside.scores + s, where=HEAD.mask(6))
            return weights @ (inside.values + v) @ HEAD.w_o

        log_p = jax.nn.log_softmax(jax.vmap(one)(INPUTS, scores, values), axis=-1)
        chosen = jnp.take_along_axis(log_p, TARGETS[..., None], axis=-1)[..., 0]
        return -jnp.sum(jnp.where(MASK, chosen, 0)) / MASK.sum()

    by_scores, by_values = jax.grad(loss, argnums=(0, 1))(jnp.zeros((3, 6, 6)), jnp.zeros((3, 6, 2)))
    assert seen["loss"] == pytest.approx(float(gf.losses.cross_entropy(HEAD, BATCH)), rel=1e-13)
    assert seen["routing_norm"] == pytest.approx(float(jnp.linalg.norm(by_scores)), rel=1e-12)
    assert seen["value_norm"] == pytest.approx(float(jnp.linalg.norm(by_values)), rel=1e-12)


def test_accuracy_and_entropies_are_counted_where_targets_count(seen):
    probabilities = np.asarray(jax.nn.softmax(jax.vmap(HEAD)(INPUTS), axis=-1))
    right = probabilities.argmax(-1) == np.asarray(TARGETS)
    unsure = -(probabilities * np.log(probabilities)).sum(-1)
    assert seen["accuracy"] == pytest.approx(right[np.asarray(MASK)].mean())
    assert seen["prediction_entropy"] == pytest.approx(unsure[np.asarray(MASK)].mean(), rel=1e-12)
    assert 0 < seen["attention_entropy"] < 1


def test_advantage_has_no_mean_under_the_weights_and_rises_against_the_score_gradient(seen):
    assert jnp.max(jnp.abs(jnp.sum(seen["weights"] * seen["advantage"], axis=-1))) < 1e-15
    state = gf.laws.routing.head_state(HEAD, INPUTS[0], TARGETS[0], MASK[0])
    share = MASK[0].sum() / MASK.sum()
    drift = seen["weights"][0] * seen["advantage"][0] + state.score_gradient * share
    assert jnp.max(jnp.abs(drift)) < 1e-15 < jnp.max(jnp.abs(state.score_gradient))


def test_masked_entries_have_no_advantage_and_maps_without_a_mean_none_at_all(seen):
    assert (seen["advantage"] == 0)[:, ~np.tri(6, dtype=bool)].all() and (seen["advantage"] != 0).any()
    other = gf.models.AttentionHead.normal(KEYS[2], 5, 3, 2, 4, activation="sigmoid")
    assert "advantage" not in OBSERVE(0.0, other, BATCH)


def test_a_sequence_without_targets_does_not_count(seen):
    alone = OBSERVE(0.0, HEAD, Batch(INPUTS.at[2].set(7.0), TARGETS, MASK))
    assert alone["loss"] == seen["loss"] and alone["routing_norm"] == seen["routing_norm"]


def test_several_heads_have_their_own_matrices():
    seen = eqx.filter_jit(gf.HeadObservables(values=False))(0.0, MANY, BATCH)
    assert seen["weights"].shape == seen["advantage"].shape == (3, 2, 6, 6) and "values" not in seen
    assert gf.HeadObservables() == gf.HeadObservables() != gf.HeadObservables(matrices=False)
