"""Checks of the arguments that tasks share."""

import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gradflow.errors import FlowError, is_traced


def check_key(key: Any) -> None:
    """Refuse anything but one typed key.

    Args:
        key: what was passed as `key`.

    Raises:
        FlowError: if it is not a scalar typed key.
    """
    dtype = getattr(key, "dtype", None)
    if dtype is None or not jnp.issubdtype(dtype, jax.dtypes.prng_key):
        raise FlowError(f"key is {key!r}; pass a typed key, jax.random.key(0)")
    if key.shape != ():
        raise FlowError(f"key has shape {key.shape}; pass one key, or map over them with jax.vmap")


def check_count(argument: str, value: Any) -> None:
    """Refuse anything but a whole number of at least one.

    Args:
        argument: its name, as typed.
        value: what was passed.

    Raises:
        FlowError: if it is not; sizes are static, so a traced value is refused as well.
    """
    if is_traced(value):
        raise FlowError(f"{argument} is traced; it sets a shape, so pass a Python integer")
    try:
        size = operator.index(value)
    except TypeError:
        size = 0
    if size < 1:
        raise FlowError(f"{argument} is {value!r}; pass an integer >= 1")


def check_range(argument: str, value: Any, low: float, high: float = np.inf, *, closed: bool = True) -> None:
    """Refuse numbers outside [low, high), or (low, high) if not closed; traced values are not looked at.

    Args:
        argument: its name, as typed.
        value: a number or an array of numbers.
        low: the lower end.
        high: the upper end, excluded.
        closed: whether the lower end is allowed.

    Raises:
        FlowError: if one lies outside.
    """
    if is_traced(value):
        return
    try:
        numbers = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise FlowError(f"{argument} is {value!r}; pass a number") from None
    above = numbers >= low if closed else numbers > low
    if not np.all(above & (numbers < high)):
        upper = f" and < {high:g}" if np.isfinite(high) else " and finite"
        raise FlowError(f"{argument} is {value}; pass a number {'>=' if closed else '>'} {low:g}{upper}")
