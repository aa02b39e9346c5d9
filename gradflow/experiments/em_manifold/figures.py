"""The experiment's figures: measures over steps and over the loss, how much sooner, the controls, the laws."""

import functools
from typing import TYPE_CHECKING

import numpy as np

from gradflow import plot
from gradflow.experiments import audits
from gradflow.experiments.base import Figure, Results
from gradflow.experiments.em_manifold.claims import part_of_change
from gradflow.experiments.em_manifold.config import Config
from gradflow.experiments.em_manifold.numbers import sooner, steps
from gradflow.experiments.intervals import Interval
from gradflow.experiments.sticky_markov.arms import ALL, ARMS, CLOSED, EM, READ_OUT, ROUTING, SGD
from gradflow.experiments.sticky_markov.figures import LOOKS, setting
from gradflow.experiments.sticky_markov.numbers import at_end, curve
from gradflow.plot.style import styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

MEASURES = {
    "values_ratio": ("values V", "participation ratio (dimensions)"),
    "values_first": ("values V", "share of PC1"),
    "values_entropy": ("PC1 of V, filter's entropy", "|Spearman|"),
    "outputs_ratio": ("outputs G = A V", "participation ratio (dimensions)"),
    "alignment": ("queries and attended keys", "mean cosine"),
    "information": ("own and attended symbol", "mutual information (bits)"),
}
COMPARED = {
    "values_ratio": "V: participation ratio",
    "values_first": "V: share of PC1",
    "outputs_ratio": "G: participation ratio",
    "alignment": "query-key alignment",
    "information": "mutual information",
}
OTHERS = (EM, READ_OUT, ROUTING, ALL)  # beside SGD; all of them reach its final loss


def figures(config: Config, results: Results) -> list[Figure]:
    """Describe every figure; nothing is drawn before it is asked for.

    Args:
        config: settings of the run.
        results: of all stages.

    Returns:
        The figures, in the order of the report.
    """
    made = f"{setting(config)} Participation ratio and PC1 are those of standardised vectors, one a position."
    table = {
        "manifold": (
            "Fast values narrow the value manifold; fast queries and keys inform the routing",
            f"{made} Means over seeds. Dotted, by chance or without training: at the share of PC1 Gaussian vectors, at "
            "|Spearman| PC1 of the inputs and permuted entropies, at the information permuted symbols. Gaussian "
            f"vectors have a participation ratio of {results['chain']['noise_ratio'].mean():.1f}.",
            "Six panels over steps. The participation ratio of the values falls most with EM, with fast values and "
            "frozen routing, and at once with the closed form; with all ten times as fast it falls and rises again. "
            "The rank correlation with the entropy stays near that of the inputs. Alignment and information grow most "
            "with fast queries and keys.",
            manifold,
        ),
        "equal-loss": (
            "At equal loss the arms are not on one curve",
            f"{made} The same means over the mean loss of the arm, which falls from left to right. All ×10 lies on "
            "SGD's curve and extends it, as it must: its flow is SGD's at ten times the speed. The closed form jumps: "
            "its first step leaves most of the axis behind. Dotted: SGD's mean final loss.",
            "Six panels over loss. All times ten continues SGD's curve. EM and frozen routing have narrower values "
            "than SGD at every loss, O times ten and Q, K times ten wider ones.",
            equal_loss,
        ),
        "sooner": (
            "EM is sooner by most measures; at equal loss its values are narrower, its routing behind",
            f"{made} Left: the length of SGD's run over the mean step at which an arm has what SGD ends with; runs "
            "that never have it count with their last step. Right: the difference of an arm from SGD where its loss is "
            "SGD's final one, in parts of SGD's own mean change; 0: the arm only goes faster; above 0: it is further "
            "in SGD's direction. Bars: 95 % bootstrap intervals over seeds.",
            "Dots with intervals for five measures and four arms. All times ten is ten times as soon and at zero on "
            "the right. EM is between four and five times as soon for the values, and above zero for the values and "
            "below zero for routing.",
            compare,
        ),
        "controls": (
            "Values narrow with fast W_V and true targets, with or without a lower loss",
            f"{made} Left: a dot a seed at the end of each arm. Right: participation ratio of the values over steps, "
            "lines: true targets, dashed: the same targets in random order; means, and faint the seeds.",
            "Left: final loss and participation ratio of each arm; EM and frozen routing have the same narrow values "
            "and different losses, O times ten has EM's loss and wide values. Right: on targets in random order the "
            "participation ratio hardly falls.",
            controls,
        ),
        "laws": (
            "Every law of the head holds along its flow",
            f"Audit of a flow with all rates at 1, seed {config.seeds[0]}, {config.audit_length - 1} positions: "
            "largest residual of each law, and its tolerance.",
            "Residuals of the routing and responsibility laws, the identities and the conserved quantities lie below "
            "their tolerances.",
            _laws,
        ),
    }
    return [
        Figure(name, title, caption, alt, functools.partial(draw, config, results))
        for name, (title, caption, alt, draw) in table.items()
    ]


