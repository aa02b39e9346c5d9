"""Version 1 of EM: a head that mixes the predictions of its positions, p(y_i) = sum_j A_ij softmax(v_j W_O)[y_i].

A position j is a component with the prototype v_j, A_ij its prior weight at i, and EM is exact. It is another model
than attention, which mixes the values and predicts once.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gradflow import losses
from gradflow.activations import ELU, Linear, Normalised, Softmax
from gradflow.errors import FlowError
from gradflow.laws.em.inside import Inside, look, temperature
from gradflow.laws.routing.state import is_class
from gradflow.models import AbstractAttention, FreeHead
from gradflow.types import Batch


class MixtureGradients(NamedTuple):
    """Gradients of the mixture's loss, times N.

    Attributes:
        scores: by S.
        values: by V.
    """

    scores: Float[Array, "T T"]
    values: Float[Array, "T d_v"]


@losses.checked_tokens
def mixture_loss(head: AbstractAttention, batch: Batch) -> Float[Array, ""]:
    """Return -mean log sum_j A_ij softmax(v_j W_O)[y_i] over the unmasked targets of all sequences, in nats.

    A loss for `gf.gradient_flow` and `gf.gradient_descent`. A row that attends to nothing adds nothing.

    Args:
        head: one head.
        batch: sequences, targets and mask.

    Returns:
        The loss; NaN, and its gradient too, if a target that counts is no class. A run refuses such data at its start.

    Raises:
        FlowError: if there are several heads, or the weights of the map can be negative.
    """

    def surprise(x: Array, targets: Int[Array, " T"], mask: Bool[Array, " T"]) -> Float[Array, ""]:
        inside = _one(head, x, targets, mask)
        return -jnp.sum(_evidence(head, inside))

    total = jnp.sum(jax.vmap(surprise)(batch.inputs, batch.targets, batch.mask))
    return total / jnp.maximum(jnp.sum(batch.mask), 1)


def responsibilities(
    head: AbstractAttention, x: Any, targets: Any, mask: Any = None, where: Any = None
) -> Float[Array, "T T"]:
    """Return the E step r_ij = A_ij p_j(y_i) / sum_k A_ik p_k(y_i), the posterior of component j at position i.

    At a position that does not count there is no evidence, and r = A.

    Args:
        head: one head.
        x: inputs; None where everything is free.
        targets: class indices.
        mask: which positions count; None for all.
        where: which positions each row may attend to.

    Returns:
        r, whose rows sum to one; zero rows where a row attends to nothing.

    Raises:
        FlowError: if there are several heads, or the weights of the map can be negative.
    """
    inside = _one(head, x, targets, mask, where)
    return _posterior(inside.weights, _log_likelihoods(head, inside))


def elbo(
    head: AbstractAttention, x: Any, targets: Any, posterior: Float[Array, "T T"], mask: Any = None, where: Any = None
) -> Float[Array, ""]:
    """Return (1/N) sum_ij r_ij [log A_ij + log p_j(y_i) - log r_ij], at most minus the mixture's loss.

    Args:
        head: one head.
        x: inputs; None where everything is free.
        targets: class indices.
        posterior: r, any rows that sum to one.
        mask: which positions count; None for all.
        where: which positions each row may attend to.

    Returns:
        The bound in nats; -inf where r puts weight on a masked position.
    """
    inside = _one(head, x, targets, mask, where)
    held = (posterior > 0) & inside.counts[:, None]
    log_posterior = jnp.log(jnp.where(held, posterior, 1))
    log_prior = jnp.log(jnp.where(held, inside.weights, 1))
    terms = log_prior + _log_likelihoods(head, inside) - log_posterior
    return jnp.sum(jnp.where(held, posterior * terms, 0)) / inside.count


def elbo_gap(
    head: AbstractAttention, x: Any, targets: Any, mask: Any = None, where: Any = None, posterior: Any = None
) -> Float[Array, ""]:
    """Return (minus the mixture's loss) - ELBO(r), zero at the responsibilities; else KL(r || responsibilities) / N.

    Condition: weights >= 0.

    Args:
        head: one head.
        x: inputs; None where everything is free.
        targets: class indices.
        mask: which positions count; None for all.
        where: which positions each row may attend to.
        posterior: r; None for the responsibilities.

    Returns:
        The gap in nats.
    """
    inside = _one(head, x, targets, mask, where)
    if posterior is None:
        posterior = _posterior(inside.weights, _log_likelihoods(head, inside))
    return jnp.sum(_evidence(head, inside)) / inside.count - elbo(head, x, targets, posterior, mask, where)


def mixture_gradients(
    head: AbstractAttention, x: Any, targets: Any, mask: Any = None, where: Any = None
) -> MixtureGradients:
    """Return N dL/ds_ij = (A_ij - r_ij) / T and N dL/dv_j = sum_i r_ij W_O (p_j - e_{y_i}) of the mixture's loss.

    Condition of the first: softmax (temperature T). The second holds for any weights >= 0.

    Args:
        head: one head.
        x: inputs; None where everything is free.
        targets: class indices.
        mask: which positions count; None for all.
        where: which positions each row may attend to.

    Returns:
        Both in closed form.
    """
    inside = _one(head, x, targets, mask, where)
    posterior = _posterior(inside.weights, _log_likelihoods(head, inside))
    return MixtureGradients(
        (inside.weights - posterior) / temperature(head, inside),
        _prototype_errors(head, inside, posterior) @ head.w_o.T,
    )


def mixture_residual(
    head: AbstractAttention, x: Any, targets: Any, mask: Any = None, where: Any = None
) -> MixtureGradients:
    """Return `mixture_gradients` minus autodiff of the mixture's loss.

    Condition: softmax; with another map the scores miss.

    Args:
        head: one head.
        x: inputs; None where everything is free.
        targets: class indices.
        mask: which positions count; None for all.
        where: which positions each row may attend to.

    Returns:
        The residuals.
    """
    inside = _one(head, x, targets, mask, where)

    def loss(scores: Array, values: Array) -> Float[Array, ""]:
        weights = head.activation(scores, where=inside.seen)
        return -jnp.sum(_evidence(head, inside._replace(weights=weights, values=values)))

    closed = mixture_gradients(head, x, targets, mask, where)
    exact = jax.grad(loss, argnums=(0, 1))(inside.scores, inside.values)
    return MixtureGradients(closed.scores - exact[0], closed.values - exact[1])


def em_step(
    head: FreeHead, targets: Any, mask: Any = None, where: Any = None, posterior: Float[Array, "T T"] | None = None
) -> FreeHead:
    """Return the head after one step of EM on the mixture: A becomes r, each v_j minimises Boehning's bound.

    Delta v_j = -(2 / n_j) sum_i r_ij (p_j - e_{y_i}) W_O^+ with n_j = sum_i r_ij over positions that count: the closed
    form of the M step, which no logit can make rise. Components without responsibility stay.

    Args:
        head: free scores and values.
        targets: class indices.
        mask: which positions count; None for all.
        where: which positions each row may attend to.
        posterior: r; None for the responsibilities. With A itself there is no evidence in it, and no guarantee.

    Returns:
        The head, with W_O as it was.

    Raises:
        FlowError: if the head is another one, or its map no softmax.
    """
    if not isinstance(head, FreeHead) or not isinstance(head.activation, Softmax):
        raise FlowError(
            "head must be a gf.models.FreeHead with the softmax: EM sets its weights and values by themselves"
        )
    inside = _one(head, None, targets, mask, where)
    shift = _log_likelihoods(head, inside)
    if posterior is None:
        posterior = _posterior(inside.weights, shift)
    else:
        both = (posterior > 0) & (inside.weights > 0)
        shift = jnp.log(jnp.where(both, posterior, 1)) - jnp.log(jnp.where(both, inside.weights, 1))
    shift = jnp.where(inside.seen, shift - jnp.max(shift, axis=-1, keepdims=True, where=inside.seen, initial=-1e30), 0)
    scores = head.scores + temperature(head, inside) * shift  # the largest shift is 0, so that scores do not drift
    held = jnp.sum(jnp.where(inside.counts[:, None], posterior, 0), axis=0)[:, None]
    moved = _prototype_errors(head, inside, posterior) @ jnp.linalg.pinv(head.w_o)
    values = head.values - jnp.where(held > 0, 2 * moved / jnp.where(held > 0, held, 1), 0)
    return eqx.tree_at(lambda h: (h.scores, h.values), head, (scores, values))


def em_increase(
    head: FreeHead, targets: Any, mask: Any = None, where: Any = None, posterior: Float[Array, "T T"] | None = None
) -> Float[Array, ""]:
    """Return by how much one step of EM raises the mixture's loss: 0, since EM is monotone.

    Args:
        head: free scores and values, softmax.
        targets: class indices.
        mask: which positions count; None for all.
        where: which positions each row may attend to.
        posterior: as in `em_step`.

    Returns:
        max(0, L(after) - L(before)) in nats.
    """
    after = em_step(head, targets, mask, where, posterior)
    before, after = (_one(h, None, targets, mask, where) for h in (head, after))
    fall = jnp.sum(_evidence(head, after)) - jnp.sum(_evidence(head, before))
    return jnp.maximum(0, -fall / before.count)


def _one(head: AbstractAttention, x: Any, targets: Any, mask: Any = None, where: Any = None) -> Inside:
    """Look at a head that is alone: several would need a component for each choice of positions."""
    inside = look(head, x, targets, mask, where)
    if inside.weights.ndim > 2:
        raise FlowError(
            f"head is a {type(head).__name__} of several heads: the mixture is about one; take head.head(h)"
        )
    base = head.activation.base if isinstance(head.activation, Normalised) else head.activation
    if isinstance(base, Linear | ELU):
        raise FlowError(f"activation is {head.activation.name!r}, whose weights can be negative: pass one that is >= 0")
    return inside


def _log_likelihoods(head: AbstractAttention, inside: Inside) -> Float[Array, "T T"]:
    """Return log p_j(y_i) at (i, j), 0 in rows of positions that do not count."""
    log_p = jax.nn.log_softmax(inside.values @ head.w_o)
    # Multiplied, not selected, and at an index that is there, so that the gradient is NaN as well.
    chosen = log_p.T[jnp.clip(inside.targets, 0, log_p.shape[-1] - 1)]
    known = chosen * jnp.where(is_class(inside.targets, log_p.shape[-1])[:, None], 1.0, jnp.nan)
    return jnp.where(inside.counts[:, None], known, 0)


def _evidence(head: AbstractAttention, inside: Inside) -> Float[Array, " T"]:
    """Return log p(y_i), 0 at positions that do not count or attend to nothing."""
    here = inside.counts & jnp.any(inside.weights != 0, axis=-1)
    weights = jnp.where(here[:, None], inside.weights, 1)
    return jnp.where(here, jax.nn.logsumexp(_log_likelihoods(head, inside), b=weights, axis=-1), 0)


def _posterior(weights: Float[Array, "T T"], log_likelihoods: Float[Array, "T T"]) -> Float[Array, "T T"]:
    """Return A p / sum A p, exact where all likelihoods underflow."""
    alive = weights > 0
    largest = jnp.max(jnp.where(alive, log_likelihoods, -jnp.inf), axis=-1, keepdims=True)
    largest = jnp.where(jnp.isfinite(largest), largest, 0)
    joint = jnp.where(alive, weights * jnp.exp(jnp.where(alive, log_likelihoods - largest, 0)), 0)
    total = jnp.sum(joint, axis=-1, keepdims=True)
    return joint / jnp.where(total > 0, total, 1)


def _prototype_errors(head: AbstractAttention, inside: Inside, posterior: Float[Array, "T T"]) -> Float[Array, "T C"]:
    """Return sum_i r_ij (p_j - e_{y_i}) over positions that count, for each j."""
    held = jnp.where(inside.counts[:, None], posterior, 0)
    predicted = jax.nn.softmax(inside.values @ head.w_o)
    targets = jax.nn.one_hot(inside.targets, predicted.shape[-1], dtype=predicted.dtype)
    return jnp.sum(held, axis=0)[:, None] * predicted - held.T @ targets
