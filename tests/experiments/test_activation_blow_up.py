"""What a massive activation does: claims and controls on made runs, rounding by hand, the law of a frozen state."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trial import Trial, changed

import gradflow as gf
from gradflow.experiments.activation_blow_up import numbers, readings
from gradflow.experiments.activation_blow_up.config import ARMS
from gradflow.experiments.activation_blow_up.stages import READ, member

TRIAL = Trial.of(
    "activation-blow-up",
    sizes=(0.0, 100.0, 1000.0),
    rates=(1e-3, 1e-2),
    seeds=2,
    symbols=5,
    distinct=3,
    width=8,
    heads=2,
    batch=4,
    steps=4,
    evaluated=8,
    saves=2,
)
EXPERIMENT, CONFIG, verdicts = TRIAL.experiment, TRIAL.config, TRIAL.verdicts
quick = TRIAL.fixture()
SMALL = {"task": gf.tasks.Induction(5, 3), "evaluated": 4, "width": 8, "heads": 2, "layers": 2}


@pytest.fixture
def made():
    """Results as the quick settings give them, without training: (size, rate, seed, save)."""
    sizes, steps = np.array(CONFIG.sizes), CONFIG.save_at
    shift = np.linspace(-0.01, 0.01, CONFIG.seeds)[:, None] + 0 * steps
    rates = np.ones(len(CONFIG.rates))[:, None, None]

    def runs(*levels):
        return np.array(levels)[:, None, None, None] * rates * (1 + shift)

    def alike(level):
        return runs(*[level] * len(sizes))

    learning = np.interp(steps, (0, 150, 200), (4.0, 2.0, 0.02))
    results = {}
    for arm in ARMS:
        bare = arm == "no-norm"
        norms = sizes / 100 + 1
        results[arm] = {
            "step": steps,
            "accuracy": runs(1, 1, 0.2, 0.1) if bare else alike(0.99),
            "last_loss": np.broadcast_to(learning, alike(1.0).shape) + 0.0,
            "on_bos": alike(0.6),
            "peak": runs(*np.maximum(sizes, 5)),
            "gradient": runs(*norms) if bare else alike(1.7),
            "bos_gradient": alike(0.1) if bare else runs(*1 / np.maximum(sizes, 10)),
            "bfloat16_accuracy": alike(0.99),
            "bfloat16_error": alike(0.002),
            "token_accuracy": alike(0.99),
            "token_error": alike(0.007),
            "tensor_accuracy": runs(0.99, 0.99, 0.08, 0.06),
            "tensor_error": runs(0.02, 0.2, 1.6, 0.9),
        }
    return results


def test_verdicts_on_expected_numbers_are_the_recorded_ones(made):
    assert verdicts(made) == EXPERIMENT.recorded


def test_every_claim_has_numbers_and_a_control(made):
    TRIAL.check_claims(made)


def test_figures_draw_without_warnings(made, tmp_path):
    TRIAL.check_figures(made, ["rounding", "gradients", "course"], tmp_path)


def test_claims_follow_the_numbers(made):
    runs, swap = made["peaked"], functools.partial(changed, made, "peaked")
    grows = np.array([1, 1, 1, 30])[:, None, None, None]
    assert verdicts(swap(accuracy=0.3 * runs["accuracy"]))["task-learnt"] == "does not hold"
    assert verdicts(swap(tensor_accuracy=runs["accuracy"]))["breaks-8-bits-a-layer"] == "holds in part"
    assert verdicts(swap(token_accuracy=runs["tensor_accuracy"]))["spares-8-bits-a-token"] == "holds in part"
    assert verdicts(swap(bfloat16_error=grows * runs["bfloat16_error"]))["bfloat16-does-not-mind"] == "holds in part"
    assert verdicts(swap(gradient=grows * runs["gradient"]))["gradients-blow-up"] == "holds"
    assert verdicts(swap(bos_gradient=made["no-norm"]["bos_gradient"]))["massive-state-is-frozen"] == "does not hold"
    spiking = runs["last_loss"].copy()
    spiking[-1, ..., -5] = 3.0
    assert verdicts(swap(last_loss=spiking))["loss-spikes"] == "holds"
    assert verdicts(swap(last_loss=0 * spiking + 2))["loss-spikes"] == "not tested"
    sooner = runs["on_bos"] + np.array([0, 0.1, 0.1, 0.1])[:, None, None, None]
    assert verdicts(swap(on_bos=sooner))["brings-the-sink"] == "holds"


def test_spikes_are_jumps_above_what_was_low():
    losses = np.array([[3.0, 0.2, 0.9, 0.1], [3.0, 2.0, 3.0, 2.0], [np.nan, 0.5, 0.9, np.nan]])
    np.testing.assert_array_equal(numbers.spikes(losses), [1, 0, 0])
    np.testing.assert_array_equal(numbers.falls(losses), [True, False, True])


@given(st.integers(1, 4), st.integers(1, 5), st.sampled_from([0.0, 1e-30, 1.0, 1e30]), st.integers(0, 99))
def test_rounding_is_within_half_a_step_and_repeats(length, width, scale, seed):
    x = scale * jax.random.normal(jax.random.key(seed), (length, width), jnp.float32)
    largest = np.abs(np.asarray(x))
    steps = {
        readings.tensor: largest.max() / 127,
        readings.token: largest.max(-1, keepdims=True) / 127,
        readings.bfloat16: largest * 2.0**-7,
    }
    for rounding, step in steps.items():
        found = rounding(x)
        assert found.dtype == x.dtype and bool(jnp.isfinite(found).all())
        assert (np.abs(found - x) <= 0.5001 * step + 1e-37).all(), rounding.__name__
        np.testing.assert_allclose(rounding(found), found, rtol=1e-6)


def test_a_massive_entry_leaves_nothing_of_the_others_under_one_scale():
    x = jnp.array([[1000.0, 0.5], [1.0, 2.0]])
    np.testing.assert_allclose(readings.tensor(x), [[1000.0, 0], [0, 0]])
    np.testing.assert_allclose(readings.token(x), [[1000.0, 0], [64 * 2 / 127, 2.0]], rtol=1e-6)


def test_the_residual_stream_is_rounded_and_nothing_else():
    _, model, args = member(jax.random.key(0), size=0.0, **SMALL)
    tokens = args[0].inputs[0]
    exact = readings.rounded(model, lambda x: x)
    np.testing.assert_array_equal(exact(tokens), model(tokens))
    _, inside = readings.rounded(model, readings.bfloat16)(tokens, capture=True)
    stream = np.asarray(inside.hidden)
    np.testing.assert_array_equal(readings.bfloat16(stream), stream)
    assert (np.asarray(model(tokens, capture=True)[1].hidden) != stream).any()


@pytest.mark.parametrize("spread", [False, True])
def test_what_is_added_has_the_norm_asked_for(spread):
    (_, plain, _), (_, loud, _) = (member(jax.random.key(0), size=s, spread=spread, **SMALL) for s in (0.0, 50.0))
    moved = np.asarray(loud.embedding - plain.embedding)
    np.testing.assert_allclose(np.linalg.norm(moved, axis=-1), [50.0] + [0.0] * (len(moved) - 1), rtol=1e-5)
    assert (np.abs(moved[0]) > 1).sum() == (8 if spread else 1)
    rest = [eqx.tree_at(lambda m: m.embedding, model, None) for model in (plain, loud)]
    assert eqx.tree_equal(*rest)


@pytest.mark.slow
def test_readings_are_those_of_autodiff_and_of_the_rounded_model():
    loss, model, args = member(jax.random.key(0), size=100.0, **SMALL)
    found = jax.jit(functools.partial(readings.observe, 0))(model, args)
    assert set(READ) <= set(found)
    gradient = jax.grad(loss)(model, args)
    leaves = [np.asarray(x) for x in jax.tree.leaves(gradient)]
    assert float(found["gradient"]) == pytest.approx(np.sqrt(sum((x**2).sum() for x in leaves)), rel=1e-4)
    assert float(found["bos_gradient"]) == pytest.approx(np.linalg.norm(gradient.embedding[0]), rel=1e-4)
    exact = np.stack([model(tokens)[-1] for tokens in args[0].inputs])
    coarse = np.stack([readings.rounded(model, readings.tensor)(tokens)[-1] for tokens in args[0].inputs])
    error = np.linalg.norm(coarse - exact, axis=-1) / np.linalg.norm(exact, axis=-1)
    assert float(found["tensor_error"]) == pytest.approx(error.mean(), rel=1e-3)
    right = coarse.argmax(-1) == np.asarray(args[0].targets[:, -1])
    assert float(found["tensor_accuracy"]) == pytest.approx(right.mean())


@pytest.mark.slow
def test_the_gradient_of_a_massive_state_falls_as_one_over_its_size_behind_normalisation():
    """The derivative of x / |x| is of order 1 / |x|; without normalisation it is not."""

    def gradient(size, **options):
        loss, model, args = member(jax.random.key(0), size=size, dtype=jnp.float64, **SMALL, **options)
        return np.linalg.norm(jax.grad(loss)(model, args).embedding[0])

    assert gradient(1e4) / gradient(1e5) == pytest.approx(10, rel=1e-3)
    assert gradient(1e4, norm=None) / gradient(1e5, norm=None) < 5


def test_the_plan_counts_the_runs():
    assert EXPERIMENT.plan(type(CONFIG).paper()).startswith("360 runs of 3,900 steps")


@pytest.mark.slow
def test_quick_run_gives_the_recorded_verdicts(quick):
    assert verdicts(quick) == EXPERIMENT.recorded


@pytest.mark.slow
def test_a_stage_again_gives_the_same_bits(tmp_path, monkeypatch):
    assert TRIAL.check_resuming("peaked", tmp_path, monkeypatch) == ["sweep.zarr"]


@pytest.mark.slow
def test_tiny_settings_run_through(tmp_path):
    TRIAL.check_all_runs(tmp_path)
