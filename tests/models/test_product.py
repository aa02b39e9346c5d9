"""The product with flat gradients is the matrix product, under every transformation and any axes of `vmap`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradflow.models.product import product

KEYS = jax.random.split(jax.random.key(0), 3)
X, W = jax.random.normal(KEYS[0], (3, 5, 4)), jax.random.normal(KEYS[1], (4, 2))
MANY = jax.random.normal(KEYS[2], (3, 4, 2))


def plain(x, w):
    return x @ w


def mapped(function, x_axis, w_axis):
    def inner(x, w):
        return jnp.sum(jnp.sin(jax.vmap(function, (x_axis, w_axis))(x, w)))

    return jax.jit(lambda x, w: (inner(x, w), jax.grad(inner, (0, 1))(x, w)))


@pytest.mark.parametrize(
    ("x_axis", "w_axis", "w"),
    [(0, None, W), (1, None, W), (None, 0, MANY), (0, 0, MANY), (0, 2, jnp.moveaxis(MANY, 0, 2))],
    ids=["first", "middle", "members-of-w", "members", "members-last"],
)
def test_values_and_gradients_are_those_of_the_plain_product(x_axis, w_axis, w):
    found, expected = (mapped(function, x_axis, w_axis)(X, w) for function in (product, plain))
    for ours, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, other, rtol=1e-12, atol=1e-12)


def test_members_of_batches_and_second_derivatives():
    def loss(function, w):
        return jnp.sum(jax.vmap(jax.vmap(function, (0, None)), (None, 0))(X, w) ** 3)

    found, expected = (
        jax.jit(lambda w, f=function: jax.hessian(lambda w: loss(f, w))(w))(MANY) for function in (product, plain)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


def test_a_single_row_keeps_its_precision():
    row = product(X[0, 0].astype(jnp.float32), W.astype(jnp.float32))
    assert row.shape == (2,) and row.dtype == jnp.float32
    np.testing.assert_allclose(row, X[0, 0] @ W, rtol=1e-5)
    assert product(X, W.astype(jnp.float32)).dtype == jnp.float64


def test_the_gradient_of_a_batch_is_one_flat_product():
    def loss(function, w):
        return jnp.sum(jax.vmap(function, (0, None))(X, w) ** 2)

    def contracted(function):
        jaxpr = str(jax.make_jaxpr(jax.grad(lambda w: loss(function, w)))(W))
        return "([0, 1], [0, 1])" in jaxpr

    assert contracted(plain) and not contracted(product)
