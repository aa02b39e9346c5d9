"""`gradflow run polarization` in a new process: wall time and peak memory, compiling included."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.measure import Row


def run() -> list[Row]:
    """Run the command once into an empty folder, with an empty compilation cache."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "XDG_CACHE_HOME": folder}
        environment.pop("JAX_COMPILATION_CACHE_DIR", None)  # it would replace the folder of kernels
        command = [sys.executable, "-m", "gradflow", "run", "polarization", "--out", str(Path(folder) / "out")]
        begin = time.perf_counter()
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        # wait4 reports the peak memory of this one child; that of `getrusage` would be the largest of all children.
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"`gradflow run polarization` ended with code {process.returncode}")
    unit = 1 if sys.platform == "darwin" else 1024  # bytes on macOS, kibibytes on Linux
    name = "`gradflow run polarization`, cold"
    return [
        Row(name, seconds, "s", "< 60"),
        Row("  peak memory", usage.ru_maxrss * unit / 2**30, "GiB", "< 2"),
    ]
