"""Balancedness, separable and homogeneous rates, and the identity of the tied model."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from systems import largest

import gradflow as gf

near = gf.laws.neighbours
LOGISTIC = gf.losses.logistic
KEY = jax.random.key(60)


@pytest.mark.slow
def test_balancedness_is_conserved_by_the_flow_and_drifts_under_descent():
    model = gf.models.DeepLinear.normal(KEY, (3, 4, 2, 1), scale=0.7)
    data = gf.tasks.linear_regression(KEY, n_features=3)
    ts = np.asarray([0.0, 1.0, 10.0])
    run = gf.gradient_flow(gf.losses.square, model, data, t1=10.0, ts=ts, rtol=1e-10)
    assert largest(near.balancedness(run)) < 1e-9
    sizes = np.asarray([0.04, 0.02, 0.01])
    drifts = []
    for size in sizes:
        steps = round(10 / size)
        descent = gf.gradient_descent(gf.losses.square, model, optax.sgd(size), data, steps=steps, save_at=[0, steps])
        drifts.append(largest(near.balancedness(descent)))
    assert min(drifts) > 1e-5
    assert abs(float(gf.gap_order(sizes, np.asarray(drifts))) - 1) < 0.1


def test_unequal_layer_rates_break_the_plain_balance():
    model = gf.models.DeepLinear.normal(KEY, (3, 4, 2, 1), scale=0.7)
    data = gf.tasks.linear_regression(KEY, n_features=3)
    rates = gf.models.DeepLinear((1.0, 3.0, 0.5))
    run = gf.gradient_flow(gf.losses.square, model, data, t1=10.0, ts=[0.0, 1.0, 10.0], rtol=1e-10, rates=rates)
    assert largest(near.balancedness(run, rates)) < 1e-9
    assert largest(near.balancedness(run)) > 1e-2


def test_separable_data_set_the_rate_and_the_direction():
    data = gf.tasks.linear_classification(KEY, 20, 3, margin=0.5)
    separator, margin = near.max_margin(data)
    products = data.y * (data.x @ separator)
    assert float(products.min()) > 1 - 1e-9
    assert margin > 0.5
    linear = gf.models.DeepLinear((jnp.zeros((1, 3)),))
    ts = gf.log_times(1e2, 1e12, 13)
    run = gf.gradient_flow(LOGISTIC, linear, data, t1=1e12, ts=ts, rtol=1e-10)
    betas = run.observed.matrices[0][:, 0]
    losses = jax.vmap(lambda w: LOGISTIC(gf.models.DeepLinear((w[None],)), data))(betas)
    residual = np.abs(near.separable_rate(ts, losses, margin))
    assert residual[-1] < 0.02
    assert (np.diff(residual[-6:]) < 0).all()
    assert abs(float(near.separable_rate(ts, losses, 2 * margin)[-1])) > 1
    distance = near.svm_distance(ts, betas, data)
    assert largest(distance[-3:] - distance[-1]) < 0.05, "bounded"
    assert float(jnp.linalg.norm(betas[-1]) - jnp.linalg.norm(betas[0])) > 1, "while the norm grows"
    with pytest.raises(gf.FlowError, match="not separable"):
        near.max_margin(gf.types.Data(jnp.ones((2, 1)), jnp.asarray([1.0, -1.0])))


@pytest.mark.parametrize("depth", [1, 3])
def test_homogeneous_networks_have_their_rate(depth):
    model = gf.models.DeepLinear.balanced(jnp.asarray([1.0, 2.0, 2.0]), depth, scale=0.5)
    sample = gf.tasks.single_sample(jnp.asarray([1.0, 2.0, 2.0]))
    run = gf.gradient_flow(LOGISTIC, model, sample, t1=1e12, rtol=1e-9)
    loss = LOGISTIC(run.final, sample)[None]
    assert largest(near.homogeneous_rate(jnp.asarray([1e12]), loss, depth)) < 0.01
    assert largest(near.homogeneous_rate(jnp.asarray([1e12]), loss, depth + 1)) > 0.1


def test_tied_values_grow_with_the_margin():
    setting = gf.models.paper.tied(5)
    residual = eqx.filter_jit(near.tied_growth)
    assert abs(float(residual(setting.loss, setting.model, setting.args))) < 1e-12
    sigmoid = gf.models.TiedSoftmax(setting.model.values, setting.model.query, gf.activations.Sigmoid())
    assert abs(float(residual(setting.loss, sigmoid, setting.args))) < 1e-12
    assert abs(float(residual(loss_of_weights, setting.model, setting.args))) > 1e-2, "for losses of beta only"


def loss_of_weights(model, data):
    return LOGISTIC(model, data) + jnp.sum(getattr(model, "values", 0.0) ** 2)


def test_dissipation_of_any_model():
    data = gf.tasks.linear_regression(KEY, n_features=3)
    model = gf.models.DeepLinear.normal(KEY, (3, 4, 1))
    residual = eqx.filter_jit(near.dissipation)
    assert abs(float(residual(gf.losses.square, model, data))) < 1e-12
    assert abs(float(residual(gf.losses.square, model, data, {"matrices": 3.0}))) < 1e-12
    assert near.loss_increase(jnp.asarray([2.0, 1.0, 1.5])).tolist() == [0.0, 0.5]
