"""What the experiment computes: descent and flow at every size, and the controls at the middle one."""

import functools
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Key

from gradflow import losses
from gradflow.activations import AbstractActivation, Sigmoid, Softmax, Uniform
from gradflow.descent import gradient_descent_ensemble
from gradflow.experiments import audits
from gradflow.experiments.base import Stage
from gradflow.experiments.routing import recall
from gradflow.experiments.routing.config import CLASSES, D_K, D_V, SCALE, Config
from gradflow.experiments.routing.measures import measure
from gradflow.flow import gradient_flow_ensemble
from gradflow.laws import audit
from gradflow.models import AttentionHead
from gradflow.trajectory import Trajectory
from gradflow.types import Batch

SEED = 2512_22473
IN_AXES = (eqx.if_array(0), eqx.if_array(0))

Arrays = dict[str, np.ndarray]


def stages(config: Config) -> list[Stage]:
    """Return one stage a size, then the controls; each is independent of the others."""
    sizes = [Stage(stage_name(pairs), functools.partial(size, config, pairs)) for pairs in config.pairs]
    return [*sizes, Stage("controls", functools.partial(controls, config))]


def stage_name(pairs: int) -> str:
    """Return the name of a size: that of the length of its sequences."""
    return f"T{3 * pairs}"


def size(config: Config, pairs: int, workspace: Path) -> Arrays:
    """Train a softmax head at one size: flow, descent, and descent with large steps."""
    del workspace
    batches, fresh = data(config, pairs)
    heads = start(config, pairs, Softmax())
    flow = _flow(config, heads, batches)
    out = _measured("flow", flow.observed, batches, fresh, config)
    out["flow_status"] = np.asarray(flow.status)
    for name, step_size in (("descent", config.step_size), ("large", config.large_step)):
        run = _descend(config, heads, batches, step_size)
        found = _measured(name, run.observed, batches, fresh, config)
        out |= found if name == "descent" else {"large_loss": found["large_loss"]}
        out[f"{name}_status"] = np.asarray(run.status)
    first = jax.tree.map(lambda leaf: leaf[:, 0], batches)
    out |= {"t": config.ts, "inputs": np.asarray(first.inputs), "targets": np.asarray(first.targets)}
    return out | (_audited(flow, batches, config) if pairs == config.middle else {})


def controls(config: Config, workspace: Path) -> Arrays:
    """Run the flows that the claims are held against, from the starts and sequences of the middle size."""
    del workspace
    batches, fresh = data(config, config.middle)
    labels = jax.vmap(recall.meaningless)(_keys(config, "labels"), batches)
    arms: dict[str, tuple[AbstractActivation, Batch]] = {
        "meaningless": (Softmax(), labels),
        "uniform": (Uniform(), batches),
        "sigmoid": (Sigmoid(), batches),
    }
    out = {}
    for name, (activation, trained) in arms.items():
        flow = _flow(config, start(config, config.middle, activation), trained)
        out |= _measured(name, flow.observed, trained, fresh, config)
        out[f"{name}_status"] = np.asarray(flow.status)
    return out


def data(config: Config, pairs: int) -> tuple[Batch, Batch]:
    """Return the sequences of every seed: those to train on, and others."""
    draw = functools.partial(recall.draw, sequences=config.sequences, pairs=pairs)
    return jax.vmap(draw)(_keys(config, "train")), jax.vmap(draw)(_keys(config, "fresh"))


def start(config: Config, pairs: int, activation: AbstractActivation) -> AttentionHead:
    """Return the heads at the start, one a seed; all maps start from the same matrices."""

    def draw(key: Key[Array, ""]) -> AttentionHead:
        return AttentionHead.normal(key, pairs + CLASSES, D_K, D_V, CLASSES, scale=SCALE, activation=activation)

    return eqx.filter_vmap(draw)(_keys(config, "start"))


def _keys(config: Config, use: str) -> Key[Array, " seeds"]:
    place = ("start", "train", "fresh", "labels").index(use)
    return jax.random.split(jax.random.fold_in(jax.random.key(SEED), place), config.seeds)


def _flow(config: Config, heads: AttentionHead, batches: Batch) -> Trajectory:
    return gradient_flow_ensemble(
        losses.cross_entropy,
        heads,
        batches,
        in_axes=IN_AXES,
        t1=config.ts[-1],
        ts=config.ts,
        rtol=config.rtol,
    )


def _descend(config: Config, heads: AttentionHead, batches: Batch, step_size: float) -> Trajectory:
    return gradient_descent_ensemble(
        losses.cross_entropy,
        heads,
        optax.sgd,
        batches,
        in_axes=IN_AXES,
        hyperparameters={"learning_rate": step_size},
        steps=config.steps,
        save_at=config.save_at,
    )


def _measured(name: str, heads: Any, batches: Batch, fresh: Batch, config: Config) -> Arrays:
    found = measure(heads, batches, fresh, jnp.asarray(config.step_size))
    return {f"{name}_{key}": np.asarray(value) for key, value in found.items()}


def _audited(flow: Trajectory, batches: Batch, config: Config) -> Arrays:
    """Return the laws that the flow of the first seed obeys, as text and numbers."""
    table = audit(flow.member(0), losses.cross_entropy, jax.tree.map(lambda leaf: leaf[0], batches), rtol=config.rtol)
    return audits.stored(table)
