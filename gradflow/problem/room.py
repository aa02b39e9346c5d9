"""Room for one more kernel: a process that compiles many runs out of memory maps."""

import threading

from gradflow.devices import release_kernels

_compiled = threading.Event()
_era = 0


def note_kernel() -> None:
    """Say that a kernel is being compiled; called where Python comes once for each."""
    _compiled.set()


def make_room() -> None:
    """Drop compiled kernels where there are too many; called before a run.

    Counting the memory maps takes up to a quarter of a second, so it is done only if a kernel was compiled since.
    """
    global _era
    if _compiled.is_set():
        _compiled.clear()
        if release_kernels():
            _era += 1


def era() -> int:
    """Return a number that changes when kernels are dropped: what was compiled before is compiled anew."""
    return _era
