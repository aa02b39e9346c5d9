"""KL to a distribution: verdicts, golden numbers, where the flow stops, controls that fail, figures, resuming."""

import numpy as np
import pytest
from trial import Trial, changed, golden

from gradflow.experiments.target_distribution.claims import remaining_clock, target_entropy
from gradflow.experiments.target_distribution.config import CONTROLS, REFERENCE

TRIAL = Trial.of("target-distribution", steps=2_000, horizon=400.0, control_time=20.0, saves=8)
EXPERIMENT, CONFIG, verdicts = TRIAL.experiment, TRIAL.config, TRIAL.verdicts
quick = TRIAL.fixture()
RECORDED_NUMBERS = golden("E_kl")


@pytest.mark.slow
def test_verdicts_are_the_recorded_ones(quick):
    assert verdicts(quick) == EXPERIMENT.recorded


@pytest.mark.slow
def test_every_claim_has_numbers_and_a_control(quick):
    TRIAL.check_claims(quick)


@pytest.mark.slow
def test_golden_numbers_are_met_by_descent(quick):
    descent = quick["descent"]
    for step, row in RECORDED_NUMBERS["after_updates"].items():
        assert tuple(REFERENCE[int(step)]) == (row["s_max"], row["entropy"], row["kl"])
        at = int(np.searchsorted(descent["step"], int(step)))
        assert descent["weights"][at].max() == pytest.approx(row["s_max"], abs=1e-5)
        assert descent["entropy"][at] == pytest.approx(row["entropy"], abs=1e-5)
        assert descent["kl"][at] == pytest.approx(row["kl"], rel=1e-5, abs=1e-15)
    assert target_entropy(quick) == pytest.approx(RECORDED_NUMBERS["entropy_of_p"])


@pytest.mark.slow
def test_the_flow_stops_because_it_has_arrived(quick):
    flow = quick["flow"]
    assert flow["status"] == "event_occurred" and 1e5 < flow["end_t"] < 1e6
    assert flow["end_distance"] < CONFIG.stop_distance and remaining_clock(quick) < 1e-4
    assert flow["end_kl"] == pytest.approx(0, abs=1e-14)


@pytest.mark.slow
def test_the_target_needs_no_sparse_attention(quick):
    run = quick["controls"]
    assert abs(run["exact_kl"]) < 1e-14 and run["exact_entropy"] == pytest.approx(np.log(10))
    frozen = CONTROLS.index("uniform")
    assert run["entropy"][:, frozen] == pytest.approx(np.log(10)) and run["kl"][-1, frozen] < 2e-3


@pytest.mark.slow
def test_claims_fail_on_runs_that_break_them(quick):
    descent, flow = quick["descent"], quick["flow"]
    assert (
        verdicts(changed(quick, "descent", weights=descent["weights"] + 1e-3))["settings-reproduced"] == "does not hold"
    )
    assert verdicts(changed(quick, "descent", entropy=descent["entropy"] + 1))["sparser-than-target"] == "holds in part"
    assert verdicts(changed(quick, "controls", exact_kl=np.array(0.1)))["target-needs-sparsity"] == "holds"
    assert verdicts(changed(quick, "flow", end_weights=np.eye(10)[0]))["goes-one-hot"] == "holds"
    drifting = verdicts(changed(quick, "flow", column_sum_drift=flow["column_sum_drift"] + 1e-8))
    assert drifting["column-sums-conserved"] == "holds in part"
    assert verdicts(changed(quick, "flow", weights=flow["weights"] * 1.1))["descent-follows-flow"] == "does not hold"


@pytest.mark.slow
def test_figures_draw_without_warnings(quick, tmp_path):
    TRIAL.check_figures(quick, ["target-distribution", "controls", "column-sums"], tmp_path)


def test_paper_preset_checkpoints_and_resumes(tmp_path, monkeypatch):
    assert TRIAL.check_resuming("descent", tmp_path, monkeypatch) == ["descent"]


@pytest.mark.slow
def test_tiny_settings_run_through(tmp_path):
    TRIAL.check_all_runs(tmp_path)
