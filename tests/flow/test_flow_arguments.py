"""Bad input to a flow: one line that names the argument, its value and the fix."""

import os
import subprocess
import sys

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import gradflow as gf

DATA = gf.tasks.Data(jnp.ones((2, 2)), jnp.array([1.0, -1.0]))


def square_norm(model, args):
    return 0.5 * jnp.sum(model**2)


def flow(**options):
    return gf.gradient_flow(square_norm, options.pop("model", jnp.ones(3)), **{"t1": 1.0, **options})


def value_softmax():
    return gf.models.ValueSoftmax(jnp.ones((2, 3)), jnp.zeros(3))


def assert_refused(match, function):
    with pytest.raises(gf.FlowError, match=match) as caught:
        function()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    return caught.value


TIMES = {
    "t1 is 0 and t0 is 0: .* t1 > t0": {"t1": 0.0},
    "t1 is -1 and t0 is 0": {"t1": -1.0},
    "t1 is 1 and t0 is 2": {"t0": 2.0},
    "t1 is inf": {"t1": np.inf},
    "t1 is nan": {"t1": np.nan},
    "t1 is '3': give a real number": {"t1": "3"},
    r"t1 has shape \(2,\): give one number": {"t1": np.ones(2)},
    r"ts\[2\] = 0.4 is smaller than ts\[1\] = 0.5: .*np.unique": {"ts": [0.1, 0.5, 0.4]},
    r"ts\[1\] = 0.5 repeats ts\[0\] = 0.5": {"ts": [0.5, 0.5]},
    r"ts has shape \(0,\): give at least one": {"ts": []},
    r"ts has shape \(1, 1\)": {"ts": [[0.5]]},
    r"ts\[1\] = 2 lies outside \[t0, t1\] = \[0, 1\]": {"ts": [0.5, 2.0]},
    r"ts\[0\] = -1 lies outside": {"ts": [-1.0, 0.5]},
    r"ts\[1\] is not finite": {"ts": [0.5, np.nan]},
    "ts is .*give real numbers": {"ts": ["a"]},
}
NUMBERS = {
    "rtol is 1e-14, but float64 can meet only 1e-13 <= rtol": {"rtol": 1e-14},
    "rtol is 0, ": {"rtol": 0.0},
    "rtol is 2, .*choose one there": {"rtol": 2.0},
    "rtol is nan": {"rtol": np.nan},
    "rtol is 'x': give a real number": {"rtol": "x"},
    "rtol is 1e-08, but float32 can meet only 1e-06 .*float64": {"rtol": 1e-8, "model": jnp.ones(3, jnp.float32)},
    "atol is -1: it must be finite and >= 0": {"atol": -1.0},
    "max_steps is 0: it must be a whole number, at least 1": {"max_steps": 0},
    "max_steps is 2.5": {"max_steps": 2.5},
    "max_steps is None": {"max_steps": None},
    "adjoint is 3: give a Diffrax adjoint": {"adjoint": 3},
    "t1 is 1e[+]08 and t0 is 1e[+]08": {"t0": 1e8, "t1": 1e8 + 1, "model": jnp.ones(3, jnp.float32)},
}
MODELS = {
    r"model\[1\] is nan: initial values and data must be finite": jnp.array([1.0, jnp.nan]),
    "model is inf": jnp.asarray(jnp.inf),
    "model is complex128: complex arrays are not supported": jnp.ones(2) * 1j,
    "model is bfloat16, too coarse": jnp.ones(2, jnp.bfloat16),
    "trainable selects no array of the model": jnp.arange(3),
}


@pytest.mark.parametrize("match", TIMES)
def test_times(match):
    assert_refused(match, lambda: flow(**TIMES[match]))


@pytest.mark.parametrize("match", NUMBERS)
def test_numbers(match):
    assert_refused(match, lambda: flow(**NUMBERS[match]))


@pytest.mark.parametrize("match", MODELS)
def test_initial_values(match):
    assert_refused(match, lambda: flow(model=MODELS[match]))


