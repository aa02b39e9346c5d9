"""What the experiment computes: steps tried at heads along exact flows, one stage a kind of head."""

import functools
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from gradflow import losses
from gradflow.diagnostics import entropy
from gradflow.experiments import audits
from gradflow.experiments.base import Stage
from gradflow.experiments.feedback.config import (
    FREE,
    FROZEN,
    KEY_SIZE,
    KINDS,
    OWN,
    TRAINED,
    VALUE_SIZE,
    Config,
    Kind,
)
from gradflow.experiments.feedback.steps import growth, sign
from gradflow.experiments.sequences import CLASSES, FEATURES, draw
from gradflow.experiments.trees import stacked
from gradflow.flow import gradient_flow_ensemble
from gradflow.laws import routing
from gradflow.models import AttentionHead, FreeValueHead
from gradflow.types import Batch

AUDIT_RTOL = 1e-8

Arrays = dict[str, np.ndarray]


class Trial(eqx.Module):
    """A sequence and the steps that are tried on it.

    Attributes:
        batch: one sequence.
        step_sizes: of the steps.
    """

    batch: Batch
    step_sizes: Float[Array, " E"]


def trial_loss(head: Any, trial: Trial) -> Float[Array, ""]:
    """Return the cross-entropy."""
    return losses.cross_entropy(head, trial.batch)


def observe(t: Float[Array, ""], head: Any, trial: Trial) -> dict[str, Array]:
    """Return signs of the growth at each row's largest weight, and counts over all pairs.

    `signs` (T, 3 + 2 E): own, free, frozen, values at each step size, joint at each; `pairs` (prediction, seen, 2, 2):
    predicted by own or free, seen with U frozen or in the joint step of the first size, cells as in `_table`.
    """
    del t
    found, state = growth(head, trial.batch, trial.step_sizes)
    rows = trial.batch.mask[0] & (jnp.sum(state.mask, axis=-1) > 1)
    each = [sign(change, rows) for change in found[:3]]
    signs = jnp.stack([*each, *(sign(change, rows) for changes in found[3:] for change in changes)])
    top = jnp.argmax(jnp.where(state.mask, state.weights, -1), axis=-1)
    seen = (FROZEN, FROZEN + 1 + len(trial.step_sizes))
    return {
        "signs": jnp.take_along_axis(signs, top[None, :, None], axis=-1)[..., 0].T,
        "pairs": jnp.stack([jnp.stack([_table(signs[p], signs[s]) for s in seen]) for p in (OWN, FREE)]),
        "law": jnp.max(jnp.abs(routing.feedback_law(state, trial.step_sizes[0]))),
        "entropy": jnp.mean(entropy(state.weights, where=state.mask, normalise=True)[1:]),
        "loss": losses.cross_entropy(head, trial.batch),
    }


def _table(predicted: Float[Array, "T T"], seen: Float[Array, "T T"]) -> Int[Array, "2 2"]:
    """Count the pairs, predicted to grow or to fall by seen to grow or to fall."""
    both = (predicted != 0) & (seen != 0)
    cells = [[both & (predicted * p > 0) & (seen * s > 0) for s in (1, -1)] for p in (1, -1)]
    return jnp.sum(jnp.array(cells), axis=(-2, -1))


def stages(config: Config) -> list[Stage]:
    """Return one stage a kind of head, and the audit of one run of the last kind."""
    runs = [Stage(name, functools.partial(by_kind, config, kind)) for name, kind in KINDS.items()]
    return [*runs, audits.stage(functools.partial(_audited, config), t1=config.times[-1], rtol=AUDIT_RTOL)]


def _audited(config: Config) -> tuple[Any, Any, Batch]:
    """Return a head whose map is no softmax; the softmax is audited in the other experiments on attention."""
    kind, length = KINDS["shared-values-sigmoid"], config.lengths[-1]
    return losses.cross_entropy, _head(config, kind, 0, TRAINED), _batch(config, config.tasks[0], 0, length)


def by_kind(config: Config, kind: Kind, workspace: Path) -> Arrays:
    """Train one kind of head on every task, from every start and seed, and try steps along the way."""
    del workspace
    starts = config.starts(kind.causal)
    members = [
        (start, task, seed)
        for start in range(len(starts))
        for task in range(len(config.tasks))
        for seed in range(config.seeds)
    ]
    heads = [_head(config, kind, seed, starts[start][1]) for start, _, seed in members]
    batches = [_batch(config, config.tasks[task], seed, starts[start][0]) for start, task, seed in members]
    run = gradient_flow_ensemble(
        trial_loss,
        stacked(heads),
        Trial(
            stacked(batches), jnp.broadcast_to(jnp.asarray(config.step_sizes), (len(members), len(config.step_sizes)))
        ),
        in_axes=(eqx.if_array(0), 0),
        t1=config.times[-1],
        ts=np.asarray(config.times),
        observe=observe,
        rtol=config.rtol,
    )
    labels = dict(zip(("of_start", "of_task", "of_seed"), np.array(members).T, strict=True))
    return labels | {name: np.asarray(x) for name, x in run.observed.items()} | {"status": np.asarray(run.status)}


def _head(config: Config, kind: Kind, seed: int, scale: float) -> AttentionHead | FreeValueHead:
    key = jax.random.fold_in(jax.random.key(seed), 0)
    sizes = (FEATURES, KEY_SIZE, VALUE_SIZE, CLASSES)
    rest: dict[str, Any] = {"scale": scale, "activation": kind.activation, "causal": kind.causal}
    if kind.shared:
        return AttentionHead.normal(key, *sizes, **rest)
    return FreeValueHead.normal(key, config.lengths[-1], *sizes, **rest)


def _batch(config: Config, task: str, seed: int, length: int) -> Batch:
    """Return a sequence of that length, padded with targets that do not count: no causal row looks ahead."""
    batch = draw(task, jax.random.fold_in(jax.random.key(seed), 1), length)
    missing = config.lengths[-1] - length
    return jax.tree.map(lambda x: jnp.pad(x, ((0, 0), (0, missing), *((0, 0),) * (x.ndim - 2))), batch)
