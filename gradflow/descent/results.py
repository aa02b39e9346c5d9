"""Results of an ensemble in arrays of the host, each member written once by whichever thread ran it."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, PyTree, Shaped

from gradflow.problem import Members
from gradflow.trajectory import Trajectory
from gradflow.types import RESULTS


def code(result: Any) -> int:
    """Return the number of a result code."""
    return int(result._value)


@dataclasses.dataclass(frozen=True)
class Results:
    """One row a member; until it is written, a member counts as interrupted at its start.

    Attributes:
        save_at: steps to save.
        params: moving arrays at the end.
        saved: saved rows.
        valid: which of them were reached.
        step: steps done.
        code: result codes.
        stalled: part of the next update that is lost to rounding.
    """

    save_at: Int[np.ndarray, " T"]
    params: list[Shaped[np.ndarray, "M ..."]]
    saved: PyTree[Shaped[np.ndarray, "M T ..."]]
    valid: Bool[np.ndarray, "M T"]
    step: Int[np.ndarray, " M"]
    code: Int[np.ndarray, " M"]
    stalled: Float[np.ndarray, " M"]

    @classmethod
    def allocate(cls, params: list[Any], saved: PyTree, save_at: np.ndarray) -> "Results":
        """Return the results of an ensemble of which nothing is done.

        Args:
            params: initial moving arrays `(M, ...)`.
            saved: shapes and dtypes of one member's saved rows.
            save_at: steps to save.
        """
        count = len(params[0])
        return cls(
            save_at,
            [np.array(x) for x in params],
            jax.tree.map(lambda x: np.zeros((count, *x.shape), x.dtype), saved),
            np.zeros((count, len(save_at)), bool),
            np.zeros(count, np.int64),
            np.full(count, code(RESULTS.interrupted)),
            np.zeros(count, np.dtype(params[0].dtype)),
        )

    def is_unknown(self, member: int) -> bool:
        """Return whether it is not known how a member ended."""
        return self.code[member] == code(RESULTS.interrupted)

    def arrays(self) -> list[np.ndarray]:
        """Return the arrays of all members, in a fixed order."""
        return [*self.params, *jax.tree.leaves(self.saved), self.valid, self.step, self.code, self.stalled]

    def write(self, members: np.ndarray, params: list, step: Any, codes: Any, stalled: Any) -> None:
        """Write how some members ended; rows saved before stay valid as far as `step`."""
        for target, value in zip(self.params, params, strict=True):
            target[members] = value
        self.step[members], self.code[members], self.stalled[members] = step, codes, stalled
        valid = self.valid[members] & (self.save_at <= self.step[members][:, None])
        self.valid[members] = valid & (self.code[members] != code(RESULTS.nonfinite_start))[:, None]

    def write_rows(self, members: np.ndarray, saved: PyTree, count: Any) -> None:
        """Write the saved rows of some members, of which the first `count` are valid."""
        jax.tree.map(lambda target, rows: target.__setitem__(members, rows), self.saved, saved)
        self.valid[members] = np.arange(len(self.save_at)) < np.asarray(count)[:, None]

    def trajectory(self, members: Members, observe: Callable | None, efficiency: float) -> Trajectory:
        """Return the results as every ensemble does.

        Args:
            members: the ensemble.
            observe: what was saved, None for the model.
            efficiency: part of the lane steps that advanced a member.
        """
        count, rows = self.valid.shape
        for target in jax.tree.leaves(self.saved):
            target[~self.valid] = np.nan if np.issubdtype(target.dtype, np.inexact) else 0
        names = "num_steps", "num_accepted_steps", "num_gradients"
        stats: dict[str, Any] = {name: self.step.copy() for name in names}
        stats |= {"num_rejected_steps": np.zeros_like(self.step), "stalled_fraction": self.stalled}
        result = jax.tree.unflatten(jax.tree.structure(RESULTS.successful), [self.code.astype(np.int32)])
        ts = np.broadcast_to(self.save_at, (count, rows))
        arrays: dict[str, Any] = {"ts": ts, "valid": self.valid, "t_final": self.step}
        return Trajectory(
            **arrays,
            observed=members.models(self.saved, (count, rows)) if observe is None else self.saved,
            final=members.models(self.params),
            result=result,
            stats={**stats, "efficiency": efficiency},
        )
