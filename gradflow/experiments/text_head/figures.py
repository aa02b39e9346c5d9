"""Figures: losses with their floors, what goes on inside, what attends to what, the laws."""

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from gradflow import plot
from gradflow.experiments import audits
from gradflow.experiments.base import Figure, Results
from gradflow.experiments.frame_precision.figures import PARTS
from gradflow.experiments.text_head.config import ARMS, D_K, D_V, QUANTITIES, SHOWN_FROM, Config
from gradflow.plot.looks import OKABE_ITO, SIGNED_MAP
from gradflow.plot.style import styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

LOOKS = {
    "softmax": plot.activation_look("softmax"),
    "uniform": {"color": OKABE_ITO["black"], "linestyle": (0, (4, 1.5))},
    "own": {"color": OKABE_ITO["green"], "linestyle": (0, (4, 1.5, 1, 1.5))},
    "permuted": {"color": OKABE_ITO["orange"], "linestyle": (0, (1, 1.2))},
}
LEAST = 0.03
FREQUENT = 12  # characters that are named
NAMES = {" ": "␣", "\n": "↵"}


def figures(config: Config, results: Results) -> list[Figure]:
    """Describe every figure; nothing is drawn before it is asked for.

    Args:
        config: settings of the run.
        results: of both stages.

    Returns:
        The figures, in the order of the report.
    """
    made = (
        f"Declaration of Independence, {config.seeds} runs, each with a window of {config.length} characters and a "
        f"start of its own; one causal head (d_k = {D_K}, d_v = {D_V}, weights N(0, 0.1²)) on one-hot characters "
        f"without positions, exact flow at rtol {config.rtol:g}; settings ours."
    )
    band = "Bold: medians; bands: middle half; faint: runs."
    table = {
        "loss": (
            "Attention passes the bigram of its window by learning by heart; on the next window it does not",
            f"{band} Dotted: mean entropies of the windows, and for unseen text the losses of the window's unigram and "
            f"of its smoothed bigram (k = {config.smoothing:g}); there curves go on above the panel, to a median of "
            f"{np.median(results['text']['softmax_unseen'][:, -1]):.1f} nats. {made}",
            "Three panels of losses over time. On the text attention falls far below uniform attention, and so it does "
            "on permuted characters. On the next window its loss falls, and then rises.",
            losses,
        ),
        "inside": (
            "Speeds, spread and freezing",
            f"{band} Dotted: eps = {config.epsilon:g} below left; below right the middle 95 % of the participation "
            f"ratio of random values. {made}",
            "Four panels over time: |D| and |A^T U|; the entropy of attention on the text and on permuted characters; "
            "the distances of attention, values and scores to the end; the participation ratio of the values.",
            inside,
        ),
        "characters": (
            "What the first head makes of characters",
            f"At t = {results['text']['t'][results['text']['shown']]:.0f}, where its loss on the next window is "
            "lowest. "
            "Left: the values of all characters along the first two components of their cloud; areas show how often a "
            f"character occurs, and the {FREQUENT} most frequent ones have names. Right: mean weight of a present "
            "character on another one over the weight that uniform attention gives it. ␣ is a space, ↵ a new line. "
            f"{made}",
            "Left: a scatter of letters. Right: a heat map of the ratio of attention to frequency, whose diagonal "
            "is the attention of a character to itself.",
            characters,
        ),
        "laws": (
            "Every law of the head holds along the flow",
            f"`gf.laws.audit` of the first run: largest residual of each law, and its tolerance. {made}",
            "A dot a law on a log axis, each left of its tolerance.",
            _laws,
        ),
    }
    return [Figure(name, *texts[:3], functools.partial(texts[3], config, results)) for name, texts in table.items()]


def _bands(ax: "Axes", results: Results, stage: str, name: str, look: dict[str, Any], label: str = "", log: str = "x"):
    """Draw runs from the first save after the start, which has no place on a log axis."""
    run = results[stage]
    keep = run["t"] >= min(SHOWN_FROM, run["t"][1])
    plot.bands(run["t"][keep], run[name][:, keep], label=label or None, log=log, ax=ax, **look)


