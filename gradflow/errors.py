"""The one exception of the library, its warning, and the checks that raise them with argument, value and fix."""

import difflib
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
from jax.core import Tracer


class FlowError(ValueError):
    """A run cannot start or has ended badly; the message names the argument, its value and the fix.

    Attributes:
        trajectory: what was computed until then, or None.
    """

    def __init__(self, message: str, trajectory: Any = None):
        super().__init__(message)
        self.trajectory = trajectory


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a run; `trajectory` holds what had finished."""

    def __init__(self, trajectory: Any = None):
        super().__init__("the run was interrupted; what had finished is in `.trajectory`")
        self.trajectory = trajectory


class FlowWarning(UserWarning):
    """Something works but costs time or precision; the message names it and the fix."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a ``; did you mean 'x'?`` suffix for an unknown name, or the list of known names."""
    known = sorted(known)
    close = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else f"; choose one of {', '.join(known)}."


def unknown(kind: str, name: str, known: Iterable[str]) -> FlowError:
    """Build the error for a name that is not registered, with the nearest known one."""
    return FlowError(f"unknown {kind} {name!r}{nearest(name, known)}")


def shown(value: Any) -> str:
    """Return a value as it is typed, on one line and cut to sixty characters, for messages."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."


def whole_number(argument: str, value: Any, least: int = 1) -> int:
    """Return a count as an int, or raise with its name, value and smallest use."""
    try:
        good = not isinstance(value, bool) and int(value) == value and value >= least
    except (TypeError, ValueError, OverflowError):
        good = False
    if not good:
        raise FlowError(f"{argument} is {shown(value)}: it must be a whole number, at least {least}")
    return int(value)


def is_traced(tree: Any) -> bool:
    """Return whether any leaf is a JAX tracer, so that values cannot be looked at."""
    if isinstance(tree, float | np.ndarray):  # most calls, and flattening takes longer than the rest of them
        return False
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(tree))


def leaf_name(path: tuple) -> str:
    """Return a leaf's path as it is typed, for instance ``.layers[0].weight``."""
    return jax.tree_util.keystr(path)
