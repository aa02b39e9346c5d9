"""What a trained head says and where it attends, read over blocks of rows, so that no (T, T) array exists."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import sequential_vmap
from jaxtyping import Array, Float, Int

from gradflow.devices import places, spread
from gradflow.diagnostics import entropy, mutual_information, shuffled
from gradflow.laws.routing import head_cross_entropy
from gradflow.models import AttentionHead
from gradflow.types import Batch

ROWS, LOOPS = 64, 6  # rows of a block; loops over blocks, each over the columns that its last row sees


class Attended(NamedTuple):
    """What the rows of a causal softmax head mix.

    Attributes:
        features: F = A X.
        entropy: of each row of A, in nats.
    """

    features: Float[Array, "T d"]
    entropy: Float[Array, " T"]


def attend(head: AttentionHead, x: Float[Array, "T d"], extra: Float[Array, "T k"] | None = None) -> Attended:
    """Mix the inputs by the weights of a causal softmax head at temperature 1.

    Args:
        head: the head.
        x: inputs.
        extra: further columns to mix.

    Returns:
        F, with A times the further columns behind it, and entropies.
    """
    queries, keys = x @ head.w_q / math.sqrt(head.w_q.shape[-1]), x @ head.w_k
    return Attended(*_mix(queries, keys, x if extra is None else jnp.concatenate([x, extra.astype(x.dtype)], axis=1)))


@sequential_vmap  # products with a batch axis are many times as slow on a CPU
def _mix(queries: Float[Array, "T d_k"], keys: Float[Array, "T d_k"], sources: Float[Array, "T m"]) -> Any:
    """Return A times the sources and the entropy of each row of A, A = softmax(Q K^T) causal."""
    length = len(queries)
    blocks = -(-length // ROWS)
    queries = jnp.pad(queries, ((0, blocks * ROWS - length), (0, 0)))

    def rows(seen: int, index: Array) -> tuple[Array, Array]:
        first = index * ROWS
        scores = lax.dynamic_slice_in_dim(queries, first, ROWS) @ keys[:seen].T
        visible = jnp.arange(seen) <= first + jnp.arange(ROWS)[:, None]
        scores = jnp.where(visible, scores, -jnp.inf)
        above = scores - jnp.max(scores, axis=-1, keepdims=True)
        weights = jnp.exp(above)
        total = jnp.sum(weights, axis=-1, keepdims=True)
        spent = jnp.sum(weights * jnp.where(visible, above, 0), axis=-1, keepdims=True)
        return weights @ sources[:seen] / total, (jnp.log(total) - spent / total)[:, 0]

    each = -(-blocks // LOOPS)
    parts = [
        lax.map(functools.partial(rows, min(stop * ROWS, length)), jnp.arange(start, stop))
        for start, stop in ((start, min(start + each, blocks)) for start in range(0, blocks, each))
    ]
    joined = jax.tree.map(lambda *loops: jnp.concatenate(loops), *parts)
    return jax.tree.map(lambda y: y.reshape(blocks * ROWS, *y.shape[2:])[:length], joined)


@jax.jit
def loss_of(heads: AttentionHead, batch: Batch) -> Float[Array, " K"]:
    """Return the loss of each of K heads on one batch, in nats."""
    with jax.default_matmul_precision("highest"):
        return lax.map(lambda head: head_cross_entropy(head, batch), heads)


@jax.jit
def read(heads: AttentionHead, batch: Batch, sources: Int[Array, " T"]) -> dict[str, Float[Array, " K"]]:
    """Measure each of K heads on one sequence.

    Args:
        heads: along a run.
        batch: the sequence, n = 1, all of whose targets count.
        sources: the symbol hidden behind each input.

    Returns:
        `accuracy`; `prediction_entropy` in nats; `attention_entropy`, of a row over the log of its length, a mean over
        rows with more than one entry; `information` of a row's own symbol and the one it attends to, in bits, and
        `chance`, the same with the rows' own symbols permuted; `same_symbol`, the mean weight on positions with the
        row's own symbol.
    """
    n_classes = heads.w_o.shape[-1]
    held = jax.nn.one_hot(sources, n_classes, dtype=heads.w_o.dtype)
    permuted = shuffled(jax.random.key(0), sources)

    def one(head: AttentionHead) -> dict[str, Array]:
        x = batch.inputs[0]
        attended = attend(head, x, held)
        features, symbols = jnp.split(attended.features, [x.shape[1]], axis=1)
        logits = features @ head.w_v @ head.w_o
        lengths = jnp.arange(2, len(x) + 1)
        # A query and the symbol that it attends to: a table of T rows and C columns is the attention to C classes.
        classes = jnp.arange(n_classes)
        return {
            "accuracy": jnp.mean(jnp.argmax(logits, axis=-1) == batch.targets[0], dtype=logits.dtype),
            "prediction_entropy": jnp.mean(entropy(jax.nn.softmax(logits))),
            "attention_entropy": jnp.mean(attended.entropy[1:] / jnp.log(lengths)),
            "information": mutual_information(symbols, classes, n_classes, queries=sources),
            "chance": mutual_information(symbols, classes, n_classes, queries=permuted),
            "same_symbol": jnp.mean(jnp.take_along_axis(symbols, sources[:, None], axis=1)),
        }

    with jax.default_matmul_precision("highest"):
        return lax.map(one, heads)


def read_all(
    heads: Any, batch: Batch, known: Any, measured: Any, reader: Callable[..., dict[str, Array]] = read
) -> dict[str, np.ndarray]:
    """Measure the heads of all arms and seeds on all cores.

    Args:
        heads: along the runs, leaves (arms, S, saves, ...).
        batch: one sequence a seed.
        known: what the reader is told of each sequence, arrays (S, ...): for `read` the symbols behind the inputs.
        measured: indices of the saves at which attention is measured.
        reader: measures heads on one sequence.

    Returns:
        `loss` (arms, S, saves), and what the reader measures, (arms, S, measured).
    """
    arms, seeds = heads.w_q.shape[:2]
    found: dict[int, dict[str, np.ndarray]] = {}

    def work(job: int, device: Any, cancelled: Any) -> dict[str, np.ndarray]:
        arm, seed = divmod(job, seeds)
        own = jax.tree.map(lambda x: jnp.asarray(x[arm, seed]) if isinstance(x, np.ndarray) else x, heads)
        data, told = jax.tree.map(lambda x: x[seed], (batch, known))
        some = jax.tree.map(lambda x: x[np.asarray(measured)] if eqx.is_array(x) else x, own)
        return {"loss": np.asarray(loss_of(own, data))} | jax.tree.map(np.asarray, reader(some, data, told))

    spread(arms * seeds, places(None, None), work, found.__setitem__)
    rows = [found[job] for job in range(arms * seeds)]
    return {name: np.stack([row[name] for row in rows]).reshape(arms, seeds, -1) for name in rows[0]}
