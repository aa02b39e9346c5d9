"""Tied values: verdicts, golden numbers, the identity and its control, figures, resuming."""

import dataclasses
import json
import warnings
from pathlib import Path

import numpy as np
import pytest

from gradflow import experiments
from gradflow.descent import checkpoint
from gradflow.experiments.tied_values.claims import growth, identity_residual, winner_norm
from gradflow.experiments.tied_values.config import REFERENCE

EXPERIMENT = experiments.get("tied-values")
CONFIG = EXPERIMENT.config()
TINY = dataclasses.replace(EXPERIMENT.config.paper(), dimensions=(10,), steps=100, horizon=20.0, saves=8)
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


@pytest.mark.parametrize("d", CONFIG.dimensions)
def test_golden_numbers_are_met_by_descent(quick, d):
    row, run = RECORDED_NUMBERS["C_tied"][str(d)], quick[f"D{d}"]
    assert tuple(REFERENCE[d]) == (row["loss"], row["s_max"], row["winner_column_norm"], row["median_column_norm"])
    assert run["descent_loss"][-1] == pytest.approx(row["loss"], rel=1e-5)
    assert run["descent_weights"][-1].max() == pytest.approx(row["s_max"], abs=1e-5)
    assert winner_norm(quick, f"D{d}", "descent")[-1] == pytest.approx(row["winner_column_norm"], rel=1e-5)
    assert np.median(run["descent_norms"][-1]) == pytest.approx(row["median_column_norm"], rel=1e-5)


@pytest.mark.parametrize("d", CONFIG.dimensions)
def test_the_flow_of_three_models_holds_the_library_s_tied_one(quick, d):
    run = quick[f"D{d}"]
    assert run["flow_status"] == "successful"
    matched = int(np.argmin(np.abs(run["flow_t"] - run["descent_t"][-1])))
    assert run["flow_t"][matched] == pytest.approx(500)
    np.testing.assert_allclose(run["flow_weights"][matched, 0], run["descent_weights"][-1], atol=2e-5)
    np.testing.assert_allclose(run["flow_norms"][matched, 0], run["descent_norms"][-1], atol=1e-2)


def test_the_identity_needs_tying_and_no_softmax(quick):
    assert identity_residual(quick, 10, 0).max() < 1e-12 and identity_residual(quick, 10, 2).max() < 1e-12
    assert identity_residual(quick, 10, 1).max() > 0.1


def test_competition_and_not_tying_grows_a_column(quick):
    tied, untied, sigmoid = (growth(quick, "D10", model)[-1] for model in range(3))
    assert tied > untied > 10 and sigmoid < 1.5


def test_claims_fail_on_runs_that_break_them(quick):
    run = quick["D10"]
    assert verdicts(changed(quick, "D10", descent_loss=run["descent_loss"] * 1.1))["settings-reproduced"] != "holds"
    spread = np.full_like(run["descent_weights"], 0.1)
    assert verdicts(changed(quick, "D10", descent_weights=spread))["tied-polarizes"] == "holds in part"
    assert (
        verdicts(changed(quick, "D10", flow_norms=np.ones_like(run["flow_norms"])))["one-column-grows"]
        == "holds in part"
    )
    assert verdicts(changed(quick, "D10", flow_energy=run["flow_energy"][::-1]))["energy-identity"] == "holds in part"


def test_figures_draw_without_warnings(quick, tmp_path):
    from gradflow import plot

    figures = EXPERIMENT.figures(CONFIG, quick)
    assert [figure.name for figure in figures] == ["tied-values", "weights", "controls", "energy-identity"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for figure in figures:
            assert figure.title and len(figure.caption) > 50 and len(figure.alt) > 50
            assert all(path.stat().st_size > 5_000 for path in plot.save(figure.draw(), tmp_path / figure.name))


def test_paper_preset_checkpoints_and_resumes(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "EVERY_SECONDS", 0.0)
    stage = next(stage for stage in EXPERIMENT.stages(TINY) if stage.name == "D10")
    first = stage.compute(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["descent"]
    again = stage.compute(tmp_path)
    assert all(np.array_equal(first[name], again[name]) for name in first)


@pytest.mark.slow
def test_tiny_settings_run_through(tmp_path):
    results = compute(TINY, tmp_path)
    assert {claim.id for claim in EXPERIMENT.claims(TINY, results)} == set(EXPERIMENT.recorded)
    assert all(figure.draw() for figure in EXPERIMENT.figures(TINY, results))
