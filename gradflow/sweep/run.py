"""`sweep`: many runs over a grid of points, as one labelled result that survives a crash."""

import dataclasses
import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import jax
import numpy as np
from jaxtyping import Array, Key

from gradflow.callables import check_callable
from gradflow.errors import FlowError, FlowWarning, Interrupted, shown, whole_number
from gradflow.progress import bar, no_bar
from gradflow.sweep import dataset, executors, machine
from gradflow.sweep.axes import dimensions
from gradflow.sweep.build import builder_axes
from gradflow.sweep.draws import check_key
from gradflow.sweep.grid import Chunk, Grid
from gradflow.sweep.layout import compiles, lay_out
from gradflow.sweep.methods import Method, check_method
from gradflow.sweep.resume import also_run_with, check_same, spec_of
from gradflow.sweep.spec import digest
from gradflow.sweep.store import Store
from gradflow.sweep.work import Work, new_token

if TYPE_CHECKING:
    import xarray

Show = Callable[[float, str], None]


def sweep(
    build: Callable,
    axes: Mapping[Any, Any],
    *,
    key: Key[Array, ""],
    method: Method,
    observe: Callable | None = None,
    store: str | os.PathLike | None = None,
    resume: bool = True,
    executor: Executor | None = None,
    mesh: jax.sharding.Mesh | None = None,
    progress: bool = True,
    independent: bool = False,
    build_on: Literal["device", "host"] = "device",
    parameters: bool = False,
    chunk: int | None = None,
    max_bytes: float | None = None,
    allow_versions: bool = False,
) -> "xarray.Dataset":
    """Train a model at every point of a grid, and return what was observed with named dimensions.

    Axes of floats, and the axis `seed`, are batched in one kernel; integers, strings, truth values, modules and
    functions pick a kernel each; `gf.Batched` and `gf.Static` override. A point's key is the sweep's key with its seed
    folded in: all other axes share draws (paired comparisons), and a draw depends on nothing else, so that a larger
    grid holds the smaller one.

    Args:
        build: `build(key, **point) -> (loss, model, args)`, called under `jax.vmap` on one point. It gets the seed only
            if it has a parameter of that name.
        axes: name -> values. A tuple of names -> rows of values makes one dimension of axes that advance together.
        key: typed key of all draws.
        method: `gf.Flow(t1=...)` or `gf.Descent(optimizer, steps=...)`.
        observe: `observe(t, model, args) -> pytree of arrays`, what is kept at each save time; None keeps the loss.
        store: folder of a Zarr store, written one atomic chunk at a time; the result is read from it when looked at.
        resume: go on with an earlier sweep of the same spec in `store`.
        executor: a `concurrent.futures.Executor` whose workers run the chunks, one thread each.
        mesh: devices to spread each chunk over, in independent pools.
        progress: show a bar on a terminal.
        independent: fold the point into its key as well, so that no two points share draws.
        build_on: "host" calls a builder that cannot be traced (NumPy generators, files) point by point.
        parameters: keep the final models, as `final.<leaf>`.
        chunk: members that run and are stored together, at most; None chooses from the size of a member.
        max_bytes: largest result in memory; None is half of what is free.
        allow_versions: go on with a store that other versions wrote; the numbers then differ in the last bits.

    Returns:
        Dimensions of the axes, `time` and those of the observables; variables of `observe`, and of each member `result`
        (the name of its code), `t_final`, `num_steps`, `num_gradients`, `valid`. Members that fail hold NaN from there
        on and are listed by `gf.failures`. What the sweep was made of is in `attrs`.

    Raises:
        FlowError: if an argument or the store cannot be used, or the result does not fit into memory.
        Interrupted: on Ctrl-C, with the finished part as `.trajectory`; a store keeps it too.
    """
    grid = Grid(dimensions(axes))
    check_method(method, grid.axes)
    check_key(key)
    if build_on not in ("device", "host"):
        raise FlowError(f"build_on is {shown(build_on)}: give 'device' or 'host'")
    if observe is not None:
        check_callable("observe", observe)
    if not isinstance(store, str | os.PathLike | None):
        raise FlowError(f"store is {shown(store)}: give the path of a folder")
    if not isinstance(max_bytes, int | float | None):
        raise FlowError(f"max_bytes is {shown(max_bytes)}: give a number of bytes")
    if executor is not None and mesh is not None:
        raise FlowError("executor and mesh are both given: chunks run in workers, or on the devices of this process")
    work = Work(
        build=build,
        names=builder_axes(build, grid.axes, tuple(method.axes())),
        grid=grid,
        block=(),
        method=method,
        observe=observe,
        key=np.asarray(jax.random.key_data(key)),
        independent=independent,
        on_host=build_on == "host",
        parameters=parameters,
        wide=bool(jax.config.read("jax_enable_x64")),
        token=new_token(),
        store=None if store is None else os.fspath(store),
    )
    executors.check_executor(executor, work)
    if (many := compiles(grid)) is not None:
        warnings.warn(many, FlowWarning, stacklevel=2)
    job = _Job(work, executor, machine.devices_of(mesh), chunk if chunk is None else whole_number("chunk", chunk))
    with bar("sweep", int(np.prod(grid.shape, dtype=int))) if progress else no_bar() as show:
        if store is None:
            ds = job.in_memory(max_bytes, show)
        else:
            ds = job.stored(Store(store), resume, allow_versions, show)
    failed = ds.attrs["failures"]
    if failed:
        warnings.warn(dataset.summary(ds)[1] or "", FlowWarning, stacklevel=2)
    return ds


