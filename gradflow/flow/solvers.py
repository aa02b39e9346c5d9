"""Runge-Kutta steps written out stage by stage.

Diffrax stacks the stages of a step and contracts them with the tableau, which compiles badly on a CPU: written out,
each stage is one fused sum and the same step costs a half to a fifth. Tableau, dense output and results are Diffrax's.
"""

from typing import ClassVar

import diffrax
import jax
import jax.numpy as jnp
from jax import lax

from gradflow.errors import FlowError, unknown

IMPLICIT_LIMIT = 500  # parameters above which an implicit solver's dense Hessian is refused


class Tsit5(diffrax.AbstractAdaptiveSolver):
    """Tsitouras' 5(4) pair, first stage reused, with its stage sums written out.

    Usable in `diffrax.diffeqsolve` like `diffrax.Tsit5`, to which it agrees within rounding.
    """

    term_structure: ClassVar = diffrax.AbstractTerm
    interpolation_cls: ClassVar = diffrax.Tsit5.interpolation_cls
    tableau: ClassVar = diffrax.Tsit5.tableau

    def order(self, terms):
        """Return the order of convergence."""
        del terms
        return 5

    def init(self, terms, t0, t1, y0, args):
        """Evaluate the first stage; later steps take it from the last stage before."""
        del t1
        return terms.vf(t0, y0, args)

    def func(self, terms, t0, y0, args):
        """Evaluate the field."""
        return terms.vf(t0, y0, args)

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        """Advance one step; see `diffrax.AbstractSolver.step`."""
        dt = t1 - t0
        first = solver_state
        if made_jump is not False:
            first = lax.cond(made_jump, lambda: terms.vf(t0, y0, args), lambda: solver_state)
        stages, y1 = [first], y0
        for weights, c in zip(self.tableau.a_lower, self.tableau.c, strict=True):
            y1 = _add(y0, dt, weights, stages)
            stages.append(terms.vf(t0 + float(c) * dt, y1, args))
        error = jax.tree.map(lambda *k: dt * _sum(self.tableau.b_error, k), *stages)
        k = jax.tree.map(lambda *k: _times(dt, jnp.stack(k)), *stages)
        return y1, error, {"y0": y0, "y1": y1, "k": k}, stages[-1], diffrax.RESULTS.successful


def _sum(weights, stages):
    """Return the weighted sum of stages; the last stage's own row is the solution's (first same as last)."""
    return sum(float(w) * k for w, k in zip(weights, stages, strict=False) if w)


def _add(y0, dt, weights, stages):
    return jax.tree.map(lambda y, *k: y + _times(dt, _sum(weights, k)), y0, *stages)


def _times(dt, slope):
    """Return dt * slope; a slope that is not finite has no derivative by dt, which is the plain product's 0 * NaN."""
    return jnp.where(jnp.isfinite(slope), dt, lax.stop_gradient(dt)) * slope


_BY_NAME = {
    "auto": Tsit5(),
    "tsit5": Tsit5(),
    "dopri8": diffrax.Dopri8(),
    "kvaerno5": diffrax.Kvaerno5(),
    "kvaerno3": diffrax.Kvaerno3(),
}


def resolve(solver: str | diffrax.AbstractSolver, size: int) -> diffrax.AbstractSolver:
    """Return the Diffrax solver for a name or an instance.

    Args:
        solver: `"auto"`, `"tsit5"`, `"dopri8"`, `"kvaerno3"`, `"kvaerno5"`, or an adaptive Diffrax solver.
        size: number of moving parameters.

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
            f"above {IMPLICIT_LIMIT} parameters use an explicit one (solver='tsit5')"
        )
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
    if not isinstance(solver, Tsit5 | diffrax.AbstractERK) or tableau is None:
        return jnp.full_like(num_steps, -1)
    reused = int(tableau.fsal)  # the last stage of a step is the first of the next
    return (len(tableau.b_sol) - reused) * num_steps + (2 if first else 0)
