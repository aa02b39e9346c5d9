"""Habit or meaning: claims and their controls on made runs, sequences and readings by hand, resuming."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from trial import Trial, changed

from gradflow import losses
from gradflow.errors import FlowError
from gradflow.experiments.habit_or_meaning import problem, readings
from gradflow.experiments.habit_or_meaning.config import PLAIN, POSITIONS, SETTINGS
from gradflow.experiments.habit_or_meaning.sequences import (
    ABSENT,
    EXCHANGED,
    FIRST,
    LED,
    MOVED,
    TO,
    VARIANTS,
    Draw,
    layout,
    strangers,
)
from gradflow.tasks import Induction

TRIAL = Trial.of(
    "habit-or-meaning", n_symbols=7, distinct=5, width=8, heads=2, batch=4, steps=3, seeds=2, saves=2, evaluated=8
)
EXPERIMENT, CONFIG, verdicts = TRIAL.experiment, TRIAL.config, TRIAL.verdicts
quick = TRIAL.fixture()
TASK = Induction(n_symbols=7, distinct=5)
NAMES = list(VARIANTS)
# Shares of places in the end: (stage, arm, variant) -> {place: share}; elsewhere attention is spread.
RESTS = {
    (POSITIONS, FIRST, "usual"): {0: 0.97},
    (POSITIONS, FIRST, "token"): {0: 0.57, TO: 0.24},
    (POSITIONS, FIRST, "position"): {0: 0.25, TO: 0.57},
    (POSITIONS, FIRST, "both"): {0: 0.01, TO: 0.93},
    (POSITIONS, FIRST, "replaced"): {0: 0.64},
    (POSITIONS, MOVED, "token"): {0: 0.73, TO: 0.17},
    (POSITIONS, ABSENT, "removed"): {1: 0.9},
    (POSITIONS, ABSENT, "removed-position"): {1: 0.02, 1 + TO: 0.95},
    (PLAIN, FIRST, "usual"): {0: 0.63},
    (PLAIN, MOVED, "token"): {0: 0.06, TO: 0.86},
    (PLAIN, ABSENT, "removed"): {1: 0.36},
}


def with_shares(results, stage, arm, variant, shares):
    """Return results in which places of a variant have other shares in the end."""
    profile = results[stage]["profile"].copy()
    for place, share in shares.items():
        part = profile[SETTINGS[stage].arms.index(arm), :, -1, NAMES.index(variant), :, place]
        part[:] = share + np.linspace(-0.02, 0.02, CONFIG.seeds)[:, None]
    return changed(results, stage, profile=profile)


@pytest.fixture
def made():
    """Results as the quick settings give them, without training."""
    draws, length, saves = np.random.default_rng(0), CONFIG.task.length, len(CONFIG.save_at)
    results = {}
    for stage, setting in SETTINGS.items():
        runs = (len(setting.arms), CONFIG.seeds, saves)
        grow = np.linspace(0, 1, saves)[:, None]
        row = 0.2 + np.zeros((*runs, CONFIG.heads, length))
        row[..., 1] += 0.7 * grow
        row[..., 2:6] -= 0.15 * grow[..., None]
        right = np.ones((*runs, len(NAMES)))
        if stage == PLAIN:
            right[FIRST, ..., NAMES.index("hidden")] = 0.1
        results[stage] = {
            "step": CONFIG.save_at,
            "accuracy": np.broadcast_to(np.linspace(0.05, 1, saves), runs),
            "sink": np.full((*runs, CONFIG.heads), 0.95),
            "row": row,
            "score": draws.normal(size=row.shape),
            "push": draws.normal(size=row.shape),
            "profile": np.full((*runs, len(NAMES), CONFIG.heads, length), 0.18),
            "right": right,
        }
    for (stage, arm, variant), shares in RESTS.items():
        results = with_shares(results, stage, arm, variant, shares)
    return results


@pytest.fixture(scope="module")
def model():
    """A new model with sequences of each arm."""

    @functools.cache
    def build(arm):
        options = {"auxiliary": 0.2, "lead": 3.0, "gone": 10, "width": 8, "layers": 1, "heads": 2, "positions": "add"}
        return problem.build(jax.random.key(1), arm, task=TASK, evaluated=6, **options)[1:]

    return build


def test_verdicts_on_expected_numbers_are_the_recorded_ones(made):
    assert verdicts(made) == EXPERIMENT.recorded


def test_every_claim_has_numbers_and_a_control(made):
    TRIAL.check_claims(made)


def test_figures_draw_without_warnings(made, tmp_path):
    TRIAL.check_figures(made, ["where-attention-rests", "what-foresees-the-sink", "what-a-lead-moves"], tmp_path)


@pytest.mark.parametrize(
    ("claim", "stage", "arm", "variant", "shares", "verdict"),
    [
        ("sink-on-bos", POSITIONS, FIRST, "usual", {0: 0.4}, "does not hold"),
        ("position-0-without-bos", POSITIONS, ABSENT, "removed", {1: 0.4}, "holds in part"),
        ("position-0-without-bos", POSITIONS, ABSENT, "removed-position", {1: 0.9, 1 + TO: 0.02}, "holds in part"),
        ("position-0-without-bos", PLAIN, ABSENT, "removed", {1: 0.9}, "holds in part"),
        ("token-and-position", POSITIONS, FIRST, "token", {0: 0.97, TO: 0.01}, "holds in part"),
        ("any-token-will-do", PLAIN, FIRST, "replaced", {0: 0.6}, "holds"),
        ("any-token-will-do", POSITIONS, FIRST, "replaced", {0: 0.2}, "does not hold"),
        ("moving-bos-in-training", POSITIONS, MOVED, "token", {0: 0.1, TO: 0.8}, "holds"),
        ("moving-bos-in-training", PLAIN, MOVED, "token", {0: 0.8, TO: 0.1}, "does not hold"),
    ],
)
def test_claims_follow_where_attention_rests(made, claim, stage, arm, variant, shares, verdict):
    assert verdicts(with_shares(made, stage, arm, variant, shares))[claim] == verdict


def test_claims_on_the_lead_hold_where_it_decides(made):
    runs = made[POSITIONS]
    leader = runs["row"].copy()
    score = 0 * leader
    leader[..., [1, 1 + TO]] = leader[..., [1 + TO, 1]]
    score[..., 1 + TO] = 1
    found = verdicts(changed(made, POSITIONS, row=leader, score=score, push=score))
    assert found["lead-foresees-the-sink"] == found["lead-moves-the-sink"] == "holds"
    one = runs["row"].copy()
    one[SETTINGS[POSITIONS].arms.index(LED)] = leader[0]
    assert verdicts(changed(made, POSITIONS, row=one))["lead-moves-the-sink"] == "holds in part"


def test_a_sink_without_which_predictions_fall_is_not_idle(made):
    for stage, value, verdict in ((PLAIN, 1.0, "holds"), (POSITIONS, 0.5, "does not hold")):
        right = made[stage]["right"].copy()
        right[FIRST, ..., NAMES.index("hidden")] = value
        assert verdicts(changed(made, stage, right=right))["sink-is-idle"] == verdict


def test_runs_that_never_learn_do_not_count(made):
    accuracy = np.array(made[POSITIONS]["accuracy"])
    accuracy[FIRST, 0], accuracy[LED] = 0.5, 0.5
    part = changed(made, POSITIONS, accuracy=accuracy)
    np.testing.assert_array_equal(np.isnan(readings.share(part, POSITIONS, FIRST, "usual", "bos"))[:2], [True, False])
    assert readings.sink_scores(part, POSITIONS, FIRST).shape == (CONFIG.seeds - 1, CONFIG.heads)
    assert "no run learnt" in EXPERIMENT.claims(CONFIG, part)[-1].measured
    never = {stage: arrays | {"accuracy": 0 * arrays["accuracy"]} for stage, arrays in made.items()}
    assert set(verdicts(never).values()) == {"not tested"}


def test_rules_are_counted_in_heads(made):
    runs = made[POSITIONS]
    score, push = np.zeros((2, *runs["score"].shape))
    score[:, :, 0, 0, 1], push[:, :, 0, :, 2] = 1.0, 2.0
    found = readings.foreseen(changed(made, POSITIONS, score=score, push=push))
    # A score without a leader names the first key as well; in units of spread both rules weigh the same.
    assert [found[name].value for name in readings.RULES] == [100, 0, 50, 100]


def test_variants_put_bos_and_position_0_where_they_say():
    for variant in VARIANTS.values():
        made = layout(variant, 8)
        visible = np.arange(8) >= variant.first
        tokens = np.where(made.order == 0, 0 if variant.bos is not None else -1, made.order)
        assert [i for i in np.flatnonzero(tokens == 0) if visible[i]] == ([] if variant.bos is None else [variant.bos])
        zeros = [i for i in np.flatnonzero(made.positions == 0) if visible[i]]
        assert zeros == ([] if variant.zero is None else [variant.zero])
        assert made.hidden == (variant.first == 1) and sorted(made.order) == sorted(made.positions) == list(range(8))


def test_arms_get_their_sequences(model):
    task, (_, data) = TASK, model(FIRST)
    for step_key in jax.random.split(jax.random.key(0), 3):
        batches = {arm: Draw(task, 64)(step_key, 0, data._replace(arm=arm)).batch for arm in (FIRST, MOVED, ABSENT)}
        plain, moved, absent = (jax.tree.map(np.asarray, batches[arm]) for arm in (FIRST, MOVED, ABSENT))
        np.testing.assert_array_equal(plain.inputs[:, 0], 0)
        np.testing.assert_array_equal(absent.inputs, plain.inputs)
        assert plain.mask.all() and absent.mask[:, 1:].all() and not absent.mask[:, 0].any()
        places = (moved.inputs == 0).argmax(axis=1)
        assert set(places) == set(range(task.length - 1))
        np.testing.assert_array_equal(moved.mask, moved.targets != 0)
        for old, new, target in zip(plain.inputs, moved.inputs, moved.targets[:, -1], strict=True):
            np.testing.assert_array_equal(old[1:], new[new != 0])
            asked = np.flatnonzero(new == new[-1] - task.offset)[0]
            assert new[asked + 1] == target  # BOS never stands in between


def test_a_sequence_without_bos_is_read_as_if_it_had_none(model):
    transformer, data = model(ABSENT)
    plain = losses.auxiliary_cross_entropy(transformer, (jax.tree.map(lambda x: x[:, 1:], data.batch), data.auxiliary))
    assert float(problem.loss(transformer, data)) == pytest.approx(float(plain), rel=1e-5)


def test_starts_differ_in_positions_or_a_lead_only(model):
    (drawn, data), (exchanged, _), (same, led) = (model(arm) for arm in (ABSENT, EXCHANGED, LED))
    np.testing.assert_array_equal(exchanged.positions[jnp.array([TO, 1, 0])], drawn.positions[:3])
    np.testing.assert_array_equal(same.positions, drawn.positions)
    assert float(data.lead) == 0 and float(led.lead) == 3
    np.testing.assert_allclose([float(led.at(step).left) for step in (0, 5, 10, 20)], [1, 0.5, 0, 0])
    capture = problem.of_arm(same, led.at(5))(led.batch.inputs[0], capture=True)[1]
    usual = problem.of_arm(drawn, data)(data.batch.inputs[0], capture=True)[1]
    np.testing.assert_allclose(
        capture.scores - usual.scores, np.eye(TASK.length)[problem.TARGET] * 1.5 + 0 * usual.scores, atol=1e-5
    )


def test_readings_are_those_of_the_model(model):
    transformer, data = model(FIRST)
    found = jax.jit(problem.observe)(0, transformer, data)
    logits, inside = jax.vmap(functools.partial(transformer, capture=True))(data.batch.inputs)
    attention = np.asarray(inside.attention[:, -1])
    np.testing.assert_allclose(found["row"], attention[:, :, -3].mean(0), rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(found["profile"][0], attention[:, :, TO + 2 : -2].mean((0, 2)), rtol=1e-4, atol=1e-7)
    right = np.asarray(logits)[:, -1].argmax(-1) == np.asarray(data.batch.targets)[:, -1]
    assert float(found["right"][0]) == pytest.approx(right.mean())
    raised = np.zeros((2, TASK.length, TASK.length), "float32")
    raised[1, -3, 2] = 1e-2
    slope = (problem.loss(transformer, data, raised) - problem.loss(transformer, data, -raised)) / 2e-2
    assert float(found["push"][1, 2]) == pytest.approx(-float(slope), rel=0.05, abs=1e-5)
    assert {x.dtype for x in jax.tree.leaves(found)} == {jnp.dtype("float32")}


def test_a_stranger_is_a_symbol_that_a_sequence_lacks():
    tokens = TASK.sample(jax.random.key(0), 50).inputs
    found = np.asarray(strangers(TASK, jax.random.key(1), tokens))
    assert ((found >= 1) & (found <= 7)).all() and not (np.asarray(tokens) == found[:, None]).any()


def test_too_few_symbols_are_refused_and_the_plan_counts_the_paper_s_runs():
    with pytest.raises(FlowError, match="distinct is 4"):
        EXPERIMENT.stages(dataclasses.replace(CONFIG, distinct=4))
    assert EXPERIMENT.plan(type(CONFIG).paper()).startswith("64 runs of 3,906 steps")


@pytest.mark.slow
def test_quick_run_gives_the_recorded_verdicts(quick):
    assert verdicts(quick) == EXPERIMENT.recorded


@pytest.mark.slow
@pytest.mark.parametrize("stage", SETTINGS)
def test_a_stage_again_gives_the_same_bits(stage, tmp_path, monkeypatch):
    left = TRIAL.check_resuming(stage, tmp_path, monkeypatch)
    assert left and all(name.endswith(".zarr") for name in left)


@pytest.mark.slow
def test_tiny_settings_run_through(tmp_path):
    TRIAL.check_all_runs(tmp_path)
