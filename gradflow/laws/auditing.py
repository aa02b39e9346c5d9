"""`audit`: every law whose conditions a run or a model meets, checked on what the run saved."""

from collections.abc import Callable
from typing import Any

from jaxtyping import PyTree

from gradflow.laws.checks import entries
from gradflow.laws.conditions import Run
from gradflow.laws.table import Audit, Row, Skipped
from gradflow.trajectory import Trajectory


def audit(
    trajectory: Trajectory | Any,
    loss: Callable,
    args: PyTree = None,
    *,
    rates: PyTree | None = None,
    initial: Any = None,
    rtol: float | None = None,
) -> Audit:
    """Check a run, or one model, against every law whose conditions it meets.

    Numbers are those of `gf.laws.polarization`; an attention layer under the cross-entropy meets the laws of
    `gf.laws.routing` instead, checked at up to 16 of the saved models.

    Drifts are measured from the first saved row, or from `initial`. Residuals are the largest along the run. Linear
    invariants are held to 1e-12 in float64 (1e-4 in float32) times the size of their terms, identities at one model to
    1e-10 (1e-3), what depends on the integration to 100 rtol times the size of its terms; limits carry the
    tolerance of their law. All float arrays of the model are taken to move at their rates.

    Args:
        trajectory: what `gradient_flow` returned with observe=None. Of a gradient descent, only the laws that are
            exact there are checked. A model on its own is checked for what holds at a single model.
        loss: the loss of the run.
        args: its data.
        rates: as given to the run.
        initial: the model at t = 0, if the first save time is a later one; laws about the start need it.
        rtol: of the run, which a trajectory does not know. None: the default of `gradient_flow` for smooth maps.

    Returns:
        The table: `print(audit)`, `audit.rows`, `audit.skipped`, `audit.holds`.

    Raises:
        FlowError: if the run saved observables instead of models, saved nothing, or does not fit the arguments.
    """
    run = Run(trajectory, loss, args, rates, initial, rtol)
    found = entries(run)
    rows = sorted((entry for entry in found if isinstance(entry, Row)), key=_number)
    skipped = sorted((entry for entry in found if isinstance(entry, Skipped)), key=_number)
    return Audit(_title(run, trajectory), tuple(rows), tuple(skipped))


def _number(entry: Row | Skipped) -> int:
    first = entry.law.split("-")[0]
    return int(first) if first else 0


def _title(run: Run, trajectory: Any) -> str:
    name = getattr(run.loss, "__name__", type(run.loss).__name__)
    if run.is_point:
        return f"one {type(run.models).__name__}, loss {name}"
    unit = "steps" if run.is_descent else "t"
    kind = "descent" if run.is_descent else "flow"
    span = f"{unit} = {run.ts[0]:g} .. {run.ts[-1]:g}, {len(run.ts)} rows"
    return f"{kind} of {type(run.models).__name__}, loss {name}, {span}, ended {trajectory.status}"
