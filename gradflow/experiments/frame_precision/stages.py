"""What the experiment computes: exact flows of one head on every task, and when its parts stop moving."""

import functools
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gradflow import losses
from gradflow.experiments import audits
from gradflow.experiments.base import Stage
from gradflow.experiments.frame_precision.config import (
    ARMS,
    FREE,
    KEY_SIZE,
    MAIN,
    MAPS,
    SCALE,
    VALUE_SIZE,
    Config,
)
from gradflow.experiments.frame_precision.readings import History, freezing
from gradflow.experiments.sequences import CLASSES, FEATURES, draw, draw_all
from gradflow.experiments.trees import repeated, stacked
from gradflow.flow import gradient_flow_ensemble
from gradflow.laws import routing
from gradflow.models import AttentionHead, FreeHead
from gradflow.observables import HeadObservables
from gradflow.trajectory import Trajectory
from gradflow.types import Batch

Arrays = dict[str, np.ndarray]
OBSERVABLES = HeadObservables()
AUDITED = "recall"
# Of the Chebyshev method. Where no weights fit the seen chain exactly its sharpness grows like t, and the flow is too
# stiff to be followed to the last horizon.
MOST_STEPS = 40_000
ROUNDING = 1e-9  # of the largest |b|, below which the freezing bound of a row is
CURVES = ("loss", "attention_entropy", "routing_norm", "value_norm")


class Problem(eqx.Module):
    """A sequence and the weight decay of a run.

    Attributes:
        batch: one sequence.
        decay: lambda.
    """

    batch: Batch
    decay: Float[Array, ""]


def decayed_loss(head: Any, problem: Problem) -> Float[Array, ""]:
    """Return cross-entropy + lambda |theta|^2 / 2."""
    size = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(eqx.filter(head, eqx.is_inexact_array)))
    return losses.cross_entropy(head, problem.batch) + problem.decay * size / 2


def observe(t: Float[Array, ""], head: Any, problem: Problem) -> dict[str, Array]:
    """Return the observables of a head, its scores, W_V, and by how much the freezing bound is exceeded."""
    batch = problem.batch
    state = routing.head_state(head, batch.inputs[0], batch.targets[0], batch.mask[0])
    found = OBSERVABLES(t, head, batch)
    out = {name: found[name] for name in CURVES} | {name: found[name][0] for name in ("weights", "values")}
    out |= {"scores": jnp.where(state.mask, state.scores, 0), "w_v": getattr(head, "w_v", state.values)}
    if head.activation.name == "softmax":
        out["excess"] = jnp.max(routing.freezing_excess(state))
        out["tightness"] = jnp.max(_used(routing.freezing_bound(state), state))
    return out


def _used(bound: Float[Array, " T"], state: routing.HeadState) -> Float[Array, " T"]:
    """Return the part of the freezing bound that |D_i|_1 takes, in rows that are not at rounding."""
    counts = bound > ROUNDING * jnp.max(jnp.abs(state.compatibility))
    return jnp.where(counts, jnp.sum(jnp.abs(state.score_gradient), axis=-1) / jnp.where(counts, bound, 1), 0)


def stages(config: Config) -> list[Stage]:
    """Return one stage a map, one of free scores, and the audit of one run."""
    parts = [Stage(name, functools.partial(by_map, config, name)) for name in (*MAPS, FREE)]
    return [*parts, audits.stage(functools.partial(_audited, config), t1=config.horizons[0], rtol=config.rtol)]


def by_map(config: Config, name: str, workspace: Path) -> Arrays:
    """Run every task from every seed with one map; the softmax with every arm."""
    del workspace
    arms = list(ARMS) if name == "softmax" else [MAIN]
    keys = list(jax.random.split(jax.random.key(0), config.seeds))
    batches = draw_all(config.tasks, [jax.random.fold_in(key, 1) for key in keys], config.length)
    heads = [_head(config, name, jax.random.fold_in(key, 0)) for key in keys] * len(config.tasks)
    count = len(heads)
    run = gradient_flow_ensemble(
        decayed_loss,
        repeated(stacked(heads), len(arms)),
        Problem(repeated(batches, len(arms)), jnp.repeat(jnp.array([ARMS[arm].decay for arm in arms], float), count)),
        in_axes=(eqx.if_array(0), 0),
        t1=config.horizons[-1],
        ts=config.ts,
        observe=observe,
        rates=_rates(arms, count) if name == "softmax" else None,
        rtol=config.rtol,
        max_steps=MOST_STEPS,
    )
    return _labels(config, arms) | _readings(config, run, count)


def _head(config: Config, name: str, key: Any) -> Any:
    if name == FREE:
        return FreeHead.normal(key, config.length, VALUE_SIZE, CLASSES, scale=SCALE)
    return AttentionHead.normal(key, FEATURES, KEY_SIZE, VALUE_SIZE, CLASSES, scale=SCALE, activation=name)


def _rates(arms: list[str], count: int) -> dict[str, np.ndarray]:
    values, routes = (
        np.repeat([float(getattr(ARMS[arm], part)) for arm in arms], count) for part in ("values", "routing")
    )
    return {"w_v": values, "w_q": routes, "w_k": routes}


def _labels(config: Config, arms: list[str]) -> Arrays:
    size = len(config.tasks) * config.seeds
    return {
        "of_arm": np.repeat(np.arange(len(arms)), size),
        "of_task": np.tile(np.repeat(np.arange(len(config.tasks)), config.seeds), len(arms)),
        "of_seed": np.tile(np.arange(config.seeds), len(arms) * len(config.tasks)),
    }


def _readings(config: Config, run: Trajectory, count: int) -> Arrays:
    """Return what is kept of a run; members go through one kernel, `count` at a time."""
    seen = run.observed
    ts, epsilons = jnp.asarray(config.ts), jnp.asarray(config.epsilons)
    within = ts <= jnp.asarray(config.horizons)[:, None]
    history = History(*(seen[name] for name in History._fields))
    chunks = [slice(start, start + count) for start in range(0, len(seen["loss"]), count)]
    parts = [
        freezing(ts, History(*(leaf[chunk] for leaf in history)), run.valid[chunk], within, epsilons)
        for chunk in chunks
    ]
    kept = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    kept |= {name: np.asarray(seen[name]) for name in CURVES}
    for name in ("excess", "tightness"):
        kept |= {name: np.where(run.valid, seen[name], 0).max(axis=-1)} if name in seen else {}
    return kept | {"status": np.asarray(run.status), "solver_steps": np.asarray(run.stats["num_steps"])}


def _audited(config: Config) -> tuple[Any, Any, Any]:
    key = jax.random.key(0)
    return losses.cross_entropy, _head(config, "softmax", key), draw(AUDITED, key, config.length)
