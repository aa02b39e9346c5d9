"""Figures: losses against the exact ones, attention on one sequence, where the head looks, and how much it adds."""

import functools
from typing import TYPE_CHECKING

import numpy as np

from gradflow import plot
from gradflow.experiments import dots
from gradflow.experiments.base import Figure, Results
from gradflow.experiments.bigram.config import RESTING, Config
from gradflow.experiments.bigram.numbers import (
    KNOWN,
    OTHER,
    SHALLOW,
    SIGMOID,
    SOFTMAX,
    SOFTMAX_BOS,
    Arm,
    arms,
    effort,
    looking_head,
    of_head,
    runs,
    share,
)
from gradflow.experiments.bigram.readings import FIRST, PLACES
from gradflow.experiments.dots import LOOKS
from gradflow.plot.looks import MAGNITUDE_MAP, OKABE_ITO
from gradflow.plot.style import GREY, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

COLOURS = dict(zip(PLACES, ("vermillion", "blue", "sky", "green", "yellow"), strict=True))
MARKED = {" ": "␣", "\n": "↵"}


def figures(config: Config, results: Results) -> list[Figure]:
    """Return the figures."""
    made = (
        f"Width {config.width}, {config.heads} heads a layer, two layers if not said otherwise; AdamW "
        f"{config.learning_rate:g}, {config.steps:,} steps of {config.batch} fresh sequences of {config.length} "
        f"characters; {config.triggers} triggers; {config.seeds} seeds."
    )
    head = "Of the head of the last layer that looks up most, at the end"
    table = {
        "table-and-look-up": (
            "The table of bigrams is learnt first, then the look-up, for which one layer is not enough",
            f"{made} Left: loss where a trigger has occurred before, which the exact posterior does not have; right: "
            "at all other characters. Dotted: loss of the exact posterior, and the least that a predictor without "
            "context can lose, on the same sequences. Faint: runs; bold: medians; bands: quartiles.",
            "Two panels of losses over steps on a log scale. Right: all curves fall to the loss of the exact posterior "
            "in tens of steps. Left: those of two layers with maps that choose fall to zero a little later, those of "
            "one layer and of uniform attention stay above.",
            draw_losses,
        ),
        "one-sequence": (
            "Where the head that looks up attends, on one sequence",
            f"{made} One run each at the end; queries downwards, keys across; rows that can be looked up are named on "
            "the left in bold. ␣ is the space, ↵ the end of a line, ● BOS, � any rarer character.",
            "Heat maps of one head for softmax, sigmoid, and softmax with BOS. Rows of triggers have their weight on "
            "the characters that followed the trigger before.",
            draw_sequence,
        ),
        "where-it-looks": (
            "At triggers the head looks at the answer; at other characters it looks elsewhere",
            f"{made} {head}; parts of a row's weight, means over rows and runs. A key that is at several places "
            "counts at the first of them. BOS: a token before the same sequences, which is their first token then.",
            "Stacked bars for each arm at the rows of triggers that have occurred before, and at rows of other "
            "characters.",
            draw_places,
        ),
        "rest": (
            "Whether it rests on the first token, and how much it adds there",
            f"{made} {head}. Left: share on the first token where nothing is to be looked up; dotted: level "
            f"{RESTING} of a sink. Middle: size of what it adds to the stream there, over that at triggers. Right: "
            "length of the first token's value over the mean of the others. Dots: runs; bars: mean and 95 % "
            "bootstrap interval.",
            "Three panels with a row for each arm: share on the first token, effort at rest, length of the first "
            "value.",
            draw_rest,
        ),
    }
    return [
        Figure(name, title, caption, alt, functools.partial(draw, config, results))
        for name, (title, caption, alt, draw) in table.items()
    ]


