"""Gradient descent against a NumPy loop; saves, chunks, schedules, batches, broken and stalled runs."""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gradflow as gf
from gradflow.descent import solve
from gradflow.models import paper

SETTING = paper.logistic()


def descend(optimizer=None, **options):
    return gf.gradient_descent(
        SETTING.loss, SETTING.model, optimizer or optax.sgd(0.1), SETTING.args, **{"steps": 50, **options}
    )


def reference(steps, step_size):
    """Plain gradient descent of setting A, written out: V += lr gamma b s^T, a += lr gamma s (u - z)."""
    values, scores = np.array(SETTING.model.values), np.array(SETTING.model.scores)
    target, rows = np.array(SETTING.args.x[0]), [(values, scores)]
    for k in range(steps):
        lr = step_size(k) if callable(step_size) else step_size
        weights = np.exp(scores - scores.max())
        weights /= weights.sum()
        alignments = values.T @ target
        gamma = 1 / (1 + np.exp(weights @ alignments))
        values, scores = (
            values + lr * gamma * np.outer(target, weights),
            scores + lr * gamma * weights * (alignments - weights @ alignments),
        )
        rows.append((values, scores))
    return rows


def assert_same(models, rows):
    for i, (values, scores) in enumerate(rows):
        np.testing.assert_allclose(models.values[i], values, rtol=0, atol=1e-13)
        np.testing.assert_allclose(models.scores[i], scores, rtol=0, atol=1e-13)


def test_plain_descent_is_the_numpy_loop():
    at = [0, 1, 2, 7, 49, 50]
    run, rows = descend(save_at=at), reference(50, 0.1)
    assert_same(run.observed, [rows[k] for k in at])
    assert run.status == "successful"
    assert run.valid.all()
    np.testing.assert_array_equal(run.ts, at)
    assert (int(run.t_final), run.stats["num_steps"], run.stats["num_gradients"]) == (50, 50, 50)
    np.testing.assert_array_equal(run.final.scores, run.observed.scores[-1])
    assert np.abs(run.observed.values[1] - reference(1, 0.11)[1][0]).max() > 1e-5  # a control


def test_a_schedule_is_followed():
    def schedule(k):
        return 0.5 / (1 + k)

    run = descend(optax.sgd(schedule), save_at=[1, 10, 50])
    rows = reference(50, schedule)
    assert_same(run.observed, [rows[1], rows[10], rows[50]])


