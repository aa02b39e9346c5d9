"""When routing and values stop moving: the frame-precision dissociation (arXiv 2512.22473).

Distances are to the last save that was reached, so each time depends on the horizon of the run: state it, and compare
several.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Shaped

from gradflow.diagnostics.arguments import as_float, as_mask, common_shape
from gradflow.diagnostics.attention import total_variation
from gradflow.diagnostics.history import between
from gradflow.errors import FlowError, is_traced, shown


class Dissociation(NamedTuple):
    """When the parts of a head freeze.

    Attributes:
        routing: tau_A, from the attention weights.
        values: tau_V, from the values.
        ratio: tau_V / tau_A, above 1 where routing freezes first. NaN if both are 0 or both infinite.
    """

    routing: Float[Array, "..."]
    values: Float[Array, "..."]
    ratio: Float[Array, "..."]


def routing_distance(
    weights: Shaped[Array, "... S Q K"],
    reference: Shaped[Array, "... Q K"] | None = None,
    where: Bool[Array, "... Q K"] | None = None,
    valid: Bool[Array, "... S"] | None = None,
) -> Float[Array, "... S"]:
    """Return how far the attention is from its end: the mean over queries of TV(A(t), A(final)).

    The distance is absolute: it stays small along a run on which the attention hardly moves at all. Look at the first
    entry before reading anything into a `freezing_time`.

    Args:
        weights: attention at each save, queries by keys.
        reference: attention to compare with; None is the last save that was reached.
        where: True where an entry takes part, for instance the causal mask. A query without any entry does not count,
            and of a causal head nor does the first, which has one key and cannot move.
        valid: which saves were reached (`trajectory.valid`).

    Returns:
        Distances from 0 to 1 for rows that sum to one; NaN at saves that were not reached.

    Raises:
        FlowError: if an axis is missing, there is no save, or the shapes do not fit.
    """
    weights = as_float("weights", weights, ("S", "Q", "K"))
    reached = _reached("weights", valid, weights.shape[:-2])
    reference = _reference(reference, weights, reached)
    mask = as_mask("where", where, weights.shape[:-3] + weights.shape[-2:])
    weights = jnp.where(reached[..., None, None], weights, 0)
    distances = total_variation(weights, reference, where=mask[..., None, :, :])
    # Queries with one key only cannot move, whatever the head does.
    counted = jnp.sum(mask, axis=-1) > 1
    many = jnp.maximum(jnp.sum(counted, axis=-1), 1)
    mean = jnp.sum(jnp.where(counted[..., None, :], distances, 0), axis=-1) / many[..., None]
    return jnp.where(reached, mean, jnp.nan)


def relative_distance(
    values: Shaped[Array, "... S N d"],
    reference: Shaped[Array, "... N d"] | None = None,
    valid: Bool[Array, "... S"] | None = None,
) -> Float[Array, "... S"]:
    """Return how far values are from their end, as a part of the whole way: |V(t) - V(final)| / |V(0) - V(final)|.

    Args:
        values: values (or any matrix, for instance the scores) at each save.
        reference: values to compare with; None is the last save that was reached.
        valid: which saves were reached (`trajectory.valid`).

    Returns:
        Distances, 1 at the first save; NaN at saves that were not reached. A detour can exceed 1. Where the first save
        is the reference already there is no way to go, and the distance is 0 or, off the reference, infinite.

    Raises:
        FlowError: if an axis is missing, there is no save, or the shapes do not fit.
    """
    values = as_float("values", values, ("S", "N", "d"))
    reached = _reached("values", valid, values.shape[:-2])
    away = jnp.where(reached[..., None, None], values - _reference(reference, values, reached), 0)
    # The ratio does not depend on the scale; at scale one its squares neither underflow nor overflow.
    size = jnp.max(jnp.abs(away), axis=(-3, -2, -1), keepdims=True, initial=0)
    square = jnp.sum((away / jnp.where(size > 0, size, 1)) ** 2, axis=(-2, -1))
    norm = jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)
    start = norm[..., :1]
    part = jnp.where(start > 0, norm / jnp.where(start > 0, start, 1), jnp.where(norm > 0, jnp.inf, 0))
    return jnp.where(reached, part, jnp.nan)


def freezing_time(
    ts: Shaped[Array, "... S"],
    distances: Shaped[Array, "... S"],
    epsilon: float = 0.05,
    valid: Bool[Array, "... S"] | None = None,
) -> Float[Array, "..."]:
    """Return the time after which a distance stays at most epsilon for good.

    Between two saves the distance is taken as linear in log t (in t from a save at t = 0). A distance that is NaN or
    infinite at a save that was reached is not frozen there.

    Args:
        ts: save times.
        distances: at these times, for instance `routing_distance` or `relative_distance`.
        epsilon: a level, >= 0.
        valid: which saves were reached (`trajectory.valid`).

    Returns:
        Times: `ts[0]` where the distance is never above epsilon; infinity where it is above at the last save that was
        reached, or none was.

    Raises:
        FlowError: if the shapes do not fit, there is no save, or epsilon is negative or NaN.
    """
    ts, distances = as_float("ts", ts, ("S",)), as_float("distances", distances, ("S",))
    if ts.shape[-1] != distances.shape[-1] or not ts.shape[-1]:
        raise FlowError(f"ts has shape {ts.shape} and distances {distances.shape}; pass (..., S) twice, with S >= 1")
    if not is_traced(ts) and np.any(np.diff(np.asarray(ts), axis=-1) < 0):
        raise FlowError(f"ts falls: {shown(np.asarray(ts).tolist())}; save times must rise")
    if not is_traced(epsilon) and not np.all(np.asarray(epsilon) >= 0):
        raise FlowError(f"epsilon is {epsilon}; it must be a distance, at least 0")
    shape = common_shape(ts=ts.shape, distances=distances.shape)
    ts, distances = jnp.broadcast_to(ts, shape), jnp.broadcast_to(distances, shape)
    reached = as_mask("valid", valid, distances.shape)
    above = reached & ~(distances <= epsilon)
    place = jnp.arange(distances.shape[-1])
    before = jnp.max(jnp.where(above, place, -1), axis=-1)
    after = jnp.min(jnp.where(reached & (place > before[..., None]), place, place.size), axis=-1)
    frozen = after < place.size

    def at(array: Float[Array, "... S"], index: Array) -> Float[Array, "..."]:
        return jnp.take_along_axis(array, jnp.clip(index, 0, place.size - 1)[..., None], axis=-1)[..., 0]

    high, low = at(distances, before), at(distances, after)
    crossing = jnp.isfinite(high) & (high > low)
    part = jnp.where(crossing, (high - epsilon) / jnp.where(crossing, high - low, 1), 1)
    time = between(at(ts, before), at(ts, after), part)
    return jnp.where(frozen, jnp.where(before < 0, ts[..., 0], time), jnp.inf)


def dissociation(
    ts: Shaped[Array, "... S"],
    weights: Shaped[Array, "... S Q K"],
    values: Shaped[Array, "... S N d"],
    epsilon: float = 0.05,
    where: Bool[Array, "... Q K"] | None = None,
    valid: Bool[Array, "... S"] | None = None,
) -> Dissociation:
    """Return when routing and values freeze, and the ratio: above 1 where values go on after routing has frozen.

    Args:
        ts: save times.
        weights: attention at each save, queries by keys.
        values: values at each save.
        epsilon: of both distances: TV(A(t), A(final)), and |V(t) - V(final)| as a part of the whole way.
        where: True where an attention entry takes part, for instance the causal mask.
        valid: which saves were reached (`trajectory.valid`).

    Returns:
        Both times and tau_V / tau_A.
    """
    routing = freezing_time(ts, routing_distance(weights, where=where, valid=valid), epsilon, valid)
    moved = freezing_time(ts, relative_distance(values, valid=valid), epsilon, valid)
    return Dissociation(routing, moved, moved / routing)


def _reached(argument: str, valid: Bool[Array, "... S"] | None, shape: tuple[int, ...]) -> Bool[Array, "... S"]:
    if not shape[-1]:
        raise FlowError(f"{argument} holds no save; pass (..., S, rows, columns) with S >= 1")
    return as_mask("valid", valid, shape)


def _reference(given: Array | None, history: Float[Array, "... S n m"], reached: Bool[Array, "... S"]) -> Array:
    """Return what to compare with, with an axis of saves of length one: what is given, or the last save reached."""
    if given is not None:
        given = as_float("reference", given, ("rows", "columns"))
        if given.shape[-2:] != history.shape[-2:]:
            raise FlowError(f"reference has shape {given.shape}; the matrix of a save has {history.shape[-2:]}")
        return given[..., None, :, :]
    last = jnp.max(jnp.where(reached, jnp.arange(reached.shape[-1]), 0), axis=-1)
    return jnp.take_along_axis(history, last[..., None, None, None], axis=-3)
