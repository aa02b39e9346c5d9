"""Which activations grow while a sink forms, and what takes the sink or the growth away."""

import numpy as np

from gradflow.experiments.base import Claim, Results, judge
from gradflow.experiments.dots import mean
from gradflow.experiments.intervals import Interval
from gradflow.experiments.massive_activations.config import ABSOLUTE, LEARNT, NAMES, RELATIVE, RESTS, Config
from gradflow.experiments.massive_activations.numbers import curves

PAPER = "arXiv 2603.06248: sinks and massive activations come together"
SUN = "Sun et al., arXiv 2402.17762"
USUAL, BARE, BLIND = "softmax", "no-norm", "uniform"
CLEAR = 0.1  # of attention: by which two arms must differ


def claims(config: Config, results: Results) -> list[Claim]:
    """Judge every claim, each at every number of layers.

    Args:
        config: settings of the run.
        results: of all stages.

    Returns:
        The claims, in the order of the argument.
    """
    makers = (_learnt, _sinks, _massive, _state, _values, _bare, _sink_goes, _state_goes, _depth)
    return [make(config, results) for make in makers]


def _end(config: Config, results: Results, depth: int, arm: str, reading: str, save: int = -1) -> Interval:
    return mean(curves(config, results, depth, arm)[reading][:, save])


def _each(config: Config, results: Results, arm: str, reading: str, save: int = -1, digits: int = 2) -> str:
    """Return a reading of an arm at every number of layers, in words."""
    return ", ".join(f"{_end(config, results, d, arm, reading, save).text(digits)} ({d} layers)" for d in config.depths)


def _learnt(config: Config, results: Results) -> Claim:
    arms = [arm for arm in config.arms if arm != BLIND]
    right = {(d, arm): curves(config, results, d, arm)["accuracy"][:, -1] for d in config.depths for arm in arms}
    told = [f"{NAMES[arm]} {np.median([right[d, arm] for d in config.depths]):.3f}" for arm in arms]
    return Claim(
        "task-learnt",
        f"Every model that can attend by choice learns to continue the pattern (accuracy > {LEARNT}).",
        "arXiv 2603.06248, induction task",
        f"median accuracy at step {config.steps:,}: {', '.join(told)}; lowest {min(map(np.min, right.values())):.2f}",
        judge(*((values > LEARNT).mean() > 0.5 for values in right.values())),
        f"{NAMES[BLIND]}: {_each(config, results, BLIND, 'accuracy')}",
    )


def _sinks(config: Config, results: Results) -> Claim:
    found = {
        d: (_end(config, results, d, USUAL, "on_bos"), _end(config, results, d, BLIND, "on_bos")) for d in config.depths
    }
    return Claim(
        "sinks-form",
        "Softmax makes BOS a sink: most attention of the layer that attends to it most.",
        PAPER,
        f"attention on BOS {_each(config, results, USUAL, 'on_bos')}",
        judge(*(soft.low > 0.5 and soft.low > blind.high for soft, blind in found.values())),
        f"untrained {_each(config, results, USUAL, 'on_bos', save=0)}; {NAMES[BLIND]} "
        f"{_each(config, results, BLIND, 'on_bos')}",
    )


def _massive(config: Config, results: Results) -> Claim:
    found = [_end(config, results, d, USUAL, "massive") for d in config.depths]
    peaks = {arm: _each(config, results, arm, "peak_ratio", digits=1) for arm in (USUAL, BLIND)}
    return Claim(
        "massive-activations",
        f"A sink comes with massive activations: above {ABSOLUTE} and {RELATIVE:,} times the median of their layer.",
        f"{SUN}, for language models of billions of parameters; {PAPER}",
        f"share of sequences with one: {_each(config, results, USUAL, 'massive')}; largest activation of BOS over the "
        f"median of its layer: {peaks[USUAL]}",
        judge(*(share.low > 0.5 for share in found)),
        f"the largest of BOS untrained {_each(config, results, USUAL, 'peak_ratio', save=0, digits=1)}, with "
        f"{NAMES[BLIND]}, which has no sink, {peaks[BLIND]}",
    )


def _state(config: Config, results: Results) -> Claim:
    held = []
    for depth in config.depths:
        soft, blind = (_end(config, results, depth, arm, "state_ratio") for arm in (USUAL, BLIND))
        start = _end(config, results, depth, USUAL, "state_ratio", save=0)
        held.append(soft.low > max(1, start.high, blind.high))
    return Claim(
        "state-of-bos-grows",
        "While the sink forms, the hidden state of BOS grows longer than those of other tokens, and it does so because "
        "of the sink.",
        PAPER,
        f"norm of BOS over the median of the others, in the layer where it is largest: "
        f"{_each(config, results, USUAL, 'state_ratio')}",
        judge(*held),
        f"untrained {_each(config, results, USUAL, 'state_ratio', save=0)}; {NAMES[BLIND]}, without a sink, "
        f"{_each(config, results, BLIND, 'state_ratio')}",
    )


def _values(config: Config, results: Results) -> Claim:
    held = []
    for depth in config.depths:
        soft, start = (_end(config, results, depth, USUAL, "value_ratio", save) for save in (-1, 0))
        held.append(soft.high < min(1, start.low))
    return Claim(
        "values-drain",
        "The value of the sink shrinks, so that attending to it adds little.",
        "Gu et al., arXiv 2410.10781; Guo et al., arXiv 2410.13835",
        f"norm of the value of BOS over the median of the others, in the layer that attends to it most: "
        f"{_each(config, results, USUAL, 'value_ratio')}; of the key {_each(config, results, USUAL, 'key_ratio')}",
        judge(*held),
        f"untrained {_each(config, results, USUAL, 'value_ratio', save=0)}; {NAMES[BARE]} "
        f"{_each(config, results, BARE, 'value_ratio')}; {NAMES[BLIND]} {_each(config, results, BLIND, 'value_ratio')}",
    )


def _bare(config: Config, results: Results) -> Claim:
    held = []
    for depth in config.depths:
        bare, soft = (_end(config, results, depth, arm, "peak_ratio") for arm in (BARE, USUAL))
        held += [bare.high < soft.low, _end(config, results, depth, BARE, "on_bos").low > 0.5]
    return Claim(
        "without-normalisation",
        "Without normalisation the sink stays and the largest activation of BOS stands out less.",
        f"{PAPER}; without normalisation a norm is not free",
        f"{NAMES[BARE]}: attention on BOS {_each(config, results, BARE, 'on_bos')}; largest activation of BOS over the "
        f"median {_each(config, results, BARE, 'peak_ratio', digits=1)}",
        judge(*held),
        f"{NAMES[USUAL]}: {_each(config, results, USUAL, 'peak_ratio', digits=1)}",
    )


def _sink_goes(config: Config, results: Results) -> Claim:
    arms, held = [arm for arm in RESTS if arm in config.arms], []
    for depth in config.depths:
        soft = _end(config, results, depth, USUAL, "on_bos")
        held += [_end(config, results, depth, arm, "on_bos").high < soft.low - CLEAR for arm in arms]
    told = "; ".join(f"{NAMES[arm]} {_each(config, results, arm, 'on_bos')}" for arm in arms)
    return Claim(
        "rests-take-the-sink-away",
        "A head that can rest without a sink (a sink logit, softmax1, a gate) puts less attention on BOS.",
        "Gu et al., arXiv 2410.10781; Qiu et al., arXiv 2505.06708",
        f"attention on BOS: {told}",
        judge(*held) if held else "not tested",
        f"{NAMES[USUAL]} {_each(config, results, USUAL, 'on_bos')}; {NAMES[BLIND]} "
        f"{_each(config, results, BLIND, 'on_bos')}",
    )


def _state_goes(config: Config, results: Results) -> Claim:
    arms, held = [arm for arm in RESTS if arm in config.arms], []
    for depth in config.depths:
        soft = _end(config, results, depth, USUAL, "state_ratio")
        held += [_end(config, results, depth, arm, "state_ratio").high < soft.low for arm in arms]
    told = "; ".join(f"{NAMES[arm]} {_each(config, results, arm, 'state_ratio')}" for arm in arms)
    return Claim(
        "rests-take-the-norm-away",
        "A sink logit, softmax1 or a gate make the hidden state of BOS stand out less.",
        f"{SUN}; Qiu et al., arXiv 2505.06708",
        f"norm of BOS over the median of the others: {told}",
        judge(*held) if held else "not tested",
        f"{NAMES[USUAL]} {_each(config, results, USUAL, 'state_ratio')}",
    )


def _depth(config: Config, results: Results) -> Claim:
    few, many = config.depths[0], config.depths[-1]
    low, high = (_end(config, results, depth, USUAL, "peak_ratio") for depth in (few, many))
    blind = [_end(config, results, depth, BLIND, "peak_ratio") for depth in (few, many)]
    return Claim(
        "grows-with-depth",
        "With more layers the largest activation of the sink stands out more.",
        f"{SUN}: they appear after the first layers and stay",
        f"largest activation of BOS over the median of its layer: {low.text(1)} with {few} layers, {high.text(1)} with "
        f"{many}",
        judge(high.low > low.high) if many > few else "not tested",
        f"{NAMES[BLIND]}: {blind[0].text(1)} and {blind[1].text(1)}",
    )
