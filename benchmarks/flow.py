"""Setting A by the flow: warm and first call, and the long horizon against Diffrax's own loop."""

import functools

import diffrax
import jax
import jax.numpy as jnp
import numpy as np

import gradflow as gf
from benchmarks.measure import Row, first_call, warm


def _field(t, model, args):
    loss, data = gf.losses.logistic, args
    return jax.tree.map(jnp.negative, jax.grad(lambda arrays: loss(arrays, data))(model))


@functools.partial(jax.jit, static_argnums=5)
def _plain_diffrax(model, data, t1, rtol, atol, solver):
    """Integrate as one would with Diffrax alone: its own solver and step size control, numbers as arguments."""
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(_field),
        solver,
        0.0,
        t1,
        None,
        model,
        data,
        stepsize_controller=diffrax.PIDController(rtol=rtol, atol=atol),
        max_steps=1_000_000,
        throw=False,
    )
    return jax.tree.map(lambda x: x[0], solution.ys), solution.stats["num_steps"]


def _rows(t1: float, rtol: float, aim: str) -> list[Row]:
    setting = gf.models.paper.logistic()

    def flow():
        return gf.gradient_flow(setting.loss, setting.model, setting.args, t1=t1, rtol=rtol)

    def plain():
        return _plain_diffrax(setting.model, setting.args, t1, rtol, rtol * 1e-3, diffrax.Tsit5())

    trajectory, first = first_call(flow)
    (model, steps), first_plain = first_call(plain)
    difference = float(np.abs(trajectory.final.scores - model.scores).max())
    limit = 1e3 * rtol * float(np.abs(model.scores).max())
    if difference > limit:
        raise AssertionError(f"the two flows differ by {difference:.1e}, more than {limit:.1e}")
    (best, median), (best_plain, median_plain) = warm(flow, plain)
    name = f"flow of setting A to t = {t1:.0e}, rtol {rtol:.0e}"
    count = int(trajectory.stats["num_steps"])
    same = f"scores differ by {difference:.0e}"
    return [
        Row(name, 1e3 * best, "ms", aim, first, f"best of 100; median {1e3 * median:.3g} ms"),
        Row("  its steps", count, "steps", "< 500" if t1 > 1e9 else "", None, f"Diffrax alone: {int(steps)}"),
        Row(
            "  Diffrax's Tsit5 alone",
            1e3 * best_plain,
            "ms",
            "",
            first_plain,
            f"median {1e3 * median_plain:.3g} ms, {best_plain / best:.2g}x the flow's; {same}",
        ),
    ]


def run() -> list[Row]:
    """Measure both horizons."""
    return [*_rows(1e5, 1e-8, "<= 0.5"), *_rows(1e12, 1e-10, "")]
