"""Settings of the experiment, its maps, and the numbers that an independent run of the paper's settings gives."""

import dataclasses
from typing import NamedTuple

from gradflow.activations import AbstractActivation, by_name


class Map(NamedTuple):
    """A map of the experiment.

    Attributes:
        name: of the library.
        label: as the paper writes it.
    """

    name: str
    label: str

    @property
    def activation(self) -> AbstractActivation:
        """The map itself."""
        return by_name(self.name)


SIX = (
    Map("normalised-abs", r"L1  $|a|/\Sigma|a|$"),
    Map("normalised-linear", r"Sum  $a/\Sigma a$"),
    Map("normalised-square", r"$a^2/\Sigma a^2$"),
    Map("softmax", "softmax"),
    Map("normalised-relu", r"ReLU / $\Sigma$"),
    Map("sigmoid", "sigmoid, elementwise"),
)
BESIDE = (Map("relu", "ReLU, elementwise"), Map("elu", "ELU, elementwise"), Map("linear", "linear, elementwise"))
MAPS = SIX + BESIDE
NAMES = tuple(map_.name for map_ in MAPS)
# Its flow ends at a kink under the logistic loss; a run of its own keeps the others going.
KINKED = "normalised-abs"
LATE = ("softmax", "normalised-relu", "normalised-softplus", "normalised-elu1", "normalised-sigmoid")
LOSSES = ("square", "logistic")

# An independent NumPy descent of the paper's settings: (largest weight, smallest weight) after the last step.
REFERENCE = {
    "square": {
        "normalised-abs": (0.13384655512573163, 0.07815391964668199),
        "normalised-linear": (0.13384655512573163, 0.07815391964668199),
        "normalised-square": (0.28275999244697086, 0.03806805393159101),
        "softmax": (0.14402291767458686, 0.08056347878527045),
        "normalised-relu": (0.13384655512573163, 0.07815391964668199),
        "sigmoid": (0.7663639055089555, 0.7027479714078294),
    },
    "logistic": {
        "normalised-abs": (0.999972150817971, 0.0),
        "normalised-linear": (3.5519921329722606, -2.037340434671744),
        "normalised-square": (0.9999999810408662, 2.3413762647373688e-11),
        "softmax": (0.9762327154669481, 0.002047880799615217),
        "normalised-relu": (1.0, 0.0),
        "sigmoid": (0.8164935935939657, 0.7647506889939357),
    },
}
# The derived late rest 1 - s_max at tau = 60 and tau = 200 (n = 8, all scores 1 at the start).
LATE_REFERENCE = {
    "softmax": (9e-4, 5e-5),
    "normalised-softplus": (0.09, 6e-4),
    "normalised-elu1": (0.31, 6e-4),
    "normalised-sigmoid": (0.85, 6e-3),
}


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings; the defaults are the preset `quick`, which holds the paper's own descents.

    Attributes:
        square_steps: steps of descent on the square loss (the paper: 5,000 at step size 0.1 on |r|^2 / 2).
        logistic_steps: steps of descent on the logistic loss (the paper: 1e5 at step size 0.5).
        horizon: last time of the logistic flows.
        rtol: relative tolerance of the flows.
        saves: save times of each run, evenly in log t.
        late_tau: clock to which the late stage is followed.
        late_size: number n of values there.
        late_seeds: random starts there.
    """

    square_steps: int = 5_000
    logistic_steps: int = 100_000
    horizon: float = 1e12
    rtol: float = 1e-11
    saves: int = 200
    late_tau: float = 1_000.0
    late_size: int = 8
    late_seeds: int = 8

    @classmethod
    def paper(cls) -> "Config":
        """Return the paper's settings, with the flow followed further and more starts of the late stage."""
        return cls(horizon=1e20, late_tau=3_000.0, late_seeds=64)

    @property
    def rows(self) -> int:
        """Most saves a run can have: those asked for, the start and the end."""
        return self.saves + 2
