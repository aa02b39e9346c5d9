"""Stored sweeps: the same numbers, resumed from any point, refused where they are of another spec."""

import errno
import json
import os
import shutil
import subprocess
import sys
import threading
import types
from pathlib import Path

import jax
import numpy as np
import pytest
import toy_sweep as toy
import xarray

from gradflow.errors import FlowError, FlowWarning, Interrupted
from gradflow.sweep import Flow, failures, layout
from gradflow.sweep import store as store_module
from gradflow.sweep.store import Store
from gradflow.sweep.work import Work


@pytest.fixture(scope="module")
def ds() -> xarray.Dataset:
    return toy.run()


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("sweep") / "a" / "toy.zarr"
    toy.run(store=path)
    return path


@pytest.fixture
def store(finished: Path, tmp_path: Path) -> Path:
    """A finished store to damage."""
    return shutil.copytree(finished, tmp_path / "toy.zarr")


def bits(path: Path) -> dict[str, bytes]:
    """Every chunk file of a store."""
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("c/**/*") if file.is_file()}


def drop(path: Path, *places: str) -> None:
    """Forget the marker of chunks, as if the process had been killed before their last file was there."""
    for place in places:
        path.joinpath("result", "c", *place).unlink()


def changed(path: Path, **attributes) -> None:
    root = json.loads((path / "zarr.json").read_text())
    root["attributes"].update(attributes)
    (path / "zarr.json").write_text(json.dumps(root))


def count_runs(monkeypatch) -> list:
    run, calls = Work.run, []
    monkeypatch.setattr(Work, "run", lambda self, chunk, **options: calls.append(chunk) or run(self, chunk, **options))
    return calls


def test_stored_numbers_are_those_of_memory(ds, finished):
    opened = xarray.open_zarr(finished, chunks=None)
    again = toy.run(store=finished)
    for found in (opened, again):
        assert set(found) == set(ds) and set(found.coords) == set(ds.coords)
        for name in ds.variables:
            np.testing.assert_array_equal(found[name].values, ds[name].values, strict=name != "result")
            assert found[name].dims == ds[name].dims and found[name].attrs == ds[name].attrs
    assert {name: again.attrs[name] for name in ("spec", "spec_hash", "versions", "failures")} == {
        name: ds.attrs[name] for name in ("spec", "spec_hash", "versions", "failures")
    }
    assert failures(opened) == [] and not list(finished.glob(".*"))
    assert again["result"].dtype.kind == "U"


def test_a_finished_store_is_not_run_again(finished, monkeypatch):
    calls = count_runs(monkeypatch)
    toy.run(store=finished)
    toy.run(store=str(finished), chunk=None)
    assert calls == []


def test_resume_runs_what_is_missing_and_gives_the_same_bits(store, monkeypatch):
    whole = bits(store)
    drop(store, "000", "210")
    (store / ".abandoned.part" / "x").mkdir(parents=True)
    part = xarray.open_zarr(store, chunks=None)
    assert (part["result"].values == "not run").sum() == 8
    calls = count_runs(monkeypatch)
    toy.run(store=store)
    assert [chunk.place for chunk in calls] == [(0, 0, 0), (2, 1, 0)]
    assert bits(store) == whole and not list(store.glob(".*"))


def test_unfinished_chunks_are_wiped_before_anything_runs(store, monkeypatch):
    drop(store, "110")

    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(Work, "run", interrupt)
    with pytest.raises(Interrupted) as caught:
        toy.run(store=store)
    part = caught.value.trajectory
    done = part["result"] != "not run"
    assert int((~done).sum()) == 4 and np.isnan(part["x"].where(~done)).all()
    assert (part["num_steps"].where(~done, -1) == -1).all() and not part["valid"].where(~done, False).any()
    monkeypatch.undo()
    assert (toy.run(store=store)["result"] == "successful").all()


@pytest.mark.parametrize("stage", ["zarr.json", "consolidate"])
def test_a_store_killed_while_it_is_made_is_made_again(tmp_path, monkeypatch, ds, stage):
    import zarr

    def kill(*arguments, **options):
        raise KeyboardInterrupt

    path = tmp_path / "new.zarr"
    with monkeypatch.context() as patch:
        if stage == "consolidate":
            patch.setattr(zarr, "consolidate_metadata", kill)
        else:
            patch.setattr(Store, "note", kill)
        with pytest.raises(KeyboardInterrupt):
            toy.run(store=path)
    assert (path / "zarr.json").exists()
    np.testing.assert_array_equal(toy.run(store=path)["x"], ds["x"])


