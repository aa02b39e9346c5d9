"""The sweep over maps: made results that obey and break the laws, the padded member, crossing times, real runs."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from trial import Trial, changed, check_equal

from gradflow import losses
from gradflow.activations import by_name, names
from gradflow.experiments.sweep_activations import problem, readings
from gradflow.experiments.sweep_activations.config import FEATURES, LOSSES, SCORE, log_slope
from gradflow.experiments.sweep_activations.stages import crossing_times
from gradflow.models import ValueSoftmax
from gradflow.types import Data

TRIAL = Trial.of(
    "sweep-activations",
    preset="quick",
    maps=("softmax", "sigmoid"),
    sliding_maps=("normalised-abs",),
    sizes=(4, 8),
    scales=(1e-3, 1e-2),
    kappas=(1.0, 10.0),
    kappa_scales=(1e-2, 1e-1),
    seeds=2,
    kappa_seeds=2,
    sliding_seeds=1,
    horizon=1e6,
)
EXPERIMENT, CONFIG, verdicts = TRIAL.experiment, TRIAL.config, TRIAL.verdicts
SQUARE, LOGISTIC, EXPONENTIAL = range(3)


def made(config=CONFIG):
    """Results as the laws have them: t = 1.7 n / gap^(1/k), and entropies that only the clock decides."""
    rng = np.random.default_rng(0)
    shape = (len(config.maps), 3, len(config.sizes), len(config.scales), config.seeds)
    sizes, scales = np.asarray(config.sizes, float), np.asarray(config.scales)
    gaps = np.broadcast_to(scales[:, None] * rng.uniform(1, 2, (len(sizes), 1, config.seeds)), shape)
    half, largest = np.full(shape, np.nan), np.full(shape, 0.3)
    for row, name in enumerate(config.maps):
        if name in readings.normalised(config):
            half[row, 1:] = 1.7 * sizes[:, None, None] / gaps[row, 1:] ** (1 / (log_slope(name) or 1))
            largest[row, 1:] = 0.99
    length = {"half": half, "most": 2 * half, "gap": gaps, "largest": largest, **_known(shape)}
    return {
        "length": length,
        "condition": _condition(config, rng),
        "sliding": _sliding(config),
        "refined": {"half": half[0, LOGISTIC] * 1.001},
    }


def _known(shape):
    leader = np.ones(shape, int)
    return {"winner": leader, "leader": leader, "longest": np.zeros(shape, int), "result": np.full(shape, "successful")}


def _condition(config, rng):
    shape = (len(config.maps), 3, len(config.sizes), len(config.kappa_scales), len(config.kappas), config.kappa_seeds)
    tau = 2 * np.log1p(np.asarray(config.kappas))[:, None] * rng.uniform(0.5, 1.5, shape)
    tau = np.sort(tau, axis=4) + 3.0 * (np.arange(3) > 0)[:, None, None, None, None]
    share = np.exp(-tau / 2)
    for row, name in enumerate(config.maps):
        if name in readings.elementwise(config):
            share[row] = 1.0
    entropy = share * np.log(np.asarray(config.sizes, float))[:, None, None, None]
    largest = np.where(share < 1, 0.99, 0.3)
    return {"entropy": entropy, "tau": tau, "gap": 0.1 * np.ones(shape), "largest": largest, **_known(shape)}


def _sliding(config):
    shape = (len(config.sliding_maps), 3, len(config.sizes), len(config.scales), config.sliding_seeds)
    return {"largest": np.full(shape, 0.3), **_known(shape), "result": np.full(shape, "kink")}


def test_every_claim_holds_where_the_laws_hold():
    assert set(verdicts(made()).values()) == {"holds"}
    assert set(verdicts(made())) == set(EXPERIMENT.recorded)


def test_every_claim_has_numbers_and_a_control():
    TRIAL.check_claims(made())


def test_laws_of_times_fail_on_times_that_break_them():
    results = made()
    half, gaps = (results["length"][key] for key in ("half", "gap"))
    sizes = np.asarray(CONFIG.sizes, float)[:, None, None]
    assert verdicts(changed(results, "length", half=half * sizes**0.2))["length-law"] == "holds in part"
    steeper = verdicts(changed(results, "length", half=half * gaps**0.5))
    assert steeper["length-law"] == "holds in part" and steeper["length-law-of-other-maps"] == "does not hold"
    fit = readings.fit(CONFIG, results, "softmax", LOGISTIC)
    assert fit is not None and abs(fit.size - 1) < 1e-9 and abs(fit.gap - 1) < 1e-9
    assert fit.gap_interval == pytest.approx((1, 1)) and fit.explained > 1 - 1e-9 > fit.explained_by_size
    assert readings.fit(CONFIG, results, "softmax", SQUARE) is None


def test_claims_about_ends_fail_on_other_ends():
    results = made()
    length, condition = results["length"], results["condition"]
    swapped = verdicts(changed(results, "length", largest=1.29 - length["largest"]))
    assert swapped["normalised-maps-go-one-hot"] == "does not hold"
    assert swapped["elementwise-maps-do-not"] == "does not hold"
    assert swapped["square-polarizes-partly"] == "holds in part"
    rng = np.random.default_rng(1)
    tau = rng.permutation(condition["tau"].ravel()).reshape(condition["tau"].shape)
    assert verdicts(changed(results, "condition", tau=tau))["clock-decides"] == "does not hold"
    reverse = condition["entropy"][:, :, :, :, ::-1]
    assert verdicts(changed(results, "condition", entropy=reverse))["kappa-sparsifies"] == "does not hold"


def test_claims_about_winners_and_codes_fail_on_others():
    results = made()
    winner = results["length"]["winner"].copy()
    winner[0, LOGISTIC, 0, 0, 0] = 0
    assert verdicts(changed(results, "length", winner=winner))["winner"] == "does not hold"
    many = results["condition"]["winner"].copy()
    many[..., -1, :] = 0
    assert verdicts(changed(results, "condition", winner=many))["winner-of-many-samples"] == "holds in part"
    codes = results["length"]["result"].astype("U20")
    codes[0, 0, 0, 0, 0] = "nonfinite_loss"
    assert verdicts(changed(results, "length", result=codes))["failures-are-kinks"] == "does not hold"


def test_figures_draw_without_warnings(tmp_path):
    names = ["outcomes", "one-hot-times", "length-law", "entropies", "condition-law", "winner"]
    TRIAL.check_figures(made(), names, tmp_path)


def test_crossing_times_are_interpolated_in_log_odds_over_log_t():
    ts = np.concatenate([[0.0], np.geomspace(0.1, 1e4, 51)])
    share = 1 / (1 + (30.0 / np.maximum(ts, 1e-2)) ** 2)  # log-odds 2 log(t / 30)
    late = np.where(ts < 1e3, 0.2, np.nan)
    above = np.full_like(ts, 0.7)
    half = crossing_times(ts, np.stack([share, late, above]), 0.5)
    assert half[0] == pytest.approx(30, rel=1e-12) and np.isnan(half[1]) and half[2] == 0
    assert crossing_times(ts, share, 0.9) == pytest.approx(90, rel=1e-12)


@pytest.mark.slow
def test_a_padded_member_is_a_value_softmax_with_its_clock():
    build = functools.partial(problem.many_samples, activation="softmax", scale=0.5, kappa=3.0, size=6, target=4.0)
    for kind, name in enumerate(LOSSES):
        loss, model, given = build(jax.random.key(3), loss_kind=kind, n=4)
        data, plain = Data(given.objective.x, given.objective.y), ValueSoftmax(model.values[:, :4], model.scores[:4])
        reference = getattr(losses, name)
        value, gradient = eqx.filter_value_and_grad(loss)(model, given)
        expected, slope = eqx.filter_value_and_grad(reference)(plain, data)
        assert value == pytest.approx(float(expected), rel=1e-12)
        np.testing.assert_allclose(gradient.values[:, :4], slope.values, atol=1e-14)
        np.testing.assert_allclose(gradient.scores[:4], slope.scores, atol=1e-14)
        assert not gradient.values[:, 4:].any() and not gradient.scores[4:].any()
        force = slope.values @ plain.weights / (plain.weights**2).sum()
        assert -gradient.tau == pytest.approx(float(jnp.linalg.norm(force)), rel=1e-12)


def test_shorter_sequences_start_as_parts_of_longer_ones():
    build = functools.partial(problem.one_sample, activation="sigmoid", loss_kind=1, scale=0.5, size=6, target=4.0)
    (_, short, at), (_, long, _) = (build(jax.random.key(3), n=n) for n in (3, 6))
    np.testing.assert_array_equal(short.values[:, :3], long.values[:, :3])
    u = np.asarray(at.objective.x[0] @ short.values[:, :3])
    assert int(at.leader) == u.argmax() and float(at.gap) == pytest.approx(u.max() - u.mean())
    np.testing.assert_allclose(short.weights[:3], jax.nn.sigmoid(SCORE))
    assert not short.weights[3:].any()
    assert at.objective.x.shape == (FEATURES, FEATURES) and (at.objective.y == 1).all()


def test_log_slopes_are_those_of_the_maps():
    sigmoid = 1 - jax.nn.sigmoid(1.0)
    expected = {"softmax": 1, "normalised-square": 2, "normalised-abs": 1, "normalised-sigmoid": sigmoid}
    for name, slope in expected.items():
        assert log_slope(name) == pytest.approx(float(slope))
    assert log_slope("sparsemax") is None and log_slope("sigmoid") is None
    assert all(by_name(name) is not None for name in EXPERIMENT.config.paper().maps)


def test_presets_have_their_sizes():
    def flows(config):
        one = 3 * len(config.sizes) * len(config.scales) * config.seeds
        many = 3 * len(config.sizes) * len(config.kappa_scales) * len(config.kappas) * config.kappa_seeds
        return len(config.maps) * (one + many)

    paper = EXPERIMENT.config.paper()
    assert 10_000 < flows(CONFIG) < flows(paper) / 10
    assert set(paper.maps) | set(paper.sliding_maps) == set(names())


@pytest.mark.slow
def test_tiny_settings_run_through_and_resume(tmp_path):
    results = TRIAL.check_all_runs(tmp_path)
    check_equal(results, TRIAL.compute(TRIAL.tiny, tmp_path))
    half, refined = results["length"]["half"][0, LOGISTIC], results["refined"]["half"]
    np.testing.assert_allclose(half, refined, rtol=0.01)
    assert set(results["sliding"]["result"][0, LOGISTIC].ravel()) <= {"kink", "successful"}
    assert (results["length"]["winner"] == results["length"]["leader"])[0].all()


@pytest.mark.slow
def test_verdicts_are_the_recorded_ones(tmp_path):
    results = TRIAL.compute(CONFIG, tmp_path)
    assert verdicts(results) == EXPERIMENT.recorded
    assert sum(results[stage]["largest"].size for stage in ("length", "condition", "sliding")) > 10_000
