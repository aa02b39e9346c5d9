"""Influence of one token on models whose answer is known by hand."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradflow as gf
from gradflow.diagnostics import flip_rate, one_token_attack, token_influence

jitted_flip_rate = jax.jit(flip_rate, static_argnums=0, static_argnames=("n_pairs", "per_head", "batch_size"))
jitted_attack = jax.jit(one_token_attack, static_argnums=0, static_argnames=("row", "batch_size"))
jitted_influence = jax.jit(token_influence, static_argnums=0, static_argnames=("row", "batch_size"))
CLASSES = 2  # token 0 is CLS; 1, 2, 3 belong to class 0 and 4, 5, 6 to class 1


class Seen(NamedTuple):
    attention: jax.Array


def votes(tokens):
    """Votes of each token, (T, classes), without CLS's."""
    return jax.nn.one_hot((tokens - 1) // 3, CLASSES) * (tokens > 0)[:, None]


def one_decides(tokens, capture=False):
    """The last row weighs the largest token only, and answers its class."""
    weights = jax.nn.softmax(100.0 * tokens[None])
    logits = jnp.broadcast_to(weights @ votes(tokens), (len(tokens), CLASSES))
    seen = jnp.broadcast_to(weights, (1, 2, len(tokens), len(tokens)))
    return (logits, Seen(seen)) if capture else logits


def all_decide(tokens, capture=False):
    """Every token has one vote."""
    logits = votes(tokens).sum(0)
    seen = jnp.broadcast_to(1.0 - 0.01 * jnp.arange(len(tokens)), (1, 1, len(tokens), len(tokens)))
    return (logits, Seen(seen)) if capture else logits


TOKENS = np.array([[1, 2, 3, 0], [4, 5, 6, 0], [3, 1, 2, 0], [6, 4, 5, 0]])
LABELS = np.array([0, 1, 0, 1])


def test_influence_is_that_of_the_token_that_decides():
    found = jitted_influence(one_decides, np.array([1, 2, 6, 0]), np.array([1, 2]))
    np.testing.assert_allclose(found.logits[:2], 0, atol=1e-6)
    np.testing.assert_allclose(found.logits[2], np.sqrt(2), rtol=1e-6)  # from (0, 1) to (1, 0)
    p = 1 / (1 + np.exp(-1))
    np.testing.assert_allclose(found.total_variation[2], 2 * p - 1, rtol=1e-5)
    np.testing.assert_allclose(found.kl[2], 2 * p - 1, rtol=1e-5)  # p log(p/q) + q log(q/p), log(p/q) = 1


@pytest.mark.slow
def test_a_replacement_equal_to_the_token_does_not_count():
    same = jitted_influence(all_decide, np.array([1, 0]), np.array([[1, 4], [0, 0]]), batch_size=3)
    np.testing.assert_allclose(same.logits, [np.sqrt(2), 0], rtol=1e-6)


def test_attack_finds_the_only_token_that_turns_the_answer():
    found = jitted_attack(one_decides, TOKENS[:2], LABELS[:2], np.array([4]), where=TOKENS[:2] > 0)
    assert found.right.all() and found.success.tolist() == [True, False]
    assert found.token[0] == 4 and found.rate == 0.5
    majority = jitted_attack(all_decide, TOKENS, LABELS, np.arange(1, 7), batch_size=7)
    assert not majority.success.any() and majority.rate == 0
    np.testing.assert_allclose(majority.margin, 1)  # one vote lost and one won, of three


@pytest.mark.slow
def test_attack_on_wrong_answers_and_with_nothing_to_replace():
    wrong = jitted_attack(all_decide, TOKENS, 1 - LABELS, np.arange(1, 7))
    assert not wrong.right.any() and np.isnan(wrong.rate)
    nowhere = jitted_attack(all_decide, TOKENS, LABELS, np.array([1]), where=np.zeros((4, 4), bool))
    assert np.isinf(nowhere.margin).all() and nowhere.rate == 0


@pytest.mark.slow
def test_flip_rate_of_a_vote_in_batches_that_do_not_divide_the_pairs():
    assert flip_rate(all_decide, TOKENS, LABELS, jax.random.key(0), n_pairs=8, batch_size=3) == 0


def test_flip_rate_of_one_token_that_decides():
    key = jax.random.key(0)
    # Class 1 has the larger tokens: put into class 0 it decides, and class 0's in its place does not.
    rates = jitted_flip_rate(one_decides, TOKENS, LABELS, key, n_pairs=8, per_head=True)
    assert rates.shape == (1, 2)
    np.testing.assert_allclose(rates, 0.5)


@pytest.mark.slow
def test_flip_rate_of_a_transformer_under_jit():
    model = gf.models.Transformer.init(
        jax.random.key(1), 7, width=8, layers=1, heads=2, mlp=None, norm=None, positions=None, causal=False, classes=2
    )
    batch = gf.types.Batch(jnp.asarray(TOKENS), jnp.asarray(TOKENS), jnp.ones(TOKENS.shape, bool))
    rate = jax.jit(lambda key: flip_rate(model, batch, LABELS, key, n_pairs=4))(jax.random.key(2))
    assert 0 <= rate <= 1


def test_pairs_have_different_labels():
    labels = np.array([0] * 20 + [1])
    pairs = jax.jit(gf.diagnostics.influence._pairs, static_argnums=2)(jax.random.key(3), labels, 200)
    pairs = np.asarray(pairs)
    assert (labels[pairs[:, 0]] != labels[pairs[:, 1]]).all()
    assert len(np.unique(pairs)) == 21


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: token_influence(all_decide, TOKENS, np.array([1])), r"pass \(T,\)"),
        (lambda: token_influence(all_decide, TOKENS[0], np.ones((2, 2), int)), "replacements has shape"),
        (lambda: token_influence(all_decide, TOKENS[0] * 1.0, np.array([1])), "whole numbers"),
        (lambda: token_influence(one_decides, TOKENS[0], np.array([1]), row=4), "row is 4"),
        (lambda: one_token_attack(all_decide, TOKENS, LABELS + 1, np.array([1])), "labels runs from 1 to 2"),
        (lambda: one_token_attack(all_decide, TOKENS, LABELS[:2], np.array([1])), "labels has shape"),
        (lambda: one_token_attack(all_decide, TOKENS, LABELS, np.array([], int)), "candidates has shape"),
        (lambda: one_token_attack(all_decide, TOKENS[:0], LABELS[:0], np.array([1])), "not empty"),
        (lambda: flip_rate(all_decide, TOKENS, 0 * LABELS, jax.random.key(0)), "labels are all equal"),
        (lambda: flip_rate(all_decide, TOKENS[:, :1], LABELS, jax.random.key(0)), "a content token"),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(gf.FlowError, match=words):
        call()
