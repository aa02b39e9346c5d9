"""Parameter groups by name against `optax.multi_transform` and against the flow at the same rates."""

import functools

import equinox as eqx
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
groups = gf.schedules.parameter_groups


def descend(optimizer, steps=20, **options):
    return gf.gradient_descent(LOSS, HEAD, optimizer, BATCH, steps=steps, **options)


def labels(params):
    return jax.tree_util.tree_map_with_path(lambda path, _: "fast" if path[0].name == "w_v" else "slow", params)


def test_groups_are_those_of_optax():
    expected = optax.multi_transform({"fast": optax.adam(0.1), "slow": optax.sgd(0.01)}, labels)
    ours, theirs = descend(groups({"w_v": optax.adam(0.1)}, default=0.01)), descend(expected)
    for a, b in zip(jax.tree.leaves(ours.final), jax.tree.leaves(theirs.final), strict=True):
        np.testing.assert_array_equal(a, b)
    assert float(jnp.abs(ours.final.w_v - HEAD.w_v).max()) > 0.1


@pytest.mark.slow
def test_descent_at_rates_follows_the_flow_at_rates():
    """The gap is linear in the step size, and far below the distance to the flow without the rates."""
    rates, sizes, ts = {"w_v": 10.0, "w_o": 0.5}, np.array([0.02, 0.01, 0.005]), np.array([1.0, 2.0])
    options = {"t1": 2.0, "ts": ts, "rtol": 1e-10, "solver": "tsit5"}
    flow, plain = (gf.gradient_flow(LOSS, HEAD, BATCH, rates=r, **options) for r in (rates, 1.0))
    steps = np.round(ts / sizes[:, None]).astype(int)
    descents = gf.gradient_descent_ensemble(
        LOSS,
        jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), HEAD),
        functools.partial(gf.schedules.at_rates, rates),
        BATCH,
        hyperparameters={"step_size": sizes},
        steps=steps.max(),
        save_at=np.unique(steps),
    )
    descents = eqx.tree_at(lambda run: run.stats, descents, {})
    members = [jax.tree.map(lambda leaf, i=i: leaf[i], descents) for i in range(3)]
    gaps = [gf.flow_descent_gap(flow, run, size) for run, size in zip(members, sizes, strict=True)]
    assert all(np.isin(ts, gap.ts).all() for gap in gaps)
    ends = np.array([gap.distance[-1] for gap in gaps])
    np.testing.assert_allclose(gf.gap_order(sizes, ends), 1, atol=0.05)
    assert gf.flow_descent_gap(plain, members[-1], sizes[-1]).distance[-1] > 20 * ends[-1]


def test_a_group_at_zero_is_frozen_and_schedules_are_taken():
    run = descend(groups({"w_q": 0.0, "w_k": optax.constant_schedule(0.0)}, default=0.1))
    np.testing.assert_array_equal(run.final.w_q, HEAD.w_q)
    np.testing.assert_array_equal(run.final.w_k, HEAD.w_k)
    assert float(jnp.abs(run.final.w_v - HEAD.w_v).max()) > 1e-3


def test_equal_groups_share_a_kernel():
    assert canonical(groups({"w_v": 0.1}, default=0.01)) is canonical(groups(default=0.01, w_v=np.float64(0.1)))
    assert canonical(groups({"w_v": 0.1}, default=0.01)) is not canonical(groups({"w_o": 0.1}, default=0.01))
    rates = gf.schedules.at_rates({"w_v": 10.0}, 0.01)
    assert canonical(rates) is canonical(groups({"w_v": 10.0 * 0.01}, default=0.01))


def test_members_have_groups_of_their_own():
    heads = jax.vmap(lambda k: gf.models.AttentionHead.normal(k, 4, 3, 4, C, scale=0.4))(jax.random.split(KEY, 3))
    sizes = np.array([0.0, 0.1, 0.3])
    run = gf.gradient_descent_ensemble(
        LOSS, heads, groups, BATCH, hyperparameters={"w_v": sizes, "default": 0.01}, steps=20
    )
    np.testing.assert_array_equal(run.final.w_v[0], heads.w_v[0])
    alone = gf.gradient_descent(
        LOSS,
        jax.tree.map(lambda leaf: leaf[2], heads),
        groups({"w_v": 0.3}, default=0.01),
        BATCH,
        steps=20,
    )
    np.testing.assert_allclose(run.final.w_v[2], alone.final.w_v, atol=1e-13)
    np.testing.assert_allclose(run.final.w_q[2], alone.final.w_q, atol=1e-13)


def test_a_checkpoint_knows_its_groups(tmp_path):
    path = tmp_path / "run"
    whole = descend(groups({"w_v": optax.adam(0.1)}, default=0.01), checkpoint=path)
    again = descend(groups({"w_v": optax.adam(0.1)}, default=0.01), checkpoint=path)
    np.testing.assert_array_equal(whole.final.w_v, again.final.w_v)
    with pytest.raises(gf.FlowError, match="another run"):
        descend(groups({"w_v": optax.adam(0.2)}, default=0.01), checkpoint=path)


def test_names_select_what_moves():
    model = {"attention": HEAD, "mlp": {"layers": [jnp.ones(2), np.ones(3)], "act": jnp.tanh}, "count": jnp.arange(2)}
    spec = gf.schedules.only(model, "attention.w_v", "mlp.layers[1]")
    moving = [jax.tree_util.keystr(path) for path, flag in jax.tree_util.tree_leaves_with_path(spec) if flag]
    assert moving == ["['attention'].w_v", "['mlp']['layers'][1]"]
    rest = gf.schedules.all_but(model, "attention.w_v", "mlp.layers[1]")
    either = jax.tree.leaves(jax.tree.map(lambda a, b: a + b, spec, rest))
    assert either == [eqx.is_inexact_array(leaf) for leaf in jax.tree.leaves(model)]


BAD = (
    (lambda: descend(groups({"w_vv": 0.1}, default=0.01)), "'w_vv', which is no leaf of the model; did you mean 'w_v'"),
    (lambda: groups({"w_v": -1.0}, default=0.01), r"groups\['w_v'\] is -1.0"),
    (lambda: groups({"w_v": "fast"}, default=0.01), "'fast': give a finite step size"),
    (lambda: groups({"w_v": 0.1}, default=np.nan), "default is nan"),
    (lambda: groups(["w_v"], default=0.1), "groups is"),
    (lambda: gf.schedules.at_rates({"w_v": -3.0}, 0.1), r"rates\['w_v'\] is -3.0"),
    (lambda: gf.schedules.at_rates({"w_v": 3.0}, "0.1"), "step_size is '0.1'"),
    (lambda: gf.schedules.at_rates({"w_v": 3.0}, -0.1), "step_size is -0.1: give a finite number >= 0$"),
    (lambda: gf.schedules.at_rates("fast", 0.1), "rates is 'fast': give a finite multiplier >= 0$"),
    (lambda: gf.schedules.at_rates({3: 1.0}, 0.1), "^rates is {3: 1.0}: give names of leaves"),
    (lambda: gf.schedules.only(HEAD, "w_x"), "only names 'w_x'.*did you mean"),
    (lambda: gf.schedules.all_but(HEAD, "w_x"), "all_but names 'w_x'.*did you mean"),
    (lambda: gf.schedules.only(HEAD, 3), "give names of leaves"),
)


@pytest.mark.parametrize(("call", "message"), BAD, ids=lambda x: x if isinstance(x, str) else "")
def test_bad_input(call, message):
    with pytest.raises(gf.FlowError, match=message):
        call()
