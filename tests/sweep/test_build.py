"""Builders under vmap and on the host: the same members, draws that only key, seed and point decide, clear errors."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toy_sweep as toy

import gradflow as gf
from gradflow.errors import FlowError
from gradflow.sweep.build import builder_axes, trace
from gradflow.sweep.draws import check_key, member_keys
from gradflow.sweep.host import build_on_host

KEY = jax.random.key(3)
SEEDS = np.array([0, 5, 2**32 - 1], np.uint32)
DATA = jnp.arange(6.0)


def build(key, *, scale, kappa, shape=2):
    first, second = jax.random.split(key)
    model = toy.Point(scale * jax.random.normal(first, (shape,)))
    return (
        toy.bowl,
        model,
        {"drawn": jax.random.normal(second, (2,)), "kappa": kappa, "data": DATA, "name": "a", "none": None},
    )


def members(tree) -> list:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_array))]


def test_traced_members_equal_those_built_one_by_one():
    keys, scale, kappa = member_keys(KEY, SEEDS, None), np.array([0.1, 1.0, 2.0]), np.array([1.0, 2.0, 3.0])
    built = trace(build, {"shape": 2}, {"scale": scale, "kappa": kappa}, keys).build(
        keys, {"scale": scale, "kappa": kappa}, 3
    )
    points = [{"scale": s, "kappa": k, "shape": 2} for s, k in zip(scale.tolist(), kappa.tolist(), strict=True)]
    one_by_one = [build(key, **point) for key, point in zip(keys, points, strict=True)]
    np.testing.assert_allclose(built.model.x, np.stack([model.x for _, model, _ in one_by_one]), rtol=1e-14)
    np.testing.assert_allclose(built.args["drawn"], np.stack([args["drawn"] for _, _, args in one_by_one]), rtol=1e-14)
    assert built.args["name"] == "a" and built.loss is toy.bowl
    np.testing.assert_array_equal(built.args["data"], DATA)
    assert built.in_axes[1] == {"drawn": 0, "kappa": 0, "data": None, "name": None, "none": None}
    hosted = build_on_host(build, [{**point, "kappa": jnp.asarray(point["kappa"])} for point in points], keys)
    for ours, theirs in zip(members((built.model, built.args)), members((hosted.model, hosted.args)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-14)
    assert hosted.in_axes[1] == built.in_axes[1]


def test_data_that_no_batched_value_reaches_is_shared():
    """Without a seed the key is one: a sweep over a scale keeps one copy of the data."""
    key, scale = member_keys(KEY, None, None), np.array([0.1, 1.0])
    traced = trace(build, {"kappa": 1.0}, {"scale": scale}, key)
    built = traced.build(key, {"scale": scale}, 2)
    assert built.args["drawn"].shape == (2,) and built.in_axes[1]["drawn"] is None
    assert built.model.x.shape == (2, 2)
    np.testing.assert_allclose(built.model.x[1], 10 * built.model.x[0], rtol=1e-14)
    alone = trace(build, {"kappa": 1.0, "scale": 1.0}, {}, key).build(key, {}, 3)
    np.testing.assert_allclose(alone.model.x, np.repeat(built.model.x[1:], 3, axis=0), rtol=1e-14)


def test_groups_that_differ_in_names_alone_compile_nothing_anew(caplog):
    def group(kind):
        keys, scale = member_keys(KEY, SEEDS, None), np.array([0.1, 1.0, 2.0])
        built = trace(named, {"kind": kind}, {"scale": scale}, keys).build(keys, {"scale": scale}, 3)
        assert built.args["kind"] == kind
        assert [built.args[name].weak_type for name in ("weak", "strong", "flag")] == [True, False, False]
        return jax.block_until_ready(built.model.x)

    with jax.log_compiles():
        first = group("a")
        assert "Compiling" in caplog.text
        caplog.clear()
        np.testing.assert_array_equal(group("b"), first)
    assert "Compiling" not in caplog.text


def named(key, *, kind, scale):
    args = {"kind": kind, "weak": jnp.asarray(0.5), "strong": jnp.asarray(np.ones(())), "flag": jnp.asarray(True)}
    return toy.bowl, toy.Point(scale * jax.random.normal(key, (5, 3)) @ jnp.ones(3)), args


def test_keys_are_a_function_of_key_seed_and_point():
    keys = member_keys(KEY, SEEDS, None)
    for key, seed in zip(keys, SEEDS, strict=True):
        assert key == jax.random.fold_in(KEY, seed)
    assert member_keys(KEY, SEEDS[::-1], None)[2] == keys[0]
    digests = np.array([[1, 2], [1, 2], [3, 4]], np.uint32)
    apart = member_keys(KEY, None, digests)
    assert apart[0] == apart[1] != apart[2]
    assert member_keys(KEY, SEEDS, digests)[2] == jax.random.fold_in(jax.random.fold_in(keys[2], 3), 4)
    assert member_keys(KEY, None, None) == KEY


@pytest.mark.parametrize(
    ("key", "match"),
    [
        (0, "key is 0"),
        (jax.random.PRNGKey(0), "typed key"),
        (jax.random.split(KEY), "one typed key"),
        (jax.random.key(0, impl="rbg"), "rbg key, whose draws depend on how many"),
    ],
)
def test_bad_keys(key, match):
    with pytest.raises(FlowError, match=match):
        check_key(key)


def branches(key, *, kappa):
    return toy.build(key, kappa=kappa if kappa > 1 else 1.0)


def uses_numpy(key, *, seed):
    return toy.bowl, toy.Point(jnp.asarray(np.random.default_rng(seed).normal(size=2))), jnp.ones(())


def sizes(key, *, kappa):
    return toy.bowl, toy.Point(jnp.ones(kappa)), jnp.ones(())


def checks(key, *, n):
    return toy.bowl, gf.models.ValueSoftmax.normal(key, 2, n), gf.tasks.linear_regression(key, n_features=n)


def typo(key, *, kappa):
    return toy.bowl, toy.Point(jnp.one(2)), kappa


@pytest.mark.parametrize(
    ("function", "values"),
    [
        (branches, {"kappa": np.array([2.0])}),
        (uses_numpy, {"seed": np.array([2])}),
        (sizes, {"kappa": np.array([2])}),
        (checks, {"n": np.array([3])}),
    ],
)
def test_builders_that_cannot_be_traced(function, values):
    with pytest.raises(FlowError, match=r"build cannot be traced .*build_on='host'.*gf\.Static") as caught:
        trace(function, {}, values, KEY)
    assert "\n" not in str(caught.value)
    build_on_host(function, [{name: value[0].item() for name, value in values.items()}], KEY)


def test_a_builder_with_a_mistake_raises_its_own_error():
    with pytest.raises(AttributeError, match="one"):
        trace(typo, {}, {"kappa": np.array([2.0])}, KEY)
    with pytest.raises(AttributeError, match="one") as caught:
        build_on_host(typo, [{"kappa": 2.0}], KEY)
    assert caught.value.__notes__ == ["in build at kappa = 2.0"]


@pytest.mark.parametrize("returned", [None, (toy.bowl, 1), ("loss", 1, 2)])
def test_builders_that_return_something_else(returned):
    for use in (lambda f: trace(f, {}, {"a": np.ones(1)}, KEY), lambda f: build_on_host(f, [{"a": 1.0}], KEY)):
        with pytest.raises(FlowError, match=r"it must return \(loss, model, args\)"):
            use(lambda key, a: returned)


def own_loss(key, *, a):
    return (lambda model, args: a * model.x.sum()), toy.Point(jnp.ones(2)), a


def ragged(key, *, a):
    return toy.bowl, toy.Point(jnp.ones(int(a))), a


def renamed(key, *, a):
    return toy.bowl, toy.Point(jnp.ones(2)), {f"a{a}": a}


def unequal(key, *, a):
    return toy.bowl, toy.Point(jnp.ones(2)), {"name": str(a)}


@pytest.mark.parametrize(
    ("function", "match"),
    [
        (own_loss, "loss of its own for each point"),
        (ragged, r"shapes \(1,\) and \(2,\) at model.x"),
        (renamed, "different structure"),
        (unequal, r"'1.0' and '2.0' at args\['name'\]"),
    ],
)
def test_members_that_do_not_fit_together(function, match):
    with pytest.raises(FlowError, match=match):
        build_on_host(function, [{"a": 1.0}, {"a": 2.0}], KEY)


def takes_all(key, **point):
    return toy.build(key, **point)


@pytest.mark.parametrize(
    ("function", "axes", "of_method", "taken"),
    [
        (toy.build, ("kappa", "scale", "seed"), (), ("kappa", "scale")),
        (toy.build, ("kappa", "horizon"), ("horizon",), ("kappa",)),
        (toy.build_slowly, ("kappa", "seed"), (), ("kappa", "seed")),
        (takes_all, ("kappa", "other", "seed", "eta"), ("eta",), ("kappa", "other")),
    ],
)
def test_what_a_builder_is_given(function, axes, of_method, taken):
    assert builder_axes(function, axes, of_method) == taken


@pytest.mark.parametrize(
    ("function", "axes", "match"),
    [
        (toy.build, ("kappa", "scales"), "'scales' is no parameter of build; did you mean 'scale'"),
        (toy.build, (), "build needs 'kappa', which is no axis"),
        (lambda rng, rng2: None, ("rng", "rng2"), "'rng' is the first parameter"),
        (lambda *, kappa: None, ("kappa",), "first parameter must be the key"),
        (3, (), "build is 3"),
    ],
)
def test_builders_that_do_not_take_the_axes(function, axes, match):
    with pytest.raises(FlowError, match=match):
        builder_axes(function, axes, ())
