"""Settings of a sweep that needs no code: a value-softmax on a linear task, any of its parameters as an axis."""

import dataclasses
import math

import numpy as np

from gradflow import activations, losses
from gradflow.errors import FlowError, unknown, whole_number
from gradflow.flow import log_times, options, solvers
from gradflow.sweep.axes import LARGEST_SEED

LOSSES = {"square": losses.square, "logistic": losses.logistic, "exponential": losses.exponential}
REGRESSION, CLASSIFICATION = "linear-regression", "linear-classification"
UNTIED, TIED = "value-softmax", "tied-softmax"
NAMES = {
    "activation": activations.names(),
    "task": (REGRESSION, CLASSIFICATION),
    "loss": tuple(LOSSES),
    "model": (UNTIED, TIED),
}
COUNTS = ("n", "d", "samples")
RANGES = {
    "scale": (0, math.inf),
    "kappa": (1, math.inf),
    "noise": (0, math.inf),
    "score_mean": (-math.inf, math.inf),
    "score_scale": (0, math.inf),
    "t1": (0, math.inf),
}
MAY_BE_EMPTY = ("loss", "samples")
SAVES = 60
DECADES = 1e6  # the horizon over the first save


@dataclasses.dataclass(frozen=True)
class Settings:
    """A sweep; each setting that holds several values is an axis.

    Attributes:
        activation: names of maps from scores to weights, such as softmax or normalised-sigmoid.
        task: linear-regression or linear-classification.
        loss: square, logistic or exponential; by default square for regression, logistic for classification.
        model: value-softmax, V act(a), or tied-softmax, U act(U a), where n must be d.
        n: number of values.
        d: number of features.
        samples: number of samples; by default d for regression, 8 d for classification.
        scale: standard deviation of the values at the start.
        kappa: condition number of the design of linear-regression.
        noise: standard deviation of the noise on targets; for classification the fraction of flipped labels.
        score_mean: mean of the scores at the start; maps that are singular at 0 need one that is not 0.
        score_scale: standard deviation of the scores at the start.
        seeds: number of draws of model and data.
        key: which draws; another whole number gives others.
        t1: horizon; with several values each run is saved at its own end only.
        saves: number of save times, evenly spaced in log t; by default 60.
        first_save: the first of them; by default t1 / 1e6.
        solver: auto, tsit5, chebyshev, bosh3, dopri8, kvaerno3 or kvaerno5.
        rtol: relative tolerance; by default 1e-8, and 1e-5 for maps with a kink.
        max_steps: steps after which a run ends with a code.
    """

    activation: tuple[str, ...] = ("softmax",)
    task: tuple[str, ...] = (REGRESSION,)
    loss: tuple[str, ...] = ()
    model: tuple[str, ...] = (UNTIED,)
    n: tuple[int, ...] = (16,)
    d: tuple[int, ...] = (8,)
    samples: tuple[int, ...] = ()
    scale: tuple[float, ...] = (0.1,)
    kappa: tuple[float, ...] = (1.0,)
    noise: tuple[float, ...] = (0.0,)
    score_mean: tuple[float, ...] = (0.0,)
    score_scale: tuple[float, ...] = (0.0,)
    seeds: int = 10
    key: int = 0
    t1: tuple[float, ...] = (1e6,)
    saves: int | None = None
    first_save: float | None = None
    solver: str = "auto"
    rtol: float | None = None
    max_steps: int = 1_000_000

    def times(self) -> np.ndarray | None:
        """Return the save times, None where each run has an end of its own."""
        if len(self.t1) != 1:
            return None
        (t1,) = self.t1
        saves = SAVES if self.saves is None else whole_number("saves", self.saves)
        first = t1 / DECADES if self.first_save is None else self.first_save
        if not 0 < first < t1:
            raise FlowError(f"first_save is {first:g}: it must lie between 0 and t1 = {t1:g}")
        return log_times(first, t1, saves)


def check_settings(settings: Settings) -> None:
    """Refuse what no sweep can use, before anything is written.

    Args:
        settings: as given.

    Raises:
        FlowError: naming the setting, its value and the fix.
    """
    for name in (*NAMES, *COUNTS, *RANGES):
        _check_values(name, getattr(settings, name))
    for name, least in (("seeds", 1), ("key", 0), ("max_steps", 1)):
        if whole_number(name, getattr(settings, name), least) > LARGEST_SEED:
            raise FlowError(f"{name} is {getattr(settings, name)}: it must be at most {LARGEST_SEED}")
    solvers.resolve(settings.solver, 1)
    options.tolerances(settings.rtol, None, np.float64, kinked=False)
    if len(settings.t1) > 1 and (settings.saves, settings.first_save) != (None, None):
        raise FlowError("t1 has several values, each run is then saved at its end: leave out saves and first_save")
    settings.times()
    _check_problem(settings)


def _check_problem(settings: Settings) -> None:
    """Refuse parts that do not fit together."""
    needs_labels = [loss for loss in settings.loss if loss != "square"]
    if REGRESSION in settings.task and needs_labels:
        raise FlowError(
            f"loss is {needs_labels[0]!r}, which needs labels: use task {CLASSIFICATION}, or the loss square"
        )
    if CLASSIFICATION in settings.task and settings.kappa != (1.0,):
        raise FlowError(f"kappa is {settings.kappa[-1]:g}, but {CLASSIFICATION} has no condition number: leave it out")
    if CLASSIFICATION in settings.task and max(settings.noise) >= 1:
        raise FlowError(f"noise is {max(settings.noise):g}, but a fraction of flipped labels must be below 1")
    if TIED in settings.model and not (len(settings.n) == 1 and settings.n == settings.d):
        raise FlowError(f"n is {settings.n[-1]}, but {TIED} has as many values as features: give one n and an equal d")


def _check_values(name: str, values: tuple) -> None:
    if not values and name not in MAY_BE_EMPTY:
        raise FlowError(f"{name} is empty: give at least one value")
    for value in values:
        if name in NAMES and value not in NAMES[name]:
            raise unknown(name, value, NAMES[name])
        if name in COUNTS:
            whole_number(name, value)
        if name in RANGES:
            _check_range(name, value, *RANGES[name])


def _check_range(name: str, value: float, least: float, most: float) -> None:
    above = value > least if name == "t1" else value >= least
    if not (math.isfinite(value) and above and value <= most):
        bound = "finite" if math.isinf(least) else f"finite and {'above' if name == 't1' else 'at least'} {least}"
        raise FlowError(f"{name} is {value:g}: it must be {bound}")
