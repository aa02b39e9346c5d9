"""Titles, captions and descriptions of the figures."""

from collections.abc import Sequence

from gradflow.experiments.base import Results
from gradflow.experiments.sweep_activations.config import Config

Text = tuple[str, str, str]  # title, caption, description


def texts(config: Config, results: Results) -> dict[str, Text]:
    """Return the texts of every figure by its name, in the order of the report."""
    return _one_sample(config, results) | _many_samples(config)


def _one_sample(config: Config, results: Results) -> dict[str, Text]:
    flows = sum(results[stage]["largest"].size for stage in ("length", "condition", "sliding"))
    one = _one(config)
    return {
        "outcomes": (
            "Which runs go one-hot",
            f"{flows:,} flows. Share of the runs of each map and loss that end with a weight above 0.95 "
            "(left), and how the flows of each map ended (right). Hatched: none.",
            "Table of maps against losses with the share of one-hot runs: high for normalised maps under logistic and "
            "exponential loss, zero for elementwise maps. Table of maps against result codes.",
        ),
        "one-hot-times": (
            "Longer sequences and smaller starts take longer, each map at its own rate",
            f"{one} Logistic loss. Decimal logarithm of the median time at which one weight passes a half; hatched: "
            "not in most runs.",
            "One heat map for each map over sequence length and scale of the start; times grow to the upper left.",
        ),
        "length-law": (
            "Softmax: t ~ n / gap; other maps: t ~ n / gap^(1/k)",
            f"{one} Left: every run of the softmax, shaded by n, with the line t = c n / gap of the median c; under "
            "the square loss few runs cross. Middle: residual c / median c. Right: median time of each map at one n "
            "under the logistic loss; dotted: slope 1/k through the smallest gap, k = f'/f at the start.",
            "Three log-log panels. Times of the softmax lie on one line over four decades, the residual is flat within "
            "a factor of two, and times of other maps follow lines of different slopes.",
        ),
    }


def _many_samples(config: Config) -> dict[str, Text]:
    one, many = _one(config), _many(config)
    return {
        "entropies": (
            "A larger condition number sparsifies normalised maps, and from a larger start sooner",
            f"{many} Square loss. Median of the final entropy over log n, over n and seeds.",
            "One heat map for each map over condition number and scale of the start; entropies fall to the upper right "
            "for normalised maps and stay at one for elementwise ones.",
        ),
        "condition-law": (
            "Condition number acts through the clock",
            f"{many} Left: square loss, median over n, scales and seeds, band: middle half. Middle: softmax, all "
            "losses, each mark a run, against the condition number. Right: the same runs against gap sinh(tau / n), "
            "the lead of the scores that the one-sample theory gives for the run's own clock.",
            "Left: entropy falls with condition number for normalised maps. Middle: marks of three losses over "
            "condition number show no curve. Right: they fall on one curve from one to zero.",
        ),
        "winner": (
            "The first step names the winner",
            f"Runs in which one weight passed a half, normalised maps, logistic and exponential loss. Left: {one} "
            f"Right: {many} Dots: share of runs won by the value furthest along the first step, squares: by the "
            "longest value; dotted: chance.",
            "Left: the predicted value wins always, at every length. Right: in most runs, less often at larger "
            "condition numbers.",
        ),
    }


def _one(config: Config) -> str:
    return (
        f"One sample, d = 8, n = {_range(config.sizes)}, scale of the start {_range(config.scales)}, scores 1, "
        f"{config.seeds} seeds, flow to t = {config.horizon:.0e}."
    )


def _many(config: Config) -> str:
    return (
        f"Eight samples, d = 8, singular values linspace(1, 1/kappa), |y| = {config.target:g}, {config.kappa_seeds} "
        f"seeds, flow to t = {config.horizon:.0e} or to a loss of 1e-12 of its start."
    )


def _range(values: Sequence[float]) -> str:
    return f"{min(values):g} .. {max(values):g}"
