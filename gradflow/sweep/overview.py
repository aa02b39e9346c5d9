"""A sweep at a glance: one number a member, its median over two axes, and its range along one."""

import dataclasses
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from gradflow.errors import unknown
from gradflow.sweep.axes import SEED
from gradflow.sweep.variables import GOOD, fixed_width

if TYPE_CHECKING:
    import xarray

FINAL = "final_"


@dataclasses.dataclass(frozen=True)
class Row:
    """Members that share a value of an axis.

    Attributes:
        value: the value; None for all members.
        members: how many.
        failures: name of a result code -> how many ended with it.
        low: smallest number.
        median: the median; NaN where no member has a number.
        high: largest number.
        steps: median of the steps.
    """

    value: Any
    members: int
    failures: dict[str, int]
    low: float
    median: float
    high: float
    steps: float


def quantities(ds: "xarray.Dataset") -> dict[str, "xarray.DataArray"]:
    """Return name -> number of each member: `final_<name>` for what is saved along the run.

    Args:
        ds: what `sweep` returned.

    Returns:
        Variables without other dimensions than those of the axes.
    """
    members = ds["result"].dims
    found = {}
    for name, variable in ds.data_vars.items():
        if variable.dims == (*members, "time") and name != "valid":
            found[f"{FINAL}{name}"] = variable.isel(time=-1)
        elif variable.dims == members and variable.dtype.kind in "fiu":
            found[str(name)] = variable
    return found


def quantity(ds: "xarray.Dataset", name: str) -> "xarray.DataArray":
    """Return one number of each member.

    Args:
        ds: what `sweep` returned.
        name: one of `quantities`.

    Returns:
        The numbers.

    Raises:
        FlowError: if there is none of that name.
    """
    known = quantities(ds)
    if name not in known:
        raise unknown("quantity", name, known)
    return known[name].astype(float)


def longest(ds: "xarray.Dataset", most: int) -> list[str]:
    """Return the dimensions with the most values, the longest first, those of length one and the seed left out."""
    sizes = {str(name): size for name, size in ds["result"].sizes.items() if name != SEED and size > 1}
    return sorted(sizes, key=lambda name: -sizes[name])[:most]


def median(values: "xarray.DataArray", kept: list[str]) -> "xarray.DataArray":
    """Return the median over all dimensions but those kept, in their order; members without a number do not count.

    Args:
        values: one number a member.
        kept: names of dimensions.

    Returns:
        The medians.
    """
    others = [name for name in values.dims if name not in kept]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "All-NaN slice", RuntimeWarning)
        return values.median(others, skipna=True).transpose(*kept)


def rows(ds: "xarray.Dataset", name: str) -> tuple[str | None, list[Row]]:
    """Return a summary for each value of the first axis that has several, or of all members together.

    Args:
        ds: what `sweep` returned.
        name: one of `quantities`.

    Returns:
        Name of the axis, and its rows.
    """
    values = quantity(ds, name)
    axis = next((str(dim) for dim, size in values.sizes.items() if size > 1 and dim != SEED), None)
    if axis is None:
        return None, [_row(None, ds, values)]
    parts = [{axis: i} for i in range(values.sizes[axis])]
    labels = ds[axis].values.tolist() if axis in ds.coords else range(len(parts))
    return axis, [_row(label, ds.isel(part), values.isel(part)) for label, part in zip(labels, parts, strict=True)]


def _row(value: Any, ds: "xarray.Dataset", values: "xarray.DataArray") -> Row:
    codes = fixed_width(ds["result"].values).reshape(-1)
    numbers = values.values[np.isfinite(values.values)]
    low, middle, high = np.quantile(numbers, (0, 0.5, 1)).tolist() if numbers.size else (np.nan,) * 3
    failed = Counter(codes[~np.isin(codes, GOOD)].tolist())
    return Row(value, codes.size, dict(failed), low, middle, high, float(ds["num_steps"].median()))
