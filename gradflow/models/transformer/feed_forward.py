"""The part of a block that acts on each position alone."""

import abc

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray

from gradflow.models.draws import draw_within
from gradflow.models.product import product


class AbstractFeedForward(eqx.Module):
    """A map of each position alone."""

    @abc.abstractmethod
    def __call__(self, x: Float[Array, "T d"]) -> Float[Array, "T d"]:
        """Return the update of each position."""


class Gelu(AbstractFeedForward):
    """gelu(x W_in + b_in) W_out + b_out.

    Attributes:
        w_in: into the hidden layer.
        b_in: its bias, or None.
        w_out: out of it.
        b_out: its bias, or None.
        approximate: whether the tanh form of GELU is used instead of the exact one.
    """

    w_in: Float[Array, "d hidden"]
    b_in: Float[Array, " hidden"] | None
    w_out: Float[Array, "hidden d"]
    b_out: Float[Array, " d"] | None
    approximate: bool = eqx.field(default=False, static=True)

    def __call__(self, x: Float[Array, "T d"]) -> Float[Array, "T d"]:
        """Return the update of each position."""
        hidden = jax.nn.gelu(_biased(product(x, self.w_in), self.b_in), self.approximate)
        return _biased(product(hidden, self.w_out), self.b_out)

    @classmethod
    def init(cls, key: PRNGKeyArray, width: int, hidden: int, *, biases: bool) -> "Gelu":
        """Draw weights and biases uniformly within one over the root of their fan-in."""
        keys = jax.random.split(key, 4)
        b_in, b_out = (draw_within(keys[1], (hidden,), width), draw_within(keys[3], (width,), hidden))
        w_in, w_out = draw_within(keys[0], (width, hidden), width), draw_within(keys[2], (hidden, width), hidden)
        return cls(w_in, b_in if biases else None, w_out, b_out if biases else None)


class SwiGLU(AbstractFeedForward):
    """(silu(x W_gate) * x W_in) W_out (arXiv 2002.05202), without biases.

    Attributes:
        w_gate: into the gate of the hidden layer.
        w_in: into the hidden layer.
        w_out: out of it.
    """

    w_gate: Float[Array, "d hidden"]
    w_in: Float[Array, "d hidden"]
    w_out: Float[Array, "hidden d"]

    def __call__(self, x: Float[Array, "T d"]) -> Float[Array, "T d"]:
        """Return the update of each position."""
        return product(jax.nn.silu(product(x, self.w_gate)) * product(x, self.w_in), self.w_out)

    @classmethod
    def init(cls, key: PRNGKeyArray, width: int, hidden: int) -> "SwiGLU":
        """Draw weights uniformly within one over the root of their fan-in."""
        keys = jax.random.split(key, 3)
        shapes, fans = ((width, hidden), (width, hidden), (hidden, width)), (width, width, hidden)
        return cls(*map(draw_within, keys, shapes, fans))


def _biased(x: Float[Array, "T f"], bias: Float[Array, " f"] | None) -> Float[Array, "T f"]:
    return x if bias is None else x + bias
