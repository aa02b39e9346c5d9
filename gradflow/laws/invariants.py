"""Quantities that a gradient flow conserves because of the model's structure, whatever the loss (derived here)."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from gradflow.activations import AbstractActivation, Softmax, Sparsemax
from gradflow.errors import FlowError
from gradflow.laws.paths import leaf_rates, softmax_temperature, value_rates
from gradflow.laws.routing.gauge import HEADS, Head, gauge, pairs
from gradflow.models import DeepLinear, FreeHead, TiedSoftmax, ValueSoftmax
from gradflow.types import Batch


def conserved(model: PyTree, args: PyTree = None, rates: PyTree | None = None) -> dict[str, Array]:
    """Return every quantity that the flow of any loss of `model()` on `args` conserves, at this model.

    All array leaves are taken to move. Stacked models (leading axes) give stacked invariants. What applies:

    - `ValueSoftmax`: `score_sum` (softmax: sum_i a_i, law 1); `primitive_sum` (other normalised maps: sum_i F(a_i), law
      3); `value_primitive` (unnormalised maps: |v_i|^2 / (2 r_V) - F(a_i) / r_a for each i, law 3); `hyperbolic`
      (softmax, n = 2, law 2); `column_sums` (KL, law 20); `values_outside_data` (fewer samples than dimensions, V_perp
      of law 4).
    - `TiedSoftmax`: `column_sums` of U (KL and a normalised map); none otherwise.
    - `DeepLinear`: `balance_l` for l = 1 .. L - 1, W_l W_l^T / r_l - W_{l+1}^T W_{l+1} / r_{l+1}, and
      `matrix_outside_data` (W_1 beyond the span of the data).
    - attention layers (`AttentionHead`, `FreeValueHead`, `FreeHead`, `MultiHeadAttention`): `query_key`,
      W_Q^T W_Q / r_Q - W_K^T W_K / r_K, and `value_output`, W_V^T W_V / r_V - W_O W_O^T / r_O (V^T V for free values);
      `output_row_sums` of W_O (cross-entropy on a `Batch`); of free scores `score_row_sums` (softmax, sparsemax: sum_j
      s_ij) or `score_row_primitives` (other normalised maps: sum_j F(s_ij)).
    - any other model: nothing is known, the dictionary is empty.

    Args:
        model: the model.
        args: data of the loss: samples `Data(x, y)` mean a loss of the predictions X beta; a vector (d,) means
            `gf.losses.kl`, a `Batch` `gf.losses.cross_entropy`; None means that nothing is known about the loss.
        rates: as given to `gf.gradient_flow`.

    Returns:
        Arrays by name.
    """
    if isinstance(model, ValueSoftmax):
        return _of_value_softmax(model, args, rates)
    if isinstance(model, TiedSoftmax) and model.activation.normalised and _is_distribution(args):
        return {"column_sums": column_sums(model.values)}
    if isinstance(model, DeepLinear):
        return _of_deep_linear(model, args, rates)
    if isinstance(model, HEADS):
        return _of_head(model, args, rates)
    return {}


def _of_value_softmax(model: ValueSoftmax, args: PyTree, rates: PyTree | None) -> dict[str, Array]:
    found = {}
    if isinstance(model.activation, Softmax):
        found["score_sum"] = jnp.sum(model.scores, axis=-1)
        if model.scores.shape[-1] == 2 and not _moves(model.activation):
            found["hyperbolic"] = hyperbolic(model, rates)
    elif has_primitive(model.activation):
        name = "primitive_sum" if model.activation.normalised else "value_primitive"
        found[name] = primitive(model, rates)
    if _is_distribution(args):
        found["column_sums"] = column_sums(model.values)
    outside = outside_data(args)
    if outside is not None:
        found["values_outside_data"] = jnp.matmul(outside, model.values, precision="highest")
    return found


def _of_deep_linear(model: DeepLinear, args: PyTree, rates: PyTree | None) -> dict[str, Array]:
    found = {f"balance_{i + 1}": x for i, x in enumerate(balances(model, rates))}
    outside = outside_data(args)
    if outside is not None:
        found["matrix_outside_data"] = jnp.matmul(model.matrices[0], outside, precision="highest")
    return found


def _of_head(head: Head, args: PyTree, rates: PyTree | None) -> dict[str, Array]:
    found: dict[str, Array] = dict(gauge(head, rates))
    if isinstance(args, Batch):
        found["output_row_sums"] = jnp.sum(jnp.asarray(head.w_o), axis=-1)
    if not isinstance(head, FreeHead) or not head.activation.normalised:
        return found
    # Masked scores do not move, whatever they hold.
    scores = jnp.where(head.mask(head.scores.shape[-1]), head.scores, 0)
    if isinstance(head.activation, Softmax | Sparsemax):
        found["score_row_sums"] = jnp.sum(scores, axis=-1)
    elif has_primitive(head.activation):
        found["score_row_primitives"] = jnp.sum(jnp.asarray(head.activation.primitive(scores)), axis=-1)
    return found


def has_primitive(activation: AbstractActivation) -> bool:
    """Return whether a map has a conserved primitive F; a map whose own parameters move has none."""
    return activation.primitive(jnp.ones(1)) is not None and not _moves(activation)


def primitive(model: ValueSoftmax, rates: PyTree | None = None) -> Float[Array, "..."]:
    """Return sum_i F(a_i) (...) of a normalised map, or |v_i|^2 / (2 r_V) - F(a_i) / r_a (..., n) of another (law 3).

    Args:
        model: a model whose map has a primitive, or stacked models.
        rates: as given to `gf.gradient_flow`.

    Returns:
        The invariants.

    Raises:
        FlowError: if the map has no primitive.
    """
    each = model.activation.primitive(model.scores) if has_primitive(model.activation) else None
    if each is None:
        raise FlowError(f"path has the activation {model.activation.name!r}, which has no conserved primitive F")
    if model.activation.normalised:
        return jnp.sum(each, axis=-1)
    rate_values, rate_scores = value_rates(rates, model)
    return jnp.sum(model.values**2, axis=-2) / (2 * rate_values) - each / rate_scores


def hyperbolic(model: ValueSoftmax, rates: PyTree | None = None) -> Float[Array, "..."]:
    """Return K = |v_1 - v_2|^2 / (2 r_V) - T^2 cosh((a_1 - a_2) / T) / r_a of a softmax over two values (law 2)."""
    rate_values, rate_scores = value_rates(rates, model)
    apart = model.values[..., 0] - model.values[..., 1]
    gap = model.scores[..., 0] - model.scores[..., 1]
    temperature = softmax_temperature(model)
    return jnp.sum(apart**2, axis=-1) / (2 * rate_values) - temperature**2 * jnp.cosh(gap / temperature) / rate_scores


def balances(model: DeepLinear, rates: PyTree | None = None) -> list[Float[Array, "..."]]:
    """Return W_l W_l^T / r_l - W_{l+1}^T W_{l+1} / r_{l+1} for each pair of neighbouring layers."""
    scale = [1.0] * len(model.matrices) if rates is None else list(leaf_rates(rates, model).values())

    def square(left: Array, right: Array) -> Array:
        return jnp.matmul(left, right, precision="highest")

    pairs = zip(model.matrices, model.matrices[1:], scale, scale[1:], strict=False)
    return [square(w, w.mT) / r - square(v.mT, v) / q for w, v, r, q in pairs]


def column_sums(values: Float[Array, "... d n"]) -> Float[Array, "... n"]:
    """Return the sum of each column, which softmax(V s) + a KL or cross-entropy loss cannot change (law 20)."""
    return jnp.sum(values, axis=-2)


def outside_data(args: PyTree) -> Float[Array, "d d"] | None:
    """Return the projection onto what no sample reaches, or None if the samples span the space or are unknown.

    The gradient of a loss of X beta lies in the span of the rows of X, so (I - P) V is conserved.
    """
    x = getattr(args, "x", None)
    if x is None or x.ndim != 2 or x.shape[0] >= x.shape[1]:
        return None
    basis = jnp.linalg.qr(x.T)[0]
    return jnp.eye(x.shape[1], dtype=x.dtype) - jnp.matmul(basis, basis.T, precision="highest")


def _is_distribution(args: PyTree) -> bool:
    return getattr(args, "ndim", None) == 1


def _moves(activation: AbstractActivation) -> bool:
    return any(map(eqx.is_inexact_array, jax.tree.leaves(activation)))


def conserved_drift(models: PyTree, args: PyTree = None, rates: PyTree | None = None) -> dict[str, Array]:
    """Return how far each conserved quantity is from its first row.

    Args:
        models: stacked along axis 0, (T, ...).
        args: as for `conserved`.
        rates: as for `conserved`.

    Returns:
        Drifts by name, (T, ...).
    """
    return {name: x - x[:1] for name, x in conserved(models, args, rates).items()}


def _matrices(head: Head) -> list[Array]:
    return [jnp.asarray(getattr(head, name)) for pair in pairs(head) for name in (pair.left, pair.right)]


def relative_size(models: Any, name: str) -> Float[Array, ""]:
    """Return the size of the terms whose difference an invariant is, the scale of its rounding."""
    if name == "hyperbolic":
        return jnp.max(jnp.cosh((models.scores[..., 0] - models.scores[..., 1]) / softmax_temperature(models)))
    if name in ("primitive_sum", "value_primitive"):
        return jnp.max(jnp.abs(models.activation.primitive(models.scores)))
    if name == "score_row_primitives":
        return jnp.max(jnp.abs(models.activation.primitive(models.scores)))
    if name in ("query_key", "value_output"):
        return jnp.max(jnp.stack([jnp.max(jnp.sum(x**2, axis=(-2, -1))) for x in _matrices(models)]))
    return jnp.max(jnp.stack([jnp.max(jnp.abs(x)) for x in jax.tree.leaves(models) if eqx.is_inexact_array(x)]))
