"""One head of attention, with shared values, with free values, or with everything free."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from gradflow.activations import AbstractActivation
from gradflow.activations.base import as_float
from gradflow.activations.registry import as_activation
from gradflow.errors import whole_number
from gradflow.models.attention.arguments import as_causal, as_positions, check_length, check_shapes
from gradflow.models.attention.base import AbstractAttention, HeadCapture, weigh
from gradflow.models.draws import draw


class AttentionHead(AbstractAttention):
    """One head: Q = X W_Q, K = X W_K, V = X W_V, logits = act(Q K^T / sqrt(d_k)) V W_O (arXiv 2512.22473).

    Attributes:
        w_q: W_Q.
        w_k: W_K.
        w_v: W_V.
        w_o: W_O.
        activation: the map from scores to weights; given as itself, as its name, or as None for the softmax.
        causal: whether a row attends to itself and earlier positions only.
    """

    w_q: Float[Array, "d_in d_k"]
    w_k: Float[Array, "d_in d_k"]
    w_v: Float[Array, "d_in d_v"]
    w_o: Float[Array, "d_v C"]
    activation: AbstractActivation
    causal: bool = eqx.field(static=True)

    def __init__(
        self,
        w_q: Float[Array, "d_in d_k"],
        w_k: Float[Array, "d_in d_k"],
        w_v: Float[Array, "d_in d_v"],
        w_o: Float[Array, "d_v C"],
        activation: AbstractActivation | str | None = None,
        causal: bool = True,
    ):
        self.w_q, self.w_k, self.w_v, self.w_o = w_q, w_k, w_v, w_o
        self.activation, self.causal = as_activation(activation), as_causal(causal)

    def __check_init__(self):
        check_shapes(self, {"w_q": "d_in d_k", "w_k": "d_in d_k", "w_v": "d_in d_v", "w_o": "d_v C"})

    def read(self, x: Any) -> Float[Array, "T d_in"]:
        """Return the inputs as floats."""
        return as_positions(x, self.w_q.shape[-2])

    def attend(self, x: Float[Array, "T d_in"], mask: Bool[Array, "T T"] | None) -> HeadCapture:
        """Return what happens inside at finite inputs."""
        queries, keys, values = x @ self.w_q, x @ self.w_k, x @ self.w_v
        scores, weights = weigh(self.activation, queries, keys, mask)
        return HeadCapture(scores, weights, values, weights @ values, queries, keys)

    @classmethod
    def normal(
        cls,
        key: PRNGKeyArray,
        d_in: int,
        d_k: int,
        d_v: int,
        n_classes: int,
        *,
        scale: float = 0.1,
        activation: AbstractActivation | str | None = None,
        causal: bool = True,
    ) -> "AttentionHead":
        """Draw every entry N(0, scale^2).

        Args:
            key: random key.
            d_in: width of an input.
            d_k: width of queries and keys.
            d_v: width of a value.
            n_classes: number of logits, C.
            scale: standard deviation.
            activation: map from scores to weights, or its name; None is the softmax.
            causal: whether a row attends to itself and earlier positions only.

        Returns:
            The head, in JAX's default float dtype.

        Raises:
            FlowError: if a size is below 1, the activation is unknown, or the key or the scale cannot be used.
        """
        d_in, d_k, d_v = whole_number("d_in", d_in), whole_number("d_k", d_k), whole_number("d_v", d_v)
        shapes = (d_in, d_k), (d_in, d_k), (d_in, d_v), (d_v, whole_number("n_classes", n_classes))
        w_q, w_k, w_v, w_o = draw(key, scale, *shapes)
        return cls(w_q, w_k, w_v, w_o, activation, causal)


class FreeValueHead(AbstractAttention):
    """A head whose values are parameters, one a position, and do not depend on the input.

    Here a step of gradient descent moves V by exactly -eta A^T U (arXiv 2512.22473, the responsibility law); with
    shared W_V it moves by -eta X X^T A^T U.

    Attributes:
        w_q: W_Q.
        w_k: W_K.
        values: V; every input must have its T.
        w_o: W_O.
        activation: the map from scores to weights; given as itself, as its name, or as None for the softmax.
        causal: whether a row attends to itself and earlier positions only.
    """

    w_q: Float[Array, "d_in d_k"]
    w_k: Float[Array, "d_in d_k"]
    values: Float[Array, "T d_v"]
    w_o: Float[Array, "d_v C"]
    activation: AbstractActivation
    causal: bool = eqx.field(static=True)

    def __init__(
        self,
        w_q: Float[Array, "d_in d_k"],
        w_k: Float[Array, "d_in d_k"],
        values: Float[Array, "T d_v"],
        w_o: Float[Array, "d_v C"],
        activation: AbstractActivation | str | None = None,
        causal: bool = True,
    ):
        self.w_q, self.w_k, self.values, self.w_o = w_q, w_k, values, w_o
        self.activation, self.causal = as_activation(activation), as_causal(causal)

    def __check_init__(self):
        check_shapes(self, {"w_q": "d_in d_k", "w_k": "d_in d_k", "values": "T d_v", "w_o": "d_v C"})

    def read(self, x: Any) -> Float[Array, "T d_in"]:
        """Return the inputs as floats."""
        x = as_positions(x, self.w_q.shape[-2])
        check_length(x, self.values.shape[-2], "values")
        return x

    def attend(self, x: Float[Array, "T d_in"], mask: Bool[Array, "T T"] | None) -> HeadCapture:
        """Return what happens inside at finite inputs."""
        queries, keys, values = x @ self.w_q, x @ self.w_k, as_float(self.values)
        scores, weights = weigh(self.activation, queries, keys, mask)
        return HeadCapture(scores, weights, values, weights @ values, queries, keys)

    @classmethod
    def normal(
        cls,
        key: PRNGKeyArray,
        n_positions: int,
        d_in: int,
        d_k: int,
        d_v: int,
        n_classes: int,
        *,
        scale: float = 0.1,
        activation: AbstractActivation | str | None = None,
        causal: bool = True,
    ) -> "FreeValueHead":
        """Draw every entry N(0, scale^2).

        Args:
            key: random key.
            n_positions: number of values, T.
            d_in: width of an input.
            d_k: width of queries and keys.
            d_v: width of a value.
            n_classes: number of logits, C.
            scale: standard deviation.
            activation: map from scores to weights, or its name; None is the softmax.
            causal: whether a row attends to itself and earlier positions only.

        Returns:
            The head, in JAX's default float dtype.

        Raises:
            FlowError: if a size is below 1, the activation is unknown, or the key or the scale cannot be used.
        """
        d_in, d_k, d_v = whole_number("d_in", d_in), whole_number("d_k", d_k), whole_number("d_v", d_v)
        n_positions, n_classes = whole_number("n_positions", n_positions), whole_number("n_classes", n_classes)
        shapes = (d_in, d_k), (d_in, d_k), (n_positions, d_v), (d_v, n_classes)
        w_q, w_k, values, w_o = draw(key, scale, *shapes)
        return cls(w_q, w_k, values, w_o, activation, causal)


class FreeHead(AbstractAttention):
    """A head whose scores and values are parameters: the input is not read.

    Attributes:
        scores: S, as they enter the activation.
        values: V.
        w_o: W_O.
        activation: the map from scores to weights; given as itself, as its name, or as None for the softmax.
        causal: whether a row attends to itself and earlier positions only.
    """

    scores: Float[Array, "T T"]
    values: Float[Array, "T d_v"]
    w_o: Float[Array, "d_v C"]
    activation: AbstractActivation
    causal: bool = eqx.field(static=True)

    def __init__(
        self,
        scores: Float[Array, "T T"],
        values: Float[Array, "T d_v"],
        w_o: Float[Array, "d_v C"],
        activation: AbstractActivation | str | None = None,
        causal: bool = True,
    ):
        self.scores, self.values, self.w_o = scores, values, w_o
        self.activation, self.causal = as_activation(activation), as_causal(causal)

    def __check_init__(self):
        check_shapes(self, {"scores": "T T", "values": "T d_v", "w_o": "d_v C"})

    def read(self, x: Any) -> Float[Array, "T 0"]:
        """Return T empty rows, after checking that the input, if there is one, has T positions."""
        length = self.scores.shape[-1]
        if x is not None:
            check_length(x, length, "scores")
        return jnp.zeros((length, 0))

    def attend(self, x: Float[Array, "T 0"], mask: Bool[Array, "T T"] | None) -> HeadCapture:
        """Return what happens inside."""
        scores, values = as_float(self.scores), as_float(self.values)
        weights = self.activation(scores, where=mask)
        return HeadCapture(scores, weights, values, weights @ values)

    @classmethod
    def normal(
        cls,
        key: PRNGKeyArray,
        n_positions: int,
        d_v: int,
        n_classes: int,
        *,
        scale: float = 0.1,
        activation: AbstractActivation | str | None = None,
        causal: bool = True,
    ) -> "FreeHead":
        """Draw every entry N(0, scale^2).

        Args:
            key: random key.
            n_positions: T.
            d_v: width of a value.
            n_classes: number of logits, C.
            scale: standard deviation.
            activation: map from scores to weights, or its name; None is the softmax.
            causal: whether a row attends to itself and earlier positions only.

        Returns:
            The head, in JAX's default float dtype.

        Raises:
            FlowError: if a size is below 1, the activation is unknown, or the key or the scale cannot be used.
        """
        n_positions, d_v = whole_number("n_positions", n_positions), whole_number("d_v", d_v)
        shapes = (n_positions, n_positions), (n_positions, d_v), (d_v, whole_number("n_classes", n_classes))
        scores, values, w_o = draw(key, scale, *shapes)
        return cls(scores, values, w_o, activation, causal)
