"""The gradient flow as a Diffrax term: theta' = -M grad L(theta)."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from gradflow.errors import FlowError, is_traced, leaf_name
from gradflow.flow.options import number
from gradflow.problem import Members, Problem, Structure, by_name
from gradflow.types import Number


def velocity(structure: Structure, params: list[Array], frozen: list[Array], rates: list[Number] | None) -> list[Array]:
    """Return theta' = -rate * grad L; NaN everywhere when the loss itself is not finite.

    Poisoning matters: a loss may turn NaN where its gradient stays finite, and the step is then refused like any other
    that leaves the domain.
    """
    value, gradient = jax.value_and_grad(structure.value)(params, frozen)
    poison = jnp.where(jnp.isfinite(value), 0.0, jnp.nan)
    if rates is None:
        return [(poison - g).astype(p.dtype) for g, p in zip(gradient, params, strict=True)]
    return [(poison - r * g).astype(p.dtype) for r, g, p in zip(rates, gradient, params, strict=True)]


def guarded_velocity(
    structure: Structure, params: list[Array], frozen: list[Array], rates: list[Number] | None, anchor: list[Array]
) -> list[Array]:
    """Return the same velocity, with derivatives that stay finite where the velocity is not.

    A step that left the domain of the loss is refused, but reverse mode still multiplies its derivative by the zero
    cotangent, and 0 * NaN is NaN: there the derivative is taken at `anchor` instead.

    Args:
        structure: of the problem.
        params: moving arrays.
        frozen: fixed arrays.
        rates: one a moving array, or None.
        anchor: moving arrays at which the loss is finite, such as those at the start.
    """

    @jax.custom_jvp
    def field(params, frozen, rates, anchor):
        del anchor
        return velocity(structure, params, frozen, rates)

    @field.defjvp
    def _(primals, tangents):
        params, frozen, rates, anchor = primals
        out = velocity(structure, params, frozen, rates)
        finite = jnp.stack([jnp.isfinite(v).all() for v in out]).all()
        safe = [jnp.where(finite, p, a) for p, a in zip(params, anchor, strict=True)]
        _, change = jax.jvp(functools.partial(velocity, structure), (safe, frozen, rates), tangents[:3])
        return out, [jnp.where(finite, c, 0) for c in change]

    return field(params, frozen, rates, anchor)


def spread_rates(
    rates: PyTree | None, model: PyTree, problem: Problem | Members, members: int | None = None
) -> list[Number] | None:
    """Return one rate a moving array from a tree prefix of the model or a dictionary of leaf names.

    Args:
        rates: positive multipliers: a scalar, a tree prefix of `model`, or `{"values": 10.0}` by leaf name, see
            `gradflow.problem.names` (leaves that are not named keep the rate 1). None means all 1.
        model: the model.
        problem: the same, split.
        members: how many members each rate may be given for, as an array `(M,)`; None for a single run.

    Returns:
        A list as long as `problem.params`, or None; scalars, or `(M,)` each where there are members.

    Raises:
        FlowError: if the structure does not fit, a name matches no leaf, or a rate is not positive and finite.
    """
    if rates is None:
        return None
    names = problem.structure.names
    if _is_by_name(rates, model):
        named = _by_name(rates, [name for name in names if name.startswith("model")])
    else:
        named = _by_prefix(rates, model)
    moving = [name for name, flag in zip(names, problem.structure.trainable, strict=True) if flag]
    missing = next((name for name in moving if name not in named), None)
    if missing is not None:
        raise FlowError(f"rates is None at {missing}: give a positive number there, 1.0 to leave the leaf as it is")
    return [_positive(name, number(f"rates at {name}", named[name], problem.dtype, members)) for name in moving]


def _is_by_name(rates: PyTree, model: PyTree) -> bool:
    """Return whether rates are named: a dictionary with the keys of a model that is one itself is a prefix of it."""
    return isinstance(rates, dict) and not (isinstance(model, dict) and rates.keys() == model.keys())


def _by_name(rates: dict, names: list[str]) -> dict:
    return dict(zip(names, by_name("rates", rates, [name.removeprefix("model") for name in names], 1.0), strict=True))


def _by_prefix(rates: PyTree, model: PyTree) -> dict:
    try:
        tree = jax.tree.map(
            lambda rate, part: jax.tree.map(lambda _: rate, part), rates, model, is_leaf=lambda x: x is None
        )
    except (ValueError, TypeError) as error:
        raise FlowError(
            "rates does not match the model's structure: give one number, a tree prefix of the model, or "
            f'{{"leaf name": number}} ({str(error).splitlines()[0]})'
        ) from error
    return {"model" + leaf_name(path): rate for path, rate in jax.tree_util.tree_leaves_with_path(tree)}


def _positive(name: str, rate):
    if not is_traced(rate):
        wrong = [value for value in np.asarray(rate).ravel() if not 0 < value < np.inf]
        if wrong:
            raise FlowError(
                f"rates at {name} is {wrong[0]:g}: rates must be positive and finite; freeze a leaf with `trainable`"
            )
    return rate
