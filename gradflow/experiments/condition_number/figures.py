"""The experiment's figures: the paper's runs, and an ensemble against condition number and against the clock."""

import functools
from typing import TYPE_CHECKING

import numpy as np

from gradflow import plot
from gradflow.experiments.base import Figure, Results
from gradflow.experiments.condition_number.claims import GOLDEN, Family, families
from gradflow.experiments.condition_number.config import Config
from gradflow.models import paper
from gradflow.plot.curves import shades
from gradflow.plot.looks import OKABE_ITO, member_looks
from gradflow.plot.style import GREY, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

LOOKS = (("vermillion", "o", 0.97), ("orange", "s", 1.0), ("blue", "^", 1.03))  # colour, marker, shift along log kappa
THIN = 3  # every third save of the descent is drawn


def figures(config: Config, results: Results) -> list[Figure]:
    """Describe every figure; nothing is drawn before it is asked for.

    Args:
        config: settings of the run.
        results: of all stages.

    Returns:
        The figures, in the order of the report.
    """
    kappas = ", ".join(f"{k:g}" for k in config.ensemble_kappas)
    how = (
        f"Ensemble of {config.seeds} seeds, d = n = N = {config.size}, kappa = {kappas}; starts as in the paper's "
        "setting (values 1e-5, scores 1e-3)."
    )
    table = {
        "runs": (
            "A larger condition number runs the clock longer",
            "Paper's setting: |y - X W softmax(a)|² with singular values linspace(1, 1/kappa), d = n = 20, seed 123. "
            f"Lines: flow at rtol {config.rtol:.0e}; dots: descent, {config.steps:,} steps, on t = eta k; diamonds: "
            "reference numbers of an independent descent. Right: entropy over the clock tau = int |g| dt, and the "
            "one-sample orbit from the same scores.",
            "Entropy over time for five condition numbers: kappa = 1 stays at the top, kappa = 5 falls to 0.4. The "
            "loss of kappa = 2 is not yet small at the paper's last step. Over the clock the five curves follow one "
            "line and end at different places.",
        ),
        "clock": (
            "Condition number alone says little, the clock says nearly all",
            f"{how} Each mark is a run at its end. Left: against condition number. Middle: against the clock; grey "
            "lines: one-sample orbits from the scores of each seed. Right: against the orbit's entropy at the run's "
            "own clock; dotted: equal.",
            "Three scatter plots of entropy. Against condition number there is no curve, against the clock a band of "
            "curves, one for each seed, and against the prediction of the one-sample orbit the marks lie near the "
            "diagonal, square-loss runs above it.",
        ),
        "fixed-norm": (
            "With the logistic loss and a budget of norm, the condition number does nothing",
            f"{how} Entropy at the end over condition number: faint lines: seeds, bold: median, band: middle half. "
            "Left: square loss with |y| fixed, as in the paper; middle: with the solution's norm fixed; right: "
            "logistic loss stopped at a norm of beta.",
            "Three panels of entropy over condition number. With |y| fixed the curves fall steeply, with the "
            "solution's norm fixed they fall less, under the logistic loss they are flat.",
        ),
    }
    draws = {"runs": runs, "clock": clock, "fixed-norm": fixed_norm}
    return [Figure(name, *table[name], functools.partial(draw, config, results)) for name, draw in draws.items()]


