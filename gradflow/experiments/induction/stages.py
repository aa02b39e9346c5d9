"""What the experiment computes: two sweeps over transformers, one with the course of training, one over their shape."""

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gradflow.diagnostics import sink_score
from gradflow.experiments import transformers
from gradflow.experiments.base import Stage
from gradflow.experiments.induction.config import LAYERS, LEFT_OUT, USUAL_POSITIONS, Config
from gradflow.experiments.transformers import Arrays, FreshBatches
from gradflow.models import Transformer
from gradflow.sweep import Descent
from gradflow.types import Batch

SEED = 2603_06248
ROWS = slice(1, -LEFT_OUT)
SAVED = ("accuracy", "last_loss", "other_loss", "sink", "sink_low", "sink_high", "entropy", "largest", "state_norm")


def stages(config: Config) -> list[Stage]:
    """Return the stages, each independent of the other."""
    return [Stage(name, functools.partial(compute, config)) for name, compute in (("maps", maps), ("grid", grid))]


def plan(config: Config) -> str:
    """Return what is about to be run and what it costs."""
    task = config.task()
    flops = transformers.step_flops(config.batch, task.length, config.width, LAYERS)
    return transformers.planned(config.grid_runs + len(config.maps) * config.seeds, config.steps, flops)


def maps(config: Config, workspace: Path) -> Arrays:
    """Train every map from the same starts on the same sequences, saved along the way."""
    task = config.task()
    build = functools.partial(
        transformers.member,
        task=task,
        evaluated=config.evaluated,
        auxiliary=config.auxiliary,
        width=config.width,
        layers=LAYERS,
        heads=config.heads,
        positions=USUAL_POSITIONS,
    )
    axes = {"attention": list(config.maps), "lr": [config.learning_rate], "seed": range(config.seeds)}
    ds = transformers.train(build, axes, _method(config, task, config.save_at), observe, workspace, SEED).isel(lr=0)
    first = {"maps": ds["map"].isel(time=-1, seed=0).values}
    return transformers.values(ds, *SAVED, "value_norm", "key_norm") | first | {"step": config.save_at}


def grid(config: Config, workspace: Path) -> Arrays:
    """Train some maps with other heads, positions, learning rates, losses and queries."""
    parts = [_shift(config, shift, workspace) for shift in config.grid_shifts]
    return {name: np.stack([part[name] for part in parts]) for name in parts[0]}


def _shift(config: Config, shift: bool, workspace: Path) -> Arrays:
    """Return runs (map, auxiliary, rate, seed, shape, save, ...) of a part of the grid; heads are padded with NaN."""
    task, most = config.task(shift), max(heads for heads, _ in config.shapes)
    build = functools.partial(
        transformers.member, task=task, evaluated=config.evaluated, width=config.width, layers=LAYERS
    )
    axes = {"attention": list(config.grid_maps), "auxiliary": list(config.grid_auxiliaries)}
    axes |= {"lr": list(config.grid_rates), "seed": range(config.grid_seeds)}
    found = []
    for heads, positions in config.shapes:
        made = functools.partial(build, heads=heads, positions=None if positions == "none" else positions)
        store = f"{'twin' if shift else 'same'}-{heads}-{positions}.zarr"
        method = _method(config, task, config.save_at)
        ds = transformers.train(made, axes, method, observe_last, workspace, SEED, store=store)
        arrays = transformers.values(ds, "accuracy", "sink")
        room = [(0, 0)] * (arrays["sink"].ndim - 1) + [(0, most - heads)]
        found.append(arrays | {"sink": np.pad(arrays["sink"], room, constant_values=np.nan)})
    return {name: np.stack([part[name] for part in found], axis=4) for name in found[0]}


def observe_last(step: Any, model: Transformer, args: tuple[Batch, Any]) -> dict[str, Array]:
    """Return accuracy, and sink scores of the last layer."""
    found = transformers.observe_induction(step, model, args)
    return {"accuracy": found["accuracy"], "sink": found["sink"][-1]}


def observe(step: Any, model: Transformer, args: tuple[Batch, Any]) -> dict[str, Array]:
    """Return what `observe_induction` does, and the range of sink scores over sequences."""
    found = transformers.observe_induction(step, model, args)
    _, capture = jax.vmap(functools.partial(model, capture=True))(args[0].inputs)  # XLA shares it with the line above
    scores = sink_score(capture.attention, ROWS)
    return found | {"sink_low": jnp.min(scores, axis=0), "sink_high": jnp.max(scores, axis=0)}


def _method(config: Config, task: Any, save_at: np.ndarray) -> Descent:
    return Descent(
        transformers.adamw,
        steps=config.steps,
        save_at=save_at,
        hyperparameters={"learning_rate": "lr"},
        batches=FreshBatches(task, config.batch),
    )
