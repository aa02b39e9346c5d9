"""Who forms sinks: softmax, normalised maps, elementwise maps; and whether the score means anything."""

import numpy as np

from gradflow.experiments import transformers
from gradflow.experiments.base import Claim, Results, judge
from gradflow.experiments.dots import mean
from gradflow.experiments.induction.config import LEARNT, SINK, Config
from gradflow.experiments.induction.numbers import (
    accuracy,
    learnt,
    once_learnt,
    onsets,
    row,
    score,
    shape_scores,
    sinks,
    uniform_score,
    when_learnt,
)
from gradflow.experiments.intervals import Interval, mean_over_seeds, median
from gradflow.experiments.transformers import MAPS, SIGNED

PAPER = "arXiv 2603.06248, induction heads and sinks"
CLEAR = 0.1  # of a score: by which two groups of maps must differ
ELEMENTWISE, NORMALISED = (
    ("sigmoid", "elu1", "elu-elu"),
    ("normalised-sigmoid", "normalised-elu1", "normalised-elu-elu"),
)


def claims(config: Config, results: Results) -> list[Claim]:
    """Judge every claim.

    Args:
        config: settings of the run.
        results: of both stages.

    Returns:
        The claims, in the order of the argument.
    """
    makers = (_learnt, _softmax, _normalised, _stays, _training, _course, _shapes, _signed)
    return [make(config, results) for make in makers]


def _named(config: Config, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if name in config.maps]


def _early(config: Config, results: Results, names: list[str]) -> Interval:
    """Return the score of some maps when the task is just learnt."""
    return mean(np.concatenate([once_learnt(results, row(config, name)) for name in names]))


def _late(config: Config, results: Results, names: list[str]) -> Interval:
    """Return the score of some maps at the end."""
    return mean(np.concatenate([score(results, row(config, name))[:, -1] for name in names]))


def _heads(config: Config, results: Results, name: str, early: bool) -> str:
    place = row(config, name)
    return f"{sinks(results, place, when_learnt(accuracy(results, place)) if early else None):.0%}"


def _told(config: Config, results: Results, names: list[str], early: bool = True) -> str:
    found = _early if early else _late
    return "; ".join(
        f"{MAPS[name]} {found(config, results, [name]).text(2)}, {_heads(config, results, name, early)} of heads sinks"
        for name in names
    )


def _learnt(config: Config, results: Results) -> Claim:
    names = [name for name in config.maps if name != "uniform"]
    found = {name: accuracy(results, row(config, name))[:, -1] for name in names}
    told = ", ".join(f"{MAPS[name]} {np.median(values):.3f}" for name, values in found.items())
    others = accuracy(results, row(config, "uniform"))[:, -1] if "uniform" in config.maps else None
    return Claim(
        "task-learnt",
        f"Every map of the grid learns to continue the pattern (accuracy > {LEARNT}).",
        f"{PAPER}: accuracy >= .998 for all maps at 4 heads, in a run again",
        f"median accuracy of {config.seeds} runs after {config.steps:,} steps: {told}",
        judge(*(learnt(results, row(config, name)) for name in names)),
        f"uniform attention, which cannot find the symbol: {np.median(others):.3f}"
        if others is not None
        else "none run",
    )


def _softmax(config: Config, results: Results) -> Claim:
    names = _named(config, ELEMENTWISE)
    soft, others = _early(config, results, ["softmax"]), _early(config, results, names)
    return Claim(
        "softmax-sinks",
        "When the task is learnt, softmax has formed sinks and elementwise maps have not.",
        f"{PAPER}: softmax 4/4 heads of layer 2 above {SINK}, elementwise sigmoid 0/4 (one run again, 780 steps)",
        f"sink score of the last layer at the first save with accuracy > {LEARNT}: "
        f"{_told(config, results, ['softmax', *names])}",
        judge(soft.low > others.high, soft.low - others.high > CLEAR),
        f"uniform attention scores {uniform_score(config):.2f}, untrained softmax "
        f"{score(results, row(config, 'softmax'))[:, 0].mean():.2f}",
    )


def _normalised(config: Config, results: Results) -> Claim:
    names, plain = _named(config, NORMALISED), _named(config, ELEMENTWISE)
    soft, found, others = (_early(config, results, part) for part in (["softmax"], names, plain))
    return Claim(
        "normalisation-carries-it",
        "Normalised maps other than softmax lie in between, so that normalisation carries most of it.",
        f"{PAPER}: normalised sigmoid 3/4 (one run again, 780 steps)",
        f"when the task is learnt: {_told(config, results, names)}; pooled {found.text(2)}, elementwise maps "
        f"{others.text(2)}, softmax {soft.text(2)}",
        judge(found.low > others.high, found.high < soft.low),
        "the same maps without their normalisation: what is above them is the work of normalisation, and what is below "
        "softmax that of the exponential",
    )


