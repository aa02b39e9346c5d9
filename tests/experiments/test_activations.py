"""Six maps: verdicts, golden numbers, one kernel for many maps, kinks, controls that fail, figures, resuming."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from trial import Trial, changed, golden

from gradflow import activations
from gradflow.experiments.activations.config import NAMES, REFERENCE, SIX
from gradflow.experiments.panel import Objective, Panel, member, panel_loss
from gradflow.models import paper

TRIAL = Trial.of("activations", square_steps=40, logistic_steps=60, horizon=50.0, saves=8, late_tau=210.0, late_seeds=2)
EXPERIMENT, verdicts = TRIAL.experiment, TRIAL.verdicts
quick = TRIAL.fixture()
RECORDED_NUMBERS = golden("B_six_maps")


@pytest.mark.slow
def test_verdicts_are_the_recorded_ones(quick):
    assert verdicts(quick) == EXPERIMENT.recorded


@pytest.mark.slow
def test_every_claim_has_numbers_and_a_control(quick):
    TRIAL.check_claims(quick)


@pytest.mark.slow
def test_golden_numbers_are_met_by_descent(quick):
    keys = dict(zip(("L1", "Sum", "x2", "softmax", "ReLU", "sigmoid"), SIX, strict=True))
    for loss, factor in (("square", 10.0), ("logistic", 1.0)):
        for key, row in RECORDED_NUMBERS[loss].items():
            index = NAMES.index(keys[key].name)
            weights = quick["descent"][f"{loss}_weights"][-1, index]
            assert REFERENCE[loss][keys[key].name] == (row["max_weight"], row["min_weight"])
            np.testing.assert_allclose(
                (weights.max(), weights.min()), (row["max_weight"], row["min_weight"]), atol=1e-5
            )
            assert weights.argmax() + 1 == row["winner_one_based"]
            sliding = (loss, key) == ("logistic", "L1")
            value = factor * quick["descent"][f"{loss}_loss"][-1, index]
            np.testing.assert_allclose(value, row["loss"], rtol=2e-5 if sliding else 1e-5, atol=1e-28)


def test_a_map_moves_in_a_panel_as_by_itself():
    names = ("softmax", "normalised-square", "sigmoid")
    for loss in ("square", "logistic"):
        settings = [paper.six_maps(activations.by_name(name), loss) for name in names]
        first = settings[0]
        maps = tuple(setting.model.activation for setting in settings)
        panel = Panel.repeat(first.model.values, first.model.scores, maps)
        gradient = jax.grad(panel_loss)(panel, Objective.of(first.args.x, first.args.y, **{loss: 1.0}))
        for index, setting in enumerate(settings):
            alone = eqx.filter_grad(setting.loss)(setting.model, setting.args)
            np.testing.assert_allclose(gradient.values[index], alone.values, atol=1e-15)
            np.testing.assert_allclose(gradient.scores[index], alone.scores, atol=1e-15)


def test_an_unused_exponential_does_not_overflow():
    panel = Panel(jnp.full((1, 1, 2), -1e3), jnp.zeros((1, 2)), (activations.Softmax(),))
    data = jnp.ones((1, 1)), jnp.ones(1)
    assert np.isfinite(panel_loss(panel, Objective.of(*data, logistic=1.0)))
    assert np.isinf(panel_loss(panel, Objective.of(*data, exponential=1.0)))


def test_a_member_of_stacked_panels_has_its_own_map():
    maps = (activations.Softmax(), activations.Sigmoid())
    panel = Panel.repeat(jnp.ones((2, 3)), jnp.arange(3.0), maps)
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]), panel)
    models = member(stacked, 1)
    assert models.activation.name == "sigmoid" and models.values.shape == (2, 2, 3)
    np.testing.assert_allclose(models.weights[1], jax.nn.sigmoid(2 * jnp.arange(3.0)))


@pytest.mark.slow
def test_l1_ends_at_a_kink_and_nothing_else_does(quick):
    status = {loss: dict(zip(NAMES, quick["flow"][f"{loss}_status"], strict=True)) for loss in ("square", "logistic")}
    assert status["logistic"].pop("normalised-abs") == "kink"
    assert set(status["square"].values()) | set(status["logistic"].values()) == {"successful"}
    assert (quick["late"]["kink_smallest_score"] < 1e-6).all()


@pytest.mark.slow
def test_flow_and_descent_agree_at_equal_times(quick):
    last = quick["descent"]["square_weights"][-1]
    np.testing.assert_allclose(quick["flow"]["square_weights"][-1, : len(SIX)], last[: len(SIX)], atol=3e-3)


@pytest.mark.slow
def test_claims_fail_on_runs_that_break_them(quick):
    descent, flow, late = (quick[stage] for stage in ("descent", "flow", "late"))
    moved = descent["logistic_weights"] + 1e-3
    assert verdicts(changed(quick, "descent", logistic_weights=moved))["settings-reproduced"] != "holds"
    swapped = changed(quick, "descent", logistic_weights=descent["square_weights"][[0, -1]])
    assert verdicts(swapped)["normalised-maps-polarize"] == "does not hold"
    assert verdicts(swapped)["sum-leaves-the-simplex"] == "does not hold"
    assert (
        verdicts(changed(quick, "flow", logistic_drift=flow["logistic_drift"] + 1e-8))["primitive-conserved"] != "holds"
    )
    assert verdicts(changed(quick, "late", rest=late["rest"] + 0.1))["every-map-in-the-end"] == "holds in part"


@pytest.mark.slow
def test_figures_draw_without_warnings(quick, tmp_path):
    names = ["largest-share", "six-maps-logistic", "six-maps-square", "elementwise", "late-stage", "kink", "conserved"]
    TRIAL.check_figures(quick, names, tmp_path)


def test_paper_preset_checkpoints_and_resumes(tmp_path, monkeypatch):
    assert TRIAL.check_resuming("descent", tmp_path, monkeypatch) == ["logistic", "square"]


@pytest.mark.slow
def test_tiny_settings_run_through(tmp_path):
    TRIAL.check_all_runs(tmp_path)
