"""Whether one token decides: softmax against other maps, other shapes, and what follows from sparsity alone."""

import numpy as np
from scipy.stats import rankdata

from gradflow.experiments.base import Claim, Results, judge
from gradflow.experiments.dots import mean
from gradflow.experiments.intervals import Interval, over_seeds
from gradflow.experiments.token_influence.config import LEARNT, USUAL, Config, Shape
from gradflow.experiments.token_influence.numbers import at_end, grid_values, named, pooled, uniform_sparsity
from gradflow.experiments.transformers import MAPS

PAPER = "arXiv 2603.06248, one-token influence"
OURS = "Not in the paper"
NAME = "softmax"
ELEMENTWISE, NORMALISED = (
    ("sigmoid", "elu1", "elu-elu"),
    ("normalised-sigmoid", "normalised-elu1", "normalised-elu-elu"),
)
MOST = 0.5  # of the pairs: a token decides
STRONG = 0.7  # rank correlation above which one measure foretells another


def claims(config: Config, results: Results) -> list[Claim]:
    """Judge every claim.

    Args:
        config: settings of the run.
        results: of both stages.

    Returns:
        The claims, in the order of the argument.
    """
    makers = (_learnt, _sparse, _decides, _attack, _between, _fades, _foretells)
    return [make(config, results) for make in makers]


def _told(config: Config, results: Results, names: tuple[str, ...], reading: str, digits: int = 2) -> str:
    parts = {MAPS[name]: mean(at_end(config, results, name, reading)) for name in named(config, names)}
    return ", ".join(f"{name} {found.text(digits)}" for name, found in parts.items())


def _untrained(config: Config, results: Results, reading: str) -> Interval:
    return mean(results["maps"][reading][config.maps.index(NAME), :, 0])


def _learnt(config: Config, results: Results) -> Claim:
    right = {name: at_end(config, results, name, "accuracy") for name in config.maps}
    start = results["maps"]["accuracy"][:, :, 0]
    return Claim(
        "task-learnt",
        f"Every map learns the task, uniform attention too (accuracy > {LEARNT}): any of the tokens tells the group.",
        f"{PAPER}: accuracy 1",
        "mean accuracy " + ", ".join(f"{MAPS[name]} {values.mean():.3f}" for name, values in right.items()),
        judge(*((values > LEARNT).mean() > MOST for values in right.values())),
        f"untrained {start.mean():.2f}, chance .25",
    )


def _sparse(config: Config, results: Results) -> Claim:
    soft, others = (pooled(config, results, names, "sparsity") for names in ((NAME,), (*ELEMENTWISE, *NORMALISED)))
    return Claim(
        "softmax-is-sparse",
        "Of all maps only softmax ends with nearly all attention of CLS on one token.",
        f"{PAPER}: sparsity 1.00 for softmax, .16 to .61 for others (2 runs again)",
        f"largest weight over the sum: softmax {soft.text(2)}; {_told(config, results, ELEMENTWISE, 'sparsity')}; "
        f"{_told(config, results, NORMALISED, 'sparsity')}",
        judge(soft.low > 0.9, soft.low > others.high),
        f"uniform attention {uniform_sparsity(config):.2f}, untrained softmax "
        f"{_untrained(config, results, 'sparsity').text(2)}",
    )


def _decides(config: Config, results: Results) -> Claim:
    soft, others = (pooled(config, results, names, "flip") for names in ((NAME,), ELEMENTWISE))
    either = pooled(config, results, (NAME,), "flip_random")
    return Claim(
        "one-token-decides",
        "With softmax the most attended token decides: exchanged with that of another sequence it takes the answer "
        "along in most pairs; with elementwise maps it does not.",
        f"{PAPER}: flip rate .84 to .92 for softmax, .03 to .67 for elementwise maps (2 runs again)",
        f"flip rate softmax {soft.text(2)}; {_told(config, results, ELEMENTWISE, 'flip')}",
        judge(soft.low > MOST, soft.low > others.high),
        f"any token instead of the most attended: softmax {either.text(2)}; untrained softmax "
        f"{_untrained(config, results, 'flip').text(2)}; {_told(config, results, ('uniform',), 'flip')}",
    )


