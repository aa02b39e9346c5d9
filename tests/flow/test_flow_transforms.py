"""jit, vmap, reverse and forward mode through a flow, against closed forms and finite differences."""

import closed_forms
import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradflow as gf
from gradflow.flow import solve

QUADRATIC, TWO = closed_forms.quadratic(), closed_forms.two_values()


def endpoint(start, t1=3.0, **options):
    return gf.gradient_flow(QUADRATIC.loss, start, QUADRATIC.args, t1=t1, rtol=1e-10, **options).final


def propagator(t):
    identity = np.eye(len(QUADRATIC.model))
    eigenvalues, vectors = np.linalg.eigh(np.asarray(QUADRATIC.args))
    return vectors * np.exp(-eigenvalues * t) @ vectors.T @ identity


def test_jit_equals_the_plain_call():
    # Not bit for bit: a kernel within another one may be fused in another order.
    np.testing.assert_allclose(jax.jit(endpoint)(QUADRATIC.model), endpoint(QUADRATIC.model), rtol=1e-13)


def test_reverse_mode_of_the_start():
    jacobian = jax.jit(jax.jacrev(endpoint))(QUADRATIC.model)
    np.testing.assert_allclose(jacobian, propagator(3.0), atol=1e-8)


def test_forward_mode_of_the_start():
    forward = lambda start: endpoint(start, adjoint=diffrax.ForwardMode())  # noqa: E731
    jacobian = jax.jit(jax.jacfwd(forward))(QUADRATIC.model)
    np.testing.assert_allclose(jacobian, propagator(3.0), atol=1e-8)


@pytest.mark.slow
def test_gradient_inside_vmap_inside_jit():
    starts = jnp.stack([QUADRATIC.model, 2 * QUADRATIC.model, -QUADRATIC.model])
    horizons = jnp.array([0.5, 1.0, 3.0])
    gradients = jax.jit(jax.vmap(jax.grad(lambda start, t1: jnp.sum(endpoint(start, t1) ** 2))))(starts, horizons)
    for start, t1, gradient in zip(starts, horizons, gradients, strict=True):
        operator = propagator(float(t1))
        np.testing.assert_allclose(gradient, 2 * operator.T @ operator @ start, atol=1e-7)


SAVED = np.array([0.0, 0.5, 0.75, 20.0])


def saved_sum(theta):
    """A scalar of the start, the data, the rate and the horizon, through saved values (diffrax #64)."""
    start, rate, stretch = theta[:4], theta[4], theta[5]
    ts = jnp.asarray(SAVED) * stretch
    run = gf.gradient_flow(QUADRATIC.loss, start, QUADRATIC.args, t1=ts[-1], ts=ts, rates=rate, rtol=1e-12)
    weights = jnp.arange(1.0, 17.0).reshape(4, 4)
    return jnp.sum(weights * run.observed) + jnp.sum(run.final**2)


@pytest.mark.slow
def test_gradient_of_saved_values_against_finite_differences():
    theta = jnp.concatenate([QUADRATIC.model, jnp.array([1.3, 1.0])])
    gradient = jax.jit(jax.grad(saved_sum))(theta)
    value = jax.jit(saved_sum)
    step = 1e-4
    differences = [(value(theta + step * e) - value(theta - step * e)) / (2 * step) for e in jnp.eye(6)]
    np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=1e-6)
    assert np.abs(gradient).min() > 1e-2  # every entry is really tested


def test_vmap_over_models_times_and_tolerances():
    alignments = jnp.array([[0.3, -0.1], [0.1, 0.05], [0.5, 0.4]])
    models = eqx.filter_vmap(lambda u: gf.models.ValueSoftmax(u[None], jnp.zeros(2)))(alignments)
    horizons = jnp.array([1.0, 3.0, 6.0])

    @eqx.filter_jit
    def run(models, horizons):
        def member(model, t1):
            return gf.gradient_flow(TWO.loss, model, TWO.args, t1=t1, ts=t1 * jnp.array([0.0, 0.5, 1.0]), rtol=1e-10)

        return eqx.filter_vmap(member)(models, horizons)

    runs = run(models, horizons)
    assert list(runs.status) == ["successful"] * 3
    assert runs.ts.shape == (3, 3)
    for i, (u, t1) in enumerate(zip(alignments, horizons, strict=True)):
        exact = closed_forms.two_values(tuple(np.asarray(u))).exact(float(t1))
        np.testing.assert_allclose(runs.final.scores[i], exact.scores, atol=1e-8)
        np.testing.assert_allclose(runs.observed.values[i, 2], exact.values, atol=1e-8)


