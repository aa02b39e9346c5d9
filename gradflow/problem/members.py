"""Many members of one ensemble: equal structure, arrays that carry a member axis."""

import dataclasses
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from gradflow.errors import FlowError, is_traced, leaf_name, shown
from gradflow.problem.split import Structure, check_finite, split, warn_x64
from gradflow.types import Number


@dataclasses.dataclass(frozen=True)
class Members:
    """An ensemble, split once: `structure` is static and shared, the arrays are arguments of a kernel.

    Attributes:
        structure: of one member.
        params: moving arrays, each `(M, ...)`.
        frozen: fixed arrays, `(M, ...)` where `batched` says so, else shared by all members.
        batched: one flag a fixed array.
        count: M.
    """

    structure: Structure
    params: list[Number]
    frozen: list[Number]
    batched: tuple[bool, ...]
    count: int

    @property
    def dtype(self) -> np.dtype:
        """Data type of the moving arrays."""
        return np.dtype(self.params[0].dtype)

    @property
    def size(self) -> int:
        """Moving parameters of one member."""
        return sum(x.size for x in self.params) // self.count

    @property
    def state_bytes(self) -> int:
        """Bytes of the moving arrays of one member."""
        return sum(x.size * x.dtype.itemsize for x in self.params) // self.count

    @property
    def own_bytes(self) -> int:
        """Bytes of the fixed arrays that each member has for itself."""
        return (
            sum(x.size * x.dtype.itemsize for x, flag in zip(self.frozen, self.batched, strict=True) if flag)
            // self.count
        )

    @property
    def axes(self) -> list[int | None]:
        """Axis of each fixed array, as `jax.vmap` takes it."""
        return [0 if flag else None for flag in self.batched]

    def models(self, params: list[Any], lead: tuple[int, ...] | None = None) -> PyTree:
        """Return the models with these moving arrays; fixed arrays are repeated along the leading axes.

        Args:
            params: moving arrays `(*lead, ...)`.
            lead: leading axes, of which the first is the member's; None means `(M,)`.

        Returns:
            One module whose array leaves have the leading axes `lead`.
        """
        lead = (self.count,) if lead is None else lead
        fixed = [name for name, moves in zip(self.structure.names, self.structure.trainable, strict=True) if not moves]
        repeated = [
            _repeat(x, flag, lead) if name.startswith("model") else x
            for name, x, flag in zip(fixed, self.frozen, self.batched, strict=True)
        ]
        return self.structure.join(params, cast(Any, repeated))[0]


def _repeat(x: Number, batched: bool, lead: tuple[int, ...]) -> Number:
    module = jnp if isinstance(x, jax.Array) else np
    if not batched:
        return module.broadcast_to(x, (*lead, *x.shape))
    return module.broadcast_to(x.reshape(x.shape[0], *(1,) * (len(lead) - 1), *x.shape[1:]), (*lead, *x.shape[1:]))


def split_members(loss: Any, models: PyTree, args: PyTree, trainable: PyTree | None, in_axes: Any) -> Members:
    """Check an ensemble and split it into structure and arrays.

    Values that are not finite are refused only where all members share them: elsewhere they are one member's own
    failure.

    Args:
        loss: `loss(model, args) -> scalar` of one member.
        models: a model whose array leaves carry the member axis.
        args: data, shared or with a member axis.
        trainable: filter spec as in `equinox.partition`, of one member.
        in_axes: tree prefix of `(models, args)` with None, an axis, or a function of a leaf such as
            `equinox.if_array(0)`.

    Returns:
        The members, with their axis in front.

    Raises:
        FlowError: if sizes differ along the member axis, there is none, or a member cannot be used; see `split`.
    """
    axes = _leaf_axes(in_axes, (models, args))
    args = jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, float) else leaf, args)
    paths, treedef = jax.tree_util.tree_flatten_with_path((models, args))
    names = [("model" if path[0].idx == 0 else "args") + leaf_name(path[1:]) for path, _ in paths]
    leaves = [
        _in_jax_dtype(name, _member_first(name, leaf, axis))
        for name, (_, leaf), axis in zip(names, paths, axes, strict=True)
    ]
    is_array = [_is_array(leaf) for leaf in leaves]
    batched = [array and axis is not None for array, axis in zip(is_array, axes, strict=True)]
    count = _count(names, leaves, batched)
    structure = _structure(loss, treedef, leaves, is_array, batched, trainable)
    for name, leaf, array, flag in zip(names, leaves, is_array, batched, strict=True):
        if array and not flag and not is_traced(leaf) and jnp.issubdtype(leaf.dtype, jnp.floating):
            check_finite(name, leaf)
    arrays = [(leaf, flag) for leaf, array, flag in zip(leaves, is_array, batched, strict=True) if array]
    moving = [pair for pair, moves in zip(arrays, structure.trainable, strict=True) if moves]
    fixed = [pair for pair, moves in zip(arrays, structure.trainable, strict=True) if not moves]
    return Members(
        structure=structure,
        params=[x if flag else _repeat(x, False, (count,)) for x, flag in moving],
        frozen=[x for x, _ in fixed],
        batched=tuple(flag for _, flag in fixed),
        count=count,
    )


