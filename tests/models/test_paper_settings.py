"""Golden values of the first paper's settings A to E: descent in float64 against an independent NumPy run."""

import json
import warnings
from pathlib import Path

import numpy as np
import optax
import pytest

import gradflow as gf
from gradflow.models import paper

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "polarization.json").read_text())
MAPS = {
    "L1": "normalised-abs",
    "Sum": "normalised-linear",
    "x2": "normalised-square",
    "softmax": "softmax",
    "ReLU": "normalised-relu",
    "sigmoid": "sigmoid",
}


def descend(setting, steps=None, save_at=None):
    with warnings.catch_warnings():  # converged runs say that nothing moves any more
        warnings.simplefilter("ignore", gf.FlowWarning)
        return gf.gradient_descent(
            setting.loss,
            setting.model,
            optax.sgd(setting.step_size),
            setting.args,
            steps=steps or setting.steps,
            save_at=save_at,
        )


def loss_of(setting, model):
    return setting.loss_factor * float(setting.loss(model, setting.args))


def entropy(weights):
    return float(-np.sum(weights * np.log(weights)))


def model_at(trajectory, row):
    models = trajectory.observed
    return type(models)(models.values[row], models.scores[row], trajectory.final.activation)


def assert_close(measured, expected, absolute=1e-5):
    np.testing.assert_allclose(measured, expected, rtol=0, atol=absolute)


def assert_close_loss(measured, expected, relative=1e-5):
    # Below 1e-24 a loss is the square of rounding errors, which depend on the order of sums.
    np.testing.assert_allclose(measured, expected, rtol=relative, atol=1e-24)


def test_setting_a():
    golden, setting = GOLDEN["A_logistic"], paper.logistic()
    steps = [int(k) for k in golden["after_updates"]]
    run = descend(setting, save_at=steps)
    for row, expected in enumerate(golden["after_updates"].values()):
        model = model_at(run, row)
        weights = np.asarray(model.weights)
        assert_close_loss(loss_of(setting, model), expected["loss"])
        assert_close(weights.max(), expected["s_max"])
        assert_close(entropy(weights), expected["entropy"])
    target = np.asarray(setting.args.x[0])
    alignments, beta = np.asarray(run.final.values).T @ target, np.asarray(run.final())
    assert alignments.argmax() + 1 == run.final.weights.argmax() + 1 == golden["winner_one_based"]
    assert_close(alignments, golden["u"])
    assert_close(run.final.weights, golden["s"])
    assert_close(alignments.max(), golden["u_winner"])
    assert_close(run.final.scores.max(), golden["a_winner"])
    assert_close(beta @ target, golden["z"])
    assert_close(beta @ target / np.linalg.norm(beta), golden["cos_target_beta"])


@pytest.mark.parametrize("loss", ["square", "logistic"])
@pytest.mark.parametrize("name", MAPS)
def test_setting_b(name, loss):
    expected = GOLDEN["B_six_maps"][loss][name]
    setting = paper.six_maps(gf.activations.by_name(MAPS[name]), loss)
    final = descend(setting).final
    weights = np.asarray(final.weights)
    # Along the kink of |a| the scores overshoot zero at every step, and the last bit of a sum decides where they land:
    # reordering the sums of one NumPy loop moves this loss by 7e-5.
    relative = 1e-4 if (name, loss) == ("L1", "logistic") else 1e-5
    assert_close_loss(loss_of(setting, final), expected["loss"], relative)
    assert_close(weights.max(), expected["max_weight"])
    assert_close(weights.min(), expected["min_weight"])
    assert weights.argmax() + 1 == expected["winner_one_based"]


@pytest.mark.parametrize("dimension", [10, 20, 50, 100])
def test_setting_c(dimension):
    expected, setting = GOLDEN["C_tied"][str(dimension)], paper.tied(dimension)
    final = descend(setting).final
    norms = np.linalg.norm(np.asarray(final.values), axis=0)
    assert_close_loss(loss_of(setting, final), expected["loss"])
    assert_close(final.weights.max(), expected["s_max"])
    assert_close(norms[int(final.weights.argmax())], expected["winner_column_norm"])
    assert_close(np.median(norms), expected["median_column_norm"])


@pytest.mark.parametrize("kappa", [1, 2, 3, 4, 5])
def test_setting_d(kappa):
    expected, setting = GOLDEN["D_condition_number"][str(kappa)], paper.condition_number(float(kappa))
    final = descend(setting).final
    weights, scores = np.asarray(final.weights), np.asarray(final.scores)
    assert_close_loss(loss_of(setting, final), expected["loss"])
    assert_close(weights.max(), expected["s_max"])
    assert_close(entropy(weights), expected["entropy"])
    assert_close(scores.max() - scores.min(), expected["score_spread"])
    assert_close(scores.std(), expected["score_std"])
    assert_close(np.linalg.norm(final()), expected["beta_norm"])


def test_setting_e():
    golden, setting = GOLDEN["E_kl"], paper.target_distribution()
    steps = [int(k) for k in golden["after_updates"]]
    run = descend(setting, steps=steps[-1], save_at=steps)
    assert_close(entropy(np.asarray(setting.args)), golden["entropy_of_p"], absolute=1e-12)
    for row, expected in enumerate(golden["after_updates"].values()):
        model = model_at(run, row)
        weights = np.asarray(model.weights)
        np.testing.assert_allclose(loss_of(setting, model), expected["kl"], rtol=1e-5, atol=1e-15)
        assert_close(weights.max(), expected["s_max"])
        assert_close(entropy(weights), expected["entropy"])


def test_a_wrong_step_size_misses_the_golden_values():
    setting = paper.logistic()
    run = gf.gradient_descent(setting.loss, setting.model, optax.sgd(0.101), setting.args, steps=1000)
    assert abs(float(run.final.weights.max()) - GOLDEN["A_logistic"]["after_updates"]["1000"]["s_max"]) > 1e-4


def test_unknown_loss_of_setting_b():
    with pytest.raises(gf.FlowError, match=r"'hinge'.*'square' and 'logistic'"):
        paper.six_maps(gf.activations.Softmax(), "hinge")


def test_step_sizes_and_factors_rescale_to_the_papers_losses():
    """The paper's losses carry other factors than the library's mean; step k must be the same update."""
    square = paper.six_maps(gf.activations.Softmax(), "square")
    residual = np.asarray(square.model()) - np.asarray(square.args.y)
    np.testing.assert_allclose(loss_of(square, square.model), 0.5 * residual @ residual, rtol=1e-12)
    assert square.step_size == pytest.approx(0.1 * square.loss_factor)
    design = paper.condition_number(3.0)
    residual = np.asarray(design.args.x @ design.model() - design.args.y)
    np.testing.assert_allclose(loss_of(design, design.model), residual @ residual, rtol=1e-12)
    assert design.step_size == pytest.approx(1e-3 * design.loss_factor)
    spectrum = np.linalg.svd(np.asarray(design.args.x), compute_uv=False)
    np.testing.assert_allclose(spectrum, np.linspace(1, 1 / 3, 20), atol=1e-12)
