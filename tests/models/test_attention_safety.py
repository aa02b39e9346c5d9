"""What a layer does with padding, fully masked rows, inputs that are not finite and extreme scores."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradflow as gf
from gradflow.models import AttentionHead, FreeHead, MultiHeadAttention

KEY = jax.random.key(0)
LENGTH, D_IN, D_K, D_V, CLASSES = 5, 4, 3, 2, 6
X = jax.random.normal(jax.random.key(1), (LENGTH, D_IN))
# Position 3 is padding: nobody attends to it, and it attends to nobody.
PADDED = np.ones((LENGTH, LENGTH), bool)
PADDED[3], PADDED[:, 3] = False, False
OTHERS = np.array([0, 1, 2, 4])
SMALL = AttentionHead.normal(KEY, D_IN, D_K, D_V, CLASSES, scale=0.8)
MULTI = MultiHeadAttention.normal(KEY, 2, D_IN, D_K, D_V, CLASSES, causal=False)


def head_of(activation=None, causal=True):
    return AttentionHead(SMALL.w_q, SMALL.w_k, SMALL.w_v, SMALL.w_o, activation, causal)


def loss(layer, x, counted, where):
    """The mean surprise of class 0 over the positions that count."""
    batch = gf.tasks.Batch(x[None], jnp.zeros((1, LENGTH), int), jnp.asarray(counted)[None])
    return gf.losses.cross_entropy(lambda x: layer(x, where), batch)


# Of one layer at several inputs.
losses_and_gradients = eqx.filter_jit(jax.vmap(jax.value_and_grad(loss), in_axes=(None, 0, None, None)))


def total(layer, x, where):
    return jnp.sum(layer(x, where))


input_gradients = eqx.filter_jit(jax.vmap(jax.grad(total, argnums=(0, 1)), in_axes=(None, None, 0)))


def spoil(x, position, value=jnp.nan):
    return x.at[position, 1].set(value)


@pytest.mark.parametrize("layer", [head_of(), MULTI], ids=["causal head", "several"])
def test_padding_may_hold_anything(layer):
    counted = np.isin(np.arange(LENGTH), OTHERS)
    spoilt = jnp.stack([spoil(X, 3, value) for value in (np.nan, np.inf, -np.inf)])
    losses, gradients = losses_and_gradients(layer, jnp.concatenate([X.at[3].set(0.0)[None], spoilt]), counted, PADDED)
    assert np.isfinite(losses).all()
    for measured in (losses, *jax.tree.leaves(gradients)):
        np.testing.assert_allclose(measured, np.broadcast_to(measured[:1], measured.shape), rtol=1e-13, atol=1e-16)
    np.testing.assert_array_equal(layer(spoilt[0], PADDED)[3], 0.0)


@pytest.mark.parametrize("name", ["softmax", "relu", "uniform", "normalised-sigmoid"])
def test_a_position_that_is_not_finite_shows_in_the_rows_that_see_it_and_in_no_other(name):
    head = head_of(name)
    bad, inside = head(spoil(X, 2), capture=True)
    np.testing.assert_array_equal(bad[:2], head(X)[:2])
    assert np.isnan(bad[2:]).all() and np.isnan(inside.outputs[2:]).all()
    blind = np.ones((LENGTH, LENGTH), bool)
    blind[4, 2] = False
    np.testing.assert_array_equal(head(spoil(X, 2), blind)[4], head(X, blind)[4])
    np.testing.assert_array_equal(np.isnan(head(spoil(X, 2), blind)).any(1), [False, False, True, True, False])
    # A row reads its own query, also where it does not attend to itself.
    np.testing.assert_array_equal(np.isnan(head(spoil(X, 2), ~np.eye(LENGTH, dtype=bool))).any(1)[1:3], [False, True])
    assert np.isnan(head_of(name, causal=False)(spoil(X, 2))).all()


def test_gradients_of_rows_before_a_position_that_is_not_finite():
    first, inputs = np.arange(LENGTH) < 2, jnp.stack([X, spoil(X, 2)])
    losses, gradients = losses_and_gradients(head_of(), inputs, first, None)
    assert np.isfinite(losses).all()
    for measured in (losses, *jax.tree.leaves(gradients)):
        np.testing.assert_allclose(measured[1], measured[0], rtol=1e-12, atol=1e-15)
    losses, gradients = losses_and_gradients(head_of(), inputs, ~first, None)
    np.testing.assert_array_equal(np.isnan(losses), [False, True])
    assert np.isnan(gradients.w_v[1]).all() and np.isfinite(gradients.w_v[0]).all()


@pytest.mark.parametrize("name", gf.activations.names())
def test_masked_scores_of_a_free_head_are_never_read(name):
    scores = jnp.asarray(np.where(PADDED, np.linspace(0.5, 2, LENGTH * LENGTH).reshape(LENGTH, LENGTH), np.nan))
    values, w_o = jnp.ones((LENGTH, D_V)), jnp.ones((D_V, CLASSES))
    head = FreeHead(scores, values, w_o, activation=name, causal=False)
    gradients = jax.grad(lambda head: jnp.sum(head(where=PADDED) ** 2))(head)
    for leaf in jax.tree.leaves(gradients):
        assert np.isfinite(leaf).all()
    np.testing.assert_array_equal(np.asarray(gradients.scores)[~PADDED], 0.0)
    assert np.isfinite(head(where=PADDED)).all()


@pytest.mark.parametrize(
    "layer", [head_of(causal=False), head_of("sigmoid"), MULTI], ids=["full", "sigmoid", "several"]
)
def test_rows_without_any_entry_have_finite_gradients(layer):
    nothing = np.zeros((LENGTH, LENGTH), bool)
    np.testing.assert_array_equal(layer(X, nothing), 0.0)
    gradients, by_input = input_gradients(layer, X, jnp.stack([nothing, PADDED]))
    for leaf in jax.tree.leaves(gradients):
        assert np.isfinite(leaf).all()
        np.testing.assert_array_equal(leaf[0], 0.0)
    assert np.isfinite(by_input).all()
    np.testing.assert_array_equal(by_input[1, 3], 0.0)


# Bounded maps: the weights of others overflow with their scores.
@pytest.mark.parametrize("name", ["softmax", "normalised-sigmoid"])
def test_extreme_scores_in_single_precision(name):
    head = jax.tree.map(lambda w: w.astype(jnp.float32), head_of(name))
    head = AttentionHead(1e4 * head.w_q, 1e4 * head.w_k, head.w_v, head.w_o, head.activation)
    x = X.astype(jnp.float32)
    assert np.abs(head(x, capture=True)[1].scores).max() > 1e7
    losses, gradients = losses_and_gradients(head, x[None], np.ones(LENGTH, bool), None)
    for leaf in (losses, *jax.tree.leaves(gradients)):
        assert leaf.dtype == jnp.float32 and np.isfinite(leaf).all()
