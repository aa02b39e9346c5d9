"""Laws of the linear state space: closed forms against the recurrence, and what attention has and it has not."""

import jax
import jax.numpy as jnp
import pytest
from systems import largest

import gradflow as gf

laws = gf.laws.state_space
KEY = jax.random.key(11)


def worst(tree) -> float:
    return max(map(largest, jax.tree.leaves(tree)))


def space(key, length=9, dtype=jnp.float64):
    decay, gates, values = jax.random.split(key, 3)
    write, read = jax.random.normal(gates, (2, length, 3), dtype)
    log_decay = -jax.random.exponential(decay, (length,), dtype)
    return laws.StateSpace(log_decay, write, read, jax.random.normal(values, (length, 4), dtype))


def loss(outputs):
    return jnp.mean(jnp.sin(outputs) + outputs**2)


@jax.jit
def measured(spaces):
    def one(layer):
        gradients = laws.state_space_gradients(layer, jax.grad(loss)(laws.recurrence(layer)))
        centred = gradients.paths - laws.transfer(layer) * gradients.read_gate[:, None]
        return {
            "law": laws.gradient_law(loss, layer),
            "flux": laws.flux_law(gradients),
            "outputs": laws.transfer(layer) @ layer.values - laws.recurrence(layer),
            "first": gradients.log_decay[0],
            "centring": laws.centring(gradients),
            "advantage": jnp.max(jnp.abs(centred - gradients.paths)) / jnp.max(jnp.abs(gradients.paths)),
        }

    return jax.vmap(one)(spaces)


def test_gradients_are_those_of_the_recurrence_and_nothing_is_centred():
    found = measured(jax.vmap(space)(jax.random.split(KEY, 20)))
    assert worst(found["law"]) < 1e-12
    assert largest(found["flux"]) < 1e-13
    assert largest(found["outputs"]) < 1e-13
    assert largest(found["first"]) == 0, "the first decay has no state to keep"
    assert float(jnp.abs(found["centring"][:, 1:]).mean()) > 0.1, "sum over j is not zero: not attention's row law"
    assert float(found["advantage"].min()) > 0.1, "attention's advantage law fails"


def test_single_precision_one_position_and_hard_resets():
    single = jax.tree.map(lambda x: x[None], space(KEY, dtype=jnp.float32))
    found = measured(single)
    assert found["flux"].dtype == jnp.float32
    assert worst(found["law"]) < 1e-5
    alone = laws.state_space_gradients(space(KEY, 1), jnp.ones((1, 4)))
    assert alone.log_decay.shape == (1,)
    forgetful = space(KEY)._replace(log_decay=jnp.full(9, -jnp.inf))
    assert largest(laws.transfer(forgetful) - jnp.diag(jnp.diag(laws.transfer(forgetful)))) == 0
    assert largest(laws.state_space_gradients(forgetful, jnp.ones((9, 4))).log_decay) == 0


def test_shapes_that_do_not_fit_are_refused():
    layer = space(KEY)
    with pytest.raises(gf.FlowError, match="log_decay has shape"):
        laws.transfer(layer._replace(log_decay=jnp.zeros(4)))
    with pytest.raises(gf.FlowError, match="upstream has shape"):
        laws.state_space_gradients(layer, jnp.ones((9, 3)))
