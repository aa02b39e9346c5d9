"""The compiled flow: one `diffeqsolve` for each structure, with every number as an argument."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from gradflow.flow import events, solvers
from gradflow.flow.controller import ControllerState, FlowController
from gradflow.flow.field import guarded_velocity, velocity
from gradflow.flow.norms import norm
from gradflow.problem import Structure, check_loss
from gradflow.problem.room import note_kernel
from gradflow.progress import bar
from gradflow.trajectory import blank, is_successful, observed_arrays
from gradflow.types import RESULTS, Number

CHUNK = 2048  # steps between two updates of the progress bar
POWER_ITERATIONS = 16
STABILITY_LIMIT = 2.0  # step size times spectral radius near which explicit Runge-Kutta methods of order 5 to 8 sit


@dataclasses.dataclass(frozen=True)
class Kernel:
    """All that picks a compiled flow: the structure of the problem and what is done along the way.

    `at_end` says that only the end is saved, wherever it comes; there are no save times then.
    """

    structure: Structure
    observe: Callable | None
    stop: Callable | None
    crossing: Callable | None
    direction: bool | None
    solver: diffrax.AbstractAdaptiveSolver
    adjoint: diffrax.AbstractAdjoint
    max_steps: int
    at_end: bool


class Arguments(NamedTuple):
    """What the field and the events read besides the moving arrays.

    The anchor is set when a run starts: moving arrays at which the loss is finite.
    """

    frozen: list[Array]
    rates: list[Number] | None
    level: Number
    anchor: list[Array] | None = None


class Numbers(NamedTuple):
    """Horizon, save times and tolerances."""

    t0: Number
    t1: Number
    ts: Number
    rtol: Number
    atol: Number


class Resume(NamedTuple):
    """What a later chunk needs to go on exactly where this one ended."""

    solver_state: PyTree
    controller_state: ControllerState


class End(NamedTuple):
    """State and savings at the end of a run or of a chunk; `stats` count the chunk, `totals` the run so far."""

    params: list[Array]
    t: Float[Array, ""]
    ts: Float[Array, " T"]
    observed: PyTree
    valid: Bool[Array, " T"]
    result: RESULTS
    stats: dict[str, Any]
    totals: dict[str, Any]
    resume: Resume | None


@functools.partial(jax.jit, static_argnums=0, static_argnames="chunked")
def run(
    kernel: Kernel,
    params: list[Array],
    arguments: Arguments,
    numbers: Numbers,
    resume: Resume | None = None,
    *,
    chunked: bool = False,
) -> End:
    """Integrate from `params` over `[t0, t1]`, or over `max_steps` steps of it."""
    note_kernel()
    # Diffrax marks the rows it has not saved by infinity, which NumPy cannot cast to integers without a warning.
    with jax.default_matmul_precision("highest"), np.errstate(invalid="ignore"):
        check_loss(kernel.structure, params, arguments.frozen)
        solution = _solve(kernel, params, arguments, numbers, resume, chunked)
        return _end(kernel, params, arguments, numbers, solution, resume is None, chunked)


def _solve(kernel, params, arguments, numbers, resume, chunked) -> diffrax.Solution:
    subs = [diffrax.SubSaveAt(t1=True)]
    if not kernel.at_end:
        subs.append(diffrax.SubSaveAt(ts=_usable_ts(numbers)[0], fn=functools.partial(_observe, kernel)))
    return diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, y, args: guarded_velocity(kernel.structure, y, args.frozen, args.rates, args.anchor)),
        kernel.solver,
        numbers.t0,
        numbers.t1,
        None if resume is None else resume.controller_state.dt,
        params,
        arguments._replace(anchor=jax.lax.stop_gradient(params)),
        saveat=diffrax.SaveAt(subs=subs, controller_state=True, solver_state=chunked or _chooses(kernel)),
        stepsize_controller=FlowController(
            rtol=numbers.rtol,
            atol=numbers.atol,
            keep=kernel.crossing is not None,
            budget=gradient_budget(kernel),
        ),
        event=events.build(kernel.structure, kernel.stop, kernel.crossing, kernel.direction),
        adjoint=kernel.adjoint,
        max_steps=kernel.max_steps,
        throw=False,
        solver_state=None if resume is None else resume.solver_state,
        controller_state=None if resume is None else resume.controller_state,
    )


def _usable_ts(numbers: Numbers) -> tuple[Float[Array, " T"], Bool[Array, " T"]]:
    """Return save times that Diffrax takes, and which of them are those asked for.

    Traced times cannot be refused before the run, and a kernel must not raise: a time outside the horizon or smaller
    than one before it gives a row that is not valid.
    """
    ts = jnp.asarray(numbers.ts)
    within = jnp.clip(jnp.where(jnp.isnan(ts), numbers.t0, ts), numbers.t0, numbers.t1)
    ordered = jax.lax.cummax(jax.lax.stop_gradient(within))
    asked = ts == ordered
    return jnp.where(asked, ts, ordered), asked


def _observe(kernel: Kernel, t, params, arguments: Arguments):
    if kernel.observe is None:
        return params
    return observed_arrays(kernel.observe, t, *kernel.structure.join(params, arguments.frozen))


def _end(kernel, params, arguments, numbers, solution, first: bool, chunked: bool) -> End:
    t_end, final = _last_state(solution)
    ts, observed, valid = _saved(kernel, params, final, t_end, arguments, numbers, solution, first)
    state: ControllerState = solution.controller_state
    stats = {name: solution.stats[name] for name in ("num_steps", "num_accepted_steps", "num_rejected_steps")}
    totals = {}
    if _chooses(kernel):
        stats["num_gradients"] = state.gradients + (2 if first else 0)  # which choose the first step
        chosen = solution.solver_state
        totals = solvers.choice_stats(chosen.choice, chosen.stabilised_steps, chosen.seen)
        state = dataclasses.replace(state, gradients=jnp.zeros_like(state.gradients))  # the next chunk counts its own
    else:
        steps = jnp.asarray(solution.stats["num_steps"])
        stats["num_gradients"] = solvers.count_gradients(kernel.solver, steps, first)
    return End(
        params=final,
        t=t_end,
        ts=ts,
        observed=observed,
        valid=valid,
        result=_result(kernel, params, final, arguments, solution, state, first),
        stats=stats,
        totals=totals,
        resume=Resume(solution.solver_state, state) if chunked else None,
    )


def gradient_budget(kernel: Kernel) -> int | None:
    """Return the gradients that `max_steps` stands for where steps differ in cost: those of explicit steps."""
    return min(solvers.EXPLICIT_GRADIENTS * kernel.max_steps, 2**31 - 2**20) if _chooses(kernel) else None


def _chooses(kernel: Kernel) -> bool:
    return isinstance(kernel.solver, solvers.Auto)


def _last_state(solution) -> tuple[Float[Array, ""], list[Array]]:
    """Return time and state at the end; of a run that failed, those after its last accepted step."""
    end, accepted = (solution.ts[0][0], [y[0] for y in solution.ys[0]]), solution.controller_state.accepted
    if accepted is None:
        return end
    good = is_successful(RESULTS.promote(solution.result))
    return jax.tree.map(lambda a, b: jnp.where(good, a, b), end, accepted)


def _saved(kernel, params, final, t_end, arguments, numbers, solution, first: bool):
    """Return save times, what was observed there, and which of them were reached."""
    if kernel.at_end:
        row = _observe(kernel, t_end, final, arguments)
        return t_end[None], jax.tree.map(lambda x: x[None], row), jnp.ones(1, bool)
    observed, valid = solution.ys[1], jnp.isfinite(solution.ts[1]) & _usable_ts(numbers)[1]
    if first:  # the state at t0 is known exactly, and exists even if the run ends before its first step
        at_start = numbers.ts[0] == numbers.t0
        initial = _observe(kernel, numbers.t0, params, arguments)
        observed = jax.tree.map(lambda x, x0: x.at[0].set(jnp.where(at_start, x0, x[0])), observed, initial)
        valid = valid.at[0].set(valid[0] | at_start)
    return numbers.ts, blank(observed, valid), valid


def _result(kernel, params, final, arguments, solution, state, first: bool) -> RESULTS:
    """Name what ended the run; Diffrax's own codes cannot say it."""
    code = RESULTS.promote(solution.result)
    stuck = (code == RESULTS.dt_min_reached) & state.nonfinite
    code = RESULTS.where(stuck, RESULTS.nonfinite_loss, code)
    code = RESULTS.where((code == RESULTS.internal_error) & state.kinked, RESULTS.kink, code)
    if not isinstance(kernel.solver, diffrax.AbstractImplicitSolver):
        out_of_steps = code == RESULTS.max_steps_reached
        if _chooses(kernel):  # which has measured it
            stiff = out_of_steps & solvers.held_by_stability(solution.solver_state.choice)
        else:
            stiff = is_stiff(kernel, final, arguments, out_of_steps, state.dt)
        code = RESULTS.where(stiff, RESULTS.stiff, code)
    if first:
        start = velocity(kernel.structure, params, arguments.frozen, arguments.rates)
        finite = jnp.stack([jnp.isfinite(v).all() for v in start]).all()
        code = RESULTS.where(finite, code, RESULTS.nonfinite_start)
    return code


