"""Settings of the experiment."""

import dataclasses
from typing import NamedTuple

import numpy as np

from gradflow.experiments.habit_or_meaning.sequences import ABSENT, EXCHANGED, FIRST, LED, MOVED, TO
from gradflow.tasks import Induction

BLOCKS = 2
SHORTEST = TO + 3  # distinct symbols, so that a row after everything that is moved is read


class Setting(NamedTuple):
    """What a stage trains.

    Attributes:
        positions: as in `Transformer.init`.
        arms: their numbers.
    """

    positions: str | None
    arms: tuple[int, ...]


POSITIONS, PLAIN = "positions", "no-positions"
SETTINGS = {
    POSITIONS: Setting("add", (FIRST, MOVED, ABSENT, EXCHANGED, LED)),
    PLAIN: Setting(None, (FIRST, MOVED, ABSENT)),
}


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings; the defaults are the preset `quick`, scaled down from the paper's sizes.

    Attributes:
        n_symbols: of the task.
        distinct: symbols of a sequence.
        width: of the transformer, which has two blocks.
        heads: of a block.
        batch: sequences of a step.
        learning_rate: of AdamW.
        steps: of a run.
        auxiliary: weight of the positions before the last in the loss.
        seeds: random starts, which all arms share.
        saves: after the start, evenly spaced.
        evaluated: sequences for evaluation.
        lead: added to the scores of one key in the last layer of one arm, fading out from step 0 on.
        fade: part of the steps after which it is gone.
    """

    n_symbols: int = 19
    distinct: int = 6
    width: int = 64
    heads: int = 2
    batch: int = 64
    learning_rate: float = 3e-3
    steps: int = 600
    auxiliary: float = 0.2
    seeds: int = 8
    saves: int = 24
    evaluated: int = 128
    lead: float = 3.0
    fade: float = 0.33

    @classmethod
    def paper(cls) -> "Config":
        """Return the paper's sizes for its 10 epochs."""
        return cls(
            n_symbols=49, distinct=10, width=128, heads=4, batch=256, learning_rate=1e-3, steps=3906, evaluated=512
        )

    @property
    def task(self) -> Induction:
        """The task, with BOS."""
        return Induction(n_symbols=self.n_symbols, distinct=self.distinct)

    @property
    def gone(self) -> int:
        """Step at which the lead has faded out."""
        return max(1, round(self.fade * self.steps))

    @property
    def save_at(self) -> np.ndarray:
        """Steps to save: the start, and evenly up to the end."""
        return np.unique(np.linspace(0, self.steps, self.saves + 1).round().astype(int))
