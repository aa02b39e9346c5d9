"""Arguments of a descent that are checked before anything is compiled."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from gradflow.callables import check_callable
from gradflow.errors import FlowError, shown, whole_number


def checked_steps(steps: int, save_at: Any) -> tuple[int, np.ndarray]:
    """Return the length of a run and the steps to save.

    Args:
        steps: number of updates.
        save_at: steps to save, None for the last.

    Returns:
        Both, as whole numbers.

    Raises:
        FlowError: if they are no whole numbers, or the steps to save do not increase within the run.
    """
    steps = whole_number("steps", steps)
    at = np.atleast_1d(np.asarray([steps] if save_at is None else save_at))
    if at.size == 0 or at.ndim != 1:
        raise FlowError(f"save_at has shape {at.shape}: give at least one step in one dimension, or None for the last")
    if not np.issubdtype(at.dtype, np.number) or not np.array_equal(at, np.round(at)):
        raise FlowError(
            f"save_at holds {shown(at[0])}...: it counts whole updates; for times use round(ts / step_size)"
        )
    at = at.astype(np.int64)
    if (np.diff(at) <= 0).any():
        raise FlowError("save_at must increase without repeats; use np.unique")
    if at[0] < 0 or at[-1] > steps:
        raise FlowError(f"save_at reaches from {at[0]} to {at[-1]}: steps must lie within [0, steps] = [0, {steps}]")
    if not jax.config.read("jax_enable_x64") and steps >= 2**31:
        raise FlowError(f"steps is {steps}: counting beyond 2**31 needs jax_enable_x64")
    return steps, at


def check_batches(batches: Callable | int | None, key: Any, args: PyTree, *, members: int | None = None) -> None:
    """Refuse batches that cannot be drawn.

    Args:
        batches: None, a number of rows, or a function.
        key: random key, or one a member.
        args: data of one run.
        members: number of members that may have a key each, None for a single run.

    Raises:
        FlowError: if there is no key, it is not a typed one, or the data have no common axis of rows.
    """
    if batches is None:
        return
    if key is None:
        raise FlowError("batches needs a random key: pass key=jax.random.key(0)")
    if not _is_key(key) or key.shape not in ((), (members,)):
        several = "" if members is None else f", or jax.random.split(key, {members}) for one a member"
        raise FlowError(f"key is {shown(key)}: pass one typed key, jax.random.key(0){several}")
    if callable(batches):
        check_callable("batches", batches)
        return
    sizes = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(args)}
    whole_number("batches", batches)
    if len(sizes) != 1 or sizes & {(), (0,)}:
        raise FlowError(
            f"batches is {batches!r} and the arrays of args have leading sizes "
            f"{sorted(s[0] if s else 0 for s in sizes)}: rows are drawn along axis 0, which all must share; or pass "
            "batches(key, step, args)"
        )


def _is_key(key: Any) -> bool:
    dtype = getattr(key, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)
