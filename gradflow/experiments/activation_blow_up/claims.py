"""Whether a massive activation hurts: rounding, gradients, spikes of the loss; and whether it brings the sink."""

from collections.abc import Sequence

import numpy as np

from gradflow.experiments.activation_blow_up.config import LEARNT, NAMES, ROUNDINGS, Config
from gradflow.experiments.activation_blow_up.numbers import LOW, SPIKE, falls, runs, slopes, spikes
from gradflow.experiments.base import Claim, Results, judge
from gradflow.experiments.dots import mean
from gradflow.experiments.intervals import Interval

SUN = "Sun et al., arXiv 2402.17762"
QUANTISED = "Dettmers et al., arXiv 2208.07339: outliers break 8-bit rounding"
BLOW_UP = "arXiv 2603.06248 names low precision and unstable training as prices of massive activations"
PEAKED, SPREAD, BARE = "peaked", "spread", "no-norm"
SPARED = 0.02  # of accuracy that rounding may cost
ALIKE = 2.0  # ratio below which errors and gradients count as alike
MASSIVE = 1000.0  # size from which an activation is massive: 1,000 times the others'


def claims(config: Config, results: Results) -> list[Claim]:
    """Judge every claim.

    Args:
        config: settings of the run.
        results: of all stages.

    Returns:
        The claims, in the order of the argument.
    """
    makers = (_learnt, _tensor, _token, _bfloat16, _gradients, _frozen, _spikes, _sink)
    return [make(config, results) for make in makers]


def _end(config: Config, results: Results, arm: str, reading: str, size: float, rate: int = 0) -> Interval:
    return mean(runs(config, results, arm, reading, size, rate)[:, -1])


def _by_size(config: Config, results: Results, arm: str, reading: str, form: str = ".2f") -> str:
    """Return means at the end for every size, in words."""
    return _sized(config, [_end(config, results, arm, reading, size).value for size in config.sizes], form)


def _sized(config: Config, found: Sequence[float], form: str) -> str:
    """Return a number for every size, in words."""
    return ", ".join(
        f"{value:{form}} ({size:,.0f})" if np.isfinite(value) else f"diverged ({size:,.0f})"
        for value, size in zip(found, config.sizes, strict=True)
    )


def _massive(config: Config) -> list[float]:
    return [size for size in config.sizes if size >= MASSIVE]


def _learnt(config: Config, results: Results) -> Claim:
    right = [runs(config, results, PEAKED, "accuracy", size)[:, -1] > LEARNT for size in config.sizes]
    return Claim(
        "task-learnt",
        "With normalisation a model learns the task whatever the size of one activation of BOS.",
        "Not in the paper",
        f"accuracy at step {config.steps:,} by size: {_by_size(config, results, PEAKED, 'accuracy')}",
        judge(*(share.mean() > 0.5 for share in right)),
        f"without normalisation {_by_size(config, results, BARE, 'accuracy')}",
    )


def _tensor(config: Config, results: Results) -> Claim:
    whole = _end(config, results, PEAKED, "tensor_accuracy", config.sizes[0])
    broken = [_end(config, results, PEAKED, "tensor_accuracy", size) for size in _massive(config)]
    return Claim(
        "breaks-8-bits-a-layer",
        "A massive activation breaks 8-bit rounding with one scale for all tokens: fewer than half of the answers "
        "stay right.",
        f"{BLOW_UP}; {QUANTISED}",
        f"accuracy after rounding by size: {_by_size(config, results, PEAKED, 'tensor_accuracy')}",
        judge(*(found.high < LEARNT / 2 for found in broken), whole.low > LEARNT / 2) if broken else "not tested",
        f"the same norm over all coordinates {_by_size(config, results, SPREAD, 'tensor_accuracy')}; without rounding "
        f"{_by_size(config, results, PEAKED, 'accuracy')}",
    )


def _token(config: Config, results: Results) -> Claim:
    lost = [
        mean(
            runs(config, results, PEAKED, "accuracy", size)[:, -1]
            - runs(config, results, PEAKED, "token_accuracy", size)[:, -1]
        )
        for size in config.sizes
    ]
    return Claim(
        "spares-8-bits-a-token",
        f"With a scale for each token 8-bit rounding costs no more than {SPARED} of the accuracy: what hurts is a "
        "scale that tokens share, not the size.",
        QUANTISED,
        f"accuracy after rounding by size: {_by_size(config, results, PEAKED, 'token_accuracy')}",
        judge(*(part.high < SPARED for part in lost)),
        f"one scale for all tokens {_by_size(config, results, PEAKED, 'tensor_accuracy')}",
    )


