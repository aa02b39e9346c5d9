"""From points to members: the builder under vmap, or point by point on the host, with draws that only points decide."""

import dataclasses
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from gradflow.errors import FlowError, nearest, shown
from gradflow.sweep.axes import SEED


@dataclasses.dataclass(frozen=True, eq=False)
class Built:
    """Members of one kernel.

    Attributes:
        loss: shared by all.
        model: array leaves carry the member axis.
        args: array leaves carry it where members differ.
        axes: says of each leaf of args whether it does, 0 or None.
        count: number of members.
    """

    loss: Callable
    model: PyTree
    args: PyTree
    axes: list[int | None]
    count: int

    @property
    def in_axes(self) -> tuple[Any, PyTree]:
        """Member axes of `(model, args)`, as ensembles take them."""
        return eqx.if_array(0), jax.tree.unflatten(jax.tree.structure(self.args), self.axes)

    def with_own_failures(self) -> "Built":
        """Give each member a copy of shared data that is not finite: members fail of it, and not the call."""
        leaves, treedef = jax.tree.flatten(self.args)
        bad = [axis is None and not _is_finite(leaf) for leaf, axis in zip(leaves, self.axes, strict=True)]
        own = [jnp.broadcast_to(x, (self.count, *x.shape)) if flag else x for x, flag in zip(leaves, bad, strict=True)]
        axes = [0 if flag else axis for flag, axis in zip(bad, self.axes, strict=True)]
        return dataclasses.replace(self, args=jax.tree.unflatten(treedef, own), axes=axes)


def _is_finite(leaf: Any) -> bool:
    return not (is_array(leaf) and jnp.issubdtype(leaf.dtype, jnp.inexact)) or bool(jnp.isfinite(leaf).all())


@dataclasses.dataclass(frozen=True, eq=False)
class Traced:
    """The builder's program for one static group.

    Attributes:
        run: `run(keys, varied) -> arrays`, with a member axis where `batched` says so.
        loss: what it returned.
        treedef: of `(model, args)`.
        fixed: leaves that are not arrays, None where there is an array.
        batched: one flag an array.
        of_model: how many of the arrays are the model's.
        shapes: of one member's arrays.
    """

    run: Callable
    loss: Callable
    treedef: Any
    fixed: list
    batched: list[bool]
    of_model: int
    shapes: list[jax.ShapeDtypeStruct]

    def member(self) -> tuple[PyTree, PyTree]:
        """Return shapes of one member's model and args."""
        return self._join(self.shapes)

    def build(self, keys: Key[Array, "..."], varied: dict[str, np.ndarray], count: int) -> Built:
        """Build the members of a chunk."""
        arrays = self.run(keys, varied)
        if not any(self.batched):  # nothing that the builder sees differs
            arrays = [jnp.broadcast_to(x, (count, *x.shape)) if i < self.of_model else x for i, x in enumerate(arrays)]
        model, args = self._join(arrays)
        flags = iter(self.batched)
        axes = [0 if leaf is None and next(flags) else None for leaf in self.fixed]
        return Built(self.loss, model, args, axes[len(axes) - len(jax.tree.leaves(args)) :], count)

    def _join(self, arrays: list) -> tuple[PyTree, PyTree]:
        given = iter(arrays)
        return jax.tree.unflatten(self.treedef, [next(given) if leaf is None else leaf for leaf in self.fixed])


