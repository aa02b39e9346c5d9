"""Settings of the experiment on massive activations: a task that forms sinks, and what might take large norms away."""

import dataclasses
from typing import Any

import numpy as np

from gradflow.tasks import Induction

LEARNT = 0.95  # accuracy above which a run counts
LEFT_OUT = 2  # query rows at the end, beside BOS's own: the task's last two
ABSOLUTE, RELATIVE = 100, 1000  # a massive activation of Sun et al.: size, and size over the median
ARMS: dict[str, dict[str, Any]] = {  # options of Transformer.init
    "softmax": {"attention": "softmax"},
    "no-norm": {"attention": "softmax", "norm": None},
    "sink-logit": {"attention": "sink-logit"},
    "softmax1": {"attention": "softmax1"},
    "gated": {"attention": "softmax", "gated": True},
    "uniform": {"attention": "uniform"},
}
NAMES = {
    "softmax": "softmax, pre-norm",
    "no-norm": "softmax, no norm",
    "sink-logit": "sink logit",
    "softmax1": "softmax1",
    "gated": "gated softmax",
    "uniform": "uniform attention",
}
RESTS = ("sink-logit", "softmax1", "gated")  # a head can add nothing without a sink


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings; the defaults are the preset `quick`.

    Attributes:
        arms: kinds of models, of `ARMS`.
        depths: numbers of layers.
        seeds: runs of each arm and depth.
        symbols: of the task.
        distinct: symbols of a sequence.
        width: of the model.
        heads: of the model, in a layer.
        batch: sequences of a step.
        steps: of a run.
        learning_rate: of AdamW.
        auxiliary: weight of the positions before the last in the loss.
        evaluated: fresh sequences for evaluation.
        saves: times along a run, evenly.
    """

    arms: tuple[str, ...] = tuple(ARMS)
    depths: tuple[int, ...] = (2, 4)
    seeds: int = 5
    symbols: int = 19
    distinct: int = 6
    width: int = 64
    heads: int = 2
    batch: int = 64
    steps: int = 600
    learning_rate: float = 3e-3
    auxiliary: float = 0.2
    evaluated: int = 256
    saves: int = 15

    @classmethod
    def paper(cls) -> "Config":
        """Return the settings of the induction task of arXiv 2603.06248, with up to eight layers."""
        return cls(
            depths=(2, 4, 8),
            symbols=49,
            distinct=10,
            width=128,
            heads=4,
            batch=256,
            steps=3900,
            learning_rate=1e-3,
            evaluated=1000,
            saves=39,
        )

    @property
    def save_at(self) -> np.ndarray:
        """Steps to save: the start, and evenly up to the end."""
        return np.unique(np.linspace(0, self.steps, self.saves + 1).round().astype(int))

    def task(self) -> Induction:
        """Return the task."""
        return Induction(self.symbols, self.distinct)
