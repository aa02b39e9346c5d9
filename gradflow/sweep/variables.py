"""The variables of the result: their names, shapes and what stands where nothing was computed."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from gradflow.errors import FlowError
from gradflow.sweep.axes import RESERVED
from gradflow.trajectory import Trajectory, observed_arrays, result_name
from gradflow.types import RESULTS

MISSING = "not run"  # the result of a member that has not been computed
TEXT_BYTES = 4 * max(map(len, (MISSING, *RESULTS._name_to_item)))
GOOD = ("successful", "event_occurred")


@dataclasses.dataclass(frozen=True, eq=False)
class Variable:
    """One array of the result.

    Attributes:
        name: in the Dataset.
        shape: of one member.
        dims: names of those dimensions.
        dtype: NumPy's; text has the dtype `str`.
        attributes: units and a description.
    """

    name: str
    shape: tuple[int, ...]
    dims: tuple[str, ...]
    dtype: np.dtype
    attributes: dict[str, str]

    @property
    def fill(self) -> Any:
        """What stands where nothing was computed."""
        if self.dtype.kind == "U":
            return MISSING
        if self.name in ("num_steps", "num_gradients"):
            return -1
        return np.nan if self.dtype.kind in "fc" else self.dtype.type(0)

    @property
    def bytes(self) -> int:
        """Bytes of one member."""
        return math.prod(self.shape) * (TEXT_BYTES if self.dtype.kind == "U" else self.dtype.itemsize)

    def empty(self, lead: tuple[int, ...]) -> np.ndarray:
        """Return the array before anything is computed."""
        dtype = np.dtype(f"U{TEXT_BYTES // 4}") if self.dtype.kind == "U" else self.dtype
        return np.full((*lead, *self.shape), self.fill, dtype)


@dataclasses.dataclass(frozen=True)
class LossAlong:
    """What is observed when nothing else is asked for."""

    loss: Callable

    def __call__(self, t: Any, model: PyTree, args: PyTree) -> dict[str, Any]:
        """Return the loss."""
        del t
        return {"loss": self.loss(model, args)}


def observation(observe: Callable | None, loss: Callable) -> Callable:
    """Return what is saved along a run: what the user asks for, else the loss."""
    return LossAlong(loss) if observe is None else observe


def describe(
    observe: Callable | None,
    member: tuple[Callable, PyTree, PyTree],
    saves: int,
    unit: str,
    *,
    parameters: bool,
    axes: Sequence[str],
) -> list[Variable]:
    """Return the variables of a result from the shapes of one member.

    Args:
        observe: what the user asks for.
        member: its loss, and shapes of its model and args.
        saves: number of save times.
        unit: of time.
        parameters: whether final models are kept.
        axes: names that are taken.

    Returns:
        The variables; `result` is the last one.

    Raises:
        FlowError: if `observe` returns what cannot be saved, or uses a name that is taken.
    """
    loss, model, args = member
    dtypes = (leaf.dtype for leaf in jax.tree.leaves(model) if isinstance(leaf, jax.ShapeDtypeStruct))
    dtype = next((dtype for dtype in dtypes if jnp.issubdtype(dtype, jnp.floating)), float)
    arrays, static = eqx.partition((model, args), lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))

    def look(t: Any, arrays: PyTree) -> PyTree:
        return observed_arrays(observation(observe, loss), t, *eqx.combine(arrays, static))

    rows = jax.eval_shape(look, jax.ShapeDtypeStruct((), dtype), arrays)
    found = [_observable(path, leaf, (saves,)) for path, leaf in jax.tree_util.tree_leaves_with_path(rows)]
    if parameters:
        leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(arrays[0], lambda leaf: leaf is not None))
        found += [_array(_name("final", path), leaf.shape, leaf.dtype) for path, leaf in leaves]
    _check_names(found, axes)
    return [*found, *_own(saves, unit)]


def _check_names(found: list[Variable], axes: Sequence[str]) -> None:
    """Refuse names that a Dataset cannot hold beside each other, before anything runs."""
    dims = {dim: variable.name for variable in found for dim in variable.dims if dim != "time"}
    seen = set()
    for name in (variable.name for variable in found):
        if name in (*RESERVED, *axes):
            raise FlowError(f"observe returns {name!r}, which is the name of an axis or of the sweep's own")
        if "/" in name or name.startswith((".", "__")):
            raise FlowError(f"observe returns {name!r}: a name cannot hold '/', nor begin with '.' or '__'")
        if name in seen:
            raise FlowError(
                f"observe returns {name!r} twice, parts of nested results joined by '.': rename one of them"
            )
        seen.add(name)
    for dim in (*axes, *seen):
        if dim in dims:
            raise FlowError(
                f"observe returns {dims[dim]!r}, whose dimension is {dim!r}, a name in use: rename one of them"
            )


def _own(saves: int, unit: str) -> list[Variable]:
    of_time = {"units": unit, "long_name": "end of the member"}
    count = {"long_name": "gradients of the loss; -1 where they are not counted"}
    number, whole = np.dtype(float), np.dtype(np.int64)
    return [
        Variable("valid", (saves,), ("time",), np.dtype(bool), {"long_name": "whether the member came so far"}),
        Variable("t_final", (), (), number, of_time),
        Variable("num_steps", (), (), whole, {"long_name": "steps, rejected ones included"}),
        Variable("num_gradients", (), (), whole, count),
        Variable("result", (), (), np.dtype(str), {"long_name": "how the member ended"}),
    ]


def _observable(path: tuple, leaf: Any, lead: tuple[int, ...]) -> Variable:
    variable = _array(_name("", path), leaf.shape, leaf.dtype)
    return dataclasses.replace(variable, shape=(*lead, *leaf.shape), dims=("time", *variable.dims))


def _array(name: str, shape: tuple[int, ...], dtype: Any) -> Variable:
    return Variable(name, tuple(shape), tuple(f"{name}_{i}" for i in range(len(shape))), np.dtype(dtype), {})


def _name(first: str, path: tuple) -> str:
    return ".".join([*([first] if first else []), *map(_part, path)]) or "observed"


def _part(entry: Any) -> str:
    return str(next(getattr(entry, name) for name in ("key", "idx", "name") if hasattr(entry, name)))


def rows(trajectory: Trajectory, count: int, *, parameters: bool) -> dict[str, np.ndarray]:
    """Return the variables of the first `count` members of an ensemble, member axis first."""
    observed = jax.tree_util.tree_leaves_with_path(trajectory.observed)
    found = {_name("", path): leaf for path, leaf in observed}
    if parameters:
        leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(trajectory.final, _is_array))
        found |= {_name("final", path): leaf for path, leaf in leaves}
    found |= {
        "valid": trajectory.valid,
        "t_final": np.asarray(trajectory.t_final, float),
        "num_steps": trajectory.stats["num_steps"],
        "num_gradients": trajectory.stats["num_gradients"],
        "result": result_name(trajectory.result),
    }
    return {name: np.asarray(value)[:count] for name, value in found.items()}


def _is_array(leaf: Any) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, np.ndarray)


def check_equal(first: list[Variable], other: list[Variable], at: str) -> None:
    """Refuse groups whose observables differ.

    Args:
        first: variables of the first group.
        other: of another one.
        at: says which.

    Raises:
        FlowError: naming the variable.
    """
    mine = {variable.name: (variable.shape, variable.dtype) for variable in first}
    for variable in other:
        if mine.get(variable.name) != (variable.shape, variable.dtype):
            before = mine.get(variable.name)
            was = "nothing" if before is None else f"{before[1]}{list(before[0])}"
            raise FlowError(
                f"observe returns {variable.name!r} as {variable.dtype}{list(variable.shape)} at {at}, but {was} at "
                "the first point: return arrays of equal shapes, or sweep apart"
            )
    if len(mine) != len(other):
        raise FlowError(f"observe returns fewer arrays at {at} than at the first point: return the same everywhere")


def row_bytes(variables: list[Variable]) -> int:
    """Return the bytes of one member."""
    return sum(variable.bytes for variable in variables)


def fixed_width(text: Any) -> np.ndarray:
    """Return text as NumPy's type of fixed width, which every file format and version takes."""
    text = np.asarray(text)
    return text if text.dtype.kind == "U" else np.array(text.tolist(), str).reshape(text.shape)
