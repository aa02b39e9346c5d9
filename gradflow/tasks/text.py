"""Next-character prediction in real text, with the floors of predictors that look at no or one character."""

import os

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from gradflow.errors import FlowError, whole_number
from gradflow.tasks.corpus import corpus, encoded
from gradflow.tasks.markov.chains import entropy
from gradflow.types import Batch


class Text(eqx.Module):
    """Windows of a text.

    Attributes:
        batch: one-hot characters, the character that follows each, and a mask that is all True.
        symbols: the character at each position, an index into `alphabet`.
        alphabet: the characters of the whole text, sorted.
    """

    batch: Batch
    symbols: Int[Array, "n T"]
    alphabet: str = eqx.field(static=True)

    @property
    def unigram_entropy(self) -> Float[Array, ""]:
        """H(next) in nats: the least loss on these windows of a predictor that looks at nothing."""
        return entropy(jnp.sum(self._pairs, axis=0))

    @property
    def bigram_entropy(self) -> Float[Array, ""]:
        """H(next | present) in nats: the least loss on these windows of a predictor that sees one character."""
        return jnp.sum(entropy(self._pairs)) - entropy(jnp.sum(self._pairs, axis=1))

    @property
    def _pairs(self) -> Float[Array, "C C"]:
        """Return the joint law of the present character, in rows, and the next."""
        size = len(self.alphabet)
        counts = jnp.zeros((size, size), jnp.result_type(float)).at[self.symbols, self.batch.targets].add(1)
        return counts / self.symbols.size


def text(path: str | os.PathLike[str] | None = None, *, window: int | None = 64, context: int = 1) -> Text:
    """Cut a text into windows that do not overlap, to predict each next character.

    Args:
        path: a text as `corpus` takes it: a file in UTF-8; None is what is part of the package.
        window: T, positions of a window; what is left at the end is dropped. None is one window of everything.
        context: k, how many characters up to the present one an input holds, side by side, the oldest first.

    Returns:
        Inputs (n, T, k C) in the default float type, C the size of the alphabet; the targets (n, T) all count.

    Raises:
        FlowError: if the file cannot be read, is empty, is not UTF-8 or is shorter than a window.
    """
    context = whole_number("context", context)
    characters = corpus(path)
    available = len(characters) - context
    length = max(available, 1) if window is None else whole_number("window", window)
    if available < length:
        needed = f"a window of {length} with context {context} takes {length + context}"
        raise FlowError(f"the text has {len(characters)} characters, {needed}; pass a smaller window or a longer text")
    alphabet, symbols = encoded(characters)
    count = available // length
    # Position i of window w is character context - 1 + w T + i: the first that has its whole context before it.
    present = context - 1 + np.arange(count * length).reshape(count, length)
    seen = jnp.asarray(symbols[present[..., None] + np.arange(1 - context, 1)])
    rows = jax.nn.one_hot(seen, len(alphabet), dtype=jnp.result_type(float))
    targets = jnp.asarray(symbols[present + 1])
    batch = Batch(rows.reshape(count, length, -1), targets, jnp.ones_like(targets, bool))
    return Text(batch, seen[..., -1], alphabet)
