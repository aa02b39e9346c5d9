"""Figures: sinks by map, their formation beside loss and accuracy, attention maps, and the grid."""

import functools
import textwrap
from typing import TYPE_CHECKING

import numpy as np

from gradflow import plot
from gradflow.experiments import dots
from gradflow.experiments.base import Figure, Results
from gradflow.experiments.dots import COURSE, LOOKS
from gradflow.experiments.induction.claims import looks_of
from gradflow.experiments.induction.config import LEARNT, SINK, Config
from gradflow.experiments.induction.numbers import accuracy, once_learnt, row, score, shape_scores, uniform_score
from gradflow.experiments.transformers import MAPS
from gradflow.plot.looks import MAGNITUDE_MAP, SIGNED_MAP
from gradflow.plot.style import styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

TITLE = 14  # letters across a panel
SHOWN = (-0.25, 1.25)  # of scores; those of signed maps go further


def figures(config: Config, results: Results) -> list[Figure]:
    """Return the figures."""
    task = config.task()
    made = (
        f"Two layers, width {config.width}, {config.heads} heads, AdamW {config.learning_rate:g}, {config.steps:,} "
        f"steps of {config.batch} fresh sequences, {config.distinct} of {config.symbols} symbols, {config.seeds} seeds."
    )
    table = {
        "formation": (
            "Softmax forms its sink early, before it learns the task; the elementwise sigmoid late",
            f"{made} Faint: runs; bold: medians; bands: quartiles. Sink scores are of the last layer's heads.",
            "Three panels over steps: loss of the continuation falls and accuracy rises for softmax, sigmoid and "
            "normalised sigmoid. The sink score of softmax is near one before its accuracy rises; that of the "
            "elementwise sigmoid is near a half then and rises to the end.",
            draw_formation,
        ),
        "sinks-by-map": (
            "When the task is learnt, normalised maps have sinks; later all positive maps do",
            f"{made} Sink score of the last layer at the first save with accuracy > {LEARNT} and at the end: dots: "
            "runs; bars: mean and 95 % bootstrap interval; dotted: what uniform attention scores, and the level "
            f"{SINK} above which a head is a sink. Right: accuracy at the end. Scores of signed maps are no shares.",
            "For each attention map: sink scores when the task is learnt and at the end, and accuracy at the end. "
            "Early, softmax is highest, normalised maps follow, elementwise maps are lowest; at the end all positive "
            "maps are high.",
            draw_maps,
        ),
        "attention": (
            "What the last layer's first head attends to",
            f"{made} Mean attention over {config.evaluated} sequences of one run a map; queries downwards, keys "
            f"across; key 0 is BOS, the last row is the query of {task.length} tokens. Colours of each map have their "
            "own scale; those of signed maps diverge from zero.",
            "Heat maps, one for each attention map: softmax and normalised maps have a bright first column.",
            draw_attention,
        ),
        "heads-and-positions": (
            "Sinks when the task is learnt, by heads and positions",
            f"As above with {config.grid_seeds} seeds a point; scores of the last layer at the first save with "
            f"accuracy > {LEARNT}. Dots: runs; lines: means.",
            "Sink score for each number of heads and kind of positions, for three maps.",
            draw_shapes,
        ),
    }
    return [
        Figure(name, title, caption, alt, functools.partial(draw, config, results))
        for name, (title, caption, alt, draw) in table.items()
    ]


@styled
def draw_formation(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw loss, accuracy and sink score over steps."""
    figure, axes = plot.new_figure(1, 3, height=2.6)
    steps = results["maps"]["step"]
    shown = [name for name in COURSE if name in config.maps]
    for name in shown:
        place = row(config, name)
        curves = results["maps"]["last_loss"][place], accuracy(results, place), score(results, place)
        for ax, members in zip(axes, curves, strict=True):
            plot.bands(steps, members, log="", xlabel="step", label=MAPS[name], ax=ax, **LOOKS[name])
    for ax, (title, label) in zip(
        axes,
        (("Loss", "loss at the last position (nats)"), ("Accuracy", "accuracy"), ("Sink", "sink score, last layer")),
        strict=True,
    ):
        ax.set(title=title, ylabel=label)
    plot.reference(axes[2], uniform_score(config), "uniform attention", end=True)
    axes[1].set(ylim=(-0.02, 1.03))
    axes[2].set(ylim=(0, 1.03))
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(shown))
    return figure


@styled
def draw_maps(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw scores of every map when the task is learnt and at the end, and accuracies."""
    figure, axes = plot.new_figure(1, 3, height=0.7 + 0.28 * len(config.maps), sharey=True)
    for place, _ in enumerate(config.maps):
        dots.row(axes[0], once_learnt(results, place), place, SHOWN)
        dots.row(axes[1], score(results, place)[:, -1], place, SHOWN)
        dots.scatter(axes[2], accuracy(results, place)[:, -1], place, SHOWN)
    for ax, title in zip(axes, ("When the task is learnt", "At the end", "Accuracy at the end"), strict=True):
        ax.set(title=title, ylim=(len(config.maps) - 0.4, -0.9))
        ax.tick_params(axis="y", length=0)
    for ax in axes[:2]:
        plot.reference(ax, uniform_score(config), "uniform", axis="x")
        plot.reference(ax, SINK, "sink", axis="x")
        ax.set(xlabel="sink score, last layer", xlim=SHOWN)
    axes[0].set(yticks=range(len(config.maps)), yticklabels=[looks_of(name) for name in config.maps])
    axes[2].set(xlabel="accuracy", xlim=(-0.03, 1.05))
    return figure


@styled
def draw_attention(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw the mean attention of one head of each map."""
    columns = 4
    figure, axes = plot.new_figure(
        -(-len(config.maps) // columns), columns, height=1.75 * -(-len(config.maps) // columns)
    )
    panels = list(np.ravel(axes))
    for place, (name, ax) in enumerate(zip(config.maps, panels, strict=False)):
        weights = results["maps"]["maps"][place, -1, 0]
        signed, high = bool((weights < -1e-6).any()), float(np.abs(weights).max()) or 1.0
        image = ax.imshow(weights, cmap=SIGNED_MAP if signed else MAGNITUDE_MAP, vmin=-high if signed else 0, vmax=high)
        bar = figure.colorbar(image, ax=ax, shrink=0.8)
        bar.outline.set_visible(False)
        ax.set_title(textwrap.fill(MAPS[name], TITLE), fontsize=8)
        ax.set(xticks=[0, len(weights) - 1], yticks=[0, len(weights) - 1])
        ax.spines[:].set_visible(False)
    for ax in panels[len(config.maps) :]:
        ax.set_axis_off()
    panels[0].set(xlabel="key", ylabel="query")
    return figure


@styled
def draw_shapes(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw sink scores of the grid's maps by heads and positions."""
    figure, ax = plot.new_figure(width=plot.TWO_COLUMNS, height=2.6)
    labels = [f"{heads} head{'s' * (heads > 1)}\n{positions}" for heads, positions in config.shapes]
    shown = [name for name in COURSE if name in config.grid_maps]
    places = range(len(config.shapes))
    dots.groups(ax, labels, {name: [shape_scores(config, results, name, place) for place in places] for name in shown})
    plot.reference(ax, uniform_score(config), "uniform attention")
    ax.set(ylabel="sink score, last layer", ylim=(0, 1.05))
    plot.legend(ax, loc="upper left", bbox_to_anchor=(1, 1))
    return figure
