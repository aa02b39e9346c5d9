"""Peak memory of a large ensemble above its own result: 100,000 members, 64 saves of four observables."""

import sys
from pathlib import Path

import equinox as eqx
import jax
import numpy as np

import gradflow as gf
from benchmarks.engine import problems
from benchmarks.engine.line import Line
from benchmarks.engine.worker import in_new_process

MIB = 2**20


def run(quick: bool = False) -> list[Line]:
    """Measure in a process that has done nothing else; its peak memory is its own."""
    return in_new_process("benchmarks.engine.memory", "measure", 10_000 if quick else 100_000)


def _observe(t, model, args):
    weights = model.weights
    return {
        "loss": gf.losses.logistic(model, args),
        "entropy": gf.diagnostics.entropy(weights),
        "largest": weights.max(),
        "norm": (model.values**2).sum(),
    }


def measure(members: int) -> list[Line]:
    """Return the growth of the peak over what is there before the call, less the bytes of the result."""
    data = gf.tasks.Data(np.ascontiguousarray(problems.logistic(1).first[0]), np.ones(1))

    def flow(ensemble):
        models = gf.models.ValueSoftmax(ensemble.values, ensemble.scores)
        ts = gf.log_times(1e-1, 1e2, 64)
        in_axes = (eqx.if_array(0), None)
        return jax.block_until_ready(
            gf.gradient_flow_ensemble(
                gf.losses.logistic, models, data, in_axes=in_axes, t1=1e2, ts=ts, observe=_observe, rtol=1e-4
            )
        )

    flow(problems.logistic(256))  # compiled: what the compiler takes is not the ensemble's
    ensemble = problems.logistic(members)
    before = _resident("VmRSS")
    _reset_peak()
    trajectory = flow(ensemble)
    buffers = {id(x): x.nbytes for x in jax.tree.leaves(trajectory) if isinstance(x, jax.Array | np.ndarray)}
    above = _resident("VmHWM") - before - sum(buffers.values())
    return [
        Line(
            f"{members:,} members, 64 saves of 4 observables",
            "gradflow, memory above the result",
            ratio=above / MIB,
            aim="< 300 MiB",
            note=f"result {sum(buffers.values()) / MIB:.0f} MiB, before the call {before / MIB:.0f} MiB",
        )
    ]


def _resident(field: str) -> int:
    """Return a field of this process's memory in bytes."""
    text = Path("/proc/self/status").read_text() if sys.platform == "linux" else ""
    return next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith(field)), 0)


def _reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")
