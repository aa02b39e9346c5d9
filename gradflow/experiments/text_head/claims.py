"""What one head learns of real text, held against predictors that see less and against text without order."""

import numpy as np

from gradflow.experiments import audits
from gradflow.experiments.base import Claim, Results, judge
from gradflow.experiments.intervals import Interval, mean_over_seeds, median, share
from gradflow.experiments.text_head.config import D_V, QUANTITIES, Config

PAPER = "arXiv 2512.22473"
OURS = "Not in the paper, which has no real text"
EXACT = 1e-12  # relative, in float64
WRONG = 0.1  # by which a wrong law must miss
MOSTLY = 80.0  # percent of runs and horizons
FROZEN = 0.5  # of the horizon, before which routing must freeze
PAPER_SHARE = 0.84  # of PC1, the low end of what the paper reports


def claims(config: Config, results: Results) -> list[Claim]:
    """Judge every claim.

    Args:
        config: settings of the run.
        results: of both stages.

    Returns:
        The claims, in the order of the argument.
    """
    makers = (_laws, _audit, _unigram, _bigram, _attention, _unseen, _freezing, _dimension)
    return [make(config, results) for make in makers]


def at_end(results: Results, name: str, stage: str = "text") -> np.ndarray:
    """Return what was measured at the end of each run, (seeds, ...)."""
    return results[stage][name][:, -1]


def gain(results: Results, stage: str = "text") -> np.ndarray:
    """Return how much lower attention ends than uniform attention, seed by seed, in nats."""
    return at_end(results, "uniform_loss", stage) - at_end(results, "softmax_loss", stage)


def ratios(config: Config, results: Results, earlier: str, arm: str = "softmax", stage: str = "text") -> np.ndarray:
    """Return tau_V over another freezing time (seeds, horizons), NaN where attention goes less than 2 epsilon."""
    run = results[stage]
    values, other = (run[f"{arm}_tau"][:, QUANTITIES.index(part)] for part in ("values", earlier))
    moved = run[f"{arm}_way"] > 2 * config.epsilon
    return np.where(moved, values / np.maximum(other, config.ts[1]), np.nan)


def _laws(config: Config, results: Results) -> Claim:
    run = results["text"]
    laws = {name: float(run[name].max()) for name in ("routing", "responsibility")}
    wrong = {name: float(run[name].max(axis=1).min()) for name in ("no_baseline", "no_weights")}
    return Claim(
        "laws-hold",
        "D = A (b - E_A[b]) and dL/dV = A^T U hold at every saved head.",
        f"{PAPER}, gradients of attention",
        f"largest residual against automatic differentiation over {run['routing'].size} heads: routing "
        f"{laws['routing']:.0e}, responsibility {laws['responsibility']:.0e} of the size of their terms",
        judge(
            laws["routing"] <= EXACT and wrong["no_baseline"] > WRONG,
            laws["responsibility"] <= EXACT and wrong["no_weights"] > WRONG,
        ),
        f"somewhere along every run D without its baseline misses by {wrong['no_baseline']:.0%} or more, and A^T U "
        f"with uniform weights by {wrong['no_weights']:.0%} or more",
    )


def _audit(config: Config, results: Results) -> Claim:
    audit = audits.loaded(results["text"])
    return Claim(
        "audit",
        "Every law of a head that applies holds along the flow, conserved quantities among them.",
        f"{PAPER}, gradients of attention",
        f"first run: {audits.measured(audit)}",
        audits.verdict(audit),
        f"laws whose conditions the run does not meet do not count ({len(audit.skipped)}); wrong laws miss, see "
        "laws-hold",
    )


def _unigram(config: Config, results: Results) -> Claim:
    found = {stage: _below(results, "unigram", stage) for stage in results}
    return Claim(
        "beats-unigram",
        "The head ends below the unigram entropy of its window.",
        OURS,
        f"{_loss(results)} nats against {results['text']['unigram'].mean():.3f}: {_apart(found['text'])}",
        judge(found["text"].low > 0),
        f"on permuted characters, which have the same unigram and no order, it ends {_apart(found['permuted'])}: "
        "that part is learnt by heart",
    )


