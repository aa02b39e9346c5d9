"""A run that is killed goes on from its file, bit for bit; other files are refused with one line."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import gradflow as gf
from gradflow.descent import checkpoint as checkpoints
from gradflow.descent import solve

DATA = gf.tasks.linear_classification(jax.random.key(0), 20, 4)
SAVE_AT = gf.log_steps(400, 12)


class Killed(Exception):
    """Stands in for a process that ends in the middle of a run."""


def model(seed=0):
    return gf.models.ValueSoftmax.normal(jax.random.key(seed), 4, 5, scale=0.3)


def descend(path=None, **options):
    settings = {"steps": 400, "save_at": SAVE_AT, "batches": 5, "key": jax.random.key(7), **options}
    optimizer = settings.pop("optimizer", None) or optax.adam(0.05)
    return gf.gradient_descent(
        settings.pop("loss", gf.losses.logistic),
        settings.pop("model", None) or model(),
        optimizer,
        settings.pop("args", DATA),
        checkpoint=path,
        **settings,
    )


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(solve, "FIRST_CHUNK", 50)
    monkeypatch.setattr(solve, "CHUNK_SECONDS", 1e-4)
    monkeypatch.setattr(checkpoints, "EVERY_SECONDS", 0.0)


def kill_after(monkeypatch, chunks, error):
    original, calls = solve.kernels.advance, []

    def advance(*args, **options):
        calls.append(1)
        if len(calls) > chunks:
            raise error
        return original(*args, **options)

    advance.lower = original.lower
    monkeypatch.setattr(solve.kernels, "advance", advance)


def killed_run(monkeypatch, path, error=Killed, chunks=3):
    with monkeypatch.context() as patch:
        kill_after(patch, chunks, error)
        with pytest.raises((Killed, gf.Interrupted)):
            descend(path)
    assert path.exists()


def assert_identical(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


def test_a_killed_run_goes_on_bit_for_bit(tmp_path, monkeypatch, small_chunks):
    whole = descend()
    path = tmp_path / "run"
    killed_run(monkeypatch, path)
    counted = []
    original = solve.kernels.advance
    with monkeypatch.context() as patch:
        patch.setattr(solve.kernels, "advance", lambda *a, **k: counted.append(int(a[1].step)) or original(*a, **k))
        resumed = descend(path)
    assert counted[0] >= 50  # it went on, and did not start again
    assert_identical(whole.observed, resumed.observed)
    assert_identical(whole.final, resumed.final)
    np.testing.assert_array_equal(resumed.valid, True)
    assert int(resumed.t_final) == 400


def test_ctrl_c_writes_the_file(tmp_path, monkeypatch, small_chunks):
    monkeypatch.setattr(checkpoints, "EVERY_SECONDS", 1e9)
    path = tmp_path / "run"
    killed_run(monkeypatch, path, KeyboardInterrupt)
    assert_identical(descend().final, descend(path).final)


def test_a_finished_run_returns_at_once(tmp_path, monkeypatch):
    path = tmp_path / "run"
    first = descend(path)
    with monkeypatch.context() as patch:
        kill_after(patch, 0, Killed)
        again = descend(path)
    assert_identical(first.observed, again.observed)
    assert not list(tmp_path.glob("*.part"))


def hinge(model, data):
    return jnp.mean(jnp.maximum(0, 1 - data.y * (data.x @ model())))


def heavier(model, data):
    return 2 * gf.losses.logistic(model, data)


@pytest.mark.parametrize(
    "change",
    [
        {"model": model(1)},
        {"args": gf.tasks.linear_classification(jax.random.key(1), 20, 4)},
        {"optimizer": optax.adam(0.06)},
        {"optimizer": optax.sgd(0.05)},
        {"steps": 401},
        {"save_at": SAVE_AT[1:]},
        {"key": jax.random.key(8)},
        {"batches": 6},
        {"loss": heavier},
        {"trainable": gf.models.ValueSoftmax(True, False, False)},
    ],
    ids=["model", "data", "step size", "optimiser", "steps", "save_at", "key", "batches", "loss", "trainable"],
)
def test_another_run_is_refused(shared_file, change):
    with pytest.raises(gf.FlowError, match=r"belongs to another run .*choose another file or delete it"):
        descend(shared_file, **change)


@pytest.fixture(scope="module")
def shared_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("checkpoint") / "run"
    descend(path)
    return path


def test_a_damaged_file_gives_one_error(shared_file, tmp_path):
    good = shared_file.read_bytes()
    header, _, payload = good.partition(b"\n")
    flipped = bytearray(payload)
    flipped[len(flipped) // 2] ^= 1
    damaged = {
        "empty": b"",
        "text": b"hello",
        "binary": b"\xff\xfe\n\x00",
        "array": b"[1, 2]\n",
        "no checksum": b"{}\n",
        "cut header": header[: len(header) // 2],
        "cut state": good[:-10],
        "no state": header + b"\n",
        "one bit": header + b"\n" + bytes(flipped),
    }
    for name, content in damaged.items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(gf.FlowError, match="is damaged or no checkpoint: delete it") as caught:
            descend(path)
        assert "\n" not in str(caught.value), name
        assert path.read_bytes() == content  # nothing is overwritten


def test_unusable_places(tmp_path):
    with pytest.raises(gf.FlowError, match="a folder: give the path of a file"):
        descend(tmp_path)
    with pytest.raises(gf.FlowError, match="its folder does not exist or cannot be written"):
        descend(tmp_path / "missing" / "run")


def test_a_key_without_batches_is_not_read(tmp_path):
    descend(tmp_path / "run", batches=None, key=0, steps=20, save_at=None)
    again = descend(tmp_path / "run", batches=None, key=None, steps=20, save_at=None)
    assert int(again.t_final) == 20
