"""The part of an audit that is about attention: laws of `gf.laws.routing` at the saved models of a run."""

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gradflow.laws import routing
from gradflow.laws.conditions import Run
from gradflow.laws.paths import at_rows
from gradflow.laws.routing.gauge import HEADS
from gradflow.laws.routing.state import softmax_temperature
from gradflow.laws.table import Row, Skipped
from gradflow.types import Batch

# A law that fails does so at any model; more rows cost time at long sequences and show nothing new.
MOST_ROWS = 16
STATEMENTS = {
    "routing": "routing: dL/ds_ij is the score law of the map, D = A (b - E[b]) for the softmax",
    "responsibility": "responsibility: dL/dV = A^T U",
    "matrices": "dL/dQ, dL/dK and dL/dW follow from D, U and R",
    "mean": "sum_j A_ij b_ij = u_i.g_i",
    "rows": "rows: sum_j D_ij / (log f)' = 0, or its share of u.g",
    "variance": "sum_j D_ij b_ij = Var(b) under the row's weights / T",
    "freezing": "freezing: |D_i|_1 <= 2 (1 - A_max) max_j |b_ij - b_ij*| / T",
}
SOFTMAX_ONLY = ("variance", "freezing")


def attention(run: Run) -> Iterator[Row | Skipped]:
    """Yield the laws of an attention layer under the cross-entropy, at up to 16 of the saved models."""
    if not run.is_batch:
        yield Skipped("-", "laws of attention at each model", "the loss is not cross_entropy on a Batch")
        return
    kept = np.unique(np.linspace(0, len(run.ts) - 1, MOST_ROWS).round().astype(int))
    found = residuals(at_rows(run.models, kept), run.args)
    for name, statement in STATEMENTS.items():
        if name in found:
            yield Row("-", statement, float(np.max(np.asarray(found[name], np.float64))), run.tolerances.pointwise)
        else:
            why = (
                f"the map is {run.models.activation.name}" if name in SOFTMAX_ONLY else "the map is not of the library"
            )
            yield Skipped("-", statement, why)


def block(run: Run) -> Iterator[Skipped]:
    """Say how to check the attention inside a block, whose input and loss are not those of the run."""
    del run
    yield Skipped("-", "laws of attention at each model", "the model is a block: see gf.laws.routing")


def is_head(models: Any) -> bool:
    """Return whether a model is an attention layer whose laws are known."""
    return isinstance(models, HEADS)


@eqx.filter_jit
def residuals(models: Any, batch: Batch) -> dict[str, Array]:
    """Measure the laws at each model and each sequence, one after the other, so that T^2 arrays exist once.

    Args:
        models: stacked along axis 0.
        batch: sequences.

    Returns:
        The largest residual at each model (rows,), by law.
    """
    arrays, static = eqx.partition(models, eqx.is_array)

    def at(row: Any) -> dict[str, Array]:
        head = eqx.combine(row, static)
        each = jax.lax.map(lambda one: _at_one(head, *one), (batch.inputs, batch.targets, batch.mask))
        return jax.tree.map(jnp.max, each)

    return jax.lax.map(at, arrays)


def _at_one(head: Any, x: Array, targets: Array, mask: Array) -> dict[str, Array]:
    state = routing.head_state(head, x, targets, mask)
    # R is the difference of P / N and Y / N, whose rounding is all that is left of it once the loss is small.
    share = jnp.max(jnp.abs(state.errors)) * jnp.maximum(jnp.sum(mask), 1)
    law = jax.tree.map(lambda residual: residual * share, routing.gradient_law(head, x, targets, mask))
    found = {
        "routing": law.scores,
        "responsibility": law.values,
        "matrices": [law.queries, law.keys, law.w_q, law.w_k, law.w_v, law.w_o],
        "mean": routing.mean_compatibility(state),
    }
    if routing.has_row_law(head.activation):
        found["rows"] = routing.row_law(state)
    if softmax_temperature(head.activation) is not None:
        found["variance"] = routing.variance_identity(state)
        found["freezing"] = routing.freezing_excess(state)
    return {name: _largest(value) for name, value in found.items()}


def _largest(value: Any) -> Array:
    return jnp.max(jnp.stack([jnp.max(jnp.abs(leaf)) for leaf in jax.tree.leaves(value)]))
