"""One loss, one model and its data, split into structure and arrays: the input of the flow and of the optimiser."""

import dataclasses
import functools
import warnings
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, PyTree

from gradflow.callables import check_callable
from gradflow.errors import FlowError, FlowWarning, leaf_name, shown
from gradflow.types import Number


@dataclasses.dataclass(frozen=True)
class Structure:
    """The hashable half of a problem.

    Attributes:
        loss: `loss(model, args) -> scalar`.
        treedef: of `(model, args)`.
        static: leaves that are not arrays, None where there is an array.
        trainable: one flag an array leaf: does it move?
        names: the path of each array leaf, for messages.
    """

    loss: Callable
    treedef: Any
    static: tuple
    trainable: tuple[bool, ...]
    names: tuple[str, ...]

    def join(self, params: list[Array], frozen: list[Array]) -> tuple[PyTree, PyTree]:
        """Rebuild `(model, args)` from the moving and the fixed arrays."""
        moving, fixed = iter(params), iter(frozen)
        arrays = (next(moving) if flag else next(fixed) for flag in self.trainable)
        leaves = [next(arrays) if leaf is None else leaf.value for leaf in self.static]
        return jax.tree.unflatten(self.treedef, leaves)

    def moving(self, params: list[Array]) -> PyTree:
        """Return the model with None at every leaf that does not move, as `equinox.filter` would."""
        values = iter(params)
        flags = iter(self.trainable)
        leaves = [next(values) if leaf is None and next(flags) else None for leaf in self.static]
        return jax.tree.unflatten(self.treedef, leaves)[0]

    def value(self, params: list[Array], frozen: list[Array]) -> Array:
        """Return the loss as a function of the moving arrays."""
        return self.loss(*self.join(params, frozen))


@dataclasses.dataclass(frozen=True)
class _Static:
    """A leaf that is not an array, compared by type as well: 1, 1.0 and True pick different kernels."""

    value: Any
    kind: type


@dataclasses.dataclass(frozen=True)
class Problem:
    """A loss with its model and data, ready for a kernel: `structure` is static, the arrays are arguments."""

    structure: Structure
    params: list[Array]
    frozen: list[Array]

    def model(self, params: list[Array]) -> PyTree:
        """Return the model with its moving arrays replaced."""
        return self.structure.join(params, self.frozen)[0]

    def stack(self, params: list[Array], count: int) -> PyTree:
        """Return the models whose moving arrays are stacked along axis 0; fixed arrays are repeated."""
        fixed = [
            name for name, moving in zip(self.structure.names, self.structure.trainable, strict=True) if not moving
        ]
        repeated = [
            jnp.broadcast_to(x, (count, *x.shape)) if name.startswith("model") else x
            for name, x in zip(fixed, self.frozen, strict=True)
        ]
        return self.structure.join(params, repeated)[0]

    @property
    def size(self) -> int:
        """Number of moving parameters."""
        return sum(x.size for x in self.params)

    @property
    def state_bytes(self) -> int:
        """Bytes of the moving arrays."""
        return sum(x.size * x.dtype.itemsize for x in self.params)

    @property
    def dtype(self) -> np.dtype:
        """Data type of the moving arrays."""
        return self.params[0].dtype


