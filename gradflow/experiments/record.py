"""What `config.json` says of a run: settings, versions, device, and the command that does it again."""

import dataclasses
import shlex
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import jax
import numpy as np

from gradflow.experiments.base import Experiment
from gradflow.sweep import machine


def record(experiment: Experiment, config: Any, preset: str) -> dict[str, Any]:
    """Describe a run so that it can be done again, and told from others.

    Args:
        experiment: what is run.
        config: its settings.
        preset: where the settings started from, "quick" or "paper".

    Returns:
        What JSON can hold; two runs are the same when experiment, settings, precision, device and versions are.
    """
    settings = {field.name: plain(getattr(config, field.name)) for field in dataclasses.fields(config)}
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "source": experiment.source,
        "preset": preset,
        "settings": settings,
        "seeds": {name: value for name, value in settings.items() if "seed" in name},
        "precision": str(jax.dtypes.canonicalize_dtype(float)),
        "device": machine.described(),
        "versions": machine.versions(),
        "command": command(experiment, config, preset),
        "started": now(),
        "finished": None,
    }


def command(experiment: Experiment, config: Any, preset: str) -> str:
    """Return the command line that runs these settings: the preset, and what differs from it."""
    start = experiment.config.paper() if preset == "paper" else experiment.config()
    words = ["gradflow", "run", experiment.name, *(["--preset", preset] if preset != "quick" else [])]
    return shlex.join([*words, *changed(config, start)])


def changed(config: Any, start: Any) -> list[str]:
    """Return the options that turn the settings `start` into `config`."""
    words = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if plain(value) != plain(getattr(start, field.name)):
            words += _option(field.name.replace("_", "-"), value)
    return words


def plain(value: Any) -> Any:
    """Return a setting as JSON gives it back: lists for tuples, text for paths, Python's numbers for NumPy's."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain(dataclasses.asdict(value))
    return str(value) if isinstance(value, Path) else value


def now() -> str:
    """Return the local time to the second, with its offset."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


def _option(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, bool):
        yield f"--{name}" if value else f"--no-{name}"
        return
    yield f"--{name}"
    yield from map(str, value) if isinstance(value, list | tuple) else [str(value)]
