"""What a score -> weight map is, the families of maps, and the masking that all of them share.

The conserved primitives are those of law 3 in `gradflow.laws.polarization` (model: arXiv 2603.06248): for an
elementwise map f, F' = f / f'.
"""

import abc
from collections.abc import Iterator
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Shaped

from gradflow.errors import FlowError, is_traced

_KINKED = (
    jax.nn.relu,
    jax.nn.relu6,
    jax.nn.leaky_relu,
    jax.nn.hard_tanh,
    jax.nn.hard_sigmoid,
    jax.nn.hard_silu,
    jnp.abs,
)


class AbstractActivation(eqx.Module):
    """A map from scores to weights over the last axis.

    A new map implements `weigh` and `primitive`; masks, empty rows and integer scores are dealt with here, once.

    Attributes:
        name: `by_name(name)` gives a map of the same kind.
        smooth: whether the map is continuously differentiable. A gradient flow through a kinked map can slide along
            the kink, where it has no classical solution.
        normalised: whether every row of weights sums to one by construction.
    """

    name: eqx.AbstractVar[str]
    smooth: eqx.AbstractVar[bool]
    normalised: eqx.AbstractVar[bool]

    def __call__(
        self, scores: Shaped[Array, "*m n"], where: Bool[Array, "*#m #n"] | None = None
    ) -> Float[Array, "*m n"]:
        """Turn scores into weights.

        Args:
            scores: any finite numbers; integers are converted to the default float type.
            where: True where an entry takes part; broadcast to the shape of `scores`. What a masked entry holds
                is never read: its weight and its gradient are exactly zero, and a fully masked row is all zeros.

        Returns:
            Weights in the dtype of the scores.

        Raises:
            FlowError: if `scores` has no axis, or `where` is not boolean or does not broadcast.
        """
        scores = as_float(scores)
        if scores.ndim == 0:
            raise FlowError("scores has shape (); an activation works over the last axis, so pass scores[None]")
        if scores.shape[-1] == 0:
            return scores
        if where is None:
            return self.weigh(scores, None)
        mask = _as_mask(where, scores.shape)
        # Masked entries repeat an unmasked one, so that nothing overflows there; a fully masked row is computed as an
        # unmasked row of zeros and cut afterwards, so that no map meets an empty sum.
        empty = ~jnp.any(mask, axis=-1, keepdims=True)
        filling = jnp.where(empty, 0, row_maximum(scores, mask))
        return jnp.where(mask, self.weigh(jnp.where(mask, scores, filling), mask | empty), 0)

    @abc.abstractmethod
    def weigh(self, scores: Float[Array, "*m n"], mask: Bool[Array, "*m n"] | None) -> Float[Array, "*m n"]:
        """Turn prepared scores into weights.

        Args:
            scores: floats with at least one entry a row; a masked entry repeats an unmasked one of its row.
            mask: None, or True at one entry of each row at least. Weights of masked entries are cut by the caller.
        """

    @abc.abstractmethod
    def primitive(self, scores: Shaped[Array, "*m"]) -> Float[Array, "*m"] | None:
        """Return the conserved primitive F at each score, or None where there is none.

        Under gradient flow of L(V s), with s = act(a), a normalised map conserves sum_i F(a_i), and an unnormalised
        one |v_i|^2 / 2 - F(a_i) for each i (law 3 in `gradflow.laws`). The constant of integration is free.
        """


class AbstractElementwise(AbstractActivation):
    """A map f applied to each score on its own, without competition between the entries."""

    normalised: ClassVar[bool] = False

    def weigh(self, scores: Float[Array, "*m n"], mask: Bool[Array, "*m n"] | None) -> Float[Array, "*m n"]:
        """Return f at each score."""
        return self.map(scores)

    @abc.abstractmethod
    def map(self, scores: Float[Array, "*m"]) -> Float[Array, "*m"]:
        """Return f at each score."""


class AbstractPositive(AbstractElementwise):
    """An elementwise map with f > 0, known through log f where f itself underflows or overflows."""

    @abc.abstractmethod
    def log_map(self, scores: Float[Array, "*m"]) -> Float[Array, "*m"]:
        """Return log f at each score, finite for any finite score."""


class AbstractHomogeneous(AbstractElementwise):
    """An elementwise map with f(c a) = c^degree f(a) for c > 0.

    Attributes:
        degree: the power of the scale.
    """

    degree: eqx.AbstractVar[int]


