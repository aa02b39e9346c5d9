"""Numbers of runs that claims and figures share."""

from typing import NamedTuple

import numpy as np

from gradflow.experiments.base import Results
from gradflow.experiments.bigram.config import Config
from gradflow.experiments.bigram.readings import ANSWER, KINDS
from gradflow.experiments.bigram.stages import BOS, ONE, TWO
from gradflow.experiments.induction.numbers import crossing
from gradflow.experiments.transformers import MAPS

KNOWN, OTHER = range(len(KINDS))
NAMES = {TWO: "", ONE: ", one layer", BOS: ", BOS"}  # of stages, behind that of a map


class Arm(NamedTuple):
    """Runs that differ in their seeds only.

    Attributes:
        map: attention map.
        stage: where they were trained.
    """

    map: str
    stage: str = TWO

    @property
    def label(self) -> str:
        """The arm in words."""
        return MAPS[self.map] + NAMES[self.stage]


SOFTMAX, SIGMOID, UNIFORM, SHALLOW = Arm("softmax"), Arm("sigmoid"), Arm("uniform"), Arm("softmax", ONE)
SOFTMAX_BOS, SIGMOID_BOS = Arm("softmax", BOS), Arm("sigmoid", BOS)


def arms(config: Config) -> list[Arm]:
    """Return all arms, in the order of the figures."""
    return [Arm(name, stage) for stage in (TWO, ONE, BOS) for name in _maps(config, stage)]


def runs(config: Config, results: Results, arm: Arm, reading: str) -> np.ndarray:
    """Return a reading of an arm along its runs, (seeds, saves, ...)."""
    return results[arm.stage][reading][_maps(config, arm.stage).index(arm.map)]


def looking_head(config: Config, results: Results, arm: Arm) -> np.ndarray:
    """Return the head of the last layer that looks most at answers at the end, where they are known: one a run."""
    return runs(config, results, arm, "share")[:, -1, -1, :, KNOWN, ANSWER].argmax(axis=-1)


def of_head(config: Config, results: Results, arm: Arm, reading: str) -> np.ndarray:
    """Return a reading (seeds, saves, L, H, ...) of the head that looks up, (seeds, saves, ...)."""
    values = runs(config, results, arm, reading)[:, :, -1]
    return values[np.arange(len(values)), :, looking_head(config, results, arm)]


def share(config: Config, results: Results, arm: Arm, kind: int, place: int) -> np.ndarray:
    """Return the part of its attention that the head that looks up has at a place, (seeds, saves)."""
    return of_head(config, results, arm, "share")[:, :, kind, place]


def effort(config: Config, results: Results, arm: Arm) -> np.ndarray:
    """Return what the head that looks up adds where nothing is to be looked up, over what it adds where there is."""
    added = of_head(config, results, arm, "added")
    return added[..., OTHER] / added[..., KNOWN]


def onsets(config: Config, results: Results, arm: Arm) -> tuple[np.ndarray, np.ndarray]:
    """Return when each run has half of the table and half of the look-up: losses half-way to the exact ones."""
    steps = results[arm.stage]["step"]
    known, other, exact = (runs(config, results, arm, name) for name in ("known_loss", "other_loss", "other_exact"))

    def half(excess: np.ndarray) -> np.ndarray:
        return np.array([crossing(steps, -curve, -curve[0] / 2) for curve in excess])

    return half(other - exact), half(known)


def _maps(config: Config, stage: str) -> tuple[str, ...]:
    return {TWO: config.maps, ONE: ("softmax",), BOS: config.bos_maps}[stage]
