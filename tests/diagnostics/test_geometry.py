"""Angles between keys, and between queries and keys, against NumPy and integrals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gradflow as gf
from gradflow import diagnostics

# One kernel of a whole function compiles several times faster than its operations one by one.
key_orthogonality, query_key_alignment = map(jax.jit, (diagnostics.key_orthogonality, diagnostics.query_key_alignment))

VECTORS = st.lists(st.integers(-2, 2), min_size=12, max_size=12)


def cosines(a, b):
    with np.errstate(invalid="ignore"):
        units = [np.nan_to_num(x / np.linalg.norm(x, axis=-1, keepdims=True)) for x in (a, b)]
    return units[0] @ units[1].T


@given(VECTORS, st.lists(st.booleans(), min_size=4, max_size=4))
def test_orthogonality_by_its_definition(entries, keep):
    keys, keep = np.reshape(entries, (4, 3)), np.array(keep)
    for where, left in ((None, keys), (keep, keys[keep])):
        pairs = np.abs(cosines(left, left))[~np.eye(len(left), dtype=bool)]
        mean = pairs.mean() if pairs.size else 0
        assert key_orthogonality(keys, where=where) == pytest.approx(mean, abs=1e-15)


def test_orthogonality_has_no_scale_and_is_finite_everywhere():
    keys = np.random.default_rng(0).normal(size=(2, 5, 3))
    scale = np.array([1e-200, 1e200, 1, 1e-30, 0])[:, None]
    np.testing.assert_allclose(key_orthogonality(keys * 1e-200), key_orthogonality(keys), rtol=1e-14)
    gradient = jax.jit(jax.grad(lambda k: key_orthogonality(k).sum()))(keys * scale)
    assert np.isfinite(gradient).all()
    value, gradient = jax.value_and_grad(key_orthogonality)(jnp.eye(4))
    assert value == 0 and np.abs(gradient).max() == 0  # orthogonal keys are at the minimum
    assert key_orthogonality(np.ones((4, 4))) == pytest.approx(1)
    assert jax.eval_shape(key_orthogonality, np.float32(keys)).dtype == jnp.float32


def test_masked_keys_are_never_read():
    keys = jnp.asarray([[1.0, 0], [1, 1], [jnp.nan, jnp.inf]])
    value, gradient = jax.value_and_grad(key_orthogonality)(keys, where=np.array([True, True, False]))
    assert value == pytest.approx(np.sqrt(0.5)) and np.isfinite(gradient).all()


@pytest.mark.parametrize("shape", [(0, 3), (1, 3), (3, 0)])
def test_without_a_pair_or_a_feature_it_is_zero(shape):
    assert key_orthogonality(np.ones(shape)) == 0
    assert query_key_alignment(np.ones(shape), np.ones(shape)) == pytest.approx(min(shape))


def test_chance_level():
    values = [diagnostics.key_orthogonality_chance(d) for d in (1, 2, 32, 96, 192)]
    np.testing.assert_allclose(values, [1, 2 / np.pi, 0.1421534637772, 0.0816460915705, 0.0576573837691], rtol=1e-11)
    keys = np.random.default_rng(0).normal(size=(600, 32))
    assert key_orthogonality(keys) == pytest.approx(diagnostics.key_orthogonality_chance(32), rel=5e-3)
    # Control: keys that share a direction are not at chance.
    assert key_orthogonality(keys + 1) > 2 * diagnostics.key_orthogonality_chance(32)


@given(VECTORS, st.integers(0, 10))
def test_alignment_by_its_definition(entries, seed):
    queries, keys = np.reshape(entries, (4, 3)), np.random.default_rng(seed).normal(size=(5, 3))
    weights = np.random.default_rng(seed).uniform(size=(4, 5))
    where = np.tril(np.ones((4, 5), bool), -1)  # the first query sees no key
    kept = (weights * where)[1:]
    rows = (kept * cosines(queries, keys)[1:]).sum(-1) / kept.sum(-1)
    assert query_key_alignment(queries, keys, weights, where) == pytest.approx(rows.mean(), abs=1e-14)
    assert query_key_alignment(queries, keys) == pytest.approx(cosines(queries, keys).mean(), abs=1e-14)


def test_alignment_of_batches_of_padding_and_of_signed_weights():
    queries = jnp.asarray([[1.0, 0], [0, 1], [jnp.nan, 1]])
    where = np.array([[True, False, False], [True, True, False], [False] * 3])
    value, gradient = jax.value_and_grad(query_key_alignment)(queries, queries, where=where)
    assert value == pytest.approx((1 + 1 / 2) / 2) and np.isfinite(gradient).all()
    assert query_key_alignment(queries, queries, where=np.zeros((3, 3), bool)) == 0
    assert np.isnan(query_key_alignment(queries[:2], queries[:2], np.array([[1.5, -0.5], [0, 1]])))
    heads = np.random.default_rng(0).normal(size=(2, 3, 4, 5))
    values = query_key_alignment(heads, heads[0], np.ones((4, 4)))
    assert values.shape == (2, 3) and values[1, 2] == pytest.approx(cosines(heads[1, 2], heads[0, 2]).mean())


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: diagnostics.key_orthogonality(np.ones(3)), "keys has shape"),
        (lambda: diagnostics.key_orthogonality(np.ones((3, 2)), where=np.ones(2, bool)), "does not broadcast"),
        (lambda: diagnostics.key_orthogonality_chance(0), "d is 0"),
        (lambda: diagnostics.query_key_alignment(np.ones((3, 2)), np.ones((3, 4))), "last axes must be equal"),
        (lambda: diagnostics.query_key_alignment(np.ones((3, 2)), np.ones((3, 2)), np.ones((2, 2))), "must broadcast"),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(gf.FlowError, match=words):
        call()
