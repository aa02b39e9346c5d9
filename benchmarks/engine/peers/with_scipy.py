"""SciPy, one member after the other: field and Jacobian written out and compiled by Numba."""

import functools
import warnings

import numba
import numpy as np
from scipy.integrate import odeint, solve_ivp
from threadpoolctl import threadpool_limits

from benchmarks.engine.outcome import Outcome
from benchmarks.engine.peers.with_numba import FAST, compiled_field
from benchmarks.engine.problems import Ensemble, entropy, read_state, softmax

IMPLICIT = ("BDF", "Radau", "LSODA", "odeint")  # LSODA and odeint switch between Adams and BDF
MAX_STEPS = 10_000_000


class Scipy:
    """The members of an ensemble in a loop; `odeint` is LSODA whose own loop is compiled."""

    def __init__(self, ensemble: Ensemble, method: str, compiled: bool = True):
        """Compile field and Jacobian for the ensemble's sizes, or take them in plain NumPy (the square loss alone)."""
        self.ensemble, self.method = ensemble, method
        sizes = ensemble.values.shape[1:]
        self.field = _field(ensemble.kind, *sizes) if compiled else functools.partial(_numpy_square, *sizes)
        self.jacobian = None
        if method in IMPLICIT and ensemble.kind == "square":
            self.jacobian = _jacobian(*sizes) if compiled else functools.partial(_numpy_jacobian, *sizes)
        self.first = [np.ascontiguousarray(x) for x in ensemble.first]
        self.state = ensemble.state
        args = (self.first[0], ensemble.second)
        self.field(0.0, self.state[0], *args)
        if self.jacobian is not None:
            self.jacobian(0.0, self.state[0], *args)

    def run(self, rtol: float):
        """Solve each member; return states at the save times and counts."""
        ensemble = self.ensemble
        solve = self._odeint if self.method == "odeint" else self._solve_ivp
        with threadpool_limits(1):  # threads slow down the factorisation of a small Jacobian
            return [
                solve(self.state[m], (self.first[m], ensemble.second), ensemble.t1[m], rtol)
                for m in range(ensemble.members)
            ]

    def _odeint(self, y0, args, t1, rtol):
        ts = [t1] if self.ensemble.ts is None else self.ensemble.ts
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # odeint only warns when it gives up
            states, about = odeint(
                self.field, y0, [0.0, *ts], args, Dfun=self.jacobian, tfirst=True, rtol=rtol, atol=1e-3 * rtol,
                mxstep=MAX_STEPS, full_output=True,
            )  # fmt: skip
        return states[1:], about["nst"][-1], about["nfe"][-1]

    def _solve_ivp(self, y0, args, t1, rtol):
        extra = {} if self.jacobian is None else {"jac": self.jacobian}
        solution = solve_ivp(
            self.field, (0.0, t1), y0, self.method, self.ensemble.ts, args=args, rtol=rtol, atol=1e-3 * rtol, **extra
        )
        if not solution.success:
            raise RuntimeError(f"SciPy's {self.method} failed: {solution.message}")
        states = solution.y[:, -1:] if self.ensemble.ts is None else solution.y
        return states.T, -1, solution.nfev

    def read(self, raw) -> Outcome:
        """Return the answer of a run; `solve_ivp` does not count its steps."""
        states, steps, gradients = (np.stack(column) for column in zip(*raw, strict=True))
        _, d, n = self.ensemble.values.shape
        values, scores = read_state(states, d, n)
        saved = None if self.ensemble.ts is None else entropy(softmax(scores))
        return Outcome(values[:, -1], scores[:, -1], steps, gradients, saved)


def _numpy_square(d, n, t, y, hessian, target):
    values, scores = y[: d * n].reshape(d, n), y[d * n :]
    s = np.exp(scores - scores.max())
    s /= s.sum()
    g = hessian @ (values @ s - target)
    q = g @ values
    return np.concatenate([np.multiply.outer(-g, s).ravel(), s * (s @ q - q)])


def _numpy_jacobian(d, n, t, y, hessian, target):
    """Return minus the Hessian of the square loss in (V, a), with S = diag(s) - s s^T = ds / da."""
    values, scores = y[: d * n].reshape(d, n), y[d * n :]
    s = np.exp(scores - scores.max())
    s /= s.sum()
    slope = hessian @ (values @ s - target)
    q = slope @ values
    change = np.diag(s) - np.outer(s, s)
    moved = values @ change
    curved = hessian @ moved
    cross = (curved[:, None] * s[:, None] + slope[:, None, None] * change).reshape(d * n, n)
    centred = s * (q - s @ q)
    bottom = moved.T @ curved + (q - s @ q)[:, None] * change - np.outer(s, centred)
    return -np.block([[np.kron(hessian, np.outer(s, s)), cross], [cross.T, bottom]])


@functools.cache
def _field(kind: str, d: int, n: int):
    field = compiled_field(kind, d, n)

    @numba.njit(**FAST)
    def velocity(t, y, first, second):
        k = np.empty(y.size)
        field(y, k, np.empty(n), np.empty(d), np.empty(d), first, second)
        return k

    return velocity


@functools.cache
def _jacobian(d: int, n: int):
    start, size = d * n, (d + 1) * n

    @numba.njit(**FAST)
    def jacobian(t, y, hessian, target):
        """Return minus the Hessian of the square loss in (V, a), with S = diag(s) - s s^T = ds / da."""
        values, scores = y[:start].reshape(d, n), y[start:]
        s = np.exp(scores - scores.max())
        s /= s.sum()
        slope = hessian @ (values @ s - target)
        q = slope @ values
        mean = s @ q
        moved = values * s - np.outer(values @ s, s)  # V S
        curved = hessian @ moved
        out = np.empty((size, size))
        for i in range(d):
            for j in range(n):
                for k in range(d):
                    for m in range(n):
                        out[i * n + j, k * n + m] = -hessian[i, k] * s[j] * s[m]
                for m in range(n):
                    weight = s[j] * ((1.0 if j == m else 0.0) - s[m])
                    cross = -curved[i, m] * s[j] - slope[i] * weight
                    out[i * n + j, start + m] = cross
                    out[start + m, i * n + j] = cross
        inner = moved.T @ curved
        for j in range(n):
            for m in range(n):
                weight = s[j] * ((1.0 if j == m else 0.0) - s[m])
                out[start + j, start + m] = -(inner[j, m] + (q[j] - mean) * weight - s[j] * s[m] * (q[m] - mean))
        return out

    return jacobian
