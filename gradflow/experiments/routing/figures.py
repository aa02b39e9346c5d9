"""Figures of the toy simulation, each with its controls beside it."""

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from gradflow import plot
from gradflow.experiments import audits
from gradflow.experiments.base import Figure, Results
from gradflow.experiments.routing import readings
from gradflow.experiments.routing.captions import texts
from gradflow.experiments.routing.config import ARMS, CLASSES, LABELS, Config
from gradflow.experiments.routing.stages import stage_name
from gradflow.plot.curves import shades
from gradflow.plot.looks import MAGNITUDE_MAP, OKABE_ITO
from gradflow.plot.style import GREY, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

LOOKS = {
    "softmax": plot.activation_look("softmax"),
    "meaningless": {"color": OKABE_ITO["orange"], "linestyle": "-"},
    "uniform": {"color": OKABE_ITO["black"], "linestyle": (0, (4, 1.5))},
    "sigmoid": plot.activation_look("sigmoid"),
}
STAGES_OF_LEARNING = {"start": 0.0, "a tenth of the fall": 0.1, "half": 0.5, "nine tenths": 0.9}
DOTTED = (0, (1, 1.2))


def figures(config: Config, results: Results) -> list[Figure]:
    """Describe every figure; nothing is drawn before it is asked for."""
    draws = {
        "heat-maps": heat_maps,
        "loss": loss,
        "sharpening": sharpening,
        "value-path": value_path,
        "advantage": advantage,
        "seeds-and-sizes": seeds_and_sizes,
        "audit": audit,
    }
    table = texts(config)
    return [Figure(name, *table[name], functools.partial(draw, config, results)) for name, draw in draws.items()]


