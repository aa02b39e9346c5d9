"""What the experiment computes: every map in the simplest model, and some maps in models of other shapes."""

import functools
from pathlib import Path

import numpy as np

from gradflow.experiments import transformers
from gradflow.experiments.base import Stage
from gradflow.experiments.token_influence.config import USUAL, Config, Shape
from gradflow.experiments.token_influence.readings import observe, observe_few
from gradflow.experiments.transformers import Arrays, FreshBatches
from gradflow.sweep import Descent
from gradflow.tasks import Groups

SEED = 2603_06248
FEW = ("accuracy", "last_loss", "sparsity", "flip")
READ = (*FEW, "flip_random", "attack", "top_share")


def stages(config: Config) -> list[Stage]:
    """Return the stages, each independent of the other."""
    return [Stage(name, functools.partial(compute, config)) for name, compute in (("maps", maps), ("grid", grid))]


def plan(config: Config) -> str:
    """Return what is about to be run and what it costs."""
    flops = np.mean(
        [
            transformers.step_flops(config.batch, config.distinct + 1, config.width, shape.layers, mlp=shape.mlp)
            for shape in config.shapes
        ]
    )
    return transformers.planned(config.grid_runs + len(config.maps) * config.seeds, config.steps, float(flops))


def maps(config: Config, workspace: Path) -> Arrays:
    """Train every map from the same starts on the same sequences, read along the way: (map, seed, save)."""
    axes = {"attention": list(config.maps), "lr": [config.learning_rate], "seed": range(config.seeds)}
    method = descent(config, config.task(), config.save_at)
    read = functools.partial(observe, task=config.task(), pairs=config.pairs, attacked=config.attacked)
    ds = transformers.train(build(config, config.task(), USUAL), axes, method, read, workspace, SEED).isel(lr=0)
    return transformers.values(ds, *READ) | {"step": config.save_at}


def grid(config: Config, workspace: Path) -> Arrays:
    """Train some maps in every shape, read at the end: (vocabulary, shape, map, rate, seed)."""
    axes = {"attention": list(config.grid_maps), "lr": list(config.grid_rates), "seed": range(config.grid_seeds)}
    parts = []
    for vocabulary in config.grid_vocabularies:
        task = config.task(vocabulary)
        method = descent(config, task, np.array([config.steps]))
        read = functools.partial(observe_few, task=task, pairs=config.pairs)
        for shape in config.shapes:
            store = f"{vocabulary}-{shape.label.replace(', ', '-').replace(' ', '')}.zarr"
            ds = transformers.train(build(config, task, shape), axes, method, read, workspace, SEED, store=store)
            parts.append({name: values[..., -1] for name, values in transformers.values(ds, *FEW).items()})
    sizes = len(config.grid_vocabularies), len(config.shapes)
    return {name: np.stack([part[name] for part in parts]).reshape(*sizes, *parts[0][name].shape) for name in FEW}


def build(config: Config, task: Groups, shape: Shape) -> functools.partial:
    """Return what makes a member of a sweep over models of one shape."""
    return functools.partial(
        transformers.member,
        task=task,
        evaluated=config.evaluated,
        auxiliary=0.0,
        width=config.width,
        layers=shape.layers,
        heads=shape.heads,
        mlp="gelu" if shape.mlp else None,
        norm="layer" if shape.norm else None,
        positions=None,
        causal=False,
    )


def descent(config: Config, task: Groups, save_at: np.ndarray) -> Descent:
    """Return how a model is trained on fresh sequences, and when it is read."""
    return Descent(
        transformers.adamw,
        steps=config.steps,
        save_at=save_at,
        hyperparameters={"learning_rate": "lr"},
        batches=FreshBatches(task, config.batch),
    )
