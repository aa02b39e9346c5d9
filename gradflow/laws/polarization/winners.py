"""Laws 9 and 10: who wins, and the start from which nobody does."""

from typing import Literal, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gradflow.errors import FlowError
from gradflow.laws.paths import Path, alignments, softmax_path, value_path
from gradflow.models import ValueSoftmax

Rule = Literal["uniform", "small", "two"]
NEAR_TIE = 0.01


class Winner(NamedTuple):
    """Who is predicted to win.

    Attributes:
        index: of the value.
        margin: relative gap to the runner-up; below 0.01 it is a near-tie, which the rules do not cover.
    """

    index: Int[Array, "..."]
    margin: Float[Array, "..."]

    @property
    def near_tie(self) -> Bool[Array, "..."]:
        """Whether the margin is below 1 %."""
        return self.margin < NEAR_TIE


def predicted_winner(model: ValueSoftmax, direction: Float[Array, " d"], rule: Rule) -> Winner:
    """Return the winner by law 9 (derived; theorem 3.2 for uniform scores).

    - `"uniform"`: a(0) uniform, argmax u_i(0);
    - `"small"`: initial scale <= 1e-3, argmax (u_i(0) + a_i(0)); at scale 1e-1 6 of 160 draws differ;
    - `"two"`: n = 2, exact: value 0 wins iff w + 2 sinh(D / 2) > 0, w = u_0 - u_1, D = a_0 - a_1.

    Conditions: softmax of temperature 1, one sample, rates equal.

    Args:
        model: at the start, or stacked starts.
        direction: b*.
        rule: which of the three.

    Returns:
        Index and relative margin.

    Raises:
        FlowError: if the rule is unknown or does not fit n.
    """
    u, a = alignments(model, direction), model.scores
    if rule == "two":
        if u.shape[-1] != 2:
            raise FlowError(f"rule 'two' is for n = 2, the model has n = {u.shape[-1]}: use 'uniform' or 'small'")
        w, pull = u[..., 0] - u[..., 1], 2 * jnp.sinh((a[..., 0] - a[..., 1]) / 2)
        size = jnp.abs(w) + jnp.abs(pull)
        return Winner(jnp.where(w + pull > 0, 0, 1), jnp.abs(w + pull) / jnp.where(size > 0, size, 1))
    if rule not in ("uniform", "small"):
        raise FlowError(f"rule is {rule!r}: choose 'uniform', 'small' or 'two'")
    merit = u if rule == "uniform" else u + a
    if merit.shape[-1] == 1:
        return Winner(jnp.zeros(merit.shape[:-1], int), jnp.ones(merit.shape[:-1], merit.dtype))
    best = jnp.sort(merit, axis=-1)
    size = jnp.maximum(jnp.abs(best[..., -1]), jnp.abs(best[..., -2]))
    return Winner(jnp.argmax(merit, axis=-1), (best[..., -1] - best[..., -2]) / jnp.where(size > 0, size, 1))


def winner(path: Path) -> Int[Array, "..."]:
    """Return the index of the largest weight at the last row."""
    return jnp.argmax(value_path(path).weights[..., -1, :], axis=-1)


def winner_mismatch(path: Path, initial: ValueSoftmax, direction: Float[Array, " d"], rule: Rule) -> Bool[Array, "..."]:
    """Return whether another value won than law 9 predicts; near-ties count as no mismatch.

    Args:
        path: a run long enough to polarize, or stacked models.
        initial: the model at t = 0.
        direction: b*.
        rule: as for `predicted_winner`.

    Returns:
        True where the prediction failed.
    """
    predicted = predicted_winner(initial, direction, rule)
    return (winner(path) != predicted.index) & ~predicted.near_tie


def uniform_weights(path: Path) -> Float[Array, "... T"]:
    """Return max_i |s_i - 1/n| (law 10, derived): all v_i equal and a_i equal is invariant, s stays uniform for ever.

    Condition: the run starts with equal columns and equal scores. Any loss.

    Args:
        path: a run or stacked models.

    Returns:
        The distance from uniform weights at each row.
    """
    weights = softmax_path(path).weights
    return jnp.max(jnp.abs(weights - 1 / weights.shape[-1]), axis=-1)


def uniform_decay(ts: Float[Array, " T"], losses: Float[Array, "... T"], n: int) -> Float[Array, "... T"]:
    """Return t L / n - 1 (law 10, derived): from an equal start the logistic loss falls n times slower.

    Conditions: those of `uniform_weights`, logistic loss, one sample of unit norm; 1 % at t = 1e5.

    Args:
        ts: times.
        losses: at these times.
        n: number of values.

    Returns:
        The relative residual.
    """
    return ts * losses / n - 1