def _bigram(config: Config, results: Results) -> Claim:
    run = results["text"]
    below, own = _below(results, "bigram"), mean_over_seeds(at_end(results, "own_loss"))
    unseen = mean_over_seeds(run["unseen_bigram"] - run["softmax_unseen"].min(axis=1))
    weights = [mean_over_seeds(at_end(results, name)) for name in ("own_weight", "own_uniform")]
    return Claim(
        "beats-bigram",
        "The head does better than bigrams: at the end on its window, at its best on the next one.",
        OURS,
        f"on its window {_loss(results)} nats against {run['bigram'].mean():.3f}, {_apart(below)}; on the next one its "
        f"lowest loss is {_apart(unseen)} smoothed bigram counts; the weight on the present character is "
        f"{weights[0].text(2)} at the end, under uniform attention {weights[1].text(2)}",
        judge(below.low > 0, unseen.low > 0),
        f"a head that may attend to the present character only, from the same start, ends at {own.text()} nats; what "
        f"is below is learnt by heart: on the next window the head is then at "
        f"{mean_over_seeds(at_end(results, 'softmax_unseen')).text(1)} nats, and knowing nothing costs "
        f"{np.log(len(run['alphabet'])):.1f}",
    )


def _attention(config: Config, results: Results) -> Claim:
    text, chance, run = gain(results), gain(results, "permuted"), results["text"]
    found = [mean_over_seeds(values) for values in (text, chance, text - chance)]
    unseen = mean_over_seeds(run["uniform_unseen"].min(axis=1) - run["softmax_unseen"].min(axis=1))
    return Claim(
        "attention-adds",
        "Attention lowers the loss more than it does where there is nothing to route by.",
        OURS,
        f"{_apart(found[0])} uniform attention, which ends at "
        f"{mean_over_seeds(at_end(results, 'uniform_loss')).text()} nats; on the next window, each at its lowest, "
        f"{_apart(unseen)} it",
        judge(found[0].low > 0, found[2].low > 0),
        f"on permuted characters attention ends {_apart(found[1])} uniform attention, by learning by heart; the "
        f"difference of the two is {found[2].text()}",
    )


def _unseen(config: Config, results: Results) -> Claim:
    run = results["text"]
    curve, floor = run["softmax_unseen"], run["unseen_unigram"]
    ends, best = mean_over_seeds(floor - curve[:, -1]), mean_over_seeds(floor - curve.min(axis=1))
    others = [mean_over_seeds(floor - low) for low in (run["unseen_bigram"], run["uniform_unseen"].min(axis=1))]
    return Claim(
        "unseen-text",
        "What the head learns holds on the next window, which it has not seen: its loss is below the unigram's there, "
        "at its lowest and at the end.",
        OURS,
        f"the unigram has {floor.mean():.3f} nats there; the head at its lowest, which is chosen there, at t = "
        f"{median(run['t'][curve.argmin(axis=1)]):.0f}, is {_apart(best)} it, and at the end {_apart(ends)} it",
        judge(best.low > 0, ends.low > 0),
        f"smoothed bigram counts of the same window: {_apart(others[0])} the unigram; uniform attention at its lowest: "
        f"{_apart(others[1])} it",
    )


def _apart(below: Interval) -> str:
    """Return how far something is below something else in words, above where it is negative."""
    if below.value < 0:
        return f"{Interval(-below.value, -below.high, -below.low).text()} above"
    return f"{below.text()} below"


