"""What every attention layer shares: masks, scores, mixing, inputs that are not finite, and what is captured.

Rows are positions. S = Q K^T / sqrt(d_k), A = act(S) over the positions a row may attend to, G = A V, logits = G W_O
(arXiv 2512.22473).
"""

import abc
import math
from typing import Any, Literal, NamedTuple, overload

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from gradflow.activations import AbstractActivation
from gradflow.models.attention.arguments import as_mask


class HeadCapture(NamedTuple):
    """What happened inside a layer; with several heads every array has an axis H in front.

    Attributes:
        scores: S, before masking.
        weights: A; zero at masked entries.
        values: V.
        outputs: G = A V.
        queries: Q; None where the scores are free.
        keys: K; None where the scores are free.
    """

    scores: Float[Array, "*H T T"]
    weights: Float[Array, "*H T T"]
    values: Float[Array, "*H T d_v"]
    outputs: Float[Array, "*H T d_v"]
    queries: Float[Array, "*H T d_k"] | None = None
    keys: Float[Array, "*H T d_k"] | None = None


class AbstractAttention(eqx.Module):
    """A layer that turns positions into logits by attention.

    A new layer implements `read` and `attend`; masks, inputs that are not finite and the output matrix are dealt with
    here, once.

    Attributes:
        w_o: W_O, with an axis of heads in front where there are several.
        activation: the map from scores to weights.
        causal: whether a row attends to itself and earlier positions only.
    """

    w_o: eqx.AbstractVar[Float[Array, "*H d_v C"]]
    activation: eqx.AbstractVar[AbstractActivation]
    causal: eqx.AbstractVar[bool]

    def mask(self, length: int, where: Bool[Array, "T T"] | None = None) -> Bool[Array, "T T"]:
        """Return which positions each row may attend to.

        Args:
            length: T.
            where: a further mask, or None.

        Returns:
            True at (i, j) where row i may attend to position j.

        Raises:
            FlowError: if `where` is no (T, T) mask.
        """
        mask = _mask(length, self.causal, where)
        return jnp.ones((length, length), bool) if mask is None else mask

    @overload
    def __call__(
        self, x: Any = None, where: Bool[Array, "T T"] | None = None, capture: Literal[False] = False
    ) -> Float[Array, "T C"]: ...

    @overload
    def __call__(
        self, x: Any = None, where: Bool[Array, "T T"] | None = None, *, capture: Literal[True]
    ) -> tuple[Float[Array, "T C"], HeadCapture]: ...

    def __call__(self, x: Any = None, where: Bool[Array, "T T"] | None = None, capture: bool = False) -> Any:
        """Apply the layer to one sequence; `jax.vmap` maps it over several.

        A masked entry is never read, and a row without any unmasked entry gives zeros. A position whose input is not
        finite makes NaN of the rows that may attend to it and of its own row; other rows and their gradients are as if
        it held zeros. So padding may hold anything.

        Args:
            x: inputs (T, d_in), one position a row; where all is free, ignored but for T, and optional.
            where: True at (i, j) where row i may attend to position j; on top of the causal mask.
            capture: whether to return what happened inside as well.

        Returns:
            Logits (T, C), or the logits and a `HeadCapture`.

        Raises:
            FlowError: if `x` or `where` has the wrong shape or type.
        """
        x = self.read(x)
        mask = _mask(x.shape[0], self.causal, where)
        finite = jnp.all(jnp.isfinite(x), axis=-1)
        inside = self.attend(jnp.where(finite[:, None], x, 0), mask)
        # Added last, and not selected: a row that counts has a gradient of NaN, and one that does not has none.
        spoilt = jnp.where(_spoilt(~finite, mask)[:, None], jnp.nan, 0.0)
        logits = _combine(inside.outputs, self.w_o) + spoilt
        return (logits, inside._replace(outputs=inside.outputs + spoilt)) if capture else logits

    @abc.abstractmethod
    def read(self, x: Any) -> Float[Array, "T d"]:
        """Return the inputs as floats after checking them; (T, 0) where nothing is read."""

    @abc.abstractmethod
    def attend(self, x: Float[Array, "T d"], mask: Bool[Array, "T T"] | None) -> HeadCapture:
        """Return scores, weights, values and outputs at finite inputs; the mask None lets every row see everything."""


def weigh(
    activation: AbstractActivation,
    queries: Float[Array, "*H T d_k"],
    keys: Float[Array, "*H T d_k"],
    mask: Bool[Array, "T T"] | None,
    bias: Float[Array, "*H T T"] | None = None,
) -> tuple[Float[Array, "*H T T"], Float[Array, "*H T T"]]:
    """Turn queries and keys into scores Q K^T / sqrt(d_k) and weights.

    Args:
        activation: the map.
        queries: Q.
        keys: K.
        mask: True where an entry takes part, None for all.
        bias: added to the scores, None for none.

    Returns:
        Scores before masking, and weights.
    """
    # Queries are smaller than scores: dividing them saves a pass over (T, T).
    scores = (queries / math.sqrt(max(queries.shape[-1], 1))) @ jnp.swapaxes(keys, -1, -2)
    scores = scores if bias is None else scores + bias
    return scores, activation(scores, where=mask)


def _mask(length: int, causal: bool, where: Any) -> Bool[Array, "T T"] | None:
    """Return the mask of a layer, None where every row sees everything."""
    given = None if where is None else as_mask(where, length)
    if not causal:
        return given
    positions = jnp.arange(length)
    earlier = positions[:, None] >= positions
    return earlier if given is None else earlier & given


def _spoilt(bad: Bool[Array, " T"], mask: Bool[Array, "T T"] | None) -> Bool[Array, " T"]:
    """Return which rows read a bad position: as one they attend to, or as their own while they attend to any."""
    if mask is None:
        return jnp.broadcast_to(jnp.any(bad), bad.shape)
    return jnp.any(mask & (bad | bad[:, None]), axis=-1)


def _combine(outputs: Float[Array, "*H T d_v"], w_o: Float[Array, "*H d_v C"]) -> Float[Array, "T C"]:
    """Return G W_O, summed over heads."""
    return outputs @ w_o if w_o.ndim == 2 else jnp.einsum("htv,hvc->tc", outputs, w_o)
