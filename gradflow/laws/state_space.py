"""The laws of a linear state space with scalar decay, beside those of attention (derived here).

h_t = exp(a_t) h_{t-1} + B_t v_t^T and y_t = C_t h_t unroll to y_t = sum_{j <= t} W_tj v_j with
W_tj = C_t . B_j exp(a_{j+1} + .. + a_t), the form of Mamba's layer with one decay a step. With U = dL/dy and
b_tj = u_t . v_j the products W_tj b_tj are the gradient in the logarithm of each path, and every gradient is a sum of
them. Values obey the responsibility law of attention, dL/dV = W^T U. Nothing is centred: rows of W do not sum to one,
no mean of b is subtracted, and the advantage law fails.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gradflow.activations.base import as_float
from gradflow.errors import FlowError
from gradflow.laws.routing.state import relative


class StateSpace(NamedTuple):
    """A linear state space at one sequence.

    Attributes:
        log_decay: a_t, the logarithm of what is kept of the state on the way from t - 1 to t; a_0 has nothing to keep.
        write: B_t.
        read: C_t.
        values: v_t.
    """

    log_decay: Float[Array, " T"]
    write: Float[Array, "T n"]
    read: Float[Array, "T n"]
    values: Float[Array, "T d"]


class StateSpaceGradients(NamedTuple):
    """Gradients of a loss of y.

    Attributes:
        values: dL/dV = W^T U.
        log_decay: dL/da_k = sum over t >= k and j < k of W_tj b_tj.
        write_gate: dL/d log of the scale of B_j, sum_t W_tj b_tj.
        read_gate: dL/d log of the scale of C_t, sum_j W_tj b_tj.
        paths: W_tj b_tj, the gradient in log W_tj.
    """

    values: Float[Array, "T d"]
    log_decay: Float[Array, " T"]
    write_gate: Float[Array, " T"]
    read_gate: Float[Array, " T"]
    paths: Float[Array, "T T"]


def transfer(space: StateSpace) -> Float[Array, "T T"]:
    """Return W, zero above the diagonal.

    Args:
        space: the layer; a log decay of minus infinity forgets everything before it.

    Returns:
        The weights of y = W V.

    Raises:
        FlowError: if the shapes do not fit.
    """
    space = _checked(space)
    length = len(space.log_decay)
    later = jnp.tril(jnp.ones((length, length), bool), -1)
    # A sum over each segment: differences of one cumulative sum would cancel, and not survive an infinity.
    segments = jnp.cumsum(jnp.where(later, space.log_decay[:, None], 0), axis=0)
    earlier = later | jnp.eye(length, dtype=bool)
    gates = jnp.matmul(space.read, space.write.T, precision="highest")
    return jnp.where(earlier, gates * jnp.exp(jnp.where(earlier, segments, 0)), 0)


def recurrence(space: StateSpace) -> Float[Array, "T d"]:
    """Return y by stepping through the state, as a layer is run.

    Args:
        space: the layer.

    Returns:
        Outputs.

    Raises:
        FlowError: if the shapes do not fit.
    """
    space = _checked(space)

    def step(state: Array, now: StateSpace) -> tuple[Array, Array]:
        state = jnp.exp(now.log_decay) * state + jnp.outer(now.write, now.values)
        return state, jnp.matmul(now.read, state, precision="highest")

    start = jnp.zeros((space.write.shape[1], space.values.shape[1]), space.values.dtype)
    return jax.lax.scan(step, start, space)[1]


def state_space_gradients(space: StateSpace, upstream: Float[Array, "T d"]) -> StateSpaceGradients:
    """Return the gradients of any loss of y in closed form.

    Args:
        space: the layer.
        upstream: U = dL/dy.

    Returns:
        The gradients.

    Raises:
        FlowError: if the shapes do not fit.
    """
    space, upstream = _checked(space), jnp.asarray(upstream)
    if upstream.shape != space.values.shape:
        raise FlowError(f"upstream has shape {upstream.shape}: pass dL/dy, {space.values.shape} like the values")
    weights = transfer(space)
    compatibility = jnp.matmul(upstream, space.values.T, precision="highest")
    paths = jnp.where(weights == 0, 0, weights * compatibility)
    before = jnp.cumsum(paths, axis=1) - paths  # [t, k]: the paths into t from j < k
    return StateSpaceGradients(
        values=jnp.matmul(weights.T, upstream, precision="highest"),
        log_decay=jnp.sum(jnp.tril(before), axis=0),
        write_gate=jnp.sum(paths, axis=0),
        read_gate=jnp.sum(paths, axis=1),
        paths=paths,
    )


def gradient_law(loss: Callable[[Array], Array], space: StateSpace) -> StateSpaceGradients:
    """Return closed form minus automatic differentiation through the recurrence, over the largest entry of each.

    Args:
        loss: `loss(y) -> scalar`, any.
        space: the layer.

    Returns:
        Relative residuals; those of `paths` come from the unrolled form, y = W V.

    Raises:
        FlowError: if the shapes do not fit.
    """
    space = _checked(space)
    still = jnp.zeros_like(space.log_decay)
    weights = transfer(space)

    def scaled(values: Array, log_decay: Array, write_gate: Array, read_gate: Array) -> Array:
        write, read = space.write * jnp.exp(write_gate)[:, None], space.read * jnp.exp(read_gate)[:, None]
        return loss(recurrence(StateSpace(log_decay, write, read, values)))

    def unrolled(logs: Array) -> Array:
        return loss(jnp.matmul(weights * jnp.exp(logs), space.values, precision="highest"))

    slopes = jax.grad(scaled, argnums=(0, 1, 2, 3))(space.values, space.log_decay, still, still)
    expected = StateSpaceGradients(*slopes, paths=jax.grad(unrolled)(jnp.zeros_like(weights)))
    found = state_space_gradients(space, jax.grad(loss)(recurrence(space)))
    return jax.tree.map(lambda ours, other: relative(ours - other, other), found, expected)


def flux_law(gradients: StateSpaceGradients) -> Float[Array, " T-1"]:
    """Return dL/da_{k+1} - dL/da_k - (write gate - read gate) at k, over the size of the gates: zero for any loss.

    What a decay carries changes from step to step by what is written in and read out there.

    Args:
        gradients: of a layer.

    Returns:
        Relative residuals.
    """
    gates = gradients.write_gate - gradients.read_gate
    residual = jnp.diff(gradients.log_decay) - gates[:-1]
    return relative(residual, gradients.write_gate, gradients.read_gate, jnp.abs(gradients.paths).sum(0))


def centring(gradients: StateSpaceGradients) -> Float[Array, " T"]:
    """Return sum_j W_tj b_tj over sum_j |W_tj b_tj| at each row: what attention's centring would make zero.

    It is no law of this layer. Near plus or minus 1 nothing cancels.

    Args:
        gradients: of a layer.

    Returns:
        The ratio, 0 in rows without any path.
    """
    size = jnp.sum(jnp.abs(gradients.paths), axis=1)
    return gradients.read_gate / jnp.where(size > 0, size, 1)


def _checked(space: StateSpace) -> StateSpace:
    arrays = StateSpace(*map(as_float, space))
    decay, write, read, values = (x.shape for x in arrays)
    fits = len(decay) == 1 and len(write) == 2 and len(values) == 2 and read == write
    if not fits or not decay[0] == write[0] == values[0]:
        raise FlowError(
            f"log_decay has shape {decay}, write {write}, read {read}, values {values}: pass (T,), (T, n), (T, n) and "
            "(T, d)"
        )
    return arrays