def split(loss: Callable, model: PyTree, args: PyTree, trainable: PyTree | None) -> Problem:
    """Check a loss, a model and its data, and split them into structure and arrays.

    Args:
        loss: `loss(model, args) -> scalar`.
        model: any Equinox module or pytree of arrays.
        args: data handed to the loss.
        trainable: filter spec as in `equinox.partition`; None means all inexact arrays.

    Returns:
        The problem.

    Raises:
        FlowError: if a value, dtype, structure or callable cannot be used; the message names it.
    """
    check_callable("loss", loss)
    flags = _trainable_flags(model, trainable)
    args = jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, float) else leaf, args)
    paths, treedef = jax.tree_util.tree_flatten_with_path((model, args))
    leaves = [leaf for _, leaf in paths]
    is_array = [eqx.is_array(leaf) or isinstance(leaf, (np.ndarray, np.generic)) for leaf in leaves]
    names = tuple(_name(path) for (path, _), array in zip(paths, is_array, strict=True) if array)
    arrays = [_as_array(leaf, path) for (path, leaf), array in zip(paths, is_array, strict=True) if array]
    model_arrays = sum(is_array[: len(flags)])
    moving = [flag for flag, array in zip(flags, is_array, strict=False) if array] + [False] * (
        len(arrays) - model_arrays
    )
    static = tuple(None if array else _Static(leaf, type(leaf)) for leaf, array in zip(leaves, is_array, strict=True))
    structure = Structure(loss, treedef, static, tuple(moving), names)
    _check_hashable(structure)
    params = [x for x, flag in zip(arrays, moving, strict=True) if flag]
    frozen = [x for x, flag in zip(arrays, moving, strict=True) if not flag]
    _check_arrays(structure, arrays)
    if hasattr(loss, "check"):
        loss.check(args)
    if hasattr(loss, "check_model"):
        loss.check_model(model, args)
    return Problem(structure, params, frozen)


def _name(path: tuple) -> str:
    """Return a leaf of `(model, args)` as the user wrote it."""
    return ("model" if path[0].idx == 0 else "args") + leaf_name(path[1:])


def _trainable_flags(model: PyTree, trainable: PyTree | None) -> list[bool]:
    """Return one flag a leaf of the model."""
    if trainable is None:
        flags = [_is_inexact(leaf) for leaf in jax.tree.leaves(model)]
    else:
        try:
            tree = jax.tree.map(
                lambda spec, part: jax.tree.map(functools.partial(_flag, spec), part),
                trainable,
                model,
            )
        except FlowError:
            raise
        except (ValueError, TypeError) as error:
            raise FlowError(
                "trainable does not match the model's structure: give a filter spec as in `equinox.partition`, a tree "
                f"prefix of booleans or callables ({_first_line(error)})"
            ) from error
        flags = jax.tree.leaves(tree)
        for flag, (path, leaf) in zip(flags, jax.tree_util.tree_leaves_with_path(model), strict=True):
            if flag and not _is_inexact(leaf):
                kind = getattr(leaf, "dtype", type(leaf).__name__)
                raise FlowError(
                    f"trainable selects model{leaf_name(path)} of type {kind}: only floating-point arrays can move; "
                    "set it to False there"
                )
    if not any(flags):
        raise FlowError("trainable selects no array of the model: nothing can move; select at least one inexact array")
    return flags


def _flag(spec: Any, leaf: Any) -> bool:
    flag = spec(leaf) if callable(spec) else spec
    if not isinstance(flag, (bool, np.bool_)):
        raise FlowError(
            f"trainable holds {shown(flag)}: a filter spec is made of booleans, or of functions that return them"
        )
    return bool(flag)


def _is_inexact(leaf: Any) -> bool:
    return eqx.is_inexact_array(leaf) or (isinstance(leaf, np.ndarray) and np.issubdtype(leaf.dtype, np.inexact))


def _as_array(leaf: Any, path: tuple) -> Array:
    if isinstance(leaf, jax.Array):
        return leaf
    if leaf.dtype == np.float64 and not jax.config.read("jax_enable_x64"):
        warn_x64(_name(path))
    return jnp.asarray(leaf)


@functools.cache
def _warn_once(message: str) -> None:
    warnings.warn(message, FlowWarning, stacklevel=6)


def warn_x64(name: str) -> None:
    """Say once that an array loses half of its digits."""
    _warn_once(
        f"{name} is float64 but JAX's 64-bit mode is off, so it is rounded to float32; "
        'enable it with jax.config.update("jax_enable_x64", True) before the first computation'
    )


def _check_hashable(structure: Structure) -> None:
    for leaf in structure.static:
        try:
            hash(leaf)
        except TypeError as error:
            raise FlowError(
                f"a leaf of the model or args is a {leaf.kind.__name__}, which is neither an array nor hashable: "
                f"{shown(leaf.value)}"
            ) from error


