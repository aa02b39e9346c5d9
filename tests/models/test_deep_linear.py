"""The deep linear network: product, initialisers, and the law its layers keep."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import gradflow as gf
from gradflow.models import DeepLinear

KEY = jax.random.key(0)


def test_the_model_is_the_product_of_its_matrices():
    network = DeepLinear.normal(KEY, (4, 3, 2, 1), scale=0.7)
    assert [w.shape for w in network.matrices] == [(3, 4), (2, 3), (1, 2)]
    first, second, third = (np.asarray(w) for w in network.matrices)
    np.testing.assert_allclose(network(), (third @ second @ first)[0], rtol=1e-12)
    single = DeepLinear.normal(KEY, (4, 1))
    np.testing.assert_array_equal(single(), single.matrices[0][0])


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_balanced(depth):
    network = DeepLinear.balanced(jnp.array([3.0, 4.0]), depth, scale=0.5)
    assert len(network.matrices) == depth
    np.testing.assert_allclose(network(), 0.5**depth * np.array([0.6, 0.8]), rtol=1e-12)
    for lower, upper in zip(network.matrices, network.matrices[1:], strict=False):
        np.testing.assert_allclose(lower @ lower.T, upper.T @ upper, atol=1e-14)


def balance(matrices):
    first, second = matrices
    return first @ first.swapaxes(-1, -2) - second.swapaxes(-1, -2) @ second


def test_balancedness_is_kept_by_the_flow_and_drifts_under_descent():
    network = DeepLinear.normal(KEY, (4, 3, 1), scale=0.5)
    data = gf.tasks.linear_regression(jax.random.key(1), n_features=4, n_samples=8, target_norm=3.0)
    start = balance(network.matrices)
    flow = gf.gradient_flow(gf.losses.square, network, data, t1=100.0, rtol=1e-11)
    np.testing.assert_allclose(balance(flow.final.matrices), start, atol=1e-9)
    descent = gf.gradient_descent(gf.losses.square, network, optax.sgd(0.1), data, steps=1000)
    assert 1e-5 < float(jnp.abs(balance(descent.final.matrices) - start).max()) < 0.1


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: DeepLinear(()), "matrices is empty"),
        (lambda: DeepLinear.normal(0, (3, 1)), "key is 0: pass a random key"),
        (lambda: DeepLinear.normal(KEY, (3, 1), scale=-1.0), "scale is -1.0"),
        (lambda: DeepLinear((jnp.ones(3), jnp.ones((1, 3)))), "rows of each must equal columns of the next"),
        (lambda: DeepLinear((jnp.ones((3, 4)), jnp.ones((1, 2)))), "rows of each must equal columns of the next"),
        (lambda: DeepLinear.normal(KEY, (4,)), r"widths is \(4,\): expected \(d, ..., 1\)"),
        (lambda: DeepLinear.normal(KEY, (4, 2)), "widths is"),
        (lambda: DeepLinear.normal(KEY, (0, 1)), "widths is"),
        (lambda: DeepLinear.balanced(jnp.ones(2), 0, scale=1.0), "depth is 0"),
    ],
)
def test_bad_input(make, match):
    with pytest.raises(gf.FlowError, match=match):
        make()
