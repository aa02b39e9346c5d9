"""An experiment of two quick stages that notes what it computes and can be told to misbehave."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from gradflow.experiments import audits, registry
from gradflow.experiments.base import Claim, Experiment, Figure, Results, Stage, judge
from gradflow.laws import Audit, Row, Skipped

CALLS: list[str] = []
ACTIONS: dict[str, Callable[[Path], Mapping[str, np.ndarray] | None]] = {}  # stage -> what it does first
LAWS = (Row("1", "the sum of scores is <kept>", 1e-15, 1e-12), Row("-", "the loss falls", 1.0, 1e-6))
AUDIT = Audit("flow of a toy", LAWS, (Skipped("5", "the winner takes all", "the map is no softmax"),))


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of the toy.

    Attributes:
        seeds: how many draws.
        rtol: relative tolerance.
        kappas: condition numbers.
        loss_name: which loss.
        centred: whether the draws are centred.
        floor: a floor, or none.
    """

    seeds: int = 3
    rtol: float = 1e-8
    kappas: tuple[float, ...] = (1.0, 5.0)
    loss_name: str = "logistic"
    centred: bool = True
    floor: float | None = None

    @classmethod
    def paper(cls) -> "Config":
        return cls(seeds=20)


def stage(name: str, config: Config) -> Stage:
    def compute(workspace: Path) -> Mapping[str, np.ndarray]:
        CALLS.append(name)
        special = ACTIONS[name](workspace) if name in ACTIONS else None
        draws = np.random.RandomState(config.seeds).rand(config.seeds, 4)
        status = np.array(["successful", "max steps"])
        arrays = {"weights": draws, "status": status, "count": np.array(3), "none": np.zeros((0, 2))}
        return special or arrays | (audits.stored(AUDIT) if name == "flow" else {})

    return Stage(name, compute)


def claims(config: Config, results: Results) -> list[Claim]:
    largest = results["flow"]["weights"].max()
    same = bool((results["flow"]["weights"] == results["descent"]["weights"]).all())
    measured = f"{largest:.3f}"
    return [
        Claim("largest", "The largest weight is below 1.", "Theorem 1: < 1", measured, judge(largest < 1), "`random`"),
        Claim("same", "Flow & descent differ by <1.", "Figure 2", "equal", judge(same, False), "none"),
    ]


def draw_panel():
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(3.25, 2.4), layout="constrained")
    axes.loglog([1, 10], [1, 0.1])
    return figure


def figures(config: Config, results: Results) -> list[Figure]:
    return [Figure("weights", "Weights <fall>", f"{config.seeds} `seeds`", 'A line that falls: "slope" -1', draw_panel)]


EXPERIMENT = Experiment(
    name="toy",
    title="A toy",
    source="nowhere, section 1",
    config=Config,
    stages=lambda config: [stage("flow", config), stage("descent", config)],
    claims=claims,
    figures=figures,
    recorded={"largest": "holds", "same": "holds in part"},
)


def register() -> None:
    """Make the toy the only experiment of this process."""
    registry.MODULES.clear()
    registry.MODULES["toy"] = "toy_experiment"
