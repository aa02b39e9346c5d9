"""Bigrams with triggers: a text's bigrams, except that some characters are followed by what the sequence says.

The task of Bietti et al. (arXiv 2306.00802): a model first learns the table, then, by an induction head, to look up
what followed a trigger before.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from gradflow.errors import FlowError, whole_number
from gradflow.tasks.arguments import check_count, check_key
from gradflow.tasks.corpus import encoded
from gradflow.tasks.markov.chains import as_bayes
from gradflow.types import Batch, Bayes


class Bigram(eqx.Module):
    """Sequences of characters: after trigger k always the output o_k, drawn anew for each sequence; else a bigram.

    Attributes:
        table: p(next | character) of the text, in rows.
        initial: law of the first character, the text's frequencies.
        triggers: characters whose followers are drawn for each sequence, uniformly over all characters.
        alphabet: the characters, sorted.
        length: T, tokens that a model reads.
    """

    table: Float[Array, "C C"]
    initial: Float[Array, " C"]
    triggers: Int[Array, " k"]
    alphabet: str = eqx.field(static=True)
    length: int = eqx.field(static=True)

    @classmethod
    def of(cls, text: str, triggers: int | str = 3, length: int = 64) -> "Bigram":
        """Return the task whose bigrams are those of a text.

        Args:
            text: counted as it is; see `corpus`. `text.lower()` has no capitals.
            triggers: the characters themselves, or how many: the most frequent ones.
            length: T.

        Returns:
            The task.

        Raises:
            FlowError: if the text is no string, has fewer than two different characters, or lacks a trigger.
        """
        length = whole_number("length", length, 2)
        alphabet, symbols = encoded(text)
        size = len(alphabet)
        if size < 2:
            raise FlowError(f"text has {size} different characters: bigrams take at least 2; pass a longer text")
        counts = np.zeros((size, size))
        np.add.at(counts, (symbols[:-1], symbols[1:]), 1)
        frequency = np.bincount(symbols, minlength=size) / len(symbols)
        # A character that only ends the text is followed by any, as often as it occurs.
        table = np.where(counts.sum(1, keepdims=True) > 0, counts, frequency)
        chosen = _triggers(triggers, alphabet, frequency)
        rows = table / table.sum(1, keepdims=True)
        return cls(jnp.asarray(rows), jnp.asarray(frequency), jnp.asarray(chosen), alphabet, length)

    @property
    def n_tokens(self) -> int:
        """Size of the vocabulary."""
        return len(self.alphabet)

    @property
    def n_classes(self) -> int:
        """Number of classes: a model may name any character."""
        return self.n_tokens

    def sample(self, key: Key[Array, ""], n: int) -> Batch:
        """Draw sequences.

        Args:
            key: typed key.
            n: number of sequences.

        Returns:
            Characters (n, T) and the next of each; all count. Where the next one can be looked up is another mask:
            `Batch(batch.inputs, batch.targets, task.known(batch))`.

        Raises:
            FlowError: if the key is none, or n is below 1.
        """
        check_key(key)
        check_count("n", n)
        sequences = jax.vmap(self._draw)(jax.random.split(key, n))
        return Batch(sequences[:, :-1], sequences[:, 1:], jnp.ones((n, self.length), bool))

    def is_trigger(self, tokens: Int[Array, "*n"]) -> Bool[Array, "*n"]:
        """Return which tokens are triggers."""
        return jnp.any(tokens[..., None] == self.triggers, axis=-1)

    def known(self, batch: Batch) -> Bool[Array, "n T"]:
        """Return where the next character follows a trigger that has occurred before: what an induction head finds.

        Args:
            batch: sequences of this task.

        Returns:
            True at the second and later occurrences of each trigger.
        """
        return self.is_trigger(batch.inputs) & (_previous(batch.inputs) >= 0)

    def bayes(self, batch: Batch) -> Bayes:
        """Return what the best predictor knows, who knows table and triggers: after a trigger, what followed it before.

        Args:
            batch: sequences of this task.

        Returns:
            Probabilities (n, T, C) of the next character, and their entropy in bits.
        """
        tokens, size = batch.inputs, self.n_tokens
        before = _previous(tokens)
        answer = jax.nn.one_hot(jnp.take_along_axis(tokens, jnp.maximum(before, 0) + 1, axis=1), size)
        looked_up = jnp.where((before >= 0)[..., None], answer, 1 / size)
        return as_bayes(jnp.where(self.is_trigger(tokens)[..., None], looked_up, self.table[tokens]))

    def _draw(self, key: Key[Array, ""]) -> Int[Array, " T+1"]:
        first_key, output_key, step_key = jax.random.split(key, 3)
        # What follows each character: its output where it is a trigger, else the place of a number in its law.
        outputs = jax.random.randint(output_key, self.triggers.shape, 0, self.n_tokens)
        follower = jnp.full(self.n_tokens, -1, outputs.dtype).at[self.triggers].set(outputs)
        cumulated = jnp.cumsum(self.table, axis=1)

        def step(token: Array, number: Array) -> tuple[Array, Array]:
            drawn = _place(cumulated[token], number)
            following = jnp.where(follower[token] >= 0, follower[token], drawn)
            return following, following

        first = _place(jnp.cumsum(self.initial), jax.random.uniform(first_key))
        _, rest = lax.scan(step, first, jax.random.uniform(step_key, (self.length,)))
        return jnp.concatenate([first[None], rest]).astype(jnp.int32)


def _triggers(triggers: int | str, alphabet: str, frequency: np.ndarray) -> np.ndarray:
    if isinstance(triggers, str):
        missing = [character for character in triggers if character not in alphabet]
        if missing or not triggers or len(set(triggers)) < len(triggers):
            raise FlowError(f"triggers is {triggers!r}: pass different characters, each one of {alphabet!r}")
        return np.array([alphabet.index(character) for character in triggers])
    count = whole_number("triggers", triggers)
    if count > len(alphabet):
        raise FlowError(f"triggers is {count}: the text has {len(alphabet)} characters; pass at most as many")
    return np.argsort(-frequency, kind="stable")[:count]


def _place(cumulated: Float[Array, " C"], number: Float[Array, ""]) -> Int[Array, ""]:
    """Return the place of a number below one in a cumulated law; never one of probability zero."""
    return jnp.sum(cumulated <= number * cumulated[-1])


def _previous(tokens: Int[Array, "n T"]) -> Int[Array, "n T"]:
    """Return where the token of each position occurred last before it, -1 where it did not."""
    positions = jnp.arange(tokens.shape[1])
    same = (tokens[:, :, None] == tokens[:, None, :]) & (positions < positions[:, None])
    return jnp.max(jnp.where(same, positions, -1), axis=-1)
