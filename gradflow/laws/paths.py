"""What a law reads: the models along a run, the rates of their leaves, and the direction of a one-sample problem."""

from collections.abc import Callable
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from gradflow.activations import Softmax
from gradflow.errors import FlowError, is_traced
from gradflow.flow.field import spread_rates
from gradflow.models import ValueSoftmax
from gradflow.problem import split
from gradflow.trajectory import Trajectory
from gradflow.types import Data

Path = Trajectory | ValueSoftmax
"""A run that saved its models (`observe=None`), or models stacked along the leading axes of their arrays."""


def saved_models(path: Any) -> Any:
    """Return the models of a run, stacked along axis 0, without the rows that were not reached.

    Args:
        path: a trajectory that saved its models, or stacked models, which are returned as they are.

    Returns:
        Models with a leading save axis.

    Raises:
        FlowError: if the run saved something else, or nothing.
    """
    if not isinstance(path, Trajectory):
        return path
    if jax.tree.structure(path.observed) != jax.tree.structure(path.final):
        raise FlowError(
            f"trajectory saved {_kind(path.observed)} through `observe`, but a law needs the models along the run: "
            "run it with observe=None"
        )
    if is_traced(path):
        return path.observed
    valid = np.asarray(path.valid)
    if not valid.any():
        raise FlowError(f"trajectory saved no model (it ended with {path.status!r}): save at earlier times")
    return path.observed if valid.all() else at_rows(path.observed, valid)


def saved_times(trajectory: Trajectory) -> np.ndarray:
    """Return the save times that a concrete run has reached, one a row of `saved_models`."""
    return np.asarray(trajectory.ts)[np.asarray(trajectory.valid)]


def at_rows(models: PyTree, rows: Any) -> PyTree:
    """Return the models at some rows of the leading axis."""
    return jax.tree.map(lambda leaf: leaf[rows] if eqx.is_array(leaf) else leaf, models)


def value_path(path: Path) -> ValueSoftmax:
    """Return the stacked `ValueSoftmax` models of a run.

    Args:
        path: a trajectory of one, or models stacked along leading axes; the save axis comes last of these.

    Returns:
        A model with values (..., T, d, n) and scores (..., T, n).

    Raises:
        FlowError: if the run is of another model, or there is no save axis.
    """
    models = saved_models(path)
    if not isinstance(models, ValueSoftmax):
        raise FlowError(f"path holds {_kind(models)}: this law is about gf.models.ValueSoftmax")
    if models.scores.ndim < 2:
        shape = models.scores.shape
        raise FlowError(f"path has scores of shape {shape}: a law needs a save axis, (T, n); stack the models")
    return models


def softmax_path(path: Path) -> ValueSoftmax:
    """Return the stacked models of a run, refusing any map other than the softmax.

    Args:
        path: as for `value_path`.

    Returns:
        The models.

    Raises:
        FlowError: if the map is another one, or `value_path` refuses the path.
    """
    models = value_path(path)
    if not isinstance(models.activation, Softmax):
        raise FlowError(f"path has the activation {models.activation.name!r}: this law is about the softmax")
    return models


def softmax_temperature(model: ValueSoftmax) -> Any:
    """Return T of a model whose map is the softmax."""
    return cast(Softmax, model.activation).temperature


def over_rows(function: Callable, models: ValueSoftmax) -> Any:
    """Apply `function(model)` to each model of a stack, over all its leading axes."""
    for _ in range(models.scores.ndim - 1):
        function = eqx.filter_vmap(function)
    return function(models)


def one_sample_direction(args: Data) -> Float[Array, " d"]:
    """Return b*, the unit vector along which a one-sample loss pulls: the sample, with the sign of its label.

    Args:
        args: one sample, x (1, d) and y (1,); a scalar target y for the square loss.

    Returns:
        sign(y) x / |x|.

    Raises:
        FlowError: if there is not exactly one sample.
    """
    if not hasattr(args, "x") or len(args.x) != 1:
        count = f"{len(args.x)} samples" if hasattr(args, "x") else _kind(args)
        raise FlowError(f"args holds {count}: this law is about one sample, gf.tasks.single_sample(target)")
    sample = jnp.asarray(args.x)[0]
    return jnp.where(args.y[0] < 0, -1, 1).astype(sample.dtype) * sample / jnp.linalg.norm(sample)


def alignments(models: ValueSoftmax, direction: Float[Array, " d"]) -> Float[Array, "... n"]:
    """Return u = V^T b*, the component of each value along the direction."""
    return jnp.einsum("d,...dn->...n", jnp.asarray(direction), models.values, precision="highest")


def increasing(tau: Float[Array, " T"]) -> Float[Array, " T"]:
    """Return clock times without the last-place steps back that rounding can give, nor the NaN of a broken row."""
    return jax.lax.cummax(jnp.where(jnp.isfinite(tau), jnp.maximum(tau, 0), 0))


def drift(invariant: Float[Array, "..."], axis: int) -> Float[Array, "..."]:
    """Return how far a quantity is from its first row along an axis."""
    return invariant - jax.lax.slice_in_dim(invariant, 0, 1, axis=axis)


def leaf_rates(rates: PyTree | None, model: PyTree) -> dict[str, Any]:
    """Return one rate a moving leaf of a model, by its path as it is typed, for instance ``.values``.

    Args:
        rates: as for `gf.gradient_flow`; None means all 1.
        model: the model, or stacked models.

    Returns:
        Rates by leaf; leaves that do not move are absent.

    Raises:
        FlowError: if the rates do not fit the model.
    """
    problem = split(_nothing, model, None, None)
    flags = zip(problem.structure.names, problem.structure.trainable, strict=True)
    names = [name.removeprefix("model") for name, moving in flags if moving]
    return dict(zip(names, spread_rates(rates, model, problem) or [1.0] * len(names), strict=True))


def value_rates(rates: PyTree | None, model: ValueSoftmax) -> tuple[Any, Any]:
    """Return (r_V, r_a), the rates of values and scores."""
    if rates is None:
        return 1.0, 1.0
    named = leaf_rates(rates, model)
    return named[".values"], named[".scores"]


def _nothing(model: PyTree, args: PyTree) -> float:
    return 0.0


def _kind(value: Any) -> str:
    return f"a {type(value).__name__}"
