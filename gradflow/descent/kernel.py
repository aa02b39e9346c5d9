"""The compiled optimiser: steps, saves at any of them, and the point where a run broke."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from gradflow.descent.hyperparameters import build
from gradflow.problem import Structure, check_loss
from gradflow.problem.room import note_kernel
from gradflow.trajectory import observed_arrays


@dataclasses.dataclass(frozen=True)
class Kernel:
    """All that picks a compiled run.

    Attributes:
        structure: of the problem.
        optimizer: an Optax transformation, or a factory of one where there are hyper-parameters.
        observe: what is saved, None for the moving arrays.
        batches: how the data of a step is drawn.
        hyperparameters: names of the numbers that the factory is called with.
    """

    structure: Structure
    optimizer: Any
    observe: Callable | None
    batches: Callable | int | None
    hyperparameters: tuple[str, ...] = ()

    def transformation(self, inputs: "Inputs") -> optax.GradientTransformation:
        """Return the optimiser, built from a member's numbers if it has any."""
        if not self.hyperparameters:
            return self.optimizer
        return build(self.optimizer, dict(zip(self.hyperparameters, inputs.hyperparameters, strict=True)))


class State(NamedTuple):
    """A run at step `step`, with the rows saved so far; enough to go on exactly."""

    params: list[Array]
    optimizer: PyTree
    step: Int[Array, ""]
    saved: PyTree
    index: Int[Array, ""]
    finite: Bool[Array, ""]


class Inputs(NamedTuple):
    """What does not change along a run."""

    frozen: list[Array]
    save_at: Int[Array, " T"]
    key: Key[Array, ""] | None
    hyperparameters: tuple[Float[Array, ""], ...] = ()


class Proposal(NamedTuple):
    """Loss and gradient at a state, the updates they lead to and the optimiser's state after them."""

    value: Float[Array, ""]
    gradient: list[Array]
    updates: list[Array]
    optimizer: PyTree


@functools.partial(jax.jit, static_argnums=0)
def start(kernel: Kernel, params: list[Array], inputs: Inputs) -> State:
    """Initialise the optimiser and allocate the rows to save."""
    note_kernel()
    check_loss(kernel.structure, params, inputs.frozen)
    zero = jnp.zeros((), inputs.save_at.dtype)
    rows = jax.eval_shape(lambda: observe_at(kernel, zero, params, inputs))
    saved = jax.tree.map(lambda x: jnp.zeros((len(inputs.save_at), *x.shape), x.dtype), rows)
    optimizer = kernel.transformation(inputs).init(kernel.structure.moving(params))
    return State(params, optimizer, zero, saved, zero, jnp.array(True))


@functools.partial(jax.jit, static_argnums=0, static_argnames="checked")
def advance(kernel: Kernel, state: State, inputs: Inputs, limit: Int[Array, ""], *, checked: bool = False) -> State:
    """Run to step `limit`, saving on the way.

    Args:
        kernel: structure of the run.
        state: where to go on from.
        inputs: data, save steps and key.
        limit: last step.
        checked: look at loss and gradient after every update, and end before the first that is not finite.

    Returns:
        The state at the end. `finite` says whether the parameters are finite there and the loss was one update before,
        which costs nothing to know; if `checked`, whether loss and gradient are finite there.
    """
    with jax.default_matmul_precision("highest"):
        if checked:
            return lax.while_loop(
                lambda s: ((s.step < limit) | is_due(s, inputs)) & s.finite,
                lambda s: _save(kernel, run_checked(kernel, s, inputs, _next_stop(s, inputs, limit)), inputs),
                state,
            )
        return _advance_unchecked(kernel, state, inputs, limit)


def _advance_unchecked(kernel: Kernel, state: State, inputs: Inputs, limit: Int[Array, ""]) -> State:
    def step(carry: tuple[State, Array]) -> tuple[State, Array]:
        proposal = propose(kernel, carry[0], inputs)
        return follow(carry[0], proposal), proposal.value

    def to_next_stop(carry: tuple[State, Array]) -> tuple[State, Array]:
        stop = _next_stop(carry[0], inputs, limit)
        state, value = lax.while_loop(lambda c: c[0].step < stop, step, carry)
        return _save(kernel, state, inputs), value

    nothing = jnp.zeros((), jax.eval_shape(lambda: propose(kernel, state, inputs).value).dtype)
    state, value = lax.while_loop(lambda c: (c[0].step < limit) | is_due(c[0], inputs), to_next_stop, (state, nothing))
    return state._replace(finite=all_finite(state.params, value, []))


@functools.partial(jax.jit, static_argnums=0)
def look(kernel: Kernel, state: State, inputs: Inputs) -> tuple[Bool[Array, ""], Float[Array, ""]]:
    """Return whether a state is healthy, and which part of the next update would not change the parameters.

    Args:
        kernel: structure of the run.
        state: where it is.
        inputs: data, save steps and key.

    Returns:
        Whether parameters, loss and gradient are finite, and the part of the update that is lost to rounding.
    """
    with jax.default_matmul_precision("highest"):
        proposal = propose(kernel, state, inputs)
        healthy = all_finite(state.params, proposal.value, proposal.gradient)
        return healthy, lost_fraction(state.params, proposal.updates)


def lost_fraction(params: list[Array], updates: list[Array]) -> Float[Array, ""]:
    """Return which part of the nonzero entries of an update is lost when it is added (below one ulp)."""
    moved = jax.tree.leaves(optax.apply_updates(params, updates))
    nonzero = sum(jnp.sum(u != 0) for u in updates)
    lost = sum(jnp.sum((u != 0) & (m == p)) for u, m, p in zip(updates, moved, params, strict=True))
    return lost / jnp.maximum(nonzero, 1)


