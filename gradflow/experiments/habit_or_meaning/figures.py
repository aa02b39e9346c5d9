"""Figures: where attention rests when sequences are rearranged, what foresees the sink, what a lead moves."""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from gradflow import plot
from gradflow.experiments.base import Figure, Results
from gradflow.experiments.habit_or_meaning.config import PLAIN, POSITIONS, SETTINGS, Config
from gradflow.experiments.habit_or_meaning.readings import RULES, chance, course, foreseen, keys_read, profiles
from gradflow.experiments.habit_or_meaning.sequences import ABSENT, EXCHANGED, FIRST, LED, MOVED, TO, VARIANTS, Variant
from gradflow.plot.looks import MAGNITUDE_MAP, OKABE_ITO
from gradflow.plot.style import GREY, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

TRAINED = {FIRST: ("usual",), MOVED: ("usual", "token"), ABSENT: ("removed",)}  # what an arm has seen
TITLES = {FIRST: "BOS first", MOVED: "BOS anywhere", ABSENT: "No BOS"}  # in training
UNPLACED = ("usual", "token", "replaced", "removed")  # variants that differ where there are no positions
BRIGHT = 0.5  # share from which on letters are dark


def figures(config: Config, results: Results) -> list[Figure]:
    """Return the figures."""
    made = (
        f"Two blocks, width {config.width}, {config.heads} heads, softmax, AdamW {config.learning_rate:g}, "
        f"{config.steps:,} steps of {config.batch} fresh sequences, {config.distinct} of {config.n_symbols} symbols, "
        f"{config.seeds} seeds."
    )
    table = {
        "where-attention-rests": (
            "With positions attention goes where position 0 goes, without them only BOS draws it",
            f"{made} Share of each key in the last layer's attention after training, mean over seeds, heads, "
            f"{config.evaluated} sequences and the rows after everything that is moved. "
            "Columns: where BOS was in training; rows: where it is now. B: the token BOS; 0: the "
            "embedding of position 0; white: hidden place; framed: sequences as in training. Runs that have not learnt "
            "the task are left out.",
            "Six heat maps, rearranged sequences by places. With positions the bright cell of a row is the one of "
            "position 0, brightest where BOS is there as well; without positions it is that of BOS.",
            draw_rests,
        ),
        "what-foresees-the-sink": (
            "No lead at the start foresees the sink: the first key becomes it",
            f"{made} Trained without BOS. Heads in which a rule names the key with most of a row's attention in the "
            f"end, among {keys_read(results)}; two arms, as drawn and with positions 0 and {TO} exchanged. Score "
            "and push, minus the gradient of the loss by the score, are means over sequences at step 0; the sum is in "
            "units of their spread over keys. Diamonds and bars: share of the heads, 95 % "
            "bootstrap interval over seeds.",
            "Four rows. The three rules of a lead at the start are far below one hundred per cent; always naming the "
            "first key is far above them.",
            draw_foreseen,
        ),
        "what-a-lead-moves": (
            "Another key has the lead at the start, the first key ends as the sink",
            f"{made} Trained without BOS, from the same draws. Share of two keys in a row of the last layer that sees "
            f"{keys_read(results)} keys; the lead of {config.lead:g} in score fades linearly. Faint: runs; bold: "
            "medians; bands: quartiles.",
            "Three panels over steps. In each the first key rises to most of the attention; the other key falls to "
            "little, also where it begins with most.",
            draw_lead,
        ),
    }
    return [
        Figure(name, title, caption, alt, functools.partial(draw, config, results))
        for name, (title, caption, alt, draw) in table.items()
    ]


