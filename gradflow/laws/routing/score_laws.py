"""How a score moves: D = dL/ds for each map from scores to weights, in closed form.

Nearly every map has a Jacobian of one form, so that D_ij = slope_ij (b_ij - baseline_i) with b = dL/dA:

| map | slope | baseline |
|---|---|---|
| softmax, temperature T | A / T | A.b |
| softmax1 | A | A.b |
| f / (sum f + floor) | f' / (sum f + floor) = A (log f)' | A.b |
| f | f' | 0 |
| sparsemax | 1 on the support | mean of b over the support |
| uniform | 0 | - |

and A.b = u.g up to rounding, which `centred` takes away. (The softmax is the routing law of arXiv 2512.22473; the
others are derived here.)
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from gradflow.activations import (
    ELU,
    ELU1,
    Abs,
    AbstractActivation,
    AbstractElementwise,
    AbstractHomogeneous,
    AbstractPositive,
    Exp,
    Linear,
    Normalised,
    ReLU,
    Sigmoid,
    Softmax,
    Softmax1,
    Softplus,
    Sparsemax,
    Square,
    Uniform,
)
from gradflow.activations.base import parameter, row_maximum, row_sum


class Scored(NamedTuple):
    """What a score law reads.

    Attributes:
        scores: S; masked entries may hold anything.
        weights: A = act(S).
        compatibility: B, b_ij = dL/dA_ij.
        mean: u.g of each row, A.b up to rounding.
        mask: True where an entry takes part.
    """

    scores: Float[Array, "*h T T"]
    weights: Float[Array, "*h T T"]
    compatibility: Float[Array, "*h T T"]
    mean: Float[Array, "*h T 1"]
    mask: Bool[Array, "*#h T T"]


@functools.singledispatch
def score_gradient(activation: AbstractActivation, at: Scored) -> Float[Array, "*h T T"]:
    """Return D = dL/dS of a map, exactly zero at masked entries.

    A closed form for every map of `gf.activations`. A map of your own that is elementwise, or the base of
    `Normalised`, is differentiated once a score; any other is pulled back by `jax.vjp` through the map, unless its own
    law is registered: `@score_gradient.register(MyMap)` on a function of the same two arguments.

    Args:
        activation: the map.
        at: scores, weights and what the loss asks of the weights.

    Returns:
        The gradient.
    """
    _, pull = jax.vjp(lambda scores: activation(scores, where=at.mask), at.scores)
    return pull(at.compatibility)[0]


@score_gradient.register(AbstractElementwise)
def _elementwise(activation: AbstractElementwise, at: Scored) -> Array:
    positive = isinstance(activation, AbstractPositive)
    factor = at.weights * log_slope(activation, at.scores) if positive else slope(activation, at.scores)
    return _kept(at, factor, factor * at.compatibility)


@score_gradient.register(Softmax)
def _softmax(activation: Softmax, at: Scored) -> Array:
    return _centred(at, at.weights / parameter(activation.temperature, at.scores))


@score_gradient.register(Softmax1)
def _softmax1(activation: Softmax1, at: Scored) -> Array:
    # What the zero beside the scores gets, 1 - sum A = A / exp(s), without the rounding of the sum where that is small.
    largest = row_maximum(at.scores, at.mask)
    missing = row_maximum(at.weights, at.mask) * jnp.exp(-jnp.maximum(largest, 0))
    return _centred(at, at.weights, jnp.where(largest > 0, missing, 1 - row_sum(at.weights, at.mask)))


@score_gradient.register(Normalised)
def _normalised(activation: Normalised, at: Scored) -> Array:
    positive = isinstance(activation.base, AbstractPositive)
    factor = at.weights * log_slope(activation.base, at.scores) if positive else _over_sum(activation, at)
    return _centred(at, factor, 0.0 if activation.normalised else 1 - row_sum(at.weights, at.mask))


@score_gradient.register(Sparsemax)
def _sparsemax(activation: Sparsemax, at: Scored) -> Array:
    support = at.mask & (at.weights > 0)
    size = jnp.maximum(jnp.sum(support, axis=-1, keepdims=True), 1)
    return jnp.where(support, at.compatibility - row_sum(at.compatibility, support) / size, 0)


@score_gradient.register(Uniform)
def _uniform(activation: Uniform, at: Scored) -> Array:
    return jnp.zeros_like(at.weights)


def _centred(at: Scored, factor: Array, missing: Array | float = 0.0) -> Array:
    return _kept(at, factor, factor * centred(at.weights, at.compatibility, at.mean, at.mask, missing))


def centred(
    weights: Float[Array, "*h T T"],
    compatibility: Float[Array, "*h T T"],
    mean: Float[Array, "*h T 1"],
    mask: Bool[Array, "*#h T T"],
    missing: Float[Array, "*h T 1"] | float = 0.0,
) -> Float[Array, "*h T T"]:
    """Return b - A.b at every entry, to the precision of the differences of b.

    Where one weight is nearly one, b there and A.b are equal up to rounding, and their difference would be noise.

    Args:
        weights: A.
        compatibility: B.
        mean: A.b up to rounding.
        mask: True where an entry takes part.
        missing: 1 - sum A of each row.

    Returns:
        The centred compatibility.
    """
    apart = compatibility - mean
    shift = jnp.sum(jnp.where(mask & (weights != 0), weights * apart, 0), axis=-1, keepdims=True)
    return apart - (shift - missing * mean)


def _kept(at: Scored, factor: Array, gradient: Array) -> Array:
    # At a pole of a signed map the weights are infinite and the gradient is zero by definition.
    return jnp.where(at.mask & (factor != 0), gradient, 0)


def _over_sum(activation: Normalised, at: Scored) -> Array:
    """Return f' / (sum f + floor) of a base without logarithm, scaled as the map itself scales."""
    base, scores = activation.base, jnp.where(at.mask, at.scores, 0)
    homogeneous = isinstance(base, AbstractHomogeneous)
    values = jnp.where(base.map(jnp.sign(scores)) == 0, 0, scores) if homogeneous else base.map(scores)
    limits = jnp.finfo(scores.dtype)
    size = row_maximum(jnp.abs(values), at.mask)
    dead = ~(size >= 16 * limits.tiny)
    size = jnp.where(dead, 1, jnp.minimum(size, limits.max / 16))
    # Of a map of degree n, f' scales with size^(n - 1) and the sum with size^n.
    powers = base.degree if isinstance(base, AbstractHomogeneous) else 1
    values = base.map(scores / size) if homogeneous else values / size
    slopes = slope(base, scores / size if homogeneous else scores)
    floor = rest = parameter(activation.floor, scores)
    for _ in range(powers):
        # A power of the size can vanish, and without the minimum compilers turn (a / b) / c into a / (b c).
        rest = jnp.minimum(rest / size, limits.max)
    total = row_sum(values, at.mask) + rest
    still = (dead & (floor == 0)) | (jnp.abs(total) < 64 * jnp.sqrt(limits.tiny))
    return jnp.where(still, 0, slopes / jnp.where(still, 1, total) / size)


