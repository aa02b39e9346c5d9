"""Tied values: verdicts, golden numbers, the identity and its control, figures, resuming."""

import numpy as np
import pytest
from trial import Trial, changed, golden

from gradflow.experiments.tied_values.claims import growth, identity_residual, winner_norm
from gradflow.experiments.tied_values.config import REFERENCE

TRIAL = Trial.of("tied-values", dimensions=(10,), steps=100, horizon=20.0, saves=8)
EXPERIMENT, CONFIG, verdicts = TRIAL.experiment, TRIAL.config, TRIAL.verdicts
quick = TRIAL.fixture()
RECORDED_NUMBERS = golden("C_tied")


@pytest.mark.slow
def test_verdicts_are_the_recorded_ones(quick):
    assert verdicts(quick) == EXPERIMENT.recorded


@pytest.mark.slow
def test_every_claim_has_numbers_and_a_control(quick):
    TRIAL.check_claims(quick)


@pytest.mark.slow
@pytest.mark.parametrize("d", CONFIG.dimensions)
def test_golden_numbers_are_met_by_descent(quick, d):
    row, run = RECORDED_NUMBERS[str(d)], quick[f"D{d}"]
    assert tuple(REFERENCE[d]) == (row["loss"], row["s_max"], row["winner_column_norm"], row["median_column_norm"])
    assert run["descent_loss"][-1] == pytest.approx(row["loss"], rel=1e-5)
    assert run["descent_weights"][-1].max() == pytest.approx(row["s_max"], abs=1e-5)
    assert winner_norm(quick, f"D{d}", "descent")[-1] == pytest.approx(row["winner_column_norm"], rel=1e-5)
    assert np.median(run["descent_norms"][-1]) == pytest.approx(row["median_column_norm"], rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("d", CONFIG.dimensions)
def test_the_flow_of_three_models_holds_the_library_s_tied_one(quick, d):
    run = quick[f"D{d}"]
    assert run["flow_status"] == "successful"
    matched = int(np.argmin(np.abs(run["flow_t"] - run["descent_t"][-1])))
    assert run["flow_t"][matched] == pytest.approx(500)
    np.testing.assert_allclose(run["flow_weights"][matched, 0], run["descent_weights"][-1], atol=2e-5)
    np.testing.assert_allclose(run["flow_norms"][matched, 0], run["descent_norms"][-1], atol=1e-2)


@pytest.mark.slow
def test_the_identity_needs_tying_and_no_softmax(quick):
    assert identity_residual(quick, 10, 0).max() < 1e-12 and identity_residual(quick, 10, 2).max() < 1e-12
    assert identity_residual(quick, 10, 1).max() > 0.1


@pytest.mark.slow
def test_competition_and_not_tying_grows_a_column(quick):
    tied, untied, sigmoid = (growth(quick, "D10", model)[-1] for model in range(3))
    assert tied > untied > 10 and sigmoid < 1.5


@pytest.mark.slow
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


@pytest.mark.slow
def test_figures_draw_without_warnings(quick, tmp_path):
    TRIAL.check_figures(quick, ["tied-values", "weights", "controls", "energy-identity"], tmp_path)


def test_paper_preset_checkpoints_and_resumes(tmp_path, monkeypatch):
    assert TRIAL.check_resuming("D10", tmp_path, monkeypatch) == ["descent"]


@pytest.mark.slow
def test_tiny_settings_run_through(tmp_path):
    TRIAL.check_all_runs(tmp_path)