@styled
def manifold(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw every measure over the steps of every arm."""
    figure, panels = _panels()
    for name, ax in panels.items():
        for arm in ARMS:
            mean = curve(results, arm, name).mean(axis=0)
            plot.scalar(
                steps(results, arm),
                mean,
                log="",
                xlabel="step",
                label=arm.label,
                ax=ax,
                linewidth=1.6,
                **LOOKS[arm.name],
            )
        ax.set(title=MEASURES[name][0], ylabel=MEASURES[name][1], xlim=(0, config.steps))
    chain = results["chain"]
    plot.reference(panels["values_first"], float(chain["noise_first"].mean()), "Gaussian vectors", end=True)
    plot.reference(panels["values_entropy"], float(chain["inputs_entropy"].mean()), "inputs")
    plot.reference(panels["values_entropy"], float(curve(results, EM, "values_chance").mean()), "permuted", end=True)
    plot.reference(panels["information"], float(curve(results, EM, "information_chance").mean()), "")
    figure.legend(*panels["values_ratio"].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


@styled
def equal_loss(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw every measure over the loss of every arm."""
    figure, panels = _panels()
    for name, ax in panels.items():
        for arm in ARMS:
            loss, mean = curve(results, arm).mean(axis=0), curve(results, arm, name).mean(axis=0)
            look = LOOKS[arm.name] | ({"marker": "o", "markersize": 2.5} if arm == CLOSED else {})
            # SGD lies on the curve of all x10, so it is drawn last.
            width, order = (2.6, 3) if arm == SGD else (1.4, 2)
            plot.scalar(
                loss, mean, log="", xlabel="loss (nats)", label=arm.label, ax=ax, linewidth=width, zorder=order, **look
            )
        plot.reference(ax, float(at_end(results, SGD).mean()), "", axis="x")
        ax.set(title=MEASURES[name][0], ylabel=MEASURES[name][1])
        ax.invert_xaxis()
    figure.legend(*panels["values_ratio"].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _panels() -> tuple["MatplotlibFigure", dict[str, "Axes"]]:
    figure, axes = plot.new_figure(2, 3, height=4.9)
    return figure, dict(zip(MEASURES, axes.ravel(), strict=True))


@styled
def compare(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw how much sooner each arm is at equal step, and how it differs at equal loss."""
    figure, axes = plot.new_figure(1, 2, height=3.2, sharey=True)
    for row, name in enumerate(COMPARED):
        for place, arm in zip(np.linspace(-0.27, 0.27, len(OTHERS)), OTHERS, strict=True):
            _interval(axes[0], row + place, sooner(results, arm, name), arm.name, arm.label if not row else None)
            _interval(axes[1], row + place, part_of_change(results, arm, name), arm.name)
    plot.reference(axes[0], 1, "", axis="x")
    plot.reference(axes[1], 0, "", axis="x")
    axes[0].set(xlabel="times as soon as SGD, at equal step", xscale="log", xlim=(0.9, 13))
    axes[0].set_xticks([1, 2, 5, 10], ["1", "2", "5", "10"], minor=False)
    axes[0].set_xticks([], minor=True)
    axes[0].set(yticks=range(len(COMPARED)), yticklabels=COMPARED.values(), ylim=(len(COMPARED) - 0.5, -0.5))
    axes[1].set(xlabel="further than SGD, at SGD's final loss\n(parts of SGD's own change)")
    for ax in axes:
        ax.tick_params(axis="y", length=0)
    figure.legend(loc="outside lower center", ncols=len(OTHERS))
    return figure


def _interval(ax: "Axes", row: float, found: Interval, arm: str, label: str | None = None) -> None:
    colour = LOOKS[arm]["color"]
    ax.plot([found.low, found.high], [row, row], color=colour, linewidth=1.5)
    ax.plot(found.value, row, "o", color=colour, markersize=4.5, markeredgewidth=0, label=label)


@styled
def controls(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw final losses beside final participation ratios, and true targets beside targets in random order."""
    figure, axes = plot.new_figure(1, 2, height=3.0, sharey=True)
    for arm in ARMS:
        loss, ratio = at_end(results, arm), at_end(results, arm, "values_ratio")
        look = {"color": LOOKS[arm.name]["color"], "markeredgewidth": 0}
        axes[0].plot(loss, ratio, "o", markersize=3, alpha=0.5, **look)
        axes[0].plot(loss.mean(), ratio.mean(), "D", markersize=6, label=arm.label, **look)
    for arm in (SGD, EM):
        for stage, line in (("descent", "-"), ("shuffled", (0, (4, 2)))):
            values, look = curve(results, arm, "values_ratio", stage), {"color": LOOKS[arm.name]["color"]}
            axes[1].plot(steps(results, arm), values.T, linestyle=line, linewidth=0.5, alpha=0.35, **look)
            axes[1].plot(steps(results, arm), values.mean(axis=0), linestyle=line, linewidth=1.8, **look)
    axes[0].set(xlabel="final loss (nats)", ylabel="participation ratio of the values")
    axes[1].set(xlabel="step", xlim=(0, config.steps))
    ends = [
        (float(config.steps), float(at_end(results, arm, "values_ratio", stage).mean()))
        for arm in (SGD, EM)
        for stage in ("descent", "shuffled")
    ]
    names = [name for arm in ("SGD", "EM") for name in (arm, f"{arm}, random order")]
    colours = [LOOKS[arm.name]["color"] for arm in (SGD, SGD, EM, EM)]
    plot.label_ends(axes[1], ends, names, colours)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _laws(config: Config, results: Results) -> "MatplotlibFigure":
    return audits.draw(audits.loaded(results["audit"]))
