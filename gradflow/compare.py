"""How far the optimiser is from the flow, at matched times t = step size x step."""

from numbers import Real

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from gradflow.errors import FlowError, leaf_name, shown
from gradflow.trajectory import Trajectory

MATCH = 1e-9  # relative distance of two times that count as one


class Gap(eqx.Module):
    """Distance of a descent from the flow.

    Attributes:
        ts: matched times.
        distance: Euclidean distance of what both saved, all leaves together.
        relative: the same over the norm of the flow's.
    """

    ts: Float[Array, " P"]
    distance: Float[Array, " P"]
    relative: Float[Array, " P"]


def flow_descent_gap(flow: Trajectory, descent: Trajectory, step_size: float) -> Gap:
    """Return the distance between flow and descent at the times both saved, t = step_size * step.

    Args:
        flow: a flow that saved at `ts`.
        descent: a descent that saved the same observables at `save_at`.
        step_size: of the descent, constant.

    Returns:
        The gap at every common time; for plain descent it falls linearly in the step size.

    Raises:
        FlowError: if the observables differ in structure, or no save time is common.
    """
    if np.ndim(step_size) or not isinstance(step_size, Real | jax.Array | np.ndarray) or not 0 < step_size < np.inf:
        raise FlowError(f"step_size is {shown(step_size)}: it must be one positive and finite number")
    flow_ts, descent_ts = np.asarray(flow.ts, np.float64), np.asarray(descent.ts, np.float64) * step_size
    pairs = _matches(flow_ts, descent_ts, np.asarray(flow.valid), np.asarray(descent.valid))
    if not len(pairs):
        raise FlowError(
            f"flow and descent share no save time: the flow saved t in [{flow_ts[0]:g}, {flow_ts[-1]:g}], the descent "
            f"t = step_size * step in [{descent_ts[0]:g}, {descent_ts[-1]:g}]; use ts = step_size * save_at"
        )
    rows, columns = pairs[:, 0], pairs[:, 1]
    pairs = _common_leaves(flow.observed, descent.observed)
    squares = sum(_square(a[rows] - b[columns]) for a, b in pairs)
    size = sum(_square(a[rows]) for a, _ in pairs)
    distance = jnp.sqrt(squares)
    return Gap(flow.ts[rows], distance, distance / jnp.sqrt(size))


def gap_order(step_sizes: Float[Array, " E"], gaps: Float[Array, "E ..."]) -> Float[Array, "..."]:
    """Return the order p in gap ~ step_size^p, by least squares on the logarithms.

    Args:
        step_sizes: at least two different ones.
        gaps: distances, step sizes along axis 0.

    Returns:
        The slope for each remaining entry: 1 for plain gradient descent.

    Raises:
        FlowError: if there are fewer than two step sizes or the lengths differ.
    """
    step_sizes, gaps = jnp.asarray(step_sizes), jnp.asarray(gaps)
    if step_sizes.ndim != 1 or len(np.unique(step_sizes)) < 2 or len(gaps) != len(step_sizes):
        raise FlowError(
            f"gap_order needs two or more step sizes and a gap for each, got {step_sizes.shape} and {gaps.shape}"
        )
    x = jnp.log(step_sizes) - jnp.log(step_sizes).mean()
    return jnp.tensordot(x, jnp.log(gaps), axes=1) / jnp.sum(x**2)


def _matches(a: np.ndarray, b: np.ndarray, a_valid: np.ndarray, b_valid: np.ndarray) -> np.ndarray:
    right = np.searchsorted(b, a).clip(0, len(b) - 1)
    left = np.maximum(right - 1, 0)
    nearest = np.where(np.abs(a - b[left]) <= np.abs(b[right] - a), left, right)
    close = np.abs(b[nearest] - a) <= MATCH * np.abs(a)
    keep = close & a_valid & b_valid[nearest]
    return np.stack([np.flatnonzero(keep), nearest[keep]], axis=1)


def _common_leaves(flow: PyTree, descent: PyTree) -> list[tuple[Array, Array]]:
    """Return the pairs of floating-point arrays; counts, such as the descent's step, have no distance."""
    named = [
        {leaf_name(path): x for path, x in jax.tree_util.tree_leaves_with_path(eqx.filter(tree, eqx.is_array))}
        for tree in (flow, descent)
    ]
    shapes = [{name: x.shape[1:] for name, x in side.items()} for side in named]
    if shapes[0] != shapes[1]:
        raise FlowError(
            f"flow and descent saved different observables, {shapes[0]} and {shapes[1]}: give both the same `observe`"
        )
    pairs = [(x, named[1][name]) for name, x in named[0].items()]
    floating = [pair for pair in pairs if all(jnp.issubdtype(x.dtype, jnp.inexact) for x in pair)]
    if not floating:
        raise FlowError("flow and descent saved no floating-point arrays: there is no distance between counts")
    return floating


def _square(x: Array) -> Float[Array, " P"]:
    return jnp.sum(x.reshape(len(x), -1) ** 2, axis=1)
