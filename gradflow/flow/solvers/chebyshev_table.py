"""Coefficients of a third-order Runge-Kutta-Chebyshev method.

The second-order method of Sommeijer, Shampine and Verwer (J. Comput. Appl. Math. 88, 1998) has stages
Y_j = y0 + b_j Z_j, whose stability functions are

    R_j(z) = 1 + b_j (T_j(w0 + w1 z) - T_j(w0)),   b_j = T''_j(w0) / T'_j(w0)^2,   w0 = 1 + 7 / s^2.

Each is a second-order approximation at its own time c_j = b_j w1 T'_j(w0), whatever w1 is, and all are stable while
|w0 + w1 z| stays within w0: up to l = (1 + w0) / w1. A sum of three of them,

    y1 = y0 + sum_i d_i (Y_{j_i} - y0),   sum d c = 1,   sum d c^2 = 1,   sum d b w1^3 T'''(w0) = 1,

is of third order, also for nonlinear fields: with stages of second order, the two conditions of order three are one.
The first stage is of first order only: its slope must be f0 + c_1 dt f' f0, linear in dt.

With theta, theta^2, theta^3 on the right the same sum gives the state at t0 + theta dt, to third order and as stable as
its stages. A cubic through the fields at both ends would multiply what is left of stiff modes by dt * radius.
"""

import functools
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

EXCESS = 7.0  # s^2 (w0 - 1): the damping of the stages, chosen for the smallest error at a given cost
DAMPED = 0.95
CUBIC_ERROR = 0.06  # error of a step in units of the cubic term of its Taylor polynomial, as measured
# l / s^2: the largest multiple of 0.0005 with |R(z)| <= max(DAMPED, exp z) on all of [-l, 0], for R of y1.
SHORT_REACHES = {
    3: 0.2755,
    4: 0.3605,
    5: 0.3715,
    6: 0.4125,
    7: 0.4155,
    8: 0.4305,
    9: 0.408,
    10: 0.4365,
    11: 0.415,
    12: 0.434,
    14: 0.431,
    16: 0.436,
}
REACH = 0.438  # of every longer step: 0.438 to 0.441
SMALLEST, LARGEST = min(SHORT_REACHES), 1000
SPACING = 1.05  # between the numbers of stages, where steps of two are finer


class Table(NamedTuple):
    """Coefficients of every number of stages (K of them).

    Attributes:
        stages: s, increasing.
        reaches: l, the largest dt * radius.
        starts: the rows of their stages, from j = 0 on.
        growth: 2 (w0 - 1).
        slope: 2 w1.
        picks: the three stages that are summed up.
        weights: of each in the change of the state, in the error, and in dt times the slope at the start.
        rows: b_j, T_j(w0) and c_j of every stage.
    """

    stages: Int[np.ndarray, " K"]
    reaches: Float[np.ndarray, " K"]
    starts: Int[np.ndarray, " K"]
    growth: Float[np.ndarray, " K"]
    slope: Float[np.ndarray, " K"]
    picks: Int[np.ndarray, "K 3"]
    weights: Float[np.ndarray, "K 3 3"]
    rows: Float[np.ndarray, "J 3"]


def stage_counts() -> Int[np.ndarray, " K"]:
    """Return the numbers of stages a step can have."""
    counts = [*SHORT_REACHES]
    while counts[-1] < LARGEST:
        further = max(counts[-1] + 2, 2 * int(SPACING * counts[-1] / 2))
        counts.append(min(further, LARGEST))
    return np.array(counts)


def picked_stages(stages: Int[np.ndarray, " K"]) -> Int[np.ndarray, "K 3"]:
    """Return the stages that are summed up: near s / 2, near 0.9 s, and the last."""
    middle = np.maximum((stages + 1) // 2, 2)
    late = np.minimum(np.rint(0.9 * stages).astype(int), stages - 1)
    picks = np.stack([middle, late, stages], axis=1)
    picks[stages == 3] = 1, 2, 3
    return picks


def chebyshev_derivatives(w0: Float[np.ndarray, " K"], stages: Int[np.ndarray, " K"]) -> Float[np.ndarray, "4 J K"]:
    """Return T_j and three derivatives at w0 up to each number of stages; 0, 1, 0, 0 beyond."""
    T = np.zeros((4, stages[-1] + 1, len(w0)))
    T[1] = 1
    T[0, 0], T[1, 0], T[0, 1] = 1, 0, w0
    factor = 2 * np.arange(1, 4)[:, None]
    for j in range(2, stages[-1] + 1):
        used = slice(np.searchsorted(stages, j), None)
        T[:, j, used] = 2 * w0[used] * T[:, j - 1, used] - T[:, j - 2, used]
        T[1:, j, used] += factor * T[:3, j - 1, used]
    return T


@functools.cache
def table() -> Table:
    """Return the coefficients of all numbers of stages, in float64."""
    stages = stage_counts()
    reaches = np.array([SHORT_REACHES.get(s, REACH) for s in stages.tolist()]) * stages**2
    w0 = 1 + EXCESS / stages**2
    w1 = (1 + w0) / reaches
    T = chebyshev_derivatives(w0, stages)
    b = np.ones_like(T[0])
    b[2:] = T[2, 2:] / T[1, 2:] ** 2
    b[:2] = b[2]
    c = b * w1 * T[1]
    picks, rows = picked_stages(stages), np.arange(len(stages))[:, None]

    def picked(x):
        return x[picks, rows]

    second = np.where(picks > 1, picked(c) ** 2, 0)  # the first stage is linear in dt
    conditions = np.stack([picked(c), second, picked(b * w1**3 * T[3])], axis=1)
    # Powers of theta in the columns; the third is the part of y1 that a method of second order does not have.
    polynomial = np.linalg.solve(conditions, np.broadcast_to(np.eye(3), conditions.shape)) * picked(b)[..., None]
    outputs = polynomial @ np.array([[1, 0, 1], [1, 0, 0], [1, CUBIC_ERROR, 0]])
    used = np.arange(LARGEST + 1) <= stages[:, None]
    return Table(
        stages=stages,
        reaches=reaches,
        starts=np.concatenate([[0], np.cumsum(stages + 1)[:-1]]),
        growth=2 * EXCESS / stages**2,
        slope=2 * w1,
        picks=picks,
        weights=outputs.swapaxes(1, 2),
        rows=np.stack([x.T[used] for x in (b, T[0], c)], axis=1),
    )