@styled
def losses(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw losses on the text, on its characters permuted, and on the next window."""
    figure, axes = plot.new_figure(1, 3, height=2.9, sharey=True)
    run = results["text"]
    for ax, stage in zip(axes[:2], ("text", "permuted"), strict=True):
        for arm in ARMS:
            if f"{arm}_loss" in results[stage]:
                _bands(ax, results, stage, f"{arm}_loss", LOOKS[arm], ARMS[arm])
        for name in ("unigram", "bigram"):
            plot.reference(ax, float(results[stage][name].mean()), name)
    for arm in ("softmax", "uniform"):
        _bands(axes[2], results, "text", f"{arm}_unseen", LOOKS[arm])
    for name in ("unigram", "bigram"):
        plot.reference(axes[2], float(run[f"unseen_{name}"].mean()), name)
    for ax, text in zip(axes, ("text", "permuted characters", "next window, unseen"), strict=True):
        plot.reference(ax, float(np.log(len(run["alphabet"]))), "knows nothing")
        ax.set_title(text)
    lowest = min(results[stage]["softmax_loss"].min() for stage in results)
    axes[0].set(ylabel="loss (nats)", ylim=(lowest - 0.1, np.log(len(run["alphabet"])) + 0.5))
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


@styled
def inside(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw speeds, entropy of attention, distances to the end, and the dimensions of the values."""
    figure, axes = plot.new_figure(2, 2, height=4.8, sharex=True)
    speeds = (("routing_norm", r"$|D|$: scores", "blue"), ("value_norm", r"$|A^T U|$: values", "vermillion"))
    for name, label, colour in speeds:
        _bands(axes[0, 0], results, "text", name, {"color": OKABE_ITO[colour]}, label, log="xy")
    for stage, look, label in (("text", LOOKS["softmax"], "text"), ("permuted", LOOKS["permuted"], "permuted")):
        _bands(axes[0, 1], results, stage, "attention_entropy", look, label)
        _bands(axes[1, 1], results, stage, "softmax_participation", look, label)
    _bands(axes[1, 1], results, "text", "uniform_participation", LOOKS["uniform"], "uniform attention")
    _distances(axes[1, 0], config, results["text"])
    axes[0, 0].set(ylabel="Frobenius norm", title="how fast free parts would move")
    axes[0, 1].set(ylabel="entropy / log i", ylim=(None, 1.02), title="spread of attention")
    axes[1, 1].set(ylabel="participation ratio", title="dimensions of the values", ylim=(0.5, 14))
    for value, name in zip(
        np.quantile(results["text"]["chance_participation"], [0.025, 0.975]), ("", "random"), strict=True
    ):
        plot.reference(axes[1, 1], float(value), name, end=True)
    for ax in axes.flat:
        ax.set_xlabel("time t" if ax in axes[1] else "")
        ax.legend(loc="best", fontsize=7)
    return figure


def _distances(ax: "Axes", config: Config, run: Any) -> None:
    keep = run["t"] >= min(SHOWN_FROM, run["t"][1])
    keep[-1] = False
    for part, (name, colour) in PARTS.items():
        rows = np.maximum(run["softmax_distance"][:, QUANTITIES.index(part)][:, keep], LEAST)
        plot.bands(run["t"][keep], rows, label=name, ax=ax, color=OKABE_ITO[colour])
    plot.reference(ax, config.epsilon, "")
    ax.set(ylim=(LEAST, 1.5), ylabel="distance to the end", title="what is left to go")


@styled
def characters(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw the values of the characters, and what attends to what."""
    figure, axes = plot.new_figure(1, 2, height=3.3, width=plot.TWO_COLUMNS)
    run = results["text"]
    names = [NAMES.get(str(name), str(name)) for name in run["alphabet"]]
    ax, places, count = axes[0], run["places"], run["count"]
    most = np.argsort(-count, kind="stable")[: min(FREQUENT, int((count > 0).sum()))]
    for place, number in zip(places[count > 0], count[count > 0], strict=True):
        ax.plot(*place, "o", color=OKABE_ITO["sky"], alpha=0.5, markersize=1.2 * np.sqrt(number), markeredgewidth=0)
    for index in most:
        ax.annotate(names[index], places[index], xytext=(3, 3), textcoords="offset points", fontsize=8)
    ax.margins(0.12)
    parts = run["place_shares"]
    ax.set(xlabel=f"PC1 ({parts[0]:.0%})", ylabel=f"PC2 ({parts[1]:.0%})", title="values of the characters")
    ratio = run["attention"][np.ix_(most, most)] / np.maximum(run["frequency"][np.ix_(most, most)], 1e-12)
    labels = [names[i] for i in most]
    _heat(axes[1], np.log2(np.maximum(ratio, 2.0**-8)), labels)
    return figure


def _heat(ax: "Axes", values: np.ndarray, labels: list[str]) -> None:
    reach = np.abs(values).max() or 1.0
    image = ax.imshow(values, cmap=SIGNED_MAP, vmin=-reach, vmax=reach, interpolation="nearest")
    places = range(len(labels))
    ax.set(xticks=places, yticks=places, xticklabels=labels, yticklabels=labels)
    ax.set(xlabel="attended character", ylabel="present character", title="attention over frequency")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    bar = ax.figure.colorbar(image, ax=ax, label=r"$\log_2$ (weight / uniform)", shrink=0.85)
    bar.outline.set_visible(False)


def _laws(config: Config, results: Results) -> "MatplotlibFigure":
    return audits.draw(audits.loaded(results["text"]))
