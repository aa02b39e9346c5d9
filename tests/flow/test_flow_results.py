"""How a flow can end: every result code, what is kept, and long horizons."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradflow as gf
from gradflow.models import paper


def square_norm(model, args):
    return 0.5 * jnp.sum(model**2)


def nan_below_half(model, args):
    """The value turns NaN while the gradient stays finite."""
    return jnp.where(model[0] < 0.5, jnp.nan, 0.5 * jnp.sum(model**2))


def root_of_the_rest(model, args):
    """Value and gradient leave their domain at model[0] = 1/2."""
    return 0.5 * jnp.sum(model**2) + 0.0 * jnp.sqrt(model[0] - 0.5)


def explosion(model, args):
    """m' = m^3 from 1 reaches infinity at t = 1/2."""
    return -0.25 * jnp.sum(model**4)


@pytest.mark.parametrize("loss", [nan_below_half, root_of_the_rest])
def test_a_loss_that_turns_nan_keeps_the_last_good_state(loss):
    run = gf.gradient_flow(loss, jnp.ones(2), t1=5.0, ts=[0.0, 0.3, 0.6, 0.8, 5.0], throw=False)
    assert run.status == "nonfinite_loss"
    assert float(run.final[0]) == pytest.approx(0.5, abs=1e-4)
    assert float(run.t_final) == pytest.approx(np.log(2), abs=1e-4)
    np.testing.assert_array_equal(run.valid, [True, True, True, False, False])
    np.testing.assert_allclose(run.observed[:3, 0], np.exp([0, -0.3, -0.6]), rtol=1e-6)
    assert np.isnan(run.observed[3:]).all()
    assert np.isfinite(run.final).all()


def test_a_failed_run_is_raised_with_its_trajectory():
    with pytest.raises(gf.FlowError, match=r"the flow ended with 'nonfinite_loss' at t = 0.69") as caught:
        gf.gradient_flow(nan_below_half, jnp.ones(2), t1=5.0, ts=[0.0, 0.3, 0.6, 0.8, 5.0])
    assert "\n" not in str(caught.value)
    assert caught.value.trajectory.valid.sum() == 3


def test_a_flow_that_explodes_in_finite_time_ends_there():
    run = gf.gradient_flow(explosion, jnp.ones(1), t1=1.0, throw=False)
    assert run.status in ("nonfinite_loss", "dt_min_reached")
    assert float(run.t_final) == pytest.approx(0.5, abs=1e-6)
    assert np.isfinite(run.final).all()


def test_a_start_that_is_not_finite():
    model = gf.models.ValueSoftmax(jnp.full((2, 3), -2000.0), jnp.zeros(3))
    data = gf.tasks.Data(jnp.ones((1, 2)), jnp.ones(1))
    with pytest.raises(gf.FlowError, match=r"nonfinite_start.*initial model"):
        gf.gradient_flow(gf.losses.exponential, model, data, t1=1.0)
    run = gf.gradient_flow(nan_below_half, jnp.zeros(2), t1=1.0, ts=[0.0, 1.0], throw=False)
    assert run.status == "nonfinite_start"
    np.testing.assert_array_equal(run.final, 0.0)
    np.testing.assert_array_equal(run.valid, [True, False])


@pytest.mark.slow
def test_a_slide_along_a_kink_is_named_and_smooth_maps_pass():
    codes = {}
    for name in ("normalised-abs", "normalised-relu", "normalised-square"):
        setting = paper.six_maps(gf.activations.by_name(name), "logistic")
        run = gf.gradient_flow(setting.loss, setting.model, setting.args, t1=5e4, throw=False)
        codes[name] = run.status
        assert int(run.stats["num_steps"]) < 20_000
        assert np.isfinite(run.final.scores).all()
    assert codes == {"normalised-abs": "kink", "normalised-relu": "successful", "normalised-square": "successful"}


def test_max_steps():
    with pytest.raises(gf.FlowError, match=r"max_steps_reached.*after 3 steps"):
        gf.gradient_flow(square_norm, jnp.ones(2), t1=1e3, max_steps=3)
    run = gf.gradient_flow(square_norm, jnp.ones(2), t1=10.0, max_steps=3, ts=[0.0, 1e-3, 10.0], throw=False)
    np.testing.assert_array_equal(run.valid, [True, True, False])
    assert int(run.stats["num_steps"]) == 3


def saddle(model, args):
    return 0.5 * (model[0] ** 2 - model[1] ** 2)


