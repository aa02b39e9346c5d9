"""Phases in which only some leaves move, one after the other, over and over: E steps and M steps."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jaxtyping import Array, Int, PyTree

from gradflow.descent.optimizer import is_transformation
from gradflow.errors import FlowError, shown, whole_number
from gradflow.schedules.leaves import REST, labels, names_of


class Phase(NamedTuple):
    """A stretch of a run in which only the named leaves move.

    Attributes:
        names: of leaves, as in `rates` of `gradient_flow`.
        length: steps of a descent, or time of a flow.
    """

    names: tuple[str, ...] | str
    length: float


class AlternatingState(NamedTuple):
    """Steps done, and the state of the optimiser in each phase."""

    count: Int[Array, ""]
    inner: tuple[PyTree, ...]


def alternating(
    phases: Sequence[Phase | tuple], optimizer: optax.GradientTransformation
) -> optax.GradientTransformationExtraArgs:
    """Return an optimiser that moves the leaves of one phase at a time, and starts again after the last.

    ```python
    em = gf.schedules.alternating([(("w_q", "w_k"), 10), (("w_v", "w_o"), 50)], optax.sgd(0.01))
    ```

    A phase hands its leaves alone to the optimiser, so that momenta of the others wait; each phase has a state of its
    own. Leaves in no phase never move. `alternating_flow` with lengths eta * steps is the flow it follows.

    Args:
        phases: names of leaves and number of steps of each.
        optimizer: any Optax transformation that does not search along a line.

    Returns:
        The transformation. Equal ones share a compiled kernel.

    Raises:
        FlowError: if a phase is not names and whole steps; and, when a run starts, if a name fits no leaf.
    """
    if not is_transformation(optimizer):
        raise FlowError(f"optimizer is {shown(optimizer)}: give an Optax transformation such as optax.sgd(0.1)")
    checked = check_phases(phases)
    steps = tuple(Phase(p.names, whole_number(f"phases[{i}].length", p.length)) for i, p in enumerate(checked))
    update: Any = functools.partial(_update, steps, optimizer)
    return optax.GradientTransformationExtraArgs(functools.partial(_init, steps, optimizer), update)


def check_phases(phases: Any) -> tuple[Phase, ...]:
    """Return phases as such.

    Args:
        phases: pairs of names and length.

    Raises:
        FlowError: if there are none, or one is no pair or has no positive length.
    """
    try:
        listed = tuple(Phase(*phase) for phase in phases)
    except TypeError:
        listed = ()
    if not listed:
        raise FlowError(f'phases is {shown(phases)}: give pairs of names and length, such as [("w_v", 10), ("w_o", 5)]')
    return tuple(_checked(i, phase) for i, phase in enumerate(listed))


def _checked(index: int, phase: Phase) -> Phase:
    names = names_of(f"phases[{index}].names", phase.names)
    if not names:
        raise FlowError(f"phases[{index}].names is empty: name the leaves that move")
    try:
        good = 0 < float(phase.length) < np.inf
    except (TypeError, ValueError):
        good = False
    if not good:
        raise FlowError(f"phases[{index}].length is {shown(phase.length)}: it must be positive and finite")
    return Phase(names, float(phase.length))


def _init(phases: tuple[Phase, ...], optimizer: optax.GradientTransformation, params: PyTree) -> AlternatingState:
    parts = [_part(phase, params, f"phases[{i}]") for i, phase in enumerate(phases)]
    return AlternatingState(jnp.zeros((), jnp.int32), tuple(map(optimizer.init, parts)))


def _update(
    phases: tuple[Phase, ...],
    optimizer: optax.GradientTransformation,
    updates: PyTree,
    state: AlternatingState,
    params: PyTree | None = None,
    **extra: Any,
) -> tuple[PyTree, AlternatingState]:
    inner = optax.with_extra_args_support(optimizer)

    def branch(index: int) -> Any:
        def step(_: None) -> tuple[PyTree, tuple[PyTree, ...]]:
            own, gradient = state.inner[index], _part(phases[index], updates)
            moved, own = inner.update(gradient, own, None if params is None else _part(phases[index], params), **extra)
            moved = jax.tree.map(lambda new, old: new.astype(old.dtype), moved, gradient)
            still = jax.tree.map(jnp.zeros_like, updates)
            return eqx.combine(moved, still), (*state.inner[:index], own, *state.inner[index + 1 :])

        return step

    ends = np.cumsum([phase.length for phase in phases])
    now = jnp.searchsorted(jnp.asarray(ends, jnp.int32), state.count, side="right")
    moved, states = lax.switch(now, [branch(i) for i in range(len(phases))], None)
    return moved, AlternatingState((state.count + 1) % int(ends[-1]), states)


def _part(phase: Phase, params: PyTree, argument: str | None = None) -> PyTree:
    """Return what `equinox.filter` would leave of the parameters: those that move in this phase."""
    named = labels(tuple(phase.names), params, argument)
    return jax.tree.map(lambda leaf, name: None if name == REST else leaf, params, named)
