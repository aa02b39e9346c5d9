"""Numbers are arguments: a counter inside the loss shows when a kernel is compiled again."""

import functools

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import gradflow as gf


class Counter:
    """Counts how often the loss is traced; a loss made by it is one function for good."""

    def __init__(self):
        self.traces = 0

        def loss(model, args):
            self.traces += 1
            return 0.5 * args["curvature"] * jnp.sum(model["a"] ** 2) + 0.5 * jnp.sum(model["b"] ** 2)

        self.loss = loss


def first(t, model, args):
    return model["a"][0]


def model(scale=1.0):
    return {"a": scale * jnp.ones(3), "b": scale * jnp.ones(2)}


def args(curvature=1.0):
    return {"curvature": curvature}


FLOW_CHANGES = {
    "t1": {"t1": 3.0},
    "t1 as an int": {"t1": 3},
    "t0": {"t0": 0.5},
    "ts": {"ts": [0.25, 1.5]},
    "rtol": {"rtol": 1e-5},
    "atol": {"atol": 1e-9},
    "rates": {"rates": {"a": 3.0, "b": 0.5}},
    "level": {"event": gf.Crossing(first, 0.2)},
    "throw": {"throw": False},
}


@pytest.fixture(scope="module")
def warm_flow():
    counter = Counter()
    base = {"t1": 2.0, "t0": 0.0, "ts": [0.5, 1.5], "rtol": 1e-6, "atol": 1e-8, "rates": {"a": 2.0, "b": 1.0}}
    base["event"] = gf.Crossing(first, 1e-3)
    run = lambda model, args, **options: gf.gradient_flow(counter.loss, model, args, **{**base, **options})  # noqa: E731
    run(model(), args())
    assert counter.traces > 0
    counter.traces = 0
    return counter, run


@pytest.mark.parametrize("change", FLOW_CHANGES)
def test_a_number_of_the_flow_does_not_compile(warm_flow, change):
    counter, run = warm_flow
    run(model(), args(), **FLOW_CHANGES[change])
    assert counter.traces == 0


@pytest.mark.parametrize("curvature", [2.0, 0.5, 3.0])
def test_data_and_initial_values_do_not_compile(warm_flow, curvature):
    counter, run = warm_flow
    final = run(model(0.5), args(curvature)).final
    assert counter.traces == 0
    assert np.isfinite(final["a"]).all()


def test_the_counter_sees_a_new_shape(warm_flow):
    counter, run = warm_flow
    run(model(), args(), ts=[0.5, 1.0, 1.5])
    assert counter.traces > 0
    counter.traces = 0


OPTIMIZERS = {
    "sgd": lambda: optax.sgd(0.1),
    "momentum": lambda: optax.sgd(0.1, momentum=0.9, nesterov=True),
    "adamw": lambda: optax.adamw(0.1, weight_decay=0.01),
    "schedule": lambda: optax.adam(optax.warmup_cosine_decay_schedule(0.0, 0.1, 3, 10)),
    "chain": lambda: optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1)),
    "injected": lambda: optax.inject_hyperparams(optax.sgd)(learning_rate=0.1),
    "multi": lambda: optax.multi_transform({"x": optax.sgd(0.1), "y": optax.adam(0.1)}, {"a": "x", "b": "y"}),
}


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_an_optimiser_made_anew_does_not_compile(make):
    counter = Counter()
    run = lambda **options: gf.gradient_descent(counter.loss, model(), make(), args(), **{"steps": 10, **options})  # noqa: E731
    before = run()
    counter.traces = 0
    after = run()
    assert counter.traces == 0
    np.testing.assert_array_equal(before.final["a"], after.final["a"])


def test_numbers_of_a_descent_do_not_compile():
    counter = Counter()
    run = functools.partial(gf.gradient_descent, counter.loss)
    run(model(), optax.sgd(0.1), args(), steps=10, save_at=[3, 10])
    counter.traces = 0
    run(model(2.0), optax.sgd(0.1), args(3.0), steps=25, save_at=[0, 20])
    assert counter.traces == 0
    run(model(), optax.sgd(0.2), args(), steps=10, save_at=[3, 10])
    assert counter.traces > 0


def test_an_injected_step_size_does_not_compile():
    counter = Counter()
    finals = []
    for step_size in (0.1, 0.2):
        counter.traces = 0
        optimizer = optax.inject_hyperparams(optax.sgd)(learning_rate=jnp.asarray(step_size))
        finals.append(gf.gradient_descent(counter.loss, model(), optimizer, args(), steps=3).final["b"][0])
    np.testing.assert_allclose(finals, [0.9**3, 0.8**3], rtol=1e-12)
