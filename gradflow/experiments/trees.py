"""Models and data as members of one ensemble: arrays get an axis in front, and whatever is no array stays as it is."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np


def is_array(x: Any) -> bool:
    """Return whether a leaf is an array of JAX or NumPy."""
    return isinstance(x, jax.Array | np.ndarray)


def stacked(trees: Sequence[Any]) -> Any:
    """Stack trees of arrays along a new axis 0."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves) if eqx.is_array(leaves[0]) else leaves[0], *trees)


def repeated(tree: Any, count: int) -> Any:
    """Return a tree of arrays `count` times along axis 0, one after the other."""
    return jax.tree.map(lambda x: jnp.concatenate([x] * count) if eqx.is_array(x) else x, tree)


def member(tree: Any, *index: Any) -> Any:
    """Return one of stacked models or data by its indices along the leading axes."""
    return jax.tree.map(lambda x: x[index] if is_array(x) else x, tree)
