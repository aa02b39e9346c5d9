"""What the one-sample theory says about real data, and whether it does."""

import numpy as np

from gradflow.experiments.base import Claim, Results, judge
from gradflow.experiments.intervals import rank_correlation
from gradflow.experiments.real_data.config import MAPS, SIZE, TASKS, Config
from gradflow.experiments.real_data.stages import DESCENT_TASK

ONE_HOT = 0.95
TOLERANCE = 1e-6  # drift of the invariants at rtol 1e-7
SCORE_SUM = 1e-11  # of the sum of scores, which any Runge-Kutta step conserves
WORTH = 0.02  # of accuracy or R^2 on test data
SOFTMAX, SIGMOID, FROZEN = MAPS.index("softmax"), MAPS.index("sigmoid"), MAPS.index("uniform")
REGRESSIONS = tuple(name for name, task in TASKS.items() if task.loss == "square")
SEPARABLE = tuple(name for name, task in TASKS.items() if task.separable)
OVERLAPPING = tuple(name for name in TASKS if name not in SEPARABLE + REGRESSIONS)


def claims(config: Config, results: Results) -> list[Claim]:
    """Judge every claim."""
    judges = (separable, overlapping, regression, clock, elementwise, prediction, winners, conserved, descent)
    return [judge_claim(config, results) for judge_claim in judges]


def largest(results: Results, task: str, map_index: int = SOFTMAX, row: int = -1) -> np.ndarray:
    """Return the largest share of each start."""
    return results[task]["shares"][map_index, row].max(axis=-1)


def _listed(names, value, form: str = ".3f") -> str:
    return "; ".join(f"{TASKS[name].title} {value(name):{form}}" for name in names)


def _range(results: Results, config: Config, name: str) -> str:
    shares = largest(results, name)
    return (
        f"{TASKS[name].title} {np.median(shares):.3f} ({shares.min():.3f} to {shares.max():.3f}) at t = "
        f"{config.horizon(name):.0e}"
    )


def separable(config: Config, results: Results) -> Claim:
    """Judge polarization on separable data."""
    return Claim(
        "separable-data-polarize",
        "on separable data with many samples the softmax goes one-hot",
        "the theorem has one sample; extended here",
        f"largest weight, median and range of {2 * config.seeds} starts: "
        + "; ".join(_range(results, config, name) for name in SEPARABLE)
        + ". It takes time: smallest of the starts at a tenth of the horizon "
        + _listed(SEPARABLE, lambda name: earlier(results, name)),
        judge(*(largest(results, name).min() > ONE_HOT for name in SEPARABLE)),
        f"uniform is {1 / SIZE:g}; the elementwise sigmoid ends at "
        + f"{max(largest(results, name, SIGMOID).max() for name in SEPARABLE):.3f} at most",
    )


def earlier(results: Results, task: str) -> float:
    """Return the smallest of the starts' largest shares at a tenth of the horizon."""
    ts = results[task]["t"]
    return float(largest(results, task, row=int(np.abs(ts - ts[-1] / 10).argmin())).min())


def overlapping(config: Config, results: Results) -> Claim:
    """Judge polarization on data that no hyperplane separates."""
    excess = {name: np.median(results[name]["loss"][SOFTMAX, -1]) / results[name]["floor"] - 1 for name in OVERLAPPING}
    return Claim(
        "overlapping-data-polarize",
        "classification data that no hyperplane (through the origin) separates still make the softmax one-hot",
        "not treated; the minimiser is finite there, and so is the clock",
        "largest weight: "
        + "; ".join(_range(results, config, name) for name in OVERLAPPING)
        + f"; loss above the minimum: {_listed(OVERLAPPING, excess.get, '.1%')}. Both runs are cut where explicit "
        "steps get "
        "expensive",
        judge(*(largest(results, name).min() > ONE_HOT for name in OVERLAPPING)),
        "the clock at the end: "
        + _listed(OVERLAPPING, lambda name: np.median(results[name]["clock"][SOFTMAX, -1]), ".1f")
        + ", gaining "
        + _listed(OVERLAPPING, lambda name: clock_gain(results, name), ".2f")
        + " at the cut while t grows by a factor e; wine 0 becomes one-hot at about 35, so digits stops or is cut "
        "before",
    )


