"""The builder point by point on the host, for NumPy generators, files and whatever else cannot be traced."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from gradflow.callables import essence
from gradflow.errors import FlowError, leaf_name, shown
from gradflow.sweep.build import Built, checked_triple, is_array


def build_on_host(build: Callable, points: list[dict[str, Any]], keys: Key[Array, "..."]) -> Built:
    """Call the builder point by point, and stack what it returns.

    Args:
        build: the builder.
        points: its parameters.
        keys: one key, or one a point.

    Returns:
        The members; arrays of args that all of them share are not copied.

    Raises:
        FlowError: if the builder fails, or its members do not fit together.
    """
    built = []
    for i, point in enumerate(points):
        try:
            built.append(checked_triple(build(keys[i] if keys.ndim else keys, **point)))
        except FlowError as error:
            raise FlowError(f"{error} [at {_listed(point)}]") from error
        except Exception as error:
            error.add_note(f"in build at {_listed(point)}")
            raise
    return _stack([loss for loss, _, _ in built], [(model, args) for _, model, args in built])


def _listed(point: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {shown(value)}" for name, value in point.items()) or "the only point"


def _stack(losses: list[Callable], members: list[tuple[PyTree, PyTree]]) -> Built:
    """Put members of equal structure together; arrays of args that all share are not copied."""
    if any(loss is not losses[0] and essence(loss) != essence(losses[0]) for loss in losses):
        raise FlowError("build returns a loss of its own for each point: define it once, and pass what changes in args")
    paths, treedef = jax.tree_util.tree_flatten_with_path(members[0])
    flat = [jax.tree.flatten(member) for member in members]
    if any(other != treedef for _, other in flat):
        raise FlowError("build returns models or args of different structure within one group: make the axis static")
    stacked, axes = [], []
    for (path, first), *values in zip(paths, *(leaves for leaves, _ in flat), strict=True):
        alone = path[0].idx == 1 and all(value is first for value in values)  # data that all members share
        axes.append(0 if is_array(first) and not alone else None)
        if not is_array(first):
            stacked.append(_equal(path, values))
        else:
            stacked.append(jnp.asarray(first) if alone else _rows(path, values))
    model, args = jax.tree.unflatten(treedef, stacked)
    return Built(losses[0], model, args, axes[len(jax.tree.leaves(model)) :], len(members))


def _equal(path: tuple, values: list) -> Any:
    if any(value != values[0] for value in values):
        raise FlowError(
            f"build returns {shown(values[0])} and {shown(next(v for v in values if v != values[0]))} at "
            f"{_place(path)} within one group: return arrays, or make the axis static"
        )
    return values[0]


def _rows(path: tuple, values: list) -> Array:
    shapes = sorted({np.shape(value) for value in values})
    if len(shapes) > 1:
        raise FlowError(f"build returns shapes {shapes[0]} and {shapes[1]} at {_place(path)}: make the axis static")
    return jnp.asarray(np.stack([np.asarray(value) for value in values]))


def _place(path: tuple) -> str:
    return ("model" if path[0].idx == 0 else "args") + leaf_name(path[1:])
