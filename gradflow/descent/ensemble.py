"""`gradient_descent_ensemble`: many descents at once, each with its own numbers and its own end."""

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from gradflow.callables import check_callable
from gradflow.descent import workers
from gradflow.descent.arguments import check_batches, checked_steps
from gradflow.descent.hyperparameters import member_optimizer
from gradflow.descent.kernel import Inputs, Kernel
from gradflow.descent.lane_checkpoint import stored_lanes
from gradflow.descent.lanes import LaneKernel
from gradflow.descent.results import Results
from gradflow.descent.solve import STALLED
from gradflow.devices import places
from gradflow.errors import FlowError, FlowWarning, Interrupted, is_traced, whole_number
from gradflow.problem import Members, on_host, split_members
from gradflow.problem.room import make_room
from gradflow.progress import bar, no_bar
from gradflow.trajectory import Trajectory, is_successful

CACHE = 2**20  # bytes that the lanes of one kernel share: the second-level cache of a core
LARGE_CACHE = 2**28  # the same on an accelerator, where many lanes are needed to keep it busy
MOST_LANES = 128  # more are not faster on a core
FEW_LANES = 8  # a step of these takes hardly longer than one of a single member
ROWS = 2**25  # bytes of saved rows that the lanes of one kernel hold
COPIES = 4  # parameters, gradient, update and the state before: what a step touches of each lane


def gradient_descent_ensemble(
    loss: Callable,
    models: PyTree,
    optimizer: Any,
    args: PyTree = None,
    *,
    in_axes: Any = (eqx.if_array(0), None),
    hyperparameters: Mapping[str, Any] | None = None,
    steps: int,
    save_at: Any = None,
    observe: Callable | None = None,
    trainable: PyTree | None = None,
    batches: Callable | int | None = None,
    key: Key[Array, "..."] | None = None,
    stop: Callable | None = None,
    lanes: int | None = None,
    threads: int | None = None,
    devices: Sequence[Any] | None = None,
    checkpoint: str | Path | None = None,
    throw: bool = False,
    progress: bool = False,
) -> Trajectory:
    """Run up to `steps` updates of an Optax optimiser from each of many models.

    Every member gives what `gradient_descent` gives for it alone, to rounding. A member whose loss becomes NaN reaches
    no other: its code is `nonfinite_loss`, its `final` the last state at which loss and gradient were finite.

    Args:
        loss: `loss(model, args) -> scalar` of one member. Define it once; hand data through `args`.
        models: an Equinox module whose array leaves carry the members along axis 0, as `jax.vmap` of a constructor
            makes it.
        optimizer: an Optax transformation that all members share; or, with `hyperparameters`, a factory of one, such
            as `optax.sgd` or `functools.partial(optax.adam, b2=0.99)`.
        args: data of the loss, shared by all members unless `in_axes` says otherwise.
        in_axes: member axes of `(models, args)`, any tree prefix that `equinox.filter_vmap` takes.
        hyperparameters: name -> number or `(M,)` array, one a member, with which the factory is called inside the
            kernel: new numbers never compile again.
        steps: number of updates, >= 1.
        save_at: steps `(T,)` after which to save, as in `gradient_descent`; shared by all members.
        observe: `observe(step, model, args) -> pytree of arrays` of one member, saved at each of `save_at`. None saves
            the model.
        trainable: which leaves move, a filter spec of one member's model as in `equinox.partition`.
        batches: as in `gradient_descent`.
        key: random key, needed with `batches`: member i draws from `jax.random.fold_in(key, i)`; or typed keys `(M,)`.
        stop: `stop(step, model, args) -> bool` ends a member early, with the code `event_occurred`. It is asked at the
            start and after every update; asking for the loss costs nothing, since the next gradient needs it too.
        lanes: members in one kernel at a time. None: as many as fit the cache of a core. At a fixed number the results
            are the same bit for bit, in whatever order the members come.
        threads: host threads, each with its own lanes, on a CPU. None: one a core.
        devices: JAX devices, independent lanes on each. None: all local devices.
        checkpoint: a folder that keeps the state of the run about every ten seconds, one file a thread; it is made if
            there is none. A later call with the same settings goes on from it at the steps where the members were, bit
            for bit, with any number of threads; `lanes=None` then means the lanes of before.
        throw: raise a `FlowError` that carries the trajectory when a member fails.
        progress: show a bar.

    Returns:
        The trajectory in NumPy arrays with the member axis in front: `ts` and `valid (M, T)`, leaves of `observed
        (M, T, ...)` and of `final (M, ...)`, `t_final` (steps done) and `result (M,)`. `stats` holds arrays `(M,)` and
        `efficiency`, the part of all lane steps that advanced a member.

    Raises:
        FlowError: if an argument cannot be used, or a member fails and `throw` is True.
        Interrupted: on Ctrl-C, with what had finished.
    """
    if is_traced((models, args, hyperparameters, key)):
        raise FlowError("gradient_descent_ensemble was called under jit, grad or vmap: call it outside")
    members = _on_host(split_members(loss, models, args, trainable, in_axes))
    for name, function in (("observe", observe), ("stop", stop)):
        if function is not None:
            check_callable(name, function)
    steps, save_at = checked_steps(steps, save_at)
    check_batches(batches, key, _first_args(members), members=members.count)
    optimizer, names, numbers = member_optimizer(optimizer, hyperparameters, members.count, members.dtype)
    kernel = LaneKernel(Kernel(members.structure, optimizer, observe, batches, names), stop)
    own, shared = _inputs(members, save_at, _keys(batches, key, members.count), numbers)
    where = places(threads, devices)
    make_room()
    work = workers.Work(kernel, members.params, own, shared, steps, lanes=1)
    saved = work.saved_shapes()
    lanes = stored_lanes(checkpoint) if lanes is None and checkpoint is not None else lanes
    work = dataclasses.replace(work, lanes=_lanes(lanes, members, saved, where, is_pool=stop is not None))
    results = Results.allocate(members.params, saved, save_at)
    with bar("descents", total=members.count) if progress else no_bar() as show:
        efficiency, interrupted = workers.run(work, results, where, show, checkpoint)
    trajectory = results.trajectory(members, observe, efficiency)
    if interrupted:
        raise Interrupted(trajectory)
    _warn_stalled(trajectory, members.dtype)
    if throw:
        _raise_failure(trajectory)
    return trajectory