@styled
def draw_rests(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw heat maps of attention: rearranged sequences by places, for what was trained."""
    rows = {POSITIONS: tuple(VARIANTS), PLAIN: UNPLACED}
    ratios = [len(names) for names in rows.values()]
    figure, axes = plot.new_figure(2, 3, height=4.2, sharex=True, sharey="row", gridspec_kw={"height_ratios": ratios})
    for (stage, names), line in zip(rows.items(), axes, strict=True):
        for arm, ax in zip(SETTINGS[PLAIN].arms, line, strict=True):
            shares = profiles(results, stage, arm, names)[:, : config.task.length - 2]
            _heat(ax, shares, names, stage, arm)
    for ax, arm in zip(axes[0], SETTINGS[PLAIN].arms, strict=True):
        ax.set_title(TITLES[arm])
    for ax, kind in zip(axes[:, 0], ("with positions", "without"), strict=True):
        ax.set_ylabel(kind)
    for ax in axes[1]:
        ax.set_xlabel("place of the key")
    bar = figure.colorbar(axes[0, 0].images[0], ax=axes, shrink=0.6, label="share of the attention")
    bar.outline.set_visible(False)
    return figure


def _heat(ax: "Axes", shares: np.ndarray, names: Sequence[str], stage: str, arm: int) -> None:
    """Draw one heat map with letters where BOS and position 0 are."""
    from matplotlib.patches import Rectangle

    hidden = np.array([[key < VARIANTS[name].first for key in range(shares.shape[1])] for name in names])
    ax.imshow(np.ma.array(shares, mask=hidden), cmap=MAGNITUDE_MAP, vmin=0, vmax=1, aspect="auto")
    for place, name in enumerate(names):
        for key, letters in _letters(VARIANTS[name], stage).items():
            colour = "black" if shares[place, key] > BRIGHT else "white"
            ax.text(key, place, letters, ha="center", va="center", color=colour, fontsize=8)
        if name in TRAINED[arm]:
            frame = Rectangle((-0.5, place - 0.5), shares.shape[1], 1, fill=False, linewidth=1.6, clip_on=False)
            ax.add_patch(frame).set(edgecolor=OKABE_ITO["vermillion"], zorder=4)
    ax.set(xticks=range(shares.shape[1]), yticks=range(len(names)))
    ax.set_yticklabels([VARIANTS[name].label for name in names])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def _letters(variant: Variant, stage: str) -> dict[int, str]:
    """Return what stands at the places of a variant: BOS, position 0 or both."""
    found: dict[int, str] = {}
    for key, letter in ((variant.bos, "B"), (variant.zero if stage == POSITIONS else None, "0")):
        if key is not None:
            found[key] = found.get(key, "") + letter
    return found


@styled
def draw_foreseen(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw how often rules name the sink."""
    del config
    figure, ax = plot.new_figure(height=1.9)
    for place, (name, found) in enumerate(foreseen(results).items()):
        colour = GREY if name == "first" else OKABE_ITO["blue"]
        ax.plot([found.low, found.high], [place, place], color=colour, linewidth=1.6)
        ax.plot(found.value, place, "D", color=colour, markersize=5, markeredgewidth=0)
    plot.reference(ax, chance(results), "chance", axis="x")
    ax.set(xlabel="heads in which it becomes the sink (%)", xlim=(-3, 105), ylim=(len(RULES) - 0.5, -0.9))
    ax.set(yticks=range(len(RULES)), yticklabels=list(RULES.values()))
    ax.tick_params(axis="y", length=0)
    return figure


@styled
def draw_lead(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw the share of the first key and of another over training, for three starts."""
    figure, axes = plot.new_figure(1, 3, height=2.5, sharey=True)
    titles = {
        ABSENT: "As drawn",
        EXCHANGED: f"Positions 0 and {TO} exchanged",
        LED: f"Key {TO} led",
    }
    looks = {
        0: {"color": OKABE_ITO["blue"], "label": "first key"},
        TO: {"color": OKABE_ITO["vermillion"], "linestyle": (0, (4, 1.5)), "label": f"key {TO}"},
    }
    for ax, (arm, title) in zip(axes, titles.items(), strict=True):
        for key, look in looks.items():
            plot.bands(results[POSITIONS]["step"], course(results, arm, key), log="", xlabel="step", ax=ax, **look)
        ax.set_title(title)
        plot.reference(ax, chance(results) / 100, "uniform", end=True)
    plot.reference(axes[2], config.gone, "lead gone", axis="x")
    axes[0].set(ylabel="share of the attention", ylim=(-0.02, 1.03))
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure
