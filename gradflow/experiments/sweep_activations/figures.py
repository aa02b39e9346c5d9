"""The experiment's figures: outcomes as tables, times and entropies as heat maps, both laws with their residuals."""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gradflow import plot
from gradflow.experiments.base import Figure, Results
from gradflow.experiments.sweep_activations import readings
from gradflow.experiments.sweep_activations.captions import texts
from gradflow.experiments.sweep_activations.config import LOSSES, Config, log_slope
from gradflow.experiments.sweep_activations.readings import EXPONENTIAL, LOGISTIC, SQUARE
from gradflow.plot.curves import shades
from gradflow.plot.looks import MAGNITUDE_MAP, OKABE_ITO
from gradflow.plot.style import GREY, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

ACROSS = 5  # heat maps a row
LOSS_LOOKS = {SQUARE: ("vermillion", "o"), LOGISTIC: ("blue", "^"), EXPONENTIAL: ("green", "s")}


def figures(config: Config, results: Results) -> list[Figure]:
    """Describe every figure; nothing is drawn before it is asked for."""
    draws = {
        "outcomes": outcomes,
        "one-hot-times": one_hot_times,
        "length-law": length_law,
        "entropies": entropies,
        "condition-law": condition_law,
        "winner": winner,
    }
    table = texts(config, results)
    return [Figure(name, *table[name], functools.partial(draw, config, results)) for name, draw in draws.items()]


