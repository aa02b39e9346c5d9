"""The time of a crossing within a step, refined on the dense output."""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from gradflow.flow.events import scalar
from gradflow.flow.kernel import Arguments
from gradflow.flow.pool.rows import Layout, Row, Taken, select
from gradflow.types import RESULTS

HALVINGS = 52  # down to rounding


def value(layout: Layout, t, params, arguments: Arguments) -> Float[Array, ""]:
    """Return the event function less its level."""
    assert layout.flow.crossing is not None
    found = scalar("event.fn", layout.flow.crossing(t, *layout.join(params, arguments)))
    return found.astype(params[0].dtype) - arguments.level


def refine(layout: Layout, kind, before: Row, row: Row, taken: Taken, arguments: Arguments) -> Row:
    """End a member that has just crossed at the time of the crossing; others stay as they are."""
    start, end = (value(layout, r.t, r.params, arguments) for r in (before, row))
    up, down = (start < 0) & (end >= 0), (start > 0) & (end <= 0)
    crossed = (up | down) if layout.flow.direction is None else (up if layout.flow.direction else down)
    crossed = crossed & taken.kept & ~before.finished

    def halve(carry):
        lower, upper, left = carry
        middle = lower + 0.5 * (upper - lower)
        same = jnp.sign(value(layout, middle, kind.interpolate(taken, middle), arguments)) == jnp.sign(start)
        return jnp.where(same, middle, lower), jnp.where(same, upper, middle), left - 1

    steps = jnp.where(crossed, HALVINGS, 0)
    _, t, _ = lax.while_loop(lambda carry: carry[2] > 0, halve, (taken.t0, taken.t1, steps))
    at = row._replace(
        params=kind.interpolate(taken, t),
        t=t,
        finished=jnp.asarray(True),
        result=RESULTS.event_occurred,
    )
    return select(crossed, at, row)
