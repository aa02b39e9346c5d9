"""Figures: answers after rounding by size, gradients by size, and the course of training."""

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from gradflow import plot
from gradflow.experiments.activation_blow_up.claims import BARE, PEAKED, SPREAD
from gradflow.experiments.activation_blow_up.config import LAYERS, NAMES, ROUNDINGS, Config
from gradflow.experiments.activation_blow_up.numbers import runs
from gradflow.experiments.base import Figure, Results
from gradflow.experiments.dots import mean
from gradflow.plot.curves import shades
from gradflow.plot.looks import OKABE_ITO
from gradflow.plot.style import GREY, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

LOOKS: dict[str, dict[str, Any]] = {
    "exact": {"color": GREY, "linestyle": (0, (1, 1.5)), "marker": "."},
    "bfloat16": {"color": OKABE_ITO["blue"], "linestyle": "-", "marker": "o"},
    "token": {"color": OKABE_ITO["green"], "linestyle": (0, (4, 1.5)), "marker": "s"},
    "tensor": {"color": OKABE_ITO["vermillion"], "linestyle": "-", "marker": "D"},
}
ARM_LOOKS: dict[str, dict[str, Any]] = {
    PEAKED: {"color": OKABE_ITO["blue"], "linestyle": "-", "marker": "o"},
    SPREAD: {"color": OKABE_ITO["green"], "linestyle": (0, (4, 1.5)), "marker": "s"},
    BARE: {"color": OKABE_ITO["vermillion"], "linestyle": (0, (1, 1.5)), "marker": "D"},
}


def figures(config: Config, results: Results) -> list[Figure]:
    """Return the figures."""
    made = (
        f"Induction task of {config.distinct} of {config.symbols} symbols; {LAYERS} layers, width {config.width}, "
        f"{config.heads} heads, pre-norm; AdamW {config.rates[0]:g}, {config.steps:,} steps of {config.batch} fresh "
        f"sequences; {config.seeds} seeds. Before training a vector of the size given is added to the embedding of BOS."
    )
    table = {
        "rounding": (
            "A massive activation breaks 8-bit rounding where tokens share a scale, and nothing else",
            f"{made} The residual stream is rounded before and after every block of the trained model. Left: all of "
            "it in one coordinate; right: the same norm spread over all coordinates. Error: norm of the change of the "
            "logits at the last position over their norm. Above, all but one scale a layer coincide. Marks: means; "
            "bars: 95 % bootstrap intervals.",
            "Accuracy above and error of the logits below, by size. With one scale for all tokens the accuracy falls "
            "to chance as the size grows; bfloat16 and a scale for each token stay as they are.",
            draw_rounding,
        ),
        "gradients": (
            "Normalisation keeps gradients as they are, and the massive state itself is frozen",
            f"{made} Norms of the gradient of the loss before training: by all parameters, and by the embedding of "
            "BOS. Marks: means over seeds.",
            "Two panels by size: the gradient by all parameters does not grow with normalisation and does without; "
            "the gradient by the embedding of BOS falls as one over the size with normalisation.",
            draw_gradients,
        ),
        "course": (
            "Loss and attention on BOS over training, by size of the activation",
            f"{made} Lines: medians; bands: quartiles of the runs.",
            "Three panels over steps, a line for each size: the loss at two learning rates, and attention on BOS in "
            "the last layer.",
            draw_course,
        ),
    }
    return [
        Figure(name, title, caption, alt, functools.partial(draw, config, results))
        for name, (title, caption, alt, draw) in table.items()
    ]


@styled
def draw_rounding(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw accuracy and error after each rounding by size, in one coordinate and spread."""
    figure, axes = plot.new_figure(2, 2, width=0.8 * plot.TWO_COLUMNS, height=3.8, sharex=True, sharey="row")
    for column, arm in enumerate((PEAKED, SPREAD)):
        above, below = axes[:, column]
        _by_size(above, config, results, arm, "accuracy", "float32", LOOKS["exact"])
        for name, label in ROUNDINGS.items():
            _by_size(above, config, results, arm, f"{name}_accuracy", label, LOOKS[name])
            _by_size(below, config, results, arm, f"{name}_error", label, LOOKS[name])
        above.set(title=f"{NAMES[arm][0].upper()}{NAMES[arm][1:]}", ylim=(-0.03, 1.05))
        below.set(xlabel="norm added to BOS", yscale="log")
    axes[0, 0].set(ylabel="accuracy")
    axes[1, 0].set(ylabel="error / logits")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


@styled
def draw_gradients(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw norms of gradients before training by size."""
    figure, axes = plot.new_figure(1, 2, width=0.8 * plot.TWO_COLUMNS, height=2.4)
    for arm, look in ARM_LOOKS.items():
        _by_size(axes[0], config, results, arm, "gradient", NAMES[arm], look, save=0)
        _by_size(axes[1], config, results, arm, "bos_gradient", NAMES[arm], look, save=0)
    for ax, title in zip(axes, ("By all parameters", "By the embedding of BOS"), strict=True):
        ax.set(title=title, xlabel="norm added to BOS", ylabel="norm of the gradient", yscale="log")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


@styled
def draw_course(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw the loss at the lowest and highest learning rate, and attention on BOS, by size."""
    figure, axes = plot.new_figure(1, 3, height=2.4)
    steps, last = results[PEAKED]["step"], len(config.rates) - 1
    panels = (("last_loss", 0, "nats"), ("last_loss", last, "nats"), ("on_bos", 0, "share"))
    titles = (f"Loss, rate {config.rates[0]:g}", f"Loss, rate {config.rates[last]:g}", "Attention on BOS")
    for ax, (reading, rate, label), title in zip(axes, panels, titles, strict=True):
        for size, look in zip(config.sizes, shades(len(config.sizes)), strict=True):
            members = runs(config, results, PEAKED, reading, size, rate)
            plot.bands(steps, members, log="", xlabel="step", label=f"{size:,.0f}", ax=ax, **look)
        ax.set(title=title, ylabel=label)
    axes[2].set(ylim=(-0.02, 1.03))
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, title="norm added to BOS", loc="outside lower center", ncols=len(labels))
    return figure


def _by_size(
    ax: "Axes", config: Config, results: Results, arm: str, reading: str, label: str, look: dict, save: int = -1
) -> None:
    found = [mean(runs(config, results, arm, reading, size)[:, save]) for size in config.sizes]
    values = np.array([part.value for part in found])
    ends = np.abs([[part.value - part.low, part.high - part.value] for part in found]).T
    ax.errorbar(range(len(found)), values, ends, label=label, markersize=4, linewidth=1.2, **look)
    ax.set_xticks(range(len(found)), [f"{size:,.0f}" for size in config.sizes])
