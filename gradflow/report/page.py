"""Parts of a page: frame, tables, verdicts. Everything is inline, so that one file is the whole page."""

import html
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.resources import files

# Verdict -> (class in style.css, sign in front of the word, word for several); colour never stands alone.
VERDICTS = {
    "holds": ("holds", "✓", "hold"),
    "holds in part": ("part", "◐", "hold in part"),
    "does not hold": ("fails", "✗", "do not hold"),
    "not tested": ("untested", "○", "not tested"),
}
# What claims and captions can only type, after escaping.
SIGNS = {"-&gt;": "→", "&gt;=": "≥", "&lt;=": "≤", " - ": " − ", "int |": "∫\u00a0|"}
GREEK = {"beta": "β", "gamma": "γ", "epsilon": "ε", "eta": "η", "kappa": "κ", "lambda": "λ", "sigma": "σ", "tau": "τ"}
_GREEK = re.compile(rf"(?<![\w-])({'|'.join(GREEK)})(?![^\W_]|-)")


def frame(title: str, body: Iterable[str]) -> str:
    """Return a whole page.

    Args:
        title: of the window.
        body: parts, top to bottom, already HTML.

    Returns:
        HTML with its style inside and no address outside.
    """
    style = files("gradflow.report").joinpath("style.css").read_text(encoding="utf-8")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<link rel="icon" href="data:,">\n<title>{text(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n'
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def text(value: object) -> str:
    """Return text as HTML: code between backticks; elsewhere `a_i`, `x^2`, `tau`, `->` and the like as formulas."""
    parts = html.escape(str(value)).split("`")
    if len(parts) % 2 == 0:  # a backtick without its fellow
        parts = ["`".join(parts)]
    return "".join(f"<code>{part}</code>" if index % 2 else _formulas(part) for index, part in enumerate(parts))


def _formulas(part: str) -> str:
    part = _GREEK.sub(lambda name: GREEK[name[1]], part)
    for typed, sign in SIGNS.items():
        part = part.replace(typed, sign)
    part = re.sub(r"(?<![^\W_])([^\W\d_])_(\w+)", r"\1<sub>\2</sub>", part)
    return re.sub(r"(?<=[\w>)|])\^(-?\w+)", r"<sup>\1</sup>", part)


def verdict(name: str | None) -> str:
    """Return a verdict as a coloured label with sign and word."""
    if name is None:
        return '<span class="same">none</span>'
    kind, sign, _ = VERDICTS[name]
    return f'<span class="verdict {kind}"><span aria-hidden="true">{sign}</span> {text(name)}</span>'


def tally(verdicts: Sequence[str]) -> str:
    """Return how many claims got each verdict, as a bar and in words."""
    counts = Counter(verdicts)
    present = [(name, counts[name]) for name in VERDICTS if counts[name]]
    bar = "".join(f'<span class="{VERDICTS[name][0]}" style="flex-grow:{count}"></span>' for name, count in present)
    words = "".join(_count(name, count) for name, count in present)
    total = f"{len(verdicts)} claim{'' if len(verdicts) == 1 else 's'}"
    return (
        f'<div class="tally"><p>{total}</p><div class="bar" aria-hidden="true">{bar}</div><ul>{words}</ul></div>'
        if present
        else f'<div class="tally"><p>{total}</p></div>'
    )


def _count(name: str, count: int) -> str:
    kind, _, several = VERDICTS[name]
    return f'<li class="{kind}"><b>{count}</b> {name if count == 1 else several}</li>'


def table(kind: str, heads: Sequence[str], rows: Iterable[Sequence[str]], mark: Sequence[str] = ()) -> str:
    """Return a table that turns into cards where there is no room.

    Args:
        kind: its class in style.css.
        heads: of the columns.
        rows: cells as HTML; the first names the row.
        mark: a class for each row, if rows differ.

    Returns:
        HTML.
    """
    head = "".join(f'<th scope="col">{text(name)}</th>' for name in heads)
    body = []
    for index, row in enumerate(rows):
        cells = [f'<th scope="row">{row[0]}</th>']
        cells += [f'<td data-label="{text(name)}">{cell}</td>' for name, cell in zip(heads[1:], row[1:], strict=True)]
        attribute = f' class="{mark[index]}"' if mark and mark[index] else ""
        body.append(f"<tr{attribute}>{''.join(cells)}</tr>")
    return f'<table class="{kind}"><thead><tr>{head}</tr></thead><tbody>\n' + "\n".join(body) + "\n</tbody></table>"


def section(title: str, *parts: str) -> str:
    """Return a part of the page under a heading."""
    return f"<section>\n<h2>{text(title)}</h2>\n" + "\n".join(parts) + "\n</section>"
