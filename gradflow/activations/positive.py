"""Positive elementwise maps: exp, sigmoid, softplus; ELU + 1 is in `elu`."""

import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import spence
from jaxtyping import Array, Float, Shaped

from gradflow.activations.base import AbstractPositive, as_float, check_parameter, constant, parameter


class Exp(AbstractPositive):
    """f(a) = exp(a), softmax without the normalisation. It overflows to infinity, as exp does."""

    name: ClassVar[str] = "exp"
    smooth: ClassVar[bool] = True

    def map(self, scores: Float[Array, "*m"]) -> Float[Array, "*m"]:
        """Return exp(a)."""
        return jnp.exp(scores)

    def log_map(self, scores: Float[Array, "*m"]) -> Float[Array, "*m"]:
        """Return a."""
        return scores

    def primitive(self, scores: Shaped[Array, "*m"]) -> Float[Array, "*m"]:
        """Return F(a) = a."""
        return as_float(scores)


class Sigmoid(AbstractPositive):
    """f(a) = 1 / (1 + exp(-(a + bias))).

    Attributes:
        bias: added to each score, for instance -log n (sigmoid attention). A float is a constant; an array is a leaf
            that can be traced or trained.
    """

    name: ClassVar[str] = "sigmoid"
    smooth: ClassVar[bool] = True
    bias: float | Array = eqx.field(default=0.0, converter=constant)

    def __check_init__(self):
        """Refuse a bias that is not a finite number."""
        check_parameter("bias", self.bias, -math.inf, strict=False)

    def map(self, scores: Float[Array, "*m"]) -> Float[Array, "*m"]:
        """Return the logistic function of a + bias."""
        return jax.nn.sigmoid(scores + parameter(self.bias, scores))

    def log_map(self, scores: Float[Array, "*m"]) -> Float[Array, "*m"]:
        """Return -log(1 + exp(-(a + bias)))."""
        return jax.nn.log_sigmoid(scores + parameter(self.bias, scores))

    def primitive(self, scores: Shaped[Array, "*m"]) -> Float[Array, "*m"]:
        """Return F(a) = a + exp(a + bias)."""
        scores = as_float(scores)
        return scores + jnp.exp(scores + parameter(self.bias, scores))


class Softplus(AbstractPositive):
    """f(a) = log(1 + exp(a))."""

    name: ClassVar[str] = "softplus"
    smooth: ClassVar[bool] = True

    def map(self, scores: Float[Array, "*m"]) -> Float[Array, "*m"]:
        """Return log(1 + exp(a))."""
        return jax.nn.softplus(scores)

    def log_map(self, scores: Float[Array, "*m"]) -> Float[Array, "*m"]:
        """Return log log(1 + exp(a)), by its series a - x/2 + 5 x^2/24 in x = exp(a) below a = -15."""
        far = scores < -15
        tail = jnp.where(far, scores, -15)
        x = jnp.exp(tail)
        return jnp.where(far, tail - x / 2 + 5 * x**2 / 24, jnp.log(jax.nn.softplus(jnp.where(far, 0, scores))))

    def primitive(self, scores: Shaped[Array, "*m"]) -> Float[Array, "*m"]:
        """Return F(a) = int_0^a log(1 + e^x) (1 + e^-x) dx, through the dilogarithm."""
        scores = as_float(scores)
        wide = scores.astype(jnp.promote_types(scores.dtype, jnp.float32))  # spence knows two precisions
        return _softplus_primitive(wide).astype(scores.dtype)


@jax.custom_jvp
def _softplus_primitive(scores: Float[Array, "*m"]) -> Float[Array, "*m"]:
    # Integration by parts: F = -Li2(-e^a) - e^-a log(1 + e^a) + a - log(1 + e^a) + constant. For a > 0 the inversion
    # formula of the dilogarithm keeps its argument in [-1, 0].
    constant = 2 * math.log(2) - math.pi**2 / 12
    magnitude = jnp.abs(scores)
    x = jnp.exp(-magnitude)
    log1p, dilogarithm = jnp.log1p(x), spence(1 + x)  # spence(1 + x) = Li2(-x)
    below = -dilogarithm - _log1p_ratio(x) + scores - log1p
    # a * a / 2 overflows late, and the terms with x * a vanish long before.
    above = math.pi**2 / 6 + magnitude * (magnitude / 2) + dilogarithm - x * (magnitude + log1p) - log1p
    return constant + jnp.where(scores < 0, below, above)


@_softplus_primitive.defjvp
def _softplus_primitive_jvp(primals, tangents):
    (scores,), (tangent,) = primals, tangents
    negative = jnp.where(scores < 0, scores, 0)
    positive = jnp.where(scores < 0, 0, scores)
    x = jnp.exp(negative)
    slope = jnp.where(scores < 0, _log1p_ratio(x) * (1 + x), jax.nn.softplus(positive) * (1 + jnp.exp(-positive)))
    return _softplus_primitive(scores), slope * tangent


def _log1p_ratio(x: Float[Array, "*m"]) -> Float[Array, "*m"]:
    """Return log(1 + x) / x for x >= 0, also at 0."""
    small = x < jnp.finfo(x.dtype).eps
    divisor = jnp.where(small, 1, x)
    return jnp.where(small, 1 - x / 2, jnp.log1p(divisor) / divisor)
