"""Room for one more kernel: a process that compiles many runs out of memory maps."""

import threading

from gradflow.devices import release_kernels

_compiled = threading.Event()


def note_kernel() -> None:
    """Say that a kernel is being compiled; called from inside it, where Python comes once for each."""
    _compiled.set()


def make_room() -> None:
    """Drop compiled kernels where there are too many; called before a run.

    Counting the memory maps takes up to a quarter of a second, so it is done only if a kernel was compiled since.
    """
    if _compiled.is_set():
        _compiled.clear()
        release_kernels()
