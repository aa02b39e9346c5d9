"""One line of the table, the table, and its JSON."""

import dataclasses
import json
import os
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.engine.precision import Measured
from benchmarks.measure import machine

RESULTS = Path(__file__).parents[1] / "results"
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_CORETYPE", "XLA_FLAGS")


@dataclasses.dataclass(frozen=True)
class Line:
    """What one method did on one workload.

    Attributes:
        workload: its name, common to the lines that are compared.
        method: which.
        first: seconds of the first call, compiling included.
        warm: seconds of the best later call, or another number with its `unit`.
        unit: of `warm`.
        ratio: how many times more than gradflow, or the number that `aim` is about.
        aim: least (or with "<", largest) ratio or number to reach; empty where there is none.
        steps: mean over members.
        gradients: evaluations of the field, mean over members.
        error: against the reference.
        note: anything else.
    """

    workload: str
    method: str
    first: float | None = None
    warm: float | None = None
    unit: str = "s"
    ratio: float | None = None
    aim: str = ""
    steps: float | None = None
    gradients: float | None = None
    error: float | None = None
    note: str = ""


def lines(workload: str, results: Iterable[Measured]) -> list[Line]:
    """Return one line a method; the first is what the others are compared with."""
    results = list(results)
    base = results[0]
    return [
        Line(
            workload=workload,
            method=measured.method.name,
            first=measured.first,
            warm=measured.warm,
            ratio=None if measured is base else measured.warm / base.warm,
            aim=f"{measured.method.aim:g}" if measured.method.aim else "",
            steps=_mean(measured.outcome.steps),
            gradients=_mean(measured.outcome.gradients),
            error=measured.error,
            note=_note(measured),
        )
        for measured in results
    ]


def _mean(counts: np.ndarray) -> float | None:
    return None if np.any(counts < 0) else float(np.mean(counts))


def _note(measured: Measured) -> str:
    parts = [f"rtol {measured.rtol:.1e}", f"worst {measured.worst:.0e}", f"best of {len(measured.seconds)}"]
    if measured.method.share < 1:
        parts.append(f"1 member in {1 / measured.method.share:.0f}, time scaled")
    return "; ".join(part for part in (*parts, measured.method.note, measured.outcome.note) if part)


def table(rows: Iterable[Line], description: dict[str, Any]) -> Table:
    """Return the table as rich draws it."""
    drawn = Table(title="Python {python}, jax {jax}, {cores} cores, {processor}".format(**description))
    for column in ("workload", "method", "first call", "warm", "ratio", "aim", "steps", "gradients", "error", "note"):
        drawn.add_column(column, justify="left" if column in ("workload", "method", "note") else "right")
    before = None
    for row in rows:
        drawn.add_row(
            row.workload if row.workload != before else "",
            row.method,
            _number(row.first, " s"),
            _number(row.warm, f" {row.unit}"),
            _number(row.ratio),
            row.aim,
            _number(row.steps),
            _number(row.gradients),
            _number(row.error),
            row.note,
        )
        before = row.workload
    return drawn


def _number(value: float | None, unit: str = "") -> str:
    return "" if value is None else f"{value:.3g}{unit}"


def store(rows: Iterable[Line], description: dict[str, Any], quick: bool) -> Path:
    """Write the lines beside those of other workloads that this Python and JAX have measured before.

    Args:
        rows: lines of whole workloads.
        description: the machine.
        quick: small sizes, which are kept apart.

    Returns:
        The file.
    """
    RESULTS.mkdir(exist_ok=True)
    python = ".".join(platform.python_version_tuple()[:2])
    path = RESULTS / f"engine-{'quick-' if quick else ''}{python}-{description['jax']}.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    rows = list(rows)
    for workload in dict.fromkeys(row.workload for row in rows):
        kept[workload] = {
            "machine": description,
            "lines": [dataclasses.asdict(row) for row in rows if row.workload == workload],
        }
    path.write_text(json.dumps(kept, indent=2) + "\n")
    return path


def describe() -> dict[str, Any]:
    """Describe the machine, the peers and the threads of their libraries."""
    from importlib.metadata import PackageNotFoundError, version

    def found(name: str) -> str:
        try:
            return version(name)
        except PackageNotFoundError:
            return "absent"

    peers = {name: found(name) for name in ("scipy", "numba", "torch", "torchode", "torchdiffeq")}
    threads = {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ}
    return {**machine(), **peers, "threads": threads}
