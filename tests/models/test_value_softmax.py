"""Value-softmax, its tied variant and their initialisers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gradflow as gf
from gradflow.models import TiedSoftmax, ValueSoftmax

KEY = jax.random.key(0)


@pytest.mark.parametrize(("d", "n"), [(1, 1), (1, 4), (3, 1), (3, 4)])
def test_the_model_is_values_times_weights(d, n):
    model = ValueSoftmax.normal(KEY, d, n, scale=0.5, score_scale=1.0)
    assert (model.values.shape, model.scores.shape, model().shape) == ((d, n), (n,), (d,))
    scores = np.asarray(model.scores)
    weights = np.exp(scores) / np.exp(scores).sum()
    np.testing.assert_allclose(model.weights, weights, rtol=1e-14)
    np.testing.assert_allclose(model(), np.asarray(model.values) @ weights, rtol=1e-12)


def test_normal_draws_what_it_says():
    model = ValueSoftmax.normal(KEY, 300, 300, scale=0.2, score_scale=0.5, score_mean=3.0)
    assert float(model.values.std()) == pytest.approx(0.2, rel=0.02)
    assert float(model.scores.std()) == pytest.approx(0.5, rel=0.15)
    assert float(model.scores.mean()) == pytest.approx(3.0, abs=0.1)
    np.testing.assert_array_equal(ValueSoftmax.normal(KEY, 2, 5).scores, 0.0)
    again = ValueSoftmax.normal(KEY, 300, 300, scale=0.2, score_scale=0.5, score_mean=3.0)
    np.testing.assert_array_equal(model.values, again.values)
    other = ValueSoftmax.normal(jax.random.key(1), 300, 300)
    assert abs(np.corrcoef(model.values.ravel(), other.values.ravel())[0, 1]) < 0.02


def test_values_and_scores_are_drawn_apart():
    model = ValueSoftmax.normal(KEY, 1, 500, scale=1.0, score_scale=1.0)
    assert abs(np.corrcoef(model.values[0], model.scores)[0, 1]) < 0.15


def test_normal_accepts_traced_scales_and_maps():
    scales = jnp.array([0.1, 1.0])
    models = jax.jit(jax.vmap(lambda s: ValueSoftmax.normal(KEY, 2, 3, scale=s)))(scales)
    np.testing.assert_allclose(models.values[1], 10 * models.values[0], rtol=1e-12)
    named = ValueSoftmax.normal(KEY, 2, 3, activation="sigmoid")
    np.testing.assert_allclose(named.weights, 0.5)


def test_zero_values():
    model = ValueSoftmax.zero_values(jnp.array([0.1, -0.2, 0.0]), 4)
    assert model.values.shape == (4, 3)
    np.testing.assert_array_equal(model(), 0.0)


def test_aligned():
    model = ValueSoftmax.aligned(jnp.array([3.0, 4.0]), jnp.array([0.5, -1.0, 2.0]))
    np.testing.assert_allclose(np.array([0.6, 0.8]) @ model.values, [0.5, -1.0, 2.0], rtol=1e-14)
    np.testing.assert_array_equal(model.scores, 0.0)
    assert np.linalg.matrix_rank(model.values) == 1
    scored = ValueSoftmax.aligned(jnp.array([3.0, 4.0]), jnp.ones(2), scores=jnp.array([1.0, 0.0]))
    np.testing.assert_array_equal(scored.scores, [1.0, 0.0])


def test_tied_softmax():
    matrix, query = np.random.RandomState(0).randn(3, 3), np.random.RandomState(1).randn(3)
    model = TiedSoftmax(jnp.asarray(matrix), jnp.asarray(query))
    scores = matrix @ query
    weights = np.exp(scores) / np.exp(scores).sum()
    np.testing.assert_allclose(model.scores, scores, rtol=1e-12)
    np.testing.assert_allclose(model.weights, weights, rtol=1e-12)
    np.testing.assert_allclose(model(), matrix @ weights, rtol=1e-12)


def test_tied_softmax_keeps_its_identity():
    """d(|U|^2/2 - |a|^2/2)/dt = gamma z (derived for the tied model), from the margin along the flow."""
    setting = gf.models.paper.tied(10)
    ts = np.linspace(0.0, 2.0, 401)
    run = gf.gradient_flow(setting.loss, setting.model, setting.args, t1=2.0, ts=ts, rtol=1e-11)
    margins = jnp.stack([jax.vmap(lambda u, a: TiedSoftmax(u, a)())(run.observed.values, run.observed.query)])[0]
    z = np.asarray(margins @ setting.args.x[0])
    invariant = np.asarray((run.observed.values**2).sum((1, 2)) - (run.observed.query**2).sum(1)) / 2
    slope = (invariant[2:] - invariant[:-2]) / (ts[2:] - ts[:-2])
    np.testing.assert_allclose(slope, (z / (1 + np.exp(z)))[1:-1], atol=2e-5)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: ValueSoftmax(jnp.ones((2, 3)), jnp.ones(4)), r"values has shape \(2, 3\) and scores has shape \(4,\)"),
        (lambda: ValueSoftmax(jnp.ones(3), jnp.ones(3)), r"values has shape \(3,\)"),
        (lambda: ValueSoftmax(jnp.ones((2, 3)), jnp.ones(3), gf.activations.Softmax), r"pass one of it, Softmax\(\)"),
        (lambda: ValueSoftmax(jnp.ones((2, 3)), jnp.ones(3), jax.nn.softmax), "pass one of gf.activations"),
        (lambda: ValueSoftmax(jnp.ones((2, 3)), jnp.ones(3), "relu"), "activation is 'relu': pass the map itself"),
        (lambda: TiedSoftmax(jnp.eye(3), jnp.ones(3), gf.activations.Softmax), "pass one of it"),
        (lambda: ValueSoftmax.normal(0, 2, 3), "key is 0: pass a random key"),
        (lambda: ValueSoftmax.normal(KEY, 2, 3, scale="x"), "scale is 'x'"),
        (lambda: ValueSoftmax.normal(KEY, 2, 3, score_scale=-1.0), "score_scale is -1.0"),
        (lambda: TiedSoftmax(jnp.ones((2, 3)), jnp.ones(3)), r"values has shape \(2, 3\) and query"),
        (lambda: TiedSoftmax(jnp.ones((3, 3)), jnp.ones(2)), r"query has shape \(2,\)"),
        (lambda: ValueSoftmax.normal(KEY, 0, 3), "d is 0"),
        (lambda: ValueSoftmax.normal(KEY, 3, 0), "n is 0"),
        (lambda: ValueSoftmax.zero_values(jnp.ones(0), 2), "n is 0"),
        (lambda: ValueSoftmax.normal(KEY, 2, 3, activation="sofmax"), "did you mean 'softmax'"),
    ],
)
def test_bad_input(make, match):
    with pytest.raises(gf.FlowError, match=match) as caught:
        make()
    assert "\n" not in str(caught.value)


DATA = gf.tasks.single_sample(jnp.array([1.0, 0.0]))


@jax.jit
def flow_ends(values, scores):
    ts = jnp.linspace(0.0, 20.0, 9)
    run = gf.gradient_flow(gf.losses.logistic, ValueSoftmax(values, scores), DATA, t1=20.0, ts=ts, rtol=1e-9)
    models = jax.vmap(lambda v, a: gf.losses.logistic(ValueSoftmax(v, a), DATA))
    return run.observed.scores, models(run.observed.values, run.observed.scores), run.result == gf.RESULTS.successful


finite = st.floats(-3, 3, allow_nan=False, width=32)


@given(st.lists(finite, min_size=6, max_size=6), st.lists(finite, min_size=3, max_size=3))
def test_along_any_flow_the_loss_falls_and_scores_keep_their_sum(values, scores):
    path, losses, ended = flow_ends(jnp.array(values).reshape(2, 3), jnp.array(scores))
    assert ended
    assert (np.diff(losses) <= 1e-12).all()
    np.testing.assert_allclose(path.sum(1), np.sum(scores), atol=1e-9)
