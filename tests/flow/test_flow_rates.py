"""Separate rates, frozen leaves and models of every structure, in the flow and in the descent."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import gradflow as gf
from gradflow.problem import by_name

DATA = gf.tasks.single_sample(jnp.array([1.0, 2.0]))


def model():
    return gf.models.ValueSoftmax.normal(jax.random.key(3), 2, 4, scale=0.3, score_scale=0.3)


def labels(params):
    """Values fast, scores slow, by name: the optimiser sees the model as `equinox.filter` leaves it."""
    return jax.tree_util.tree_map_with_path(lambda path, _: "fast" if path[0].name == "values" else "slow", params)


def close(a, b, tolerance):
    pairs = zip(*(jax.tree.leaves(eqx.filter(m, eqx.is_inexact_array)) for m in (a, b)), strict=True)
    return all(np.allclose(x, y, rtol=0, atol=tolerance) for x, y in pairs)


def test_rates_agree_with_multi_transform():
    """Rates (4, 1) are step sizes (4 eta, eta) of `optax.multi_transform`: a gap linear in eta (equinox #79)."""
    rates = {"values": 4.0, "scores": 1.0}
    flow = gf.gradient_flow(gf.losses.logistic, model(), DATA, t1=8.0, rates=rates, rtol=1e-10).final
    gaps = []
    for eta in (0.02, 0.01):
        optimizer = optax.multi_transform({"fast": optax.sgd(4 * eta), "slow": optax.sgd(eta)}, labels)
        descent = gf.gradient_descent(gf.losses.logistic, model(), optimizer, DATA, steps=round(8 / eta)).final
        gaps.append(
            float(jnp.linalg.norm(descent.values - flow.values) + jnp.linalg.norm(descent.scores - flow.scores))
        )
    assert gaps[0] / gaps[1] == pytest.approx(2, rel=0.05)
    assert gaps[1] < 0.01
    equal = gf.gradient_flow(gf.losses.logistic, model(), DATA, t1=8.0, rtol=1e-10).final
    assert float(jnp.linalg.norm(equal.values - flow.values)) > 0.1


def test_the_ways_to_say_a_rate_agree():
    ways = [
        {"values": 4.0},
        gf.models.ValueSoftmax(4.0, 1.0),
        gf.models.ValueSoftmax(jnp.asarray(4.0), np.float32(1.0)),
    ]
    finals = [gf.gradient_flow(gf.losses.logistic, model(), DATA, t1=2.0, rates=rates).final for rates in ways]
    assert all(close(finals[0], final, 0.0) for final in finals[1:])


PATHS = [".layers[0].weight", ".layers[1].weight", ".head['out'].weight", ".head['out'].bias", ".scale"]


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ({"weight": 2.0}, [2, 2, 2, 1, 1]),
        ({"layers": 2.0, "layers.1": 3.0}, [2, 3, 1, 1, 1]),
        ({"weight": 5.0, "layers[0].weight": 4.0}, [4, 5, 5, 1, 1]),
        ({"head": 7.0, "out.bias": 3.0, ".scale": 2.0}, [1, 1, 7, 3, 2]),
        ({"0": 6.0, "weight": 2.0}, [2, 2, 2, 1, 1]),
        ({}, [1, 1, 1, 1, 1]),
    ],
)
def test_a_name_is_a_part_of_the_path_or_a_longer_run_of_it(named, expected):
    assert by_name("rates", named, PATHS, 1.0) == expected


@pytest.mark.parametrize(
    ("name", "hint"),
    [("wieght", "'weight'"), ("layers.0.wight", "'layers.0.weight'"), ("layers.weight", r"'layers\.[01]\.weight'")],
)
def test_a_name_without_a_leaf_is_refused(name, hint):
    with pytest.raises(gf.FlowError, match=f"rates names '{name}', which is no leaf of the model; did you mean {hint}"):
        by_name("rates", {name: 2.0}, PATHS, 1.0)


def pair_loss(model, args):
    return 0.5 * sum(jnp.sum(x**2) for x in model.values())


def test_a_model_that_is_a_dictionary():
    """With all its keys the rates are a prefix of the model, with some of them they are names."""
    start, options = {"a": jnp.ones(()), "b": jnp.ones(())}, {"t1": 0.5, "rtol": 1e-10, "solver": "tsit5"}
    for rates in ({"a": 3.0}, {"a": 3.0, "b": 1.0}):
        final = gf.gradient_flow(pair_loss, start, rates=rates, **options).final
        np.testing.assert_allclose([final["a"], final["b"]], np.exp([-1.5, -0.5]), rtol=1e-8)


def test_one_rate_for_all_is_a_change_of_time():
    fast = gf.gradient_flow(gf.losses.logistic, model(), DATA, t1=2.0, rates=3.0, rtol=1e-11).final
    long = gf.gradient_flow(gf.losses.logistic, model(), DATA, t1=6.0, rtol=1e-11).final
    assert close(fast, long, 1e-9)


FREEZE_SCORES = gf.models.ValueSoftmax(True, False, False)


