"""Every activation on every kind of row: dtypes, extreme scores, masks, empty and size-one rows (CASES 7, 9-11, 30)."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradflow.activations as activations
from gradflow.errors import FlowError

# Precision, a huge score, the tolerance of a sum of four weights.
DTYPES = {
    "float64": (jnp.float64, 1e300, 1e-12),
    "float32": (jnp.float32, 1e30, 1e-5),
    "bfloat16": (jnp.bfloat16, 1e30, 3e-2),
}
MASKS = np.array([[1, 1, 1, 1], [1, 1, 0, 1], [0, 0, 0, 0], [0, 0, 1, 0]], bool)
COTANGENT = np.array([0.3, -1.0, 0.7, 2.0])
# The two signed maps, whose sums can vanish: their rows of infinite weights are tested apart.
SIGNED = {"normalised-linear", "normalised-elu"}


def names_and_dtypes(test):
    by_dtype = pytest.mark.parametrize("dtype_name", DTYPES)
    return pytest.mark.parametrize("name", activations.names())(by_dtype(test))


def extreme_rows(dtype, big):
    limits = jnp.finfo(dtype)
    largest, tiny = float(limits.max), float(limits.tiny)
    return np.array(
        [
            [0, 0, 0, 0],
            [1, -1, 2, 0.5],
            [0.4, 1.2, 0, -0.3],
            [0.4, 1.2, np.nan, -0.3],  # read under one of the masks only, and left out of the others
            [big, -big, 0, 1],
            [big, 1e-5, -big, 1],
            [-200] * 4,
            [-big] * 4,
            [big] * 4,
            [largest, -largest, largest, 0],
            [-8, -9, -10, -11],
            [-5, -3, -1, -2],
            [tiny, 0, 0, tiny / 4],
            [1e-30, -1e-30, 2e-30, 1e-31],
        ]
    )


CLEAN, DIRTY = 2, 3


@functools.cache
def weights_and_gradients(dtype_name):
    """Per name: weights and their gradients for each mask and row, in one batch, and the weights without a mask."""
    dtype, big, _ = DTYPES[dtype_name]
    rows = extreme_rows(dtype, big)
    rows = np.broadcast_to(rows, (len(MASKS), *rows.shape)).copy()
    rows[[0, 2, 3], DIRTY] = rows[[0, 2, 3], CLEAN]

    @jax.jit
    def evaluate(rows, masks):
        def one(activation):
            def functional(rows):
                weights = activation(rows, masks)
                return jnp.sum(weights * jnp.asarray(COTANGENT, dtype)), weights

            gradients, weights = jax.grad(functional, has_aux=True)(rows)
            return weights, gradients, activation(rows[0])

        return {name: one(activations.by_name(name)) for name in activations.names()}

    results = evaluate(jnp.asarray(rows, dtype), jnp.asarray(MASKS)[:, None])
    assert all(part.dtype == dtype for part in jax.tree.leaves(results))
    return jax.tree.map(lambda part: np.asarray(part, np.float64), results)


@names_and_dtypes
def test_no_nan_masks_and_sums(name, dtype_name):
    tolerance = DTYPES[dtype_name][2]
    weights, gradients, free = weights_and_gradients(dtype_name)[name]
    assert not np.isnan(weights).any() and not np.isnan(gradients).any()
    # Masked entries and fully masked rows are exactly nothing; their neighbours in the batch are what they are alone.
    masked = np.broadcast_to(~MASKS[:, None], weights.shape)
    assert (weights[masked] == 0).all() and (gradients[masked] == 0).all()
    regular = np.isfinite(free).all(-1) & np.isfinite(weights[0]).all(-1)
    np.testing.assert_allclose(weights[0, regular], free[regular], rtol=tolerance, atol=tolerance)
    if activations.by_name(name).normalised:
        finite = np.isfinite(weights).all(-1)
        assert name in SIGNED or finite.all()
        occupied = finite & MASKS.any(-1)[:, None]
        np.testing.assert_allclose(weights[occupied].sum(-1), 1, atol=tolerance)


@names_and_dtypes
def test_masked_entries_are_never_read(name, dtype_name):
    weights, gradients, _ = weights_and_gradients(dtype_name)[name]
    np.testing.assert_array_equal(weights[1, DIRTY], weights[1, CLEAN])
    np.testing.assert_array_equal(gradients[1, DIRTY], gradients[1, CLEAN])


@pytest.mark.parametrize("name", activations.names())
def test_masked_entries_might_as_well_not_be_there(name):
    weights, _, _ = weights_and_gradients("float64")[name]
    kept = activations.by_name(name)(jnp.array([0.4, 1.2, -0.3]))
    np.testing.assert_allclose(weights[1, CLEAN][MASKS[1]], kept, rtol=1e-14)


@pytest.mark.parametrize("name", activations.names())
def test_empty_and_size_one(name):
    activation = activations.by_name(name)
    assert activation(jnp.zeros((3, 0))).shape == (3, 0)
    assert activation(jnp.zeros((0, 3)), jnp.ones((0, 3), bool)).shape == (0, 3)
    one = activation(jnp.array([0.7]))
    assert one.shape == (1,) and np.isfinite(one).all()
    if activation.normalised:
        np.testing.assert_allclose(one, 1)
    integers = activation(jnp.array([1, 2]))
    assert integers.dtype == jnp.float64
    np.testing.assert_array_equal(integers, activation(jnp.array([1.0, 2.0])))


def test_masks_broadcast_over_leading_axes():
    scores = jax.random.normal(jax.random.key(0), (2, 3, 4, 4))
    causal = jnp.tril(jnp.ones((4, 4), bool))
    weights = activations.Softmax()(scores, causal)
    reference = jax.nn.softmax(jnp.where(causal, scores, -jnp.inf), axis=-1)
    np.testing.assert_allclose(weights, reference, atol=1e-15)


@pytest.mark.parametrize(
    ("scores", "where", "message"),
    [
        (jnp.zeros(()), None, "scores has shape"),
        (jnp.zeros(3), jnp.ones(3, int), "where has dtype int64"),
        (jnp.zeros(3), jnp.ones(4, bool), r"where has shape \(4,\)"),
    ],
)
def test_bad_calls_are_named(scores, where, message):
    with pytest.raises(FlowError, match=message):
        activations.Softmax()(scores, where)


def test_elu_plus_one_survives_bfloat16():
    weight = activations.ELU1()(jnp.array([-8.0], jnp.bfloat16))[0]
    np.testing.assert_allclose(float(weight), 3.4e-4, rtol=2e-2)
    naive = jax.nn.elu(jnp.array([-8.0], jnp.bfloat16)) + 1
    assert float(naive[0]) == 0  # the trap


UNDERFLOWN, MASKED_THIRD = 6, 1  # the row of -200, and the mask that leaves out its third entry


@pytest.mark.parametrize("dtype_name", DTYPES)
@pytest.mark.parametrize("base", ["sigmoid", "softplus", "exp", "elu1"])
def test_underflowed_rows_are_uniform_over_the_unmasked(base, dtype_name):
    weights, gradients, _ = weights_and_gradients(dtype_name)["normalised-" + base]
    uniform = np.array([1, 1, 0, 1]) / 3
    np.testing.assert_allclose(weights[MASKED_THIRD, UNDERFLOWN], uniform, rtol=4e-3)
    # In the tail each of these maps is exp(a), so the gradient is softmax's.
    expected = uniform * (COTANGENT - uniform @ COTANGENT)
    np.testing.assert_allclose(gradients[MASKED_THIRD, UNDERFLOWN], expected, atol=2e-2)
    if dtype_name != "bfloat16":
        np.testing.assert_allclose(gradients[MASKED_THIRD, UNDERFLOWN], expected, rtol=1e-5)


@pytest.mark.parametrize("base", ["abs", "relu", "square", "linear", "elu"])
def test_rows_of_exact_zeros_are_uniform(base):
    activation = activations.by_name("normalised-" + base)
    mask = jnp.array([True, False, True])
    np.testing.assert_array_equal(activation(jnp.zeros(3), mask), [0.5, 0, 0.5])
    np.testing.assert_array_equal(jax.grad(lambda a: activation(a, mask)[0])(jnp.zeros(3)), 0)
    floored = activations.by_name("normalised-" + base, floor=1e-9)
    np.testing.assert_array_equal(floored(jnp.zeros(3), mask), 0)


def test_a_dead_relu_row_is_uniform():
    np.testing.assert_array_equal(activations.by_name("normalised-relu")(jnp.array([-1.0, -2.0])), [0.5, 0.5])


def test_signed_maps_have_honest_poles():
    activation = activations.by_name("normalised-linear")
    scores = jnp.array([1.0, -1.0, 0.0])
    np.testing.assert_array_equal(activation(scores), [np.inf, -np.inf, 0])
    np.testing.assert_array_equal(jax.grad(lambda a: activation(a)[0])(scores), 0)


@pytest.mark.parametrize("scale", [1e-280, 1.0, 1e280])
def test_homogeneous_maps_do_not_depend_on_the_scale(scale):
    scores = jnp.array([1.0, -2.0, 4.0])
    for base in ("abs", "relu", "square", "linear"):
        activation = activations.by_name("normalised-" + base)
        np.testing.assert_allclose(activation(scale * scores), activation(scores), rtol=1e-13)