@functools.singledispatch
def slope(base: AbstractElementwise, scores: Float[Array, "*m"]) -> Float[Array, "*m"]:
    """Return f' of an elementwise map; 0 at a kink.

    Args:
        base: the map; one that is not the library's is differentiated in forward mode.
        scores: where.

    Returns:
        The slope at each score.
    """
    return jax.jvp(base.map, (scores,), (jnp.ones_like(scores),))[1]


@slope.register(Linear)
def _(base: Linear, scores: Array) -> Array:
    return jnp.ones_like(scores)


@slope.register(Abs)
def _(base: Abs, scores: Array) -> Array:
    return jnp.sign(scores)


@slope.register(ReLU)
def _(base: ReLU, scores: Array) -> Array:
    return (scores > 0).astype(scores.dtype)


@slope.register(Square)
def _(base: Square, scores: Array) -> Array:
    return 2 * scores


@slope.register(ELU)
def _(base: ELU, scores: Array) -> Array:
    return jnp.exp(_negative_part(scores))


@functools.singledispatch
def log_slope(base: AbstractPositive, scores: Float[Array, "*m"]) -> Float[Array, "*m"]:
    """Return (log f)' of a positive map, finite where f itself underflows.

    Args:
        base: the map; one that is not the library's is differentiated in forward mode.
        scores: where.

    Returns:
        The logarithmic slope at each score.
    """
    return jax.jvp(base.log_map, (scores,), (jnp.ones_like(scores),))[1]


@log_slope.register(Exp)
def _(base: Exp, scores: Array) -> Array:
    return jnp.ones_like(scores)


@log_slope.register(Sigmoid)
def _(base: Sigmoid, scores: Array) -> Array:
    return jax.nn.sigmoid(-(scores + parameter(base.bias, scores)))


@log_slope.register(Softplus)
def _(base: Softplus, scores: Array) -> Array:
    # With x = exp(s), below zero: x / ((1 + x) log(1 + x)), whose factors vanish together.
    x = jnp.exp(_negative_part(scores))
    tiny = x < jnp.finfo(x.dtype).eps
    below = jnp.where(tiny, 1, x) / jnp.log1p(jnp.where(tiny, 1, x)) / (1 + x)
    positive = jnp.where(scores < 0, 0, scores)
    above = jax.nn.sigmoid(positive) / jax.nn.softplus(positive)
    return jnp.where(scores < 0, jnp.where(tiny, 1, below), above)


@log_slope.register(ELU1)
def _(base: ELU1, scores: Array) -> Array:
    return 1 / (1 + jnp.where(scores < 0, 0, scores))


def _negative_part(scores: Array) -> Array:
    return jnp.where(scores < 0, scores, 0)
