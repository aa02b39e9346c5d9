"""The value manifold: readings against dense attention, levels and equal loss on known curves, verdicts, figures."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from trial import Trial, changed

import gradflow as gf
from gradflow.experiments import audits
from gradflow.experiments.em_manifold import numbers, reading
from gradflow.experiments.em_manifold.stages import known
from gradflow.experiments.sticky_markov import arms
from gradflow.experiments.trees import member
from gradflow.laws import Audit, Row

TRIAL = Trial.of(
    "em-manifold", preset="quick", seeds=(42, 2024), length=81, steps=6, closed_steps=3, saves=3, audit_length=31
)
EXPERIMENT, CONFIG, verdicts = TRIAL.experiment, TRIAL.config, TRIAL.verdicts
quick = TRIAL.fixture()
FIGURES = ["manifold", "equal-loss", "sooner", "controls", "laws"]
NAMES = [arm.name for arm in arms.GRADIENT]
# What the quick run measures at the end of SGD, EM, O x10, QK x10, all x10, frozen, closed form.
ENDS = {
    "loss": (2.029, 1.940, 1.936, 1.877, 1.833, 2.036, 1.830),
    "values_ratio": (6.415, 3.388, 6.206, 6.180, 5.623, 4.110, 3.423),
    "values_first": (0.277, 0.459, 0.272, 0.264, 0.291, 0.409, 0.448),
    "values_entropy": (0.209, 0.193, 0.187, 0.161, 0.060, 0.117, 0.048),
    "outputs_ratio": (2.215, 1.868, 2.346, 2.873, 3.401, 2.428, 2.983),
    "outputs_first": (0.645, 0.680, 0.553, 0.475, 0.420, 0.588, 0.498),
    "alignment": (0.197, 0.250, 0.251, 0.680, 0.579, 0.108, 0.120),
    "information": (0.110, 0.164, 0.166, 1.034, 0.861, 0.028, 0.036),
}
STARTS = (2.078, 7.467, 0.219, 0.138, 3.905, 0.404, 0.108, 0.028)
POWERS = {"values_ratio": 1.0}  # of the part of the way over the steps; all others go as 1.4, the loss among them


@pytest.fixture
def made():
    """Results as the quick run gives them, without training."""
    shift = np.linspace(-0.005, 0.005, len(CONFIG.seeds))[:, None]

    def stage(times, columns, part=1.0):
        way = np.linspace(0, 1, len(times))
        arrays = {
            name: np.stack(
                [first + part * (ENDS[name][i] - first + shift) * way ** POWERS.get(name, 1.4) for i in columns]
            )
            for name, first in zip(ENDS, STARTS, strict=True)
        }
        flat = np.full_like(arrays["loss"], 0.01) + shift / 10
        low = ("values_chance", "information_chance", "alignment_uniform")
        return {"step": times} | arrays | dict.fromkeys(low, flat)

    rows = {"ratio": 13.0, "first": 0.16, "entropy": 0.18, "chance": 0.01}
    chain = {
        f"{cloud}_{name}": np.full(len(CONFIG.seeds), v) for cloud in ("inputs", "noise") for name, v in rows.items()
    }
    chain |= {"entropies": np.full((len(CONFIG.seeds), 20), 2.64), "entropy_rate": np.asarray(2.639)}
    laws = audits.stored(Audit("a flow", (Row("-", "row", 1e-16, 1e-10), Row("-", "column", 0.0, 1e-2)), ()))
    shuffled = stage(CONFIG.save_at, (0, 1), 0.2)
    shuffled["values_entropy"] = np.full_like(shuffled["values_entropy"], 0.21)
    return {
        "chain": chain,
        "descent": stage(CONFIG.save_at, range(6)),
        "closed": stage(CONFIG.closed_save_at, (6,)),
        "shuffled": shuffled,
        "audit": laws,
    }


@pytest.mark.slow
def test_readings_are_those_of_dense_attention():
    start = arms.problem((42,), 61)
    told = known(start)
    head, x = jax.tree.map(lambda w: 8 * w[0], start.heads), start.batch.inputs[0, 0]
    own = member(told, 0)
    found = reading.read_shapes(jax.tree.map(lambda w: w[None], head), member(start.batch, 0), own)
    _, inside = head(x, capture=True)
    aligned = gf.diagnostics.query_key_alignment(inside.queries, inside.keys, inside.weights)
    alike = gf.diagnostics.query_key_alignment(inside.queries, inside.keys, where=head.mask(len(x)))
    scaled = (inside.outputs - inside.outputs.mean(0)) / inside.outputs.std(0)
    assert float(found["alignment"][0]) == pytest.approx(float(aligned), rel=1e-10)
    assert float(found["alignment_uniform"][0]) == pytest.approx(float(alike), rel=1e-10)
    assert float(found["outputs_ratio"][0]) == pytest.approx(
        float(gf.diagnostics.participation_ratio(scaled)), rel=1e-8
    )
    assert float(found["values_raw"][0]) == pytest.approx(
        float(gf.diagnostics.participation_ratio(inside.values)), rel=1e-8
    )
    np.testing.assert_allclose(jnp.sort(own.permuted), jnp.sort(own.entropies))


def test_levels_and_equal_loss_on_known_curves(made):
    level = numbers.at_end(made, arms.SGD, "values_ratio")
    assert numbers.sooner(made, arms.SGD, "values_ratio") == pytest.approx((1, 1, 1))
    assert np.isinf(numbers.steps_to(made, arms.EM, "values_ratio", level - 10)).all()
    assert np.isnan(numbers.at_loss(made, arms.EM, "alignment", np.zeros(5))).all()
    itself = numbers.at_loss(made, arms.SGD, "alignment", numbers.at_end(made, arms.SGD))
    np.testing.assert_allclose(itself, numbers.at_end(made, arms.SGD, "alignment"), rtol=1e-12)


def test_verdicts_on_what_was_measured_are_the_recorded_ones(made):
    assert verdicts(made) == EXPERIMENT.recorded


def test_every_claim_has_numbers_and_a_control(made):
    TRIAL.check_claims(made)


def test_figures_draw_without_warnings(made, tmp_path):
    TRIAL.check_figures(made, FIGURES, tmp_path)


def test_claims_fail_on_runs_that_break_them(made):
    run = made["descent"]

    def moved(**sources):
        order = [NAMES.index(sources.get(name, name)) for name in NAMES]
        return verdicts({**made, "descent": {k: v if k == "step" else v[order] for k, v in run.items()}})

    assert moved(em="sgd")["em-draws-it-sooner"] == "does not hold"
    assert moved(em="sgd")["same-at-equal-loss"] == "holds"
    assert moved(frozen="sgd")["manifold-needs-em"] == "holds"
    assert moved(em="sgd", all="em")["better-is-narrower"] == "holds"
    assert moved(em="qk")["em-aligns-queries-and-keys"] == "holds"
    assert verdicts(changed(made, "descent", values_first=3 * run["values_first"]))["one-axis"] == "holds"
    assert verdicts(changed(made, "descent", values_entropy=3 * run["values_entropy"]))["entropy-axis"] == "holds"
    same = {name: run[name][:2] for name in ("values_ratio",)}
    assert verdicts(changed(made, "shuffled", **same))["values-narrow"] == "holds in part"
    broken = made["audit"]["audit_tolerance"] * [2, 0.5]
    assert verdicts(changed(made, "audit", audit_residual=broken))["laws"] == "holds in part"


@pytest.mark.slow
def test_quick_run_gives_the_recorded_verdicts(quick):
    assert verdicts(quick) == EXPERIMENT.recorded


@pytest.mark.slow
def test_a_stage_again_gives_the_same_bits(tmp_path, monkeypatch):
    assert TRIAL.check_resuming("descent", tmp_path, monkeypatch) == []


@pytest.mark.slow
def test_tiny_settings_run_through(tmp_path):
    assert audits.loaded(TRIAL.check_all_runs(tmp_path)["audit"]).holds
