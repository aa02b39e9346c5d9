"""Optax optimisers as keys of compiled kernels.

`optax.sgd(0.1)` makes new functions at each call, and a new function means a new compilation. Two optimisers made by
the same Optax code from equal settings are the same: the first one seen stands for both.
"""

import functools
import types
from typing import Any

import optax

from gradflow.errors import FlowError, shown

_first_seen: dict[Any, Any] = {}


class _Identity:
    """An object compared by identity and kept alive, so that its id is not used again."""

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def canonical(optimizer: Any) -> optax.GradientTransformation:
    """Return the first optimiser seen that was built by the same Optax functions from equal settings.

    Args:
        optimizer: any Optax gradient transformation.

    Returns:
        An optimiser that does the same and is stable as a key.

    Raises:
        FlowError: if it is not one.
    """
    if not is_transformation(optimizer):
        raise FlowError(f"optimizer is {shown(optimizer)}: give an Optax transformation such as optax.sgd(0.1)")
    return _first_seen.setdefault(_fingerprint((optimizer.init, optimizer.update)), optimizer)


def is_transformation(optimizer: Any) -> bool:
    """Return whether this is an Optax transformation, by what it can do."""
    return hasattr(optimizer, "init") and hasattr(optimizer, "update")


def stable(factory: Any) -> Any:
    """Return the first factory seen that is the same function with the same arguments bound by `functools.partial`."""
    return _first_seen.setdefault(("factory", _fingerprint(factory)), factory)


def _fingerprint(value: Any) -> Any:
    """Describe a value by what it computes: Optax's own functions by code and closure, everything else by identity."""
    if isinstance(value, types.FunctionType) and _is_from_optax(value):
        cells = tuple(_fingerprint(_contents(cell)) for cell in value.__closure__ or ())
        defaults = _fingerprint((value.__defaults__, value.__kwdefaults__))
        return "function", value.__globals__["__name__"], value.__code__, cells, defaults
    if type(value) is functools.partial:
        return "partial", _fingerprint((value.func, value.args, value.keywords))
    if isinstance(value, (bool, int, float, str, bytes, type(None))):
        return type(value).__name__, value
    if isinstance(value, (tuple, list)):
        return type(value), tuple(map(_fingerprint, value))
    if isinstance(value, dict):
        return "dict", tuple((key, _fingerprint(item)) for key, item in value.items())
    return _Identity(value)


def _is_from_optax(function: types.FunctionType) -> bool:
    """Return whether a function was written in Optax: `functools.wraps` copies `__module__`, never the globals."""
    return function.__globals__.get("__name__", "").partition(".")[0] == "optax"


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return "unset cell"
