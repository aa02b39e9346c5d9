"""The command line: what it prints, its exit codes, one line for every mistake."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import equinox._errors
import jax
import pytest
import toy_experiment as toy

import gradflow
from gradflow import cli
from gradflow.cli import show
from gradflow.errors import FlowError
from gradflow.experiments import Claim, Row, registry

CONFIGURED = (
    "jax_enable_x64",
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
)


@pytest.fixture(autouse=True)
def contained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Keep the toy, the folders and the settings of the process inside one test."""
    monkeypatch.setattr(registry, "MODULES", {"toy": "toy_experiment"})
    monkeypatch.setattr(toy, "CALLS", [])
    monkeypatch.setattr(toy, "ACTIONS", {})
    monkeypatch.setattr(toy, "EXPERIMENT", dataclasses.replace(toy.EXPERIMENT, figures=lambda config, results: []))
    monkeypatch.setattr(equinox._errors, "EQX_ON_ERROR", equinox._errors.EQX_ON_ERROR)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    before = {name: getattr(jax.config, name) for name in CONFIGURED}
    yield
    for name, value in before.items():
        jax.config.update(name, value)


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert captured.out == "" and line.startswith("gradflow: ")
    return line


def fail(workspace: Path):
    raise FlowError("the flow failed at t = 3")


def interrupt(workspace: Path):
    raise KeyboardInterrupt