def _stays(config: Config, results: Results) -> Claim:
    names = _named(config, ELEMENTWISE)
    early, late = (found(config, results, names) for found in (_early, _late))
    soft = _late(config, results, ["softmax"])
    return Claim(
        "elementwise-stay-without",
        "Elementwise maps stay without sinks when training goes on.",
        f"{PAPER}: few sinks of elementwise maps after ten epochs",
        f"elementwise maps {early.text(2)} when the task is learnt, {late.text(2)} at step {config.steps:,} "
        f"({_told(config, results, names, early=False)}); softmax {soft.text(2)}",
        judge(late.high < early.high + CLEAR, late.high < soft.low - CLEAR),
        "the same runs earlier: the difference between the maps is when sinks form, before the task is learnt or after",
    )


def _training(config: Config, results: Results) -> Claim:
    curves = score(results, row(config, "softmax"))
    change = mean_over_seeds(curves[:, -1] - curves[:, 0])
    deep = results["maps"]["sink"][row(config, "softmax"), :, -1]
    return Claim(
        "sinks-are-learnt",
        "Sinks are made by training, in the last layer.",
        PAPER,
        f"softmax: score {curves[:, 0].mean():.2f} before training, {curves[:, -1].mean():.2f} after, a change of "
        f"{change.text(2)}; first layer {deep[:, 0].mean():.2f}",
        judge(change.low > 0.2, deep[:, -1].mean() > deep[:, 0].mean()),
        f"uniform attention scores {uniform_score(config):.2f} whatever is trained",
    )


def _course(config: Config, results: Results) -> Claim:
    ratios, told = {}, []
    for name in ("softmax", "sigmoid"):
        task, sink = onsets(results, row(config, name))
        ratios[name] = median(sink / np.maximum(task, 1))
        told.append(
            f"{MAPS[name]}: score half-way up at step {median(sink).value:.0f}, accuracy at step "
            f"{median(task).value:.0f}, ratio {ratios[name].text(2)}"
        )
    return Claim(
        "sinks-before-the-task",
        "Softmax forms its sinks on the way to the solution, not after it.",
        "Not in the paper, which shows ends only",
        "; ".join(told[:1]),
        judge(ratios["softmax"].high < 1),
        f"{told[1]}; above 1 a sink is a by-product of training after the task is solved",
    )


def _shapes(config: Config, results: Results) -> Claim:
    found, held = [], []
    for place, (heads, positions) in enumerate(config.shapes):
        part = {name: shape_scores(config, results, name, place) for name in ("softmax", "sigmoid")}
        if all(values.size for values in part.values()):
            held.append(bool(part["softmax"].mean() - part["sigmoid"].mean() > CLEAR))
        told = " and ".join(f"{values.mean():.2f}" if values.size else "not learnt" for values in part.values())
        found.append(f"{heads} head{'s' * (heads > 1)}, {positions}: {told}")
    return Claim(
        "any-heads-and-positions",
        f"When the task is learnt, softmax scores higher than the elementwise sigmoid, by {CLEAR:g} and more, at every "
        "number of heads and kind of positions.",
        f"{PAPER}: a grid of heads 1, 2, 4, 8 and positions concatenated, added, none",
        f"mean sink score of the last layer, softmax and sigmoid: {'; '.join(found)}",
        judge(*held) if held else "not tested",
        f"runs that never reach an accuracy of {LEARNT} do not count; both maps have some at {len(held)} of "
        f"{len(config.shapes)} shapes",
    )


def _signed(config: Config, results: Results) -> Claim:
    names = _named(config, SIGNED)
    low, high = (results["maps"][f"sink_{side}"][:, :, -1] for side in ("low", "high"))
    ranges = {name: (low[row(config, name)].min(), high[row(config, name)].max()) for name in names}
    proper = [(low[row(config, n)].min(), high[row(config, n)].max()) for n in config.maps if n not in SIGNED]
    told = "; ".join(f"{MAPS[name]} from {a:.2g} to {b:.2g}" for name, (a, b) in ranges.items())
    return Claim(
        "signed-score-means-nothing",
        "For maps with negative weights a sink score is no share: it leaves [0, 1].",
        f"{PAPER} shows scores of such maps beside the others",
        f"scores of single sequences: {told}",
        judge(*(a < 0 or b > 1 for a, b in ranges.values())),
        f"positive maps stay within {min(a for a, _ in proper):.2f} and {max(b for _, b in proper):.2f}",
    )


def looks_of(name: str) -> str:
    """Return the label of a map, marked where its score means nothing."""
    return f"{transformers.MAPS[name]}{' (signed)' if name in SIGNED else ''}"
