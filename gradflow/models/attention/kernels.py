"""Attention kernels: from the queries and keys of heads to their weights, whether through scores or not.

The grid of arXiv 2603.06248 has both kinds. A map of scores is an activation; ELU x ELU and the MLP kernel act on
queries and keys first, so that no score decides. Masked weights are zero, set after the map.
"""

import abc
import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from gradflow.activations import ELU1, AbstractActivation, Sigmoid, Softmax1
from gradflow.errors import FlowError, shown, whole_number
from gradflow.models.attention.base import weigh
from gradflow.models.draws import as_key, draw_within

Weights = tuple[Float[Array, "H T T"], Float[Array, "H T T"]]


class AbstractKernel(eqx.Module):
    """What turns queries and keys into attention weights.

    Attributes:
        takes_bias: whether a bias on scores, such as ALiBi's, means something to it.
    """

    takes_bias: eqx.AbstractClassVar[bool]

    @abc.abstractmethod
    def __call__(
        self,
        queries: Float[Array, "H T d_k"],
        keys: Float[Array, "H T d_k"],
        mask: Bool[Array, "T T"] | None = None,
        bias: Float[Array, "H T T"] | None = None,
    ) -> Weights:
        """Return what the map is applied to, before masking, and the weights.

        Args:
            queries: of each head.
            keys: of each head.
            mask: True at (i, j) where row i may attend to position j; None for everywhere.
            bias: added to the scores, None for none.

        Returns:
            Scores Q K^T / sqrt(d_k) + bias, or the products that stand in their place, and weights; zero where masked.
        """


class ScoreKernel(AbstractKernel):
    """An activation of the scores Q K^T / sqrt(d_k).

    Attributes:
        activation: the map.
    """

    takes_bias: ClassVar[bool] = True
    activation: AbstractActivation

    def __call__(self, queries, keys, mask=None, bias=None) -> Weights:
        """Return scores and their weights."""
        return weigh(self.activation, queries, keys, mask, bias)


class LengthSigmoid(AbstractKernel):
    """Sigmoid attention with bias -log T, so that a row of equal scores sums to about one (arXiv 2409.04431)."""

    takes_bias: ClassVar[bool] = True

    def __call__(self, queries, keys, mask=None, bias=None) -> Weights:
        """Return scores and their weights."""
        return weigh(Sigmoid(-math.log(max(keys.shape[-2], 1))), queries, keys, mask, bias)


class SinkLogit(AbstractKernel):
    """Softmax beside one learnable logit a head, which takes weight without a value: exp(s) / (exp(b) + sum exp(s)).

    At b = 0 it is `Softmax1`; as b falls it becomes the softmax.

    Attributes:
        logits: b of each head.
    """

    takes_bias: ClassVar[bool] = True
    logits: Float[Array, " H"]

    def __call__(self, queries, keys, mask=None, bias=None) -> Weights:
        """Return scores and their weights."""
        scores, _ = weigh(Softmax1(), queries, keys, mask, bias)
        return scores, Softmax1()(scores - self.logits[:, None, None], where=mask)


class EluKernel(AbstractKernel):
    """(ELU(Q) + 1)(ELU(K) + 1)^T, positive and without a scale (arXiv 2006.16236)."""

    takes_bias: ClassVar[bool] = False

    def __call__(self, queries, keys, mask=None, bias=None) -> Weights:
        """Return products and weights, which are the same but for the mask."""
        _no_bias(self, bias)
        products = ELU1().map(queries) @ jnp.swapaxes(ELU1().map(keys), -1, -2)
        return products, _masked(products, mask)


class MLPKernel(AbstractKernel):
    """m(Q) m(K)^T / sqrt(d_k), m an MLP with one hidden layer of GELUs that all heads share; the weights have signs.

    Attributes:
        w_in: into the hidden layer.
        b_in: its bias.
        w_out: out of it.
        b_out: its bias.
    """

    takes_bias: ClassVar[bool] = False
    w_in: Float[Array, "d_k hidden"]
    b_in: Float[Array, " hidden"]
    w_out: Float[Array, "hidden d_k"]
    b_out: Float[Array, " d_k"]

    def __call__(self, queries, keys, mask=None, bias=None) -> Weights:
        """Return products and weights, which are the same but for the mask."""
        _no_bias(self, bias)
        scale = math.sqrt(max(queries.shape[-1], 1))
        products = (self._features(queries) / scale) @ jnp.swapaxes(self._features(keys), -1, -2)
        return products, _masked(products, mask)

    def _features(self, x: Float[Array, "H T d_k"]) -> Float[Array, "H T d_k"]:
        return jax.nn.gelu(x @ self.w_in + self.b_in, approximate=False) @ self.w_out + self.b_out

    @classmethod
    def init(cls, key: PRNGKeyArray, d_k: int, hidden: int | None = None) -> "MLPKernel":
        """Draw weights and biases uniformly within one over the root of their fan-in.

        Args:
            key: random key.
            d_k: width of queries and keys.
            hidden: width of the hidden layer; None is d_k.

        Returns:
            The kernel, in JAX's default float dtype.

        Raises:
            FlowError: if a size is below 1, or the key cannot be used.
        """
        d_k = whole_number("d_k", d_k)
        hidden = d_k if hidden is None else whole_number("hidden", hidden)
        keys = jax.random.split(as_key(key), 4)
        shapes = ((d_k, hidden), (hidden,), (hidden, d_k), (d_k,))
        fans = (d_k, d_k, hidden, hidden)
        return cls(*map(draw_within, keys, shapes, fans))


class NormalisedKernel(AbstractKernel):
    """A kernel whose weights are divided by the sum of their row plus a small number.

    Attributes:
        base: the kernel, with weights >= 0.
        floor: what is added to the sum; 1e-9 in arXiv 2603.06248.
    """

    takes_bias: ClassVar[bool] = False
    base: AbstractKernel
    floor: float = eqx.field(default=1e-9, static=True)

    def __check_init__(self):
        if isinstance(self.base, ScoreKernel):
            raise FlowError("base is a map of scores: use ScoreKernel(gf.activations.Normalised(base, floor=1e-9))")

    def __call__(self, queries, keys, mask=None, bias=None) -> Weights:
        """Return the base's products, and weights whose rows sum to nearly one."""
        products, weights = self.base(queries, keys, mask, bias)
        return products, weights / (jnp.sum(weights, axis=-1, keepdims=True) + self.floor)


class ClippedKernel(AbstractKernel):
    """A kernel whose weights are divided by max(|sum of their row|, 1): the paper's normalisation of signed maps.

    A row with a small sum is left as it is, so this does not make weights sum to one.

    Attributes:
        base: the kernel.
    """

    takes_bias: ClassVar[bool] = False
    base: AbstractKernel

    def __call__(self, queries, keys, mask=None, bias=None) -> Weights:
        """Return the base's scores or products, and the divided weights."""
        products, weights = self.base(queries, keys, mask, bias)
        return products, weights / jnp.maximum(jnp.abs(jnp.sum(weights, axis=-1, keepdims=True)), 1)


def _masked(weights: Float[Array, "H T T"], mask: Bool[Array, "T T"] | None) -> Float[Array, "H T T"]:
    return weights if mask is None else jnp.where(mask, weights, 0)


def _no_bias(kernel: AbstractKernel, bias: Float[Array, "H T T"] | None) -> None:
    if bias is not None:
        raise FlowError(f"bias is {shown(bias)}: {type(kernel).__name__} has no scores to add it to")
