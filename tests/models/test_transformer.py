"""Transformers: attention kernels against NumPy, masks, positions, shared key-value heads, captures, bad input."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import erf, expit

import gradflow as gf
from gradflow.models import Transformer, attention_maps
from gradflow.models.attention import (
    ClippedKernel,
    EluKernel,
    LengthSigmoid,
    MLPKernel,
    NormalisedKernel,
    ScoreKernel,
    SinkLogit,
)
from gradflow.models.attention.maps import PAPER_MAPS, Sizes, as_kernel
from gradflow.models.transformer.positions import Rotary, alibi_bias, alibi_slopes

KEY = jax.random.key(0)
LENGTH, HEADS, D_K, VOCABULARY = 7, 3, 4, 11
TOKENS = jnp.array([3, 0, 10, 4, 4, 1, 7])
SIZES = Sizes(KEY, HEADS, D_K)
QUERIES, KEYS = 1.5 * jax.random.normal(KEY, (2, HEADS, LENGTH, D_K))
MASK = jnp.tril(jnp.ones((LENGTH, LENGTH), bool)).at[2].set(False)  # row 2 sees nothing
OFF = np.where(MASK, 0.0, -np.inf)


def model_of(**options):
    usual = {"width": 12, "heads": 3, "mlp_width": 16, "max_length": LENGTH}
    return Transformer.init(KEY, VOCABULARY, **usual | options)


@eqx.filter_jit
def seen(model, tokens=TOKENS, where=None):
    return model(tokens, where, capture=True)


MODEL = model_of()


def rows(weights):
    """Return weights divided by their sum, zero rows as they are."""
    total = weights.sum(-1, keepdims=True)
    return weights / np.where(total == 0, 1, total)


def clipped(weights):
    return weights / np.maximum(np.abs(weights.sum(-1, keepdims=True)), 1)


def elu1(x):
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


def features(kernel, x):
    hidden = x @ kernel.w_in + kernel.b_in
    return (hidden * (1 + erf(hidden / np.sqrt(2))) / 2) @ kernel.w_out + kernel.b_out


def expected(name, kernel):
    """Return the weights of a map by its formula, masked after the map."""
    queries, keys = np.asarray(QUERIES), np.asarray(KEYS)
    scores = queries @ keys.swapaxes(-1, -2) / 2
    inner = kernel.base if isinstance(kernel, ClippedKernel | NormalisedKernel) else kernel
    with np.errstate(invalid="ignore"):
        found = {
            "softmax": lambda: rows(np.exp(scores)),
            "uniform": lambda: rows(np.ones_like(scores)),
            "sigmoid": lambda: expit(scores),
            "elu1": lambda: elu1(scores),
            "linear": lambda: scores,
            "elu-elu": lambda: elu1(queries) @ elu1(keys).swapaxes(-1, -2),
            "mlp": lambda: features(inner, queries) @ features(inner, keys).swapaxes(-1, -2) / 2,
            "length-sigmoid": lambda: expit(scores - np.log(LENGTH)),
            "sink-logit": lambda: np.exp(scores),
        }
    base = name.removeprefix("normalised-").removeprefix("clipped-")
    plain = np.where(MASK, found[base](), 0)
    if name == "sink-logit":
        return plain / (np.exp(kernel.logits)[:, None, None] + plain.sum(-1, keepdims=True))
    if name.startswith("clipped"):
        return clipped(plain)
    return rows(plain) if name in ("softmax", "uniform") or name.startswith("normalised") else plain


@pytest.mark.parametrize("name", [*PAPER_MAPS, "sink-logit", "length-sigmoid"])
def test_kernels_are_their_formulas_and_masked_after_the_map(name):
    kernel = as_kernel(name, SIZES)
    kernel = SinkLogit(jnp.array([0.0, 1.0, -2.0])) if name == "sink-logit" else kernel
    _, weights = kernel(QUERIES, KEYS, MASK)
    np.testing.assert_allclose(weights, expected(name, kernel), rtol=1e-8, atol=1e-9)
    assert (np.asarray(weights)[:, ~np.asarray(MASK)] == 0).all()


def test_the_paper_has_twelve_maps_and_names_are_unique():
    assert len(set(PAPER_MAPS)) == 12 and set(PAPER_MAPS) < set(attention_maps())
    assert len(set(attention_maps())) == len(attention_maps())


def test_sink_logit_is_softmax1_at_zero_and_softmax_far_below():
    zero, low = (SinkLogit(jnp.full(HEADS, b))(QUERIES, KEYS, MASK)[1] for b in (0.0, -500.0))
    other = {name: as_kernel(name, SIZES)(QUERIES, KEYS, MASK)[1] for name in ("softmax1", "softmax")}
    np.testing.assert_allclose(zero, other["softmax1"], rtol=1e-12)
    np.testing.assert_allclose(low, other["softmax"], rtol=1e-12)


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e3])
def test_kernels_are_finite_with_finite_gradients_at_extreme_scores(scale):
    def total(queries, keys):
        kernels = [as_kernel(name, SIZES) for name in PAPER_MAPS] + [SinkLogit(jnp.zeros(HEADS))]
        return sum(jnp.sum(kernel(queries, keys, MASK)[1] ** 2) for kernel in kernels)

    value, slopes = jax.jit(jax.value_and_grad(total, (0, 1)))(scale * QUERIES, scale * KEYS)
    assert np.isfinite(value) and all(np.isfinite(x).all() for x in slopes)


def test_capture_changes_nothing_and_holds_what_happened():
    logits, capture = seen(MODEL)
    np.testing.assert_allclose(MODEL(TOKENS), logits, rtol=1e-12)
    shapes = {name: x.shape for name, x in capture._asdict().items()}
    assert shapes == {
        "attention": (2, 3, 7, 7),
        "hidden": (2, 7, 12),
        "embedded": (7, 12),
        "scores": (2, 3, 7, 7),
        "queries": (2, 3, 7, 4),
        "keys": (2, 3, 7, 4),
        "values": (2, 3, 7, 4),
        "outputs": (2, 3, 7, 4),
    }
    np.testing.assert_allclose(MODEL.read_out(capture.hidden[-1]), logits, rtol=1e-12)
    np.testing.assert_allclose(capture.attention @ capture.values, capture.outputs, rtol=1e-12, atol=1e-14)
    products = capture.queries @ jnp.swapaxes(capture.keys, -1, -2) / 2
    np.testing.assert_allclose(products, capture.scores, rtol=1e-10, atol=1e-12)


def test_a_decoder_does_not_see_the_future_and_an_encoder_does():
    changed = TOKENS.at[4].set(9)
    before, after = seen(MODEL)[0], seen(MODEL, changed)[0]
    np.testing.assert_array_equal(before[:4], after[:4])
    assert (np.abs(before - after)[4:].max(-1) > 1e-6).all()
    encoder = model_of(causal=False, classes=2)
    assert (np.abs(seen(encoder)[0] - seen(encoder, changed)[0]).max(-1) > 1e-6).all()


def test_where_hides_positions_wherever_they_are():
    hidden = jnp.ones((LENGTH, LENGTH), bool).at[:, :2].set(False)
    model = model_of(positions=None)
    padded, capture = seen(model, TOKENS.at[:2].set(0), hidden)
    np.testing.assert_allclose(padded[2:], model(TOKENS[2:]), rtol=1e-10, atol=1e-12)
    assert (np.asarray(capture.attention)[..., :2] == 0).all()


def test_heads_that_share_keys_are_heads_with_repeated_keys():
    shared = model_of(heads=4, kv_heads=2, positions=None)

    def repeated(projection):
        return eqx.tree_at(
            lambda p: (p.weight, p.bias),
            projection,
            (jnp.repeat(projection.weight, 2, axis=1), jnp.repeat(projection.bias, 2, axis=0)),
        )

    full = shared
    for layer in range(2):
        for name in ("key", "value"):

            def where(model, layer=layer, name=name):
                return getattr(model.blocks[layer].attention, name)

            full = eqx.tree_at(where, full, repeated(where(full)))
    np.testing.assert_allclose(seen(shared)[0], seen(full)[0], rtol=1e-12)
    assert seen(shared)[1].keys.shape == (2, 2, LENGTH, 3)


def test_rotary_scores_depend_on_distance_only_and_keep_lengths():
    turned = Rotary(4)(jnp.broadcast_to(QUERIES[:, :1].swapaxes(0, 1), (LENGTH, HEADS, D_K)))
    other = Rotary(4)(jnp.broadcast_to(KEYS[:, :1].swapaxes(0, 1), (LENGTH, HEADS, D_K)))
    products = np.einsum("ihd,jhd->hij", turned, other)
    for offset in range(LENGTH):
        diagonal = np.diagonal(products, offset, 1, 2)
        np.testing.assert_allclose(diagonal, np.broadcast_to(diagonal[:, :1], diagonal.shape), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(
        jnp.linalg.norm(turned, axis=-1), jnp.linalg.norm(turned[:1], axis=-1) + 0 * turned[..., 0]
    )
    part = Rotary(2)(QUERIES.swapaxes(0, 1))
    np.testing.assert_array_equal(part[..., 2:], QUERIES.swapaxes(0, 1)[..., 2:])


def test_alibi_has_the_published_slopes():
    assert alibi_slopes(8) == [2.0**-k for k in range(1, 9)]
    assert alibi_slopes(1) == [2.0**-8]
    twelve = alibi_slopes(12)
    assert twelve[:8] == alibi_slopes(8)
    np.testing.assert_allclose(twelve[8:], [2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5])
    bias = alibi_bias(2, 3, jnp.float32)
    np.testing.assert_array_equal(bias[0], -(2.0**-4) * np.array([[0, 1, 2], [1, 0, 1], [2, 1, 0]]))


def test_open_gates_are_no_gates_and_shut_ones_leave_the_residual_stream_alone():
    gated = model_of(gated=True, mlp=None)

    def biased(value):
        projections = [block.attention.gate for block in gated.blocks]
        made = [eqx.tree_at(lambda p: (p.weight, p.bias), p, (0 * p.weight, 0 * p.bias + value)) for p in projections]
        return eqx.tree_at(lambda m: [block.attention.gate for block in m.blocks], gated, made)

    opened = eqx.tree_at(
        lambda m: [b.attention.gate for b in m.blocks], gated, [None, None], is_leaf=lambda x: x is None
    )
    np.testing.assert_allclose(seen(biased(60.0))[0], seen(opened)[0], rtol=1e-12)
    assert (np.asarray(seen(biased(-800.0))[1].outputs) == 0).all()


@settings(max_examples=6)
@given(
    st.sampled_from([("layer", "gelu"), ("rms", "swiglu"), (None, None)]),
    st.sampled_from(["add", "concat", "rotary", "alibi", None]),
    st.booleans(),
    st.sampled_from([1, 3]),
)
def test_any_design_keeps_its_precision_and_has_finite_gradients(parts, positions, causal, length):
    norm, mlp = parts
    model = model_of(norm=norm, mlp=mlp, positions=positions, causal=causal, heads=1, layers=1, dtype="float32")
    tokens = TOKENS[:length]

    @eqx.filter_jit
    def value_and_slopes(model):
        return eqx.filter_value_and_grad(lambda m: jnp.mean(m(tokens) ** 2))(model)

    value, slopes = value_and_slopes(model)
    leaves = jax.tree.leaves(eqx.filter(slopes, eqx.is_array))
    assert value.dtype == jnp.float32 and {x.dtype for x in leaves} == {jnp.dtype("float32")}
    assert all(np.isfinite(x).all() for x in leaves)


def test_tied_heads_read_out_with_the_embedding():
    tied = model_of(tied=True, positions=None)
    logits, capture = seen(tied)
    np.testing.assert_allclose(logits, jax.vmap(tied.norm)(capture.hidden[-1]) @ tied.embedding.T, rtol=1e-12)
    assert tied.unembedding is None and tied.bias is None


def test_parameters_are_those_of_the_design():
    def count(**options):
        return sum(x.size for x in jax.tree.leaves(eqx.filter(model_of(**options), eqx.is_array)))

    attention, norms, mlp = 2 * 4 * (12 * 12 + 12), (2 * 2 + 1) * 24, 2 * (2 * 12 * 16 + 16 + 12)
    tables, head = (VOCABULARY + LENGTH) * 12, 12 * VOCABULARY + VOCABULARY
    assert count() == attention + norms + mlp + tables + head
    assert count(positions="concat") == count() - (VOCABULARY + LENGTH) * 6
    swiglu = count(mlp="swiglu", norm="rms", biases=False, positions="rotary")
    assert swiglu == 2 * 4 * 144 + (2 * 2 + 1) * 24 + 2 * 3 * 12 * 16 + 2 * VOCABULARY * 12


@pytest.mark.slow
def test_members_of_an_ensemble_are_drawn_by_key():
    models = eqx.filter_vmap(lambda key: Transformer.init(key, 5, width=4, heads=1, layers=1, positions=None))
    made = models(jax.random.split(KEY, 2))
    alone = Transformer.init(jax.random.split(KEY, 2)[1], 5, width=4, heads=1, layers=1, positions=None)
    np.testing.assert_array_equal(made.embedding[1], alone.embedding)


@pytest.mark.parametrize("tokens", [[3, VOCABULARY], [3, -1]], ids=["above", "below"])
def test_unknown_tokens_are_named_and_under_jit_are_never_plausible(tokens):
    with pytest.raises(gf.FlowError, match=rf"tokens holds {tokens[1]}: pass numbers in \[0, 10\]"):
        MODEL(jnp.array(tokens))
    assert np.isnan(eqx.filter_jit(MODEL)(jnp.array(tokens))).all()


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (jnp.zeros(8, int), "8 positions and the table of positions 7"),
        (jnp.zeros(0, int), "at least one token"),
        (jnp.zeros((2, 3), int), "jax.vmap"),
        (jnp.zeros(3), "whole numbers"),
    ],
)
def test_what_is_no_sequence_is_refused(tokens, message):
    with pytest.raises(gf.FlowError, match=message):
        MODEL(tokens)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 5}, "heads is 5, which does not divide width 12"),
        ({"heads": 4, "kv_heads": 3}, "kv_heads is 3: it must divide heads, 4"),
        ({"attention": "softmx"}, "unknown attention map 'softmx'; did you mean 'softmax'"),
        ({"attention": EluKernel}, "the class EluKernel"),
        ({"attention": 3}, "attention is 3"),
        ({"attention": "mlp", "positions": "alibi"}, "positions='alibi' biases scores"),
        ({"positions": "learned"}, "unknown positions 'learned'"),
        ({"max_length": None}, "max_length is None"),
        ({"width": 9, "positions": "concat"}, "pass an even width"),
        ({"head_width": 3, "positions": "rotary"}, "turns pairs"),
        ({"tied": True, "classes": 3}, "a tied head needs as many classes as tokens"),
        ({"norm": "batch"}, "unknown norm 'batch'"),
        ({"mlp": "relu"}, "unknown mlp 'relu'"),
        ({"layers": 0}, "layers is 0"),
        ({"causal": "no"}, "causal is 'no'"),
        ({"dtype": int}, "pass a float type"),
    ],
)
def test_designs_that_cannot_be_are_refused(options, message):
    with pytest.raises(gf.FlowError, match=message) as error:
        model_of(**options)
    assert "\n" not in str(error.value)


def test_kernels_that_make_no_sense_are_refused():
    with pytest.raises(gf.FlowError, match="use ScoreKernel"):
        NormalisedKernel(ScoreKernel(gf.activations.Sigmoid()))
    for kernel in (EluKernel(), MLPKernel.init(KEY, D_K)):
        with pytest.raises(gf.FlowError, match="no scores to add it to"):
            kernel(QUERIES, KEYS, MASK, jnp.zeros((HEADS, LENGTH, LENGTH)))
    assert LengthSigmoid().takes_bias


def test_it_learns_by_descent():
    batch = gf.tasks.Batch(TOKENS[None, :-1], TOKENS[None, 1:], jnp.ones((1, LENGTH - 1), bool))
    model = model_of(layers=1, mlp=None)
    run = gf.gradient_descent(gf.losses.cross_entropy, model, optax.adam(1e-2), batch, steps=60)
    before, after = (float(gf.losses.cross_entropy(model, batch)) for model in (model, run.final))
    assert after < 0.1 < 2 < before
