"""Feedback: steps against their definitions, claims that follow their numbers, figures, resuming."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from trial import Trial, changed

from gradflow import losses
from gradflow.experiments import intervals
from gradflow.experiments.feedback.config import FREE, FROZEN, KINDS, OWN
from gradflow.experiments.feedback.steps import ROUNDING, advantage, growth, own_growth, sign
from gradflow.experiments.sequences import CLASSES, FEATURES, TASKS, draw
from gradflow.laws import routing
from gradflow.models import AttentionHead, FreeValueHead

TRIAL = Trial.of("feedback", seeds=1, lengths=(6, 8), times=(0.0, 10.0))
CONFIG, EXPERIMENT, verdicts = TRIAL.config, TRIAL.experiment, TRIAL.verdicts
SIZES = (FEATURES, 4, 5, CLASSES)
STEPS = jnp.array([0.01, 0.1])
SOFTMAX = [name for name, kind in KINDS.items() if kind.activation == "softmax"]


@pytest.fixture(scope="module")
def made():
    """Results in which seven rows of ten grow with U frozen, four in the joint step, and half of these late."""
    return {name: made_stage(name, kind) for name, kind in KINDS.items()}


def made_stage(name, kind):
    rng = np.random.default_rng(len(name))
    starts = len(CONFIG.starts(kind.causal))
    labels = np.indices((starts, len(CONFIG.tasks), CONFIG.seeds)).reshape(3, -1)
    columns = FROZEN + 1 + 2 * len(CONFIG.step_sizes)
    shape = (labels.shape[1], len(CONFIG.times), CONFIG.lengths[-1])
    rate = np.full((*shape, columns), 0.4)
    rate[..., OWN] = 1
    rate[..., FREE] = rate[..., FROZEN] = 0.7 if not kind.shared else 0.5
    rate[:, -1, :, FROZEN + 1 :] = 0.2
    signs = np.where(rng.uniform(size=rate.shape) < rate, 1.0, -1.0)
    signs[..., FREE] = signs[..., FROZEN]
    pairs = np.full((*shape[:2], 2, 2, 2, 2), 10)
    if not kind.shared:
        pairs[:, :, FREE, 0] = [[20, 0], [0, 20]]
    arrays = {"signs": signs, "pairs": pairs, "law": np.full(shape[:2], 1e-16)}
    return arrays | dict(zip(("of_start", "of_task", "of_seed"), labels, strict=True))


def test_claims_on_made_results_follow_their_numbers(made):
    TRIAL.check_claims(made)
    found = verdicts(made)
    assert set(found) == set(EXPERIMENT.recorded)
    assert found["frozen-law"] == "holds" and found["cross-terms-reverse"] == "holds in part"
    doubted = ("positive-feedback", "through-training", "own-query-decides", "frozen-u-tells", "needs-competition")
    assert all(found[name] == "does not hold" for name in doubted)


def test_claims_fail_on_runs_that_break_them(made):
    always = made
    for kind in SOFTMAX:
        signs = np.ones_like(made[kind]["signs"])
        diagonal = np.zeros_like(made[kind]["pairs"])
        diagonal[..., 0, 0] = diagonal[..., 1, 1] = 10
        always = changed(always, kind, signs=signs, pairs=diagonal)
    found = verdicts(always)
    assert all(found[name] == "holds" for name in ("positive-feedback", "through-training", "own-query-decides"))
    assert found["frozen-u-tells"] == "holds" and found["cross-terms-reverse"] != "holds"
    assert found["needs-competition"] == "holds"
    broken = changed(made, "free-values", law=made["free-values"]["law"] + 1e-3)
    assert verdicts(broken)["frozen-law"] == "holds in part"


def heads(activation="softmax"):
    key = jax.random.key(3)
    shared = AttentionHead.normal(key, *SIZES, scale=0.7, activation=activation)
    return shared, FreeValueHead.normal(key, 9, *SIZES, scale=0.7, activation=activation)


@pytest.mark.slow
@pytest.mark.parametrize("free", [False, True])
def test_steps_are_what_they_are_called(free):
    head, batch = heads()[free], draw("sticky-noisy", jax.random.key(0), 9)
    found, state = eqx.filter_jit(growth)(head, batch, STEPS)
    x, y = batch.inputs[0], batch.targets[0]
    gradient = eqx.filter_grad(losses.cross_entropy)(head, batch)
    moved = eqx.apply_updates(head, jax.tree.map(lambda slope: -0.1 * slope, gradient))
    after = routing.head_state(moved, x, y)
    before = advantage(state, state.compatibility)
    np.testing.assert_allclose(found.joint[1], advantage(after, after.compatibility) - before, atol=1e-12)
    # To first order in a small step with U frozen, what is seen is the change of V alone.
    name = "values" if free else "w_v"
    other = eqx.tree_at(lambda tree: getattr(tree, name), head, getattr(moved, name))
    shifted = routing.head_state(other, x, y)
    frozen = advantage(state, (state.upstream @ (shifted.values - state.values).T) / 0.1)
    np.testing.assert_allclose(found.frozen, frozen, atol=1e-10)
    np.testing.assert_allclose(found.values[1], advantage(shifted, shifted.compatibility) - before, atol=1e-12)
    assert np.allclose(found.frozen, found.free, rtol=1e-10) == free


def test_own_query_raises_every_largest_weight_and_reverses_for_others():
    head, batch = heads()[0], draw("random-labels", jax.random.key(0), 9)
    state = routing.head_state(head, batch.inputs[0], batch.targets[0])
    own = np.asarray(own_growth(state))[1:]
    top = np.asarray(jnp.argmax(state.weights, axis=-1))[1:]
    assert (own[np.arange(8), top] > 0).all() and (own < 0).any()
    elementwise = routing.head_state(heads("sigmoid")[0], batch.inputs[0], batch.targets[0])
    assert (np.asarray(own_growth(elementwise)) >= 0).all()


def test_signs_leave_out_rounding_and_rows_that_do_not_count():
    change = jnp.array([[1.0, -ROUNDING / 2], [-0.5, 2.0]])
    np.testing.assert_array_equal(sign(change, jnp.array([True, False])), [[1, 0], [0, 0]])


def test_intervals_hold_the_share_and_widen_with_dependence():
    spread = intervals.share(np.array([0, 10] * 20), np.full(40, 10))
    alike = intervals.share(np.full(40, 5), np.full(40, 10))
    assert spread.low < spread.value == 50 < spread.high and alike == (50, 50, 50)
    assert np.isnan(intervals.share(np.zeros(3), np.zeros(3)).value)
    middle = intervals.median(np.arange(101.0))
    assert middle.low < middle.value == 50 < middle.high and f"{middle:.0f}".startswith("50 [")


@pytest.mark.parametrize("task", TASKS)
def test_tasks_have_one_shape_and_targets_that_count(task):
    batch = draw(task, jax.random.key(1), 12)
    assert batch.inputs.shape == (1, 12, FEATURES) and batch.targets.shape == batch.mask.shape == (1, 12)
    assert batch.mask.any() and (batch.targets >= 0).all() and (batch.targets < CLASSES).all()
    if task == "recall":
        keys, stored = np.argmax(np.asarray(batch.inputs)[0, :, :CLASSES], -1), np.asarray(batch.targets[0])
        assert len(set(keys[:4])) == 4 and not batch.mask[0, :4].any()
        assert all(stored[i] == stored[list(keys[:4]).index(keys[i])] for i in range(4, 12))


def test_figures_draw_without_warnings(made, tmp_path):
    TRIAL.check_figures(made, ["growth", "training", "lengths", "contingency"], tmp_path)


@pytest.mark.slow
def test_paper_preset_starts_and_resumes(tmp_path, monkeypatch):
    assert EXPERIMENT.config.paper().seeds > CONFIG.seeds
    assert TRIAL.check_resuming("free-values-not-causal", tmp_path, monkeypatch) == []


@pytest.mark.slow
def test_the_quick_run_has_the_recorded_verdicts(tmp_path):
    quick = TRIAL.compute(CONFIG, tmp_path)
    assert all((quick[name]["status"] == "successful").all() for name in KINDS)
    assert verdicts(quick) == EXPERIMENT.recorded
    TRIAL.check_claims(quick)


@pytest.mark.slow
def test_tiny_settings_run_through(tmp_path):
    TRIAL.check_all_runs(tmp_path)
