"""The order in the step size of the distance between flow and descent on setting A."""

import numpy as np
import optax

import gradflow as gf
from benchmarks.measure import Row

STEP_SIZES = (0.1, 0.05, 0.025, 0.0125)
TIMES = np.array([1e3, 1e4, 1e5])


def run() -> list[Row]:
    """Compare at matched times; plain descent is a first-order method, so the order is 1."""
    setting = gf.models.paper.logistic()
    flow = gf.gradient_flow(setting.loss, setting.model, setting.args, t1=TIMES[-1], ts=TIMES, rtol=1e-12)
    gaps = []
    for size in STEP_SIZES:
        save_at = np.round(TIMES / size).astype(int)
        descent = gf.gradient_descent(
            setting.loss, setting.model, optax.sgd(size), setting.args, steps=int(save_at[-1]), save_at=save_at
        )
        gaps.append(gf.flow_descent_gap(flow, descent, size).distance)
    gaps = np.stack(gaps)
    orders = np.asarray(gf.gap_order(np.array(STEP_SIZES), gaps))
    return [
        Row(f"order of the flow-descent gap at t = {t:.0e}", order, "", "1", None, f"gap {gap:.2e} at step size 0.1")
        for t, order, gap in zip(TIMES, orders, gaps[0], strict=True)
    ]
