"""From saved weights, values and scores to freezing times, on several yardsticks, levels and horizons."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from gradflow.diagnostics import freezing_time, relative_distance, routing_distance, total_variation


class History(NamedTuple):
    """What a head went through, one row a save; leaves of many heads have an axis in front.

    Attributes:
        weights: A.
        values: V, as they enter the outputs.
        w_v: W_V, as they are learned; V itself where it is free.
        scores: S, zero where masked.
    """

    weights: Float[Array, "S T T"]
    values: Float[Array, "S T d_v"]
    w_v: Float[Array, "S n d_v"]
    scores: Float[Array, "S T T"]


@jax.jit
def freezing(
    ts: Float[Array, " S"],
    history: History,
    valid: Bool[Array, "M S"],
    within: Bool[Array, "H S"],
    epsilons: Float[Array, " E"],
) -> dict[str, Array]:
    """Measure when each part of every head freezes.

    Args:
        ts: save times.
        history: of M heads.
        valid: which saves each head has reached.
        within: which saves each horizon has, the last horizon having all.
        epsilons: levels.

    Returns:
        `tau` (M, quantity, horizon, level), the quantities being those of `config.QUANTITIES`, and `way` (M, horizon),
        how far routing went in TV, both NaN at horizons that a head has not reached; `distance` (M, quantity, S) at the
        last horizon; by row of the attention there `row_distance` (M, S, T), and the largest weight `row_largest`.
    """
    return jax.vmap(lambda one, reached: _freezing(ts, one, reached, within, epsilons))(history, valid)


def row_times(ts: np.ndarray, row_distance: np.ndarray, epsilon: float) -> np.ndarray:
    """Return when each row of the attention freezes, (M, T)."""
    return np.asarray(freezing_time(jnp.asarray(ts), jnp.swapaxes(row_distance, -1, -2), epsilon))


def _freezing(ts: Array, history: History, reached: Array, within: Array, epsilons: Array) -> dict[str, Array]:
    causal = jnp.tril(jnp.ones(history.weights.shape[-2:], bool))
    # Weights that do not sum to one are taken as shares of what their row ends with.
    last = jnp.max(jnp.where(reached, jnp.arange(reached.size), 0))
    total = jnp.sum(history.weights[last], axis=-1, keepdims=True)
    weights = history.weights / jnp.where(total > 0, total, 1)

    def until(valid: Array) -> tuple[Array, Array]:
        parts = (history.values, history.w_v, history.scores, weights)
        away = [relative_distance(part, valid=valid) for part in parts]
        distances = jnp.stack([routing_distance(weights, where=causal, valid=valid), *away])
        times = jax.vmap(lambda level: freezing_time(ts, distances, level, valid), out_axes=-1)(epsilons)
        return times, distances

    times, distances = jax.vmap(until)(within & reached)
    complete = jnp.all(reached | ~within, axis=-1)
    rows = total_variation(weights, weights[last][None])
    return {
        "tau": jnp.swapaxes(jnp.where(complete[:, None, None], times, jnp.nan), 0, 1),
        "way": jnp.where(complete, distances[:, 0, 0], jnp.nan),
        "distance": distances[-1],
        "row_distance": rows,
        "row_largest": jnp.max(weights[last], axis=-1),
    }
