"""Every example runs as it is, in a folder of its own."""

import runpy
from pathlib import Path

import pytest
from matplotlib import pyplot

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


def test_the_examples_are_there():
    assert {path.stem for path in EXAMPLES} >= {"own_model", "own_network"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
    pyplot.close("all")
    written = {file.suffix for file in tmp_path.iterdir()}
    assert written == {".svg", ".png"}, "the example draws no picture"
