"""Laws 7, 9 (small starts), 10 and 12 to 14 at every d and n where they are defined: 20 seeds, rtol 1e-10.

One-sample flows depend on d only through u = V^T b*, so that each size need only come up on both axes. Controls that
must fail are in the quick tests of the same laws.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from systems import ROWS, SEEDS, SHAPES, ends, flow, largest, logistic_batch, losses_along, members, starts, times

import gradflow as gf
from gradflow.models import ValueSoftmax

pytestmark = pytest.mark.slow
laws = gf.laws.polarization
LOGISTIC, SQUARE = gf.losses.logistic, gf.losses.square
KEY = jax.random.key(91)
RIVALS = ((1, 2), (2, 2), (8, 3), (3, 8), (32, 32))  # n >= 2
FEW_RIVALS = ((1, 2), (8, 3), (3, 8), (2, 8), (32, 2))  # 2 <= n <= 16, the range of law 12


@pytest.mark.parametrize(("d", "n"), SHAPES)
def test_orbit_does_not_depend_on_the_loss(d, n):
    batch = logistic_batch(d, n)
    target = gf.types.Data(batch.data.x, jnp.full_like(batch.data.y, 2.0))
    runs = ((LOGISTIC, batch.data, 1e6), (SQUARE, target, 1e3))
    for loss, data, horizon in runs:
        path = ends(loss, batch.initial, data, gf.log_times(1e-2, horizon, 9))
        tau = members(laws.clock, path, batch.direction)[:, 1:]
        in_clock = ends(laws.alignment_loss, batch.initial, batch.direction, tau)
        assert largest(members(laws.path_distance, path, in_clock, batch.direction)) < 1e-8


@pytest.mark.parametrize(("d", "n"), RIVALS)
def test_small_starts_let_the_sum_of_alignment_and_score_win(d, n):
    batch = logistic_batch(d, n)
    models = starts(KEY, d, n, scale=1e-3, score_scale=1e-3)
    path = flow(LOGISTIC, models, batch.data, times(1e-1, 1e10))
    wrong = members(lambda p, i, b: laws.winner_mismatch(p, i, b, "small"), path, models, batch.direction)
    assert not bool(wrong.any())


@pytest.mark.parametrize(("d", "n"), SHAPES)
def test_equal_start_stays_uniform(d, n):
    batch = logistic_batch(d, n)
    values = jnp.broadcast_to(batch.initial.values[..., :1], batch.initial.values.shape)
    ts = times(1e-1, 1e5)
    path = flow(LOGISTIC, ValueSoftmax(values, batch.initial.scores), batch.data, ts)
    assert largest(members(laws.uniform_weights, path)) < 1e-12
    assert largest(laws.uniform_decay(ts, losses_along(LOGISTIC, path, batch.data), n)[:, -1]) < 0.01


@pytest.mark.parametrize(("d", "n"), FEW_RIVALS)
def test_losers_weight_falls_like_the_square_of_the_gap(d, n):
    direction, models = logistic_batch(d, n).direction, starts(KEY, d, n, scale=0.03)
    path = flow(laws.alignment_loss, models, direction, np.append(times(1e-1, 1e3)[1:], 1e4))
    residual = members(laws.polarization_constant, path, direction)
    tie = members(lambda m, b: laws.predicted_winner(m, b, "uniform").near_tie, models, direction)
    assert int(tie.sum()) < SEEDS / 4
    assert largest(residual[~tie, -2]) < 0.01
    assert largest(residual[:, -1]) < 0.01, "near-ties are late"


@pytest.mark.parametrize(("d", "n"), RIVALS)
def test_small_scores_grow_like_a_hyperbolic_sine(d, n):
    direction = logistic_batch(d, n).direction
    path = flow(laws.alignment_loss, starts(KEY, d, n, scale=1e-4), direction, np.linspace(0, 7.5 * n, ROWS))
    small = jnp.max(jnp.abs(path.scores - path.scores.mean(-1, keepdims=True)), axis=-1) < 1e-3
    assert int(small.sum()) > 5 * SEEDS
    assert largest(jnp.where(small, members(laws.early_scores, path, direction), 0)) < 1e-3


@pytest.mark.parametrize(("d", "n"), RIVALS)
def test_square_loss_stretches_small_scores_by_a_hyperbolic_cosine(d, n):
    batch, target = logistic_batch(d, n), jnp.linspace(0.5, 3.0, SEEDS)
    scores = 1e-4 * jax.random.normal(KEY, (SEEDS, n))
    models = ValueSoftmax(jnp.zeros((SEEDS, d, n)), scores)
    path = flow(SQUARE, models, gf.types.Data(batch.data.x, target[:, None]), times(1e-1, 1e3))
    assert largest(laws.late_scores(path.scores[:, -1], scores, target)) < 0.01
