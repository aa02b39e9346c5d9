"""What values of an axis are called: numbers by themselves, everything else by a short name of its own."""

import functools
import types
from typing import Any

import equinox as eqx
import jax
import numpy as np

from gradflow.errors import FlowError

LONGEST = 60


def plain(value: Any) -> Any:
    """Return NumPy's and JAX's scalars as Python's."""
    is_scalar = isinstance(value, np.generic) or (isinstance(value, jax.Array | np.ndarray) and value.ndim == 0)
    is_number = is_scalar and getattr(value.dtype, "kind", "") in "biuf"
    return value.item() if is_number else value


def labels(name: str, values: list) -> np.ndarray:
    """Return a coordinate: numbers as they are, everything else by its name."""
    kinds = {type(value) for value in values}
    if kinds <= {int, float} or kinds == {bool}:
        return np.array(values)
    return np.array([_label(name, value) for value in values])


def _label(name: str, value: Any) -> str:
    text = value if isinstance(value, str) else _described(value)
    if text is None or len(text) > LONGEST or not text:
        kind = type(value).__name__
        raise FlowError(
            f"axis {name!r} holds a {kind} without a short name of its own: name it, gf.Static({{'name': value, ...}})"
        )
    return text


def _described(value: Any) -> str | None:
    """Return what a person would call a value, None where its text says nothing."""
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType | type) or hasattr(value, "__wrapped__"):
        name = getattr(value, "__name__", "<lambda>")
        return None if "<" in name else name
    if isinstance(value, functools.partial):
        return None
    if any(eqx.is_array(leaf) or isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(value)):
        value = jax.tree.map(plain, value)
        if any(eqx.is_array(leaf) or isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(value)):
            return None
    text = " ".join(eqx.tree_pformat(value, width=10_000).split())
    return None if " at 0x" in text or "<" in text else text
