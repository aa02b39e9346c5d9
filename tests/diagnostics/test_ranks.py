"""Spearman's correlation against SciPy, with ties, masks and what SciPy leaves undefined."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

import gradflow as gf
from gradflow import diagnostics

# One kernel of a whole function compiles several times faster than its operations one by one.
spearman = jax.jit(diagnostics.spearman)

FEW = st.lists(st.integers(-2, 2), min_size=7, max_size=7)
MANY = st.lists(st.floats(width=32), min_size=7, max_size=7)
KEEP = st.lists(st.booleans(), min_size=7, max_size=7)


def expected(x, y):
    constant = len(x) < 2 or (x == x[0]).all() or (y == y[0]).all()
    return 0 if constant else spearmanr(x, y).statistic


@given(FEW, FEW, KEEP)
def test_agrees_with_scipy_with_ties_and_masks(x, y, keep):
    x, y, keep = np.array(x), np.array(y), np.array(keep)
    assert spearman(x, y) == pytest.approx(expected(x, y), abs=1e-14)
    assert spearman(x, y, where=keep) == pytest.approx(expected(x[keep], y[keep]), abs=1e-14)


@given(MANY)
def test_extreme_numbers_rank_like_any_other(x):
    x, y = np.array(x), np.array([3.0, 1, 2, 2, -np.inf, np.inf, 0])
    value = spearman(x, y)
    if np.isnan(x).any():
        assert np.isnan(value)
        assert np.isfinite(spearman(x, y, where=~np.isnan(x)))
    else:
        assert value == pytest.approx(expected(x, y), abs=1e-14)


def test_batches_jit_and_types():
    x = np.random.default_rng(0).normal(size=(3, 5, 40))
    x[0, 1] = -x[0, 0]

    def both(rows, other):
        values, pull = jax.vjp(lambda rows: spearman(rows, other), rows)
        return values, pull(jnp.ones_like(values))[0]

    values, gradient = jax.jit(jax.vmap(both, in_axes=(0, None)))(x, x[0, 0])
    one_by_one = [[spearmanr(row, x[0, 0]).statistic for row in rows] for rows in x]
    np.testing.assert_allclose(values, one_by_one, atol=1e-14)
    assert values[0, 0] == pytest.approx(1, abs=1e-15) and values[0, 1] == pytest.approx(-1, abs=1e-15)
    np.testing.assert_array_equal(gradient, 0)
    assert jax.eval_shape(spearman, np.float32(x), np.float32(x[0])).dtype == jnp.float32


@pytest.mark.parametrize("size", [0, 1, 7])
def test_a_constant_orders_nothing(size):
    assert spearman(np.ones(size), np.arange(size, dtype=float)) == 0
    assert spearman(np.zeros(size), -np.zeros(size)) == 0


def test_shapes_that_do_not_fit_are_named():
    with pytest.raises(gf.FlowError, match="last axes must be equal"):
        diagnostics.spearman(np.ones(3), np.ones(1))
    with pytest.raises(gf.FlowError, match="must broadcast"):
        diagnostics.spearman(np.ones((2, 3)), np.ones((4, 3)))
