"""A block: x + attention(norm(x)), then x + feed_forward(norm(x)); norms and the second part can be left out."""

import equinox as eqx
import jax
from jaxtyping import Array, Bool, Float

from gradflow.models.transformer.attention import Inside, SelfAttention
from gradflow.models.transformer.feed_forward import AbstractFeedForward

Norm = eqx.nn.LayerNorm | eqx.nn.RMSNorm


class TransformerBlock(eqx.Module):
    """Attention and an MLP on the residual stream, each behind a norm.

    Attributes:
        attention: reads all positions.
        attention_norm: of a position before the attention, or None.
        feed_forward: reads one position, or None.
        feed_forward_norm: of a position before it, or None.
    """

    attention: SelfAttention
    attention_norm: Norm | None
    feed_forward: AbstractFeedForward | None
    feed_forward_norm: Norm | None

    def __call__(self, x: Float[Array, "T d"], mask: Bool[Array, "T T"] | None) -> tuple[Float[Array, "T d"], Inside]:
        """Return the residual stream after the block, and what happened inside its attention.

        Args:
            x: the stream before.
            mask: True at (i, j) where row i may attend to position j; None for everywhere.

        Returns:
            The stream after, and the inside.
        """
        update, inside = self.attention(normalised(self.attention_norm, x), mask)
        x = x + update
        if self.feed_forward is not None:
            x = x + self.feed_forward(normalised(self.feed_forward_norm, x))
        return x, inside


def normalised(norm: Norm | None, x: Float[Array, "T d"]) -> Float[Array, "T d"]:
    """Return each position behind a norm, or as it is."""
    return x if norm is None else jax.vmap(norm)(x)