@dataclasses.dataclass(frozen=True, eq=False)
class _Job:
    """A sweep that is about to run."""

    work: Work
    executor: Executor | None
    devices: list[Any] | None
    chunk: int | None

    def in_memory(self, max_bytes: float | None, show: Show) -> "xarray.Dataset":
        layout = lay_out(self.work, self.chunk, machine.members_of_chunk(self.devices), show)
        layout.check_memory(max_bytes)
        work = dataclasses.replace(self.work, block=layout.block, traced=self.work.traced)
        arrays = {variable.name: variable.empty(work.grid.shape) for variable in layout.variables}
        attributes = self._attributes(spec_of(work))

        def result() -> "xarray.Dataset":
            ds = dataset.assemble(work.grid, layout.variables, arrays, self._labels(), attributes)
            return ds.assign_attrs(failures=dataset.summary(ds)[0])

        try:
            for chunk, values in self._run(work, list(work.grid.chunks(layout.block)), 0, show):
                for name, value in (values or {}).items():
                    arrays[name][chunk.region] = value
        except KeyboardInterrupt:
            raise Interrupted(result()) from None
        return result()

    def stored(self, store: Store, resume: bool, allow_versions: bool, show: Show) -> "xarray.Dataset":
        with store.held():
            attributes = store.attributes()
            # A first call that failed on a bad argument leaves nothing worth keeping.
            if attributes is None or store.is_empty():
                block = self._create(store, show)
            else:
                block = check_same(store.path, attributes, self.work, self.chunk, resume, allow_versions)
                if also := also_run_with(attributes):
                    store.note(also)
            work = dataclasses.replace(self.work, block=block, traced=self.work.traced)
            missing = [chunk for chunk in work.grid.chunks(block) if not store.has(chunk)]
            store.tidy(missing, self._labels())
            done = int(np.prod(work.grid.shape, dtype=int)) - sum(chunk.count for chunk in missing)
            try:
                for _ in self._run(work, missing, done, show):
                    pass
            except KeyboardInterrupt:
                raise Interrupted(store.open()) from None
            if missing or "failures" not in (attributes or {}):
                store.note({"failures": dataset.summary(store.open())[0], "finished": _now()})
            return store.open()

    def _create(self, store: Store, show: Show) -> tuple[int, ...]:
        layout = lay_out(self.work, self.chunk, machine.members_of_chunk(self.devices), show)
        said = layout.warning_of_size(shutil.disk_usage(store.path).free, parameters=self.work.parameters)
        if said is not None:
            warnings.warn(said, FlowWarning, stacklevel=4)
        attributes = self._attributes(spec_of(dataclasses.replace(self.work, block=layout.block)))
        store.create(self.work.grid, layout.block, layout.variables, self._labels(), attributes)
        return layout.block

    def _labels(self) -> dict:
        return dataset.coordinates(self.work.grid, self.work.method.times(), self.work.method.unit)

    def _attributes(self, spec: dict[str, Any]) -> dict[str, Any]:
        return {
            "title": "gradflow sweep",
            "spec": json.dumps(spec),
            "spec_hash": digest(spec),
            "versions": json.dumps(machine.versions()),
            "device": machine.described(self.devices),
            "precision": spec["precision"],
            "created": _now(),
        }

    def _run(self, work: Work, chunks: Sequence[Chunk], done: int, show: Show) -> Iterator[tuple[Chunk, Any]]:
        """Run chunks and show how far they are."""
        total, seen = work.grid.groups, set()

        def begin(chunk: Chunk) -> None:
            verb = "" if chunk.group in seen else "compiling "
            seen.add(chunk.group)
            show(done, f"{verb}group {chunk.group + 1} of {total}")

        if self.executor is None:
            finished = executors.run_here(work, chunks, self.devices, begin)
        else:
            show(done, "")
            finished = executors.run_in(self.executor, work, chunks, begin)
        for chunk, values in finished:
            yield chunk, values
            done += chunk.count
            if self.executor is not None:
                show(done, "")


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")
