"""A flow in chunks with a bar: the same numbers, and what is finished survives Ctrl-C."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradflow as gf
from gradflow.flow import kernel as kernels
from gradflow.models import paper

SETTING = paper.logistic()


def observe(t, model, args):
    return {"weights": model.weights, "t": t}


def run(**options):
    base = {"t1": 1e8, "ts": np.append(0.0, gf.log_times(0.1, 1e8, 40)), "observe": observe, "rtol": 1e-10}
    return gf.gradient_flow(SETTING.loss, SETTING.model, SETTING.args, **{**base, **options})


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(kernels, "CHUNK", 64)


def test_chunks_change_nothing(small_chunks):
    plain, chunked = run(), run(progress=True)
    assert int(plain.stats["num_steps"]) > 2 * kernels.CHUNK
    assert chunked.status == "successful"
    for name in ("num_steps", "num_accepted_steps", "num_rejected_steps", "num_gradients"):
        assert int(plain.stats[name]) == int(chunked.stats[name])
    for a, b in zip(jax.tree.leaves(plain.observed), jax.tree.leaves(chunked.observed), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    np.testing.assert_allclose(plain.final.scores, chunked.final.scores, rtol=1e-12)
    assert chunked.valid.all()


def interrupt_after(monkeypatch, chunks):
    original, calls = kernels.run, []

    def interrupted(*args, **options):
        calls.append(1)
        if len(calls) > chunks:
            raise KeyboardInterrupt
        return original(*args, **options)

    monkeypatch.setattr(kernels, "run", interrupted)


def test_ctrl_c_keeps_what_is_finished(small_chunks, monkeypatch):
    plain = run()
    interrupt_after(monkeypatch, 2)
    with pytest.raises(gf.Interrupted) as caught:
        run(progress=True)
    kept = caught.value.trajectory
    assert kept.status == "interrupted"
    assert int(kept.stats["num_steps"]) == 2 * kernels.CHUNK
    assert 0 < kept.valid.sum() < len(kept.ts)
    np.testing.assert_array_equal(kept.valid, np.asarray(plain.ts) <= float(kept.t_final))
    rows = np.asarray(kept.valid)
    np.testing.assert_allclose(kept.observed["weights"][rows], plain.observed["weights"][rows], rtol=1e-12)
    assert np.isnan(kept.observed["weights"][~rows]).all()


def test_ctrl_c_without_throw_returns_the_code(small_chunks, monkeypatch):
    interrupt_after(monkeypatch, 1)
    assert run(progress=True, throw=False).status == "interrupted"


def test_ctrl_c_before_anything_is_finished(monkeypatch):
    interrupt_after(monkeypatch, 0)
    with pytest.raises(KeyboardInterrupt):
        run(progress=True)


def quadratic(model, args):
    return 0.5 * model @ (args * model)


def test_a_stiff_flow_goes_on_after_a_chunk_at_its_stability_limit(small_chunks):
    rates = jnp.geomspace(1.0, 1e3, 4)
    plain = gf.gradient_flow(quadratic, jnp.ones(4), rates, t1=1.0, rtol=1e-5)
    chunked = gf.gradient_flow(quadratic, jnp.ones(4), rates, t1=1.0, rtol=1e-5, progress=True)
    assert chunked.status == "successful"
    assert int(chunked.stats["num_steps"]) == int(plain.stats["num_steps"]) > kernels.CHUNK


@pytest.mark.slow
def test_max_steps_is_met_exactly(small_chunks):
    runs = [run(max_steps=100, progress=progress, throw=False) for progress in (False, True)]
    assert [r.status for r in runs] == ["max_steps_reached"] * 2
    assert [int(r.stats["num_steps"]) for r in runs] == [100, 100]
    assert float(runs[0].t_final) == pytest.approx(float(runs[1].t_final), rel=1e-12)


def leader(t, model, args):
    return model.weights.max()


@pytest.mark.slow
def test_an_event_in_a_later_chunk(small_chunks):
    plain, chunked = (run(event=gf.Crossing(leader, 0.95), progress=progress) for progress in (False, True))
    assert plain.status == chunked.status == "event_occurred"
    assert float(plain.t_final) == pytest.approx(float(chunked.t_final), rel=1e-10)
    np.testing.assert_array_equal(plain.valid, chunked.valid)


def test_progress_under_jit_is_ignored():
    model, args = jnp.ones(2), jnp.ones(2)
    final = jax.jit(lambda m: gf.gradient_flow(quadratic, m, args, t1=1.0, progress=True).final)(model)
    np.testing.assert_allclose(final, np.exp(-1.0), rtol=1e-7)
