"""Checks and defaults of the numbers a flow is asked for: times and tolerances."""

import jax
import numpy as np
from jax.typing import ArrayLike

from gradflow.errors import FlowError, is_traced

DEFAULT_RTOL = {"float64": 1e-8, "float32": 1e-4}
KINKED_RTOL = {"float64": 1e-5, "float32": 1e-3}
SMALLEST_RTOL = {"float64": 1e-13, "float32": 1e-6}
ATOL_OVER_RTOL = 1e-3


def tolerances(rtol, atol, dtype, kinked: bool) -> tuple[ArrayLike, ArrayLike]:
    """Return the tolerances of a run.

    Args:
        rtol: relative tolerance; None means 1e-8 in float64 and 1e-4 in float32 (1e-5 and 1e-3 for kinked activations).
        atol: absolute tolerance; None means a thousandth of rtol.
        dtype: of the moving parameters.
        kinked: whether the model holds a kinked activation.

    Returns:
        `(rtol, atol)`.

    Raises:
        FlowError: if a tolerance is not positive or cannot be met in `dtype`.
    """
    name = np.dtype(dtype).name
    if rtol is None:
        rtol = (KINKED_RTOL if kinked else DEFAULT_RTOL)[name]
    smallest = SMALLEST_RTOL[name]
    if not is_traced(rtol) and not (smallest <= rtol < 1):
        fix = "enable jax_enable_x64 and use a float64 model" if name == "float32" else "use a larger one"
        raise FlowError(f"rtol is {rtol:g}, but {name} can meet only {smallest:g} <= rtol < 1: {fix}")
    if atol is None:
        atol = rtol * ATOL_OVER_RTOL
    if not is_traced(atol) and not (0 <= atol < np.inf):
        raise FlowError(f"atol is {atol:g}: it must be finite and >= 0")
    return rtol, atol


def save_times(t0, t1, ts, dtype):
    """Check horizon and save times, and return them in the dtype of the run.

    Args:
        t0: start.
        t1: horizon.
        ts: save times `(T,)`, or None for t1 only.
        dtype: of the run's time.

    Returns:
        `(t0, t1, ts)` as arrays.

    Raises:
        FlowError: if t1 <= t0, or ts is empty, not increasing, repeated, not finite or outside [t0, t1].
    """
    if not is_traced((t0, t1)):
        if np.ndim(t0) or np.ndim(t1):
            raise FlowError(f"t0 and t1 have shapes {np.shape(t0)} and {np.shape(t1)}: they must be scalars")
        if not (np.isfinite(t0) and np.isfinite(t1) and t1 > t0):
            raise FlowError(f"t1 is {float(t1):g} and t0 is {float(t0):g}: a flow needs finite times with t1 > t0")
    t0, t1 = number(t0, dtype), number(t1, dtype)
    ts = number(t1 if ts is None else ts, dtype)
    ts = ts.reshape(1) if ts.ndim == 0 else ts
    if not is_traced((ts, t0, t1)):
        _check_ts(np.asarray(ts), np.asarray(t0), np.asarray(t1))
    return t0, t1, ts


def number(x, dtype):
    """Return numbers as an array of `dtype`: on the host unless they are JAX's, which spares a transfer for each call."""
    return x.astype(dtype) if isinstance(x, jax.Array) else np.asarray(x, dtype)


def _check_ts(ts, t0, t1) -> None:
    if ts.ndim != 1 or ts.size == 0:
        raise FlowError(f"ts has shape {ts.shape}: give at least one save time in one dimension, or None for t1 only")
    if not np.isfinite(ts).all():
        raise FlowError(f"ts[{np.argmin(np.isfinite(ts))}] is not finite: save times must be finite")
    late = np.flatnonzero(np.diff(ts) <= 0)
    if late.size:
        i = int(late[0]) + 1
        what = "repeats" if ts[i] == ts[i - 1] else "is smaller than"
        raise FlowError(f"ts[{i}] = {ts[i]:g} {what} ts[{i - 1}] = {ts[i - 1]:g}: save times must increase; use np.unique")
    if ts[0] < t0 or ts[-1] > t1:
        i = 0 if ts[0] < t0 else ts.size - 1
        raise FlowError(f"ts[{i}] = {ts[i]:g} lies outside [t0, t1] = [{t0:g}, {t1:g}]: drop it or change the horizon")


def log_times(t_first: float, t1: float, n: int) -> np.ndarray:
    """Return `n` save times spaced evenly in log t from `t_first` to `t1`.

    Args:
        t_first: the first time, > 0.
        t1: the last time, >= t_first (equal only for n = 1).
        n: how many, >= 1.

    Returns:
        Increasing times `(n,)`; the ends are exact.

    Raises:
        FlowError: if the range or the count is not usable.
    """
    if not (0 < t_first <= t1 < np.inf) or (t_first == t1 and n > 1):
        raise FlowError(f"log_times needs 0 < t_first < t1, got t_first = {t_first!r}, t1 = {t1!r}")
    if int(n) != n or n < 1:
        raise FlowError(f"n is {n!r}: log_times needs a whole number of times, at least 1")
    times = np.geomspace(t_first, t1, int(n))
    times[0], times[-1] = (t_first, t1) if n > 1 else (t1, t1)
    return times
