"""Figures: every map in the simplest model, its course, other shapes, and influence against sparsity."""

import functools
from typing import TYPE_CHECKING

from gradflow import plot
from gradflow.experiments import dots
from gradflow.experiments.base import Figure, Results
from gradflow.experiments.dots import COURSE, LOOKS
from gradflow.experiments.token_influence.config import LEARNT, Config
from gradflow.experiments.token_influence.numbers import at_end, grid_values, uniform_sparsity
from gradflow.experiments.transformers import MAPS
from gradflow.plot.looks import OKABE_ITO
from gradflow.plot.style import GREY, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

SHOWN = (-0.04, 1.06)
READINGS = {
    "sparsity": "largest weight / sum",
    "flip": "flip rate",
    "attack": "sequences turned",
    "top_share": "largest share of influence",
}
TITLES = ("Sparsity", "Flip rate", "One-token attack", "One token's part")
MARKS = {"normalised-elu1": "s", "elu1": "s", "normalised-elu-elu": "^", "elu-elu": "^", "linear": "v", "mlp": "P"}


def figures(config: Config, results: Results) -> list[Figure]:
    """Return the figures."""
    made = (
        f"One layer, one head, width {config.width}, no MLP, no normalisation, no positions; AdamW "
        f"{config.learning_rate:g}, {config.steps:,} steps of {config.batch} fresh sequences; {config.vocabulary} "
        f"tokens, {config.distinct} of one group and CLS; {config.seeds} seeds."
    )
    table = {
        "influence-by-map": (
            "With softmax one token decides the answer",
            f"{made} Sparsity of the row of CLS; flip rate: the most attended tokens of {config.pairs} pairs of "
            "sequences of different groups are exchanged; crosses: any token instead of the most attended. Attack: "
            "sequences that the worst replacement of one token turns. Right: part of all change of the logits that "
            "comes from the most influential token. Dots: runs; bars: mean and 95 % bootstrap interval.",
            "Four panels with a row for each map: softmax is near one in the first three, other maps are lower, "
            "uniform attention is lowest.",
            draw_maps,
        ),
        "influence-course": (
            "Sparsity and the influence of one token grow together, and go on when the task is learnt",
            f"{made} Lines: medians; bands: quartiles of the runs.",
            "Three panels over steps: accuracy, sparsity and flip rate of softmax, normalised and elementwise sigmoid. "
            "Accuracy is one after a few steps; sparsity and flip rate of softmax rise to one in ten, others stay low.",
            draw_course,
        ),
        "influence-by-shape": (
            "Influence of one token by heads, layers, MLP and normalisation",
            f"As above with {config.grid_seeds} seeds a point; runs with accuracy > {LEARNT} at the end. Dots: runs; "
            "lines: means.",
            "Flip rate for each shape of the model and three maps.",
            draw_shapes,
        ),
        "sparsity-and-flips": (
            "The sparser the attention, the more hangs on one token",
            f"{made} A dot for each run with accuracy > {LEARNT}, at the end.",
            "Scatter of flip rate over sparsity, maps by colour and shape.",
            draw_scatter,
        ),
    }
    return [
        Figure(name, title, caption, alt, functools.partial(draw, config, results))
        for name, (title, caption, alt, draw) in table.items()
    ]


@styled
def draw_maps(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw four readings of every map at the end."""
    figure, axes = plot.new_figure(1, 4, height=0.7 + 0.28 * len(config.maps), sharey=True)
    for ax, (reading, label), title in zip(axes, READINGS.items(), TITLES, strict=True):
        for place, name in enumerate(config.maps):
            dots.row(ax, at_end(config, results, name, reading), place, SHOWN, "never right")
            if reading == "flip":
                either = at_end(config, results, name, "flip_random").mean()
                ax.plot(either, place, "x", color=GREY, markersize=4, zorder=4)
        ax.set(title=title, xlabel=label, xlim=SHOWN, ylim=(len(config.maps) - 0.4, -0.9))
        ax.tick_params(axis="y", length=0)
    plot.reference(axes[0], uniform_sparsity(config), "uniform", axis="x")
    plot.reference(axes[3], 1 / config.distinct, "equal", axis="x")
    axes[0].set(yticks=range(len(config.maps)), yticklabels=[MAPS[name] for name in config.maps])
    return figure


@styled
def draw_course(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw accuracy, sparsity and flip rate over training."""
    figure, axes = plot.new_figure(1, 3, height=2.3)
    shown = [name for name in COURSE if name in config.maps]
    steps = results["maps"]["step"]
    parts = (("accuracy", "Accuracy"), ("sparsity", "Sparsity"), ("flip", "Flip rate"))
    for ax, (reading, title) in zip(axes, parts, strict=True):
        for name in shown:
            curves = results["maps"][reading][config.maps.index(name), :, 1:]
            plot.bands(steps[1:], curves, log="x", xlabel="step", label=MAPS[name], ax=ax, **LOOKS[name])
        ax.set(title=title, ylabel=READINGS.get(reading, reading), ylim=(-0.02, 1.04))
    plot.reference(axes[1], uniform_sparsity(config), "uniform")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(shown))
    return figure


@styled
def draw_shapes(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw flip rates of the grid's maps by shape."""
    shown = [name for name in COURSE if name in config.grid_maps]
    shapes = config.shapes
    figure, ax = plot.new_figure(width=plot.TWO_COLUMNS, height=2.6 + 0.3 * (len(shapes) > 8))
    runs = {name: [grid_values(config, results, name, shape, "flip") for shape in shapes] for name in shown}
    dots.groups(ax, [shape.label.replace(", ", "\n") for shape in shapes], runs)
    ax.set(ylabel="flip rate", ylim=(-0.03, 1.04))
    plot.legend(ax, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


@styled
def draw_scatter(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw flip rate over sparsity, a dot a run."""
    figure, ax = plot.new_figure(width=0.6 * plot.TWO_COLUMNS, height=2.6)
    for name in config.maps:
        right = at_end(config, results, name, "accuracy") > LEARNT
        x, y = (at_end(config, results, name, reading)[right] for reading in ("sparsity", "flip"))
        colour = _colour(name)
        filled = colour if name.startswith("normalised") or name in ("softmax", "uniform") else "white"
        look = {"color": colour, "markerfacecolor": filled, "markersize": 4.5, "linestyle": "none"}
        ax.plot(x, y, MARKS.get(name, "o"), label=MAPS[name], **look)
    ax.set(xlabel="sparsity: largest weight / sum", ylabel="flip rate", xlim=SHOWN, ylim=(-0.03, 1.04))
    plot.legend(ax, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def _colour(name: str) -> str:
    if name in ("softmax", "uniform"):
        return OKABE_ITO["blue"] if name == "softmax" else GREY
    return OKABE_ITO["vermillion"] if "sigmoid" in name else OKABE_ITO["green"]
