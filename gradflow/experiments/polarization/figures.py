"""The experiment's figures: the one of the README first, then the paper's panels, the clock, the laws, the controls."""

import functools
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from gradflow import plot
from gradflow.compare import Gap
from gradflow.experiments.base import Figure, Results
from gradflow.experiments.polarization.claims import GOLDEN, LOSER_GAP, at, pair_gaps, ranked
from gradflow.experiments.polarization.config import Config
from gradflow.experiments.polarization.table import laws
from gradflow.models import paper
from gradflow.plot.looks import OKABE_ITO
from gradflow.plot.style import GREY, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

LOSSES = {"logistic": "blue", "exponential": "orange", "square": "vermillion"}
END = 1e12  # of the axes of time; the flow itself goes on
XLABEL = r"time t = $\eta$ k"
THIN = 4  # every fourth save of the descent is drawn


def figures(config: Config, results: Results) -> list[Figure]:
    """Describe every figure; nothing is drawn before it is asked for.

    Args:
        config: settings of the run.
        results: of all stages.

    Returns:
        The figures, in the order of the report.
    """
    start = "Paper's setting: logistic loss on one sample, d = n = 8, seed 123, uniform scores."
    how = (
        f"{start} Lines: gradient flow at rtol {config.rtol:.0e}; dots: gradient descent, step size 0.1, on t = eta k."
    )
    horizon = f"t = {config.horizon:.0e}"
    table = {
        "hero": (
            "Softmax goes one-hot, an elementwise map does not",
            f"{how} Right: the same start, loss and horizon with s_i = sigmoid(a_i).",
            "Two panels of eight weights over time on log axes. Left, softmax: one weight rises to 1, seven fall to a "
            "few thousandths. Right, elementwise sigmoid: all eight rise together from 0.5 to 0.95.",
        ),
        "paths": (
            "One weight wins, and gaps between losers shrink again",
            f"{how} Weights s, aligned values u = V^T b*, and gaps between scores in the order of u(0). Diamonds: "
            f"reference numbers of an independent implementation. The flow goes on to {horizon}.",
            "Three panels over time. Weights: one goes to 1, the others towards 0. Aligned values: all rise, the "
            "winner's fastest. Score gaps: the leader's gaps grow without end, gaps between losers rise, peak and "
            "fall.",
        ),
        "clock": (
            "Three losses move along one curve; the square loss stops on it",
            f"{start} Flows under three losses; the square loss has targets y = "
            f"{', '.join(f'{y:g}' for y in config.targets)}. Left: entropy of s over time. Right: the same flows over "
            "the clock tau = int |g| dt; crosses: where z = y.",
            "Left: entropy over time, a different curve for each loss. Right: over the clock all curves fall on one, "
            "and the square loss ends on it at three places, later for larger targets.",
        ),
        "laws": (
            "Each law of the flow, its residual and its tolerance",
            f"{how} Left: largest residual of each law of the one-sample flow, numbered as in gf.laws; bars: "
            "tolerances. Right: residuals over time of laws that are exact and of laws that are limits; dotted: "
            "tolerances.",
            "A chart of the residual of each law against its tolerance, and curves of six residuals over time.",
        ),
        "starts": (
            "Every start goes one-hot, as slowly as 1/log² t",
            f"{config.seeds} random starts of each kind, same target, logistic flow at rtol {config.rtol:.0e}: faint "
            "lines; bold: median; band: middle half. Dotted: the law 2(n - 1)/(n log² t).",
            "1 - s_max over time for random starts: all fall along one line at late times; small starts begin later.",
        ),
        "descent-gap": (
            "Descent follows the flow at a distance linear in the step size",
            f"{start} Euclidean distance in (V, a) of descent from the flow at matched times t = eta k.",
            "Distance over time for four step sizes, parallel curves, and distance against step size on a line of "
            "slope one.",
        ),
    }
    draws = {
        "hero": hero,
        "paths": paths,
        "clock": clock,
        "laws": law_figure,
        "starts": starts,
        "descent-gap": descent_gap,
    }
    return [Figure(name, *table[name], functools.partial(draw, config, results)) for name, draw in draws.items()]