@styled
def runs(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw the paper's runs: entropy and loss over time, entropy over the clock."""
    figure, axes = plot.new_figure(1, 3, height=2.6)
    flow, descent, orbit = results["flow"], results["descent"], results["orbit"]
    factor = paper.condition_number(1.0).loss_factor
    t = descent["step_size"] * descent["step"]
    axes[2].plot(orbit["paper_tau"], orbit["paper_entropy"], color=GREY, linestyle=(0, (1, 2)), zorder=1)
    for row, look in enumerate(shades(len(config.kappas))):
        dots = look | {"dots": True, "markersize": 2.5}
        plot.scalar(flow["t"], flow["entropy"][row], log="x", ax=axes[0], **look)
        plot.scalar(t[::THIN], descent["entropy"][row, ::THIN], log="x", ax=axes[0], **dots)
        plot.scalar(
            flow["t"][1:], factor * flow["loss"][row, 1:], ax=axes[1], label=f"κ = {config.kappas[row]:g}", **look
        )
        plot.scalar(t[1::THIN], factor * descent["loss"][row, 1::THIN], ax=axes[1], **dots)
        plot.scalar(flow["tau"][row], flow["entropy"][row], log="", ax=axes[2], **look)
        axes[2].plot(flow["tau"][row, -1], flow["entropy"][row, -1], "o", color=look["color"], markersize=5, zorder=4)
    _name_runs(config, results, axes)
    return figure


def _name_runs(config: Config, results: Results, axes: "list[Axes]") -> None:
    """Put names, references and limits on the panels of the paper's runs."""
    known = [GOLDEN[k][2] for k in config.kappas if k in GOLDEN] if config.steps == 300_000 else []
    plot.paper_value(axes[0], [config.paper_time] * len(known), known)
    end = results["flow"]["t"][-1]
    axes[0].set(
        xlim=(1, end), xlabel=r"time t = $\eta$ k", ylabel="entropy of s (nats)", title="entropy", ylim=(0, 3.3)
    )
    axes[1].set(xlim=(1, end), xlabel=r"time t = $\eta$ k", ylabel="loss", title="loss", ylim=(1e-24, 1e3))
    axes[1].legend(loc="lower left", handlelength=1, borderaxespad=0.2, labelspacing=0.2)
    axes[2].set(
        xlabel=r"clock $\tau = \int |g|\,dt$", ylabel="entropy of s (nats)", title="over the clock", ylim=(0, 3.3)
    )
    axes[2].set_xlim(left=0, right=1.25 * results["flow"]["tau"].max())
    axes[2].text(
        0.05, 0.45, "dotted: one-sample\norbit; dots: ends", transform=axes[2].transAxes, color=GREY, fontsize=7.5
    )
    plot.reference(axes[0], np.log(20), "equal weights")


@styled
def clock(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw the entropy of every run against condition number, clock, and what the clock predicts."""
    figure, axes = plot.new_figure(1, 3, height=2.8, sharey=True)
    orbit, parts = results["orbit"], families(results)
    axes[1].plot(orbit["tau"], orbit["entropy"].T, color=GREY, linewidth=0.4, alpha=0.6, zorder=1)
    for family, (colour, marker, shift) in zip(parts, LOOKS, strict=True):
        look = {"marker": marker, "linestyle": "none", "color": OKABE_ITO[colour], "markersize": 3, "alpha": 0.6}
        look |= {"markeredgewidth": 0}
        axes[0].semilogx(family.kappa * shift, family.entropy, label=family.name, **look)
        axes[1].plot(family.tau, family.entropy, **look)
        axes[2].plot(family.predicted, family.entropy, **look)
    top = np.log(config.size)
    axes[2].plot([0, top], [0, top], color=GREY, linestyle=(0, (1, 2)), linewidth=1, zorder=1)
    taus = np.concatenate([family.tau for family in parts])
    axes[0].set(xlabel="condition number κ", ylabel="entropy at the end (nats)", title="against κ")
    axes[0].set(xticks=config.ensemble_kappas, xticklabels=[f"{k:g}" for k in config.ensemble_kappas])
    axes[0].minorticks_off()
    axes[1].set(xlabel=r"clock $\tau(\infty)$", title="against the clock", xlim=(0.9 * taus.min(), 1.05 * taus.max()))
    axes[2].set(xlabel="entropy of the orbit at that clock", title="clock and first scores")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, markerscale=1.5)
    return figure


@styled
def fixed_norm(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw the entropy over condition number for each norm: square loss twice, logistic loss once."""
    figure, axes = plot.new_figure(1, 3, height=2.5, sharey=True)
    symbols = ("|y|", "|β*|", "|β|")
    titles = ("square loss, fixed |y|", "square loss, fixed |β*|", "logistic loss, fixed |β|")
    for family, symbol, title, ax in zip(families(results), symbols, titles, axes, strict=True):
        draw_norms(family, symbol, ax)
        ax.set(
            xlabel="condition number κ",
            title=title,
            xticks=np.unique(family.kappa),
            ylim=(0, 1.08 * np.log(config.size)),
        )
        ax.set_xticklabels([f"{k:g}" for k in np.unique(family.kappa)])
        ax.minorticks_off()
    axes[0].set_ylabel("entropy at the end (nats)")
    return figure


def draw_norms(family: Family, symbol: str, ax: "Axes") -> "Axes":
    """Draw the entropy of a family over condition number, one median with its seeds for each norm."""
    kappas, norms = np.unique(family.kappa), np.unique(family.norm)
    ends, names, colours = [], [], []
    for norm, look in zip(norms, member_looks(len(norms)), strict=True):
        columns = [family.entropy[family.at(kappa, norm)] for kappa in kappas]
        plot.bands(kappas, np.stack(columns, axis=1), log="x", xlabel="", ax=ax, **look)
        ends.append((float(kappas[-1]), float(np.median(columns[-1]))))
        names.append(f"{symbol} = {norm:g}" if norm == norms[0] else f"{norm:g}")
        colours.append(look["color"])
    ax.margins(x=0.02)
    plot.label_ends(ax, ends, names, colours)
    return ax
