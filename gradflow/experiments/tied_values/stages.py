"""What the experiment computes: the paper's descents, and flows of the tied model beside its controls."""

import functools
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from gradflow import losses
from gradflow.descent import gradient_descent
from gradflow.experiments import audits
from gradflow.experiments.base import Stage
from gradflow.experiments.panel import SOLVER
from gradflow.experiments.tied_values.config import MODELS, Config
from gradflow.flow import gradient_flow, log_times
from gradflow.models import TiedSoftmax, paper
from gradflow.types import Data

Arrays = dict[str, np.ndarray]


class Trio(eqx.Module):
    """The tied model and its two controls from one start, side by side in one kernel.

    Attributes:
        values: U of the tied softmax, V of the untied one, U of the tied elementwise sigmoid.
        query: a of each; for the untied model these are the scores themselves.
    """

    values: Float[Array, "3 D D"]
    query: Float[Array, "3 D"]

    @property
    def weights(self) -> Float[Array, "3 D"]:
        """softmax(U a), softmax(a) and sigmoid(U a)."""
        tied, untied, elementwise = self.values[0] @ self.query[0], self.query[1], self.values[2] @ self.query[2]
        return jnp.stack([jax.nn.softmax(tied), jax.nn.softmax(untied), jax.nn.sigmoid(elementwise)])

    def __call__(self) -> Float[Array, "3 D"]:
        """Return beta = U s of each."""
        return jnp.sum(self.values * self.weights[:, None, :], axis=-1)


def trio_loss(trio: Trio, data: Data) -> Float[Array, ""]:
    """Return the sum of the three logistic losses; each model moves as by its own."""
    return jnp.sum(jax.nn.softplus(-_margins(trio, data)))


def _margins(trio: Trio, data: Data) -> Float[Array, " 3"]:
    return data.y[0] * (trio() @ data.x[0])


def observe_trio(t: Float[Array, ""], trio: Trio, data: Data) -> dict[str, Array]:
    """Return what is drawn, and both sides of d/dt (|U|^2 - |a|^2) / 2 = gamma z of the tied model."""
    del t
    margins = _margins(trio, data)
    speed = jax.tree.map(jnp.negative, jax.grad(trio_loss)(trio, data))
    energy = jnp.sum(trio.values * speed.values, axis=(1, 2)) - jnp.sum(trio.query * speed.query, axis=1)
    pull = jax.nn.sigmoid(-margins) * margins
    norms = jnp.linalg.norm(trio.values, axis=1)
    return {"weights": trio.weights, "norms": norms, "loss": jax.nn.softplus(-margins), "energy": energy, "pull": pull}


def observe_tied(step: Array, model: TiedSoftmax, data: Data) -> dict[str, Array]:
    """Return what is drawn of the descent of the library's tied model."""
    del step
    norms = jnp.linalg.norm(model.values, axis=0)
    return {"weights": model.weights, "norms": norms, "loss": losses.logistic(model, data)}


def stages(config: Config) -> list[Stage]:
    """Return one stage a dimension, each independent of the others, and the audit of the smallest tied model."""
    runs = [Stage(f"D{d}", functools.partial(dimension, config, d)) for d in config.dimensions]
    smallest = functools.partial(audits.of_setting, paper.tied, config.dimensions[0])
    return [*runs, audits.stage(smallest, t1=config.horizon, rtol=config.rtol)]


def dimension(config: Config, d: int, workspace: Path) -> Arrays:
    """Run descent and flow at one dimension."""
    setting = paper.tied(d)
    run = gradient_descent(
        setting.loss,
        setting.model,
        optax.sgd(setting.step_size),
        setting.args,
        steps=config.steps,
        save_at=config.save_at,
        observe=observe_tied,
        checkpoint=workspace / "descent",
    )
    matched = setting.step_size * config.steps
    ts = np.union1d(np.append(0.0, log_times(setting.step_size, config.horizon, config.saves)), matched)
    count = len(MODELS)
    trio = Trio(jnp.stack([setting.model.values] * count), jnp.stack([setting.model.query] * count))
    flow = gradient_flow(
        trio_loss,
        trio,
        setting.args,
        t1=ts[-1],
        ts=ts,
        observe=observe_trio,
        rtol=config.rtol,
        solver=SOLVER,
        throw=False,
    )
    out = {f"descent_{key}": np.asarray(value) for key, value in run.observed.items()}
    out |= {f"flow_{key}": np.asarray(value) for key, value in flow.observed.items()}
    return out | {
        "descent_t": setting.step_size * config.save_at,
        "flow_t": ts,
        "flow_status": np.asarray(flow.status),
        "flow_solver_steps": np.asarray(flow.stats["num_steps"]),
    }
