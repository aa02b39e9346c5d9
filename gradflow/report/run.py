"""The report of one run, made from the files in its folder."""

import base64
import html
import json
import re
import shlex
from pathlib import Path
from typing import Any

from gradflow.citation import citation
from gradflow.report.page import frame, section, table, tally, text, verdict

WIDE_POINTS = 380  # figures wider than this, so those of two columns, take the whole width
SCALE = 1.45  # of a figure made for paper, so that its 8 points read well on a screen
FILES = text(
    "Beside this page: `config.json`, `claims.json`, `audits.json`, `figures/` (SVG, PNG), and `results.zarr` with one "
    'group a stage, for `xarray.open_datatree("results.zarr", engine="zarr", consolidated=False)`.'
)
LAWS = "claims laws"  # looks like the table of claims
MAX_SVG = 2_000_000  # bytes; a drawing larger than this is slower to show than its pixels


def run_page(folder: str | Path) -> str:
    """Return the report of a run as one self-contained page.

    Args:
        folder: with `config.json`, `claims.json` and, for a complete run, `figures/` and what laws were checked.

    Returns:
        HTML.
    """
    folder = Path(folder)
    config, claims = _read(folder / "config.json"), _read(folder / "claims.json")
    figures = _read(folder / "figures" / "figures.json") if config["finished"] else []
    audits = _read(folder / "audits.json") if config["finished"] and (folder / "audits.json").exists() else []
    return frame(
        f"{config['title']} · gradflow",
        [
            _header(folder, config, claims),
            "<main>",
            section("Claims", _claims(claims)),
            section("Figures", _figures(folder, figures)) if figures else "",
            section("Laws", *map(_audit, audits)) if audits else "",
            '<div class="columns">',
            section("Settings", _values(config["settings"])),
            section("Made with", _values(_circumstances(config))),
            "</div>",
            section("Run it again", _listing(config["command"]), f"<p>{FILES}</p>"),
            section("Cite", f"<details><summary>BibTeX</summary>{_listing(citation())}</details>"),
            "</main>",
        ],
    )


def _header(folder: Path, config: dict[str, Any], claims: list[dict[str, Any]]) -> str:
    when = _minute(config["finished"] or config["started"])
    facts = [f"preset {config['preset']}", config["precision"], config["device"], when]
    resume = html.escape(f"{config['command']} --out {shlex.quote(str(folder))} --resume")
    warning = f"This run ended early. What was finished is kept, and <code>{resume}</code> goes on with it."
    warning = "" if config["finished"] else f'<p class="warning">{warning}</p>'
    return (
        f'<header><p class="eyebrow">gradflow <span>experiment</span> {text(config["experiment"])}</p>'
        f'<h1>{text(config["title"])}</h1><p class="source">{text(config["source"])}</p>'
        f"{warning}{tally([claim['verdict'] for claim in claims])}"
        f'<ul class="facts">{"".join(f"<li>{text(fact)}</li>" for fact in facts)}</ul></header>'
    )


def _claims(claims: list[dict[str, Any]]) -> str:
    rows = [
        [
            f'<span class="statement">{text(claim["statement"])}</span>{_code(claim["id"], "id")}',
            verdict(claim["verdict"]),
            text(claim["paper"]),
            text(claim["measured"]),
            text(claim["control"]),
        ]
        for claim in claims
    ]
    return table("claims", ["Claim", "Verdict", "The paper", "Measured here", "Control that decides"], rows)


def _figures(folder: Path, figures: list[dict[str, str]]) -> str:
    return '<div class="figures">' + "\n".join(_figure(folder / "figures", figure) for figure in figures) + "</div>"


def _figure(folder: Path, figure: dict[str, str]) -> str:
    name = figure["name"]
    drawing = (folder / f"{name}.svg").read_bytes()
    width = re.search(rb'<svg[^>]*\swidth="([\d.]+)pt"', drawing)
    points = float(width[1]) if width else WIDE_POINTS
    kind, data = ("svg+xml", drawing)
    if len(drawing) > MAX_SVG:
        kind, data = "png", (folder / f"{name}.png").read_bytes()
    source = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
    return (
        f'<figure class="{"wide" if points > WIDE_POINTS else "narrow"}"><h3>{text(figure["title"])}</h3>'
        f'<div class="paper" tabindex="0"><img alt="{html.escape(figure["alt"])}" '
        f'style="--width:{points / 72 * SCALE:.2f}in" src="{source}"></div>'
        f"<figcaption>{text(figure['caption'])} {_code(f'figures/{name}.svg')}</figcaption></figure>"
    )


def _audit(audit: dict[str, Any]) -> str:
    """Return the laws that a run was checked for, and behind a fold those whose conditions it does not meet."""
    rows = [
        [
            _law(row),
            verdict("holds" if row["residual"] <= row["tolerance"] else "does not hold"),
            f"{row['residual']:.1e}",
            f"{row['tolerance']:.1e}",
        ]
        for row in audit["rows"]
    ]
    others = [[_law(entry), text(entry["reason"])] for entry in audit["skipped"]]
    laws = table(LAWS, ["Law", "Verdict", "Largest residual", "Tolerance"], rows)
    missing = table(LAWS, ["Law", "Reason"], others)
    count = f"{len(others)} law{'' if len(others) == 1 else 's'} whose conditions this run does not meet"
    fold = f"<details><summary>{count}</summary>{missing}</details>" if others else ""
    return f"<h3>{text(audit['title'])}</h3>\n{laws}{fold}"


def _law(entry: dict[str, str]) -> str:
    number = "" if entry["law"] == "-" else _code(f"law {entry['law']}", "id")
    return f'<span class="statement">{text(entry["statement"])}</span>{number}'


def _values(values: dict[str, Any]) -> str:
    rows = [[_code(name), html.escape(_shown(value))] for name, value in values.items()]
    return table("values", ["Name", "Value"], rows)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_shown, value)) or "none"
    words = {True: "yes", False: "no", None: "none"}
    return words[value] if value is None or isinstance(value, bool) else str(value)


def _minute(moment: str) -> str:
    """Return an ISO time as a date and a time of day to the minute."""
    return moment[:16].replace("T", " ")


def _circumstances(config: dict[str, Any]) -> dict[str, Any]:
    times = {name: _minute(config[name]) for name in ("started", "finished") if config[name]}
    return {**config["versions"], "precision": config["precision"], "device": config["device"], **times}


def _code(name: str, kind: str = "") -> str:
    return f'<code class="{kind}">{html.escape(name)}</code>' if kind else f"<code>{html.escape(name)}</code>"


def _listing(code: str) -> str:
    return f"<pre><code>{html.escape(code)}</code></pre>"


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
