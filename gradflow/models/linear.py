"""A deep linear network: the neighbour whose flow is known in closed form."""

import itertools
from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from gradflow.errors import FlowError
from gradflow.models.draws import draw


class DeepLinear(eqx.Module):
    """beta^T = W_L ... W_1: a linear predictor written as a product.

    Attributes:
        matrices: W_1 (h_1, d), ..., W_L (1, h_{L-1}).
    """

    matrices: tuple[Float[Array, "..."], ...]

    def __check_init__(self):
        shapes: list[tuple[int, ...]] = [getattr(w, "shape", ()) for w in self.matrices]
        if not shapes:
            raise FlowError("matrices is empty: a deep linear network needs at least one layer")
        if not any(shapes):  # one number a layer, as in a tree of rates
            return
        if min(map(len, shapes)) < 2 or any(a[-2] != b[-1] for a, b in itertools.pairwise(shapes)):
            raise FlowError(f"matrices have shapes {shapes}: rows of each must equal columns of the next")

    def __call__(self) -> Float[Array, " d"]:
        """Return beta, the end-to-end map as a vector."""
        product = self.matrices[0]
        for matrix in self.matrices[1:]:
            product = matrix @ product
        return product[0]

    @classmethod
    def normal(cls, key: PRNGKeyArray, widths: Sequence[int], *, scale: float = 0.1) -> "DeepLinear":
        """Draw every entry N(0, scale^2).

        Args:
            key: random key.
            widths: d, h_1, ..., h_{L-1}, 1.
            scale: standard deviation.

        Returns:
            The network.

        Raises:
            FlowError: if the last width is not 1, there is no layer, or the key or the scale cannot be used.
        """
        if len(widths) < 2 or widths[-1] != 1 or min(widths) < 1:
            raise FlowError(f"widths is {tuple(widths)}: expected (d, ..., 1) with positive entries")
        return cls(tuple(draw(key, scale, *zip(widths[1:], widths[:-1], strict=True))))

    @classmethod
    def balanced(cls, direction: Float[Array, " d"], depth: int, *, scale: float) -> "DeepLinear":
        """Start with every W_l rank one and W_l W_l^T = W_{l+1}^T W_{l+1}, along `direction`.

        Args:
            direction: of beta(0); normalised.
            depth: number of layers L, >= 1.
            scale: norm of each factor, so that |beta(0)| = scale^L.

        Returns:
            The network, with hidden width d.

        Raises:
            FlowError: if depth is below 1.
        """
        if depth < 1:
            raise FlowError(f"depth is {depth}: a deep linear network needs at least one layer")
        direction = jnp.asarray(direction) / jnp.linalg.norm(direction)
        inner = jnp.outer(direction, direction)
        return cls(tuple(scale * (inner if layer < depth - 1 else direction[None, :]) for layer in range(depth)))
