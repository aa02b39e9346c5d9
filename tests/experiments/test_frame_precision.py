"""Freezing times: readings of made histories, claims that follow their numbers, figures, resuming."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from trial import Trial, changed

from gradflow.experiments import audits
from gradflow.experiments.frame_precision.config import ARMS, FREE, MAPS, QUANTITIES
from gradflow.experiments.frame_precision.readings import History, freezing, row_times
from gradflow.laws import Audit, Row

TRIAL = Trial.of("frame-precision", seeds=1, length=6, horizons=(10.0, 100.0), saves=9)
CONFIG, EXPERIMENT, verdicts = TRIAL.config, TRIAL.experiment, TRIAL.verdicts
AT = {name: index for index, name in enumerate(QUANTITIES)}


@pytest.fixture(scope="module")
def made():
    """Results in which routing freezes first by the paper's yardstick, values at a third of the horizon, scores too."""
    return {name: made_stage(name) for name in (*MAPS, FREE)} | {
        "audit": audits.stored(Audit("a flow", (Row("-", "one", 1e-15, 1e-10), Row("-", "two", 1e-15, 1e-10)), ()))
    }


def made_stage(name):
    rng = np.random.default_rng(0)
    arms, tasks = (len(ARMS) if name == "softmax" else 1), len(CONFIG.tasks)
    runs = arms * tasks * CONFIG.seeds
    horizons = np.asarray(CONFIG.horizons)
    tau = np.empty((runs, len(QUANTITIES), len(horizons), len(CONFIG.epsilons)))
    tau[:] = (horizons / 3)[:, None] * rng.uniform(0.9, 1.1, (runs, 1, 1, 1))
    tau[:, AT["attention"]] = 100.0
    noisy = np.tile(np.repeat(np.arange(tasks), CONFIG.seeds), arms) == 1
    tau[:, AT["scores"]] *= np.where(noisy, 0.5, 1.5)[:, None, None]
    if name == "sigmoid":
        tau[:, AT["attention"]] = 1e6
    decay = np.exp(-CONFIG.ts / 500)
    rows = np.broadcast_to(decay[:, None], (runs, len(CONFIG.ts), CONFIG.length))
    return {
        "of_arm": np.repeat(np.arange(arms), tasks * CONFIG.seeds),
        "of_task": np.tile(np.repeat(np.arange(tasks), CONFIG.seeds), arms),
        "of_seed": np.tile(np.arange(CONFIG.seeds), arms * tasks),
        "tau": tau,
        "way": np.full((runs, len(horizons)), 0.6),
        "distance": np.broadcast_to(decay, (runs, len(QUANTITIES), len(CONFIG.ts))),
        "row_distance": rows,
        "row_largest": rng.uniform(0.2, 1, (runs, CONFIG.length)),
        "routing_norm": np.ones((runs, len(CONFIG.ts))),
        "value_norm": np.full((runs, len(CONFIG.ts)), 2.0),
        "excess": np.zeros(runs),
        "tightness": np.full(runs, 0.9),
    }


def tau_with(stage, **parts):
    tau = stage["tau"].copy()
    for name, factor in parts.items():
        tau[:, AT[name]] *= factor
    return tau


def test_claims_on_made_results_follow_their_numbers(made):
    TRIAL.check_claims(made)
    found = verdicts(made)
    assert set(found) == set(EXPERIMENT.recorded)
    assert found["routing-first"] == "holds" and found["not-the-horizon"] == "does not hold"
    assert found["same-yardstick"] == "holds in part" and found["frozen-routing-frees-values"] == "does not hold"
    assert found["not-the-rates"] == "holds" and found["every-map"] == "holds in part"
    assert found["freezing-bound"] == "holds" and found["needs-sharp-rows"] == "does not hold"
    assert found["forces-part-ways"] == "does not hold"


def test_claims_fail_on_runs_that_break_them(made):
    softmax, uniform = made["softmax"], made["uniform"]
    late = changed(made, "softmax", tau=tau_with(softmax, attention=1e6))
    assert verdicts(late)["routing-first"] == "does not hold" and verdicts(late)["not-the-rates"] == "holds in part"
    fixed = np.repeat(softmax["tau"][:, :, :1], len(CONFIG.horizons), axis=2)
    assert verdicts(changed(made, "softmax", tau=fixed))["not-the-horizon"] == "holds"
    alike = changed(made, "softmax", tau=tau_with(softmax, scores=0.1))
    assert verdicts(alike)["same-yardstick"] == "holds"
    early = changed(made, "uniform", tau=tau_with(uniform, values=0.1))
    assert verdicts(early)["frozen-routing-frees-values"] == "holds"
    falling = softmax["routing_norm"] / (1 + CONFIG.ts)
    assert verdicts(changed(made, "softmax", routing_norm=falling))["forces-part-ways"] == "holds"
    assert verdicts(changed(made, "softmax", excess=softmax["excess"] + 1e-6))["freezing-bound"] == "does not hold"
    sharp = 1e6 ** (1 - softmax["row_largest"])[:, None, :]  # broad rows freeze late
    slow = np.exp(-CONFIG.ts[:, None] / sharp)
    assert verdicts(changed(made, "softmax", row_distance=slow))["needs-sharp-rows"] != "does not hold"


