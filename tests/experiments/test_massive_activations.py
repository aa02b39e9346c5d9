"""Massive activations: claims and their controls on made runs, readings by hand, resuming."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from trial import Trial, changed

import gradflow as gf
from gradflow.experiments import transformers
from gradflow.experiments.massive_activations import numbers
from gradflow.experiments.massive_activations.config import ARMS
from gradflow.experiments.massive_activations.readings import ROWS, observe, outliers
from gradflow.experiments.massive_activations.stages import member, stage_name

TRIAL = Trial.of(
    "massive-activations",
    arms=("softmax", "no-norm", "uniform"),
    depths=(1, 2),
    seeds=2,
    symbols=5,
    distinct=3,
    width=8,
    heads=2,
    batch=4,
    steps=3,
    evaluated=8,
    saves=2,
)
EXPERIMENT, CONFIG, verdicts = TRIAL.experiment, TRIAL.config, TRIAL.verdicts
quick = TRIAL.fixture()
# Attention on BOS, norm of its state over the others', its largest activation over the median, norm of its value.
ENDS = {
    "softmax": (0.97, 1.0, 6.5, 2.0),
    "no-norm": (0.99, 0.7, 3.6, 0.45),
    "sink-logit": (0.88, 1.0, 6.0, 2.0),
    "softmax1": (0.88, 1.0, 6.0, 2.0),
    "gated": (0.9, 1.1, 6.5, 2.0),
    "uniform": (0.29, 2.8, 11.0, 0.7),
}


@pytest.fixture
def made():
    """Results as the quick settings give them, without training."""
    return {stage_name(depth): _stage(depth) for depth in CONFIG.depths}


def _stage(depth):
    steps, length = CONFIG.save_at, CONFIG.task().length
    shift = np.linspace(-0.01, 0.01, CONFIG.seeds)[:, None]

    def along(begin, end):
        return np.interp(steps, (0, 200), (begin, end)) * (1 + shift)  # seed, save

    def first(curve, *layers):
        """Return norms (seed, save, *layers, token) of which the first is the curve and the others one."""
        norms = np.ones((*curve.shape, *layers, length))
        norms[..., 0] = curve.reshape(*curve.shape, *[1] * len(layers))
        return norms

    arms = {
        name: [] for name in ("accuracy", "on_bos", "state_norm", "peak_ratio", "massive", "value_norm", "key_norm")
    }
    for arm in CONFIG.arms:
        on_bos, state, peak, value = ENDS[arm]
        arms["accuracy"].append(along(0.02, 0.24 if arm == "uniform" else 0.99))
        heads = np.repeat(along(0.29, on_bos)[..., None], CONFIG.heads, axis=-1)
        arms["on_bos"].append(np.stack([0.5 * heads] * (depth - 1) + [heads], axis=2))
        arms["state_norm"].append(first(along(1.1, state), depth + 1))
        arms["peak_ratio"].append(first(along(4.0, peak), depth + 1))
        arms["massive"].append(np.zeros((CONFIG.seeds, len(steps), depth + 1)))
        arms["value_norm"].append(first(along(1.0, value), depth, CONFIG.heads))
        arms["key_norm"].append(first(along(1.0, 1.1), depth, CONFIG.heads))
    return {name: np.stack(parts) for name, parts in arms.items()} | {"step": steps}


def test_verdicts_on_expected_numbers_are_the_recorded_ones(made):
    assert verdicts(made) == EXPERIMENT.recorded


def test_every_claim_has_numbers_and_a_control(made):
    TRIAL.check_claims(made)


def test_figures_draw_without_warnings(made, tmp_path):
    TRIAL.check_figures(made, ["course", "norms", "kinds-2-layers", "kinds-4-layers"], tmp_path)


def test_claims_follow_the_numbers(made):
    soft, rests = CONFIG.arms.index("softmax"), [CONFIG.arms.index(arm) for arm in ("sink-logit", "softmax1", "gated")]

    def with_rows(name, rows, factor):
        results = made
        for depth in CONFIG.depths:
            values = made[stage_name(depth)][name].copy()
            values[rows, ..., -1:, :, 0] = factor * values[rows, ..., -1:, :, 0]
            results = changed(results, stage_name(depth), **{name: values})
        return verdicts(results)

    def scaled(name, rows, factor):
        results = made
        for depth in CONFIG.depths:
            values = made[stage_name(depth)][name].copy()
            values[rows] = factor * values[rows]
            results = changed(results, stage_name(depth), **{name: values})
        return verdicts(results)

    assert scaled("accuracy", soft, 0.5)["task-learnt"] == "holds in part"
    assert scaled("on_bos", soft, 0.3)["sinks-form"] == "does not hold"
    assert scaled("on_bos", rests, 0.5)["rests-take-the-sink-away"] == "holds"
    assert with_rows("state_norm", soft, 10)["state-of-bos-grows"] == "holds"
    assert with_rows("state_norm", soft, 10)["rests-take-the-norm-away"] == "holds"
    assert scaled("on_bos", CONFIG.arms.index("no-norm"), 0.3)["without-normalisation"] == "holds in part"
    everywhere = made
    for depth in CONFIG.depths:
        stage = made[stage_name(depth)]
        ratios = stage["peak_ratio"].copy()
        ratios[soft, ..., 0] *= depth
        drained = stage["value_norm"].copy()
        drained[soft, :, 1:, ..., 0] = 0.1
        everywhere = changed(
            everywhere, stage_name(depth), massive=1 + stage["massive"], peak_ratio=ratios, value_norm=drained
        )
    assert verdicts(everywhere)["massive-activations"] == "holds"
    assert verdicts(everywhere)["values-drain"] == "holds"
    assert verdicts(everywhere)["grows-with-depth"] == "holds"


def test_the_layer_that_attends_to_bos_most_is_read(made):
    stage = made["layers-4"]
    values = stage["value_norm"].copy()
    values[:, :, :, 0] = 100.0  # of the first layer, which attends to BOS less
    found = numbers.curves(CONFIG, changed(made, "layers-4", value_norm=values), 4, "softmax")["value_ratio"]
    np.testing.assert_allclose(found, numbers.curves(CONFIG, made, 4, "softmax")["value_ratio"])
    assert numbers.first_over_others(np.array([6.0, 1.0, 2.0, 9.0])) == 3.0


def test_a_planted_activation_is_counted_and_its_ratio_read():
    stream = np.ones((4, 2, 3, 5), np.float32)  # sequence, layer, token, feature
    stream[0, 1, 0, 2] = -2000.0
    found = outliers(jnp.asarray(stream))
    np.testing.assert_allclose(found["massive"], [0, 0.25])
    np.testing.assert_allclose(found["peak_ratio"], [[1, 1, 1], [(2000 + 3) / 4, 1, 1]])


@pytest.mark.slow
@pytest.mark.parametrize("arm", ARMS)
def test_readings_are_those_of_the_model_sequence_by_sequence(arm):
    task = gf.tasks.Induction(5, 3)
    _, model, args = member(jax.random.key(0), arm=arm, task=task, evaluated=4, width=8, heads=2, layers=2)
    found = jax.jit(functools.partial(observe, 0))(model, args)
    attention, states = [], []
    for tokens in np.asarray(args[0].inputs):
        _, inside = model(tokens, capture=True)
        attention.append(np.asarray(inside.attention))
        states.append(np.concatenate([np.asarray(inside.embedded)[None], np.asarray(inside.hidden)]))
    np.testing.assert_allclose(found["on_bos"], np.mean(attention, 0)[..., ROWS, 0].mean(-1), rtol=1e-4)
    sizes = np.abs(states)
    peaks = sizes.max(-1) / np.median(sizes, axis=(-1, -2))[..., None]
    np.testing.assert_allclose(found["peak_ratio"], peaks.mean(0), rtol=1e-4)
    np.testing.assert_allclose(found["state_norm"], np.linalg.norm(states, axis=-1).mean(0), rtol=1e-4)
    assert set(transformers.observe_induction(0, model, args)) < set(found)


def test_the_plan_counts_the_runs():
    assert EXPERIMENT.plan(type(CONFIG).paper()).startswith("90 runs of 3,900 steps")


@pytest.mark.slow
def test_quick_run_gives_the_recorded_verdicts(quick):
    assert verdicts(quick) == EXPERIMENT.recorded


@pytest.mark.slow
def test_a_stage_again_gives_the_same_bits(tmp_path, monkeypatch):
    assert TRIAL.check_resuming("layers-1", tmp_path, monkeypatch) == ["sweep.zarr"]


@pytest.mark.slow
def test_tiny_settings_run_through(tmp_path):
    TRIAL.check_all_runs(tmp_path)
