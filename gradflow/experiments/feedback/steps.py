"""One step of descent at a head: by how much the advantage of every pair grows, predicted and seen.

The advantage is what raises a score: -(b - E_A b) for the softmax, -b for an elementwise map. A step may move the
values with U frozen, the values with U evaluated anew, or everything (arXiv 2512.22473).
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gradflow import losses
from gradflow.laws import routing
from gradflow.laws.routing import HeadState
from gradflow.models import AttentionHead
from gradflow.types import Batch

ROUNDING = 1e-9  # of the largest change of a head, below which a change has no sign


class Growth(NamedTuple):
    """Change of the advantage of every pair (i, j).

    Attributes:
        own: predicted by the row's own query alone.
        free: predicted with all queries for free values, U frozen.
        frozen: seen when the head's own values move, U frozen.
        values: seen when its values move and U follows, at each step size.
        joint: seen when everything moves, at each step size.
    """

    own: Float[Array, "T T"]
    free: Float[Array, "T T"]
    frozen: Float[Array, "T T"]
    values: Float[Array, "E T T"]
    joint: Float[Array, "E T T"]


def growth(head: Any, batch: Batch, step_sizes: Float[Array, " E"]) -> tuple[Growth, HeadState]:
    """Try one step of each kind.

    Args:
        head: with shared or free values.
        batch: one sequence.
        step_sizes: of the steps that are seen.

    Returns:
        The changes, and the state before.
    """
    state, x = _state(head, batch), batch.inputs[0] if isinstance(head, AttentionHead) else None
    before = advantage(state, state.compatibility)
    gradient = eqx.filter_grad(losses.cross_entropy)(head, batch)
    values = "w_v" if isinstance(head, AttentionHead) else "values"
    others = eqx.tree_at(lambda tree: getattr(tree, values), gradient, jnp.zeros_like(getattr(gradient, values)))

    def seen(size: Array, left_out: Any) -> Array:
        moved = jax.tree.map(lambda leaf, slope, out: leaf - size * (slope - out), _arrays(head), gradient, left_out)
        after = _state(eqx.combine(moved, head), batch)
        return advantage(after, after.compatibility) - before

    nothing = jax.tree.map(jnp.zeros_like, gradient)
    frozen = state.upstream @ routing.value_step(state, x).T
    return Growth(
        own=own_growth(state),
        free=advantage(state, routing.compatibility_step(state)),
        frozen=advantage(state, frozen),
        values=jax.vmap(lambda size: seen(size, others))(step_sizes),
        joint=jax.vmap(lambda size: seen(size, nothing))(step_sizes),
    ), state


def advantage(state: HeadState, compatibility: Float[Array, "T T"]) -> Float[Array, "T T"]:
    """Return what raises each score, or its change from a change of B; zero where masked."""
    mean = 0.0
    if state.activation.normalised:
        kept = jnp.where(state.mask, compatibility, 0)
        mean = jnp.sum(state.weights * kept, axis=-1, keepdims=True)
    return jnp.where(state.mask, mean - compatibility, 0)


def own_growth(state: HeadState) -> Float[Array, "T T"]:
    """Return the part through the row's own query: |u_i|^2 (A_ij - sum_k A_ik^2), without the sum if elementwise."""
    if state.activation.normalised:
        return routing.feedback(state).own
    return jnp.where(state.mask, jnp.sum(state.upstream**2, axis=-1, keepdims=True) * state.weights, 0)


def sign(change: Float[Array, "T T"], rows: Float[Array, " T"]) -> Float[Array, "T T"]:
    """Return the sign of a change; zero in rows that do not count, and where it is rounding."""
    change = jnp.where(rows[:, None], change, 0)
    return jnp.where(jnp.abs(change) > ROUNDING * jnp.max(jnp.abs(change)), jnp.sign(change), 0)


def _state(head: Any, batch: Batch) -> HeadState:
    return routing.head_state(head, batch.inputs[0], batch.targets[0], batch.mask[0])


def _arrays(head: Any) -> Any:
    return eqx.filter(head, eqx.is_inexact_array)