@jax.tree_util.register_pytree_node_class
class Constant(float):
    """A float that is part of a module's structure: a pytree without leaves.

    A plain float would be a leaf that `jax.vmap` and `jax.tree.map` over a model trip on.
    """

    def tree_flatten(self) -> tuple[tuple, float]:
        """Return no leaves, and the number as structure."""
        return (), float(self)

    @classmethod
    def tree_unflatten(cls, number: float, _: tuple) -> "Constant":
        """Rebuild the constant."""
        return cls(number)


def constant(value: float | Array) -> float | Array:
    """Make a number that is not an array part of the structure: the converter of a map's parameters."""
    return Constant(value) if isinstance(value, int | float | np.number) else value


def as_float(scores: Any) -> Float[Array, "..."]:
    """Return the scores as an array of floats, in their own precision where they have one."""
    scores = jnp.asarray(scores)
    return scores.astype(jnp.result_type(scores, 0.0))


def parameter(value: float | Array, scores: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return a parameter in the precision of the scores, so that the weights keep that precision."""
    return jnp.asarray(value, scores.dtype)


def check_parameter(argument: str, value: Any, minimum: float, strict: bool) -> None:
    """Refuse a parameter that is not a finite number above `minimum`; traced values are not looked at.

    Args:
        argument: its name, as typed.
        value: a number or an array of numbers.
        minimum: the bound.
        strict: whether the bound itself is refused as well.

    Raises:
        FlowError: if it is not.
    """
    if is_traced(value):
        return
    try:
        numbers = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise FlowError(f"{argument} is {value!r}; pass a number") from None
    inside = numbers > minimum if strict else numbers >= minimum
    if not np.all(inside & np.isfinite(numbers)):
        bound = f" {'>' if strict else '>='} {minimum:g}" if np.isfinite(minimum) else ""
        raise FlowError(f"{argument} is {value}; pass a finite number{bound}")


def row_maximum(scores: Float[Array, "*m n"], mask: Bool[Array, "*m n"] | None) -> Float[Array, "*m 1"]:
    """Return the largest unmasked entry of each row as a constant, for maps that do not depend on a common shift."""
    constant = lax.stop_gradient(scores)
    kept = constant if mask is None else jnp.where(mask, constant, -jnp.inf)
    return jnp.max(kept, axis=-1, keepdims=True)


def row_sum(values: Float[Array, "*m n"], mask: Bool[Array, "*m n"] | None) -> Float[Array, "*m 1"]:
    """Return the sum over the unmasked entries of each row."""
    kept = values if mask is None else jnp.where(mask, values, 0)
    return jnp.sum(kept, axis=-1, keepdims=True)


def uniform(scores: Float[Array, "*m n"], mask: Bool[Array, "*m n"] | None) -> Float[Array, "*m n"]:
    """Return equal weights over the unmasked entries."""
    ones = jnp.ones_like(scores)
    return ones / row_sum(ones, mask)


def activations_in(tree: Any) -> Iterator[AbstractActivation]:
    """Yield the activations inside a pytree, for instance a model."""
    leaves = jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, AbstractActivation))
    return (leaf for leaf in leaves if isinstance(leaf, AbstractActivation))


def smooth(tree: Any) -> bool:
    """Return whether no activation inside a pytree is kinked.

    Args:
        tree: a model, an activation, or any pytree of them.

    Returns:
        False when an `AbstractActivation` in it has `smooth = False`, or a leaf is one of JAX's kinked functions, such
        as `jax.nn.relu` in an `eqx.nn.MLP`. Other functions cannot be asked and count as smooth.
    """
    kinked = any(leaf is function for leaf in jax.tree.leaves(tree) if callable(leaf) for function in _KINKED)
    return not kinked and all(activation.smooth for activation in activations_in(tree))


def _as_mask(where: Any, shape: tuple[int, ...]) -> Bool[Array, "..."]:
    where = jnp.asarray(where)
    if where.dtype != jnp.bool_:
        raise FlowError(f"where has dtype {where.dtype}; pass booleans, for instance where.astype(bool)")
    try:
        return jnp.broadcast_to(where, shape)
    except ValueError:
        raise FlowError(f"where has shape {where.shape}, which does not broadcast to the scores' {shape}") from None