@pytest.mark.parametrize(
    ("make", "line_search"),
    [
        (lambda: optax.sgd(0.1, momentum=0.9), False),
        (lambda: optax.adam(0.01), False),
        (lambda: optax.lbfgs(), True),
        (lambda: optax.MultiSteps(optax.sgd(0.1), 2), False),
    ],
    ids=["momentum", "adam", "lbfgs", "multi-steps"],
)
def test_optimisers_agree_with_a_plain_optax_loop(make, line_search):
    """Optax by itself on the filtered model, one jitted step at a time."""
    optimizer = make()
    run = descend(optimizer, steps=6)
    params = (SETTING.model.values, SETTING.model.scores)
    value = lambda p: SETTING.loss(gf.models.ValueSoftmax(*p), SETTING.args)  # noqa: E731
    state = optimizer.init(params)

    @jax.jit
    def step(params, state):
        loss, gradient = jax.value_and_grad(value)(params)
        extra = {"value": loss, "grad": gradient, "value_fn": value} if line_search else {}
        updates, state = optimizer.update(gradient, state, params, **extra)
        return optax.apply_updates(params, updates), state

    for _ in range(6):
        params, state = step(params, state)
    np.testing.assert_allclose(run.final.values, params[0], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(run.final.scores, params[1], rtol=1e-8, atol=1e-10)


def test_chunks_do_not_change_a_bit(monkeypatch):
    save_at = np.append(gf.log_steps(3000, 40)[:-1], 3000)
    one = descend(optax.adam(0.01), steps=3000, save_at=save_at)
    monkeypatch.setattr(solve, "FIRST_CHUNK", 7)
    monkeypatch.setattr(solve, "CHUNK_SECONDS", 1e-4)
    many = descend(optax.adam(0.01), steps=3000, save_at=save_at, progress=True)
    for a, b in zip(jax.tree.leaves(one.observed), jax.tree.leaves(many.observed), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(one.final.values, many.final.values)


def test_more_saves_do_not_change_a_bit():
    dense, sparse = descend(save_at=np.arange(51)), descend()
    np.testing.assert_array_equal(dense.observed.values[-1], sparse.final.values)


def observe_step(step, model, args):
    return {"step": step, "loss": SETTING.loss(model, args)}


def test_observe():
    run = descend(observe=observe_step, save_at=[0, 5, 50])
    np.testing.assert_array_equal(run.observed["step"], [0, 5, 50])
    assert (np.diff(run.observed["loss"]) < 0).all()


def mean_square(model, data):
    return 0.5 * jnp.mean((data["x"] @ model["w"] - data["y"]) ** 2)


ROWS = {"x": jnp.asarray(np.random.RandomState(0).randn(12, 3)), "y": jnp.asarray(np.random.RandomState(1).randn(12))}


def rolling_window(key, step, data):
    return jax.tree.map(lambda x: jnp.roll(x, -step, axis=0)[:6], data)


def numpy_descent(batches, lr=0.1):
    w, x, y = np.zeros(3), np.asarray(ROWS["x"]), np.asarray(ROWS["y"])
    for rows in batches:
        w = w - lr * x[rows].T @ (x[rows] @ w - y[rows]) / len(rows)
    return w


def batched(batches, key=None, steps=9, **options):
    model = {"w": jnp.zeros(3)}
    key = jax.random.key(0) if key is None else key
    return gf.gradient_descent(
        mean_square, model, optax.sgd(0.1), ROWS, steps=steps, batches=batches, key=key, **options
    )


def test_batches_from_a_function_of_the_step():
    expected = numpy_descent([np.roll(np.arange(12), -k)[:6] for k in range(9)])
    np.testing.assert_allclose(batched(rolling_window).final["w"], expected, atol=1e-13)


def test_batches_by_size_depend_on_key_and_step_alone():
    runs = [batched(4).final["w"], batched(4).final["w"], batched(4, jax.random.key(1)).final["w"]]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])
    draws = [jax.random.randint(jax.random.fold_in(jax.random.key(0), k), (4,), 0, 12) for k in range(9)]
    np.testing.assert_allclose(runs[0], numpy_descent(np.asarray(draws)), atol=1e-13)
    longer = batched(4, steps=12, save_at=[9, 12])
    np.testing.assert_array_equal(longer.observed["w"][0], runs[0])


def test_a_line_search_sees_the_batch():
    """The value function handed to the optimiser is that of the step's rows, not of all."""
    seen = {}

    def update(gradient, state, params, *, value, value_fn, **_):
        seen["same"] = True
        return jax.tree.map(lambda g: (value_fn(params) - value) * jnp.ones_like(g) - 0.1 * g, gradient), state

    optimizer = optax.GradientTransformationExtraArgs(lambda params: (), update)
    run = gf.gradient_descent(
        mean_square, {"w": jnp.zeros(3)}, optimizer, ROWS, steps=9, batches=4, key=jax.random.key(0)
    )
    assert seen["same"]
    np.testing.assert_allclose(run.final["w"], batched(4).final["w"], atol=1e-12)


def nan_below_half(model, args):
    """Value NaN, gradient finite."""
    return jnp.where(model[0] < 0.5, jnp.nan, 0.5 * jnp.sum(model**2))


def root(model, args):
    return 0.5 * jnp.sum(model**2) + 0.0 * jnp.sqrt(model[0] - 0.5)


