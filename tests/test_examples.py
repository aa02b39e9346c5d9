"""Every example runs as it is, in a folder of its own; the sweep on a smaller grid, and as it is in the slow suite."""

import runpy
from pathlib import Path
from typing import Any

import pytest
import xarray
from matplotlib import pyplot

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))
LONG = ("kappa_sweep", "own_network")
SMALLER: dict[str, dict[str, Any]] = {"kappa_sweep": {"kappas": 2, "seeds": 2}}


def test_the_examples_are_there():
    assert {path.stem for path in EXAMPLES} >= {"own_head", "own_model", "own_network", "kappa_sweep"}


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=pytest.mark.slow) if path.stem in LONG else path for path in EXAMPLES],
    ids=lambda path: path.stem,
)
def test_example(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    if path.stem in SMALLER:
        runpy.run_path(str(path))["main"](**SMALLER[path.stem])
    else:
        runpy.run_path(str(path), run_name="__main__")
    pyplot.close("all")
    written = {file.suffix for file in tmp_path.iterdir() if file.is_file()}
    assert written == {".svg", ".png"}, "the example draws no picture"


@pytest.mark.slow
def test_the_sweep_of_eleven_thousand_flows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (path,) = (path for path in EXAMPLES if path.stem == "kappa_sweep")
    runpy.run_path(str(path), run_name="__main__")
    pyplot.close("all")
    ds = xarray.open_zarr("runs/kappa.zarr")
    assert dict(ds["result"].sizes) == {"activation": 3, "scale": 3, "kappa": 25, "seed": 50}
    assert (ds["result"] == "successful").all() and ds["entropy"].notnull().all()
