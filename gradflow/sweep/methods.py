"""How the members of a sweep are trained: by the flow, or by an optimiser."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import diffrax
import jax
import numpy as np
from jaxtyping import Array, Float, Key, PyTree

from gradflow.descent.ensemble import gradient_descent_ensemble
from gradflow.errors import FlowError, nearest, shown
from gradflow.flow import Crossing, gradient_flow_ensemble
from gradflow.sweep.build import Built
from gradflow.sweep.grid import Members
from gradflow.trajectory import Trajectory


@dataclasses.dataclass(frozen=True, eq=False)
class Flow:
    """The gradient flow; arguments as in `gradient_flow_ensemble`.

    `t1` and the numbers in `rates` may be names of axes: each member then takes its own value.

    Attributes:
        t1: horizon.
        ts: save times `(T,)`, the same for all members; None saves at the end only.
        t0: start.
        stop: `stop(t, model, args) -> bool`, ends a member early.
        event: a `Crossing`, ends a member at its time.
        rates: positive multipliers, as in `gradient_flow`.
        trainable: which leaves move, as in `gradient_flow`.
        solver: name of a solver, or one of Diffrax's.
        rtol: relative tolerance; None for the default of the dtype.
        atol: absolute tolerance; None for rtol / 1000.
        max_steps: steps after which a member ends with a code.
        lanes: members that advance together; None chooses for the machine.
    """

    t1: float | str
    ts: Float[Array, " T"] | np.ndarray | None = None
    t0: float = 0.0
    stop: Callable | None = None
    event: Crossing | None = None
    rates: PyTree | None = None
    trainable: PyTree | None = None
    solver: str | diffrax.AbstractSolver = "auto"
    rtol: float | None = None
    atol: float | None = None
    max_steps: int = 1_000_000
    lanes: int | None = None

    unit: ClassVar[str] = "gradient-flow time"
    needs_keys: ClassVar[bool] = False

    def axes(self) -> Iterator[str]:
        """Yield the names of axes that the method reads."""
        yield from _names((self.t1, self.rates))

    def times(self) -> np.ndarray | None:
        """Return the coordinate of the saves, None where members end at times of their own."""
        if self.ts is not None:
            return np.asarray(self.ts, float).reshape(-1)
        own = isinstance(self.t1, str) or self.stop is not None or self.event is not None
        return None if own else np.array([self.t1], float)

    def saves(self) -> int:
        """Return the number of saves of a member."""
        return 1 if self.ts is None else np.size(self.ts)

    def run(
        self,
        built: Built,
        members: Members,
        observe: Callable | None,
        *,
        keys: Key[Array, " M"],
        threads: int | None,
        devices: list[Any] | None,
    ) -> Trajectory:
        """Run all members of a chunk.

        Args:
            built: what the builder returned for them.
            members: their points.
            observe: what is saved.
            keys: not used.
            threads: of the host; None for all cores.
            devices: to spread the members over; None for the default one.

        Returns:
            The trajectory, member axis first.
        """
        del keys
        return gradient_flow_ensemble(
            built.loss,
            built.model,
            built.args,
            in_axes=built.in_axes,
            t1=_filled(self.t1, members),
            t0=self.t0,
            ts=self.ts,
            observe=observe,
            rates=_filled(self.rates, members),
            trainable=self.trainable,
            solver=self.solver,
            rtol=self.rtol,
            atol=self.atol,
            max_steps=self.max_steps,
            stop=self.stop,
            event=self.event,
            lanes=self.lanes,
            threads=threads,
            devices=devices,
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Descent:
    """An optimiser of Optax; arguments as in `gradient_descent_ensemble`.

    Attributes:
        optimizer: a gradient transformation; with `hyperparameters`, the function that makes it, such as `optax.sgd`.
        steps: how many.
        save_at: save steps `(T,)`; None saves at the end only.
        hyperparameters: name -> number, or the name of an axis whose values the members take.
        trainable: which leaves move, as in `gradient_descent`.
        batches: minibatches, as in `gradient_descent`; the key of a member's point decides them.
        stop: `stop(step, model, args) -> bool`, ends a member early.
        lanes: members that advance together; None chooses for the machine.
    """

    optimizer: Any
    steps: int
    save_at: Any = None
    hyperparameters: Mapping[str, float | str] | None = None
    trainable: PyTree | None = None
    batches: Callable | int | None = None
    stop: Callable | None = None
    lanes: int | None = None

    unit: ClassVar[str] = "optimiser steps"

    @property
    def needs_keys(self) -> bool:
        """Whether a run draws minibatches."""
        return self.batches is not None

    def axes(self) -> Iterator[str]:
        """Yield the names of axes that the method reads."""
        yield from _names(self.hyperparameters)

    def times(self) -> np.ndarray | None:
        """Return the coordinate of the saves, None where members end at steps of their own."""
        if self.save_at is not None:
            return np.asarray(self.save_at, int).reshape(-1)
        return np.array([self.steps]) if self.stop is None else None

    def saves(self) -> int:
        """Return the number of saves of a member."""
        return 1 if self.save_at is None else np.size(self.save_at)

    def run(
        self,
        built: Built,
        members: Members,
        observe: Callable | None,
        *,
        keys: Key[Array, " M"],
        threads: int | None,
        devices: list[Any] | None,
    ) -> Trajectory:
        """Run all members of a chunk.

        Args:
            built: what the builder returned for them.
            members: their points.
            observe: what is saved.
            keys: for the minibatches.
            threads: of the host; None for all cores.
            devices: to spread the members over; None for the default one.

        Returns:
            The trajectory, member axis first.
        """
        return gradient_descent_ensemble(
            built.loss,
            built.model,
            self.optimizer,
            built.args,
            in_axes=built.in_axes,
            hyperparameters=_filled(self.hyperparameters, members),
            steps=self.steps,
            save_at=self.save_at,
            observe=observe,
            trainable=self.trainable,
            batches=self.batches,
            key=keys if self.needs_keys else None,
            stop=self.stop,
            lanes=self.lanes,
            threads=threads,
            devices=devices,
        )


Method = Flow | Descent


def check_method(method: Any, axes: Mapping[str, Any]) -> None:
    """Refuse what is no method, and numbers that name no axis.

    Args:
        method: what was passed as `method`.
        axes: the axes of the sweep by name.

    Raises:
        FlowError: naming what is wrong.
    """
    if not isinstance(method, Flow | Descent):
        raise FlowError(f"method is {shown(method)}: give gf.Flow(t1=...) or gf.Descent(optimizer, steps=...)")
    times: Any = method.ts if isinstance(method, Flow) else method.save_at
    if np.ndim(times) > 1:
        name = "ts" if isinstance(method, Flow) else "save_at"
        raise FlowError(f"{name} has shape {np.shape(times)}: save times are the same for all members, shape (T,)")
    for name in method.axes():
        if name not in axes:
            raise FlowError(f"method names the axis {name!r}, which there is not{nearest(name, axes)}")
    if isinstance(method, Flow) and isinstance(method.t1, str):
        _check_horizons(method.t1, axes[method.t1].values, method.t0)


def _check_horizons(name: str, values: tuple, t0: float) -> None:
    """Refuse a horizon that no flow can have, before the chunks that come before it have run."""
    for value in values:
        if not (isinstance(value, int | float) and t0 < value < math.inf):
            raise FlowError(f"axis {name!r}, the horizons, holds {shown(value)}: give finite numbers above t0 = {t0:g}")


def _names(tree: PyTree) -> Iterator[str]:
    yield from (leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, str))


def _filled(tree: PyTree, members: Members) -> PyTree:
    """Replace names of axes by the members' values."""
    values = members.shared | members.varied
    return jax.tree.map(lambda leaf: values[leaf] if isinstance(leaf, str) else leaf, tree)
