"""Parameter groups by leaf name: several time scales in one optimiser."""

import functools
import math
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import optax

from gradflow.descent.optimizer import is_transformation
from gradflow.errors import FlowError, is_traced, shown
from gradflow.schedules.leaves import REST, labels, names_of


def parameter_groups(
    groups: Mapping[str, Any] | None = None,
    /,
    *,
    default: Any,
    optimizer: Callable[[Any], optax.GradientTransformation] = optax.sgd,
    **named: Any,
) -> optax.GradientTransformationExtraArgs:
    """Return an optimiser with a step size, or an optimiser, for each group of leaves: `optax.partition` by name.

    ```python
    gf.schedules.parameter_groups({"w_v": 0.1}, default=0.01)                      # values ten times as fast
    gf.schedules.parameter_groups({"w_v": optax.adam(1e-3)}, default=optax.sgd(0.01))
    ```

    Names are as in `rates` of `gradient_flow`: with `optax.sgd`, step sizes `rate * eta` are rates, and the descent
    follows that flow at t = eta * step. It is a factory for `hyperparameters` of `gradient_descent_ensemble` too, where
    each group's number may differ from member to member: `hyperparameters={"w_v": step_sizes, "default": 0.01}`.

    Args:
        groups: name -> a step size >= 0, a schedule, or an Optax transformation.
        default: the same, of the leaves that are not named.
        optimizer: makes a transformation of a step size or schedule.
        named: more groups, as keywords.

    Returns:
        The transformation. Equal ones share a compiled kernel.

    Raises:
        FlowError: if a step size is not a finite number >= 0; and, when a run starts, if a name fits no leaf.
    """
    groups = {**_checked(groups), **named}
    names = names_of("groups", groups)
    steps: dict[Hashable, optax.GradientTransformation] = {
        name: _transformation(f"groups[{name!r}]", value, optimizer) for name, value in groups.items()
    }
    steps[REST] = _transformation("default", default, optimizer)
    inner = optax.partition(steps, functools.partial(labels, names))
    return optax.GradientTransformationExtraArgs(functools.partial(_init, names, inner), inner.update)


def at_rates(
    rates: Mapping[str, float] | float | None,
    step_size: Any,
    optimizer: Callable[[Any], optax.GradientTransformation] = optax.sgd,
) -> optax.GradientTransformationExtraArgs:
    """Return the descent that follows `gradient_flow(..., rates=rates)` at t = step_size * step.

    Args:
        rates: multipliers >= 0 by leaf name, or one for all; None means all 1, and 0 freezes.
        step_size: eta >= 0, of the leaves at rate 1.
        optimizer: makes a transformation of a step size; only plain `optax.sgd` follows the flow, others are scaled.

    Returns:
        The transformation.

    Raises:
        FlowError: if a rate or the step size is not a finite number >= 0.
    """
    step_size = _size("step_size", step_size, "a finite number >= 0")
    if isinstance(rates, Mapping):
        names_of("rates", rates)
        steps = {name: _rate(f"rates[{name!r}]", rate) * step_size for name, rate in rates.items()}
        return parameter_groups(steps, default=step_size, optimizer=optimizer)
    return parameter_groups(
        default=step_size if rates is None else _rate("rates", rates) * step_size, optimizer=optimizer
    )


def _init(names: tuple[str, ...], inner: optax.GradientTransformation, params: Any) -> Any:
    labels(names, params, "parameter_groups")
    return inner.init(params)


def _checked(groups: Any) -> Mapping[str, Any]:
    if not isinstance(groups, Mapping | None):
        raise FlowError(f'groups is {shown(groups)}: give a dict of leaf names and step sizes, such as {{"w_v": 0.1}}')
    return groups or {}


def _transformation(argument: str, value: Any, optimizer: Callable) -> optax.GradientTransformation:
    if is_transformation(value):
        return value
    wanted = "a finite step size >= 0, a schedule or an Optax transformation"
    return optimizer(value if callable(value) else _size(argument, value, wanted))


def _rate(argument: str, value: Any) -> Any:
    return _size(argument, value, "a finite multiplier >= 0")


def _size(argument: str, value: Any, wanted: str) -> Any:
    """Return a concrete number as Python's, so that equal ones are equal keys and no dtype is promoted."""
    if is_traced(value):
        return value
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, str) or not 0 <= number < math.inf:
        raise FlowError(f"{argument} is {shown(value)}: give {wanted}")
    return number
