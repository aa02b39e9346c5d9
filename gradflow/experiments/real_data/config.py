"""Settings of the experiment: which data sets, losses and horizons."""

import dataclasses
from typing import NamedTuple

MAPS = ("softmax", "normalised-square", "normalised-sigmoid", "sigmoid", "uniform")
NAMES = {
    "softmax": "softmax",
    "normalised-square": r"$a^2/\Sigma$",
    "normalised-sigmoid": r"sigmoid/$\Sigma$",
    "sigmoid": "sigmoid",
    "uniform": "no attention",
}
SCALES = (0.01, 0.1)  # standard deviation of the initial values
SIZE = 8  # n, number of values
START_SCORE = 1.0  # x^2 and |a| are singular at 0


class Task(NamedTuple):
    """A data set with a loss.

    Attributes:
        data: name in `gradflow.tasks.real`.
        positive: class labelled 1; None for a regression.
        loss: "logistic", "exponential" or "square".
        title: for figures.
        separable: whether a hyperplane through the origin separates the training data (by a linear program).
    """

    data: str
    positive: int | None
    loss: str
    title: str
    separable: bool


TASKS = {
    "wine-separable": Task("wine", 1, "logistic", "wine 1, logistic", True),
    "wine-exponential": Task("wine", 1, "exponential", "wine 1, exponential", True),
    "breast-cancer": Task("breast_cancer", 0, "logistic", "breast cancer, logistic", True),
    "wine-overlapping": Task("wine", 0, "logistic", "wine 0, logistic", False),
    "digits": Task("digits", 0, "logistic", "digits 0, logistic", False),
    "wine-square": Task("wine", 0, "square", "wine 0, square", False),
    "diabetes": Task("diabetes", None, "square", "diabetes, square", False),
}


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings; the defaults are the preset `quick`, whose horizons are where an explicit flow gets expensive.

    Attributes:
        wine_separable: last time of the flow on that task; the gradient decays, and long horizons are cheap.
        wine_exponential: last time of the flow on that task.
        breast_cancer: last time of the flow on that task; margin 1/245, so it separates late.
        wine_overlapping: last time of the flow on that task; the Hessian does not decay, and steps grow with t.
        digits: last time of the flow on that task.
        wine_square: last time of the flow on that task.
        diabetes: last time of the flow on that task.
        seeds: random starts for each scale of the initial values, 0.01 and 0.1.
        rtol: relative tolerance of the flows.
        descent_steps: steps of gradient descent beside the flow on wine-separable.
        step_size: of that descent.
        saves: save times of each run, evenly in log t.
    """

    wine_separable: float = 1e8
    wine_exponential: float = 1e5
    breast_cancer: float = 1e4
    wine_overlapping: float = 1e4
    digits: float = 1e2
    wine_square: float = 3e2
    diabetes: float = 3e2
    seeds: int = 4
    rtol: float = 1e-7
    descent_steps: int = 20_000
    step_size: float = 0.2
    saves: int = 80

    @classmethod
    def paper(cls) -> "Config":
        """Return long horizons and more starts; hours on a laptop, of which digits takes most."""
        return cls(
            wine_separable=1e12,
            wine_exponential=1e8,
            breast_cancer=1e5,
            wine_overlapping=1e5,
            digits=1e4,
            wine_square=1e3,
            diabetes=1e4,
            seeds=16,
            descent_steps=200_000,
        )

    def horizon(self, task: str) -> float:
        """Return the last time of the flow on a task."""
        return getattr(self, task.replace("-", "_"))
