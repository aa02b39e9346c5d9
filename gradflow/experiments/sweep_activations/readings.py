"""What is read off the two sweeps: shares of runs, fitted exponents with their intervals, predictors of the winner.

Arrays are indexed (map, loss, n, scale, seed) with one sample and (map, loss, n, scale, kappa, seed) with many.
"""

from typing import NamedTuple

import numpy as np

from gradflow.experiments.base import Results
from gradflow.experiments.sweep_activations.config import LOSSES, Config, is_normalised

ONE_HOT = 0.95  # share of the largest weight
SPARSE = 0.01  # entropy over log n below which weights count as one-hot
VARIES = 0.1  # range of entropy over log n below which there is nothing to explain
SMALL = 1e-2  # largest scale at which the start counts as small
RESAMPLES = 1000
SQUARE, LOGISTIC, EXPONENTIAL = range(len(LOSSES))


class Fit(NamedTuple):
    """t = c n^p / gap^q over the cells (n, scale) of small starts whose runs all cross the level.

    Attributes:
        size: p.
        gap: q.
        size_interval: its 95 % interval, over resampled seeds.
        gap_interval: that of q.
        explained: share of the variance of log t.
        explained_by_size: the same with n alone.
        crossed: share of those cells.
    """

    size: float
    gap: float
    size_interval: tuple[float, float]
    gap_interval: tuple[float, float]
    explained: float
    explained_by_size: float
    crossed: float

    @property
    def text(self) -> str:
        """Both exponents with their intervals."""
        numbers = ((self.size, self.size_interval), (self.gap, self.gap_interval))
        return "t ~ n^{} / gap^{}".format(*(f"{x:.3f} [{low:.3f}, {high:.3f}]" for x, (low, high) in numbers))


def normalised(config: Config) -> list[str]:
    """Return the maps whose weights sum to one, without the one that is constant."""
    return [name for name in config.maps if is_normalised(name) and name != "uniform"]


def elementwise(config: Config) -> list[str]:
    """Return the maps that act on each score alone."""
    return [name for name in config.maps if not is_normalised(name)]


def of_map(config: Config, results: Results, stage: str, quantity: str, name: str, loss: int) -> np.ndarray:
    """Return a quantity of one map and loss."""
    maps = config.sliding_maps if stage == "sliding" else config.maps
    return results[stage][quantity][maps.index(name), loss]


def one_hot(config: Config, results: Results, name: str, loss: int, stage: str = "length") -> float:
    """Return the share of runs that end one-hot."""
    return float((of_map(config, results, stage, "largest", name, loss) > ONE_HOT).mean())


def fit(config: Config, results: Results, name: str, loss: int, level: str = "half") -> Fit | None:
    """Fit the exponents of the one-hot time of one map, None where too few runs cross.

    Args:
        config: settings.
        results: of all stages.
        name: of the map.
        loss: place in `LOSSES`.
        level: "half" or "most".

    Returns:
        The fit.
    """
    small = np.asarray(config.scales) <= SMALL
    times, gaps = (of_map(config, results, "length", key, name, loss)[:, small] for key in (level, "gap"))
    sizes = np.broadcast_to(np.asarray(config.sizes, float)[:, None, None], times.shape)
    columns = np.stack([np.log(times), np.ones_like(times), np.log(sizes), -np.log(gaps)])
    crossed = np.broadcast_to(np.isfinite(times).all(axis=-1, keepdims=True), times.shape)  # the late ones count too
    seeds = np.broadcast_to(np.arange(config.seeds), times.shape)[crossed]
    lengths, scales, _ = np.nonzero(crossed)
    if len(set(lengths)) < 2 or len(set(scales)) < 2:
        return None
    log_t, *inputs = columns[:, crossed]
    design = np.stack(inputs, axis=1)
    best, rows = _solve(design, log_t), [np.flatnonzero(seeds == seed) for seed in range(config.seeds)]
    draws = np.random.default_rng(0).integers(config.seeds, size=(RESAMPLES, config.seeds))
    again = [_solve(design[chosen], log_t[chosen]) for chosen in (np.concatenate([rows[i] for i in d]) for d in draws)]
    low, high = np.quantile(again, (0.025, 0.975), axis=0)
    alone = _solve(design[:, :2], log_t)
    return Fit(
        best[1],
        best[2],
        (low[1], high[1]),
        (low[2], high[2]),
        _explained(log_t, design @ best),
        _explained(log_t, design[:, :2] @ alone),
        float(crossed.mean()),
    )


