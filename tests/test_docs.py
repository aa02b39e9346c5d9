"""Every Python block of README.md and docs/ runs, the blocks of a page one after the other."""

import re
from pathlib import Path

import pytest

import gradflow as gf

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"^```python\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WITH_CODE = [page for page in PAGES if FENCE.search(page.read_text())]


def test_no_python_block_is_hidden_from_the_search():
    for page in PAGES:
        text = page.read_text()
        assert len(re.findall(r"```\s*(?:python|py)\b", text)) == len(FENCE.findall(text)), page


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    namespace: dict = {"__name__": "__main__"}
    for match in FENCE.finditer(text):
        padding = "\n" * text.count("\n", 0, match.start(1))  # tracebacks show the page's own line numbers
        exec(compile(padding + match.group(1), page, "exec"), namespace)
    assert "gf" in namespace


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_name_known_experiments(page: Path):
    named = re.findall(r"gradflow run ([a-z][\w-]*)", page.read_text())
    assert set(named) <= set(gf.experiments.names())


def test_command_line_page_lists_every_experiment():
    page = (ROOT / "docs" / "how-to" / "command-line.md").read_text()
    table = page.split("## The experiments")[1].split("\n## ")[0]
    assert re.findall(r"^\| `([\w-]+)` \|", table, flags=re.MULTILINE) == list(gf.experiments.names())
