"""Settings of the experiment on one token's influence: facts of arXiv 2603.06248, and a smaller version."""

import dataclasses
import itertools
from typing import NamedTuple

import numpy as np

from gradflow.models import PAPER_MAPS
from gradflow.tasks import Groups

LEARNT = 0.95  # accuracy above which a run counts


class Shape(NamedTuple):
    """What a model is made of.

    Attributes:
        layers: blocks.
        heads: of a block.
        mlp: whether blocks have an MLP.
        norm: whether they have normalisation.
    """

    layers: int = 1
    heads: int = 1
    mlp: bool = False
    norm: bool = False

    @property
    def label(self) -> str:
        """The shape in words."""
        parts = [f"{self.layers} layer{'s' * (self.layers > 1)}", f"{self.heads} head{'s' * (self.heads > 1)}"]
        return ", ".join(parts + ["MLP"] * self.mlp + ["norm"] * self.norm)


USUAL = Shape()
ONE_AT_A_TIME = (
    USUAL,
    Shape(heads=2),
    Shape(heads=4),
    Shape(layers=2),
    Shape(layers=2, heads=4),
    Shape(mlp=True),
    Shape(norm=True),
)


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings; the defaults are the preset `quick`, a narrower model and smaller batches.

    Attributes:
        maps: attention maps that are compared, in one layer with one head, without MLP and normalisation.
        seeds: runs of each.
        vocabulary: tokens with CLS.
        distinct: content tokens of a sequence.
        width: of the model.
        batch: sequences of a step.
        steps: of a run.
        learning_rate: of AdamW.
        evaluated: fresh sequences for evaluation.
        pairs: sequences whose most attended tokens are exchanged.
        attacked: sequences in which every replacement is tried.
        saves: times along a run, evenly on a log scale.
        grid_maps: maps that are trained in other shapes.
        grid_vocabularies: numbers of tokens.
        grid_rates: learning rates.
        grid_seeds: runs of each point.
        full: whether all layers, heads, MLP and normalisation are combined; otherwise they vary one at a time.
    """

    maps: tuple[str, ...] = ("softmax", "normalised-sigmoid", "normalised-elu1", "sigmoid", "elu1", "uniform")
    seeds: int = 5
    vocabulary: int = 41
    distinct: int = 10
    width: int = 64
    batch: int = 128
    steps: int = 390
    learning_rate: float = 1e-2
    evaluated: int = 256
    pairs: int = 250
    attacked: int = 16
    saves: int = 12
    grid_maps: tuple[str, ...] = ("softmax", "normalised-sigmoid", "sigmoid")
    grid_vocabularies: tuple[int, ...] = (41,)
    grid_rates: tuple[float, ...] = (1e-2,)
    grid_seeds: int = 5
    full: bool = False

    @classmethod
    def paper(cls) -> "Config":
        """Return the paper's settings: a grid of 12,960 runs, and its main bars once more with their course."""
        return cls(
            maps=PAPER_MAPS,
            width=128,
            batch=256,
            evaluated=1000,
            pairs=500,
            attacked=100,
            saves=40,
            grid_maps=PAPER_MAPS,
            grid_vocabularies=(41, 81, 161),
            grid_rates=(1e-2, 1e-3, 1e-4),
            full=True,
        )

    @property
    def save_at(self) -> np.ndarray:
        """Steps to save: the start, and evenly up to the end on a log scale, since a few steps can be enough."""
        return np.unique(np.append(0, np.geomspace(1, self.steps, self.saves).round())).astype(int)

    @property
    def shapes(self) -> list[Shape]:
        """Shapes of the grid; the usual one is first."""
        if self.full:
            return [Shape(*parts) for parts in itertools.product((1, 2), (1, 2, 4), (False, True), (False, True))]
        return list(ONE_AT_A_TIME)

    @property
    def grid_runs(self) -> int:
        """Runs of the grid."""
        lists = (self.grid_maps, self.grid_vocabularies, self.grid_rates, self.shapes)
        return int(np.prod([len(values) for values in lists])) * self.grid_seeds

    def task(self, vocabulary: int | None = None) -> Groups:
        """Return the task."""
        return Groups(self.vocabulary if vocabulary is None else vocabulary, distinct=self.distinct)
