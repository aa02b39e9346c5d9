"""`gradient_flow`: the exact gradient flow of any Equinox model through Diffrax."""

import functools
from collections.abc import Callable
from typing import Any

import diffrax
import numpy as np
from jaxtyping import PyTree

from gradflow import activations
from gradflow.callables import check_callable
from gradflow.errors import FlowError, Interrupted, is_traced, shown, whole_number
from gradflow.flow import kernel as kernels
from gradflow.flow import options, solvers
from gradflow.flow.events import Crossing
from gradflow.flow.field import spread_rates
from gradflow.problem import Members, Problem, Structure, split
from gradflow.problem.room import make_room
from gradflow.trajectory import Trajectory, result_name
from gradflow.types import Number

CHECKPOINT_BYTES = 2**27  # memory of the states that reverse mode keeps, for one member


def gradient_flow(
    loss: Callable,
    model: PyTree,
    args: PyTree = None,
    *,
    t1: float,
    t0: float = 0.0,
    ts: Any = None,
    observe: Callable | None = None,
    rates: PyTree | None = None,
    trainable: PyTree | None = None,
    solver: str | diffrax.AbstractSolver = "auto",
    rtol: float | None = None,
    atol: float | None = None,
    max_steps: int = 1_000_000,
    stop: Callable | None = None,
    event: Crossing | None = None,
    adjoint: diffrax.AbstractAdjoint | None = None,
    throw: bool = True,
    progress: bool = False,
) -> Trajectory:
    """Integrate theta' = -M grad L(theta) from `model` to time `t1`.

    The flow is integrated adaptively in the dtype of the model. Numbers (times, tolerances, rates, data, initial
    values) are arguments of the compiled kernel: changing them never compiles again. Under `jit`, `grad` and `vmap`
    nothing is raised: read `result`.

    Args:
        loss: `loss(model, args) -> scalar`. Define it once; hand data through `args`.
        model: any Equinox module.
        args: data of the loss, a pytree of arrays.
        t1: horizon, up to 1e20 and beyond in float64.
        t0: start.
        ts: save times `(T,)`, increasing, within [t0, t1]; the first may be t0. None saves at the end only.
        observe: `observe(t, model, args) -> pytree of arrays`, saved at each of `ts`. None saves the model, with
            arrays that do not move repeated; for large ones observe what you need.
        rates: positive multipliers M: a scalar, a tree prefix of `model`, or `{"leaf name": number}`. A name is the
            last part of a leaf's path or a longer one (`"layers.0.weight"`); leaves that are not named have rate 1.
        trainable: which leaves move, a filter spec as in `equinox.partition`. None: all inexact arrays.
        solver: `"auto"` (Tsit5, and the Chebyshev method while the flow is stiff), `"tsit5"` (explicit, order 5),
            `"chebyshev"` (stiff, any size), `"dopri8"` (order 8, for 1e-10 and below), `"bosh3"` (order 3, for loose
            tolerances), `"kvaerno5"` and `"kvaerno3"` (implicit, small stiff models), or an adaptive Diffrax solver.
        rtol: relative tolerance. None: 1e-8 in float64, 1e-4 in float32 (1e-5, 1e-3 with kinked activations).
        atol: absolute tolerance. None: rtol / 1000.
        max_steps: steps after which the run ends with a code.
        stop: `stop(t, model, args) -> bool`, checked on accepted steps; ends the run.
        event: a `Crossing`; ends the run at the time of the crossing, refined on the dense output.
        adjoint: how reverse mode goes through the solve; None: `diffrax.RecursiveCheckpointAdjoint` with as many states
            as fit in 128 MiB (16 to 1,024 of them). For forward mode (few inputs, many outputs) use
            `diffrax.ForwardMode()`.
        throw: raise a `FlowError` that carries the trajectory when the run fails.
        progress: show a bar (log time for long horizons).

    Returns:
        The trajectory. `stats` counts steps and gradients of the loss; with "auto" and "chebyshev" it also says what
        was chosen and why: `num_chebyshev_steps`, `num_switches`, `stiff_since` (time of the first change to the
        Chebyshev method, infinite if there was none) and `stiffness` (largest spectral radius of the Hessian that was
        seen).

    Raises:
        FlowError: if an argument cannot be used, or the run fails and `throw` is True.
    """
    problem = split(loss, model, args, trainable)
    numbers = kernels.Numbers(
        *options.save_times(t0, t1, ts, problem.dtype),
        *options.tolerances(rtol, atol, problem.dtype, kinked=not is_smooth(problem.structure)),
    )
    kernel = build_kernel(
        problem,
        observe=observe,
        stop=stop,
        event=event,
        solver=solver,
        adjoint=adjoint,
        max_steps=max_steps,
        at_end=ts is None,
    )
    level = checked_level(event, problem.dtype)
    arguments = kernels.Arguments(problem.frozen, spread_rates(rates, model, problem), level)
    traced = is_traced((problem.params, arguments, numbers))
    make_room()
    if progress and not traced:
        end = kernels.run_in_chunks(kernel, problem.params, arguments, numbers)
    else:
        end = kernels.run(kernel, problem.params, arguments, numbers)
    trajectory = Trajectory(
        ts=end.ts,
        observed=problem.stack(end.observed, len(end.ts)) if observe is None else end.observed,
        valid=end.valid,
        final=problem.model(end.params),
        t_final=end.t,
        result=end.result,
        stats=end.stats | end.totals,
    )
    if throw and not traced:
        raise_failure(trajectory)
    return trajectory


