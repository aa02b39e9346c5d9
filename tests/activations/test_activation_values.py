"""What the maps are: values, gradients, conserved primitives, names, parameters."""

import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.integrate import quad

import gradflow.activations as activations
from gradflow.errors import FlowError

SCORES = jnp.array([[0.3, -0.7, 1.4, 0.9], [-2.0, -0.4, 3.1, 0.2], [5.0, -6.0, 0.1, -0.3]])
PLAIN = {
    "exp": np.exp,
    "sigmoid": lambda a: 1 / (1 + np.exp(-a)),
    "softplus": lambda a: np.log1p(np.exp(a)),
    "linear": lambda a: a,
    "abs": np.abs,
    "relu": lambda a: np.maximum(a, 0),
    "square": np.square,
    "elu": lambda a: np.where(a < 0, np.expm1(a), a),
    "elu1": lambda a: np.where(a < 0, np.exp(a), a + 1),
}
rows = arrays(np.float64, (4,), elements=st.floats(-30, 30))


@pytest.mark.parametrize("floor", [0.0, 1e-9, 0.7])
@pytest.mark.parametrize("name", PLAIN)
def test_elementwise_and_normalised_values(name, floor):
    plain = PLAIN[name](np.asarray(SCORES))
    np.testing.assert_allclose(activations.by_name(name)(SCORES), plain, rtol=1e-14)
    normalised = activations.by_name("normalised-" + name, floor=floor)
    np.testing.assert_allclose(normalised(SCORES), plain / (plain.sum(-1, keepdims=True) + floor), rtol=1e-13)


def test_the_floor_may_be_traced():
    floors = jnp.array([0.0, 1e-9, 0.7])
    for base in (activations.Sigmoid(), activations.Square()):
        weights = jax.vmap(lambda floor, base=base: activations.Normalised(base, floor)(SCORES))(floors)
        for floor, traced in zip(floors.tolist(), weights, strict=True):
            np.testing.assert_allclose(traced, activations.Normalised(base, floor)(SCORES), rtol=1e-13)


@functools.cache
def jacobians():
    """Per name: the Jacobian in reverse mode, in forward mode and by central differences, for each row of scores."""

    @jax.jit
    def evaluate(scores):
        def one(activation):
            step = 1e-6 * jnp.eye(4)
            ahead, behind = activation(scores[:, None] + step), activation(scores[:, None] - step)
            differences = jnp.swapaxes((ahead - behind) / 2e-6, 1, 2)
            return jax.vmap(jax.jacrev(activation))(scores), jax.vmap(jax.jacfwd(activation))(scores), differences

        return {name: one(activations.by_name(name)) for name in activations.names()}

    return evaluate(SCORES)


@pytest.mark.parametrize("name", activations.names())
def test_gradients_against_finite_differences(name):
    reverse, forward, differences = jacobians()[name]
    np.testing.assert_allclose(reverse, differences, atol=2e-8)
    np.testing.assert_allclose(forward, reverse, atol=1e-13)


@given(rows, st.sampled_from([0.05, 1.0, 20.0]))
def test_softmax_agrees_with_jax(row, temperature):
    weights = activations.Softmax(temperature)(jnp.asarray(row))
    np.testing.assert_allclose(weights, jax.nn.softmax(jnp.asarray(row) / temperature), rtol=1e-11, atol=1e-300)


def test_softmax1_is_softmax_beside_a_zero():
    reference = jax.nn.softmax(jnp.pad(SCORES, ((0, 0), (0, 1))), axis=-1)[:, :-1]
    np.testing.assert_allclose(activations.Softmax1()(SCORES), reference, rtol=1e-14)
    np.testing.assert_allclose(activations.by_name("normalised-exp", floor=1.0)(SCORES), reference, rtol=1e-14)


def test_uniform_counts_the_unmasked():
    mask = jnp.array([True, True, False, True])
    np.testing.assert_allclose(activations.Uniform()(SCORES[0], mask), [1 / 3, 1 / 3, 0, 1 / 3])


def project_on_simplex(row):
    """Brute force: the support whose projection is feasible and nearest."""
    candidates = []
    for size in range(1, len(row) + 1):
        for support in itertools.combinations(range(len(row)), size):
            weights = np.zeros(len(row))
            weights[list(support)] = row[list(support)] - (row[list(support)].sum() - 1) / size
            if weights.min() >= 0:
                candidates.append(weights)
    return min(candidates, key=lambda weights: ((weights - row) ** 2).sum())


