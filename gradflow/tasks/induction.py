"""Induction: continue a pattern that was seen once. The task on which arXiv 2603.06248 shows attention sinks.

A sequence is [BOS, k distinct symbols, one of them again (the query), the symbol that followed it]. With `shift` the
query is a twin of the symbol, a token of its own, so that it cannot be found by equality of tokens.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from gradflow.errors import FlowError, shown, whole_number
from gradflow.tasks.arguments import check_count, check_key
from gradflow.tasks.markov.chains import as_bayes
from gradflow.types import Batch, Bayes

BOS = 0


class Induction(eqx.Module):
    """The task; tokens are BOS = 0, symbols 1 .. n, and with `shift` their twins, n + 1 further.

    The paper has n = 49, k = 10, and 100 tokens.

    Attributes:
        n_symbols: n.
        distinct: k, how many different symbols a sequence holds.
        shift: whether the query is the twin of a symbol instead of the symbol itself.
        bos: whether a sequence begins with BOS.
    """

    n_symbols: int = eqx.field(default=49, static=True)
    distinct: int = eqx.field(default=10, static=True)
    shift: bool = eqx.field(default=True, static=True)
    bos: bool = eqx.field(default=True, static=True)

    def __check_init__(self):
        whole_number("n_symbols", self.n_symbols, 2)
        whole_number("distinct", self.distinct, 2)
        if self.distinct > self.n_symbols:
            raise FlowError(f"distinct is {self.distinct} and n_symbols {self.n_symbols}: pass at most as many")
        for name in ("shift", "bos"):
            if not isinstance(getattr(self, name), bool):
                raise FlowError(f"{name} is {shown(getattr(self, name))}: pass True or False")

    @property
    def n_tokens(self) -> int:
        """Size of the vocabulary."""
        return (1 + self.n_symbols) * (2 if self.shift else 1)

    @property
    def n_classes(self) -> int:
        """Number of classes: a model may name any token."""
        return self.n_tokens

    @property
    def offset(self) -> int:
        """From a symbol to the token that asks for it."""
        return 1 + self.n_symbols if self.shift else 0

    @property
    def length(self) -> int:
        """T, tokens that a model reads."""
        return self.distinct + 1 + self.bos

    def sample(self, key: Key[Array, ""], n: int) -> Batch:
        """Draw sequences.

        Args:
            key: typed key.
            n: number of sequences.

        Returns:
            Tokens (n, T), the next of each, and a mask that is all True; the last target is the continuation.

        Raises:
            FlowError: if the key is none, or n is below 1.
        """
        check_key(key)
        check_count("n", n)
        order, place = jax.random.split(key)
        # The k largest of n independent numbers are k places in random order.
        _, symbols = jax.lax.top_k(jax.random.uniform(order, (n, self.n_symbols), jnp.float32), self.distinct)
        symbols = symbols.astype(jnp.int32) + 1
        at = jax.random.randint(place, (n, 1), 0, self.distinct - 1)
        query = jnp.take_along_axis(symbols, at, axis=1) + self.offset
        following = jnp.take_along_axis(symbols, at + 1, axis=1)
        start = [jnp.full((n, 1), BOS, jnp.int32)] if self.bos else []
        tokens = jnp.concatenate([*start, symbols, query, following], axis=1)
        return Batch(tokens[:, :-1], tokens[:, 1:], jnp.ones((n, self.length), bool))

    def bayes(self, batch: Batch) -> Bayes:
        """Return what the best predictor knows after each prefix.

        A symbol to come is any that was not seen, with equal chances; the query one of the first k - 1 symbols; the
        continuation is certain.

        Args:
            batch: sequences of this task.

        Returns:
            Probabilities (n, T, n_tokens) of the next token, and their entropy in bits.
        """
        return as_bayes(jax.vmap(self._predict)(batch.inputs))

    def _predict(self, tokens: Int[Array, " T"]) -> Float[Array, "T C"]:
        first = int(self.bos)
        symbols = tokens[first : first + self.distinct]
        seen = jnp.cumsum(jax.nn.one_hot(symbols, self.n_tokens), axis=0)
        known = jnp.arange(self.n_tokens)
        is_symbol = (known >= 1) & (known <= self.n_symbols)
        unseen = jnp.concatenate([jnp.zeros((1, self.n_tokens)), seen[:-1]]) == 0
        fresh = jnp.where(is_symbol & unseen, 1.0, 0.0)[1 - first :]  # without BOS the first symbol is never asked for
        query = jnp.sum(jax.nn.one_hot(symbols[:-1] + self.offset, self.n_tokens), axis=0)
        asked = symbols == tokens[-1] - self.offset
        answer = jax.nn.one_hot(symbols[jnp.argmax(asked) + 1], self.n_tokens)
        rows = jnp.concatenate([fresh, query[None], answer[None]])
        return rows / jnp.sum(rows, axis=-1, keepdims=True)
