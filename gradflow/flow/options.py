"""Checks and defaults of the numbers a flow is asked for: times and tolerances."""

import jax
import jax.numpy as jnp
import numpy as np

from gradflow.errors import FlowError, is_traced, shown, whole_number
from gradflow.types import Number

DEFAULT_RTOL = {"float64": 1e-8, "float32": 1e-4}
KINKED_RTOL = {"float64": 1e-5, "float32": 1e-3}
SMALLEST_RTOL = {"float64": 1e-13, "float32": 1e-6}
ATOL_OVER_RTOL = 1e-3


def tolerances(rtol, atol, dtype, kinked: bool) -> tuple[Number, Number]:
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
    rtol = number("rtol", (KINKED_RTOL if kinked else DEFAULT_RTOL)[name] if rtol is None else rtol, dtype)
    smallest = SMALLEST_RTOL[name]
    if not is_traced(rtol) and not (smallest <= rtol < 1):
        fix = (
            "enable jax_enable_x64 and use a float64 model"
            if rtol < smallest and name == "float32"
            else "choose one there"
        )
        raise FlowError(f"rtol is {float(rtol):g}, but {name} can meet only {smallest:g} <= rtol < 1: {fix}")
    atol = number("atol", rtol * ATOL_OVER_RTOL if atol is None else atol, dtype)
    if not is_traced(atol) and not (0 <= atol < np.inf):
        raise FlowError(f"atol is {float(atol):g}: it must be finite and >= 0")
    return rtol, atol


def save_times(t0, t1, ts, dtype) -> tuple[Number, Number, Number]:
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
    t0, t1 = number("t0", t0, dtype), number("t1", t1, dtype)
    if not is_traced((t0, t1)) and not (np.isfinite(t0) and np.isfinite(t1) and t1 > t0):
        raise FlowError(f"t1 is {float(t1):g} and t0 is {float(t0):g}: a flow needs finite times with t1 > t0")
    if ts is None:
        return t0, t1, t1.reshape(1)
    ts = _array("ts", ts, dtype)
    ts = ts.reshape(1) if ts.ndim == 0 else ts
    if not is_traced((ts, t0, t1)):
        _check_ts(np.asarray(ts), np.asarray(t0), np.asarray(t1))
    return t0, t1, ts


def number(argument: str, x, dtype, members: int | None = None) -> Number:
    """Return a number as a scalar array of `dtype`, or raise with the argument's name.

    Args:
        argument: its name.
        x: the number; with `members`, also one a member.
        dtype: of the result.
        members: M of an ensemble; None where only one number makes sense.

    Returns:
        A scalar, or `(M,)` where there are members.

    Raises:
        FlowError: if it is no real number, or its shape is another.
    """
    x = _array(argument, x, dtype)
    if members is None:
        if x.ndim:
            raise FlowError(f"{argument} has shape {x.shape}: give one number (map over several with jax.vmap)")
        return x
    if x.shape not in ((), (members,)):
        raise FlowError(f"{argument} has shape {x.shape}: give one number, or one for each of the {members} members")
    return x if x.ndim else _broadcast(x, (members,))


def _array(argument: str, x, dtype) -> Number:
    """Return numbers as an array of `dtype`: on the host unless they are JAX's, which spares a transfer for each."""
    if isinstance(x, jax.Array):
        return x.astype(dtype)
    if is_traced(x):
        return jnp.asarray(x, dtype)
    try:
        values = np.asarray(x)
    except ValueError:  # rows of different lengths
        values = np.asarray(None)
    if values.dtype.kind not in "biuf":
        raise FlowError(f"{argument} is {shown(x)}: give {'real numbers' if argument == 'ts' else 'a real number'}")
    return values.astype(dtype)


