"""Runs of a toy experiment: what is written, what survives, what is refused."""

import dataclasses
import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import optax
import pytest
import toy_experiment as toy
import xarray

import gradflow as gf
from gradflow.descent import checkpoint
from gradflow.errors import FlowError
from gradflow.experiments import folder, registry, reproduce, run

TESTS = str(Path(toy.__file__).parent)
CONFIG = toy.Config()
PLAIN = dataclasses.replace(toy.EXPERIMENT, figures=lambda config, results: [])  # drawing takes most of a toy's time


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(toy, "CALLS", [])
    monkeypatch.setattr(toy, "ACTIONS", {})


def read(path: Path):
    return json.loads(path.read_text())


def results(path: Path) -> xarray.DataTree:
    return xarray.open_datatree(path / "results.zarr", engine="zarr", consolidated=False)


def fail(workspace: Path):
    raise FlowError("the flow\nfailed")


def interrupt(workspace: Path):
    raise KeyboardInterrupt


def run_badly(path: Path, stage: str, action, error: type[BaseException], **options):
    toy.ACTIONS[stage] = action
    with pytest.raises(error):
        run(PLAIN, CONFIG, path, **options)
    toy.ACTIONS.clear()
    toy.CALLS.clear()


def tree(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


def test_run_writes_all_that_is_promised(tmp_path: Path):
    watched = []
    claims = run(toy.EXPERIMENT, CONFIG, tmp_path / "a" / "b", page=tree_page, watch=lambda *seen: watched.append(seen))
    path = tmp_path / "a" / "b"
    assert tree(path) == ["audits.json", "claims.json", "config.json", "figures", "report.html", "results.zarr"]
    assert tree(path / "figures") == ["figures.json", "weights.png", "weights.svg"]
    assert read(path / "claims.json") == [dataclasses.asdict(claim) for claim in claims]
    assert read(path / "audits.json") == [json.loads(json.dumps(dataclasses.asdict(toy.AUDIT)))]
    assert [claim.verdict for claim in claims] == ["holds", "holds in part"]
    assert watched == [("flow", 0, 3), ("descent", 1, 3), ("figures", 2, 3)]
    config = read(path / "config.json")
    assert config["settings"]["kappas"] == [1.0, 5.0] and config["seeds"] == {"seeds": 3}
    assert config["precision"] == "float64" and config["device"] and config["preset"] == "quick"
    assert {"python", "gradflow-jax", "jax", "diffrax", "equinox", "optax", "numpy"} == set(config["versions"])
    assert config["command"] == "gradflow run toy" and config["finished"]


def tree_page(path: Path) -> str:
    return " ".join(tree(path))


def test_results_open_in_xarray(tmp_path: Path):
    run(PLAIN, CONFIG, tmp_path)
    stored = results(tmp_path)
    assert stored["flow"]["weights"].shape == (3, 4)
    assert list(stored["descent"]["status"].values) == ["successful", "max steps"]


def test_claims_are_judged_on_what_is_stored(tmp_path: Path):
    seen = {}

    def look(config, results):
        seen.update(results["flow"])
        return toy.claims(config, results)

    run(dataclasses.replace(PLAIN, claims=look), CONFIG, tmp_path)
    wanted = toy.stage("flow", CONFIG).compute(tmp_path)
    assert list(seen) == list(wanted)
    for name, value in wanted.items():
        assert seen[name].dtype == value.dtype and seen[name].shape == value.shape
        np.testing.assert_array_equal(seen[name], value)


@pytest.mark.parametrize("action, error", [(fail, FlowError), (interrupt, KeyboardInterrupt)])
def test_resume_computes_only_what_is_missing(tmp_path: Path, action, error):
    run(PLAIN, CONFIG, tmp_path / "whole")
    run_badly(tmp_path / "part", "descent", action, error, page=tree_page)
    early = read(tmp_path / "part" / "claims.json")
    assert [claim["id"] for claim in early] == list(PLAIN.recorded)
    assert {claim["verdict"] for claim in early} == {"not tested"}
    assert "\n" not in early[0]["statement"]
    assert (tmp_path / "part" / "report.html").exists()
    run(PLAIN, CONFIG, tmp_path / "part", resume=True)
    assert toy.CALLS == ["descent"]
    assert read(tmp_path / "part" / "claims.json") == read(tmp_path / "whole" / "claims.json")
    assert not (tmp_path / "part" / "checkpoints").exists()


def test_finished_stages_survive_kill_9(tmp_path: Path):
    code = (
        "import os, signal, jax, toy_experiment as toy; from gradflow.experiments import run\n"
        "jax.config.update('jax_enable_x64', True)\n"
        "toy.ACTIONS['descent'] = lambda workspace: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"run(toy.EXPERIMENT, toy.Config(), {str(tmp_path)!r})"
    )
    killed = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    run(PLAIN, CONFIG, tmp_path, resume=True)
    assert toy.CALLS == ["descent"]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([TESTS, str(Path(gf.__file__).parent.parent)])}