@functools.lru_cache
def is_smooth(structure: Structure) -> bool:
    """Return whether the model holds no kinked activation; once for each structure, since it walks the model."""
    nothing: list = [None] * len(structure.names)
    return activations.smooth(structure.join(nothing, nothing)[0])


def build_kernel(
    problem: Problem | Members,
    *,
    observe: Callable | None,
    stop: Callable | None,
    event: Crossing | None,
    solver: str | diffrax.AbstractSolver,
    adjoint: diffrax.AbstractAdjoint | None = None,
    max_steps: int,
    at_end: bool,
) -> kernels.Kernel:
    """Check all that picks the kernel of a flow, and put it together; see `gradient_flow` for the arguments.

    Args:
        problem: one run, or the members of an ensemble.
        observe: what is saved.
        stop: when a run ends early.
        event: a crossing that ends it.
        solver: name or solver.
        adjoint: how reverse mode goes through the solve; None for the default.
        max_steps: of a run.
        at_end: whether only the end is saved.

    Returns:
        The kernel.

    Raises:
        FlowError: if one of them cannot be used.
    """
    _check_callables(observe, stop, event)
    _check_adjoint(adjoint)
    return kernels.Kernel(
        structure=problem.structure,
        observe=observe,
        stop=stop,
        crossing=event.fn if event else None,
        direction=event.direction if event else None,
        solver=solvers.resolve(solver, problem.size, _stage_loop(adjoint)),
        adjoint=checkpoints(problem.state_bytes) if adjoint is None else adjoint,
        max_steps=whole_number("max_steps", max_steps),
        at_end=at_end,
    )


def checked_level(event: Crossing | None, dtype: Any, members: int | None = None) -> Number:
    """Return the level of an event, one a member of an ensemble, or 0 without one; refuse one that is not finite."""
    level = options.number("event.level", event.level if event else 0.0, dtype, members)
    if not is_traced(level) and not np.isfinite(level).all():
        raise FlowError(f"event.level is {shown(np.asarray(level).tolist())}: it must be finite")
    return level


def _check_callables(observe: Callable | None, stop: Callable | None, event: Crossing | None) -> None:
    """Refuse what cannot be called along a run."""
    if not isinstance(event, Crossing | None):
        raise FlowError(f"event is {shown(event)}: give gradflow.Crossing(fn, level)")
    if event is not None and not isinstance(event.direction, bool | None):
        raise FlowError(
            f"event.direction is {shown(event.direction)}: give True (upwards), False (downwards) or None (both)"
        )
    for name, function in (("observe", observe), ("stop", stop), ("event.fn", event.fn if event else None)):
        if function is not None:
            check_callable(name, function)


def _check_adjoint(adjoint: diffrax.AbstractAdjoint | None) -> None:
    if not isinstance(adjoint, diffrax.AbstractAdjoint | None):
        raise FlowError(f"adjoint is {shown(adjoint)}: give a Diffrax adjoint such as diffrax.ForwardMode()")


def _stage_loop(adjoint: diffrax.AbstractAdjoint | None) -> solvers.Loop:
    """Return the kind of the loops inside a step that an adjoint can differentiate."""
    if adjoint is None or isinstance(adjoint, diffrax.RecursiveCheckpointAdjoint):
        return "checkpointed"
    return "lax" if isinstance(adjoint, diffrax.ForwardMode) else "bounded"


def checkpoints(state_bytes: int) -> diffrax.AbstractAdjoint:
    """Return the adjoint that keeps as many states as fit; Diffrax's own count looks at `max_steps` alone.

    A state is the parameters and their velocity.
    """
    fitting = CHECKPOINT_BYTES // (2 * state_bytes)
    return diffrax.RecursiveCheckpointAdjoint(checkpoints=min(max(fitting, 16), 1024))


def raise_failure(trajectory: Trajectory) -> None:
    """Raise the one-line error of a run that ended badly, with the trajectory attached."""
    name = result_name(trajectory.result)
    if name == "interrupted":
        raise Interrupted(trajectory)
    if name not in ("successful", "event_occurred"):
        at = f"at t = {float(trajectory.t_final):.6g} after {int(trajectory.stats['num_steps'])} steps"
        raise FlowError(f"the flow ended with {name!r} {at}: {trajectory.message}", trajectory)
    if name == "event_occurred" and not bool(trajectory.valid.any()):
        raise FlowError(
            f"ts[0] = {float(trajectory.ts[0]):g} lies after the end of the flow: `stop` or `event` came at "
            f"t = {float(trajectory.t_final):.6g}, so nothing was saved; add earlier save times or read `final`",
            trajectory,
        )
