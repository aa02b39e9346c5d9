"""Norms of pytrees."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PyTree

WIDTH = 8  # numbers that the widest registers of a CPU hold


def sum_of_squares(x: Float[Array, "..."]) -> Float[Array, ""]:
    """Return the sum of the squares of all entries.

    XLA adds the entries of a small array one after the other, each waiting for the one before, which takes as long as
    half a gradient. Here rows of eight are added to each other, and the eight sums at the end; the barriers keep XLA
    from turning this into one sum again, and from computing `x` within it.
    """
    if x.size % WIDTH:
        return jnp.sum(x * x)
    rows = lax.optimization_barrier(x).reshape(-1, WIDTH)
    return jnp.sum(lax.optimization_barrier(jnp.sum(rows * rows, axis=0)))


def norm(tree: PyTree) -> Float[Array, ""]:
    """Return the Euclidean norm of a pytree."""
    return jnp.sqrt(sum(sum_of_squares(x) for x in jax.tree.leaves(tree)))
