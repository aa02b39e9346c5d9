"""The laws that setting A can show, numbered as in `gradflow.laws.polarization`, with their residuals along the run."""

from typing import NamedTuple

import numpy as np

from gradflow.experiments.base import Results

SMALL_SCORE = 1e-3  # up to which law 13, a linearisation, is tested
LATE = 1e6  # time from which law 11, an asymptote, is tested
EQUAL_TIME = 1e5  # the same for its twin at the equal start


class Law(NamedTuple):
    """A law with its residual.

    Attributes:
        name: number and letters of the law.
        residual: at each time where the law applies.
        tolerance: below which it holds.
    """

    name: str
    residual: np.ndarray
    tolerance: float

    @property
    def worst(self) -> float:
        """The largest residual; NaN when the run has no time at which the law applies."""
        return float(np.abs(self.residual).max()) if self.residual.size else float("nan")


def laws(results: Results) -> list[Law]:
    """Return every law of the table with its residuals.

    Args:
        results: of all stages.

    Returns:
        Laws in the order of their numbers.
    """
    found, orbit, flow = results["laws"], results["clock"], results["flow"]
    along_orbit = orbit["orbit_alignment_sum"] - orbit["orbit_alignment_sum"][0] - orbit["orbit_tau"]
    equal = results["controls"]
    uneven = np.abs(equal["equal_weights"] - 1 / equal["equal_weights"].shape[1]).max(axis=1)
    equal_decay = equal["t"] * equal["equal_loss"] / equal["equal_weights"].shape[1] - 1
    early = np.abs(flow["a"]).max(axis=1) < SMALL_SCORE
    return [
        Law(r"1  $\Sigma a_i$, flow", found["score_sum"], 1e-12),
        Law(r"1  $\Sigma a_i$, descent", found["descent_score_sum"], 1e-12),
        Law(r"4  $V_\perp$, flow", found["perpendicular_values"], 1e-12),
        Law(r"4  $V_\perp$, descent", found["descent_perpendicular_values"], 1e-12),
        Law(r"5  $\dot L = -g^T M g$", found["loss_dissipation"], 1e-10),
        Law(r"5  $\dot a_i = (v_i - \beta) \cdot \dot v_i$", found["score_velocity"], 1e-10),
        Law(r"6  $\Sigma u_i - \tau$", along_orbit, 1e-10),
        Law(r"6  $d(|u|^2/2)/d\tau = z$", found["alignment_square"], 1e-10),
        Law(r"6  $d|V|^2/d\tau = 2z$", found["value_square"], 1e-10),
        Law(r"6  $dz/d\tau = |s|^2 + |Cu|^2$", found["margin"], 1e-10),
        Law(
            "7  one orbit, all losses",
            np.concatenate([orbit[name] for name in sorted(orbit) if name.endswith("_gap")]),
            1e-8,
        ),
        Law("8a  pairs out of order", found["order_violations"], 1e-12),
        Law(r"8b  $u_i - u_j$ grow", found["alignment_gap_shrinkage"], 1e-12),
        Law(r"8c  $a_1 - a_j$ grow", found["leader_gap_shrinkage"], 1e-12),
        Law("10  equal start stays equal", uneven, 1e-12),
        Law(r"10  equal start: $tL \to n$", equal_decay[equal["t"] >= EQUAL_TIME], 1e-2),
        Law(r"11  $tL \to 1$", found["loss_decay"][found["t"] >= LATE], 2e-2),
        Law(r"12  $W^2 (1 - s_{max})$", orbit["orbit_constant"][-1:], 1e-2),
        Law(r"13  $a_i = \sinh(\tau/n)\, u_i(0)$", found["early_scores"][early], 1e-3),
    ]
