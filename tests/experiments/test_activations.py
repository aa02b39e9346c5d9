"""Six maps: verdicts, golden numbers, one kernel for many maps, kinks, controls that fail, figures, resuming."""

import dataclasses
import json
import warnings
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradflow import activations, experiments
from gradflow.descent import checkpoint
from gradflow.experiments.activations.config import NAMES, REFERENCE, SIX
from gradflow.experiments.panel import Objective, Panel, member, panel_loss
from gradflow.models import paper

EXPERIMENT = experiments.get("activations")
CONFIG = EXPERIMENT.config()
TINY = dataclasses.replace(
    EXPERIMENT.config.paper(), square_steps=40, logistic_steps=60, horizon=50.0, saves=8, late_tau=210.0, late_seeds=2
)
RECORDED_NUMBERS = json.loads((Path(__file__).parents[1] / "golden" / "polarization.json").read_text())


def compute(config, folder):
    results = {}
    for stage in EXPERIMENT.stages(config):
        (folder / stage.name).mkdir()
        results[stage.name] = stage.compute(folder / stage.name)
    return results


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    return compute(CONFIG, tmp_path_factory.mktemp("quick"))


def verdicts(results) -> dict[str, str]:
    return {claim.id: claim.verdict for claim in EXPERIMENT.claims(CONFIG, results)}


def changed(results, stage: str, **arrays):
    return results | {stage: results[stage] | arrays}


def test_verdicts_are_the_recorded_ones(quick):
    assert verdicts(quick) == dict(EXPERIMENT.recorded)


def test_every_claim_has_numbers_and_a_control(quick):
    for claim in EXPERIMENT.claims(CONFIG, quick):
        assert claim.statement and claim.paper and claim.control
        assert any(character.isdigit() for character in claim.measured) and "nan" not in claim.measured


def test_golden_numbers_are_met_by_descent(quick):
    keys = dict(zip(("L1", "Sum", "x2", "softmax", "ReLU", "sigmoid"), SIX, strict=True))
    for loss, factor in (("square", 10.0), ("logistic", 1.0)):
        for key, row in RECORDED_NUMBERS["B_six_maps"][loss].items():
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


def test_l1_ends_at_a_kink_and_nothing_else_does(quick):
    status = {loss: dict(zip(NAMES, quick["flow"][f"{loss}_status"], strict=True)) for loss in ("square", "logistic")}
    assert status["logistic"].pop("normalised-abs") == "kink"
    assert set(status["square"].values()) | set(status["logistic"].values()) == {"successful"}
    assert (quick["late"]["kink_smallest_score"] < 1e-6).all()


def test_flow_and_descent_agree_at_equal_times(quick):
    last = quick["descent"]["square_weights"][-1]
    np.testing.assert_allclose(quick["flow"]["square_weights"][-1, : len(SIX)], last[: len(SIX)], atol=3e-3)


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


def test_figures_draw_without_warnings(quick, tmp_path):
    from gradflow import plot

    figures = EXPERIMENT.figures(CONFIG, quick)
    assert [figure.name for figure in figures] == [
        "largest-share",
        "six-maps-logistic",
        "six-maps-square",
        "elementwise",
        "late-stage",
        "kink",
        "conserved",
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for figure in figures:
            assert figure.title and len(figure.caption) > 50 and len(figure.alt) > 50
            assert all(path.stat().st_size > 5_000 for path in plot.save(figure.draw(), tmp_path / figure.name))


def test_paper_preset_checkpoints_and_resumes(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "EVERY_SECONDS", 0.0)
    stage = next(stage for stage in EXPERIMENT.stages(TINY) if stage.name == "descent")
    first = stage.compute(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["logistic", "square"]
    again = stage.compute(tmp_path)
    assert all(np.array_equal(first[name], again[name], equal_nan=True) for name in first)


@pytest.mark.slow
def test_tiny_settings_run_through(tmp_path):
    results = compute(TINY, tmp_path)
    assert {claim.id for claim in EXPERIMENT.claims(TINY, results)} == set(EXPERIMENT.recorded)
    assert all(figure.draw() for figure in EXPERIMENT.figures(TINY, results))
