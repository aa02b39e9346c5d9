"""Real data: verdicts, what separable means, the winner rule, controls that fail, figures, resuming."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from trial import Trial, changed

from gradflow import losses
from gradflow.experiments.real_data.claims import FROZEN, SOFTMAX, largest
from gradflow.experiments.real_data.config import MAPS, SIZE, TASKS
from gradflow.types import Data

TRIAL = Trial.of("real-data", **{name.replace("-", "_"): 3.0 for name in TASKS}, seeds=1, descent_steps=40, saves=8)
EXPERIMENT, CONFIG, verdicts = TRIAL.experiment, TRIAL.config, TRIAL.verdicts
quick = TRIAL.fixture()
parts = importlib.import_module("gradflow.experiments.real_data.stages")


@pytest.mark.slow
def test_verdicts_are_the_recorded_ones(quick):
    assert verdicts(quick) == EXPERIMENT.recorded


@pytest.mark.slow
def test_every_claim_has_numbers_and_a_control(quick):
    TRIAL.check_claims(quick)


@pytest.mark.parametrize("name", ["wine-separable", "wine-overlapping", "breast-cancer", "digits"])
def test_separable_means_separable(name):
    from scipy.optimize import linprog

    train, _ = parts.load(name)
    margins = np.asarray(train.x) * np.asarray(train.y)[:, None]
    found = linprog(np.zeros(margins.shape[1]), A_ub=-margins, b_ub=-np.ones(len(margins)), bounds=(None, None))
    assert (found.status == 0) == TASKS[name].separable


def test_losses_and_gradients_are_the_library_s():
    train, _ = parts.load("wine-overlapping")
    beta = np.random.default_rng(0).normal(size=train.x.shape[1])
    for name in ("square", "logistic", "exponential"):
        value, gradient = jax.value_and_grad(lambda b, name=name: getattr(losses, name)(lambda: b, train))(
            jnp.asarray(beta)
        )
        np.testing.assert_allclose(parts.losses_of(beta, train, name), value, rtol=1e-12)
        np.testing.assert_allclose(parts.gradient(beta, train, name), gradient, rtol=1e-9, atol=1e-12)


def test_the_floor_is_a_minimum():
    train, _ = parts.load("wine-overlapping")
    x, y = np.array([[1.0], [1.0], [1.0]]), np.array([1.0, 1.0, -1.0])
    assert parts.floor(Data(x, y), "logistic") == pytest.approx(np.log(3) - 2 / 3 * np.log(2))
    assert parts.floor(train, "logistic") < np.log(2) and parts.floor(train, "square") < 0.5


@pytest.mark.slow
def test_every_run_reaches_its_horizon_above_its_floor(quick):
    for name in TASKS:
        assert quick[name]["status"] == "successful"
        assert (quick[name]["loss"][:, -1] >= quick[name]["floor"] - 1e-12).all()


@pytest.mark.slow
def test_starts_are_uniform_and_frozen_attention_stays_so(quick):
    for name in TASKS:
        np.testing.assert_allclose(quick[name]["shares"][:, 0], 1 / SIZE, atol=1e-15)
        np.testing.assert_array_equal(quick[name]["shares"][FROZEN], 1 / SIZE)


@pytest.mark.slow
def test_descent_moves_towards_the_flow_of_the_same_start(quick):
    run, flow = quick["descent"], quick["wine-separable"]
    np.testing.assert_allclose(run["shares"][0, 0, 0], flow["shares"][SOFTMAX, 0, CONFIG.seeds], atol=1e-15)
    assert run["shares"][0, -1].argmax() == flow["shares"][SOFTMAX, -1, CONFIG.seeds].argmax()


@pytest.mark.slow
def test_claims_fail_on_runs_that_break_them(quick):
    run = quick["wine-separable"]
    assert (
        verdicts(changed(quick, "wine-separable", shares=run["shares"][:, ::-1]))["separable-data-polarize"] != "holds"
    )
    assert verdicts(changed(quick, "wine-separable", clock=run["clock"] * 0))["clock-decides"] == "does not hold"
    assert verdicts(changed(quick, "wine-separable", drift=run["drift"] + 1e-3))["laws-on-any-data"] == "does not hold"
    swapped = run["shares"][::-1]
    assert verdicts(changed(quick, "wine-separable", shares=swapped))["normalisation-decides"] == "does not hold"
    assert (
        verdicts(changed(quick, "wine-separable", test_score=-run["test_score"]))["one-hot-predicts-better"] != "holds"
    )
    ideal = {name: quick[name] | {"predicted": quick[name]["shares"][SOFTMAX, -1].argmax(-1)} for name in TASKS}
    assert verdicts(quick | ideal)["initial-force-picks-the-winner"] == "holds"


def test_the_largest_share_of_each_start():
    assert largest({"t": {"shares": np.eye(3)[None, None]}}, "t", 0).tolist() == [1, 1, 1] and len(MAPS) == 5


@pytest.mark.slow
def test_figures_draw_without_warnings(quick, tmp_path):
    TRIAL.check_figures(quick, ["largest-weight", "clock", "loss", "winners", "conserved", "descent"], tmp_path)


def test_paper_preset_checkpoints_and_resumes(tmp_path, monkeypatch):
    assert TRIAL.check_resuming("descent", tmp_path, monkeypatch) == ["descent"]


@pytest.mark.slow
def test_tiny_settings_run_through(tmp_path):
    TRIAL.check_all_runs(tmp_path)
