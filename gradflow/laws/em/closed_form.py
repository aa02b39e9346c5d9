"""The closed-form M step of attention: Boehning's bound of the cross-entropy, minimised over the values.

The Hessian of log-sum-exp is at most I / 2 (Boehning 1992), so that the loss is at most a quadratic in the values, with
the same value and slope. The logits of the positions that count are F W_V W_O with F = A X, or F V W_O with F = A where
values are free; several heads share the curvature, |sum_h z_h|^2 <= H sum_h |z_h|^2 (derived here).
`gf.schedules.closed_form_values` is the same step for `gf.gradient_descent`.
"""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from gradflow.laws.em.inside import Inside, autodiff, cross_entropy, look
from gradflow.models import AbstractAttention, FreeHead, FreeValueHead


def closed_form_step(
    head: AbstractAttention, x: Any, targets: Any, mask: Any = None, where: Any = None
) -> Float[Array, "*H d d_v"]:
    """Return Delta W_V = -(2 / H) F^+ (P - Y) W_O^+, or Delta V where values are free.

    Conditions: any map; W_Q, W_K and W_O as they are. The loss never rises.

    Args:
        head: one head or several.
        x: inputs; None where everything is free.
        targets: class indices.
        mask: which positions count; None for all.
        where: which positions each row may attend to.

    Returns:
        The change of `w_v`, or of `values`.
    """
    inside = look(head, x, targets, mask, where)
    return -2 / _heads(inside) * (jnp.linalg.pinv(_design(head, x, inside)) @ inside.errors @ jnp.linalg.pinv(head.w_o))


def closed_form_increase(
    head: AbstractAttention, x: Any, targets: Any, mask: Any = None, where: Any = None, step: Any = None
) -> Float[Array, ""]:
    """Return by how much a step of the values raises the loss: 0 for the closed-form one.

    Args:
        head: one head or several.
        x: inputs; None where everything is free.
        targets: class indices.
        mask: which positions count; None for all.
        where: which positions each row may attend to.
        step: of `w_v` or `values`; None for `closed_form_step`.

    Returns:
        max(0, L(after) - L(before)) in nats.
    """
    inside = look(head, x, targets, mask, where)
    step = closed_form_step(head, x, targets, mask, where) if step is None else step
    return jnp.maximum(0, _loss_change(head, x, inside, step)[0])


def closed_form_violation(
    head: AbstractAttention,
    x: Any,
    targets: Any,
    step: Any,
    mask: Any = None,
    where: Any = None,
    curvature: float = 0.5,
) -> Float[Array, ""]:
    """Return by how much the loss exceeds L + <dL/dz, z> + (H c / 2N) sum_h |z_h|^2 after a step: 0 at c = 1/2.

    z_h = F_h Delta W_V^h W_O^h is what a step adds to the logits of the positions that count.

    Args:
        head: one head or several.
        x: inputs; None where everything is free.
        targets: class indices.
        step: any change of `w_v` or `values`.
        mask: which positions count; None for all.
        where: which positions each row may attend to.
        curvature: c, bound of the Hessian in the logits; 1/2 is Boehning's.

    Returns:
        max(0, L(after) - bound) in nats.
    """
    inside = look(head, x, targets, mask, where)
    change, moved = _loss_change(head, x, inside, step)
    together = moved if moved.ndim == 2 else jnp.sum(moved, axis=0)
    slope = jnp.sum(inside.errors * together) / inside.count
    bound = slope + _heads(inside) * curvature / (2 * inside.count) * jnp.sum(moved**2)
    return jnp.maximum(0, change - bound)


def closed_form_residual(
    head: AbstractAttention, x: Any, targets: Any, mask: Any = None, where: Any = None
) -> Float[Array, "*H d d_v"]:
    """Return the closed-form step + (2 N / H) (F^T F)^+ dL/dW_V (W_O W_O^T)^+, dL/dW_V by autodiff.

    The step is a gradient preconditioned on both sides. Condition: F and W_O far from singular, or exactly so.

    Args:
        head: one head or several.
        x: inputs; None where everything is free.
        targets: class indices.
        mask: which positions count; None for all.
        where: which positions each row may attend to.

    Returns:
        The residual.
    """
    inside = look(head, x, targets, mask, where)
    design = _design(head, x, inside)
    gradient = autodiff(head, inside)[1]
    gradient = gradient if _is_free(head) else _finite(x).T @ gradient
    left = jnp.linalg.pinv(design.mT @ design, hermitian=True)
    right = jnp.linalg.pinv(head.w_o @ head.w_o.mT, hermitian=True)
    preconditioned = 2 * inside.count / _heads(inside) * (left @ gradient @ right)
    return closed_form_step(head, x, targets, mask, where) + preconditioned


def _is_free(head: AbstractAttention) -> bool:
    return isinstance(head, FreeHead | FreeValueHead)


def _finite(x: Any) -> Float[Array, "T d_in"]:
    """Return the inputs with zeros at positions that are not finite, as the head reads them."""
    x = jnp.asarray(x)
    return jnp.where(jnp.isfinite(x).all(axis=-1, keepdims=True), x, 0)


def _heads(inside: Inside) -> int:
    return inside.weights.shape[0] if inside.weights.ndim == 3 else 1


def _design(head: AbstractAttention, x: Any, inside: Inside) -> Float[Array, "*H T d"]:
    """Return F; rows of positions that do not count are zero."""
    design = inside.weights if _is_free(head) else inside.weights @ _finite(x)
    return jnp.where(inside.counts[:, None], design, 0)


def _loss_change(
    head: AbstractAttention, x: Any, inside: Inside, step: Float[Array, "*H d d_v"]
) -> tuple[Float[Array, ""], Float[Array, "*H T C"]]:
    """Return by how much a step changes the loss, and what each head adds to the logits."""
    moved = _design(head, x, inside) @ step @ head.w_o
    outputs = inside.weights @ inside.values @ head.w_o
    before, added = (z if z.ndim == 2 else jnp.sum(z, axis=0) for z in (outputs, moved))
    change = cross_entropy(before + added, inside) - cross_entropy(before, inside)
    return change, moved
