"""How scores move, map by map: closed forms against the derivative, row laws, maps of one's own, and the wrong law."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from systems import largest

import gradflow as gf
from gradflow.activations.base import AbstractActivation, AbstractElementwise, AbstractPositive

routing = gf.laws.routing
act = gf.activations
KEY = jax.random.key(7)
MAPS = {name: act.by_name(name) for name in act.names()} | {
    "softmax at T = 0.3": act.Softmax(0.3),
    "sigmoid with a bias": act.Sigmoid(-1.3),
    "normalised sigmoid with a floor": act.Normalised(act.Sigmoid(0.4), floor=0.2),
    "normalised relu with a floor": act.Normalised(act.ReLU(), floor=0.2),
    "normalised square with a floor": act.Normalised(act.Square(), floor=0.2),
}


def masks(size: int) -> jax.Array:
    """Everything; causal; causal with holes, in which the last row is fully masked."""
    full = jnp.ones((size, size), bool)
    holes = jnp.tril(full) & jax.random.bernoulli(KEY, 0.6, (size, size)) & (jnp.arange(size) < size - 1)[:, None]
    return jnp.stack([full, jnp.tril(full), holes])


def at(activation, scores, compatibility, mask) -> routing.Scored:
    weights = activation(scores, where=mask)
    mean = jnp.sum(weights * compatibility, axis=-1, keepdims=True)
    return routing.Scored(scores, weights, compatibility, mean, mask)


def difference(activation, scores, compatibility, mask):
    closed = routing.score_gradient(activation, at(activation, scores, compatibility, mask))
    pulled = jax.vjp(lambda s: activation(s, where=mask), scores)[1](compatibility)[0]
    size = jnp.max(jnp.abs(pulled))
    return jnp.max(jnp.abs(closed - pulled)) / jnp.where(size > 0, size, 1), jnp.max(
        jnp.abs(jnp.where(mask, 0, closed))
    )


@jax.jit
def differences(scores, compatibility, mask):
    return {name: difference(activation, scores, compatibility, mask) for name, activation in MAPS.items()}


SIZES = [7, *(pytest.param(size, marks=pytest.mark.slow) for size in (1, 2, 64))]


@pytest.mark.parametrize("size", SIZES)
def test_score_laws_are_the_derivatives_of_the_maps(size):
    scores, compatibility = jax.random.normal(KEY, (2, 3, size, size))
    # Sums that vanish are poles of the signed maps; scores of one sign stay away from them.
    for shift in (0.0, 2.0):
        for name, (residual, masked) in differences(scores + shift, compatibility, masks(size)).items():
            assert residual < 1e-12, name
            assert masked == 0, name


@pytest.mark.slow
def test_single_precision_stays_single():
    scores, compatibility = jax.random.normal(KEY, (2, 3, 7, 7), jnp.float32)
    for name, (residual, masked) in differences(scores + 2, compatibility, masks(7)).items():
        assert residual.dtype == masked.dtype == jnp.float32
        assert residual < 1e-5, name


EXTREME = jnp.asarray([[-1e300, 1e300, 0.0], [-800.0, -801.0, -802.0], [1e-200, 2e-200, 0.0], [0.0, 0.0, 0.0]])


@jax.jit
def extremes(scores, compatibility):
    mask = jnp.ones(scores.shape, bool)
    return {
        name: (
            routing.score_gradient(activation, at(activation, scores, compatibility, mask)),
            jax.vjp(activation, scores)[1](compatibility)[0],
        )
        for name, activation in MAPS.items()
        if name not in ("exp", "square")  # they overflow, as they should
    }


def test_extreme_scores_give_finite_gradients_that_agree():
    compatibility = jnp.asarray([[1.0, -2.0, 0.5]])
    for name, (closed, pulled) in extremes(EXTREME, jnp.broadcast_to(compatibility, EXTREME.shape)).items():
        assert jnp.isfinite(closed).all(), name
        off_kinks = EXTREME != 0 if not act.smooth(MAPS[name]) else jnp.ones_like(EXTREME, bool)
        np.testing.assert_allclose(closed[off_kinks], pulled[off_kinks], 1e-10, 1e-300, err_msg=name)


def state(activation, scores, values, upstream, mask) -> routing.HeadState:
    """A state whose weights and errors are free: what the row laws read of it is S, A, B, D, U and G."""
    compatibility = upstream @ values.mT
    weights = activation(scores, where=mask)
    outputs = weights @ values
    mean = jnp.sum(upstream * outputs, axis=-1, keepdims=True)
    gradient = routing.score_gradient(activation, routing.Scored(scores, weights, compatibility, mean, mask))
    return routing.HeadState(
        activation, mask, scores, weights, values, outputs, None, None, upstream, upstream, compatibility, gradient
    )


@jax.jit
def row_laws(scores, values, upstream, mask):
    found = {}
    for name, activation in MAPS.items():
        here = state(activation, scores, values, upstream, mask)
        wrong = routing.softmax_law(here.weights, here.compatibility)
        off = jnp.max(jnp.abs(here.score_gradient - wrong)) / jnp.maximum(jnp.max(jnp.abs(here.score_gradient)), 1e-9)
        size = jnp.max(jnp.abs(here.score_gradient))
        plain = jnp.max(jnp.abs(jnp.sum(here.score_gradient, axis=-1))) / jnp.where(size > 0, size, 1)
        found[name] = routing.row_law(here), routing.mean_compatibility(here), off, plain
    return found


CENTRED = {"softmax", "softmax at T = 0.3", "normalised-exp", "sparsemax", "uniform"}


@pytest.mark.parametrize("size", [64, pytest.param(2, marks=pytest.mark.slow)])
def test_row_laws_hold_and_the_softmax_law_fails_elsewhere(size):
    scores, (values, upstream) = jax.random.normal(KEY, (size, size)), jax.random.normal(KEY, (2, size, 5))
    found = row_laws(scores + 2, values, upstream, masks(size)[1])
    for name, (row, mean, _, plain) in found.items():
        assert largest(row) < 1e-14, name
        assert largest(mean) < 1e-14, name
        if name in CENTRED:
            assert plain < 1e-13, name
        else:
            assert plain > 1e-2, f"sum D = 0 is no law of {name}"
    for name in ("sigmoid", "linear", "normalised-sigmoid", "sparsemax"):
        assert found[name][2] > 0.1, f"the softmax law is wrong for {name}"
    assert found["normalised-exp"][2] < 1e-14


class Cubic(AbstractElementwise):
    """A map of one's own."""

    name: ClassVar[str] = "cubic"
    smooth: ClassVar[bool] = True

    def map(self, scores):
        return scores**3 + scores

    def primitive(self, scores):
        return None


