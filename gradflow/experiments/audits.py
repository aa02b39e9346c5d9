"""The audit of a run as arrays of a stage, and back: it is stored with the run and shown in the report."""

import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gradflow import plot
from gradflow.experiments.base import Results, Stage, Verdict, judge
from gradflow.flow import gradient_flow, log_times
from gradflow.laws import Audit, Row, Skipped, audit
from gradflow.plot.style import styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

WIDTH = 60  # letters of a law in one line of a figure
FIRST_TIME, SAVES = 1e-2, 16  # of a flow that is audited


def stage(problem: Callable[[], tuple[Callable, Any, Any]], *, t1: float, rtol: float) -> Stage:
    """Return the stage that checks one run of an experiment against every law whose conditions it meets.

    Args:
        problem: gives loss, model and data.
        t1: horizon of the flow.
        rtol: its relative tolerance.

    Returns:
        The stage, by the name of "audit".
    """

    def compute(workspace: Path) -> Mapping[str, np.ndarray]:
        del workspace
        loss, model, args = problem()
        ts = np.append(0.0, log_times(FIRST_TIME, t1, SAVES - 1))
        run = gradient_flow(loss, model, args, t1=t1, ts=ts, rtol=rtol, solver="tsit5", throw=False)
        return stored(audit(run, loss, args, rtol=rtol))

    return Stage("audit", compute)


def of_setting(make: Callable[..., Any], *choice: Any) -> tuple[Callable, Any, Any]:
    """Return loss, model and data of a setting of the paper, one of `gradflow.models.paper`."""
    setting = make(*choice)
    return setting.loss, setting.model, setting.args


def stored(checked: Audit) -> dict[str, np.ndarray]:
    """Return the arrays that a stage keeps of an audit, all names beginning with `audit_`.

    Args:
        checked: the audit of one run.

    Returns:
        One entry a law, first those that apply; a law that does not has NaN as its residual, and a reason.
    """
    entries = (*checked.rows, *checked.skipped)
    return {
        "audit_title": np.array([checked.title]),
        "audit_law": np.array([entry.law for entry in entries], dtype=str),
        "audit_statement": np.array([entry.statement for entry in entries], dtype=str),
        "audit_residual": np.array([getattr(entry, "residual", np.nan) for entry in entries], dtype=float),
        "audit_tolerance": np.array([getattr(entry, "tolerance", np.nan) for entry in entries], dtype=float),
        "audit_reason": np.array([getattr(entry, "reason", "") for entry in entries], dtype=str),
    }


def loaded(arrays: Mapping[str, np.ndarray]) -> Audit:
    """Return the audit that a stage has kept."""
    names = ("law", "statement", "residual", "tolerance", "reason")
    rows, skipped = [], []
    for law, statement, residual, tolerance, reason in zip(*(arrays[f"audit_{name}"] for name in names), strict=True):
        if str(reason):
            skipped.append(Skipped(str(law), str(statement), str(reason)))
        else:
            rows.append(Row(str(law), str(statement), float(residual), float(tolerance)))
    return Audit(str(arrays["audit_title"][0]), tuple(rows), tuple(skipped))


def all_audits(results: Results) -> Iterator[Audit]:
    """Yield the audits of all stages that have one."""
    yield from (loaded(arrays) for arrays in results.values() if "audit_title" in arrays)


def verdict(checked: Audit) -> Verdict:
    """Return whether all laws that apply hold, some of them, or none."""
    return judge(*(row.holds for row in checked.rows))


def measured(checked: Audit) -> str:
    """Return how many laws hold, and how near the worst is to its tolerance, as text."""
    held = sum(row.holds for row in checked.rows)
    # A law that counts violations has no tolerance.
    worst = max((row.residual / row.tolerance for row in checked.rows if row.tolerance > 0), default=0.0)
    return f"{held} of {len(checked.rows)} laws of the audit hold; the largest residual is {worst:.1e} of its tolerance"


@styled
def draw(checked: Audit) -> "MatplotlibFigure":
    """Draw the residual of each law that applies beside its tolerance."""
    names = [textwrap.fill(row.statement, WIDTH) for row in checked.rows]
    lines = max((name.count("\n") + 1 for name in names), default=1)
    figure, ax = plot.new_figure(1, 1, width=plot.TWO_COLUMNS, height=0.8 + len(names) * (0.08 + 0.13 * lines))
    plot.residuals(names, [row.residual for row in checked.rows], [row.tolerance for row in checked.rows], ax=ax)
    return figure