def _on_host(members: Members) -> Members:
    """Return the members as NumPy arrays, which on a CPU are the same memory."""
    return dataclasses.replace(members, params=[*map(on_host, members.params)], frozen=[*map(on_host, members.frozen)])


def _first_args(members: Members) -> PyTree:
    frozen: list[Any] = [x[0] if flag else x for x, flag in zip(members.frozen, members.batched, strict=True)]
    return members.structure.join([x[0] for x in members.params], frozen)[1]


def _inputs(members: Members, save_at: np.ndarray, keys: Any, numbers: tuple) -> tuple[Inputs, Inputs]:
    """Return what each member has for itself, and what all share; each has None where the other has an array."""
    pairs = list(zip(members.frozen, members.batched, strict=True))
    own: list[Any] = [x if flag else None for x, flag in pairs]
    shared: list[Any] = [None if flag else jnp.asarray(x) for x, flag in pairs]
    no_steps: Any = None
    return Inputs(own, no_steps, keys, numbers), Inputs(shared, jnp.asarray(save_at), None)


def _keys(batches: Any, key: Any, count: int) -> Key[Array, " M"] | None:
    if batches is None:
        return None
    return key if key.ndim else jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(count))


def _lanes(lanes: int | None, members: Members, saved: PyTree, where: Sequence[Any], *, is_pool: bool) -> int:
    """Return how many members a kernel holds: those that fit the cache, spread evenly over the places.

    A pool needs several members a lane to fill the lanes of those that stop early.
    """
    if lanes is not None:
        return min(whole_number("lanes", lanes), members.count)
    is_cpu = where[0].platform == "cpu"
    bytes_each = COPIES * members.state_bytes + members.own_bytes
    most = max(1, (CACHE if is_cpu else LARGE_CACHE) // max(1, bytes_each))
    most = min(MOST_LANES, most) if is_cpu else most
    rows_each = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(saved))
    most = min(most, max(FEW_LANES, ROWS // max(1, rows_each)))
    share = -(-members.count // len(where))
    if is_pool:
        return max(1, min(most, max(share // 8, min(FEW_LANES, share))))
    return -(-share // -(-share // most))


def _warn_stalled(trajectory: Trajectory, dtype: np.dtype) -> None:
    stalled = int((trajectory.stats["stalled_fraction"] > STALLED).sum())
    if stalled:
        fix = "they have converged as far as float64 can tell" if dtype == np.float64 else "use float64"
        warnings.warn(
            f"for {stalled} of {len(trajectory.t_final)} members more than {STALLED:.0%} of the last update falls "
            f"below one ulp of the {dtype} parameters: {fix}",
            FlowWarning,
            stacklevel=3,
        )


def _raise_failure(trajectory: Trajectory) -> None:
    failed = np.flatnonzero(~np.asarray(is_successful(trajectory.result)))
    if len(failed):
        first = int(failed[0])
        raise FlowError(
            f"{len(failed)} of {len(trajectory.t_final)} members failed; member {first} ended with "
            f"{str(trajectory.status[first])!r} after {int(trajectory.t_final[first])} steps: "
            f"{trajectory.message[first]} A smaller step size may help.",
            trajectory,
        )
