"""Leaves of a model by name: any dotted run of the parts of a leaf's path, such as its last part."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from gradflow.errors import FlowError, nearest

Value = TypeVar("Value")


def by_name(argument: str | None, named: Mapping[str, Value], paths: Sequence[str], default: Value) -> list[Value]:
    """Return a value for each leaf from values by name.

    ``weight`` names every leaf whose path holds it, ``layers.0.weight`` or ``layers[0].weight`` one of them, ``layers``
    all that are inside. Where several names fit a leaf, the one that reaches deepest decides, then the longest.

    Args:
        argument: where the names come from, for the message; None takes names that fit no leaf.
        named: values by name.
        paths: of the leaves, as typed: ``.layers[0].weight``.
        default: of leaves that are not named.

    Returns:
        A list as long as `paths`.

    Raises:
        FlowError: if a name fits no leaf.
    """
    leaves = [parts(path) for path in paths]
    runs = {name: parts(str(name)) for name in named}
    for name, run in runs.items():
        if argument is not None and not any(_end(run, leaf) for leaf in leaves):
            hint = nearest(name, _known(run, leaves))
            raise FlowError(f"{argument} names {name!r}, which is no leaf of the model{hint}")
    return [_deepest(runs, named, leaf, default) for leaf in leaves]


def parts(path: str) -> tuple[str, ...]:
    """Return the parts of a path as typed: ``.layers[0]['a']`` is (layers, 0, a)."""
    split = path.replace("]", "").replace("[", ".").split(".")
    return tuple(part.strip("'\"") for part in split if part)


def _end(run: tuple[str, ...], leaf: tuple[str, ...]) -> int:
    """Return how deep into a leaf's path a name reaches, 0 if it does not fit."""
    ends = range(len(leaf), len(run) - 1, -1)
    return next((end for end in ends if run and leaf[end - len(run) : end] == run), 0)


def _deepest(runs: Mapping[str, tuple], named: Mapping[str, Value], leaf: tuple[str, ...], default: Value) -> Value:
    fitting = {name: (_end(run, leaf), len(run)) for name, run in runs.items() if _end(run, leaf)}
    return named[max(fitting, key=fitting.__getitem__)] if fitting else default


def _known(run: tuple[str, ...], leaves: Iterable[tuple[str, ...]]) -> set[str]:
    """Return what could have been meant: whole paths by a dotted name, single parts by another."""
    if len(run) > 1:
        return {".".join(leaf) for leaf in leaves}
    return {part for leaf in leaves for part in leaf}
