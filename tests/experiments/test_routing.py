"""The toy simulation: its task, what is foreseen of a step, the shape of paths, claims and what breaks them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from trial import Trial, changed

from gradflow.activations import Softmax
from gradflow.experiments import audits
from gradflow.experiments.routing import readings, recall
from gradflow.experiments.routing.config import CLASSES, D_V, Config
from gradflow.experiments.routing.measures import measure
from gradflow.experiments.routing.stages import data, start
from gradflow.laws import Audit, Row

TRIAL = Trial.of("routing", pairs=(4,), seeds=2, sequences=8, steps=60, saves=6)
EXPERIMENT = TRIAL.experiment
SMALL = Config(pairs=(4, 6), seeds=3, steps=200, saves=8)
FIGURES = ["heat-maps", "loss", "sharpening", "value-path", "advantage", "seeds-and-sizes", "audit"]


def bent(config: Config, pairs: int) -> np.ndarray:
    """Return values that move along a parabola, (seeds, saves, T, d_v)."""
    along = np.linspace(0, 1, len(config.ts))[None, :, None, None]
    first, second = np.random.default_rng(pairs).normal(size=(2, config.seeds, 1, 3 * pairs, D_V))
    return along * first + 0.3 * along**2 * second


def measured(config: Config, pairs: int, learns: bool) -> dict[str, np.ndarray]:
    """Return what a run that learns to route, or one that does not, would have measured."""
    shape = (config.seeds, len(config.ts))
    rise = np.broadcast_to(np.linspace(0, 1, shape[1]) if learns else np.zeros(shape[1]), shape)
    jitter = np.random.default_rng(1).normal(size=(*shape, 3 * pairs, 3 * pairs))
    numbers = {
        "loss": 1.4 - (1.39 if learns else 0.3) * np.linspace(0, 1, shape[1]) + np.zeros(shape),
        "entropy": 1 - 0.5 * rise,
        "right": 1 / pairs + (0.95 - 1 / pairs) * rise,
        "fresh_accuracy": 0.25 + 0.7 * rise,
        "specialisation": 0.1 + 0.7 * rise,
        "specialisation_chance": 0.1 + 0.3 * rise,
        "participation": 3.0,
        "routing_norm": 0.1,
        "value_norm": 0.2,
        "law_residual": 1e-3,
        "uncentred_residual": 0.5,
        "flipped_residual": 2.0,
        "softmax_law_residual": 2.0,
        "law_correlation": 1.0,
        "alone_correlation": 0.3,
        "alone_uncentred_correlation": 0.35,
        "alone_sign": 0.7,
    }
    matrices = {"weights": jax.nn.softmax(jitter, axis=-1), "observed": jitter, "law_change": jitter}
    return (
        {name: np.broadcast_to(np.asarray(value, float), shape) for name, value in numbers.items()}
        | {name: np.asarray(value) for name, value in matrices.items()}
        | {"alone_change": jitter[::-1], "values": bent(config, pairs)}
    )


@pytest.fixture(scope="module")
def made():
    """Return results as the stages store them, without a run: what is judged and drawn must not hang on one."""
    results = {}
    for pairs in SMALL.pairs:
        run = {
            "t": SMALL.ts,
            "large_loss": np.append(np.geomspace(1, 1e300, len(SMALL.ts) - 1), np.inf) + np.zeros((3, 1)),
        }
        for name in ("flow", "descent"):
            run |= {f"{name}_{key}": value for key, value in measured(SMALL, pairs, True).items()}
        batch = recall.draw(jax.random.key(0), SMALL.seeds, pairs)
        results[f"T{3 * pairs}"] = run | {"inputs": np.asarray(batch.inputs), "targets": np.asarray(batch.targets)}
    results["T18"] |= audits.stored(Audit("a flow", (Row("-", "one", 1e-15, 1e-10), Row("-", "two", 0.0, 1e-12)), ()))
    arms = {"meaningless": False, "uniform": False, "sigmoid": True}
    results["controls"] = {
        f"{arm}_{key}": value for arm, learns in arms.items() for key, value in measured(SMALL, 6, learns).items()
    }
    return results


def verdicts(results, config=SMALL):
    return TRIAL.verdicts(results, config)


def test_claims_on_runs_that_show_them(made):
    assert verdicts(made) == EXPERIMENT.recorded


@pytest.mark.parametrize(
    ("claim", "stage", "name", "broken"),
    [
        ("heat-maps-sharpen", "T12", "flow_entropy", lambda x: np.ones_like(x)),
        ("sharpening-is-routing", "T12", "flow_right", lambda x: np.full_like(x, 0.25)),
        ("sharpening-is-routing", "controls", "uniform_loss", lambda x: np.zeros_like(x)),
        ("value-path-low-dimensional", "T12", "flow_values", lambda x: np.random.default_rng(0).normal(size=x.shape)),
        ("loss-falls-smoothly", "T12", "descent_loss", lambda x: x[:, ::-1]),
        ("loss-falls-smoothly", "T12", "flow_loss", lambda x: np.full_like(x, np.nan)),
        ("advantage-law", "T12", "descent_law_residual", lambda x: np.full_like(x, 0.2)),
        ("advantage-law", "controls", "sigmoid_softmax_law_residual", lambda x: np.full_like(x, 1e-3)),
        ("laws-hold", "T18", "audit_residual", lambda x: np.array([1.0, np.nan])),
    ],
)
def test_claims_fail_on_runs_that_break_them(made, claim, stage, name, broken):
    assert verdicts(changed(made, stage, **{name: broken(made[stage][name])}))[claim] != "holds"


def test_structure_and_the_advantage_alone_could_hold(made):
    noise = np.random.default_rng(0).normal(size=made["controls"]["uniform_values"].shape)
    astray = changed(made, "controls", uniform_values=noise, meaningless_values=noise)
    assert verdicts(astray)["low-dimension-is-structure"] == "holds"
    parts = {"descent_alone_correlation": 0.99, "descent_alone_uncentred_correlation": 0.2}
    shape = made["T12"]["descent_alone_sign"].shape
    alone = made
    for stage in ("T12", "T18"):
        alone = changed(alone, stage, **{name: np.full(shape, value) for name, value in parts.items()})
    assert verdicts(alone)["advantage-alone"] == "holds"


def test_specialisation_must_beat_permuted_classes(made):
    run = {stage: made[stage]["flow_specialisation"] for stage in ("T12", "T18")}
    level = made
    for stage, values in run.items():
        level = changed(level, stage, flow_specialisation_chance=values)
    assert verdicts(level)["positions-specialise"] == "does not hold"


def test_figures_draw_without_warnings(made, tmp_path):
    Trial(EXPERIMENT, SMALL, SMALL).check_figures(made, FIGURES, tmp_path)


def test_every_claim_has_numbers_and_a_control(made):
    Trial(EXPERIMENT, SMALL, SMALL).check_claims(made)


@pytest.mark.parametrize("pairs", [1, 4])
def test_an_answer_is_stored_once_and_asked_for_twice(pairs):
    batch = recall.draw(jax.random.key(3), 5, pairs)
    inputs, targets = np.asarray(batch.inputs), np.asarray(batch.targets)
    assert inputs.shape == (5, 3 * pairs, pairs + CLASSES)
    assert (np.asarray(batch.mask) == (np.arange(3 * pairs) >= pairs)).all()
    assert (inputs[:, :, :pairs].sum(axis=1) == 3).all(), "each key once with its value and twice without"
    assert (inputs[:, :pairs, pairs:].argmax(-1) == targets[:, :pairs]).all() and not inputs[:, pairs:, pairs:].any()
    right, stored = recall.right(batch)
    np.testing.assert_array_equal(right.sum(axis=-1), 1)
    np.testing.assert_array_equal(np.einsum("nij,nj->ni", right, targets), targets)
    assert stored.sum() == pairs


def test_labels_at_random_keep_the_inputs_and_new_sequences_are_new():
    trained, fresh = data(TRIAL.tiny, 4)
    assert (trained.inputs != fresh.inputs).any()
    blind = recall.meaningless(jax.random.key(4), trained)
    assert (blind.inputs == trained.inputs).all() and (blind.mask == trained.mask).all()
    assert abs(float((blind.targets == trained.targets).mean()) - 1 / CLASSES) < 0.15


def test_a_step_is_foreseen_to_second_order_and_wrong_laws_are_wrong():
    trained, fresh = data(TRIAL.tiny, 4)
    heads = jax.tree.map(lambda leaf: leaf[:, None], start(TRIAL.tiny, 4, Softmax()))
    assert heads.w_q.shape == (2, 1, 8, 6) and (heads.w_q[0] != heads.w_q[1]).all()
    small, smaller = (measure(heads, trained, fresh, jnp.asarray(size)) for size in (0.2, 0.1))
    np.testing.assert_allclose(small["law_residual"] / smaller["law_residual"], 2, rtol=0.05)
    assert small["law_residual"].max() < 0.01 and small["law_correlation"].min() > 0.999
    np.testing.assert_allclose(small["flipped_residual"], 2, atol=0.01)
    assert small["uncentred_residual"].min() > 0.1 and small["alone_correlation"].max() < 0.9
    np.testing.assert_allclose(small["softmax_law_residual"], small["law_residual"])
    np.testing.assert_allclose(small["right"], 0.25, atol=0.05)
    assert (small["entropy"] > 0.98).all() and (small["entropy"] <= 1).all()
    assert small["weights"].shape == (2, 1, 12, 12) and (small["participation"] <= D_V).all()


def test_paths_have_the_shares_that_they_must():
    line = np.arange(20)[:, None] ** 2.0 * np.ones(7)
    assert readings.plane_share(readings.evenly(line)) == pytest.approx(1)
    steps = np.linalg.norm(np.diff(readings.evenly(line), axis=0), axis=-1)
    np.testing.assert_allclose(steps, steps[0])
    corner = np.concatenate([np.zeros((1, 3)), np.cumsum(np.eye(3), axis=0)])
    assert 0.8 < readings.plane_share(corner) < 1
    # A long random walk in many dimensions has 6/pi^2 (1 + 1/4) = .76 along two components.
    walk = np.cumsum(np.random.default_rng(0).normal(size=(400, 4_000)), axis=0)
    assert readings.plane_share(walk) == pytest.approx(7.5 / np.pi**2, abs=0.01)


def test_rises_and_falls_are_read_off_curves():
    loss = np.array([[3.0, 2.0, 1.0], [1.0, 2.0, 1.0], [1.0, np.nan, np.nan]])
    np.testing.assert_allclose(readings.rises(loss), [0, 0.5, 1])
    np.testing.assert_allclose(readings.fall_time(np.array([0.0, 10.0, 20.0]), loss[:1], 0.75), 15)


@pytest.mark.slow
def test_a_stage_that_is_run_again_gives_the_same_bits(tmp_path, monkeypatch):
    assert TRIAL.check_resuming("T12", tmp_path, monkeypatch) == []


@pytest.mark.slow
def test_quick_verdicts_are_the_recorded_ones(tmp_path):
    assert TRIAL.verdicts(TRIAL.compute(TRIAL.config, tmp_path)) == EXPERIMENT.recorded


@pytest.mark.slow
def test_tiny_settings_run_through(tmp_path):
    TRIAL.check_all_runs(tmp_path)