def loss_scaled(model, args):
    return 0.5 * args["curvature"] * jnp.sum(model**2)


def stop_small(t, model, args):
    return jnp.max(jnp.abs(model)) < args["threshold"]


def test_a_stop_in_one_member_leaves_the_others_alone():
    """Eight members at rtol = atol = 1e-3 (diffrax #692): only the one whose stop comes true takes fewer steps."""
    curvature = jnp.geomspace(0.5, 5.0, 8)

    @jax.jit
    def steps(threshold):
        def member(c, threshold):
            args = {"curvature": c, "threshold": threshold}
            run = gf.gradient_flow(loss_scaled, jnp.ones(2), args, t1=5.0, rtol=1e-3, atol=1e-3, stop=stop_small)
            return run.stats["num_steps"], run.result == gf.RESULTS.event_occurred

        return jax.vmap(member)(curvature, threshold)

    free, none_stopped = steps(jnp.full(8, -1.0))
    stopped, one_stopped = steps(jnp.full(8, -1.0).at[3].set(0.5))
    others = np.arange(8) != 3
    assert not none_stopped.any()
    assert np.flatnonzero(one_stopped).tolist() == [3]
    np.testing.assert_array_equal(free[others], stopped[others])
    assert stopped[3] < free[3]


def test_a_nan_in_one_member_never_reaches_another():
    starts = jnp.ones((3, 2)).at[1, 0].set(jnp.nan)
    runs = jax.jit(jax.vmap(lambda m: gf.gradient_flow(loss_scaled, m, {"curvature": 1.0}, t1=2.0)))(starts)
    assert list(runs.status) == ["successful", "nonfinite_start", "successful"]
    np.testing.assert_allclose(runs.final[np.array([0, 2])], np.exp(-2.0), rtol=1e-7)


def half(t, model, args):
    return model[0]


@pytest.mark.slow
def test_the_time_of_an_event_can_be_differentiated():
    """m' = -c m from 1 crosses 1/2 at t = log 2 / c, whose derivative is -log 2 / c^2."""

    def crossing_time(c):
        return gf.gradient_flow(
            loss_scaled, jnp.ones(2), {"curvature": c}, t1=10.0, rtol=1e-11, event=gf.Crossing(half, 0.5)
        ).t_final

    value, slope = jax.jit(jax.value_and_grad(crossing_time))(2.0)
    assert float(value) == pytest.approx(np.log(2) / 2, abs=1e-9)
    assert float(slope) == pytest.approx(-np.log(2) / 4, abs=1e-6)


def walled(model, args):
    """Linear descent against a logarithmic wall at 1: long steps on the way jump past it, where the loss is NaN."""
    return args * jnp.sum(-model - 0.1 * jnp.log(1.0 - model))


def past_the_wall(theta, t1=5.0):
    """A scalar of the start, the data, the rate and the horizon, and how many steps were refused."""
    ts = jnp.array([0.6, 1.0]) * t1 * theta[3]
    run = gf.gradient_flow(walled, theta[:1], theta[1], t1=ts[-1], ts=ts, rates=theta[2], rtol=1e-6)
    return jnp.sum(run.final) + jnp.sum(run.observed), run.stats["num_rejected_steps"]