def _check_ts(ts, t0, t1) -> None:
    if ts.ndim != 1 or ts.size == 0:
        raise FlowError(f"ts has shape {ts.shape}: give at least one save time in one dimension, or None for t1 only")
    if not np.isfinite(ts).all():
        raise FlowError(f"ts[{np.argmin(np.isfinite(ts))}] is not finite: save times must be finite")
    late = np.flatnonzero(np.diff(ts) <= 0)
    if late.size:
        i = int(late[0]) + 1
        what = "repeats" if ts[i] == ts[i - 1] else "is smaller than"
        raise FlowError(
            f"ts[{i}] = {ts[i]:g} {what} ts[{i - 1}] = {ts[i - 1]:g}: save times must increase; use np.unique"
        )
    if ts[0] < t0 or ts[-1] > t1:
        i = 0 if ts[0] < t0 else ts.size - 1
        raise FlowError(f"ts[{i}] = {ts[i]:g} lies outside [t0, t1] = [{t0:g}, {t1:g}]: drop it or change the horizon")


def member_times(t0, t1, ts, dtype, members: int) -> tuple[Number, Number, Number]:
    """Check horizons and save times of an ensemble, and return them with a member axis.

    Args:
        t0: start, one for all or `(M,)`.
        t1: horizon, one for all or `(M,)`.
        ts: save times `(T,)` or `(M, T)`, or None for t1 only.
        dtype: of the runs' time.
        members: M.

    Returns:
        `(t0, t1, ts)` of shapes `(M,)`, `(M,)`, `(M, T)`.

    Raises:
        FlowError: as `save_times`, with the first member that is wrong.
    """
    t0, t1 = number("t0", t0, dtype, members), number("t1", t1, dtype, members)
    if not is_traced((t0, t1)):
        first, last = np.asarray(t0), np.asarray(t1)
        wrong = np.flatnonzero(~(np.isfinite(first) & np.isfinite(last) & (last > first)))
        if wrong.size:
            i = int(wrong[0])
            raise FlowError(
                f"t1 is {last[i]:g} and t0 is {first[i]:g} for member {i}: a flow needs finite times with t1 > t0"
            )
    if ts is None:
        return t0, t1, t1.reshape(members, 1)
    ts = _array("ts", ts, dtype)
    ts = ts.reshape(1) if ts.ndim == 0 else ts
    if ts.ndim == 2 and ts.shape[0] != members:
        raise FlowError(f"ts has shape {ts.shape}: give (T,), or ({members}, T) with a row for each member")
    if not is_traced((ts, t0, t1)):
        _check_member_ts(np.asarray(ts), np.asarray(t0), np.asarray(t1))
    return t0, t1, ts if ts.ndim == 2 else _broadcast(ts, (members, *ts.shape))


def _check_member_ts(ts, t0, t1) -> None:
    if ts.ndim != 2:  # the latest start and the earliest horizon are those that bind
        _check_ts(ts, t0.max(), t1.min())
        return
    with np.errstate(invalid="ignore"):
        good = np.isfinite(ts).all(1) & (np.diff(ts) > 0).all(1)
    if ts.shape[1] and (good & (ts[:, 0] >= t0) & (ts[:, -1] <= t1)).all():
        return  # rows one by one take seconds where there are many members
    for row, first, last in zip(ts, t0, t1, strict=True):
        _check_ts(row, first, last)


def _broadcast(x: Number, shape: tuple[int, ...]) -> Number:
    return (jnp if isinstance(x, jax.Array) else np).broadcast_to(x, shape)


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
    n = whole_number("n", n)
    t_first, t1 = float(number("t_first", t_first, np.float64)), float(number("t1", t1, np.float64))
    if not (0 < t_first <= t1 < np.inf) or (t_first == t1 and n > 1):
        raise FlowError(f"log_times needs 0 < t_first < t1, got t_first = {t_first:g}, t1 = {t1:g}")
    times = np.geomspace(t_first, t1, n)
    times[0], times[-1] = (t_first, t1) if n > 1 else (t1, t1)
    if (np.diff(times) <= 0).any():
        raise FlowError(
            f"n is {n}: so many times do not fit between t_first = {t_first!r} and t1 = {t1!r}; ask for fewer"
        )
    return times
