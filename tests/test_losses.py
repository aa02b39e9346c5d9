"""Losses against NumPy and finite differences, at extremes, and the data they refuse."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jaxtyping import Array

import gradflow as gf
from gradflow import losses
from gradflow.errors import FlowError
from gradflow.types import Batch, Data


class Vector(eqx.Module):
    value: Array

    def __call__(self):
        return self.value


class Logits(eqx.Module):
    table: Array

    def __call__(self, tokens):
        return self.table[tokens]


RNG = np.random.default_rng(0)
X, BETA = RNG.normal(size=(7, 3)), RNG.normal(size=3)
LABELS = np.where(RNG.normal(size=7) > 0, 1.0, -1.0)
DATA = Data(x=jnp.asarray(X), y=jnp.asarray(LABELS))
VALUE_AND_GRADIENT = eqx.filter_jit(lambda loss, model, args: eqx.filter_value_and_grad(loss)(model, args))
P = np.array([0.5, 0.0, 0.3, 0.2])
MARGINS = LABELS * (X @ BETA)
LINEAR = {
    "logistic": (losses.logistic, np.log1p(np.exp(-MARGINS)).mean()),
    "exponential": (losses.exponential, np.exp(-MARGINS).mean()),
    "square": (losses.square, ((X @ BETA - LABELS) ** 2).mean() / 2),
}


def gradient_gap(loss, model, args):
    """Largest distance of the gradient from central differences."""
    (leaf,) = jax.tree.leaves(model)
    evaluate = jax.jit(lambda leaf: loss(type(model)(leaf), args))
    gradient = np.asarray(jax.grad(evaluate)(leaf))
    differences = np.zeros_like(gradient)
    for index in np.ndindex(*leaf.shape):
        ahead, behind = (evaluate(leaf.at[index].add(sign * 1e-6)) for sign in (1, -1))
        differences[index] = (ahead - behind) / 2e-6
    return np.abs(gradient - differences).max()


@pytest.mark.parametrize("name", LINEAR)
def test_linear_losses(name):
    loss, expected = LINEAR[name]
    model = Vector(jnp.asarray(BETA))
    assert loss(model, DATA).shape == ()
    np.testing.assert_allclose(loss(model, DATA), expected, rtol=1e-14)
    assert gradient_gap(loss, model, DATA) < 1e-8
    loss.check(DATA)


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32, jnp.bfloat16])
def test_logistic_is_safe_at_any_margin(dtype):
    data = Data(x=jnp.array([[1.0], [-1.0]], dtype), y=jnp.ones(2, dtype))
    for size in (0.0, 50.0, 1e30):
        model = Vector(jnp.array([size], dtype))
        value, gradient = VALUE_AND_GRADIENT(losses.logistic, model, data)
        assert value.dtype == dtype
        np.testing.assert_allclose(float(value), size / 2 if size else np.log(2), rtol=1e-2)
        np.testing.assert_allclose(float(gradient.value[0]), 0.5 if size else 0, rtol=1e-2)


def test_exponential_overflows_honestly():
    data = Data(x=jnp.array([[1.0]]), y=jnp.array([-1.0]))
    assert losses.exponential(Vector(jnp.array([1e4])), data) == jnp.inf


TOKENS = jnp.array([[0, 1, 2], [2, 0, 1]])
TARGETS = jnp.array([[1, 3, 0], [2, 2, 1]])
MASK = jnp.array([[True, False, True], [False, False, True]])
TABLE = jnp.asarray(RNG.normal(size=(3, 4)))


def test_cross_entropy_is_a_masked_mean():
    batch = Batch(inputs=TOKENS, targets=TARGETS, mask=MASK)
    log_probability = jax.nn.log_softmax(TABLE, axis=-1)[TOKENS]
    chosen = np.take_along_axis(np.asarray(log_probability), np.asarray(TARGETS)[..., None], -1)[..., 0]
    np.testing.assert_allclose(losses.cross_entropy(Logits(TABLE), batch), -chosen[np.asarray(MASK)].mean(), rtol=1e-14)
    assert gradient_gap(losses.cross_entropy, Logits(TABLE), batch) < 1e-8
    losses.cross_entropy.check(batch)


def test_cross_entropy_of_nothing_is_zero():
    batch = Batch(inputs=TOKENS, targets=TARGETS, mask=jnp.zeros_like(MASK))
    value, gradient = VALUE_AND_GRADIENT(losses.cross_entropy, Logits(TABLE), batch)
    assert value == 0 and (gradient.table == 0).all()


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32, jnp.bfloat16])
def test_cross_entropy_with_an_impossible_class(dtype):
    # Class 3 has probability zero where it is not the target; the one position where it is the target is masked.
    table = TABLE.at[:, 3].set(-jnp.inf).astype(dtype)
    batch = Batch(inputs=TOKENS, targets=TARGETS, mask=MASK)
    value, gradient = VALUE_AND_GRADIENT(losses.cross_entropy, Logits(table), batch)
    assert np.isfinite(float(value)) and np.isfinite(np.asarray(gradient.table, float)).all()
    reduced = Batch(inputs=TOKENS, targets=jnp.where(TARGETS == 3, 0, TARGETS), mask=MASK)
    expected = losses.cross_entropy(Logits(table[:, :3]), reduced)
    np.testing.assert_allclose(value, expected, rtol=1e-6)


def test_masked_positions_are_never_read():
    batch = Batch(inputs=TOKENS, targets=TARGETS, mask=TOKENS != 1)
    dirty = Batch(inputs=TOKENS, targets=jnp.where(TOKENS == 1, -100, TARGETS), mask=TOKENS != 1)
    losses.cross_entropy.check(dirty)
    value, gradient = VALUE_AND_GRADIENT(losses.cross_entropy, Logits(TABLE.at[1].set(jnp.nan)), dirty)
    assert value == losses.cross_entropy(Logits(TABLE), batch)
    assert (gradient.table[1] == 0).all() and np.isfinite(gradient.table).all()


def test_cross_entropy_counts_long_sequences_in_low_precision():
    # 600 is not a bfloat16 number.
    batch = Batch(inputs=jnp.zeros((1, 600), int), targets=jnp.zeros((1, 600), int), mask=jnp.ones((1, 600), bool))
    np.testing.assert_allclose(
        losses.cross_entropy(Logits(jnp.zeros((1, 4), jnp.bfloat16)), batch), np.log(4), rtol=1e-5
    )


def test_kl():
    logits = jnp.array([0.3, -0.2, 1.1, 0.4])
    q = np.asarray(jax.nn.softmax(logits))
    expected = sum(p * np.log(p / q) for p, q in zip(P, q, strict=True) if p > 0)
    np.testing.assert_allclose(losses.kl(Vector(logits), jnp.asarray(P)), expected, rtol=1e-13)
    assert gradient_gap(losses.kl, Vector(logits), jnp.asarray(P)) < 1e-8
    np.testing.assert_allclose(losses.kl(Vector(jnp.log(jnp.asarray(q))), jnp.asarray(q)), 0, atol=1e-15)
    losses.kl.check(jnp.asarray(P))


def test_kl_reads_no_logit_of_zero_probability():
    model = Vector(jnp.array([0.3, -jnp.inf, 1.1, 0.4]))
    value, gradient = VALUE_AND_GRADIENT(losses.kl, model, jnp.asarray(P))
    assert np.isfinite(value) and np.isfinite(gradient.value).all() and gradient.value[1] == 0


def with_data(x=X, y=LABELS):
    return Data(x=jnp.asarray(x), y=jnp.asarray(y))


def with_batch(inputs=TOKENS, targets=TARGETS, mask=MASK):
    return Batch(inputs=inputs, targets=targets, mask=mask)


@pytest.mark.parametrize(
    ("loss", "args", "message"),
    [
        (losses.logistic, None, r"args is None; this loss needs samples, gf.tasks.Data\(x, y\)"),
        (losses.logistic, with_data(y=(LABELS + 1) / 2), r"label 0, labels must be -1 or 1; use 2 \* y - 1"),
        (losses.exponential, with_data(y=3 * LABELS), r"label -?3, labels must be -1 or 1; use `gf.losses.square`"),
        (losses.square, with_data(x=X[0]), r"x has shape \(3,\).*use x\[None, :\]"),
        (losses.square, with_data(x=X[None]), r"x has shape \(1, 7, 3\)"),
        (losses.square, with_data(y=LABELS[:5]), r"y has shape \(5,\) for 7 samples"),
        (losses.square, with_data(x=X[:0], y=LABELS[:0]), "mean over no samples"),
        (losses.square, with_data(x=np.where(X == X[2, 1], np.nan, X)), r"x\[2, 1\] is nan \(1 not finite\)"),
        (losses.logistic, with_data(y=np.full(7, np.inf)), r"y\[0\] is inf \(7 not finite\)"),
        (losses.kl, DATA, "args is a Data; kl needs a probability vector"),
        (losses.kl, jnp.array([1.5, -0.5]), "p holds -0.5"),
        (losses.kl, jnp.array([0.5, 0.4]), r"p sums to 0.9, it must sum to 1; use p / p.sum\(\)"),
        (losses.kl, jnp.eye(2), r"p has shape \(2, 2\)"),
        (losses.kl, jnp.array([np.nan, 1.0]), r"p\[0\] is nan"),
        (losses.cross_entropy, DATA, "args is a Data; cross_entropy needs a Batch"),
        (losses.cross_entropy, with_batch(targets=TARGETS * 1.0), "targets has dtype float64"),
        (losses.cross_entropy, with_batch(mask=MASK * 1), "mask has dtype int64"),
        (losses.cross_entropy, with_batch(mask=MASK[:, :2]), r"mask \(2, 2\)"),
        (losses.cross_entropy, with_batch(targets=-TARGETS), "targets holds -1 where mask is True"),
    ],
)
def test_bad_data_is_named(loss, args, message):
    with pytest.raises(FlowError, match=message):
        loss.check(args)


def test_checks_leave_legal_data_and_tracers_alone():
    assert losses.logistic.check(with_data(y=np.ones(7))) is None  # one class only
    assert losses.square.check(with_data(y=MARGINS)) is None
    for dtype in (jnp.float32, jnp.bfloat16):
        assert losses.kl.check(jax.nn.softmax(jnp.linspace(0, 3, 100)).astype(dtype)) is None
    assert jax.jit(lambda data: losses.logistic.check(data))(with_data(y=0 * LABELS)) is None


def test_an_own_loss_can_carry_a_check():
    def refuse(args):
        raise FlowError("args is bad")

    @losses.checked(refuse)
    def loss(model, args):
        return jnp.sum(args)

    assert loss(None, jnp.ones(2)) == 2
    with pytest.raises(FlowError, match="args is bad"):
        loss.check(jnp.ones(2))


def test_targets_that_the_model_has_no_class_for_are_named_before_the_run():
    inputs, targets = jnp.ones((1, 3, 4)), jnp.array([[0, 7, 1]])
    head = gf.models.AttentionHead.normal(jax.random.key(0), 4, 2, 2, 5)
    models = head, eqx.nn.Linear(4, 5, key=jax.random.key(0)), lambda x: x @ jnp.ones((4, 5))
    mapped = models[0], jax.vmap(models[1]), models[2]
    batch, padded = (Batch(inputs, targets, jnp.array([[True, keep, True]])) for keep in (True, False))
    for model in mapped:
        with pytest.raises(FlowError, match=r"targets holds 7 and the model has 5 classes: pass 0 \.\. 4"):
            losses.cross_entropy.check_model(model, batch)
        losses.cross_entropy.check_model(model, padded)
    for run in (gf.gradient_flow, gf.gradient_descent):
        options = {"t1": 1.0} if run is gf.gradient_flow else {"optimizer": optax.sgd(0.1), "steps": 1}
        with pytest.raises(FlowError, match="targets holds 7"):
            run(losses.cross_entropy, head, args=batch, **options)


class Unembedded(eqx.Module):
    """A network of one's own, whose `w_o` leads to features and not to classes."""

    w_o: Array
    unembedding: Array

    def __call__(self, x):
        return x @ self.w_o @ self.unembedding


