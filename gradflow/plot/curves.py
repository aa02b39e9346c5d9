"""Curves over time: one quantity, one for each index, many seeds, or the distance of two runs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gradflow.compare import Gap
from gradflow.errors import FlowError
from gradflow.plot.looks import MAGNITUDE_MAP, OKABE_ITO, member_looks
from gradflow.plot.marks import DIRECT, label_ends, legend, log_plot
from gradflow.plot.style import axis_or_new, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DOTS = 20  # dots of a descent along a curve: more would hide the flow's line below them


@styled
def scalar(
    ts: Any,
    values: Any,
    *,
    valid: Any = None,
    label: str | None = None,
    dots: bool = False,
    log: str = "xy",
    xlabel: str = "time t",
    ylabel: str = "",
    ax: "Axes | None" = None,
    **look: Any,
) -> "Axes":
    """Draw one quantity over time, for instance a loss: a line for a flow, dots for a descent.

    Args:
        ts: times (T,).
        values: the quantity (T,); zeros on a log axis are marked at its edge.
        valid: which saves were reached; others are left out.
        label: for a legend or `label_ends`.
        dots: draw dots, for a descent.
        log: which axes are logarithmic: "xy", "x", "y" or "".
        xlabel: of the axis.
        ylabel: of the axis.
        ax: where; None makes a new one.
        **look: of `Axes.plot`, for instance `**gradflow.plot.activation_look("softmax")`.

    Returns:
        The axis.
    """
    ax = axis_or_new(ax)
    ts, values = _kept(ts, values, valid)
    if dots:
        keep = thinned(ts)
        ts, values = ts[keep], values[keep]
        look = look | {"marker": "o", "markersize": 2.5, "linestyle": "none"}
    log_plot(ax, ts, values, log, label=label, **look)
    _name_axes(ax, xlabel, ylabel)
    return ax


@styled
def lines(
    ts: Any,
    values: Any,
    *,
    valid: Any = None,
    names: list[str] | None = None,
    bold: int | None = None,
    dots: bool = False,
    log: str = "xy",
    xlabel: str = "time t",
    ylabel: str = "",
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw one curve for each index over time, for instance scores, values along b* or their gaps.

    Up to four are told apart by category colours and named at their ends; more are shaded by their order at the end.

    Args:
        ts: times (T,).
        values: quantities (T, n).
        valid: which saves were reached; others are left out.
        names: of the curves, written at their ends when there are at most four.
        bold: index of a curve that is drawn bold.
        dots: draw dots, for a descent.
        log: which axes are logarithmic.
        xlabel: of the axis.
        ylabel: of the axis.
        ax: where; None makes a new one.

    Returns:
        The axis.

    Raises:
        FlowError: if the shapes do not fit.
    """
    ax = axis_or_new(ax)
    ts, values = _kept(ts, values, valid)
    if values.ndim != 2:
        raise FlowError(f"values has shape {values.shape}; lines needs (T, n), scalar draws (T,)")
    looks = index_looks(values[-1] if len(values) else np.zeros(values.shape[1]), bold)
    for column, look in zip(values.T, looks, strict=True):
        scalar(ts, column, dots=dots, log=log, ax=ax, **look)
    _name_axes(ax, xlabel, ylabel)
    if names and len(names) <= DIRECT and len(ts):
        label_ends(ax, [(ts[-1], y) for y in values[-1]], names, [look["color"] for look in looks])
    return ax


@styled
def bands(
    x: Any,
    members: Any,
    *,
    interval: tuple[float, float] = (0.25, 0.75),
    label: str | None = None,
    log: str = "xy",
    xlabel: str = "time t",
    ylabel: str = "",
    ax: "Axes | None" = None,
    **look: Any,
) -> "Axes":
    """Draw every seed as a faint line, their median bold, and an interval of quantiles as a band.

    Args:
        x: positions (T,).
        members: one row a seed, (M, T); NaN where a seed had ended.
        interval: quantiles at the edges of the band; say in the caption which.
        label: of the median.
        log: which axes are logarithmic.
        xlabel: of the axis.
        ylabel: of the axis.
        ax: where; None makes a new one.
        **look: of the median, for instance `**gradflow.plot.activation_look("softmax")`.

    Returns:
        The axis.

    Raises:
        FlowError: if the shapes do not fit.
    """
    ax = axis_or_new(ax)
    x, members = np.asarray(x, float), np.asarray(members, float)
    if members.ndim != 2 or x.shape != members.shape[1:] or not len(members):
        raise FlowError(f"x has shape {x.shape} and members {members.shape}; bands needs (T,) and (M, T) with M >= 1")
    look = {"color": OKABE_ITO["blue"]} | look
    some = np.isfinite(members).any(axis=0)
    quantiles = np.full((3, x.size), np.nan)
    quantiles[:, some] = np.nanquantile(members[:, some], (interval[0], 0.5, interval[1]), axis=0)
    for member in members:
        log_plot(ax, x, member, log, color=look["color"], linewidth=0.5, alpha=0.25, zorder=1.5)
    ax.fill_between(x, quantiles[0], quantiles[2], color=look["color"], alpha=0.18, linewidth=0)
    log_plot(ax, x, quantiles[1], log, label=label, **({"linewidth": 2} | look))
    _name_axes(ax, xlabel, ylabel)
    return ax


