"""What the second paper says about EM on the sticky chain, what was measured, and whether it holds."""

import itertools

import numpy as np

from gradflow.experiments import audits
from gradflow.experiments.base import Claim, Results, judge
from gradflow.experiments.intervals import mean_over_seeds
from gradflow.experiments.sticky_markov.arms import ALL, CLOSED, EM, FROZEN, GRADIENT, READ_OUT, ROUTING, SGD
from gradflow.experiments.sticky_markov.config import PAPER_EM_STEPS, PAPER_SPEED_UP, Config
from gradflow.experiments.sticky_markov.numbers import (
    UNIFORM,
    at_end,
    curve,
    gain_share,
    mean_gain,
    share_of_gap,
    speed_up,
    steps_to_sgd,
)

PAPER = "arXiv 2512.22473v1, sticky Markov chain"
CODE = "public code of arXiv 2512.22473"
STANDARD_ERRORS = 3  # within which a mean agrees with what is expected
ENTROPY_RATE = 1.829188059  # nats, of the rows of the public code
SPEED_UPS = (1.6, 3.4)  # what other random streams than the paper's may give
GAPS = (0.08, 0.12)  # nats
GROUPS = ((SGD, FROZEN), (EM, READ_OUT), (ROUTING,), (CLOSED, ALL))  # by loss, of an independent run
NEAR = 0.9  # part of the way to the optimum
BROAD = 0.95  # attention entropy over its largest value
SAME_FLOW = 0.1  # relative difference of the speed-ups of flow and descent


def claims(config: Config, results: Results) -> list[Claim]:
    """Judge every claim on the results.

    Args:
        config: settings of the run.
        results: of all stages.

    Returns:
        The claims, in the order of the argument.
    """
    makers = (
        _self_probability,
        _entropy_rate,
        _speed_up,
        _gap,
        _order,
        _values_suffice,
        _values_only,
        _slow_routing,
        _closed_form,
        _near_optimum,
        _same_symbol,
        _flow,
        _laws,
    )
    return [make(config, results) for make in makers]


def _self_probability(config: Config, results: Results) -> Claim:
    stay = float(results["chain"]["row"][0])
    return Claim(
        "self-probability",
        "The chain keeps its symbol with probability .3",
        PAPER + ": .3 self, 1/distance elsewhere",
        f"the rows of the public code keep it with probability {stay:.6f}: they are normalised with .3 on the "
        f"diagonal, scaled by .7, and .3 is added again; H_min is {float(results['chain']['entropy_rate']):.6f} nats",
        judge(abs(stay - 0.3) < 1e-3),
        f"a literal .3 would give H_min = {float(results['chain']['literal_entropy_rate']):.5f} nats",
    )


def _entropy_rate(config: Config, results: Results) -> Claim:
    chain = results["chain"]
    rate, seen, row = float(chain["entropy_rate"]), chain["symbols_loss"], chain["row"]
    # Jumps are independent, since every row is the same law of the distance.
    variance = float((row * np.log(row) ** 2).sum()) - rate**2
    error = (variance / (len(seen) * (config.length - 1))) ** 0.5
    return Claim(
        "entropy-rate",
        "H_min = 1.829188 nats = 2.639 bits is the least loss to be expected of a reader of the symbols",
        CODE + ": rows .34980 .16601 .08300 .05534 .04150 by distance",
        f"H_min = {rate:.9f} nats = {rate / np.log(2):.5f} bits; on {len(seen)} sequences the chain's own rows have "
        f"loss {seen.mean():.4f} nats, {(seen.mean() - rate) / error:+.1f} standard errors of {error:.4f} away",
        judge(abs(rate - ENTROPY_RATE) < 1e-9, bool(abs(seen.mean() - rate) < STANDARD_ERRORS * error)),
        f"the exact filter, which sees the noise alone, has {chain['filter_loss'].mean():.4f} nats on the same "
        "sequences: the means are far apart, so that little is lost to the noise",
    )


def _speed_up(config: Config, results: Results) -> Claim:
    found, steps, itself = speed_up(results, EM), steps_to_sgd(results, EM), speed_up(results, SGD)
    others = ", ".join(f"{arm.label} {speed_up(results, arm).text(2)}" for arm in (READ_OUT, ROUTING, ALL, FROZEN))
    return Claim(
        "em-is-faster",
        "With values ten times as fast (EM) training reaches SGD's final loss about 2.3 times as soon",
        f"{PAPER}: {PAPER_EM_STEPS} steps instead of 1000, {PAPER_SPEED_UP}x",
        f"{found.text(2)}x (95 % bootstrap over {len(steps)} seeds); EM steps {_listed(steps)}",
        judge(SPEED_UPS[0] < found.value < SPEED_UPS[1], found.low > itself.value),
        f"by this criterion SGD is {itself.text(2)}x as fast as itself, since seeds differ; the other arms: {others}",
    )


