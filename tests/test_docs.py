"""Every Python block of README.md and docs/ runs, the blocks of a page one after the other, and prints what it says."""

import contextlib
import io
import itertools
import re
from pathlib import Path

import pytest

import gradflow as gf

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"^```python\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
OUTPUT = re.compile(r"\s*^``` \{\.text \.output\}\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)  # right after its block
NUMBER = re.compile(r"[+-]?\d+(?:\.\d*)?(?:e[+-]?\d+)?")
ROUNDING = 1e-9  # a number below this is a residual, which no two machines share
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WITH_CODE = [page for page in PAGES if FENCE.search(page.read_text())]
# Pages of which other tests run the most.
LONG = (
    "choosing",
    "clock",
    "gaps",
    "laws-of-attention",
    "own-network",
    "real-data",
    "schedules",
    "sweeps",
)  # pages of which other tests run the most


def test_no_python_block_is_hidden_from_the_search():
    for page in PAGES:
        text = page.read_text()
        assert len(re.findall(r"```\s*(?:python|py)\b", text)) == len(FENCE.findall(text)), page


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.slow) if page.stem in LONG else page for page in WITH_CODE],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    namespace: dict = {"__name__": "__main__"}
    for match in FENCE.finditer(text):
        padding = "\n" * text.count("\n", 0, match.start(1))  # tracebacks show the page's own line numbers
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(padding + match.group(1), page, "exec"), namespace)
        expected = OUTPUT.match(text, match.end())
        if expected:
            check_output(printed.getvalue(), expected.group(1))
    assert "gf" in namespace


def check_output(printed: str, expected: str):
    """Compare lines, up to `...`: words must be equal, numbers close, for steps differ between versions of JAX."""
    shown = list(itertools.takewhile(lambda line: line != "...", expected.splitlines()))
    lines = printed.splitlines()
    assert len(lines) == len(shown) or "..." in expected.splitlines(), printed
    for line, wanted in zip(lines, shown, strict=False):
        assert NUMBER.sub("#", line).split() == NUMBER.sub("#", wanted).split()
        for number, other in zip(map(float, NUMBER.findall(line)), map(float, NUMBER.findall(wanted)), strict=True):
            assert number == pytest.approx(other, rel=0.1) or max(abs(number), abs(other)) < ROUNDING, wanted


def test_the_check_of_outputs_can_fail():
    check_output("at t = 10.2 after 100 steps\nmore\n", "at t = 10.1 after 101 steps\n...\n")
    for wrong in ("at t = 12 after 100 steps\n", "by t = 10 after 100 steps\n", "at t = 10 after 100 steps\nmore\n"):
        with pytest.raises(AssertionError):
            check_output("at t = 10 after 100 steps\n", wrong)


def test_every_output_follows_a_block():
    for page in PAGES:
        text = page.read_text()
        following = [match for match in FENCE.finditer(text) if OUTPUT.match(text, match.end())]
        assert len(following) == text.count("``` {.text .output}"), page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_name_known_experiments(page: Path):
    named = re.findall(r"gradflow run ([a-z][\w-]*)", page.read_text())
    assert set(named) <= set(gf.experiments.names())


def test_command_line_page_lists_every_experiment():
    page = (ROOT / "docs" / "how-to" / "command-line.md").read_text()
    table = page.split("## The experiments")[1].split("\n## ")[0]
    assert re.findall(r"^\| `([\w-]+)` \|", table, flags=re.MULTILINE) == list(gf.experiments.names())
