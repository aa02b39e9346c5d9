"""Keys of the points: a function of the sweep's key, the seed and, where asked for, the point; never of the batch."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from gradflow.errors import FlowError, shown


def check_key(key: Any) -> None:
    """Refuse keys whose draws depend on how many are made at once.

    Args:
        key: what was passed as `key`.

    Raises:
        FlowError: if it is not one typed threefry key.
    """
    dtype = getattr(key, "dtype", None)
    if dtype is None or not jnp.issubdtype(dtype, jax.dtypes.prng_key) or key.shape != ():
        raise FlowError(f"key is {shown(key)}: pass one typed key, jax.random.key(0)")
    if str(jax.random.key_impl(key)) != "threefry2x32":
        raise FlowError(
            f"key is a {jax.random.key_impl(key)} key, whose draws depend on how many members run at once: pass "
            "jax.random.key(0, impl='threefry2x32')"
        )


@jax.jit
def member_keys(key: Key[Array, ""], seeds: Any, digests: Any) -> Key[Array, "..."]:
    """Fold seeds, and digests of points where given, into the key of each member; without either it is the key."""
    if seeds is not None:
        key = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, seeds)
    if digests is not None:
        for words in digests.T:
            key = jax.vmap(jax.random.fold_in, in_axes=(0 if key.ndim else None, 0))(key, words)
    return key
