"""An ensemble that is killed goes on from its folder, bit for bit; folders of other runs are refused with one line."""

import _thread
import functools
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import jax
import numpy as np
import optax
import pytest

import gradflow as gf
from gradflow.descent import checkpoint as checkpoints
from gradflow.descent import workers

COUNT = 7
KEYS = jax.random.split(jax.random.key(0), COUNT)
MODELS = jax.vmap(functools.partial(gf.models.ValueSoftmax.normal, d=3, n=4, scale=0.5))(KEYS)
DATA = jax.vmap(functools.partial(gf.tasks.linear_regression, n_features=3, condition_number=3))(KEYS)
RATES = np.geomspace(0.01, 0.25, COUNT)
MOMENTUM = functools.partial(optax.sgd, momentum=0.5)
STOPPED = {"lanes": 3, "batches": 4, "key": jax.random.key(5)}


class Killed(Exception):
    """Stands in for a process that ends in the middle of a run."""


def is_small(step, model, data):
    return gf.losses.square(model, data) < 0.05


def run(path=None, **options):
    given = {"stop": is_small, **STOPPED, **options}
    return gf.gradient_descent_ensemble(
        gf.losses.square,
        given.pop("models", MODELS),
        given.pop("optimizer", MOMENTUM),
        given.pop("data", DATA),
        **{
            "in_axes": (0, 0),
            "hyperparameters": {"learning_rate": RATES},
            "steps": 60,
            "save_at": [0, 1, 20, 55, 60],
            "threads": 2,
            "checkpoint": path,
            **given,
        },
    )


