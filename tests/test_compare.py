"""The distance of a descent from the flow, and its order."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gradflow as gf
from gradflow import compare


def square_norm(model, args):
    return 0.5 * jnp.sum(model["a"] ** 2) + jnp.sum(model["b"] ** 2)


def observe_a(t, model, args):
    return {"a": model["a"], "count": jnp.arange(2), "time": t}  # a float along the flow, a count along the descent


def observe_other(t, model, args):
    return {"c": model["a"], "count": jnp.arange(2)}


START = {"a": jnp.array([1.0, -2.0]), "b": jnp.array(3.0)}


def flow(ts, **options):
    return gf.gradient_flow(square_norm, START, t1=max(ts), ts=ts, rtol=1e-12, **options)


def descent(step_size, save_at, **options):
    return gf.gradient_descent(square_norm, START, optax.sgd(step_size), steps=max(save_at), save_at=save_at, **options)


def exact_gap(step_size, step):
    t = step_size * step
    a = np.array([1.0, -2.0]) * ((1 - step_size) ** step - np.exp(-t))
    return np.sqrt(np.sum(a**2) + (3 * ((1 - 2 * step_size) ** step - np.exp(-2 * t))) ** 2)


def test_gap_is_the_closed_form():
    gap = gf.flow_descent_gap(flow([0.0, 0.5, 1.0, 1.5]), descent(0.1, [0, 5, 7, 15]), 0.1)
    np.testing.assert_allclose(gap.ts, [0.0, 0.5, 1.5])  # 0.7 and 1.0 have no partner
    np.testing.assert_allclose(gap.distance, [exact_gap(0.1, k) for k in (0, 5, 15)], atol=1e-10)
    size = [np.sqrt(5 * np.exp(-2 * t) + 9 * np.exp(-4 * t)) for t in (0.0, 0.5, 1.5)]
    np.testing.assert_allclose(gap.relative, gap.distance / np.array(size), rtol=1e-9)


def test_gap_falls_linearly_and_a_wrong_time_does_not():
    step_sizes = np.array([0.02, 0.01, 0.005])
    reference = flow([0.5, 1.0])
    gaps, wrong = [], []
    for eta in step_sizes:
        run = descent(eta, [round(0.5 / eta), round(1 / eta)])
        gaps.append(gf.flow_descent_gap(reference, run, eta).distance)
        wrong.append(jnp.linalg.norm(run.observed["a"][1] - reference.observed["a"][0]))
    np.testing.assert_allclose(gf.gap_order(step_sizes, jnp.stack(gaps)), 1.0, atol=0.03)
    assert abs(float(gf.gap_order(step_sizes, jnp.stack(wrong)))) < 0.05


def test_observables_of_one_name_are_compared():
    pair = flow([1.0], observe=observe_a), descent(0.1, [10], observe=observe_a)
    expected = np.sqrt(5) * abs(0.9**10 - np.exp(-1))
    np.testing.assert_allclose(gf.flow_descent_gap(*pair, 0.1).distance, [expected], rtol=1e-8)
    with pytest.raises(gf.FlowError, match=r"saved different observables, .*give both the same `observe`"):
        gf.flow_descent_gap(pair[0], descent(0.1, [10], observe=observe_other), 0.1)
    with pytest.raises(gf.FlowError, match="saved different observables"):
        gf.flow_descent_gap(pair[0], descent(0.1, [10]), 0.1)


def late(t, model, args):
    return t > 0.6


def test_rows_that_were_not_reached_are_left_out():
    stopped = flow([0.5, 1.0], stop=late)
    gap = gf.flow_descent_gap(stopped, descent(0.1, [5, 10]), 0.1)
    assert gap.ts.shape == (1,) or bool(stopped.valid.all())
    assert np.isfinite(gap.distance).all()


def only_counts(t, model, args):
    return jnp.arange(2)


def test_bad_input():
    pair = flow([1.0]), descent(0.1, [10])
    with pytest.raises(gf.FlowError, match=r"share no save time: .* use ts = step_size \* save_at"):
        gf.flow_descent_gap(*pair, 0.2)
    with pytest.raises(gf.FlowError, match="no floating-point arrays"):
        gf.flow_descent_gap(flow([1.0], observe=only_counts), descent(0.1, [10], observe=only_counts), 0.1)
    for step_size in (0.0, -0.1, np.nan):
        with pytest.raises(gf.FlowError, match="step_size is"):
            gf.flow_descent_gap(*pair, step_size)
    for step_sizes, gaps in (([0.1], [1.0]), ([0.1, 0.1], [1.0, 1.0]), ([0.1, 0.2], [1.0]), (0.1, [1.0])):
        with pytest.raises(gf.FlowError, match="gap_order needs two or more step sizes"):
            gf.gap_order(step_sizes, gaps)


@given(st.floats(0.2, 4), st.floats(1e-3, 1e3), st.integers(2, 5))
def test_order_of_a_power_law(order, scale, count):
    step_sizes = 0.1 * 0.5 ** np.arange(count)
    gaps = scale * step_sizes[:, None] ** np.array([order, 1.0])
    np.testing.assert_allclose(gf.gap_order(step_sizes, gaps), [order, 1.0], rtol=1e-9)


@given(st.floats(-20, 20), st.floats(1e-3, 30), st.integers(1, 300))
def test_log_times(low, decades, n):
    first, last = 10.0**low, 10.0 ** (low + decades)
    times = gf.log_times(first, last, n)
    assert times.shape == (n,)
    assert times[-1] == last
    assert n == 1 or times[0] == first
    assert (np.diff(times) > 0).all()
    if n > 2:
        np.testing.assert_allclose(np.diff(np.log(times)), np.log(last / first) / (n - 1), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((0.0, 1.0, 3), "0 < t_first < t1, got t_first = 0"),
        ((2.0, 1.0, 3), "got t_first = 2, t1 = 1"),
        ((1.0, 1.0, 2), "got t_first = 1, t1 = 1"),
        ((1.0, np.inf, 2), "t1 = inf"),
        ((1.0, 2.0, 0), "n is 0: it must be a whole number"),
        ((1.0, 2.0, 2.5), "n is 2.5"),
        ((1.0, 2.0, np.nan), "n is nan"),
        (("a", 2.0, 2), "t_first is 'a': give a real number"),
        ((1.0, 1.0 + 1e-15, 50), "n is 50: so many times do not fit"),
    ],
)
def test_log_times_refuses(arguments, match):
    with pytest.raises(gf.FlowError, match=match):
        gf.log_times(*arguments)


@given(st.integers(1, 10**7), st.integers(1, 400))
def test_log_steps(steps, n):
    at = gf.log_steps(steps, n)
    assert at.dtype.kind == "i"
    assert (at[0], at[-1]) == (0, steps)
    assert (np.diff(at) > 0).all()
    assert len(at) <= n + 2


@pytest.mark.parametrize("arguments", [(0, 3), (3, 0), (2.5, 3), (5, "a"), (5, 2.5)])
def test_log_steps_refuses(arguments):
    with pytest.raises(gf.FlowError, match="it must be a whole number, at least 1"):
        gf.log_steps(*arguments)


@pytest.mark.parametrize("step_size", [0.0, -0.1, np.inf, np.nan, "x", None, np.array([0.1, 0.2])])
def test_unusable_step_size(step_size):
    with pytest.raises(gf.FlowError, match=r"step_size is .*: it must be one positive and finite number"):
        gf.flow_descent_gap(flow([1.0]), descent(0.1, [10]), step_size)


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=8, unique=True),
    st.lists(st.integers(0, 60), min_size=1, max_size=8, unique=True),
)
def test_matched_times_are_the_common_ones(a, b):
    """Also for long runs: no table of every time against every other."""
    a, b = np.sort(a), np.sort(b)
    pairs = compare._matches(0.1 * a, 0.1 * b * (1 + 1e-12), np.ones(len(a), bool), b != 7)
    expected = [(i, int(np.flatnonzero(b == x)[0])) for i, x in enumerate(a) if x in b and x != 7]
    np.testing.assert_array_equal(pairs, np.reshape(expected, (-1, 2)))
