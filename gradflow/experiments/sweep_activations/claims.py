"""What is claimed about maps, lengths and condition numbers, what the sweeps measured, and whether it holds."""

from collections.abc import Callable, Iterable

import numpy as np

from gradflow.experiments.base import Claim, Results, Verdict, judge
from gradflow.experiments.sweep_activations import readings
from gradflow.experiments.sweep_activations.config import LOSSES, Config, is_smooth, log_slope
from gradflow.experiments.sweep_activations.readings import EXPONENTIAL, LOGISTIC, SQUARE
from gradflow.sweep.variables import GOOD

TAILED = (LOGISTIC, EXPONENTIAL)  # losses whose gradient never ends
NEARLY_ALL, HARDLY_ANY = 0.99, 0.01  # of the runs
EXPONENT = 0.05  # largest distance of an exponent of the softmax from its law
SLOPE = 0.1  # the same, relative, of other maps
SPREAD = 0.1  # of the constant of law 15
USUALLY = 0.9
PAPER = "arXiv 2603.06248"


def claims(config: Config, results: Results) -> list[Claim]:
    """Judge every claim on the results."""
    makers = (normalised, elementwise, square, length, slopes, kappa, clock, winner, many_winners, failures)
    return [make(config, results) for make in makers]


def judged(*parts: bool) -> Verdict:
    """Return the verdict of the parts, "not tested" where these settings have none."""
    return judge(*parts) if parts else "not tested"


def listed(names: Iterable[str], value: Callable[[str], float], form: str = ".2f") -> str:
    """Write one number a map."""
    return ", ".join(f"{name} {value(name):{form}}" for name in names)


def normalised(config: Config, results: Results) -> Claim:
    """Judge that normalised maps go one-hot within the horizon."""
    names = readings.normalised(config)
    ends = {name: [readings.one_hot(config, results, name, loss) for loss in TAILED] for name in names}
    others = max(
        readings.one_hot(config, results, name, loss) for name in readings.elementwise(config) for loss in TAILED
    )
    return Claim(
        "normalised-maps-go-one-hot",
        f"every map whose weights sum to one goes one-hot, whatever the length and the start, by t = "
        f"{config.horizon:.0e}",
        f"{PAPER}, section 3: positive normalised maps polarize; no time is given",
        f"share of runs with a weight above {readings.ONE_HOT:g} under the logistic | exponential loss: "
        + ", ".join(f"{name} {a:.2f} | {b:.2f}" for name, (a, b) in ends.items()),
        judged(*(min(pair) >= NEARLY_ALL for pair in ends.values())),
        f"the same starts under elementwise maps: at most {others:.2f}",
    )


def elementwise(config: Config, results: Results) -> Claim:
    """Judge that elementwise maps do not polarize."""
    names = readings.elementwise(config)
    top = {
        name: max(
            float((readings.of_map(config, results, stage, "largest", name, loss) > 0.5).mean())
            for stage in ("length", "condition")
            for loss in TAILED
        )
        for name in names
    }
    soft = readings.one_hot(config, results, config.maps[0], LOGISTIC)
    return Claim(
        "elementwise-maps-do-not",
        "under unnormalised elementwise maps no weight outgrows all others together",
        f"{PAPER}, section 3: no centring term, no competition",
        f"share of runs that end with more than half of the sum in one weight: {listed(names, top.__getitem__, '.3f')}",
        judged(*(value <= HARDLY_ANY for value in top.values())),
        f"{config.maps[0]} from the same starts: {soft:.2f}; exp is the softmax without its denominator",
    )


def square(config: Config, results: Results) -> Claim:
    """Judge that the square loss stops on the way."""
    name = config.maps[0]
    shares = {loss: readings.one_hot(config, results, name, place) for place, loss in enumerate(LOSSES)}
    crossed = np.isfinite(readings.of_map(config, results, "length", "half", name, SQUARE)).mean(axis=(0, 2))
    by_scale = ", ".join(f"{share:.2f} at {scale:g}" for scale, share in zip(config.scales, crossed, strict=True))
    return Claim(
        "square-polarizes-partly",
        "the square loss polarizes partly: its clock ends when the target is reached",
        f"{PAPER}, figure of six maps, left",
        f"{name}, y = {config.target:g}: {shares['square']:.2f} of the runs end one-hot; one weight passes a half in "
        f"{by_scale} (scale of the start)",
        judge(shares["square"] <= HARDLY_ANY, bool(crossed.min() < USUALLY)),
        f"the same starts: logistic loss {shares['logistic']:.2f}, exponential {shares['exponential']:.2f}",
    )


