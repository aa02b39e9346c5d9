"""Where routing freezes before values, where not, and how much of it is the yardstick."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

from gradflow.diagnostics import spearman
from gradflow.experiments.base import Claim, Results, judge
from gradflow.experiments.frame_precision.config import ARMS, FREE, MAIN, MAPS, QUANTITIES, Config
from gradflow.experiments.frame_precision.readings import row_times
from gradflow.experiments.intervals import Interval, median, share
from gradflow.experiments.sequences import TASKS

PAPER = "arXiv 2512.22473, frame-precision dissociation; no number is given"
EXACT = 1e-10
MOSTLY = 80.0  # percent of the runs
SAME = 2.0  # factor within which two ratios count as equal
BROAD = 0.5  # largest weight below which a row is broad
ROUTED = tuple(name for name in MAPS if name != "uniform")


def claims(config: Config, results: Results) -> list[Claim]:
    """Judge every claim."""
    judges = (_first, _horizon, _yardstick, _cause, _rates, _maps, _bound, _sharp, _forces)
    return [judge_claim(config, results) for judge_claim in judges]


def chosen(results: Results, stage: str, arm: str = MAIN, task: int | None = None) -> np.ndarray:
    """Return which runs of a stage belong to an arm, and to a task if one is given."""
    run = results[stage]
    kept = run["of_arm"] == (list(ARMS).index(arm) if stage == "softmax" else 0)
    return kept if task is None else kept & (run["of_task"] == task)


def moved(config: Config, results: Results, stage: str, level: int | None = None) -> np.ndarray:
    """Return in which runs routing goes beyond twice the level by each horizon: no other can freeze."""
    epsilon = config.epsilons[config.level if level is None else level]
    return results[stage]["way"] > 2 * epsilon


def finished(results: Results, stage: str) -> np.ndarray:
    """Return which runs have reached the last horizon."""
    return np.isfinite(results[stage]["way"][:, -1])


def times(config: Config, results: Results, stage: str, part: str, level: int | None = None) -> np.ndarray:
    """Return the freezing times (runs, horizon) of a quantity."""
    return results[stage]["tau"][:, QUANTITIES.index(part), :, config.level if level is None else level]


def ratios(
    config: Config, results: Results, stage: str, later: str = "values", earlier: str = "attention", **which
) -> np.ndarray:
    """Return the ratio (runs, horizon) of two freezing times, NaN where routing hardly moves."""
    level = which.pop("level", None)
    tau = [times(config, results, stage, part, level) for part in (later, earlier)]
    ratio = np.where(moved(config, results, stage, level), tau[0] / np.maximum(tau[1], np.finfo(float).tiny), np.nan)
    return ratio[chosen(results, stage, **which)]


def above(ratio: np.ndarray) -> Interval:
    """Return in how many percent of the runs that count a ratio is above 1."""
    ratio = ratio.reshape(len(ratio), -1)
    return share((ratio > 1).sum(axis=1), np.isfinite(ratio).sum(axis=1))


def _by_horizon(config: Config, values) -> str:
    return ", ".join(f"{value:.3g} (t = {t:.0e})" for value, t in zip(values, config.horizons, strict=True))


def _first(config: Config, results: Results) -> Claim:
    shares = {part: above(ratios(config, results, "softmax", part)) for part in ("values", "w_v")}
    by_task = {
        name: above(ratios(config, results, "softmax", task=index)).value for index, name in enumerate(config.tasks)
    }
    levels = [above(ratios(config, results, "softmax", level=level)).value for level in range(len(config.epsilons))]
    listed = ", ".join(f"{TASKS[name]} {value:.0f} %" for name, value in by_task.items())
    cut, idle = _share(results, np.isnan), _share(results, lambda way: way <= 2 * config.epsilons[config.level])
    return Claim(
        "routing-first",
        "Routing freezes before values: tau_V / tau_A > 1.",
        PAPER,
        f"tau_V > tau_A in {shares['values']:.0f} % of runs and horizons for V = X W_V, {shares['w_v']:.0f} % for W_V; "
        f"by task: {listed}; by level "
        + ", ".join(f"{value:.0f} % (eps = {eps:g})" for eps, value in zip(config.epsilons, levels, strict=True)),
        judge(*(value.low > MOSTLY for value in shares.values()), min(by_task.values()) > MOSTLY),
        f"left out: runs too stiff to reach the last horizon, {cut:.0f} %, and runs whose attention goes less than "
        f"2 eps, {idle:.0f} %; labels "
        "that nothing predicts freeze like any other: it takes no structure to route by",
    )


def _share(results: Results, which: Callable[[np.ndarray], np.ndarray]) -> float:
    return float(100 * which(results["softmax"]["way"][chosen(results, "softmax"), -1]).mean())


def _horizon(config: Config, results: Results) -> Claim:
    ratio = ratios(config, results, "softmax")
    middle = [median(column).value for column in ratio.T]
    part = times(config, results, "softmax", "values")[chosen(results, "softmax")] / np.asarray(config.horizons)
    decayed = [median(column).value for column in ratios(config, results, "softmax", arm="weight decay").T]
    slope = _slope(config, times(config, results, "softmax", "values")[chosen(results, "softmax")])
    route = _slope(config, times(config, results, "softmax", "attention")[chosen(results, "softmax")])
    return Claim(
        "not-the-horizon",
        "tau_V / tau_A is a property of the run, not of when one stops looking.",
        f"{PAPER}; the end of training is taken as the end",
        f"the same flows, median tau_V / tau_A: {_by_horizon(config, middle)}; the values freeze at "
        + _by_horizon(config, np.nanmedian(part, axis=0))
        + f" of whatever horizon, tau_V ~ horizon^{slope:.2f}, tau_A ~ horizon^{route:.2f}",
        judge(max(middle) / min(middle) < SAME),
        "separable data have no finite optimum and the values grow like log t for ever; with weight decay, which gives "
        f"them one, the ratio is {_by_horizon(config, decayed)}",
    )


def _slope(config: Config, tau: np.ndarray) -> float:
    """Return the median exponent of freezing times as a power of the horizon."""
    ends = np.log(np.maximum(tau[:, [0, -1]], config.ts[1]))
    return float(np.nanmedian((ends[:, 1] - ends[:, 0]) / np.log(config.horizons[-1] / config.horizons[0])))


def _yardstick(config: Config, results: Results) -> Claim:
    by_task = [above(ratios(config, results, "softmax", earlier="scores", task=k)) for k in range(len(config.tasks))]
    ratio = ratios(config, results, "softmax", earlier="scores")
    way = above(ratios(config, results, "softmax", earlier="attention_way"))
    listed = ", ".join(f"{TASKS[name]} {x:.0f} %" for name, x in zip(config.tasks, by_task, strict=True))
    return Claim(
        "same-yardstick",
        "Routing freezes first also when scores and values are measured alike, as a part of the whole way.",
        "Not in the paper, whose weights are bounded and whose values are not",
        f"tau_V > tau_S in {above(ratio):.0f} % of runs and horizons, median tau_V / tau_S {median(ratio):.2f}; by "
        f"task: {listed}; with the weights as a part of their way {way:.0f} %",
        judge(*(value.low > 50 for value in by_task)),
        f"the paper's yardsticks on the same flows: {above(ratios(config, results, 'softmax')):.0f} %",
    )


def _cause(config: Config, results: Results) -> Claim:
    kept = {name: chosen(results, name) for name in ("softmax", "uniform")}
    horizons = np.asarray(config.horizons)
    part = {name: times(config, results, name, "values")[k] / horizons for name, k in kept.items()}
    quotient = np.nanmedian(part["softmax"]) / np.nanmedian(part["uniform"])
    return Claim(
        "frozen-routing-frees-values",
        "Values go on moving because routing has frozen.",
        PAPER,
        "values freeze at "
        + _by_horizon(config, np.nanmedian(part["softmax"], axis=0))
        + f" of the horizon with softmax attention; pooled {median(part['softmax']):.2f}",
        judge(bool(quotient > SAME)),
        "uniform attention, which never moves: "
        + _by_horizon(config, np.nanmedian(part["uniform"], axis=0))
        + f", pooled {median(part['uniform']):.2f}; values refine as long as there is a loss, with or without routing",
    )


def _rates(config: Config, results: Results) -> Claim:
    arms = {arm: ratios(config, results, "softmax", arm=arm) for arm in ARMS} | {FREE: ratios(config, results, FREE)}
    alike = above(ratios(config, results, FREE, earlier="scores"))
    listed = "; ".join(
        f"{name}: {above(ratio):.0f} % of runs, median ratio {median(ratio):.2g}" for name, ratio in arms.items()
    )
    return Claim(
        "not-the-rates",
        "Routing freezes first whatever the rates of routing and values.",
        "arXiv 2512.22473, two time scales",
        listed,
        judge(*(above(ratio).low > MOSTLY for ratio in arms.values())),
        "free scores and free values move at one rate with nothing between them and the loss; on one yardstick values "
        f"freeze last in {alike:.0f} % of those runs",
    )


def _maps(config: Config, results: Results) -> Claim:
    shares = {name: above(ratios(config, results, name)) for name in ROUTED}
    others = [name for name in ROUTED if name != "softmax"]
    return Claim(
        "every-map",
        "Routing freezes first whatever the map from scores to weights.",
        "Not in the paper, which has the softmax",
        "; ".join(
            f"{name}: {value:.0f} % of runs and horizons, median ratio {median(ratios(config, results, name)):.2g}"
            for name, value in shares.items()
        ),
        judge(*(shares[name].low > MOSTLY for name in others)),
        "maps that do not compete or stay broad have no sharp rows to freeze; uniform attention has no routing",
    )


def _bound(config: Config, results: Results) -> Claim:
    run = results["softmax"]
    excess, tight = float(run["excess"].max()), float(run["tightness"].max())
    return Claim(
        "freezing-bound",
        "|D_i|_1 <= 2 (1 - A_ij*) max_j |b_ij - b_ij*| in every row.",
        "Derived from the routing law of arXiv 2512.22473",
        f"{run['excess'].size} runs, {len(config.ts)} saves and {config.length} rows each: largest excess {excess:.0e} "
        "of the bound",
        judge(excess < EXACT),
        f"it is not idle: a row takes up to {100 * tight:.0f} % of it, so half the bound would be exceeded",
    )


def rows(config: Config, results: Results) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return largest weights and freezing times of the rows (runs, T) of softmax heads, and which rows move.

    Times are over tau_V of their run, at the last horizon.
    """
    kept = chosen(results, "softmax") & finished(results, "softmax")
    run, epsilon = results["softmax"], config.epsilons[config.level]
    tau = row_times(config.ts, run["row_distance"][kept], epsilon)
    values = times(config, results, "softmax", "values")[kept, -1]
    return run["row_largest"][kept], tau / values[:, None], run["row_distance"][kept][:, 0] > 2 * epsilon


