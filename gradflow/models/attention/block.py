"""A block of a transformer: attention, then an MLP, each with an optional norm before and residual around it."""

from collections.abc import Callable
from typing import Any, Literal, overload

import equinox as eqx
import jax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from gradflow.activations import AbstractActivation
from gradflow.errors import FlowError, unknown, whole_number
from gradflow.models.attention.arguments import as_positions
from gradflow.models.attention.base import AbstractAttention, HeadCapture
from gradflow.models.attention.multi import MultiHeadAttention
from gradflow.models.draws import as_key

_NORMS = {"layer": eqx.nn.LayerNorm, "rms": eqx.nn.RMSNorm}


class AttentionBlock(eqx.Module):
    """X + attention(norm(X)), then X + mlp(norm(X)); norms, MLP and residuals can each be left out.

    Attributes:
        attention: a layer whose logits are as wide as its inputs.
        mlp: maps the vector of one position, such as `eqx.nn.MLP(d, d, 4 * d, 1)`; None for attention alone.
        attention_norm: of the vector of one position, before attention; `eqx.nn.LayerNorm(d)`, `eqx.nn.RMSNorm(d)` or
            None.
        mlp_norm: the same before the MLP.
        residual: whether each part is added to its input instead of replacing it.
    """

    attention: AbstractAttention
    mlp: Callable[[Array], Array] | None = None
    attention_norm: eqx.nn.LayerNorm | eqx.nn.RMSNorm | None = None
    mlp_norm: eqx.nn.LayerNorm | eqx.nn.RMSNorm | None = None
    residual: bool = eqx.field(default=True, static=True)

    def __check_init__(self):
        widths = {"attention's w_o": getattr(getattr(self.attention, "w_o", None), "shape", ())[-1:]}
        widths["attention's w_q"] = getattr(getattr(self.attention, "w_q", None), "shape", ())[-2:-1]
        widths |= {name: getattr(getattr(self, name), "shape", ()) for name in ("attention_norm", "mlp_norm")}
        given = {name: width for name, width in widths.items() if width}
        if len(set(given.values())) > 1:
            sizes = ", ".join(f"{name} {width[0]}" for name, width in given.items())
            raise FlowError(f"widths differ ({sizes}): a block keeps one width from its input to its output")

    @overload
    def __call__(
        self, x: Any, where: Bool[Array, "T T"] | None = None, capture: Literal[False] = False
    ) -> Float[Array, "T d"]: ...

    @overload
    def __call__(
        self, x: Any, where: Bool[Array, "T T"] | None = None, *, capture: Literal[True]
    ) -> tuple[Float[Array, "T d"], HeadCapture]: ...

    def __call__(self, x: Any, where: Bool[Array, "T T"] | None = None, capture: bool = False) -> Any:
        """Apply the block to one sequence; `jax.vmap` maps it over several.

        Args:
            x: one position a row, (T, d).
            where: True at (i, j) where row i may attend to position j; on top of the causal mask.
            capture: whether to return what happened inside the attention as well.

        Returns:
            The new rows (T, d), or the rows and a `HeadCapture`.

        Raises:
            FlowError: if `x` or `where` has the wrong shape or type, or the attention changes the width.
        """
        x = as_positions(x, self.attention.w_o.shape[-1])
        attended, inside = self.attention(_by_row(self.attention_norm, x), where, capture=True)
        x = x + attended if self.residual else attended
        if self.mlp is not None:
            update = _by_row(self.mlp, _by_row(self.mlp_norm, x))
            if update.shape != x.shape:
                raise FlowError(f"mlp turns {x.shape} into {update.shape}: pass one that keeps the width")
            x = x + update if self.residual else update
        return (x, inside) if capture else x

    @classmethod
    def normal(
        cls,
        key: PRNGKeyArray,
        width: int,
        n_heads: int,
        *,
        d_k: int | None = None,
        d_v: int | None = None,
        mlp_width: int | None = None,
        norm: Literal["layer", "rms"] | None = "layer",
        residual: bool = True,
        scale: float = 0.1,
        activation: AbstractActivation | str | None = None,
        causal: bool = True,
    ) -> "AttentionBlock":
        """Draw the attention N(0, scale^2) and the MLP as Equinox does, with one hidden layer of GELUs.

        Args:
            key: random key.
            width: d.
            n_heads: number of heads.
            d_k: width of queries and keys of one head; None is `width // n_heads`, at least 1.
            d_v: width of a value of one head; None is the same.
            mlp_width: width of the hidden layer; None is four times `width`, 0 leaves the MLP out.
            norm: "layer", "rms" or None, before each part.
            residual: whether each part is added to its input.
            scale: standard deviation of the attention's entries.
            activation: map from scores to weights, or its name; None is the softmax.
            causal: whether a row attends to itself and earlier positions only.

        Returns:
            The block, in JAX's default float dtype.

        Raises:
            FlowError: if a size is too small, the norm or the activation is unknown, or the key or the scale cannot be
                used.
        """
        if norm is not None and norm not in _NORMS:
            raise unknown("norm", norm, _NORMS)
        width, n_heads = whole_number("width", width), whole_number("n_heads", n_heads)
        share = max(width // n_heads, 1)
        hidden = 4 * width if mlp_width is None else whole_number("mlp_width", mlp_width, 0)
        attention_key, mlp_key = jax.random.split(as_key(key))
        attention = MultiHeadAttention.normal(
            attention_key,
            n_heads,
            width,
            share if d_k is None else d_k,
            share if d_v is None else d_v,
            width,
            scale=scale,
            activation=activation,
            causal=causal,
        )
        mlp = eqx.nn.MLP(width, width, hidden, 1, activation=jax.nn.gelu, key=mlp_key) if hidden else None
        attention_norm, mlp_norm = (
            _NORMS[norm](width) if norm and part is not None else None for part in (attention, mlp)
        )
        return cls(attention, mlp, attention_norm, mlp_norm, residual)


def _by_row(part: Callable[[Array], Array] | None, x: Float[Array, "T d"]) -> Float[Array, "T d_out"]:
    return x if part is None else jax.vmap(part)(x)
