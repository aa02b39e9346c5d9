"""Settings of the induction experiment: facts of arXiv 2603.06248, and a smaller version that takes minutes."""

import dataclasses

import numpy as np

from gradflow.models import PAPER_MAPS
from gradflow.tasks import Induction

SINK = 0.9  # sink score above which a head is a sink
LEARNT = 0.95  # accuracy above which a run counts
LAYERS = 2
USUAL_HEADS, USUAL_POSITIONS = 2, "add"
LEFT_OUT = 2  # query rows at the end, beside BOS's own: the task's last two


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings; the defaults are the preset `quick`, a smaller task for a smaller model.

    Attributes:
        maps: attention maps that are compared with their course over training.
        seeds: runs of each.
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
        grid_maps: maps that are trained with other heads and positions.
        grid_heads: numbers of heads.
        grid_positions: how positions are known.
        grid_rates: learning rates.
        grid_auxiliaries: weights of the other positions.
        grid_shifts: whether the query is the twin of a symbol.
        grid_seeds: runs of each point.
        full: whether the grid is the product of all its lists; otherwise heads and positions vary one at a time.
    """

    maps: tuple[str, ...] = (
        "softmax",
        "normalised-sigmoid",
        "normalised-elu1",
        "sigmoid",
        "elu1",
        "clipped-linear",
        "linear",
        "uniform",
    )
    seeds: int = 5
    symbols: int = 19
    distinct: int = 6
    width: int = 64
    heads: int = USUAL_HEADS
    batch: int = 64
    steps: int = 1000
    learning_rate: float = 3e-3
    auxiliary: float = 0.2
    evaluated: int = 256
    saves: int = 25
    grid_maps: tuple[str, ...] = ("softmax", "normalised-sigmoid", "sigmoid")
    grid_heads: tuple[int, ...] = (1, 4)
    grid_positions: tuple[str, ...] = ("none", "concat")
    grid_rates: tuple[float, ...] = (3e-3,)
    grid_auxiliaries: tuple[float, ...] = (0.2,)
    grid_shifts: tuple[bool, ...] = (True,)
    grid_seeds: int = 2
    full: bool = False

    @classmethod
    def paper(cls) -> "Config":
        """Return the paper's settings: a grid of 8,640 runs, and its main bars once more with their course."""
        return cls(
            maps=PAPER_MAPS,
            symbols=49,
            distinct=10,
            width=128,
            heads=4,
            batch=256,
            steps=3900,
            learning_rate=1e-3,
            evaluated=1000,
            saves=39,
            grid_maps=PAPER_MAPS,
            grid_heads=(1, 2, 4, 8),
            grid_positions=("add", "concat", "none"),
            grid_rates=(1e-2, 1e-3, 1e-4),
            grid_auxiliaries=(0.0, 0.2),
            grid_shifts=(True, False),
            grid_seeds=5,
            full=True,
        )

    @property
    def save_at(self) -> np.ndarray:
        """Steps to save: the start, and evenly up to the end."""
        return np.unique(np.linspace(0, self.steps, self.saves + 1).round().astype(int))

    @property
    def shapes(self) -> list[tuple[int, str]]:
        """Numbers of heads with kinds of positions."""
        if self.full:
            return [(heads, positions) for heads in self.grid_heads for positions in self.grid_positions]
        return [(heads, USUAL_POSITIONS) for heads in self.grid_heads] + [(self.heads, p) for p in self.grid_positions]

    @property
    def grid_runs(self) -> int:
        """Runs of the grid."""
        lists = (self.grid_maps, self.shapes, self.grid_rates, self.grid_auxiliaries, self.grid_shifts)
        return int(np.prod([len(values) for values in lists])) * self.grid_seeds

    def task(self, shift: bool = True) -> Induction:
        """Return the task."""
        return Induction(self.symbols, self.distinct, shift)
