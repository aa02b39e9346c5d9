"""`gradient_descent`: any Optax optimiser, on the save times of the flow."""

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Key, PyTree

from gradflow.callables import check_callable
from gradflow.descent import checkpoint as checkpoints
from gradflow.descent import kernel as kernels
from gradflow.descent.arguments import check_batches, checked_steps
from gradflow.descent.optimizer import canonical
from gradflow.errors import FlowError, FlowWarning, Interrupted, is_traced, whole_number
from gradflow.problem import split
from gradflow.problem.room import make_room
from gradflow.progress import bar, no_bar
from gradflow.trajectory import Trajectory, blank, result_name
from gradflow.types import RESULTS

FIRST_CHUNK = 1  # steps of the first kernel call, which compiles; the second measures the speed
CHUNK_SECONDS = 0.5  # length of later ones: how long Ctrl-C and the progress bar wait
LOOK_SECONDS = 10.0  # how often loss and gradient are evaluated for a state to come back to
STALLED = 0.5  # part of the update that may be lost to rounding before a warning


def gradient_descent(
    loss: Callable,
    model: PyTree,
    optimizer: optax.GradientTransformation,
    args: PyTree = None,
    *,
    steps: int,
    save_at: Any = None,
    observe: Callable | None = None,
    trainable: PyTree | None = None,
    batches: Callable | int | None = None,
    key: Key[Array, ""] | None = None,
    checkpoint: str | Path | None = None,
    throw: bool = True,
    progress: bool = False,
) -> Trajectory:
    """Run `steps` updates of an Optax optimiser from `model`.

    Args:
        loss: `loss(model, args) -> scalar`. Define it once; hand data through `args`.
        model: any Equinox module.
        optimizer: any Optax transformation, schedules included. Equal ones share a compiled kernel;
            `optax.inject_hyperparams` keeps new numbers from compiling again.
        args: data of the loss, a pytree of arrays.
        steps: number of updates, >= 1.
        save_at: steps `(T,)` after which to save, increasing, within [0, steps]; 0 is the start. None: the last.
        observe: `observe(step, model, args) -> pytree of arrays`, saved at each of `save_at`. None saves the model.
        trainable: which leaves move, a filter spec as in `equinox.partition`. None: all inexact arrays.
        batches: None for full batches; a number of rows to draw at each step, with replacement, along axis 0 of every
            array in `args`; or `batches(key, step, args) -> args of that step`. Draws depend on `key` and step alone.
        key: random key, needed with `batches`.
        checkpoint: a file that keeps the run's state about every ten seconds; a later call with the same settings goes
            on from it, bit for bit.
        throw: raise a `FlowError` that carries the trajectory when the run fails.
        progress: show a bar.

    Returns:
        The trajectory; `ts` holds the steps of `save_at`. `stats["stalled_fraction"]` is the part of the update that
        falls below one ulp of the parameters at the end.

    Raises:
        FlowError: if an argument cannot be used, or the run fails and `throw` is True.
    """
    problem = split(loss, model, args, trainable)
    if is_traced((problem.params, problem.frozen)):
        raise FlowError("gradient_descent was called under jit, grad or vmap: call it outside, or use gradient_flow")
    if observe is not None:
        check_callable("observe", observe)
    steps, save_at = checked_steps(steps, save_at)
    check_batches(batches, key, args)
    kernel = kernels.Kernel(problem.structure, canonical(optimizer), observe, batches)
    inputs = kernels.Inputs(problem.frozen, jnp.asarray(save_at), None if batches is None else key)
    make_room()
    state = kernels.start(kernel, problem.params, inputs)
    result = RESULTS.nonfinite_start
    with bar("descent", total=steps) if progress else no_bar() as show:
        run = _Run(kernel, state, inputs, steps, show)
        if run.is_healthy():
            store = None if checkpoint is None else checkpoints.Checkpoint(checkpoint, kernel, state, inputs, steps)
            result = run.go(store)
    trajectory = _assemble(kernel, problem, run.state, inputs, result, float(run.stalled))
    if throw:
        _raise_failure(trajectory)
    return trajectory


def log_steps(steps: int, n: int) -> np.ndarray:
    """Return up to `n` different steps spaced evenly in log k from 1 to `steps`, with step 0 in front.

    Args:
        steps: the last step, >= 1.
        n: how many to ask for; rounding to whole steps can leave fewer.

    Returns:
        Increasing whole steps.

    Raises:
        FlowError: if either is below 1.
    """
    steps, n = whole_number("steps", steps), whole_number("n", n)
    return np.unique(np.concatenate([[0], np.round(np.geomspace(1, steps, n)).astype(np.int64), [steps]]))