@styled
def gaps(distances: Mapping[float, Gap], *, relative: bool = False, ax: "Axes | None" = None) -> "Axes":
    """Draw the distance between flow and descent over time, one curve a step size.

    Args:
        distances: step size -> `gradflow.flow_descent_gap(flow, descent, step_size)`.
        relative: draw it over the norm of the flow's own state.
        ax: where; None makes a new one.

    Returns:
        The axis.
    """
    ax = axis_or_new(ax)
    sizes = sorted(distances)
    curves = [(gap.ts, gap.relative if relative else gap.distance) for gap in (distances[size] for size in sizes)]
    looks = member_looks(len(sizes)) if len(sizes) <= DIRECT else shades(len(sizes))
    for size, (ts, values), look in zip(sizes, curves, looks, strict=True):
        log_plot(ax, ts, values, label=f"$\\eta$ = {size:g}", marker="o", **look)
    _name_axes(ax, r"time t = $\eta$ k", "relative distance" if relative else "distance of flow and descent")
    if len(sizes) <= DIRECT:
        ends = [(float(ts[-1]), float(values[-1])) for ts, values in curves]
        label_ends(ax, ends, [f"$\\eta$ = {size:g}" for size in sizes], [look["color"] for look in looks])
    else:
        legend(ax)
    return ax


def index_looks(last: Any, bold: int | None = None) -> list[dict[str, Any]]:
    """Return a look for each index: category colours for a few, shades by their final order for many."""
    last = np.asarray(last, float)
    if last.size <= DIRECT:
        looks = member_looks(last.size)
    else:
        rank = np.argsort(np.argsort(-np.nan_to_num(last), kind="stable"), kind="stable")
        ordered = shades(last.size)
        looks = [ordered[r] | {"linewidth": 0.9} for r in rank]
    if bold is not None:
        looks[bold] = looks[bold] | {"linewidth": 2.0, "zorder": 3, "color": OKABE_ITO["vermillion"]}
    return looks


def shades(count: int) -> list[dict[str, Any]]:
    """Return shades from dark to light, stopping short of the palest."""
    import matplotlib

    colour_map = matplotlib.colormaps[MAGNITUDE_MAP]
    return [{"color": colour_map(position), "linestyle": "-"} for position in np.linspace(0, 0.85, count)]


def thinned(ts: np.ndarray) -> np.ndarray:
    """Return indices of at most `DOTS` times, spread evenly in log t, the first and the last among them."""
    if len(ts) <= DOTS:
        return np.arange(len(ts))
    place = np.log(np.maximum(ts, ts[ts > 0].min() if (ts > 0).any() else 1))
    wanted = np.linspace(place[0], place[-1], DOTS)
    return np.unique(np.concatenate([[0], np.abs(place[None, :] - wanted[:, None]).argmin(axis=1)]))


def _kept(ts: Any, values: Any, valid: Any) -> tuple[np.ndarray, np.ndarray]:
    ts, values = np.asarray(ts, float), np.asarray(values, float)
    if ts.ndim != 1 or not values.ndim or len(values) != len(ts):
        raise FlowError(f"ts has shape {ts.shape} and values {values.shape}; axis 0 of values must be the times")
    keep = np.ones(len(ts), bool) if valid is None else np.asarray(valid, bool)
    if keep.shape != ts.shape:
        raise FlowError(f"valid has shape {keep.shape} for {len(ts)} times; pass trajectory.valid")
    return ts[keep], values[keep]


def _name_axes(ax: "Axes", xlabel: str, ylabel: str) -> None:
    """Name the axes, without erasing names that another curve has given."""
    ax.set_xlabel(xlabel or ax.get_xlabel())
    ax.set_ylabel(ylabel or ax.get_ylabel())
