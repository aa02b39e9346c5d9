"""What the measurements accept: numbers from any source, masks, and the axes they need."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from gradflow.errors import FlowError


def as_float(argument: str, values: Any, axes: tuple[str, ...] = ()) -> Float[Array, "..."]:
    """Return values as floats, in float32 or wider.

    Args:
        argument: its name, as typed.
        values: numbers.
        axes: names of the trailing axes that must be there.

    Returns:
        The same numbers.

    Raises:
        FlowError: if they are no real numbers, or an axis is missing.
    """
    try:
        values = jnp.asarray(values)
    except (TypeError, ValueError):
        raise FlowError(f"{argument} is {values!r:.60}; pass an array of numbers") from None
    if jnp.issubdtype(values.dtype, jnp.complexfloating):
        raise FlowError(f"{argument} is {values.dtype}; pass real numbers")
    if values.ndim < len(axes):
        raise FlowError(f"{argument} has shape {values.shape}; pass (..., {', '.join(axes)})")
    return values.astype(jnp.promote_types(jnp.result_type(values, 0.0), jnp.float32))


def as_mask(argument: str, where: Any, shape: tuple[int, ...]) -> Bool[Array, "..."]:
    """Return a mask broadcast to `shape`; None keeps everything.

    Args:
        argument: its name, as typed.
        where: True where an entry takes part.
        shape: of what is masked.

    Returns:
        The mask.

    Raises:
        FlowError: if it is not boolean or does not broadcast.
    """
    if where is None:
        return jnp.ones(shape, bool)
    where = jnp.asarray(where)
    if where.dtype != jnp.bool_:
        raise FlowError(f"{argument} has dtype {where.dtype}; pass booleans, for instance {argument}.astype(bool)")
    try:
        return jnp.broadcast_to(where, shape)
    except ValueError:
        raise FlowError(f"{argument} has shape {where.shape}, which does not broadcast to {shape}") from None
