"""What happens to a row along a run: when it goes one-hot, and whether its order is kept."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from gradflow.diagnostics.arguments import as_float, as_mask
from gradflow.diagnostics.attention import largest_weight
from gradflow.errors import FlowError


def time_to_one_hot(
    ts: Shaped[Array, " T"],
    weights: Shaped[Array, "... T n"],
    threshold: float = 0.99,
    valid: Bool[Array, "... T"] | None = None,
) -> Float[Array, "..."]:
    """Return the first time at which the largest weight reaches a threshold.

    Between two saves the largest weight is taken as linear in log t (in t from a save at t = 0). To find the time to
    the accuracy of the flow itself, end the run with `gradflow.Crossing`.

    Args:
        ts: save times.
        weights: attention rows at these times.
        threshold: of the largest weight.
        valid: which saves were reached (`trajectory.valid`).

    Returns:
        Times: `ts[0]` where the first save has reached it already, infinity where none does.

    Raises:
        FlowError: if the shapes do not fit.
    """
    ts = as_float("ts", ts, ("T",))
    weights = as_float("weights", weights, ("T", "n"))
    if ts.ndim != 1 or ts.shape[0] != weights.shape[-2] or not ts.size:
        raise FlowError(f"ts has shape {ts.shape} and weights {weights.shape}; pass (T,) and (..., T, n) with T >= 1")
    largest = largest_weight(weights)
    reached = (largest >= threshold) & as_mask("valid", valid, largest.shape)
    after = jnp.argmax(reached, axis=-1)
    before = jnp.maximum(after - 1, 0)
    low, high = (jnp.take_along_axis(largest, i[..., None], axis=-1)[..., 0] for i in (before, after))
    part = jnp.where(high > low, (threshold - low) / jnp.where(high > low, high - low, 1), 1)
    first = jnp.where(after == 0, ts[0], between(ts[before], ts[after], part))
    return jnp.where(jnp.any(reached, axis=-1), first, jnp.inf)


def between(early: Float[Array, "..."], late: Float[Array, "..."], part: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return the time at a part of the way between two saves, in log t, or in t from a save at t = 0.

    Args:
        early: time of the first save.
        late: time of the second.
        part: of the way, from 0 to 1.

    Returns:
        Times.
    """
    positive = early > 0
    ratio = jnp.where(positive, late / jnp.where(positive, early, 1), 1)
    return jnp.where(positive, early * ratio**part, early + part * (late - early))


def rank_order_violations(
    values: Shaped[Array, "... T n"],
    slack: float = 0.0,
    valid: Bool[Array, "... T"] | None = None,
) -> Int[Array, "... T"]:
    """Count the pairs whose order is the reverse of that in the first row.

    A pair that is tied at the start has no order to violate, and one that is tied later is not reversed.

    Args:
        values: for instance the scores at each save.
        slack: how far a pair may be reversed before it counts.
        valid: which saves were reached (`trajectory.valid`); others count 0.

    Returns:
        Pairs reversed at each save, out of n (n - 1) / 2.

    Raises:
        FlowError: if there is no axis of saves, or no save.
    """
    values = as_float("values", values, ("T", "n"))
    if not values.shape[-2]:
        raise FlowError(f"values has shape {values.shape}; pass (..., T, n) with T >= 1")
    difference = values[..., :, None] - values[..., None, :]
    start = jnp.sign(difference[..., :1, :, :])
    reversed_pairs = jnp.sum(start * difference < -slack, axis=(-2, -1)) // 2
    return jnp.where(as_mask("valid", valid, reversed_pairs.shape), reversed_pairs, 0)
