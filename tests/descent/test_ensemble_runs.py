"""Descent ensembles: each member as alone, early ends, broken members, draws, saves and interrupts."""

import _thread
import contextlib
import functools
import threading
import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gradflow as gf
from gradflow.descent import ensemble, gradient_descent_ensemble, workers

COUNT = 10
KEYS = jax.random.split(jax.random.key(0), COUNT)
MODELS = jax.vmap(functools.partial(gf.models.ValueSoftmax.normal, d=3, n=4, scale=0.5))(KEYS)
DATA = jax.vmap(functools.partial(gf.tasks.linear_regression, n_features=3, condition_number=3))(KEYS)
RATES = np.geomspace(0.02, 0.5, COUNT)
SAVE_AT = [0, 1, 20, 90, 100]
traces = []


def loss(model, data):
    traces.append(1)
    return gf.losses.square(model, data)


def observe(step, model, data):
    return {"step": step, "loss": gf.losses.square(model, data), "weights": model.weights}


def is_small(step, model, data):
    return gf.losses.square(model, data) < 0.05


def take(tree, index):
    return jax.tree.map(lambda x: x[index], tree)


def run(models=MODELS, optimizer=optax.sgd, data=DATA, rates=RATES, **options):
    given = {"in_axes": (0, 0), "steps": 100, "save_at": SAVE_AT, "observe": observe, "lanes": 4, "threads": 2}
    return gradient_descent_ensemble(
        loss, models, optimizer, data, **{"hyperparameters": {"learning_rate": rates}, **given, **options}
    )


def alone(index, steps=100, optimizer=None, **options):
    optimizer = optimizer or optax.inject_hyperparams(optax.sgd)(learning_rate=RATES[index])
    given = {"save_at": [k for k in SAVE_AT if k <= steps], "observe": observe, "throw": False}
    data = take(DATA, index)
    return gf.gradient_descent(loss, take(MODELS, index), optimizer, data, steps=steps, **{**given, **options})


def assert_close(ours, theirs, rtol=1e-12):
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-14)


def assert_identical(ours, theirs):
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_array_equal(a, b)


def test_each_member_is_what_it_is_alone():
    together = run()
    for index in range(COUNT):
        one = alone(index)
        assert_close(take(together.observed, index), one.observed)
        assert_close(take(together.final, index), one.final)
    assert together.ts.shape == together.valid.shape == (COUNT, 5)
    assert together.ts.strides[0] == 0
    assert together.observed["weights"].shape == (COUNT, 5, 4)
    assert (together.status == "successful").all()
    assert together.valid.all()
    for name in ("num_steps", "num_accepted_steps", "num_gradients"):
        np.testing.assert_array_equal(together.stats[name], 100)
    np.testing.assert_array_equal(together.stats["num_rejected_steps"], 0)
    np.testing.assert_array_equal(together.t_final, 100)
    # 10 members in lanes of 4 and threads of their own: 12 places, each looked at 101 times
    assert together.stats["efficiency"] == pytest.approx(1000 / (12 * 101))
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves((together.observed, together.final)))


@pytest.mark.parametrize("stop", [None, is_small], ids=["equal lengths", "stop"])
def test_the_order_of_members_does_not_change_a_bit(stop):
    plain = run(stop=stop)

    @settings(max_examples=3)
    @given(st.permutations(range(COUNT)))
    def check(order):
        order = np.array(order)
        shuffled = run(take(MODELS, order), data=take(DATA, order), rates=RATES[order], stop=stop)
        assert_identical((shuffled.observed, shuffled.final), take((plain.observed, plain.final), order))
        np.testing.assert_array_equal(shuffled.t_final, plain.t_final[order])

    check()


def test_lanes_and_threads_only_round():
    plain = run(stop=is_small)
    for lanes, threads in ((1, 1), (64, 3), (None, None)):
        other = run(stop=is_small, lanes=lanes, threads=threads)
        assert_close((other.observed, other.final), (plain.observed, plain.final), rtol=1e-10)
        np.testing.assert_array_equal(other.t_final, plain.t_final)
    one = run(take(MODELS, slice(1)), data=take(DATA, slice(1)), rates=RATES[:1], lanes=64)
    assert_close(one.final, take(run().final, slice(1)))


def test_new_numbers_never_trace_again():
    run()
    before = len(traces)
    run(rates=2 * RATES)
    run(rates=0.1)
    run(steps=30, save_at=[0, 1, 2, 3, 30])
    run(data=take(DATA, slice(None, None, -1)))
    assert len(traces) == before
    run(optimizer=functools.partial(optax.sgd, momentum=0.9))
    between = len(traces)
    assert between > before
    run(optimizer=functools.partial(optax.sgd, momentum=0.9), rates=0.2)
    assert len(traces) == between


