"""The checks of an audit: each measures the residual of a law, or says which of its conditions is missing."""

from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from gradflow import losses
from gradflow.laws import heads, invariants, measures, neighbours
from gradflow.laws import polarization as laws
from gradflow.laws.conditions import INTEGRATED_OVER_RTOL, Run
from gradflow.laws.table import Row, Skipped
from gradflow.models import AttentionBlock

Entry = Row | Skipped
FLOW_ONLY = "holds along the flow; this is a descent"
POINT = "holds along a run; this is one model"
START = "; save at t0, or pass initial=model"
LINEAR = {  # invariants that Runge-Kutta and gradient descent keep to rounding
    "score_sum": ("1", "sum of scores is constant"),
    "values_outside_data": ("4", "values outside the data's span are constant"),
    "column_sums": ("20", "column sums of V are constant"),
    "matrix_outside_data": ("-", "first matrix outside the data's span is constant"),
    "score_row_sums": ("-", "row sums of free scores are constant"),
    "output_row_sums": ("-", "row sums of W_O are constant"),
}
NONLINEAR = {
    "hyperbolic": ("2", "|v1 - v2|^2/2 - cosh(a1 - a2) is constant"),
    "primitive_sum": ("3", "sum of primitives F(a_i) is constant"),
    "value_primitive": ("3", "|v_i|^2/2 - F(a_i) is constant"),
    "query_key": ("-", "W_Q^T W_Q/r_Q - W_K^T W_K/r_K is constant"),
    "value_output": ("-", "V^T V/r_V - W_O W_O^T/r_O is constant, V = W_V or the free values"),
    "score_row_primitives": ("-", "row sums of the primitive F(s_ij) are constant"),
}


def largest(*residuals: ArrayLike) -> float:
    """Return the largest magnitude in residuals; NaN stays NaN, nothing at all is 0."""
    return float(np.max([np.abs(np.asarray(x, np.float64)).max(initial=0.0) for x in residuals]))


def invariance(run: Run) -> Iterator[Entry]:
    """Yield laws 1 to 4, 20 and balancedness: whatever `conserved` knows about the model, the loss and the rates."""
    args = run.args if run.is_kl or hasattr(run.args, "x") or run.is_batch else None
    drifts = measures.drifts(run.models, args, run.rates)
    for name, drift in drifts.items():
        law, statement = {**LINEAR, **NONLINEAR}.get(name, ("-", f"W_l W_l^T - W_l+1^T W_l+1 is constant ({name})"))
        if run.is_point or (name not in LINEAR and run.is_descent):
            yield Skipped(law, statement, POINT if run.is_point else "drifts by O(step size) under descent")
            continue
        size = max(1.0, float(invariants.relative_size(run.models, name)))
        tolerance = run.tolerances.exact if name in LINEAR else run.tolerances.integrated
        if name == "output_row_sums":
            tolerance += run.rounding
        yield Row(law, statement, largest(drift) / size, tolerance)
    for name, (law, statement) in {**LINEAR, **NONLINEAR}.items():
        if run.is_value_softmax and name not in drifts and law != "-":
            yield Skipped(law, statement, _why_not(run, name))


def _why_not(run: Run, name: str) -> str:
    return {
        "score_sum": run.why_no_softmax,
        "hyperbolic": run.why_no_softmax or f"n is {run.n}, not 2",
        "primitive_sum": "the same as law 1" if not run.why_no_softmax else "the map is not normalised, or has no F",
        "value_primitive": "the map is normalised, or has no F",
        "column_sums": "the loss is not kl",
        "values_outside_data": "the samples span the space, or args holds none",
    }[name]


def dissipation(run: Run) -> Iterator[Entry]:
    """Yield what any model shows: the loss falls, at the rate of its squared gradient."""
    statement = "dL/dt = -|grad L|^2"
    if run.is_descent:
        yield Skipped("-", statement, FLOW_ONLY)
        return
    if run.is_point:
        yield Skipped("-", "the loss never rises", POINT)
    else:
        floor = run.losses[0] * run.tolerances.integrated**2
        rise = neighbours.loss_increase(jnp.maximum(run.losses, floor))
        yield Row("-", "the loss never rises", largest(rise), run.tolerances.integrated)
    # P - Y of a cross-entropy rounds as 1 does, and is no larger than the loss.
    share = np.minimum(run.losses, 1) if run.is_batch else 1
    yield Row("-", statement, largest(run.pointwise["dissipation"] * share), run.tolerances.pointwise)


