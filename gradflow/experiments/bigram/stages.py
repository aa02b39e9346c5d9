"""What the experiment trains: every map with two layers, softmax with one, and some maps on sequences with BOS."""

import functools
from pathlib import Path

import numpy as np

from gradflow.experiments import texts, transformers
from gradflow.experiments.base import Stage
from gradflow.experiments.bigram.config import LAYERS, Config
from gradflow.experiments.bigram.readings import observe
from gradflow.experiments.transformers import Arrays, FreshBatches
from gradflow.sweep import Descent

SEED = 2306_00802
TWO, ONE, BOS = "two-layers", "one-layer", "with-bos"
CURVES = (
    "known_loss",
    "known_alone",
    "accuracy",
    "new_loss",
    "other_loss",
    "other_exact",
    "share",
    "mass",
    "added",
    "value_first",
)
SHOWN = ("tokens", "looked_up", "example")


def stages(config: Config) -> list[Stage]:
    """Return the stages, each independent of the other; the text is read first, so that a bad one fails before any.

    Args:
        config: settings of the run.

    Returns:
        The stages.

    Raises:
        FlowError: if the text cannot be read, is empty or is not UTF-8.
    """
    config.task()
    arms = {TWO: (config.maps, LAYERS, False), ONE: (("softmax",), 1, False), BOS: (config.bos_maps, LAYERS, True)}
    return [Stage(name, functools.partial(train, config, *arm)) for name, arm in arms.items()]


def plan(config: Config) -> str:
    """Return what is about to be run and what it costs."""
    flops = transformers.step_flops(config.batch, config.task().length, config.width, LAYERS)
    return transformers.planned((len(config.maps) + 1 + len(config.bos_maps)) * config.seeds, config.steps, flops)


def train(config: Config, maps: tuple[str, ...], layers: int, bos: bool, workspace: Path) -> Arrays:
    """Train maps from the same starts on the same sequences, read along the way.

    Args:
        config: settings of the run.
        maps: attention maps.
        layers: of the model.
        bos: whether BOS comes first.
        workspace: of the stage.

    Returns:
        What `readings.observe` reads, (map, seed, save, ...); of the first run's end one sequence and its attention;
        and the alphabet and the save steps.
    """
    task = config.task(bos)
    build = functools.partial(
        texts.member, task=task, evaluated=config.evaluated, width=config.width, layers=layers, heads=config.heads
    )
    method = Descent(
        transformers.adamw,
        steps=config.steps,
        save_at=config.save_at,
        hyperparameters={"learning_rate": "lr"},
        batches=FreshBatches(task, config.batch),
    )
    axes = {"attention": list(maps), "lr": [config.learning_rate], "seed": range(config.seeds)}
    read = functools.partial(observe, task=task)
    ds = transformers.train(build, axes, method, read, workspace, SEED).isel(lr=0)
    first = transformers.values(ds.isel(time=-1, seed=0), *SHOWN)
    alphabet = {"alphabet": np.array(list(task.task.alphabet))}
    return transformers.values(ds, *CURVES) | first | alphabet | {"step": config.save_at}
