"""Sharpness against dense Hessians, and inside `observe`."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import gradflow as gf
from gradflow.diagnostics import sharpness


def quadratic(x, matrix):
    return x @ matrix @ x / 2


def symmetric(eigenvalues):
    rotation, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(len(eigenvalues),) * 2))
    return jnp.asarray(rotation @ np.diag(eigenvalues) @ rotation.T)


@pytest.mark.parametrize(
    "eigenvalues",
    [
        [3.0, -7.0, 1.0],  # the largest, not the largest in size
        [-5.0, -2.0, -9.0],
        [2.0, 2.0, 2.0],  # the Krylov space is exhausted after one product
        [-2.0, -2.0, -2.0],
        [0.0, 0.0, 0.0],
        [4.0, 4.0, -1.0],
    ],
)
def test_small_quadratics_are_exact(eigenvalues):
    value = sharpness(quadratic, jnp.ones(3), symmetric(eigenvalues))
    assert value == pytest.approx(max(eigenvalues), abs=1e-12)


def test_many_parameters_and_few_products():
    eigenvalues = np.concatenate([np.linspace(-1, 1, 199), [1.5]])
    matrix = symmetric(eigenvalues)
    assert sharpness(quadratic, jnp.ones(200), matrix) == pytest.approx(1.5, rel=1e-6)
    single = sharpness(quadratic, jnp.ones(200, jnp.float32), matrix.astype(jnp.float32))
    assert single.dtype == jnp.float32 and single == pytest.approx(1.5, rel=1e-4)
    # Crowded at the top the estimate comes from below, and more products close in on it.
    crowded = symmetric(np.linspace(-1, 1, 200))
    coarse, fine = (float(sharpness(quadratic, jnp.ones(200), crowded, iterations=k)) for k in (8, 64))
    assert coarse < fine <= 1 + 1e-12 and fine == pytest.approx(1, rel=1e-3)


def network_loss(model, data):
    return jnp.mean((jax.vmap(model)(data.x)[:, 0] - data.y) ** 2)


def read(t, model, data):
    return {"loss": network_loss(model, data), "sharpness": sharpness(network_loss, model, data)}


def test_own_network_inside_observe_against_the_dense_hessian():
    key = jax.random.key(0)
    data = gf.tasks.linear_classification(key, n_samples=16, n_features=3)
    model = eqx.nn.MLP(3, 1, 8, 1, activation=jnp.tanh, key=key)
    flow = gf.gradient_flow(network_loss, model, data, t1=2.0, ts=[0.0, 2.0], observe=read)
    for index, at in enumerate((model, flow.final)):
        moving, fixed = eqx.partition(at, eqx.is_inexact_array)
        flat, unflatten = ravel_pytree(moving)
        hessian = jax.jit(jax.hessian(lambda p, f=fixed, u=unflatten: network_loss(eqx.combine(u(p), f), data)))(flat)
        assert flow.observed["sharpness"][index] == pytest.approx(float(np.linalg.eigvalsh(hessian)[-1]), rel=1e-8)


def test_bad_input_is_named():
    with pytest.raises(gf.FlowError, match="iterations is 0"):
        sharpness(quadratic, jnp.ones(3), jnp.eye(3), iterations=0)
    with pytest.raises(gf.FlowError, match="no inexact array"):
        sharpness(lambda model, args: jnp.ones(()), jnp.arange(3))
