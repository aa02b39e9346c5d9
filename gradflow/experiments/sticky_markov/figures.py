"""The experiment's figures: losses with their floors, what attention does, the controls, flow beside descent, laws."""

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from gradflow import plot
from gradflow.experiments import audits
from gradflow.experiments.base import Figure, Results
from gradflow.experiments.intervals import mean_over_seeds
from gradflow.experiments.sticky_markov.arms import ARMS, CLOSED, EM, GRADIENT, SGD, Arm
from gradflow.experiments.sticky_markov.config import PAPER_EM_STEPS, PAPER_SPEED_UP, PAPER_STEPS, Config
from gradflow.experiments.sticky_markov.numbers import (
    UNIFORM,
    at_end,
    curve,
    speed_up,
    steps_to_sgd,
)
from gradflow.plot.looks import member_looks
from gradflow.plot.style import GREY, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

LOOKS = dict(zip([arm.name for arm in ARMS], member_looks(len(ARMS)), strict=True))
DOTS = 12  # dots of a descent along the flow's line
MEASURES = {
    "loss": ("loss", "nats"),
    "accuracy": ("accuracy", "fraction of targets"),
    "prediction_entropy": ("entropy of the predictions", "nats"),
    "attention_entropy": ("entropy of attention / log i", "fraction of the largest"),
    "information": ("own and attended symbol", "mutual information (bits)"),
    "same_symbol": ("weight on the own symbol", "attention weight"),
}


def figures(config: Config, results: Results) -> list[Figure]:
    """Describe every figure; nothing is drawn before it is asked for.

    Args:
        config: settings of the run.
        results: of all stages.

    Returns:
        The figures, in the order of the report.
    """
    made = f"{setting(config)} Losses are those of the training sequence, as in the public code."
    table = {
        "em-and-sgd": (
            "Values ten times as fast reach SGD's final loss in about half the steps",
            f"{made} Faint lines: seeds; bold: medians; bands: middle half. Dashed: the mean final loss of SGD; dots: "
            f"where each EM run reaches it; diamond: the paper's {PAPER_EM_STEPS} steps. Dotted: uniform prediction, "
            "the exact filter on the same sequences, and the entropy rate of the chain.",
            "Loss over steps: the EM curves leave the SGD curves at once and end about 0.1 nats lower, both far above "
            "the exact filter.",
            em_and_sgd,
        ),
        "controls": (
            "Every choice that speeds routing gains more, and values alone gain nothing",
            f"{made} Left: final loss, a dot a seed, bar: mean with its 95 % bootstrap interval. Middle: speed-up, the "
            "length of the runs over the mean step at which the mean final loss of SGD is reached (runs that never "
            "reach it count with their last step, so that SGD itself comes out above 1); diamond: the "
            "paper's value. Right: attention entropy over its largest value at the end.",
            "Seven arms in three panels. Frozen routing ends at SGD's loss, O times ten at EM's, faster queries and "
            "keys lower, all ten times as fast and the closed form lowest; only the arms with fast queries and keys "
            "have sharper attention.",
            controls,
        ),
        "inside": (
            "What the head says, and where it looks",
            f"{made} Faint lines: seeds; bold: medians; the closed form is drawn over its own steps. Dotted at the "
            "loss, from above: uniform prediction, H_min, the exact filter; at the entropy of the predictions: "
            "uniform; at the information of the symbol behind a position and the one it attends to: the same with "
            "permuted symbols.",
            "Six panels over steps. Loss falls most where queries and keys are fast and with the closed form. "
            "Accuracy rises and prediction entropy falls in every arm with moving routing; attention sharpens only "
            "where queries and keys are fast; information rises most in these, while the weight on the own symbol "
            "falls in most seeds.",
            inside,
        ),
        "flow": (
            "The arms are gradient flows with other rates",
            f"{made} Lines: exact gradient flow with rates instead of step sizes, rtol {config.rtol:.0e}, mean over "
            "seeds; dots: descent at t = eta k. The closed form follows no flow of fixed rates.",
            "Loss over time for six arms: the dots of the descents lie on the lines of the flows.",
            flow,
        ),
        "laws": (
            "Every law of the head holds along the EM flow",
            f"Audit of the flow of the EM arm, seed {config.seeds[0]}, all {config.length - 1} positions, at "
            f"{config.audited} times: largest residual of each law, and its tolerance.",
            "Residuals of the routing and responsibility laws, the identities and the conserved quantities lie below "
            "their tolerances.",
            _laws,
        ),
    }
    return [
        Figure(name, title, caption, alt, functools.partial(draw, config, results))
        for name, (title, caption, alt, draw) in table.items()
    ]


