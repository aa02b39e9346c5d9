"""What to save along the training of a head: loss, routing and values beside each other, for `observe=`."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gradflow.diagnostics import entropy
from gradflow.laws.routing import HeadState, advantage, head_state
from gradflow.types import Batch


@dataclasses.dataclass(frozen=True)
class HeadObservables:
    """An `observe` for an attention layer trained with `losses.cross_entropy` on a `Batch`.

    `gf.gradient_flow(loss, head, batch, t1=1e3, ts=ts, observe=gf.HeadObservables())` saves at each time, for n
    sequences of T positions (several heads have an axis H behind n):

    - `loss` in nats, `accuracy`, and `prediction_entropy` in nats, means over the targets that count;
    - `attention_entropy`: of a row over the log of its length, a mean over rows with more than one entry;
    - `routing_norm` |D|_F and `value_norm` |A^T U|_F, the speeds of free scores and free values (arXiv 2512.22473);
    - `weights` A and, of a normalised map, `advantage` -(b - E_A b), zero at masked entries, both (n, T, T), with
      `matrices`;
    - `values` (n, T, d_v), with `values`.

    Attributes:
        matrices: whether to save the weights and the advantage.
        values: whether to save the values.
    """

    matrices: bool = True
    values: bool = True

    def __call__(self, t: Float[Array, ""], head: Any, batch: Batch) -> dict[str, Array]:
        """Return the observables; a masked position is never read."""
        del t
        logits = jax.vmap(head)(batch.inputs)
        states = jax.vmap(lambda x, y, counts: head_state(head, x, y, counts))(batch.inputs, batch.targets, batch.mask)
        states = _as_one_mean(states, batch)
        found = _predictions(logits, batch) | _routing(states)
        if self.matrices:
            found |= {"weights": states.weights}
            found |= {"advantage": jax.vmap(advantage)(states)} if states.activation.normalised else {}
        return found | ({"values": states.values} if self.values else {})


def _as_one_mean(states: HeadState, batch: Batch) -> HeadState:
    """Return states whose gradients are those of the mean over all sequences, not over each."""
    share = jnp.sum(batch.mask, axis=-1) / jnp.maximum(jnp.sum(batch.mask), 1)

    def weigh(x: Array) -> Array:
        return x * share.reshape(-1, *(1,) * (x.ndim - 1)).astype(x.dtype)

    def gradients(state: HeadState) -> tuple[Array, ...]:
        return state.errors, state.upstream, state.compatibility, state.score_gradient

    return eqx.tree_at(gradients, states, tuple(map(weigh, gradients(states))))


def _predictions(logits: Float[Array, "n T C"], batch: Batch) -> dict[str, Array]:
    kept = jnp.where(batch.mask[..., None], logits, 0)
    log_p = jax.nn.log_softmax(kept, axis=-1)
    targets = jnp.where(batch.mask, batch.targets, 0)
    surprise = -jnp.take_along_axis(log_p, targets[..., None], axis=-1)[..., 0]
    unsure = entropy(jnp.exp(log_p))
    right = jnp.argmax(kept, axis=-1) == targets
    total = jnp.maximum(jnp.sum(batch.mask), 1)
    named = {"loss": surprise, "accuracy": right.astype(logits.dtype), "prediction_entropy": unsure}
    return {name: jnp.sum(jnp.where(batch.mask, x, 0)) / total for name, x in named.items()}


def _routing(states: HeadState) -> dict[str, Array]:
    allowed = states.mask if states.weights.ndim == states.mask.ndim else states.mask[:, None]
    rows = jnp.broadcast_to(jnp.sum(allowed, axis=-1) > 1, states.weights.shape[:-1])
    spread = entropy(states.weights, where=jnp.broadcast_to(allowed, states.weights.shape), normalise=True)
    moved = jnp.matmul(jnp.swapaxes(states.weights, -1, -2), states.upstream, precision="highest")
    return {
        "attention_entropy": jnp.sum(jnp.where(rows, spread, 0)) / jnp.maximum(jnp.sum(rows), 1),
        "routing_norm": jnp.sqrt(jnp.sum(states.score_gradient**2)),
        "value_norm": jnp.sqrt(jnp.sum(moved**2)),
    }
