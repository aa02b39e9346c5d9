"""Freezing times and the distances they come from: hand-made histories, exponentials with a known answer, bad ends."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gradflow as gf
from gradflow import diagnostics

# One kernel of a whole function compiles several times faster than its operations one by one.
dissociation = jax.jit(diagnostics.dissociation)
freezing_time = jax.jit(diagnostics.freezing_time)
routing_distance = jax.jit(diagnostics.routing_distance)
relative_distance = jax.jit(diagnostics.relative_distance)

LEVELS = st.lists(st.sampled_from([0.0, 0.1, 0.3, 0.5, np.inf, np.nan]), min_size=5, max_size=5)


def test_time_is_interpolated_in_log_t_and_in_t_from_a_save_at_zero():
    assert freezing_time([1, 100], [0.9, 0.5], epsilon=0.7) == pytest.approx(10)
    assert freezing_time([0, 100], [0.9, 0.5], epsilon=0.7) == pytest.approx(50)


def test_only_the_last_time_counts():
    ts = [1, 10, 100, 1000]
    assert freezing_time(ts, [0.5, 0.0, 0.5, 0.0], epsilon=0.1) == pytest.approx(100 * 10**0.8)
    assert freezing_time(ts, [0.1, 0.0, 0.1, 0.0], epsilon=0.1) == 1
    assert freezing_time(ts, [0.0, 0.0, 0.0, 0.5], epsilon=0.1) == np.inf
    assert freezing_time([3], [0.0]) == 3 and freezing_time([3], [1.0]) == np.inf


def test_what_is_not_finite_is_not_frozen():
    ts = [1, 10, 100]
    assert freezing_time(ts, [0.0, np.nan, 0.0]) == 100
    assert freezing_time(ts, [0.0, np.inf, 0.0]) == 100
    assert freezing_time(ts, [0.0, 0.0, np.nan]) == np.inf


def test_saves_that_were_not_reached_do_not_count():
    ts, valid = [1, 10, 100, 1000], np.array([True, True, True, False])
    assert freezing_time(ts, [0.5, 0.5, 0.0, np.nan], 0.25, valid) == pytest.approx(10**1.5)
    assert freezing_time(ts, [0.0, 0.0, 0.5, 0.0], 0.25, valid) == np.inf
    assert freezing_time(ts, [0.0] * 4, valid=np.zeros(4, bool)) == np.inf


@given(LEVELS, st.lists(st.booleans(), min_size=5, max_size=5))
def test_frozen_from_that_time_on_and_no_earlier(levels, valid):
    ts, levels, valid = np.array([0.0, 1, 2, 4, 8]), np.array(levels), np.array(valid)
    time = float(freezing_time(ts, levels, epsilon=0.2, valid=valid))
    good = levels <= 0.2
    later = valid & (ts >= time)
    assert good[later].all()
    assert later.any() == np.isfinite(time) or time == 0
    above = ts[valid & ~good]
    assert time == 0 if not above.size and valid.any() else time > (above[-1] if above.size else 0)


def test_batches_of_members_each_with_its_own_times():
    ts = np.array([[1.0, 100], [10, 1000]])
    distances = np.array([[0.9, 0.5], [0.9, 0.5]])
    np.testing.assert_allclose(freezing_time(ts, distances, 0.7), [10, 100])
    times, slopes = jax.jit(jax.vmap(jax.value_and_grad(freezing_time, 1), (0, 0, None)))(ts, distances, 0.7)
    np.testing.assert_allclose(times, [10, 100])
    assert np.isfinite(slopes).all() and (slopes > 0).all()
    assert jax.eval_shape(freezing_time, np.float32([1, 2]), np.float32([1, 0])).dtype == jnp.float32


def test_routing_distance_averages_the_rows_that_can_move():
    causal = np.tril(np.ones((3, 3), bool))
    first = np.array([[1, 0, 0], [1, 0, 0], [0.5, 0.25, 0.25]])
    last = np.array([[1, 0, 0], [0, 1, 0], [0.5, 0.5, 0]])
    history = np.stack([first, last])
    np.testing.assert_allclose(routing_distance(history, where=causal), [(1 + 0.25) / 2, 0])
    np.testing.assert_allclose(routing_distance(history), [(0 + 1 + 0.25) / 3, 0])
    np.testing.assert_allclose(routing_distance(history, reference=first, where=causal), [0, (1 + 0.25) / 2])
    poisoned = np.where(causal, history, np.nan)
    np.testing.assert_allclose(routing_distance(poisoned, where=causal), [(1 + 0.25) / 2, 0])
    assert routing_distance(np.ones((2, 1, 1))).tolist() == [0, 0]
    assert routing_distance(history, where=np.zeros((3, 3), bool)).tolist() == [0, 0]


def test_relative_distance_is_a_part_of_the_whole_way():
    way = np.array([0, 0.5, 1.2, 1])[:, None, None] * np.array([[3.0, 4], [0, 0]])
    for scale in (1, 1e-200, 1e200):
        np.testing.assert_allclose(relative_distance(7 + way if scale == 1 else way * scale), [1, 0.5, 0.2, 0])
    np.testing.assert_allclose(relative_distance(way[:, :1], reference=way[1, :1]), [1, 0, 1.4, 1])
    assert relative_distance(np.ones((3, 2, 2))).tolist() == [0, 0, 0]
    assert relative_distance(way[[0, 1, 0]]).tolist() == [0, np.inf, 0]
    assert relative_distance(np.ones((2, 0, 3))).tolist() == [0, 0]


@pytest.mark.parametrize("distance", [routing_distance, relative_distance])
def test_the_end_is_the_last_save_that_was_reached(distance):
    history = jnp.asarray(np.random.default_rng(0).uniform(size=(2, 4, 3, 3))).at[1, 3].set(jnp.nan)
    valid = np.array([[True] * 4, [True, True, True, False]])
    found = distance(history, valid=valid)
    for member, reached in ((0, 4), (1, 3)):
        moved = history[member, :reached]
        np.testing.assert_allclose(found[member, :reached], distance(moved, reference=moved[-1]))
    assert np.isnan(found[1, 3]) and found[0, 3] == found[1, 2] == 0
    gradient = jax.jit(jax.grad(lambda h: jnp.sum(jnp.where(valid, distance(h, valid=valid), 0))))(history)
    assert np.isfinite(gradient).all()
    assert jax.eval_shape(distance, history.astype(jnp.float32)).dtype == jnp.float32


def test_dissociation_of_a_head_whose_routing_freezes_ten_times_faster():
    ts = np.geomspace(1e-2, 1e3, 400)
    decay = np.exp(-ts)[:, None, None]
    sharp = np.array([[1.0, 0], [0, 1]])
    weights = sharp + np.exp(-10 * ts)[:, None, None] * (0.5 - sharp)
    values = np.array([[2.0, 1], [0, 1]]) + decay * np.array([[1.0, 2], [3, 4]])
    found = dissociation(ts, weights, values, epsilon=0.05)
    # TV starts at 1/2 and decays at rate 10; the values start at 1 (at t = 0.01 here) and decay at rate 1.
    assert found.routing == pytest.approx(np.log(0.5 / 0.05) / 10, rel=1e-3)
    assert found.values == pytest.approx(np.log(1 / 0.05) + ts[0], rel=1e-3)
    assert found.ratio == pytest.approx(found.values / found.routing) and found.ratio > 10
    # Control: with the roles exchanged values freeze first.
    other = dissociation(ts, 0.5 + decay * (sharp - 0.5), sharp + np.exp(-10 * ts)[:, None, None])
    assert other.ratio < 0.2


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: diagnostics.freezing_time([1, 2], [0.5]), r"ts has shape \(2,\) and distances \(1,\)"),
        (lambda: diagnostics.freezing_time([], []), "S >= 1"),
        (lambda: diagnostics.freezing_time([1], [1], epsilon=-1), "epsilon is -1"),
        (lambda: diagnostics.freezing_time([3, 2, 1], [1, 0, 0]), "ts falls"),
        (lambda: diagnostics.freezing_time([1], [1], epsilon=np.nan), "epsilon is nan"),
        (lambda: diagnostics.freezing_time(np.ones((2, 3)), np.ones((4, 3))), "must broadcast"),
        (lambda: diagnostics.freezing_time([1, 2], [1, 0], valid=np.ones(3, bool)), "valid has shape"),
        (lambda: diagnostics.routing_distance(np.ones((2, 2))), "weights has shape"),
        (lambda: diagnostics.routing_distance(np.ones((0, 2, 2))), "weights holds no save"),
        (lambda: diagnostics.relative_distance(np.ones((0, 2, 2))), "values holds no save"),
        (lambda: diagnostics.relative_distance(np.ones((2, 2, 2)), reference=np.ones((3, 2))), "reference has shape"),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(gf.FlowError, match=words):
        call()