def test_frozen_leaves_stay():
    start = model()
    flow = gf.gradient_flow(gf.losses.logistic, start, DATA, t1=5.0, trainable=FREEZE_SCORES, ts=[0.0, 5.0])
    np.testing.assert_array_equal(flow.final.scores, start.scores)
    np.testing.assert_array_equal(flow.observed.scores, np.stack([start.scores] * 2))
    assert float(jnp.abs(flow.final.values - start.values).max()) > 0.1
    descent = gf.gradient_descent(
        gf.losses.logistic, start, optax.adamw(0.1, weight_decay=0.1), DATA, steps=20, trainable=FREEZE_SCORES
    )
    np.testing.assert_array_equal(descent.final.scores, start.scores)


def test_trainable_as_a_function_of_the_leaf():
    run = gf.gradient_flow(gf.losses.logistic, model(), DATA, t1=1.0, trainable=lambda x: getattr(x, "ndim", 0) == 2)
    np.testing.assert_array_equal(run.final.scores, model().scores)


class Odd(eqx.Module):
    """Leaves of every kind: arrays, integers, booleans, Python numbers, functions, None, strings, nested containers."""

    weight: jax.Array
    table: dict
    layers: list
    count: jax.Array
    mask: jax.Array
    power: int
    scale: float
    activation: callable
    nothing: None
    name: str


def odd():
    return Odd(
        weight=jnp.ones(3),
        table={"a": jnp.ones(2), "b": (jnp.zeros(()), None)},
        layers=[jnp.ones((2, 2)), np.ones(1)],
        count=jnp.arange(3),
        mask=jnp.array([True, False, True]),
        power=2,
        scale=0.5,
        activation=jnp.tanh,
        nothing=None,
        name="odd",
    )


def odd_loss(model, args):
    parts = [model.weight * model.mask, model.table["a"], model.table["b"][0] - 1, *model.layers]
    return model.scale * sum(jnp.sum(model.activation(x) ** model.power) for x in parts) + 0 * jnp.sum(model.count)


def test_models_of_any_structure():
    flow = gf.gradient_flow(odd_loss, odd(), t1=1.0, ts=[0.0, 1.0], rates={"table": 2.0, "weight": 0.5})
    assert jax.tree.structure(flow.final) == jax.tree.structure(odd())
    np.testing.assert_array_equal(flow.final.count, [0, 1, 2])
    np.testing.assert_array_equal(flow.final.mask, odd().mask)
    assert (flow.final.scale, flow.final.power, flow.final.name, flow.final.activation) == (0.5, 2, "odd", jnp.tanh)
    assert float(flow.final.weight[1]) == 1.0  # masked out of the loss
    assert float(flow.final.table["a"][0]) < float(flow.final.weight[0]) < 1.0
    assert flow.observed.layers[0].shape == (2, 2, 2)
    assert flow.observed.count.shape == (2, 3)
    descent = gf.gradient_descent(odd_loss, odd(), optax.adam(0.1), steps=3, save_at=[0, 3])
    assert jax.tree.structure(descent.final) == jax.tree.structure(odd())
    assert descent.observed.mask.shape == (2, 3)


def mlp_loss(model, data):
    return jnp.mean((jax.vmap(model)(data.x)[:, 0] - data.y) ** 2)


def mlp_observed(t, model, args):
    return {"loss": mlp_loss(model, args), "step": t}


def test_an_equinox_mlp_with_a_frozen_layer():
    network = eqx.nn.MLP(3, 1, 4, 1, activation=jax.nn.tanh, key=jax.random.key(0))
    data = gf.tasks.linear_regression(jax.random.key(1), n_features=3, n_samples=16)
    spec = jax.tree.map(eqx.is_inexact_array, network)
    spec = eqx.tree_at(lambda m: m.layers[0].weight, spec, replace=False)
    times = np.array([0.0, 1.0, 5.0, 20.0])
    flow = gf.gradient_flow(mlp_loss, network, data, t1=20.0, ts=times, trainable=spec, observe=mlp_observed)
    np.testing.assert_array_equal(flow.final.layers[0].weight, network.layers[0].weight)
    assert (np.diff(flow.observed["loss"]) < 0).all()
    np.testing.assert_array_equal(flow.observed["step"], times)
    descent = gf.gradient_descent(
        mlp_loss, network, optax.sgd(0.01), data, steps=500, save_at=[0, 100, 500], trainable=spec, observe=mlp_observed
    )
    gap = gf.flow_descent_gap(flow, descent, 0.01)
    np.testing.assert_allclose(gap.ts, [0.0, 1.0, 5.0])
    assert float(jax.vmap(flow.final)(data.x).shape[0]) == 16


class Shared(eqx.Module):
    pair: eqx.nn.Shared

    def __init__(self):
        self.pair = eqx.nn.Shared((jnp.ones(2), jnp.ones(2)), where=lambda p: p[1], get=lambda p: p[0])


def shared_loss(model, args):
    first, second = model.pair()
    return 0.5 * jnp.sum((first + second) ** 2)


def test_shared_arrays_of_equinox_move_as_one():
    """theta used twice: theta' = -4 theta; two separate copies would each move at 2."""
    run = gf.gradient_flow(shared_loss, Shared(), t1=0.5)
    first, second = run.final.pair()
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, np.exp(-2.0), rtol=1e-7)
