"""Figures of setting B: weights and scores of each map, the summary, the late stage, the kink and the invariants."""

import functools
from typing import TYPE_CHECKING

import numpy as np

from gradflow import plot
from gradflow.experiments.activations.claims import CONSERVED, share
from gradflow.experiments.activations.config import (
    BESIDE,
    KINKED,
    LATE,
    LATE_REFERENCE,
    LOSSES,
    MAPS,
    NAMES,
    REFERENCE,
    SIX,
    Config,
    Map,
)
from gradflow.experiments.activations.stages import REPORTED_TAU
from gradflow.experiments.base import Figure, Results
from gradflow.plot.curves import shades
from gradflow.plot.style import GREY, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

LABEL = {map_.name: map_.label for map_ in MAPS}
SHORT = {
    "normalised-abs": "L1",
    "normalised-linear": "Sum",
    "normalised-square": r"$a^2/\Sigma$",
    "softmax": "softmax",
    "normalised-relu": r"ReLU/$\Sigma$",
    "sigmoid": "sigmoid",
    "relu": "ReLU",
    "elu": "ELU",
    "linear": "linear",
    "normalised-softplus": r"softplus/$\Sigma$",
    "normalised-elu1": r"(ELU+1)/$\Sigma$",
    "normalised-sigmoid": r"sigmoid/$\Sigma$",
}
MADE = (
    "d = n = 10, seed 42, one target. Lines: gradient flow at rtol {rtol:g}; dots: gradient descent of the paper at "
    "t = step size x step."
)


def figures(config: Config, results: Results) -> list[Figure]:
    """Return the figures."""
    made = MADE.format(rtol=config.rtol)
    maps = _map_figures(made, results)
    return [
        Figure(
            "largest-share",
            "Normalisation decides whether weights polarize, the loss how far",
            f"Largest weight over the sum of magnitudes. {made} Diamonds: an independent run of the paper's settings. "
            "ReLU, "
            "ELU and linear coincide, since no score turns negative.",
            "Two panels. Under the square loss all shares stay below 0.3; under the logistic loss L1, ReLU, x^2 and "
            "softmax "
            "rise to 1, and elementwise maps stay at the uniform share.",
            functools.partial(draw_shares, results),
        ),
        *maps,
        Figure(
            "elementwise",
            "Elementwise ReLU, ELU and linear maps grow together",
            f"Logistic loss. {made} A step of 0.5 is coarse here, |s|^2 being near 10: descent lags behind the flow, "
            "less so "
            "at smaller steps.",
            "Three rows, weights and scores of ReLU, ELU and linear maps: all ten curves rise side by side.",
            functools.partial(draw_maps, BESIDE, "logistic", results),
        ),
        Figure(
            "late-stage",
            "Every positive normalised map polarizes in the end",
            f"1 - largest weight on the clock tau, n = {config.late_size}, scores 1, values 0.1 N(0, 1); faint: each "
            "of "
            f"{config.late_seeds} starts, bold: median, band: quartiles, rtol {config.rtol:g}. Diamonds: values "
            "derived "
            "for one start.",
            "Curves fall from uniform to zero one after the other: ReLU reaches exactly zero, then softmax, softplus, "
            "ELU plus one and sigmoid fall.",
            functools.partial(draw_late, config, results),
        ),
        Figure(
            "kink",
            "The L1 flow ends where a score meets zero; descent steps across",
            f"Scores of the L1 map under the logistic loss, around the time of the first zero. {made}",
            "Ten score curves; the flow stops where the lowest one reaches zero, the dots of descent go on and stay "
            "there.",
            functools.partial(draw_kink, results),
        ),
        Figure(
            "conserved",
            "Each map conserves its own primitive",
            "Drift of sum F(a_i) (normalised maps) or of the largest |v_i|^2/2 - F(a_i) (elementwise), F' = f / f', "
            "along "
            f"the flow at rtol {config.rtol:g}; dotted: the tolerance of the law; drifts below 1e-17 are drawn there.",
            "Two panels of drifts against time; up to t = 1e5 all lie below 1e-9.",
            functools.partial(draw_conserved, results),
        ),
    ]


def _map_figures(made: str, results: Results) -> list[Figure]:
    """Return the figure of the six maps under each loss."""
    return [
        Figure(
            f"six-maps-{loss}",
            title,
            f"Weights (left) and scores (right) under the {loss} loss. {made} Shades: order at the end. The flow of L1 "
            "with the logistic loss ends at its kink; descent goes on.",
            f"Six rows, one a map, of weights and scores against time. {seen}",
            functools.partial(draw_maps, SIX, loss, results),
        )
        for loss, title, seen in (
            (
                "logistic",
                "Normalised maps go one-hot, the elementwise sigmoid does not",
                "One weight of each positive "
                "normalised map goes to one; those of Sum leave the interval; those of the sigmoid stay together.",
            ),
            ("square", "The square loss separates the weights, and stops", "All weights move a little, then stay."),
        )
    ]


@styled
def draw_maps(maps: tuple[Map, ...], loss: str, results: Results) -> "MatplotlibFigure":
    """Draw weights and scores of each map, a row each."""
    figure, axes = plot.new_figure(len(maps), 2, height=1.25 * len(maps) + 0.3, sharex=True)
    for row, map_ in zip(axes, maps, strict=True):
        for ax, key in zip(row, ("weights", "scores"), strict=True):
            _draw_indices(results, loss, map_.name, key, ax)
        row[0].set_title(map_.label)
        row[0].set_ylabel("weight")
        row[1].set_ylabel("score")
        for ax in row:
            ax.minorticks_off()
    for ax in axes[-1]:
        ax.set_xlabel(r"time t = $\eta$ k")
    return figure


