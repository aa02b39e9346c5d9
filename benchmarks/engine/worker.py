"""Measurements in a process of their own: with fewer cores, with nothing compiled, or with their own peak memory."""

import dataclasses
import importlib
import json
import os
import subprocess
import sys
from typing import Any

MARK = "engine-lines "


def in_new_process(module: str, function: str, *args: Any, cores: int = 0) -> list:
    """Return the lines that `module.function(*args)` returns in a new process.

    Args:
        module: dotted name.
        function: returns lines.
        args: what JSON can hold.
        cores: how many the process may use, also passed as `cores`; 0 leaves all.

    Returns:
        The lines.

    Raises:
        RuntimeError: if the process fails.
    """
    from benchmarks.engine.line import Line

    environment = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    if cores:
        environment |= {"OMP_NUM_THREADS": str(cores), "OPENBLAS_NUM_THREADS": str(cores)}
    task = json.dumps([module, function, list(args), cores])
    command = [sys.executable, "-m", "benchmarks.engine.worker", task]
    process = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
    if process.returncode:
        raise RuntimeError(f"{module}.{function} ended with code {process.returncode}")
    last = next(line for line in reversed(process.stdout.splitlines()) if line.startswith(MARK))
    return [Line(**line) for line in json.loads(last.removeprefix(MARK))]


def main(task: str) -> None:
    """Restrict this process to its cores before anything counts them, then measure."""
    module, function, args, cores = json.loads(task)
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-cores:])
    import jax

    jax.config.update("jax_enable_x64", True)
    options = {"cores": cores} if cores else {}
    lines = getattr(importlib.import_module(module), function)(*args, **options)
    print(MARK + json.dumps([dataclasses.asdict(line) for line in lines]))


if __name__ == "__main__":
    main(sys.argv[1])
