"""Times to one-hot and rank orders along a run."""

import jax.numpy as jnp
import numpy as np
import pytest

import gradflow as gf
from gradflow.diagnostics import rank_order_violations, time_to_one_hot
from gradflow.models import paper


def rows(largest):
    largest = np.asarray(largest, float)
    return np.stack([largest, 1 - largest], axis=-1)


def test_time_is_interpolated_in_log_t():
    assert time_to_one_hot([1, 100], rows([0.5, 0.9]), threshold=0.7) == pytest.approx(10)


def test_time_is_interpolated_in_t_from_a_save_at_zero():
    assert time_to_one_hot([0, 100], rows([0.5, 0.9]), threshold=0.7) == pytest.approx(50)


def test_reached_at_once_never_and_batched():
    ts = np.array([1, 10, 100])
    weights = rows([[0.9, 0.95, 0.99], [0.5, 0.6, 0.7], [0.5, 0.8, 0.9]])
    times = time_to_one_hot(ts, weights, threshold=0.8)
    np.testing.assert_allclose(times, [1, np.inf, 10])


def test_rows_after_the_end_do_not_count():
    weights = rows([0.5, 0.7, np.nan])
    valid = np.array([True, True, False])
    assert time_to_one_hot([1, 2, 3], weights, threshold=0.6, valid=valid) < 2
    assert time_to_one_hot([1, 2, 3], weights, threshold=0.9, valid=valid) == np.inf
    assert time_to_one_hot([1, 2, 3], rows([0.5, 0.7, 0.99]), threshold=0.9, valid=valid) == np.inf


def test_agrees_with_the_crossing_of_the_flow():
    setting = paper.logistic()
    ts = gf.log_times(1, 1e6, 400)
    flow = gf.gradient_flow(setting.loss, setting.model, setting.args, t1=1e6, ts=ts, observe=read)
    event = gf.Crossing(largest, 0.9)
    crossed = gf.gradient_flow(setting.loss, setting.model, setting.args, t1=1e6, event=event)
    measured = time_to_one_hot(flow.ts, flow.observed["weights"], threshold=0.9, valid=flow.valid)
    assert measured == pytest.approx(float(crossed.t_final), rel=1e-3)
    # Theorem 3.2 (a): the order of the scores is kept; they all start equal, so the first save is the reference.
    assert int(rank_order_violations(flow.observed["scores"], slack=1e-12).max()) == 0
    # Control: the same run with two columns exchanged half-way breaks it.
    broken = flow.observed["scores"].at[200:].set(flow.observed["scores"][200:, ::-1])
    assert int(rank_order_violations(broken).max()) > 0


def read(t, model, args):
    return {"weights": model.weights, "scores": model.scores}


def largest(t, model, args):
    return jnp.max(model.weights)


def test_rank_order_counts_reversed_pairs_only():
    values = np.array([[1, 2, 3, 3], [1, 2, 4, 3], [2, 2, 2, 2], [3, 2, 1, 1], [2, 1, 3, 3]])
    # The pair tied at the start never counts, ties made later neither; a full reversal has five of six pairs.
    assert rank_order_violations(values).tolist() == [0, 0, 0, 5, 1]
    assert rank_order_violations(values, slack=1.5).tolist() == [0, 0, 0, 2, 0]
    assert rank_order_violations(values, valid=np.array([True] * 3 + [False] * 2)).tolist() == [0] * 5
    assert rank_order_violations(np.ones((3, 1))).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    "call",
    [
        lambda: time_to_one_hot([1, 2], rows([0.5])),
        lambda: time_to_one_hot([], np.ones((0, 2))),
        lambda: rank_order_violations(np.ones(3)),
        lambda: rank_order_violations(np.ones((0, 3))),
    ],
)
def test_shapes_that_do_not_fit_are_named(call):
    with pytest.raises(gf.FlowError, match="has shape"):
        call()
