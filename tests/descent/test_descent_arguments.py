"""Bad input to a descent: one line that names the argument, its value and the fix."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import gradflow as gf


def square_norm(model, args):
    return 0.5 * jnp.sum(model**2)


def descend(model=None, args=None, optimizer=None, **options):
    return gf.gradient_descent(
        square_norm,
        jnp.ones(3) if model is None else model,
        optax.sgd(0.1) if optimizer is None else optimizer,
        args,
        **{"steps": 10, **options},
    )


KEY = jax.random.key(0)
BAD = {
    "steps is 0: it must be a whole number, at least 1": {"steps": 0},
    "steps is -1": {"steps": -1},
    "steps is 2.5": {"steps": 2.5},
    "steps is 'a'": {"steps": "a"},
    "steps is None": {"steps": None},
    "steps is True": {"steps": True},
    r"save_at has shape \(0,\): give at least one step": {"save_at": []},
    r"save_at has shape \(1, 1\)": {"save_at": [[1]]},
    "save_at must increase without repeats; use np.unique": {"save_at": [3, 3]},
    "save_at must increase": {"save_at": [5, 2]},
    r"save_at reaches from 1 to 11: steps must lie within \[0, steps\] = \[0, 10\]": {"save_at": [1, 11]},
    "save_at reaches from -1": {"save_at": [-1]},
    "save_at holds .*whole updates": {"save_at": [0.5]},
    "save_at holds .*a.*whole updates": {"save_at": ["a"]},
    "optimizer is 3: give an Optax transformation such as": {"optimizer": 3},
    "batches needs a random key": {"args": jnp.ones((4, 2)), "batches": 2},
    "key is 0: pass one typed key": {"args": jnp.ones((4, 2)), "batches": 2, "key": 0},
    "key is Array.*: pass one typed key": {"args": jnp.ones((4, 2)), "batches": 2, "key": jax.random.split(KEY, 2)},
    "batches is 2.5: it must be a whole number": {"args": jnp.ones((4, 2)), "batches": 2.5, "key": KEY},
    "batches is 'a'": {"args": jnp.ones((4, 2)), "batches": "a", "key": KEY},
    r"batches is 2 .* leading sizes \[\]": {"batches": 2, "key": KEY},
    r"batches is 2 .* leading sizes \[3, 4\]": {"args": [jnp.ones(4), jnp.ones(3)], "batches": 2, "key": KEY},
    r"batches is 2 .* leading sizes \[0\]": {"args": jnp.ones((0, 2)), "batches": 2, "key": KEY},
    "observe is 3, not a callable": {"observe": 3},
    r"model\[1\] is nan": {"model": jnp.array([1.0, np.nan])},
}


@pytest.mark.parametrize("match", BAD)
def test_bad_input(match):
    with pytest.raises(gf.FlowError, match=match) as caught:
        descend(**BAD[match])
    assert "\n" not in str(caught.value)


def test_under_tracing():
    with pytest.raises(gf.FlowError, match="called under jit, grad or vmap: call it outside"):
        jax.jit(lambda m: descend(m).final)(jnp.ones(3))


def test_whole_numbers_of_any_type():
    for steps in (10, 10.0, np.int32(10), np.int64(10)):
        np.testing.assert_allclose(descend(steps=steps).final, 0.9**10)
    np.testing.assert_array_equal(descend(save_at=np.array([0.0, 10.0])).ts, [0, 10])
    np.testing.assert_array_equal(descend(save_at=5).ts, [5])


def test_batches_larger_than_the_data_are_drawn_with_replacement():
    assert descend(args=jnp.ones((4, 2)), batches=9, key=KEY).status == "successful"
