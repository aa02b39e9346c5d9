"""What is learnt first, which head looks up, and where it is when there is nothing to look up."""

import numpy as np

from gradflow.experiments.base import Claim, Results, judge
from gradflow.experiments.bigram.config import LEARNT, RESTING, Config
from gradflow.experiments.bigram.numbers import (
    KNOWN,
    OTHER,
    SHALLOW,
    SIGMOID,
    SIGMOID_BOS,
    SOFTMAX,
    SOFTMAX_BOS,
    UNIFORM,
    Arm,
    effort,
    of_head,
    onsets,
    runs,
    share,
)
from gradflow.experiments.bigram.readings import ANSWER, FIRST
from gradflow.experiments.intervals import Interval, mean_over_seeds, median

BIGRAMS = "arXiv 2306.00802"
DORMANT = "arXiv 2410.13835"
CLEAR = 0.1  # of a share: by which two groups of rows or maps must differ
HALF = 0.5


def claims(config: Config, results: Results) -> list[Claim]:
    """Judge every claim.

    Args:
        config: settings of the run.
        results: of all stages.

    Returns:
        The claims, in the order of the argument.
    """
    makers = (_looks_up, _first, _head, _dormant, _rests, _bos, _softmax, _drained)
    return [make(config, results) for make in makers]


def _end(values: np.ndarray) -> Interval:
    return mean_over_seeds(values[:, -1])


def _accuracy(config: Config, results: Results, arm: Arm) -> Interval:
    return _end(runs(config, results, arm, "accuracy"))


def _at(config: Config, results: Results, arm: Arm, kind: int, place: int) -> Interval:
    return _end(share(config, results, arm, kind, place))


def _told(found: dict[Arm, Interval]) -> str:
    return "; ".join(f"{arm.label} {value.text(2)}" for arm, value in found.items())


def _looks_up(config: Config, results: Results) -> Claim:
    able = [Arm(name) for name in config.maps if name != "uniform"]
    found = {arm: _accuracy(config, results, arm) for arm in able}
    without = {arm: _accuracy(config, results, arm) for arm in (SHALLOW, UNIFORM)}
    return Claim(
        "looks-up",
        f"Two layers learn to look up what followed a trigger before (accuracy > {LEARNT}), with every map that "
        "chooses; one layer does not.",
        f"{BIGRAMS}: two layers are needed for an induction head",
        f"accuracy where a trigger has occurred before, after {config.steps:,} steps: {_told(found)}",
        judge(all(value.low > LEARNT for value in found.values()), without[SHALLOW].high < LEARNT),
        f"{_told(without)}: they see which characters the table does not explain, not where these stand",
    )


def _first(config: Config, results: Results) -> Claim:
    told, ratios = [], {}
    for arm in (SOFTMAX, SIGMOID):
        table, look = onsets(config, results, arm)
        ratios[arm] = median(look / table)
        told.append(
            f"{arm.label}: half of the table at step {median(table).value:.0f}, half of the look-up at step "
            f"{median(look).value:.0f}, ratio {ratios[arm].text(1)}"
        )
    table, _ = onsets(config, results, SHALLOW)
    excess = _end(runs(config, results, SOFTMAX, "other_loss") - runs(config, results, SOFTMAX, "other_exact"))
    return Claim(
        "bigrams-first",
        "The table of bigrams is learnt before the look-up.",
        f"{BIGRAMS}: global bigrams first, then in-context ones",
        f"{'; '.join(told)}; at the end softmax loses {excess.text(3)} nats more than the exact posterior",
        judge(*(ratio.low > 1 for ratio in ratios.values())),
        f"one layer, which has nothing to look up with, has half of the table at step {median(table).value:.0f}",
    )


def _head(config: Config, results: Results) -> Claim:
    known, other = (share(config, results, SOFTMAX, kind, ANSWER) for kind in (KNOWN, OTHER))
    gap = _end(known - other)
    plain = {arm: _at(config, results, arm, KNOWN, ANSWER) for arm in (UNIFORM, SHALLOW)}
    return Claim(
        "induction-head",
        "A head of the second layer looks at what followed the trigger before, and does not look so where nothing is "
        "to be looked up.",
        f"{BIGRAMS}: the second layer is an induction head",
        f"share of its row on the characters after earlier occurrences: {_end(known).text(2)} at triggers, "
        f"{_end(other).text(2)} at other characters; difference {gap.text(2)}",
        judge(_end(known).low > HALF, gap.low > CLEAR),
        f"{_told(plain)} at triggers; untrained softmax {mean_over_seeds(known[:, 0]).text(2)}",
    )


