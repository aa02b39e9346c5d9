"""One chunk of work: from points to arrays, the same in this process and in a worker's."""

import dataclasses
import math
import uuid
from collections.abc import Callable, Hashable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gradflow.callables import essence
from gradflow.errors import FlowError
from gradflow.sweep.build import Built, Traced, trace
from gradflow.sweep.draws import member_keys
from gradflow.sweep.grid import Chunk, Grid, Members
from gradflow.sweep.host import build_on_host
from gradflow.sweep.methods import Method
from gradflow.sweep.store import Store
from gradflow.sweep.variables import observation, rows

BATCH_DRAWS = 2**32 - 1  # folded into a point's key for minibatches; no seed of a builder's own is that large


@dataclasses.dataclass(frozen=True, eq=False)
class Work:
    """All that a chunk needs besides itself; it can be pickled where its functions can.

    Attributes:
        build: the builder.
        names: parameters that it takes.
        grid: the points.
        block: sizes of a chunk.
        method: how members are trained.
        observe: what is saved.
        key: raw data of the sweep's key.
        independent: whether points draw apart.
        on_host: whether the builder runs point by point.
        parameters: whether final models are kept.
        wide: whether the sweep runs with 64-bit types.
        token: the same for all chunks of one sweep.
        store: where chunks are written; None returns them.
        traced: programs of the builder by static group.
        losses: those that the builder returned, by what they are.
    """

    build: Callable
    names: tuple[str, ...]
    grid: Grid
    block: tuple[int, ...]
    method: Method
    observe: Callable | None
    key: np.ndarray
    independent: bool
    on_host: bool
    parameters: bool
    wide: bool
    token: str
    store: str | None
    traced: dict[int, Traced] = dataclasses.field(default_factory=dict)
    losses: dict[Hashable, Callable] = dataclasses.field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "traced": {}, "losses": {}}

    def built(self, chunk: Chunk, count: int) -> tuple[Built, Members, Any]:
        """Return `count` members of a chunk, their points and their keys."""
        members = self.grid.members(chunk, count, digest=self.independent)
        keys = self._keys(members)
        if self.on_host:
            points = [self._parameters(members, i) for i in range(count)]
            built = build_on_host(self.build, points, keys)
            return dataclasses.replace(built, loss=self._known(built.loss)), members, keys
        return self.program(chunk).build(keys, self._varied(members), count), members, keys

    def program(self, chunk: Chunk) -> Traced:
        """Return the builder's program for the group of a chunk, traced once."""
        if chunk.group not in self.traced:
            members = self.grid.members(chunk, digest=self.independent)
            shared = {name: value for name, value in members.shared.items() if name in self.names}
            try:
                traced = trace(self.build, shared, self._varied(members), self._keys(members))
            except FlowError as error:
                raise FlowError(f"{error} [at {self.where(chunk)}]" if members.shared else str(error)) from error
            self.traced[chunk.group] = dataclasses.replace(traced, loss=self._known(traced.loss))
        return self.traced[chunk.group]

    def member(self, chunk: Chunk) -> tuple[Callable, Any, Any]:
        """Return the loss of a group, and shapes of one member's model and args."""
        if not self.on_host:
            program = self.program(chunk)
            return program.loss, *program.member()
        built, _, _ = self.built(chunk, 1)
        model = jax.tree.map(lambda x: _shape(x, batched=True), built.model)
        leaves, treedef = jax.tree.flatten(built.args)
        shapes = [_shape(x, batched=axis == 0) for x, axis in zip(leaves, built.axes, strict=True)]
        args = jax.tree.unflatten(treedef, shapes)
        return built.loss, model, args

    def run(self, chunk: Chunk, *, threads: int | None, devices: list[Any] | None) -> dict[str, np.ndarray] | None:
        """Run a chunk.

        Args:
            chunk: which.
            threads: of the host; None for all cores.
            devices: to spread it over.

        Returns:
            Its variables in the shape of the block, None if they went to the store.
        """
        count = math.prod(self.block)
        built, members, keys = self.built(chunk, count)
        if self.method.needs_keys:
            keys = jax.vmap(jax.random.fold_in, (0, None))(jnp.broadcast_to(keys, (count,)), BATCH_DRAWS)
        watch = observation(self.observe, built.loss)
        trajectory = self.method.run(
            built.with_own_failures(), members, watch, keys=keys, threads=threads, devices=devices
        )
        flat = rows(trajectory, chunk.count, parameters=self.parameters)
        values = {name: value.reshape((*chunk.shape, *value.shape[1:])) for name, value in flat.items()}
        if self.store is None:
            return values
        Store(self.store).write(chunk, values)
        return None

    def where(self, chunk: Chunk) -> str:
        """Return the static group of a chunk, as text."""
        point = self.grid.point([part.start for part in chunk.region])
        static = {name: value for name, value in point.items() if self.grid.axes[name].kind == "static"}
        return ", ".join(f"{name} = {value}" for name, value in static.items())

    def _known(self, loss: Callable) -> Callable:
        """Return the first loss that does the same: one made anew for each chunk or group shares its kernel."""
        return self.losses.setdefault(essence(loss), loss)

    def _keys(self, members: Members) -> Any:
        seeds = None if members.seeds is None else members.seeds.astype(np.uint32)
        return member_keys(jax.random.wrap_key_data(jnp.asarray(self.key)), seeds, members.digests)

    def _varied(self, members: Members) -> dict[str, np.ndarray]:
        return {name: values for name, values in members.varied.items() if name in self.names}

    def _parameters(self, members: Members, i: int) -> dict[str, Any]:
        shared = {name: value for name, value in members.shared.items() if name in self.names}
        return shared | {name: values[i].item() for name, values in self._varied(members).items()}


def _shape(leaf: Any, *, batched: bool) -> Any:
    if not hasattr(leaf, "shape"):
        return leaf
    return jax.ShapeDtypeStruct(leaf.shape[1:] if batched else leaf.shape, leaf.dtype)


_received: dict[str, Work] = {}


def run_in_worker(work: Work, chunk: Chunk) -> dict[str, np.ndarray] | None:
    """Run a chunk in a process of an executor, one thread each.

    A worker keeps what it has traced and compiled: of a sweep it knows, the copy that it got first is used.

    Args:
        work: what to do.
        chunk: with which.

    Returns:
        The variables of the chunk, None if they went to the store.
    """
    if work.token not in _received:
        _received.clear()
    known = _received.setdefault(work.token, work)
    # What the main process has set is not set in a new one.
    with jax.enable_x64(known.wide):
        return known.run(chunk, threads=1, devices=None)


def new_token() -> str:
    """Return a name for one sweep among all."""
    return uuid.uuid4().hex
