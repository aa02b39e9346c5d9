"""Alternating phases of the descent against a loop, of the flow against flows in a row, and against each other."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import gradflow as gf
from gradflow.descent.optimizer import canonical

T, C = 6, 3
KEY = jax.random.key(0)
HEAD = gf.models.AttentionHead.normal(KEY, 4, 3, 4, C, scale=0.4)
BATCH = gf.types.Batch(
    jax.random.normal(jax.random.key(1), (1, T, 4)), jax.random.randint(KEY, (1, T), 0, C), jnp.ones((1, T), bool)
)
LOSS = gf.losses.cross_entropy
EM = [(("w_q", "w_k"), 3), ("w_v", 5)]
alternating, alternating_flow = gf.schedules.alternating, gf.schedules.alternating_flow


def descend(optimizer, steps, **options):
    return gf.gradient_descent(LOSS, HEAD, optimizer, BATCH, steps=steps, **options)


def test_phases_are_runs_in_a_row_with_states_of_their_own():
    """Momenta of a phase wait while the other moves: a plain loop over two optimisers."""
    run = descend(alternating(EM, optax.adam(0.05)), 19, save_at=np.arange(20))
    model, adam = {name: getattr(HEAD, name) for name in ("w_q", "w_k", "w_v", "w_o")}, optax.adam(0.05)
    parts = ("w_q", "w_k"), ("w_v",)
    states = [adam.init({name: model[name] for name in part}) for part in parts]
    slope = jax.jit(jax.grad(lambda m: LOSS(gf.models.AttentionHead(**m), BATCH)))
    for k in range(19):
        phase = int(k % 8 >= 3)
        gradient = slope(model)
        updates, states[phase] = adam.update({name: gradient[name] for name in parts[phase]}, states[phase])
        model = model | {name: model[name] + updates[name] for name in parts[phase]}
        for name, value in model.items():
            np.testing.assert_allclose(getattr(run.observed, name)[k + 1], value, atol=1e-12)
    np.testing.assert_array_equal(run.final.w_o, HEAD.w_o)


def total(model, args):
    """Of two leaves of which one moves at a time: 1 - a - b falls like exp(-t), whoever moves."""
    return 0.5 * (model["a"] + model["b"] - 1) ** 2


START = {"a": jnp.asarray(0.2), "b": jnp.asarray(-0.3)}
PHASES = [("b", 1.0), ("a", 0.5)]
TIGHT = {"rtol": 1e-11, "solver": "tsit5"}


def exact(t):
    """Return a and b, in closed form, for `PHASES`."""
    rest = np.exp(-np.minimum(t, [[0.0], [1.0], [1.5], [2.5], [3.0]])) * 1.1
    fall = -np.diff(rest, axis=0)
    return np.stack([0.2 + fall[1] + fall[3], -0.3 + fall[0] + fall[2]])


TIMES = np.array([0.0, 0.3, 0.4, 1.0, 1.2, 1.7, 2.9])


@functools.cache
def flow_in_phases():
    return alternating_flow(total, START, phases=PHASES, t1=2.9, ts=TIMES, **TIGHT)


@pytest.mark.slow
def test_the_flow_in_phases_is_exact():
    run = flow_in_phases()
    np.testing.assert_allclose(jnp.stack([run.observed["a"], run.observed["b"]]), exact(TIMES), atol=1e-10)
    np.testing.assert_array_equal(run.ts, TIMES)
    assert bool(run.valid.all())
    assert (run.status, float(run.t_final)) == ("successful", 2.9)
    assert int(run.stats["num_accepted_steps"]) > 4
    end = alternating_flow(total, START, phases=PHASES, t1=2.9, **TIGHT)
    np.testing.assert_allclose([end.observed["a"][0], end.observed["b"][0]], exact(np.array([2.9]))[:, 0], atol=1e-10)
    np.testing.assert_array_equal(end.ts, [2.9])
    np.testing.assert_allclose(end.final["a"], run.final["a"], atol=1e-10)


def test_descent_in_phases_follows_the_flow_in_phases():
    sizes, ts, gaps = np.array([0.02, 0.01]), np.array([0.4, 1.2, 2.9]), []
    for size in sizes:
        steps = [(names, round(length / size)) for names, length in PHASES]
        at, optimizer = np.round(ts / size).astype(int), alternating(steps, optax.sgd(size))
        run = gf.gradient_descent(total, START, optimizer, steps=at[-1], save_at=at)
        gaps.append(gf.flow_descent_gap(flow_in_phases(), run, size).distance)
    np.testing.assert_allclose(gf.gap_order(sizes, jnp.stack(gaps)), 1, atol=0.05)
    together = 0.2 + 0.55 * (1 - np.exp(-2 * ts[0]))
    assert abs(together - exact(ts)[0, 0]) > 10 * gaps[-1][0], "all at once is another path"


def late(t, model, args):
    return t > 1.2


def test_it_ends_with_the_phase_that_ends():
    run = alternating_flow(total, START, phases=PHASES, t1=2.9, ts=[0.5, 1.1, 2.0], stop=late, **TIGHT)
    assert run.status == "event_occurred"
    np.testing.assert_array_equal(run.valid, [True, True, False])
    assert np.isnan(run.observed["a"][2])
    assert 1.2 < float(run.t_final) <= 1.5
    few = {"t1": 3.0, "ts": [0.5, 2.0], "max_steps": 2, **TIGHT}
    with pytest.raises(gf.FlowError, match="the flow ended with 'max_steps_reached'") as raised:
        alternating_flow(total, START, phases=PHASES, **few)
    assert len(raised.value.trajectory.valid) == 2
    assert not raised.value.trajectory.valid[1]


def test_equal_phases_share_a_kernel():
    assert canonical(alternating(EM, optax.sgd(0.1))) is canonical(alternating(EM, optax.sgd(0.1)))
    other = [(("w_q", "w_k"), 4), ("w_v", 5)]
    assert canonical(alternating(EM, optax.sgd(0.1))) is not canonical(alternating(other, optax.sgd(0.1)))


def test_members_and_checkpoints(tmp_path):
    heads = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]), HEAD)
    optimizer = alternating(EM, optax.adam(0.05))
    run = gf.gradient_descent_ensemble(LOSS, heads, optimizer, BATCH, steps=13)
    alone = descend(optimizer, 13, checkpoint=tmp_path / "run")
    np.testing.assert_allclose(run.final.w_v[0], alone.final.w_v, atol=1e-13)
    again = descend(alternating(EM, optax.adam(0.05)), 13, checkpoint=tmp_path / "run")
    np.testing.assert_array_equal(alone.final.w_v, again.final.w_v)


BAD = (
    (lambda: alternating([], optax.sgd(0.1)), "phases is"),
    (lambda: alternating([("w_v", 0)], optax.sgd(0.1)), r"phases\[0\].length is 0"),
    (lambda: alternating([("w_v", 1.5)], optax.sgd(0.1)), r"phases\[0\].length is 1.5"),
    (lambda: alternating([((), 2)], optax.sgd(0.1)), r"phases\[0\].names is empty"),
    (lambda: alternating([("w_v", 2)], 0.1), "optimizer is 0.1"),
    (lambda: descend(alternating([("w_y", 2)], optax.sgd(0.1)), 3), r"phases\[0\] names 'w_y'.*did you mean"),
    (
        lambda: alternating_flow(LOSS, HEAD, BATCH, phases=[("w_y", 2.0)], t1=1.0),
        r"phases\[0\] names 'w_y'.*did you mean",
    ),
    (lambda: alternating_flow(LOSS, HEAD, BATCH, phases=[("w_v", 1e-9)], t1=1.0), "choose longer"),
    (lambda: alternating_flow(LOSS, HEAD, BATCH, phases=EM, t1=1.0, trainable=None), "no 'trainable'"),
    (lambda: jax.jit(lambda h: alternating_flow(LOSS, h, BATCH, phases=EM, t1=1.0).final)(HEAD), "under jit"),
)


@pytest.mark.parametrize(("call", "message"), BAD, ids=lambda x: x if isinstance(x, str) else "")
def test_bad_input(call, message):
    with pytest.raises(gf.FlowError, match=message):
        call()
