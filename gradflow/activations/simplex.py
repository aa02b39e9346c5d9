"""Smooth maps onto the simplex that work on a whole row: softmax, softmax with a zero logit, uniform."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from gradflow.activations.base import (
    AbstractActivation,
    as_float,
    check_parameter,
    constant,
    parameter,
    row_maximum,
    row_sum,
    uniform,
)

# exp(-10,000) is 0 in every precision. Exponents are cut there, so that no derivative meets 0 * inf.
_EXPONENT_FLOOR = -1e4


class Softmax(AbstractActivation):
    """Softmax, s_i = exp(a_i / T) / sum_j exp(a_j / T).

    Attributes:
        temperature: T > 0. A float is a constant; an array is a leaf that can be traced or trained.
    """

    name: ClassVar[str] = "softmax"
    smooth: ClassVar[bool] = True
    normalised: ClassVar[bool] = True
    temperature: float | Array = eqx.field(default=1.0, converter=constant)

    def __check_init__(self):
        """Refuse a temperature that is not positive."""
        check_parameter("temperature", self.temperature, 0, strict=True)

    def weigh(self, scores: Float[Array, "*m n"], mask: Bool[Array, "*m n"] | None) -> Float[Array, "*m n"]:
        """Return the softmax of each row over its unmasked entries."""
        temperature = parameter(self.temperature, scores)
        gaps = scores - row_maximum(scores, mask)
        exponentials = jnp.exp(jnp.maximum(gaps, _EXPONENT_FLOOR * temperature) / temperature)
        return exponentials / row_sum(exponentials, mask)

    def primitive(self, scores: Shaped[Array, "*m"]) -> Float[Array, "*m"]:
        """Return F(a) = T a, so that sum_i a_i is conserved (law 1)."""
        scores = as_float(scores)
        return parameter(self.temperature, scores) * scores


class Softmax1(AbstractActivation):
    """Softmax with an extra logit fixed at zero, s_i = exp(a_i) / (1 + sum_j exp(a_j)): a row can say "none"."""

    name: ClassVar[str] = "softmax1"
    smooth: ClassVar[bool] = True
    normalised: ClassVar[bool] = False

    def weigh(self, scores: Float[Array, "*m n"], mask: Bool[Array, "*m n"] | None) -> Float[Array, "*m n"]:
        """Return the softmax of each row beside the zero logit."""
        largest = jnp.maximum(row_maximum(scores, mask), 0)
        exponentials = jnp.exp(scores - largest)
        return exponentials / (row_sum(exponentials, mask) + jnp.exp(-largest))

    def primitive(self, scores: Shaped[Array, "*m"]) -> None:
        """Return None: no sum over the scores is conserved, since the weights do not sum to one."""


class Uniform(AbstractActivation):
    """The same weight for every unmasked entry, whatever the scores: the control without attention."""

    name: ClassVar[str] = "uniform"
    smooth: ClassVar[bool] = True
    normalised: ClassVar[bool] = True

    def weigh(self, scores: Float[Array, "*m n"], mask: Bool[Array, "*m n"] | None) -> Float[Array, "*m n"]:
        """Return one over the number of unmasked entries."""
        return uniform(scores, mask)

    def primitive(self, scores: Shaped[Array, "*m"]) -> None:
        """Return None: the scores never move, so there is nothing to conserve."""
