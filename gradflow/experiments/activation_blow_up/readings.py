"""What is measured in a model: answers with and without rounding of its hidden states, gradients, and its sink."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gradflow import losses
from gradflow.experiments import transformers
from gradflow.experiments.activation_blow_up.config import LEFT_OUT
from gradflow.flow.norms import norm
from gradflow.models import Transformer
from gradflow.tasks.induction import BOS
from gradflow.types import Batch

ROWS = slice(1, -LEFT_OUT)
MOST = 127  # largest number of 8 bits with a sign


def bfloat16(x: Float[Array, "T d"]) -> Float[Array, "T d"]:
    """Round to 8 significant bits each: the error is relative to each number."""
    return x.astype(jnp.bfloat16).astype(x.dtype)


def token(x: Float[Array, "T d"]) -> Float[Array, "T d"]:
    """Round to 255 levels, evenly up to the largest number of each token."""
    return _levels(x, jnp.max(jnp.abs(x), axis=-1, keepdims=True))


def tensor(x: Float[Array, "T d"]) -> Float[Array, "T d"]:
    """Round to 255 levels, evenly up to the largest number of all tokens."""
    return _levels(x, jnp.max(jnp.abs(x)))


def _levels(x: Float[Array, "T d"], largest: Float[Array, "..."]) -> Float[Array, "T d"]:
    step = jnp.where(largest > 0, largest, 1) / MOST
    return jnp.round(x / step) * step


class Rounded(eqx.Module):
    """A block whose input and output, the residual stream, are rounded."""

    block: Callable
    rounding: Callable = eqx.field(static=True)

    def __call__(self, x: Float[Array, "T d"], mask: Bool[Array, "T T"] | None) -> tuple[Float[Array, "T d"], Any]:
        """Return the rounded stream after the block, and what happened inside."""
        x, inside = self.block(self.rounding(x), mask)
        return self.rounding(x), inside


def rounded(model: Transformer, rounding: Callable) -> Transformer:
    """Return the model with its residual stream rounded before and after every block."""
    return eqx.tree_at(lambda m: m.blocks, model, tuple(Rounded(block, rounding) for block in model.blocks))


def observe(step: Any, model: Transformer, args: tuple[Batch, Any]) -> dict[str, Array]:
    """Return how good a model is, what rounding does to it, its gradients and its sink.

    Args:
        step: not used.
        model: of this step.
        args: sequences for evaluation, and the weight of the other positions.

    Returns:
        `accuracy`, `last_loss` in nats and `other_loss`; `on_bos`, attention on BOS in the last layer; `peak`, the
        largest activation; `gradient` and `bos_gradient`, norms of the gradient of the loss by all parameters and by
        the embedding of BOS; and for each rounding NAME `NAME_accuracy`, and `NAME_error`, the norm of the change of
        the logits at the last position over their norm, as a mean over sequences.
    """
    del step
    batch = args[0]
    logits, capture = jax.vmap(functools.partial(model, capture=True))(batch.inputs)
    gradient = jax.grad(losses.auxiliary_cross_entropy)(model, args)
    stream = jnp.concatenate([capture.embedded[:, None], capture.hidden], axis=1)
    found = transformers.predictions(logits, batch) | {
        "on_bos": jnp.mean(capture.attention[:, -1, :, ROWS, 0]),
        "peak": jnp.max(jnp.abs(stream)),
        "gradient": norm(eqx.filter(gradient, eqx.is_inexact_array)),
        "bos_gradient": jnp.linalg.norm(gradient.embedding[BOS]),
    }
    for rounding in (bfloat16, token, tensor):
        found |= after(rounding, model, batch, logits[:, -1])
    return found


def after(
    rounding: Callable, model: Transformer, batch: Batch, exact: Float[Array, "n C"]
) -> dict[str, Float[Array, ""]]:
    """Return the accuracy of a rounded model and the error of its logits, see `observe`."""
    coarse = rounded(model, rounding)

    def last(tokens: Int[Array, " T"]) -> Float[Array, " C"]:
        return coarse(tokens)[-1]

    logits = jax.vmap(last)(batch.inputs)
    error = jnp.linalg.norm(logits - exact, axis=-1) / jnp.linalg.norm(exact, axis=-1)
    right = jnp.argmax(logits, axis=-1) == batch.targets[:, -1]
    name = rounding.__name__
    return {f"{name}_accuracy": jnp.mean(right.astype(exact.dtype)), f"{name}_error": jnp.mean(error)}
