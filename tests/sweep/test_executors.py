"""Chunks as tasks of an executor: the same numbers, lost workers made good, clear refusals."""

import concurrent.futures
import multiprocessing

import numpy as np
import pytest
import toy_sweep as toy
import xarray

from gradflow.errors import FlowError, FlowWarning
from gradflow.sweep import Static


@pytest.fixture(scope="module")
def ds() -> xarray.Dataset:
    return toy.run()


def pool(workers: int = 1) -> concurrent.futures.ProcessPoolExecutor:
    return concurrent.futures.ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))


def same_numbers(found: xarray.Dataset, ds: xarray.Dataset) -> bool:
    return all(np.array_equal(found[name].values, ds[name].values, equal_nan=name == "x") for name in ds.variables)


def test_threads_give_the_same_bits(ds, tmp_path):
    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        assert toy.run(executor=executor).drop_attrs().identical(ds.drop_attrs())
        assert same_numbers(toy.run(executor=executor, store=tmp_path / "threads"), ds)


def test_processes_give_the_same_bits(ds, tmp_path):
    with pool() as executor:
        assert toy.run(executor=executor).drop_attrs().identical(ds.drop_attrs())
        assert same_numbers(toy.run(executor=executor, store=tmp_path / "processes"), ds)


@pytest.mark.parametrize("stored", [True, False])
def test_chunks_of_a_killed_worker_are_run_again(tmp_path, monkeypatch, stored):
    flag = tmp_path / "flag"
    monkeypatch.setenv("GRADFLOW_TOY_FLAG", str(flag))
    axes = {"kappa": [1.0, 2.0, 4.0, 5.0], "seed": range(4)}
    options = {"build": toy.build_deadly, "build_on": "host"}
    whole = toy.run(axes, **options)
    flag.touch()
    with pool() as executor, pytest.warns(FlowWarning, match="chunks were lost with the workers"):
        found = toy.run(axes, executor=executor, store=tmp_path / "store" if stored else None, **options)
    assert not flag.exists() and same_numbers(found, whole)


def test_an_executor_that_broke_before(ds):
    with pool() as executor:
        with pytest.raises(concurrent.futures.BrokenExecutor):
            executor.submit(toy.die).result()
        with pytest.warns(FlowWarning, match="6 chunks were lost"):
            assert same_numbers(toy.run(executor=executor), ds)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"build": lambda key, kappa, scale: toy.build(key, kappa=kappa)}, "but build holds a function that cannot"),
        ({"observe": lambda t, m, a: m.x}, "but observe holds a function that cannot"),
        ({"axes": {"kappa": Static({"a": lambda x: x})}}, "but axes hold a value that cannot"),
    ],
)
def test_functions_that_cannot_be_sent(options, match):
    with pool() as executor, pytest.raises(FlowError, match=match) as caught:
        toy.run(executor=executor, **options)
    assert "\n" not in str(caught.value)


def test_an_executor_that_is_shut_down():
    executor = concurrent.futures.ThreadPoolExecutor(1)
    executor.shutdown()
    with pytest.raises(FlowError, match="takes no tasks"):
        toy.run(executor=executor)


def fails_late(key, *, kappa):
    if kappa == 4.0:
        raise FlowError("kappa is 4.0: this builder does not take it")
    return toy.build(key, kappa=kappa)


def test_an_error_in_a_worker_ends_the_sweep():
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        with pytest.raises(FlowError, match=r"does not take it \[at kappa = 4.0\]"):
            toy.run({"kappa": [1.0, 2.0, 4.0]}, build=fails_late, build_on="host", executor=executor, chunk=1)
