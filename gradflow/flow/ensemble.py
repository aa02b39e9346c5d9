"""`gradient_flow_ensemble`: many flows at once, each at its own pace."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from gradflow.devices import places
from gradflow.errors import FlowError, Interrupted, is_traced, whole_number
from gradflow.flow import kernel as kernels
from gradflow.flow import options, pool, solvers
from gradflow.flow.events import Crossing
from gradflow.flow.field import spread_rates
from gradflow.flow.solve import build_kernel, checked_level, is_smooth
from gradflow.problem import Members, split_members
from gradflow.problem.room import make_room
from gradflow.progress import bar, no_bar
from gradflow.trajectory import Trajectory, is_successful, result_name
from gradflow.types import RESULTS

CACHE_BYTES = 2**17  # of a core's own cache that the lanes may fill
MOST_LANES = 64
ACCELERATOR_LANES = 4096


def gradient_flow_ensemble(
    loss: Callable,
    models: PyTree,
    args: PyTree = None,
    *,
    in_axes: Any = (eqx.if_array(0), None),
    t1: Any,
    t0: Any = 0.0,
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
    lanes: int | None = None,
    threads: int | None = None,
    devices: Sequence[Any] | None = None,
    throw: bool = False,
    progress: bool = False,
) -> Trajectory:
    """Integrate the flow of every member of an ensemble, each at its own pace.

    A few lanes advance together in one compiled kernel; a lane whose member has ended, for whatever reason, loads the
    next. No member waits for a slower one, and a NaN in one reaches no other. All cores are used, each by a kernel of
    its own, or all devices. Nothing is raised for a member: read `result`.

    At a fixed number of lanes results are the same bit for bit; between numbers of lanes they agree to about 10 rtol.
    Under `jit`, `grad` and `vmap` the members advance in lock-step through Diffrax, so that they can be differentiated.

    Args:
        loss: `loss(model, args) -> scalar` of one member.
        models: a model whose array leaves carry the member axis, such as `equinox.filter_vmap` returns.
        args: data of the loss, shared by all members or with a member axis.
        in_axes: the member axis of `(models, args)`, any prefix tree that `equinox.filter_vmap` takes.
        t1: horizon, one for all or `(M,)`.
        t0: start, one for all or `(M,)`.
        ts: save times `(T,)` for all or `(M, T)`. None saves at the end only.
        observe: `observe(t, model, args) -> pytree of arrays` of one member, saved at each of `ts`. None saves the
            model.
        rates: positive multipliers as in `gradient_flow`; each a number or `(M,)`.
        trainable: which leaves move, a filter spec as in `equinox.partition`, the same for all members.
        solver: as in `gradient_flow`. With "auto" each member changes method by itself; members of the Chebyshev
            method share lanes without waiting for the one with most stages.
        rtol: relative tolerance, as in `gradient_flow`.
        atol: absolute tolerance. None: rtol / 1000.
        max_steps: steps after which a member ends with a code.
        stop: `stop(t, model, args) -> bool`, checked on accepted steps; ends that member.
        event: a `Crossing`; ends a member at the time of its crossing. Its level may be `(M,)`.
        lanes: members that advance together in one kernel. None: as many as fit a core's cache, or keep an
            accelerator busy.
        threads: kernels at a time on a CPU. None: one a core.
        devices: JAX devices, an independent pool on each. None: all local devices.
        throw: raise a `FlowError` with the trajectory if any member failed.
        progress: show a bar.

    Returns:
        A trajectory with the member axis in front of everything: `ts` and `valid` `(M, T)`, leaves of `observed`
        `(M, T, ...)`, of `final` `(M, ...)`, `t_final` and `result` `(M,)`, counts in `stats` `(M,)`.
        `stats["efficiency"]` is the part of the lanes' iterations that advanced a member.

    Raises:
        FlowError: if an argument cannot be used, or a member failed and `throw` is True.
        Interrupted: on Ctrl-C, with the members that had ended in its trajectory.
    """
    members = split_members(loss, models, args, trainable, in_axes)
    t0, t1, times = options.member_times(t0, t1, ts, members.dtype, members.count)
    tolerances = options.tolerances(rtol, atol, members.dtype, kinked=not is_smooth(members.structure))
    kernel = build_kernel(
        members, observe=observe, stop=stop, event=event, solver=solver, max_steps=max_steps, at_end=ts is None
    )
    level = checked_level(event, members.dtype, members.count)
    held = pool.Held(
        [x for x, flag in zip(members.frozen, members.batched, strict=True) if flag],
        spread_rates(rates, models, members, members.count),
        level,
        t1,
        times,
    )
    if is_traced((members.params, members.frozen, held, t0, tolerances)):
        return _in_lock_step(kernel, members, held, t0, tolerances)
    make_room()
    lanes = _lanes(kernel, members, devices) if lanes is None else whole_number("lanes", lanes)
    with bar("ensemble", total=members.count) if progress else no_bar() as show:
        block = pool.Block(members.params, held, t0, np.asarray(members.count, np.int32))
        shared = pool.Shared(
            [x for x, flag in zip(members.frozen, members.batched, strict=True) if not flag], *tolerances
        )
        gathered, interrupted = pool.run_blocks(
            pool.pool_kernel(kernel, members.batched, lanes),
            block,
            shared,
            threads=threads,
            devices=devices,
            show=lambda ended: show(ended, f"{ended:,} of {members.count:,} members"),
        )
    trajectory = _assemble(members, kernel, held, gathered)
    if interrupted:
        raise Interrupted(trajectory)
    if throw:
        _raise_failure(trajectory)
    return trajectory


def _lanes(kernel: kernels.Kernel, members: Members, devices: Any) -> int:
    """Return as many lanes as a core's cache holds, or as keep an accelerator busy; a power of two."""
    if places(1, devices)[0].platform != "cpu":
        return min(ACCELERATOR_LANES, 1 << (members.count - 1).bit_length())
    tableau = getattr(kernel.solver, "tableau", solvers.Tsit5.tableau)
    arrays = len(tableau.b_sol) + 5  # stages, and states before, after and between
    fitting = max(CACHE_BYTES // (arrays * members.state_bytes + members.own_bytes), 1)
    wanted = 1 << (members.count - 1).bit_length()
    return min(1 << (int(fitting).bit_length() - 1), MOST_LANES, max(wanted, 1))


def _assemble(members: Members, kernel: kernels.Kernel, held: pool.Held, gathered: pool.Gathered) -> Trajectory:
    # Unlike `jnp.asarray`, this takes NumPy's memory over without a copy.
    params, t, observed, valid, codes, stats = jax.device_put(
        (gathered.params, gathered.t, gathered.observed, gathered.valid, gathered.result, gathered.stats)
    )
    lead = (members.count, valid.shape[1])
    return Trajectory(
        ts=t[:, None] if kernel.at_end else cast(Any, held.ts),
        observed=members.models(observed, lead) if kernel.observe is None else observed,
        valid=valid,
        final=members.models(params),
        t_final=t,
        result=eqx.tree_at(lambda r: r._value, RESULTS.successful, codes),
        stats={**stats, "efficiency": gathered.efficiency},
    )


def _in_lock_step(kernel: kernels.Kernel, members: Members, held: pool.Held, t0, tolerances) -> Trajectory:
    """Run all members through Diffrax at once, which can be traced and differentiated."""

    def one(params, frozen, held, t0):
        arguments = kernels.Arguments(frozen, held.rates, held.level)
        return kernels.run(kernel, params, arguments, kernels.Numbers(t0, held.t1, held.ts, *tolerances))

    end = jax.vmap(one, in_axes=(0, members.axes, 0, 0))(members.params, members.frozen, held, t0)
    stats = end.stats | end.totals
    steps = stats["num_steps"]
    observed = end.observed
    return Trajectory(
        ts=end.ts,
        observed=members.models(observed, end.ts.shape) if kernel.observe is None else observed,
        valid=end.valid,
        final=members.models(end.params),
        t_final=end.t,
        result=end.result,
        stats={**stats, "efficiency": steps.sum() / jnp.maximum(members.count * steps.max(), 1)},
    )


def _raise_failure(trajectory: Trajectory) -> None:
    """Raise one line that counts the members that failed and names the first."""
    failed = np.flatnonzero(~np.asarray(is_successful(trajectory.result)))
    if failed.size:
        first, names = int(failed[0]), result_name(trajectory.result)
        raise FlowError(
            f"{failed.size} of {names.size} members failed, the first is member {first} with '{names[first]}' at "
            f"t = {float(trajectory.t_final[first]):.6g}: {trajectory.message[first]}",
            trajectory,
        )
