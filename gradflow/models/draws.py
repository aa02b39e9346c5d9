"""Random initial arrays, and what their initialisers accept: a key and standard deviations."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from gradflow.errors import FlowError, is_traced, shown


def as_key(key: PRNGKeyArray) -> PRNGKeyArray:
    """Return a random key after checking it.

    Args:
        key: one key of `jax.random.key`, or the words of one of `jax.random.PRNGKey`.

    Returns:
        The same key.

    Raises:
        FlowError: if it is no key, or several.
    """
    good = False
    if isinstance(key, jax.Array | np.ndarray):
        typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
        good = key.ndim == 0 if typed else key.ndim == 1 and key.dtype == np.uint32
    if not good:
        raise FlowError(f"key is {shown(key)}: pass a random key, such as jax.random.key(0)")
    return key


def as_scale(argument: str, scale: Any) -> Any:
    """Return a standard deviation after checking it; a traced one is not looked at.

    Args:
        argument: its name, as typed.
        scale: a number.

    Returns:
        The same number.

    Raises:
        FlowError: if it is no finite number >= 0.
    """
    if is_traced(scale):
        return scale
    try:
        good = not isinstance(scale, str) and 0 <= float(scale) < math.inf
    except (TypeError, ValueError):
        good = False
    if not good:
        raise FlowError(f"{argument} is {shown(scale)}: pass a standard deviation, a finite number >= 0")
    return scale


def draw(key: PRNGKeyArray, scale: float, *shapes: tuple[int, ...]) -> list[Float[Array, "..."]]:
    """Return arrays with entries N(0, scale^2), each from a key of its own, or refuse what is no key or no scale."""
    key, scale = as_key(key), as_scale("scale", scale)
    keys = jax.random.split(key, len(shapes))
    return [scale * jax.random.normal(k, shape) for k, shape in zip(keys, shapes, strict=True)]


def draw_within(key: PRNGKeyArray, shape: tuple[int, ...], fan_in: int) -> Float[Array, "..."]:
    """Return an array with entries uniform within one over the root of the fan-in, as linear layers start."""
    bound = 1 / math.sqrt(fan_in)
    return jax.random.uniform(key, shape, minval=-bound, maxval=bound)
