"""Laws 1, 2, 3, 20 under flow and descent, the rates in `conserved`, and what other models conserve."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from systems import flow, largest, members, starts, times, unit_samples

import gradflow as gf
from gradflow.laws.invariants import conserved_drift

laws = gf.laws.polarization
LOGISTIC = gf.losses.logistic
KEY = jax.random.key(20)

# One map and shape a kernel; every d and n comes up.
MAPS = (
    ("normalised-sigmoid", 3, 8, 1e5, 1e-9),
    pytest.param("normalised-softplus", 8, 3, 1e5, 1e-9, marks=pytest.mark.slow),
    pytest.param("normalised-square", 1, 2, 1e5, 1e-9, marks=pytest.mark.slow),
    ("sigmoid", 32, 32, 1e8, 1e-7),
    pytest.param("exp", 2, 1, 1e5, 1e-9, marks=pytest.mark.slow),
)


@pytest.mark.parametrize(("name", "d", "n", "horizon", "tolerance"), MAPS, ids=lambda x: str(x))
def test_primitives_are_conserved(name, d, n, horizon, tolerance):
    act = gf.activations.by_name(name)
    models = starts(KEY, d, n, score_scale=0.1, score_mean=1.0, activation=act)
    path = flow(LOGISTIC, models, unit_samples(KEY, d), times(1e-1, horizon))
    drift = laws.primitive(path)
    assert drift.shape == (*path.scores.shape[:2],) + (() if act.normalised else (n,))
    assert largest(drift) < tolerance


def test_elementwise_maps_break_the_law_of_normalised_ones():
    models = starts(KEY, 2, 1, score_scale=0.1, score_mean=1.0, activation=gf.activations.by_name("exp"))
    path = flow(LOGISTIC, models, unit_samples(KEY, 2), times(1e-1, 1e5))
    as_softmax = eqx.tree_at(lambda m: m.activation, path, gf.activations.Softmax())
    assert largest(laws.score_sum(as_softmax)) > 0.1
    with pytest.raises(gf.FlowError, match="softmax"):
        laws.score_sum(path)
    with pytest.raises(gf.FlowError, match="no conserved primitive"):
        laws.primitive(eqx.tree_at(lambda m: m.activation, path, gf.activations.Softmax1()))


@pytest.mark.slow
def test_rates_enter_the_invariants():
    rates = {"values": jnp.asarray(3.0), "scores": jnp.asarray(0.5)}
    sigmoid = starts(KEY, 3, 8, score_mean=1.0, activation=gf.activations.by_name("exp"))
    path = flow(LOGISTIC, sigmoid, unit_samples(KEY, 3), times(1e-1, 1e4), rates=rates)
    drift = members(lambda p: conserved_drift(p, None, rates)["value_primitive"], path)
    assert largest(drift) < 1e-9
    assert largest(laws.primitive(path)) > 1e-2, "without the rates it drifts"
    softmax = gf.activations.Softmax(temperature=0.7)
    two = starts(KEY, 3, 2, score_scale=0.1, activation=softmax)
    path = flow(LOGISTIC, two, unit_samples(KEY, 3), times(1e-1, 1e4), rates=rates)
    assert largest(laws.hyperbolic(path, rates)) < 1e-7
    assert largest(laws.hyperbolic(path)) > 1e-2
    assert largest(laws.score_sum(path)) < 1e-12


@pytest.mark.slow
def test_columns_of_a_target_distribution_are_conserved():
    p = jax.vmap(lambda k: gf.tasks.target_distribution(k, 8))(jax.random.split(KEY, 20))
    path = flow(gf.losses.kl, starts(KEY, 8, 3), p, times(1e-1, 1e4))
    assert largest(laws.column_sums(path)) < 1e-9
    assert largest(path.values[:, -1] - path.values[:, 0]) > 0.1
    assert "column_sums" in gf.laws.conserved(gf.models.ValueSoftmax.normal(KEY, 8, 3), p[0])


def test_sum_of_scores_is_exact_under_descent():
    setting = gf.models.paper.logistic()
    steps = np.asarray([0, 1, 1000, 1_000_000])
    run = gf.gradient_descent(setting.loss, setting.model, optax.sgd(0.1), setting.args, steps=1_000_000, save_at=steps)
    assert largest(laws.score_sum(run)) < 1e-12
    assert largest(laws.perpendicular_values(run, laws.one_sample_direction(setting.args))) < 1e-12
    assert float(run.final.weights.max()) > 0.9


def test_hyperbolic_invariant_drifts_like_the_step_size_under_descent():
    model = gf.models.ValueSoftmax.aligned(jnp.ones(1), jnp.asarray([0.3, -0.1]))
    sample = gf.tasks.single_sample(jnp.ones(1))
    sizes = np.asarray([0.1, 0.05, 0.025])
    drifts = []
    for size in sizes:
        steps = round(1000 / size)
        run = gf.gradient_descent(LOGISTIC, model, optax.sgd(size), sample, steps=steps, save_at=[0, steps])
        drifts.append(float(laws.hyperbolic(run)[-1]))
    np.testing.assert_allclose(drifts / sizes, -0.036, atol=0.002)
    assert abs(float(gf.gap_order(sizes, np.abs(drifts))) - 1) < 0.05


def test_conserved_names_what_applies():
    value = gf.models.ValueSoftmax
    data = gf.tasks.linear_classification(KEY, 3, 5)
    act = gf.activations.by_name
    expected = [
        (value.normal(KEY, 5, 4), {"score_sum", "values_outside_data"}),
        (value.normal(KEY, 5, 2), {"score_sum", "hyperbolic", "values_outside_data"}),
        (value.normal(KEY, 5, 4, activation=act("sigmoid")), {"value_primitive", "values_outside_data"}),
        (value.normal(KEY, 5, 4, activation=act("normalised-sigmoid")), {"primitive_sum", "values_outside_data"}),
        (value.normal(KEY, 5, 4, activation=act("normalised-sigmoid", floor=0.1)), {"values_outside_data"}),
        (value.normal(KEY, 5, 4, activation=act("softmax1")), {"values_outside_data"}),
        (gf.models.TiedSoftmax(jnp.eye(5), jnp.ones(5)), set()),
        (gf.models.DeepLinear.normal(KEY, (5, 4, 3, 1)), {"balance_1", "balance_2", "matrix_outside_data"}),
        (eqx.nn.Linear(5, 1, key=KEY), set()),
    ]
    for model, names in expected:
        assert set(gf.laws.conserved(model, data)) == names
    assert set(gf.laws.conserved(value.normal(KEY, 5, 2))) == {"score_sum", "hyperbolic"}
    assert set(gf.laws.conserved(gf.models.TiedSoftmax(jnp.eye(5), jnp.ones(5)), jnp.ones(5) / 5)) == {"column_sums"}
    trained = value.normal(KEY, 5, 2, activation=gf.activations.Softmax(temperature=jnp.ones(())))
    assert set(gf.laws.conserved(trained)) == {"score_sum"}
    with pytest.raises(gf.FlowError, match="rates"):
        gf.laws.conserved(value.normal(KEY, 5, 2), data, rates={"value": 2.0})
