"""Early ends: a boolean budget checked on accepted steps, and a level whose crossing time is refined."""

from collections.abc import Callable
from typing import Any, ClassVar

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix as optx
from jaxtyping import Array, Float

from gradflow.errors import FlowError, shown
from gradflow.problem import Structure


class Crossing(eqx.Module):
    """The end of a flow at the time `fn(t, model, args)` crosses `level`, refined on the dense output.

    Attributes:
        fn: real scalar function of time, model and args.
        level: the level, an argument of the kernel: new levels do not compile again.
        direction: None for either way, True for upwards, False for downwards.
    """

    fn: Callable = eqx.field(static=True)
    level: float | Float[Array, ""] = 0.0
    direction: bool | None = eqx.field(static=True, default=None)


class _Bracket(eqx.Module):
    lower: Array
    upper: Array
    sign: Array


class Bisect(optx.AbstractRootFinder):
    """Bisection of a bracket down to rounding, for one or several event functions of which only one is not zero."""

    rtol: float = 0.0
    atol: float = 0.0
    norm: ClassVar[Callable] = optx.max_norm

    def init(self, fn, y, args, options, f_struct, aux_struct, tags):
        """Keep the bracket and the sign at its lower end."""
        del y, f_struct, aux_struct, tags
        lower, upper = options["lower"], options["upper"]
        return _Bracket(lower, upper, jnp.sign(_total(fn(lower, args)[0])))

    def step(self, fn, y, args, options, state, tags):
        """Halve the bracket."""
        del y, options, tags
        middle = state.lower + 0.5 * (state.upper - state.lower)
        values, aux = fn(middle, args)
        same = jnp.sign(_total(values)) == state.sign
        lower, upper = jnp.where(same, middle, state.lower), jnp.where(same, state.upper, middle)
        return upper, _Bracket(lower, upper, state.sign), aux

    def terminate(self, fn, y, args, options, state, tags):
        """Stop when the bracket is a few units in the last place wide."""
        del fn, args, options, tags
        width = 4 * jnp.finfo(y.dtype).eps * jnp.abs(state.upper)
        return state.upper - state.lower <= width, optx.RESULTS.successful

    def postprocess(self, fn, y, aux, args, options, state, tags, result):
        """Return the upper end, at which the crossing has happened."""
        del fn, y, args, options, tags, result
        return state.upper, aux, {}


def _total(values) -> Array:
    return jnp.asarray(sum(jax.tree.leaves(values)))


def scalar(argument: str, value: Any) -> Array:
    """Return what a user's function gave, or raise with its name if that is no real scalar."""
    if not eqx.is_array_like(value) or jnp.shape(value) or jnp.iscomplexobj(value):
        raise FlowError(f"{argument} returns {shown(value)}: it must return one real scalar, such as `x.max()`")
    return jnp.asarray(value)


def build(
    structure: Structure, stop: Callable | None, crossing: Callable | None, direction: bool | None
) -> diffrax.Event | None:
    """Return the Diffrax event of a run whose args hold the fixed arrays and the level."""
    conditions, directions = {}, {}
    if stop is not None:

        def stopped(t: Any, y, args, **_):
            return scalar("stop", stop(t, *structure.join(y, args.frozen))).astype(bool)

        conditions["stop"], directions["stop"] = stopped, None
    if crossing is not None:

        def crossed(t: Any, y, args, **_):
            return scalar("event.fn", crossing(t, *structure.join(y, args.frozen))).astype(y[0].dtype) - args.level

        conditions["crossing"], directions["crossing"] = crossed, direction
    if not conditions:
        return None
    return diffrax.Event(conditions, Bisect() if crossing is not None else None, directions)
