"""Progress bars, drawn by the host between kernels; nothing is printed from inside a kernel."""

import contextlib
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def bar(label: str, total: float) -> Iterator[Callable[[float, str], None]]:
    """Show a bar while the block runs.

    Args:
        label: what is running.
        total: the value at which the bar is full.

    Yields:
        `show(done, note)`, to be called with the absolute progress and a short text.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"), TimeRemainingColumn())
    with Progress(*columns, transient=True) as progress:
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
    """Show on the terminal which part of an experiment runs while the block does; where there is no terminal, nothing.

    Args:
        label: what is running.

    Yields:
        `show(part, done, parts)`: what runs next, after how many parts, of how many.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    text = TextColumn("{task.description}"), TextColumn("{task.fields[part]}", style="dim")
    columns = (SpinnerColumn(), text[0], BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), text[1])
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(label, total=None, part="")
        yield lambda part, done, parts: progress.update(task, total=parts, completed=done, part=part)