@pytest.mark.parametrize("loss", [nan_below_half, root])
def test_a_loss_that_turns_nan_keeps_the_last_good_state(loss):
    run = gf.gradient_descent(loss, jnp.ones(2), optax.sgd(0.01), steps=500, save_at=[0, 10, 68, 69, 500], throw=False)
    assert run.status == "nonfinite_loss"
    assert int(run.t_final) == 68  # .99^68 = .505, .99^69 = .4998
    np.testing.assert_allclose(run.final, 0.99**68, rtol=1e-12)
    np.testing.assert_array_equal(run.valid, [True, True, True, False, False])
    np.testing.assert_allclose(run.observed[1], 0.99**10, rtol=1e-12)
    assert np.isnan(run.observed[3:]).all()


def square_norm(model, args):
    return 0.5 * jnp.sum(model**2)


def test_divergence_is_raised_with_its_trajectory():
    with pytest.raises(gf.FlowError, match=r"'nonfinite_loss' after [0-9]+ steps.*smaller step size") as caught:
        gf.gradient_descent(square_norm, jnp.ones(2), optax.sgd(3.0), steps=5000, save_at=[0, 10, 5000])
    run = caught.value.trajectory
    assert np.isfinite(run.final).all()
    np.testing.assert_allclose(run.observed[1], 2.0**10)
    np.testing.assert_array_equal(run.valid, [True, True, False])


def test_a_start_that_is_not_finite():
    run = gf.gradient_descent(nan_below_half, jnp.zeros(2), optax.sgd(0.1), steps=5, throw=False)
    assert (run.status, int(run.t_final)) == ("nonfinite_start", 0)
    with pytest.raises(gf.FlowError, match="nonfinite_start"):
        gf.gradient_descent(nan_below_half, jnp.zeros(2), optax.sgd(0.1), steps=5)
    run = gf.gradient_descent(saddle, jnp.zeros(2), optax.sgd(0.1), steps=5)
    np.testing.assert_array_equal(run.final, 0.0)


def saddle(model, args):
    return 0.5 * (model[0] ** 2 - model[1] ** 2)


def test_float32_descent_that_stalls_says_so():
    """4 x 4 value-softmax, step size .1, 3e6 steps: the margin sticks where float64 goes on."""
    model = gf.models.ValueSoftmax.normal(jax.random.key(0), 4, 4, scale=0.1)
    data = gf.tasks.single_sample(jnp.ones(4))
    margins = {}
    for dtype in (jnp.float32, jnp.float64):
        cast = lambda x: x.astype(dtype) if hasattr(x, "astype") else x  # noqa: E731, B023
        start, samples = jax.tree.map(cast, (model, data))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run = gf.gradient_descent(gf.losses.logistic, start, optax.sgd(0.1), samples, steps=3_000_000)
        messages = [str(w.message) for w in caught if issubclass(w.category, gf.FlowWarning)]
        margins[dtype] = float(run.final() @ samples.x[0])
        if dtype == jnp.float32:
            assert len(messages) == 1
            assert "below one ulp of the float32 parameters: the run stalls by rounding: use float64" in messages[0]
            assert run.stats["stalled_fraction"] > 0.5
        else:
            assert messages == []
            assert run.stats["stalled_fraction"] == 0
    assert margins[jnp.float64] - margins[jnp.float32] > 0.2


def test_ctrl_c_keeps_what_is_finished(monkeypatch):
    monkeypatch.setattr(solve, "FIRST_CHUNK", 20)
    monkeypatch.setattr(solve, "CHUNK_SECONDS", 1e-9)
    original, calls = solve.kernels.advance, []

    def advance(*args, **options):
        calls.append(1)
        if len(calls) > 6:
            raise KeyboardInterrupt
        return original(*args, **options)

    monkeypatch.setattr(solve.kernels, "advance", advance)
    with pytest.raises(gf.Interrupted) as caught:
        descend(save_at=[0, 10, 25, 26, 50])
    run = caught.value.trajectory
    assert (run.status, int(run.t_final)) == ("interrupted", 25)
    np.testing.assert_array_equal(run.valid, [True, True, True, False, False])
    rows = reference(25, 0.1)
    assert_same(run.observed, [rows[0], rows[10], rows[25]])
    calls.clear()
    assert descend(throw=False).status == "interrupted"