def length(config: Config, results: Results) -> Claim:
    """Judge the sequence-length law of the softmax."""
    name = config.maps[0]
    fits = [readings.fit(config, results, name, loss) for loss in TAILED]
    late, stopped = (readings.fit(config, results, name, *case) for case in ((LOGISTIC, "most"), (SQUARE, "half")))
    constants = readings.constants(config, results, name)
    small = np.asarray(config.scales) <= readings.SMALL
    spread = np.max(np.ptp(constants[:, small], axis=1) / constants[:, small].mean(axis=1))
    medians = ", ".join(f"{np.median(c[small]):.2f} at n = {n}" for n, c in zip(config.sizes, constants, strict=True))
    off = readings.of_map(config, results, "length", "half", name, LOGISTIC) / results["refined"]["half"] - 1
    logistic = fits[0]
    return Claim(
        "length-law",
        f"the {name} takes t = c n / gap to put half of its weight on one value; gap: the leader's advantage over the "
        "mean at the start",
        "derived (law 15): c is constant to 10 % over scales of one draw",
        f"logistic loss {_text(fits[0])}; exponential {_text(fits[1])} (95 % intervals over seeds); c differs by at "
        f"most {spread:.1%} between scales of one draw, its median over draws is {medians}; to a weight of 0.9 "
        f"{_text(late)}: the last stage does not know n. Times are interpolated between saves, at most "
        f"{np.nanmax(np.abs(off)):.2%} from refined ones",
        judge(
            *(fit is not None and abs(fit.gap - 1) < EXPONENT for fit in fits),
            *(fit is not None and abs(fit.size - 1) < EXPONENT for fit in fits),
            bool(spread < SPREAD),
        ),
        f"n alone explains {logistic.explained_by_size if logistic else np.nan:.1%} of the variance of log t, n and "
        f"gap {logistic.explained if logistic else np.nan:.2%}; square loss: {_text(stopped)}, its clock ends first",
    )


def _text(fit: readings.Fit | None) -> str:
    return "hardly a run crosses" if fit is None else fit.text


def slopes(config: Config, results: Results) -> Claim:
    """Judge how the exponent of the gap depends on the map."""
    rows, holds = [], []
    for name in readings.normalised(config)[1:]:
        slope, fit = log_slope(name), readings.fit(config, results, name, LOGISTIC)
        if slope is None:
            continue
        if fit is None:
            rows.append(f"{name} too few runs cross by then (1/k = {1 / slope:.2f})")
            continue
        low, high = fit.gap_interval
        rows.append(f"{name} {fit.gap:.2f} [{low:.2f}, {high:.2f}], 1/k = {1 / slope:.2f}, with n^{fit.size:.1f}")
        holds.append(abs(fit.gap * slope - 1) < SLOPE)
    return Claim(
        "length-law-of-other-maps",
        "a normalised map f / sum f takes a time that grows like 1 / gap^(1/k), k = f'/f at the first scores",
        "derived here: scores grow like gap exp(k tau / n), and t like n exp(tau / n)",
        "fitted exponents of 1 / gap (95 % intervals over seeds): " + "; ".join(rows),
        judged(*holds),
        f"an exponent that did not depend on the map would be the softmax's, 1; tolerance {SLOPE:.0%}. The exponents "
        "of n are read off, not derived: length costs these maps more than the softmax",
    )


def kappa(config: Config, results: Results) -> Claim:
    """Judge that a larger condition number sparsifies."""
    low, high = min(config.kappas), max(config.kappas)
    names = [name for name in readings.normalised(config) if readings.falls(config, results, name, SQUARE).size]
    there = [name for name in readings.normalised(config) if name not in names]
    change = {name: readings.falls(config, results, name, SQUARE) for name in config.maps}
    rows = [f"{name} {np.mean(change[name] > 0):.0%} (median by {np.median(change[name]):.2f})" for name in names]
    others = readings.elementwise(config)
    return Claim(
        "kappa-sparsifies",
        "under the square loss at fixed |y| a larger condition number gives sparser weights, for every normalised map, "
        "length and start",
        f"{PAPER}, section on condition numbers, shown for the softmax",
        f"entropy / log n falls from kappa = {low:g} to {high:g} of one start in {', '.join(rows)}"
        + (f"; one-hot at kappa = {low:g} already: {', '.join(there)}" if there else ""),
        judged(*(bool(np.mean(change[name] > 0) >= USUALLY) for name in names)),
        f"elementwise maps, median fall: {listed(others, lambda name: float(np.median(change[name])), '.4f')}",
    )


