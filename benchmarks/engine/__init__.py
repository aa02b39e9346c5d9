"""The engine against its peers: ensembles, stiff flows, networks, memory and compiling.

`python -m benchmarks.engine` measures everything and takes the better part of an hour; `--only` names pieces, `--quick`
makes them small.
"""

import importlib
import sys
from collections.abc import Sequence

PIECES = ("sweep", "homogeneous", "stiff_sweep", "stiff_flow", "network", "memory", "compiling")


def measure(pieces: Sequence[str], quick: bool = False) -> None:
    """Measure pieces one after the other, store each line as soon as it is there, and print one table.

    Args:
        pieces: names out of `PIECES`.
        quick: small sizes, stored apart.
    """
    import jax
    from rich.console import Console

    from benchmarks.engine.line import describe, store, table

    jax.config.update("jax_enable_x64", True)
    description, rows = describe(), []
    for piece in pieces:
        for row in importlib.import_module(f"benchmarks.engine.{piece}").run(quick):
            rows.append(row)
            store(rows, description, quick)
    wide = None if sys.stdout.isatty() else 240  # a file has no width
    Console(width=wide).print(table(rows, description))
