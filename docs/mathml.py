"""MkDocs hook: formulas become MathML while the site is built, so that pages need neither scripts nor a network."""

import html
import re
from typing import Any

from latex2mathml.converter import convert

_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
# A function's name, perhaps with a power, with an argument beside it and not as a part of a script or fraction.
_NAME = r"<mi>(?:log|exp|sinh|cosh|tanh)</mi>"
_FUNCTION = re.compile(
    rf"((?<!<msup>)(?<!<msub>)(?<!<mfrac>){_NAME}|<msup>{_NAME}<mn>\d</mn></msup>)(?=<m(?:i|n|row|sub|sup|frac|subsup)>)"
)
_BEFORE = re.compile(rf"(</m(?:i|n|sub|sup)>)(?={_NAME}|<msup>{_NAME})")


def on_page_content(content: str, **_: Any) -> str:
    r"""Replace each `\(...\)` and `\[...\]` that arithmatex marked."""
    return _FORMULA.sub(_mathml, content)


def _mathml(match: re.Match[str]) -> str:
    tag, formula = match.groups()
    # As superscripts, primes all but vanish in the fonts that browsers fall back to.
    formula = html.unescape(formula).replace("'", r"{\prime}")
    return _spaced(convert(formula, display="block" if tag == "div" else "inline"))


def _spaced(formula: str) -> str:
    """Set bars and the names of functions as TeX does: no space inside bars, a thin one around `log` in `n log t`."""
    formula = formula.replace('<mo stretchy="false">&#x0007C;', '<mo stretchy="false" lspace="0" rspace="0">&#x0007C;')
    formula = re.sub(r"<mo>([A-Za-z]{2,})</mo>", r"<mi>\1</mi>", formula)
    formula = _FUNCTION.sub(r'\1<mspace width="0.17em"/>', formula)
    return _BEFORE.sub(r'\1<mspace width="0.17em"/>', formula)
