"""Sinks, massive activations and participation ratios against hand-made cases."""

import jax
import numpy as np
import pytest

import gradflow as gf
from gradflow.diagnostics import massive_activations, participation_ratio, sink_rate, sink_score


def causal_uniform(length):
    mask = np.tril(np.ones((length, length)))
    return mask / mask.sum(1, keepdims=True)


def test_sink_score_leaves_row_zero_out():
    diagonal = np.eye(3)  # every query attends to itself: no sink, although row 0 attends to key 0
    assert sink_score(diagonal) == 0
    assert sink_score(diagonal, query_rows=slice(None)) == pytest.approx(1 / 3)
    assert sink_score(diagonal, query_rows=np.array([1, 2])) == 0


def test_sink_score_of_a_sink_of_empty_rows_and_of_a_batch():
    sink = np.zeros((4, 4))
    sink[:, 0] = 1
    batch = np.stack([sink, np.zeros((4, 4)), causal_uniform(4)])
    np.testing.assert_allclose(sink_score(batch), [1, 0, (1 / 2 + 1 / 3 + 1 / 4) / 3])
    assert sink_score(batch[:0]).shape == (0,)
    gradient = jax.grad(lambda a: sink_score(a).sum())(batch)
    assert np.isfinite(gradient).all()


def test_sink_rate_by_its_definition():
    attention = np.zeros((2, 3, 4, 4))
    attention[..., 0] = 0.65  # "0.65 of the attention on token 0" is a sink, not a bug
    attention[1, 2, :, 0] = 0.1
    assert sink_rate(attention) == pytest.approx(5 / 6)
    assert sink_rate(attention, epsilon=0.7) == 0
    assert sink_rate(attention, per_head=True).tolist() == [[1, 1, 1], [1, 1, 0]]
    samples = np.stack([attention, 0 * attention])
    assert sink_rate(samples, per_head=True).shape == (2, 3)
    assert sink_rate(samples) == pytest.approx(5 / 12)


def test_sink_rate_of_a_later_key_counts_the_queries_that_see_it():
    attention = causal_uniform(4)
    alpha = (1 / 3 + 1 / 4) / 2  # key 2 is seen by queries 2 and 3
    assert sink_rate(attention, epsilon=alpha - 1e-9, key=2) == 1
    assert sink_rate(attention, epsilon=alpha + 1e-9, key=2) == 0
    assert sink_rate(np.ones((1, 1))) == 1


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: sink_score(np.ones((1, 1))), "T >= 2"),
        (lambda: sink_score(np.ones((2, 3))), "must be equal"),
        (lambda: sink_score(np.ones(3)), "attention has shape"),
        (lambda: sink_rate(np.ones((2, 2)), key=2), "key is 2"),
        (lambda: sink_rate(np.ones((0, 2, 2))), "no head or sample"),
    ],
)
def test_bad_attention_is_named(call, words):
    with pytest.raises(gf.FlowError, match=words):
        call()


def test_massive_activations_need_both_thresholds():
    hidden = np.full((2, 3, 4), 0.1)
    hidden[0, 1, 2] = -150.0
    hidden[1, 0, 0] = 99.0  # not above 100
    found = massive_activations(hidden)
    assert np.argwhere(found).tolist() == [[0, 1, 2]]
    # Large everywhere is not massive: the median is the yardstick.
    assert not massive_activations(hidden * 0 + 500.0).any()
    assert massive_activations(np.array([200.0, 0.1, 0.1])).tolist() == [True, False, False]


def test_participation_ratio_against_eigenvalues():
    vectors = np.random.default_rng(0).normal(size=(2, 20, 4)) * [4, 2, 1, 1]
    eigenvalues = np.stack([np.linalg.eigvalsh(np.cov(x.T)) for x in vectors])
    expected = eigenvalues.sum(1) ** 2 / (eigenvalues**2).sum(1)
    np.testing.assert_allclose(participation_ratio(vectors), expected, rtol=1e-12)
    np.testing.assert_allclose(participation_ratio(vectors * 1e-200), expected, rtol=1e-12)


def test_participation_ratio_limits_and_gradient():
    assert participation_ratio(np.eye(3), centre=False) == pytest.approx(3)
    assert participation_ratio(np.outer(np.arange(5), np.ones(3))) == pytest.approx(1)
    assert participation_ratio(np.ones((4, 2))) == 0
    equal = np.diag([1.0, 1.0, 2.0, 3.0])  # equal singular values: a gradient through an SVD would be NaN
    gradient = jax.grad(lambda x: participation_ratio(x, centre=False))(equal)
    assert np.isfinite(gradient).all()
