"""Settings of the experiment, and the numbers that an independent run of the paper's settings gives."""

import dataclasses
from typing import NamedTuple

import numpy as np

from gradflow.descent import log_steps
from gradflow.flow import log_times
from gradflow.models import paper


class Reference(NamedTuple):
    """State of an independent NumPy descent of the paper's setting.

    Attributes:
        largest: largest weight.
        entropy: of the weights, in nats.
        kl: the loss, in nats.
    """

    largest: float
    entropy: float
    kl: float


REFERENCE = {
    1_000: Reference(0.3879579961177177, 1.9627813048499, 0.1307234050644195),
    10_000: Reference(0.9371078830540941, 0.3692180771242346, 0.0012217085075702096),
    100_000: Reference(0.9639571444884861, 0.23237889952449206, 1.248065185383525e-05),
    1_000_000: Reference(0.9667232267107982, 0.21727804328907344, 4.792980000043406e-12),
}
CONTROLS = ("softmax", "uniform", "sigmoid")


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings; the defaults are the preset `quick`.

    Attributes:
        steps: of descent at step size 0.1; the paper has 1e7, `quick` stops where the loss is 5e-12.
        horizon: last time of the flow, unless it stops before.
        stop_distance: sum_i |p_i - q_i| below which the flow counts as finished; rounding is near 1e-15.
        rtol: relative tolerance of the flow, an implicit method.
        control_time: last time of the flows of the controls, an explicit method.
        saves: save times of each run, evenly in log t.
    """

    steps: int = 1_000_000
    horizon: float = 1e12
    stop_distance: float = 1e-10
    rtol: float = 1e-9
    control_time: float = 1e4
    saves: int = 120

    @classmethod
    def paper(cls) -> "Config":
        """Return the paper's settings."""
        return cls(steps=10_000_000, control_time=1e5)

    @property
    def save_at(self) -> np.ndarray:
        """Steps of descent that are saved: spaced in log k, with those of the reference."""
        known = [step for step in REFERENCE if step <= self.steps]
        return np.union1d(log_steps(self.steps, self.saves), np.array(known, int))

    @property
    def ts(self) -> np.ndarray:
        """Save times of the flow: 0, those of the descent, and evenly in log t beyond them."""
        matched = self.save_at * paper.target_distribution().step_size
        beyond = log_times(matched[-1], self.horizon, self.saves)[1:] if self.horizon > matched[-1] else []
        return np.concatenate([matched[matched < self.horizon], beyond])
