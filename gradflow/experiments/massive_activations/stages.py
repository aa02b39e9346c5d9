"""What the experiment computes: a sweep over kinds of models for each number of layers, saved along training."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Array, Key

from gradflow.experiments import transformers
from gradflow.experiments.base import Stage
from gradflow.experiments.massive_activations.config import ARMS, Config
from gradflow.experiments.massive_activations.readings import observe
from gradflow.experiments.transformers import Arrays, FreshBatches
from gradflow.models import Transformer
from gradflow.sweep import Descent
from gradflow.types import Batch

SEED = 2402_17762
SAVED = (
    "accuracy",
    "last_loss",
    "sink",
    "on_bos",
    "state_norm",
    "state_peak",
    "peak_ratio",
    "massive",
    "key_norm",
    "value_norm",
)


def stages(config: Config) -> list[Stage]:
    """Return a stage for each number of layers, each independent of the others."""
    return [Stage(stage_name(depth), functools.partial(train, config, depth)) for depth in config.depths]


def stage_name(depth: int) -> str:
    """Return the name of the stage of a number of layers."""
    return f"layers-{depth}"


def plan(config: Config) -> str:
    """Return what is about to be run and what it costs."""
    runs, layers = len(config.arms) * config.seeds * len(config.depths), float(np.mean(config.depths))
    flops = transformers.step_flops(config.batch, config.task().length, config.width, 1) * layers
    return transformers.planned(runs, config.steps, flops)


def train(config: Config, depth: int, workspace: Path) -> Arrays:
    """Train every arm from the same starts on the same sequences; arrays are (arm, seed, save, ...)."""
    task = config.task()
    build = functools.partial(
        member,
        task=task,
        evaluated=config.evaluated,
        auxiliary=config.auxiliary,
        width=config.width,
        layers=depth,
        heads=config.heads,
    )
    method = Descent(
        transformers.adamw,
        steps=config.steps,
        save_at=config.save_at,
        hyperparameters={"learning_rate": config.learning_rate},
        batches=FreshBatches(task, config.batch),
    )
    axes = {"arm": list(config.arms), "seed": range(config.seeds)}
    ds = transformers.train(build, axes, method, observe, workspace, SEED)
    return transformers.values(ds, *SAVED) | {"step": config.save_at}


def member(key: Key[Array, ""], *, arm: str, **options: Any) -> tuple[Callable, Transformer, tuple[Batch, Any]]:
    """Build a member of the sweep.

    Args:
        key: of the draws.
        arm: kind of the model, of `ARMS`.
        **options: of `transformers.member`.

    Returns:
        `(loss, model, args)`.
    """
    return transformers.member(key, **options, **ARMS[arm])
