"""Quantities that the flow of a head conserves because only products of its matrices matter (derived here).

S depends on W_Q W_K^T and the logits on W_V W_O alone, so W_Q^T dL/dW_Q = (W_K^T dL/dW_K)^T and
W_V^T dL/dW_V = dL/dW_O W_O^T, for any loss of the logits and any map.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from gradflow.errors import FlowError
from gradflow.laws.paths import leaf_rates
from gradflow.laws.routing.state import relative
from gradflow.models import AttentionBlock, AttentionHead, FreeHead, FreeValueHead, MultiHeadAttention

Head = AttentionHead | FreeValueHead | FreeHead | MultiHeadAttention
HEADS = (AttentionHead, FreeValueHead, FreeHead, MultiHeadAttention)


class Pair(NamedTuple):
    """Two arrays of a head that a loss reads only through their product.

    Attributes:
        name: of the invariant.
        left: leaf whose columns are contracted: W_Q, W_V or V.
        right: leaf at the other side: W_K, W_O.
        transposed: whether the product is left right (W_V W_O) instead of left right^T (W_Q W_K^T).
    """

    name: str
    left: str
    right: str
    transposed: bool


def pairs(head: Head) -> list[Pair]:
    """Return the pairs of a head, or refuse what is none."""
    if not isinstance(head, HEADS):
        hint = "; pass its `attention`" if isinstance(head, AttentionBlock) else ""
        raise FlowError(f"head is a {type(head).__name__}: gauges are about the heads of gf.models{hint}")
    found = [] if isinstance(head, FreeHead) else [Pair("query_key", "w_q", "w_k", False)]
    left = "w_v" if isinstance(head, AttentionHead | MultiHeadAttention) else "values"
    return [*found, Pair("value_output", left, "w_o", True)]


def gauge(head: Head, rates: PyTree | None = None) -> dict[str, Float[Array, "*m d d"]]:
    """Return W_Q^T W_Q / r_Q - W_K^T W_K / r_K and W_V^T W_V / r_V - W_O W_O^T / r_O (V^T V for free values).

    The flow of any loss of the logits conserves both, at any map; descent changes them in second order (`gauge_step`).
    A rate times V is therefore nearly the same as that rate times O.

    Args:
        head: a head or stacked heads (leading axes).
        rates: as given to `gf.gradient_flow`; for a descent, its step sizes.

    Returns:
        `query_key` and `value_output`, without the first if the scores are free.
    """
    speeds = _speeds(head, rates)
    return {
        pair.name: _square(head, pair.left, False) / speeds[pair.left]
        - _square(head, pair.right, pair.transposed) / speeds[pair.right]
        for pair in pairs(head)
    }


def gauge_step(
    loss: Callable, head: Head, args: PyTree, step_size: float | Array, rates: PyTree | None = None
) -> dict[str, Float[Array, "*H d d"]]:
    """Return the change of `gauge` under one step of descent, minus eta_Q g_Q^T g_Q - eta_K g_K^T g_K and so on.

    Gradients are by automatic differentiation; the identity is exact at any step size eta, leaf by leaf eta times its
    rate. Condition: a loss of the logits.

    Args:
        loss: `loss(head, args) -> scalar`.
        head: one head.
        args: data of the loss.
        step_size: eta.
        rates: of the leaves.

    Returns:
        Residuals over the size of the terms, by name.
    """
    sizes = {name: step_size * rate for name, rate in _speeds(head, rates).items()}
    slopes = eqx.filter_grad(loss)(head, args)
    found = {}
    for pair in pairs(head):
        change, expected, terms = 0.0, 0.0, []
        for name, sign, turned in ((pair.left, 1, False), (pair.right, -1, pair.transposed)):
            eta, slope = sizes[name], getattr(slopes, name)
            after = _product(getattr(head, name) - eta * slope, turned) / eta
            before = _product(getattr(head, name), turned) / eta
            change += sign * (after - before)
            expected += sign * eta * _product(slope, turned)
            terms += [before, eta * _product(slope, turned)]
        found[pair.name] = relative(change - expected, *terms)
    return found


def _speeds(head: Head, rates: PyTree | None) -> dict[str, Any]:
    names = [name for pair in pairs(head) for name in (pair.left, pair.right)]
    if rates is None:
        return dict.fromkeys(names, 1.0)
    named = leaf_rates(rates, head)
    return {name: named[f".{name}"] for name in names}


def _square(head: Head, name: str, transposed: bool) -> Array:
    return _product(getattr(head, name), transposed)


def _product(matrix: Array, transposed: bool) -> Array:
    matrix = jnp.asarray(matrix)
    with jax.default_matmul_precision("highest"):
        return matrix @ matrix.mT if transposed else matrix.mT @ matrix