def _dormant(config: Config, results: Results) -> Claim:
    found = {arm: _end(effort(config, results, arm)) for arm in (SOFTMAX, SOFTMAX_BOS)}
    others = {arm: _end(effort(config, results, arm)) for arm in (SIGMOID, SIGMOID_BOS, UNIFORM)}
    start = mean_over_seeds(effort(config, results, SOFTMAX)[:, 0])
    return Claim(
        "dormant-where-not-needed",
        "The softmax head that looks up adds less than half as much to the stream where nothing is to be looked up.",
        f"{DORMANT}: heads are active on some inputs and dormant on others",
        f"size of what it adds at other characters over that at triggers: {_told(found)}",
        judge(*(value.high < HALF for value in found.values())),
        f"{_told(others)}; untrained softmax {start.text(2)}",
    )


def _rests(config: Config, results: Results) -> Claim:
    other, known = (share(config, results, SOFTMAX, kind, FIRST) for kind in (OTHER, KNOWN))
    plain = _at(config, results, UNIFORM, OTHER, FIRST)
    return Claim(
        "rests-on-first-character",
        "Without BOS, the softmax head that looks up rests on the first character where nothing is to be looked up.",
        f"{DORMANT} has BOS; {BIGRAMS} has none, and a sink there is an open question",
        f"share of its row on the first character, any of {config.letters}: {_end(other).text(2)} at other "
        f"characters, {_end(known).text(2)} at triggers",
        judge(_end(other).low > RESTING, _end(other - known).low > CLEAR),
        f"uniform attention {plain.text(2)} at the same rows; a share above {RESTING} counts as a sink",
    )


def _bos(config: Config, results: Results) -> Claim:
    other, known = (share(config, results, SOFTMAX_BOS, kind, FIRST) for kind in (OTHER, KNOWN))
    without = share(config, results, SOFTMAX, OTHER, FIRST)
    gain = _end(other - without)
    return Claim(
        "rests-on-bos",
        "With BOS before the same sequences it rests there where nothing is to be looked up, and not at triggers.",
        f"{DORMANT}: on BOS where the head is dormant",
        f"share of its row on BOS: {_end(other).text(2)} at other characters, {_end(known).text(2)} at triggers",
        judge(_end(other).low > RESTING, _end(other - known).low > CLEAR),
        f"without BOS the first character has {_end(without).text(2)}, so that BOS adds {gain.text(2)}; untrained "
        f"{mean_over_seeds(other[:, 0]).text(2)}",
    )


def _softmax(config: Config, results: Results) -> Claim:
    soft, plain = (_at(config, results, arm, OTHER, FIRST) for arm in (SOFTMAX_BOS, SIGMOID_BOS))
    mass = {arm: of_head(config, results, arm, "mass") for arm in (SIGMOID, SIGMOID_BOS)}
    ratio = {arm: _end(values[..., OTHER] / values[..., KNOWN]) for arm, values in mass.items()}
    return Claim(
        "elementwise-rests-without",
        "The elementwise sigmoid rests less on BOS than softmax: it gives less weight in all instead.",
        "Not in the papers, which train softmax",
        f"share on BOS at other characters: softmax {soft.text(2)}, sigmoid {plain.text(2)}; sum of the sigmoid's row "
        f"at other characters over that at triggers: {_told(ratio)}",
        judge(soft.low - plain.high > CLEAR, all(value.high < 1 for value in ratio.values())),
        "softmax rows sum to 1 everywhere, so that a head can rest only where values are small",
    )


def _drained(config: Config, results: Results) -> Claim:
    found = {arm: of_head(config, results, arm, "value_first") for arm in (SOFTMAX_BOS, SOFTMAX, SIGMOID_BOS)}
    ends = {arm: _end(values) for arm, values in found.items()}
    return Claim(
        "bos-value-drained",
        "Where the softmax head rests there is little to fetch: the value of BOS is less than half as long as others.",
        f"{DORMANT}: value states of the sink are small",
        f"length of the first token's value over the mean of the others: {SOFTMAX_BOS.label} "
        f"{ends[SOFTMAX_BOS].text(2)}",
        judge(ends[SOFTMAX_BOS].high < HALF),
        f"{_told({arm: ends[arm] for arm in (SOFTMAX, SIGMOID_BOS)})}; untrained "
        f"{mean_over_seeds(found[SOFTMAX_BOS][:, 0]).text(2)}",
    )
