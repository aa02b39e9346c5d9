"""Elementwise maps divided by their sum, without underflow or overflow on the way."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Shaped

from gradflow.activations.base import (
    AbstractActivation,
    AbstractElementwise,
    AbstractHomogeneous,
    AbstractPositive,
    check_parameter,
    constant,
    parameter,
    row_maximum,
    row_sum,
    uniform,
)
from gradflow.errors import FlowError


class Normalised(AbstractActivation):
    """s_i = f(a_i) / (sum_j f(a_j) + floor).

    Positive maps are computed from log f, homogeneous ones from scores divided by the largest, so that rows at which
    f itself underflows or overflows come out right. With floor 0, a row at which f is exactly zero everywhere is
    uniform, with zero gradient. A signed map (`Linear`, `ELU`) is singular where f sums to zero: weights are then
    infinite with the sign of f, and their gradient is given as zero.

    Attributes:
        base: the elementwise map f.
        floor: added to the sum, as some papers do; at least 0. A float is a constant; an array is a leaf that can be
            traced or trained.
    """

    prefix: ClassVar[str] = "normalised-"
    base: AbstractElementwise
    floor: float | Array = eqx.field(default=0.0, converter=constant)

    def __check_init__(self):
        """Refuse a base that is not elementwise and a negative floor."""
        if not isinstance(self.base, AbstractElementwise):
            kind = self.base.name if isinstance(self.base, AbstractActivation) else repr(self.base)
            raise FlowError(f"base is {kind}; pass an elementwise activation, for instance Sigmoid()")
        check_parameter("floor", self.floor, 0, strict=False)

    @property
    def name(self) -> str:
        """The base's name after `normalised-`."""
        return self.prefix + self.base.name

    @property
    def smooth(self) -> bool:
        """Whether the base is smooth."""
        return self.base.smooth

    @property
    def normalised(self) -> bool:
        """Whether the floor is the number 0; with any other floor the weights sum to less than one."""
        return isinstance(self.floor, int | float | np.number) and self.floor == 0

    def weigh(self, scores: Float[Array, "*m n"], mask: Bool[Array, "*m n"] | None) -> Float[Array, "*m n"]:
        """Return f over its sum, row by row."""
        if isinstance(self.base, AbstractPositive):
            return self._from_logarithms(self.base.log_map(scores), mask)
        if isinstance(self.base, AbstractHomogeneous):
            contributing = jnp.where(self.base.map(jnp.sign(scores)) == 0, 0, scores)
            size, dead = _size(contributing, mask)
            return self._from_values(self.base.map(scores / size), [size] * self.base.degree, dead, mask)
        values = self.base.map(scores)
        size, dead = _size(values, mask)
        return self._from_values(values / size, [size], dead, mask)

    def primitive(self, scores: Shaped[Array, "*m"]) -> Float[Array, "*m"] | None:
        """Return the base's primitive, F' = f / f', if the floor is the number 0; otherwise None."""
        return self.base.primitive(scores) if self.normalised else None

    def _from_logarithms(self, logs: Float[Array, "*m n"], mask: Bool[Array, "*m n"] | None) -> Float[Array, "*m n"]:
        """Return the weights of log f, the floor as one more entry log(floor)."""
        largest = row_maximum(logs, mask)
        if self.normalised:
            exponentials = jnp.exp(logs - largest)
            return exponentials / row_sum(exponentials, mask)
        floor = parameter(self.floor, logs)
        log_floor = jnp.where(floor > 0, jnp.log(jnp.where(floor > 0, floor, 1)), -jnp.inf)
        largest = jnp.maximum(largest, lax.stop_gradient(log_floor))
        exponentials = jnp.exp(logs - largest)
        return exponentials / (row_sum(exponentials, mask) + jnp.exp(log_floor - largest))

    def _from_values(
        self,
        values: Float[Array, "*m n"],
        sizes: list[Float[Array, "*m 1"]],
        dead: Bool[Array, "*m 1"],
        mask: Bool[Array, "*m n"] | None,
    ) -> Float[Array, "*m n"]:
        """Return the weights of f = values * product(sizes), values near 1 unless the row is dead."""
        floor = parameter(self.floor, values)
        for size in sizes:
            # The product of the sizes can overflow or vanish, and compilers turn (a / b) / c into a / (b c).
            floor = jnp.minimum(floor / size, jnp.finfo(floor.dtype).max)
        total = row_sum(values, mask) + floor
        # Closer to a pole the square of the total underflows, and with it every derivative.
        singular = jnp.abs(total) < 64 * jnp.sqrt(jnp.finfo(values.dtype).tiny)
        quotient = values / jnp.where(singular, 1, total)
        pole = jnp.where(values == 0, 0, jnp.where((values < 0) == (total < 0), jnp.inf, -jnp.inf))
        weights = jnp.where(singular & ~dead, pole, quotient)
        return jnp.where(dead & (floor == 0), uniform(values, mask), weights)


def _size(
    values: Float[Array, "*m n"], mask: Bool[Array, "*m n"] | None
) -> tuple[Float[Array, "*m 1"], Bool[Array, "*m 1"]]:
    """Return the largest magnitude of each row, as a constant to divide by, and which rows are all zero."""
    largest = row_maximum(jnp.abs(values), mask)
    # One over the size must neither overflow nor be flushed to zero: compilers multiply by it instead of dividing.
    limits = jnp.finfo(values.dtype)
    dead = largest < 16 * limits.tiny
    return jnp.where(dead, 1, jnp.minimum(largest, limits.max / 16)), dead
