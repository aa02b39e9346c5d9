"""The flow at one model: gradients by autodiff, in the letters of the paper."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from gradflow.laws.paths import value_rates
from gradflow.models import ValueSoftmax


class Local(NamedTuple):
    """A value-softmax at one time, and where the flow takes it.

    Attributes:
        values: V.
        scores: a.
        weights: s = act(a).
        gradient: g = grad l(beta), read off from dL/dV = g s^T.
        value_velocity: V' = -r_V dL/dV.
        score_velocity: a' = -r_a dL/da.
        advantage: c = -V^T g, what each value gains; gamma u for one sample.
        rate_values: r_V.
        rate_scores: r_a.
    """

    values: Float[Array, "d n"]
    scores: Float[Array, " n"]
    weights: Float[Array, " n"]
    gradient: Float[Array, " d"]
    value_velocity: Float[Array, "d n"]
    score_velocity: Float[Array, " n"]
    advantage: Float[Array, " n"]
    rate_values: float | Array
    rate_scores: float | Array

    @property
    def speed(self) -> Float[Array, ""]:
        """|g|, the speed of the clock; gamma for one sample of unit norm."""
        return jnp.linalg.norm(self.gradient)

    @property
    def centred(self) -> Float[Array, " n"]:
        """Advantage over the average, c - <s, c>; gamma (u - z) for one sample."""
        return self.advantage - jnp.dot(self.weights, self.advantage, precision="highest")

    def in_clock(self, x: Array) -> Array:
        """Return x / |g|, a change a unit of the clock; 0 where the gradient is 0."""
        return x / jnp.where(self.speed > 0, self.speed, 1)


def local(loss: Callable, model: ValueSoftmax, args: PyTree, rates: PyTree | None = None) -> Local:
    """Differentiate the loss at one model.

    Args:
        loss: a loss that reads the model through beta = model() alone.
        model: one model.
        args: data of the loss.
        rates: as given to `gf.gradient_flow`.

    Returns:
        The flow there.
    """
    with jax.default_matmul_precision("highest"):
        slope = eqx.filter_grad(loss)(model, args)
        rate_values, rate_scores = value_rates(rates, model)
        weights = model.weights
        gradient = slope.values @ weights / jnp.sum(weights**2)
        return Local(
            values=model.values,
            scores=model.scores,
            weights=weights,
            gradient=gradient,
            value_velocity=-rate_values * slope.values,
            score_velocity=-rate_scores * slope.scores,
            advantage=-model.values.T @ gradient,
            rate_values=rate_values,
            rate_scores=rate_scores,
        )


def centring(weights: Float[Array, " n"], x: Float[Array, " n"]) -> Float[Array, " n"]:
    """Return C x with C = diag(s) - s s^T, the Jacobian of the softmax."""
    return weights * (x - jnp.dot(weights, x, precision="highest"))
