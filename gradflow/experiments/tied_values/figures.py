"""Figures of setting C: the paper's panels, the controls, and the energy identity."""

import functools
from typing import TYPE_CHECKING

import numpy as np

from gradflow import plot
from gradflow.experiments.base import Figure, Results
from gradflow.experiments.tied_values.claims import growth, identity_residual, winner_norm
from gradflow.experiments.tied_values.config import COLOURS, LABELS, MODELS, REFERENCE, REFERENCE_STEPS, Config
from gradflow.plot.curves import shades
from gradflow.plot.style import GREY, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

STEP_SIZE = 0.05


def figures(config: Config, results: Results) -> list[Figure]:
    """Return the figures."""
    made = (
        f"U = I, seed 42, logistic loss on one target. Lines: gradient flow at rtol {config.rtol:g}; dots: gradient "
        "descent, "
        f"{config.steps:,} steps of {STEP_SIZE}."
    )
    return [
        Figure(
            "tied-values",
            "One weight takes all, and its column grows like log t",
            f"Loss, rest of the largest weight, norm of the winner's column (upper) and median column (lower). {made} "
            "Diamonds: an independent run of the paper's settings.",
            "Three panels over time for four sizes: the loss falls like 1/t, the largest weight goes to one, the "
            "winner's norm "
            "grows along log t while the median stays near one.",
            functools.partial(draw_panels, config, results),
        ),
        Figure(
            "weights",
            "softmax(U a) becomes one-hot at every size",
            f"All weights, shaded by their order at the end; dotted: uniform weights. {made}",
            "One panel a size: one curve rises to one, the others fall together.",
            functools.partial(draw_weights, config, results),
        ),
        Figure(
            "controls",
            "The column grows without tying too, but not without competition",
            "Norm of the winner's column over the median norm, for three models from one start. Flow at rtol "
            f"{config.rtol:g}.",
            "Two panels, smallest and largest size: the ratio grows for tied and untied softmax, and stays near one "
            "for the "
            "elementwise sigmoid.",
            functools.partial(draw_controls, config, results),
        ),
        Figure(
            "energy-identity",
            "Tying ties the growth of U to that of a",
            "Relative residual of d/dt (|U|^2 - |a|^2)/2 = gamma z for the three models, flow at rtol "
            f"{config.rtol:g}.",
            "Residuals of the tied models lie at rounding, that of the untied model is of order one.",
            functools.partial(draw_identity, config, results),
        ),
    ]