def test_stop_ends_each_member_at_its_own_step():
    together = run(stop=is_small, save_at=np.arange(101))
    losses = run(save_at=np.arange(101)).observed["loss"]
    expected = np.array([np.argmax(row < 0.05) if (row < 0.05).any() else 100 for row in losses])
    assert len(set(expected)) > 4, "a case in which members end at several steps"
    np.testing.assert_array_equal(together.t_final, expected)
    early = (losses < 0.05).any(axis=1)
    assert early.any() and not early.all()
    np.testing.assert_array_equal(together.status, np.where(early, "event_occurred", "successful"))
    np.testing.assert_array_equal(together.valid, np.arange(101) <= expected[:, None])
    np.testing.assert_allclose(together.observed["loss"][together.valid], losses[together.valid], rtol=1e-12)
    assert np.isnan(together.observed["loss"][~together.valid]).all()
    assert (together.observed["step"][~together.valid] == 0).all()
    for index in np.flatnonzero(early & (expected > 0))[:3]:
        assert_close(take(together.final, index), alone(index, int(expected[index]), save_at=[0]).final)
    assert 0.3 < together.stats["efficiency"] < 1


def at_once(step, model, data):
    return step >= 0


def test_a_member_may_stop_before_its_first_step():
    together = run(stop=at_once)
    np.testing.assert_array_equal(together.t_final, 0)
    assert (together.status == "event_occurred").all()
    assert_identical(together.final, MODELS)
    np.testing.assert_array_equal(together.valid, np.broadcast_to(np.array(SAVE_AT) == 0, (COUNT, 5)))


@pytest.mark.parametrize("stop", [None, is_small], ids=["equal lengths", "stop"])
def test_a_broken_member_reaches_no_other(stop):
    """NaN in the data of one, a step size far too large for another; the rest as without them, bit for bit."""
    rates, data = RATES.copy(), jax.tree.map(np.array, DATA)
    rates[2], data.y[5, 0] = 1e3, np.nan
    together, healthy = run(data=data, rates=rates, stop=stop), run(stop=stop)
    assert together.status[[2, 5]].tolist() == ["nonfinite_loss", "nonfinite_start"]
    rest = np.setdiff1d(np.arange(COUNT), [2, 5])
    kept = (together.observed, together.final, together.t_final, together.status.astype("S"))
    assert_identical(
        take(kept, rest), take((healthy.observed, healthy.final, healthy.t_final, healthy.status.astype("S")), rest)
    )
    one = alone(2, optimizer=optax.inject_hyperparams(optax.sgd)(learning_rate=1e3))
    assert one.status == "nonfinite_loss"
    assert together.t_final[2] == one.t_final
    assert_close(take(together.final, 2), one.final, rtol=1e-6)  # growth by a thousand a step carries rounding along
    np.testing.assert_array_equal(together.valid[2], one.valid)
    assert_identical(take(together.final, 5), take(MODELS, 5))
    assert together.t_final[5] == 0 and not together.valid[5].any()
    assert np.isnan(together.observed["loss"][5]).all()


def test_many_broken_members_are_found_in_full_lanes():
    together = run(rates=np.where(np.arange(COUNT) % 2, 1e3, RATES), throw=False)
    np.testing.assert_array_equal(together.status[1::2], "nonfinite_loss")
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(together.final))
    with pytest.raises(gf.FlowError, match=r"5 of 10 members failed; member 1 ended with 'nonfinite_loss'") as caught:
        run(rates=np.where(np.arange(COUNT) % 2, 1e3, RATES), throw=True)
    assert_identical(caught.value.trajectory.final, together.final)


def test_a_data_set_of_one_shared_by_all_and_a_shared_model():
    shared = take(DATA, 0)
    together = run(data=shared, in_axes=(0, None))
    again = run(data=jax.tree.map(lambda x: jnp.broadcast_to(x, (COUNT, *x.shape)), shared))
    assert_close(together.observed, again.observed)
    one_model = run(take(MODELS, 0), in_axes=(None, 0))
    again = run(jax.tree.map(lambda x: jnp.broadcast_to(x[0], x.shape), MODELS))
    assert_close(one_model.final, again.final)


def test_models_are_saved_with_their_fixed_arrays():
    still = gf.models.ValueSoftmax(values=True, scores=False)
    together = run(observe=None, trainable=still, save_at=[0, 100])
    assert together.observed.values.shape == (COUNT, 2, 3, 4)
    np.testing.assert_array_equal(together.observed.scores, np.broadcast_to(MODELS.scores[:, None], (COUNT, 2, 4)))
    np.testing.assert_array_equal(together.observed.values[:, 0], MODELS.values)
    np.testing.assert_array_equal(together.observed.values[:, 1], together.final.values)
    assert np.abs(together.final.values - MODELS.values).max() > 0.01


