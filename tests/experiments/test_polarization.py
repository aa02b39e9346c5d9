"""The main experiment: verdicts, the numbers they rest on, controls that must fail, figures, and resuming."""

import dataclasses
import json
import warnings
from pathlib import Path

import numpy as np
import pytest

from gradflow import experiments
from gradflow.descent import checkpoint
from gradflow.experiments.polarization.claims import GOLDEN, LOSER_GAP, at, pair_gaps, peak, ranked
from gradflow.experiments.polarization.table import laws

EXPERIMENT = experiments.get("polarization")
CONFIG = EXPERIMENT.config()
TINY = dataclasses.replace(
    EXPERIMENT.config.paper(), horizon=1e3, descent_time=100.0, seeds=2, step_sizes=(0.1, 0.05), tau=100.0
)
RECORDED_NUMBERS = json.loads((Path(__file__).parents[1] / "golden" / "polarization.json").read_text())["A_logistic"]


def compute(config, folder: Path):
    return {stage.name: stage.compute(folder) for stage in EXPERIMENT.stages(config)}


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    return {stage.name: stage.compute(tmp_path_factory.mktemp(stage.name)) for stage in EXPERIMENT.stages(CONFIG)}


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
    from gradflow import plot

    figures = EXPERIMENT.figures(CONFIG, quick)
    assert [figure.name for figure in figures] == ["hero", "paths", "clock", "laws", "starts", "descent-gap"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for figure in figures:
            assert figure.title and len(figure.caption) > 50 and len(figure.alt) > 50
            assert all(path.stat().st_size > 5_000 for path in plot.save(figure.draw(), tmp_path / figure.name))


def test_paper_preset_checkpoints_and_resumes(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "EVERY_SECONDS", 0.0)
    assert EXPERIMENT.config.paper().steps == CONFIG.steps == 1_000_000
    stage = next(stage for stage in EXPERIMENT.stages(TINY) if stage.name == "descent")
    first = stage.compute(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["descent"]
    again = stage.compute(tmp_path)
    assert all(np.array_equal(first[name], again[name]) for name in first)


@pytest.mark.slow
def test_tiny_settings_run_through(tmp_path):
    results = compute(TINY, tmp_path)
    claims = EXPERIMENT.claims(TINY, results)
    assert {claim.id for claim in claims} == set(EXPERIMENT.recorded)
    assert all(figure.draw() for figure in EXPERIMENT.figures(TINY, results))
