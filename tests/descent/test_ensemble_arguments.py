"""Bad input to a descent ensemble: one line that names the argument, its value and the fix."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import gradflow as gf
from gradflow.descent import gradient_descent_ensemble

KEY = jax.random.key(0)


def square_norm(model, args):
    return 0.5 * jnp.sum(model**2)


def branching(learning_rate):
    return optax.sgd(learning_rate if learning_rate > 0 else 0.1)


def rounding(learning_rate):
    return optax.sgd(float(learning_rate))


def not_an_optimizer(learning_rate):
    return learning_rate


def branching_later(learning_rate):
    def update(gradient, state, params=None):
        return jax.tree.map(lambda g: -g if learning_rate > 0 else g, gradient), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def vector(step, model, args):
    return model > 0


def run(models=None, optimizer=optax.sgd, args=None, **options):
    models = jnp.ones((4, 3)) if models is None else models
    return gradient_descent_ensemble(
        square_norm, models, optimizer, args, **{"hyperparameters": {"learning_rate": 0.1}, "steps": 10, **options}
    )


ROWS = jnp.ones((5, 2))
BAD = {
    "hyperparameters holds 'rates', which sgd does not take; choose one of": {"hyperparameters": {"rates": 0.1}},
    "hyperparameters holds 'learn_rate', .*; did you mean 'learning_rate'": {"hyperparameters": {"learn_rate": 0.1}},
    r"hyperparameters\['learning_rate'\] has shape \(3,\): give one number, or \(4,\)": {
        "hyperparameters": {"learning_rate": np.ones(3)}
    },
    r"hyperparameters\['learning_rate'\] has shape \(4, 1\)": {"hyperparameters": {"learning_rate": np.ones((4, 1))}},
    r"hyperparameters\['learning_rate'\] is 'fast': give a number": {"hyperparameters": {"learning_rate": "fast"}},
    r"hyperparameters\['nesterov'\] is True: .*functools.partial": {
        "hyperparameters": {"learning_rate": 0.1, "nesterov": True}
    },
    r"hyperparameters\['learning_rate'\] is \[\[0.1\], \[0.1, 0.2\]\]": {
        "hyperparameters": {"learning_rate": [[0.1], [0.1, 0.2]]}
    },
    "hyperparameters is 0.1: give a dict": {"hyperparameters": 0.1},
    "sgd needs 'learning_rate': add it to hyperparameters": {"hyperparameters": {"momentum": 0.9}},
    "optimizer is a finished optimiser.*give its factory": {"optimizer": optax.sgd(0.1)},
    "optimizer is sgd without numbers: pass hyperparameters=": {"hyperparameters": None},
    "optimizer is 3: give an Optax transformation": {"optimizer": 3, "hyperparameters": None},
    "optimizer is 3, not a callable": {"optimizer": 3},
    "optimizer branching branches on the value of one of learning_rate": {"optimizer": branching},
    "optimizer branching_later branches on the value": {"optimizer": branching_later},
    "optimizer rounding .* makes a Python number of it": {"optimizer": rounding},
    "optimizer not_an_optimizer returns .*: it must return an Optax": {"optimizer": not_an_optimizer},
    "lanes is 0": {"lanes": 0},
    "threads is 1.5": {"threads": 1.5},
    "devices is .*: give JAX devices": {"devices": ["gpu"]},
    "stop is 3, not a callable": {"stop": 3},
    r"stop returns .*: it must return one boolean": {"stop": vector},
    "observe is 3, not a callable": {"observe": 3},
    "steps is 0": {"steps": 0},
    "save_at must increase": {"save_at": [3, 3]},
    "batches needs a random key": {"args": ROWS, "batches": 2},
    r"key is .*: pass one typed key, .* or jax.random.split\(key, 4\)": {
        "args": ROWS,
        "batches": 2,
        "key": jax.random.split(KEY, 3),
    },
    r"batches is 2 .* leading sizes \[\]": {"batches": 2, "key": KEY},
    "in_axes gives no array a member axis": {"in_axes": (None, None)},
    r"model has 4 members and args has 5": {"args": ROWS, "in_axes": (0, 0)},
}


@pytest.mark.parametrize("match", BAD)
def test_bad_input(match):
    with pytest.raises(gf.FlowError, match=match) as caught:
        run(**BAD[match])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("traced", ["models", "hyperparameters"])
def test_under_tracing(traced):
    def call(x):
        if traced == "models":
            return run(x * jnp.ones((4, 3))).final
        return run(hyperparameters={"learning_rate": x}).final

    with pytest.raises(gf.FlowError, match="called under jit, grad or vmap: call it outside"):
        jax.jit(call)(0.1)


def test_numbers_of_any_kind():
    for numbers in (0.1, np.float32(0.5), jnp.array(0.25), 1, [0.1, 0.2, 0.3, 0.4], np.arange(4), jnp.ones(4)):
        final = run(hyperparameters={"learning_rate": numbers}).final
        expected = (1 - np.broadcast_to(np.asarray(numbers, float), 4)) ** 10
        np.testing.assert_allclose(final, np.broadcast_to(expected[:, None], (4, 3)), rtol=1e-6, atol=1e-15)


def test_a_number_that_is_nan_breaks_its_member_alone():
    run_ = run(hyperparameters={"learning_rate": [0.1, np.nan, 0.1, np.inf]})
    assert run_.status.tolist() == ["successful", "nonfinite_loss", "successful", "nonfinite_loss"]
    np.testing.assert_array_equal(run_.t_final, [10, 0, 10, 0])
    np.testing.assert_array_equal(run_.final[[1, 3]], 1.0)


def test_names_bound_by_partial_may_be_overwritten():
    fixed = functools.partial(optax.sgd, learning_rate=0.5, momentum=0.0)
    final = run(optimizer=fixed, hyperparameters={"momentum": np.zeros(4)}).final
    np.testing.assert_allclose(final, 0.5**10, rtol=1e-12)
    final = run(optimizer=fixed, hyperparameters={"learning_rate": 0.1}).final
    np.testing.assert_allclose(final, 0.9**10, rtol=1e-12)
