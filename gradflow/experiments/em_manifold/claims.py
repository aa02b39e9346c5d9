"""What the second paper says of EM and the value manifold, what was measured, and whether it holds."""

import numpy as np

from gradflow.experiments import audits
from gradflow.experiments.base import Claim, Results, judge
from gradflow.experiments.em_manifold.config import Config
from gradflow.experiments.em_manifold.numbers import at_loss, difference, sooner, steps_to
from gradflow.experiments.intervals import Interval, mean_over_seeds
from gradflow.experiments.sticky_markov.arms import ALL, ARMS, CLOSED, EM, FROZEN, READ_OUT, ROUTING, SGD, Arm
from gradflow.experiments.sticky_markov.numbers import at_end, curve

PAPER = "arXiv 2512.22473, EM-like training"
MANIFOLD = "arXiv 2512.22473, value manifold"
PAPER_FIRST = 0.84  # of PC1, the low end of what the paper reports
SAME = 0.1  # of SGD's own change, within which two arms are the same at equal loss
RATIO = "values_ratio"


def claims(config: Config, results: Results) -> list[Claim]:
    """Judge every claim on the results.

    Args:
        config: settings of the run.
        results: of all stages.

    Returns:
        The claims, in the order of the argument.
    """
    makers = (
        _narrow,
        _one_axis,
        _sooner,
        _needs_learning,
        _same_at_equal_loss,
        _routing,
        _better_is_narrower,
        _entropy_axis,
        _laws,
    )
    return [make(config, results) for make in makers]


def _narrow(config: Config, results: Results) -> Claim:
    ends, before = at_end(results, EM, RATIO), curve(results, EM, RATIO)[:, 0]
    without = at_end(results, EM, RATIO, "shuffled")
    fell, beyond = difference(ends, before), difference(ends, without)
    return Claim(
        "values-narrow",
        "Training with EM draws the values onto fewer dimensions, because there is something to learn",
        f"{MANIFOLD}: values along a low-dimensional manifold; participation ratio of standardised values",
        f"participation ratio {_mean(before)} at the start, {_mean(ends)} after {config.steps} steps: {fell.text(2)}",
        judge(fell.high < 0, beyond.high < 0),
        f"targets in random order: {_mean(without)}, true targets lower by {beyond.text(2)}; Gaussian vectors "
        f"{results['chain']['noise_ratio'].mean():.1f} of 15, the inputs themselves "
        f"{results['chain']['inputs_ratio'].mean():.1f} of 20",
    )


def _one_axis(config: Config, results: Results) -> Claim:
    first = mean_over_seeds(at_end(results, EM, "values_first"))
    most = max((float(curve(results, arm, "values_first").mean(axis=0).max()), arm.label) for arm in ARMS)
    outputs = max((float(curve(results, arm, "outputs_first").mean(axis=0).max()), arm.label) for arm in ARMS)
    return Claim(
        "one-axis",
        "One axis holds most of the variance of the values",
        f"{MANIFOLD}: PC1 of standardised values has 84-90 %",
        f"PC1 has {first.text(2)} with EM after {config.steps} steps; the most of any arm at any save is {most[0]:.2f} "
        f"({most[1]}), of the outputs G = A V {outputs[0]:.2f} ({outputs[1]})",
        judge(first.value > PAPER_FIRST),
        f"before training {curve(results, EM, 'values_first')[:, 0].mean():.2f}, Gaussian vectors "
        f"{results['chain']['noise_first'].mean():.2f}, inputs {results['chain']['inputs_first'].mean():.2f}",
    )


