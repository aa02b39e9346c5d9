"""Laws 12 to 14, 16 and 18: limits, early growth and the bound on the excess loss."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from systems import ROWS, SEEDS, flow, largest, losses_along, members, starts, times, unit_samples

import gradflow as gf
from gradflow.models import ValueSoftmax

laws = gf.laws.polarization
KEY = jax.random.key(40)
SAMPLE = unit_samples(KEY, 3)
DIRECTION = SAMPLE.x[:, 0]


def test_losers_weight_falls_like_the_square_of_the_gap():
    models = starts(KEY, 3, 8, scale=0.03)
    path = flow(laws.alignment_loss, models, DIRECTION, times(1e-1, 1e3))
    residual = members(laws.polarization_constant, path, DIRECTION)
    assert largest(residual[:, -1]) < 0.01
    assert largest(residual[:, ROWS // 2]) > 0.01, "only late"


def test_small_scores_grow_like_a_hyperbolic_sine():
    path = flow(laws.alignment_loss, starts(KEY, 3, 8, scale=1e-4), DIRECTION, np.linspace(0, 60, ROWS))
    residual = members(laws.early_scores, path, DIRECTION)
    spread = jnp.max(jnp.abs(path.scores - path.scores.mean(-1, keepdims=True)), axis=-1)
    small = spread < 1e-3
    assert int(small.sum()) > 5 * SEEDS
    assert largest(jnp.where(small, residual, 0)) < 1e-3
    assert largest(residual) > 0.05, "not once they are large"


def test_square_loss_stretches_small_scores_by_a_hyperbolic_cosine():
    target = jnp.linspace(0.5, 3.0, SEEDS)
    data = gf.types.Data(SAMPLE.x, target[:, None])
    scores = 1e-4 * jax.random.normal(KEY, (SEEDS, 8))
    models = ValueSoftmax(jnp.zeros((SEEDS, 3, 8)), scores)
    path = flow(gf.losses.square, models, data, times(1e-1, 1e3))
    assert largest(laws.late_scores(path.scores[:, -1], scores, target)) < 0.01
    assert largest(laws.late_scores(path.scores[:, -1], scores, 2 * target)) > 0.5
    assert largest(laws.late_scores(path.scores[:, 5], scores, target)) > 0.1, "only at the end"


def test_excess_loss_obeys_its_bound():
    keys = jax.random.split(KEY, SEEDS)

    def draw(key):
        return gf.tasks.linear_regression(key, n_features=3, n_samples=6, condition_number=3.0, noise=0.3)

    data = jax.jit(jax.vmap(draw))(keys)
    ts = times(1e-1, 1e3)
    path = flow(gf.losses.square, starts(KEY, 3, 8), data, ts)
    losses = losses_along(gf.losses.square, path, data)

    def violation(loss, sample, n):
        return laws.excess_violation(jnp.asarray(ts), loss, loss[0], sample, n)

    assert largest(members(lambda x, s: violation(x, s, 8), losses, data)) == 0
    assert largest(members(lambda x, s: violation(x, s, 0.5), losses, data)) > 1e-3, "a faster bound is broken"


def test_frozen_weights_give_one_over_their_square():
    models = starts(KEY, 3, 8, score_scale=1.0)
    ts = times(1e-1, 1e6)
    path = flow(gf.losses.logistic, models, SAMPLE, ts, trainable=(True, False))
    residual = laws.frozen_weights_decay(ts, losses_along(gf.losses.logistic, path, SAMPLE), models.weights)
    assert largest(residual[:, -1]) < 1e-3
    assert largest(laws.loss_decay(ts, losses_along(gf.losses.logistic, path, SAMPLE))[:, -1]) > 0.1
    assert largest(path.scores - models.scores[:, None]) == 0


def test_frozen_values_polarize_like_one_over_tau():
    gap = jnp.linspace(1.1, 2.0, SEEDS)  # the correction falls like log(tau gap) / (tau gap)
    u = jnp.zeros((SEEDS, 8)).at[:, 2].set(gap)
    models = ValueSoftmax(DIRECTION[:, :, None] * u[:, None, :], jnp.zeros((SEEDS, 8)))
    tau = times(1e-1, 1e5)
    path = flow(laws.alignment_loss, models, DIRECTION, tau, trainable=(False, True))
    residual = laws.frozen_values_decay(tau, path.weights, gap)
    assert largest(residual[:, -1]) < 3e-4
    assert largest(laws.frozen_values_decay(tau, path.weights, 2 * gap)[:, -1]) > 0.5


def test_single_value_has_nothing_to_decide():
    one = eqx.filter_vmap(lambda k: ValueSoftmax.normal(k, 3, 1))(jax.random.split(KEY, 2))
    assert laws.predicted_winner(one, DIRECTION[0], "uniform").index.tolist() == [0, 0]
    assert laws.alignment_gap_shrinkage(one, DIRECTION[0]).tolist() == [0.0]