def _sharp(config: Config, results: Results) -> Claim:
    largest, late, moving = rows(config, results)
    rank = median(
        np.asarray(spearman(jnp.asarray(largest), jnp.asarray(late), where=jnp.asarray(moving)))[moving.sum(axis=1) > 3]
    )
    broad = moving & (largest < BROAD)
    early = {name: share(((late < 1) & which).sum(axis=1), which.sum(axis=1)) for name, which in _kinds(broad, moving)}
    return Claim(
        "needs-sharp-rows",
        "A row freezes before the values because it is sharp.",
        PAPER,
        f"rank correlation of a row's largest weight at the end and its freezing time, by run: {rank:.2f}; rows that "
        f"freeze before tau_V: {early['sharp']:.0f} % of sharp ones, {early['broad']:.0f} % of broad ones (largest "
        f"weight below {BROAD:g})",
        judge(rank.high < 0, early["broad"].high < 50),
        "broad rows are the control: they freeze as the loss runs out, which slows D and A^T U alike, and the weights "
        "of a row can go no further than 1",
    )


def forces(config: Config, results: Results, task: int) -> Interval:
    """Return by what factor |D| / |A^T U| changes from the first horizon to the last, the median of a task's runs."""
    run, kept = results["softmax"], chosen(results, "softmax", task=task) & finished(results, "softmax")
    ratio = (run["routing_norm"] / run["value_norm"])[kept]
    return median(ratio[:, -1] / ratio[:, int(np.searchsorted(config.ts, config.horizons[0]))])


def _forces(config: Config, results: Results) -> Claim:
    factors = {name: forces(config, results, index) for index, name in enumerate(config.tasks)}
    return Claim(
        "forces-part-ways",
        "While routing freezes |D| vanishes and |A^T U| keeps its size: |D| / |A^T U| falls.",
        PAPER,
        f"from t = {config.horizons[0]:.0e} to {config.horizons[-1]:.0e} the ratio changes by a factor of "
        + ", ".join(f"{value:.2g} ({TASKS[name]})" for name, value in factors.items()),
        judge(*(value.high < 1 for value in factors.values())),
        "tau_A < tau_V in every one of these tasks: where the ratio rises, attention is near its end because its rows "
        "are bounded, and not because its force has gone first",
    )


def _kinds(broad: np.ndarray, moving: np.ndarray) -> tuple[tuple[str, np.ndarray], ...]:
    return ("broad", broad), ("sharp", moving & ~broad)
