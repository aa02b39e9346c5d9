"""The audit of a run as a table: law, residual, tolerance, holds; and what does not apply, with the reason."""

import dataclasses
import html
from collections.abc import Iterator


@dataclasses.dataclass(frozen=True)
class Row:
    """A law that was checked.

    Attributes:
        law: its number in `gradflow.laws.polarization`, or `-` for a law without one.
        statement: what it says, in a few words.
        residual: the largest along the run.
        tolerance: what it is held against.
    """

    law: str
    statement: str
    residual: float
    tolerance: float

    @property
    def holds(self) -> bool:
        """Whether the residual is within the tolerance; NaN is not."""
        return self.residual <= self.tolerance


@dataclasses.dataclass(frozen=True)
class Skipped:
    """A law whose conditions the run does not meet.

    Attributes:
        law: its number.
        statement: what it says.
        reason: the condition that is missing.
    """

    law: str
    statement: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Audit:
    """Which laws a run obeys. `print(audit)` shows it; notebooks show a table.

    Attributes:
        title: what was audited.
        rows: laws that apply.
        skipped: laws that do not, and why.
    """

    title: str
    rows: tuple[Row, ...]
    skipped: tuple[Skipped, ...]

    @property
    def holds(self) -> bool:
        """Whether every law that applies holds."""
        return all(row.holds for row in self.rows)

    def __getitem__(self, law: str) -> tuple[Row, ...]:
        """Return the rows of one law by its number, for instance `audit["1"]`."""
        return tuple(row for row in self.rows if row.law == law)

    def __str__(self) -> str:
        """Return the table as plain text."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        names = [entry.statement for entry in (*self.rows, *self.skipped)]
        width = max(map(len, ["statement", *names]))
        yield self.title
        yield f"{'law':>5}  {'statement':<{width}}  {'residual':>9}  {'tolerance':>9}  holds"
        yield "-" * (width + 34)
        for row in self.rows:
            verdict = "yes" if row.holds else "NO"
            yield f"{row.law:>5}  {row.statement:<{width}}  {row.residual:9.1e}  {row.tolerance:9.1e}  {verdict}"
        if self.skipped:
            yield "does not apply"
        for entry in self.skipped:
            yield f"{entry.law:>5}  {entry.statement:<{width}}  {entry.reason}"

    def _repr_html_(self) -> str:
        head = "<tr><th>law</th><th>statement</th><th>residual</th><th>tolerance</th><th>holds</th></tr>"
        rows = "".join(
            f"<tr><td>{row.law}</td><td>{html.escape(row.statement)}</td><td>{row.residual:.1e}</td>"
            f"<td>{row.tolerance:.1e}</td><td>{'yes' if row.holds else '<b>no</b>'}</td></tr>"
            for row in self.rows
        )
        rest = "".join(
            f"<tr><td>{entry.law}</td><td>{html.escape(entry.statement)}</td>"
            f'<td colspan="3">{html.escape(entry.reason)}</td></tr>'
            for entry in self.skipped
        )
        return f"<table><caption>{html.escape(self.title)}</caption>{head}{rows}{rest}</table>"