def _draw_indices(
    results: Results, loss: str, name: str, key: str, ax: "Axes", window: tuple[float, float] | None = None
) -> "Axes":
    """Draw one curve for each index, shaded by its order at the end: the flow as lines, the descent as dots."""
    index, (first, last) = NAMES.index(name), window or (0.05, 30 * results["descent"][f"{loss}_t"][-1])
    flow, descent = results["flow"], results["descent"]
    ends = descent[f"{loss}_{key}"][-1, index]
    looks = shades(len(ends))
    for rank, curve in enumerate(np.argsort(-ends)):
        for run, dots in ((flow, False), (descent, True)):
            ts = run[f"{loss}_t"]
            kept = (ts >= first) & (ts <= last)
            values = run[f"{loss}_{key}"][kept, index, curve]
            plot.scalar(
                ts[kept], values, log="x", dots=dots, xlabel="", ax=ax, linewidth=0.9, **_colour(looks[rank], dots)
            )
    return ax


def _colour(look: dict, dots: bool) -> dict:
    return {"color": look["color"]} if dots else look


@styled
def draw_shares(results: Results) -> "MatplotlibFigure":
    """Draw the share of the largest weight of every map under both losses."""
    figure, axes = plot.new_figure(1, 2, height=3.1, sharey=True)
    for ax, loss in zip(axes, LOSSES, strict=True):
        for index, name in enumerate(NAMES):
            _draw_share(results, loss, index, name, ax)
        plot.reference(ax, 0.1, "")
        ax.text(0.015, 0.085, "uniform 1/n", transform=ax.get_yaxis_transform(), va="top", color=GREY, fontsize=7.5)
        ax.set(title=f"{loss} loss", ylim=(0, 1.04))
        ax.set_ylabel("largest weight / sum" if loss == LOSSES[0] else "")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)
    return figure


def _draw_share(results: Results, loss: str, index: int, name: str, ax: "Axes") -> None:
    look = plot.activation_look(name)
    flow, descent = results["flow"], results["descent"]
    kept, stepped = flow[f"{loss}_t"] > 0.05, descent[f"{loss}_t"] > 0.05
    along = share(flow[f"{loss}_weights"][kept, index])
    plot.scalar(flow[f"{loss}_t"][kept], along, log="x", label=SHORT[name], ax=ax, **look)
    dots = share(descent[f"{loss}_weights"][stepped, index])
    plot.scalar(descent[f"{loss}_t"][stepped], dots, log="x", dots=True, xlabel=r"time t = $\eta$ k", ax=ax, **look)
    if name in REFERENCE[loss] and name not in ("sigmoid", "normalised-linear"):
        plot.paper_value(ax, [descent[f"{loss}_t"][-1]], [REFERENCE[loss][name][0]], name="_reference")


@styled
def draw_late(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw the distance from one-hot on the clock."""
    figure, ax = plot.new_figure(1, 1, width=plot.TWO_COLUMNS, height=3.2)
    tau, rest = results["late"]["tau"], results["late"]["rest"]
    kept = tau > 3
    for index, name in enumerate(LATE):
        values = np.where(rest[index] > 1e-9, rest[index], 0.0)
        # A band down to an exact zero has no lower edge on a log axis.
        interval = (0.5, 0.5) if (values[:, -1] == 0).all() else (0.25, 0.75)
        plot.bands(
            tau[kept], values[:, kept], interval=interval, label=SHORT[name], ax=ax, **plot.activation_look(name)
        )
    for values in LATE_REFERENCE.values():
        plot.paper_value(ax, REPORTED_TAU, values, name="_reference")
    plot.reference(ax, 1 - 1 / config.late_size, "uniform")
    ax.text(tau[-1], 1.6e-7, "exactly 0", ha="right", color=plot.activation_look("normalised-relu")["color"])
    ax.set(ylim=(1e-7, 2), xlabel=r"clock $\tau$", ylabel=r"$1 - s_{max}$")
    plot.legend(ax, loc="lower left")
    return figure


@styled
def draw_kink(results: Results) -> "MatplotlibFigure":
    """Draw the scores of L1 around the time at which the flow ends."""
    figure, ax = plot.new_figure(1, 1, width=plot.TWO_COLUMNS, height=2.8)
    end = float(results["flow"]["logistic_end"][NAMES.index(KINKED)])
    _draw_indices(results, "logistic", KINKED, "scores", ax, window=(10, 1e4))
    plot.reference(ax, end, f"the flow ends, t = {end:.0f}", axis="x", end=False)
    plot.reference(ax, 0.0, "kink at a = 0")
    ax.set(xlabel=r"time t = $\eta$ k", ylabel="score $a_i$")
    return figure


@styled
def draw_conserved(results: Results) -> "MatplotlibFigure":
    """Draw the drift of each map's invariant along the flow."""
    figure, axes = plot.new_figure(1, 2, height=3.1, sharey=True)
    for ax, loss in zip(axes, LOSSES, strict=True):
        ts = results["flow"][f"{loss}_t"]
        kept = ts > 0
        for index, name in enumerate(NAMES):
            drift = np.maximum(results["flow"][f"{loss}_drift"][kept, index], 1e-17)
            plot.scalar(ts[kept], drift, label=SHORT[name], ax=ax, **plot.activation_look(name))
        plot.reference(ax, CONSERVED, "tolerance up to t = 1e5")
        ax.set(title=f"{loss} loss", ylim=(5e-18, 1e-7))
        ax.set_ylabel("drift of the invariant" if loss == LOSSES[0] else "")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)
    return figure
