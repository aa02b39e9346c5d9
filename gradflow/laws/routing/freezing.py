"""Why routing freezes once a row is sharp while its values go on ("frame-precision dissociation")."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from gradflow.laws.routing.state import HeadState, require_softmax


def freezing_bound(state: HeadState) -> Float[Array, "*H T"]:
    """Return 2 (1 - A_ij*) max_j |b_ij - b_ij*| / T for each row, j* its largest weight: no |D_i|_1 exceeds it.

    A^T U keeps its size meanwhile. The bound says that sharp rows stop, not why rows become sharp first.

    Args:
        state: of a head with softmax weights.

    Returns:
        The bound.

    Raises:
        FlowError: if the map is no softmax.
    """
    temperature = require_softmax(state, "the freezing bound")
    best = jnp.argmax(state.weights, axis=-1, keepdims=True)
    there = jnp.take_along_axis(state.compatibility, best, axis=-1)
    spread = jnp.max(jnp.where(state.mask, jnp.abs(state.compatibility - there), 0), axis=-1)
    # 1 - A_ij* as a sum over the others: near one-hot rows the difference would round to zero.
    others = jnp.arange(state.weights.shape[-1]) != best
    return 2 * jnp.sum(jnp.where(others, state.weights, 0), axis=-1) * spread / temperature


def freezing_excess(state: HeadState) -> Float[Array, "*H T"]:
    """Return by how much |D_i|_1 exceeds the freezing bound, over the largest bound: 0 up to rounding.

    Args:
        state: of a head with softmax weights.

    Returns:
        The violation of each row.

    Raises:
        FlowError: if the map is no softmax.
    """
    bound = freezing_bound(state)
    # A row whose weights are one-hot to rounding still rounds in A (b - u.g).
    sizes = jnp.max(jnp.where(state.mask, state.weights * jnp.abs(state.compatibility), 0), axis=-1)
    scale = jnp.maximum(bound, sizes)
    excess = jnp.maximum(jnp.sum(jnp.abs(state.score_gradient), axis=-1) - bound, 0)
    return excess / jnp.where(scale > 0, scale, 1)


def routing_share(state: HeadState) -> Float[Array, "*H"]:
    """Return |D|_F / |A^T U|_F, how fast routing moves against values; 0 where the values do not move either."""
    values = jnp.swapaxes(state.weights, -1, -2) @ state.upstream
    routing, moving = (jnp.sqrt(jnp.sum(x**2, axis=(-2, -1))) for x in (state.score_gradient, values))
    return jnp.where(moving > 0, routing / jnp.where(moving > 0, moving, 1), 0)
