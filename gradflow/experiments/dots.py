"""Runs as dots: an arm a row with mean and interval, or groups of a few arms side by side."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gradflow.experiments.intervals import Interval, mean_over_seeds
from gradflow.experiments.transformers import MAPS
from gradflow.plot.looks import OKABE_ITO
from gradflow.plot.style import GREY

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COURSE = ("softmax", "normalised-sigmoid", "sigmoid")
LOOKS = {
    "softmax": {"color": OKABE_ITO["blue"], "linestyle": "-"},
    "normalised-sigmoid": {"color": OKABE_ITO["vermillion"], "linestyle": "-"},
    "sigmoid": {"color": OKABE_ITO["vermillion"], "linestyle": (0, (4, 1.5))},
}
LINE = 0.14  # of a mean, where groups stand one unit apart


def mean(values: np.ndarray) -> Interval:
    """Return the mean over runs (axis 0) that have a number, with its interval; NaN if none has."""
    kept = values[np.isfinite(values)]
    return mean_over_seeds(kept) if kept.size else Interval(np.nan, np.nan, np.nan)


def scatter(ax: "Axes", values: np.ndarray, place: float, shown: tuple[float, float]) -> None:
    """Draw runs as dots in a row; what lies outside of what is shown goes to its edge."""
    spread = np.linspace(-0.12, 0.12, len(values)) if len(values) > 1 else np.zeros(1)
    look = {"color": OKABE_ITO["blue"], "markersize": 3, "alpha": 0.5, "markeredgewidth": 0}
    ax.plot(np.clip(values, *shown), place + spread, "o", **look)


def row(ax: "Axes", values: np.ndarray, place: float, shown: tuple[float, float], missing: str = "not learnt") -> None:
    """Draw the runs of an arm as dots in a row, with their mean as a diamond and its interval as a bar.

    Args:
        ax: where to draw.
        values: of each run; NaN does not count.
        place: height of the row.
        shown: ends of the axis.
        missing: written where no run has a number.
    """
    kept = values[np.isfinite(values)]
    if not kept.size:
        ax.annotate(missing, (shown[0], place), va="center", color=GREY)
        return
    scatter(ax, kept, place, shown)
    found, look = mean(kept), {"color": OKABE_ITO["vermillion"], "zorder": 3}
    ax.plot(np.clip([found.low, found.high], *shown), [place, place], linewidth=1.6, **look)
    ax.plot(np.clip(found.value, *shown), place, "D", markersize=4, markeredgewidth=0, **look)


def groups(ax: "Axes", labels: Sequence[str], runs: Mapping[str, Sequence[np.ndarray]]) -> None:
    """Draw runs of a few maps side by side in each of several groups, with a line at each mean.

    Args:
        ax: where to draw.
        labels: of the groups, below the axis.
        runs: for each of the maps in `COURSE` that is shown, the numbers of its runs in each group.
    """
    for move, (name, parts) in zip(np.linspace(-0.24, 0.24, len(runs)), runs.items(), strict=True):
        colour = LOOKS[name]["color"]
        look: dict[str, Any] = {"color": colour, "markerfacecolor": "white" if name == "sigmoid" else colour}
        ax.plot([], [], "o-", markersize=3.5, label=MAPS[name], **look)
        for place, values in enumerate(parts):
            if not values.size:
                ax.annotate("not learnt", (place + move, 0.02), rotation=90, ha="center", fontsize=6, color=GREY)
                continue
            spread = np.linspace(-0.05, 0.05, len(values)) if len(values) > 1 else np.zeros(1)
            ax.plot([place + move - LINE / 2, place + move + LINE / 2], [values.mean()] * 2, color=colour)
            ax.plot(place + move + spread, values, "o", markersize=3.5, **look)
    ax.set_xticks(range(len(labels)), labels)