def sum_of_parts(model, args):
    return sum(jnp.sum(x**2) for x in jax.tree.leaves(model)) * args


def test_a_nan_leaf_is_named():
    assert_refused(
        r"model\['layers'\]\[1\]\[0, 2\] is nan",
        lambda: gf.gradient_flow(
            sum_of_parts, {"layers": [jnp.ones(2), jnp.ones((1, 3)).at[0, 2].set(jnp.nan)]}, 1.0, t1=1.0
        ),
    )
    assert_refused(r"args is nan", lambda: gf.gradient_flow(sum_of_parts, [jnp.ones(2)], float("nan"), t1=1.0))
    bad = gf.tasks.Data(DATA.x.at[1, 0].set(jnp.nan), DATA.y)
    assert_refused(r"x\[1, 0\] is nan", lambda: gf.gradient_flow(gf.losses.logistic, value_softmax(), bad, t1=1.0))


def test_mixed_dtypes_are_named():
    model = {"a": jnp.ones(2), "b": jnp.ones(2, jnp.float32)}
    assert_refused(
        r"mixes dtypes \(model\['a'\] is float64, model\['b'\] is float32\)",
        lambda: gf.gradient_flow(sum_of_parts, model, 1.0, t1=1.0),
    )


def test_values_and_scores_must_fit():
    assert_refused(
        r"values has shape \(2, 3\) and scores has shape \(4,\): expected \(d, n\) and \(n,\)",
        lambda: gf.models.ValueSoftmax(jnp.ones((2, 3)), jnp.ones(4)),
    )


@pytest.mark.parametrize(
    ("labels", "hint"), [([0.0, 1.0], r"use 2 \* y - 1"), ([2.0, 1.0], "gf.losses.square"), ([0.5, 0.5], "square")]
)
@pytest.mark.parametrize("loss", [gf.losses.logistic, gf.losses.exponential])
def test_labels(loss, labels, hint):
    data = gf.tasks.Data(DATA.x, jnp.array(labels))
    assert_refused(f"labels must be -1 or 1; .*{hint}", lambda: gf.gradient_flow(loss, value_softmax(), data, t1=1.0))


def vector(model, args):
    return model


def pair(model, args):
    return jnp.sum(model), model


def nothing(model, args):
    return None


def text(model, args):
    return "loss"


def whole(model, args):
    return jnp.sum(model).astype(int)


def imaginary(model, args):
    return jnp.sum(model) * 1j


def constant(model, args):
    return jnp.ones(())


def only_data(model, args):
    return jnp.sum(args**2)


def mismatch(model, args):
    return jnp.sum(jnp.ones((2, 2)) @ model)


@pytest.mark.parametrize(
    ("loss", "match"),
    [
        (vector, r"loss returns shape \(3,\): it must return one scalar"),
        (pair, r"loss returns shape \(\), \(3,\)"),
        (nothing, "loss returns shape nothing"),
        (text, "loss returns 'loss': it must return one scalar"),
        (whole, "loss returns int64"),
        (imaginary, "loss returns complex128"),
        (constant, "loss does not depend on any trainable array"),
        (only_data, "loss does not depend on any trainable array"),
        (mismatch, r"loss fails on these shapes \(model \(3,\).*\)"),
        (3, "loss is 3, not a callable"),
    ],
)
def test_losses(loss, match):
    assert_refused(match, lambda: gf.gradient_flow(loss, jnp.ones(3), jnp.ones(2), t1=1.0))
    descent = lambda: gf.gradient_descent(loss, jnp.ones(3), optax.sgd(0.1), jnp.ones(2), steps=3)  # noqa: E731
    assert_refused(match, descent)


def text_among_arrays(t, model, args):
    return {"a": model, "b": "x"}


def no_arrays(t, model, args):
    return None


@pytest.mark.parametrize(
    ("observe", "match"),
    [
        (text_among_arrays, r"observe returned str 'x' at `\['b'\]`: return a pytree of arrays"),
        (no_arrays, "observe returned None, which holds no array"),
        (3, "observe is 3, not a callable"),
    ],
)
def test_observers(observe, match):
    assert_refused(match, lambda: flow(observe=observe))


