"""MkDocs hook: formulas become MathML while the site is built, so that pages need neither scripts nor a network."""

import html
import re
from typing import Any

from latex2mathml.converter import convert

_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(content: str, **_: Any) -> str:
    r"""Replace each `\(...\)` and `\[...\]` that arithmatex marked."""
    return _FORMULA.sub(_mathml, content)


def _mathml(match: re.Match[str]) -> str:
    tag, formula = match.groups()
    # As superscripts, primes all but vanish in the fonts that browsers fall back to.
    formula = html.unescape(formula).replace("'", r"{\prime}")
    return convert(formula, display="block" if tag == "div" else "inline")