@pytest.mark.slow
def test_refused_steps_outside_the_domain_leave_gradients_finite():
    """0 * NaN: reverse mode differentiates refused steps too, by the state, the data, the rate and the step size."""
    theta, step = jnp.array([-3.0, 1.0, 1.0, 1.0]), 1e-4
    gradient, refused = jax.jit(jax.grad(past_the_wall, has_aux=True))(theta)
    batch = jax.jit(jax.vmap(lambda x: past_the_wall(x)[0]))
    differences = batch(theta + step * jnp.eye(4)) - batch(theta - step * jnp.eye(4))
    assert refused > 0
    np.testing.assert_allclose(gradient, differences / (2 * step), rtol=1e-3)

    def outside(x):
        return gf.gradient_flow(walled, x, 1.0, t1=1.0, rtol=1e-6).final

    assert np.isnan(walled(jnp.array([1.5]), 1.0))  # a control: the wall is there
    mapped = jax.jit(jax.vmap(jax.jacrev(outside)))(jnp.array([[-3.0], [0.5]]))
    assert np.isfinite(mapped).all()


def nan_below(model, args):
    return jnp.where(model[0] < args, jnp.nan, 0.5 * jnp.sum(model**2))


def test_a_failed_member_beside_a_crossing_keeps_its_last_good_state():
    """Where one member's crossing is refined, Diffrax gives the others the state of their last attempt, here NaN."""
    members = jnp.array([-1.0, 0.7, 2.0])

    @jax.jit
    def run(thresholds):
        event = gf.Crossing(half, 0.5)
        flow = lambda a: gf.gradient_flow(nan_below, jnp.ones(2), a, t1=5.0, ts=[0.1, 0.5, 5.0], event=event)  # noqa: E731
        return jax.vmap(flow)(thresholds)

    runs = run(members)
    assert list(runs.status) == ["event_occurred", "nonfinite_loss", "nonfinite_start"]
    np.testing.assert_allclose(runs.t_final, [np.log(2), -np.log(0.7), 0.0], atol=1e-7)
    np.testing.assert_allclose(runs.final[:, 0], [0.5, 0.7, 1.0], atol=1e-7)
    np.testing.assert_array_equal(runs.valid.sum(axis=1), [2, 1, 0])
    assert list(runs.message) == [gf.RESULTS[getattr(gf.RESULTS, name)] for name in runs.status]


def test_reverse_mode_keeps_as_many_states_as_fit():
    """Diffrax's default keeps 1,414 states at a million steps, whatever their size: 2 GB for a small network."""

    def checkpoints(size):
        return solve.checkpoints(jnp.zeros(size, jnp.float32).nbytes).checkpoints

    assert [checkpoints(size) for size in (10, 85_000, 10**7)] == [1024, 197, 16]


def norm_loss(model, args):
    return 0.5 * (jnp.linalg.norm(model) - args) ** 2


def test_gradient_of_a_norm_at_zero_is_named_not_spread():
    """The norm has no derivative at 0: the run says so at once instead of returning NaN (jax #4177)."""
    with pytest.raises(gf.FlowError, match="nonfinite_start"):
        gf.gradient_flow(norm_loss, jnp.zeros(2), jnp.asarray(1.0), t1=1.0)
    run = gf.gradient_flow(norm_loss, jnp.array([1e-3, 0.0]), jnp.asarray(1.0), t1=40.0)
    np.testing.assert_allclose(run.final, [1.0, 0.0], atol=1e-6)


def test_traced_save_times_out_of_order_or_range_give_invalid_rows():
    ts = jnp.array([[0.1, 0.5, 1.0], [0.5, 0.1, 1.0], [0.1, 0.5, 2.0], [jnp.nan, 0.5, 1.0]])

    @jax.jit
    @jax.vmap
    def run(times):
        return gf.gradient_flow(QUADRATIC.loss, QUADRATIC.model, QUADRATIC.args, t1=1.0, ts=times, rtol=1e-10)

    runs = run(ts)
    assert runs.valid.tolist() == [[True, True, True], [True, False, True], [True, True, False], [False, True, True]]
    assert list(runs.status) == ["successful"] * 4
    for row, times in enumerate(np.asarray(ts)):
        for column, time in enumerate(times):
            exact = QUADRATIC.exact(time) if runs.valid[row, column] else np.full(4, np.nan)
            np.testing.assert_allclose(runs.observed[row, column], exact, atol=1e-9)
