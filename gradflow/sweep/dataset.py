"""The result as an xarray Dataset, and the members that failed."""

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from gradflow.errors import FlowError, shown
from gradflow.sweep.grid import Grid
from gradflow.sweep.variables import GOOD, MISSING, Variable, fixed_width

if TYPE_CHECKING:
    import xarray


@dataclasses.dataclass(frozen=True)
class Failure:
    """A member that did not end as it should.

    Attributes:
        point: name of each axis -> value.
        result: name of the code.
        t_final: how far it came.
    """

    point: dict[str, Any]
    result: str
    t_final: float


def coordinates(grid: Grid, times: np.ndarray | None, unit: str) -> dict[str, tuple[tuple[str, ...], np.ndarray, dict]]:
    """Return name -> (dimensions, values, attributes) of everything that labels the result."""
    found = {
        axis.name: ((dimension.name,), axis.labels, {}) for dimension in grid.dimensions for axis in dimension.axes
    }
    if times is not None:
        found["time"] = (("time",), times, {"units": unit, "long_name": "time"})
    return found


def assemble(grid: Grid, variables: list[Variable], arrays: dict[str, np.ndarray], labels: dict, attributes: dict):
    """Return the Dataset of arrays in memory.

    Args:
        grid: the dimensions.
        variables: names, dimensions and attributes.
        arrays: values by name.
        labels: as `coordinates` returns them.
        attributes: of the Dataset.

    Returns:
        The Dataset.
    """
    import xarray

    data = {v.name: ((*grid.names, *v.dims), arrays[v.name], v.attributes) for v in variables}
    return xarray.Dataset(data, labels, attributes)


def failures(ds: "xarray.Dataset") -> list[Failure]:
    """List the members of a sweep that did not reach their end, stop or event.

    Args:
        ds: what `gf.sweep` returned, or `xarray.open_zarr` of its store.

    Returns:
        One `Failure(point, result, t_final)` a member, in the order of the grid; members not run yet are not listed.

    Raises:
        FlowError: if it is something else.
    """
    import xarray

    if not (isinstance(ds, xarray.Dataset) and {"result", "t_final"} <= set(ds.variables)):
        raise FlowError(f"ds is {shown(ds)}: give what gf.sweep returned, or xarray.open_zarr of its store")
    codes = fixed_width(ds["result"].values)
    places = np.argwhere(~np.isin(codes, (*GOOD, MISSING)))
    ends = np.asarray(ds["t_final"].values)
    return [Failure(_point(ds, place), str(codes[tuple(place)]), float(ends[tuple(place)])) for place in places]


def _point(ds: "xarray.Dataset", place: np.ndarray) -> dict[str, Any]:
    one = ds["result"].isel(dict(zip(ds["result"].dims, place, strict=True)))
    values = {str(name): one.coords[name].values.item() for name in one.coords}
    return values


def summary(ds: "xarray.Dataset") -> tuple[int, str | None]:
    """Return how many members failed, and one line about them."""
    codes = fixed_width(ds["result"].values)
    counts = Counter(codes[~np.isin(codes, (*GOOD, MISSING))].tolist())
    if not counts:
        return 0, None
    place = np.argwhere(~np.isin(codes, (*GOOD, MISSING)))[0]
    at = ", ".join(f"{name} = {value}" for name, value in _point(ds, place).items())
    kinds = ", ".join(f"{number} {name}" for name, number in counts.most_common())
    first = f", the first at {at}" if at else ""
    text = f"{counts.total()} of {codes.size} members failed ({kinds}){first}: gf.failures(ds) lists them"
    return counts.total(), text
