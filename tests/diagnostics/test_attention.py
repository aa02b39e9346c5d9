"""Entropy and its relatives: values against closed forms, and gradients where the textbook formula has none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gradflow as gf
from gradflow.diagnostics import effective_count, entropy, largest_weight, total_variation

MASK = np.array([True, True, False, True])


def test_entropy_of_known_rows():
    rows = np.array([[1, 0, 0, 0], [0.25] * 4, [0.5, 0.5, 0, 0]])
    np.testing.assert_allclose(entropy(rows), [0, np.log(4), np.log(2)], atol=1e-15)
    np.testing.assert_allclose(entropy(rows, normalise=True), [0, 1, 0.5], atol=1e-15)
    np.testing.assert_allclose(effective_count(rows), [1, 4, 2], rtol=1e-14)
    np.testing.assert_allclose(largest_weight(rows), [1, 0.25, 0.5])
    np.testing.assert_allclose(entropy(rows.T, axis=0), entropy(rows))


def test_integer_one_hot_rows():
    assert entropy(np.eye(3, dtype=int)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32, jnp.bfloat16])
def test_value_and_gradient_at_one_hot(dtype):
    value, gradient = jax.value_and_grad(entropy)(jnp.asarray([1.0, 0.0], dtype))
    assert value == 0
    assert np.isfinite(np.asarray(gradient, float)).all()


def test_gradient_through_a_softmax_that_underflows():
    scores = jnp.asarray([0.0, -200.0], jnp.float32)
    assert jax.grad(lambda a: entropy(jax.nn.softmax(a)))(scores).tolist() == [0, 0]


def test_masked_and_renormalised_softmax_has_a_finite_gradient():
    def masked(scores):
        weights = jnp.where(MASK, jax.nn.softmax(scores), 0)
        return entropy(weights / weights.sum(), where=MASK)

    scores = jnp.asarray([0.3, -1.0, 2.0, 0.5])
    gradient = jax.grad(masked)(scores)
    step = 1e-6 * np.eye(4)
    difference = [(masked(scores + h) - masked(scores - h)) / 2e-6 for h in step]
    np.testing.assert_allclose(gradient, difference, atol=1e-8)
    assert abs(gradient[2]) < 1e-15


def test_masked_entries_are_never_read():
    row = jnp.asarray([0.5, 0.25, jnp.nan, 0.25])
    value, gradient = jax.value_and_grad(lambda w: entropy(w, where=MASK))(row)
    assert value == pytest.approx(1.5 * np.log(2))
    assert np.isfinite(gradient).all() and gradient[2] == 0
    assert largest_weight(row, where=MASK) == 0.5
    # `normalise` counts the entries that take part, not the length of the row.
    assert entropy(row, where=MASK, normalise=True) == pytest.approx(1.5 * np.log(2) / np.log(3))


def test_a_fully_masked_row_is_zero_and_leaves_its_neighbours_alone():
    where = np.array([[True, True], [False, False]])
    weights = jnp.asarray([[0.5, 0.5], [jnp.nan, jnp.nan]])
    for function in (entropy, largest_weight):
        value, pull = jax.vjp(lambda w, function=function: function(w, where=where), weights)
        gradient = pull(jnp.ones(2))[0]
        assert value[1] == 0 and value[0] > 0
        assert gradient[1].tolist() == [0, 0] and np.isfinite(gradient).all()


def test_one_entry_and_causal_rows():
    assert entropy(np.ones(1), normalise=True) == 0
    causal = np.tril(np.ones((4, 4), bool))
    uniform = causal / causal.sum(1, keepdims=True)
    np.testing.assert_allclose(entropy(uniform, where=causal, normalise=True), [0, 1, 1, 1], atol=1e-15)


def test_negative_weights_have_no_entropy():
    assert np.isnan(entropy(np.array([1.5, -0.5])))


@given(st.lists(st.floats(1e-300, 1), min_size=3, max_size=3))
def test_entropy_is_bounded_and_agrees_with_the_formula(raw):
    weights = np.array(raw) / np.sum(raw)
    positive = weights[weights > 0]
    value = float(entropy(weights))
    assert value == pytest.approx(-np.sum(positive * np.log(positive)), abs=1e-12)
    assert -1e-15 <= value <= np.log(3) + 1e-12


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: entropy(1.0), "shape ()"),
        (lambda: entropy(np.ones(2) * 1j), "complex"),
        (lambda: entropy(object()), "array of numbers"),
        (lambda: entropy(np.ones(3), where=np.ones(3)), "where has dtype float64"),
        (lambda: entropy(np.ones(3), where=np.ones(2, bool)), "does not broadcast"),
        (lambda: total_variation(np.ones(3), np.ones(2)), "p has shape (3,) and q has shape (2,); they must broadcast"),
        (lambda: total_variation(np.ones(3), 1.0), "q has shape ()"),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(gf.FlowError, match=words.replace("(", r"\(").replace(")", r"\)")):
        call()


def test_total_variation_of_known_rows():
    one_hot = np.eye(3)
    np.testing.assert_allclose(total_variation(one_hot, one_hot[::-1]), [1, 0, 1])
    np.testing.assert_allclose(total_variation(one_hot, np.full(3, 1 / 3)), [2 / 3] * 3)
    np.testing.assert_allclose(total_variation(one_hot, one_hot[0], axis=0), [1, 0.5, 0.5])
    assert total_variation(np.array([2.0, 0.0]), np.array([0.0, 2.0])) == 2  # half the L1 distance, not rescaled
    assert total_variation(np.zeros((2, 0)), np.zeros(0)).tolist() == [0, 0]
    assert total_variation(np.ones(1), np.ones(1)) == 0


def test_total_variation_never_reads_masked_entries():
    p, q = jnp.asarray([0.5, 0.5, jnp.nan, 0]), jnp.asarray([0.25, 0.25, 0.25, 0.5])
    value, gradient = jax.value_and_grad(total_variation)(p, q, where=MASK)
    assert value == 0.5 and gradient.tolist() == [0.5, 0.5, 0, -0.5]
    assert total_variation(jnp.float32([1, 0]), np.float32([0, 1])).dtype == jnp.float32
    assert jax.grad(total_variation)(q, q).tolist() == [0, 0, 0, 0]


@given(st.lists(st.floats(0, 1), min_size=9, max_size=9))
def test_total_variation_is_a_distance(raw):
    p, q, r = np.asarray(jax.nn.softmax(20 * jnp.array(raw).reshape(3, 3)))
    assert total_variation(p, q) == total_variation(q, p)
    assert 0 <= total_variation(p, q) <= 1 + 1e-15
    assert total_variation(p, r) <= total_variation(p, q) + total_variation(q, r) + 1e-15
    # The largest difference of the probabilities of an event.
    events = np.array(np.meshgrid(*[[0, 1]] * 3)).reshape(3, -1)
    assert total_variation(p, q) == pytest.approx(np.abs((p - q) @ events).max(), abs=1e-15)
