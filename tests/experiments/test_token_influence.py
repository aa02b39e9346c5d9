"""One token's influence: claims and their controls on made runs, readings by hand, the paper's size, resuming."""

import functools

import jax
import numpy as np
import pytest
from trial import Trial, changed

import gradflow as gf
from gradflow.experiments import transformers
from gradflow.experiments.token_influence import readings
from gradflow.experiments.token_influence.config import Config, Shape
from gradflow.experiments.token_influence.stages import build, descent

TRIAL = Trial.of(
    "token-influence",
    preset="quick",
    maps=("softmax", "normalised-sigmoid", "sigmoid", "uniform"),
    seeds=2,
    vocabulary=9,
    distinct=2,
    width=8,
    batch=4,
    steps=3,
    evaluated=8,
    pairs=4,
    attacked=2,
    saves=2,
    grid_maps=("softmax", "sigmoid"),
    grid_vocabularies=(9,),
    grid_seeds=1,
)
EXPERIMENT, CONFIG, verdicts = TRIAL.experiment, TRIAL.config, TRIAL.verdicts
quick = TRIAL.fixture()
# At the end: sparsity, flip rate, attack, share of the most influential token.
ENDS = {
    "softmax": (1.0, 0.95, 1.0, 0.8),
    "normalised-sigmoid": (0.3, 0.1, 0.4, 0.2),
    "normalised-elu1": (0.6, 0.6, 0.8, 0.3),
    "sigmoid": (0.17, 0.04, 0.1, 0.16),
    "elu1": (0.4, 0.2, 0.3, 0.2),
    "uniform": (1 / 11, 0.02, 0.0, 0.12),
}


@pytest.fixture
def made():
    """Results as the quick settings give them, without training."""
    seeds, saves = CONFIG.seeds, len(CONFIG.save_at)
    shift = np.linspace(-0.01, 0.01, seeds)[:, None]
    names = ("sparsity", "flip", "attack", "top_share")

    def curves(start, ends):
        return np.stack([np.linspace(start, end, saves) + shift for end in ends])

    maps = {name: curves(0.1, [ENDS[each][rank] for each in CONFIG.maps]) for rank, name in enumerate(names)}
    maps |= {"accuracy": curves(0.25, [1.0] * len(CONFIG.maps)), "flip_random": curves(0.1, [0.1] * len(CONFIG.maps))}
    by_shape = np.array([0.95, 0.5, 0.3, 0.6, 0.2, 0.9, 0.9])[:, None, None, None]
    by_map = np.array([1.0, 0.3, 0.1])[:, None, None]
    flip = (by_shape * by_map + np.linspace(-0.01, 0.01, CONFIG.grid_seeds))[None]
    return {
        "maps": maps | {"step": CONFIG.save_at},
        "grid": {"flip": flip, "sparsity": flip, "accuracy": np.ones_like(flip)},
    }


def test_verdicts_on_expected_numbers_are_the_recorded_ones(made):
    assert verdicts(made) == EXPERIMENT.recorded


def test_every_claim_has_numbers_and_a_control(made):
    TRIAL.check_claims(made)


def test_figures_draw_without_warnings(made, tmp_path):
    names = ["influence-by-map", "influence-course", "influence-by-shape", "sparsity-and-flips"]
    TRIAL.check_figures(made, names, tmp_path)


def test_claims_fail_on_runs_that_break_them(made):
    runs = made["maps"]
    swap = functools.partial(changed, made, "maps")

    def alike(reading):
        return verdicts(swap(**{reading: np.repeat(runs[reading][-1:], len(CONFIG.maps), axis=0)}))

    assert alike("sparsity")["softmax-is-sparse"] == "does not hold"
    assert alike("flip")["one-token-decides"] == "does not hold"
    assert alike("attack")["one-token-attack"] == "does not hold"
    assert alike("flip")["normalisation-in-between"] == "holds in part"  # sparsity still is
    assert verdicts(swap(flip=1 - runs["flip"]))["sparsity-foretells-flips"] == "does not hold"
    assert verdicts(swap(accuracy=0.5 * runs["accuracy"]))["task-learnt"] == "does not hold"
    flat = changed(made, "grid", flip=0.9 + 0 * made["grid"]["flip"])
    assert verdicts(flat)["fades-with-heads-and-layers"] == "does not hold"


