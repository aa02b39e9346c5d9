"""What is printed: lines, tables of claims, the summary of a sweep."""

import sys
from typing import Any

from gradflow.experiments import Claim, Row
from gradflow.sweep import overview

COLOURS = {"holds": "green", "holds in part": "yellow", "does not hold": "red", "not tested": "dim"}
CARD_WIDTH = 110  # columns below which a claim takes several lines instead of a row
PLAIN_WIDTH = 160  # columns where the output is no terminal


def complain(message: str, code: int) -> int:
    """Print one line on standard error, and return the exit code."""
    print(f"gradflow: {' '.join(message.split())}", file=sys.stderr)
    return code


def say(message: str) -> None:
    """Print lines as they are."""
    console().print(message, soft_wrap=True, highlight=False, markup=False)


def console() -> Any:
    """Return where tables go: the terminal, or lines of a fixed width."""
    from rich.console import Console

    screen = Console()
    return screen if screen.is_terminal else Console(width=PLAIN_WIDTH)


def show_claims(title: str, claims: list[tuple[Claim, Row | None]]) -> None:
    """Print claims and verdicts, beside the recorded verdicts where there are rows of the ledger.

    Args:
        title: of the experiment.
        claims: each claim with its row, or None.
    """
    screen = console()
    screen.print()
    screen.print(title, style="bold", highlight=False, markup=False)
    if screen.width < CARD_WIDTH:
        for claim, row in claims:
            screen.print(_card(claim, row))
    else:
        screen.print(_table(claims))


def _table(claims: list[tuple[Claim, Row | None]]) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, show_lines=True, expand=True, pad_edge=False, header_style="dim")
    for name, ratio in (("claim", 5), ("the paper", 3), ("measured", 5), ("verdict", None), ("control", 4)):
        table.add_column(name, ratio=ratio, min_width=None if ratio else 13)
    for claim, row in claims:
        cells = map(Text, (claim.statement, claim.paper, claim.measured))
        table.add_row(*cells, _verdict(claim, row), Text(claim.control))
    return table


def _card(claim: Claim, row: Row | None) -> Any:
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(ratio=1)
    grid.add_row("", "")
    grid.add_row("claim", Text(claim.statement, style="bold"))
    for name in ("paper", "measured", "control"):
        if getattr(claim, name):
            grid.add_row(name, Text(getattr(claim, name)))
    grid.add_row("verdict", _verdict(claim, row))
    return grid


def _verdict(claim: Claim, row: Row | None) -> Any:
    from rich.text import Text

    text = Text(claim.verdict, style=f"bold {COLOURS[claim.verdict]}")
    if row is not None and not row.agrees:
        text.append(f"\nrecorded: {row.recorded}", style="bold red")
    elif row is not None:
        text.append("\nas recorded", style="dim")
    return text


def show_rows(quantity: str, axis: str | None, rows: list[overview.Row]) -> None:
    """Print the summary of a sweep, one line for each value of its first axis.

    Args:
        quantity: what the numbers are.
        axis: name of the axis, None for all members together.
        rows: of the summary.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="dim")
    table.add_column(axis or "")
    for name in ("runs", f"{quantity}: median", "smallest", "largest", "steps: median", "failed"):
        table.add_column(name, justify="left" if name == "failed" else "right")
    for row in rows:
        numbers = (f"{number:.4g}" for number in (row.median, row.low, row.high, row.steps))
        failed = ", ".join(f"{count} {name}" for name, count in row.failures.items()) or "none"
        label = "all" if row.value is None else _value(row.value)
        style = "bold red" if row.failures else ""
        table.add_row(Text(label, style="bold"), f"{row.members:,}", *numbers, Text(failed, style=style))
    console().print(table)


def _value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
