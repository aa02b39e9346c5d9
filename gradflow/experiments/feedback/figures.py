"""Figures: how often the advantage grows, along training, and what the predictions are worth."""

import functools
from typing import TYPE_CHECKING

import numpy as np

from gradflow import plot
from gradflow.experiments.base import Figure, Results
from gradflow.experiments.feedback.claims import SOFTMAX, growing
from gradflow.experiments.feedback.config import FREE, FROZEN, KINDS, OWN, Config
from gradflow.experiments.intervals import Interval
from gradflow.plot.looks import OKABE_ITO
from gradflow.plot.style import styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

COLOURS = {"own": "orange", "frozen": "blue", "values": "green", "joint": "vermillion"}


def figures(config: Config, results: Results) -> list[Figure]:
    """Return the figures."""
    made = (
        f"Small heads (d_k = d_v = 8) on five tasks, T = {', '.join(map(str, config.lengths))}, {config.seeds} seeds, "
        f"starts N(0, 0.1²) and N(0, 1), trained by exact flow; steps of {config.step_sizes[0]:g}; intervals: 95 %, "
        "runs drawn whole; settings ours."
    )
    return [
        Figure(
            "growth",
            "The attended position's advantage grows in fewer rows than a coin would give",
            "Share of rows whose largest weight gains advantage: predicted by the row's own query, seen with U frozen, "
            f"with U following the values, and in the joint step of all parameters; all times. {made}",
            "For each kind of head four bars: own query 100 percent, U frozen around two thirds, U following and joint "
            "step below half.",
            functools.partial(draw_growth, config, results),
        ),
        Figure(
            "training",
            "The feedback fades as training goes on",
            f"The same shares for softmax heads at each time of the flow that is stepped from. {made}",
            "Two panels over time. With U frozen the share stays level, in the joint step it falls.",
            functools.partial(draw_training, config, results),
        ),
        Figure(
            "lengths",
            "Cross terms reverse the own-query feedback at every length",
            "Share of rows in which, with U frozen, the other queries reverse the growth of the attended position's "
            f"advantage; causal softmax heads from N(0, 0.1²), all times. {made}",
            "The share of reversals against the length of the sequence, for free and for shared values.",
            functools.partial(draw_lengths, config, results),
        ),
        Figure(
            "contingency",
            "Only the law with all queries predicts, and only while U is frozen",
            "All pairs (i, j) of the softmax heads, percent of each table: predicted sign of the growth by the seen. "
            "The law of free values is exact with U frozen; its misses there are heads with shared values. "
            f"{made}",
            "Four two by two tables: the own-query condition against frozen and joint steps, the law of free values "
            "against both.",
            functools.partial(draw_contingency, results),
        ),
    ]


def _columns(config: Config) -> dict[str, tuple[str, int]]:
    return {
        "own": ("own query predicts", OWN),
        "frozen": ("values move, U frozen", FROZEN),
        "values": ("values move, U follows", config.values_column()),
        "joint": ("everything moves", config.joint_column()),
    }


@styled
def draw_growth(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw the shares of every kind of head."""
    figure, ax = plot.new_figure(1, 1, width=plot.TWO_COLUMNS, height=3.4)
    for offset, (key, (label, column)) in enumerate(_columns(config).items()):
        places = np.arange(len(KINDS)) + 0.18 * (offset - 1.5)
        _points(ax, places, [growing(results, (kind,), column) for kind in KINDS], label, key, across=False)
    ax.set(yticks=range(len(KINDS)), yticklabels=list(KINDS), xlim=(0, 104), ylim=(len(KINDS) - 0.5, -0.5))
    ax.set_xlabel("rows whose attended position gains advantage (%)")
    plot.reference(ax, 50, "coin", axis="x", end=True)
    figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    return figure


@styled
def draw_training(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw the shares along training, for free and for shared values."""
    figure, axes = plot.new_figure(1, 2, sharey=True, height=2.8)
    places = list(range(len(config.times)))
    for ax, shared in zip(axes, (False, True), strict=True):
        kinds = tuple(kind for kind in SOFTMAX if KINDS[kind].shared == shared)
        for key, (label, column) in list(_columns(config).items())[1:]:
            shares = [growing(results, kinds, column, time=index) for index in places]
            _points(ax, np.array(places), shares, label, key)
        plot.reference(ax, 50, "coin", end=True)
        ax.set(title=f"{'shared' if shared else 'free'} values", xlabel="time t of the step", ylim=(0, 104))
        ax.set_xticks(places, [f"{t:g}" for t in config.times])
    axes[0].set_ylabel("rows that gain (%)")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return figure


@styled
def draw_lengths(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw the rate of reversal against the length."""
    figure, ax = plot.new_figure(1, 1, height=2.6)
    for kind, key in (("free-values", "frozen"), ("shared-values", "joint")):
        shares = [growing(results, (kind,), FROZEN, start=start) for start in range(len(config.lengths))]
        reversals = [Interval(100 - x.value, 100 - x.high, 100 - x.low) for x in shares]
        _points(ax, np.arange(len(shares)), reversals, kind, key)
    ax.set_xticks(range(len(config.lengths)), [str(length) for length in config.lengths])
    ax.set(xlabel="length T", ylabel="rows reversed by cross terms (%)", ylim=(0, 60))
    plot.legend(ax, loc="lower right")
    return figure


def _points(
    ax: "Axes", places: np.ndarray, shares: list[Interval], label: str, key: str, *, across: bool = True
) -> None:
    values = np.array([share.value for share in shares])
    reach = np.abs(np.array([(share.low, share.high) for share in shares]).T - values)
    look = {"color": OKABE_ITO[COLOURS[key]], "marker": "o", "markersize": 4, "capsize": 2, "label": label}
    if across:
        ax.errorbar(places, values, yerr=reach, linewidth=1.2, **look)
    else:
        ax.errorbar(values, places, xerr=reach, linestyle="none", **look)


@styled
def draw_contingency(results: Results) -> "MatplotlibFigure":
    """Draw predicted by seen for both predictions and both steps."""
    figure, axes = plot.new_figure(1, 4, height=2.3, sharey=True)
    pairs = sum(results[kind]["pairs"].sum(axis=(0, 1)) for kind in SOFTMAX)
    names = {OWN: "own query", FREE: "all queries, free V"}
    panels = [(p, s) for p in (OWN, FREE) for s in (0, 1)]
    for ax, (prediction, seen) in zip(axes, panels, strict=True):
        table = np.asarray(pairs)[prediction, seen]
        _table(ax, 100 * table / table.sum())
        ax.set_title(f"{names[prediction]}\n{('U frozen', 'joint step')[seen]}")
        ax.set_xlabel("seen")
    axes[0].set_ylabel("predicted")
    return figure


def _table(ax: "Axes", percent: np.ndarray) -> None:
    ax.imshow(percent, cmap="cividis", vmin=0, vmax=60)
    for (row, column), value in np.ndenumerate(percent):
        ink = "white" if value < 30 else "black"
        ax.text(column, row, f"{value:.0f} %", ha="center", va="center", color=ink, fontsize=9)
    ax.set(xticks=(0, 1), yticks=(0, 1), xticklabels=("grows", "falls"), yticklabels=("grows", "falls"))
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
