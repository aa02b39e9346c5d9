"""`gradflow sweep`: options and files in, store, table and figure out; it goes on after Ctrl-C."""

import json
import shlex
import shutil
from pathlib import Path

import equinox._errors
import jax
import pytest
import xarray

from gradflow import cli
from gradflow.errors import FlowError
from gradflow.experiments import grid
from gradflow.sweep import run

CONFIGURED = ("jax_enable_x64", "jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
SPEC = """
activation = ["softmax", "normalised-sigmoid"]
kappa = "1:100:3"
n = 4
d = 2
seeds = 5
t1 = 100
saves = 3
solver = "tsit5"
"""
WORDS = "sweep kappa.toml --seeds 2 --scale=0.1:1:2"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory):
    """A folder where one sweep has run, with the settings of the process put back at the end."""
    place = tmp_path_factory.mktemp("sweeps")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(equinox._errors, "EQX_ON_ERROR", equinox._errors.EQX_ON_ERROR)
        patch.setenv("XDG_CACHE_HOME", str(place / "cache"))
        patch.chdir(place)
        before = {name: getattr(jax.config, name) for name in CONFIGURED}
        Path("kappa.toml").write_text(SPEC)
        yield place
        for name, value in before.items():
            jax.config.update(name, value)


@pytest.fixture(scope="module")
def printed(folder: Path) -> str:
    with pytest.MonkeyPatch.context() as patch:
        lines: list[str] = []
        patch.setattr("gradflow.cli.sweep.say", lines.append)
        patch.setattr("gradflow.cli.sweep.show_rows", lambda *rows: lines.append(repr(rows)))
        assert cli.main(WORDS.split()) == 0
    return "\n".join(lines)


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert captured.out == "" and line.startswith("gradflow: ")
    return line


def test_the_store_has_the_grid_of_file_and_options(printed: str):
    ds = xarray.open_zarr("runs/kappa/sweep.zarr")
    assert dict(ds.sizes) == {"activation": 2, "scale": 2, "kappa": 3, "seed": 2, "time": 3}
    assert (ds["result"] == "successful").all() and ds["entropy"].notnull().all()
    assert ds["kappa"].values.tolist() == [1, 10, 100] and "results: runs/kappa/sweep.zarr" in printed


def test_the_record_runs_it_again(printed: str, capsys: pytest.CaptureFixture[str]):
    config = json.loads(Path("runs/kappa/config.json").read_text())
    assert config["settings"]["seeds"] == 2 and config["finished"] and config["precision"] == "float64"
    assert cli.main([*shlex.split(config["command"])[1:], "--out", "runs/kappa", "--resume"]) == 0
    shown = capsys.readouterr().out
    assert "final_entropy: median" in shown and "normalised-sigmoid" in shown and "none" in shown


def test_the_figure_is_a_heat_map_of_the_two_longest_axes(printed: str):
    (figure,) = json.loads(Path("runs/kappa/figures/figures.json").read_text())
    assert figure["title"] == "final entropy over kappa and activation"
    assert figure["caption"] == "final entropy, median over scale and seed." and "medians go from" in figure["alt"]
    assert {path.name for path in Path("runs/kappa/figures").glob("final_*")} == {
        "final_entropy.svg",
        "final_entropy.png",
    }


def test_another_quantity_is_shown_without_running_again(printed: str, monkeypatch, capsys):
    monkeypatch.setattr(run.Work, "run", None)
    assert cli.main([*WORDS.split(), "--resume", "--show", "num_steps"]) == 0
    assert "num_steps: median" in capsys.readouterr().out
    assert Path("runs/kappa/figures/num_steps.svg").exists()


def test_one_axis_is_drawn_as_a_line_or_as_cells(printed: str):
    ds = xarray.open_zarr("runs/kappa/sweep.zarr").load()
    line = grid.draw(ds.isel(activation=[0], scale=[0]), "final_entropy").axes
    assert len(line) == 1 and line[0].get_xscale() == "log" and line[0].get_xlabel() == "kappa"
    cells = grid.draw(ds.isel(kappa=[0], scale=[0]), "final_entropy").axes[0]
    assert (cells.get_xlabel(), cells.get_ylabel()) == ("activation", "seed")
    assert grid.figures(ds.isel(kappa=[0], activation=[0], scale=[0]), "final_loss") == []


def test_many_values_have_few_labels():
    labels = grid._ticks(xarray.DataArray([float(i) for i in range(30)]).values)
    assert len(labels) == 30 and sum(map(bool, labels)) == 10 and labels[:4] == ["0", "", "", "3"]


MISTAKES = {
    "sweep missing.toml": "missing.toml cannot be read (No such file or directory): give a TOML file of settings, or",
    "sweep wrong.toml": "wrong.toml holds 'kapa', which is no setting of a sweep; did you mean 'kappa'?",
    "sweep --kapa 3": "unknown option '--kapa' of gradflow sweep; did you mean '--kappa'?",
    "sweep --kappa many": "--kappa",
    "sweep --kappa 1:0:3": "kappa is 1:0:3: log_range needs positive ends",
    "sweep --seeds": "--seeds",
    "sweep --scale -1": "scale is -1: it must be finite and at least 0",
    "sweep --show entropy": "unknown quantity 'entropy'; did you mean 'final_entropy'?",
    "sweep kappa.toml": "a run of sweep: --resume goes on with it, --overwrite replaces it",
    "sweep kappa.toml --resume": "seeds = 2 (here 5): --resume needs equal settings",
    "sweep kappa.toml --overwrite --resume": "exclude each other",
    "sweep --out .": "something else than a run",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_mistakes_get_one_line_and_code_2(words: str, printed: str, capsys: pytest.CaptureFixture[str]):
    Path("wrong.toml").write_text("kapa = 3")
    assert cli.main(words.split()) == 2
    assert MISTAKES[words] in one_line(capsys)
    assert not Path("runs/sweep").exists(), "a mistake leaves a folder behind"


def test_interrupt_says_how_to_go_on(printed: str, capsys: pytest.CaptureFixture[str], monkeypatch):
    calls = []

    def once(work, *arguments, **options):
        if calls:
            raise KeyboardInterrupt
        calls.append(work)
        return run_chunk(work, *arguments, **options)

    run_chunk = run.Work.run
    with monkeypatch.context() as patch:
        patch.setattr(run.Work, "run", once)
        assert cli.main([*WORDS.split(), "--out", "again", "--overwrite"]) == 130
    line = one_line(capsys)
    assert line.endswith("gradflow sweep kappa.toml --seeds 2 --scale=0.1:1:2 --out again --resume")
    assert cli.main(shlex.split(line.split("gradflow sweep")[1].join(["sweep", ""]))) == 0
    ours, theirs = (xarray.open_zarr(f"{path}/sweep.zarr").load() for path in ("again", "runs/kappa"))
    assert ours.drop_attrs().identical(theirs.drop_attrs()), "a resumed sweep has other bits"


def refuse(work, *arguments, **options):
    raise FlowError("a chunk runs")


def test_overwrite_starts_afresh(printed: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    shutil.copytree("runs/kappa", "copy")
    monkeypatch.setattr(run.Work, "run", refuse)
    assert cli.main([*WORDS.split(), "--out", "copy", "--overwrite"]) == 2
    assert one_line(capsys) == "gradflow: a chunk runs"
    assert not Path("copy/sweep.zarr/result/c").exists() and Path("runs/kappa/sweep.zarr/result/c").exists()


def test_help_has_every_setting(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["sweep", "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"--{name}" in shown for name in ("out", "show", "resume", "score-mean", "first-save", "max-steps"))
