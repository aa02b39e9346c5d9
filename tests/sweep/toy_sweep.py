"""A sweep whose flows are known: x' = -kappa x from a drawn start; its functions can be sent to other processes."""

import os
import signal
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gradflow.sweep import Flow, sweep

KEY = jax.random.key(7)
TIMES = np.array([0.0, 0.5, 1.0])
# One solver, one lane count and chunks of four members: all sweeps of the tests that can share a kernel do.
OPTIONS = {"rtol": 1e-9, "lanes": 2, "solver": "tsit5"}
METHOD = Flow(t1=1.0, ts=TIMES, **OPTIONS)
AXES = {"kappa": [1.0, 2.0, 4.0], "scale": [0.5, 1.0], "seed": range(4)}


class Point(eqx.Module):
    x: Float[Array, " d"]


def bowl(model: Point, kappa):
    return 0.5 * kappa * (model.x**2).sum()


def build(key, *, kappa, scale=1.0):
    return bowl, Point(scale * jax.random.normal(key, (2,))), jnp.asarray(kappa)


def observe(t, model, kappa):
    return {"x": model.x, "size": (model.x**2).sum()}


def expected(key, kappa, scale, t):
    return scale * np.asarray(jax.random.normal(key, (2,))) * np.exp(-kappa * t)


def run(axes=None, **options):
    """The toy sweep; `options` replace what it passes on."""
    given = {"key": KEY, "method": METHOD, "observe": observe, "chunk": 4, "progress": False, **options}
    return sweep(given.pop("build", build), AXES if axes is None else axes, **given)


def build_slowly(key, *, kappa, seed):
    """A builder for `build_on="host"` that takes its time, so that a kill comes in the middle."""
    time.sleep(0.004)
    return build(key, kappa=kappa)


def build_deadly(key, *, kappa, seed):
    """A builder that kills the first worker process that comes to kappa = 4, once for each file of that name."""
    flag = Path(os.environ["GRADFLOW_TOY_FLAG"])
    if kappa == 4.0 and flag.exists():
        flag.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return build(key, kappa=kappa)


SLOW_AXES = {"kappa": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "seed": range(16)}


def run_slowly(store: Path | str | None, **options):
    return run(SLOW_AXES, build=build_slowly, build_on="host", store=store, **options)


def die():
    os.kill(os.getpid(), signal.SIGKILL)