@pytest.mark.slow
def test_flow_and_descent_of_setting_a_part_linearly_in_the_step_size():
    times = np.array([1e3, 1e4, 1e5])
    flow = gf.gradient_flow(SETTING.loss, SETTING.model, SETTING.args, t1=1e5, ts=times, rtol=1e-11)
    step_sizes = np.array([0.1, 0.05, 0.025, 0.0125])
    gaps, wrong = [], []
    for eta in step_sizes:
        steps = np.round(times / eta).astype(int)
        run = descend(
            optax.inject_hyperparams(optax.sgd)(learning_rate=jnp.asarray(eta)), steps=steps[-1], save_at=steps
        )
        gap = gf.flow_descent_gap(flow, run, float(eta))
        np.testing.assert_allclose(gap.ts, times)
        gaps.append(gap.distance)
        later = jnp.linalg.norm(run.observed.values[1:] - flow.observed.values[:-1], axis=(1, 2))
        wrong.append(later)
    order = gf.gap_order(step_sizes, jnp.stack(gaps))
    np.testing.assert_allclose(order, 1.0, atol=0.03)
    # The control: at times that do not match, the distance does not vanish with the step size.
    assert (np.abs(gf.gap_order(step_sizes, jnp.stack(wrong))) < 0.05).all()


finite = st.floats(-3, 3, allow_nan=False, width=32)


@given(st.lists(finite, min_size=6, max_size=6), st.lists(finite, min_size=3, max_size=3), st.integers(1, 60))
def test_any_descent_keeps_the_sum_of_scores_and_lowers_the_loss(values, scores, steps):
    model = gf.models.ValueSoftmax(jnp.array(values).reshape(2, 3), jnp.array(scores))
    data = gf.tasks.Data(jnp.array([[0.6, 0.8]]), jnp.array([-1.0]))
    run = gf.gradient_descent(gf.losses.logistic, model, optax.sgd(0.02), data, steps=steps, save_at=[0, steps])
    assert run.valid.all()
    np.testing.assert_allclose(run.observed.scores.sum(1), np.sum(scores), rtol=0, atol=1e-12)
    assert float(gf.losses.logistic(run.final, data)) <= float(gf.losses.logistic(model, data))
    assert run.observed.values.dtype == run.final.scores.dtype == jnp.float64


STEP_SIZE = 0.1


def wrapped():
    """An update of the user's that carries Optax's module name, as `functools.wraps` gives it, and reads a global."""
    base = optax.sgd(0.1)

    @functools.wraps(base.update)
    def update(gradient, state, params=None):
        return jax.tree.map(lambda g: -STEP_SIZE * g, gradient), state

    return optax.GradientTransformation(base.init, update)


def test_functions_of_the_user_are_never_taken_for_one_another(monkeypatch):
    finals = []
    for step_size in (0.1, 0.2):
        monkeypatch.setitem(globals(), "STEP_SIZE", step_size)
        finals.append(float(gf.gradient_descent(square_norm, jnp.ones(2), wrapped(), steps=1).final[0]))
    np.testing.assert_allclose(finals, [0.9, 0.8])


def test_an_optimiser_gets_only_the_arguments_that_it_names():
    """`sam` takes `grad_fn` and refuses `value`."""
    sam = optax.contrib.sam(optax.sgd(0.1), optax.sgd(0.05))
    run = gf.gradient_descent(square_norm, jnp.ones(2), sam, steps=6)
    assert 0 < float(run.final[0]) < 1
