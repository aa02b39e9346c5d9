"""Version 2 of EM: attention itself with U = dL/dG frozen, and the steps of its values.

F(r, V) = sum_ij r_ij u_i . v_j + (1 / beta) sum_i KL(r_i || A_i). Its E step is a tempered routing, whose small-beta
limit is the routing law D = dL/dS; its proximal M step is the responsibility law with r in place of A. Everything holds
for each of several heads, with u_i^h = W_O^h R_i.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gradflow.errors import FlowError, is_traced, shown
from gradflow.laws.em.inside import Inside, autodiff, look, temperature
from gradflow.models import AbstractAttention


def tempered_responsibilities(
    head: AbstractAttention, x: Any, targets: Any, beta: Any, mask: Any = None, where: Any = None
) -> Float[Array, "*H T T"]:
    """Return the E step r_ij = A_ij exp(-beta b_ij) / sum_k A_ik exp(-beta b_ik), the minimum of F over r.

    Args:
        head: one head or several.
        x: inputs; None where everything is free.
        targets: class indices.
        beta: inverse temperature > 0.
        mask: which positions count; None for all.
        where: which positions each row may attend to.

    Returns:
        r, whose rows sum to one; zero rows where a row attends to nothing.

    Raises:
        FlowError: if beta is not above 0.
    """
    _check_beta(beta)
    return _tempered(look(head, x, targets, mask, where), beta)


def surrogate(
    head: AbstractAttention,
    x: Any,
    targets: Any,
    posterior: Float[Array, "*H T T"],
    beta: Any,
    mask: Any = None,
    where: Any = None,
) -> Float[Array, "*H"]:
    """Return F = sum_ij r_ij b_ij + (1 / beta) sum_i KL(r_i || A_i) at the head's values.

    Args:
        head: one head or several.
        x: inputs; None where everything is free.
        targets: class indices.
        posterior: r, zero at masked entries.
        beta: inverse temperature > 0.
        mask: which positions count; None for all.
        where: which positions each row may attend to.

    Returns:
        F of each head.

    Raises:
        FlowError: if beta is not above 0.
    """
    _check_beta(beta)
    inside = look(head, x, targets, mask, where)
    held = posterior > 0
    ratio = jnp.log(jnp.where(held, posterior, 1)) - jnp.log(jnp.where(held, inside.weights, 1))
    terms = jnp.where(held, posterior * (inside.compatibility + ratio / beta), 0)
    return jnp.sum(terms, axis=(-2, -1))


def surrogate_gap(
    head: AbstractAttention,
    x: Any,
    targets: Any,
    beta: Any,
    mask: Any = None,
    where: Any = None,
    posterior: Any = None,
) -> Float[Array, "*H"]:
    """Return F(r) + (1 / beta) sum_i log sum_j A_ij exp(-beta b_ij), zero at the E step.

    Elsewhere it is sum_i KL(r_i || E step) / beta. Condition: weights >= 0.

    Args:
        head: one head or several.
        x: inputs; None where everything is free.
        targets: class indices.
        beta: inverse temperature > 0.
        mask: which positions count; None for all.
        where: which positions each row may attend to.
        posterior: r; None for the E step.

    Returns:
        The gap of each head.

    Raises:
        FlowError: if beta is not above 0.
    """
    _check_beta(beta)
    inside = look(head, x, targets, mask, where)
    if posterior is None:
        posterior = _tempered(inside, beta)
    alive = inside.weights > 0
    exponents = jnp.where(alive, -beta * inside.compatibility, -jnp.inf)
    top = jnp.max(exponents, axis=-1, keepdims=True)
    top = jnp.where(jnp.isfinite(top), top, 0)
    total = jnp.sum(inside.weights * jnp.exp(exponents - top), axis=-1)
    log_total = jnp.where(total > 0, jnp.log(jnp.where(total > 0, total, 1)) + top[..., 0], 0)
    return surrogate(head, x, targets, posterior, beta, mask, where) + jnp.sum(log_total, axis=-1) / beta


def routing_limit(
    head: AbstractAttention, x: Any, targets: Any, beta: Any, mask: Any = None, where: Any = None
) -> Float[Array, "*H T T"]:
    """Return (A - r) / (beta T) - dL/dS, r the E step and dL/dS by autodiff: O(beta), ten times less for a tenth.

    Condition: softmax (temperature T). Written as -A expm1(-beta b - log sum A exp(-beta b)), A - r keeps its digits.

    Args:
        head: one head or several.
        x: inputs; None where everything is free.
        targets: class indices.
        beta: inverse temperature > 0, small against 1 / max |b|.
        mask: which positions count; None for all.
        where: which positions each row may attend to.

    Returns:
        The residual.

    Raises:
        FlowError: if beta is not above 0.
    """
    _check_beta(beta)
    inside = look(head, x, targets, mask, where)
    small = -beta * inside.compatibility
    excess = jnp.sum(inside.weights, axis=-1, keepdims=True) - 1
    excess = 0 if head.activation.normalised else excess
    log_total = jnp.log1p(excess + jnp.sum(inside.weights * jnp.expm1(small), axis=-1, keepdims=True))
    log_total = jnp.where(jnp.any(inside.weights > 0, axis=-1, keepdims=True), log_total, 0)
    fall = -inside.weights * jnp.expm1(small - log_total)
    return fall / (beta * temperature(head, inside)) - autodiff(head, inside)[0]


def proximal_step(
    head: AbstractAttention,
    x: Any,
    targets: Any,
    step_size: Any,
    beta: Any,
    mask: Any = None,
    where: Any = None,
) -> Float[Array, "*H T d_v"]:
    """Return the M step Delta V = -eta r^T U, which minimises F + |Delta V|^2 / (2 eta) at the E step's r.

    As beta goes to 0, r becomes A and the step that of gradient descent on free values, -eta A^T U.

    Args:
        head: one head or several.
        x: inputs; None where everything is free.
        targets: class indices.
        step_size: eta > 0.
        beta: inverse temperature > 0; 0 for r = A, normalised.
        mask: which positions count; None for all.
        where: which positions each row may attend to.

    Returns:
        The change of the values.

    Raises:
        FlowError: if beta is below 0.
    """
    _check_beta(beta, least=0)
    inside = look(head, x, targets, mask, where)
    return -step_size * _tempered(inside, beta).mT @ inside.upstream


def proximal_residual(
    head: AbstractAttention,
    x: Any,
    targets: Any,
    step_size: Any,
    mask: Any = None,
    where: Any = None,
    step: Any = None,
    beta: Any = 0.0,
) -> Float[Array, "*H T d_v"]:
    """Return Delta V / eta + dL/dV, dL/dV by autodiff as if V were free: O(beta).

    At beta = 0 it is zero for every map whose rows sum to one: the responsibility law.

    Args:
        head: one head or several.
        x: inputs; None where everything is free.
        targets: class indices.
        step_size: eta > 0.
        mask: which positions count; None for all.
        where: which positions each row may attend to.
        step: Delta V; None for `proximal_step`.
        beta: of the E step.

    Returns:
        The residual.
    """
    if step is None:
        step = proximal_step(head, x, targets, step_size, beta, mask, where)
    return step / step_size + autodiff(head, look(head, x, targets, mask, where))[1]


def normalised_step(
    head: AbstractAttention, x: Any, targets: Any, step_size: Any, mask: Any = None, where: Any = None
) -> Float[Array, "*H T d_v"]:
    """Return Delta v_j = -(eta / n_j) sum_i A_ij u_i with n_j = sum_i A_ij over positions that count.

    The gradient step preconditioned as EM is (Xu and Jordan 1996): it minimises sum_ij A_ij (u_i . v_j + |Delta v_j|^2
    / (2 eta)), so that a position moves by the mean of what reaches it, however much attends to it.

    Args:
        head: one head or several.
        x: inputs; None where everything is free.
        targets: class indices.
        step_size: eta > 0.
        mask: which positions count; None for all.
        where: which positions each row may attend to.

    Returns:
        The change of the values; 0 where no position that counts attends.
    """
    inside = look(head, x, targets, mask, where)
    received, pull = _received(inside), inside.weights.mT @ inside.upstream
    return -step_size * jnp.where(received > 0, pull / jnp.where(received > 0, received, 1), 0)


def normalised_residual(
    head: AbstractAttention,
    x: Any,
    targets: Any,
    step_size: Any,
    mask: Any = None,
    where: Any = None,
    step: Any = None,
) -> Float[Array, "*H T d_v"]:
    """Return n_j Delta v_j / eta + dL/dv_j, dL/dV by autodiff as if V were free: 0 for the normalised step.

    Condition: weights >= 0.

    Args:
        head: one head or several.
        x: inputs; None where everything is free.
        targets: class indices.
        step_size: eta > 0.
        mask: which positions count; None for all.
        where: which positions each row may attend to.
        step: Delta V; None for `normalised_step`.

    Returns:
        The residual.
    """
    inside = look(head, x, targets, mask, where)
    if step is None:
        step = normalised_step(head, x, targets, step_size, mask, where)
    return _received(inside) * step / step_size + autodiff(head, inside)[1]


def _check_beta(beta: Any, least: float | None = None) -> None:
    """Refuse a concrete inverse temperature that is not above 0, or not at least something."""
    if is_traced(beta):
        return
    try:
        good = bool(np.all(np.asarray(beta) > 0 if least is None else np.asarray(beta) >= least))
    except TypeError:
        good = False
    if not good:
        raise FlowError(f"beta is {shown(beta)}: pass an inverse temperature {'> 0' if least is None else '>= 0'}")


def _received(inside: Inside) -> Float[Array, "*H T 1"]:
    """Return n_j = sum_i A_ij over the positions that count."""
    return jnp.sum(jnp.where(inside.counts[:, None], inside.weights, 0), axis=-2)[..., None]


def _tempered(inside: Inside, beta: Any) -> Float[Array, "*H T T"]:
    """Return A exp(-beta b), normalised; exact where all exponentials underflow."""
    alive = inside.weights > 0
    exponents = jnp.where(alive, -beta * inside.compatibility, -jnp.inf)
    top = jnp.max(exponents, axis=-1, keepdims=True)
    joint = inside.weights * jnp.exp(jnp.where(alive, exponents - jnp.where(jnp.isfinite(top), top, 0), 0))
    joint = jnp.where(alive, joint, 0)
    total = jnp.sum(joint, axis=-1, keepdims=True)
    return joint / jnp.where(total > 0, total, 1)
