"""A value matrix times an attention row: the model of the first paper, and its tied variant."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from gradflow.activations import AbstractActivation, Softmax
from gradflow.activations.registry import as_activation
from gradflow.errors import FlowError, shown
from gradflow.models.draws import as_key, as_scale


class ValueSoftmax(eqx.Module):
    """beta = V s with s = softmax(a), V and a both free (arXiv 2603.06248, section 3; other maps by `activation`).

    Attributes:
        values: V, one value vector a column.
        scores: a, one score a value.
        activation: the map from scores to weights.
    """

    values: Float[Array, "d n"]
    scores: Float[Array, " n"]
    activation: AbstractActivation = Softmax()

    def __check_init__(self):
        values, scores = (getattr(x, "shape", ()) for x in (self.values, self.scores))
        if values and scores and (len(values) < 2 or values[:-2] + values[-1:] != scores):
            raise FlowError(
                f"values has shape {values} and scores has shape {scores}: expected (d, n) and (n,) with the same n"
            )
        if values and scores:
            _check_map(self.activation)

    @property
    def weights(self) -> Float[Array, " n"]:
        """The attention row s = act(a)."""
        return self.activation(self.scores)

    def __call__(self) -> Float[Array, " d"]:
        """Return beta = V s."""
        return self.values @ self.weights

    @classmethod
    def normal(
        cls,
        key: PRNGKeyArray,
        d: int,
        n: int,
        *,
        scale: float = 0.1,
        score_scale: float = 0.0,
        score_mean: float = 0.0,
        activation: AbstractActivation | None = None,
    ) -> "ValueSoftmax":
        """Draw values N(0, scale^2) and scores N(score_mean, score_scale^2).

        The default scores are all equal, as the paper's theorems assume.

        Args:
            key: random key.
            d: dimension of a value.
            n: number of values.
            scale: standard deviation of the values.
            score_scale: standard deviation of the scores.
            score_mean: mean of the scores; maps that are singular at 0 (ReLU, |a|, a^2) need one that is not 0.
            activation: map from scores to weights; None is the softmax. A name such as "sigmoid" is accepted too.

        Returns:
            The model, in JAX's default float dtype.

        Raises:
            FlowError: if d or n is below 1, the activation is unknown, or the key or a scale cannot be used.
        """
        _check_sizes(d, n)
        scale, score_scale = as_scale("scale", scale), as_scale("score_scale", score_scale)
        value_key, score_key = jax.random.split(as_key(key))
        values = scale * jax.random.normal(value_key, (d, n))
        scores = score_mean + score_scale * jax.random.normal(score_key, (n,))
        return cls(values, scores, as_activation(activation))

    @classmethod
    def zero_values(
        cls, scores: Float[Array, " n"], d: int, *, activation: AbstractActivation | None = None
    ) -> "ValueSoftmax":
        """Start at V = 0 with given scores: the loss first sees the scores alone (law 14).

        Args:
            scores: a(0).
            d: dimension of a value.
            activation: map from scores to weights; None is the softmax.

        Returns:
            The model.
        """
        scores = jnp.asarray(scores)
        _check_sizes(d, scores.shape[-1])
        return cls(jnp.zeros((d, scores.shape[-1]), scores.dtype), scores, as_activation(activation))

    @classmethod
    def aligned(
        cls,
        direction: Float[Array, " d"],
        alignments: Float[Array, " n"],
        *,
        scores: Float[Array, " n"] | None = None,
        activation: AbstractActivation | None = None,
    ) -> "ValueSoftmax":
        """Start at the rank-one V = b* u^T, every value along one direction.

        Args:
            direction: b*; normalised.
            alignments: u, the component of each value along b*.
            scores: a(0); None is all zero.
            activation: map from scores to weights; None is the softmax.

        Returns:
            The model.
        """
        direction, alignments = jnp.asarray(direction), jnp.asarray(alignments)
        values = jnp.outer(direction / jnp.linalg.norm(direction), alignments)
        scores = jnp.zeros_like(values[0]) if scores is None else jnp.asarray(scores)
        return cls(values, scores, as_activation(activation))


class TiedSoftmax(eqx.Module):
    """beta = U s with s = softmax(U a): keys and values share one matrix (arXiv 2603.06248).

    Attributes:
        values: U, square; its rows are keys, its columns values.
        query: a.
        activation: the map from scores to weights.
    """

    values: Float[Array, "d d"]
    query: Float[Array, " d"]
    activation: AbstractActivation = Softmax()

    def __check_init__(self):
        values, query = (getattr(x, "shape", ()) for x in (self.values, self.query))
        if values and query and (len(values) < 2 or not values[-1] == values[-2] == query[-1]):
            raise FlowError(
                f"values has shape {values} and query has shape {query}: expected (d, d) and (d,) with the same d"
            )
        if values and query:
            _check_map(self.activation)

    @property
    def scores(self) -> Float[Array, " d"]:
        """U a."""
        return self.values @ self.query

    @property
    def weights(self) -> Float[Array, " d"]:
        """The attention row s = act(U a)."""
        return self.activation(self.scores)

    def __call__(self) -> Float[Array, " d"]:
        """Return beta = U s."""
        return self.values @ self.weights


def _check_sizes(d: int, n: int) -> None:
    for name, size in (("d", d), ("n", n)):
        if size < 1:
            raise FlowError(f"{name} is {size}: a value-softmax needs at least one")


def _check_map(activation: AbstractActivation) -> None:
    """Refuse what is no activation; trees of rates and of filters, which hold no arrays, are not looked at."""
    known = as_activation(activation)
    if known is not activation:
        raise FlowError(f"activation is {shown(activation)}: pass the map itself, {shown(known)}")