def _next_stop(state: State, inputs: Inputs, limit) -> Array:
    count = len(inputs.save_at)
    upcoming = inputs.save_at[jnp.minimum(state.index, count - 1)]
    return jnp.where(state.index < count, jnp.minimum(upcoming, limit), limit)


def is_due(state: State, inputs: Inputs) -> Bool[Array, ""]:
    """Return whether this step is the next of those to save."""
    count = len(inputs.save_at)
    return (state.index < count) & (inputs.save_at[jnp.minimum(state.index, count - 1)] == state.step)


def run_checked(kernel: Kernel, state: State, inputs: Inputs, stop: Array) -> State:
    """Run to step `stop` without saving, at most to the last healthy state."""

    def body(s: State) -> State:
        new = follow(s, propose(kernel, s, inputs))
        ok = is_healthy(kernel, new.params, new.step, inputs)
        return jax.tree.map(lambda a, b: jnp.where(ok, a, b), new, s)._replace(finite=ok)

    return lax.while_loop(lambda s: (s.step < stop) & s.finite, body, state)


def _save(kernel: Kernel, state: State, inputs: Inputs) -> State:
    def write(s: State) -> State:
        row = observe_at(kernel, s.step, s.params, inputs)
        saved = jax.tree.map(lambda rows, x: rows.at[s.index].set(x), s.saved, row)
        return s._replace(saved=saved, index=s.index + 1)

    return lax.cond(is_due(state, inputs) & state.finite, write, lambda s: s, state)


def propose(kernel: Kernel, state: State, inputs: Inputs) -> Proposal:
    """Evaluate loss and gradient, and ask the optimiser, which sees the model as `equinox.filter` leaves it.

    Beside what Optax hands to a line search, a transformation with extra arguments may take the whole `model` and the
    data of the step, `args`.

    Args:
        kernel: structure of the run.
        state: where it is.
        inputs: data, save steps and key.

    Returns:
        Loss, gradient and updates there.
    """
    loss = _loss_at(kernel, state.step, inputs)
    value, slopes = jax.value_and_grad(loss)(state.params)
    gradient = kernel.structure.moving(slopes)
    optimizer = kernel.transformation(inputs)
    extra = {}
    if isinstance(optimizer, optax.GradientTransformationExtraArgs):
        model, args = _problem_at(kernel, state.params, state.step, inputs)
        extra = {"value": value, "grad": gradient, "value_fn": _value_fn(loss), "model": model, "args": args}
        extra = _accepted(optimizer.update, extra)
    params = kernel.structure.moving(state.params)
    updates, optimizer_state = optimizer.update(gradient, state.optimizer, params, **extra)
    return Proposal(value, slopes, jax.tree.leaves(updates), optimizer_state)


def follow(state: State, proposal: Proposal) -> State:
    """Return the state one step later."""
    params = jax.tree.leaves(optax.apply_updates(state.params, proposal.updates))
    return state._replace(params=params, optimizer=proposal.optimizer, step=state.step + 1)


def _accepted(update: Callable, extra: dict[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments that `update` takes; some of Optax's own name theirs and refuse the rest."""
    parameters = inspect.signature(update).parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return extra
    return {name: value for name, value in extra.items() if name in parameters}


def _loss_at(kernel: Kernel, step, inputs: Inputs) -> Callable[[list[Array]], Array]:
    """Return the loss of the moving arrays on the data of one step."""

    def loss(params):
        return kernel.structure.loss(*_problem_at(kernel, params, step, inputs))

    return loss


def _value_fn(loss: Callable[[list[Array]], Array]) -> Callable[..., Array]:
    """Return the loss as a line search calls it: Optax refuses extra arguments that this function does not name."""

    def value(params: PyTree, model: PyTree = None, args: PyTree = None) -> Array:
        del model, args
        return loss(jax.tree.leaves(params))

    return value


def _problem_at(kernel: Kernel, params: list[Array], step, inputs: Inputs) -> tuple[PyTree, PyTree]:
    """Return the model and the data of one step."""
    model, args = kernel.structure.join(params, inputs.frozen)
    return model, _batch(kernel.batches, args, step, inputs.key)


def _batch(batches: Callable | int | None, args: Any, step, key) -> Any:
    """Return the data of one step: all of it, rows drawn with replacement, or what the user's function draws."""
    if batches is None:
        return args
    step_key = jax.random.fold_in(key, step)
    if callable(batches):
        return batches(step_key, step, args)
    rows = len(jax.tree.leaves(args)[0])
    index = jax.random.randint(step_key, (batches,), 0, rows)
    return jax.tree.map(lambda x: x[index], args)


def observe_at(kernel: Kernel, step: Array, params: list[Array], inputs: Inputs) -> PyTree[Array]:
    """Return what is saved of a state."""
    if kernel.observe is None:
        return params
    return observed_arrays(kernel.observe, step, *kernel.structure.join(params, inputs.frozen))


def is_healthy(kernel: Kernel, params, step, inputs: Inputs) -> Bool[Array, ""]:
    """Return whether a state can be returned: parameters, loss and gradient are finite."""
    return all_finite(params, *jax.value_and_grad(_loss_at(kernel, step, inputs))(params))


def all_finite(params: list[Array], value: Array, gradient: list[Array]) -> Bool[Array, ""]:
    """Return whether parameters, loss and gradient are finite."""
    return jnp.stack([jnp.isfinite(x).all() for x in (*params, value, *gradient)]).all()
