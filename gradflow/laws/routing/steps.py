"""What one small step of descent does: to the loss, to the values, and to the advantage that made it.

Changes are those of a unit step; multiply them by the step size. With several heads arrays have an axis H in front.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from gradflow.laws.routing.gradients import HeadGradients, finite_rows, head_gradients, loss_inside, mean_cross_entropy
from gradflow.laws.routing.state import HeadState, relative, require_normalised


class LossDrop(NamedTuple):
    """First-order fall of the loss under a step of gradient descent, over the step size.

    Attributes:
        scores: |D|_F^2, the scores moving freely.
        values: |A^T U|_F^2, the values moving freely.
        weights: the squared norms of the gradients of W_Q, W_K, W_V, W_O (and of free values and scores), summed.
    """

    scores: Float[Array, ""]
    values: Float[Array, ""]
    weights: Float[Array, ""]


def loss_drop(gradients: HeadGradients) -> LossDrop:
    """Return the first-order fall of the loss by each way of moving.

    Args:
        gradients: of a head; where it has no W_V the values are free, where it has no W_Q the scores are.

    Returns:
        Falls per unit of the step size.
    """
    scores, values = _square(gradients.scores), _square(gradients.values)
    moving = [gradients.w_q, gradients.w_k, gradients.w_v, gradients.w_o]
    shared = sum(_square(gradient) for gradient in moving if gradient is not None)
    free = (scores if gradients.queries is None else 0) + (values if gradients.w_v is None else 0)
    return LossDrop(scores, values, jnp.asarray(shared + free))


def loss_drop_law(head: Any, x: Any, targets: Any, mask: Any = None, where: Any = None) -> LossDrop:
    """Return `loss_drop` plus the derivative of the loss along each step, in forward mode, over its size.

    Args:
        head: as for `head_gradients`; all its matrices move.
        x: as for `head_gradients`.
        targets: as for `head_gradients`.
        mask: as for `head_gradients`.
        where: as for `head_gradients`.

    Returns:
        Relative residuals.
    """
    gradients = head_gradients(head, x, targets, mask, where)
    names = [name for name in ("scores", "values", "w_q", "w_k", "w_v", "w_o") if hasattr(head, name)]

    def leaves(of: Any) -> list[Array]:
        return [getattr(of, name) for name in names]

    def outer(matrices: list[Array]) -> Array:
        return mean_cross_entropy(eqx.tree_at(leaves, head, matrices)(x, where), targets, mask)

    with jax.default_matmul_precision("highest"):
        inner, point = loss_inside(head, x, targets, mask, where)
        still = jax.tree.map(jnp.zeros_like, point)
        slopes = LossDrop(
            _slope(inner, point, still._replace(scores=-gradients.scores)),
            _slope(inner, point, still._replace(values=-gradients.values)),
            _slope(outer, leaves(head), [-gradient for gradient in leaves(gradients)]),
        )
    return jax.tree.map(lambda fall, slope: relative(fall + slope, fall), loss_drop(gradients), slopes)


def _slope(function: Callable, at: Any, along: Any) -> Array:
    return jax.jvp(function, (at,), (along,))[1]


def value_step(state: HeadState, x: Float[Array, "T d_in"] | None = None) -> Float[Array, "*H T d_v"]:
    """Return the change of the values under a unit step: -A^T U where they are free (the responsibility law).

    With shared W_V a step moves them by -X X^T A^T U instead, the same only if X X^T is the identity.

    Args:
        state: of a head.
        x: its inputs, if the values share W_V.

    Returns:
        The change.
    """
    with jax.default_matmul_precision("highest"):
        free = -jnp.swapaxes(state.weights, -1, -2) @ state.upstream
        if x is None:
            return free
        x = finite_rows(x)
        return x @ (x.T @ free)


def compatibility_step(state: HeadState) -> Float[Array, "*H T T"]:
    """Return the change of B under a unit step of free values with U frozen, -U U^T A."""
    with jax.default_matmul_precision("highest"):
        upstream = state.upstream
        return -upstream @ (jnp.swapaxes(upstream, -1, -2) @ state.weights)


def feedback_law(state: HeadState, step_size: float | Array = 1.0) -> Float[Array, "*H T T"]:
    """Return U V(1)^T - B - eta Delta B after a step V(1) = V - eta A^T U: an identity while U is frozen.

    Condition: free values, U frozen; scores and W_O do not matter. Any map.

    Args:
        state: of a head.
        step_size: eta.

    Returns:
        The residual over the size of Delta B.
    """
    with jax.default_matmul_precision("highest"):
        values = state.values + step_size * value_step(state)
        after = state.upstream @ jnp.swapaxes(values, -1, -2)
    change = step_size * compatibility_step(state)
    return relative(after - state.compatibility - change, change, state.compatibility)


class Feedback(NamedTuple):
    """How a unit step of free values changes the advantage, U and A frozen.

    Attributes:
        own: through the row's own query, |u_i|^2 (A_ij - sum_k A_ik^2).
        cross: through the other queries, which can reverse it.
    """

    own: Float[Array, "*H T T"]
    cross: Float[Array, "*H T T"]


def feedback(state: HeadState) -> Feedback:
    """Return the growth of the advantage by the row's own query and by the others. It is no theorem that it grows.

    Args:
        state: of a head whose map is normalised.

    Returns:
        Both terms, zero at masked entries.

    Raises:
        FlowError: if the weights need not sum to one.
    """
    require_normalised(state, "the feedback of the advantage")
    change = jnp.where(state.mask, compatibility_step(state), 0)
    mean = jnp.sum(state.weights * change, axis=-1, keepdims=True)
    length = jnp.sum(state.upstream**2, axis=-1, keepdims=True)
    second = jnp.sum(state.weights**2, axis=-1, keepdims=True)
    own = jnp.where(state.mask, length * (state.weights - second), 0)
    return Feedback(own, jnp.where(state.mask, mean - change, 0) - own)


def own_feedback_grows(weights: Float[Array, "... T"]) -> Bool[Array, "... T"]:
    """Return where A_ij > sum_k A_ik^2: there, and only there, the own query's term makes the advantage grow."""
    return weights > jnp.sum(weights**2, axis=-1, keepdims=True)


def _square(gradient: Array) -> Array:
    return jnp.sum(gradient**2)
