"""What attention accepts: positions, masks, weights whose shapes agree, and activations by name."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from gradflow.activations.base import as_float
from gradflow.errors import FlowError, is_traced, shown


def as_causal(causal: Any) -> bool:
    """Return the flag after checking it, since anything that is not empty is true."""
    if not isinstance(causal, bool | np.bool_):
        raise FlowError(f"causal is {shown(causal)}: pass True or False")
    return bool(causal)


def as_positions(x: Any, width: int) -> Float[Array, "T d_in"]:
    """Return the inputs of one sequence as floats, one position a row.

    Args:
        x: numbers.
        width: d_in, the rows of the projections.

    Returns:
        The same numbers.

    Raises:
        FlowError: if they are no (T, d_in) array.
    """
    shape = np.shape(x)
    if len(shape) != 2 or shape[1] != width:
        hint = "; map over sequences with jax.vmap" if len(shape) > 2 else ""
        raise FlowError(f"x has shape {shape}: pass (T, {width}), one position a row{hint}")
    return as_float(x)


def as_mask(where: Any, length: int) -> Bool[Array, "T T"]:
    """Return a mask after checking it.

    Args:
        where: booleans.
        length: T.

    Returns:
        The same mask.

    Raises:
        FlowError: if it is not boolean, or not (T, T).
    """
    where = jnp.asarray(where)
    if where.dtype != jnp.bool_:
        raise FlowError(f"where has dtype {where.dtype}; pass booleans, for instance where.astype(bool)")
    if where.shape != (length, length):
        raise FlowError(
            f"where has shape {where.shape} for {length} positions: pass ({length}, {length}), True where row i may "
            "attend to position j"
        )
    return where


def check_length(x: Any, length: int, parameter: str) -> None:
    """Refuse a sequence of another length than the free parameters of a head.

    Args:
        x: inputs, positions first.
        length: T of the head.
        parameter: the name of the free parameter.

    Raises:
        FlowError: if the lengths differ.
    """
    shape = np.shape(x)
    if not shape or shape[0] != length:
        raise FlowError(f"x has shape {shape} and {parameter} is free at {length} positions: pass ({length}, ...)")


def check_shapes(module: eqx.Module, expected: Mapping[str, str]) -> None:
    """Refuse parameters whose shapes disagree; numbers, as in a tree of rates, are let through.

    Args:
        module: holds the parameters.
        expected: axes of each parameter, separated by spaces; an axis of one name has one size. Further axes in front
            are those of stacked members.

    Raises:
        FlowError: if one has too few axes, or two disagree on the size of an axis.
    """
    shapes = {name: tuple(getattr(getattr(module, name), "shape", ())) for name in expected}
    if not all(shapes.values()):
        return
    known: dict[str, tuple[str, Any]] = {}
    for name, axes in expected.items():
        names, shape = axes.split(), shapes[name]
        if len(shape) < len(names):
            raise FlowError(f"{name} has shape {shape}: pass ({', '.join(names)})")
        lead = len(shape) - len(names)
        for axis, size in zip(("members", *names), (shape[:lead], *shape[lead:]), strict=True):
            other, first = known.setdefault(axis, (name, size))
            if size != first:
                raise FlowError(
                    f"{other} has shape {shapes[other]} and {name} has shape {shape}: {axis} must be the same, in "
                    + ", ".join(f"{key} ({', '.join(value.split())})" for key, value in expected.items())
                )


def check_head_index(index: Any, count: int) -> None:
    """Refuse the index of a head that is not there; a traced index is not looked at.

    Args:
        index: of the head.
        count: number of heads.

    Raises:
        FlowError: if it is not one whole number, or out of range.
    """
    number = isinstance(index, int | np.integer | np.ndarray | jax.Array) and np.ndim(index) == 0
    if not number or not jnp.issubdtype(jnp.result_type(index), jnp.integer):
        raise FlowError(f"index is {shown(index)}: pass the number of one head, 0 .. {count - 1}")
    if not is_traced(index) and not -count <= int(index) < count:
        raise FlowError(f"index is {shown(index)}: there are {count} heads, counted from 0")