def other_build(key, *, kappa, scale=1.0):
    return toy.build(key, kappa=kappa, scale=scale)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (
            {"axes": {**toy.AXES, "kappa": [1.0, 2.0, 5.0]}},
            r"kappa.values = \[1.0, 2.0, 4.0\] \(here \[1.0, 2.0, 5",
        ),
        ({"axes": {**toy.AXES, "seed": range(5)}}, "axes.seed.values.*a stored grid is not extended"),
        ({"key": jax.random.key(8)}, r"key = \[0, 7\] \(here \[0, 8\]\)"),
        ({"method": Flow(t1=2.0, ts=toy.TIMES, **toy.OPTIONS)}, r"method.t1 = 1.0 \(here 2.0\)"),
        ({"method": Flow(t1=1.0, ts=toy.TIMES[1:], **toy.OPTIONS)}, r"method.ts = \[0.0, 0.5, 1.0\] \(here"),
        ({"method": Flow(t1=1.0, ts=toy.TIMES, rtol=1e-8, lanes=2)}, r"method.solver.*method.rtol|method.rtol.*"),
        ({"observe": None}, "observe is observe"),
        ({"build": other_build}, r"build is build \(here other_build\)"),
        ({"independent": True}, r"independent = false \(here true\)"),
        ({"parameters": True}, r"parameters = false \(here true\)"),
        ({"chunk": 2}, r"chunk = \[1, 1, 4\] \(here \[1, 1, 2\]\)"),
        ({"resume": False}, "a sweep already, and resume is False"),
    ],
)
def test_another_sweep_is_refused_with_what_differs(finished, options, match):
    before = bits(finished)
    with pytest.raises(FlowError, match=match) as caught:
        toy.run(store=finished, **options)
    assert "\n" not in str(caught.value) and bits(finished) == before


def test_other_versions_are_refused_unless_told(store):
    versions = json.loads(json.loads((store / "zarr.json").read_text())["attributes"]["versions"])
    changed(store, versions=json.dumps({**versions, "jax": "0.1"}))
    with pytest.raises(FlowError, match=r"jax 0\.1 \(here .*allow_versions=True"):
        toy.run(store=store)
    found = toy.run(store=store, allow_versions=True)
    assert (found["result"] == "successful").all()
    # The store says that two versions wrote it, once for each.
    (also,) = json.loads(toy.run(store=store, allow_versions=True).attrs["also_versions"])
    assert json.loads(also)["jax"] == jax.__version__ and json.loads(found.attrs["versions"])["jax"] == "0.1"


def test_what_a_disk_may_not_hold_is_said_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: types.SimpleNamespace(free=1024))
    with pytest.warns(FlowWarning, match=r"takes 4\.85 KiB before compression, and the disk of store has 1 KiB left"):
        toy.run(store=tmp_path / "full.zarr")
    monkeypatch.undo()
    monkeypatch.setattr(layout, "LARGE_BYTES", 1024)
    with pytest.warns(FlowWarning, match="with parameters=True the result takes 5.23 KiB before compression"):
        toy.run(store=tmp_path / "large.zarr", parameters=True)


def test_a_store_without_a_finished_chunk_takes_another_sweep(tmp_path, ds):
    with pytest.raises(FlowError, match="rtol is 2"):
        toy.run(store=tmp_path / "new", method=Flow(t1=1.0, ts=toy.TIMES, rtol=2.0))
    np.testing.assert_array_equal(toy.run(store=tmp_path / "new")["x"], ds["x"])


