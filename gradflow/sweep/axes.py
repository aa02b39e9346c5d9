"""Axes of a sweep: their values, what is batched and what picks a kernel, and the names that coordinates carry."""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np

from gradflow.errors import FlowError, shown, whole_number
from gradflow.sweep.labels import labels, plain

SEED = "seed"
# What the result holds besides coordinates and observables, and what the builder gets besides the point.
RESERVED = ("key", "time", "result", "valid", "t_final", "num_steps", "num_gradients")
LARGEST_SEED = 2**32 - 1

Kind = Literal["seed", "batched", "static"]


@dataclasses.dataclass(frozen=True, eq=False)
class Batched:
    """Values of an axis that share one kernel, as floats do: the builder sees a traced number.

    Attributes:
        values: numbers or truth values.
    """

    values: Any


@dataclasses.dataclass(frozen=True, eq=False)
class Static:
    """Values of an axis that pick a kernel each, as integers, strings and modules do: the builder sees the value.

    Attributes:
        values: the values; a dictionary gives each the name that it has in the result.
    """

    values: Any


@dataclasses.dataclass(frozen=True, eq=False)
class Axis:
    """One parameter of the builder.

    Attributes:
        name: of the parameter.
        kind: "seed" folds the key, "batched" shares a kernel, "static" picks one for each value.
        values: as the builder gets them.
        labels: as the result names them.
    """

    name: str
    kind: Kind
    values: tuple[Any, ...]
    labels: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Dimension:
    """One dimension of the result: an axis, or several that advance together.

    Attributes:
        name: of the dimension.
        axes: its parameters, of equal length.
    """

    name: str
    axes: tuple[Axis, ...]

    @property
    def size(self) -> int:
        """Number of values."""
        return len(self.axes[0].values)

    @property
    def batched(self) -> bool:
        """Whether all its values share one kernel."""
        return all(axis.kind != "static" for axis in self.axes)


def log_range(first: float, last: float, n: int) -> np.ndarray:
    """Return `n` numbers spaced evenly in the logarithm, ends exact.

    Args:
        first: the first, > 0.
        last: the last, > 0.
        n: how many, >= 1; one gives `last`.

    Returns:
        The numbers `(n,)`.

    Raises:
        FlowError: if an end is not positive and finite, or `n` is below 1.
    """
    n = whole_number("n", n)
    if not (0 < first < math.inf and 0 < last < math.inf):
        raise FlowError(f"log_range needs positive ends, got {shown(first)} and {shown(last)}")
    numbers = np.geomspace(first, last, n)
    numbers[0], numbers[-1] = (first, last) if n > 1 else (last, last)
    return numbers


def dimensions(axes: Mapping[Any, Any]) -> tuple[Dimension, ...]:
    """Read the axes of a sweep.

    Args:
        axes: name -> values; a tuple of names -> rows of values makes one dimension of axes that advance together.

    Returns:
        One dimension an entry.

    Raises:
        FlowError: if a name or a value cannot be used.
    """
    if not isinstance(axes, Mapping):
        raise FlowError(f"axes is {shown(axes)}: give a dictionary of names and values")
    found = tuple(_dimension(name, given) for name, given in axes.items())
    names = [axis.name for dimension in found for axis in dimension.axes]
    names += [dimension.name for dimension in found if len(dimension.axes) > 1]
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise FlowError(f"axes holds {twice!r} twice: give each axis a name of its own")
    return found


def _dimension(name: Any, given: Any) -> Dimension:
    if isinstance(name, tuple):
        return _zipped(name, given)
    axis = _axis(_checked_name(name), given)
    _refuse_duplicates(axis.name, axis.labels.tolist())
    return Dimension(axis.name, (axis,))


def _zipped(names: tuple, given: Any) -> Dimension:
    for name in names:
        _checked_name(name)
    title = ", ".join(names)
    wrap, values = _unwrapped(title, given)
    if isinstance(values, dict) or len(names) < 2:
        raise FlowError(f"axis ({title}) is {shown(given)}: give rows with one value for each of several names")
    rows = [tuple(row) if isinstance(row, list | tuple | np.ndarray) else (row,) for row in values]
    wrong = next((row for row in rows if len(row) != len(names)), None)
    if wrong is not None:
        raise FlowError(f"axis ({title}) holds the row {shown(wrong)}: each row needs {len(names)} values")
    columns = zip(*rows, strict=True)
    axes = tuple(_axis(name, wrap(list(column))) for name, column in zip(names, columns, strict=True))
    _refuse_duplicates(title, list(zip(*(axis.labels.tolist() for axis in axes), strict=True)))
    return Dimension("_".join(names), axes)


def _checked_name(name: Any) -> str:
    if not (isinstance(name, str) and name.isidentifier()):
        raise FlowError(f"axes holds the name {shown(name)}: names are parameters of build, such as 'scale'")
    if name in RESERVED:
        raise FlowError(f"axes holds the name {name!r}, which the sweep itself uses: choose another one")
    return name


def _unwrapped(name: str, given: Any) -> tuple[Any, Any]:
    """Return the wrapper of an axis (or the identity) and its values as a list or a dictionary."""
    wrap = type(given) if isinstance(given, Batched | Static) else lambda values: values
    values = given.values if isinstance(given, Batched | Static) else given
    if isinstance(values, dict) and isinstance(given, Static):
        listed = values
    elif isinstance(values, str | bytes | dict) or not isinstance(values, Iterable):
        raise FlowError(f"axis {name!r} is {shown(values)}: give a list of values")
    else:
        listed = [plain(value) for value in values]
    if not len(listed):
        raise FlowError(f"axis {name!r} is empty: give at least one value, or leave the axis out")
    return wrap, listed


def _axis(name: str, given: Any) -> Axis:
    _, values = _unwrapped(name, given)
    if isinstance(values, dict):
        return Axis(name, "static", tuple(values.values()), np.array([str(label) for label in values]))
    if any(isinstance(value, float) and math.isnan(value) for value in values):
        raise FlowError(f"axis {name!r} holds NaN: a value must be equal to itself to be found again")
    kind = _kind(name, given, values)
    if name == SEED:
        for value in values:
            if not 0 <= whole_number("a value of the axis 'seed'", value, 0) <= LARGEST_SEED:
                raise FlowError(f"axis 'seed' holds {value}: seeds lie between 0 and {LARGEST_SEED}")
    return Axis(name, kind, tuple(values), labels(name, values))


def _kind(name: str, given: Any, values: list) -> Kind:
    numbers = all(isinstance(value, bool | int | float) for value in values)
    if isinstance(given, Static):
        return "static"
    if isinstance(given, Batched):
        if not numbers:
            raise FlowError(f"axis {name!r} is batched, but holds {shown(values[0])}: only numbers share a kernel")
        return "seed" if name == SEED else "batched"
    if name == SEED:
        return "seed"
    floats = any(isinstance(value, float) for value in values) and not any(isinstance(v, bool) for v in values)
    return "batched" if numbers and floats else "static"


def _refuse_duplicates(name: str, labels: list) -> None:
    if len(set(labels)) == len(labels):
        return
    twice = next(label for i, label in enumerate(labels) if label in labels[:i])
    raise FlowError(
        f"axis {name!r} holds {shown(twice)} twice: give each value once, or names of their own by gf.Static"
    )
