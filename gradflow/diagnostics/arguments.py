"""What the measurements accept: numbers from any source, masks, symbols, rows, and the axes they need."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from gradflow.errors import FlowError, is_traced


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


def as_symbols(argument: str, symbols: Any, n_classes: int, length: int) -> Int[Array, "..."]:
    """Return class indices, one for each of `length` entries.

    Args:
        argument: its name, as typed.
        symbols: whole numbers from 0 to `n_classes - 1`.
        n_classes: how many there are.
        length: of the last axis.

    Returns:
        The same numbers. Under `jit` a number outside the range cannot be noticed, and counts for no class.

    Raises:
        FlowError: if they are not whole, not in the range, or of another length.
    """
    symbols = jnp.asarray(symbols)
    if not jnp.issubdtype(symbols.dtype, jnp.integer):
        raise FlowError(f"{argument} has dtype {symbols.dtype}; pass class indices, whole numbers")
    if not symbols.ndim or symbols.shape[-1] != length:
        raise FlowError(f"{argument} has shape {symbols.shape}; pass (..., {length}), one symbol for each")
    if not is_traced(symbols) and symbols.size:
        low, high = np.asarray(symbols).min(), np.asarray(symbols).max()
        if low < 0 or high >= n_classes:
            allowed = f"with n_classes = {n_classes} it must lie in [0, {n_classes - 1}]"
            raise FlowError(f"{argument} runs from {low} to {high}; {allowed}")
    return symbols


def common_shape(**shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that arrays broadcast to.

    Args:
        **shapes: of the arrays, by their names, as typed.

    Returns:
        The shape.

    Raises:
        FlowError: if they do not broadcast.
    """
    try:
        return jnp.broadcast_shapes(*shapes.values())
    except ValueError:
        listed = " and ".join(f"{name} has shape {shape}" for name, shape in shapes.items())
        raise FlowError(f"{listed}; they must broadcast") from None


def rescaled(weights: Float[Array, "... n"]) -> Float[Array, "... n"]:
    """Return rows divided by their sum: probabilities.

    Args:
        weights: rows.

    Returns:
        Rows that sum to one; a row of zeros stays so, and a negative entry turns its row into NaN.
    """
    # Divided by the largest entry first: a sum of huge weights overflows. The quotient does not depend on it.
    largest = lax.stop_gradient(jnp.max(jnp.abs(weights), axis=-1, keepdims=True, initial=0))
    weights = weights / jnp.where(largest > 0, largest, 1)
    total = jnp.sum(weights, axis=-1, keepdims=True)
    weights = weights / jnp.where(total > 0, total, 1)
    return jnp.where(jnp.any(weights < 0, axis=-1, keepdims=True), jnp.nan, weights)


def index_in(argument: str, index: Any, length: int) -> Int[Array, "..."] | int:
    """Return an index that lies in an axis; negative ones count from the end.

    Args:
        argument: its name, as typed.
        index: a whole number, or an array of them.
        length: of the axis.

    Returns:
        The index. Under `jit` one outside the axis cannot be noticed.

    Raises:
        FlowError: if it is not whole, or outside the axis.
    """
    if is_traced(index):
        return index
    numbers = np.asarray(index)
    if not np.issubdtype(numbers.dtype, np.integer):
        raise FlowError(f"{argument} is {index!r:.60}; pass a whole number")
    if ((numbers < -length) | (numbers >= length)).any():
        raise FlowError(f"{argument} is {index!r:.60}, which is outside an axis of length {length}")
    return int(numbers) if not numbers.ndim else jnp.asarray(numbers)


def norms(vectors: Float[Array, "... d"]) -> Float[Array, "..."]:
    """Return Euclidean norms along the last axis, without overflow, and with gradient 0 at a zero vector.

    Args:
        vectors: one a row.

    Returns:
        Norms.
    """
    largest = lax.stop_gradient(jnp.max(jnp.abs(vectors), axis=-1, initial=0))
    scale = jnp.where(largest > 0, largest, 1)
    squares = jnp.sum((vectors / scale[..., None]) ** 2, axis=-1)
    return scale * jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1)), 0)


def masked_median(values: Float[Array, "... n"], mask: Bool[Array, "... n"]) -> Float[Array, "..."]:
    """Return the median of the entries that take part, NaN where there is none.

    Args:
        values: numbers.
        mask: True where one takes part.

    Returns:
        Medians along the last axis.
    """
    ordered = jnp.sort(jnp.where(mask, values, jnp.inf), axis=-1)
    count = jnp.sum(mask, axis=-1, keepdims=True)
    middle = (jnp.maximum(count - 1, 0) // 2, jnp.minimum(count // 2, values.shape[-1] - 1))
    low, high = (jnp.take_along_axis(ordered, place, axis=-1)[..., 0] for place in middle)
    return jnp.where(count[..., 0] > 0, low / 2 + high / 2, jnp.nan)
