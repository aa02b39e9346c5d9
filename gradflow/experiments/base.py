"""What an experiment is: settings, stages that compute, claims that judge, figures that show.

Everything flows one way: config -> stages -> results -> claims -> figures. An experiment computes and judges; it
neither prints nor writes (`experiments.writer` and `report` do).
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

Verdict = Literal["holds", "holds in part", "does not hold", "not tested"]
Results = Mapping[str, Mapping[str, np.ndarray]]  # stage -> name -> array


@dataclasses.dataclass(frozen=True)
class Claim:
    """A statement of a paper, what was measured, and whether it holds.

    Attributes:
        id: short, stable, unique within the experiment, for instance `winner-takes-all`.
        statement: what is claimed, in one sentence.
        paper: where the paper says so, and the number it gives if it gives one.
        measured: what this run found, numbers with their unit.
        verdict: whether the statement holds.
        control: the comparison that decides it (trivial baseline, other activation, closed form).
    """

    id: str
    statement: str
    paper: str
    measured: str
    verdict: Verdict
    control: str


@dataclasses.dataclass(frozen=True)
class Figure:
    """A figure with what a reader needs to understand it without the text.

    Attributes:
        name: file name without ending.
        title: what is seen.
        caption: how it was made: settings, tolerances, seeds.
        alt: what a reader who cannot see it should know.
        draw: draws it; called once, when the figure is written.
    """

    name: str
    title: str
    caption: str
    alt: str
    draw: Callable[[], "MatplotlibFigure"]


@dataclasses.dataclass(frozen=True)
class Stage:
    """A part of the computation that is stored when it is done and skipped on resume.

    Attributes:
        name: unique within the experiment.
        compute: `compute(workspace) -> {name: array}`; the workspace is a folder for checkpoints of long runs.
    """

    name: str
    compute: Callable[[Any], Mapping[str, np.ndarray]]


class Config(Protocol):
    """Settings of an experiment: a frozen dataclass whose defaults are the preset `quick`."""

    @classmethod
    def paper(cls) -> "Config":
        """Return the paper's own settings."""
        ...


@dataclasses.dataclass(frozen=True)
class Experiment:
    """An experiment of a paper.

    Attributes:
        name: as typed on the command line.
        title: one line.
        source: paper and section.
        config: dataclass of the settings.
        stages: `stages(config) -> list of Stage`.
        claims: `claims(config, results) -> list of Claim`; results hold every stage.
        figures: `figures(config, results) -> list of Figure`.
        recorded: the verdict of each claim that this repository records as true for the preset `quick`.
        plan: `plan(config) -> str`, what is about to be run and what it costs, said before it starts; None for nothing.
    """

    name: str
    title: str
    source: str
    config: type
    stages: Callable[[Any], list[Stage]]
    claims: Callable[[Any, Results], list[Claim]]
    figures: Callable[[Any, Results], list[Figure]]
    recorded: Mapping[str, Verdict]
    plan: Callable[[Any], str] | None = None


def judge(*parts: bool) -> Verdict:
    """Return the verdict of a claim with several parts: all, some or none of them hold."""
    if all(parts):
        return "holds"
    return "holds in part" if any(parts) else "does not hold"
