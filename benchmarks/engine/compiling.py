"""The first call of a new kernel in a new process, and that of each further activation."""

import time

import jax
import jax.numpy as jnp
import numpy as np

import gradflow as gf
from benchmarks.engine.line import Line
from benchmarks.engine.worker import in_new_process

ACTIVATIONS = ("softmax", "sigmoid", "normalised-sigmoid", "softplus", "elu1")
MEMBERS = 64


def run(quick: bool = False) -> list[Line]:
    """Measure in a process that has compiled nothing and keeps nothing on disk."""
    return in_new_process("benchmarks.engine.compiling", "measure", quick)


def _observe(t, model, args):
    return {"entropy": gf.diagnostics.entropy(model.weights)}


def measure(quick: bool) -> list[Line]:
    """Return the seconds of each first call; the first one loads what every kernel needs."""
    data = gf.tasks.linear_regression(jax.random.key(0), n_features=8, condition_number=10.0)
    values = 0.1 * np.random.default_rng(0).normal(size=(MEMBERS, 8, 16))
    jax.block_until_ready(jnp.ones(3) + 1)
    rows = []
    for name in ACTIVATIONS[: 2 if quick else None]:
        models = gf.models.ValueSoftmax(values, np.zeros((MEMBERS, 16)), gf.activations.by_name(name))
        begin = time.perf_counter()
        jax.block_until_ready(
            gf.gradient_flow_ensemble(
                gf.losses.square, models, data, t1=1e2, ts=gf.log_times(1e-1, 1e2, 60), observe=_observe
            )
        )
        seconds = time.perf_counter() - begin
        aim = "< 6" if not rows else "< 3"
        rows.append(Line("first call of a new kernel", f"gradflow, {name}", first=seconds, ratio=seconds, aim=aim))
    return rows
