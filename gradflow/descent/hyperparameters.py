"""Numbers of an optimiser as arguments of a kernel: one a member, and new ones never compile again."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
import optax

from gradflow.callables import check_callable
from gradflow.descent.optimizer import canonical, is_transformation, stable
from gradflow.errors import FlowError, nearest, shown

_NEEDS_A_VALUE = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)


def member_optimizer(
    optimizer: Any, hyperparameters: Mapping[str, Any] | None, count: int, dtype: np.dtype
) -> tuple[Any, tuple[str, ...], tuple[np.ndarray, ...]]:
    """Check an optimiser with its numbers.

    Args:
        optimizer: an Optax transformation, or a factory such as `optax.sgd` where there are hyper-parameters.
        hyperparameters: name -> number or `(M,)` array, what the factory is called with.
        count: number of members M.
        dtype: of the moving arrays, which the numbers take too.

    Returns:
        The optimiser as a key of kernels, the names in order, and the numbers `(M,)` of each.

    Raises:
        FlowError: if one does not fit the other, or a number cannot be used.
    """
    if not hyperparameters:
        if callable(optimizer) and not is_transformation(optimizer):
            raise FlowError(
                f"optimizer is {_name(optimizer)} without numbers: pass hyperparameters={{'learning_rate': 0.1}}, or "
                "the optimiser itself, such as optax.sgd(0.1)"
            )
        return canonical(optimizer), (), ()
    _check_factory(optimizer, hyperparameters)
    names = tuple(sorted(hyperparameters))
    numbers = tuple(_numbers(name, hyperparameters[name], count, dtype) for name in names)
    return stable(optimizer), names, numbers


def build(factory: Callable, numbers: dict[str, Any]) -> optax.GradientTransformation:
    """Call the factory of an optimiser with traced numbers, and name what cannot work with them.

    Args:
        factory: returns an Optax transformation.
        numbers: name -> traced scalar.

    Returns:
        The transformation; its functions name the same misuse.

    Raises:
        FlowError: if the factory returns something else, or needs the value of a number to build the program.
    """
    optimizer = _guarded(factory, factory, numbers)(**numbers)
    if not is_transformation(optimizer):
        raise FlowError(
            f"optimizer {_name(factory)} returns {shown(optimizer)}: it must return an Optax transformation"
        )
    kind = optax.GradientTransformation
    if isinstance(optimizer, optax.GradientTransformationExtraArgs):
        kind = optax.GradientTransformationExtraArgs
    return kind(_guarded(optimizer.init, factory, numbers), _guarded(optimizer.update, factory, numbers))


def _guarded(function: Callable, factory: Callable, numbers: dict[str, Any]) -> Callable:
    @functools.wraps(function)
    def call(*args, **options):
        try:
            return function(*args, **options)
        except _NEEDS_A_VALUE as error:
            raise FlowError(
                f"optimizer {_name(factory)} branches on the value of one of {', '.join(numbers)}, or makes a Python "
                "number of it: leave that one out of hyperparameters and fix it by functools.partial"
            ) from error

    return call


def _check_factory(factory: Any, hyperparameters: Any) -> None:
    if not isinstance(hyperparameters, Mapping) or not all(isinstance(name, str) for name in hyperparameters):
        raise FlowError(f"hyperparameters is {shown(hyperparameters)}: give a dict of names and numbers")
    if is_transformation(factory):
        raise FlowError(
            "optimizer is a finished optimiser, which takes no hyperparameters: give its factory, such as optax.sgd "
            "instead of optax.sgd(0.1)"
        )
    check_callable("optimizer", factory)
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return
    kinds = {parameter.kind for parameter in parameters.values()}
    known = [name for name, parameter in parameters.items() if parameter.kind in _NAMED]
    for name in hyperparameters:
        if name not in known and inspect.Parameter.VAR_KEYWORD not in kinds:
            raise FlowError(
                f"hyperparameters holds {name!r}, which {_name(factory)} does not take{nearest(name, known)}"
            )
    missing = [
        name for name in known if parameters[name].default is inspect.Parameter.empty and name not in hyperparameters
    ]
    if missing:
        raise FlowError(
            f"optimizer {_name(factory)} needs {missing[0]!r}: add it to hyperparameters or fix it by functools.partial"
        )


_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def _numbers(name: str, value: Any, count: int, dtype: np.dtype) -> np.ndarray:
    """Return one number a member."""
    try:
        numbers = np.asarray(value)
        good = np.issubdtype(numbers.dtype, np.floating) or np.issubdtype(numbers.dtype, np.integer)
    except (TypeError, ValueError):
        good = False
    if not good:
        raise FlowError(
            f"hyperparameters[{name!r}] is {shown(value)}: give a number or one number a member; fix other settings by "
            "functools.partial"
        )
    if numbers.shape not in ((), (count,)):
        raise FlowError(
            f"hyperparameters[{name!r}] has shape {numbers.shape}: give one number, or ({count},), one number a member"
        )
    return np.broadcast_to(numbers.astype(dtype), (count,))


def _name(factory: Any) -> str:
    inner = factory.func if isinstance(factory, functools.partial) else factory
    return getattr(inner, "__qualname__", type(inner).__name__)