def setting(config: Any) -> str:
    """Return how the arms were trained, for captions; of any experiment that trains them."""
    return (
        f"Sticky chain of {config.length} symbols, one head (d = 20, d_k = 10, d_v = 15), {len(config.seeds)} seeds, "
        f"full-batch descent at step size {config.step_size:g} and ten times that where the arm says so; the closed "
        f"form replaces the step of W_V and runs {config.closed_steps} steps."
    )


def _steps(results: Results, arm: Arm) -> np.ndarray:
    return results["closed" if arm == CLOSED else "descent"]["step"]


def _floors(results: Results, ax: "Axes") -> None:
    """Draw what a loss is compared with; the filter and H_min are close, so one name stands above, one below."""
    plot.reference(ax, UNIFORM, "uniform")
    filtered, rate = float(results["chain"]["filter_loss"].mean()), float(results["chain"]["entropy_rate"])
    for value, name, above in ((filtered, "exact filter", filtered > rate), (rate, "$H_{min}$", rate >= filtered)):
        plot.reference(ax, value, name if above else "")
        if not above:
            place = {"xycoords": ax.get_yaxis_transform(), "textcoords": "offset points", "xytext": (0, -1.5)}
            ax.annotate(name, (0.015, value), va="top", color=GREY, fontsize=7.5, **place)
    low, high = min(filtered, rate), UNIFORM
    ax.set_ylim(low - 0.12 * (high - low), high + 0.1 * (high - low))