def _is_array(leaf: Any) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, np.ndarray | np.generic)


def _leaf_axes(in_axes: Any, tree: PyTree) -> list[int | None]:
    """Return the member axis of each leaf, None where it has none."""

    def spread(axis: Any, part: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf: _Axis(axis(leaf) if callable(axis) else axis), part)

    in_axes = tuple(in_axes) if isinstance(in_axes, list) else in_axes
    try:
        spread_out = jax.tree.map(spread, in_axes, tree, is_leaf=lambda x: x is None)
    except (ValueError, TypeError) as error:
        raise FlowError(
            f"in_axes is {shown(in_axes)}: give a tree prefix of (models, args) as equinox.filter_vmap takes it, such "
            "as (equinox.if_array(0), None)"
        ) from error
    axes = [leaf.value for leaf in jax.tree.leaves(spread_out, is_leaf=lambda x: isinstance(x, _Axis))]
    for axis in axes:
        if not (axis is None or (isinstance(axis, int) and not isinstance(axis, bool))):
            raise FlowError(f"in_axes holds {shown(axis)}: an axis is a whole number or None")
    return axes


@dataclasses.dataclass(frozen=True)
class _Axis:
    """An axis as a leaf of its own: None alone would be an empty tree."""

    value: Any


def _member_first(name: str, leaf: Any, axis: int | None) -> Any:
    """Return the leaf with its member axis in front."""
    if axis is None:
        return leaf
    if not _is_array(leaf):
        raise FlowError(
            f"in_axes gives {name} the axis {axis}, but it is {shown(leaf)}, no array: use equinox.if_array({axis})"
        )
    if not -leaf.ndim <= axis < leaf.ndim:
        raise FlowError(f"in_axes gives {name} the axis {axis}, but its shape is {leaf.shape}: it has no such axis")
    if axis == 0:
        return leaf
    return jnp.moveaxis(leaf, axis, 0) if isinstance(leaf, jax.Array) else np.moveaxis(leaf, axis, 0)


def _in_jax_dtype(name: str, leaf: Any) -> Any:
    """Return a NumPy array in the dtype that JAX would give it."""
    if not isinstance(leaf, np.ndarray | np.generic):
        return leaf
    dtype = jax.dtypes.canonicalize_dtype(leaf.dtype)
    if dtype != leaf.dtype and leaf.dtype == np.float64:
        warn_x64(name)
    return leaf.astype(dtype, copy=False) if isinstance(leaf, np.ndarray) else leaf.astype(dtype)


def on_host(x: Any) -> Any:
    """Return an array as NumPy's; random keys, which NumPy does not know, as they are."""
    return x if jnp.issubdtype(x.dtype, jax.dtypes.extended) else np.asarray(x)


def _count(names: list[str], leaves: list, batched: list[bool]) -> int:
    sizes = {name: leaf.shape[0] for name, leaf, flag in zip(names, leaves, batched, strict=True) if flag}
    if not sizes:
        raise FlowError(
            "in_axes gives no array a member axis: stack the members along axis 0 of the model's or the data's arrays"
        )
    if len(set(sizes.values())) > 1:
        (first, one), (other, two) = next(
            ((a, m), (b, n)) for a, m in sizes.items() for b, n in sizes.items() if m != n
        )
        raise FlowError(
            f"{first} has {one} members and {other} has {two}: every array needs the same size along its member axis "
            "(or the axis None in in_axes where all members share it)"
        )
    count = next(iter(sizes.values()))
    if count == 0:
        raise FlowError(f"{next(iter(sizes))} has no members: an ensemble needs at least one")
    return count


def _structure(loss, treedef, leaves, is_array, batched, trainable) -> Structure:
    """Return the structure of one member; tracers stand for its arrays, so that no value is looked at."""
    found: list[Structure] = []

    def look(arrays: list[Array]) -> list[Array]:
        given = iter(arrays)
        member = [next(given) if array else leaf for leaf, array in zip(leaves, is_array, strict=True)]
        model, args = jax.tree.unflatten(treedef, member)
        found.append(split(loss, model, args, trainable).structure)
        return []

    shapes = [
        jax.ShapeDtypeStruct(leaf.shape[1:] if flag else leaf.shape, leaf.dtype)
        for leaf, array, flag in zip(leaves, is_array, batched, strict=True)
        if array
    ]
    jax.eval_shape(look, shapes)
    return found[0]
