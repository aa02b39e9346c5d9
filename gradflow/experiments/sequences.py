"""Short sequences for one small head: tasks of one shape, so that all of them are members of one ensemble.

Inputs have 16 features and targets 8 classes whatever the task; a single sequence is the whole data set, as in the
sticky chain of arXiv 2512.22473. Lengths, sizes and draws are ours.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from gradflow.tasks import StickyMarkov, one_hot
from gradflow.types import Batch

FEATURES, CLASSES = 16, 8
TASKS = {
    "sticky-known": "sticky chain, symbols seen",
    "sticky-noisy": "sticky chain, symbols behind noise",
    "copy": "copy the symbol of the position",
    "recall": "recall the value stored under a key",
    "random-labels": "labels that nothing predicts",
}


def draw(task: str, key: Key[Array, ""], length: int) -> Batch:
    """Draw the sequence of a task.

    Args:
        task: one of `TASKS`.
        key: typed key.
        length: T, >= 6.

    Returns:
        One sequence: inputs (1, T, 16), targets (1, T) and which of them count.
    """
    return _DRAWS[task](key, length)


def draw_all(tasks: Sequence[str], keys: Sequence[Key[Array, ""]], length: int) -> Batch:
    """Stack the sequences of every task for every key; no two tasks share their draws.

    Args:
        tasks: names.
        keys: typed keys, innermost.
        length: T.

    Returns:
        Members (tasks x keys, 1, T, ...).
    """
    batches = [draw(task, jax.random.fold_in(key, index), length) for index, task in enumerate(tasks) for key in keys]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *batches)


def _known(key: Key[Array, ""], length: int) -> Batch:
    return _padded(one_hot(StickyMarkov().sample(key, 1, length=length + 1), CLASSES))


def _noisy(key: Key[Array, ""], length: int) -> Batch:
    return StickyMarkov.noisy(n_features=FEATURES).sample(key, 1, length=length + 1)


def _copy(key: Key[Array, ""], length: int) -> Batch:
    symbols = jax.random.randint(key, (1, length), 0, CLASSES)
    return _padded(one_hot(Batch(symbols, symbols, jnp.ones_like(symbols, bool)), CLASSES))


def _recall(key: Key[Array, ""], length: int) -> Batch:
    """Store values under distinct keys in the first third, then ask for keys at random."""
    order, stored, asked = jax.random.split(key, 3)
    pairs = min(CLASSES, length // 3)
    names = jax.random.permutation(order, CLASSES)[:pairs]
    values = jax.random.randint(stored, (pairs,), 0, CLASSES)
    queries = jax.random.randint(asked, (length - pairs,), 0, pairs)
    keyed = jax.nn.one_hot(jnp.concatenate([names, names[queries]]), CLASSES)
    valued = jnp.zeros((length, CLASSES)).at[:pairs].set(jax.nn.one_hot(values, CLASSES))
    targets = jnp.concatenate([values, values[queries]])
    inputs = jnp.concatenate([keyed, valued], axis=-1)
    return Batch(inputs[None], targets[None], (jnp.arange(length) >= pairs)[None])


def _random(key: Key[Array, ""], length: int) -> Batch:
    inputs, labels = jax.random.split(key)
    targets = jax.random.randint(labels, (1, length), 0, CLASSES)
    return Batch(jax.random.normal(inputs, (1, length, FEATURES)), targets, jnp.ones((1, length), bool))


def _padded(batch: Batch) -> Batch:
    missing = FEATURES - batch.inputs.shape[-1]
    return Batch(jnp.pad(batch.inputs, ((0, 0), (0, 0), (0, missing))), batch.targets, batch.mask)


_DRAWS = {"sticky-known": _known, "sticky-noisy": _noisy, "copy": _copy, "recall": _recall, "random-labels": _random}
