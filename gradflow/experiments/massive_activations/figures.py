"""Figures: the course of norms while a sink forms, norms by layer and token, and every kind of model at the end."""

import functools
from typing import TYPE_CHECKING

from gradflow import plot
from gradflow.experiments import dots
from gradflow.experiments.base import Figure, Results
from gradflow.experiments.massive_activations.claims import BARE, BLIND, USUAL
from gradflow.experiments.massive_activations.config import NAMES, RELATIVE, Config
from gradflow.experiments.massive_activations.numbers import curves
from gradflow.experiments.massive_activations.stages import stage_name
from gradflow.plot.looks import OKABE_ITO
from gradflow.plot.style import GREY, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

LOOKS = {
    USUAL: {"color": OKABE_ITO["blue"], "linestyle": "-"},
    BARE: {"color": OKABE_ITO["vermillion"], "linestyle": (0, (4, 1.5))},
    BLIND: {"color": GREY, "linestyle": (0, (1, 1.5))},
}
SHARES, RATIOS, PEAKS = (-0.03, 1.05), (0.1, 10.0), (1.0, 2.0 * RELATIVE)
PANELS = {
    "on_bos": ("Attention on BOS", "share", SHARES),
    "state_ratio": ("State of BOS", "norm / others'", RATIOS),
    "peak_ratio": ("Its largest entry", "size / median of the layer", PEAKS),
    "value_ratio": ("Value of BOS", "norm / others'", RATIOS),
}


def figures(config: Config, results: Results) -> list[Figure]:
    """Return the figures."""
    deep = config.depths[-1]
    made = (
        f"Induction task of {config.distinct} of {config.symbols} symbols; width {config.width}, {config.heads} "
        f"heads; AdamW {config.learning_rate:g}, {config.steps:,} steps of {config.batch} fresh sequences; "
        f"{config.seeds} seeds."
    )
    read = (
        "Attention on BOS and norm of its value: of the layer that attends to it most; norm of its hidden state and "
        "its largest activation: of the layer where they are largest. Norms are over the median of the other tokens'."
    )
    table = {
        "course": (
            "The sink forms, and the state of BOS does not grow with it",
            f"{made} {deep} layers. Lines: medians; bands: quartiles of the runs. {read}",
            "Four panels over steps for softmax with and without normalisation and for uniform attention: attention on "
            "BOS rises for softmax only; the norm of the state of BOS over the others stays near one for softmax.",
            functools.partial(draw_course, config, results, deep),
        ),
        "norms": (
            "Norms of hidden states by layer and token, before and after training",
            f"{made} {deep} layers; means over sequences and runs. Layer 0 is the embedding. Colours are "
            "logarithmic and span at least a decade.",
            "Heat maps of norms by layer and token for three kinds of models, untrained above and trained below.",
            functools.partial(draw_norms, config, results, deep),
        ),
    } | {
        f"kinds-{depth}-layers": (
            f"What takes the sink away, and what the norms do, with {depth} layers",
            f"{made} At the end. Dots: runs; bars: mean and 95 % bootstrap interval. {read} Dotted: as large as "
            f"others, and {RELATIVE:,} times the median, from where an activation is massive.",
            "Four panels with a row for each kind of model: attention on BOS, norm of its state, its largest "
            "activation and norm of its value.",
            functools.partial(draw_kinds, config, results, depth),
        )
        for depth in config.depths
    }
    return [Figure(name, title, caption, alt, draw) for name, (title, caption, alt, draw) in table.items()]


@styled
def draw_course(config: Config, results: Results, depth: int) -> "MatplotlibFigure":
    """Draw accuracy, attention on BOS and its norms over steps."""
    figure, axes = plot.new_figure(1, 4, height=2.3)
    steps = results[stage_name(depth)]["step"]
    shown = [arm for arm in LOOKS if arm in config.arms]
    panels = {"accuracy": ("Accuracy", "accuracy", SHARES)} | {
        n: PANELS[n] for n in ("on_bos", "state_ratio", "value_ratio")
    }
    for ax, (reading, (title, label, limits)) in zip(axes, panels.items(), strict=True):
        log = "y" if limits is RATIOS else ""
        for arm in shown:
            members = curves(config, results, depth, arm)[reading]
            plot.bands(steps, members, log=log, xlabel="step", label=NAMES[arm], ax=ax, **LOOKS[arm])
        ax.set(title=title, ylabel=label, ylim=limits)
        if log:
            plot.reference(ax, 1, "")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(shown))
    return figure


@styled
def draw_norms(config: Config, results: Results, depth: int) -> "MatplotlibFigure":
    """Draw norms of hidden states by layer and token, untrained above and trained below."""
    shown = [arm for arm in LOOKS if arm in config.arms]
    figure, axes = plot.new_figure(2, len(shown), height=3.4, squeeze=False)
    norms = results[stage_name(depth)]["state_norm"]
    tokens = ["BOS", *range(1, norms.shape[-1] - 1), "?"]
    for column, arm in enumerate(shown):
        for line, (save, when) in enumerate(((0, "untrained"), (-1, "trained"))):
            ax = axes[line, column]
            plot.norms(norms[config.arms.index(arm), :, save].mean(axis=0), tokens, ax=ax)
            ax.set(title=f"{NAMES[arm]}, {when}")
    return figure


@styled
def draw_kinds(config: Config, results: Results, depth: int) -> "MatplotlibFigure":
    """Draw attention on BOS and its norms for every kind of model at the end."""
    figure, axes = plot.new_figure(1, len(PANELS), height=0.8 + 0.28 * len(config.arms), sharey=True)
    for ax, (reading, (title, label, limits)) in zip(axes, PANELS.items(), strict=True):
        for place, arm in enumerate(config.arms):
            dots.row(ax, curves(config, results, depth, arm)[reading][:, -1], place, limits)
        ax.set(title=title, xlabel=label, xlim=limits, ylim=(len(config.arms) - 0.4, -0.9))
        ax.tick_params(axis="y", length=0)
        if limits is not SHARES:
            ax.set_xscale("log")
            plot.reference(ax, *((1, "as others") if limits is RATIOS else (RELATIVE, "massive")), axis="x")
    axes[0].set(yticks=range(len(config.arms)), yticklabels=[NAMES[arm] for arm in config.arms])
    return figure
