"""The task: values are stored under keys, then keys are asked for.

Which value belongs to a key is drawn anew in each sequence. So nothing about the answer can be held in the weights: a
head that attends to all positions alike knows which values occur, and only one that finds the position of the asked
key knows which of them it is.
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Key

from gradflow.experiments.routing.config import ASKED, CLASSES
from gradflow.types import Batch


@functools.partial(jax.jit, static_argnames=("sequences", "pairs"))
def draw(key: Key[Array, ""], sequences: int, pairs: int) -> Batch:
    """Draw sequences of `pairs` stored pairs and `2 pairs` questions.

    Args:
        key: typed key.
        sequences: how many.
        pairs: keys, each stored once and asked for twice, in random orders.

    Returns:
        Inputs (n, 3 pairs, pairs + 4): the key of the position, and its value where it is stored. Targets are the
        values, which count where a key is asked for.
    """
    return jax.vmap(lambda one: _sequence(one, pairs))(jax.random.split(key, sequences))


def _sequence(key: Key[Array, ""], pairs: int) -> Batch:
    order, drawn, asked = jax.random.split(key, 3)
    questions = jax.random.permutation(asked, jnp.repeat(jnp.arange(pairs), ASKED))
    keys = jnp.concatenate([jax.random.permutation(order, pairs), questions])
    values = jax.random.randint(drawn, (pairs,), 0, CLASSES)[keys]
    stored = jnp.arange(len(keys)) < pairs
    shown = jnp.where(stored[:, None], jax.nn.one_hot(values, CLASSES), 0)
    return Batch(jnp.concatenate([jax.nn.one_hot(keys, pairs), shown], axis=-1), values, ~stored)


def meaningless(key: Key[Array, ""], batch: Batch) -> Batch:
    """Return the sequences with targets that nothing in them predicts."""
    return Batch(batch.inputs, jax.random.randint(key, batch.targets.shape, 0, CLASSES), batch.mask)


def right(batch: Batch) -> tuple[Bool[Array, "n T T"], Bool[Array, " T"]]:
    """Return where row i meets the stored pair of its own key, and which positions hold stored pairs."""
    pairs = batch.inputs.shape[-1] - CLASSES
    keys = batch.inputs[..., :pairs]
    stored = jnp.arange(keys.shape[-2]) < pairs
    return (keys @ jnp.swapaxes(keys, -1, -2) > 0) & stored, stored
