"""What a method says of an ensemble, and how far two answers are apart."""

import dataclasses

import numpy as np
from jaxtyping import Float, Int

from benchmarks.engine.problems import softmax


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The answer of a method and its work.

    Attributes:
        values: V at the end.
        scores: a at the end.
        steps: attempted steps of each member.
        gradients: evaluations of the field of each member, -1 where the method does not say.
        saved: entropy of the weights at the save times, where there are any.
        note: what the method says of itself, such as the solvers it chose.
    """

    values: Float[np.ndarray, "M d n"]
    scores: Float[np.ndarray, "M n"]
    steps: Int[np.ndarray, " M"]
    gradients: Int[np.ndarray, " M"]
    saved: Float[np.ndarray, "M T"] | None = None
    note: str = ""


def errors(outcome: Outcome, reference: Outcome) -> Float[np.ndarray, " M"]:
    """Return the error of each member: relative in (V, s) at the end, or the largest one in the saved entropies."""
    if outcome.saved is not None and reference.saved is not None:
        return _worst(np.abs(outcome.saved - reference.saved).max(axis=1))

    def rows(one: Outcome):
        members = len(one.values)
        return np.concatenate([one.values.reshape(members, -1), softmax(one.scores)], axis=1)

    mine, exact = rows(outcome), rows(reference)
    return _worst(np.linalg.norm(mine - exact, axis=1) / np.linalg.norm(exact, axis=1))


def _worst(values: Float[np.ndarray, " M"]) -> Float[np.ndarray, " M"]:
    """Return the errors with those of failed members as infinity."""
    return np.where(np.isfinite(values), values, np.inf)