def _gap(config: Config, results: Results) -> Claim:
    found, sgd, em = mean_gain(results, EM), at_end(results, SGD), at_end(results, EM)
    return Claim(
        "em-ends-lower",
        f"After {config.steps} steps EM's loss is lower than SGD's",
        f"{PAPER}; its code gives 2.0310 and 1.9319 nats",
        f"SGD {sgd.mean():.4f} ± {sgd.std():.4f} nats, EM {em.mean():.4f} ± {em.std():.4f}: lower by {found.text()}",
        judge(GAPS[0] < found.value < GAPS[1], found.low > 0),
        f"uniform {UNIFORM:.4f} nats, exact filter {results['chain']['filter_loss'].mean():.4f}",
    )


def _order(config: Config, results: Results) -> Claim:
    means = [[float(at_end(results, arm).mean()) for arm in group] for group in GROUPS]
    ordered = [min(slower) > max(faster) for slower, faster in itertools.pairwise(means)]
    listed = "; ".join(
        ", ".join(f"{arm.label} {value:.4f}" for arm, value in zip(group, row, strict=True))
        for group, row in zip(GROUPS, means, strict=True)
    )
    return Claim(
        "controls-in-order",
        "The arms end in the order of an independent run: SGD and V ×10 without routing, EM and O ×10, Q, K ×10, the "
        "closed form and all ×10",
        "not in the paper; the independent run (seed 42) gives 2.0647, 2.0609; 1.9802, 1.9740; 1.8891; 1.8483, 1.8456 "
        "nats",
        f"mean final loss in nats: {listed}",
        judge(*ordered),
        f"closed form after {config.closed_steps} steps, all others after {config.steps}; settings of the controls are "
        "ours",
    )


def _values_suffice(config: Config, results: Results) -> Claim:
    share, gains = gain_share(results, FROZEN), mean_gain(results, FROZEN)
    return Claim(
        "values-suffice",
        "EM's gain is made by the values: it does not need the routing to move",
        f"{PAPER}: the gain is that of the M step on the values",
        f"with Q and K frozen, V ×10 gains {gains.text(4)} nats, {100 * share.value:.0f} % of EM's gain "
        f"[{100 * share.low:.0f}, {100 * share.high:.0f}]",
        judge(share.value > 0.5),
        "the same step size of V, with W_Q and W_K at their initial values",
    )


def _values_only(config: Config, results: Results) -> Claim:
    share, gains = gain_share(results, READ_OUT), mean_gain(results, READ_OUT)
    return Claim(
        "specific-to-values",
        "The gain is specific to fast values",
        f"{PAPER}: values as prototypes, updated by an M step",
        f"O ×10 with V ×1 gains {gains.text()} nats, {100 * share.value:.0f} % of EM's gain [{100 * share.low:.0f}, "
        f"{100 * share.high:.0f}]",
        judge(share.value < 0.5),
        "O ×10: V and O enter the loss as one product, and the flow conserves W_V^T W_V / eta_V - W_O W_O^T / eta_O",
    )


def _slow_routing(config: Config, results: Results) -> Claim:
    routing, em = mean_gain(results, ROUTING), mean_gain(results, EM)
    share = gain_share(results, ROUTING)
    wins = int((at_end(results, ROUTING) < at_end(results, EM)).sum())
    return Claim(
        "fast-values-slow-routing",
        "Fast values beside slow routing are the better two time scales",
        f"{PAPER}: EM is V ×10 with Q, K ×1",
        f"Q, K ×10 with V ×1 gains {routing.text()} nats, {share.text(1)} times what EM gains, and ends lower in "
        f"{wins} of {len(config.seeds)} seeds; all ×10 gains {mean_gain(results, ALL).text()}",
        judge(em.value > routing.value),
        "the opposite choice of the fast leaves",
    )


def _closed_form(config: Config, results: Results) -> Claim:
    loss, em = at_end(results, CLOSED), at_end(results, EM)
    spread = at_end(results, CLOSED, "attention_entropy")
    return Claim(
        "m-step-without-sharp-routing",
        "An exact M step gains while attention stays broad",
        "not in the paper, whose code has no closed form; the step is the minimum of Boehning's bound over W_V",
        f"after {config.closed_steps} steps {loss.mean():.4f} ± {loss.std():.4f} nats (EM after {config.steps}: "
        f"{em.mean():.4f}) with attention entropy / log i = {spread.mean():.3f}",
        judge(bool((loss < em).all()), bool((spread > BROAD).all())),
        f"attention entropy / log i of SGD {at_end(results, SGD, 'attention_entropy').mean():.3f}, EM "
        f"{at_end(results, EM, 'attention_entropy').mean():.3f}, Q, K ×10 "
        f"{at_end(results, ROUTING, 'attention_entropy').mean():.3f}",
    )