@styled
def draw_losses(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw losses over steps at both kinds of positions."""
    figure, axes = plot.new_figure(1, 2, height=2.9, sharey=True)
    shown = [Arm(name) for name in config.maps] + [SHALLOW]
    for arm in shown:
        steps = results[arm.stage]["step"][1:]
        for ax, name in zip(axes, ("known_loss", "other_loss"), strict=True):
            curves = runs(config, results, arm, name)[:, 1:]
            plot.bands(steps, curves, log="x", xlabel="step", label=arm.label, ax=ax, **_look(arm))
    exact = float(runs(config, results, SOFTMAX, "other_exact")[:, -1].mean())
    alone = float(runs(config, results, SOFTMAX, "known_alone")[:, -1].mean())
    plot.reference(axes[0], alone, "without context", end=True)
    plot.reference(axes[0], 0, "exact posterior")
    plot.reference(axes[1], exact, "exact posterior")
    axes[0].set(title="After a trigger seen before", ylabel="loss (nats)", ylim=(-0.12, None))
    axes[1].set(title="After other characters")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


@styled
def draw_sequence(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw the attention of the head that looks up on one sequence."""
    shown = [arm for arm in (SOFTMAX, SIGMOID, SOFTMAX_BOS) if arm in arms(config)]
    figure, axes = plot.new_figure(1, len(shown), height=2.9)
    for ax, arm in zip(np.ravel(axes), shown, strict=True):
        part, place = results[arm.stage], [found for found in arms(config) if found.stage == arm.stage].index(arm)
        weights = part["example"][place, -1, looking_head(config, results, arm)[0]]
        letters = [*map(str, part["alphabet"]), "●"]
        names = [MARKED.get(letters[token], letters[token]) for token in part["tokens"][place]]
        ax.imshow(weights, cmap=MAGNITUDE_MAP, vmin=0)
        ax.set_title(arm.label)
        ax.set_xticks(range(len(names)), names, fontsize=5)
        ax.set_yticks(range(len(names)), names, fontsize=5)
        for label, known in zip(ax.get_yticklabels(), part["looked_up"][place], strict=True):
            label.set(fontweight="bold" if known else "normal", color="black" if known else GREY)
        ax.tick_params(length=0, pad=1)
        ax.spines[:].set_visible(False)
    axes[0].set(xlabel="key", ylabel="query")
    return figure


@styled
def draw_places(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw the parts of a row's weight for every arm at both kinds of rows."""
    shown = arms(config)
    figure, axes = plot.new_figure(1, 2, height=1.1 + 0.25 * len(shown), sharey=True)
    for ax, kind, title in zip(axes, (KNOWN, OTHER), ("At triggers seen before", "At other characters"), strict=True):
        parts = np.array([of_head(config, results, arm, "share")[:, -1, kind].mean(axis=0) for arm in shown])
        _stack(ax, parts)
        ax.set(title=title, xlabel="part of the row", xlim=(0, 1), ylim=(len(shown) - 0.4, -0.6))
        ax.tick_params(axis="y", length=0)
    axes[0].set_yticks(range(len(shown)), [arm.label for arm in shown])
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(PLACES))
    return figure


@styled
def draw_rest(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw the share on the first token, the effort at rest, and the first token's value, for every arm."""
    shown = arms(config)
    figure, axes = plot.new_figure(1, 3, height=0.8 + 0.26 * len(shown), sharey=True)
    panels = (
        ("First token", "share of the row", lambda arm: share(config, results, arm, OTHER, FIRST), (-0.03, 1.03)),
        ("Adds at rest", "size over that at triggers", lambda arm: effort(config, results, arm), (0, 1.5)),
        ("First value", "length over that of others", lambda arm: of_head(config, results, arm, "value_first"), (0, 2)),
    )
    for ax, (title, label, read, limits) in zip(axes, panels, strict=True):
        for place, arm in enumerate(shown):
            dots.row(ax, read(arm)[:, -1], place, limits)
        ax.set(title=title, xlabel=label, xlim=limits, ylim=(len(shown) - 0.4, -0.9))
        ax.tick_params(axis="y", length=0)
    plot.reference(axes[0], RESTING, "sink", axis="x")
    plot.reference(axes[1], 1, "as at triggers", axis="x")
    plot.reference(axes[2], 1, "as others", axis="x")
    axes[0].set_yticks(range(len(shown)), [arm.label for arm in shown])
    return figure


def _stack(ax: "Axes", parts: np.ndarray) -> None:
    """Draw rows of parts (rows, places) as bars that end at 1."""
    ends = np.cumsum(parts, axis=1)
    for place, (name, colour) in enumerate(COLOURS.items()):
        start = ends[:, place] - parts[:, place]
        ax.barh(range(len(parts)), parts[:, place], 0.7, start, color=OKABE_ITO[colour], label=name)


def _look(arm: Arm) -> dict:
    if arm == SHALLOW:
        return {"color": OKABE_ITO["sky"], "linestyle": (0, (4, 1.5))}
    return LOOKS.get(arm.map, {"color": GREY, "linestyle": "-"})
