"""`stop` and `event`: where a flow ends early, how exactly, and what is saved."""

import jax.numpy as jnp
import numpy as np
import pytest

import gradflow as gf


def square_norm(model, args):
    return 0.5 * jnp.sum(model**2)


def first(t, model, args):
    return model[0]


def wave(t, model, args):
    return jnp.sin(t)


def below(t, model, args):
    return model[0] < args


def square_norm_of(model, args):
    return 0.5 * jnp.sum(model**2) + 0.0 * args


def always(t, model, args):
    return True


def flow(**options):
    return gf.gradient_flow(square_norm, jnp.ones(2), **{"t1": 10.0, "rtol": 1e-11, **options})


# Within a long step the dense output of the eighth-order pair is of sixth order only.
@pytest.mark.parametrize(("solver", "tolerance"), [("tsit5", 1e-9), ("dopri8", 1e-8)])
@pytest.mark.parametrize("level", [0.9, 0.5, 1e-3])
def test_a_crossing_is_refined_to_its_closed_form(level, solver, tolerance):
    run = flow(event=gf.Crossing(first, level), solver=solver)
    assert run.status == "event_occurred"
    assert float(run.t_final) == pytest.approx(-np.log(level), abs=tolerance)
    assert float(run.final[0]) == pytest.approx(level, abs=1e-10)


def test_saves_after_the_end_are_marked():
    run = flow(ts=[0.0, 0.5, 1.0, 9.0], event=gf.Crossing(first, 0.5))
    np.testing.assert_array_equal(run.valid, [True, True, False, False])
    assert np.isnan(run.observed[2:]).all()
    np.testing.assert_array_equal(run.ts, [0.0, 0.5, 1.0, 9.0])


def test_direction_chooses_the_crossing():
    turns = {
        direction: float(flow(event=gf.Crossing(wave, 0.5, direction)).t_final) for direction in (None, True, False)
    }
    assert turns[None] == turns[True] == pytest.approx(np.pi / 6, abs=1e-9)
    assert turns[False] == pytest.approx(5 * np.pi / 6, abs=1e-9)


def test_a_level_that_is_never_reached():
    run = flow(event=gf.Crossing(first, -1.0))
    assert (run.status, float(run.t_final)) == ("successful", 10.0)
    rising = flow(event=gf.Crossing(first, 0.5, True))
    assert (rising.status, float(rising.t_final)) == ("successful", 10.0)


def test_a_start_on_the_level_ends_there():
    run = flow(event=gf.Crossing(first, 1.0))
    assert run.status == "event_occurred"
    assert float(run.t_final) < 1e-12
    np.testing.assert_allclose(run.final, 1.0, atol=1e-12)


def test_a_stop_is_a_budget_checked_on_accepted_steps():
    run = gf.gradient_flow(square_norm_of, jnp.ones(2), 0.5, t1=10.0, stop=below, ts=[0.0, 0.1, 9.0])
    assert run.status == "event_occurred"
    assert float(run.final[0]) < 0.5
    assert np.log(2) < float(run.t_final) < 2.0
    np.testing.assert_array_equal(run.valid, [True, True, False])
    np.testing.assert_allclose(run.final[0], np.exp(-run.t_final), rtol=1e-6)


def test_a_stop_that_is_true_at_the_start():
    run = flow(stop=always)
    assert (run.status, float(run.t_final), int(run.stats["num_steps"])) == ("event_occurred", 0.0, 0)
    np.testing.assert_array_equal(run.final, 1.0)
    saved = flow(stop=always, ts=[0.0, 1.0])
    np.testing.assert_array_equal(saved.valid, [True, False])


@pytest.mark.parametrize(("level", "threshold", "expected"), [(0.9, 0.1, -np.log(0.9)), (0.1, 0.5, None)])
def test_stop_and_event_together_end_at_the_earlier(level, threshold, expected):
    run = gf.gradient_flow(
        square_norm_of, jnp.ones(2), threshold, t1=10.0, rtol=1e-11, stop=below, event=gf.Crossing(first, level)
    )
    assert run.status == "event_occurred"
    if expected is not None:
        assert float(run.t_final) == pytest.approx(expected, abs=1e-9)
    else:
        assert level < float(run.final[0]) < threshold


def test_saves_that_all_lie_after_the_end_are_named():
    with pytest.raises(gf.FlowError, match=r"ts\[0\] = 5 lies after the end of the flow.*t = 0.693147") as caught:
        flow(ts=[5.0, 6.0], event=gf.Crossing(first, 0.5))
    assert float(caught.value.trajectory.t_final) == pytest.approx(np.log(2), abs=1e-9)
    run = flow(ts=[5.0, 6.0], event=gf.Crossing(first, 0.5), throw=False)
    assert not run.valid.any()


def test_without_save_times_the_end_itself_is_saved():
    run = flow(event=gf.Crossing(first, 0.5))
    assert float(run.ts[0]) == float(run.t_final)
    assert bool(run.valid[0])
    np.testing.assert_array_equal(run.observed[0], run.final)


def softmax_leader(t, model, args):
    return model.weights.max()


def test_one_hot_time_of_setting_a():
    """A level far out in time: refined there as well, since the loss falls like 1 / t."""
    setting = gf.models.paper.logistic()
    run = gf.gradient_flow(
        setting.loss, setting.model, setting.args, t1=1e12, rtol=1e-10, event=gf.Crossing(softmax_leader, 0.99)
    )
    assert float(run.final.weights.max()) == pytest.approx(0.99, abs=1e-9)
    assert 1e6 < float(run.t_final) < 1e12


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (3, "event is 3: give gradflow.Crossing"),
        (gf.Crossing(first, np.nan), "event.level is nan"),
        (gf.Crossing(first, "x"), "event.level is 'x'"),
        (gf.Crossing(first, np.ones(2)), r"event.level has shape \(2,\)"),
        (gf.Crossing(first, 0.5, "up"), "event.direction is 'up'"),
        (gf.Crossing(lambda t, model, args: model, 0.5), "event.fn returns .*one real scalar"),
        (gf.Crossing(lambda t, model, args: "x", 0.5), "event.fn returns 'x'"),
        (gf.Crossing(3), "event.fn is 3, not a callable"),
    ],
    ids=range(8),
)
def test_unusable_event(event, message):
    with pytest.raises(gf.FlowError, match=message):
        flow(event=event)


@pytest.mark.parametrize("stop", [lambda t, model, args: model > 0, lambda t, model, args: None])
def test_unusable_stop(stop):
    with pytest.raises(gf.FlowError, match=r"stop returns .*one real scalar"):
        flow(stop=stop)