def _attack(config: Config, results: Results) -> Claim:
    soft, others = (pooled(config, results, names, "attack") for names in ((NAME,), ELEMENTWISE))
    start = _untrained(config, results, "attack")
    return Claim(
        "one-token-attack",
        "A softmax model that is always right can be turned by replacing one token of almost any sequence, which "
        "elementwise maps resist.",
        f"{OURS}; it follows from one token deciding",
        f"sequences turned by the worst of all replacements: softmax {soft.text(2)}; "
        f"{_told(config, results, ELEMENTWISE, 'attack')}",
        judge(soft.low > 0.9, soft.low > others.high),
        f"{_told(config, results, ('uniform',), 'attack')}, where each of {config.distinct} tokens has the same vote; "
        f"untrained softmax {start.text(2)} of the few it has right",
    )


def _between(config: Config, results: Results) -> Claim:
    told, held = [], []
    for reading, name in (("sparsity", "sparsity"), ("flip", "flip rate")):
        soft, normal, plain = (pooled(config, results, names, reading) for names in ((NAME,), NORMALISED, ELEMENTWISE))
        told.append(f"{name}: softmax {soft.text(2)}, normalised {normal.text(2)}, elementwise {plain.text(2)}")
        held.append(normal.low > plain.high and normal.high < soft.low)
    return Claim(
        "normalisation-in-between",
        "Normalised maps other than softmax lie between softmax and the same maps without normalisation.",
        f"{PAPER}: normalised sigmoid .25 to .35 and .08 to .16, elementwise sigmoid .16 and .03 to .16",
        "; ".join(told),
        judge(*held),
        f"each map: sparsity {_told(config, results, (*NORMALISED, *ELEMENTWISE), 'sparsity')}; flip rate "
        f"{_told(config, results, (*NORMALISED, *ELEMENTWISE), 'flip')}",
    )


def _fades(config: Config, results: Results) -> Claim:
    usual = grid_values(config, results, NAME, USUAL, "flip")
    told, held = [f"{USUAL.label} {mean(usual).text(2)}"], []
    for shape in (Shape(heads=2), Shape(heads=4), Shape(layers=2)):
        found = grid_values(config, results, NAME, shape, "flip")
        told.append(f"{shape.label} {mean(found).text(2)}")
        held.append(bool(found.size and usual.size and mean(found).high < mean(usual).low))
    others = [
        f"{shape.label} {mean(grid_values(config, results, NAME, shape, 'flip')).text(2)}"
        for shape in (Shape(mlp=True), Shape(norm=True))
    ]
    return Claim(
        "fades-with-heads-and-layers",
        "The influence of one token is less with 2 heads, with 4 heads, and with 2 layers.",
        f"{PAPER}: the effect fades with more heads and layers",
        f"flip rate of softmax, mean over runs that learn the task: {'; '.join(told)}",
        judge(*held),
        f"an MLP or normalisation instead of heads or layers: {'; '.join(others)}",
    )


def _foretells(config: Config, results: Results) -> Claim:
    learnt = results["maps"]["accuracy"][..., -1] > LEARNT
    x, y = (np.where(learnt, results["maps"][name][..., -1], np.nan) for name in ("sparsity", "flip"))
    kept = [place for place, name in enumerate(config.maps) if name != "uniform"]
    without = [place for place in kept if config.maps[place] != NAME]
    found, other = (_correlation(x[places], y[places]) for places in (kept, without))
    inside = _correlation(*(values[[config.maps.index(NAME)]] for values in (x, y)))
    return Claim(
        "sparsity-foretells-flips",
        "The sparser the attention of a run, whatever its map, the more its answer hangs on one token.",
        f"{PAPER} shows both measures beside each other",
        f"rank correlation of sparsity and flip rate over runs of all maps {found.text(2)}",
        judge(found.low > STRONG, other.low > 0),
        f"without softmax {other.text(2)}; among runs of softmax {inside.text(2)}, where sparsity hardly differs",
    )


def _correlation(x: np.ndarray, y: np.ndarray) -> Interval:
    """Return the rank correlation over maps and runs (map, seed), NaN left out; a seed is drawn with all its maps."""

    def statistic(index: np.ndarray) -> np.ndarray:
        chosen = np.moveaxis(np.stack([x, y])[..., index], 1, -1)  # measure, draws, seed, map
        ranks = rankdata(chosen.reshape(*chosen.shape[:-2], -1), axis=-1, nan_policy="omit")
        count = np.maximum(np.isfinite(ranks).sum(axis=-1, keepdims=True), 1)
        left, right = ranks - np.nansum(ranks, axis=-1, keepdims=True) / count
        size = np.sqrt(np.nansum(left**2, axis=-1) * np.nansum(right**2, axis=-1))
        return np.nansum(left * right, axis=-1) / np.where(size > 0, size, 1)

    return over_seeds(x.shape[1], statistic)
