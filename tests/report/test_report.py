"""Pages are valid, need nothing but themselves, and say everything in words."""

import dataclasses
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import toy_experiment as toy

from gradflow.errors import FlowError
from gradflow.experiments import Claim, reproduce, run
from gradflow.report import ledger_page, run_page
from gradflow.report.page import VERDICTS, tally, text

VOID = {"meta", "link", "img", "br", "hr", "input"}


class Page(HTMLParser):
    """Elements with attributes, and what is wrong with their nesting."""

    def __init__(self, source: str):
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.faults: list[str] = []
        self.words = ""
        self.feed(source)
        self.close()
        self.faults += [f"{tag} stays open" for tag in self.open]

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if len(attrs) != len(dict(attrs)):
            self.faults.append(f"{tag} has an attribute twice")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"{tag} is closed at the wrong place")

    def handle_data(self, data):
        self.words += data if "style" not in self.open else ""

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def faults(source: str) -> list[str]:
    """What keeps a page from standing alone and being read by everybody."""
    page = Page(source)
    found = page.faults[:]
    if not source.startswith("<!DOCTYPE html>"):
        found.append("no doctype")
    found += [f"{tag} is missing" for tag in ("title", "main", "h1") if not page.all(tag)]
    addresses = [a[name] or "" for _, a in page.elements for name in ("src", "href", "srcset") if name in a]
    outside = [address for address in addresses if re.match("(?!data:)[a-z]+:|//", address)]
    found += [f"loads {address}" for address in outside]
    found += [f"asks for {call}" for call in re.findall(r"@import|url\(|<script|<iframe", source)]
    found += ["a picture without words" for image in page.all("img") if not (image.get("alt") or "").strip()]
    return found


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report")
    run(toy.EXPERIMENT, toy.Config(seeds=4), path / "run")
    changed = dataclasses.replace(toy.EXPERIMENT, recorded={"largest": "does not hold", "same": "holds in part"})
    reproduce([changed], path / "ledger", page=run_page, index=ledger_page)
    toy.ACTIONS["descent"] = fail
    with pytest.raises(FlowError):
        run(toy.EXPERIMENT, toy.Config(seeds=4), path / "early run", page=run_page)
    toy.ACTIONS.clear()
    return path


def fail(workspace: Path):
    raise FlowError("it <failed>")


@pytest.mark.parametrize("name", ["run", "early run", "ledger", "ledger/toy"])
def test_pages_are_valid_and_stand_alone(folders: Path, name: str):
    source = ledger_page(folders / name) if name == "ledger" else run_page(folders / name)
    assert faults(source) == []


def test_faults_are_found():
    broken = (
        '<html><title>x</title><main><h1>a</h2></main><img src="https://a.b/c.png">'
        '<style>@import "x"; b { background: url(x) }</style><script src="//c.d/e.js"></script></html>'
    )
    assert len(faults(broken)) >= 8


def test_run_page_shows_everything(folders: Path):
    source = run_page(folders / "run")
    page = Page(source)
    for word in ("A toy", "nowhere, section 1", "2 claims", "✓ holds", "◐ holds in part", "Theorem 1: < 1"):
        assert word in page.words
    for word in ("Flow & descent differ by <1.", "Weights <fall>", "gradflow run toy --seeds 4", "loss_name", "optax"):
        assert word in page.words
    for word in ("flow of a toy", "the sum of scores is <kept>", "1.0e-15", "the loss falls", "1 law whose conditions"):
        assert word in page.words
    (image,) = page.all("img")
    assert image["alt"] == 'A line that falls: "slope" -1'
    assert str(image["src"]).startswith("data:image/svg+xml;base64,")
    assert "varre2026gradient" in page.words
    assert "prefers-color-scheme: dark" in source and "@media print" in source


def test_early_page_says_how_to_go_on(folders: Path):
    words = Page((folders / "early run" / "report.html").read_text()).words
    assert "2 not tested" in words and "it <failed>" in words
    assert f"gradflow run toy --seeds 4 --out '{folders / 'early run'}' --resume" in words


def test_ledger_page_links_reports_and_marks_differences(folders: Path):
    page = Page((folders / "ledger" / "report.html").read_text())
    (link,) = page.all("a")
    assert (folders / "ledger" / str(link["href"])).exists()
    assert [row.get("class") for row in page.all("tr")] == [None, "differs", None]
    assert "1 of 2 verdicts differ" in page.words


def test_large_drawings_are_shown_as_pixels(folders: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gradflow.report.run.MAX_SVG", 10)
    assert "data:image/png;base64," in run_page(folders / "run")


def test_every_verdict_has_sign_and_word():
    assert set(VERDICTS) == set(Claim.__annotations__["verdict"].__args__)
    words = Page(tally(["holds", "holds", "not tested"])).words
    assert words == "3 claims2 hold1 not tested"
    assert Page(tally([])).words == "0 claims"


def test_text_is_escaped_and_backticks_are_code():
    assert text("a < `b_i & c`") == "a &lt; <code>b_i &amp; c</code>"
    assert text("one ` alone") == "one ` alone"


def test_indices_and_powers_are_set_as_such():
    assert text("1 - s_max, |v_i|^2") == "1 − s<sub>max</sub>, |v<sub>i</sub>|<sup>2</sup>"
    assert text("t L -> 1, u_1 >= z, x < y") == "t L → 1, u<sub>1</sub> ≥ z, x &lt; y"
    assert text("tau = int |g| dt, lambda_min") == "τ = ∫\u00a0|g| dt, λ<sub>min</sub>"
    assert text("theta, beta-VAE, `tau -> 1`") == "theta, beta-VAE, <code>tau -&gt; 1</code>"
    assert text("x^-1 (a + b)^n") == "x<sup>-1</sup> (a + b)<sup>n</sup>"
    assert text("results_zarr, loss_name, __init__, ^2") == "results_zarr, loss_name, __init__, ^2"