def _solve(design: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.linalg.lstsq(design, values, rcond=None)[0]


def _explained(values: np.ndarray, predicted: np.ndarray) -> float:
    return float(1 - ((values - predicted) ** 2).sum() / ((values - values.mean()) ** 2).sum())


def constants(config: Config, results: Results, name: str, loss: int = LOGISTIC) -> np.ndarray:
    """Return c = t gap / n of each run with one sample, (n, scale, seed)."""
    times, gaps = (of_map(config, results, "length", key, name, loss) for key in ("half", "gap"))
    return times * gaps / np.asarray(config.sizes, float)[:, None, None]


def spread(config: Config, results: Results, name: str) -> float:
    """Return the largest (max - min) / mean of c over small scales, at one draw and length (law 15)."""
    small = constants(config, results, name)[:, np.asarray(config.scales) <= SMALL]
    return float(np.max(np.ptp(small, axis=1) / small.mean(axis=1)))


def relative_entropy(config: Config, results: Results, name: str, loss: int) -> np.ndarray:
    """Return the final entropy over log n with many samples, (n, scale, kappa, seed): 1 is equal weights."""
    top = np.log(np.asarray(config.sizes, float))[:, None, None, None]
    return of_map(config, results, "condition", "entropy", name, loss) / top


def falls(config: Config, results: Results, name: str, loss: int) -> np.ndarray:
    """Return how far the entropy over log n falls from the smallest to the largest condition number.

    Args:
        config: settings.
        results: of all stages.
        name: of the map.
        loss: place in `LOSSES`.

    Returns:
        One number for each start that is not one-hot at the smallest condition number already.
    """
    entropy = relative_entropy(config, results, name, loss)
    low, high = (entropy[:, :, place] for place in (np.argmin(config.kappas), np.argmax(config.kappas)))
    return (low - high)[low > SPARSE]


def explained_entropy(config: Config, results: Results, name: str) -> tuple[float, float, float]:
    """Return how much of the variance of the final entropy is known from the clock, and from the settings.

    Args:
        config: settings.
        results: of all stages.
        name: of the map.

    Returns:
        Medians over (n, scale) of the share explained by groups: of equal counts in the order of tau; of each condition
        number; of each condition number and loss.
    """
    row = config.maps.index(name)
    entropy, tau = (np.moveaxis(results["condition"][key][row], 0, 2) for key in ("entropy", "tau"))
    kappas = len(config.kappas)
    shares = []
    for cell in np.ndindex(entropy.shape[:2]):
        values, clock = entropy[cell], tau[cell]  # (loss, kappa, seed)
        order = clock.ravel().argsort(kind="stable").argsort(kind="stable").reshape(clock.shape)
        labels = np.indices(clock.shape)
        groups = (order * len(LOSSES) * kappas // order.size, labels[1], labels[0] * kappas + labels[1])
        shares.append([_between(values, group) for group in groups])
    by_clock, by_kappa, by_both = np.median(shares, axis=0)
    return float(by_clock), float(by_kappa), float(by_both)


def _between(values: np.ndarray, groups: np.ndarray) -> float:
    """Return the share of the variance between groups; 1 where nothing varies."""
    means = np.zeros_like(values)
    for group in np.unique(groups):
        means[groups == group] = values[groups == group].mean()
    return _explained(values, means) if np.ptp(values) > 0 else 1.0


def varies(config: Config, results: Results, name: str) -> bool:
    """Return whether the final entropies of a map with many samples differ at all."""
    spread = [np.ptp(relative_entropy(config, results, name, loss)) for loss in (SQUARE, LOGISTIC)]
    return max(spread) > VARIES


def agreement(results: Results, stage: str, predictor: str, where: np.ndarray) -> float:
    """Return the share of runs whose winner was predicted, among those of `where`; NaN where there is none."""
    same = results[stage]["winner"] == results[stage][predictor]
    return float(same[where].mean()) if where.any() else float("nan")


def chance(config: Config, where: np.ndarray) -> float:
    """Return the mean of 1/n over the runs of `where`, (map, loss, n, ...); NaN where there is none."""
    sizes = np.asarray(config.sizes, float)[np.nonzero(where)[2]]
    return float(np.mean(1 / sizes)) if sizes.size else float("nan")


def decided(config: Config, results: Results, stage: str, names: list[str], losses: tuple[int, ...]) -> np.ndarray:
    """Return which runs of these maps and losses have one weight above all others together."""
    chosen = np.zeros(results[stage]["largest"].shape, bool)
    for name in names:
        chosen[config.maps.index(name), list(losses)] = True
    return chosen & (results[stage]["largest"] > 0.5)


def codes(config: Config, results: Results) -> dict[str, dict[str, int]]:
    """Return map -> code -> number of runs of all sweeps."""
    rows = [(stage, i, name) for stage in ("length", "condition") for i, name in enumerate(config.maps)]
    rows += [("sliding", i, name) for i, name in enumerate(config.sliding_maps)]
    found: dict[str, dict[str, int]] = {name: {} for name in (*config.maps, *config.sliding_maps)}
    for stage, row, name in rows:
        for code, count in zip(*np.unique(results[stage]["result"][row], return_counts=True), strict=True):
            found[name][str(code)] = found[name].get(str(code), 0) + int(count)
    return found
