"""Norms of pytrees."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradflow.flow.norms import norm, sum_of_squares


@pytest.mark.parametrize("shape", [(), (1,), (8,), (3, 5), (4, 6, 2)])
def test_sums_have_every_entry_once(shape):
    x = np.random.default_rng(0).normal(size=shape)
    np.testing.assert_allclose(sum_of_squares(jnp.asarray(x)), np.sum(x**2), rtol=1e-14)
    np.testing.assert_allclose(jax.grad(sum_of_squares)(jnp.asarray(x)), 2 * x, rtol=1e-14)


def test_norms_of_trees_batches_and_float32():
    tree = {"a": jnp.arange(16.0).reshape(2, 8), "b": jnp.ones((2, 3))}
    flat = np.concatenate([np.arange(16.0).reshape(2, 8), np.ones((2, 3))], axis=1)
    np.testing.assert_allclose(jax.vmap(norm)(tree), np.linalg.norm(flat, axis=1), rtol=1e-14)
    assert norm(jnp.ones(8, jnp.float32)).dtype == jnp.float32
    assert not np.isfinite(norm({"a": jnp.full(8, jnp.nan)}))