def clock_gain(results: Results, task: str) -> float:
    """Return how much the clock grows at the end of the run while t grows by a factor e."""
    run = results[task]
    gained = np.median(run["clock"][SOFTMAX, -1] - run["clock"][SOFTMAX, -5])
    return float(gained / np.log(run["t"][-1] / run["t"][-5]))


def regression(config: Config, results: Results) -> Claim:
    """Judge that regression polarizes partly."""
    ends = {name: np.median(largest(results, name)) for name in REGRESSIONS}
    left = {name: np.median(results[name]["loss"][SOFTMAX, -1]) / results[name]["floor"] - 1 for name in REGRESSIONS}
    return Claim(
        "regression-stops-early",
        "under the square loss the clock is finite, and weights separate only a little",
        "square loss and condition numbers, section 4",
        "median largest weight: "
        + "; ".join(f"{TASKS[n].title} {ends[n]:.3f}, kappa = {results[n]['condition']:.0f}" for n in REGRESSIONS)
        + f"; loss above the least-squares floor: {_listed(REGRESSIONS, left.get, '.2%')}",
        judge(*(1 / SIZE < value < 0.5 for value in ends.values())),
        "the same inputs and labels of wine under the logistic loss: "
        f"{np.median(largest(results, 'wine-overlapping')):.3f}",
    )


def clock(config: Config, results: Results) -> Claim:
    """Judge that the clock int |g| dt orders the tasks."""
    names = list(TASKS)
    ends = np.array([np.median(largest(results, name)) for name in names])
    clocks = np.array([np.median(results[name]["clock"][SOFTMAX, -1]) for name in names])
    kappas = np.array([float(results[name]["condition"]) for name in names])
    found, by_kappa = rank_correlation(clocks, ends), rank_correlation(kappas, ends)
    return Claim(
        "clock-decides",
        "how sparse the softmax gets is decided by the clock int |g| dt, whatever data and loss",
        "'slower decay of the gradient sparsifies' (condition number)",
        f"rank correlation of largest weight and clock over {len(names)} tasks: {found:.2f} ("
        + ", ".join(f"{c:.0f}: {e:.3f}" for c, e in sorted(zip(clocks, ends, strict=True)))
        + ")",
        judge(found > 0.9),
        f"the condition number of the inputs: {by_kappa:.2f}. Few tasks, four of them on wine, and each cut at a "
        "horizon of "
        "its own, which moves it along its curve: the figure compares whole curves",
    )


def elementwise(config: Config, results: Results) -> Claim:
    """Judge that normalisation is needed on real data as well."""
    sigmoid = {name: largest(results, name, SIGMOID).max() for name in TASKS}
    late = {name: np.median(largest(results, name, MAPS.index("normalised-sigmoid"))) for name in TASKS}
    square = {name: np.median(largest(results, name, MAPS.index("normalised-square"))) for name in TASKS}
    ahead = all(square[name] >= np.median(largest(results, name)) >= late[name] for name in TASKS)
    return Claim(
        "normalisation-decides",
        "x^2 polarizes first, then softmax, then the normalised sigmoid, and the elementwise sigmoid never",
        "six maps and section 3, one sample there",
        f"largest share of any start under the elementwise sigmoid: {max(sigmoid.values()):.3f}; median at the end, "
        f"x^2 | softmax | normalised sigmoid: "
        + "; ".join(
            f"{TASKS[name].title} {square[name]:.3f} | {np.median(largest(results, name)):.3f} | {late[name]:.3f}"
            for name in TASKS
        ),
        judge(max(sigmoid.values()) < 0.2, ahead),
        f"attention frozen at uniform: {1 / SIZE:g}",
    )


