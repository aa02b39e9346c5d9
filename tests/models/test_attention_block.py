"""The attention block: its parts in NumPy, what can be left out, and what it refuses."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradflow as gf
from gradflow.models import AttentionBlock, AttentionHead, FreeHead, MultiHeadAttention

KEY = jax.random.key(0)
LENGTH, WIDTH = 5, 6
X = jax.random.normal(jax.random.key(1), (LENGTH, WIDTH))
WHERE = np.ones((LENGTH, LENGTH), bool)
WHERE[4, 1] = False
BLOCK = AttentionBlock.normal(KEY, WIDTH, 2, scale=0.5)
HEAD = AttentionHead.normal(KEY, WIDTH, 3, 2, WIDTH, causal=False)


def layer_norm(x):
    centred = x - x.mean(1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)


def rms_norm(x):
    return x / np.sqrt((x**2).mean(1, keepdims=True) + 1e-5)


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def mlp(block, x):
    (first, a), (second, b) = ((np.asarray(layer.weight), np.asarray(layer.bias)) for layer in block.mlp.layers)
    return gelu(x @ first.T + a) @ second.T + b


NORMS = {
    "layer": (layer_norm, eqx.nn.LayerNorm),
    "rms": (rms_norm, eqx.nn.RMSNorm),
    "none": (lambda x: x, lambda width: None),
}


@pytest.mark.parametrize("residual", [True, False], ids=["residual", "plain"])
@pytest.mark.parametrize("norm", NORMS)
def test_a_block_is_its_parts(norm, residual):
    normalise, module = NORMS[norm]
    block = AttentionBlock(BLOCK.attention, BLOCK.mlp, module(WIDTH), module(WIDTH), residual)
    rows, inside = block(X, WHERE, capture=True)
    x = np.asarray(X)
    attended, expected_inside = block.attention(normalise(x), WHERE, capture=True)
    hidden = x * residual + np.asarray(attended)
    expected = hidden * residual + mlp(block, normalise(hidden))
    np.testing.assert_allclose(rows, expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(inside.weights, expected_inside.weights, rtol=1e-10)
    np.testing.assert_array_equal(block(X, WHERE), rows)


@pytest.mark.parametrize(("norm", "kind"), [("layer", eqx.nn.LayerNorm), ("rms", eqx.nn.RMSNorm), (None, type(None))])
def test_normal_builds_the_parts(norm, kind):
    block = eqx.filter_eval_shape(
        lambda: AttentionBlock.normal(KEY, 3, 4, d_v=2, mlp_width=5, norm=norm, residual=False)
    )
    assert isinstance(block.attention_norm, kind) and isinstance(block.mlp_norm, kind) and not block.residual
    assert block.attention.w_q.shape == (4, 3, 1) and block.attention.w_v.shape == (4, 3, 2)
    assert block.mlp.layers[0].weight.shape == (5, 3)
    assert BLOCK.attention.w_q.shape == (2, WIDTH, 3) and BLOCK.mlp.layers[0].weight.shape == (4 * WIDTH, WIDTH)


def test_attention_alone():
    block = AttentionBlock.normal(KEY, WIDTH, 1, norm=None, mlp_width=0, residual=False, activation="sigmoid")
    assert (block.mlp, block.attention_norm, block.mlp_norm) == (None, None, None)
    assert block.attention.activation.name == "sigmoid"
    np.testing.assert_array_equal(block(X), block.attention(X))
    np.testing.assert_allclose(block(X), block.attention.head(0)(X), rtol=1e-13, atol=1e-15)


def test_any_layer_fits_in():
    np.testing.assert_allclose(AttentionBlock(HEAD)(X), X + HEAD(X), rtol=1e-14)
    free = FreeHead.normal(KEY, LENGTH, 2, WIDTH)
    np.testing.assert_allclose(AttentionBlock(free, mlp=jnp.tanh)(X), X + free() + jnp.tanh(X + free()), rtol=1e-14)


@eqx.filter_jit
def mapped_with_gradients(block, sequences):
    gradients = eqx.filter_grad(lambda block: jnp.sum(jax.vmap(block)(sequences) ** 2))(block)
    return jax.vmap(block)(sequences), gradients


def test_transforms_and_precision():
    mapped, gradients = mapped_with_gradients(BLOCK, jnp.stack([X, X[::-1]]))
    np.testing.assert_allclose(mapped[1], BLOCK(X[::-1]), rtol=1e-11, atol=1e-13)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32) if eqx.is_array(leaf) else leaf, BLOCK)
    shapes = eqx.filter_eval_shape(mapped_with_gradients, single, X[None].astype(jnp.float32))
    assert {leaf.dtype for leaf in jax.tree.leaves(shapes) if hasattr(leaf, "dtype")} == {jnp.dtype("float32")}


def test_a_block_is_as_smooth_as_its_activation():
    kinked = MultiHeadAttention.normal(KEY, 2, WIDTH, 3, 3, WIDTH, activation="sparsemax")
    assert gf.activations.smooth(BLOCK)
    assert not gf.activations.smooth(AttentionBlock(kinked, BLOCK.mlp))


def test_no_and_one_position():
    for length in (0, 1):
        assert jax.eval_shape(BLOCK, X[:length]).shape == (length, WIDTH)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: BLOCK(X[:, :4]), r"x has shape \(5, 4\): pass \(T, 6\)"),
        (lambda: BLOCK(X[0]), r"x has shape \(6,\): pass \(T, 6\)"),
        (lambda: AttentionBlock(FreeHead.normal(KEY, 4, 2, WIDTH))(X), "scores is free at 4 positions"),
        (
            lambda: AttentionBlock(MultiHeadAttention.normal(KEY, 2, WIDTH, 3, 3, 4))(X),
            r"widths differ \(attention's w_o 4, attention's w_q 6\)",
        ),
        (lambda: AttentionBlock(HEAD, attention_norm=eqx.nn.RMSNorm(3)), r"w_q 6, attention_norm 3\)"),
        (lambda: AttentionBlock(HEAD, mlp=lambda row: row[:1])(X), r"mlp turns \(5, 6\) into \(5, 1\)"),
        (lambda: BLOCK(X, WHERE[:4]), r"where has shape \(4, 5\)"),
        (lambda: AttentionBlock.normal(KEY, WIDTH, 2, norm="layr"), "unknown norm 'layr'; did you mean 'layer'"),
        (lambda: AttentionBlock.normal(KEY, 0, 2), "width is 0"),
        (lambda: AttentionBlock.normal(0, WIDTH, 2), "key is 0: pass a random key"),
        (lambda: AttentionBlock.normal(KEY, WIDTH, 2, mlp_width=-1), "mlp_width is -1"),
    ],
)
def test_bad_input(make, match):
    with pytest.raises(gf.FlowError, match=match) as caught:
        make()
    assert "\n" not in str(caught.value)
