"""Leaves of a model by name, as filter specs and as labels."""

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import PyTree

from gradflow.errors import FlowError, leaf_name, shown
from gradflow.problem import by_name

REST = ""  # the label of leaves that are not named


def only(model: PyTree, *names: str) -> PyTree[bool]:
    """Return the filter spec of the float arrays with these names, for `trainable`.

    Args:
        model: any Equinox module.
        names: of leaves, as in `rates` of `gradient_flow`: the last part of a path (``"w_v"``), or a longer one
            (``"layers.0.weight"``).

    Returns:
        The model with a boolean at each leaf.

    Raises:
        FlowError: if a name fits no leaf.
    """
    return moving(model, names, "only")


def moving(model: PyTree, names: Sequence[str], argument: str) -> PyTree[bool]:
    """Return what `only` returns, for names that come from elsewhere.

    Args:
        model: any Equinox module.
        names: of leaves.
        argument: where they come from, for the message.

    Returns:
        The model with a boolean at each leaf.
    """
    named = labels(names_of(argument, names), model, argument)
    return jax.tree.map(lambda leaf, name: _can_move(leaf) and name != REST, model, named)


def all_but(model: PyTree, *names: str) -> PyTree[bool]:
    """Return the filter spec of the float arrays without these names: those are frozen, all others move.

    Args:
        model: any Equinox module.
        names: of leaves, as in `only`.

    Returns:
        The model with a boolean at each leaf.

    Raises:
        FlowError: if a name fits no leaf.
    """
    named = labels(names_of("all_but", names), model, "all_but")
    return jax.tree.map(lambda leaf, name: _can_move(leaf) and name == REST, model, named)


def _can_move(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray) and bool(jnp.issubdtype(leaf.dtype, jnp.inexact))


def names_of(argument: str, names: Any) -> tuple[str, ...]:
    """Return names of leaves as a tuple; one name may be a string of its own."""
    listed: tuple = (names,) if isinstance(names, str) else tuple(names) if isinstance(names, Iterable) else (None,)
    if not all(isinstance(name, str) and name for name in listed):
        raise FlowError(f'{argument} is {shown(names)}: give names of leaves, such as ("w_q", "w_k")')
    return listed


def labels(names: tuple[str, ...], params: PyTree, argument: str | None = None) -> PyTree[str]:
    """Return the tree with the name that fits at each of its leaves, `REST` where none does.

    Args:
        names: of leaves.
        params: a model, or what `equinox.filter` leaves of it: a name may be of a leaf that is not there.
        argument: where the names come from, to refuse one that fits no leaf; None takes any.
    """
    paths, treedef = jax.tree_util.tree_flatten_with_path(params, is_leaf=_is_gone)
    typed = [leaf_name(path) for path, _ in paths]
    found = by_name(argument, {name: name for name in names}, typed, REST)
    gone = [leaf if _is_gone(leaf) else name for (_, leaf), name in zip(paths, found, strict=True)]
    return jax.tree.unflatten(treedef, gone)


def _is_gone(leaf: Any) -> bool:
    """Return whether a filter took a leaf away: None by Equinox, a node without leaves by Optax."""
    return leaf is None or isinstance(leaf, optax.MaskedNode)
