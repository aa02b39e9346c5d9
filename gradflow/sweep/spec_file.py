"""Settings written down: TOML files, and ranges such as 1:1e4:25."""

import dataclasses
import re
import tomllib
from pathlib import Path
from typing import Any

from gradflow.errors import FlowError, nearest, shown, whole_number
from gradflow.sweep.axes import log_range
from gradflow.sweep.settings import COUNTS, RANGES, Settings

NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
RANGE = re.compile(f"({NUMBER}):({NUMBER}):({NUMBER})")


def read_spec(path: Path) -> dict[str, list[str]]:
    """Read the settings of a sweep from a TOML file.

    Args:
        path: of the file.

    Returns:
        Name of each setting -> its values, as they would be typed on the command line.

    Raises:
        FlowError: if it cannot be read, is not TOML, or holds something else than settings.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FlowError(
            f"{path} cannot be read ({error.strerror}): give a TOML file of settings, or type them, such as --kappa 10"
        ) from error
    except ValueError as error:
        raise FlowError(f"{path} is not TOML ({error}): write lines such as scale = [0.01, 0.1]") from error
    known = [field.name for field in dataclasses.fields(Settings)]
    for name, value in table.items():
        if name not in known:
            raise FlowError(f"{path} holds {name!r}, which is no setting of a sweep{nearest(name, known)}")
        if any(isinstance(item, bool) or not isinstance(item, int | float | str) for item in _listed(value)):
            raise FlowError(f"{path} holds {name} = {shown(value)}: give numbers or names, or a list of them")
    return {name: [str(item) for item in _listed(value)] for name, value in table.items()}


def expand(name: str, values: list[str]) -> list[str]:
    """Replace ranges FIRST:LAST:COUNT by numbers evenly spaced in the logarithm, whole ones where a setting counts.

    Args:
        name: of the setting.
        values: as typed.

    Returns:
        The values without ranges.

    Raises:
        FlowError: if a range cannot be one.
    """
    if name not in (*COUNTS, *RANGES):
        return values
    found = []
    for value in values:
        match = RANGE.fullmatch(value)
        if match is None:
            found.append(value)
            continue
        first, last, count = map(float, match.groups())
        try:
            numbers = log_range(first, last, whole_number("COUNT", count))
        except FlowError as error:
            raise FlowError(f"{name} is {value}: {error}") from error
        found += [str(round(number)) if name in COUNTS else repr(float(number)) for number in numbers]
    return found


def _listed(value: Any) -> list:
    return value if isinstance(value, list) else [value]