def is_stiff(kernel, params, arguments, out_of_steps, dt) -> Bool[Array, ""]:
    """Return whether the step size sits at the stability limit, by power iteration on differences of the field."""

    def field(y):
        return velocity(kernel.structure, y, arguments.frozen, arguments.rates)

    def spectral_radius():
        base, root_eps = field(params), jnp.sqrt(jnp.finfo(dt.dtype).eps)
        size = root_eps * (1 + norm(params))

        def body(_, carry):
            direction, length = carry  # kept at length one: its powers would overflow
            moved = field([p + size * d / length for p, d in zip(params, direction, strict=True)])
            change = [(m - b) / size for m, b in zip(moved, base, strict=True)]
            return change, jnp.maximum(norm(change), jnp.finfo(dt.dtype).tiny)

        start = [jnp.cos(jnp.arange(p.size, dtype=p.dtype)).reshape(p.shape) for p in params]
        return jax.lax.fori_loop(0, POWER_ITERATIONS, body, (start, norm(start)))[1]

    radius = jax.lax.cond(out_of_steps, spectral_radius, lambda: jnp.zeros_like(dt))
    return out_of_steps & (radius * dt > STABILITY_LIMIT)


def run_in_chunks(kernel: Kernel, params: list[Array], arguments: Arguments, numbers: Numbers) -> End:
    """Run as `run` does, some thousand steps at a time, with a progress bar between; Ctrl-C ends with a code."""
    end = None
    with bar("flow", total=1.0) as show:
        try:
            while end is None or _is_unfinished(kernel, end):
                chunk = dataclasses.replace(kernel, max_steps=min(CHUNK, _steps_left(kernel, end)))
                end = _continue(chunk, params, arguments, numbers, end)
                show(_fraction(numbers, end.t), f"t = {float(end.t):.3g}, {_steps(end)} steps")
        except KeyboardInterrupt:
            if end is None:
                raise
            end = end._replace(result=RESULTS.interrupted)
    return end


