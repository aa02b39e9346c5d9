"""What the experiment computes: a sweep over sizes of a massive activation for each arm, saved along training."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Key

from gradflow.experiments import transformers
from gradflow.experiments.activation_blow_up.config import ARMS, LAYERS, ROUNDINGS, Config
from gradflow.experiments.activation_blow_up.readings import observe
from gradflow.experiments.base import Stage
from gradflow.experiments.transformers import Arrays, FreshBatches
from gradflow.models import Transformer
from gradflow.sweep import Descent
from gradflow.tasks.induction import BOS
from gradflow.types import Batch

SEED = 2402_17762
SAVED = ("accuracy", "last_loss", "on_bos", "peak", "gradient", "bos_gradient")
READ = (*SAVED, *(f"{name}_{what}" for name in ROUNDINGS for what in ("accuracy", "error")))


def stages(config: Config) -> list[Stage]:
    """Return a stage for each arm, each independent of the others."""
    return [Stage(arm, functools.partial(train, config, arm)) for arm in ARMS]


def plan(config: Config) -> str:
    """Return what is about to be run and what it costs."""
    runs = len(ARMS) * len(config.sizes) * len(config.rates) * config.seeds
    flops = transformers.step_flops(config.batch, config.task().length, config.width, LAYERS)
    return transformers.planned(runs, config.steps, flops)


def train(config: Config, arm: str, workspace: Path) -> Arrays:
    """Train every size from the same starts on the same sequences; arrays are (size, rate, seed, save)."""
    task = config.task()
    build = functools.partial(
        member,
        task=task,
        evaluated=config.evaluated,
        auxiliary=config.auxiliary,
        width=config.width,
        layers=LAYERS,
        heads=config.heads,
        **ARMS[arm],
    )
    method = Descent(
        transformers.adamw,
        steps=config.steps,
        save_at=config.save_at,
        hyperparameters={"learning_rate": "lr"},
        batches=FreshBatches(task, config.batch),
    )
    axes = {"size": list(config.sizes), "lr": list(config.rates), "seed": range(config.seeds)}
    ds = transformers.train(build, axes, method, observe, workspace, SEED)
    return transformers.values(ds, *READ) | {"step": config.save_at}


def member(
    key: Key[Array, ""], *, size: Any, spread: bool = False, **options: Any
) -> tuple[Callable, Transformer, tuple[Batch, Any]]:
    """Build a member of the sweep.

    Args:
        key: of the draws.
        size: norm of what is added to the embedding of BOS.
        spread: whether it is added to all coordinates, with signs in turn, instead of the first alone.
        **options: of `transformers.member`.

    Returns:
        `(loss, model, args)`.
    """
    loss, model, args = transformers.member(key, **options)
    width = model.embedding.shape[-1]
    signs = jnp.where(jnp.arange(width) % 2, -1.0, 1.0) / jnp.sqrt(width)
    direction = signs if spread else jnp.zeros(width).at[0].set(1.0)
    embedding = model.embedding.at[BOS].add((size * direction).astype(model.embedding.dtype))
    return loss, eqx.tree_at(lambda m: m.embedding, model, embedding), args
