"""Heads of attention against NumPy: every activation, masks, free parameters, several heads."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attention_reference import attention
from hypothesis import given, settings
from hypothesis import strategies as st

import gradflow as gf
from gradflow.models import AttentionHead, FreeHead, FreeValueHead, MultiHeadAttention

KEY = jax.random.key(0)
LENGTH, D_IN, D_K, D_V, CLASSES, HEADS = 6, 4, 3, 5, 7, 2
X = jax.random.normal(jax.random.key(1), (LENGTH, D_IN))
# Row 2 sees nothing, row 0 sees nothing under a causal mask.
WHERE = np.array(
    [
        [0, 1, 0, 1, 1, 0],
        [1, 1, 1, 0, 0, 1],
        [0, 0, 0, 0, 0, 0],
        [1, 0, 1, 1, 1, 0],
        [0, 1, 1, 0, 1, 1],
        [1, 1, 0, 1, 1, 1],
    ],
    bool,
)
TRIANGLE = np.tril(np.ones((LENGTH, LENGTH), bool))


HEAD = AttentionHead.normal(KEY, D_IN, D_K, D_V, CLASSES, scale=0.8)
MULTI = MultiHeadAttention.normal(KEY, HEADS, D_IN, D_K, D_V, CLASSES, scale=0.8)


def head_of(activation=None, causal=True):
    return AttentionHead(HEAD.w_q, HEAD.w_k, HEAD.w_v, HEAD.w_o, activation, causal)


def multi_of(activation=None, causal=True, heads=slice(None)):
    w_q, w_k, w_v, w_o = (w[heads] for w in (MULTI.w_q, MULTI.w_k, MULTI.w_v, MULTI.w_o))
    return MultiHeadAttention(w_q, w_k, w_v, w_o, activation, causal)


@functools.cache
def all_kinds(causal=True):
    """One layer of each kind, the free ones with what the shared head computes."""
    head = head_of(causal=causal)
    inside = head(X, capture=True)[1]
    return {
        "shared": head,
        "free values": FreeValueHead(head.w_q, head.w_k, inside.values, head.w_o, causal=causal),
        "free": FreeHead(inside.scores, inside.values, head.w_o, causal=causal),
        "several": multi_of(causal=causal),
    }


def visible(causal, where):
    return (TRIANGLE if causal else np.ones_like(TRIANGLE)) & (True if where is None else where)


MASKED = {"masked": (True, WHERE), "unmasked": (False, None), "causal": (True, None), "where": (False, WHERE)}
EACH = [(name, masking) for name in gf.activations.names() for masking in ("masked", "unmasked")]


@pytest.mark.parametrize(("name", "masking"), [*EACH, ("softmax", "causal"), ("softmax", "where")])
def test_a_head_is_what_numpy_computes(name, masking):
    causal, where = MASKED[masking]
    head = head_of(name, causal)
    logits, inside = head(X, where, capture=True)
    queries, keys, values = (np.asarray(X) @ np.asarray(w) for w in (head.w_q, head.w_k, head.w_v))
    mask = visible(causal, where)
    scores, weights, outputs, expected = attention(name, queries, keys, values, np.asarray(head.w_o), mask)
    np.testing.assert_array_equal(head.mask(LENGTH, where), mask)
    for ours, theirs in ((inside.queries, queries), (inside.keys, keys), (inside.values, values)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-15)
    # Weights of the signed maps grow where their sum is small.
    size = max(np.abs(weights).max(), 1)
    for ours, theirs in ((inside.scores, scores), (inside.weights, weights), (inside.outputs, outputs)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-13 * size**2)
    np.testing.assert_allclose(logits, expected, rtol=1e-12, atol=1e-13 * size**2)
    np.testing.assert_array_equal(np.asarray(inside.weights)[~mask], 0)
    np.testing.assert_array_equal(logits, head(X, where))


@pytest.mark.parametrize("masking", ["masked", "unmasked"])
def test_free_parameters_and_several_heads(masking):
    causal, where = MASKED[masking]
    kinds = all_kinds(causal)
    expected, inside = kinds["shared"](X, where, capture=True)
    np.testing.assert_array_equal(kinds["free values"](X, where), expected)
    free, free_inside = kinds["free"](where=where, capture=True)
    np.testing.assert_array_equal(free, expected)
    np.testing.assert_array_equal(kinds["free"](X, where), free)
    assert free_inside.queries is None and free_inside.keys is None
    np.testing.assert_array_equal(free_inside.weights, inside.weights)

    several, many = kinds["several"](X, where, capture=True)
    one_by_one = [kinds["several"].head(h)(X, where, capture=True) for h in range(HEADS)]
    np.testing.assert_allclose(several, sum(logits for logits, _ in one_by_one), rtol=1e-13, atol=1e-14)
    for name in many._fields:
        stacked = np.stack([getattr(single, name) for _, single in one_by_one])
        np.testing.assert_allclose(getattr(many, name), stacked, rtol=1e-13, atol=1e-14, err_msg=name)


def test_one_head_of_several_is_a_head():
    multi = multi_of("normalised-sigmoid", heads=slice(1))
    head = multi.head(0)
    assert isinstance(head, AttentionHead) and multi.n_heads == 1
    assert (head.activation, head.causal) == (multi.activation, True)
    np.testing.assert_allclose(multi(X, WHERE), head(X, WHERE), rtol=1e-14, atol=1e-15)
    for one, same in zip(jax.tree.leaves(head), jax.tree.leaves(multi), strict=True):
        np.testing.assert_array_equal(one, same[0])
    np.testing.assert_array_equal(MULTI.head(-1).w_v, MULTI.w_v[1])
    every = jax.vmap(MULTI.head)(jnp.arange(HEADS))
    np.testing.assert_array_equal(every.w_o, MULTI.w_o)


def test_normal_draws_what_it_says():
    head = AttentionHead.normal(KEY, 50, 60, 50, 60, scale=0.2)
    for w in (head.w_q, head.w_k, head.w_v, head.w_o):
        assert w.shape == (50, 60) or w.shape == (50, 50)
        assert np.std(w) == pytest.approx(0.2, rel=0.05) and abs(np.mean(w)) < 0.02
    assert abs(np.corrcoef(np.ravel(head.w_q), np.ravel(head.w_k))[0, 1]) < 0.05
    free_values = jax.eval_shape(lambda: FreeValueHead.normal(KEY, 9, 4, 3, 2, 5))
    shapes = [w.shape for w in (free_values.w_q, free_values.w_k, free_values.values, free_values.w_o)]
    assert shapes == [(4, 3), (4, 3), (9, 2), (2, 5)]
    free = jax.eval_shape(lambda: FreeHead.normal(KEY, 9, 2, 5, activation="sigmoid", causal=False))
    assert (free.scores.shape, free.values.shape, free.w_o.shape) == ((9, 9), (9, 2), (2, 5))
    assert free.activation.name == "sigmoid" and not free.causal
    shapes = [w.shape for w in (MULTI.w_q, MULTI.w_k, MULTI.w_v, MULTI.w_o)]
    assert shapes == [(2, 4, 3), (2, 4, 3), (2, 4, 5), (2, 5, 7)]


def test_activations_by_name_and_modules_of_rates():
    head = head_of()
    named = AttentionHead(head.w_q, head.w_k, head.w_v, head.w_o, "softmax")
    np.testing.assert_array_equal(named(X), head(X))
    rates = AttentionHead(1.0, 1.0, 10.0, 1.0)
    assert jax.tree.structure(rates) == jax.tree.structure(head)


@pytest.mark.parametrize("kind", ["shared", "free values", "free", "several"])
def test_transforms_and_numpy_inputs(kind):
    layer = all_kinds()[kind]
    expected = layer(X, WHERE)
    np.testing.assert_allclose(eqx.filter_jit(layer)(X, WHERE), expected, rtol=1e-12, atol=1e-14)
    as_numpy = jax.tree.map(np.asarray, layer)
    np.testing.assert_allclose(as_numpy(np.asarray(X), np.asarray(WHERE)), expected, rtol=1e-12, atol=1e-14)
    sequences = jnp.stack([X, X[::-1]])
    mapped = jax.vmap(layer)(sequences)
    np.testing.assert_allclose(mapped[1], layer(X[::-1]), rtol=1e-12, atol=1e-14)
    members = jax.tree.map(lambda w: jnp.stack([w, 2 * w]), layer)
    many = eqx.filter_vmap(lambda member, x: member(x), in_axes=(eqx.if_array(0), None))(members, X)
    np.testing.assert_allclose(many[1], jax.tree.map(lambda w: 2 * w, layer)(X), rtol=1e-12, atol=1e-14)
    batch = gf.tasks.Batch(sequences, jnp.zeros((2, LENGTH), int), jnp.ones((2, LENGTH), bool))
    both = [-jax.nn.log_softmax(layer(x))[:, 0] for x in sequences]
    np.testing.assert_allclose(gf.losses.cross_entropy(layer, batch), np.mean(both), rtol=1e-12)


@pytest.mark.parametrize("kind", ["shared", "free values", "free", "several"])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_precisions_are_kept(kind, dtype):
    layer = jax.tree.map(lambda w: jax.ShapeDtypeStruct(w.shape, dtype), all_kinds()[kind])
    x = jax.ShapeDtypeStruct(X.shape, dtype)

    def everything(layer, x):
        return layer(x, WHERE, capture=True), jax.grad(lambda layer: layer(x).sum())(layer)

    assert {leaf.dtype for leaf in jax.tree.leaves(jax.eval_shape(everything, layer, x))} == {jnp.dtype(dtype)}


def test_single_precision_is_close_to_double():
    layer = jax.tree.map(lambda w: w.astype(jnp.float32), MULTI)
    single = layer(X.astype(jnp.float32), WHERE)
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, MULTI(X, WHERE), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("kind", ["shared", "several"])
def test_one_position(kind):
    layer = all_kinds()[kind]
    alone, inside = layer(X[:1], capture=True)
    np.testing.assert_array_equal(inside.weights, np.ones_like(inside.weights))
    heads = [layer] if kind == "shared" else [layer.head(h) for h in range(HEADS)]
    np.testing.assert_allclose(alone, sum(X[:1] @ h.w_v @ h.w_o for h in heads), rtol=1e-12)


def test_no_position():
    for layer in (HEAD, MULTI, multi_of("sparsemax", causal=False)):
        none, inside = jax.eval_shape(lambda x: layer(x, np.ones((0, 0), bool), capture=True), X[:0])  # noqa: B023
        assert none.shape == (0, CLASSES) and inside.weights.shape[-2:] == (0, 0)
    empty = gf.tasks.Batch(jnp.zeros((1, 0, D_IN)), jnp.zeros((1, 0), int), jnp.ones((1, 0), bool))
    assert float(gf.losses.cross_entropy(HEAD, empty)) == 0.0


ROW_KEYS = st.integers(0, 2**16)


@settings(max_examples=8)
@given(ROW_KEYS, st.integers(1, LENGTH - 1))
def test_a_causal_row_does_not_see_what_comes_later(seed, cut):
    other = X.at[cut:].set(jax.random.normal(jax.random.key(seed), (LENGTH - cut, D_IN)))
    head = head_of()
    np.testing.assert_array_equal(head(X)[:cut], head(other)[:cut])
    assert not np.allclose(head(X)[-1], head(other)[-1])


@settings(max_examples=8)
@given(st.permutations(range(LENGTH)))
def test_without_a_causal_mask_positions_have_no_order(order):
    multi = multi_of("normalised-softplus", causal=False)
    order = np.array(order)
    moved = multi(X[order], WHERE[order][:, order])
    np.testing.assert_allclose(moved, np.asarray(multi(X, WHERE))[order], rtol=1e-11, atol=1e-13)


W = dict.fromkeys(("w_q", "w_k"), jnp.ones((4, 3))) | {"w_v": jnp.ones((4, 5)), "w_o": jnp.ones((5, 7))}


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: head_of()(X[:, :3]), r"x has shape \(6, 3\): pass \(T, 4\), one position a row"),
        (lambda: head_of()(X[0]), r"x has shape \(4,\): pass \(T, 4\)"),
        (lambda: head_of()(), r"x has shape \(\)"),
        (lambda: multi_of()(X[None]), r"x has shape \(1, 6, 4\): .* map over sequences with jax.vmap"),
        (lambda: head_of()(X, WHERE[:5, :5]), r"where has shape \(5, 5\) for 6 positions: pass \(6, 6\)"),
        (lambda: multi_of()(X, WHERE[0]), r"where has shape \(6,\)"),
        (lambda: all_kinds()["free"](where=WHERE[:5]), r"where has shape \(5, 6\)"),
        (lambda: head_of().mask(5, WHERE), r"where has shape \(6, 6\) for 5 positions"),
        (lambda: head_of()(X, WHERE.astype(float)), r"where has dtype float64; pass booleans"),
        (lambda: all_kinds()["free"](X[:5]), r"x has shape \(5, 4\) and scores is free at 6 positions"),
        (lambda: all_kinds()["free"](1.0), r"x has shape \(\) and scores is free at 6 positions"),
        (lambda: all_kinds()["free values"](X[:5]), r"x has shape \(5, 4\) and values is free at 6 positions"),
        (lambda: AttentionHead(**W | {"w_k": jnp.ones((4, 2))}), r"w_q has shape \(4, 3\) and w_k has shape \(4, 2\)"),
        (lambda: AttentionHead(**W | {"w_v": jnp.ones((3, 5))}), "d_in must be the same, in w_q"),
        (lambda: AttentionHead(**W | {"w_o": jnp.ones(5)}), r"w_o has shape \(5,\): pass \(d_v, C\)"),
        (lambda: AttentionHead(**W | {"w_o": jnp.ones((2, 5, 7))}), "members must be the same"),
        (lambda: MultiHeadAttention(**W), r"w_q has shape \(4, 3\): pass \(H, d_in, d_k\)"),
        (lambda: FreeHead(jnp.ones((3, 4)), jnp.ones((4, 2)), jnp.ones((2, 2))), "T must be the same"),
        (lambda: FreeHead(jnp.ones((4, 4)), jnp.ones((3, 2)), jnp.ones((2, 2))), r"values has shape \(3, 2\)"),
        (lambda: AttentionHead(**W, activation="sofmax"), "did you mean 'softmax'"),
        (lambda: AttentionHead.normal(KEY, 4, 0, 5, 7), "d_k is 0"),
        (lambda: MultiHeadAttention.normal(KEY, 0, 4, 3, 5, 7), "n_heads is 0"),
        (lambda: FreeHead.normal(KEY, 2.5, 5, 7), "n_positions is 2.5"),
        (
            lambda: AttentionHead(**W, activation=gf.activations.Softmax),
            r"the class Softmax: pass one of it, Softmax\(\)",
        ),
        (lambda: AttentionHead(**W, activation=jax.nn.softmax), "pass one of gf.activations, or its name"),
        (lambda: AttentionHead(**W, causal="no"), "causal is 'no': pass True or False"),
        (lambda: AttentionHead.normal(0, 4, 3, 5, 7), r"key is 0: pass a random key, such as jax.random.key\(0\)"),
        (lambda: AttentionHead.normal(KEY, 4, 3, 5, 7, scale="x"), "scale is 'x'"),
        (lambda: AttentionHead.normal(KEY, 4, 3, 5, 7, scale=-1.0), "scale is -1.0"),
        (lambda: AttentionHead.normal(KEY, 4, 3, 5, 7, scale=None), "scale is None"),
        (lambda: AttentionHead.normal(jnp.array(0), 4, 3, 5, 7), "key is Array.*pass a random key"),
        (lambda: AttentionHead.normal(jax.random.split(KEY), 4, 3, 5, 7), "key is Array.*pass a random key"),
        (lambda: AttentionHead(**W, causal=jnp.array(True)), "causal is Array.*pass True or False"),
        (lambda: MULTI.head(slice(0, 1)), "index is slice"),
        (lambda: MULTI.head(jnp.arange(2)), "index is Array.*pass the number of one head"),
        (lambda: MULTI.head(True), "index is True"),
        (lambda: MULTI.head(2), "index is 2: there are 2 heads"),
        (lambda: MULTI.head(jnp.array(7)), "index is Array.*there are 2 heads"),
    ],
)
def test_bad_input(make, match):
    with pytest.raises(gf.FlowError, match=match) as caught:
        make()
    assert "\n" not in str(caught.value)
