"""A head at one sequence: what the forward pass holds and what the loss asks of it, in the letters of the paper.

R = (P - Y) / N, u_i = dL/dg_i, U = R W_O^T, b_ij = u_i . v_j = dL/dA_ij, D = dL/dS (arXiv 2512.22473, section 3).
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from gradflow.activations import AbstractActivation, Exp, Normalised, Softmax
from gradflow.errors import FlowError, is_traced, shown
from gradflow.laws.routing.score_laws import Scored, centred, score_gradient
from gradflow.models import AttentionBlock


class HeadState(eqx.Module):
    """A head at one input and its targets; with several heads arrays have an axis H in front, but for `errors`.

    Attributes:
        activation: the map from scores to weights.
        mask: True where a row may attend.
        scores: S, before masking.
        weights: A.
        values: V.
        outputs: G = A V; zero in rows that do not count, whatever they hold.
        queries: Q, None where the scores are free.
        keys: K, None where the scores are free.
        errors: R = (P - Y) / N; zero in rows that do not count.
        upstream: U.
        compatibility: B, also at masked entries.
        score_gradient: D, zero at masked entries.
    """

    activation: AbstractActivation
    mask: Bool[Array, "T T"]
    scores: Float[Array, "*H T T"]
    weights: Float[Array, "*H T T"]
    values: Float[Array, "*H T d_v"]
    outputs: Float[Array, "*H T d_v"]
    queries: Float[Array, "*H T d_k"] | None
    keys: Float[Array, "*H T d_k"] | None
    errors: Float[Array, "T C"]
    upstream: Float[Array, "*H T d_v"]
    compatibility: Float[Array, "*H T T"]
    score_gradient: Float[Array, "*H T T"]

    @property
    def mean(self) -> Float[Array, "*H T 1"]:
        """u.g, which is the mean of b under the weights of each row wherever these sum to one."""
        return jnp.sum(self.upstream * self.outputs, axis=-1, keepdims=True)

    @property
    def centred(self) -> Float[Array, "*H T T"]:
        """Every b less the mean of its row, E_A[b], of a normalised map; at masked entries as well."""
        return centred(self.weights, self.compatibility, self.mean, self.mask)


def head_state(
    head: Any,
    x: Float[Array, "T d_in"] | None,
    targets: Shaped[Array, "T ..."],
    mask: Bool[Array, " T"] | None = None,
    where: Bool[Array, "T T"] | None = None,
) -> HeadState:
    """Evaluate a head and what its mean cross-entropy asks of it.

    Args:
        head: an `AttentionHead`, `FreeValueHead`, `FreeHead`, `MultiHeadAttention`, or any module with their call,
            `mask`, `activation` and `w_o`.
        x: inputs of one sequence; None where the head reads none. `jax.vmap` maps over several.
        targets: a class (T,), or a distribution over classes (T, C), at each position.
        mask: True at positions whose target counts; None for all. The loss is their mean.
        where: passed to the head: True at (i, j) where row i may attend to position j.

    Returns:
        The state.

    Raises:
        FlowError: if `head` is none, or targets and mask do not fit it.
    """
    _check_head(head)
    with jax.default_matmul_precision("highest"):
        logits, inside = head(x, where, capture=True)
        counts = as_counts(mask, len(logits))
        errors = _errors(logits, as_distribution(targets, logits, counts), counts)
        outputs = jnp.where(counts[:, None], inside.outputs, 0)
        upstream = errors @ jnp.swapaxes(head.w_o, -1, -2)
        compatibility = upstream @ jnp.swapaxes(inside.values, -1, -2)
    allowed = head.mask(len(logits), where)
    mean = jnp.sum(upstream * outputs, axis=-1, keepdims=True)
    gradient = score_gradient(head.activation, Scored(inside.scores, inside.weights, compatibility, mean, allowed))
    return HeadState(
        activation=head.activation,
        mask=allowed,
        scores=inside.scores,
        weights=inside.weights,
        values=inside.values,
        outputs=outputs,
        queries=inside.queries,
        keys=inside.keys,
        errors=errors,
        upstream=upstream,
        compatibility=compatibility,
        score_gradient=gradient,
    )


def as_counts(mask: Any, length: int) -> Bool[Array, " T"]:
    """Return which positions count.

    Args:
        mask: booleans (T,), or None for all.
        length: T.

    Returns:
        The mask.

    Raises:
        FlowError: if it is not boolean, or not (T,).
    """
    if mask is None:
        return jnp.ones(length, bool)
    mask = jnp.asarray(mask)
    if mask.dtype != jnp.bool_ or mask.shape != (length,):
        raise FlowError(
            f"mask has shape {mask.shape} and dtype {mask.dtype}: pass booleans ({length},), True where a target "
            "counts; `where` is the mask of the attention"
        )
    return mask


def as_distribution(targets: Any, logits: Float[Array, "T C"], counts: Bool[Array, " T"]) -> Float[Array, "T C"]:
    """Return targets as distributions over the classes.

    Args:
        targets: classes (T,) or distributions (T, C).
        logits: of the head.
        counts: positions whose target counts; the others are not looked at.

    Returns:
        Y, zero where a target does not count.

    Raises:
        FlowError: if they fit neither shape, or a concrete class or distribution is none.
    """
    targets = jnp.asarray(targets)
    length, classes = logits.shape
    soft = targets.ndim == 2
    kind = jnp.inexact if soft else jnp.integer
    if targets.shape not in ((length,), (length, classes)) or not jnp.issubdtype(targets.dtype, kind):
        raise FlowError(
            f"targets has shape {targets.shape} and dtype {targets.dtype}: pass classes, integers ({length},), or "
            f"distributions, floats ({length}, {classes})"
        )
    if not is_traced((targets, counts)):
        _check_targets(np.asarray(targets), np.asarray(counts), classes)
    rows = targets
    if not soft:
        # A traced class that is none must not pass for a small error.
        hot = jax.nn.one_hot(targets, classes, dtype=logits.dtype)
        rows = jnp.where(is_class(targets, classes)[:, None], hot, jnp.nan)
    return jnp.where(counts[:, None], rows, 0).astype(logits.dtype)


def is_class(targets: Int[Array, " T"], classes: int) -> Bool[Array, " T"]:
    """Return which targets are one of the classes."""
    return (targets >= 0) & (targets < classes)


def _check_targets(targets: np.ndarray, counts: np.ndarray, classes: int) -> None:
    counted = targets[counts]
    if targets.ndim == 2:
        wrong = np.flatnonzero(~(np.abs(counted.sum(-1) - 1) < 1e-3))
        if wrong.size:
            raise FlowError(f"targets has a row that sums to {counted[wrong[0]].sum():g}: distributions sum to 1")
        return
    wrong = counted[(counted < 0) | (counted >= classes)]
    if wrong.size:
        raise FlowError(f"targets holds {wrong[0]} and the head has {classes} classes: pass 0 .. {classes - 1}")


def _check_head(head: Any) -> None:
    missing = next((name for name in ("activation", "w_o", "mask") if not hasattr(head, name)), None)
    if missing is None and callable(head):
        return
    hint = "pass its `attention`" if isinstance(head, AttentionBlock) else "pass gf.models.AttentionHead or the like"
    raise FlowError(f"head is {shown(type(head).__name__)}, which has no {missing!r}: {hint}")


def _errors(logits: Array, distributions: Array, counts: Array) -> Array:
    wide = jnp.where(counts[:, None], logits.astype(jnp.promote_types(logits.dtype, jnp.float32)), 0)
    rest = jnp.where(counts[:, None], jax.nn.softmax(wide, axis=-1) - distributions, 0)
    return (rest / jnp.maximum(jnp.sum(counts), 1)).astype(logits.dtype)


def softmax_temperature(activation: AbstractActivation) -> Any:
    """Return T if the map is a softmax, however it is written, and None otherwise."""
    if isinstance(activation, Softmax):
        return activation.temperature
    exponential = isinstance(activation, Normalised) and isinstance(activation.base, Exp)
    return 1.0 if exponential and activation.normalised else None


def require_softmax(state: HeadState, law: str) -> Any:
    """Return the temperature of a softmax.

    Args:
        state: of a head.
        law: its name, for the message.

    Returns:
        T.

    Raises:
        FlowError: if the map is another one.
    """
    temperature = softmax_temperature(state.activation)
    if temperature is None:
        raise FlowError(f"activation is {state.activation.name!r}: {law} is about the softmax; use Softmax()")
    return temperature


def require_normalised(state: HeadState, law: str) -> None:
    """Refuse a map whose rows of weights do not sum to one.

    Args:
        state: of a head.
        law: its name, for the message.

    Raises:
        FlowError: if they need not.
    """
    if not state.activation.normalised:
        raise FlowError(
            f"activation is {state.activation.name!r}, whose weights do not sum to one: {law} needs a mean over each "
            "row; use a normalised map"
        )


def relative(residual: Float[Array, "..."], *terms: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return a residual over the largest magnitude of the terms that it is the difference of."""
    size = jnp.max(jnp.stack([jnp.max(jnp.abs(term), initial=0) for term in terms]))
    return residual / jnp.where(size > 0, size, 1)