def test_runs_whose_attention_hardly_moves_do_not_count(made):
    still = made["softmax"]["way"].copy()
    still[made["softmax"]["of_task"] == 0] = 0.01
    tau = made["softmax"]["tau"].copy()
    tau[made["softmax"]["of_task"] == 0, AT["attention"]] = 1e6
    shares = verdicts(changed(made, "softmax", way=np.where(still > 0.1, still, 0.6), tau=tau))
    assert shares["routing-first"] != "holds"
    statement = {c.id: c for c in EXPERIMENT.claims(CONFIG, changed(made, "softmax", way=still, tau=tau))}
    assert "less than 2 eps, 20 %" in statement["routing-first"].control


def test_times_of_known_exponentials():
    ts = jnp.concatenate([jnp.zeros(1), jnp.geomspace(0.01, 100, 400)])
    fall = jnp.exp(-ts)[:, None, None]
    sharp = jnp.array([[1.0, 0.0], [0.1, 0.9]])
    weights = sharp + fall * (jnp.array([[1.0, 0.0], [0.5, 0.5]]) - sharp)
    slow = jnp.exp(-ts / 4)[:, None, None] * jnp.ones((2, 3))
    history = History(*(leaf[None] for leaf in (weights, 1 - slow, 1 - slow, slow[..., :2])))
    within = jnp.stack([ts <= 10, ts <= 100])
    found = freezing(ts, history, jnp.ones((1, ts.size), bool), within, jnp.array([0.05]))
    tau = np.asarray(found["tau"])[0, :, :, 0]
    assert found["way"][0, 1] == pytest.approx(0.4, abs=1e-6)
    assert tau[AT["attention"], 1] == pytest.approx(np.log(0.4 / 0.05), rel=1e-2)
    assert tau[AT["values"], 1] == pytest.approx(4 * np.log(20), rel=1e-2) and tau[AT["values"], 0] < 10
    assert tau[AT["w_v"], 1] == tau[AT["values"], 1] == pytest.approx(tau[AT["scores"], 1])
    spoilt = jax.tree.map(lambda leaf: jnp.where((ts <= 20)[:, None, None], leaf, jnp.nan), history)
    cut = freezing(ts, spoilt, (ts <= 20)[None], within, jnp.array([0.05]))
    assert np.isnan(cut["tau"][0, :, 1]).all() and np.isnan(cut["way"][0, 1])
    np.testing.assert_array_equal(cut["tau"][0, :, 0], found["tau"][0, :, 0])
    rows = row_times(np.asarray(ts), np.asarray(found["row_distance"]), 0.05)
    assert rows[0, 0] == 0 and rows[0, 1] == pytest.approx(np.log(0.4 / 0.05), rel=1e-2)


def test_figures_draw_without_warnings(made, tmp_path):
    TRIAL.check_figures(made, ["distances", "horizons", "arms", "rows", "audit"], tmp_path)


@pytest.mark.slow
def test_paper_preset_starts_and_resumes(tmp_path, monkeypatch):
    paper = EXPERIMENT.config.paper()
    assert paper.seeds > CONFIG.seeds and dataclasses.replace(paper, seeds=1).ts[-1] == paper.horizons[-1]
    assert TRIAL.check_resuming("uniform", tmp_path, monkeypatch) == []


@pytest.mark.slow
def test_the_quick_run_has_the_recorded_verdicts(tmp_path):
    quick = TRIAL.compute(CONFIG, tmp_path)
    assert all((quick[name]["status"] == "successful").mean() > 0.9 for name in (*MAPS, FREE))
    assert verdicts(quick) == EXPERIMENT.recorded
    TRIAL.check_claims(quick)
    audit = quick["audit"]
    assert audits.loaded(audit).holds


@pytest.mark.slow
def test_tiny_settings_run_through(tmp_path):
    TRIAL.check_all_runs(tmp_path)