def _freezing(config: Config, results: Results) -> Claim:
    ratio, alike = (ratios(config, results, earlier) for earlier in ("attention", "scores"))
    counted = int(np.isfinite(ratio).sum())
    tau = {arm: results["text"][f"{arm}_tau"] / np.asarray(config.horizons) for arm in ("softmax", "uniform")}
    frozen = np.where(np.isfinite(ratio), tau["softmax"][:, QUANTITIES.index("attention")], np.nan)
    parts = median(frozen).high < FROZEN, above(ratio).low > MOSTLY, above(alike).low > MOSTLY
    middle = "; ".join(
        f"t = {t:.0e}: {_middle(ratio[:, at])} and {_middle(alike[:, at])}" for at, t in enumerate(config.horizons)
    )
    part = {arm: median(times[:, QUANTITIES.index("values")]) for arm, times in tau.items()}
    return Claim(
        "routing-first",
        "Routing freezes well before the end, and before values, by the paper's yardstick and by one for both.",
        f"{PAPER}, frame-precision dissociation; no number is given",
        f"tau_A is at {_middle(frozen)} of the horizon; "
        f"tau_V > tau_A (total variation) in {_percent(above(ratio))} and tau_V > tau_S (scores, as a part of their "
        f"way) in {_percent(above(alike))} of {counted} runs and horizons that count; median tau_V / tau_A and "
        f"tau_V / tau_S by horizon: {middle}",
        judge(*parts) if counted else "not tested",
        f"left out: {ratio.size - counted} of {ratio.size}, whose attention goes less than 2 eps; values freeze at "
        f"{part['softmax']:.2f} of the horizon with attention, at {part['uniform']:.2f} with uniform attention, which "
        "never moves",
    )


def above(ratio: np.ndarray) -> Interval:
    """Return in how many percent of the runs and horizons that count a ratio is above 1."""
    return share((ratio > 1).sum(axis=1), np.isfinite(ratio).sum(axis=1))


def _percent(found: Interval) -> str:
    return f"{found:.0f} %" if np.isfinite(found.value) else "none"


def _middle(values: np.ndarray) -> str:
    found = median(values)
    return f"{found.value:.2f}" if np.isfinite(found.value) else "none"


def _dimension(config: Config, results: Results) -> Claim:
    run = results["text"]
    ends = mean_over_seeds(at_end(results, "softmax_participation"))
    first = mean_over_seeds(at_end(results, "softmax_shares")[:, 0])
    low, high = np.quantile(run["chance_participation"], [0.025, 0.975])
    others = [mean_over_seeds(values) for values in _other_clouds(results)]
    flat = {arm: _flattest(results, arm) for arm in ("softmax", "uniform")}
    return Claim(
        "values-on-a-line",
        "The values end on a line: fewer dimensions than by chance, most of the variance along PC1.",
        f"{PAPER}, value manifold: PC1 of standardised values has 84-90 %",
        f"participation ratio {ends.text(1)} of {D_V} dimensions at the end, random values {low:.1f} to {high:.1f}; "
        f"PC1 has {first.text(2)} of the variance of standardised values, random ones "
        f"{np.median(run['chance_shares'][..., 0]):.2f}; on the way, while the head knows the unigram only, "
        f"{flat['softmax']}",
        judge(ends.high < low, first.low > PAPER_SHARE),
        f"uniform attention ends with {others[0].text(1)}, and has {flat['uniform']} on the way: the line is not made "
        f"by routing; permuted characters: {others[1].text(1)}",
    )


def _flattest(results: Results, arm: str) -> str:
    """Return the participation ratio and the share of PC1 where the cloud of the values is flattest, as text."""
    run = results["text"]
    where = run[f"{arm}_participation"].argmin(axis=1)[:, None]
    ratio = np.take_along_axis(run[f"{arm}_participation"], where, axis=1)
    first = np.take_along_axis(run[f"{arm}_shares"][..., 0], where, axis=1)
    return f"{mean_over_seeds(ratio).text(1)} and PC1 {mean_over_seeds(first).text(2)}"


def _other_clouds(results: Results) -> tuple[np.ndarray, np.ndarray]:
    return at_end(results, "uniform_participation"), at_end(results, "softmax_participation", "permuted")


def _below(results: Results, floor: str, stage: str = "text") -> Interval:
    return mean_over_seeds(results[stage][floor] - at_end(results, "softmax_loss", stage))


def _loss(results: Results) -> str:
    return mean_over_seeds(at_end(results, "softmax_loss")).text()
