"""What is read off the runs: shares of keys in rearranged sequences, which key is the sink, what foresaw it.

A run that has not learnt the task counts nowhere: its numbers are NaN.
"""

from collections.abc import Sequence

import numpy as np

from gradflow.experiments import intervals
from gradflow.experiments.base import Results
from gradflow.experiments.habit_or_meaning.config import POSITIONS, SETTINGS, Config
from gradflow.experiments.habit_or_meaning.problem import READ
from gradflow.experiments.habit_or_meaning.sequences import ABSENT, EXCHANGED, VARIANTS, rows_read
from gradflow.experiments.intervals import Interval

LEARNT = 0.8  # accuracy above which a run counts; before the task is learnt it is about 0.25
SINK = 0.9  # the paper's threshold of its sink score
RULES = {
    "score": "largest score",
    "push": "largest first push",
    "sum": "largest sum of both",
    "first": "always the first key",
}


def learnt(results: Results, stage: str, arm: int) -> np.ndarray:
    """Return which runs of an arm have learnt the task."""
    return _of(results, stage, arm, "accuracy")[:, -1] > LEARNT


def share(results: Results, stage: str, arm: int, variant: str, place: str | int, save: int = -1) -> np.ndarray:
    """Return the share of the last layer's attention that goes to a place, as a mean over heads.

    Args:
        results: of all stages.
        stage: name of the setting.
        arm: number of the arm.
        variant: name of the sequences that are read.
        place: "bos", "zero" or "first" of the variant, or a number.
        save: index of the save.

    Returns:
        The share in each run.
    """
    key = getattr(VARIANTS[variant], place) if isinstance(place, str) else place
    profile = _of(results, stage, arm, "profile")[:, save, list(VARIANTS).index(variant)]
    return np.where(learnt(results, stage, arm), profile[..., key].mean(axis=1), np.nan)


def profiles(results: Results, stage: str, arm: int, variants: Sequence[str]) -> np.ndarray:
    """Return the share of each key in rearranged sequences (variant, T) at the end, as a mean over runs and heads."""
    found = _of(results, stage, arm, "profile")[learnt(results, stage, arm), -1]
    places = [list(VARIANTS).index(name) for name in variants]
    return found[:, places].mean(axis=(0, 2)) if len(found) else np.zeros((len(places), found.shape[-1]))


def right(results: Results, stage: str, arm: int, variant: str) -> np.ndarray:
    """Return the accuracy on rearranged sequences in each run."""
    values = _of(results, stage, arm, "right")[:, -1, list(VARIANTS).index(variant)]
    return np.where(learnt(results, stage, arm), values, np.nan)


def sink_scores(results: Results, stage: str, arm: int) -> np.ndarray:
    """Return the paper's sink score (seed, head) of the runs that have learnt the task."""
    return _of(results, stage, arm, "sink")[learnt(results, stage, arm), -1]


def uniform(config: Config, variant: str) -> float:
    """Return the share that uniform attention gives to a key that all rows read see."""
    length = config.task.length
    rows = np.arange(length)[rows_read(length)]
    return float(np.mean(1 / (rows + 1 - VARIANTS[variant].first)))


def row(results: Results, arm: int, name: str = "row") -> np.ndarray:
    """Return what is known of the keys of one row where BOS is absent.

    Args:
        results: of all stages.
        arm: number of an arm without BOS.
        name: "row" for attention, "score" or "push".

    Returns:
        Numbers (seed, save, head, key) with positions, learnt or not; key 0 is the first token.
    """
    return _of(results, POSITIONS, arm, name)[..., 1 : READ + 1]


def keys_read(results: Results) -> int:
    """Return how many keys that row sees."""
    return row(results, ABSENT).shape[-1]


def chance(results: Results) -> float:
    """Return how often one of its keys, drawn at random, is the sink, in per cent."""
    return 100 / keys_read(results)


def course(results: Results, arm: int, key: int) -> np.ndarray:
    """Return the share of a key in that row over training (seed, save), as a mean over heads."""
    shares = row(results, arm)[..., key].mean(axis=2)
    return np.where(learnt(results, POSITIONS, arm)[:, None], shares, np.nan)


def foreseen(results: Results) -> dict[str, Interval]:
    """Return how often each rule names the key that has most of the row's attention in the end.

    Args:
        results: of all stages.

    Returns:
        Per cent of the heads of two arms without BOS, which start from the same draws in another order.
    """
    hits: dict[str, list[np.ndarray]] = {name: [] for name in RULES}
    for arm in (ABSENT, EXCHANGED):
        sink = row(results, arm)[:, -1].argmax(axis=-1)
        score, push = (row(results, arm, name)[:, 0] for name in ("score", "push"))
        rules = (score, push, _spread(score) + _spread(push), -np.arange(score.shape[-1]) + 0 * score)
        for found, rule in zip(hits.values(), rules, strict=True):
            good = learnt(results, POSITIONS, arm)[:, None]
            found.append(np.where(good, rule.argmax(axis=-1) == sink, np.nan))
    return {name: _rate(np.concatenate(parts, axis=1)) for name, parts in hits.items()}


def _of(results: Results, stage: str, arm: int, name: str) -> np.ndarray:
    return results[stage][name][SETTINGS[stage].arms.index(arm)]


def _spread(values: np.ndarray) -> np.ndarray:
    """Return numbers in units of their spread over keys."""
    return (values - values.mean(axis=-1, keepdims=True)) / np.maximum(values.std(axis=-1, keepdims=True), 1e-30)


def _rate(hits: np.ndarray) -> Interval:
    return intervals.share(np.nansum(hits, axis=1), np.isfinite(hits).sum(axis=1))
