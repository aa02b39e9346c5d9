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

from gradflow.problem import Structure, check_loss
from gradflow.trajectory import observed_arrays


@dataclasses.dataclass(frozen=True)
class Kernel:
    """All that picks a compiled run."""

    structure: Structure
    optimizer: optax.GradientTransformation
    observe: Callable | None
    batches: Callable | int | None


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


@functools.partial(jax.jit, static_argnums=0)
def start(kernel: Kernel, params: list[Array], inputs: Inputs) -> State:
    """Initialise the optimiser and allocate the rows to save."""
    check_loss(kernel.structure, params, inputs.frozen)
    zero = jnp.zeros((), inputs.save_at.dtype)
    rows = jax.eval_shape(lambda: _observe(kernel, zero, params, inputs))
    saved = jax.tree.map(lambda x: jnp.zeros((len(inputs.save_at), *x.shape), x.dtype), rows)
    optimizer = kernel.optimizer.init(kernel.structure.moving(params))
    return State(params, optimizer, zero, saved, zero, _is_healthy(kernel, params, zero, inputs))


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
        The state at the end; `finite` says whether loss and gradient are finite there.
    """
    with jax.default_matmul_precision("highest"):
        state = lax.while_loop(
            lambda s: ((s.step < limit) | _is_due(s, inputs)) & s.finite,
            lambda s: _save(kernel, _run_to(kernel, s, inputs, _next_stop(s, inputs, limit), checked), inputs),
            state,
        )
        return state if checked else state._replace(finite=_is_healthy(kernel, state.params, state.step, inputs))


@functools.partial(jax.jit, static_argnums=0)
def stalled_fraction(kernel: Kernel, state: State, inputs: Inputs) -> Float[Array, ""]:
    """Return which part of the next update's nonzero entries would not change the parameters (below one ulp)."""
    updates, _ = _update(kernel, state, inputs)
    moved = jax.tree.leaves(optax.apply_updates(state.params, updates))
    nonzero = sum(jnp.sum(u != 0) for u in updates)
    lost = sum(jnp.sum((u != 0) & (m == p)) for u, m, p in zip(updates, moved, state.params, strict=True))
    return lost / jnp.maximum(nonzero, 1)


def _next_stop(state: State, inputs: Inputs, limit) -> Array:
    count = len(inputs.save_at)
    upcoming = inputs.save_at[jnp.minimum(state.index, count - 1)]
    return jnp.where(state.index < count, jnp.minimum(upcoming, limit), limit)


def _is_due(state: State, inputs: Inputs) -> Array:
    count = len(inputs.save_at)
    return (state.index < count) & (inputs.save_at[jnp.minimum(state.index, count - 1)] == state.step)


def _run_to(kernel: Kernel, state: State, inputs: Inputs, stop, checked: bool) -> State:
    def body(s: State) -> State:
        updates, optimizer_state = _update(kernel, s, inputs)
        new = s._replace(params=optax.apply_updates(s.params, updates), optimizer=optimizer_state, step=s.step + 1)
        if not checked:
            return new
        ok = _is_healthy(kernel, new.params, new.step, inputs)
        return jax.tree.map(lambda a, b: jnp.where(ok, a, b), new, s)._replace(finite=ok)

    return lax.while_loop(lambda s: (s.step < stop) & s.finite if checked else s.step < stop, body, state)


def _save(kernel: Kernel, state: State, inputs: Inputs) -> State:
    def write(s: State) -> State:
        row = _observe(kernel, s.step, s.params, inputs)
        saved = jax.tree.map(lambda rows, x: rows.at[s.index].set(x), s.saved, row)
        return s._replace(saved=saved, index=s.index + 1)

    return lax.cond(_is_due(state, inputs) & state.finite, write, lambda s: s, state)


def _update(kernel: Kernel, state: State, inputs: Inputs) -> tuple[list[Array], PyTree]:
    """Return updates and state of the optimiser, which sees the model as `equinox.filter` leaves it."""
    loss = _loss_at(kernel, state.step, inputs)
    value, gradient = jax.value_and_grad(loss)(state.params)
    gradient = kernel.structure.moving(gradient)
    extra = {}
    if isinstance(kernel.optimizer, optax.GradientTransformationExtraArgs):
        extra = {"value": value, "grad": gradient, "value_fn": lambda model: loss(jax.tree.leaves(model))}
        extra = _accepted(kernel.optimizer.update, extra)
    params = kernel.structure.moving(state.params)
    updates, optimizer = kernel.optimizer.update(gradient, state.optimizer, params, **extra)
    return jax.tree.leaves(updates), optimizer


def _accepted(update: Callable, extra: dict[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments that `update` takes; some of Optax's own name theirs and refuse the rest."""
    parameters = inspect.signature(update).parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return extra
    return {name: value for name, value in extra.items() if name in parameters}


def _loss_at(kernel: Kernel, step, inputs: Inputs) -> Callable[[list[Array]], Array]:
    """Return the loss of the moving arrays on the data of one step."""

    def loss(params):
        model, args = kernel.structure.join(params, inputs.frozen)
        return kernel.structure.loss(model, _batch(kernel.batches, args, step, inputs.key))

    return loss


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


def _observe(kernel: Kernel, step, params, inputs: Inputs) -> PyTree[Array]:
    if kernel.observe is None:
        return params
    return observed_arrays(kernel.observe, step, *kernel.structure.join(params, inputs.frozen))


def _is_healthy(kernel: Kernel, params, step, inputs: Inputs) -> Bool[Array, ""]:
    value, gradient = jax.value_and_grad(_loss_at(kernel, step, inputs))(params)
    return jnp.stack([jnp.isfinite(x).all() for x in (*params, value, *gradient)]).all()
