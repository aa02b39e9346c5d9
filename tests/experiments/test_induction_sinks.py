"""Induction and sinks: claims and their controls on made runs, readings by hand, the paper's size, resuming."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from trial import Trial, changed

import gradflow as gf
from gradflow.experiments import transformers
from gradflow.experiments.dots import mean
from gradflow.experiments.induction import numbers
from gradflow.experiments.induction.stages import ROWS, observe
from gradflow.sweep import Descent

TRIAL = Trial.of(
    "induction",
    maps=("softmax", "normalised-sigmoid", "sigmoid", "linear", "uniform"),
    seeds=2,
    symbols=5,
    distinct=3,
    width=8,
    heads=2,
    batch=4,
    steps=3,
    evaluated=8,
    saves=2,
    grid_maps=("softmax", "sigmoid"),
    grid_heads=(1, 2),
    grid_positions=("none",),
    grid_rates=(1e-2, 1e-3),
    grid_auxiliaries=(0.2,),
    grid_shifts=(True, False),
    grid_seeds=1,
)
EXPERIMENT, CONFIG, verdicts = TRIAL.experiment, TRIAL.config, TRIAL.verdicts
quick = TRIAL.fixture()
# Sink scores when the task is learnt, and at the end.
SCORES = {
    "softmax": (0.91, 0.97),
    "normalised-sigmoid": (0.75, 0.9),
    "normalised-elu1": (0.7, 0.95),
    "sigmoid": (0.4, 0.95),
    "elu1": (0.45, 0.9),
    "clipped-linear": (0.3, 0.3),
    "linear": (0.3, 0.3),
    "uniform": (0.29, 0.29),
}


@pytest.fixture
def made():
    """Results as the quick settings give them, without training."""
    seeds, steps, length = CONFIG.seeds, CONFIG.save_at, CONFIG.task().length
    shift = np.linspace(-0.01, 0.01, seeds)[:, None]
    begin = numbers.uniform_score(CONFIG)

    def curve(early, late, learnt=400, risen=200):
        knots = (0, risen, learnt, CONFIG.steps)
        return np.interp(steps, knots, (begin, early if risen < learnt else begin, early, late)) + shift

    def right(name, learnt=400):
        return np.interp(steps, (0, learnt - 100, learnt), (0.02, 0.25, 0.2 if name == "uniform" else 0.99)) + 0 * shift

    def heads(values):
        return np.repeat(values[..., None], CONFIG.heads, axis=-1)

    scores = {name: curve(*SCORES[name], risen=200 if name == "softmax" else 399) for name in CONFIG.maps}
    scores["sigmoid"] = np.interp(steps, (0, 400, 800, CONFIG.steps), (begin, 0.4, 0.95, 0.95)) + shift
    sink = np.stack([np.stack([heads(curve(0.3, 0.3)), heads(scores[name])], axis=2) for name in CONFIG.maps])
    signed = np.array([name in transformers.SIGNED for name in CONFIG.maps])[:, None, None, None, None]
    shapes = (1, len(CONFIG.grid_maps), 1, 1, CONFIG.grid_seeds, len(CONFIG.shapes), len(steps))
    level = np.array([SCORES[name][0] for name in CONFIG.grid_maps]).reshape(1, -1, 1, 1, 1, 1, 1, 1)
    level = np.repeat(level, len(CONFIG.shapes), axis=5)
    level[:, :, :, :, :, CONFIG.shapes.index((2, "none"))] = 0.8  # without positions the maps are alike
    return {
        "maps": {
            "step": steps,
            "accuracy": np.stack([right(name) for name in CONFIG.maps]),
            "last_loss": np.stack([3 * (1 - right(name)) for name in CONFIG.maps]),
            "sink": sink,
            "sink_low": sink - 3 * signed,
            "sink_high": sink + 3 * signed,
            "maps": np.abs(np.random.default_rng(0).normal(size=(len(CONFIG.maps), 2, CONFIG.heads, length, length))),
        },
        "grid": {"accuracy": np.ones(shapes), "sink": level + np.zeros((*shapes, 4))},
    }


def test_verdicts_on_expected_numbers_are_the_recorded_ones(made):
    assert verdicts(made) == EXPERIMENT.recorded


def test_every_claim_has_numbers_and_a_control(made):
    TRIAL.check_claims(made)


def test_figures_draw_without_warnings(made, tmp_path):
    TRIAL.check_figures(made, ["formation", "sinks-by-map", "attention", "heads-and-positions"], tmp_path)


def test_claims_fail_on_runs_that_break_them(made):
    runs = made["maps"]
    swap = functools.partial(changed, made, "maps")
    rank = {name: place for place, name in enumerate(CONFIG.maps)}

    def moved(**sources):
        return verdicts(swap(sink=np.stack([runs["sink"][rank[sources.get(n.replace("-", "_"), n)]] for n in rank])))

    assert moved(softmax="sigmoid")["softmax-sinks"] == "does not hold"
    assert moved(normalised_sigmoid="sigmoid", normalised_elu1="elu1")["normalisation-carries-it"] == "holds in part"
    assert moved(sigmoid="uniform", elu1="uniform")["elementwise-stay-without"] == "holds"
    assert moved(softmax="uniform")["sinks-are-learnt"] == "does not hold"
    assert moved(softmax="sigmoid")["sinks-before-the-task"] == "does not hold"
    assert verdicts(swap(accuracy=0.5 * runs["accuracy"]))["task-learnt"] == "does not hold"
    alike = changed(made, "grid", sink=0 * made["grid"]["sink"] + 0.5)
    assert verdicts(alike)["any-heads-and-positions"] == "does not hold"
    never = changed(made, "grid", accuracy=0 * made["grid"]["accuracy"])
    assert verdicts(never)["any-heads-and-positions"] == "not tested"
    proper = swap(sink_low=np.clip(runs["sink_low"], 0, 1), sink_high=np.clip(runs["sink_high"], 0, 1))
    assert verdicts(proper)["signed-score-means-nothing"] == "does not hold"


def test_runs_that_never_learn_do_not_count(made):
    saves = numbers.when_learnt(np.array([[0.1, 0.96, 0.5], [0.1, 0.2, 0.3]]))
    np.testing.assert_array_equal(saves, [1, -1])
    np.testing.assert_array_equal(numbers.at(np.array([[1.0, 2.0, 3.0]] * 2), saves), [2.0, np.nan])
    never = changed(made, "maps", accuracy=0 * made["maps"]["accuracy"])
    assert np.isnan(mean(numbers.once_learnt(never, 0)).value)


def test_crossings_are_interpolated_and_may_not_be():
    steps = np.array([0, 10, 20])
    assert numbers.crossing(steps, np.array([0.0, 0.2, 0.6]), 0.4) == 15
    assert numbers.crossing(steps, np.array([0.9, 0.2, 0.6]), 0.4) == 0
    assert np.isnan(numbers.crossing(steps, np.zeros(3), 0.4))


def test_what_uniform_attention_scores():
    task = CONFIG.task()
    attention = np.tril(np.ones((task.length, task.length)))
    attention /= attention.sum(1, keepdims=True)
    assert numbers.uniform_score(CONFIG) == pytest.approx(float(gf.diagnostics.sink_score(attention, ROWS)))


def test_readings_are_those_of_the_model_sequence_by_sequence():
    task = gf.tasks.Induction(5, 3)
    _, model, args = transformers.member(
        jax.random.key(0), task=task, evaluated=6, width=8, heads=2, layers=1, mlp=None
    )
    found = jax.jit(lambda batch: observe(0, model, (batch, args[1])))(args[0])
    tokens, targets = np.asarray(args[0].inputs), np.asarray(args[0].targets)
    logits, inside = jax.vmap(lambda t: model(t, capture=True))(tokens)
    attention = np.asarray(inside.attention)
    scores = attention[..., 1:-2, 0].sum(-1) / attention[..., 1:-2, :].sum((-1, -2))
    np.testing.assert_allclose(found["sink"], scores.mean(0), rtol=1e-4)
    np.testing.assert_allclose(found["sink_low"], scores.min(0), rtol=1e-4)
    assert float(found["accuracy"]) == pytest.approx((np.asarray(logits)[:, -1].argmax(-1) == targets[:, -1]).mean())
    log_p = np.take_along_axis(np.asarray(jax.nn.log_softmax(logits)), targets[..., None], -1)[..., 0]
    assert float(found["last_loss"]) == pytest.approx(-log_p[:, -1].mean(), rel=1e-5)
    assert float(found["other_loss"]) == pytest.approx(-log_p[:, :-1].mean(), rel=1e-5)
    np.testing.assert_allclose(found["map"], attention.mean(0), rtol=1e-4, atol=1e-7)
    assert found["state_norm"].shape == (2, task.length) and found["value_norm"].shape == (1, 2, task.length)
    assert {x.dtype for x in jax.tree.leaves(found)} == {jnp.dtype("float32")}


def test_batches_are_fresh_at_every_step_and_equal_ones_share_a_kernel():
    first, again = (transformers.FreshBatches(gf.tasks.Induction(5, 3), 4) for _ in range(2))
    assert first == again and hash(first) == hash(again)
    keys = jax.random.split(jax.random.key(0), 2)
    one, other = (first(key, 0, (None, 0.2))[0].inputs for key in keys)
    assert (one != other).any()


def test_the_plan_counts_the_paper_s_runs():
    paper = type(CONFIG).paper()
    assert paper.grid_runs == 8640
    assert EXPERIMENT.plan(paper).startswith("8,700 runs of 3,900 steps")


@pytest.mark.slow
def test_quick_run_gives_the_recorded_verdicts(quick):
    assert verdicts(quick) == EXPERIMENT.recorded


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attention", "steps", "expected"), [("softmax", 780, 4), ("sigmoid", 780, 0), ("sigmoid", 2000, 4)]
)
def test_sinks_of_the_paper_s_size(attention, steps, expected, tmp_path):
    """After 780 steps as in an independent run of the public settings; later the elementwise map has sinks too."""
    task = gf.tasks.Induction()
    build = functools.partial(transformers.member, task=task, evaluated=1000, width=128, heads=4)
    batches = transformers.FreshBatches(task, 256)
    method = Descent(transformers.adamw, steps=steps, hyperparameters={"learning_rate": "lr"}, batches=batches)
    axes = {"attention": [attention], "lr": [1e-3], "seed": range(1)}
    ds = transformers.train(build, axes, method, observe, tmp_path, seed=0)
    assert float(ds.accuracy.values.squeeze()) > 0.95
    assert (ds.sink.values.squeeze()[-1] > 0.9).sum() == expected


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["maps", "grid"])
def test_a_stage_again_gives_the_same_bits(stage, tmp_path, monkeypatch):
    left = TRIAL.check_resuming(stage, tmp_path, monkeypatch)
    assert left and all(name.endswith(".zarr") for name in left)


@pytest.mark.slow
def test_tiny_settings_run_through(tmp_path):
    TRIAL.check_all_runs(tmp_path)
