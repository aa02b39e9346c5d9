"""Sweeps in memory: right answers under the right labels, failures that stay where they are, refusals."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toy_sweep as toy
import xarray

import gradflow
from gradflow.errors import FlowError, FlowWarning, Interrupted
from gradflow.sweep import Descent, Flow, Static, failures, machine
from gradflow.sweep.axes import dimensions
from gradflow.sweep.grid import Grid
from gradflow.sweep.layout import compiles
from gradflow.sweep.work import Work


@pytest.fixture(scope="module")
def ds() -> xarray.Dataset:
    return toy.run()


def test_every_member_is_its_own_flow(ds):
    assert dict(ds.sizes) == {"kappa": 3, "scale": 2, "seed": 4, "time": 3, "x_0": 2}
    assert ds["x"].dims == ("kappa", "scale", "seed", "time", "x_0")
    assert ds["size"].dims == ("kappa", "scale", "seed", "time")
    for kappa, scale, seed, t in [(1.0, 0.5, 0, 0.0), (2.0, 1.0, 2, 0.5), (4.0, 0.5, 1, 1.0)]:
        key = jax.random.fold_in(toy.KEY, seed)
        found = ds["x"].sel(kappa=kappa, scale=scale, seed=seed, time=t)
        np.testing.assert_allclose(found, toy.expected(key, kappa, scale, t), rtol=1e-7)
    np.testing.assert_allclose(ds["size"], (ds["x"] ** 2).sum("x_0"), rtol=1e-12)


def test_what_else_is_kept(ds):
    assert (ds["result"] == "successful").all() and ds["valid"].all() and (ds["t_final"] == 1).all()
    assert (ds["num_steps"] > 0).all() and (ds["num_gradients"] >= ds["num_steps"]).all()
    assert ds["time"].attrs["units"] == "gradient-flow time"
    assert failures(ds) == [] and ds.attrs["failures"] == 0
    spec = json.loads(ds.attrs["spec"])
    assert spec["axes"]["kappa"]["values"] == [1.0, 2.0, 4.0] and spec["method"]["t1"] == 1.0
    assert json.loads(ds.attrs["versions"])["jax"] == jax.__version__
    assert ds.attrs["device"] and ds.attrs["precision"] == "float64" and len(ds.attrs["spec_hash"]) == 64
    assert all(isinstance(value, str | int) for value in ds.attrs.values())


def test_axes_share_draws_and_seeds_do_not(ds):
    start = ds["x"].sel(time=0.0)
    np.testing.assert_allclose(start.sel(scale=1.0), 2 * start.sel(scale=0.5), rtol=1e-14)
    np.testing.assert_array_equal(start.sel(kappa=1.0), start.sel(kappa=4.0))
    assert len(np.unique(start.sel(kappa=1.0, scale=1.0))) == 8


def test_a_larger_grid_holds_the_smaller(ds):
    larger = toy.run({"seed": range(5), "scale": [0.25, 0.5, 1.0], "kappa": [2.0, 1.0, 4.0, 8.0]})
    np.testing.assert_allclose(larger["x"].sel(ds["x"].coords).transpose(*ds["x"].dims), ds["x"], rtol=1e-8)
    start, again = (found["x"].sel(time=0.0, scale=1.0, kappa=2.0) for found in (ds, larger))
    np.testing.assert_allclose(again.sel(seed=start["seed"]), start, rtol=1e-14)


def test_a_chunking_gives_the_same_bits_again(ds):
    assert toy.run().drop_attrs().identical(ds.drop_attrs())


def test_independent_points_draw_apart():
    axes = {"kappa": [1.0, 2.0], "seed": range(2)}
    apart = toy.run(axes, independent=True)
    assert len(np.unique(apart["x"].sel(time=0.0))) == 8
    larger = toy.run({"kappa": [3.0, 2.0, 1.0], "seed": range(4)}, independent=True)
    np.testing.assert_allclose(larger["x"].sel(apart["x"].coords), apart["x"], rtol=1e-8)


def test_no_axes_and_grids_of_one_point():
    alone = toy.run({}, build=lambda key: toy.build(key, kappa=2.0))
    assert dict(alone.sizes) == {"time": 3, "x_0": 2} and alone["result"].item() == "successful"
    np.testing.assert_allclose(alone["x"][2], toy.expected(toy.KEY, 2.0, 1.0, 1.0), rtol=1e-7)
    point = toy.run({"kappa": [2.0], "seed": [3]})
    key = jax.random.fold_in(toy.KEY, 3)
    np.testing.assert_allclose(point["x"][0, 0, 2], toy.expected(key, 2.0, 1.0, 1.0), rtol=1e-7)
    static = toy.run({"kappa": Static([2.0])})
    np.testing.assert_allclose(static["x"][0], alone["x"], rtol=1e-8)


def by_size(key, *, size, kind, kappa):
    model = toy.Point(jnp.where(kind == "ones", 1.0, 2.0) * jnp.ones(size))
    return toy.bowl, model, jnp.asarray(kappa)


def observe_size(t, model, kappa):
    return (model.x**2).sum()


def test_static_axes_pick_a_kernel_each():
    found = toy.run(
        {"kappa": [1.0, 2.0], "size": [1, 3], "kind": ["ones", "twos"]}, build=by_size, observe=observe_size
    )
    assert found["observed"].dims == ("kappa", "size", "kind", "time")
    expected = np.exp(-2 * toy.TIMES) * 3 * 4
    np.testing.assert_allclose(found["observed"].sel(kappa=1.0, size=3, kind="twos"), expected, rtol=1e-7)
    with pytest.raises(FlowError, match=r"'observed' as float64\[3, 3\] at size = 3, .*but float64\[3, 1\]"):
        toy.run({"kappa": [1.0], "size": [1, 3], "kind": ["ones"]}, build=by_size, observe=lambda t, m, a: m.x)


def test_zipped_axes_are_one_dimension():
    found = toy.run({("scale", "kappa"): [(1.0, 2.0), (0.5, 4.0)], "seed": range(2)})
    assert found["x"].dims == ("scale_kappa", "seed", "time", "x_0")
    assert found["scale"].dims == found["kappa"].dims == ("scale_kappa",)
    key = jax.random.fold_in(toy.KEY, 1)
    np.testing.assert_allclose(found["x"][1, 1, 2], toy.expected(key, 4.0, 0.5, 1.0), rtol=1e-7)


def test_the_loss_is_kept_when_nothing_is_observed(ds):
    found = toy.run(observe=None)
    np.testing.assert_allclose(found["loss"], 0.5 * ds["kappa"] * ds["size"], rtol=1e-12)
    ended = toy.run(observe=None, method=Flow(t1=1.0, **toy.OPTIONS))
    assert ended["loss"].dims == ("kappa", "scale", "seed", "time") and ended["time"].values == [1.0]
    np.testing.assert_allclose(ended["loss"][..., 0], found["loss"][..., 2], rtol=1e-6)


def test_final_models_on_request(ds):
    found = toy.run(parameters=True)
    assert found["final.x"].dims == ("kappa", "scale", "seed", "final.x_0")
    np.testing.assert_allclose(found["final.x"], ds["x"].sel(time=1.0), rtol=1e-6)


def test_horizons_and_rates_by_axis():
    method = Flow(t1="horizon", rates={"x": "rate"}, **toy.OPTIONS)
    found = toy.run({"kappa": [1.0], "horizon": [1e-9, 2.0], "rate": [1.0, 3.0]}, method=method)
    assert (found["t_final"] == found["horizon"]).all() and "time" not in found.coords
    decay = np.exp(-found["horizon"] * found["rate"]).values[..., None]
    np.testing.assert_allclose(found["x"][0, :, :, 0], decay * toy.expected(toy.KEY, 1.0, 1.0, 0.0), rtol=1e-6)


def test_descent():
    method = Descent(optax.sgd, steps=10, save_at=[0, 5, 10], hyperparameters={"learning_rate": "eta"})
    found = toy.run({"kappa": [1.0, 2.0], "eta": [0.01, 0.1], "seed": range(2)}, method=method)
    assert found["time"].values.tolist() == [0, 5, 10] and found["time"].attrs["units"] == "optimiser steps"
    one = found["x"].sel(kappa=2.0, eta=0.1, seed=1)
    start = toy.expected(jax.random.fold_in(toy.KEY, 1), 2.0, 1.0, 0.0)
    np.testing.assert_allclose(one, start * (1 - 0.2) ** one["time"].values[:, None], rtol=1e-12)
    mesh = jax.make_mesh((1,), ("members",), axis_types=(jax.sharding.AxisType.Auto,))
    again = toy.run({"kappa": [1.0, 2.0], "eta": [0.01, 0.1], "seed": range(2)}, method=method, mesh=mesh)
    assert again.drop_attrs().identical(found.drop_attrs())


def spoiled(key, *, kappa, seed):
    """One member with NaN data, one that needs too many steps; the others as in the toy."""
    return toy.bowl, toy.build(key, kappa=1.0)[1], jnp.where(seed == 1, jnp.nan, kappa)


def test_failures_stay_where_they_are():
    axes = {"kappa": [1.0, 1e6], "seed": range(3)}
    method = Flow(t1=1.0, ts=toy.TIMES, max_steps=50, **toy.OPTIONS)
    with pytest.warns(FlowWarning, match=r"4 of 6 members failed \(2 .*, 2 .*\), the first at kappa = 1.0, seed = 1"):
        found = toy.run(axes, build=spoiled, method=method)
    good = toy.run({"kappa": [1.0], "seed": [0, 2]}, method=method)
    np.testing.assert_allclose(found["x"].sel(kappa=1.0, seed=[0, 2]), good["x"][0], rtol=1e-8)
    assert found["result"].sel(seed=1).values.tolist() == ["nonfinite_start"] * 2
    listed = failures(found)
    assert [failure.point for failure in listed[:2]] == [{"kappa": 1.0, "seed": 1}, {"kappa": 1e6, "seed": 0}]
    assert {failure.result for failure in listed[2:]} <= {"nonfinite_start", "stiff", "max_steps_reached"}
    assert 0 < listed[1].t_final < 1 and found.attrs["failures"] == 4
    assert np.isnan(found["x"].sel(kappa=1e6, seed=0, time=1.0)).all() and not found["valid"].sel(kappa=1e6)[0, 2]


@pytest.mark.parametrize("other", [3, None, xarray.Dataset({"x": 1.0})])
def test_only_a_sweep_has_failures(other):
    with pytest.raises(FlowError, match=r"ds is .*: give what gf.sweep returned"):
        failures(other)


def spoiled_for_all(key, *, kind, scale):
    return toy.bowl, toy.build(key, kappa=1.0, scale=scale)[1], jnp.asarray({"good": 1.0, "bad": jnp.nan}[kind])


def test_data_that_a_whole_group_shares_fails_that_group_alone():
    axes = {"kind": ["good", "bad"], "scale": [0.5, 1.0, 2.0, 3.0]}
    with pytest.warns(FlowWarning, match="4 of 8 members failed"):
        found = toy.run(axes, build=spoiled_for_all)
    assert (found["result"].sel(kind="bad") == "nonfinite_start").all()
    assert (found["result"].sel(kind="good") == "successful").all()


def test_a_member_that_stops_at_once():
    method = Flow(t1=1.0, ts=toy.TIMES, **toy.OPTIONS, stop=lambda t, m, kappa: kappa > 1.5)
    found = toy.run({"kappa": [1.0, 2.0]}, method=method)
    assert found["result"].values.tolist() == ["successful", "event_occurred"]
    assert found["valid"].values.tolist() == [[True] * 3, [True, False, False]] and found.attrs["failures"] == 0


def looping(model, kappa):
    """A bowl whose value comes from a loop and a branch."""
    doubled = jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1]), (0, jax.lax.stop_gradient(kappa)))[1]
    return jax.lax.cond(kappa > 1.5, lambda: 0.5 * doubled, lambda: 0.5 * kappa) * (model.x**2).sum()


def test_a_loss_with_a_loop_and_a_branch():
    found = toy.run({"kappa": [1.0, 2.0]}, build=lambda key, kappa: (looping, *toy.build(key, kappa=kappa)[1:]))
    for i, kappa in enumerate([1.0, 2.0]):
        np.testing.assert_allclose(found["x"][i, 2], toy.expected(toy.KEY, kappa, 1.0, 1.0), rtol=1e-7)


def from_numpy(key, *, kappa, seed):
    return toy.bowl, toy.Point(jnp.asarray(np.random.default_rng(seed).normal(size=2))), jnp.asarray(kappa)


def test_a_builder_on_the_host():
    with pytest.raises(FlowError, match=r"build cannot be traced.*build_on='host'"):
        toy.run({"kappa": [1.0], "seed": range(2)}, build=from_numpy)
    found = toy.run({"kappa": [1.0, 2.0], "seed": range(3)}, build=from_numpy, build_on="host")
    for seed in range(3):
        np.testing.assert_array_equal(found["x"][0, seed, 0], np.random.default_rng(seed).normal(size=2))


@pytest.mark.parametrize("build_on", ["host", "device"])
def test_a_loss_made_anew_is_known_again(build_on):
    traced = []

    def build(key, *, kappa, kind):
        def loss(model, args):
            traced.append(kind)
            return toy.bowl(model, args)

        return loss, *toy.build(key, kappa=kappa)[1:]

    def traces(axes):
        traced.clear()
        found = toy.run(axes, build=build, build_on=build_on, chunk=2)
        last = float(found["kappa"][-1])
        np.testing.assert_allclose(found["x"][-1, -1, 2], toy.expected(toy.KEY, last, 1.0, 1.0), rtol=1e-7)
        return len(traced)

    one = traces({"kappa": [1.0, 2.0], "kind": ["a"]})
    assert traces({"kappa": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "kind": ["b"]}) == one, "a chunk compiles again"


def test_a_sweep_that_compiles_all_night_says_so():
    axes = {"kappa": [1.0], "size": range(1, 102), "kind": ["ones"]}
    with pytest.warns(FlowWarning, match="101 static groups.*gf.Batched.*all values of 'size'"):
        with pytest.raises(FlowError, match="at size = 2"):  # only the first groups are looked at
            toy.run(axes, build=by_size, observe=lambda t, m, a: m.x)
    names = [str(i) for i in range(101)]
    assert (compiles(Grid(dimensions({"name": names}))) or "").endswith("(101 'name'): fewer values take less")
    assert compiles(Grid(dimensions({"name": names[:100]}))) is None


MESH = """
import gradflow, jax, numpy as np, sys, toy_sweep as toy
jax.config.update('jax_enable_x64', True)
mesh = jax.make_mesh((2,), ('members',), axis_types=(jax.sharding.AxisType.Auto,))
found = toy.run(mesh=mesh, store=sys.argv[1])
assert len(mesh.devices.flat) == 2 and (found.result == 'successful').all()
np.save(sys.argv[2], found['x'].values)
"""


def test_a_mesh_of_two_devices_gives_the_same_numbers(ds, tmp_path):
    places = os.pathsep.join([str(Path(toy.__file__).parent), str(Path(gradflow.__file__).parent.parent)])
    flags = {"PYTHONPATH": places, "XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    words = [sys.executable, "-c", MESH, str(tmp_path / "store"), str(tmp_path / "x.npy")]
    done = subprocess.run(words, env={**os.environ, **flags}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "x.npy"), ds["x"], rtol=1e-8)


def test_a_mesh_spreads_members(ds):
    mesh = jax.make_mesh((1,), ("members",), axis_types=(jax.sharding.AxisType.Auto,))
    assert toy.run(mesh=mesh).drop_attrs().identical(ds.drop_attrs())


def test_ctrl_c_keeps_finished_chunks(ds, monkeypatch):
    run, calls = Work.run, []

    def interrupted(self, chunk, **options):
        calls.append(chunk)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return run(self, chunk, **options)

    monkeypatch.setattr(Work, "run", interrupted)
    with pytest.raises(Interrupted) as caught:
        toy.run()
    part = caught.value.trajectory
    done = part["result"] != "not run"
    assert 0 < int(done.sum()) < done.size
    xarray.testing.assert_identical(part["x"].where(done), ds["x"].where(done))
    assert np.isnan(part["x"].where(~done)).all() and failures(part) == []
    assert int((part["num_steps"] == -1).sum()) == int((~done).sum())


def test_a_result_larger_than_memory_is_refused_before_it_runs(monkeypatch):
    with pytest.raises(FlowError, match=r"the result takes 4\.85 KiB, more than max_bytes \(1 KiB\).*store=PATH"):
        toy.run(max_bytes=1024)
    monkeypatch.setattr(machine, "free_memory", lambda: 4096)
    with pytest.raises(FlowError, match=r"more than half of the free memory \(2 KiB\)"):
        toy.run()


def test_free_memory_is_known(tmp_path, monkeypatch):
    assert 2**20 < machine.free_memory() < 2**50
    for name, text in (("current", "900"), ("max", "1000"), ("stat", "anon 300\ninactive_file 600\n")):
        (tmp_path / f"memory.{name}").write_text(text)
    monkeypatch.setattr(machine, "GROUP", tmp_path)
    assert machine.free_memory() == 700, "files that the system caches count as used"
    (tmp_path / "memory.max").write_text("max")
    assert machine.free_memory() > 2**20


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"method": "flow"}, "method is 'flow'"),
        ({"method": Flow(t1="horizon")}, "names the axis 'horizon', which there is not"),
        ({"method": Flow(t1=1.0, ts=np.ones((2, 2)))}, r"ts has shape \(2, 2\)"),
        ({"method": Flow(t1="kappa"), "axes": {"kappa": [1.0, -1.0]}}, "axis 'kappa', the horizons, holds -1.0: give"),
        ({"method": Flow(t1="kappa"), "axes": {"kappa": ["a"]}}, "axis 'kappa', the horizons, holds 'a'"),
        ({"store": 3}, "store is 3: give the path of a folder"),
        ({"max_bytes": "1GB"}, "max_bytes is '1GB': give a number of bytes"),
        ({"build_on": "gpu"}, "build_on is 'gpu'"),
        ({"observe": 3}, "observe is 3, not a callable"),
        ({"observe": lambda t, m, a: {"kappa": a}}, "observe returns 'kappa', which is the name of an axis"),
        ({"observe": lambda t, m, a: {"time": t}}, "observe returns 'time'"),
        ({"observe": lambda t, m, a: {"a/b": t}}, "observe returns 'a/b'"),
        ({"observe": lambda t, m, a: {"a": {"b": t}, "a.b": t}}, "observe returns 'a.b' twice"),
        ({"observe": lambda t, m, a: {"x": m.x, "x_0": t}}, "observe returns 'x', whose dimension is 'x_0'"),
        ({"axes": {"x_0": [1.0]}, "build": lambda key, x_0: toy.build(key, kappa=x_0)}, "whose dimension is 'x_0'"),
        ({"observe": lambda t, m, a: {}}, "holds no array"),
        ({"mesh": 3}, "mesh is 3"),
        ({"executor": 3}, "executor is 3"),
        ({"chunk": 0}, "chunk is 0"),
        ({"key": jax.random.PRNGKey(0)}, "pass one typed key"),
        ({"axes": {"kappa": []}}, "axis 'kappa' is empty"),
        ({"axes": {"kappa": [1.0], "key": [1.0]}}, "'key'"),
        ({"axes": {"kappa": [1.0], "kapa": [1.0]}}, "'kapa' is no parameter of build; did you mean 'kappa'"),
    ],
)
def test_bad_arguments(options, match):
    with pytest.raises(FlowError, match=match) as caught:
        toy.run(**options)
    assert "\n" not in str(caught.value)


def test_the_bar_counts_members(monkeypatch):
    seen = []

    @contextlib.contextmanager
    def bar(label, total):
        yield lambda done, note="": seen.append((label, total, done, note))

    # By the module table: `gradflow.sweep` is the function where gradflow exports it.
    monkeypatch.setattr(sys.modules["gradflow.sweep.run"], "bar", bar)
    toy.run({"kappa": [1.0, 2.0], "scale": Static([0.5, 1.0])}, chunk=1, progress=True)
    notes = [note for *_, note in seen]
    assert "compiling group 1 of 2" in notes and "compiling group 2 of 2" in notes and "group 2 of 2" in notes
    assert [done for _, _, done, note in seen if note.endswith("group 1 of 2") and "reading" not in note] == [0, 1]
    assert {(label, total) for label, total, *_ in seen} == {("sweep", 4)}