def _bfloat16(config: Config, results: Results) -> Claim:
    first = _end(config, results, PEAKED, "bfloat16_error", config.sizes[0])
    others = [_end(config, results, PEAKED, "bfloat16_error", size) for size in config.sizes[1:]]
    return Claim(
        "bfloat16-does-not-mind",
        f"In bfloat16 a massive activation changes the error of the logits by less than a factor of {ALIKE:g}: its "
        "error is relative to each number.",
        "Not in the paper, which counts low precision among the prices",
        f"norm of the error over that of the logits by size: "
        f"{_by_size(config, results, PEAKED, 'bfloat16_error', '.4f')}",
        judge(*(found.value < ALIKE * first.value for found in others)),
        f"{ROUNDINGS['tensor']} {_by_size(config, results, PEAKED, 'tensor_error')}",
    )


def _gradients(config: Config, results: Results) -> Claim:
    start = {
        arm: [float(runs(config, results, arm, "gradient", size)[:, 0].mean()) for size in config.sizes]
        for arm in (PEAKED, BARE)
    }
    end = [_end(config, results, PEAKED, "gradient", size) for size in config.sizes]
    return Claim(
        "gradients-blow-up",
        f"A massive activation blows gradients up, by a factor of {ALIKE:g} and more.",
        BLOW_UP,
        f"norm of the gradient before training by size: {_sized(config, start[PEAKED], '.2g')}; at the end "
        f"{_by_size(config, results, PEAKED, 'gradient', '.2g')}",
        judge(start[PEAKED][-1] > ALIKE * start[PEAKED][0], end[-1].low > ALIKE * end[0].high),
        f"without normalisation before training: {_sized(config, start[BARE], '.2g')}",
    )


def _frozen(config: Config, results: Results) -> Claim:
    found, bare = (mean(slopes(config, results, arm)) for arm in (PEAKED, BARE))
    return Claim(
        "massive-state-is-frozen",
        "Behind normalisation the gradient by a massive state falls as one over its size: nothing pulls it back.",
        "Not in the paper: the derivative of x / |x| is of order 1 / |x|",
        f"power of the size by which the gradient of BOS's embedding goes before training: {found.text(3)}",
        judge(bool(abs(found.value + 1) < 0.05)),
        f"without normalisation {bare.text(3)}",
    )


def _spikes(config: Config, results: Results) -> Claim:
    told, held = [], []
    for place, rate in enumerate(config.rates):
        losses = [runs(config, results, PEAKED, "last_loss", size, place) for size in config.sizes]
        if not all(falls(loss).mean() > 0.5 for loss in losses):
            told.append(f"{rate:g}: not learnt")
            continue
        counts = [mean(spikes(loss).astype(float)) for loss in losses]
        told.append(f"{rate:g}: {_sized(config, [found.value for found in counts], '.1f')}")
        held.append(counts[-1].low > counts[0].high)
    bare = [spikes(runs(config, results, BARE, "last_loss", size)).mean() for size in config.sizes]
    learnt = [falls(runs(config, results, BARE, "last_loss", size)).mean() for size in config.sizes]
    return Claim(
        "loss-spikes",
        "A massive activation makes the loss spike in training.",
        BLOW_UP,
        f"saves of a run, of {len(config.save_at)}, with the loss {SPIKE:g} nats above its lowest so far once that "
        f"is below {LOW:g}, by learning rate and size: {'; '.join(told)}",
        judge(*held) if held else "not tested",
        f"without normalisation at {config.rates[0]:g} {_sized(config, bare, '.1f')}, where the share of runs that "
        f"learn is {_sized(config, learnt, '.1f')}",
    )


def _sink(config: Config, results: Results) -> Claim:
    half = len(config.save_at) // 2
    early = {
        arm: np.stack([runs(config, results, arm, "on_bos", size)[:, :half].mean(axis=-1) for size in config.sizes])
        for arm in (PEAKED, SPREAD)
    }
    more = {arm: [mean(found - values[0]) for found in values[1:]] for arm, values in early.items()}
    told = {
        arm: ", ".join(f"{part.text(2)} ({size:,.0f})" for part, size in zip(parts, config.sizes[1:], strict=True))
        for arm, parts in more.items()
    }
    massive = [part for part, size in zip(more[PEAKED], config.sizes[1:], strict=True) if size >= MASSIVE]
    return Claim(
        "brings-the-sink",
        "A massive activation of BOS brings its sink sooner.",
        f"{SUN}: massive activations act as biases of attention",
        f"attention on BOS in the first half of training, {early[PEAKED][0].mean():.2f} without one; more from the "
        f"same start with one: {told[PEAKED]}",
        judge(*(part.low > 0 for part in massive)) if massive else "not tested",
        f"{NAMES[SPREAD]}: {told[SPREAD]}",
    )
