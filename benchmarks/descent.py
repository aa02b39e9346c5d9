"""A million steps of gradient descent on setting A against the same loop in NumPy."""

import time

import numpy as np
import optax

import gradflow as gf
from benchmarks.measure import Row, first_call

STEPS = 1_000_000
NUMPY_STEPS = 20_000  # the loop's time is proportional to its steps; a million would take most of a minute
REPEATS = 5


def numpy_loop(values, scores, x, y, step_size: float, steps: int):
    """Run gradient descent on mean log(1 + exp(-y_i x_i . V softmax(a))), its gradient written out by hand."""
    values, scores = values.copy(), scores.copy()
    for _ in range(steps):
        weights = np.exp(scores - scores.max())
        weights /= weights.sum()
        margins = y * (x @ (values @ weights))
        gradient = -(y / (1.0 + np.exp(margins))) @ x / len(y)
        along = gradient @ values
        values -= np.outer(step_size * gradient, weights)
        scores -= step_size * weights * (along - along @ weights)
    return values, scores


def run() -> list[Row]:
    """Measure both in turns; the rate of NumPy is per step, scaled to a million."""
    setting = gf.models.paper.logistic()
    optimizer = optax.sgd(setting.step_size)
    arrays = [np.asarray(x) for x in (setting.model.values, setting.model.scores, setting.args.x, setting.args.y)]
    save_at = [NUMPY_STEPS, STEPS]

    def descent():
        return gf.gradient_descent(setting.loss, setting.model, optimizer, setting.args, steps=STEPS, save_at=save_at)

    trajectory, first = first_call(descent)
    seconds, seconds_numpy = [], []
    for _ in range(REPEATS):
        seconds.append(first_call(descent)[1])
        begin = time.perf_counter()
        _, scores = numpy_loop(*arrays, setting.step_size, NUMPY_STEPS)
        seconds_numpy.append((time.perf_counter() - begin) * STEPS / NUMPY_STEPS)
    difference = float(np.abs(np.asarray(trajectory.observed.scores[0]) - scores).max())
    if difference > 1e-9:
        raise AssertionError(f"the two descents differ by {difference:.1e} after {NUMPY_STEPS} steps")
    ratio = min(seconds_numpy) / min(seconds)
    note = f"NumPy: {min(seconds_numpy):.3g} s, from {NUMPY_STEPS:,} steps; scores differ by {difference:.0e}"
    return [
        Row(f"descent of setting A, {STEPS:,} steps", min(seconds), "s", "", first, f"best of {REPEATS}"),
        Row("  times the speed of NumPy", ratio, "x", ">= 60", None, note),
    ]
