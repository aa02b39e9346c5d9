"""What the toy simulation is said to show, and whether it does."""

import numpy as np

from gradflow.experiments import audits
from gradflow.experiments.base import Claim, Results, judge
from gradflow.experiments.routing import readings
from gradflow.experiments.routing.config import CLASSES, Config
from gradflow.experiments.routing.stages import stage_name

SHARPENED = 0.25  # by which the entropy over log i must fall
FOUND = 0.75  # of the attention on stored pairs that must lie on the asked one
FORESEEN = 0.05  # relative residual of the change that a law foresees
WRONG = 0.1  # that of a wrong law, at least
TOY = "arXiv 2512.22473, toy simulation; no settings are published"


def claims(config: Config, results: Results) -> list[Claim]:
    """Judge every claim."""
    judges = (sharpen, onto_answer, path, structure, smooth, law, alone, specialise, audited)
    return [judge_claim(config, results) for judge_claim in judges]


def sharpen(config: Config, results: Results) -> Claim:
    """Judge whether attention sharpens in every seed at every size."""
    entropy = readings.every_size(config, results, "entropy")
    fallen = entropy[..., 0] - entropy[..., -1]
    ends = _each(config, lambda pairs: readings.curve(config, results, "entropy", pairs=pairs)[:, -1])
    controls = {arm: readings.curve(config, results, "entropy", arm)[:, -1] for arm in ("meaningless", "sigmoid")}
    return Claim(
        "heat-maps-sharpen",
        "the heat maps of attention sharpen during training",
        f"{TOY}: qualitative",
        f"entropy / log i of the questions' rows, from {entropy[..., 0].mean():.2f} to {ends}; it falls by more than "
        f"{SHARPENED} in {(fallen > SHARPENED).sum()} of {fallen.size} runs. Not to one-hot: a question also meets "
        "its own key at earlier questions, which holds no value and costs nothing",
        judge(*(fallen > SHARPENED).ravel().tolist()),
        f"at {_length(config.middle)}: labels at random {readings.mean(controls['meaningless']).text(2)}, elementwise "
        f"sigmoid {readings.mean(controls['sigmoid']).text(2)}, which solves the task as well (accuracy on new "
        f"sequences {readings.curve(config, results, 'fresh_accuracy', 'sigmoid')[:, -1].mean():.2f}); uniform 1",
    )


def onto_answer(config: Config, results: Results) -> Claim:
    """Judge whether sharpening goes to the pair that is asked for, and whether the loss needs it."""
    found = readings.every_size(config, results, "right")[..., -1]
    own, fixed = (readings.curve(config, results, "loss", arm)[:, -1] for arm in ("softmax", "uniform"))
    gap = readings.mean(fixed - own)
    blind = readings.curve(config, results, "right", "meaningless")[:, -1]
    accuracies = [
        readings.curve(config, results, "fresh_accuracy", arm)[:, -1].mean() for arm in ("softmax", "uniform")
    ]
    return Claim(
        "sharpening-is-routing",
        "attention sharpens onto the position that lowers the loss",
        "arXiv 2512.22473, routing law and toy simulation: qualitative",
        "of the attention on stored pairs, the share on the asked one ends at "
        f"{_each(config, lambda pairs: readings.curve(config, results, 'right', pairs=pairs)[:, -1])}, from 1/pairs; "
        f"accuracy on new sequences {accuracies[0]:.2f} at {_length(config.middle)}",
        judge(bool((found > FOUND).all()), gap.low > 0),
        f"with routing kept uniform the loss ends {gap.text(2)} nats higher, accuracy on new sequences "
        f"{accuracies[1]:.2f}; with labels at random the share is {readings.mean(blind).text(2)} "
        f"(chance {1 / config.middle:.2f})",
    )