def _continue(chunk: Kernel, params, arguments, numbers: Numbers, before: End | None) -> End:
    if before is None:
        return run(chunk, params, arguments, numbers, chunked=True)
    later = numbers._replace(t0=before.t, ts=jnp.maximum(numbers.ts, before.t))
    after = run(chunk, before.params, arguments, later, before.resume, chunked=True)

    stats = jax.tree.map(jnp.add, before.stats, after.stats)
    if chunk.at_end:
        return after._replace(stats=stats)

    def rows(old, new):
        return jnp.where(before.valid.reshape((-1,) + (1,) * (new.ndim - 1)), old, new)

    return after._replace(
        ts=before.ts,
        observed=jax.tree.map(rows, before.observed, after.observed),
        valid=before.valid | after.valid,
        stats=stats,
    )


def _is_unfinished(kernel: Kernel, end: End) -> bool:
    """Return whether a run stands where it does only because its chunk was used up."""
    used_up = bool((end.result == RESULTS.max_steps_reached) | (end.result == RESULTS.stiff))
    return used_up and _steps_left(kernel, end) > 0


def _steps_left(kernel: Kernel, end: End | None) -> int:
    """Return how many steps a run has left, or what its gradients leave of them."""
    if end is None:
        return kernel.max_steps
    left, budget = kernel.max_steps - _steps(end), gradient_budget(kernel)
    if budget is None:
        return left
    return min(left, -(-(budget - int(end.stats["num_gradients"])) // solvers.EXPLICIT_GRADIENTS))


def _steps(end: End) -> int:
    return int(end.stats["num_steps"])


def _fraction(numbers: Numbers, t) -> float:
    """Return progress in log time, which is how a flow to a long horizon spends its steps."""
    t0, t, t1 = float(numbers.t0), float(t), float(numbers.t1)
    scale = min(max(1e-3 * (t1 - t0), 1e-300), 1.0)
    return float(np.log1p((t - t0) / scale) / np.log1p((t1 - t0) / scale))