def test_half_written_stage_is_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def kill(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("gradflow.experiments.writer.os.rename", kill)
        with pytest.raises(KeyboardInterrupt):
            run(PLAIN, CONFIG, tmp_path)
    assert (tmp_path / ".flow.part").is_dir()
    toy.CALLS.clear()
    run(PLAIN, CONFIG, tmp_path, resume=True)
    assert toy.CALLS == ["flow", "descent"] and not (tmp_path / ".flow.part").exists()


@pytest.fixture
def python_answers_interrupts():
    """Give Ctrl-C Python's own handler: a shell that starts the tests in the background has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def test_swallowed_interrupt_still_ends_the_run(tmp_path: Path, python_answers_interrupts):
    def swallow(workspace: Path):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            pass

    run_badly(tmp_path, "descent", swallow, KeyboardInterrupt)
    assert signal.getsignal(signal.SIGINT) is python_answers_interrupts
    assert tree(tmp_path / "results.zarr") == ["flow", "zarr.json"]


def quadratic(model, args):
    return 0.5 * (model**2 * args).sum()


def descend(workspace: Path):
    rates, start = np.array([1.0, 0.1]), np.ones(2)
    save_at = gf.log_steps(20_000, 10)
    run = gf.gradient_descent(
        quadratic, start, optax.sgd(1e-4), rates, steps=20_000, save_at=save_at, checkpoint=workspace / "descent.eqx"
    )
    return {"weights": np.asarray(run.observed)}


def test_paper_preset_goes_on_from_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    paper = toy.Config.paper()
    experiment = dataclasses.replace(PLAIN, claims=lambda *_: [])
    toy.ACTIONS["descent"] = descend
    run(experiment, paper, tmp_path / "whole", preset="paper")
    monkeypatch.setattr(checkpoint, "EVERY_SECONDS", 0.0)
    save, loads = checkpoint.Checkpoint.save, []

    def save_and_stop(self, state, now=False):
        save(self, state, now=now)
        if not now:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.Checkpoint, "save", save_and_stop)
        with pytest.raises(KeyboardInterrupt):
            run(experiment, paper, tmp_path / "part", preset="paper")
    assert (tmp_path / "part" / "checkpoints" / "descent" / "descent.eqx").exists()
    load = checkpoint.Checkpoint.load
    monkeypatch.setattr(checkpoint.Checkpoint, "load", lambda self, state: loads.append(load(self, state)) or loads[-1])
    run(experiment, paper, tmp_path / "part", preset="paper", resume=True)
    assert 0 < int(loads[0].step) < 20_000
    assert not (tmp_path / "part" / "checkpoints").exists()
    whole, part = results(tmp_path / "whole"), results(tmp_path / "part")
    assert whole["descent"]["weights"].identical(part["descent"]["weights"])


def test_earlier_run_is_never_written_over(tmp_path: Path):
    run(PLAIN, CONFIG, tmp_path)
    before = {name: (tmp_path / name).stat().st_mtime_ns for name in tree(tmp_path)}
    with pytest.raises(FlowError, match=r"holds a run of toy.*--overwrite"):
        run(PLAIN, CONFIG, tmp_path)
    assert before == {name: (tmp_path / name).stat().st_mtime_ns for name in tree(tmp_path)}


def test_overwrite_replaces_the_run_and_nothing_else(tmp_path: Path):
    run(PLAIN, CONFIG, tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "results.zarr" / "stale").mkdir()
    toy.CALLS.clear()
    run(PLAIN, toy.Config(seeds=5), tmp_path, overwrite=True)
    assert toy.CALLS == ["flow", "descent"]
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert tree(tmp_path / "results.zarr") == ["descent", "flow", "zarr.json"]
    assert read(tmp_path / "config.json")["settings"]["seeds"] == 5


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name, text", [("thesis.tex", "x"), ("config.json", "{}"), ("config.json", "[broken")])
def test_folder_of_somebody_else_is_left_alone(tmp_path: Path, overwrite: bool, name: str, text: str):
    (tmp_path / name).write_text(text)
    with pytest.raises(FlowError, match="something else than a run of gradflow"):
        run(PLAIN, CONFIG, tmp_path, overwrite=overwrite)
    assert tree(tmp_path) == [name] and (tmp_path / name).read_text() == text


def test_resume_says_what_differs(tmp_path: Path):
    run_badly(tmp_path, "descent", fail, FlowError)
    with pytest.raises(
        FlowError, match=r"seeds = 3 \(here 4\), kappas = \[1.0, 5.0\] \(here \[2.0\]\): --resume needs"
    ):
        run(PLAIN, toy.Config(seeds=4, kappas=(2.0,)), tmp_path, resume=True)
    record = read(tmp_path / "config.json")
    record["versions"]["jax"] = "0.1"
    (tmp_path / "config.json").write_text(json.dumps(record))
    with pytest.raises(FlowError, match=r"jax = '0\.1'"):
        run(PLAIN, CONFIG, tmp_path, resume=True)
    assert toy.CALLS == []


def test_overwrite_and_resume_exclude_each_other(tmp_path: Path):
    with pytest.raises(FlowError, match="exclude each other"):
        run(PLAIN, CONFIG, tmp_path, overwrite=True, resume=True)


def test_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(FlowError, match="cannot be written"):
            run(PLAIN, CONFIG, path)
    # The tests may run as root, whom no permission stops.
    monkeypatch.setattr("gradflow.files.os.access", lambda *_: False)
    with pytest.raises(FlowError, match="Permission denied"):
        run(PLAIN, CONFIG, tmp_path / "new")


def test_two_runs_do_not_share_a_folder(tmp_path: Path):
    with folder.claimed(tmp_path, {}, overwrite=False, resume=False), pytest.raises(FlowError, match="another run"):
        run(PLAIN, CONFIG, tmp_path)
    run(PLAIN, CONFIG, tmp_path)
    assert toy.CALLS == ["flow", "descent"]


@pytest.mark.parametrize("value", [object(), [1, "x", None]])
def test_results_that_cannot_be_stored_are_named(tmp_path: Path, value):
    toy.ACTIONS["flow"] = lambda workspace: {"odd": np.array(value, dtype=object)}
    with pytest.raises(FlowError, match="stage 'flow' returned 'odd'"):
        run(PLAIN, CONFIG, tmp_path)


def test_full_disk_does_not_hide_why_a_run_ended(tmp_path: Path):
    def no_page(path: Path) -> str:
        raise OSError("disk full")

    run_badly(tmp_path, "descent", interrupt, KeyboardInterrupt, page=no_page)
    assert tree(tmp_path / "results.zarr") == ["flow", "zarr.json"]


def test_ledger_agrees_with_recorded_verdicts(tmp_path: Path):
    rows = reproduce([PLAIN], tmp_path)
    assert [row.agrees for row in rows] == [True, True]
    ledger = read(tmp_path / "ledger.json")
    assert ledger["agrees"] and [row["id"] for row in ledger["rows"]] == ["largest", "same"]
    assert {"statement", "paper", "measured", "verdict", "recorded", "control"} < set(ledger["rows"][0])
    toy.CALLS.clear()
    assert reproduce([PLAIN], tmp_path) == rows
    assert toy.CALLS == [], "finished runs of equal settings are kept"
    reproduce([PLAIN], tmp_path, overwrite=True)
    assert toy.CALLS == ["flow", "descent"]


def test_ledger_flags_changed_missing_and_new_claims(tmp_path: Path):
    recorded = {"largest": "does not hold", "gone": "not tested"}
    rows = reproduce([dataclasses.replace(PLAIN, recorded=recorded)], tmp_path)
    assert [(row.claim.id, row.claim.verdict, row.recorded, row.agrees) for row in rows] == [
        ("largest", "holds", "does not hold", False),
        ("same", "holds in part", None, False),
        ("gone", "not tested", "not tested", False),
    ]
    assert not read(tmp_path / "ledger.json")["agrees"]


def test_ledger_goes_on_after_a_failure(tmp_path: Path):
    broken = dataclasses.replace(PLAIN, name="broken", stages=lambda config: fail(tmp_path))
    rows = reproduce([broken, PLAIN], tmp_path)
    assert [row.agrees for row in rows] == [False, False, True, True]
    assert "the flow failed" in rows[0].claim.statement


def test_registry_suggests_the_nearest_name():
    with pytest.raises(FlowError, match="did you mean 'condition-number'"):
        registry.get("condition-numbers")


@pytest.mark.parametrize("name", registry.names())
def test_every_experiment_is_whole(name: str):
    experiment = registry.get(name)
    config = experiment.config()
    assert experiment.name == name and experiment.title and experiment.source and experiment.recorded
    assert dataclasses.is_dataclass(config) and type(experiment.config.paper()) is type(config)
    reserved = {"preset", "out", "overwrite", "resume", "help"}
    assert not reserved & {field.name for field in dataclasses.fields(config)}
    assert len({stage.name for stage in experiment.stages(config)}) == len(experiment.stages(config))
    assert importlib.import_module(registry.MODULES[name]).EXPERIMENT is experiment
