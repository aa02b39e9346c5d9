"""Functions that users hand over: they pick the kernel, so they must not carry arrays, nor be made at each call."""

import functools
import types
import warnings
from collections.abc import Hashable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer

from gradflow.errors import FlowError, FlowWarning, shown

REMADE_LIMIT = 3  # functions of one definition that may be seen before a warning


def check_callable(argument: str, function: Any) -> None:
    """Refuse callables that close over tracers, and warn about those that close over arrays or are made anew."""
    if not callable(function):
        raise FlowError(f"{argument} is {shown(function)}, not a callable")
    _check_hashable(argument, function)
    captured = _captured(function)
    for name, value in captured.items():
        leaves = jax.tree.leaves(value)
        if any(isinstance(leaf, Tracer) for leaf in leaves):
            raise FlowError(
                f"{argument} closes over `{name}`, a value being traced by jit, grad or vmap: pass it through `args`"
            )
    remade = _times_remade(function)
    arrays = [name for name, value in captured.items() if any(map(_is_any_array, jax.tree.leaves(value)))]
    if remade == 1 and arrays:
        warnings.warn(
            f"{argument} `{_qualified_name(function)}` closes over the array `{arrays[0]}`, which is compiled into the "
            "kernel: pass it through `args`, so that new values do not compile again",
            FlowWarning,
            stacklevel=4,
        )
    if remade == REMADE_LIMIT:
        warnings.warn(
            f"{argument} `{_qualified_name(function)}` was made anew at each of {remade} calls, and each one compiles "
            "again: define it once, and pass what changes through `args`",
            FlowWarning,
            stacklevel=4,
        )


def _check_hashable(argument: str, function: Any) -> None:
    """Refuse callable objects that hold arrays, such as Equinox modules and their methods."""
    try:
        hash(function)
    except TypeError as error:
        raise FlowError(
            f"{argument} is a callable {type(function).__name__} that holds arrays, so it cannot pick a kernel: write "
            "a function, and pass the arrays through `args`"
        ) from error


def _is_any_array(leaf: Any) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, np.ndarray)


def _captured(function: Any) -> dict[str, Any]:
    """Return what a function carries along: closure cells, bound arguments, its instance."""
    if isinstance(function, functools.partial):
        bound = {f"argument {i}": value for i, value in enumerate(function.args)} | dict(function.keywords)
        return {**bound, **_captured(function.func)}
    if isinstance(function, types.MethodType):
        return {"self": function.__self__, **_captured(function.__func__)}
    return cells(function) if isinstance(function, types.FunctionType) else {}


def cells(function: types.FunctionType) -> dict[str, Any]:
    """Return what a function closes over, by name, without what is not set yet."""
    found = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {name: cell.cell_contents for name, cell in found if _is_set(cell)}


def essence(value: Any) -> Hashable:
    """Return what a function is: its code and all that it carries, so that one made anew is known again.

    Two functions of equal essence do the same. Arrays and other values that cannot be hashed are themselves alone:
    functions that close over different ones are different, even where the values are equal.

    Args:
        value: a function, or what one carries.

    Returns:
        Something to compare and to hash; it keeps what it stands for alive.
    """
    return _essence(value, ())


def _essence(value: Any, inside: tuple[Any, ...]) -> Hashable:
    if any(value is outer for outer in inside):
        return "itself", next(i for i, outer in enumerate(inside) if outer is value)
    inside = (*inside, value)
    if isinstance(value, types.FunctionType):
        carried = (value.__defaults__, value.__kwdefaults__, cells(value), vars(value))
        return value.__code__, _Itself(value.__globals__), *(_essence(part, inside) for part in carried)
    if isinstance(value, types.MethodType):
        return types.MethodType, _essence(value.__func__, inside), _essence(value.__self__, inside)
    if isinstance(value, functools.partial):
        return functools.partial, *(_essence(part, inside) for part in (value.func, value.args, value.keywords))
    if isinstance(value, dict):
        return dict, *((key, _essence(part, inside)) for key, part in value.items())
    if isinstance(value, tuple):
        return type(value), *(_essence(part, inside) for part in value)
    if isinstance(value, float):
        return float, value.hex()  # tells 0.0 from -0.0
    try:
        hash(value)
    except TypeError:
        return _Itself(value)
    return type(value), value  # by type as well: 1 and True are equal


class _Itself:
    """Equal to what stands for the same object only."""

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def _is_set(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _qualified_name(function: Any) -> str:
    return getattr(function, "__qualname__", type(function).__name__)


# By the identity of the code, which is kept alive: functions of equal text in two places are no remakes.
_seen: dict[tuple, tuple[types.CodeType, set[int]]] = {}


def _times_remade(function: Any) -> int:
    """Return how many functions of this one's definition have been seen, counting it if it is new.

    Functions that close over different functions (as those a decorator returns) are different definitions.
    """
    code = getattr(function, "__code__", None)
    if code is None:
        return 0
    wrapped = tuple(id(value) for value in _captured(function).values() if callable(value))
    _, ids = _seen.setdefault((id(code), wrapped), (code, set()))
    before = len(ids)
    ids.add(id(function))
    return len(ids) if len(ids) > before else 0
