"""The page over all reports: every claim, its verdict here, and the recorded one."""

import html
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gradflow.report.page import frame, section, table, tally, text, verdict

HEADS = ["Claim", "Verdict", "Recorded", "The paper", "Measured here", "Control that decides"]


def ledger_page(folder: str | Path) -> str:
    """Return the ledger as one page that links to each report.

    Args:
        folder: with `ledger.json`.

    Returns:
        HTML.
    """
    ledger = json.loads((Path(folder) / "ledger.json").read_text(encoding="utf-8"))
    parts = [_experiment(experiment, ledger["rows"]) for experiment in ledger["experiments"]]
    return frame("The ledger · gradflow", [_header(ledger), "<main>", *parts, "</main>"])


def _header(ledger: dict[str, Any]) -> str:
    differing = sum(not row["agrees"] for row in ledger["rows"])
    outcome = '<p class="agreement">Each verdict is the one that the repository records.</p>'
    if differing:
        count = f"{differing} of {len(ledger['rows'])}"
        outcome = f'<p class="warning">{count} verdicts differ from the recorded ones; they are marked.</p>'
    return (
        '<header><p class="eyebrow">gradflow <span>reproduce</span></p><h1>Does it hold?</h1>'
        '<p class="source">What the papers claim, what was measured, and the control that decides.</p>'
        f"{outcome}{tally([row['verdict'] for row in ledger['rows']])}</header>"
    )


def _experiment(experiment: dict[str, str], rows: list[dict[str, Any]]) -> str:
    own = [row for row in rows if row["experiment"] == experiment["name"]]
    link = f'<a href="{quote(experiment["name"])}/report.html">{text(experiment["name"])}: figures and settings</a>'
    return section(
        experiment["title"],
        f'<p class="lead">{text(experiment["source"])} · {link}</p>',
        table("claims ledger", HEADS, map(_row, own), ["" if row["agrees"] else "differs" for row in own]),
    )


def _row(row: dict[str, Any]) -> list[str]:
    return [
        f'<span class="statement">{text(row["statement"])}</span><code class="id">{html.escape(row["id"])}</code>',
        verdict(row["verdict"]),
        verdict(row["recorded"]) if not row["agrees"] else f'<span class="same">{text(row["recorded"])}</span>',
        text(row["paper"]),
        text(row["measured"]),
        text(row["control"]),
    ]
