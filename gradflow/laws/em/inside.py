"""What the laws of EM read of a head at its inputs: weights, values, errors, and what they mean for the loss."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from gradflow.activations import Softmax
from gradflow.activations.base import parameter
from gradflow.errors import FlowError, is_traced, shown
from gradflow.laws.routing.state import is_class
from gradflow.models import AbstractAttention


class Inside(NamedTuple):
    """A head at its inputs, with an axis H in front of what each of several heads has for itself.

    Attributes:
        scores: S.
        weights: A.
        values: V.
        errors: P - Y, zero at positions that do not count.
        upstream: U = dL/dG.
        compatibility: B, b_ij = u_i . v_j = dL/dA_ij.
        targets: class index of each position, 0 where it does not count.
        counts: which positions count.
        count: N, how many, at least 1.
        seen: which positions each row may attend to.
    """

    scores: Float[Array, "*H T T"]
    weights: Float[Array, "*H T T"]
    values: Float[Array, "*H T d_v"]
    errors: Float[Array, "T C"]
    upstream: Float[Array, "*H T d_v"]
    compatibility: Float[Array, "*H T T"]
    targets: Int[Array, " T"]
    counts: Bool[Array, " T"]
    count: Float[Array, ""]
    seen: Bool[Array, "T T"]


def look(head: AbstractAttention, x: Any, targets: Any, mask: Any = None, where: Any = None) -> Inside:
    """Evaluate a head and the derivatives of its loss that need no autodiff.

    Args:
        head: any head of `gf.models`.
        x: inputs (T, d_in); None where everything is free.
        targets: class index of each position, (T,).
        mask: which positions count, (T,); None for all.
        where: True at (i, j) where row i may attend to position j, on top of the causal mask.

    Returns:
        What is inside.

    Raises:
        FlowError: if the model is no head, or targets or mask do not fit it.
    """
    if not isinstance(head, AbstractAttention):
        raise FlowError(f"head is a {type(head).__name__}: these laws are about the heads of gf.models")
    logits, inside = head(x, where, capture=True)
    targets, counts = _checked(targets, mask, *logits.shape)
    count = jnp.maximum(jnp.sum(counts), 1).astype(logits.dtype)
    errors = jax.nn.softmax(logits) - jax.nn.one_hot(targets, logits.shape[-1], dtype=logits.dtype)
    # A traced class that is none must not pass for a small error.
    errors = jnp.where(counts[:, None], jnp.where(is_class(targets, logits.shape[-1])[:, None], errors, jnp.nan), 0)
    upstream = (errors / count) @ head.w_o.mT
    compatibility = upstream @ inside.values.mT
    return Inside(
        inside.scores,
        inside.weights,
        inside.values,
        errors,
        upstream,
        compatibility,
        targets,
        counts,
        count,
        head.mask(len(logits), where),
    )


def _checked(targets: Any, mask: Any, length: int, classes: int) -> tuple[Int[Array, " T"], Bool[Array, " T"]]:
    """Return targets and mask after checking them; values are looked at unless they are traced."""
    mask = np.ones(length, bool) if mask is None else mask
    if np.shape(targets) != (length,) or not jnp.issubdtype(jnp.result_type(targets), jnp.integer):
        raise FlowError(
            f"targets is {shown(targets)}: pass whole numbers, one class index for each of the {length} positions"
        )
    if np.shape(mask) != (length,) or jnp.result_type(mask) != jnp.bool_:
        raise FlowError(f"mask is {shown(mask)}: pass {length} booleans, or None for all")
    if not is_traced((targets, mask)):
        wanted = np.asarray(targets)[np.asarray(mask)]
        wrong = wanted[(wanted < 0) | (wanted >= classes)]
        if wrong.size:
            raise FlowError(f"targets holds {wrong[0]} where the head has {classes} classes: pass 0 to {classes - 1}")
    counts = jnp.asarray(mask)
    return jnp.where(counts, jnp.asarray(targets), 0), counts


def temperature(head: AbstractAttention, inside: Inside) -> Any:
    """Return T of a softmax in the dtype of the scores, and 1 of other maps."""
    return parameter(head.activation.temperature, inside.scores) if isinstance(head.activation, Softmax) else 1.0


def autodiff(head: AbstractAttention, inside: Inside) -> tuple[Float[Array, "*H T T"], Float[Array, "*H T d_v"]]:
    """Return dL/dS and dL/dV of the cross-entropy by autodiff, with scores and values as if they were free."""

    def loss(scores: Array, values: Array) -> Float[Array, ""]:
        outputs = head.activation(scores, where=inside.seen) @ values @ head.w_o
        logits = outputs if outputs.ndim == 2 else jnp.sum(outputs, axis=0)
        return cross_entropy(logits, inside)

    return jax.grad(loss, argnums=(0, 1))(inside.scores, inside.values)


def cross_entropy(logits: Float[Array, "T C"], inside: Inside) -> Float[Array, ""]:
    """Return the mean cross-entropy over the positions that count, in nats."""
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), inside.targets[:, None], axis=-1)[:, 0]
    return -jnp.sum(jnp.where(inside.counts, chosen, 0)) / inside.count
