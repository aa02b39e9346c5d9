"""Timing, and what a benchmark reports."""

import dataclasses
import os
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        name: what was measured.
        value: the number.
        unit: of the number.
        aim: what the number should be, or an empty string.
        first: seconds of the first call, compiling included, where there is one.
        note: against what it was measured, and the check that both give the same answer.
    """

    name: str
    value: float
    unit: str
    aim: str = ""
    first: float | None = None
    note: str = ""


def ready(value: Any) -> Any:
    """Wait until every array of a result is there."""
    return jax.block_until_ready(value)


def first_call(call: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of a first call and its seconds, compiling included."""
    begin = time.perf_counter()
    result = ready(call())
    return result, time.perf_counter() - begin


def warm(*calls: Callable[[], Any], repeats: int = 100) -> list[tuple[float, float]]:
    """Return the best and the median seconds of each call; they take turns, so that other load hits all alike."""
    seconds: list[list[float]] = [[] for _ in calls]
    for _ in range(repeats):
        for call, mine in zip(calls, seconds, strict=True):
            begin = time.perf_counter()
            ready(call())
            mine.append(time.perf_counter() - begin)
    return [(min(mine), statistics.median(mine)) for mine in seconds]


def machine() -> dict[str, Any]:
    """Describe the machine and the versions, without names or paths."""
    import diffrax
    import equinox
    import numpy
    import optax

    device = jax.devices()[0]
    return {
        "python": platform.python_version(),
        "jax": jax.__version__,
        "diffrax": diffrax.__version__,
        "equinox": equinox.__version__,
        "optax": optax.__version__,
        "numpy": numpy.__version__,
        "system": platform.system(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "device": f"{device.platform} ({device.device_kind})",
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()
