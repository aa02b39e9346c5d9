"""Solvers by name, and what they cost."""

import diffrax
import jax.numpy as jnp

from gradflow.errors import FlowError, unknown
from gradflow.flow.solvers.auto import Auto
from gradflow.flow.solvers.chebyshev import Chebyshev, Loop
from gradflow.flow.solvers.explicit import AbstractUnrolled, Bosh3, Dopri8, Tsit5

IMPLICIT_LIMIT = 500  # parameters above which an implicit solver's dense Hessian is refused

_BY_NAME = {
    "auto": Auto(),
    "chebyshev": Auto(always_stabilised=True),
    "tsit5": Tsit5(),
    "bosh3": Bosh3(),
    "dopri8": Dopri8(),
    "kvaerno5": diffrax.Kvaerno5(),
    "kvaerno3": diffrax.Kvaerno3(),
}


def resolve(
    solver: str | diffrax.AbstractSolver, size: int, loop: Loop = "checkpointed"
) -> diffrax.AbstractAdaptiveSolver:
    """Return the Diffrax solver for a name or an instance.

    Args:
        solver: `"auto"`, `"chebyshev"`, `"tsit5"`, `"bosh3"`, `"dopri8"`, `"kvaerno3"`, `"kvaerno5"`, or an adaptive
            Diffrax solver.
        size: number of moving parameters.
        loop: how a loop over stages is to be differentiated.

    Returns:
        The solver.

    Raises:
        FlowError: if the name is unknown, the solver has no error estimate, or it is implicit and the model too large.
    """
    if isinstance(solver, str):
        if solver.lower() not in _BY_NAME:
            raise unknown("solver", solver, _BY_NAME)
        solver = _BY_NAME[solver.lower()]
    if not isinstance(solver, diffrax.AbstractAdaptiveSolver):
        raise FlowError(f"solver is {solver!r}: give a name or an adaptive Diffrax solver such as diffrax.Dopri8()")
    if isinstance(solver, diffrax.AbstractImplicitSolver) and size > IMPLICIT_LIMIT:
        raise FlowError(
            f"solver {type(solver).__name__} is implicit and would build a dense {size} x {size} Hessian at each step; "
            f"above {IMPLICIT_LIMIT} parameters use solver='chebyshev', which needs none, or 'auto'"
        )
    if isinstance(solver, Chebyshev):
        return Auto(always_stabilised=True, max_stages=solver.max_stages, loop=loop)
    if isinstance(solver, Auto):
        return Auto(solver.always_stabilised, solver.max_stages, loop)
    return solver


def count_gradients(solver: diffrax.AbstractSolver, num_steps, first: bool = True):
    """Return how many gradients of the loss a run or a chunk of it took.

    Args:
        solver: of the run.
        num_steps: steps, accepted or not.
        first: whether the run starts here: two gradients choose the first step, and one of them is the first stage.

    Returns:
        The count; -1 for solvers whose cost is not a function of the number of steps.
    """
    tableau = getattr(solver, "tableau", None)
    if not isinstance(solver, AbstractUnrolled | diffrax.AbstractERK) or tableau is None:
        return jnp.full_like(num_steps, -1)
    reused = int(tableau.fsal)  # the last stage of a step is the first of the next
    return (len(tableau.b_sol) - reused) * num_steps + (2 if first else 0)
