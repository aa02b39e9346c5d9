"""Settings of the experiment on what a massive activation does: one is put into the embedding of BOS, at any size."""

import dataclasses
from typing import Any

import numpy as np

from gradflow.tasks import Induction

LEARNT = 0.95  # accuracy above which a run counts
LAYERS = 2
LEFT_OUT = 2  # query rows at the end, beside BOS's own: the task's last two
ARMS: dict[str, dict[str, Any]] = {  # options of `stages.member`
    "peaked": {},
    "spread": {"spread": True},
    "no-norm": {"norm": None},
}
NAMES = {"peaked": "one coordinate", "spread": "spread over all", "no-norm": "one coordinate, no norm"}
ROUNDINGS = {"bfloat16": "bfloat16", "token": "8 bits, a scale a token", "tensor": "8 bits, a scale a layer"}


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings; the defaults are the preset `quick`.

    Attributes:
        sizes: norms of what is added to the embedding of BOS; the first is 0, nothing.
        rates: learning rates of AdamW, the usual one first.
        seeds: runs of each arm, size and rate.
        symbols: of the task.
        distinct: symbols of a sequence.
        width: of the model.
        heads: of the model, in a layer.
        batch: sequences of a step.
        steps: of a run.
        auxiliary: weight of the positions before the last in the loss.
        evaluated: fresh sequences for evaluation.
        saves: times along a run, evenly.
    """

    sizes: tuple[float, ...] = (0.0, 100.0, 1000.0, 10000.0)
    rates: tuple[float, ...] = (3e-3, 5e-3)
    seeds: int = 5
    symbols: int = 19
    distinct: int = 6
    width: int = 64
    heads: int = 2
    batch: int = 64
    steps: int = 500
    auxiliary: float = 0.2
    evaluated: int = 64
    saves: int = 50

    @classmethod
    def paper(cls) -> "Config":
        """Return the settings of the induction task of arXiv 2603.06248, with more sizes."""
        return cls(
            sizes=(0.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10000.0),
            rates=(1e-3, 3e-3, 1e-2),
            symbols=49,
            distinct=10,
            width=128,
            heads=4,
            batch=256,
            steps=3900,
            evaluated=256,
            saves=390,
        )

    @property
    def save_at(self) -> np.ndarray:
        """Steps to save: the start, and evenly up to the end."""
        return np.unique(np.linspace(0, self.steps, self.saves + 1).round().astype(int))

    def task(self) -> Induction:
        """Return the task."""
        return Induction(self.symbols, self.distinct)
