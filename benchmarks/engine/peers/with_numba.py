"""Tsit5 written by hand for Numba: one member a loop iteration, members shared out among threads.

Sizes are constants of the compiled code, the state is one contiguous row, stage sums and the field vectorise, and the
step size control is that of the library. It is also the reference: at a tolerance of 1e-12 it lands on each save time.
"""

import functools
import math

import diffrax
import numba
import numpy as np

from benchmarks.engine.outcome import Outcome
from benchmarks.engine.problems import Ensemble, entropy, read_state, softmax

FAST = {"fastmath": True, "error_model": "numpy"}
CHUNK = 8  # members that a thread takes at a time, so that none waits for the one with the longest members
FIRST_STEP = 1e-2


class Numba:
    """The members of an ensemble, ready to be solved at any tolerance."""

    def __init__(self, ensemble: Ensemble, threads: int | None = None, stop: float = -1.0):
        """Compile for the ensemble's sizes; a positive `stop` ends a member at the first step with a loss below it."""
        self.ensemble, self.threads, self.stop = ensemble, threads, stop
        self.solve = _compiled(ensemble.kind, *ensemble.values.shape[1:])
        self.state = ensemble.state
        ts = ensemble.t1[:, None] if ensemble.ts is None else np.tile(ensemble.ts, (ensemble.members, 1))
        self.ts = np.ascontiguousarray(ts)
        self.first = np.ascontiguousarray(ensemble.first)

    def run(self, rtol: float):
        """Solve, and return states at the save times, end times and counts."""
        if self.threads is not None:
            numba.set_num_threads(self.threads)
        numba.set_parallel_chunksize(CHUNK)
        return self.solve(self.state, self.first, self.ensemble.second, self.ts, rtol, 1e-3 * rtol, self.stop)

    def read(self, raw) -> Outcome:
        """Return the answer of a run."""
        states, _, steps = raw
        _, d, n = self.ensemble.values.shape
        values, scores = read_state(states, d, n)
        saved = None if self.ensemble.ts is None else entropy(softmax(scores))
        return Outcome(values[:, -1], scores[:, -1], steps, 6 * steps + 1, saved)


@functools.cache
def _compiled(kind: str, d: int, n: int):
    member = _member(compiled_field(kind, d, n), d, n)

    @numba.njit(parallel=True, **FAST)
    def solve(state, first, second, ts, rtol, atol, stop):
        members, size = state.shape
        out = np.empty((members, ts.shape[1], size))
        ended, steps = np.empty(members), np.empty(members, np.int64)
        for m in numba.prange(members):
            ended[m], steps[m] = member(state[m], first[m], second, ts[m], out[m], rtol, atol, stop)
        return out, ended, steps

    return solve


def _square(d: int):
    @numba.njit(**FAST, inline="always")
    def slope_of(beta, slope, hessian, target):
        """Write H (beta - w) into `slope`, beta - w into `beta`; return the loss."""
        loss = 0.0
        for i in range(d):
            beta[i] -= target[i]
        for i in range(d):
            total = 0.0
            for k in range(d):
                total += hessian[i, k] * beta[k]
            slope[i] = total
            loss += 0.5 * total * beta[i]
        return loss

    return slope_of


def _logistic(d: int):
    @numba.njit(**FAST, inline="always")
    def slope_of(beta, slope, sample, unused):
        """Write -x / (1 + exp(x . beta)) into `slope`; return the loss."""
        margin = 0.0
        for i in range(d):
            margin += sample[0, i] * beta[i]
        factor = -1.0 / (1.0 + math.exp(margin))
        for i in range(d):
            slope[i] = factor * sample[0, i]
        return math.log1p(math.exp(-margin))

    return slope_of