@pytest.mark.parametrize(("name", "text"), [("thesis.tex", "x"), ("zarr.json", "{}"), ("zarr.json", "[broken")])
def test_a_folder_of_somebody_else_is_left_alone(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(FlowError, match="something else than a sweep"):
        toy.run(store=tmp_path)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [(name, text)]


@pytest.mark.parametrize("where", ["shutil.copyfile", "os.replace", "zarr.open_array"])
def test_a_full_disk_is_one_clear_error_and_harms_nothing(tmp_path, monkeypatch, ds, where):
    module, name = where.split(".")
    target = {"shutil": shutil, "os": os, "zarr": __import__("zarr")}[module]
    real, calls = getattr(target, name), []
    path = tmp_path / "toy.zarr"

    def full(*arguments, **options):
        if ".part" in str(arguments) and (store_has(path) or calls):
            calls.append(arguments)
            if len(calls) > 9:
                raise OSError(errno.ENOSPC, "No space left on device")
        return real(*arguments, **options)

    monkeypatch.setattr(target, name, full)
    with pytest.raises(FlowError, match=r"cannot be written \(No space left on device\): make room") as caught:
        toy.run(store=path)
    assert "\n" not in str(caught.value)
    monkeypatch.undo()
    part = xarray.open_zarr(path, chunks=None)
    done = part["result"] != "not run"
    assert 0 < int(done.sum()) < done.size
    np.testing.assert_array_equal(part["x"].where(done), ds["x"].where(done))
    assert not list(path.glob(".*.part"))
    np.testing.assert_array_equal(toy.run(store=path)["x"], ds["x"])


def store_has(path: Path) -> bool:
    return path.joinpath("result", "c").exists()


def test_numbers_that_no_store_holds(tmp_path):
    with pytest.raises(FlowError, match="'x' as bfloat16, which Zarr does not know"):
        toy.run(store=tmp_path, observe=lambda t, m, a: {"x": m.x.astype("bfloat16")})


def test_places_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "sweep"):
        with pytest.raises(FlowError, match=r"store is .* which cannot be written"):
            toy.run(store=path)
    # The tests may run as root, whom no permission stops.
    monkeypatch.setattr("gradflow.files.os.access", lambda *_: False)
    with pytest.raises(FlowError, match="Permission denied"):
        toy.run(store=tmp_path / "new")


def test_two_sweeps_do_not_write_one_store(store, ds):
    with Store(store).held(), pytest.raises(FlowError, match="another run is writing to"):
        toy.run(store=store)
    np.testing.assert_array_equal(toy.run(store=store)["x"], ds["x"])


def test_a_store_is_not_tidied_under_a_worker_that_a_killed_process_left(store, monkeypatch):
    drop(store, "210")
    threads, moved = [], store_module._move

    def move(source, target):
        if not threads:
            threads.append(threading.Thread(target=Store(store).tidy, args=([], [])))
            threads[0].start()
            threads[0].join(0.2)
            assert threads[0].is_alive(), "files of a chunk that is being written were removed"
        moved(source, target)

    monkeypatch.setattr(store_module, "_move", move)
    toy.run(store=store)
    threads[0].join(10)
    assert not threads[0].is_alive() and (xarray.open_zarr(store)["result"] == "successful").all()


def test_a_result_larger_than_memory_goes_through_a_store(tmp_path, ds):
    found = toy.run(store=tmp_path / "large.zarr", max_bytes=1)
    np.testing.assert_array_equal(found["x"].isel(kappa=1), ds["x"].isel(kappa=1))


def test_grids_without_axes_zipped_axes_and_names_are_stored(tmp_path):
    alone = toy.run({}, build=lambda key: toy.build(key, kappa=2.0), store=tmp_path / "one")
    assert alone["result"].item() == "successful" and xarray.open_zarr(tmp_path / "one")["x"].shape == (3, 2)
    zipped = toy.run({("scale", "kappa"): [(1.0, 2.0), (0.5, 4.0)], "seed": range(2)}, store=tmp_path / "zipped")
    opened = xarray.open_zarr(tmp_path / "zipped", chunks=None)
    assert set(opened.coords) == {"scale", "kappa", "seed", "time"} == set(zipped.coords)
    xarray.testing.assert_equal(opened["x"], zipped["x"])


def test_nothing_is_unpickled(finished):
    for file in finished.rglob("zarr.json"):
        assert "pickle" not in file.read_text()
    read = f"print(float(xarray.open_zarr({str(finished)!r}, chunks=None).x.sum()))"
    code = f"import pickle, sys\npickle.load = pickle.loads = None\nimport xarray\n{read}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and np.isfinite(float(done.stdout)), done.stderr
