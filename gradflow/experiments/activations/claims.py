"""What setting B is said to show, and whether it does."""

import numpy as np

from gradflow.experiments.activations.config import (
    KINKED,
    LATE,
    LATE_REFERENCE,
    LOSSES,
    NAMES,
    REFERENCE,
    SIX,
    Config,
)
from gradflow.experiments.activations.stages import REPORTED_TAU
from gradflow.experiments.base import Claim, Results, judge

POSITIVE = ("normalised-abs", "normalised-square", "softmax", "normalised-relu")
ELEMENTWISE = ("sigmoid", "relu", "elu", "linear")
TOLERANCE = 1e-5  # absolute, of weights
SLIDING = 1e-4  # of the map that slides along its kink: the order of a sum decides which side of it a step lands on
ONE_HOT = 0.95
CONSERVED_UNTIL, CONSERVED = 1e5, 1e-9
PAPER = "figure of six maps"


def claims(config: Config, results: Results) -> list[Claim]:
    """Judge every claim."""
    judges = (reproduced, positive, elementwise, square, signed, l1_flow, in_the_end, primitive)
    return [judge_claim(config, results) for judge_claim in judges]


def share(weights: np.ndarray) -> np.ndarray:
    """Return the largest weight over the sum of magnitudes: 1/n is uniform, 1 one-hot, whatever the map's scale."""
    return np.abs(weights).max(axis=-1) / np.abs(weights).sum(axis=-1)


def final_share(results: Results, loss: str, name: str, stage: str = "descent") -> float:
    """Return the share of the largest weight at the end of a run."""
    return float(share(results[stage][f"{loss}_weights"][-1, NAMES.index(name)]))


def listed(names, value) -> str:
    """Write one number a map."""
    return ", ".join(f"{name} {value(name):.3g}" for name in names)


def reproduced(config: Config, results: Results) -> Claim:
    """Compare descent with an independent run of the same settings."""
    errors = {}
    for loss in LOSSES:
        for map_ in SIX:
            weights = results["descent"][f"{loss}_weights"][-1, NAMES.index(map_.name)]
            largest, smallest = REFERENCE[loss][map_.name]
            errors[loss, map_.name] = max(abs(weights.max() - largest), abs(weights.min() - smallest))
    smooth = max(error for key, error in errors.items() if key != ("logistic", KINKED))
    return Claim(
        "settings-reproduced",
        "gradient descent from the paper's draws ends at the weights that its settings give",
        f"{PAPER}: six maps, two losses; numbers from an independent NumPy descent",
        f"largest and smallest weight differ by at most {smooth:.1e} for eleven of the twelve runs and by "
        f"{errors['logistic', KINKED]:.1e} for L1 with the logistic loss, which slides along its kink",
        judge(smooth < TOLERANCE, errors["logistic", KINKED] < SLIDING),
        "the same draws and step sizes in a loop that shares no code with gradflow",
    )


def positive(config: Config, results: Results) -> Claim:
    """Judge that positive normalised maps go one-hot under the logistic loss."""
    shares = {name: final_share(results, "logistic", name) for name in POSITIVE}
    return Claim(
        "normalised-maps-polarize",
        "positive normalised maps go one-hot under the logistic loss",
        f"{PAPER}, right: L1, x^2, softmax and ReLU over their sums",
        f"largest weight after {config.logistic_steps:,} steps: {listed(POSITIVE, shares.get)} (uniform is 0.1)",
        judge(*(value > ONE_HOT for value in shares.values())),
        "the same start under the elementwise sigmoid: "
        f"largest weight {final_share(results, 'logistic', 'sigmoid'):.3g} of the sum",
    )


def elementwise(config: Config, results: Results) -> Claim:
    """Judge that maps without normalisation stay spread out."""
    ends = {name: final_share(results, "logistic", name) for name in ELEMENTWISE}
    later = {name: final_share(results, "logistic", name, "flow") for name in ELEMENTWISE}
    scores = results["flow"]["logistic_scores"][:, [NAMES.index(name) for name in ("relu", "elu", "linear")]]
    same = " (ReLU, ELU and linear are one curve: no score ever turns negative)" if np.nanmin(scores) > 0 else ""
    return Claim(
        "elementwise-maps-do-not",
        "unnormalised elementwise maps have no competition and do not polarize",
        f"{PAPER}, the elementwise sigmoid; ReLU, ELU and linear maps added here",
        f"largest weight over the sum after {config.logistic_steps:,} steps: {listed(ELEMENTWISE, ends.get)}; the flow "
        f"at t = {config.horizon:.0e}: {listed(ELEMENTWISE, later.get)}{same}",
        judge(*(value < 0.2 for value in (*ends.values(), *later.values()))),
        f"softmax from the same start: {final_share(results, 'logistic', 'softmax', 'flow'):.4f} at the same time",
    )


def square(config: Config, results: Results) -> Claim:
    """Judge that the square loss stops on the way."""
    start = results["descent"]["square_weights"][0]
    before = {name: float(share(start[NAMES.index(name)])) for name in POSITIVE}
    after = {name: final_share(results, "square", name) for name in POSITIVE}
    logistic = {name: final_share(results, "logistic", name) for name in POSITIVE}
    moved = all(after[name] > before[name] for name in POSITIVE)
    return Claim(
        "square-polarizes-partly",
        "under the square loss weights separate, and stop before one-hot",
        f"{PAPER}, left",
        f"largest weight at the start and after {config.square_steps:,} steps: "
        + ", ".join(f"{name} {before[name]:.3f} -> {after[name]:.3f}" for name in POSITIVE)
        + f"; the losses are then below {results['descent']['square_loss'][-1].max():.0e}, so nothing moves any more",
        judge(moved, all(after[name] < ONE_HOT for name in POSITIVE)),
        f"the logistic loss from the same start, whose gradient never ends: {listed(POSITIVE, logistic.get)}",
    )


