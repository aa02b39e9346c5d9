"""Chunks as tasks of an executor: the same numbers, lost workers made good, clear refusals."""

import concurrent.futures
import contextlib
import importlib.util
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


@contextlib.contextmanager
def dask_cluster():
    from distributed import Client

    with Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None) as client:
        yield client.get_executor()


def threads():
    return concurrent.futures.ThreadPoolExecutor(2)


@pytest.mark.parametrize("executors", [threads, *([dask_cluster] if importlib.util.find_spec("distributed") else [])])
def test_threads_give_the_same_bits(ds, tmp_path, executors):
    with executors() as executor:
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


class KilledWorker(Exception):
    """What `dask.distributed` calls it."""


class Cluster:
    """Stands in for the executor of a cluster: some chunks kill their worker, and after `most` it is closed."""

    def __init__(self, most: int):
        self.most, self.count = most, 0

    def submit(self, function, *arguments):
        self.count += 1
        if self.count > self.most:
            raise OSError("Client is closed")
        future = concurrent.futures.Future()
        if self.count % 3 == 0:
            future.set_exception(KilledWorker("attempted 3 times"))
        else:
            future.set_result(function(*arguments))
        return future


def test_chunks_lost_in_a_cluster_are_run_here(ds, tmp_path):
    with pytest.warns(FlowWarning, match="2 chunks were lost"):
        assert same_numbers(toy.run(executor=Cluster(6), store=tmp_path / "cluster"), ds)


def test_a_cluster_that_is_closed():
    with pytest.raises(FlowError, match=r"takes no tasks \(Client is closed\)"):
        toy.run(executor=Cluster(2))


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