@pytest.mark.slow
def test_a_saddle_is_a_legal_start_and_never_called_converged():
    """A zero gradient is no error, no early end: time passes and nothing moves (diffrax #448)."""
    run = gf.gradient_flow(saddle, jnp.zeros(2), t1=1e6, ts=[0.0, 1.0, 1e6])
    assert (run.status, float(run.t_final)) == ("successful", 1e6)
    np.testing.assert_array_equal(run.observed, 0.0)
    beside = gf.gradient_flow(saddle, jnp.array([0.0, 1e-9]), t1=30.0, atol=0.0)  # entries of 1e-9 and exactly 0
    np.testing.assert_allclose(beside.final, [0.0, 1e-9 * np.exp(30.0)], rtol=1e-6)
    equal = gf.models.ValueSoftmax(jnp.full((2, 4), 0.1), jnp.zeros(4))
    data = gf.tasks.single_sample(jnp.ones(2))
    run = gf.gradient_flow(gf.losses.logistic, equal, data, t1=1e5)
    np.testing.assert_allclose(run.final.weights, 0.25, atol=1e-12)
    assert float(gf.losses.logistic(run.final, data)) * 1e5 == pytest.approx(4, rel=0.01)


def test_setting_a_to_a_trillion_in_few_steps_and_on():
    setting = paper.logistic()
    run = gf.gradient_flow(setting.loss, setting.model, setting.args, t1=1e12, rtol=1e-10)
    assert int(run.stats["num_steps"]) < 500
    assert float(setting.loss(run.final, setting.args)) * 1e12 == pytest.approx(1, rel=0.02)
    far = gf.gradient_flow(setting.loss, setting.model, setting.args, t1=1e20, rtol=1e-10)
    assert far.status == "successful"
    assert int(far.stats["num_steps"]) < 1000
    assert float(far.final.weights.max()) > float(run.final.weights.max()) > 0.98


def test_a_window_of_time_that_starts_late():
    run = gf.gradient_flow(square_norm, jnp.ones(2), t0=5.0, t1=6.0, ts=[5.0, 5.5])
    np.testing.assert_allclose(run.observed[:, 0], np.exp([0.0, -0.5]), rtol=1e-7)
    np.testing.assert_allclose(run.final, np.exp(-1.0), rtol=1e-7)
    before = gf.gradient_flow(square_norm, jnp.ones(2), t0=-1.0, t1=0.0)
    np.testing.assert_allclose(before.final, np.exp(-1.0), rtol=1e-7)


@pytest.mark.parametrize("shape", [(1,), ()])
def test_smallest_models(shape):
    run = gf.gradient_flow(square_norm, jnp.ones(shape), t1=1.0)
    assert run.final.shape == shape
    np.testing.assert_allclose(run.final, np.exp(-1.0), rtol=1e-7)


def test_one_value_and_one_dimension():
    """d = n = 1: the only weight is 1 and stays there, and the value follows v + exp(v) = t + const."""
    model = gf.models.ValueSoftmax(jnp.zeros((1, 1)), jnp.zeros(1))
    data = gf.tasks.Data(jnp.ones((1, 1)), jnp.ones(1))
    run = gf.gradient_flow(gf.losses.logistic, model, data, t1=50.0)
    value = float(run.final.values[0, 0])
    assert float(run.final.weights[0]) == 1.0
    assert float(run.final.scores[0]) == 0.0
    assert value + np.exp(value) == pytest.approx(51.0, rel=1e-6)


def test_messages_are_one_line():
    for name in ("nonfinite_start", "nonfinite_loss", "kink", "stiff", "interrupted"):
        message = gf.RESULTS[getattr(gf.RESULTS, name)]
        assert message and "\n" not in message


def test_status_of_members_is_one_name_each():
    runs = jax.vmap(lambda m: gf.gradient_flow(nan_below_half, m, t1=2.0))(
        jnp.array([[1.0, 1.0], [9.0, 1.0], [0.1, 0.1]])
    )
    assert runs.status.tolist() == ["nonfinite_loss", "successful", "nonfinite_start"]


def lasso(model, args):
    return jnp.sum(args * jnp.abs(model)) + 0.05 * jnp.sum((model - 2) ** 2)


@pytest.mark.parametrize("rtol", [1e-5, 1e-3])
def test_a_slide_along_a_piecewise_linear_loss_is_named(rtol):
    """Its errors are of rounding size on steps that miss the kink, which fall faster than those of a smooth field."""
    start, penalty = jnp.array([1.0, -1.0, 0.5]), jnp.array([1.0, 2.0, 0.1])
    run = gf.gradient_flow(lasso, start, penalty, t1=1e3, rtol=rtol, max_steps=40_000, throw=False)
    assert run.status == "kink"