def _check_arrays(structure: Structure, arrays: list[Array]) -> None:
    dtypes = {}
    for name, x, moving in zip(structure.names, arrays, structure.trainable, strict=True):
        if jnp.issubdtype(x.dtype, jnp.complexfloating):
            raise FlowError(f"{name} is {x.dtype}: complex arrays are not supported; split real and imaginary parts")
        if moving:
            dtypes.setdefault(x.dtype, name)
        if not isinstance(x, Tracer) and jnp.issubdtype(x.dtype, jnp.floating):
            check_finite(name, x)
    if len(dtypes) > 1:
        listed = ", ".join(f"{name} is {dtype}" for dtype, name in dtypes.items())
        raise FlowError(f"the model mixes dtypes ({listed}): cast its arrays to one dtype")
    dtype, name = next(iter(dtypes.items()))
    if jnp.finfo(dtype).bits < 32:
        raise FlowError(f"{name} is {dtype}, too coarse for a training run: cast the model to float32 or float64")


def check_finite(name: str, x: Number) -> None:
    """Refuse an array with a NaN or an infinity, by name and index."""
    values = np.asarray(x)
    finite = np.isfinite(values)
    if not finite.all():
        index = tuple(int(i) for i in np.argwhere(~finite)[0])
        raise FlowError(
            f"{name}{list(index) if index else ''} is {values[index]}: initial values and data must be finite "
            "(mask with booleans, or with large finite numbers)"
        )


def check_loss(structure: Structure, params: list[Array], frozen: list[Array]) -> None:
    """Refuse a loss that is not a real scalar or cannot depend on the moving arrays; costs one trace.

    A gradient that happens to be zero (a saddle) is legal; a loss whose program never reads the model is not.
    """

    def value(moving: list[Array], fixed: list[Array]) -> PyTree:
        returned = structure.value(moving, fixed)
        if not all(map(eqx.is_array_like, jax.tree.leaves(returned))):
            raise FlowError(f"loss returns {shown(returned)}: it must return one scalar")
        return returned

    try:
        jaxpr = jax.make_jaxpr(value)(params, frozen)
    except FlowError:
        raise
    except (TypeError, ValueError) as error:
        if _is_shape_error(error):
            raise FlowError(
                f"loss fails on these shapes ({_shapes(structure, params, frozen)}): {_first_line(error)}"
            ) from error
        raise
    outs = jaxpr.out_avals
    if len(outs) != 1 or outs[0].shape != ():
        shapes = ", ".join(str(out.shape) for out in outs)
        raise FlowError(
            f"loss returns shape {shapes or 'nothing'}: it must return one scalar; take the mean over samples"
        )
    if not jnp.issubdtype(outs[0].dtype, jnp.floating):
        raise FlowError(f"loss returns {outs[0].dtype}: it must return a real floating-point scalar")
    if not _reads(jaxpr.jaxpr, len(params)):
        raise FlowError(
            "loss does not depend on any trainable array of the model: check its first argument and `trainable`"
        )


def _is_shape_error(error: Exception) -> bool:
    return any(word in str(error) for word in ("shape", "dot_general", "broadcast", "dimension", "axis"))


def _shapes(structure: Structure, params: list[Array], frozen: list[Array]) -> str:
    moving, fixed = iter(params), iter(frozen)
    arrays = [next(moving) if flag else next(fixed) for flag in structure.trainable]
    return ", ".join(f"{name} {x.shape}" for name, x in zip(structure.names, arrays, strict=True))


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


def _reads(jaxpr: Any, count: int) -> bool:
    """Return whether the outputs can be reached from the first `count` inputs."""
    needed = {var for var in jaxpr.outvars if not hasattr(var, "val")}
    for equation in reversed(jaxpr.eqns):
        if any(var in needed for var in equation.outvars):
            needed.update(var for var in equation.invars if not hasattr(var, "val"))
    return any(var in needed for var in jaxpr.invars[:count])