def test_classes_are_those_of_the_logits_whatever_the_model_calls_its_arrays():
    model = Unembedded(jnp.ones((4, 2)), jnp.ones((2, 9)))
    good, bad = (Batch(jnp.ones((1, 2, 4)), jnp.array([[7, last]]), jnp.ones((1, 2), bool)) for last in (8, 9))
    losses.cross_entropy.check_model(model, good)
    with pytest.raises(FlowError, match="has 9 classes"):
        losses.cross_entropy.check_model(model, bad)


def test_auxiliary_cross_entropy_weighs_the_last_position_apart():
    batch = Batch(inputs=TOKENS, targets=TARGETS, mask=MASK)
    log_probability = jax.nn.log_softmax(TABLE, axis=-1)[TOKENS]
    surprise = -np.take_along_axis(np.asarray(log_probability), np.asarray(TARGETS)[..., None], -1)[..., 0]
    for auxiliary in (0.0, 0.2, 1.0):
        expected = surprise[:, 2].mean() + auxiliary * surprise[0, 0]  # of the others one counts
        found = losses.auxiliary_cross_entropy(Logits(TABLE), (batch, auxiliary))
        np.testing.assert_allclose(found, expected, rtol=1e-14)
    whole = Batch(TOKENS, TARGETS, jnp.ones_like(MASK))
    mean = losses.auxiliary_cross_entropy(Logits(TABLE), (whole, 2.0)) / 3
    np.testing.assert_allclose(mean, losses.cross_entropy(Logits(TABLE), whole), rtol=1e-14)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (Batch(TOKENS, TARGETS, MASK), r"the pair \(batch, auxiliary\)"),
        ((Batch(TOKENS, TARGETS, MASK), -0.1), "auxiliary is -0.1"),
        ((Batch(TOKENS, TARGETS, MASK), "much"), "auxiliary is 'much'"),
        ((Batch(TOKENS[:0], TARGETS[:0], MASK[:0]), 0.2), "at least one sequence"),
    ],
)
def test_auxiliary_cross_entropy_refuses(args, message):
    with pytest.raises(FlowError, match=message):
        losses.auxiliary_cross_entropy.check(args)


def test_tokens_that_the_model_does_not_know_are_named_before_a_run():
    model = gf.models.Transformer.init(jax.random.key(0), 4, width=2, heads=1, layers=1, positions=None)
    batch = Batch(TOKENS + 2, TARGETS, MASK)
    with pytest.raises(FlowError, match=r"tokens holds 4: pass numbers in \[0, 3\]"):
        gf.gradient_descent(losses.cross_entropy, model, optax.sgd(0.1), batch, steps=1)
