"""What every run returns: saved observables, the final model, how it ended and what it cost."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree, Shaped

from gradflow.errors import FlowError, leaf_name, shown
from gradflow.types import RESULTS

Model = TypeVar("Model")


class Trajectory(eqx.Module, Generic[Model]):
    """A run of the flow or of the optimiser.

    Attributes:
        ts: the save times (flow) or save steps (descent), as asked for.
        observed: what `observe` returned, with a leading save axis; the models themselves when it was None.
        valid: True where `observed` was reached; entries after the end hold NaN (0 for integers).
        final: the model at `t_final`: the last state at which loss and gradient were finite.
        t_final: time (flow) or step (descent) at which the run ended.
        result: how it ended, a member of `gradflow.RESULTS`.
        stats: counts: `num_steps`, `num_accepted_steps`, `num_rejected_steps`, `num_gradients` (-1 where the cost is
            not a function of the steps, as for implicit solvers).
    """

    ts: Float[Array, " T"]
    observed: PyTree[Shaped[Array, "T ..."]]
    valid: Bool[Array, " T"]
    final: Model
    t_final: Float[Array, ""]
    result: RESULTS
    stats: dict[str, Any]

    @property
    def status(self) -> Any:
        """Name of the result code, such as ``"successful"`` or ``"kink"``; an array of names for several members."""
        return result_name(self.result)

    @property
    def message(self) -> Any:
        """The sentence that explains the result code; an array of them for several members."""
        names = np.asarray(self.status)
        sentences = [RESULTS[RESULTS._name_to_item[name]] or "The run reached its end." for name in names.ravel()]
        return np.array(sentences).reshape(names.shape) if names.ndim else sentences[0]

    def member(self, index: int) -> "Trajectory[Model]":
        """Return the run of one member of an ensemble, as if it had run alone.

        Args:
            index: of the member; negative ones count from the end.

        Returns:
            Its trajectory.

        Raises:
            FlowError: if the trajectory is no ensemble's, or has no such member.
        """
        if np.ndim(self.t_final) == 0:
            raise FlowError("the trajectory is that of one run: it has no members")
        count = np.shape(self.t_final)[0]
        if not -count <= index < count:
            raise FlowError(f"index is {index}: the trajectory has {count} members, 0 .. {count - 1}")
        return jax.tree.map(lambda x: x[index] if np.ndim(x) else x, self)


def result_name(result: RESULTS) -> Any:
    """Return the name of a concrete result code, or an array of names; names are stored, numbers are not."""
    names = {int(item._value): name for name, item in RESULTS._name_to_item.items()}
    numbers = np.asarray(result._value)
    if numbers.ndim == 0:
        return names[int(numbers)]
    return np.array([names[int(number)] for number in numbers.ravel()]).reshape(numbers.shape)


def is_successful(result: RESULTS) -> Bool[Array, "..."]:
    """Return whether a run reached its horizon, its `stop` or its `event`."""
    return (result == RESULTS.successful) | (result == RESULTS.event_occurred)


def observed_arrays(observe: Callable, t: Any, model: PyTree, args: PyTree) -> PyTree[Array]:
    """Call `observe` while it is traced, and refuse what cannot be saved."""
    observed = observe(t, model, args)
    if not jax.tree.leaves(observed):
        raise FlowError(f"observe returned {shown(observed)}, which holds no array: return a pytree of arrays")

    def leaf(path: tuple, x: Any) -> Array:
        if not (eqx.is_array(x) or isinstance(x, (bool, int, float, np.ndarray, np.generic))):
            raise FlowError(
                f"observe returned {type(x).__name__} {shown(x)} at `{leaf_name(path) or 'its root'}`: return a pytree "
                "of arrays (to save the model itself, leave `observe` out)"
            )
        return jnp.asarray(x)

    return jax.tree_util.tree_map_with_path(leaf, observed)


def blank(tree: PyTree[Array], valid: Bool[Array, " T"]) -> PyTree[Array]:
    """Overwrite the rows that were not reached with NaN (0 for integers and booleans)."""

    def leaf(x: Array) -> Array:
        empty = jnp.nan if jnp.issubdtype(x.dtype, jnp.inexact) else 0
        return jnp.where(valid.reshape(valid.shape + (1,) * (x.ndim - valid.ndim)), x, jnp.asarray(empty, x.dtype))

    return jax.tree.map(leaf, tree)