@styled
def em_and_sgd(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw the losses of EM and SGD, and where EM reaches SGD's final loss."""
    figure, ax = plot.new_figure(width=plot.TWO_COLUMNS, height=2.9)
    ends = []
    for arm in (SGD, EM):
        look = LOOKS[arm.name]
        plot.bands(
            _steps(results, arm), curve(results, arm), log="", xlabel="step", ylabel="loss (nats)", ax=ax, **look
        )
        ends.append((float(config.steps), float(np.median(at_end(results, arm)))))
    level, reached = float(at_end(results, SGD).mean()), steps_to_sgd(results, EM)
    reached = reached[np.isfinite(reached)]
    ax.axhline(level, color=LOOKS[SGD.name]["color"], linewidth=0.8, linestyle=(0, (4, 2)), zorder=1)
    ax.plot(reached, np.full(len(reached), level), "o", color=LOOKS[EM.name]["color"], markersize=4, zorder=4)
    if config.steps == PAPER_STEPS:
        plot.paper_value(ax, [PAPER_EM_STEPS], [level])
    ax.set_xlim(0, config.steps)
    _floors(results, ax)
    note = f"EM reaches SGD's mean final loss {speed_up(results, EM).text(2)} times as soon (paper {PAPER_SPEED_UP})"
    ax.text(0.015, 0.27, note, transform=ax.transAxes, color=LOOKS[EM.name]["color"])
    plot.label_ends(ax, ends, [arm.label for arm in (SGD, EM)], [LOOKS[arm.name]["color"] for arm in (SGD, EM)])
    return figure


@styled
def controls(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw final loss, speed-up and attention entropy of every arm."""
    figure, axes = plot.new_figure(1, 3, height=2.9, sharey=True)
    for row, arm in enumerate(ARMS):
        for ax, values in zip(
            axes[::2], (at_end(results, arm), at_end(results, arm, "attention_entropy")), strict=True
        ):
            _dots(ax, row, values, LOOKS[arm.name]["color"])
        if arm != CLOSED:
            _interval(axes[1], row, speed_up(results, arm), LOOKS[arm.name]["color"])
    axes[1].text(1.1, ARMS.index(CLOSED), "steps of another kind", va="center", color=GREY, fontsize=7.5)
    plot.paper_value(axes[1], [PAPER_SPEED_UP], [ARMS.index(EM)])
    filtered = float(results["chain"]["filter_loss"].mean())
    for value, name in ((UNIFORM, "uniform"), (filtered, "filter")):
        plot.reference(axes[0], value, "", axis="x")
        axes[0].annotate(
            name, (value, 1.0), xycoords=axes[0].get_xaxis_transform(), ha="center", va="bottom", color=GREY
        )
    plot.reference(axes[1], 1, "", axis="x")
    axes[0].set(yticks=range(len(ARMS)), yticklabels=[arm.label for arm in ARMS], ylim=(len(ARMS) - 0.4, -0.6))
    axes[0].set(xlabel="final loss (nats)", xlim=(filtered - 0.03, UNIFORM + 0.03))
    axes[1].set(xlabel="speed-up over SGD")
    axes[2].set(xlabel="attention entropy / log i", xlim=(None, 1.0))
    for ax in axes:
        ax.tick_params(axis="y", length=0)
    return figure


def _dots(ax: "Axes", row: int, values: np.ndarray, colour: str) -> None:
    """Draw the seeds of an arm above their mean."""
    ax.plot(values, np.full(len(values), row - 0.18), "o", color=colour, markersize=2.5, alpha=0.5, markeredgewidth=0)
    _interval(ax, row, mean_over_seeds(values), colour)


def _interval(ax: "Axes", row: int, found: Any, colour: str) -> None:
    ax.plot([found.low, found.high], [row, row], color=colour, linewidth=1.5)
    ax.plot(found.value, row, "|", color=colour, markersize=8, markeredgewidth=1.8)


@styled
def inside(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw loss, accuracy, entropies, information and same-symbol weight over the steps of every arm."""
    figure, axes = plot.new_figure(2, 3, height=4.9)
    panels = dict(zip(MEASURES, axes.ravel(), strict=True))
    for name, ax in panels.items():
        title, unit = MEASURES[name]
        for arm in ARMS:
            steps, rows = _along(results, arm, name)
            ax.plot(steps, rows.T, color=LOOKS[arm.name]["color"], linewidth=0.5, alpha=0.35, zorder=1.5)
            median = np.median(rows, axis=0)
            plot.scalar(steps, median, log="", xlabel="step", label=arm.label, ax=ax, linewidth=1.8, **LOOKS[arm.name])
        ax.set(title=title, ylabel=unit, xlim=(0, config.steps))
    for value in (UNIFORM, float(results["chain"]["entropy_rate"]), float(results["chain"]["filter_loss"].mean())):
        plot.reference(panels["loss"], value, "")
    plot.reference(panels["information"], float(results["descent"]["chance"].mean()), "")
    plot.reference(panels["accuracy"], float(results["chain"]["filter_accuracy"].mean()), "exact filter", end=True)
    plot.reference(panels["same_symbol"], 1 / 8, "by chance", end=True)
    plot.reference(panels["prediction_entropy"], UNIFORM, "", end=True)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _along(results: Results, arm: Arm, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the steps at which something was measured along an arm, and its values, one row a seed."""
    stage = results["closed" if arm == CLOSED else "descent"]
    steps = stage["step"] if name == "loss" else stage["step"][stage["measured"]]
    return steps, curve(results, arm, name)


@styled
def flow(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw the losses of the flows as lines and of the descents as dots."""
    figure, ax = plot.new_figure(width=plot.TWO_COLUMNS, height=2.9)
    ts, steps = results["flow"]["t"], results["descent"]["step"]
    kept = np.unique(np.linspace(0, len(steps) - 1, DOTS).round().astype(int))
    for arm in GRADIENT:
        look = LOOKS[arm.name]
        plot.scalar(ts, curve(results, arm, stage="flow").mean(axis=0), log="", label=arm.label, ax=ax, **look)
        means = curve(results, arm).mean(axis=0)[kept]
        ax.plot(config.step_size * steps[kept], means, "o", color=look["color"], markersize=2.8, clip_on=False)
    ax.set(xlabel=r"time t = $\eta$ k", ylabel="mean loss (nats)", xlim=(0, ts[-1]))
    _floors(results, ax)
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def _laws(config: Config, results: Results) -> "MatplotlibFigure":
    return audits.draw(audits.loaded(results["flow"]))
