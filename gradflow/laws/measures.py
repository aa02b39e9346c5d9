"""What an audit computes, each in one kernel: a second audit of the same kind of run compiles nothing."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from gradflow.laws import invariants, neighbours
from gradflow.laws import polarization as laws
from gradflow.models import ValueSoftmax

drifts = eqx.filter_jit(invariants.conserved_drift)
plane_gap = eqx.filter_jit(laws.closed_form_gap)


@eqx.filter_jit
def pointwise(
    loss: Callable,
    models: Any,
    args: PyTree,
    rates: PyTree | None,
    direction: Array | None,
    *,
    softmax: bool,
    form: bool,
    tied: bool,
) -> dict[str, Any]:
    """Measure the identities that hold at each single model of a run.

    Rows are taken one after the other, so that large data needs no copy a row.

    Args:
        loss: of the run.
        models: stacked along axis 0.
        args: data of the loss.
        rates: of the run.
        direction: b*, or None if the problem is not a one-sample one.
        softmax: whether the laws of the softmax apply.
        form: whether the map has a replicator form.
        tied: whether the identity of the tied model applies.

    Returns:
        Arrays by name, rows first: `loss`, `dissipation`, and what applies of `energy`, `score`, `replicator`,
        `clock`, `tied`.
    """
    arrays, static = eqx.partition(models, eqx.is_array)

    def at(row):
        model = eqx.combine(row, static)
        path = jax.tree.map(lambda x: x[None] if eqx.is_array(x) else x, model)
        found = {"loss": loss(model, args), "dissipation": neighbours.dissipation(loss, model, args, rates)}
        if softmax:
            found["energy"] = laws.loss_dissipation(loss, path, args, rates)
            found["score"] = laws.score_velocity(loss, path, args, rates)
        if form:
            found["replicator"] = laws.replicator(loss, path, args, rates)
        if softmax and direction is not None:
            found["clock"] = laws.clock_rates(loss, path, args, direction, rates)[:-1]
        if tied:
            found["tied"] = neighbours.tied_growth(loss, model, args)
        return found

    return jax.lax.map(at, arrays)


@eqx.filter_jit
def ordering(models: ValueSoftmax, direction: Float[Array, " d"]) -> dict[str, Any]:
    """Measure law 8 and the winner of law 9: `violations`, `shrinkage`, `near_tie`, `mismatch`."""
    start = jax.tree.map(lambda x: x[0] if eqx.is_array(x) else x, models)
    shrinkage = (laws.alignment_gap_shrinkage(models, direction), laws.leader_gap_shrinkage(models, direction))
    return {
        "violations": laws.order_violations(models, direction),
        "shrinkage": jnp.stack(shrinkage),
        "near_tie": laws.predicted_winner(start, direction, "uniform").near_tie,
        "mismatch": laws.winner_mismatch(models, start, direction, "uniform"),
    }