@given(arrays(np.float64, (4,), elements=st.floats(-2, 2)))
def test_sparsemax_is_the_projection(row):
    np.testing.assert_allclose(activations.Sparsemax()(jnp.asarray(row)), project_on_simplex(row), atol=1e-12)


def test_sparsemax_projects_only_the_unmasked():
    row, mask = np.array([0.4, 3.0, 0.1, -0.2]), np.array([True, False, True, True])
    weights = np.asarray(activations.Sparsemax()(jnp.asarray(row), jnp.asarray(mask)))
    np.testing.assert_allclose(weights[mask], project_on_simplex(row[mask]), atol=1e-15)


def test_sparsemax_jacobian_is_that_of_its_support():
    weights, jacobian = activations.Sparsemax()(SCORES[0]), jax.jacrev(activations.Sparsemax())(SCORES[0])
    support = np.asarray(weights > 0, float)
    np.testing.assert_allclose(jacobian, np.diag(support) - np.outer(support, support) / support.sum(), atol=1e-15)


@pytest.mark.parametrize(
    "activation",
    [*map(activations.by_name, PLAIN), activations.Sigmoid(bias=-1.3)],
    ids=[*PLAIN, "biased sigmoid"],
)
def test_primitive_of_an_elementwise_map(activation):
    # F' = f / f', wherever f' is not zero.
    scores = jnp.linspace(-6.05, 6.05, 41)
    ones = jnp.ones_like(scores)
    (value, slope), (_, derivative) = jax.jit(
        lambda scores: tuple(jax.jvp(f, (scores,), (ones,)) for f in (activation.map, activation.primitive))
    )(scores)
    moving = slope != 0
    np.testing.assert_allclose(derivative[moving], (value / jnp.where(moving, slope, 1))[moving], rtol=1e-12)
    assert moving.sum() >= 20


CONSERVING = ["softmax", "sparsemax", *(f"normalised-{name}" for name in PLAIN)]


def drift(activation, primitive, jacobian=None):
    """d/dt sum F(a_i) along a' = -J^T c for arbitrary c = V^T g."""
    pull = np.array([0.3, -1.1, 0.7, 2.0])
    jacobian = jax.vmap(jax.jacrev(activation))(SCORES) if jacobian is None else jacobian
    _, slope = jax.jvp(primitive, (SCORES,), (jnp.ones_like(SCORES),))
    return np.einsum("rj,rij,i->r", slope, jacobian, pull)


@pytest.mark.parametrize("name", CONSERVING)
def test_normalised_maps_conserve_the_sum_of_primitives(name):
    activation = activations.by_name(name)
    np.testing.assert_allclose(drift(activation, activation.primitive, jacobians()[name][0]), 0, atol=1e-12)


def test_temperature_scales_the_primitive():
    activation = activations.Softmax(0.5)
    np.testing.assert_allclose(activation.primitive(SCORES), 0.5 * SCORES)
    np.testing.assert_allclose(drift(activation, activation.primitive), 0, atol=1e-14)


def test_nothing_is_conserved_where_there_is_no_primitive():
    # Negative controls: the base's own primitive drifts as soon as the weights do not sum to one.
    floored = activations.Normalised(activations.Sigmoid(), floor=0.5)
    for activation, primitive in ((activations.Softmax1(), lambda a: a), (floored, floored.base.primitive)):
        assert activation.primitive(SCORES) is None
        assert np.abs(drift(activation, primitive)).max() > 1e-2
    assert activations.Uniform().primitive(SCORES) is None


@pytest.mark.parametrize("end", [-30.0, -7.0, -1.0, 1e-3, 0.4, 3.0, 12.0, 30.0])
def test_softplus_primitive_is_the_integral(end):
    reference, _ = quad(lambda x: np.logaddexp(x, 0) * (1 + np.exp(-x)), 0, end, epsabs=0, epsrel=1e-13, limit=200)
    primitive = activations.Softplus().primitive
    np.testing.assert_allclose(primitive(jnp.array(end)), reference, rtol=1e-13, atol=3e-15)
    np.testing.assert_allclose(primitive(jnp.array(end, jnp.float32)), reference, rtol=1e-5, atol=1e-6)


def test_primitives_are_finite_or_honestly_infinite_far_out():
    scores = jnp.array([-1e300, -800.0, -30.0, 0.0, 30.0, 800.0, 1e300])
    primitives = {name: activations.by_name(name).primitive for name in (*PLAIN, "softmax", "sparsemax")}
    ones = jnp.ones_like(scores)
    results = jax.jit(lambda scores: {name: jax.jvp(f, (scores,), (ones,)) for name, f in primitives.items()})(scores)
    assert not any(np.isnan(part).any() for part in jax.tree.leaves(results))
    for dtype in (jnp.float32, jnp.bfloat16):
        assert np.isfinite(activations.Softplus().primitive(jnp.array([-1e4, 0, 1e4], dtype)).astype(float)).all()