@pytest.mark.parametrize("stop", [None, is_small], ids=["equal lengths", "stop"])
def test_draws_depend_on_the_member_alone(stop):
    key = jax.random.key(3)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(COUNT))
    one_key, many = (run(stop=stop, batches=2, key=k) for k in (key, keys))
    assert_identical(one_key.observed, many.observed)
    index = int(np.argmax(one_key.t_final))
    single = alone(index, steps=int(one_key.t_final[index]), batches=2, key=keys[index])
    assert_close(take(one_key.final, index), single.final)
    assert np.abs(one_key.final.values - run(stop=stop).final.values).max() > 1e-4


def decaying(peak):
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(peak, 50)))


def test_any_optimiser():
    """A factory of one's own with a schedule; finished optimisers that all members share."""
    together = run(optimizer=decaying, hyperparameters={"peak": RATES})
    assert_close(take(together.final, 3), alone(3, optimizer=decaying(RATES[3])).final)
    shared = optax.MultiSteps(optax.adam(0.01), 3)
    together = run(optimizer=shared, hyperparameters=None, steps=6, save_at=[6])
    assert_close(take(together.final, 3), alone(3, 6, optimizer=shared, save_at=[6]).final)


@pytest.mark.slow
def test_a_line_search_a_member():
    together = run(optimizer=optax.lbfgs(), hyperparameters=None, steps=6, save_at=[6])
    assert_close(take(together.final, 3), alone(3, 6, optimizer=optax.lbfgs(), save_at=[6]).final, rtol=1e-8)


def test_float32_whatever_the_default():
    models, data = jax.tree.map(lambda x: x.astype(np.float32), (MODELS, DATA))
    together = run(models, data=data, stop=is_small)
    with jax.enable_x64(False):
        without = run(models, data=data, stop=is_small)
    for trajectory in (together, without):
        assert {leaf.dtype for leaf in jax.tree.leaves(trajectory.final)} == {np.dtype(np.float32)}
        assert_close(trajectory.final, run(stop=is_small).final, rtol=1e-3)


def test_members_that_stall_are_counted():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        together = run(rates=np.where(np.arange(COUNT) < 3, 1e-17, 0.1))
    messages = [str(w.message) for w in caught if issubclass(w.category, gf.FlowWarning)]
    assert len(messages) == 1 and messages[0].startswith("for 3 of 10 members more than 50% of the last update")
    np.testing.assert_array_equal(together.stats["stalled_fraction"] > 0.5, np.arange(COUNT) < 3)


def interrupt_after(monkeypatch, calls):
    """Press Ctrl-C during a call of the kernel."""
    original, lock, seen = workers.pools.run, threading.Lock(), []
    monkeypatch.setattr(workers, "FIRST_CALL", 7)
    monkeypatch.setattr(workers, "CALL_SECONDS", 1e-9)

    def press(*args):
        with lock:
            seen.append(1)
        if len(seen) == calls:
            _thread.interrupt_main()
            time.sleep(0.3)
        return original(*args)

    monkeypatch.setattr(workers.pools, "run", press)


@pytest.mark.parametrize(("stop", "calls"), [(None, 130), (is_small, 40)], ids=["equal lengths", "stop"])
def test_ctrl_c_keeps_what_is_finished(monkeypatch, stop, calls):
    whole = run(stop=stop, threads=1)
    interrupt_after(monkeypatch, calls)
    with pytest.raises(gf.Interrupted) as caught:
        run(stop=stop, threads=1)
    part = caught.value.trajectory
    done = part.status != "interrupted"
    assert done.any() and not done.all()
    assert_identical(take((part.observed, part.final), done), take((whole.observed, whole.final), done))
    for index in np.flatnonzero(~done):
        rows = part.valid[index]
        assert_identical(take(take(part.observed, index), rows), take(take(whole.observed, index), rows))
        assert np.isnan(part.observed["loss"][index][~rows]).all()
        assert (part.ts[index][rows] <= part.t_final[index]).all()
    running = ~done & (part.t_final > 0)
    assert running.any() and part.valid[running].any()


def test_calls_of_any_length_give_the_same(monkeypatch):
    whole = run(stop=is_small, threads=1)
    monkeypatch.setattr(workers, "FIRST_CALL", 7)
    monkeypatch.setattr(workers, "CALL_SECONDS", 1e-9)
    assert_identical(run(stop=is_small, threads=1).observed, whole.observed)


def test_the_bar_counts_members(monkeypatch):
    shown = []

    def bar(label, total):
        shown.append((label, total))
        return contextlib.nullcontext(lambda done, note: shown.append((note, done)))

    monkeypatch.setattr(ensemble, "bar", bar)
    run(progress=True, rates=np.where(np.arange(COUNT) == 3, 1e3, RATES))
    assert shown[0] == ("descents", COUNT)
    assert shown[-1] == ("10 of 10 members", COUNT)
    counts = [done for _, done in shown[1:]]
    assert counts == sorted(counts)


def test_an_error_in_a_thread_is_the_callers(monkeypatch):
    def fail(*_):
        raise OSError("no memory")

    monkeypatch.setattr(workers, "_pool", fail)
    with pytest.raises(OSError, match="no memory"):
        run()
