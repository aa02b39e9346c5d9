"""Condition numbers: verdicts, golden numbers, accuracy of the clock, controls that fail, figures, resuming."""

import importlib

import jax.numpy as jnp
import numpy as np
import pytest
from trial import Trial, changed, golden

from gradflow import losses
from gradflow.experiments.condition_number.claims import GOLDEN, families
from gradflow.flow import gradient_flow
from gradflow.laws import polarization as laws
from gradflow.models import ValueSoftmax
from gradflow.types import Data

TRIAL = Trial.of(
    "condition-number",
    steps=300,
    horizon=1e3,
    seeds=2,
    ensemble_kappas=(1.0, 3.0),
    targets=(2.0, 4.0),
    norms=(4.0, 8.0),
)
EXPERIMENT, CONFIG, verdicts = TRIAL.experiment, TRIAL.config, TRIAL.verdicts
quick = TRIAL.fixture()
RECORDED_NUMBERS = golden("D_condition_number")


@pytest.mark.slow
def test_verdicts_are_the_recorded_ones(quick):
    assert verdicts(quick) == EXPERIMENT.recorded


@pytest.mark.slow
def test_every_claim_has_numbers_and_a_control(quick):
    TRIAL.check_claims(quick)


@pytest.mark.slow
def test_golden_numbers_are_met_by_descent(quick):
    recorded = {float(kappa): (row["loss"], row["s_max"], row["entropy"]) for kappa, row in RECORDED_NUMBERS.items()}
    assert recorded == GOLDEN
    descent = quick["descent"]
    for row, kappa in enumerate(CONFIG.kappas):
        assert abs(descent["largest"][row, -1] - GOLDEN[kappa][1]) < 1e-5
        assert abs(descent["entropy"][row, -1] - GOLDEN[kappa][2]) < 1e-5
    assert abs(40 * descent["loss"][1, -1] / GOLDEN[2.0][0] - 1) < 1e-5


@pytest.mark.slow
def test_flow_and_descent_agree_at_equal_times(quick):
    flow, descent = quick["flow"], quick["descent"]
    row = int(np.abs(flow["t"] - CONFIG.paper_time).argmin())
    assert flow["t"][row] == pytest.approx(12_000)
    np.testing.assert_allclose(flow["entropy"][:, row], descent["entropy"][:, -1], atol=5e-4)


def test_the_clock_is_the_exact_one_for_one_sample():
    direction = jnp.eye(10)[0]
    scores = quick_scores()
    model = ValueSoftmax.zero_values(scores, 10)
    run = gradient_flow(
        laws.clocked(losses.square),
        laws.Clocked.start(model),
        Data(direction[None], jnp.full(1, 8.0)),
        t1=1e3,
        ts=np.geomspace(1, 1e3, 30),
        rtol=1e-10,
    )
    states = run.observed
    np.testing.assert_allclose(states.tau, jnp.einsum("d,tdn->t", direction, states.model.values), atol=1e-7)


def quick_scores():
    stages = importlib.import_module("gradflow.experiments.condition_number.stages")
    return stages.draw(CONFIG, 0, 1.0)[0].scores


@pytest.mark.slow
def test_the_clock_is_at_least_the_net_displacement(quick):
    for family in families(quick):
        assert (family.net <= family.tau + 1e-4).all()  # net holds V(0), of scale 1e-5, as well
    straight = families(quick)[0]
    base = straight.kappa == 1
    np.testing.assert_allclose(straight.net[base], straight.tau[base], rtol=1e-3)


@pytest.mark.slow
def test_the_ensemble_ends_where_it_should(quick):
    square, logistic = quick["square"], quick["logistic"]
    fixed = square["of_solution"] == 1
    np.testing.assert_allclose(square["norm_beta"][fixed], square["of_norm"][fixed], rtol=1e-5)
    np.testing.assert_allclose(logistic["norm_beta"], logistic["of_norm"], rtol=1e-8)
    assert all(np.isfinite(x).all() for stage in (square, logistic) for x in stage.values())


@pytest.mark.slow
def test_claims_fail_on_runs_that_break_them(quick):
    rng = np.random.default_rng(0)
    square, descent, flow = quick["square"], quick["descent"], quick["flow"]
    shuffled = {name: quick[name] | {"tau": rng.permutation(quick[name]["tau"])} for name in ("square", "logistic")}
    assert verdicts(quick | shuffled)["clock-decides"] != "holds"
    assert verdicts(changed(quick, "descent", entropy=descent["entropy"][::-1]))["kappa-sparsifies"] == "holds in part"
    assert verdicts(changed(quick, "descent", largest=descent["largest"] + 1e-4))["paper-run"] == "does not hold"
    assert verdicts(changed(quick, "descent", loss=descent["loss"] * 0))["runs-converged"] == "holds"
    assert verdicts(changed(quick, "flow", tau=flow["tau"] * 2))["square-partial"] == "does not hold"
    flat = np.full_like(square["entropy"], 2.0)
    assert verdicts(changed(quick, "square", entropy=flat))["every-loss"] == "does not hold"
    assert verdicts(changed(quick, "square", tau=square["tau"] * 0 + 200))["norm-does-the-same"] != "holds"
    exact = np.concatenate([family.predicted for family in families(quick)[:2]])
    order = np.concatenate([np.flatnonzero(square["of_solution"] == kind) for kind in (0, 1)])
    on_orbit = np.empty_like(exact)
    on_orbit[order] = exact
    assert verdicts(changed(quick, "square", entropy=on_orbit))["equal-clock"] == "holds"


@pytest.mark.slow
def test_figures_draw_without_warnings(quick, tmp_path):
    TRIAL.check_figures(quick, ["runs", "clock", "fixed-norm"], tmp_path)


def test_paper_preset_checkpoints_and_resumes(tmp_path, monkeypatch):
    assert EXPERIMENT.config.paper().steps == CONFIG.steps == 300_000
    assert len(TRIAL.check_resuming("descent", tmp_path, monkeypatch)) == len(TRIAL.tiny.kappas)


@pytest.mark.slow
def test_tiny_settings_run_through(tmp_path):
    TRIAL.check_all_runs(tmp_path)