def _sooner(config: Config, results: Results) -> Claim:
    parts = {name: sooner(results, EM, name) for name in (RATIO, "values_first")}
    ends = difference(at_end(results, EM, RATIO), at_end(results, SGD, RATIO))
    others = ", ".join(f"{arm.label} {sooner(results, arm, RATIO).text(1)}" for arm in (READ_OUT, ROUTING, ALL))
    reached = steps_to(results, EM, RATIO, at_end(results, SGD, RATIO))
    return Claim(
        "em-draws-it-sooner",
        "At equal step EM's value manifold is the narrower one: it is drawn earlier",
        f"{PAPER}: values as prototypes; no time is given",
        f"EM has SGD's final participation ratio {parts[RATIO].text(2)} times as soon (steps "
        f"{', '.join(f'{step:.0f}' for step in reached)}) and its share of PC1 {parts['values_first'].text(2)} times; "
        f"after {config.steps} steps the ratio differs by {ends.text(2)}",
        judge(parts[RATIO].low > 1, parts["values_first"].low > 1, ends.high < 0),
        f"participation ratio with the other arms: {others}",
    )


def _needs_learning(config: Config, results: Results) -> Claim:
    frozen, same = (difference(at_end(results, arm, RATIO), at_end(results, SGD, RATIO)) for arm in (FROZEN, READ_OUT))
    losses = difference(at_end(results, FROZEN), at_end(results, SGD))
    whole = difference(at_end(results, EM, RATIO), at_end(results, SGD, RATIO))
    return Claim(
        "manifold-needs-em",
        "The earlier manifold comes with EM's gain: it is not there when the values are fast and nothing is gained",
        f"{PAPER}: manifold and gain are two sides of EM",
        f"V ×10 with Q and K frozen ends {losses.text()} nats from SGD, and its participation ratio differs by "
        f"{frozen.text(2)}, that of EM by {whole.text(2)}; it has "
        f"SGD's {sooner(results, FROZEN, RATIO).text(2)} times as soon",
        judge(frozen.high >= 0),
        f"O ×10, which ends at EM's loss ({at_end(results, READ_OUT).mean():.3f} and "
        f"{at_end(results, EM).mean():.3f} nats), differs from SGD by {same.text(2)}",
    )


def _same_at_equal_loss(config: Config, results: Results) -> Claim:
    part, itself, faster = part_of_change(results, EM, RATIO), _at_sgd(results, EM, RATIO), _at_sgd(results, ALL, RATIO)
    listed = ", ".join(f"{arm.label} {_at_sgd(results, arm, RATIO).text(2)}" for arm in (READ_OUT, ROUTING, CLOSED))
    return Claim(
        "same-at-equal-loss",
        "EM only goes faster: at equal loss its value manifold is that of SGD",
        f"{PAPER} compares at equal step only",
        f"where EM's loss is SGD's final one its participation ratio differs by {itself.text(2)}, "
        f"which is {part.text(2)} of SGD's own change",
        judge(abs(part.value) < SAME),
        f"all ×10, which only goes faster, differs by {faster.text()}; {listed}",
    )


def _routing(config: Config, results: Results) -> Claim:
    at = {arm.name: _at_sgd(results, arm, "alignment") for arm in (EM, READ_OUT, ROUTING, ALL)}
    own = at[EM.name]
    soon, informed = sooner(results, EM, "alignment"), _at_sgd(results, EM, "information")
    return Claim(
        "em-aligns-queries-and-keys",
        "EM aligns queries with the keys they attend to earlier, at equal step and at equal loss",
        f"{PAPER}: responsibilities follow prototypes",
        f"mean cosine weighted by attention: {_mean(at_end(results, SGD, 'alignment'))} with SGD, "
        f"{_mean(at_end(results, EM, 'alignment'))} with EM, which has SGD's {soon.text(2)} times as soon; at SGD's "
        f"final loss EM's differs by {own.text()} and its information "
        f"differs by {informed.text()} bits",
        judge(soon.low > 1, own.low > 0),
        f"at SGD's final loss O ×10 differs by {at[READ_OUT.name].text()}, Q, K ×10 by {at[ROUTING.name].text()}, all "
        f"×10 by {at[ALL.name].text()}; all keys alike: {_mean(at_end(results, EM, 'alignment_uniform'))}",
    )