def assert_identical(ours, theirs):
    kept = [(t.observed, t.final, t.t_final, t.valid, t.status.astype("S"), t.stats) for t in (ours, theirs)]
    for a, b in zip(*map(jax.tree.leaves, kept), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.fixture
def small_calls(monkeypatch):
    monkeypatch.setattr(workers, "FIRST_CALL", 7)
    monkeypatch.setattr(workers, "CALL_SECONDS", 1e-9)
    monkeypatch.setattr(checkpoints, "EVERY_SECONDS", 0.0)


def end_after(monkeypatch, calls, ctrl_c):
    """Raise an error in a call of the kernel, or press Ctrl-C during it."""
    original, lock, seen = workers.pools.run, threading.Lock(), []

    def counted(*args):
        with lock:
            seen.append(1)
            number = len(seen)
        if number == calls and ctrl_c:
            _thread.interrupt_main()
            time.sleep(0.3)
        elif number >= calls and not ctrl_c:
            raise Killed
        return original(*args)

    counted.lower = original.lower
    monkeypatch.setattr(workers.pools, "run", counted)
    return seen


def broken_off(monkeypatch, path, calls, *, ctrl_c=False, **options):
    with monkeypatch.context() as patch:
        end_after(patch, calls, ctrl_c)
        with pytest.raises((Killed, gf.Interrupted)) as caught:
            run(path, **options)
    return caught.value


@functools.cache
def whole(**options):
    return run(**options)


@pytest.mark.parametrize("calls", [2, 9, 30, 60])
def test_a_killed_run_goes_on_bit_for_bit(tmp_path, monkeypatch, small_calls, calls):
    broken_off(monkeypatch, tmp_path / "run", calls)
    broken_off(monkeypatch, tmp_path / "run", 5)  # and is killed once more
    resumed = run(tmp_path / "run", threads=1)  # fewer threads than files
    assert_identical(resumed, whole())
    assert set(whole().status) == {"successful", "event_occurred"}
    with monkeypatch.context() as patch:
        again = end_after(patch, 1, False)
        assert_identical(run(tmp_path / "run"), resumed)
        assert not again  # a finished run returns at once
    assert not list(tmp_path.glob("run/*.part"))


def test_a_resumed_run_does_not_start_again(tmp_path, monkeypatch, small_calls):
    with monkeypatch.context() as patch:
        seen = end_after(patch, 10**9, False)
        run(threads=1)
        all_calls = len(seen)
    broken_off(monkeypatch, tmp_path, all_calls - 10, threads=1)
    with monkeypatch.context() as patch:
        seen = end_after(patch, 10**9, False)
        assert_identical(run(tmp_path, threads=1), whole())
    assert len(seen) <= 10 + 5  # five steps of the first call, which measures the speed anew


def test_ctrl_c_writes_what_was_done(tmp_path, monkeypatch, small_calls):
    monkeypatch.setattr(checkpoints, "EVERY_SECONDS", 1e9)
    part = broken_off(monkeypatch, tmp_path, 30, ctrl_c=True).trajectory
    assert (part.status == "interrupted").any()
    assert list(tmp_path.glob("lanes-*.ckpt"))
    assert_identical(run(tmp_path, lanes=None, threads=3), whole())  # the stored number of lanes


@pytest.mark.slow
@pytest.mark.parametrize("calls", [3, 20, 45])
@pytest.mark.parametrize(
    "options",
    [{"stop": None}, {"stop": None, "lanes": 1}, {"lanes": 1}, {"stop": None, "batches": None}],
    ids=["equal lengths", "one lane", "one lane, stop", "full batches"],
)
def test_all_kinds_of_ensembles_go_on(tmp_path, monkeypatch, small_calls, options, calls):
    expected = run(**options)
    broken_off(monkeypatch, tmp_path, calls, **options)
    assert_identical(run(tmp_path, **options), expected)


@pytest.mark.slow
def test_members_that_broke_are_kept(tmp_path, monkeypatch, small_calls):
    options = {
        "hyperparameters": {"learning_rate": np.where(np.arange(COUNT) % 3, RATES, 1e30)},
        "optimizer": optax.sgd,
    }
    expected = run(**options)
    assert (expected.status == "nonfinite_loss").sum() == 3
    broken_off(monkeypatch, tmp_path, 20, **options)
    assert_identical(run(tmp_path, **options), expected)
    with monkeypatch.context() as patch:
        patch.setattr(workers, "_again", None)  # they are not run once more
        assert_identical(run(tmp_path, **options), expected)


@pytest.mark.slow
def test_a_lost_file_starts_its_members_again(tmp_path, monkeypatch, small_calls):
    for options in ({}, {"stop": None}):
        expected = run(**options)
        folder = tmp_path / str(len(options))
        broken_off(monkeypatch, folder, 14, **options)
        min(folder.glob("lanes-*.ckpt")).unlink()
        assert_identical(run(folder, **options), expected)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("checkpoint") / "run"
    run(path)
    return path


WIDER = jax.vmap(functools.partial(gf.models.ValueSoftmax.normal, d=3, n=5, scale=0.5))(KEYS)


@pytest.mark.parametrize(
    "change",
    [
        {"models": WIDER},
        {"models": jax.tree.map(lambda x: x[::-1], MODELS)},
        {"data": jax.tree.map(lambda x: x[::-1], DATA)},
        {"hyperparameters": {"learning_rate": 2 * RATES}},
        {"optimizer": optax.sgd},
        {"steps": 61},
        {"save_at": [60]},
        {"key": jax.random.key(6)},
        {"batches": 3},
        {"lanes": 2},
        {"stop": None},
    ],
    ids=[
        "architecture",
        "models",
        "data",
        "step size",
        "optimiser",
        "steps",
        "saves",
        "key",
        "batches",
        "lanes",
        "stop",
    ],
)
def test_another_run_is_refused(folder, change):
    with pytest.raises(
        gf.FlowError, match=r"belongs to another run .*lanes.*choose another folder or delete it"
    ) as caught:
        run(folder, **change)
    assert "\n" not in str(caught.value)


def test_a_damaged_file_gives_one_error(folder, tmp_path):
    good = min(folder.glob("lanes-*.ckpt")).read_bytes()
    header, _, payload = good.partition(b"\n")
    flipped = bytearray(payload)
    flipped[len(flipped) // 2] ^= 1
    contents = [b"", b"hello", b"\xff\xfe\n\x00", b"[1, 2]\n", header[:50], good[:-10], header + b"\n" + bytes(flipped)]
    for content in contents:
        (tmp_path / "lanes-0.ckpt").write_bytes(content)
        for lanes in (3, None):
            with pytest.raises(gf.FlowError, match=r"lanes-0.ckpt' is damaged or no checkpoint: delete it|another run"):
                run(tmp_path, lanes=lanes)
        assert (tmp_path / "lanes-0.ckpt").read_bytes() == content


def test_unusable_places(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(gf.FlowError, match="a file: an ensemble needs a folder"):
        run(tmp_path / "file")
    with pytest.raises(gf.FlowError, match="its parent does not exist or cannot be written"):
        run(tmp_path / "missing" / "run")


PROCESS = """
    import hashlib, sys
    import jax
    jax.config.update("jax_enable_x64", True)
    from gradflow.descent import checkpoint, workers
    from tests.descent import test_ensemble_checkpoint as case
    checkpoint.EVERY_SECONDS, workers.FIRST_CALL, workers.CALL_SECONDS = 0.05, 500, 0.02
    got = case.run(sys.argv[1] if sys.argv[1:] else None, steps=40_000, save_at=[10_000, 40_000], stop=None)
    leaves = jax.tree.leaves((got.observed, got.final, got.t_final, got.stats))
    print(hashlib.sha256(b"".join(x.tobytes() for x in map(case.np.asarray, leaves))).hexdigest())
"""


def process(*arguments):
    command = [sys.executable, "-c", textwrap.dedent(PROCESS), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=os.getcwd())


@pytest.mark.slow
def test_kill_nine(tmp_path):
    for _ in range(2):
        child = process(tmp_path)
        begin, files = time.monotonic(), {p: p.stat().st_mtime_ns for p in tmp_path.glob("lanes-*.ckpt")}
        while not any(files.get(p) != p.stat().st_mtime_ns for p in tmp_path.glob("lanes-*.ckpt")):
            assert child.poll() is None and time.monotonic() - begin < 120
            time.sleep(0.01)
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
    resumed, undisturbed = process(tmp_path), process()
    digests = [p.communicate(timeout=200)[0] for p in (resumed, undisturbed)]
    assert digests[0] == digests[1] != ""