def path(config: Config, results: Results) -> Claim:
    """Judge whether values move along fewer dimensions than a random walk does."""
    shares = {pairs: readings.path_shares(config, results, pairs=pairs) for pairs in config.pairs}
    walks = {pairs: np.quantile(readings.walk_shares(config, results, pairs), (0.5, 0.975)) for pairs in config.pairs}
    cloud = readings.curve(config, results, "participation")[:, -1]
    return Claim(
        "value-path-low-dimensional",
        "values follow a low-dimensional path in PCA",
        f"{TOY}: qualitative",
        f"PC1 + PC2 hold {_each(config, shares.get)} of the path of all values of a sequence, at equal distances "
        f"along it; the cloud of values itself ends with {readings.mean(cloud).text(2)} dimensions (participation "
        f"ratio), near the {CLASSES - 1} that {CLASSES} classes need",
        judge(*(bool((shares[pairs] > walks[pairs][1]).all()) for pairs in config.pairs)),
        "a random walk of W_V of as many steps has "
        + ", ".join(f"{walks[pairs][0]:.2f} (97.5 %: {walks[pairs][1]:.2f})" for pairs in config.pairs)
        + " already: few steps always look low-dimensional",
    )


def structure(config: Config, results: Results) -> Claim:
    """Judge whether a path of few dimensions is a sign that something was learned."""
    shares = {
        arm: readings.path_shares(config, results, arm) for arm in ("softmax", "meaningless", "uniform", "sigmoid")
    }
    walks = np.quantile(readings.walk_shares(config, results, config.middle), 0.975)
    more = {arm: readings.mean(shares["softmax"] - shares[arm]) for arm in ("meaningless", "uniform")}
    return Claim(
        "low-dimension-is-structure",
        "a path of few dimensions is a sign that structure was learned",
        "arXiv 2512.22473, value manifold: implied",
        f"share of PC1 + PC2 at {_length(config.middle)}: softmax {readings.mean(shares['softmax']).text(2)}; that is "
        f"more than with labels at random by {more['meaningless'].text(2)} only, than with routing kept uniform by "
        f"{more['uniform'].text(2)}",
        judge(*(bool(shares[arm].mean() <= walks) for arm in more)),
        f"labels that mean nothing {readings.mean(shares['meaningless']).text(2)}, uniform routing "
        f"{readings.mean(shares['uniform']).text(2)}, elementwise sigmoid {readings.mean(shares['sigmoid']).text(2)}: "
        f"all flatter than random walks (97.5 %: {walks:.2f}), so descent on anything gives such a path",
    )


def smooth(config: Config, results: Results) -> Claim:
    """Judge whether the loss falls without rising, for flow and descent."""
    rising = {
        name: np.stack([readings.rises(results[stage_name(pairs)][f"{name}_loss"]) for pairs in config.pairs])
        for name in ("flow", "descent", "large")
    }
    loss = readings.curve(config, results, "loss")
    early, late = (readings.mean(readings.fall_time(config.ts, loss, part)) for part in (0.1, 0.9))
    runs = rising["flow"].size
    return Claim(
        "loss-falls-smoothly",
        "the loss falls smoothly",
        f"{TOY}: qualitative",
        f"it never rises from save to save in {(rising['flow'] == 0).sum()} of {runs} flows and "
        f"{(rising['descent'] == 0).sum()} of {runs} descents with eta = {config.step_size:g}. It waits first: at "
        f"{_length(config.middle)} a tenth of the fall takes until t = {early.text(0)}, nine tenths until "
        f"{late.text(0)}",
        judge(bool((rising["flow"] == 0).all()), bool((rising["descent"] == 0).all())),
        f"a theorem for the flow; descent with eta = {config.large_step:g} rises or leaves the floats in "
        f"{(rising['large'] > 0).sum()} of {runs} runs",
    )


def law(config: Config, results: Results) -> Claim:
    """Judge whether D, carried through W_Q and W_K, is the change of the weights under a step of descent."""
    residuals = np.stack([results[stage_name(pairs)]["descent_law_residual"] for pairs in config.pairs])
    uncentred, flipped = (
        np.stack([results[stage_name(pairs)][f"descent_{name}_residual"] for pairs in config.pairs])
        for name in ("uncentred", "flipped")
    )
    sigmoid = {name: results["controls"][f"sigmoid_{name}_residual"] for name in ("law", "softmax_law")}
    wrong = [float(np.median(x)) for x in (uncentred, flipped, sigmoid["softmax_law"])]
    return Claim(
        "advantage-law",
        "descent changes attention by D = A (b - E[b]), minus the advantage times the weight",
        "arXiv 2512.22473, routing law",
        f"a step of eta = {config.step_size:g} changes the questions' weights as D foresees once it is carried through "
        f"W_Q and W_K: relative residual at most {residuals.max():.1e} (median {np.median(residuals):.0e}), which is "
        "the step's second order",
        judge(bool(residuals.max() < FORESEEN), min(wrong) > WRONG),
        f"median residuals without the baseline E[b] {wrong[0]:.2f}, with the other sign {wrong[1]:.2f}, with the "
        f"softmax's law for a sigmoid head {wrong[2]:.2f} (with its own law {np.median(sigmoid['law']):.0e})",
    )


