"""The attention of a transformer: projections with biases, shared key-value heads, positions, gates and any kernel."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from gradflow.activations import AbstractActivation
from gradflow.models.attention.kernels import AbstractKernel
from gradflow.models.attention.maps import Sizes, as_kernel
from gradflow.models.draws import draw_within
from gradflow.models.product import product
from gradflow.models.transformer.positions import Rotary, alibi_bias


class Projection(eqx.Module):
    """A linear map from the width of the model to the features of heads.

    Attributes:
        weight: of each head.
        bias: of each head, or None.
    """

    weight: Float[Array, "d H f"]
    bias: Float[Array, "H f"] | None

    def __call__(self, x: Float[Array, "T d"]) -> Float[Array, "T H f"]:
        """Return the features of each position and head."""
        width, heads, features = self.weight.shape
        y = product(x, self.weight.reshape(width, heads * features)).reshape(x.shape[0], heads, features)
        return y if self.bias is None else y + self.bias

    @classmethod
    def init(cls, key: PRNGKeyArray, width: int, heads: int, features: int, *, biased: bool) -> "Projection":
        """Draw weights and biases uniformly within one over the root of the width."""
        weight_key, bias_key = jax.random.split(key)
        bias = draw_within(bias_key, (heads, features), width) if biased else None
        return cls(draw_within(weight_key, (width, heads, features), width), bias)


class Inside(NamedTuple):
    """What happened inside the attention of one layer.

    Attributes:
        scores: before masking.
        weights: zero where masked.
        queries: after rotation.
        keys: after rotation.
        values: of each key-value head.
        outputs: weights times values, gated; before the output matrix.
    """

    scores: Float[Array, "H T T"]
    weights: Float[Array, "H T T"]
    queries: Float[Array, "H T d_k"]
    keys: Float[Array, "KV T d_k"]
    values: Float[Array, "KV T d_v"]
    outputs: Float[Array, "H T d_v"]


class SelfAttention(eqx.Module):
    """Multi-head attention of a sequence to itself; query heads h g, .., h g + g - 1 share key-value head h.

    Attributes:
        query: into the queries of H heads.
        key: into the keys of KV heads, KV a divisor of H.
        value: into the values of KV heads.
        w_o: from the outputs of the heads to the width of the model.
        b_o: its bias, or None.
        kernel: from queries and keys to weights.
        gate: into one number in (0, 1) for each output of a head, as sigmoid of it (arXiv 2505.06708); None for none.
        rotary: turns queries and keys; None for none.
        alibi: whether -slope |i - j| is added to the scores.
    """

    query: Projection
    key: Projection
    value: Projection
    w_o: Float[Array, "H d_v d"]
    b_o: Float[Array, " d"] | None
    kernel: AbstractKernel
    gate: Projection | None = None
    rotary: Rotary | None = None
    alibi: bool = eqx.field(default=False, static=True)

    def __call__(self, x: Float[Array, "T d"], mask: Bool[Array, "T T"] | None) -> tuple[Float[Array, "T d"], Inside]:
        """Attend.

        Args:
            x: one position a row.
            mask: True at (i, j) where row i may attend to position j; None for everywhere.

        Returns:
            The update of each position, and what happened inside.
        """
        queries, keys, values = self.query(x), self.key(x), self.value(x)
        if self.rotary is not None:
            queries, keys = self.rotary(queries), self.rotary(keys)
        queries, keys, values = (jnp.swapaxes(y, 0, 1) for y in (queries, keys, values))
        heads, group = queries.shape[0], queries.shape[0] // keys.shape[0]
        bias = alibi_bias(heads, x.shape[0], x.dtype) if self.alibi else None
        scores, weights = self.kernel(queries, _shared(keys, group), mask, bias)
        outputs = weights @ _shared(values, group)
        if self.gate is not None:
            outputs = outputs * jax.nn.sigmoid(jnp.swapaxes(self.gate(x), 0, 1))
        merged = jnp.swapaxes(outputs, 0, 1).reshape(x.shape[0], -1)
        update = product(merged, self.w_o.reshape(merged.shape[-1], -1))
        update = update if self.b_o is None else update + self.b_o
        return update, Inside(scores, weights, queries, keys, values, outputs)

    @classmethod
    def init(
        cls,
        key: PRNGKeyArray,
        width: int,
        heads: int,
        kv_heads: int,
        head_width: int,
        *,
        attention: AbstractKernel | AbstractActivation | str | None,
        gated: bool,
        biases: bool,
        rotary: Rotary | None,
        alibi: bool,
    ) -> "SelfAttention":
        """Draw weights and biases uniformly within one over the root of their fan-in; sizes are checked already."""
        keys = jax.random.split(key, 7)

        def into(key: PRNGKeyArray, count: int) -> Projection:
            return Projection.init(key, width, count, head_width, biased=biases)

        return cls(
            query=into(keys[0], heads),
            key=into(keys[1], kv_heads),
            value=into(keys[2], kv_heads),
            w_o=draw_within(keys[3], (heads, head_width, width), heads * head_width),
            b_o=draw_within(keys[4], (width,), heads * head_width) if biases else None,
            kernel=as_kernel(attention, Sizes(keys[5], heads, head_width)),
            gate=into(keys[6], heads) if gated else None,
            rotary=rotary,
            alibi=alibi,
        )


def _shared(x: Float[Array, "KV T f"], group: int) -> Float[Array, "H T f"]:
    return x if group == 1 else jnp.repeat(x, group, axis=0)