@pytest.mark.parametrize(
    ("trainable", "match"),
    [
        (False, "trainable selects no array of the model"),
        ({"a": True}, "trainable does not match the model's structure"),
        (True, r"trainable selects model\['n'\] of type int64"),
        ("a", "trainable holds 'a': a filter spec is made of booleans"),
        ({"a": True, "n": 1}, "trainable holds 1"),
        (lambda leaf: leaf, "trainable holds"),
    ],
)
def test_trainable(trainable, match):
    model = {"a": jnp.ones(2), "n": jnp.arange(3)}
    assert_refused(match, lambda: gf.gradient_flow(sum_of_parts, model, 1.0, t1=1.0, trainable=trainable))


@pytest.mark.parametrize(
    ("rates", "match"),
    [
        ({"valus": 2.0}, "rates names 'valus', which is no leaf of the model; did you mean 'values'"),
        ({"values": -1.0}, "rates at model.values is -1: rates must be positive and finite; freeze a leaf"),
        ({"values": 0.0}, "rates at model.values is 0"),
        ({"values": np.inf}, "rates at model.values is inf"),
        ({"values": np.ones(3)}, r"rates at model.values has shape \(3,\)"),
        ({"values": "x"}, "rates at model.values is 'x': give a real number"),
        ({"values": None}, "rates at model.values is None: give a real number"),
        (gf.models.ValueSoftmax(2.0, None), "rates is None at model.scores"),
        ([1.0, 2.0], "rates does not match the model's structure"),
        ("fast", "rates at model.values is 'fast'"),
    ],
)
def test_rates(rates, match):
    assert_refused(match, lambda: gf.gradient_flow(gf.losses.logistic, value_softmax(), DATA, t1=1.0, rates=rates))


def test_no_data():
    assert_refused(
        "args is None; this loss needs samples", lambda: gf.gradient_flow(gf.losses.logistic, value_softmax(), t1=1.0)
    )


def test_values_under_tracing_are_not_looked_at():
    """Bad numbers cannot be seen under jit: they end in a code, not in an error."""
    ends = jax.jit(lambda t1: gf.gradient_flow(square_norm, jnp.ones(3), t1=t1, ts=[t1 / 2, t1]).t_final)
    assert float(ends(1.0)) == 1.0
    run = jax.jit(lambda m: gf.gradient_flow(square_norm, m, t1=1.0))(jnp.array([1.0, jnp.nan]))
    assert run.status == "nonfinite_start"


def test_float64_data_without_x64_is_said_once():
    """In a process of its own, since the suite runs with 64-bit mode on."""
    code = """
import warnings, numpy as np, jax.numpy as jnp, gradflow as gf
def loss(model, args): return jnp.sum((args * model - 1) ** 2)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(3):
        run = gf.gradient_flow(loss, jnp.ones(2), np.array([1.0, 2.0]), t1=1.0)
assert run.final.dtype == jnp.float32
assert float(run.stats["num_steps"]) < 100
messages = [str(w.message) for w in caught if "float64" in str(w.message)]
assert len(messages) == 1, messages
assert "args is float64 but JAX's 64-bit mode is off" in messages[0] and "jax_enable_x64" in messages[0]
"""
    environment = {k: v for k, v in os.environ.items() if k != "JAX_ENABLE_X64"} | {"JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_forward_mode_adjoint_is_accepted():
    assert flow(adjoint=diffrax.ForwardMode()).status == "successful"


def masked(model, mask):
    return -jax.nn.log_softmax(model + mask)[0]


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_data_must_be_finite(bad):
    with pytest.raises(gf.FlowError, match=rf"args\[2\] is {bad}.*must be finite.*mask with booleans"):
        gf.gradient_flow(masked, jnp.zeros(3), jnp.array([0.0, 0.0, bad]), t1=1.0)
