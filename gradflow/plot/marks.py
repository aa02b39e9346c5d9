"""What is added to curves: zeros of a log axis, names at their ends, references, the paper's values."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gradflow.plot.looks import OKABE_ITO
from gradflow.plot.style import GREY, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

ROW = 9.0  # points between two names at the ends of curves
DIRECT = 4  # curves up to which names stand at their ends instead of in a legend


def log_plot(ax: "Axes", x: Any, y: Any, log: str = "xy", **keywords: Any) -> "Line2D":
    """Plot a curve on log axes; exact zeros become triangles at the edge of the axis instead of being dropped.

    Args:
        ax: where.
        x: positions; those that are 0 go to the left edge of a log axis.
        y: values; those that are 0 go to the lower edge of a log axis. NaN breaks the curve.
        log: which axes are logarithmic: "xy", "x", "y" or "".
        **keywords: of `Axes.plot`.

    Returns:
        The line.
    """
    ax.set(xscale="log" if "x" in log else "linear", yscale="log" if "y" in log else "linear")
    x, y = np.asarray(x, float), np.asarray(y, float)
    zero_x, zero_y = ("x" in log) & (x == 0), ("y" in log) & (y == 0)
    gone = zero_x | zero_y
    (line,) = ax.plot(np.where(gone, np.nan, x), np.where(gone, np.nan, y), **keywords)
    blend, across = ax.get_xaxis_transform(), ax.get_yaxis_transform()
    _edge(ax, line, x[zero_y & ~zero_x], 0, blend, "v")
    _edge(ax, line, 0, y[zero_x & ~zero_y], across, "<")
    corner = np.zeros(int((zero_x & zero_y).any()))
    _edge(ax, line, corner, corner, ax.transAxes, "v")
    return line


def _edge(ax: "Axes", line: "Line2D", x: Any, y: Any, transform: Any, marker: str) -> None:
    """Draw triangles on the edge of the axis, in the colour of the curve they belong to."""
    x, y = np.broadcast_arrays(x, y)
    if x.size:
        looks = {"color": line.get_color(), "alpha": line.get_alpha(), "markersize": 3.5, "clip_on": False}
        ax.plot(x, y, marker, transform=transform, zorder=3, **looks)


@styled
def label_ends(
    ax: "Axes", points: Sequence[tuple[float, float]], names: Sequence[str], colours: Sequence[str]
) -> "Axes":
    """Write names to the right of the ends of curves, moved apart where they would overlap.

    Call it when the limits of the axis are final.

    Args:
        ax: where.
        points: the ends, in data coordinates.
        names: one for each.
        colours: one for each.

    Returns:
        The axis.
    """
    low, high = np.sort([ax.get_xlim(), ax.get_ylim()]).T
    inside = [tuple(np.clip(point, low, high).tolist()) for point in points]
    heights = ax.transData.transform(np.array(inside).reshape(-1, 2))[:, 1] * 72 / ax.figure.dpi
    for point, name, colour, move in zip(inside, names, colours, _spread(heights) - heights, strict=True):
        ax.annotate(
            name, point, xytext=(4, move), textcoords="offset points", va="center", color=colour, annotation_clip=False
        )
    return ax


def _spread(heights: np.ndarray) -> np.ndarray:
    """Move heights apart to one row each, keeping their order and, for each cluster, its centre."""
    order = np.argsort(heights, kind="stable")
    clusters: list[list[float]] = []  # of [centre, count]
    for height in heights[order]:
        clusters.append([height, 1])
        while len(clusters) > 1 and clusters[-1][0] - clusters[-2][0] < ROW * (clusters[-1][1] + clusters[-2][1]) / 2:
            (low, few), (high, many) = clusters[-2:]
            clusters[-2:] = [[(low * few + high * many) / (few + many), few + many]]
    moved = np.empty_like(heights)
    moved[order] = [c + ROW * (i - (count - 1) / 2) for c, count in clusters for i in range(int(count))]
    return moved


@styled
def reference(ax: "Axes", value: float, name: str, axis: str = "y", end: bool = False) -> "Axes":
    """Draw a grey dotted line with its name: a trivial floor, an exact optimum, a tolerance.

    Args:
        ax: where.
        value: position.
        name: written at the line.
        axis: "y" for a horizontal line, "x" for a vertical one.
        end: write the name at the right (lower) end of the line instead of the left (upper) one.

    Returns:
        The axis.
    """
    look = {"color": GREY, "linewidth": 0.9, "linestyle": (0, (1, 2)), "zorder": 1}
    if axis == "y":
        ax.axhline(value, **look)
        place = {"xy": (0.985 if end else 0.015, value), "xycoords": ax.get_yaxis_transform(), "xytext": (0, 1.5)}
        place |= {"va": "bottom", "ha": "right" if end else "left"}
    else:
        ax.axvline(value, **look)
        place = {"xy": (value, 0.02 if end else 0.98), "xycoords": ax.get_xaxis_transform(), "xytext": (2, 0)}
        place |= {"va": "bottom" if end else "top"}
    ax.annotate(name, textcoords="offset points", color=GREY, fontsize=7.5, **place)
    return ax


@styled
def title(ax: "Axes", text: str) -> "Axes":
    """Write a title that says what is seen, on as many lines as the panel's width asks for.

    Args:
        ax: where.
        text: for instance "softmax goes one-hot, sigmoid does not".

    Returns:
        The axis.
    """
    width = ax.get_window_extent().width / ax.figure.dpi  # inches; a letter of 9 points is about 0.075 wide
    ax.set_title(textwrap.fill(text, max(12, int(width / 0.075))))
    return ax


@styled
def legend(ax: "Axes", **keywords: Any) -> "Axes":
    """Add a legend in the style, for five curves or more, or where names at their ends would not do.

    Args:
        ax: where.
        **keywords: of `Axes.legend`.

    Returns:
        The axis.
    """
    ax.legend(**keywords)
    return ax


@styled
def paper_value(ax: "Axes", x: Any, y: Any, name: str = "paper") -> "Axes":
    """Mark values that a paper reports, as open diamonds that stand out from curves and dots.

    Args:
        ax: where.
        x: positions.
        y: values.
        name: for the legend.

    Returns:
        The axis.
    """
    ax.plot(x, y, "D", markersize=5, markerfacecolor="none", markeredgecolor=OKABE_ITO["black"], label=name, zorder=4)
    return ax
