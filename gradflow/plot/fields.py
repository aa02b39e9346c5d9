"""Many numbers at once: residuals of laws against their tolerances, and a quantity over two axes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gradflow.errors import FlowError
from gradflow.plot.looks import MAGNITUDE_MAP, OKABE_ITO, SIGNED_MAP
from gradflow.plot.marks import log_plot
from gradflow.plot.style import GREY, axis_or_new, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CELLS, COLUMNS = 100, 12  # up to which the cells of a heat map carry their numbers


@styled
def residuals(
    names: Sequence[str], values: Sequence[float], tolerances: Sequence[float], *, ax: "Axes | None" = None
) -> "Axes":
    """Draw the residual of each law as a dot on a log axis, its tolerance as a bar, in the colour of the outcome.

    Args:
        names: of the laws, from top to bottom.
        values: residuals; zeros are marked at the edge.
        tolerances: below which a law holds.
        ax: where; None makes a new one.

    Returns:
        The axis.

    Raises:
        FlowError: if the lengths differ.
    """
    sizes, limits = np.abs(np.asarray(values, float)), np.asarray(tolerances, float)
    if not len(names) == sizes.size == limits.size:
        counts = f"{len(names)} names, {sizes.size} values and {limits.size} tolerances"
        raise FlowError(f"got {counts}; give as many of each")
    ax = axis_or_new(ax)
    rows = np.arange(len(names))
    held = sizes <= limits
    for row, value, tolerance, ok in zip(rows, sizes, limits, held, strict=True):
        colour, marker = (OKABE_ITO["green"], "o") if ok else (OKABE_ITO["vermillion"], "X")
        if value > 0:
            ax.plot([value, tolerance], [row, row], color=colour, linewidth=0.8, alpha=0.5)
        log_plot(ax, [value], [row], "x", color=colour, marker=marker, markersize=4.5, linestyle="none", zorder=3)
        ax.plot([tolerance, tolerance], [row - 0.35, row + 0.35], color=GREY, linewidth=1.5)
    ax.set(yticks=rows, yticklabels=names, ylim=(len(names) - 0.4, -0.6), xlabel="residual")
    _widen(ax, np.concatenate([sizes, limits]))
    ax.tick_params(axis="y", length=0)
    ax.legend(handles=_outcomes(held), loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, columnspacing=1)
    return ax


def _widen(ax: "Axes", values: np.ndarray) -> None:
    """Leave room on both sides of a log axis: dots at its edge would be taken for zeros."""
    positive = values[(values > 0) & np.isfinite(values)]
    if positive.size:
        ax.set_xlim(positive.min() / 10, positive.max() * 10)


def _outcomes(held: np.ndarray) -> list[Any]:
    from matplotlib.lines import Line2D

    def mark(label: str, colour: str, marker: str, size: float) -> Line2D:
        return Line2D([], [], color=colour, marker=marker, markersize=size, linestyle="none", label=label)

    holds = [mark("holds", OKABE_ITO["green"], "o", 4.5)] if held.any() else []
    fails = [mark("does not", OKABE_ITO["vermillion"], "X", 4.5)] if not held.all() else []
    return [*holds, *fails, mark("tolerance", GREY, "|", 7)]


@styled
def heat_map(
    x: Sequence[Any],
    y: Sequence[Any],
    values: Any,
    *,
    xlabel: str = "",
    ylabel: str = "",
    label: str = "",
    centre: float | None = None,
    form: str = ".2g",
    limits: tuple[float, float] | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw a quantity over two axes of settings, one cell each; cells that are NaN are hatched.

    Args:
        x: settings across, one a column.
        y: settings upwards, one a row.
        values: the quantity (len(y), len(x)).
        xlabel: of the axis.
        ylabel: of the axis.
        label: of the colour bar.
        centre: for signed quantities: the value that is white, on a diverging map. None: a sequential map.
        form: format of the numbers in the cells, which appear when there are at most a hundred, and twelve across.
        limits: of the colours, so that several maps compare; None: those of the values.
        ax: where; None makes a new one.

    Returns:
        The axis.

    Raises:
        FlowError: if the shapes do not fit.
    """
    values = np.asarray(values, float)
    if values.shape != (len(y), len(x)) or not values.size:
        sizes = f"with {len(x)} x and {len(y)} y it must be {(len(y), len(x))}"
        raise FlowError(f"values has shape {values.shape}; {sizes}")
    ax = axis_or_new(ax)
    finite = values[np.isfinite(values)]
    low, high = limits or ((finite.min(), finite.max()) if finite.size else (0.0, 1.0))
    if centre is not None:
        reach = max(high - centre, centre - low) or 1.0
        low, high = centre - reach, centre + reach
    colours = MAGNITUDE_MAP if centre is None else SIGNED_MAP
    image = ax.pcolormesh(values, cmap=colours, vmin=low, vmax=high, edgecolors="white", linewidth=0.5)
    ax.patch.set(hatch="////", edgecolor=GREY, linewidth=0)
    ax.set(xlabel=xlabel, ylabel=ylabel, xticks=np.arange(len(x)) + 0.5, yticks=np.arange(len(y)) + 0.5)
    ax.set_xticklabels([_text(item) for item in x], rotation=0 if max(len(_text(i)) for i in x) < 6 else 45)
    ax.set_yticklabels([_text(item) for item in y])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    bar = ax.figure.colorbar(image, ax=ax, label=label)
    bar.outline.set_visible(False)
    if values.size <= CELLS and values.shape[1] <= COLUMNS:
        _write_cells(ax, image, values, form)
    return ax


def _text(item: Any) -> str:
    return item if isinstance(item, str) else f"{item:g}"


def _write_cells(ax: "Axes", image: Any, values: np.ndarray, form: str) -> None:
    """Write each number into its cell, black or white, whichever the colour below it lets read."""
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            luminance = np.dot(image.cmap(image.norm(value))[:3], (0.299, 0.587, 0.114))
            ink = "black" if luminance > 0.5 else "white"
            ax.text(column + 0.5, row + 0.5, format(value, form), ha="center", va="center", color=ink, fontsize=7.5)