def identities(run: Run) -> Iterator[Entry]:
    """Yield law 5 and the replicator form: identities at each model, for any loss of beta."""
    flow_only = FLOW_ONLY if run.is_descent else ""
    softmax = run.why_no_softmax or flow_only
    yield _pointwise(run, "5", "dL/dt = -g.M g, M = |s|^2 + V C^2 V^T", "energy", softmax)
    yield _pointwise(run, "5", "a_i' = (v_i - beta).v_i'", "score", softmax)
    reason = run.why_no_replicator or flow_only
    yield _pointwise(run, "17", "s_i'/s_i = phi_i - <s, phi>, the replicator form", "replicator", reason)


def _pointwise(run: Run, law: str, statement: str, name: str, reason: str) -> Entry:
    if reason:
        return Skipped(law, statement, reason)
    size = max(1.0, largest(run.models.values))
    return Row(law, statement, largest(run.pointwise[name]) / size, run.tolerances.pointwise)


def one_sample(run: Run) -> Iterator[Entry]:
    """Yield laws 6 and 7: the one-sample theory in its clock."""
    reason = run.why_no_softmax or run.why_many or (FLOW_ONLY if run.is_descent else "")
    rates, orbit = "rates in tau of sum u, |u|^2, |V|^2, z", "the orbit in tau is that of every loss"
    if reason:
        yield Skipped("6", rates, reason)
        yield Skipped("7", orbit, reason)
        return
    size = max(1.0, largest(run.models.values))
    yield Row("6", rates, largest(*run.pointwise["clock"]) / size**2, run.tolerances.pointwise)
    if run.is_point:
        yield Skipped("7", orbit, POINT)
        return
    gap = laws.orbit_gap(run.models, run.direction, run.rates, rtol=run.tolerances.integrated / INTEGRATED_OVER_RTOL)
    yield Row("7", orbit, largest(gap) / max(size, largest(run.models.scores)), run.tolerances.integrated)


def ordering(run: Run) -> Iterator[Entry]:
    """Yield laws 8 and 9: order, repulsion as it is true, the winner."""
    statements = {"8": "orders kept; gaps of u and of the leader grow", "9": "the winner is argmax u(0)"}
    reason = run.why_no_softmax or run.why_many or _why_no_order(run)
    if reason:
        yield from (Skipped(law, statement, reason) for law, statement in statements.items())
        return
    found = measures.ordering(run.models, run.direction)
    slack = max(run.tolerances.exact, run.tolerances.integrated / INTEGRATED_OVER_RTOL)
    yield Row("8", statements["8"], largest(found["violations"]) + largest(found["shrinkage"]), slack)
    if found["near_tie"]:
        yield Skipped("9", statements["9"], "the two best u(0) are within 1 %")
    else:
        yield Row("9", statements["9"], largest(found["mismatch"]), 0.0)


def _why_no_order(run: Run) -> str:
    if run.is_descent:
        return FLOW_ONLY
    if run.is_point:
        return POINT
    if run.equal_start:
        return "all values are equal"
    if not run.uniform_start:
        return f"scores of the first row are not uniform{'' if run.from_start else START}"
    return ""


def limits(run: Run) -> Iterator[Entry]:
    """Yield laws 10, 11, 16: what holds late, or as a bound."""
    yield _limit_of_loss(run)
    statement = "excess loss <= exp(-2 lambda_min t / (n N)) x initial"
    reason = _why_no_bound(run)
    if reason:
        yield Skipped("16", statement, reason)
        return
    violation = laws.excess_violation(jnp.asarray(run.ts), jnp.asarray(run.losses), run.losses[0], run.args, run.n)
    yield Row("16", statement, largest(violation), run.tolerances.integrated)


