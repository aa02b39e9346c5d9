"""The shape of a cloud of vectors."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from gradflow.diagnostics.arguments import as_float


def participation_ratio(vectors: Shaped[Array, "... N d"], centre: bool = True) -> Float[Array, "..."]:
    """Return the effective dimension of a cloud: (sum l)^2 / sum l^2 over the eigenvalues l of its covariance.

    It is computed from traces, without eigenvalues, so that its gradient is finite where eigenvalues coincide.

    Args:
        vectors: one vector a row.
        centre: subtract the mean vector first.

    Returns:
        Effective dimensions from 1 (a line) to min(N, d); 0 for a cloud without extent.
    """
    vectors = as_float("vectors", vectors, ("N", "d"))
    if centre:
        vectors = vectors - jnp.mean(vectors, axis=-2, keepdims=True)
    # The ratio does not depend on the scale; at scale one its squares neither underflow nor overflow.
    size = jnp.max(jnp.abs(vectors), axis=(-2, -1), keepdims=True, initial=0)
    vectors = vectors / jnp.where(size > 0, size, 1)
    if vectors.shape[-2] > vectors.shape[-1]:
        vectors = jnp.swapaxes(vectors, -2, -1)
    gram = jnp.matmul(vectors, jnp.swapaxes(vectors, -2, -1), precision="highest")
    trace, square = jnp.trace(gram, axis1=-2, axis2=-1), jnp.sum(gram**2, axis=(-2, -1))
    return jnp.where(square > 0, trace**2 / jnp.where(square > 0, square, 1), 0)
