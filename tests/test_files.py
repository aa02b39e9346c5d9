"""Files that are there whole or not at all, and folders that one run at a time writes."""

import os

import pytest

from gradflow import files
from gradflow.errors import FlowError


def test_an_interrupted_write_leaves_the_earlier_file(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    files.write_text(path, "[1]")

    def kill(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", kill)
        with pytest.raises(KeyboardInterrupt):
            files.write_text(path, "[2]")
    assert files.read_json(path) == [1]
    files.write_text(path, "[3]")
    assert files.read_json(path) == [3] and [entry.name for entry in tmp_path.iterdir()] == ["a.json"]


def test_what_is_missing_or_broken_reads_as_none(tmp_path):
    (tmp_path / "broken").write_text("{")
    assert files.read_json(tmp_path / "broken") is files.read_json(tmp_path / "missing") is None


def test_remove_takes_files_and_folders(tmp_path):
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    (tmp_path / "file").write_text("")
    assert files.occupied(tmp_path)
    for name in ("folder", "file", "missing"):
        files.remove(tmp_path / name)
    assert not list(tmp_path.iterdir())
    (tmp_path / ".left.part").mkdir()
    assert not files.occupied(tmp_path)


def test_a_lock_is_held_once_and_goes_with_its_holder(tmp_path):
    with files.locked(tmp_path, "store"), pytest.raises(FlowError, match=r"store is .*another run is writing to"):
        with files.locked(tmp_path, "store"):
            pass
    with files.locked(tmp_path, "store"):
        assert tmp_path.exists()


def test_many_take_their_turn_but_one_alone_waits(tmp_path):
    with files.turn(tmp_path, alone=False), files.turn(tmp_path, alone=False):
        with pytest.raises(FlowError, match="another run"), files.locked(tmp_path, "store"):
            pass
    with files.turn(tmp_path, alone=True), pytest.raises(FlowError, match="another run"):
        with files.locked(tmp_path, "store"):
            pass


def test_folders_are_made_or_refused(tmp_path):
    files.make(tmp_path / "a" / "b", "--out")
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").write_text("")
    with pytest.raises(FlowError, match=r"--out is .*which cannot be written"):
        files.make(tmp_path / "file", "--out")