@styled
def draw_panels(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw loss, rest and norms for every size."""
    figure, axes = plot.new_figure(1, 3, height=2.7)
    for d, look in zip(config.dimensions, shades(len(config.dimensions)), strict=True):
        for ax, key in zip(axes, ("loss", "rest", "norm"), strict=True):
            _draw_quantity(results, d, key, ax, look["color"])
        if d in REFERENCE and config.steps == REFERENCE_STEPS:
            known, t = REFERENCE[d], STEP_SIZE * REFERENCE_STEPS
            for ax, values in zip(axes, ([known.loss], [1 - known.largest], [known.winner, known.median]), strict=True):
                plot.paper_value(ax, [t] * len(values), values, name="_reference")
    ts = np.geomspace(10, config.horizon, 50)
    plot.scalar(ts, np.log(ts), log="x", ax=axes[2], color=GREY, linestyle=(0, (1, 2)), label="log t")
    axes[2].annotate("log t", (ts[30], np.log(ts[30])), (4, -9), textcoords="offset points", color=GREY, fontsize=7.5)
    axes[0].set(ylabel="loss")
    axes[1].set(ylabel="1 - largest weight")
    axes[2].set(ylabel="norm of a column of U")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    return figure


def _draw_quantity(results: Results, d: int, key: str, ax: "Axes", colour) -> None:
    for prefix, dots in (("flow", False), ("descent", True)):
        ts = results[f"D{d}"][f"{prefix}_t"]
        kept = ts >= STEP_SIZE
        for values in _quantity(results, d, key, prefix):
            label = f"D = {d}" if not dots else None
            log = "x" if key == "norm" else "xy"
            plot.scalar(ts[kept], values[kept], log=log, dots=dots, label=label, ax=ax, color=colour)


def _quantity(results: Results, d: int, key: str, prefix: str) -> list[np.ndarray]:
    """Return the curves of one panel."""
    run = results[f"D{d}"]
    rows = {name: run[f"{prefix}_{name}"] for name in ("loss", "weights", "norms")}
    rows = {name: values[:, 0] for name, values in rows.items()} if prefix == "flow" else rows
    if key == "loss":
        return [rows["loss"]]
    if key == "rest":
        return [1 - rows["weights"].max(axis=-1)]
    return [winner_norm(results, f"D{d}", prefix), np.median(rows["norms"], axis=-1)]


@styled
def draw_weights(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw every weight of the tied model, a panel for each size."""
    count = len(config.dimensions)
    figure, axes = plot.new_figure(1, count, width=plot.TWO_COLUMNS, sharey=True, squeeze=False)
    last = STEP_SIZE * config.steps
    for ax, d in zip(axes[0], config.dimensions, strict=True):
        for prefix, dots in (("flow", False), ("descent", True)):
            run = results[f"D{d}"]
            ts, weights = run[f"{prefix}_t"], run[f"{prefix}_weights"]
            weights = weights[:, 0] if prefix == "flow" else weights
            kept = (ts >= STEP_SIZE) & (ts <= 30 * last)
            order = np.argsort(-run["descent_weights"][-1])[:: 1 if not dots else max(1, d // 5)]
            plot.lines(ts[kept], weights[kept][:, order], dots=dots, log="x", ax=ax)
        plot.reference(ax, 1 / d, f"1/{d}", end=True)
        ax.set(title=f"D = {d}", ylim=(0, 1.03), xlabel="time t")
    axes[0, 0].set_ylabel("weight")
    return figure


@styled
def draw_controls(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw the growth of the winner's column in the three models, smallest and largest size."""
    sizes = sorted({min(config.dimensions), max(config.dimensions)})
    figure, axes = plot.new_figure(1, len(sizes), width=plot.TWO_COLUMNS, sharey=True, squeeze=False)
    for ax, d in zip(axes[0], sizes, strict=True):
        ts = results[f"D{d}"]["flow_t"]
        kept = ts >= STEP_SIZE
        for index, name in enumerate(MODELS):
            curve = growth(results, f"D{d}", index)
            look = plot.activation_look(COLOURS[name])
            plot.scalar(ts[kept], curve[kept], log="x", label=LABELS[name], ax=ax, **look)
        plot.reference(ax, 1.0, "")
        ax.text(0.98, 0.85, "all columns equal", transform=ax.get_yaxis_transform(), ha="right", va="top", color=GREY)
        ax.set(title=f"D = {d}")
    axes[0, 0].set_ylim(-0.5, None)
    axes[0, 0].set_ylabel("winner's norm / median norm")
    plot.legend(axes[0, 0], loc="upper left")
    return figure


@styled
def draw_identity(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw the residual of the energy identity of the three models at every size."""
    figure, ax = plot.new_figure(1, 1, width=plot.TWO_COLUMNS, height=2.6)
    for d in config.dimensions:
        ts = results[f"D{d}"]["flow_t"]
        kept = ts >= STEP_SIZE
        for index, name in enumerate(MODELS):
            residual = np.maximum(identity_residual(results, d, index)[kept], 1e-17)
            label = LABELS[name] if d == config.dimensions[0] else None
            plot.scalar(ts[kept], residual, label=label, ax=ax, linewidth=0.9, **plot.activation_look(COLOURS[name]))
    plot.reference(ax, 1e-10, "tolerance")
    ax.set(ylim=(3e-18, 1e2), ylabel="relative residual")
    plot.legend(ax, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure
