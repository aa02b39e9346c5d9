"""What is said of the sink on the first token, what was measured, and whether it holds."""

import functools

import numpy as np

from gradflow.experiments.base import Claim, Results, Verdict, judge
from gradflow.experiments.dots import mean
from gradflow.experiments.habit_or_meaning.config import PLAIN, POSITIONS, Config
from gradflow.experiments.habit_or_meaning.readings import (
    SINK,
    chance,
    course,
    foreseen,
    right,
    share,
    sink_scores,
    uniform,
)
from gradflow.experiments.habit_or_meaning.sequences import ABSENT, EXCHANGED, FIRST, LED, MOVED, TO

PAPER = "arXiv 2603.06248"
STREAMING = "arXiv 2309.17453"  # Xiao et al.
OURS = "Not in the paper, whose sequences all begin with BOS"
MOST = 0.5  # of the attention: more than all other keys together
TWICE = 2.0  # what uniform attention gives
IDLE = 0.1  # of accuracy, which a token that does nothing may cost


def claims(config: Config, results: Results) -> list[Claim]:
    """Judge every claim.

    Args:
        config: settings of the run.
        results: of both stages.

    Returns:
        The claims, in the order of the argument.
    """
    makers = (_first, _absent, _parted, _replaced, _moved, _idle, _foreseen, _lead)
    return [make(config, results) for make in makers]


def _first(config: Config, results: Results) -> Claim:
    found, start = (share(results, POSITIONS, FIRST, "usual", "bos", save=save) for save in (-1, 0))
    scores = sink_scores(results, POSITIONS, FIRST)
    return Claim(
        "sink-on-bos",
        "With BOS in front, most attention of the last layer rests on it.",
        f"{PAPER}, induction task: 4 of 4 heads have a sink score above {SINK:g}, in a run again",
        f"share of BOS {_told(found)}, sink score above {SINK:g} in {(scores > SINK).sum()} of {scores.size} heads; "
        f"without positions share {_told(share(results, PLAIN, FIRST, 'usual', 'bos'))}",
        _judged(mean(found).low > MOST, of=found),
        f"untrained {_told(start)}, uniform attention {uniform(config, 'usual'):.2f}",
    )


def _absent(config: Config, results: Results) -> Claim:
    found, plain = (share(results, stage, ABSENT, "removed", "first") for stage in (POSITIONS, PLAIN))
    zero, first = (share(results, POSITIONS, ABSENT, "removed-position", place) for place in ("zero", "first"))
    start = share(results, POSITIONS, ABSENT, "removed", "first", save=0)
    return Claim(
        "position-0-without-bos",
        "A model that has never seen BOS has a sink all the same, the embedding of position 0; without embeddings of "
        "positions it has none.",
        f"{OURS}; {STREAMING}, section 3: models without a fixed first token rest on the first ones",
        f"share of the first token, another one in each sequence: {_told(found)}; with the embeddings of positions 0 "
        f"and {TO} exchanged after training position 0 has {_told(zero)} and the first token {_told(first)}; without "
        f"positions {_told(plain)}",
        _judged(mean(found).low > MOST, mean(zero - first).low > 0, mean(plain).high < MOST, of=found),
        f"untrained {_told(start)}, uniform attention {uniform(config, 'removed'):.2f}",
    )


def _parted(config: Config, results: Results) -> Claim:
    of = functools.partial(share, results, POSITIONS, FIRST)
    usual, both = of("usual", "bos"), of("both", "bos")
    bos, zero = of("token", "bos"), of("token", "zero")
    costs = [mean(usual - part) for part in (bos, zero)]
    return Claim(
        "token-and-position",
        "A sink learnt with BOS in front is tied to BOS and position 0: apart, each draws less than both together.",
        OURS,
        f"BOS moved to place {TO} without its position has {_told(bos)}, position 0 without BOS {_told(zero)}; the "
        f"other way round BOS has {_told(of('position', 'bos'))}, position 0 at place {TO} "
        f"{_told(of('position', 'zero'))}",
        _judged(*(cost.low > 0 for cost in costs), of=usual),
        f"together in front {_told(usual)}, together at place {TO} {_told(both)}, where the first place keeps "
        f"{_told(of('both', 'first'))}; uniform attention {uniform(config, 'usual'):.2f}",
    )


def _replaced(config: Config, results: Results) -> Claim:
    kept, plain = (share(results, stage, FIRST, "replaced", "first") for stage in (POSITIONS, PLAIN))
    usual, plain_usual = (share(results, stage, FIRST, "usual", "bos") for stage in (POSITIONS, PLAIN))
    level = TWICE * uniform(config, "replaced")
    return Claim(
        "any-token-will-do",
        "The first place is a sink whatever token stands there, with positions and without: place, not meaning.",
        f"{STREAMING}, section 3: with line breaks in place of the first tokens attention still rests there",
        f"another symbol in place of BOS has {_told(kept)} with positions, {_told(plain)} without",
        _judged(mean(kept).low > level, mean(plain).low > level, of=kept),
        f"BOS itself {_told(usual)} and {_told(plain_usual)}; with positions and with BOS and position 0 gone the next "
        f"token has {_told(share(results, POSITIONS, FIRST, 'hidden', 'first'))}; twice uniform attention {level:.2f}",
    )


def _moved(config: Config, results: Results) -> Claim:
    differences, told = [], []
    for stage, name in ((POSITIONS, "with positions"), (PLAIN, "without")):
        bos, zero = (share(results, stage, MOVED, "token", place) for place in ("bos", "zero"))
        differences.append(mean(bos - zero))
        told.append(f"{name} BOS has {_told(bos)} and the first place {_told(zero)}")
    return Claim(
        "moving-bos-in-training",
        "A model that has seen BOS anywhere rests on BOS, wherever it stands, with positions and without.",
        OURS,
        f"BOS at place {TO}: {'; '.join(told)}",
        _judged(*(found.low > 0 for found in differences), of=share(results, POSITIONS, MOVED, "token", "bos")),
        f"with positions, BOS in front {_told(share(results, POSITIONS, MOVED, 'usual', 'bos'))}, a symbol there "
        f"{_told(share(results, POSITIONS, MOVED, 'replaced', 'first'))}; uniform attention "
        f"{uniform(config, 'token'):.2f}",
    )


def _idle(config: Config, results: Results) -> Claim:
    usual, plain = (right(results, stage, FIRST, "usual") for stage in (POSITIONS, PLAIN))
    hidden, plain_hidden = (right(results, stage, FIRST, "hidden") for stage in (POSITIONS, PLAIN))
    return Claim(
        "sink-is-idle",
        "Hiding BOS from all others changes no prediction, with positions and without: a sink is a place to rest.",
        f"{OURS}; sinks that do nothing: arXiv 2410.10781",
        f"accuracy falls by {_told(usual - hidden)} with positions, by {_told(plain - plain_hidden)} without, where "
        "BOS is what tells tokens their place",
        _judged(*(mean(cost).high < IDLE for cost in (usual - hidden, plain - plain_hidden)), of=usual),
        "with positions, moving all tokens one place ahead as well costs "
        f"{_told(usual - right(results, POSITIONS, FIRST, 'removed'))}; without, a model trained with BOS anywhere "
        f"loses {_told(right(results, PLAIN, MOVED, 'usual') - right(results, PLAIN, MOVED, 'hidden'))}",
    )


def _foreseen(config: Config, results: Results) -> Claim:
    del config
    found = foreseen(results)
    rates = {name: f"{rate.text(0)} %" for name, rate in found.items()}
    return Claim(
        "lead-foresees-the-sink",
        "The key that leads at the start becomes the sink in most heads.",
        f"{PAPER}, theorem 3.2, for one row of free values: the leader of score and advantage together wins",
        "without BOS, the key with most of the attention in the end had the largest mean score at the start in "
        f"{rates['score']} of the heads, the largest first push of its score in {rates['push']}, the largest sum of "
        f"both in {rates['sum']}",
        _judged(found["sum"].low > 100 * MOST, of=np.asarray([found["sum"].value])),
        f"chance {chance(results):.0f} %; the first key, whatever leads: {rates['first']}",
    )


def _lead(config: Config, results: Results) -> Claim:
    shares = {arm: [course(results, arm, key)[:, -1] for key in (TO, 0)] for arm in (EXCHANGED, LED)}
    gaps, drawn = [mean(target - first) for target, first in shares.values()], course(results, ABSENT, 0)
    told = {arm: f"{_told(target)}, the first key {_told(first)}" for arm, (target, first) in shares.items()}
    return Claim(
        "lead-moves-the-sink",
        "Another key becomes the sink if it has the lead at the start.",
        f"{PAPER}, theorem 3.2: the leader keeps its lead",
        f"without BOS, key {TO} has in the end, with the embeddings of positions 0 and {TO} exchanged at the start, "
        f"{told[EXCHANGED]}; with a lead of {config.lead:g} in score that fades out by step {config.gone:,}, "
        f"{told[LED]}",
        _judged(*(gap.low > 0 for gap in gaps), of=np.concatenate([target for target, _ in shares.values()])),
        f"at the start the lead gives key {TO} {_told(course(results, LED, TO)[:, 0])}; as drawn the first key has "
        f"{_told(drawn[:, 0])} at the start, {_told(drawn[:, -1])} in the end",
    )


def _judged(*parts: bool, of: np.ndarray) -> Verdict:
    """Return the verdict of the parts, "not tested" where no run has learnt the task."""
    return judge(*(bool(part) for part in parts)) if np.isfinite(of).any() else "not tested"


def _told(values: np.ndarray) -> str:
    found = mean(values)
    return "(no run learnt)" if np.isnan(found.value) else found.text(2)
