"""Figures of setting E."""

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from gradflow import plot
from gradflow.experiments.base import Figure, Results
from gradflow.experiments.target_distribution.claims import target_entropy
from gradflow.experiments.target_distribution.config import CONTROLS, REFERENCE, Config
from gradflow.plot.curves import shades
from gradflow.plot.looks import OKABE_ITO
from gradflow.plot.style import styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

STEP_SIZE = 0.1
NAMES = {"softmax": "softmax", "uniform": "frozen, uniform", "sigmoid": "sigmoid, elementwise"}


def figures(config: Config, results: Results) -> list[Figure]:
    """Return the figures."""
    made = (
        f"d = n = 10, seed 123. Lines: gradient flow, implicit, rtol {config.rtol:g}; dots: gradient descent, "
        f"{config.steps:,} "
        f"steps of {STEP_SIZE}."
    )
    return [
        Figure(
            "target-distribution",
            "Attention gets sparser than the distribution it fits",
            f"Weights; entropies of weights and prediction; loss. {made} Diamonds: an independent run of the paper's "
            "settings.",
            "Three panels over time: one weight rises to 0.967 and stays; the entropy of the weights falls below that "
            "of the "
            "target; the loss falls to rounding.",
            functools.partial(draw_fit, results),
        ),
        Figure(
            "controls",
            "The target does not ask for sparse attention",
            "The same start with softmax attention, attention frozen at uniform, and an elementwise sigmoid, whose "
            "weights are "
            f"divided by their sum for the entropy. Explicit flows to t = {config.control_time:g} at rtol 1e-8.",
            "Two panels: all three models fit the target; only softmax attention loses entropy.",
            functools.partial(draw_controls, results),
        ),
        Figure(
            "column-sums",
            "Column sums of V are conserved",
            f"Largest drift of a column sum of V. {made}",
            "Drifts of flow and descent near rounding, far below the tolerance of 1e-9.",
            functools.partial(draw_column_sums, results),
        ),
    ]


@styled
def draw_fit(results: Results) -> "MatplotlibFigure":
    """Draw weights, entropies and loss of flow and descent."""
    figure, axes = plot.new_figure(1, 3, height=2.7)
    flow, descent = results["flow"], results["descent"]
    order = np.argsort(-descent["weights"][-1])
    looks = shades(len(order))
    for run, dots in ((flow, False), (descent, True)):
        kept = run["t"] >= STEP_SIZE
        ts = run["t"][kept]
        for rank, index in enumerate(order):
            values = run["weights"][kept][:, index]
            plot.scalar(ts, values, log="x", dots=dots, ax=axes[0], color=looks[rank]["color"])
        plot.scalar(ts, run["entropy"][kept], log="x", dots=dots, ax=axes[1], color=OKABE_ITO["blue"])
        plot.scalar(ts, run["prediction_entropy"][kept], log="x", dots=dots, ax=axes[1], color=OKABE_ITO["vermillion"])
        plot.scalar(ts, np.maximum(run["kl"][kept], 1e-16), dots=dots, ax=axes[2], color=OKABE_ITO["blue"])
    times = [step * STEP_SIZE for step in REFERENCE]
    for ax, key in zip(axes, ("largest", "entropy", "kl"), strict=True):
        plot.paper_value(ax, times, [getattr(known, key) for known in REFERENCE.values()], name="_reference")
    plot.reference(axes[0], 0.1, "uniform 1/n", end=True)
    plot.reference(axes[1], target_entropy(results), "target p")
    axes[1].text(0.12, np.log(10) - 0.06, "weights", color=OKABE_ITO["blue"], va="top")
    axes[1].text(0.12, 1.62, "prediction", color=OKABE_ITO["vermillion"], va="top")
    axes[0].set(ylabel="weight", ylim=(0, 1.03))
    axes[1].set(ylabel="entropy (nats)", ylim=(0, 2.4))
    axes[2].set(ylabel="KL(p || q) (nats)")
    return figure


@styled
def draw_controls(results: Results) -> "MatplotlibFigure":
    """Draw loss and entropy of the models that cannot or do not polarize."""
    figure, axes = plot.new_figure(1, 2, height=2.6)
    run = results["controls"]
    kept = run["t"] > 0
    for index, name in enumerate(CONTROLS):
        look: dict[str, Any] = plot.activation_look(name) | {"label": NAMES[name]}
        plot.scalar(run["t"][kept], run["kl"][kept, index], ax=axes[0], ylabel="KL(p || q) (nats)", **look)
        values = run["entropy"][kept, index]
        plot.scalar(run["t"][kept], values, log="x", ax=axes[1], ylabel="entropy of weights (nats)", **look)
    plot.reference(axes[1], target_entropy(results), "target p")
    axes[1].set_ylim(0, 2.45)
    plot.legend(axes[0], loc="lower left")
    return figure


@styled
def draw_column_sums(results: Results) -> "MatplotlibFigure":
    """Draw the drift of the column sums along flow and descent."""
    figure, ax = plot.new_figure(1, 1, width=plot.TWO_COLUMNS, height=2.3)
    for stage, dots in (("flow", False), ("descent", True)):
        run = results[stage]
        kept = run["t"] > 0
        drift = np.maximum(run["column_sum_drift"][kept], 1e-17)
        plot.scalar(run["t"][kept], drift, dots=dots, label=stage, ax=ax, color=OKABE_ITO["blue"])
    plot.reference(ax, 1e-9, "tolerance of the law")
    ax.set(ylim=(5e-18, 1e-8), ylabel="drift")
    plot.legend(ax, loc="center left")
    return figure
