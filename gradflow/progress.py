"""Progress bars, drawn by the host between kernels; nothing is printed from inside a kernel."""

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def bar(label: str, total: float) -> Iterator[Callable[[float, str], None]]:
    """Show a bar on the terminal (standard error) or in the notebook while the block runs; elsewhere nothing.

    Args:
        label: what is running.
        total: the value at which the bar is full.

    Yields:
        `show(done, note)`, to be called with the absolute progress and a short text.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"), TimeRemainingColumn())
    # A chunk may take longer than the half minute over which the time left is estimated otherwise.
    with Progress(*columns, transient=True, speed_estimate_period=math.inf, **_place()) as progress:
        task = progress.add_task(label, total=total, note="compiling")
        yield lambda done, note="": progress.update(task, completed=done, note=note)


@contextlib.contextmanager
def no_bar() -> Iterator[Callable[[float, str], None]]:
    """Stand in for `bar` where nothing is to be shown.

    Yields:
        A function that does nothing.
    """
    yield lambda done, note="": None


@contextlib.contextmanager
def stages(label: str) -> Iterator[Callable[[str, int, int], None]]:
    """Show which part of an experiment runs while the block does, where `bar` would show one.

    Args:
        label: what is running.

    Yields:
        `show(part, done, parts)`: what runs next, after how many parts, of how many.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    text = TextColumn("{task.description}"), TextColumn("{task.fields[part]}", style="dim")
    columns = (SpinnerColumn(), text[0], BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), text[1])
    with Progress(*columns, transient=True, **_place()) as progress:
        task = progress.add_task(label, total=None, part="")
        yield lambda part, done, parts: progress.update(task, total=parts, completed=done, part=part)


def _place() -> dict[str, Any]:
    """Return where a bar is drawn, and whether: never into a file or a pipe, and never among results on stdout."""
    from rich.console import Console

    console = Console(stderr=True)
    return {"console": console, "disable": not (console.is_interactive or console.is_jupyter)}