def alone(config: Config, results: Results) -> Claim:
    """Judge whether the advantage of an entry, without the other positions, says how its weight changes."""
    seeds = {
        name: np.stack(
            [results[stage_name(pairs)][f"descent_{name}"].mean(axis=-1) for pairs in config.pairs], axis=1
        ).mean(axis=1)
        for name in ("alone_correlation", "alone_uncentred_correlation", "alone_sign", "law_correlation")
    }
    found = {name: readings.mean(values) for name, values in seeds.items()}
    centring = readings.mean(seeds["alone_correlation"] - seeds["alone_uncentred_correlation"])
    correlation = found["alone_correlation"]
    return Claim(
        "advantage-alone",
        "attention grows where the advantage is positive: the entry's own advantage says how its weight changes",
        "arXiv 2512.22473, routing law read as a rule of motion",
        f"correlation of -D, taken as the step of free scores, with the observed change of the weights: "
        f"{correlation.text(2)}, mean over saves and sizes; {found['alone_sign'].text(2)} of all change has the sign "
        "that it says",
        judge(correlation.low > 0, correlation.low > 0.9, centring.low > 0),
        f"carried through W_Q and W_K, shared by all positions: {found['law_correlation'].text(3)}. Without the "
        f"baseline alone {found['alone_uncentred_correlation'].text(2)}: with shared matrices the gain of the baseline "
        f"is {centring.text(3)}",
    )


def specialise(config: Config, results: Results) -> Claim:
    """Judge whether columns of attention serve questions of one class."""
    ends = {
        name: readings.every_size(config, results, name)[..., -1].mean(axis=0)
        for name in ("specialisation", "specialisation_chance")
    }
    start = readings.every_size(config, results, "specialisation")[..., 0].mean(axis=0)
    above = readings.mean(ends["specialisation"] - ends["specialisation_chance"])
    blind = readings.curve(config, results, "specialisation", "meaningless")[:, -1]
    return Claim(
        "positions-specialise",
        "positions specialise: each serves questions of one class",
        "arXiv 2512.22473, specialisation of values: qualitative",
        f"specialisation (1 - H(class | position) / H(class)) from {readings.mean(start).text(2)} to "
        f"{readings.mean(ends['specialisation']).text(2)}, mean over sizes",
        judge(above.low > 0.1),
        f"classes permuted among the questions {readings.mean(ends['specialisation_chance']).text(2)}: a sharp "
        f"position serves few questions and looks special by that alone; what is left is {above.text(2)}. Labels at "
        f"random {readings.mean(blind).text(2)}",
    )


def audited(config: Config, results: Results) -> Claim:
    """Judge the audit of the first flow at the middle size."""
    audit = audits.loaded(results[stage_name(config.middle)])
    wrong = results["controls"]["sigmoid_softmax_law_residual"]
    return Claim(
        "laws-hold",
        "every law of attention that applies to the run holds along it",
        "arXiv 2512.22473, sections on gradients",
        f"on one flow {audits.measured(audit)}",
        audits.verdict(audit),
        f"the softmax's law on a sigmoid head misses by {np.median(wrong):.0%}",
    )


def _each(config: Config, values) -> str:
    found = [readings.mean(values(pairs)).text(2) for pairs in config.pairs]
    return ", ".join(found) + f" (T = {', '.join(str(3 * pairs) for pairs in config.pairs)})"


def _length(pairs: int) -> str:
    return f"T = {3 * pairs}"