@pytest.mark.parametrize("name", activations.names())
def test_names_round_trip(name):
    activation = activations.by_name(name)
    assert activation.name == name
    assert type(activations.by_name(activation.name)) is type(activation)


def test_names_are_forgiving():
    for spelling in ("Normalised Sigmoid", "normalized_sigmoid", "NORMALISED-SIGMOID"):
        activation = activations.by_name(spelling, bias=-2.0, floor=1e-9)
        assert (activation.base.bias, activation.floor, activation.name) == (-2.0, 1e-9, "normalised-sigmoid")
    assert activations.by_name("L1").name == "normalised-abs"
    assert activations.by_name("ELU + 1").name == "elu1"
    assert activations.by_name("softmax", temperature=0.5).temperature == 0.5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: activations.by_name("sofmax"), "unknown activation 'sofmax'; did you mean 'softmax'"),
        (lambda: activations.by_name("zzz"), "choose one of abs"),
        (
            lambda: activations.by_name("softmax", temprature=1.0),
            "no parameter 'temprature'; did you mean 'temperature'",
        ),
        (lambda: activations.by_name("relu", floor=1.0), "no parameter 'floor'; it takes none"),
        (lambda: activations.Softmax(0.0), "temperature is 0.0; pass a finite number > 0"),
        (lambda: activations.Softmax(jnp.array([1.0, -1.0])), "temperature is"),
        (lambda: activations.Softmax("hot"), "temperature is 'hot'; pass a number"),
        (lambda: activations.Sigmoid(float("nan")), "bias is nan"),
        (lambda: activations.Normalised(activations.Abs(), floor=-1e-9), "floor is -1e-09; pass a finite number >= 0"),
        (lambda: activations.Normalised(activations.Softmax()), "base is softmax; pass an elementwise activation"),
    ],
)
def test_bad_names_and_parameters(call, message):
    with pytest.raises(FlowError, match=message):
        call()


def test_parameters_are_constants_unless_they_are_arrays():
    trainable = lambda activation: jax.tree.leaves(eqx.filter(activation, eqx.is_inexact_array))  # noqa: E731
    constants = (activations.Softmax(0.7), activations.by_name("normalised-sigmoid", bias=-1.0, floor=0.1))
    assert [trainable(activation) for activation in constants] == [[], []]
    hot = activations.Softmax(jnp.array(2.0))
    gradient = eqx.filter_grad(lambda activation: activation(SCORES)[0, 0])(hot).temperature
    step = 1e-6
    low, high = (activations.Softmax(2.0 + sign * step)(SCORES)[0, 0] for sign in (-1, 1))
    np.testing.assert_allclose(gradient, (high - low) / (2 * step), rtol=1e-7)
    tempered = jax.vmap(lambda temperature: activations.Softmax(temperature)(SCORES[0]))(jnp.array([0.5, 2.0]))
    np.testing.assert_allclose(tempered[1], activations.Softmax(2.0)(SCORES[0]))


def test_smooth_looks_inside_models():
    kinked = {name for name in activations.names() if not activations.by_name(name).smooth}
    assert kinked == {"abs", "relu", "sparsemax", "normalised-abs", "normalised-relu"}
    assert activations.smooth({"head": (activations.Softmax(), jnp.zeros(2))})
    assert not activations.smooth([activations.Softmax(), {"x": activations.Normalised(activations.ReLU())}])
    assert activations.smooth(jnp.zeros(2))
    assert not activations.smooth({"activation": jax.nn.relu}) and activations.smooth({"activation": jax.nn.gelu})


def test_only_weights_that_sum_to_one_say_so():
    assert not activations.Normalised(activations.Abs(), floor=1e-9).normalised
    assert not activations.Softmax1().normalised and not activations.Sigmoid().normalised
    assert activations.Normalised(activations.Abs()).normalised


def test_an_own_map_needs_only_its_formula():
    class Bump(activations.AbstractElementwise):
        name = "bump"
        smooth = True

        def map(self, scores):
            return 1 / (1 + scores**2)

        def primitive(self, scores):
            return -(scores**2) / 4 - jnp.log(jnp.abs(scores)) / 2

    activation = activations.Normalised(Bump())
    np.testing.assert_allclose(activation(SCORES).sum(-1), 1)
    np.testing.assert_allclose(drift(activation, activation.primitive), 0, atol=1e-13)