def _near_optimum(config: Config, results: Results) -> Claim:
    floor, rate = results["chain"]["filter_loss"], float(results["chain"]["entropy_rate"])
    shares = {arm.label: share_of_gap(results, arm, floor) for arm in (SGD, EM)}
    parts = [
        f"{name} {100 * share.value:.0f} % [{100 * share.low:.0f}, {100 * share.high:.0f}]"
        for name, share in shares.items()
    ]
    bound = [f"{100 * share_of_gap(results, arm, rate).value:.0f} %" for arm in (SGD, EM)]
    unsure = [f"{at_end(results, arm, 'prediction_entropy').mean():.3f}" for arm in (SGD, EM)]
    return Claim(
        "near-the-optimum",
        f"After {config.steps} steps SGD and EM are near the least possible loss",
        "arXiv 2512.22473v2: both entropies near minimum",
        f"part of the way from uniform to the exact filter: {'; '.join(parts)} (to H_min {' and '.join(bound)}); "
        f"prediction entropy {' and '.join(unsure)} nats",
        judge(*(share.value > NEAR for share in shares.values())),
        f"uniform {UNIFORM:.4f}, exact filter {floor.mean():.4f}, H_min {rate:.4f} nats",
    )


def _same_symbol(config: Config, results: Results) -> Claim:
    same, known, chance = (curve(results, ALL, name) for name in ("same_symbol", "information", "chance"))
    grew = same[:, -1] - same[:, 0]
    found = mean_over_seeds(grew)
    return Claim(
        "same-symbol-attention",
        "A head that learns to route attends more to positions with its own symbol",
        f"{PAPER}: attention as responsibilities of prototypes",
        f"all ×10: the weight on the own symbol changes by {found.text()} and falls in "
        f"{int((grew < 0).sum())} of {len(grew)} seeds (mean from {same[:, 0].mean():.3f} to "
        f"{same[:, -1].mean():.3f}), while the information of own and attended symbol goes from "
        f"{known[:, 0].mean():.3f} to {known[:, -1].mean():.3f} bits",
        judge(found.low > 0),
        f"information with the symbols permuted: {chance[:, -1].mean():.3f} bits; weight on the own symbol by "
        "chance: .125",
    )


def _flow(config: Config, results: Results) -> Claim:
    flow, descent = speed_up(results, EM, "flow"), speed_up(results, EM)
    worst, where = max((abs(float(np.mean(_differences(results, arm)))), arm.label) for arm in GRADIENT)
    names = [arm.name for arm in GRADIENT]
    orders = [
        [
            name
            for _, name in sorted(zip((at_end(results, arm, stage=s).mean() for arm in GRADIENT), names, strict=True))
        ]
        for s in ("flow", "descent")
    ]
    order = "the same" if orders[0] == orders[1] else "another"
    return Claim(
        "flow-agrees",
        "The comparison is one of the rates of the gradient flow, not of finite steps",
        "not in the paper; rates instead of step sizes, t = eta k",
        f"speed-up of EM {flow.text(2)}x along the flow, {descent.text(2)}x along the descent; mean final losses "
        f"differ by at most {worst:.4f} nats ({where}); the arms end in {order} order",
        judge(abs(flow.value / descent.value - 1) < SAME_FLOW, orders[0] == orders[1]),
        f"flow at rtol {config.rtol:.0e}: {int(results['flow']['evaluations'].mean())} gradients a run on average, "
        f"of descent {config.steps}",
    )


def _differences(results: Results, arm) -> np.ndarray:
    return at_end(results, arm, stage="flow") - at_end(results, arm)


def _laws(config: Config, results: Results) -> Claim:
    audit = audits.loaded(results["flow"])
    return Claim(
        "laws",
        "Along the flow every closed form of the head's gradients and every conserved quantity holds",
        "arXiv 2512.22473, routing and responsibility laws; identities derived",
        f"on the EM arm of seed {config.seeds[0]} at {config.audited} times {audits.measured(audit)}",
        audits.verdict(audit),
        "automatic differentiation of the head itself, which shares no formula with the laws",
    )


def _listed(steps: np.ndarray) -> str:
    return ", ".join(f"{step:.0f}" if np.isfinite(step) else "none" for step in steps)