def prediction(config: Config, results: Results) -> Claim:
    """Judge whether polarization helps to predict."""
    gains = {
        name: np.median(results[name]["test_score"][SOFTMAX, -1]) - np.median(results[name]["test_score"][FROZEN, -1])
        for name in TASKS
    }
    scores = {name: np.median(results[name]["test_score"][SOFTMAX, -1]) for name in TASKS}
    below = [TASKS[name].title for name in TASKS if scores[name] < results[name]["baseline"]]
    note = f" Below the constant prediction, for want of an intercept: {', '.join(below)}." if below else ""
    return Claim(
        "one-hot-predicts-better",
        "sparse attention predicts better than the same model without attention",
        "not claimed; asked here",
        f"test accuracy or R^2 of softmax: {_listed(TASKS, scores.get)}; minus that of uniform, frozen attention: "
        f"{_listed(TASKS, gains.get, '+.3f')}.{note}",
        judge(max(gains.values()) > WORTH),
        "the linear model without attention: it has the same minimum and reaches it later, its rate being 1/n",
    )


def winners(config: Config, results: Results) -> Claim:
    """Judge the winner rule of the one-sample theory."""
    rates = {name: winner_rate(results, name) for name in TASKS}
    overall = float(np.mean(list(rates.values())))
    return Claim(
        "initial-force-picks-the-winner",
        "from uniform scores the winner is argmax <v_i, -g(0)>",
        "theorem 3.2: one sample, there without exception",
        f"right in {overall:.0%} of {len(TASKS) * 2 * config.seeds} runs; by task: {_listed(TASKS, rates.get, '.0%')}",
        judge(overall == 1.0, overall > 2 / SIZE),
        f"chance: {1 / SIZE:.0%}; with many samples the direction of -g turns while the values grow",
    )


def winner_rate(results: Results, task: str) -> float:
    """Return in what part of the starts the softmax's largest weight is the predicted one."""
    return float(np.mean(results[task]["shares"][SOFTMAX, -1].argmax(axis=-1) == results[task]["predicted"]))


def conserved(config: Config, results: Results) -> Claim:
    """Judge the laws that hold on any data."""
    drift = worst_drift(results)
    return Claim(
        "laws-on-any-data",
        "the sum of scores (softmax) and the primitives of the other maps are conserved on any data",
        "derived (laws 1 and 3)",
        "largest drift: " + ", ".join(f"{name} {value:.0e}" for name, value in drift.items()),
        judge(drift["softmax"] < SCORE_SUM, *(value < TOLERANCE for value in drift.values())),
        f"explicit steps at rtol {config.rtol:g}; the scores themselves move by up to several units",
    )


def worst_drift(results: Results) -> dict[str, float]:
    """Return the largest drift of each map's invariant over all tasks, times and starts."""
    return {name: max(float(results[task]["drift"][i].max()) for task in TASKS) for i, name in enumerate(MAPS)}


def descent(config: Config, results: Results) -> Claim:
    """Judge that descent follows the flow."""
    gap = descent_gap(config, results)
    return Claim(
        "descent-follows-flow",
        "gradient descent follows the flow on real data",
        "assumed by comparing figures of descent with theorems on the flow",
        f"{TASKS[DESCENT_TASK].title}, step size {config.step_size}: weights differ by at most {gap:.1e} up to "
        f"t = {config.descent_steps * config.step_size:g} (the flow interpolated in log t)",
        judge(gap < 0.02),
        f"weights themselves move by {1 - 1 / SIZE:.2f}",
    )


def descent_gap(config: Config, results: Results) -> float:
    """Return the largest distance of a weight of descent from the interpolated flow."""
    flow, run = results[DESCENT_TASK], results["descent"]
    kept = run["t"] > flow["t"][1]
    at = np.log(run["t"][kept])
    along = flow["shares"][SOFTMAX, :, config.seeds]
    curves = [np.interp(at, np.log(flow["t"][1:]), along[1:, i]) for i in range(SIZE)]
    return float(np.abs(np.stack(curves, axis=-1) - run["shares"][0, kept, 0]).max())
