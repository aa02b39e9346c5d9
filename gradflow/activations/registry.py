"""Activations by name, for command lines and sweeps."""

import inspect
import re
from typing import Any

from gradflow.activations.base import AbstractActivation, AbstractElementwise
from gradflow.activations.elu import ELU, ELU1
from gradflow.activations.homogeneous import Abs, Linear, ReLU, Square
from gradflow.activations.normalised import Normalised
from gradflow.activations.positive import Exp, Sigmoid, Softplus
from gradflow.activations.simplex import Softmax, Softmax1, Uniform
from gradflow.activations.sparsemax import Sparsemax
from gradflow.errors import FlowError, nearest, shown, unknown

_CLASSES: dict[str, type[AbstractActivation]] = {
    kind.name: kind
    for kind in (Softmax, Sigmoid, Linear, Abs, ReLU, ELU, ELU1, Softplus, Square, Exp, Sparsemax, Softmax1, Uniform)
}
_NORMALISED: dict[str, type[AbstractElementwise]] = {
    Normalised.prefix + name: kind for name, kind in _CLASSES.items() if issubclass(kind, AbstractElementwise)
}
# What the papers call them.
_ALIASES = {"l1": "normalised-abs", "sum": "normalised-linear", "identity": "linear"}


def names() -> tuple[str, ...]:
    """Return the names that `by_name` knows."""
    return (*_CLASSES, *_NORMALISED)


def by_name(name: str, **parameters: Any) -> AbstractActivation:
    """Build an activation from its name.

    Args:
        name: one of `names()`; case, spaces, hyphens and underscores do not matter, `normalized` is understood, and
            `l1` and `sum` are the paper's names of `normalised-abs` and `normalised-linear`.
        **parameters: passed on, for instance `temperature=0.5`, or `bias=-3.0, floor=1e-9` for
            `normalised-sigmoid`.

    Returns:
        The activation.

    Raises:
        FlowError: if the name or a parameter is unknown; the nearest known one is suggested.
    """
    canonical = _canonical(name)
    if canonical in _CLASSES:
        return _build(canonical, _CLASSES[canonical], parameters)
    if canonical in _NORMALISED:
        outer = {"floor": parameters.pop("floor")} if "floor" in parameters else {}
        return Normalised(_build(canonical, _NORMALISED[canonical], parameters, extra=("floor",)), **outer)
    raise unknown("activation", name, names())


def as_activation(activation: AbstractActivation | str | None) -> AbstractActivation:
    """Return an activation from itself, its name, or None for the softmax."""
    if activation is None:
        return Softmax()
    if isinstance(activation, str):
        return by_name(activation)
    if isinstance(activation, type) and issubclass(activation, AbstractActivation):
        raise FlowError(f"activation is the class {activation.__name__}: pass one of it, {activation.__name__}()")
    if not isinstance(activation, AbstractActivation):
        raise FlowError(f"activation is {shown(activation)}: pass one of gf.activations, or its name")
    return activation


def _canonical(name: str) -> str:
    keys = {_squeeze(known): known for known in names()} | _ALIASES
    return keys.get(_squeeze(name), "")


def _squeeze(name: str) -> str:
    return re.sub(r"[\s_+-]", "", str(name)).lower().replace("normalized", "normalised")


def _build(name: str, kind: type, parameters: dict[str, Any], extra: tuple[str, ...] = ()) -> Any:
    accepted = [*inspect.signature(kind).parameters, *extra]
    for given in parameters:
        if given not in accepted:
            hint = nearest(given, accepted) if accepted else "; it takes none"
            raise FlowError(f"activation {name!r} has no parameter {given!r}{hint}")
    return kind(**parameters)