def _better_is_narrower(config: Config, results: Results) -> Claim:
    lower, wider = (difference(at_end(results, ALL, name), at_end(results, EM, name)) for name in ("loss", RATIO))
    values, outputs = (curve(results, ALL, name).mean(axis=0) for name in (RATIO, "outputs_ratio"))
    at = int(values.argmin())
    return Claim(
        "better-is-narrower",
        "The more a head has learned the narrower its value manifold",
        f"{MANIFOLD}: loss falls as the manifold takes shape",
        f"all ×10 ends {lower.text()} nats from EM with a participation ratio that differs by {wider.text(2)}; its own "
        f"falls from {values[0]:.2f} to {values[at]:.2f} at step {int(results['descent']['step'][at])} and ends at "
        f"{values[-1]:.2f}, that of its outputs from {outputs[0]:.2f} to {outputs.min():.2f}, and ends at "
        f"{outputs[-1]:.2f}",
        judge(wider.high < 0),
        f"Q, K ×10 ends at {at_end(results, ROUTING).mean():.3f} nats with {_mean(at_end(results, ROUTING, RATIO))}, "
        f"EM at {at_end(results, EM).mean():.3f} with {_mean(at_end(results, EM, RATIO))}",
    )


def _entropy_axis(config: Config, results: Results) -> Claim:
    name, chain = "values_entropy", results["chain"]
    ends = at_end(results, EM, name)
    against = {
        "the same entropies permuted": at_end(results, EM, "values_chance"),
        "PC1 of the inputs": chain["inputs_entropy"],
        "targets in random order": at_end(results, EM, name, "shuffled"),
    }
    found = {label: (_mean(values), difference(ends, values)) for label, values in against.items()}
    others = ", ".join(f"{arm.label} {_mean(at_end(results, arm, name))}" for arm in (SGD, ALL, CLOSED))
    return Claim(
        "entropy-axis",
        "The first axis of the values follows the posterior entropy, and training makes it so",
        f"{MANIFOLD}: PC1 follows posterior entropy",
        f"|Spearman| of PC1 and the exact filter's entropy after {config.steps} steps of EM: {_mean(ends)}; the other "
        f"arms: {others}; the filter's entropy is H_min within .01 bits at "
        f"{100 * np.mean(chain['entropies'] < chain['entropy_rate'] + 0.01):.0f} % of the positions",
        judge(*(difference.low > 0 for _, difference in found.values())),
        "; ".join(f"{label} {mean}, EM more by {gap.text()}" for label, (mean, gap) in found.items()),
    )


def _laws(config: Config, results: Results) -> Claim:
    audit = audits.loaded(results["audit"])
    return Claim(
        "laws",
        "Along the flow of the head every closed form of its gradients and every conserved quantity holds",
        "arXiv 2512.22473, routing and responsibility laws; identities derived",
        f"on the SGD arm of seed {config.seeds[0]}, {config.audit_length - 1} positions, {audits.measured(audit)}",
        audits.verdict(audit),
        "automatic differentiation of the head itself, which shares no formula with the laws",
    )


def part_of_change(results: Results, arm: Arm, name: str) -> Interval:
    """Return by how much an arm differs from SGD at SGD's final loss, as a part of SGD's mean change."""
    change = float((at_end(results, SGD, name) - curve(results, SGD, name)[:, 0]).mean())
    found = _at_sgd(results, arm, name)
    low, high = sorted((found.low / change, found.high / change))
    return Interval(found.value / change, low, high)


def _at_sgd(results: Results, arm: Arm, name: str) -> Interval:
    """Return by how much an arm differs from SGD where its loss first is SGD's final one, seed by seed."""
    return difference(at_loss(results, arm, name, at_end(results, SGD)), at_end(results, SGD, name))


def _mean(values: np.ndarray) -> str:
    return f"{values.mean():.2f}"