class Gaussian(AbstractPositive):
    """A positive map of one's own."""

    name: ClassVar[str] = "gaussian"
    smooth: ClassVar[bool] = True

    def map(self, scores):
        return jnp.exp(-(scores**2))

    def log_map(self, scores):
        return -(scores**2)

    def primitive(self, scores):
        return None


class TwoNorm(AbstractActivation):
    """exp over its 2-norm: competes along the row, but its weights do not sum to one."""

    name: ClassVar[str] = "two-norm"
    smooth: ClassVar[bool] = True
    normalised: ClassVar[bool] = False

    def weigh(self, scores, mask):
        exponentials = jnp.exp(scores) if mask is None else jnp.where(mask, jnp.exp(scores), 0)
        return exponentials / jnp.linalg.norm(exponentials, axis=-1, keepdims=True)

    def primitive(self, scores):
        return None


class RegisteredTwoNorm(TwoNorm.__mro__[1]):
    """The same map, with its score law told to the library."""

    name: ClassVar[str] = "registered-two-norm"
    smooth: ClassVar[bool] = True
    normalised: ClassVar[bool] = False

    def weigh(self, scores, mask):
        return TwoNorm().weigh(scores, mask)

    def primitive(self, scores):
        return None


@routing.score_gradient.register(RegisteredTwoNorm)
def two_norm_law(activation, here):
    return here.weights * (here.compatibility - here.weights * here.mean)


@eqx.filter_jit
def own_maps(scores, compatibility, mask):
    maps = Cubic(), Gaussian(), act.Normalised(Cubic()), act.Normalised(Gaussian(), 0.1), TwoNorm(), RegisteredTwoNorm()
    found = {type(m).__name__ + m.name: difference(m, scores, compatibility, mask)[0] for m in maps}
    here = at(TwoNorm(), scores, compatibility, mask)
    gradient = routing.score_gradient(TwoNorm(), here)
    return found, jnp.sum(gradient, axis=-1), here


def test_own_maps_are_differentiated_or_registered():
    scores, compatibility = jax.random.normal(KEY, (2, 3, 7, 7))
    found, sums, here = own_maps(scores + 2, compatibility, masks(7))
    assert max(found.values()) < 1e-12, found
    assert largest(sums) < 1e-14, "sum D = 0 for exp over its 2-norm"
    with pytest.raises(gf.FlowError, match="'two-norm': it has no row law"):
        routing.row_law(state(TwoNorm(), *here[:1], *jnp.ones((2, 3, 7, 2)), here.mask))
