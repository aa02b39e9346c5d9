"""Outliers in hidden states."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Shaped

from gradflow.diagnostics.arguments import as_float


def massive_activations(
    hidden: Shaped[Array, "... T d"], absolute: float = 100, relative: float = 1000
) -> Bool[Array, "... T d"]:
    """Return where an activation is massive (Sun et al., arXiv 2402.17762).

    It is when its magnitude exceeds `absolute` and is at least `relative` times the median magnitude of its hidden
    state: all positions and features of one layer.

    Args:
        hidden: hidden states; a single vector (d,) is a state of its own.
        absolute: threshold of the magnitude.
        relative: threshold in units of the median magnitude.

    Returns:
        True at each massive activation.
    """
    size = jnp.abs(as_float("hidden", hidden, ("d",)))
    median = jnp.median(size, axis=tuple(range(max(size.ndim - 2, 0), size.ndim)), keepdims=True)
    return (size > absolute) & (size >= relative * median)