@styled
def heat_maps(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw the weights of one sequence at five times, trained on the answers and on labels at random."""
    run, arms = results[stage_name(config.middle)], ("softmax", "meaningless")
    figure, axes = plot.new_figure(
        len(arms), len(STAGES_OF_LEARNING) + 1, height=3.1, width=plot.TWO_COLUMNS, sharex=True, sharey=True
    )
    fallen = [readings.fall_time(run["t"], run["flow_loss"][:1], part)[0] for part in STAGES_OF_LEARNING.values()]
    saves = [*(int(np.searchsorted(run["t"], t)) for t in fallen), len(run["t"]) - 1]
    images = []
    for row, arm in zip(axes, arms, strict=True):
        weights = readings.curve(config, results, "weights", arm)[0]
        for ax, save in zip(row, saves, strict=True):
            images.append(_map(ax, weights[save], run["inputs"][0, :, : config.middle], config.middle))
    for ax, name, save in zip(axes[0], [*STAGES_OF_LEARNING, "end"], saves, strict=True):
        ax.set_title(f"{name}\nt = {_time(run['t'][save])}", fontsize=8)
    for row, arm in zip(axes, arms, strict=True):
        row[0].set_ylabel(f"{'labels at random' if arm == 'meaningless' else 'answers'}\nposition i")
    figure.supxlabel("attended position j", fontsize=8)
    bar = figure.colorbar(images[0], ax=axes, label="weight A", aspect=30, pad=0.01)
    bar.outline.set_visible(False)
    return figure


def _time(t: float) -> str:
    return f"{t:,.0f}" if t >= 100 else f"{t:.3g}"


def _map(ax: "Axes", weights: np.ndarray, keys: np.ndarray, pairs: int):
    length = len(weights)
    shown = np.where(np.tril(np.ones((length, length), bool)), weights, np.nan)
    image = ax.imshow(shown, cmap=MAGNITUDE_MAP, vmin=0, vmax=1, interpolation="nearest")
    rows, columns = np.nonzero((keys @ keys[:pairs].T > 0) & (np.arange(length) >= pairs)[:, None])
    ax.plot(columns, rows, "s", markersize=2.6, markerfacecolor="none", markeredgecolor="white", markeredgewidth=0.5)
    ax.axhline(pairs - 0.5, color=GREY, linewidth=0.6)
    ticks = [0, pairs - 1, length - 1]
    ax.set(xticks=ticks, yticks=ticks, xticklabels=[str(i + 1) for i in ticks], yticklabels=[str(i + 1) for i in ticks])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return image


@styled
def loss(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw the loss at every size, of every arm, and under large steps."""
    figure, axes = plot.new_figure(1, 3, height=2.7, sharey=True)
    for pairs, look in zip(config.pairs, shades(len(config.pairs)), strict=True):
        run = results[stage_name(pairs)]
        _bands(axes[0], run["t"], run["flow_loss"], f"T = {3 * pairs}", look)
        plot.scalar(run["t"][1:], np.median(run["descent_loss"], axis=0)[1:], log="xy", dots=True, ax=axes[0], **look)
    for arm in ARMS:
        _bands(axes[1], config.ts, readings.curve(config, results, "loss", arm), LABELS[arm], LOOKS[arm])
    run = results[stage_name(config.middle)]
    for name, colour, size in (("descent", "blue", config.step_size), ("large", "vermillion", config.large_step)):
        for seed, member in enumerate(run[f"{name}_loss"]):
            drawn = np.where(np.isfinite(member) & (member < 1e9), member, np.nan)
            label = rf"descent, $\eta$ = {size:g}" if seed == 0 else None
            axes[2].plot(
                size * config.save_at[1:], drawn[1:], color=OKABE_ITO[colour], linewidth=0.8, alpha=0.7, label=label
            )
    axes[2].set(xscale="log", xlabel="time t")
    for ax, text in zip(axes, ("sizes; dots: descent", "the controls", "steps too large"), strict=True):
        plot.reference(ax, float(np.log(CLASSES)), f"log {CLASSES}: knows nothing" if ax is axes[0] else "")
        ax.set(title=text, ylim=(2e-4, 30))
        ax.legend(loc="lower left", fontsize=7)
    axes[0].set_ylabel("loss (nats)")
    return figure


def _bands(
    ax: "Axes", ts: np.ndarray, members: np.ndarray, label: str | None, look: dict[str, Any], log: str = "xy"
) -> None:
    """Draw seeds from the first save after the start, which has no place on a log axis."""
    plot.bands(ts[1:], members[:, 1:], label=label, log=log, ax=ax, **look)


def _below(ax: "Axes", height: float, name: str) -> None:
    """Write the name of a reference under it, where curves run above."""
    place = {"xy": (0.015, height), "xycoords": ax.get_yaxis_transform(), "xytext": (0, -3), "va": "top"}
    ax.annotate(name, textcoords="offset points", color=GREY, fontsize=7.5, **place)


@styled
def sharpening(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw spread and aim of attention in every arm, the speeds of routing and values, and specialisation."""
    figure, axes = plot.new_figure(2, 2, height=4.6, sharex=True)
    for arm in ARMS:
        for ax, key in ((axes[0, 0], "entropy"), (axes[0, 1], "right")):
            _bands(ax, config.ts, readings.curve(config, results, key, arm), LABELS[arm], LOOKS[arm], "x")
    axes[0, 0].set(ylabel="entropy / log i", title="spread of a question's attention", ylim=(0, 1.05))
    axes[0, 1].set(ylabel="share on the asked pair", title="aim among stored pairs", ylim=(0, 1.05))
    plot.reference(axes[0, 1], 1 / config.middle, "")
    _below(axes[0, 1], 1 / config.middle, "chance")
    speeds = (
        ("routing_norm", r"$|D|$: scores", "blue", "-"),
        ("value_norm", r"$|A^T U|$: values", "green", (0, (4, 1.5))),
    )
    for key, label, colour, line in speeds:
        look = {"color": OKABE_ITO[colour], "linestyle": line}
        _bands(axes[1, 0], config.ts, readings.curve(config, results, key), label, look)
    axes[1, 0].set(ylabel="norm of the gradient", title="scores do not fall quiet before values")
    compared = (
        ("specialisation", "the questions' classes", "blue"),
        ("specialisation_chance", "classes permuted", "orange"),
    )
    for key, label, colour in compared:
        look = {"color": OKABE_ITO[colour], "linestyle": "-" if colour == "blue" else (0, (4, 1.5))}
        _bands(axes[1, 1], config.ts, readings.curve(config, results, key), label, look, "x")
    axes[1, 1].set(ylabel="specialisation", title="positions serve one class each", ylim=(0, 1.05))
    for ax, place in zip(axes.flat, ("lower left", "upper left", "lower left", "upper left"), strict=True):
        ax.set_xlabel("time t" if ax in axes[1] else "")
        if ax is not axes[0, 1]:
            ax.legend(loc=place, fontsize=7)
    return figure


@styled
def value_path(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw the path of the values in a fixed plane, the share of that plane, and the size of the cloud."""
    figure, axes = plot.new_figure(1, 3, height=2.8, width_ratios=(1.2, 0.9, 1.1))
    _paths(config, results, axes[0])
    walks = np.quantile(readings.walk_shares(config, results, config.middle), (0.025, 0.975))
    axes[1].axhspan(*walks, color=GREY, alpha=0.2, linewidth=0)
    axes[1].annotate(
        "random walks",
        (0.02, walks[0]),
        (0, -9),
        xycoords=axes[1].get_yaxis_transform(),
        textcoords="offset points",
        color=GREY,
        fontsize=7.5,
    )
    for place, arm in enumerate(ARMS):
        shares = readings.path_shares(config, results, arm)
        spread = np.linspace(-0.2, 0.2, len(shares))
        axes[1].plot(place + spread, shares, "o", color=LOOKS[arm]["color"], markersize=2.5, alpha=0.6)
        axes[1].plot([place - 0.3, place + 0.3], [np.median(shares)] * 2, color=LOOKS[arm]["color"], linewidth=1.6)
    names = ("softmax", "random labels", "uniform", "sigmoid")
    axes[1].set(xticks=range(len(ARMS)), xticklabels=names, ylim=(0.6, 1.01), ylabel="PC1 + PC2 of the path")
    axes[1].tick_params(axis="x", length=0)
    for label in axes[1].get_xticklabels():
        label.set(rotation=40, ha="right", rotation_mode="anchor")
    axes[1].set_title("flat in every arm")
    for arm in ARMS:
        cloud = readings.curve(config, results, "participation", arm)
        _bands(axes[2], config.ts, cloud, LABELS[arm], LOOKS[arm], "x")
    axes[2].set(ylabel="participation ratio", title="dimensions of the cloud", ylim=(1, 6))
    plot.reference(axes[2], CLASSES - 1, "")
    _below(axes[2], CLASSES - 1, f"C - 1 = {CLASSES - 1}")
    axes[2].legend(loc="upper left", fontsize=7, labelspacing=0.2)
    return figure


def _paths(config: Config, results: Results, ax: "Axes") -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.colors import LogNorm

    from gradflow.diagnostics import principal_components, value_pca

    run = results[stage_name(config.middle)]
    values = readings.stored_values(config, results)[0]
    basis = principal_components(values.reshape(-1, values.shape[-1]))
    found = value_pca(values, basis)
    places, stored = np.asarray(found.coordinates), run["targets"][0, : config.middle]
    colours = [look["color"] for look in plot.member_looks(CLASSES)]
    norm = LogNorm(run["t"][1], run["t"][-1])
    for position, value in enumerate(stored):
        track = places[:, position]
        parts = np.stack([track[:-1], track[1:]], axis=1)
        drawn = LineCollection(list(parts), cmap=MAGNITUDE_MAP, norm=norm, linewidths=1.2)
        drawn.set_array(run["t"][1:])
        ax.add_collection(drawn)
        ax.plot(*track[0], "o", markersize=3.5, markerfacecolor="white", markeredgecolor=GREY, zorder=3)
        ax.plot(*track[-1], "o", markersize=5, color=colours[value], zorder=4)
    for value in np.unique(stored):
        end = places[-1, stored == value].mean(axis=0)
        look = {"textcoords": "offset points", "ha": "center", "color": colours[value], "fontsize": 8}
        ax.annotate(f"value {'ABCD'[value]}", end, (0, 7), **look)
    spread = values.reshape(-1, values.shape[-1]) - values.reshape(-1, values.shape[-1]).mean(axis=0)
    variances = np.linalg.eigvalsh(spread.T @ spread)[::-1]
    shares = variances[:2] / variances.sum()
    ax.margins(0.2)
    ax.autoscale_view()
    ax.set(xlabel=f"PC1 ({shares[0]:.0%})", ylabel=f"PC2 ({shares[1]:.0%})", title="paths of stored values")
    bar = ax.figure.colorbar(ax.collections[0], ax=ax, label="time t", aspect=25, pad=0.02)
    bar.outline.set_visible(False)


@styled
def advantage(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw what is foreseen against what is seen, and both measures of it along the runs."""
    figure, axes = plot.new_figure(2, 2, height=4.9)
    run = results[stage_name(config.middle)]
    titles = ("D through $W_Q$ and $W_K$", "the advantage alone")
    for ax, name, text in zip(axes[0], ("law", "alone"), titles, strict=True):
        dots = _scatter(ax, run, name, config.middle)
        ax.set(title=text, xlabel="foreseen change of a weight (scaled)", ylabel="observed change (scaled)")
    bar = figure.colorbar(dots, ax=list(axes[0]), label=r"$\log_{10} t$", aspect=25, pad=0.01)
    bar.outline.set_visible(False)
    correlations = (
        ("law", "D through $W_Q$, $W_K$", "blue", "-"),
        ("alone", "alone", "vermillion", "-"),
        ("alone_uncentred", "alone, no baseline", "orange", (0, (4, 1.5))),
    )
    for name, label, colour, line in correlations:
        look = {"color": OKABE_ITO[colour], "linestyle": line}
        _bands(axes[1, 0], config.ts, run[f"descent_{name}_correlation"], label, look, "x")
    axes[1, 0].set(xlabel="time t", ylabel="correlation", ylim=(-0.1, 1.08), title="foreseen and observed change")
    axes[1, 0].legend(loc="upper left", bbox_to_anchor=(0, 0.93), fontsize=7)
    laws = (
        (run["descent_law_residual"], "the law", "blue", "-"),
        (run["descent_uncentred_residual"], "no baseline E[b]", "orange", (0, (4, 1.5))),
        (run["descent_flipped_residual"], "other sign", "purple", DOTTED),
        (
            results["controls"]["sigmoid_softmax_law_residual"],
            "softmax's law on sigmoid",
            "vermillion",
            (0, (4, 1.5, 1, 1.5)),
        ),
    )
    for members, label, colour, line in laws:
        _bands(axes[1, 1], config.ts, members, label, {"color": OKABE_ITO[colour], "linestyle": line})
    axes[1, 1].set(
        xlabel="time t", ylabel="relative residual", title="only the law foresees the step", ylim=(1e-5, 1e3)
    )
    axes[1, 1].legend(loc="upper left", fontsize=7, ncols=2, columnspacing=1)
    return figure


def _scatter(ax: "Axes", run, name: str, pairs: int):
    """Draw all entries of the questions' rows at all saves of the first seed, in units of the largest of its save."""
    seen, foreseen = run["descent_observed"][0][:, pairs:], run[f"descent_{name}_change"][0][:, pairs:]
    unit = np.abs(seen).max(axis=(1, 2), keepdims=True)
    scale = unit * (np.linalg.norm(foreseen, axis=(1, 2)) / np.linalg.norm(seen, axis=(1, 2)))[:, None, None]
    kept = np.broadcast_to(np.tril(np.ones((seen.shape[-1],) * 2, bool))[pairs:], seen.shape)
    times = np.broadcast_to(np.log10(np.maximum(run["t"], run["t"][1]))[:, None, None], seen.shape)
    order = np.random.default_rng(0).permutation(int(kept.sum()))
    dots = ax.scatter(
        (foreseen / scale)[kept][order],
        (seen / unit)[kept][order],
        c=times[kept][order],
        s=3,
        cmap=MAGNITUDE_MAP,
        linewidths=0,
        rasterized=True,
    )
    ax.axline((0, 0), slope=1, color=GREY, linewidth=0.9, linestyle=(0, (1, 2)), zorder=1)
    ax.set(xlim=(-1.6, 1.6), ylim=(-1.1, 1.1))
    return dots


@styled
def seeds_and_sizes(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw where and when every run ends, one cell each."""
    figure, axes = plot.new_figure(1, 2, height=1.2 + 0.25 * len(config.pairs), sharey=True)
    ends = readings.every_size(config, results, "entropy")[..., -1]
    times = [
        readings.fall_time(config.ts, readings.curve(config, results, "loss", pairs=pairs), 0.5)
        for pairs in config.pairs
    ]
    tables = (
        (ends, "entropy / log i at the end", ".2f"),
        (np.array(times), "time of half the fall of the loss", ".0f"),
    )
    for ax, (values, title, form) in zip(axes, tables, strict=True):
        plot.heat_map(
            range(1, config.seeds + 1), [3 * pairs for pairs in config.pairs], values, xlabel="seed", form=form, ax=ax
        )
        ax.set_title(title)
    axes[0].set_ylabel("length T")
    return figure


def audit(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw the audit of the first flow at the middle size."""
    return audits.draw(audits.loaded(results[stage_name(config.middle)]))
