"""Colours and line styles: one pair for each activation everywhere, so that figures can be read together.

Colours are Okabe and Ito's, which colour-blind readers can tell apart; the line style doubles them for print.
"""

from typing import Any

from gradflow.activations import AbstractActivation, by_name
from gradflow.errors import unknown
from gradflow.plot.style import GREY

OKABE_ITO = {
    "black": "#000000",
    "orange": "#E69F00",
    "sky": "#56B4E9",
    "green": "#009E73",
    "yellow": "#F0E442",
    "blue": "#0072B2",
    "vermillion": "#D55E00",
    "purple": "#CC79A7",
}
MAGNITUDE_MAP, SIGNED_MAP = "cividis", "RdBu_r"

_SOLID, _DASHED, _DOTTED, _DASH_DOT = "-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (4, 1.5, 1, 1.5))
# One colour a family of maps; within it solid lines are normalised maps and broken ones elementwise maps.
_LOOKS = {
    "softmax": ("blue", _SOLID),
    "exp": ("blue", _DASHED),
    "normalised-exp": ("blue", _DOTTED),
    "softmax1": ("blue", _DASH_DOT),
    "normalised-sigmoid": ("vermillion", _SOLID),
    "sigmoid": ("vermillion", _DASHED),
    "normalised-relu": ("green", _SOLID),
    "relu": ("green", _DASHED),
    "normalised-softplus": ("green", _DASH_DOT),
    "softplus": ("green", _DOTTED),
    "normalised-abs": ("orange", _SOLID),
    "abs": ("orange", _DASHED),
    "normalised-square": ("purple", _SOLID),
    "square": ("purple", _DASHED),
    "normalised-linear": ("black", _SOLID),
    "linear": ("black", _DASHED),
    "sparsemax": ("black", _DASH_DOT),
    "normalised-elu": ("sky", _SOLID),
    "elu": ("sky", _DASHED),
    "normalised-elu1": ("sky", _DASH_DOT),
    "elu1": ("sky", _DOTTED),
}
_VERDICTS = {
    "holds": (OKABE_ITO["green"], "✓"),
    "holds in part": (OKABE_ITO["orange"], "≈"),
    "does not hold": (OKABE_ITO["vermillion"], "✗"),
    "not tested": (GREY, "–"),
}


def activation_look(activation: str | AbstractActivation) -> dict[str, Any]:
    """Return `{"color": ..., "linestyle": ...}` of an activation, the same in every figure.

    Args:
        activation: a name that `gradflow.activations.by_name` knows, or an activation.

    Returns:
        Keywords of `Axes.plot`.
    """
    name = (by_name(activation) if isinstance(activation, str) else activation).name
    colour, line = _LOOKS.get(name, (None, _DOTTED))
    return {"color": OKABE_ITO[colour] if colour else GREY, "linestyle": line}


def member_looks(count: int) -> list[dict[str, Any]]:
    """Return looks for unnamed categories, in order: eight colours, and a new line style after each eight."""
    order = ("blue", "vermillion", "green", "orange", "purple", "sky", "black", "yellow")
    styles = (_SOLID, _DASHED, _DOTTED, _DASH_DOT)
    return [{"color": OKABE_ITO[order[i % 8]], "linestyle": styles[i // 8 % len(styles)]} for i in range(count)]


def verdict_look(verdict: str) -> tuple[str, str]:
    """Return colour and symbol of a verdict.

    Args:
        verdict: `holds`, `holds in part`, `does not hold` or `not tested`.

    Returns:
        A hexadecimal colour and one character.

    Raises:
        FlowError: if there is no such verdict.
    """
    if verdict not in _VERDICTS:
        raise unknown("verdict", verdict, _VERDICTS)
    return _VERDICTS[verdict]
