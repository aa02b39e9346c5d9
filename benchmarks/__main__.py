"""Run the benchmarks, print one table, and keep it as JSON in benchmarks/results.

Ratios come from one run, in which what is compared takes turns. Nothing fails because a time is long.
"""

import argparse
import dataclasses
import json
import platform
from pathlib import Path

import jax
from rich.console import Console
from rich.table import Table

from benchmarks import engine

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--cold", action="store_true", help="also time `gradflow run polarization` in a new process")
    parser.add_argument("--quick", action="store_true", help="small sizes, of the engine's pieces alone")
    engine_names = ["engine", *(f"engine-{piece}" for piece in engine.PIECES)]
    names = [
        "flow",
        "descent",
        "imports",
        "gap",
        "head_gradients",
        "sticky_markov",
        "diagnostics",
        "transformer",
        "cold",
        *engine_names,
    ]
    parser.add_argument(
        "--only", nargs="+", choices=names, help="these alone; `engine` takes the better part of an hour"
    )
    options = parser.parse_args()
    asked = options.only or []
    pieces = [piece for piece in engine.PIECES if "engine" in asked or f"engine-{piece}" in asked]
    if pieces:
        engine.measure(pieces, options.quick)
        options.only = [name for name in asked if name not in engine_names]
        if not options.only:
            return

    jax.config.update("jax_enable_x64", True)
    from benchmarks import cold, descent, diagnostics, flow, gap, head_gradients, imports, sticky_markov, transformer
    from benchmarks.measure import machine

    known = {"flow": flow, "descent": descent, "imports": imports, "gap": gap, "head_gradients": head_gradients}
    known |= {"sticky_markov": sticky_markov, "diagnostics": diagnostics, "transformer": transformer}
    if options.cold or "cold" in (options.only or ()):
        known["cold"] = cold
    chosen = options.only or list(known)
    description = machine()
    rows = [row for name in chosen for row in known[name].run()]
    Console().print(_table(rows, description))
    if not options.only:
        _write(rows, description)


def _table(rows, description) -> Table:
    title = "Python {python}, jax {jax}, {cores} cores, {device}"
    table = Table(title=title.format(**description))
    for column in ("", "measured", "aim", "first call", "note"):
        table.add_column(column, justify="right" if column in ("measured", "aim", "first call") else "left")
    for row in rows:
        first = "" if row.first is None else f"{row.first:.2f} s"
        aim = f"{row.aim} {row.unit}".strip() if row.aim else ""
        table.add_row(row.name, f"{row.value:.3g} {row.unit}".strip(), aim, first, row.note)
    return table


def _write(rows, description) -> None:
    RESULTS.mkdir(exist_ok=True)
    python = ".".join(platform.python_version_tuple()[:2])
    content = {"machine": description, "rows": [dataclasses.asdict(row) for row in rows]}
    path = RESULTS / f"{python}-{description['jax']}.json"
    path.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