class _Run:
    """Calls the kernel for about half a second at a time, so that a bar, a checkpoint and Ctrl-C can come between.

    A call says for nothing whether parameters, and the loss one update before, are finite. A state to come back to is
    looked at more closely, now and then, because that takes as long as a step.

    Attributes:
        state: where the run is.
        stalled: part of the update after the state looked at last that would be lost to rounding.
    """

    def __init__(
        self, kernel: kernels.Kernel, state: kernels.State, inputs: kernels.Inputs, steps: int, show: Callable
    ):
        """Start at a state."""
        self.kernel, self.state, self.inputs, self.steps, self.show = kernel, state, inputs, steps, show
        self.stalled, self.chunk = jnp.array(0.0), FIRST_CHUNK

    def go(self, store: checkpoints.Checkpoint | None) -> RESULTS:
        """Run to the end, to the last healthy state, or until Ctrl-C; the start must be healthy.

        Args:
            store: writes the state now and then, and holds the one to go on from.

        Returns:
            The code.
        """
        result: Any = RESULTS.successful
        if store is not None:
            self.state = store.load(self.state)
        self._mark_healthy()
        try:
            self._to_end(store)
            if not self.is_healthy():
                result = RESULTS.nonfinite_loss
                self._back_to_healthy()
        except KeyboardInterrupt:
            result = RESULTS.interrupted
            if not self.is_healthy():
                self.state = self._healthy._replace(saved=self.state.saved)
        if store is not None and result is not RESULTS.nonfinite_loss:
            store.save(self.state, now=True)
        return result

    def is_healthy(self) -> bool:
        """Return whether parameters, loss and gradient are finite; this takes as long as a step."""
        healthy, self.stalled = kernels.look(self.kernel, self.state, self.inputs)
        return bool(healthy)

    def _mark_healthy(self) -> None:
        """Keep the state to come back to, without rows: those saved after it are written again."""
        self._healthy, self._marked = self.state._replace(saved=()), time.monotonic()

    def _to_end(self, store: checkpoints.Checkpoint | None) -> None:
        """Run until the end, or until loss, gradient or parameters are seen not to be finite."""
        while int(self.state.step) < self.steps:
            self._call(self.steps)
            if not bool(self.state.finite):
                return
            is_due = store is not None and store.clock.is_due()
            if is_due or time.monotonic() - self._marked > LOOK_SECONDS:
                if not self.is_healthy():
                    return
                self._mark_healthy()
                if store is not None:
                    store.save(self.state)

    def _call(self, last: int, *, checked: bool = False) -> None:
        """Take some steps, and choose how many the next call takes."""
        before = int(self.state.step)
        limit = jnp.asarray(min(before + self.chunk, last), self.state.step.dtype)
        begin = time.perf_counter()
        new = jax.block_until_ready(kernels.advance(self.kernel, self.state, self.inputs, limit, checked=checked))
        speed = max(int(new.step) - before, 1) / max(time.perf_counter() - begin, 1e-6)
        self.state, self.chunk = new, max(1, int(CHUNK_SECONDS * speed))
        self.show(int(new.step), f"step {int(new.step):,}")

    def _back_to_healthy(self) -> None:
        """Go back, and up to the last state before any that is not healthy."""
        last = int(self.state.step)
        self.state = self._healthy._replace(saved=self.state.saved)
        while bool(self.state.finite) and int(self.state.step) < last:
            self._call(last, checked=True)
        self.is_healthy()


def _assemble(kernel, problem, state, inputs, result, stalled: float) -> Trajectory:
    count = len(inputs.save_at)
    valid = jnp.arange(count) < state.index
    rows = blank(state.saved, valid)
    stats = {
        "num_steps": int(state.step),
        "num_accepted_steps": int(state.step),
        "num_rejected_steps": 0,
        "num_gradients": int(state.step),
        "stalled_fraction": stalled,
    }
    if stats["stalled_fraction"] > STALLED:
        fix = (
            "has converged as far as float64 can tell"
            if problem.dtype == np.float64
            else "stalls by rounding: use float64"
        )
        warnings.warn(
            f"{stats['stalled_fraction']:.0%} of the last update falls below one ulp of the {problem.dtype} "
            f"parameters: the run {fix}",
            FlowWarning,
            stacklevel=3,
        )
    return Trajectory(
        ts=inputs.save_at,
        observed=problem.stack(rows, count) if kernel.observe is None else rows,
        valid=valid,
        final=problem.model(state.params),
        t_final=state.step,
        result=result,
        stats=stats,
    )


def _raise_failure(trajectory: Trajectory) -> None:
    name = result_name(trajectory.result)
    if name == "interrupted":
        raise Interrupted(trajectory)
    if name != "successful":
        raise FlowError(
            f"the descent ended with {name!r} after {int(trajectory.t_final)} steps: {trajectory.message} "
            "A smaller step size may help.",
            trajectory,
        )