def builder_axes(build: Callable, axes: Iterable[str], method_axes: Iterable[str]) -> tuple[str, ...]:
    """Return the axes that the builder takes.

    Args:
        build: `build(key, **point)`.
        axes: names of all axes.
        method_axes: names of those that the method reads, which the builder need not take.

    Returns:
        Names of parameters, the seed only where it is named.

    Raises:
        FlowError: if the builder lacks a parameter, or needs one that is no axis.
    """
    if not callable(build):
        raise FlowError(f"build is {shown(build)}: give a function build(key, **point) -> (loss, model, args)")
    axes, known = list(axes), list(inspect.signature(build).parameters.values())
    if not known or known[0].kind not in (known[0].POSITIONAL_ONLY, known[0].POSITIONAL_OR_KEYWORD):
        raise FlowError(f"build is {shown(build)}: its first parameter must be the key, build(key, **point)")
    key, *known = known
    named = [p.name for p in known if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    takes_all = any(p.kind is p.VAR_KEYWORD for p in known)
    if key.name in axes:
        raise FlowError(f"axis {key.name!r} is the first parameter of build, which gets the key: rename one of them")
    for name in axes:
        if not (name in named or takes_all or name == SEED or name in method_axes):
            raise FlowError(f"axis {name!r} is no parameter of build{nearest(name, named) if named else ''}")
    needed = [p.name for p in known if p.name in named and p.default is p.empty and p.name not in axes]
    if needed:
        raise FlowError(f"build needs {needed[0]!r}, which is no axis: add it to axes, or give it a default")
    return tuple(name for name in axes if name in named or (takes_all and name not in (SEED, *method_axes)))


def trace(build: Callable, shared: dict[str, Any], varied: dict[str, np.ndarray], keys: Key[Array, "..."]) -> Traced:
    """Trace the builder for one static group.

    Args:
        build: the builder.
        shared: values of its static parameters.
        varied: values of its batched parameters, one a member.
        keys: one key, or one a member.

    Returns:
        Its program.

    Raises:
        FlowError: if it cannot be traced, or returns something else than (loss, model, args).
    """
    seen: list[Any] = []

    def program(key: Key[Array, ""], numbers: dict[str, Array]) -> list[Array]:
        loss, model, args = checked_triple(build(key, **shared, **numbers))
        leaves, treedef = jax.tree.flatten((model, args))
        arrays = [is_array(leaf) for leaf in leaves]
        fixed = [None if array else leaf for leaf, array in zip(leaves, arrays, strict=True)]
        count = sum(arrays[: len(jax.tree.leaves(model))])
        seen.append((loss, treedef, fixed, count))
        return [jnp.asarray(leaf) for leaf, array in zip(leaves, arrays, strict=True) if array]

    key = keys[0] if keys.ndim else keys
    one = {name: jnp.asarray(values[0]) for name, values in varied.items()}
    try:
        closed = jax.make_jaxpr(program)(key, one)
    except Exception as error:
        # What fails on concrete values as well is the builder's own error, and is raised as such.
        checked_triple(build(key, **shared, **{name: values[0].item() for name, values in varied.items()}))
        raise FlowError(
            f"build cannot be traced ({str(error).strip().splitlines()[0]}): pass build_on='host' to call it point by "
            "point, or gf.Static(...) for the values that it must know"
        ) from error
    loss, treedef, fixed, of_model = seen[-1]
    varies = [keys.ndim > 0, *[True] * len(one)]
    flags = _depends(closed.jaxpr, varies)
    batched = [any(varies) and (flag or i < of_model) for i, flag in enumerate(flags)]
    mapped = jax.extend.core.jaxpr_as_fun(closed)
    if any(varies):
        axes = tuple(0 if flag else None for flag in varies)
        mapped = jax.vmap(mapped, in_axes=axes, out_axes=[0 if flag else None for flag in batched])

    def run(keys: Key[Array, "..."], numbers: dict[str, Array]) -> list[Array]:
        # Constants come out as they stand in the program, which may be numbers of Python or NumPy.
        return [jnp.asarray(x) for x in mapped(keys, *jax.tree.leaves(numbers))]

    shapes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in closed.out_avals]
    # Not jitted: its operations are compiled once for all groups, a program of them would be for each.
    return Traced(run, loss, treedef, fixed, batched, of_model, shapes)


def _depends(jaxpr: Any, varied: list[bool]) -> list[bool]:
    """Return which outputs can be reached from the inputs that vary."""
    reached = {var for var, flag in zip(jaxpr.invars, varied, strict=True) if flag}
    for equation in jaxpr.eqns:
        if any(not hasattr(var, "val") and var in reached for var in equation.invars):
            reached.update(equation.outvars)
    return [not hasattr(var, "val") and var in reached for var in jaxpr.outvars]


def checked_triple(returned: Any) -> tuple[Callable, PyTree, PyTree]:
    """Return what a builder returned, or raise if it is not (loss, model, args)."""
    if not (isinstance(returned, tuple) and len(returned) == 3 and callable(returned[0])):
        raise FlowError(f"build returns {shown(returned)}: it must return (loss, model, args)")
    return returned


def is_array(leaf: Any) -> bool:
    """Return whether a leaf is an array of JAX or of NumPy."""
    return eqx.is_array(leaf) or isinstance(leaf, np.ndarray | np.generic)
