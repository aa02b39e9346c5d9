"""All gradients of a head in closed form, and the same by automatic differentiation to hold them against."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from gradflow.laws.routing.state import HeadState, as_counts, as_distribution, head_state, relative


class HeadGradients(NamedTuple):
    """Gradients of the mean cross-entropy; with several heads each has an axis H in front.

    Attributes:
        scores: D = dL/dS.
        queries: dL/dQ = D K / sqrt(d_k); None where the scores are free.
        keys: dL/dK = D^T Q / sqrt(d_k); None where the scores are free.
        values: dL/dV = A^T U, each value taken as free.
        w_q: X^T dL/dQ; None where there is no W_Q.
        w_k: X^T dL/dK; None where there is no W_K.
        w_v: X^T A^T U; None where there is no W_V.
        w_o: G^T R.
        upstream: U = R W_O^T, u_i = dL/dg_i.
        compatibility: B, b_ij = u_i . v_j = dL/dA_ij, also at masked entries.
    """

    scores: Float[Array, "*H T T"]
    queries: Float[Array, "*H T d_k"] | None
    keys: Float[Array, "*H T d_k"] | None
    values: Float[Array, "*H T d_v"]
    w_q: Float[Array, "*H d_in d_k"] | None
    w_k: Float[Array, "*H d_in d_k"] | None
    w_v: Float[Array, "*H d_in d_v"] | None
    w_o: Float[Array, "*H d_v C"]
    upstream: Float[Array, "*H T d_v"]
    compatibility: Float[Array, "*H T T"]


def head_gradients(
    head: Any,
    x: Float[Array, "T d_in"] | None,
    targets: Shaped[Array, "T ..."],
    mask: Bool[Array, " T"] | None = None,
    where: Bool[Array, "T T"] | None = None,
) -> HeadGradients:
    """Return every gradient of a head in closed form, for any map from scores to weights (arXiv 2512.22473, section 3).

    The loss is the cross-entropy of the logits, a mean over the positions that count: `gf.losses.cross_entropy` of one
    sequence. The score laws of the maps are in `gradflow.laws.routing.score_laws`; nothing is differentiated
    automatically but a map of your own. Descent raises a score s_ij where D_ij < 0, for the softmax where
    b_ij < E_{A_i}[b].

    Args:
        head: an `AttentionHead`, `FreeValueHead`, `FreeHead`, `MultiHeadAttention`, or any module with their call,
            `mask`, `activation` and `w_o`.
        x: inputs of one sequence; None where the head reads none. `jax.vmap` maps over several.
        targets: a class (T,), or a distribution over classes (T, C), at each position.
        mask: True at positions whose target counts; None for all.
        where: passed to the head: True at (i, j) where row i may attend to position j.

    Returns:
        The gradients.

    Raises:
        FlowError: if `head` is none, or targets and mask do not fit it.
    """
    return gradients_of(head, x, head_state(head, x, targets, mask, where))


def gradients_of(head: Any, x: Float[Array, "T d_in"] | None, state: HeadState) -> HeadGradients:
    """Return every gradient of a head whose state is known.

    Args:
        head: the head.
        x: its inputs.
        state: of the head there.

    Returns:
        The gradients.
    """
    with jax.default_matmul_precision("highest"):
        values = jnp.swapaxes(state.weights, -1, -2) @ state.upstream
        queries, keys = _of_projections(state)
        inputs = None if x is None else finite_rows(x).T
        w_q, w_k, w_v = (
            inputs @ gradient if inputs is not None and gradient is not None and hasattr(head, name) else None
            for name, gradient in (("w_q", queries), ("w_k", keys), ("w_v", values))
        )
        w_o = jnp.swapaxes(state.outputs, -1, -2) @ state.errors
    return HeadGradients(
        scores=state.score_gradient,
        queries=queries,
        keys=keys,
        values=values,
        w_q=w_q,
        w_k=w_k,
        w_v=w_v,
        w_o=w_o,
        upstream=state.upstream,
        compatibility=state.compatibility,
    )


def _of_projections(state: HeadState) -> tuple[Array | None, Array | None]:
    if state.queries is None or state.keys is None:
        return None, None
    # Scaling the keys and queries is cheaper than scaling D.
    scale = 1 / math.sqrt(max(state.keys.shape[-1], 1))
    routed = state.score_gradient
    return routed @ (state.keys * scale), jnp.swapaxes(routed, -1, -2) @ (state.queries * scale)


def finite_rows(x: Any) -> Float[Array, "T d_in"]:
    """Return inputs as a head reads them: zeros at a position that is not finite."""
    x = jnp.asarray(x)
    return jnp.where(jnp.all(jnp.isfinite(x), axis=-1, keepdims=True), x, 0)


class Inside(NamedTuple):
    """What a loss of a head can be differentiated in; the last three are added to S, A and G.

    Attributes:
        queries: Q.
        keys: K.
        values: V.
        scores: added to S.
        weights: added to A.
        outputs: added to G.
    """

    queries: Array | None
    keys: Array | None
    values: Array
    scores: Array
    weights: Array
    outputs: Array


def loss_inside(head: Any, x: Any, targets: Any, mask: Any = None, where: Any = None) -> tuple[Callable, Inside]:
    """Return the loss of a head as a function of what is inside it, and where the head is.

    Args:
        head: as for `head_gradients`.
        x: as for `head_gradients`.
        targets: as for `head_gradients`.
        mask: as for `head_gradients`.
        where: as for `head_gradients`.

    Returns:
        `loss(inside) -> scalar`, and the point.
    """
    logits, at = head(x, where, capture=True)
    allowed = head.mask(len(logits), where)
    point = Inside(at.queries, at.keys, at.values, *map(jnp.zeros_like, (at.scores, at.weights, at.outputs)))

    def loss(inside: Inside) -> Array:
        scores = at.scores
        if inside.queries is not None and inside.keys is not None:
            scale = math.sqrt(max(inside.keys.shape[-1], 1))
            scores = inside.queries @ jnp.swapaxes(inside.keys, -1, -2) / scale
        weights = head.activation(scores + inside.scores, where=allowed) + inside.weights
        outputs = weights @ inside.values + inside.outputs
        each = outputs @ head.w_o
        return mean_cross_entropy(each.reshape(-1, *logits.shape).sum(0), targets, mask)

    return loss, point


def mean_cross_entropy(logits: Float[Array, "T C"], targets: Any, mask: Any = None) -> Float[Array, ""]:
    """Return the mean cross-entropy over the positions that count, for classes or distributions.

    Args:
        logits: of one sequence.
        targets: as for `head_gradients`.
        mask: as for `head_gradients`.

    Returns:
        The loss in nats.
    """
    counts = as_counts(mask, len(logits))
    rows = as_distribution(targets, logits, counts)
    logs = jax.nn.log_softmax(jnp.where(counts[:, None], logits, 0), axis=-1)
    return -jnp.sum(jnp.where(rows > 0, rows * logs, 0)) / jnp.maximum(jnp.sum(counts), 1)


def autodiff_gradients(
    head: Any,
    x: Float[Array, "T d_in"] | None,
    targets: Shaped[Array, "T ..."],
    mask: Bool[Array, " T"] | None = None,
    where: Bool[Array, "T T"] | None = None,
) -> HeadGradients:
    """Return what `head_gradients` returns, by automatic differentiation of the head and of what is inside it.

    Args:
        head: as for `head_gradients`.
        x: as for `head_gradients`.
        targets: as for `head_gradients`.
        mask: as for `head_gradients`.
        where: as for `head_gradients`.

    Returns:
        The gradients.
    """
    with jax.default_matmul_precision("highest"):
        loss, point = loss_inside(head, x, targets, mask, where)
        inside = jax.grad(loss)(point)
        outer = eqx.filter_grad(lambda head: mean_cross_entropy(head(x, where), targets, mask))(head)
    names = ("w_q", "w_k", "w_v")
    w_q, w_k, w_v = (getattr(outer, name, None) for name in names)
    return HeadGradients(
        scores=inside.scores,
        queries=inside.queries,
        keys=inside.keys,
        values=inside.values,
        w_q=w_q,
        w_k=w_k,
        w_v=w_v,
        w_o=outer.w_o,
        upstream=inside.outputs,
        compatibility=inside.weights,
    )


def gradient_law(
    head: Any,
    x: Float[Array, "T d_in"] | None,
    targets: Shaped[Array, "T ..."],
    mask: Bool[Array, " T"] | None = None,
    where: Bool[Array, "T T"] | None = None,
) -> HeadGradients:
    """Return closed form minus automatic differentiation over the size of its terms, gradient by gradient.

    The terms of D are A b and D itself; those of the others are its products, and A^T U, X^T A^T U and G^T R. Where
    these cancel, as in rows of one sharp weight, automatic differentiation has rounding of their size.

    Its `scores` are the routing law, D = A o (B - E_A[b]) for the softmax, its `values` the responsibility law,
    dL/dV = A^T U, which holds for every map (arXiv 2512.22473, section 3). Condition: no score at a kink of the map.

    Args:
        head: as for `head_gradients`.
        x: as for `head_gradients`.
        targets: as for `head_gradients`.
        mask: as for `head_gradients`.
        where: as for `head_gradients`.

    Returns:
        Relative residuals.
    """
    state = head_state(head, x, targets, mask, where)
    closed, reference = gradients_of(head, x, state), autodiff_gradients(head, x, targets, mask, where)
    sizes = gradients_of(head, None if x is None else jnp.abs(x), _magnitudes(state))
    return jax.tree.map(lambda found, expected, size: relative(found - expected, size), closed, reference, sizes)


def _magnitudes(state: HeadState) -> HeadState:
    """Return a state whose gradients are sums of magnitudes."""
    products = jnp.where(state.mask & (state.weights != 0), state.weights * state.compatibility, 0)
    sizes = jax.tree.map(jnp.abs, eqx.filter(state, eqx.is_inexact_array))
    state = eqx.combine(sizes, state)
    return eqx.tree_at(lambda state: state.score_gradient, state, state.score_gradient + jnp.abs(products))
