"""Figures of the real data sets."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from gradflow import plot
from gradflow.experiments.base import Figure, Results
from gradflow.experiments.real_data.claims import SCORE_SUM, SOFTMAX, TOLERANCE, winner_rate, worst_drift
from gradflow.experiments.real_data.config import MAPS, NAMES, SIZE, TASKS, Config
from gradflow.experiments.real_data.stages import DESCENT_TASK
from gradflow.plot.curves import shades
from gradflow.plot.looks import OKABE_ITO
from gradflow.plot.style import GREY, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

COLUMNS = 4
FIRST = 0.1  # time from which curves are drawn


def figures(config: Config, results: Results) -> list[Figure]:
    """Return the figures."""
    made = (
        f"n = {SIZE} values, uniform scores, {2 * config.seeds} starts (values of scale 0.01 and 0.1): each faint, "
        "median bold, "
        f"quartiles shaded. Flows at rtol {config.rtol:g}; horizons are where explicit steps get expensive."
    )
    return [
        Figure(
            "largest-weight",
            "Classification polarizes when the clock runs long enough; regression does not",
            f"Largest weight over the sum of weights. {made}",
            "Seven panels, one a data set and loss. On wine and breast cancer x^2 and softmax rise to one; on digits "
            "and on "
            "both regressions they rise a little; elementwise sigmoid and frozen attention stay at 1/8.",
            functools.partial(draw_tasks, results, draw_shares),
        ),
        Figure(
            "clock",
            "On the clock int |g| dt the tasks nearly fall on one curve",
            f"Median largest softmax weight of {2 * config.seeds} starts against the clock, trapezoidal rule over the "
            "saves; dots: "
            "where each run ends.",
            "Curves of seven tasks rise between 15 and 40 on the clock; regressions and digits end before.",
            functools.partial(draw_clock, results),
        ),
        Figure(
            "loss",
            "Without attention the same loss is reached, later",
            "Training loss, median of the starts. Dotted: smallest loss of any linear predictor (none where it is 0). "
            f"{made}",
            "Seven panels of loss against time: all maps reach the same floor, or the same 1/t decay.",
            functools.partial(draw_tasks, results, draw_losses),
        ),
        Figure(
            "winners",
            "The initial force picks the winner on easy data only",
            f"Share of {2 * config.seeds} starts in which the largest softmax weight is at argmax <v_i, -g(0)>.",
            "One dot a task: right always on separable wine, and less often elsewhere, down to near chance.",
            functools.partial(draw_winners, results),
        ),
        Figure(
            "conserved",
            "Conservation laws hold on any data",
            "Largest drift over all tasks, times and starts: the sum of scores for the softmax, the primitives of law "
            "3 for the "
            f"others, the scores where attention is frozen. Flows at rtol {config.rtol:g}.",
            "Five dots, one a map, each left of the bar of its tolerance by an order of magnitude or more.",
            functools.partial(draw_conserved, results),
        ),
        Figure(
            "descent",
            "Gradient descent lies on the flow",
            f"Softmax weights on {TASKS[DESCENT_TASK].title}, one start of scale 0.1. Lines: flow at rtol "
            f"{config.rtol:g}; dots: "
            f"gradient descent, {config.descent_steps:,} steps of {config.step_size}.",
            "Eight weights: one goes to one, seven fall; the dots of descent lie on the lines of the flow.",
            functools.partial(draw_descent, config, results),
        ),
    ]


@styled
def draw_tasks(results: Results, draw: Callable) -> "MatplotlibFigure":
    """Draw one panel a task, and the legend in the place that is left."""
    rows = -(-(len(TASKS) + 1) // COLUMNS)
    figure, axes = plot.new_figure(rows, COLUMNS, width=plot.TWO_COLUMNS, height=2.0 * rows, squeeze=False)
    panels = axes.ravel()
    for name, ax in zip(TASKS, panels, strict=False):
        draw(results, name, ax)
        ax.set_title(TASKS[name].title, fontsize=8)
        ax.minorticks_off()
        ax.set(xlabel="time t" if ax in axes[-1] or name == list(TASKS)[COLUMNS - 1] else "")
    for ax in axes[:, 1:].ravel():
        ax.set_ylabel("")
    handles, labels = panels[0].get_legend_handles_labels()
    for ax in panels[len(TASKS) :]:
        ax.set_axis_off()
    panels[len(TASKS)].legend(handles, labels, loc="center", frameon=False, handlelength=2.2)
    return figure


def draw_shares(results: Results, task: str, ax: "Axes") -> "Axes":
    """Draw the largest share under each map."""
    run = results[task]
    kept = run["t"] >= FIRST
    for index, name in enumerate(MAPS):
        curves = run["shares"][index, kept].max(axis=-1).T
        look: dict[str, Any] = plot.activation_look(name) | {"linewidth": 1.4}
        plot.bands(run["t"][kept], curves, log="x", label=NAMES[name], ylabel="largest weight / sum", ax=ax, **look)
    ax.set_ylim(0, 1.04)
    return ax


def draw_losses(results: Results, task: str, ax: "Axes") -> "Axes":
    """Draw the median loss under each map, and the floor."""
    run = results[task]
    kept = run["t"] >= FIRST
    for index, name in enumerate(MAPS):
        curve = np.median(run["loss"][index, kept], axis=-1)
        plot.scalar(
            run["t"][kept], curve, label=NAMES[name], ylabel="training loss", ax=ax, **plot.activation_look(name)
        )
    if run["floor"] > 0:
        plot.reference(ax, float(run["floor"]), "")
        ax.set_ylim(0.9 * float(run["floor"]), None)
    _label_narrow_axis(ax)
    return ax


def _label_narrow_axis(ax: "Axes") -> None:
    """Label 1, 2, 5 on a log axis of less than two decades, and 2, 3, 4, ... on one of less than one."""
    from matplotlib.ticker import LogLocator

    low, high = ax.get_ylim()
    if high < 100 * low:
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high > 5 * low else (1, 2, 3, 4, 5, 6)))
        ax.yaxis.set_major_formatter("{x:.2g}")


@styled
def draw_clock(results: Results) -> "MatplotlibFigure":
    """Draw the largest softmax weight of each task against its clock."""
    figure, ax = plot.new_figure(1, 1, width=plot.TWO_COLUMNS, height=2.9)
    for (name, task), look in zip(TASKS.items(), plot.member_looks(len(TASKS)), strict=True):
        run = results[name]
        clock = np.median(run["clock"][SOFTMAX], axis=-1)
        curve = np.median(run["shares"][SOFTMAX].max(axis=-1), axis=-1)
        kept = clock > 1
        plot.scalar(clock[kept], curve[kept], log="x", label=task.title, ax=ax, **look)
        ax.plot(clock[-1], curve[-1], "o", color=look["color"], markersize=4)
    plot.reference(ax, 1 / SIZE, "uniform")
    ax.set(ylim=(0, 1.04), xlabel=r"clock $\int |g|\,dt$", ylabel="largest weight (median)")
    plot.legend(ax, loc="upper left")
    return figure


@styled
def draw_winners(results: Results) -> "MatplotlibFigure":
    """Draw how often the initial force picks the winner."""
    figure, ax = plot.new_figure(1, 1, width=plot.TWO_COLUMNS, height=2.2)
    rows = np.arange(len(TASKS))
    ax.plot(
        [winner_rate(results, name) for name in TASKS], rows, "o", color=OKABE_ITO["blue"], markersize=5, clip_on=False
    )
    ax.set(
        yticks=rows, yticklabels=[task.title for task in TASKS.values()], ylim=(len(rows) - 0.5, -0.9), xlim=(0, 1.02)
    )
    ax.set_xlabel("share of starts won by the value of largest initial force")
    plot.reference(ax, 1 / SIZE, f"chance 1/{SIZE}", axis="x")
    plot.reference(ax, 1.0, "", axis="x")
    ax.text(
        0.99, 0.98, "one sample", transform=ax.get_xaxis_transform(), ha="right", va="top", color=GREY, fontsize=7.5
    )
    return figure


@styled
def draw_conserved(results: Results) -> "MatplotlibFigure":
    """Draw the largest drift of each map's invariant with its tolerance."""
    figure, ax = plot.new_figure(1, 1, width=plot.TWO_COLUMNS, height=2.2)
    drift = worst_drift(results)
    tolerances = [SCORE_SUM if name == "softmax" else TOLERANCE for name in drift]
    plot.residuals([NAMES[name] for name in drift], list(drift.values()), tolerances, ax=ax)
    return figure


@styled
def draw_descent(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw the softmax weights of one start, flow and descent."""
    figure, ax = plot.new_figure(1, 1, width=plot.TWO_COLUMNS, height=2.6)
    flow, run = results[DESCENT_TASK], results["descent"]
    along = flow["shares"][SOFTMAX, :, config.seeds]
    kept, stepped = flow["t"] >= FIRST, run["t"] > 0
    looks = shades(SIZE)
    for rank, index in enumerate(np.argsort(-along[-1])):
        plot.scalar(flow["t"][kept], along[kept, index], ax=ax, color=looks[rank]["color"])
        dots = run["shares"][0, stepped, 0, index]
        plot.scalar(run["t"][stepped], dots, dots=True, ax=ax, color=looks[rank]["color"])
    plot.reference(ax, 1 / SIZE, f"uniform 1/{SIZE}")
    ax.set(ylabel="weight", xlabel=r"time t = $\eta$ k")
    return figure
