"""How a loss, a model and its data are split into structure and arrays."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradflow as gf
from gradflow.problem import split


def loss(model, args):
    return sum(jnp.sum(x**2) for x in jax.tree.leaves(model) if eqx.is_inexact_array(x))


class Model(eqx.Module):
    weight: jax.Array
    count: jax.Array
    scale: float
    activation: callable


def model():
    return Model(jnp.ones(3), jnp.arange(2), 0.5, jnp.tanh)


def test_join_is_the_inverse_of_split():
    args = {"x": jnp.ones(2), "n": 3, "name": "x", "f": jnp.sin, "none": None, "rate": 0.5}
    problem = split(loss, model(), args, None)
    assert problem.structure.names == ("model.weight", "model.count", "args['rate']", "args['x']")
    assert problem.structure.trainable == (True, False, False, False)
    assert [x.shape for x in problem.params] == [(3,)]
    rebuilt, data = problem.structure.join(problem.params, problem.frozen)
    assert jax.tree.structure((rebuilt, data)) == jax.tree.structure((model(), args))
    assert (rebuilt.scale, rebuilt.activation, data["n"], data["name"], data["f"]) == (0.5, jnp.tanh, 3, "x", jnp.sin)


def test_moving_is_what_equinox_filters():
    problem = split(loss, model(), None, None)
    ours, theirs = problem.structure.moving(problem.params), eqx.filter(model(), eqx.is_inexact_array)
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    frozen = split(loss, {"a": jnp.ones(2), "b": jnp.ones(1)}, None, {"a": False, "b": True})
    assert frozen.structure.moving(frozen.params)["a"] is None


def test_structure_is_a_key():
    """Arrays and Python floats of the data are arguments; other leaves, and their types, pick a kernel."""
    key = lambda m, a: split(loss, m, a, None).structure  # noqa: E731
    base = key(model(), {"rate": 0.5, "n": 3})
    assert base == key(model(), {"rate": 0.7, "n": 3})
    assert hash(base) == hash(key(model(), {"rate": 0.7, "n": 3}))
    assert base != key(model(), {"rate": 0.5, "n": 4})
    assert key(model(), {"n": 1}) != key(model(), {"n": True})
    assert base != key(eqx.tree_at(lambda m: m.scale, model(), 0.6), {"rate": 0.5, "n": 3})


def test_a_python_float_in_the_data_does_not_widen_float32():
    problem = split(loss, jnp.ones(2, jnp.float32), {"rate": 0.5}, None)
    assert (problem.frozen[0] * problem.params[0]).dtype == jnp.float32


def test_stack_repeats_what_does_not_move():
    problem = split(loss, model(), jnp.ones(7), None)
    stacked = problem.stack([jnp.zeros((5, 3))], 5)
    assert (stacked.weight.shape, stacked.count.shape) == ((5, 3), (5, 2))


def test_numpy_arrays_and_scalars_are_arrays():
    problem = split(loss, {"a": np.ones(2), "b": np.float64(2.0)}, np.float32(1.0), {"a": True, "b": False})
    assert all(isinstance(x, jax.Array) for x in (*problem.params, *problem.frozen))
    assert problem.dtype == np.float64


def test_a_leaf_that_cannot_be_a_key_is_named():
    with pytest.raises(gf.FlowError, match=r"is a set, which is neither an array nor hashable: {1, 2}"):
        split(loss, {"a": jnp.ones(2), "b": {1, 2}}, None, None)
    with pytest.raises(gf.FlowError, match="bytearray"):
        split(loss, jnp.ones(2), bytearray(b"xy"), None)


def test_random_keys_may_be_part_of_a_model():
    problem = split(loss, {"a": jnp.ones(2), "key": jax.random.key(0)}, None, None)
    assert problem.structure.trainable == (True, False)
