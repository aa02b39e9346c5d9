"""Sparsity, the sink's place, dormant heads and the entropy of heads against hand-made cases."""

import jax
import numpy as np
import pytest

import gradflow as gf
from gradflow import diagnostics
from gradflow.diagnostics import sink_score, sink_token, sparsity

attention_entropy = jax.jit(diagnostics.attention_entropy, static_argnames=("causal", "normalise"))
dormant_heads, head_norms = jax.jit(diagnostics.dormant_heads), jax.jit(diagnostics.head_norms)
UNIFORM = np.tril(np.ones((4, 4))) / np.arange(1, 5)[:, None]


def test_sparsity_is_a_share_whatever_the_scale():
    weights = np.array([[[9.0, 0.0, 0.0], [0.2, 0.2, 0.4]]])
    np.testing.assert_allclose(sparsity(weights), [0.5])
    np.testing.assert_allclose(sparsity(weights * 1e-3), [0.5])
    assert sparsity(weights, row=0) == 1
    np.testing.assert_allclose(sparsity(weights, where=np.array([True, True, False])), [0.5])
    assert sparsity(0 * weights) == 0
    assert sparsity(weights, where=np.zeros(3, bool)) == 0
    assert sparsity(np.array([[2.0, -1.5]])) == 1  # 4, clipped
    assert sparsity(np.ones((1, 1))) == 1
    assert sparsity(np.ones((0, 2, 2))).shape == (0,)


def test_a_sink_need_not_be_the_first_token():
    attention = np.zeros((2, 5, 5))
    attention[0, :, 0] = 1
    attention[1, 0, 0] = 1
    attention[1, 1:, 1] = [1, 0.6, 0.6, 0.6]
    attention[1, 2:, 4] = 0.4
    found = sink_token(attention)
    assert found.token.tolist() == [0, 1]
    np.testing.assert_allclose(found.share, [1, 0.7])
    np.testing.assert_allclose(sink_score(attention), [1, 0])
    last = sink_token(attention, query_rows=np.array([4]))
    np.testing.assert_allclose(last.share, [1, 0.6])
    assert sink_score(np.stack([UNIFORM] * 2), query_rows=slice(1, -2)) == pytest.approx([0.5, 0.5])
    empty = sink_token(np.zeros((3, 3)))
    assert (empty.token, empty.share) == (0, 0)


@jax.jit
def _heads(attention, rows):
    return sink_token(attention, rows).share, attention_entropy(attention, causal=True)


def test_under_jit_with_rows_that_are_traced():
    share, entropy = _heads(UNIFORM.astype(np.float32), np.array([1, 2]))
    assert share.dtype == entropy.dtype == np.float32
    assert share == pytest.approx((1 / 2 + 1 / 3) / 2)
    assert entropy == pytest.approx(1)


def test_entropy_of_heads_is_one_for_uniform_rows_of_any_length_and_scale():
    attention = np.stack([UNIFORM, 7 * UNIFORM, np.eye(4), np.zeros((4, 4))])
    np.testing.assert_allclose(attention_entropy(attention, causal=True), [1, 1, 0, 0], atol=1e-12)
    nats = attention_entropy(UNIFORM, causal=True, normalise=False)
    np.testing.assert_allclose(nats, np.log([2, 3, 4]).mean())
    # Called uniform over all four keys, the rows look less spread than they can be.
    assert attention_entropy(UNIFORM, causal=False) < 0.8
    assert attention_entropy(np.ones((1, 1)), causal=True) == 0
    signed = UNIFORM.copy()
    signed[3, 0] = -0.1
    assert np.isnan(attention_entropy(signed, causal=True))


def test_entropy_of_heads_with_left_padding():
    keep = np.array([False, True, True, True])
    visible = np.tril(np.ones((4, 4), bool)) & keep
    weights = visible / np.maximum(visible.sum(1, keepdims=True), 1)
    assert attention_entropy(weights, causal=True, where=keep) == pytest.approx(1)
    assert attention_entropy(weights, causal=True) < 0.9  # the padding counted as if it could be seen
    padded = np.where(visible, weights, np.nan)
    assert attention_entropy(padded, causal=True, where=keep) == pytest.approx(1)


def test_dormant_heads_have_a_small_output_and_not_only_a_sink():
    outputs = np.ones((2, 3, 4, 5))
    outputs[0, 1] *= 0.05
    outputs[1] = 0
    np.testing.assert_allclose(head_norms(outputs)[0], np.array([1, 0.05, 1]) / (2.05 / 3))
    np.testing.assert_allclose(head_norms(outputs)[1], 0)
    assert dormant_heads(outputs).tolist() == [[False, True, False], [True, True, True]]
    assert dormant_heads(outputs[:1], threshold=0.05).tolist() == [[False, False, False]]
    outputs[0, 1, 0] = 40  # a token that does not count
    keep = np.array([False, True, True, True])
    assert dormant_heads(outputs, where=keep)[0].tolist() == [False, True, False]
    assert not dormant_heads(np.ones((1, 1, 1))).any()  # a layer's only head


@pytest.mark.slow
def test_gradients_are_finite_at_zero_and_at_one_hot_rows():
    def everything(a):
        return attention_entropy(a, causal=True) + sparsity(a) + sink_token(a).share + head_norms(a[None]).sum()

    for weights in (np.eye(4), 0 * UNIFORM, UNIFORM):
        assert np.isfinite(jax.grad(everything)(weights)).all()


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: sparsity(np.ones(3)), "attention has shape"),
        (lambda: sparsity(np.ones((2, 2)), row=2), "outside an axis of length 2"),
        (lambda: sink_token(np.ones((1, 1))), "T >= 2"),
        (lambda: sink_score(np.ones((2, 2)), query_rows=np.array([5])), "query_rows"),
        (lambda: attention_entropy(np.ones((2, 3)), causal=True), "as many queries as keys"),
        (lambda: head_norms(np.ones((2, 3))), "outputs has shape"),
        (lambda: head_norms(np.ones((2, 3, 4)), where=np.ones(3)), "booleans"),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(gf.FlowError, match=words):
        call()
