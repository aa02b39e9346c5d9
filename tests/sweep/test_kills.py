"""kill -9 at any moment: an unfinished chunk is not seen, the lock goes with the process, resumed bits are equal."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import toy_sweep as toy
import xarray

import gradflow
from gradflow.errors import FlowError
from gradflow.sweep.store import Store

PLACES = [str(Path(toy.__file__).parent), str(Path(gradflow.__file__).parent.parent)]
CODE = """
import gradflow, jax, signal, sys, toy_sweep as toy
# A shell that starts the tests in the background has Ctrl-C ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
jax.config.update('jax_enable_x64', True)
print('ready', flush=True)
try:
    toy.run_slowly(sys.argv[1])
except gradflow.Interrupted as error:
    print('kept', int((error.trajectory.result != 'not run').sum()), flush=True)
"""


def start(store: Path) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(PLACES)}
    return subprocess.Popen([sys.executable, "-c", CODE, str(store)], env=environment, stdout=subprocess.PIPE)


def finished(store: Path) -> int:
    return len([file for file in store.glob("result/c/*/*") if file.is_file()])


def kill_after(process: subprocess.Popen, store: Path, chunks: int, delay: float) -> bool:
    """Kill the process a moment after so many chunks are there; False if it ended before."""
    while finished(store) < chunks and process.poll() is None:
        time.sleep(0.001)
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


def bits(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("c/**/*") if file.is_file()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "sweep"
    toy.run_slowly(path)
    return path


def check_part(store: Path, whole: Path) -> int:
    """What a killed process left: finished chunks with their final numbers, and nothing of the others."""
    Store(store).tidy([], [])
    part, ds = xarray.open_zarr(store, chunks=None), xarray.open_zarr(whole, chunks=None)
    done = part["result"].values != "not run"
    for name in ("x", "size", "t_final"):
        assert np.array_equal(part[name].values[done], ds[name].values[done])
    return int(done.sum())


@pytest.mark.parametrize("kills", [2, pytest.param(10, marks=pytest.mark.slow)])
def test_kill_9_again_and_again_gives_the_same_bits(tmp_path, whole, kills):
    generator, store = random.Random(kills), tmp_path / "sweep"
    total = len(toy.SLOW_AXES["kappa"]) * len(toy.SLOW_AXES["seed"])
    for i in range(kills):
        process = start(store)
        goal = min(finished(store) + generator.randrange(0, 3), 22)
        if not kill_after(process, store, goal, generator.uniform(0, 0.03)):
            break
        if (store / "result").exists():
            assert check_part(store, whole) < total or i == kills - 1
    found = toy.run_slowly(store)
    assert (found["result"] == "successful").all()
    assert bits(store) == bits(whole) and not list(store.glob(".*"))


def test_two_processes_do_not_write_one_store_and_a_killed_one_leaves_no_lock(tmp_path, whole):
    store = tmp_path / "sweep"
    process = start(store)
    while finished(store) < 1 and process.poll() is None:
        time.sleep(0.01)
    with pytest.raises(FlowError, match="another run is writing to"):
        toy.run_slowly(store)
    process.kill()
    process.wait()
    toy.run_slowly(store)
    assert bits(store) == bits(whole)


def test_ctrl_c_keeps_finished_chunks(tmp_path, whole):
    store = tmp_path / "sweep"
    process = start(store)
    while finished(store) < 2 and process.poll() is None:
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate()
    assert process.returncode == 0
    kept = int(output.split()[-1])
    assert kept == check_part(store, whole) >= 8
    toy.run_slowly(store)
    assert bits(store) == bits(whole)
