"""Figures: what moves when, the ratio by horizon, every arm and map, sharp and broad rows, the audit."""

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from gradflow import plot
from gradflow.experiments import audits
from gradflow.experiments.base import Figure, Results
from gradflow.experiments.frame_precision.claims import BROAD, ROUTED, chosen, finished, ratios, rows, times
from gradflow.experiments.frame_precision.config import ARMS, FREE, MAIN, QUANTITIES, Config
from gradflow.experiments.sequences import TASKS
from gradflow.plot.looks import OKABE_ITO, member_looks
from gradflow.plot.style import GREY, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

PARTS = {"attention": ("attention (TV)", "blue"), "values": ("values V", "vermillion"), "scores": ("scores S", "green")}
SHOWN_FROM = 1.0  # time from which curves are drawn: nothing has moved before
LEAST = 1e-3


def figures(config: Config, results: Results) -> list[Figure]:
    """Return the figures."""
    made = (
        f"One causal head (d_k = d_v = 8, weights N(0, 0.1²)), one sequence of T = {config.length}, exact flow at "
        f"rtol {config.rtol:g}, {config.seeds} seeds, without runs too stiff to reach the horizon; settings ours."
    )
    level = config.epsilons[config.level]
    return [
        Figure(
            "distances",
            "Attention is near its end before the values are; the scores are not",
            "Distance to the state at the last horizon: mean total variation of the rows (attention), or the part of "
            f"the way to go (values, scores). Bold: median; band: quartiles; faint: seeds; dotted: eps = {level:g}. "
            f"{made}",
            "Six panels. In each the attention's distance falls below 0.05 before that of the values, whose curve "
            "and that of the scores nearly coincide and reach the level only shortly before the horizon.",
            functools.partial(draw_distances, config, results),
        ),
        Figure(
            "horizons",
            "The ratio is set by the horizon, and one yardstick for both takes most of it away",
            f"The same flows, taken as ended at each horizon; eps = {level:g}; a dot a run, lines join medians. Left: "
            "attention by total variation. Middle: scores by the part of their way, as values. Right: tau_V over the "
            f"horizon, with softmax attention and with uniform attention that never moves. {made}",
            "Left: the ratio rises with the horizon in every task. Middle: it stays near one, above for noise and "
            "below for recall. Right: values freeze at a fixed part of the horizon with and without routing.",
            functools.partial(draw_horizons, config, results),
        ),
        Figure(
            "arms",
            "Rates and maps change the ratio, hardly ever its side of one; one yardstick does",
            f"tau_V / tau_A (left) and tau_V / tau_S (right) at t = {config.horizons[-1]:g}, eps = {level:g}; a dot a "
            f"run whose attention goes beyond {2 * level:g} in TV, a bar the median. Upper rows: softmax heads, with "
            f"weight decay 1e-3 where named; lower rows: other maps at equal rates. {made}",
            "Two panels of dots on a log axis. On the left most dots lie above one for every arm and map; on the right "
            "they scatter around one.",
            functools.partial(draw_arms, config, results),
        ),
        Figure(
            "rows",
            "Broad rows freeze before the values too, and |D| need not fall against |A^T U|",
            f"Left: each row of the softmax heads at the end, its largest weight and when it freezes over tau_V of its "
            f"run (rows that move beyond {2 * level:g}). Right: |D|/|A^T U|, median and quartiles of runs. {made}",
            "Left: most rows, sharp or broad, lie below one. Right: |D| over |A^T U| falls late in training "
            "for noise and random labels, and rises for the seen chain and for copying.",
            functools.partial(draw_rows, config, results),
        ),
        Figure(
            "audit",
            "The laws of attention hold along a run",
            f"`gf.laws.audit` of one softmax run on recall to t = {config.horizons[0]:g}: residuals and "
            f"tolerances. {made}",
            "A dot a law on a log axis, each left of its tolerance bar.",
            functools.partial(draw_audit, results),
        ),
    ]