@styled
def outcomes(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw the share of one-hot runs, and the codes, as tables."""
    height = 1.2 + 0.22 * len(config.maps)
    figure, axes = plot.new_figure(1, 2, height=height, sharey=True, width_ratios=(3, 2))
    maps = (*config.maps, *config.sliding_maps)[::-1]
    shares = np.full((len(maps), 2 * len(LOSSES)), np.nan)
    for row, name in enumerate(maps):
        stages = ("length", "condition") if name in config.maps else ("sliding",)
        shares[row, : len(stages) * len(LOSSES)] = [
            readings.one_hot(config, results, name, loss, stage) for stage in stages for loss in range(len(LOSSES))
        ]
    columns = [f"{loss}" for _ in range(2) for loss in LOSSES]
    cells(axes[0], columns, maps, shares, (0, 1), ".2f")
    axes[0].axvline(3, color="white", linewidth=3)
    for place, text in ((1.5, "one sample"), (4.5, "many samples")):
        axes[0].annotate(text, (place, len(maps)), xytext=(0, 3), textcoords="offset points", ha="center")
    found = readings.codes(config, results)
    kinds = sorted({code for row in found.values() for code in row})
    counts = np.array([[found[name].get(kind, np.nan) for kind in kinds] for name in maps], float)
    cells(axes[1], [_CODES.get(kind, kind) for kind in kinds], maps, counts, (0, np.nanmax(counts)), ".0f")
    axes[1].annotate("flows by result", (0, len(maps)), xytext=(0, 3), textcoords="offset points")
    return figure


_CODES = {
    "successful": "horizon",
    "event_occurred": "converged",
    "nonfinite_loss": "not finite",
    "max_steps_reached": "max steps",
}


@styled
def one_hot_times(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw the time at which one weight passes a half over length and scale, one heat map a map."""
    names = readings.normalised(config)
    values = {}
    for name in names:
        times = readings.of_map(config, results, "length", "half", name, LOGISTIC)
        most = np.isfinite(times).mean(axis=-1) > 0.5
        values[name] = np.where(most, np.log10(_median(np.where(np.isfinite(times), times, np.inf))), np.nan)
    labels = ("scale of the start", "sequence length n", r"$\log_{10}$ one-hot time")
    return _small_multiples(config.scales, config.sizes, values, labels, ".1f")


@styled
def entropies(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw the final entropy over condition number and scale, one heat map a map."""
    values = {
        name: np.median(readings.relative_entropy(config, results, name, SQUARE), axis=(0, 3)) for name in config.maps
    }
    labels = ("condition number", "scale of the start", "entropy / log n")
    return _small_multiples(config.kappas, config.kappa_scales, values, labels, ".2f", (0, 1))


def _median(times: np.ndarray) -> np.ndarray:
    """Return the median over seeds, infinite where more than half never cross."""
    middle = np.sort(times, axis=-1)[..., times.shape[-1] // 2]
    return np.where(np.isfinite(middle), middle, np.nan)


def _small_multiples(
    x: Sequence[float],
    y: Sequence[float],
    values: dict[str, np.ndarray],
    labels: tuple[str, str, str],
    form: str,
    limits: Any = None,
) -> "MatplotlibFigure":
    rows = -(-len(values) // ACROSS)
    across = -(-len(values) // rows)
    figure, axes = plot.new_figure(
        rows, across, height=0.55 + 1.45 * rows, width=plot.TWO_COLUMNS, sharex=True, sharey=True, squeeze=False
    )
    every = np.concatenate([np.ravel(value) for value in values.values()])
    limits = limits or ((np.nanmin(every), np.nanmax(every)) if np.isfinite(every).any() else (0, 1))
    meshes = []
    for ax, (name, value) in zip(axes.flat, values.items(), strict=False):
        meshes.append(cells(ax, x, y, value, limits, form))
        ax.set_title(name, fontsize=8)
    for column, ax in enumerate(axes.flat):
        if column >= len(values):
            ax.set_visible(False)
            axes.flat[column - across].tick_params(labelbottom=True)
    figure.supxlabel(labels[0], fontsize=8)
    figure.supylabel(labels[1], fontsize=8)
    bar = figure.colorbar(meshes[0], ax=axes, label=labels[2], aspect=30, pad=0.01)
    bar.outline.set_visible(False)
    return figure


def cells(ax: "Axes", x: Sequence[Any], y: Sequence[Any], values: Any, limits: tuple[float, float], form: str) -> Any:
    """Draw numbers in coloured cells on given limits, so that panels share one scale; NaN is hatched.

    Args:
        ax: where.
        x: one a column.
        y: one a row, upwards.
        values: (len(y), len(x)).
        limits: of the colours.
        form: of the numbers.

    Returns:
        The mesh, for a colour bar.
    """
    values = np.asarray(values, float)
    mesh = ax.pcolormesh(values, cmap=MAGNITUDE_MAP, vmin=limits[0], vmax=limits[1], edgecolors="white", linewidth=0.5)
    ax.patch.set(hatch="////", edgecolor=GREY, linewidth=0)
    ax.set(xticks=np.arange(len(x)) + 0.5, yticks=np.arange(len(y)) + 0.5)
    ax.set_xticklabels([_label(item) for item in x])
    if any(isinstance(item, str) for item in x):
        ax.tick_params(axis="x", rotation=45)
    ax.set_yticklabels([_label(item) for item in y])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            dark = np.dot(mesh.cmap(mesh.norm(value))[:3], (0.299, 0.587, 0.114)) < 0.5
            look = {"ha": "center", "va": "center", "fontsize": 7, "color": "white" if dark else "black"}
            ax.text(column + 0.5, row + 0.5, format(value, form), **look)
    return mesh


def _label(item: Any) -> str:
    if isinstance(item, str):
        return item
    return f"$10^{{{round(np.log10(item))}}}$" if item < 0.1 and np.isclose(np.log10(item) % 1, 0) else f"{item:g}"


@styled
def length_law(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw the law of the softmax, its residual, and the slopes of other maps."""
    figure, axes = plot.new_figure(1, 3, height=2.8)
    name = config.maps[0]
    times, gaps = (readings.of_map(config, results, "length", key, name, LOGISTIC) for key in ("half", "gap"))
    constants = readings.constants(config, results, name)
    small = np.asarray(config.scales) <= readings.SMALL
    middle = float(np.nanmedian(constants[:, small]))
    for row, (size, look) in enumerate(zip(config.sizes, shades(len(config.sizes)), strict=True)):
        dots = {"marker": "o", "linestyle": "none", "color": look["color"], "markersize": 2.5, "markeredgewidth": 0}
        axes[0].loglog((size / gaps[row]).ravel(), times[row].ravel(), label=f"n = {size}", **dots)
        axes[1].loglog((size / gaps[row]).ravel(), constants[row].ravel() / middle, **dots)
    x = np.array(
        [(np.array(config.sizes)[:, None, None] / gaps).min(), (np.array(config.sizes)[:, None, None] / gaps).max()]
    )
    axes[0].loglog(x, middle * x, color=GREY, linestyle=(0, (1, 2)), zorder=1)
    stopped = readings.of_map(config, results, "length", "half", name, SQUARE)
    sizes = np.broadcast_to(np.array(config.sizes)[:, None, None], stopped.shape)
    axes[0].loglog(
        (sizes / gaps).ravel(), stopped.ravel(), "x", color=OKABE_ITO["vermillion"], markersize=3, label="square loss"
    )
    plot.reference(axes[1], 1.0, "")
    axes[0].set(xlabel="n / gap", ylabel="one-hot time t", title=f"{name}: t = c n / gap")
    axes[1].set(xlabel="n / gap", ylabel="t gap / (c n)", title=f"residual, c = {middle:.2f}", ylim=(0.3, 3))
    axes[1].set(yticks=(0.5, 1, 2), yticklabels=("0.5", "1", "2"))
    axes[1].minorticks_off()
    axes[0].legend(loc="upper left", borderaxespad=0.1, labelspacing=0.2, handletextpad=0.1)
    _slopes(config, results, axes[2])
    return figure


def _slopes(config: Config, results: Results, ax: "Axes") -> None:
    """Draw the median time over 1 / gap for each normalised map at one n, and the slope 1/k."""
    place = min(1, len(config.sizes) - 1)  # the second: at n = 4 softmax and ReLU are hard to tell apart
    for name in readings.normalised(config):
        times, gaps = (readings.of_map(config, results, "length", key, name, LOGISTIC) for key in ("half", "gap"))
        y, x = np.median(times[place], axis=-1), np.median(1 / gaps[place], axis=-1)
        reached = np.isfinite(y)
        if not reached.any():
            continue
        ax.loglog(x[reached], y[reached], marker="o", label=name, **plot.activation_look(name))
        slope = log_slope(name)
        if slope is not None and reached.sum() > 1:
            end = int(np.argmax(np.where(reached, x, 0)))
            guide = y[end] * (x / x[end]) ** (1 / slope)
            ax.loglog(x, guide, color=GREY, linestyle=(0, (1, 2)), linewidth=0.9, zorder=1)
    low, high = ax.get_ylim()
    ax.set(
        xlabel="1 / gap", ylabel=f"t at n = {config.sizes[place]}", title="other maps: slope 1/k", ylim=(low, high**1.5)
    )
    ax.legend(loc="upper left", borderaxespad=0.1, labelspacing=0.2, fontsize=7)


@styled
def condition_law(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw entropy over condition number by map, and over the lead that the clock predicts."""
    figure, axes = plot.new_figure(1, 3, height=2.9, sharey=True)
    for name in config.maps:
        entropy = np.moveaxis(readings.relative_entropy(config, results, name, SQUARE), 2, 0).reshape(
            len(config.kappas), -1
        )
        look = plot.activation_look(name)
        low, middle, high = np.quantile(entropy, (0.25, 0.5, 0.75), axis=1)
        axes[0].fill_between(config.kappas, low, high, color=look["color"], alpha=0.1, linewidth=0)
        axes[0].semilogx(config.kappas, middle, label=name, **look)
    name = config.maps[0]
    tau, gap = (results["condition"][key][config.maps.index(name)] for key in ("tau", "gap"))
    n = np.asarray(config.sizes, float)[:, None, None, None]
    for loss, (colour, marker) in LOSS_LOOKS.items():
        entropy = readings.relative_entropy(config, results, name, loss)
        kappas = np.broadcast_to(np.asarray(config.kappas)[:, None], entropy.shape)
        shift = 10 ** (0.05 * (loss - 1))
        look = {"marker": marker, "linestyle": "none", "color": OKABE_ITO[colour], "markersize": 2.2, "alpha": 0.5}
        look |= {"markeredgewidth": 0}
        axes[1].semilogx((kappas * shift).ravel(), entropy.ravel(), label=LOSSES[loss], **look)
        lead = gap[loss] * np.sinh(np.minimum(tau[loss] / n, 300))
        axes[2].loglog(lead.ravel(), entropy.ravel(), **look)
    axes[2].set(yscale="linear", xlim=(1e-3, 1e5))
    for ax in axes[:2]:
        ax.set(xlabel="condition number", xticks=config.kappas, xticklabels=[f"{k:g}" for k in config.kappas])
        ax.minorticks_off()
    axes[0].set(ylabel="final entropy / log n", title="square loss, every map", ylim=(-0.03, 1.08))
    axes[0].annotate("elementwise maps", (0.97, 0.945), xycoords="axes fraction", ha="right", fontsize=7, color=GREY)
    axes[1].set_title(f"{name}: against κ")
    axes[2].set(xlabel=r"gap $\sinh(\tau / n)$", title=f"{name}: against the clock")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower left", ncols=3, fontsize=7)
    figure.legend(*axes[1].get_legend_handles_labels(), loc="outside lower right", ncols=1, fontsize=7, markerscale=2)
    return figure


@styled
def winner(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw how often the predicted value wins, over length and over condition number."""
    figure, axes = plot.new_figure(1, 2, height=2.4, sharey=True)
    names, tailed = readings.normalised(config), (LOGISTIC, EXPONENTIAL)
    for ax, stage, ticks, axis in ((axes[0], "length", config.sizes, 2), (axes[1], "condition", config.kappas, 4)):
        where = readings.decided(config, results, stage, names, tailed)
        places = np.indices(where.shape)[axis]
        for predictor, colour, marker in (("leader", "blue", "o"), ("longest", "orange", "s")):
            rate = [readings.agreement(results, stage, predictor, where & (places == i)) for i in range(len(ticks))]
            text = "furthest along the first step" if predictor == "leader" else "longest"
            ax.plot(ticks, rate, color=OKABE_ITO[colour], marker=marker, markersize=4, label=text)
        chance = [readings.chance(config, where & (places == i)) for i in range(len(ticks))]
        ax.plot(ticks, chance, color=GREY, linestyle=(0, (1, 2)), label="chance 1/n")
        ax.set(xscale="log", xticks=ticks, xticklabels=[f"{tick:g}" for tick in ticks], ylim=(-0.03, 1.08))
        ax.minorticks_off()
    axes[0].set(xlabel="sequence length n", ylabel="share of runs won", title="one sample")
    axes[1].set(xlabel="condition number", title="many samples")
    axes[0].legend(loc="center left", bbox_to_anchor=(0, 0.6))
    return figure
