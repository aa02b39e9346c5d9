"""What `import gradflow` costs over `import diffrax`."""

import statistics
import subprocess
import sys
import time

from benchmarks.measure import Row

REPEATS = 7


def _seconds(module: str) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", f"import {module}"], check=True)
    return time.perf_counter() - begin


def run() -> list[Row]:
    """Measure both in turns, each in a new interpreter; the first round fills the file cache and is dropped."""
    rounds = [(_seconds("gradflow"), _seconds("diffrax"), _seconds("sys")) for _ in range(REPEATS + 1)][1:]
    gradflow, diffrax, nothing = (statistics.median(column) for column in zip(*rounds, strict=True))
    ratio = (gradflow - nothing) / (diffrax - nothing)
    note = f"gradflow {gradflow:.3g} s, diffrax {diffrax:.3g} s, interpreter {nothing:.2g} s; medians of {REPEATS}"
    return [Row("import of gradflow over import of diffrax", ratio, "x", "<= 1.3", None, note)]