@styled
def draw_distances(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw what is left to go over time: a panel a task, and free scores."""
    figure, axes = plot.new_figure(2, 3, sharex=True, sharey=True, height=4.6)
    panels = [("softmax", index, TASKS[name]) for index, name in enumerate(config.tasks)]
    panels.append((FREE, config.tasks.index("random-labels"), "free scores, random labels"))
    keep = config.ts >= SHOWN_FROM
    for ax, (stage, task, title) in zip(axes.flat, panels, strict=True):
        run = results[stage]["distance"][chosen(results, stage, task=task) & finished(results, stage)]
        for part, (name, colour) in PARTS.items():
            values = np.maximum(run[:, QUANTITIES.index(part)][:, keep], LEAST)
            plot.bands(config.ts[keep][:-1], values[:, :-1], label=name, xlabel="", ax=ax, color=OKABE_ITO[colour])
        plot.reference(ax, config.epsilons[config.level], "")
        ax.set_ylim(LEAST, 2)
        plot.title(ax, title)
    for ax in axes[1]:
        ax.set_xlabel("time t")
    for ax in axes[:, 0]:
        ax.set_ylabel("distance to the end")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure


@styled
def draw_horizons(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw both ratios and the part of the horizon against the horizon."""
    figure, axes = plot.new_figure(1, 3, height=3.0)
    looks = member_looks(len(config.tasks))
    for task, (name, look) in enumerate(zip(config.tasks, looks, strict=True)):
        for ax, earlier in zip(axes, ("attention", "scores"), strict=False):
            _joined(ax, config, ratios(config, results, "softmax", earlier=earlier, task=task), TASKS[name], look)
    for stage, look in (("softmax", looks[0]), ("uniform", {"color": GREY, "linestyle": "--"})):
        part = times(config, results, stage, "values")[chosen(results, stage)] / np.asarray(config.horizons)
        _joined(axes[2], config, part, f"{stage} attention", look)
    for ax in axes[:2]:
        plot.reference(ax, 1.0, "together" if ax is axes[0] else "", end=True)
    axes[2].set_ylim(0.01, 1.5)
    for ax, title in zip(axes, (r"$\tau_V / \tau_A$", r"$\tau_V / \tau_S$", r"$\tau_V$ / horizon"), strict=True):
        ax.set(xlabel="horizon t", title=title)
    plot.legend(axes[2], loc="lower left")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    return figure


def _joined(ax: "Axes", config: Config, values: np.ndarray, label: str, look: dict[str, Any]) -> None:
    horizons = np.asarray(config.horizons)
    for row in values:
        ax.plot(horizons, row, "o", color=look["color"], markersize=2, alpha=0.35)
    counted = np.isfinite(values).any(axis=0)
    middle = np.full(len(horizons), np.nan)
    middle[counted] = np.nanmedian(values[:, counted], axis=0)
    plot.scalar(horizons, middle, label=label, ax=ax, xlabel="", linewidth=1.6, **look)


@styled
def draw_arms(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw both ratios of every arm and map at the last horizon."""
    figure, axes = plot.new_figure(1, 2, height=3.4, sharey=True)
    groups = [(f"softmax, {arm}", "softmax", arm) for arm in ARMS] + [("free scores and values", FREE, MAIN)]
    groups += [(name, name, MAIN) for name in ROUTED if name != "softmax"]
    looks = member_looks(len(config.tasks))
    for ax, earlier in zip(axes, ("attention", "scores"), strict=True):
        for place, (_, stage, arm) in enumerate(groups):
            _dots(ax, place, config, results, looks, stage=stage, arm=arm, earlier=earlier)
        plot.reference(ax, 1.0, "", axis="x")
        ax.set(xscale="log", ylim=(len(groups) - 0.4, -0.6))
    axes[0].set(yticks=range(len(groups)), yticklabels=[name for name, *_ in groups])
    axes[0].set(xlabel=r"$\tau_V / \tau_A$ (attention by TV)")
    axes[1].set(xlabel=r"$\tau_V / \tau_S$ (one yardstick)")
    handles = [axes[0].plot([], [], "o", color=look["color"], markersize=4)[0] for look in looks]
    figure.legend(handles, [TASKS[t] for t in config.tasks], loc="outside lower center", ncols=2, frameon=False)
    return figure


def _dots(ax: "Axes", place: int, config: Config, results: Results, looks: list, *, stage, arm, earlier) -> None:
    every = ratios(config, results, stage, earlier=earlier, arm=arm)[:, -1]
    for task, look in enumerate(looks):
        ratio = ratios(config, results, stage, earlier=earlier, arm=arm, task=task)[:, -1]
        height = place + 0.11 * (task - (len(looks) - 1) / 2)
        ax.plot(ratio, np.full(len(ratio), height), "o", color=look["color"], markersize=2.5, alpha=0.8)
    if np.isfinite(every).any():
        ax.plot([np.nanmedian(every)] * 2, [place - 0.38, place + 0.38], color="black", linewidth=1.6)


@styled
def draw_rows(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw rows by sharpness, and the share of routing in the movement."""
    figure, axes = plot.new_figure(1, 2, height=2.9)
    largest, late, moving = rows(config, results)
    kept = chosen(results, "softmax") & finished(results, "softmax")
    tasks = results["softmax"]["of_task"][kept]
    keep = config.ts >= SHOWN_FROM
    run = results["softmax"]
    share = (run["routing_norm"] / run["value_norm"])[kept]
    for task, look in enumerate(member_looks(len(config.tasks))):
        which = moving & (tasks == task)[:, None]
        axes[0].plot(largest[which], late[which], "o", color=look["color"], markersize=2, alpha=0.6)
        plot.bands(config.ts[keep], share[tasks == task][:, keep], label=TASKS[config.tasks[task]], ax=axes[1], **look)
    axes[0].set(yscale="log", xlabel="largest weight of the row at the end", ylabel=r"row freezes at, over $\tau_V$")
    plot.reference(axes[0], 1.0, "with the values", end=True)
    plot.reference(axes[0], BROAD, "broad | sharp", axis="x", end=True)
    axes[1].set_ylabel(r"$|D|_F \; / \; |A^T U|_F$")
    handles, labels = axes[1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    return figure


def draw_audit(results: Results) -> "MatplotlibFigure":
    """Draw the residuals of the laws."""
    return audits.draw(audits.loaded(results["audit"]))
