"""Several heads side by side."""

from typing import Any

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from gradflow.activations import AbstractActivation
from gradflow.activations.registry import as_activation
from gradflow.errors import whole_number
from gradflow.models.attention.arguments import as_causal, as_positions, check_head_index, check_shapes
from gradflow.models.attention.base import AbstractAttention, HeadCapture, weigh
from gradflow.models.attention.heads import AttentionHead
from gradflow.models.draws import draw


class MultiHeadAttention(AbstractAttention):
    """Heads that share the input; their outputs G_h W_O^h are added.

    Attributes:
        w_q: W_Q of each head.
        w_k: W_K of each head.
        w_v: W_V of each head.
        w_o: W_O of each head.
        activation: the map from scores to weights; given as itself, as its name, or as None for the softmax.
        causal: whether a row attends to itself and earlier positions only.
    """

    w_q: Float[Array, "H d_in d_k"]
    w_k: Float[Array, "H d_in d_k"]
    w_v: Float[Array, "H d_in d_v"]
    w_o: Float[Array, "H d_v C"]
    activation: AbstractActivation
    causal: bool = eqx.field(static=True)

    def __init__(
        self,
        w_q: Float[Array, "H d_in d_k"],
        w_k: Float[Array, "H d_in d_k"],
        w_v: Float[Array, "H d_in d_v"],
        w_o: Float[Array, "H d_v C"],
        activation: AbstractActivation | str | None = None,
        causal: bool = True,
    ):
        self.w_q, self.w_k, self.w_v, self.w_o = w_q, w_k, w_v, w_o
        self.activation, self.causal = as_activation(activation), as_causal(causal)

    def __check_init__(self):
        expected = {"w_q": "H d_in d_k", "w_k": "H d_in d_k", "w_v": "H d_in d_v", "w_o": "H d_v C"}
        check_shapes(self, expected)

    @property
    def n_heads(self) -> int:
        """Number of heads, H."""
        return self.w_q.shape[-3]

    def head(self, index: int | Int[Array, ""]) -> AttentionHead:
        """Return one head on its own.

        Args:
            index: of the head, from 0.

        Returns:
            The head; the layer's logits are the sum over heads.

        Raises:
            FlowError: if there is no such head.
        """
        check_head_index(index, self.n_heads)
        w_q, w_k, w_v, w_o = (w[..., index, :, :] for w in (self.w_q, self.w_k, self.w_v, self.w_o))
        return AttentionHead(w_q, w_k, w_v, w_o, self.activation, self.causal)

    def read(self, x: Any) -> Float[Array, "T d_in"]:
        """Return the inputs as floats."""
        return as_positions(x, self.w_q.shape[-2])

    def attend(self, x: Float[Array, "T d_in"], mask: Bool[Array, "T T"] | None) -> HeadCapture:
        """Return what happens inside every head at finite inputs."""
        queries, keys, values = x @ self.w_q, x @ self.w_k, x @ self.w_v
        scores, weights = weigh(self.activation, queries, keys, mask)
        return HeadCapture(scores, weights, values, weights @ values, queries, keys)

    @classmethod
    def normal(
        cls,
        key: PRNGKeyArray,
        n_heads: int,
        d_in: int,
        d_k: int,
        d_v: int,
        n_classes: int,
        *,
        scale: float = 0.1,
        activation: AbstractActivation | str | None = None,
        causal: bool = True,
    ) -> "MultiHeadAttention":
        """Draw every entry N(0, scale^2).

        Args:
            key: random key.
            n_heads: H.
            d_in: width of an input.
            d_k: width of queries and keys of one head.
            d_v: width of a value of one head.
            n_classes: number of logits, C.
            scale: standard deviation.
            activation: map from scores to weights, or its name; None is the softmax.
            causal: whether a row attends to itself and earlier positions only.

        Returns:
            The layer, in JAX's default float dtype.

        Raises:
            FlowError: if a size is below 1, the activation is unknown, or the key or the scale cannot be used.
        """
        heads, d_in, d_k = whole_number("n_heads", n_heads), whole_number("d_in", d_in), whole_number("d_k", d_k)
        d_v, n_classes = whole_number("d_v", d_v), whole_number("n_classes", n_classes)
        shapes = (heads, d_in, d_k), (heads, d_in, d_k), (heads, d_in, d_v), (heads, d_v, n_classes)
        w_q, w_k, w_v, w_o = draw(key, scale, *shapes)
        return cls(w_q, w_k, w_v, w_o, activation, causal)