def test_runs_that_never_learn_do_not_count_in_the_grid(made):
    never = changed(made, "grid", accuracy=0 * made["grid"]["accuracy"])
    assert verdicts(never)["fades-with-heads-and-layers"] == "does not hold"


@pytest.mark.slow
def test_readings_are_those_of_the_diagnostics_sequence_by_sequence():
    task = gf.tasks.Groups(9, distinct=2)
    _, model, args = transformers.member(
        jax.random.key(0), task=task, evaluated=16, width=8, heads=2, layers=1, mlp=None, positions=None, causal=False
    )
    found = jax.jit(lambda batch: readings.observe(0, model, (batch, 0.0), task=task, pairs=8, attacked=4))(args[0])
    tokens, labels = args[0].inputs, np.asarray(args[0].targets)[:, -1]
    blind = jax.jit(jax.vmap(lambda each: (model(each, capture=True), readings.Blind(model)(each, capture=True))))
    (logits, inside), (same, hidden) = blind(tokens)
    assert float(found["accuracy"]) == pytest.approx(float((np.asarray(logits)[:, -1].argmax(-1) == labels).mean()))
    row = np.asarray(inside.attention)[..., -1, :]
    assert float(found["sparsity"]) == pytest.approx(float((row.max(-1) / row.sum(-1)).mean()), rel=1e-5)
    np.testing.assert_array_equal(same, logits)
    assert not np.asarray(hidden.attention).any(), "a blind model prefers no token"
    # Every content token of four sequences replaced by every other: all in one call.
    tried = np.repeat(np.asarray(tokens)[:4, None], 2 * 8, axis=1)
    for place, (position, token) in enumerate((k, new) for k in range(2) for new in range(1, 9)):
        tried[:, place, position] = token
    wrong = np.asarray(blind(tried.reshape(-1, 3))[0][0])[:, -1].argmax(-1).reshape(4, -1) != labels[:4, None]
    right = np.asarray(logits)[:4, -1].argmax(-1) == labels[:4]
    expected = wrong[right].any(axis=1).mean() if right.any() else np.nan
    np.testing.assert_allclose(found["attack"], expected)


def test_the_plan_counts_the_paper_s_runs():
    paper = type(CONFIG).paper()
    assert paper.grid_runs == 12960
    assert EXPERIMENT.plan(paper).startswith("13,020 runs of 390 steps")


@pytest.mark.slow
def test_quick_run_gives_the_recorded_verdicts(quick):
    assert verdicts(quick) == EXPERIMENT.recorded


@pytest.mark.slow
def test_flip_rates_of_the_paper_s_size(tmp_path):
    """One layer and one head of width 128, as in an independent run of the public settings."""
    config = Config.paper()
    axes = {"attention": ["softmax", "sigmoid"], "lr": [1e-2], "seed": range(1)}
    task, read = config.task(), functools.partial(readings.observe_few, task=config.task(), pairs=config.pairs)
    method = descent(config, task, np.array([390]))
    ds = transformers.train(build(config, task, Shape()), axes, method, read, tmp_path, seed=0)
    last = {name: np.asarray(ds[name].values)[:, 0, 0, -1] for name in ("accuracy", "sparsity", "flip")}
    assert (last["accuracy"] > 0.95).all()
    assert last["flip"][0] > 0.8 and last["flip"][1] < 0.2
    assert last["sparsity"][0] > 0.95 and last["sparsity"][1] < 0.3


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["maps", "grid"])
def test_a_stage_again_gives_the_same_bits(stage, tmp_path, monkeypatch):
    left = TRIAL.check_resuming(stage, tmp_path, monkeypatch)
    assert left and all(name.endswith(".zarr") for name in left)


@pytest.mark.slow
def test_tiny_settings_run_through(tmp_path):
    TRIAL.check_all_runs(tmp_path)
