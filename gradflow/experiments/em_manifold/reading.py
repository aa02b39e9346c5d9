"""The shape of a head's values and outputs, and how its queries meet its keys, without a (T, T) array."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from gradflow.diagnostics import mutual_information, participation_ratio, shuffled, spearman, value_pca
from gradflow.experiments.sticky_markov.reading import attend
from gradflow.models import AttentionHead
from gradflow.types import Batch

CLOUDS = ("values", "outputs")


class Known(NamedTuple):
    """What is known of a sequence besides what the head sees.

    Attributes:
        sources: the symbol hidden behind each input.
        entropies: of the exact filter at each position, in bits.
        permuted: the same entropies in a random order.
    """

    sources: Int[Array, "*S T"]
    entropies: Float[Array, "*S T"]
    permuted: Float[Array, "*S T"]


def cloud(name: str, vectors: Float[Array, "T d"], known: Known) -> dict[str, Float[Array, ""]]:
    """Measure the shape of a cloud of vectors.

    Args:
        name: of the cloud.
        vectors: one a position.
        known: of the sequence.

    Returns:
        Under `name_...`, all but `raw` of standardised vectors, as arXiv 2512.22473 has them: `ratio`, participation
        ratio; `raw`, that of the vectors as they are; `first` and `plane`, the shares of PC1 and of PC1 + PC2;
        `entropy`, |Spearman| of PC1 and the filter's entropy, and `chance`, the same with the entropies permuted.
    """
    found = value_pca(vectors, n_components=2, standardise=True)
    axis = found.coordinates[:, 0]
    measured = {
        "ratio": participation_ratio((vectors - found.basis.mean) / found.basis.scale),
        "raw": participation_ratio(vectors),
        "first": found.shares[0],
        "plane": jnp.sum(found.shares),
        "entropy": jnp.abs(spearman(axis, known.entropies)),
        "chance": jnp.abs(spearman(axis, known.permuted)),
    }
    return {f"{name}_{part}": value for part, value in measured.items()}


@jax.jit
def read_shapes(heads: AttentionHead, batch: Batch, known: Known) -> dict[str, Float[Array, " K"]]:
    """Measure each of K heads on one sequence.

    Args:
        heads: along a run.
        batch: the sequence, n = 1.
        known: of the sequence.

    Returns:
        `values_...` of V = X W_V and `outputs_...` of G = A V, see `cloud`; `alignment`, the mean cosine of a query and
        the keys it attends to, and `alignment_uniform`, of a query and all keys up to it; `information` of a row's own
        symbol and the one it attends to, in bits, and `information_chance` with the rows' own symbols permuted.
    """
    n_classes, x = heads.w_o.shape[-1], batch.inputs[0]
    held = jax.nn.one_hot(known.sources, n_classes, dtype=x.dtype)
    others = shuffled(jax.random.key(0), known.sources)
    counts = jnp.arange(1, len(x) + 1)[:, None]

    def one(head: AttentionHead) -> dict[str, Array]:
        queries, keys = (_units(x @ w.astype(x.dtype)) for w in (head.w_q, head.w_k))
        attended = attend(head, x, jnp.concatenate([held, keys], axis=1)).features
        features, symbols, answers = jnp.split(attended, [x.shape[1], x.shape[1] + n_classes], axis=1)
        classes = jnp.arange(n_classes)
        return {
            "alignment": jnp.mean(jnp.sum(queries * answers, axis=1)),
            "alignment_uniform": jnp.mean(jnp.sum(queries * jnp.cumsum(keys, axis=0) / counts, axis=1)),
            "information": mutual_information(symbols, classes, n_classes, queries=known.sources),
            "information_chance": mutual_information(symbols, classes, n_classes, queries=others),
            **cloud("values", x @ head.w_v, known),
            **cloud("outputs", features @ head.w_v, known),
        }

    with jax.default_matmul_precision("highest"):
        return lax.map(one, heads)


def _units(vectors: Float[Array, "T d"]) -> Float[Array, "T d"]:
    return vectors / jnp.linalg.norm(vectors, axis=1, keepdims=True)