def _limit_of_loss(run: Run) -> Entry:
    """Return law 10 from an equal start, law 11 from any other."""
    reason = run.why_no_softmax or run.why_many
    if not reason:
        needs = {
            FLOW_ONLY: run.is_descent,
            POINT: run.is_point,
            "the loss is not logistic": not run.is_loss(losses.logistic),
            "the sample has not unit norm": not run.unit_sample,
            "rates or temperature are not 1": not run.unit,
            "the first row is not the start" + START: not run.from_start,
        }
        reason = next((why for why, missing in needs.items() if missing), "")
    if not reason and run.equal_start and run.n > 1:
        late = laws.uniform_decay(jnp.asarray(run.ts), jnp.asarray(run.losses), run.n)[-1]
        return _late(run, "10", "equal start: t L -> n", late, 1e5, 0.01)
    statement = "t L -> 1"
    if reason:
        return Skipped("11", statement, reason)
    return _late(run, "11", statement, laws.loss_decay(jnp.asarray(run.ts), jnp.asarray(run.losses))[-1], 1e6, 0.02)


def _late(run: Run, law: str, statement: str, residual, horizon: float, tolerance: float) -> Entry:
    if run.ts[-1] < horizon:
        return Skipped(law, statement, f"needs t >= {horizon:g}, the run ends at t = {run.ts[-1]:g}")
    return Row(law, statement, largest(residual), tolerance)


def _why_no_bound(run: Run) -> str:
    needs = {
        FLOW_ONLY: run.is_descent,
        POINT: run.is_point,
        "the loss is not square": not run.is_loss(losses.square),
        "weights do not sum to one": not run.models.activation.normalised,
        "rates or temperature are not 1": not run.unit,
        "the first row is not the start" + START: not run.from_start,
    }
    return next((why for why, missing in needs.items() if missing), "")


def closed_form(run: Run) -> Iterator[Entry]:
    """Yield law 19: two values."""
    statement = "n = 2: (w, D) follows its closed form in tau"
    reason = run.why_no_softmax or ("" if run.n == 2 else f"n is {run.n}, not 2") or run.why_many
    reason = reason or (FLOW_ONLY if run.is_descent else POINT if run.is_point else "")
    reason = reason or ("" if run.unit else "rates or temperature are not 1")
    if reason:
        yield Skipped("19", statement, reason)
        return
    gap = measures.plane_gap(run.models, run.direction)
    scale = max(1.0, largest(*laws.plane(run.models, run.direction)))
    yield Row("19", statement, largest(gap.w, gap.D) / scale, run.tolerances.integrated)


def tied(run: Run) -> Iterator[Entry]:
    """Yield the identity of the tied model."""
    if not run.is_descent:
        statement, residual = "d(|U|^2 - |a|^2)/dt = -2 <g, beta>", run.pointwise["tied"]
        size = max(1.0, largest(run.models.values)) ** 2
        yield Row("-", statement, largest(residual) / size, run.tolerances.pointwise)


def other_runs(run: Run) -> Iterator[Entry]:
    """Yield the laws that one run at saved times cannot show."""
    yield Skipped("12", "W^2 (1 - s_max) -> 2 (n - 1)/n", "a limit at tau = 1000; see polarization_constant")
    yield Skipped("13-15", "small scores and their onset", "needs small starts; see early_scores, onset_constant")
    yield Skipped("18", "frozen s or frozen V", "all arrays are taken to move; see frozen_weights_decay")


def entries(run: Run) -> list[Entry]:
    """Return what applies to a run and what does not."""
    checks = [dissipation, invariance]
    if run.is_value_softmax:
        checks += [identities, one_sample, ordering, limits, closed_form, other_runs]
    elif run.has_tied_identity:
        checks.append(tied)
    elif heads.is_head(run.models):
        checks.append(heads.attention)
    elif isinstance(run.models, AttentionBlock):
        checks.append(heads.block)
    found = [entry for check in checks for entry in check(run)]
    if not run.is_value_softmax:
        found.append(Skipped("1-20", "laws of a value-softmax", f"the model is a {type(run.models).__name__}"))
    return found
