"""What setting C is said to show, and whether it does."""

import numpy as np

from gradflow.experiments.base import Claim, Results, judge
from gradflow.experiments.tied_values.config import REFERENCE, REFERENCE_STEPS, Config

TOLERANCE = 1e-5  # relative for losses and norms, absolute for weights
RATIO = 3.0  # of the winner's column to the median one, by which a column counts as grown
MASSIVE = 1000.0  # the same ratio for a massive activation (Sun et al., 2402.17762), which is above 100 as well
PAPER = "massive activations, D = 10, 20, 50, 100"


def claims(config: Config, results: Results) -> list[Claim]:
    """Judge every claim."""
    judges = (reproduced, polarizes, grows, massive, cause, identity)
    return [judge_claim(config, results) for judge_claim in judges]


def winner_norm(run: Results, stage: str, prefix: str = "flow", model: int | None = 0) -> np.ndarray:
    """Return the norm of the column whose weight is largest at the end, along a run."""
    weights, norms = run[stage][f"{prefix}_weights"], run[stage][f"{prefix}_norms"]
    if prefix == "flow":
        weights, norms = weights[:, model], norms[:, model]
    return norms[:, weights[-1].argmax()]


def growth(results: Results, stage: str, model: int) -> np.ndarray:
    """Return the winner's norm over the median one along the flow."""
    median = np.median(results[stage]["flow_norms"][:, model], axis=-1)
    return winner_norm(results, stage, model=model) / median


def names(config: Config) -> list[str]:
    """Return the stages' names."""
    return [f"D{d}" for d in config.dimensions]


def _each(config: Config, value) -> str:
    return ", ".join(f"{value(d):.4g}" for d in config.dimensions) + f" (D = {', '.join(map(str, config.dimensions))})"


def reproduced(config: Config, results: Results) -> Claim:
    """Compare descent with an independent run of the same settings."""
    tested = [d for d in config.dimensions if d in REFERENCE and config.steps == REFERENCE_STEPS]
    errors = []
    for d in tested:
        run, known = results[f"D{d}"], REFERENCE[d]
        norms = run["descent_norms"][-1]
        errors += [
            abs(run["descent_loss"][-1] / known.loss - 1),
            abs(run["descent_weights"][-1].max() - known.largest),
            abs(winner_norm(results, f"D{d}", "descent")[-1] / known.winner - 1),
            abs(np.median(norms) / known.median - 1),
        ]
    return Claim(
        "settings-reproduced",
        "gradient descent from the paper's draws ends where its settings say",
        f"{PAPER}; numbers from an independent NumPy descent",
        f"loss, largest weight, winner's and median norm differ by at most {max(errors):.0e}"
        if errors
        else "other steps",
        judge(max(errors) < TOLERANCE) if errors else "not tested",
        "the same draws and step size in a loop that shares no code with gradflow",
    )


def polarizes(config: Config, results: Results) -> Claim:
    """Judge that the tied model goes one-hot."""
    largest = {d: results[f"D{d}"]["descent_weights"][-1].max() for d in config.dimensions}
    sigmoid = max(_share(results[f"D{d}"]["flow_weights"][-1, 2]) * d for d in config.dimensions)
    return Claim(
        "tied-polarizes",
        "softmax(U a) goes one-hot although keys and values share one matrix",
        PAPER,
        f"largest weight after {config.steps:,} steps: {_each(config, largest.get)}",
        judge(*(value > 0.95 for value in largest.values())),
        f"the tied elementwise sigmoid at t = {config.horizon:.0e}: largest weight at most {sigmoid:.2f} times its "
        "mean",
    )


def grows(config: Config, results: Results) -> Claim:
    """Judge that one column outgrows the others."""
    ratios = {d: growth(results, f"D{d}", 0) for d in config.dimensions}
    matched = {d: _at(results[f"D{d}"], ratios[d], 0.05 * config.steps) for d in config.dimensions}
    end = {d: winner_norm(results, f"D{d}")[-1] for d in config.dimensions}
    sigmoid = max(growth(results, f"D{d}", 2)[-1] for d in config.dimensions)
    return Claim(
        "one-column-grows",
        "the winner's column of U grows and the others stay: the hidden state has one large direction",
        PAPER,
        f"winner's over median norm after {config.steps:,} steps: {_each(config, matched.get)}; at t = "
        f"{config.horizon:.0e} "
        f"the winner's norm is {_each(config, end.get)}, log t = {np.log(config.horizon):.1f}",
        judge(*(value > RATIO for value in matched.values())),
        f"the tied elementwise sigmoid: at most {sigmoid:.2f}",
    )


def massive(config: Config, results: Results) -> Claim:
    """Judge the size of the growth by the definition of massive activations."""
    ratio = max(growth(results, f"D{d}", 0)[-1] for d in config.dimensions)
    norm = max(winner_norm(results, f"D{d}")[-1] for d in config.dimensions)
    return Claim(
        "massive-in-the-usual-sense",
        "the grown column is a massive activation in the sense of Sun et al.: above 100 and 1000 times the median",
        "the paper takes the name; the definition is that of arXiv 2402.17762",
        f"at t = {config.horizon:.0e} the largest norm is {norm:.1f}, {ratio:.1f} times the median; it grows like log "
        "t, so "
        "that a ratio of 1000 needs t near e^1000",
        judge(norm > 100 and ratio > MASSIVE),
        "log t of the horizon, which the norm follows; deep transformers must have another amplifier",
    )


def cause(config: Config, results: Results) -> Claim:
    """Judge whether tying is needed for a column to grow."""
    tied = {d: growth(results, f"D{d}", 0)[-1] for d in config.dimensions}
    untied = {d: growth(results, f"D{d}", 1)[-1] for d in config.dimensions}
    return Claim(
        "tying-is-the-cause",
        "the large column comes from the tying of keys and values",
        "implied by the choice of the tied model for this section",
        f"winner's over median norm at t = {config.horizon:.0e}: tied {_each(config, tied.get)}; untied V softmax(a) "
        "from the "
        f"same start {_each(config, untied.get)}: the column grows without tying too; tying makes the others stay "
        "smaller",
        judge(all(value < RATIO for value in untied.values())),
        "the untied model from the same V = U = I and a",
    )


def identity(config: Config, results: Results) -> Claim:
    """Judge d/dt (|U|^2 - |a|^2) / 2 = gamma z."""
    residual = {d: identity_residual(results, d, 0).max() for d in config.dimensions}
    untied = min(identity_residual(results, d, 1).max() for d in config.dimensions)
    return Claim(
        "energy-identity",
        "d/dt (|U|^2 - |a|^2) / 2 = gamma z along the flow of the tied model",
        "derived",
        f"largest relative residual: {_each(config, residual.get)}",
        judge(*(value < 1e-10 for value in residual.values())),
        f"the untied model does not obey it: residual {untied:.2g} at least (the tied sigmoid does: the map plays no "
        "part)",
    )


def identity_residual(results: Results, d: int, model: int) -> np.ndarray:
    """Return |d/dt (|U|^2 - |a|^2) / 2 - gamma z| / |gamma z| along the flow of one of the three models."""
    energy, pull = (results[f"D{d}"][f"flow_{key}"][:, model] for key in ("energy", "pull"))
    return np.abs(energy - pull) / np.abs(pull)


def _share(weights: np.ndarray) -> float:
    return float(weights.max() / weights.sum())


def _at(run, values: np.ndarray, t: float) -> float:
    return float(values[np.abs(run["flow_t"] - t).argmin()])
