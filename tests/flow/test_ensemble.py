"""Ensembles: every member as if it ran alone, whatever the others do."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradflow as gf
from gradflow.trajectory import result_name

D, N, MEMBERS = 3, 5, 24
TS = np.array([0.0, 1e-3, 0.1, 1.0, 30.0])


def make(scales, seed=0):
    keys = jax.random.split(jax.random.key(seed), len(scales))
    build = eqx.filter_vmap(lambda key, scale: gf.models.ValueSoftmax.normal(key, D, N, scale=scale, score_scale=0.3))
    return build(keys, jnp.asarray(scales))


def member(tree, index):
    return jax.tree.map(lambda x: x[index] if eqx.is_array(x) else x, tree)


def look(t, model, data):
    return {"weights": model.weights, "loss": gf.losses.square(model, data), "t": t}


def look_logistic(t, model, data):
    return {"loss": gf.losses.logistic(model, data), "t": t}


def spent(t, model, data):
    return model.weights.max() > 0.45


def largest(t, model, data):
    return model.weights.max()


MODELS = make(np.geomspace(0.01, 1.0, MEMBERS))
DATA = gf.tasks.linear_regression(jax.random.key(1), n_features=D, condition_number=30.0)
OPTIONS = dict(t1=30.0, ts=TS, observe=look, rtol=1e-8, solver="tsit5")  # which compiles fastest
BATCHED = (eqx.if_array(0), eqx.if_array(0))


def run(models=MODELS, data=DATA, **options):
    return gf.gradient_flow_ensemble(gf.losses.square, models, data, **{**OPTIONS, **options})


def alone(index, models=MODELS, data=DATA, **options):
    return gf.gradient_flow(gf.losses.square, member(models, index), data, throw=False, **{**OPTIONS, **options})


def assert_same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.fixture(scope="module")
def reference():
    return run(lanes=8)


def test_shapes(reference):
    assert reference.ts.shape == reference.valid.shape == (MEMBERS, len(TS))
    assert reference.observed["weights"].shape == (MEMBERS, len(TS), N)
    assert reference.final.values.shape == (MEMBERS, D, N)
    assert reference.t_final.shape == (MEMBERS,)
    assert reference.stats["num_steps"].shape == (MEMBERS,)
    assert set(result_name(reference.result)) == {"successful"}
    assert 0 < reference.stats["efficiency"] <= 1


SLOW = [pytest.param(solver, marks=pytest.mark.slow) for solver in ("bosh3", "dopri8", "chebyshev", "kvaerno3")]


@pytest.mark.parametrize("solver", ["auto", "tsit5", *SLOW])
def test_every_member_is_as_if_alone(solver):
    options = dict(solver=solver, rtol=1e-6)
    together = run(lanes=8, **options)
    for index in (0, MEMBERS - 1):
        single = alone(index, **options)
        np.testing.assert_array_equal(together.valid[index], single.valid)
        for name in single.observed:
            np.testing.assert_allclose(
                together.observed[name][index], single.observed[name], rtol=1e-5, atol=1e-8, err_msg=name
            )
        counts = int(together.stats["num_gradients"][index]), int(single.stats["num_gradients"])
        assert (counts[0] == -1) == (counts[1] == -1) == (solver == "kvaerno3")
    assert (np.asarray(together.stats["num_steps"]) > 0).all()


def test_step_counts_are_those_of_single_runs(reference):
    for index in (0, 11):
        single = alone(index)
        for name in ("num_steps", "num_gradients"):  # an error at the edge of acceptance may round to the other side
            assert int(reference.stats[name][index]) == pytest.approx(int(single.stats[name]), rel=0.05)


def test_the_initial_state_is_saved_exactly(reference):
    np.testing.assert_array_equal(reference.observed["weights"][:, 0], jax.vmap(jax.nn.softmax)(MODELS.scores))


def test_equal_lanes_give_equal_bits_on_any_threads(reference):
    for threads in (1, 2):
        assert_same(run(lanes=8, threads=threads).observed, reference.observed)


def test_the_order_of_members_does_not_matter(reference):
    order = np.random.default_rng(0).permutation(MEMBERS)
    shuffled = run(member(MODELS, order), lanes=8)
    # The place of a lane in memory decides how a product is summed up.
    np.testing.assert_allclose(shuffled.observed["weights"], reference.observed["weights"][order], rtol=1e-10)


@pytest.mark.parametrize("lanes", [1, 80, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 64))])
def test_other_lanes_agree_to_ten_rtol(reference, lanes):
    other = run(lanes=lanes)
    np.testing.assert_allclose(
        other.observed["weights"], reference.observed["weights"], rtol=10 * OPTIONS["rtol"], atol=1e-9
    )


@pytest.mark.slow
def test_one_member_with_many_lanes(reference):
    single = run(member(MODELS, slice(3, 4)), lanes=64)
    np.testing.assert_allclose(single.observed["loss"][0], reference.observed["loss"][3], rtol=1e-7)


def test_a_member_with_nan_data_reaches_no_other(reference):
    bad = eqx.tree_at(lambda m: m.values, MODELS, MODELS.values.at[5, 0, 0].set(jnp.nan))
    together = run(bad, lanes=8)
    names = result_name(together.result)
    assert names[5] == "nonfinite_start"
    assert set(np.delete(names, 5)) == {"successful"}
    others = np.delete(np.arange(MEMBERS), 5)
    assert_same(member(together.observed, others), member(reference.observed, others))


def test_a_stop_ends_one_member_and_no_other():
    together = run(lanes=8, stop=spent)
    names = result_name(together.result)
    assert {"successful", "event_occurred"} == set(names)
    ended = np.flatnonzero(names == "event_occurred")
    for index in ended[:2]:
        single = alone(int(index), stop=spent)
        # A stop comes at the end of a step, and at the limit of stability rounding decides how long that is.
        np.testing.assert_allclose(together.t_final[index], single.t_final, rtol=0.05)
        np.testing.assert_array_equal(together.valid[index], single.valid)
    assert np.isnan(together.observed["loss"][ended[0], -1])


def test_a_crossing_is_refined_for_each_member():
    end = run(lanes=8, t1=1e3, ts=None, observe=None)
    first, last = (np.asarray(jax.nn.softmax(scores).max(axis=-1)) for scores in (MODELS.scores, end.final.scores))
    level = 0.5 * (first + last)
    together = run(lanes=8, event=gf.Crossing(largest, level), t1=1e3, ts=None, observe=None)
    crossed = result_name(together.result) == "event_occurred"
    assert crossed.sum() > 3
    found = jax.vmap(lambda scores: jax.nn.softmax(scores).max())(together.final.scores)
    np.testing.assert_allclose(np.asarray(found)[crossed], level[crossed], rtol=1e-9)
    index = int(np.flatnonzero(crossed)[0])
    single = alone(index, event=gf.Crossing(largest, float(level[index])), t1=1e3, ts=None, observe=None)
    np.testing.assert_allclose(together.t_final[index], single.t_final, rtol=1e-9)
    np.testing.assert_array_equal(together.ts[:, 0], together.t_final)


def test_members_run_out_of_steps_alone(reference):
    steps = np.asarray(reference.stats["num_steps"])
    most = int(np.median(steps))
    together = run(lanes=8, max_steps=most)
    names = result_name(together.result)
    np.testing.assert_array_equal(names == "successful", steps <= most)
    assert (np.asarray(together.stats["num_steps"]) <= most).all()


def test_horizons_and_save_times_of_their_own():
    horizons = np.geomspace(1e-9, 1e20, MEMBERS)
    separable = gf.tasks.linear_classification(jax.random.key(3), 8, D)
    options = dict(t1=horizons, ts=horizons[:, None] * np.array([0.5, 1.0]), observe=look_logistic, rtol=1e-8)
    together = gf.gradient_flow_ensemble(gf.losses.logistic, MODELS, separable, lanes=8, **options)
    assert set(result_name(together.result)) == {"successful"}
    np.testing.assert_array_equal(together.t_final, horizons)
    np.testing.assert_array_equal(together.observed["t"], horizons[:, None] * np.array([0.5, 1.0]))
    for index in (0, MEMBERS - 1):
        options |= dict(t1=horizons[index], ts=horizons[index] * np.array([0.5, 1.0]))
        single = gf.gradient_flow(gf.losses.logistic, member(MODELS, index), separable, **options)
        np.testing.assert_allclose(together.observed["loss"][index], single.observed["loss"], rtol=1e-6, atol=1e-12)


@pytest.mark.slow
def test_rates_of_their_own():
    rates = np.geomspace(0.1, 10.0, MEMBERS)
    together = run(lanes=8, rates={"values": rates})
    single = alone(20, rates={"values": rates[20]})
    np.testing.assert_allclose(together.observed["loss"][20], single.observed["loss"], rtol=1e-7)


def test_data_of_their_own():
    data = eqx.filter_vmap(
        lambda kappa: gf.tasks.linear_regression(jax.random.key(1), n_features=D, condition_number=kappa)
    )
    batch = data(jnp.geomspace(1.0, 100.0, MEMBERS))
    together = run(data=batch, in_axes=BATCHED, lanes=8)
    single = alone(20, data=member(batch, 20))
    np.testing.assert_allclose(together.observed["loss"][20], single.observed["loss"], rtol=1e-7)
    same_model = member(MODELS, 4)
    shared = run(same_model, data=batch, in_axes=(None, eqx.if_array(0)), lanes=8)
    assert shared.final.values.shape == (MEMBERS, D, N)


def test_saves_without_observe_are_models():
    together = run(lanes=8, observe=None)
    assert together.observed.values.shape == (MEMBERS, len(TS), D, N)
    np.testing.assert_allclose(together.observed.values[:, -1], together.final.values, rtol=1e-13, atol=1e-15)


@pytest.mark.slow
def test_kinked_activations_end_with_codes():
    kinked = eqx.filter_vmap(
        lambda key: gf.models.ValueSoftmax.normal(key, D, N, activation=gf.activations.by_name("relu"), score_mean=0.3)
    )(jax.random.split(jax.random.key(2), 8))
    together = gf.gradient_flow_ensemble(gf.losses.square, kinked, DATA, t1=10.0, lanes=4)
    assert set(result_name(together.result)) <= {"successful", "kink"}
    assert np.isfinite(together.final.values).all()


@pytest.mark.slow
def test_float32():
    single = jax.tree.map(lambda x: x.astype(jnp.float32) if eqx.is_array(x) else x, (MODELS, DATA))
    together = gf.gradient_flow_ensemble(gf.losses.square, *single, t1=30.0, lanes=8)
    assert together.final.values.dtype == together.t_final.dtype == jnp.float32
    np.testing.assert_allclose(together.final.values, run(ts=None, observe=None).final.values, atol=2e-3)


def squared(model, data):
    return 0.5 * jnp.sum(model["a"] ** 2 * data)


def with_a_loop(model, data):
    bent = jax.lax.cond(model["a"][0] > 0, lambda x: x, lambda x: 2 * x, model["a"])
    return jax.lax.fori_loop(0, 3, lambda i, total: total + 0.5 * jnp.sum(bent**2 * data), 0.0)


def test_a_loss_with_loops_and_branches():
    models = {"a": jnp.array([[1.0, 2.0], [-1.0, 2.0]])}
    together = gf.gradient_flow_ensemble(with_a_loop, models, jnp.ones(2), t1=0.1, rtol=1e-10)
    rates = np.array([3.0, 12.0])
    np.testing.assert_allclose(together.final["a"], models["a"] * np.exp(-0.1 * rates)[:, None], rtol=1e-8)


def at_once(t, model, data):
    return t >= 0


def test_a_stop_at_the_start_takes_no_step():
    start = jnp.ones((3, 2))
    together = gf.gradient_flow_ensemble(squared, {"a": start}, jnp.ones(2), t1=1.0, ts=[0.0, 1.0], stop=at_once)
    assert set(result_name(together.result)) == {"event_occurred"}
    np.testing.assert_array_equal(together.stats["num_steps"], 0)
    np.testing.assert_array_equal(together.final["a"], start)
    np.testing.assert_array_equal(together.valid, [[True, False]] * 3)


def test_lanes_that_stay_empty_are_not_counted_as_busy():
    data = jnp.array([100.0, 1.0, 1.0, 1.0])[:, None] * jnp.ones(2)
    options = dict(t1=10.0, solver="tsit5", rtol=1e-6, in_axes=BATCHED, lanes=2)
    together = gf.gradient_flow_ensemble(squared, {"a": jnp.ones((4, 2))}, data, **options)
    steps = np.asarray(together.stats["num_steps"])
    assert together.stats["efficiency"] <= steps.sum() / (2 * steps.max())


def with_noise(model, data):
    noise = jax.random.normal(data["key"], model["a"].shape)
    return 0.5 * data["scale"] * jnp.sum((model["a"] - noise) ** 2)


def test_keys_and_plain_numbers_in_the_data():
    keys = jax.random.split(jax.random.key(0), 3)
    end = gf.gradient_flow_ensemble(
        with_noise, {"a": jnp.zeros((3, 2))}, {"key": keys, "scale": 2.0}, in_axes=BATCHED, t1=0.5, rtol=1e-8
    )
    noise = jax.vmap(lambda key: jax.random.normal(key, (2,)))(keys)
    np.testing.assert_allclose(end.final["a"], noise * (1 - np.exp(-1.0)), rtol=1e-6)


def test_float64_arrays_of_numpy_run_in_float32_without_x64():
    with jax.enable_x64(False), pytest.warns(gf.FlowWarning, match=r"model\['rounded'\] is float64 but"):
        end = gf.gradient_flow_ensemble(rounded, {"rounded": np.ones((2, 3))}, t1=1.0)
    assert end.final["rounded"].dtype == jnp.float32
    np.testing.assert_allclose(end.final["rounded"], np.exp(-1.0), rtol=1e-3)


def rounded(model, data):
    return 0.5 * jnp.sum(model["rounded"] ** 2)


def state(t, model, data):
    return model["a"]


@pytest.mark.parametrize("solver", ["auto", pytest.param("chebyshev", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_saves_can_be_differentiated_where_members_wait_for_others(solver):
    times, rates = np.array([0.0, 0.5, 1.0]), np.array([1.0, 30.0])[:, None] * np.ones(2)

    def total(scale):
        start = {"a": scale * jnp.ones((2, 2))}
        options = dict(in_axes=BATCHED, t1=1.0, ts=times, observe=state, rtol=1e-8, solver=solver)
        return gf.gradient_flow_ensemble(squared, start, jnp.asarray(rates), **options).observed.sum()

    expected = np.exp(-times[:, None, None] * rates).sum()
    np.testing.assert_allclose(jax.jit(jax.grad(total))(1.0), expected, rtol=1e-5)


@pytest.mark.slow
def test_it_can_be_differentiated_under_jit():
    def total(scale):
        end = gf.gradient_flow_ensemble(squared, {"a": scale * jnp.ones((3, 2))}, jnp.ones(2), t1=1.0, rtol=1e-10)
        return end.final["a"].sum()

    np.testing.assert_allclose(jax.jit(jax.grad(total))(2.0), 6 * np.exp(-1.0), rtol=1e-8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(t1=np.array([1.0, -1.0])), "t1 is -1 .* for member 1"),
        (dict(t1=np.ones(3)), "t1 has shape"),
        (dict(ts=np.ones((3, 2))), "ts has shape"),
        (dict(ts=np.array([[0.5, 1.0], [0.5, 0.2]])), r"ts\[1\] = 0.2 is smaller"),
        (dict(stop=state), "stop returns .*: it must return one real scalar"),
        (dict(event=gf.Crossing(state, 0.5)), "event.fn returns .*: it must return one real scalar"),
        (dict(rates={"a": np.array([1.0, -2.0])}), "rates at .* is -2"),
        (dict(lanes=0), "lanes is 0"),
        (dict(threads=0.5), "threads is 0.5"),
        (dict(devices=["gpu"]), "devices is"),
        (dict(in_axes=(None, None)), "no array a member axis"),
        (dict(in_axes=(eqx.if_array(3), None)), "has no such axis"),
        (dict(in_axes=(eqx.if_array(0), eqx.if_array(0))), "has 2 members and args has 3"),
    ],
)
def test_bad_input_gets_one_clear_error(options, message):
    with pytest.raises(gf.FlowError, match=message):
        gf.gradient_flow_ensemble(squared, {"a": jnp.ones((2, 3))}, jnp.ones(3), **{"t1": 1.0, **options})


def test_no_members():
    with pytest.raises(gf.FlowError, match="no members"):
        gf.gradient_flow_ensemble(squared, {"a": jnp.ones((0, 3))}, jnp.ones(3), t1=1.0)


def test_throw_names_the_first_failure():
    start = jnp.ones((3, 2)).at[1].set(jnp.inf)
    with pytest.raises(
        gf.FlowError, match="1 of 3 members failed, the first is member 1 with 'nonfinite_start'"
    ) as caught:
        gf.gradient_flow_ensemble(squared, {"a": start}, jnp.ones(2), t1=1.0, throw=True)
    assert caught.value.trajectory.valid.shape == (3, 1)


def test_new_numbers_do_not_compile_again():
    traces = []

    def counted(model, data):
        traces.append(1)
        return squared(model, data)

    for scale, t1, count in ((1.0, 1.0, 20), (2.0, 3.0, 30)):
        models = {"a": scale * jnp.ones((count, 2))}
        gf.gradient_flow_ensemble(counted, models, jnp.ones(2), t1=t1, rtol=1e-5 * scale, lanes=4)
        first = first if scale > 1 else len(traces)  # noqa: F821
    split_only = 1  # the structure of the members is looked at in each call
    assert len(traces) <= first + split_only