MISTAKES = {
    "rum toy": "unknown command 'rum'; did you mean 'run'?",
    "run": "needs the name of an experiment first: toy",
    "run --seeds 3": "needs the name of an experiment first: toy",
    "run tooy": "unknown experiment 'tooy'; did you mean 'toy'?",
    "run toy --sedes 3": "unknown option '--sedes' of gradflow run toy; did you mean '--seeds'?",
    "run toy --kapas=3": "did you mean '--kappas'?",
    "run toy --seeds many": "--seeds",
    "run toy --seeds": "--seeds",
    "run toy --seeds 0": "seeds is 0: it must be positive",
    "run toy --rtol nan": "rtol is nan: it must be finite",
    "run toy --floor inf": "floor is inf: it must be finite",
    "run toy --kappas": "kappas is empty: give at least one value",
    "run toy --kappas 2 -3": "kappas is -3.0: it must be positive",
    "run toy --preset slow": "'slow'",
    "run toy again": "again",
    "run toy --overwrite --resume": "exclude each other",
    "run toy --out file": "cannot be written",
    "run toy --out file/deeper": "cannot be written",
    "run toy --out mine": "something else than a run",
    "run toy --out mine --overwrite": "something else than a run",
    "list --long": "takes no options",
    "reproduce tooy": "did you mean 'toy'?",
    "reproduce --oot x": "did you mean '--out'?",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_mistakes_get_one_line_and_code_2(words: str, capsys: pytest.CaptureFixture[str]):
    Path("file").write_text("")
    Path("mine").mkdir()
    Path("mine/thesis.tex").write_text("x")
    assert cli.main(words.split()) == 2
    assert MISTAKES[words] in one_line(capsys)
    assert toy.CALLS == []


def test_list_shows_name_title_source_and_claims(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["list"]) == 0
    assert re.search(r"toy +A toy +nowhere, section 1 +2", capsys.readouterr().out)


def test_version_citation_and_help(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"gradflow {gradflow.__version__}\n"
    assert cli.main(["citation"]) == 0
    assert "varre2026gradient" in capsys.readouterr().out
    for words in ([], ["--help"], ["run", "--help"]):
        assert cli.main(words) == 0
        assert "gradflow run NAME" in capsys.readouterr().out


def test_help_of_an_experiment_has_every_setting(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["run", "toy", "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"--{name}" in shown for name in ("preset", "out", "overwrite", "resume", "loss-name", "floor"))
    assert "how many draws" in shown


def test_run_ends_with_verdicts_and_report(capsys: pytest.CaptureFixture[str]):
    words = "run toy --kappas 2 3 4 --no-centred --loss_name square --floor 0.5 --rtol 1e-9"
    assert cli.main(words.split()) == 0
    shown = capsys.readouterr().out
    assert "The largest weight is below 1." in shown and "holds in part" in shown
    assert shown.endswith("report: runs/toy/report.html\n")
    config = json.loads(Path("runs/toy/config.json").read_text())
    assert config["settings"] == {
        "seeds": 3,
        "rtol": 1e-9,
        "kappas": [2.0, 3.0, 4.0],
        "loss_name": "square",
        "centred": False,
        "floor": 0.5,
    }
    assert config["precision"] == "float64"
    # The command in the record is the run again.
    assert cli.main([*config["command"].split()[1:], "--resume"]) == 0
    assert toy.CALLS == ["flow", "descent"]


def test_paper_preset_is_where_settings_start_from():
    assert cli.main("run toy --preset paper --rtol 1e-5 --out paper".split()) == 0
    config = json.loads(Path("paper/config.json").read_text())
    assert (config["preset"], config["settings"]["seeds"], config["settings"]["rtol"]) == ("paper", 20, 1e-5)
    assert config["command"] == "gradflow run toy --preset paper --rtol 1e-05"


def test_existing_folder_needs_overwrite(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["run", "toy"]) == 0
    capsys.readouterr()
    assert cli.main(["run", "toy"]) == 2
    assert "--overwrite" in one_line(capsys)
    assert cli.main(["run", "toy", "--overwrite"]) == 0


def test_interrupt_says_how_to_go_on(capsys: pytest.CaptureFixture[str]):
    toy.ACTIONS["descent"] = interrupt
    assert cli.main("run toy --seeds 5 --out a".split()) == 130
    line = one_line(capsys)
    assert line.endswith("gradflow run toy --seeds 5 --out a --resume")
    toy.ACTIONS.clear()
    toy.CALLS.clear()
    assert cli.main(line.split("gradflow run ")[1].join(["run ", ""]).split()) == 0
    assert toy.CALLS == ["descent"]


def test_failure_of_a_stage_is_one_line(capsys: pytest.CaptureFixture[str]):
    toy.ACTIONS["flow"] = fail
    assert cli.main(["run", "toy"]) == 2
    assert one_line(capsys) == "gradflow: the flow failed at t = 3"


def test_reproduce_compares_with_the_record(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    assert cli.main(["reproduce"]) == 0
    assert "2 of 2 verdicts are the recorded ones" in capsys.readouterr().out
    assert Path("runs/reproduce/toy/report.html").exists() and Path("runs/reproduce/report.html").exists()
    monkeypatch.setattr(toy, "EXPERIMENT", dataclasses.replace(toy.EXPERIMENT, recorded={"largest": "does not hold"}))
    assert cli.main("reproduce toy --out other".split()) == 1
    shown = capsys.readouterr().out
    assert "differs: toy largest: holds, recorded does not hold" in shown
    assert "differs: toy same: holds in part, recorded None" in shown


def test_interrupted_reproduce_goes_on(capsys: pytest.CaptureFixture[str]):
    toy.ACTIONS["descent"] = interrupt
    assert cli.main(["reproduce"]) == 130
    assert "the same command goes on" in one_line(capsys)
    toy.ACTIONS.clear()
    toy.CALLS.clear()
    assert cli.main(["reproduce"]) == 0
    assert toy.CALLS == ["descent"]


@pytest.mark.parametrize("columns", [40, 80, 109, 110, 200])
def test_claims_are_readable_at_any_width(columns: int, capsys: pytest.CaptureFixture[str], monkeypatch):
    from rich.console import Console

    monkeypatch.setattr(show, "console", lambda: Console(width=columns, force_terminal=True, color_system="standard"))
    claim = Claim("id", "The largest weight is below 1.", "Theorem 1: < 1", "0.7", "holds in part", "`random`")
    show.show_claims("A toy", [(claim, Row("toy", claim, "holds"))])
    shown = capsys.readouterr().out
    plain = re.sub(r"\x1b\[[\d;]*m", "", shown)
    assert max(map(len, plain.splitlines())) <= columns
    assert "holds in part" in plain and "recorded: holds" in plain and "Theorem" in plain
    assert "\x1b[1;33m" in shown, "the verdict has its colour"


def test_prepare_keeps_kernels_where_the_user_keeps_caches(tmp_path: Path):
    cli.prepare()
    assert jax.config.jax_enable_x64
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "cache" / "gradflow" / "jax")


def test_prepare_does_without_a_cache_it_cannot_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "blocked").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "blocked"))
    before = jax.config.jax_compilation_cache_dir
    cli.prepare()
    assert jax.config.jax_compilation_cache_dir == before


def test_module_runs_as_a_process(tmp_path: Path):
    environment = {**os.environ, "PYTHONPATH": str(Path(gradflow.__file__).parent.parent)}
    words = [sys.executable, "-m", "gradflow", "run", "polarisation"]
    done = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == "gradflow: unknown experiment 'polarisation'; did you mean 'polarization'?\n"
