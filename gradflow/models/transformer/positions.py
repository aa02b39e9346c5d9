"""How positions reach a transformer: tables that are added or concatenated, rotations, and biases on scores."""

import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

POSITIONS = ("add", "concat", "rotary", "alibi")


class Rotary(eqx.Module):
    """Rotary positions (arXiv 2104.09864): pairs (x_i, x_{i + r/2}) turned by position times theta^(-2i/r).

    Attributes:
        width: r, how many features of a head are turned, even; the rest stay.
        theta: base of the frequencies.
    """

    width: int = eqx.field(static=True)
    theta: float = eqx.field(default=10_000.0, static=True)

    def __call__(self, x: Float[Array, "T H d"]) -> Float[Array, "T H d"]:
        """Turn queries or keys, position by position.

        Args:
            x: of each position and head.

        Returns:
            The same, turned.
        """
        half = self.width // 2
        frequencies = self.theta ** (-jnp.arange(half, dtype=x.dtype) / half)
        angles = jnp.arange(x.shape[0], dtype=x.dtype)[:, None, None] * frequencies
        cosine, sine = jnp.cos(angles), jnp.sin(angles)
        first, second, rest = x[..., :half], x[..., half : self.width], x[..., self.width :]
        turned = (first * cosine - second * sine, second * cosine + first * sine, rest)
        return jnp.concatenate(turned, axis=-1).astype(x.dtype)


def alibi_slopes(heads: int) -> list[float]:
    """Return the slope of each head (arXiv 2108.12409): 2^(-8 h / H), H a power of two; else filled from twice that.

    Args:
        heads: number of heads, H.

    Returns:
        Slopes, one a head.
    """
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (head + 1) / power) for head in range(power)]
    further = [2 ** (-4 * (head + 1) / power) for head in range(0, 2 * power, 2)]
    return slopes + further[: heads - power]


def alibi_bias(heads: int, length: int, dtype: jnp.dtype) -> Float[Array, "H T T"]:
    """Return -slope |i - j|, what is added to the scores.

    Args:
        heads: number of heads.
        length: T.
        dtype: of the scores.

    Returns:
        The bias of each head.
    """
    position = jnp.arange(length, dtype=dtype)
    distance = jnp.abs(position[:, None] - position)
    return -jnp.asarray(alibi_slopes(heads), dtype)[:, None, None] * distance
