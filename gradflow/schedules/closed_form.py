"""The closed-form M step: the values that minimise Boehning's bound of the loss, with routing as it is."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PyTree

from gradflow.errors import FlowError, shown
from gradflow.models import AttentionHead, FreeHead, FreeValueHead, MultiHeadAttention
from gradflow.types import Batch


def closed_form_values(damping: float = 1.0) -> optax.GradientTransformationExtraArgs:
    """Return the transformation that moves the values of a head to the minimum of Boehning's bound.

    ```python
    m_step = gf.schedules.parameter_groups({"w_v": gf.schedules.closed_form_values()}, default=0.01)
    gf.gradient_descent(gf.losses.cross_entropy, head, m_step, batch, steps=300)
    ```

    Delta W_V = -2 F^+ (P - Y) W_O^+ with F = A X (F = A and V in place of W_V where values are free): the Hessian of
    the cross-entropy in its logits is at most I / 2 (Boehning 1992), so the loss never rises. It is the gradient,
    preconditioned on both sides: -2 N (F^T F)^+ dL/dW_V (W_O W_O^T)^+, N targets that count. With H heads each step is
    divided by H, which keeps the bound (derived here: |sum_h z_h|^2 <= H sum_h |z_h|^2).

    It needs the whole head and the data of the step, which `gradient_descent` hands over as `model` and `args`; the
    head is the model itself, trained by `gf.losses.cross_entropy`. Leaves other than the values stay where they are.
    It follows no flow of the library: its preconditioner changes along the run, and `rates` do not.

    Args:
        damping: factor of the step; the loss never rises for 0 < damping <= 2.

    Returns:
        The transformation. Equal ones share a compiled kernel.

    Raises:
        FlowError: if the damping is out of range; and, when a run starts, if the model is no head or the data no Batch.
    """
    try:
        good = 0 < float(damping) <= 2
    except (TypeError, ValueError):
        good = False
    if not good:
        raise FlowError(f"damping is {shown(damping)}: beyond (0, 2] the loss may rise; 1 is the minimum of the bound")
    update: Any = functools.partial(_update, float(damping))
    return optax.GradientTransformationExtraArgs(_init, update)


def _init(params: PyTree) -> optax.EmptyState:
    del params
    return optax.EmptyState()


def _update(
    damping: float, updates: PyTree, state: optax.EmptyState, params: Any = None, *, model: Any, args: Any, **extra: Any
) -> tuple[PyTree, optax.EmptyState]:
    del params, extra
    name = _values_of(model)
    if not all(hasattr(args, part) for part in ("inputs", "targets", "mask")):
        raise FlowError(f"args is a {type(args).__name__}: closed_form_values needs a Batch(inputs, targets, mask)")
    gradient = getattr(updates, name)
    if not eqx.is_array(gradient):
        raise FlowError(
            f"closed_form_values moves {name!r}, which is frozen or in another group: use it as "
            f"parameter_groups({{{name!r}: closed_form_values()}}, default=...)"
        )
    step = damping * _step(gradient, _design(model, args), model.w_o, jnp.sum(args.mask))
    still = jax.tree.map(jnp.zeros_like, updates)
    return eqx.tree_at(lambda head: getattr(head, name), still, step.astype(gradient.dtype)), state


def _values_of(model: Any) -> str:
    """Return the name of the leaf that holds a head's values."""
    if isinstance(model, AttentionHead | MultiHeadAttention):
        return "w_v"
    if isinstance(model, FreeHead | FreeValueHead):
        return "values"
    raise FlowError(
        f"model is a {type(model).__name__}: closed_form_values needs a head of gf.models as the model itself"
    )


def _design(model: Any, batch: Batch) -> Float[Array, "*H N d"]:
    """Return F, such that the logits of all positions are F W_V W_O; rows of positions that do not count are zero."""

    def of_sequence(x: Float[Array, "T d_in"], mask: Bool[Array, " T"]) -> Float[Array, "*H T d"]:
        weights = model(x, capture=True)[1].weights
        if isinstance(model, AttentionHead | MultiHeadAttention):
            weights = weights @ jnp.where(jnp.isfinite(x).all(axis=-1, keepdims=True), x, 0)
        return jnp.where(mask[:, None], weights, 0)

    rows = jnp.moveaxis(jax.vmap(of_sequence)(batch.inputs, batch.mask), 0, -3)
    return rows.reshape(*rows.shape[:-3], -1, rows.shape[-1])


def _step(
    gradient: Float[Array, "*H d d_v"], design: Float[Array, "*H N d"], w_o: Float[Array, "*H d_v C"], count: Array
) -> Float[Array, "*H d d_v"]:
    """Return -2 N (F^T F)^+ dL/dW_V (W_O W_O^T)^+ / H."""
    heads = gradient.shape[0] if gradient.ndim == 3 else 1
    # F = Q R: (F^T F)^+ = R^+ R^+^T without the square of F's condition number that F^T F has.
    left = jnp.linalg.pinv(jnp.linalg.qr(design, mode="r"))
    right = jnp.linalg.pinv(w_o)
    return -2 * count / heads * (left @ (left.mT @ gradient) @ right.mT @ right)
