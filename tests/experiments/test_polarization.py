"""The main experiment: verdicts, the numbers they rest on, controls that must fail, figures, and resuming."""

import numpy as np
import pytest
from trial import Trial, changed, golden

from gradflow.experiments.polarization.claims import GOLDEN, LOSER_GAP, at, pair_gaps, peak, ranked
from gradflow.experiments.polarization.table import laws

TRIAL = Trial.of("polarization", horizon=1e3, descent_time=100.0, seeds=2, step_sizes=(0.1, 0.05), tau=100.0)
EXPERIMENT, CONFIG, verdicts = TRIAL.experiment, TRIAL.config, TRIAL.verdicts
quick = TRIAL.fixture()
RECORDED_NUMBERS = golden("A_logistic")


def test_verdicts_are_the_recorded_ones(quick):
    assert verdicts(quick) == EXPERIMENT.recorded


def test_every_claim_has_numbers_and_a_control(quick):
    TRIAL.check_claims(quick)


def test_golden_numbers_are_met_by_descent(quick):
    recorded = {
        int(step): (row["loss"], row["s_max"], row["entropy"])
        for step, row in RECORDED_NUMBERS["after_updates"].items()
    }
    assert recorded == GOLDEN
    descent = quick["descent"]
    for step, (loss, largest, entropy) in GOLDEN.items():
        row = at(descent["step"], step)
        assert descent["step"][row] == step
        assert abs(descent["loss"][row] / loss - 1) < 1e-5
        assert abs(descent["weights"][row].max() - largest) < 1e-5
        assert abs(descent["entropy"][row] - entropy) < 1e-5
    np.testing.assert_allclose(descent["weights"][-1], RECORDED_NUMBERS["s"], atol=1e-5)
    np.testing.assert_allclose(descent["u"][-1], RECORDED_NUMBERS["u"], atol=1e-5)


def test_loser_gap_rises_peaks_and_shrinks_at_the_known_times(quick):
    gaps, pairs = pair_gaps(ranked(quick)[1])
    t, gap = quick["flow"]["t"], gaps[:, (pairs == (2, 8)).all(axis=1)][:, 0]
    time, height = peak(t, gap)
    assert abs(time - 262) < 2 and abs(height - LOSER_GAP[262.0]) < 1e-3
    assert all(abs(gap[at(t, later)] - LOSER_GAP[later]) < 1e-3 for later in (1e5, 1e12))


def test_the_flow_reaches_its_horizon_in_few_steps(quick):
    assert quick["flow"]["t"][-1] == 1e20
    assert quick["flow"]["steps_to_1e12"] < 500
    assert quick["flow"]["steps"] < 1000


def test_the_equal_start_breaks_one_hot_and_the_loss_rate(quick):
    controls = quick["controls"]
    uniform = {"others": np.full(len(quick["flow"]["t"]), 7 / 8), "weights": controls["equal_weights"]}
    assert verdicts(changed(quick, "flow", **uniform, loss=controls["equal_loss"]))["loss-rate"] == "does not hold"
    assert verdicts(changed(quick, "flow", **uniform))["softmax-alone"] == "holds in part"
    never = quick["clock"]["orbit_constant"] * 0 + 1e5
    assert verdicts(changed(quick, "clock", orbit_constant=never))["one-hot"] == "does not hold"


def test_claims_fail_on_runs_that_break_them(quick):
    flow, clock = quick["flow"], quick["clock"]
    backwards = {name: flow[name][::-1] for name in ("a", "u")}
    assert verdicts(changed(quick, "flow", a=backwards["a"]))["leader-gaps-grow"] == "does not hold"
    assert verdicts(changed(quick, "flow", u=backwards["u"]))["u-gaps-grow"] == "does not hold"
    assert verdicts(changed(quick, "laws", order_violations=np.ones(3, int)))["order-kept"] == "does not hold"
    assert verdicts(changed(quick, "clock", logistic_gap=clock["logistic_gap"] + 1e-6))["one-orbit"] == "does not hold"
    running = clock["square_2_tau"] + clock["square_2_t"] * 1e-3
    assert verdicts(changed(quick, "clock", square_2_tau=running))["square-stops"] != "holds"
    wrong = (quick["starts"]["small_winner"] + 1) % 8
    assert verdicts(changed(quick, "starts", small_winner=wrong))["winner"] == "holds in part"
    second_order = quick["gap"]["distance"] * quick["gap"]["step_size"][:, None]
    assert verdicts(changed(quick, "gap", distance=second_order))["descent-follows-flow"] == "does not hold"
    off = quick["descent"]["entropy"] + 1e-4
    assert verdicts(changed(quick, "descent", entropy=off))["paper-run"] == "does not hold"
    sharing = np.eye(8)[[0] * len(quick["controls"]["t"])]
    assert verdicts(changed(quick, "controls", sigmoid_weights=sharing))["softmax-alone"] == "holds in part"


@pytest.mark.parametrize("name", ["score_sum", "perpendicular_values", "loss_dissipation", "margin", "early_scores"])
def test_a_broken_or_missing_law_is_seen(quick, name):
    for wrong in (1.0, np.nan):
        residual = quick["laws"][name] + wrong
        assert verdicts(changed(quick, "laws", **{name: residual}))["laws"] == "holds in part"


def test_laws_are_all_tested(quick):
    table = laws(quick)
    assert len(table) == 19 and all(law.residual.size for law in table)
    assert all(law.worst <= law.tolerance for law in table)


def test_figures_draw_without_warnings(quick, tmp_path):
    TRIAL.check_figures(quick, ["hero", "paths", "clock", "laws", "starts", "descent-gap"], tmp_path)


def test_paper_preset_checkpoints_and_resumes(tmp_path, monkeypatch):
    assert EXPERIMENT.config.paper().steps == CONFIG.steps == 1_000_000
    assert TRIAL.check_resuming("descent", tmp_path, monkeypatch) == ["descent"]


@pytest.mark.slow
def test_tiny_settings_run_through(tmp_path):
    TRIAL.check_all_runs(tmp_path)
