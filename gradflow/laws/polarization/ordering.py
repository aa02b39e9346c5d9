"""Law 8: theorems 3.2 and 3.3 as they are true. Gaps between losers are not monotone, and are reported apart."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from gradflow.errors import FlowError
from gradflow.laws.paths import Path, alignments, softmax_path


class LoserGap(NamedTuple):
    """The gap between the scores of two losers along a run.

    Attributes:
        gap: a_i - a_j at each row.
        peak: its largest value.
        row: where that is.
        last: its value at the last row.
    """

    gap: Float[Array, "... T"]
    peak: Float[Array, "..."]
    row: Int[Array, "..."]
    last: Float[Array, "..."]


def ranked(path: Path, direction: Float[Array, " d"]) -> tuple[Float[Array, "... T n"], Float[Array, "... T n"]]:
    """Return u and a with the columns sorted by u of the first row, the leader first.

    Args:
        path: a run or stacked models of a softmax.
        direction: b*.

    Returns:
        `(u, a)`.
    """
    models = softmax_path(path)
    u = alignments(models, direction)
    order = jnp.argsort(-u[..., :1, :], axis=-1)
    return jnp.take_along_axis(u, order, axis=-1), jnp.take_along_axis(models.scores, order, axis=-1)


def order_violations(path: Path, direction: Float[Array, " d"]) -> Int[Array, "... T"]:
    """Count pairs whose order in u, or in a, contradicts the order of u in the first row (law 8 (a), theorem 3.2).

    Conditions: softmax, one sample, a uniform at the start, u(0) without ties.

    Args:
        path: a run or stacked models that start with uniform scores.
        direction: b*.

    Returns:
        The number at each row, 0 where both orders are kept. Equal scores are no violation.
    """
    u, a = ranked(path, direction)
    return _inversions(u) + _inversions(a)


def _inversions(x: Float[Array, "... n"]) -> Int[Array, "..."]:
    upper = jnp.triu(jnp.ones((x.shape[-1],) * 2, bool), k=1)
    return jnp.sum((x[..., :, None] < x[..., None, :]) & upper, axis=(-2, -1))


def alignment_gap_shrinkage(path: Path, direction: Float[Array, " d"]) -> Float[Array, "..."]:
    """Return the largest decrease of u_i - u_j, i < j, between two rows (law 8 (b)): d(u_i - u_j)/dtau = s_i - s_j > 0.

    Conditions: softmax, one sample, a uniform at the start. Any rates.

    Args:
        path: a run or stacked models that start with uniform scores.
        direction: b*.

    Returns:
        A number >= 0, 0 when every gap grows; (T - 1,).
    """
    return _shrinkage(_neighbour_gaps(ranked(path, direction)[0]))


def leader_gap_shrinkage(path: Path, direction: Float[Array, " d"]) -> Float[Array, "..."]:
    """Return the largest decrease of a_1 - a_j between two rows, 1 the leader (law 8 (c), theorem 3.3 as far as true).

    Conditions: softmax, one sample, a uniform at the start, u(0) without ties.

    Args:
        path: a run or stacked models that start with uniform scores.
        direction: b*.

    Returns:
        A number >= 0, 0 when every gap grows; (T - 1,).
    """
    _, a = ranked(path, direction)
    return _shrinkage(a[..., :1] - a[..., 1:])


def score_gap_shrinkage(path: Path, direction: Float[Array, " d"]) -> Float[Array, "..."]:
    """Return the largest decrease of a_i - a_j over ALL i < j: theorem 3.3 as printed, which is false for losers.

    Args:
        path: a run or stacked models that start with uniform scores.
        direction: b*.

    Returns:
        A number >= 0; positive as soon as a gap between losers shrinks; (T - 1,).
    """
    return _shrinkage(_neighbour_gaps(ranked(path, direction)[1]))


def loser_gap_peak(path: Path, direction: Float[Array, " d"], ranks: tuple[int, int] = (2, 8)) -> LoserGap:
    """Return the score gap of two losers, which rises, peaks, then shrinks to 0 (law 8 (d), derived).

    Args:
        path: a run or stacked models that start with uniform scores.
        direction: b*.
        ranks: of the two by u in the first row, counted from 1, the leader; the better one first.

    Returns:
        The gap with its peak. In golden setting A, ranks 2 and 8: 1.563 at t = 262, 0.975 at t = 1e12.

    Raises:
        FlowError: if a rank is outside 2..n.
    """
    _, a = ranked(path, direction)
    if not 2 <= ranks[0] < ranks[1] <= a.shape[-1]:
        raise FlowError(f"ranks is {ranks}: losers have ranks from 2 to n = {a.shape[-1]}, the better one first")
    gap = a[..., ranks[0] - 1] - a[..., ranks[1] - 1]
    return LoserGap(gap, jnp.max(gap, axis=-1), jnp.argmax(gap, axis=-1), gap[..., -1])


def _neighbour_gaps(x: Float[Array, "... n"]) -> Float[Array, "... m"]:
    """Return the gaps of neighbouring ranks: every other gap is a sum of these."""
    return x[..., :-1] - x[..., 1:]


def _shrinkage(gaps: Float[Array, "... T m"]) -> Float[Array, "..."]:
    if gaps.shape[-1] == 0:
        return jnp.zeros((*gaps.shape[:-2], gaps.shape[-2] - 1), gaps.dtype)
    return jnp.max(jnp.maximum(gaps[..., :-1, :] - gaps[..., 1:, :], 0), axis=-1)
