"""What no experiment can use, whatever it is about: said before anything is computed."""

import dataclasses
import math
from typing import Any

from gradflow.errors import FlowError, shown


def check_settings(config: Any) -> None:
    """Refuse empty lists, numbers that are not finite, and numbers that have lost the sign of their default.

    Args:
        config: settings of an experiment, a dataclass whose class has a default for each.

    Raises:
        FlowError: if a setting cannot be used; the message names it.
    """
    usual = type(config)()
    for field in dataclasses.fields(config):
        _check(field.name, getattr(config, field.name), getattr(usual, field.name))


def _check(name: str, value: Any, usual: Any) -> None:
    if isinstance(value, tuple | list):
        if not value:
            raise FlowError(f"{name} is empty: give at least one value")
        for item in value:
            _check(name, item, min(usual, default=None) if isinstance(usual, tuple | list) else None)
    elif isinstance(value, float) and not math.isfinite(value):
        raise FlowError(f"{name} is {shown(value)}: it must be finite")
    elif _is_number(value) and _is_number(usual) and (value < 0 <= usual or value == 0 < usual):
        raise FlowError(f"{name} is {shown(value)}: it must be {'positive' if usual > 0 else 'at least 0'}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