def clock(config: Config, results: Results) -> Claim:
    """Judge that the clock decides, not the condition number."""
    names = [name for name in readings.normalised(config) if readings.varies(config, results, name)]
    shares = {name: readings.explained_entropy(config, results, name) for name in names}
    rows = [f"{name} {by_clock:.0%} | {both:.0%} | {alone:.0%}" for name, (by_clock, alone, both) in shares.items()]
    return Claim(
        "clock-decides",
        "what decides the final entropy is the clock tau = int |g| dt; condition number and loss act through it",
        "derived; the paper says slower decay of the gradient",
        "share of the variance of the final entropy at one n and scale (median) that is known from the clock alone | "
        f"from condition number and loss | from the condition number: {', '.join(rows)}",
        judged(*(by_clock >= USUALLY and by_clock > both for by_clock, _, both in shares.values())),
        "as many groups in the order of tau as there are pairs of condition number and loss; the rest differs by seed",
    )


def winner(config: Config, results: Results) -> Claim:
    """Judge who wins with one sample."""
    names = readings.normalised(config)
    where = readings.decided(config, results, "length", names, TAILED)
    rate, blind = (readings.agreement(results, "length", key, where) for key in ("leader", "longest"))
    return Claim(
        "winner",
        "from equal scores the value that is furthest along b* at the start wins, for every normalised map",
        f"{PAPER}, theorem 3.2, for the softmax",
        f"it won {rate:.2%} of the {where.sum()} runs in which one weight passed a half",
        judged(*[rate == 1.0] * bool(where.any())),
        f"chance 1/n: {readings.chance(config, where):.1%}; the longest value won {blind:.1%}",
    )


def many_winners(config: Config, results: Results) -> Claim:
    """Judge whether the first step names the winner when there are many samples."""
    names = readings.normalised(config)
    where = readings.decided(config, results, "condition", names, TAILED)
    rates, blinds = [], []
    for place in range(len(config.kappas)):
        here = where & (np.arange(len(config.kappas)) == place)[:, None]
        rates.append(readings.agreement(results, "condition", "leader", here))
        blinds.append(readings.agreement(results, "condition", "longest", here))
    return Claim(
        "winner-of-many-samples",
        "with many samples the value furthest along the first step still wins",
        "the theorem has one sample; extended here",
        "it won "
        + ", ".join(f"{rate:.1%} at kappa = {k:g}" for k, rate in zip(config.kappas, rates, strict=True))
        + f" of the {where.sum()} runs in which one weight passed a half",
        judged(*(rate >= USUALLY for rate in rates)),
        f"chance 1/n: {readings.chance(config, where):.1%}; the longest value won "
        + ", ".join(f"{rate:.1%}" for rate in blinds),
    )


def failures(config: Config, results: Results) -> Claim:
    """Judge that what fails is a kink, and says so."""
    found = readings.codes(config, results)
    failed = {name: {c: k for c, k in row.items() if c not in GOOD} for name, row in found.items()}
    smooth = [name for name in found if is_smooth(name)]
    total = sum(sum(row.values()) for row in found.values())
    rows = [f"{name} {code} {count}" for name, row in failed.items() for code, count in row.items()]
    return Claim(
        "failures-are-kinks",
        "every flow reaches its horizon or its stop; those that cannot end at a kink of their map, and say so",
        "not in the paper: a flow has no classical solution where it slides along a kink",
        f"{sum(sum(row.values()) for row in failed.values())} of {total} flows failed"
        + (f": {', '.join(rows)}" if rows else ""),
        judge(
            not any(failed[name] for name in smooth),
            all(set(row) <= {"kink"} for row in failed.values()),
        ),
        f"{len(smooth)} smooth maps: {sum(sum(failed[name].values()) for name in smooth)} failures; kinked maps: "
        + ", ".join(name for name in found if not is_smooth(name)),
    )
