"""What the experiment trains: a sweep over arms and seeds, with embeddings of positions and without."""

import functools
from pathlib import Path

from gradflow.errors import FlowError
from gradflow.experiments import transformers
from gradflow.experiments.base import Stage
from gradflow.experiments.habit_or_meaning import problem
from gradflow.experiments.habit_or_meaning.config import BLOCKS, SETTINGS, SHORTEST, Config
from gradflow.experiments.habit_or_meaning.sequences import Draw
from gradflow.sweep import Batched, Descent

SEED = 2603_06248
SAVED = ("accuracy", "last_loss", "other_loss", "sink", "row", "score", "push", "profile", "right")


def stages(config: Config) -> list[Stage]:
    """Return one stage a setting, each independent of the other.

    Args:
        config: settings of the run.

    Returns:
        The stages.

    Raises:
        FlowError: if a sequence is too short to move anything in it.
    """
    if config.distinct < SHORTEST:
        raise FlowError(f"distinct is {config.distinct}: pass at least {SHORTEST} symbols a sequence")
    return [Stage(name, functools.partial(train, config, name)) for name in SETTINGS]


def plan(config: Config) -> str:
    """Return what is about to be run and what it costs."""
    runs = config.seeds * sum(len(setting.arms) for setting in SETTINGS.values())
    flops = transformers.step_flops(config.batch, config.task.length, config.width, BLOCKS)
    return transformers.planned(runs, config.steps, flops)


def train(config: Config, name: str, workspace: Path) -> transformers.Arrays:
    """Train all arms of a setting in one kernel.

    Args:
        config: settings of the run.
        name: of the setting.
        workspace: of the stage.

    Returns:
        What `problem.observe` reads, axes (arm, seed, save, ...), and the save steps.
    """
    build = functools.partial(
        problem.build,
        task=config.task,
        evaluated=config.evaluated,
        auxiliary=config.auxiliary,
        lead=config.lead,
        gone=config.gone,
        width=config.width,
        layers=BLOCKS,
        heads=config.heads,
        positions=SETTINGS[name].positions,
    )
    method = Descent(
        transformers.adamw,
        steps=config.steps,
        save_at=config.save_at,
        hyperparameters={"learning_rate": config.learning_rate},
        batches=Draw(config.task, config.batch),
    )
    axes = {"arm": Batched(list(SETTINGS[name].arms)), "seed": range(config.seeds)}
    ds = transformers.train(build, axes, method, problem.observe, workspace, SEED)
    return transformers.values(ds, *SAVED) | {"step": config.save_at}