@functools.cache
def compiled_field(kind: str, d: int, n: int):
    """Return `field(y, k, s, beta, slope, first, second)`, which writes the velocity into `k` and returns the loss.

    `s` (n,), `beta` (d,) and `slope` (d,) are scratch.
    """
    slope_of = {"square": _square, "logistic": _logistic}[kind](d)
    start = d * n  # of the scores

    @numba.njit(**FAST, inline="always")
    def field(y, k, s, beta, slope, first, second):
        top = y[start]
        for j in range(1, n):
            top = max(top, y[start + j])
        total = 0.0
        for j in range(n):
            s[j] = math.exp(y[start + j] - top)
            total += s[j]
        inverse = 1.0 / total
        for j in range(n):
            s[j] *= inverse
        for i in range(d):
            total = 0.0
            for j in range(n):
                total += y[i * n + j] * s[j]
            beta[i] = total
        loss = slope_of(beta, slope, first, second)
        for j in range(n):
            k[start + j] = 0.0
        for i in range(d):
            for j in range(n):
                k[start + j] += slope[i] * y[i * n + j]
                k[i * n + j] = -slope[i] * s[j]
        mean = 0.0
        for j in range(n):
            mean += s[j] * k[start + j]
        for j in range(n):
            k[start + j] = s[j] * (mean - k[start + j])
        return loss

    return field


def _member(field, d: int, n: int):
    tableau = diffrax.Tsit5.tableau
    (a10,), (a20, a21), (a30, a31, a32), (a40, a41, a42, a43), (a50, a51, a52, a53, a54), (b0, b1, b2, b3, b4, b5) = [
        [float(x) for x in row] for row in tableau.a_lower
    ]
    e0, e1, e2, e3, e4, e5, e6 = (float(x) for x in tableau.b_error)
    size = (d + 1) * n

    @numba.njit(**FAST, inline="always")
    def step(y, z, k, h, s, beta, slope, first, second, rtol, atol):
        """Write the next state into `z`; return the scaled error and the loss there."""
        k0, k1, k2, k3, k4, k5, k6 = k[0], k[1], k[2], k[3], k[4], k[5], k[6]
        for i in range(size):
            z[i] = y[i] + h * (a10 * k0[i])
        field(z, k1, s, beta, slope, first, second)
        for i in range(size):
            z[i] = y[i] + h * (a20 * k0[i] + a21 * k1[i])
        field(z, k2, s, beta, slope, first, second)
        for i in range(size):
            z[i] = y[i] + h * (a30 * k0[i] + a31 * k1[i] + a32 * k2[i])
        field(z, k3, s, beta, slope, first, second)
        for i in range(size):
            z[i] = y[i] + h * (a40 * k0[i] + a41 * k1[i] + a42 * k2[i] + a43 * k3[i])
        field(z, k4, s, beta, slope, first, second)
        for i in range(size):
            z[i] = y[i] + h * (a50 * k0[i] + a51 * k1[i] + a52 * k2[i] + a53 * k3[i] + a54 * k4[i])
        field(z, k5, s, beta, slope, first, second)
        for i in range(size):
            z[i] = y[i] + h * (b0 * k0[i] + b1 * k1[i] + b2 * k2[i] + b3 * k3[i] + b4 * k4[i] + b5 * k5[i])
        loss = field(z, k6, s, beta, slope, first, second)
        total = 0.0
        for i in range(size):
            e = e0 * k0[i] + e1 * k1[i] + e2 * k2[i] + e3 * k3[i] + e4 * k4[i] + e5 * k5[i] + e6 * k6[i]
            e *= h / (atol + rtol * max(abs(y[i]), abs(z[i])))
            total += e * e
        return math.sqrt(total / size), loss

    @numba.njit(**FAST, inline="always")
    def member(start, first, second, ts, out, rtol, atol, stop):
        k, y, z = np.empty((7, size)), start.copy(), np.empty(size)
        s, beta, slope = np.empty(n), np.empty(d), np.empty(d)
        field(y, k[0], s, beta, slope, first, second)
        t, h, steps = 0.0, FIRST_STEP, 0
        for row in range(ts.size):
            while t < ts[row]:
                last = h >= ts[row] - t
                used = ts[row] - t if last else h
                error, loss = step(y, z, k, used, s, beta, slope, first, second, rtol, atol)
                steps += 1
                good = error < 1
                factor = 0.9 * max(error, 1e-10) ** -0.2
                factor = min(10.0, max(1.0, factor)) if good else min(1.0, max(0.2, factor))
                h = max(h, used * factor) if last and good else used * factor
                if good:
                    t = ts[row] if last else t + used
                    for i in range(size):
                        y[i] = z[i]
                        k[0, i] = k[6, i]
                    if loss < stop:
                        break
            out[row] = y
        return t, steps

    return member
