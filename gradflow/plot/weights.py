"""Attention weights along a flow and a descent."""

from typing import TYPE_CHECKING, Any

import equinox as eqx
import numpy as np

from gradflow.errors import FlowError
from gradflow.plot.curves import index_looks, scalar
from gradflow.plot.marks import label_ends, legend, reference
from gradflow.plot.style import axis_or_new, styled
from gradflow.trajectory import Trajectory

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@styled
def weights(
    flow: Trajectory, descent: Trajectory | None = None, step_size: float | None = None, ax: "Axes | None" = None
) -> "Axes":
    """Draw every weight s_i(t) on log axes: the flow as lines, a descent as dots at t = step size x step.

    Args:
        flow: a flow that saved the model, or `observe`d `{"weights": ...}` or the weights themselves.
        descent: a descent that saved the same.
        step_size: of the descent.
        ax: where; None makes a new one.

    Returns:
        The axis; the winner is bold and named, and equal weights are a dotted line. Signed weights get a linear axis.

    Raises:
        FlowError: if a trajectory holds no weights, the descent has another number of them, or `step_size` is missing.
    """
    rows, keep = _weights("flow", flow), np.asarray(flow.valid)
    if not keep.any():
        raise FlowError("flow reached none of its save times: nothing to draw; see flow.message")
    last = rows[keep][-1]
    signed = bool((rows[keep] < 0).any())
    if descent is not None:
        dots, times = _dots(descent, step_size, rows.shape[1])
        signed |= bool((dots[np.asarray(descent.valid)] < 0).any())
    ax, log = axis_or_new(ax), "x" if signed else "xy"
    winner = int(np.argmax(last))
    looks = index_looks(last, winner)
    for index, look in enumerate(looks):
        scalar(flow.ts, rows[:, index], valid=keep, log=log, ax=ax, **look)
        if descent is not None:
            scalar(times, dots[:, index], valid=descent.valid, dots=True, log=log, ax=ax, **look)
    reference(ax, 1 / len(last), f"uniform 1/{len(last)}", end=True)
    ax.set(xlabel="time t" if descent is None else r"time t = $\eta$ k", ylabel="weight $s_i$")
    label_ends(ax, [(float(flow.ts[keep][-1]), last[winner])], [f"$s_{{{winner}}}$"], [looks[winner]["color"]])
    if descent is not None:
        _legend(ax)
    return ax


def _weights(argument: str, trajectory: Trajectory) -> np.ndarray:
    """Return the weights (T, n) that a trajectory holds, whichever way they were saved."""
    observed: Any = trajectory.observed
    if isinstance(observed, dict) and "weights" in observed:
        rows = observed["weights"]
    elif eqx.is_array(observed):
        rows = observed
    elif hasattr(type(observed), "weights"):
        rows = eqx.filter_vmap(lambda model: model.weights)(observed)
    else:
        raise FlowError(
            f"{argument} holds no weights: save a model that has `.weights`, or observe "
            'lambda t, model, args: {"weights": model.weights}'
        )
    rows = np.asarray(rows, float)
    if rows.ndim != 2:
        raise FlowError(f"{argument} holds weights of shape {rows.shape}; one row (n,) at each save is needed")
    return rows


def _dots(descent: Trajectory, step_size: float | None, count: int) -> tuple[np.ndarray, np.ndarray]:
    if step_size is None or not 0 < step_size < np.inf:
        raise FlowError(f"step_size is {step_size!r}; pass the descent's, which puts its steps on the flow's time")
    rows = _weights("descent", descent)
    if rows.shape[1] != count:
        raise FlowError(f"descent has {rows.shape[1]} weights and flow {count}; they must come from the same model")
    return rows, np.asarray(descent.ts, float) * step_size


def _legend(ax: "Axes") -> None:
    from matplotlib.lines import Line2D

    flow = Line2D([], [], color="black", label="flow")
    descent = Line2D([], [], color="black", marker="o", linestyle="none", label="descent")
    legend(ax, handles=[flow, descent])