@styled
def hero(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw softmax and an elementwise sigmoid from the same start."""
    figure, (left, right) = plot.new_figure(1, 2, height=2.5, sharex=True, sharey=True)
    flow, descent, controls = results["flow"], results["descent"], results["controls"]
    draw_weights(flow["t"], flow["weights"], descent["step"], descent["weights"], left)
    draw_weights(
        controls["t"], controls["sigmoid_weights"], controls["step"], controls["sigmoid_descent_weights"], right
    )
    end = min(END, flow["t"][-1])
    left.set(xlim=(0.1, end), ylim=(1.5e-4, 1.8), ylabel="weight $s_i$", title="softmax: one weight takes all")
    right.set_title("elementwise sigmoid: no competition")
    note(left, "winner", (0.97, 0.86), OKABE_ITO["vermillion"])
    note(left, "7 others", (0.97, 0.4), "black")
    note(right, "all 8 rise together", (0.97, 0.82), "black")
    flow_and_descent(left, "lower left")
    return figure


@styled
def paths(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw the paper's two panels and the gaps between scores."""
    figure, axes = plot.new_figure(1, 3, height=2.4)
    flow, descent = results["flow"], results["descent"]
    eta = paper.logistic().step_size
    winner = int(flow["weights"][-1].argmax())
    draw_weights(flow["t"], flow["weights"], descent["step"], descent["weights"], axes[0])
    reached = [k for k in GOLDEN if k <= config.steps]
    plot.paper_value(axes[0], [eta * k for k in reached], [GOLDEN[k][1] for k in reached], "reference")
    axes[0].set(ylabel="weight $s_i$", title="one weight wins", ylim=(1.5e-4, 2))
    plot.lines(flow["t"], flow["u"], bold=winner, log="x", ylabel="aligned value $u_i$", ax=axes[1])
    plot.lines(eta * descent["step"][::THIN], descent["u"][::THIN], bold=winner, dots=True, log="x", ax=axes[1])
    visible = flow["u"][flow["t"] <= END]
    axes[1].set(title="its value grows fastest", ylim=(visible.min() - 1, visible.max() + 1))
    draw_gaps(results, axes[2])
    for ax in axes:
        ax.set(xlabel=XLABEL, xlim=(0.1, min(4 * END, flow["t"][-1])))
        few_decades(ax)
    flow_and_descent(axes[0], "lower left", "reference")
    return figure


def draw_weights(t: Any, weights: Any, step: Any, descent: Any, ax: "Axes") -> "Axes":
    """Draw weights of a flow as lines and of the paper's descent as dots."""
    winner = int(weights[-1].argmax()) if weights[-1].max() > 2 * np.median(weights[-1]) else None
    plot.lines(t, weights, bold=winner, xlabel=XLABEL, ax=ax)
    plot.lines(paper.logistic().step_size * step[::THIN], descent[::THIN], bold=winner, dots=True, xlabel=XLABEL, ax=ax)
    return ax


def draw_gaps(results: Results, ax: "Axes") -> "Axes":
    """Draw the leader's score gaps, the gaps between losers, and the recorded ones of ranks 2 and last."""
    t = results["flow"]["t"]
    gaps, pairs = pair_gaps(ranked(results)[1])
    last = pairs.max()
    for gap, (first, second) in zip(gaps.T, pairs, strict=True):
        leader, widest = first == 1, (first, second) == (2, last)
        colour = OKABE_ITO["blue"] if leader else OKABE_ITO["vermillion"] if widest else GREY
        look = {"color": colour, "linewidth": 1.8 if widest else 0.7, "zorder": 3 if widest else 2}
        plot.scalar(t, gap, log="x", ax=ax, **look)
    times = [time for time in LOSER_GAP if time <= t[-1]]
    if last == 8:
        plot.paper_value(ax, times, [LOSER_GAP[time] for time in times])
    ax.set(ylabel="score gap $a_i - a_j$", title="losers' gaps shrink again")
    note(ax, "leader to all", (0.55, 0.86), OKABE_ITO["blue"])
    note(ax, f"ranks 2 to {last}", (0.99, 0.24), OKABE_ITO["vermillion"])
    return ax


@styled
def clock(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw the entropy under three losses over time, and over the clock."""
    figure, (left, right) = plot.new_figure(1, 2, height=2.6, sharey=True)
    data = results["clock"]
    names = ["logistic", "exponential", *(f"square_{target:g}" for target in config.targets)]
    widths = dict(zip(names, (3.2, 1.4), strict=False))
    for name in names:
        look = {"color": OKABE_ITO[LOSSES[name.split("_")[0]]], "linewidth": widths.get(name, 1.4)}
        look |= {
            "linestyle": (0, (3, 1.5)) if name == "exponential" else "-",
            "label": name if name in widths else None,
        }
        plot.scalar(data[f"{name}_t"], data[f"{name}_entropy"], log="x", ax=left, **look)
        plot.scalar(data[f"{name}_tau"], data[f"{name}_entropy"], log="", ax=right, **look)
    for target in config.targets:
        name = f"square_{target:g}"
        end = (data[f"{name}_tau"][-1], data[f"{name}_entropy"][-1])
        right.plot(*end, "X", color=OKABE_ITO["vermillion"], markersize=7, zorder=5)
        look = {"color": OKABE_ITO["vermillion"], "ha": "right", "va": "top"}
        right.annotate(f"y = {target:g}", end, xytext=(-5, -3), textcoords="offset points", **look)
    left.plot([], [], color=OKABE_ITO["vermillion"], label="square")
    left.legend(loc="center right", bbox_to_anchor=(1, 0.6))
    for ax in (left, right):
        plot.reference(ax, np.log(results["flow"]["u"].shape[1]), "")
    note(left, "equal weights", (0.98, 0.985), GREY)
    note(right, "crosses: square loss\nends where z = y", (0.97, 0.6), OKABE_ITO["vermillion"])
    left.set(
        xlim=(0.1, END),
        ylim=(-0.05, 2.25),
        ylabel="entropy of s (nats)",
        xlabel="time t",
        title="over time: three stories",
    )
    few_decades(left)
    right.set(
        xlim=(0, min(60, data["logistic_tau"][-1])),
        xlabel=r"clock $\tau = \int |g|\,dt$",
        title="over the clock: one curve",
    )
    return figure


@styled
def law_figure(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw the residual of each law against its tolerance, and some of them over time."""
    figure, axes = plot.new_figure(1, 2, height=4.4, gridspec_kw={"width_ratios": [1, 1.1]})
    table = laws(results)
    tested = [law for law in table if law.residual.size]
    plot.residuals(
        [law.name for law in tested], [law.worst for law in tested], [law.tolerance for law in tested], ax=axes[0]
    )
    for label in axes[0].get_yticklabels():
        label.set_horizontalalignment("left")
    axes[0].tick_params(axis="y", pad=112)
    draw_residuals(results, axes[1])
    return figure


def draw_residuals(results: Results, ax: "Axes") -> "Axes":
    """Draw residuals over time: conserved quantities and identities at rounding, the orbit, and two limits."""
    data = results["laws"]
    curves = [
        ("11: $tL - 1$", data["t"], data["loss_decay"], "vermillion"),
        ("12: $W^2 (1 - s_{max})$", data["t"], data["polarization_constant"], "orange"),
        ("7: one orbit", data["t"], results["clock"]["logistic_gap"], "green"),
        (r"1: $\Sigma a_i$", data["t"], data["score_sum"], "blue"),
        (r"4: $V_\perp$", data["t"], data["perpendicular_values"], "sky"),
        (r"5: $\dot L$", data["t"], data["loss_dissipation"], "purple"),
    ]
    start = data["t"] >= 1
    for _, t, values, colour in curves:
        size = np.where(values == 0, np.nan, np.abs(values))
        plot.scalar(t[start], size[start], color=OKABE_ITO[colour], linewidth=1, ax=ax)
    for tolerance, colour in ((2e-2, "vermillion"), (1e-8, "green"), (1e-10, "purple"), (1e-12, "blue")):
        ax.axhline(tolerance, color=OKABE_ITO[colour], linestyle=(0, (1, 2)), linewidth=0.9)
    note(ax, "dotted: tolerance in the law's colour", (0.03, 0.985), GREY, "left")
    ax.set(xlim=(1, data["t"][-1]), ylim=(1e-18, 1e3), ylabel="residual", xlabel="time t")
    few_decades(ax)
    ends = [(t[-1], np.abs(values[-5:]).max()) for _, t, values, _ in curves]
    plot.label_ends(ax, ends, [curve[0] for curve in curves], [OKABE_ITO[curve[3]] for curve in curves])
    return ax


@styled
def starts(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw 1 - s_max of every random start, and the law that all end on."""
    figure, ax = plot.new_figure(width=4.6, height=2.8)
    data, keep = results["starts"], results["starts"]["t"] >= 1
    n = results["flow"]["u"].shape[1]
    t = data["t"][keep]
    for rule, colour in (("uniform", "blue"), ("small", "orange")):
        plot.bands(t, data[f"{rule}_others"][:, keep], color=OKABE_ITO[colour], ax=ax)
    late = t >= 1e5
    ax.plot(t[late], 2 * (n - 1) / n / np.log(t[late]) ** 2, color=GREY, linestyle=(0, (1, 2)), linewidth=1.4)
    few_decades(ax)
    ax.set(ylabel="$1 - s_{max}$", xlabel="time t", xlim=(1, t[-1]), ylim=(5e-4, 1.5))
    note(ax, "values 0.1,\nequal scores", (0.015, 0.42), OKABE_ITO["blue"], "left")
    note(ax, "values and scores 0.001", (0.31, 0.86), OKABE_ITO["orange"], "left")
    note(ax, r"law $2(n-1)/(n \log^2 t)$", (0.32, 0.14), GREY, "left")
    return figure


@styled
def descent_gap(config: Config, results: Results) -> "MatplotlibFigure":
    """Draw the distance of descent from the flow over time, and against the step size."""
    figure, (left, right) = plot.new_figure(1, 2, height=2.4, sharey=True)
    data = results["gap"]
    keep = np.flatnonzero(data["t"] > 0)[::THIN]
    t, distances = jnp.asarray(data["t"][keep]), jnp.asarray(data["distance"][:, keep])
    gaps = {float(size): Gap(t, row, row) for size, row in zip(data["step_size"], distances, strict=True)}
    plot.gaps(gaps, ax=left)
    few_decades(left)
    times = [time for time in (1e3, 1e4, 1e5) if time <= data["t"][-1]] or [data["t"][-1]]
    for time, size in zip(times, (10, 7, 4), strict=False):
        name = f"t = $10^{{{np.log10(time):.0f}}}$"
        look = {"marker": "o", "linestyle": "none", "fillstyle": "none", "color": "black", "markersize": size}
        right.plot(data["step_size"], data["distance"][:, at(data["t"], time)], label=name, **look)
    sizes = np.sort(data["step_size"])
    slope = data["distance"][0, at(data["t"], times[-1])] / data["step_size"][0]
    right.loglog(sizes, slope * sizes, color=GREY, linestyle=(0, (1, 2)), label="slope 1")
    right.set(xlabel=r"step size $\eta$", xticks=sizes, xticklabels=[f"{size:g}" for size in sizes])
    right.minorticks_off()
    right.legend(loc="lower right")
    left.set_title("over time")
    right.set_title("against the step size")
    return figure


def note(ax: "Axes", text: str, place: tuple[float, float], colour: str, align: str = "right") -> None:
    """Write a label at a place in the axis, in fractions of it."""
    ax.text(*place, text, transform=ax.transAxes, color=colour, ha=align, va="center", fontsize=8)


def few_decades(ax: "Axes") -> None:
    """Put ticks of a logarithmic time axis at every fourth or fifth decade."""
    from matplotlib.ticker import LogLocator, NullLocator

    ax.xaxis.set_major_locator(LogLocator(numticks=6))
    ax.xaxis.set_minor_locator(NullLocator())


def flow_and_descent(ax: "Axes", place: Any, *more: str) -> None:
    """Add the legend that says what lines and dots are."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color="black", label="flow"),
        Line2D([], [], color="black", marker="o", linestyle="none", label="descent"),
    ]
    handles += [
        Line2D([], [], color="black", marker="D", fillstyle="none", linestyle="none", label=name) for name in more
    ]
    ax.legend(handles=handles, loc=place)