def signed(config: Config, results: Results) -> Claim:
    """Judge that the signed map leaves the simplex."""
    weights = results["descent"]["logistic_weights"][:, NAMES.index("normalised-linear")]
    l1 = results["descent"]["logistic_weights"][:, NAMES.index(KINKED)]
    sums = results["flow"]["logistic_scores"][:, NAMES.index("normalised-linear")].sum(axis=-1)
    return Claim(
        "sum-leaves-the-simplex",
        "the map a / sum(a) gives weights outside [0, 1], so that its largest weight is no measure of sparsity",
        f"{PAPER}, Sum",
        f"after {config.logistic_steps:,} steps weights lie in [{weights[-1].min():.2f}, {weights[-1].max():.2f}]; the "
        f"map is singular where sum(a) = 0, and along the flow that sum falls from {sums[0]:.2f} to {sums[-1]:.2f}",
        judge(weights[-1].min() < 0, weights[-1].max() > 1),
        f"|a| / sum|a| from the same start stays in [{l1.min():.2g}, {l1.max():.4f}]",
    )


def l1_flow(config: Config, results: Results) -> Claim:
    """Judge whether the curves of L1 are those of a flow."""
    status = {loss: str(results["flow"][f"{loss}_status"][NAMES.index(KINKED)]) for loss in LOSSES}
    end = results["flow"]["logistic_end"][NAMES.index(KINKED)]
    relu = str(results["flow"]["logistic_status"][NAMES.index("normalised-relu")])
    return Claim(
        "l1-is-a-flow",
        "the curves of the L1 map are those of a gradient flow, as for the other maps",
        f"{PAPER}, L1, beside theorems about the flow",
        f"square loss: {status['square']} (no score reaches 0). Logistic loss: {status['logistic']!r} at "
        f"t = {end:.1f}, where the smallest score reaches 0: the field points at |a_i| = 0 from both sides, and the "
        "flow has no classical solution. Descent goes on by stepping to and fro across the kink",
        judge(status["square"] == "successful", status["logistic"] == "successful"),
        f"ReLU over its sum, kinked as well, loses its force beyond 0 and passes: {relu}",
    )


def in_the_end(config: Config, results: Results) -> Claim:
    """Judge that smooth and kinked positive normalised maps polarize, late."""
    tau, rest = results["late"]["tau"], results["late"]["rest"]
    medians = {name: np.median(rest[i], axis=0) for i, name in enumerate(LATE)}
    columns = [int(np.searchsorted(tau, value)) for value in (*REPORTED_TAU, config.late_tau)]
    worst = rest[..., -1].max()
    numbers = "; ".join(f"{name} " + " | ".join(f"{medians[name][c]:.0e}" for c in columns) for name in medians)
    order = [medians[name][columns[0]] for name in ("softmax", *list(LATE_REFERENCE)[1:])]
    zeros = results["late"]["zeros"][LATE.index("normalised-relu"), :, -1]
    return Claim(
        "every-map-in-the-end",
        "every positive normalised map polarizes in the end, the softmax long before the others that are smooth",
        "section 3, from x^2 and softmax to any positive map (derived here: the late stage on the clock tau)",
        f"median 1 - s_max of {config.late_seeds} starts at tau = {REPORTED_TAU[0]:g} | {REPORTED_TAU[1]:g} | "
        f"{config.late_tau:g}: {numbers}; ReLU ends with {zeros.min()} to {zeros.max()} of {config.late_size} weights "
        "exactly 0; L1 "
        f"meets its first 0 at tau = {results['late']['kink_tau'].min():.1f} to "
        f"{results['late']['kink_tau'].max():.1f}",
        judge(worst < 0.01, order == sorted(order)),
        f"uniform weights have 1 - s_max = {1 - 1 / config.late_size:g}; at tau = {REPORTED_TAU[0]:g} sigmoid and ELU "
        "+ 1 "
        "are still near it",
    )


def primitive(config: Config, results: Results) -> Claim:
    """Judge law 3 for every map."""
    worst, descent = 0.0, 0.0
    for loss in LOSSES:
        early = results["flow"][f"{loss}_t"] <= CONSERVED_UNTIL
        worst = max(worst, float(np.nanmax(results["flow"][f"{loss}_drift"][early])))
        descent = max(descent, float(results["descent"][f"{loss}_drift"][-1, NAMES.index("normalised-square")]))
    return Claim(
        "primitive-conserved",
        "a normalised map f / sum f conserves sum_i F(a_i), an elementwise one |v_i|^2 / 2 - F(a_i), with F' = f / f'",
        "derived (law 3)",
        f"largest drift over nine maps and two losses: {worst:.1e} up to t = {CONSERVED_UNTIL:.0e} at rtol "
        f"{config.rtol:g}",
        judge(worst < CONSERVED),
        f"gradient descent is no flow and conserves it only up to its step size: drift {descent:.1e} for x^2",
    )
