"""Groups: to which group do the tokens belong? The task on which arXiv 2603.06248 shows what one token can do."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from gradflow.errors import FlowError, whole_number
from gradflow.tasks.arguments import check_count, check_key
from gradflow.types import Batch, Bayes

CLS = 0


class Groups(eqx.Module):
    """Classification: k distinct tokens of one group, then CLS = 0, where the group is asked for.

    Any one of the k tokens tells the answer. Tokens 1 .. n_tokens - 1 fall into equal groups of neighbours.

    Attributes:
        n_tokens: size of the vocabulary with CLS; the paper has 41, 81 and 161.
        n_groups: number of groups, the classes.
        distinct: k, tokens of a sequence beside CLS.
    """

    n_tokens: int = eqx.field(default=41, static=True)
    n_groups: int = eqx.field(default=4, static=True)
    distinct: int = eqx.field(default=10, static=True)

    def __check_init__(self):
        whole_number("n_tokens", self.n_tokens, 2)
        whole_number("n_groups", self.n_groups)
        whole_number("distinct", self.distinct)
        if (self.n_tokens - 1) % self.n_groups:
            raise FlowError(
                f"n_tokens is {self.n_tokens}: without CLS its {self.n_tokens - 1} tokens must fall into "
                f"{self.n_groups} equal groups; pass a multiple of {self.n_groups}, plus 1"
            )
        if self.distinct > self.group_size:
            raise FlowError(f"distinct is {self.distinct} and a group has {self.group_size} tokens: pass at most those")

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return self.n_groups

    @property
    def group_size(self) -> int:
        """Tokens of a group."""
        return (self.n_tokens - 1) // self.n_groups

    @property
    def length(self) -> int:
        """T, tokens that a model reads."""
        return self.distinct + 1

    def group_of(self, tokens: Int[Array, "*n"]) -> Int[Array, "*n"]:
        """Return the group of each token; -1 for CLS.

        Args:
            tokens: numbers below `n_tokens`.

        Returns:
            Groups from 0.
        """
        return jnp.where(jnp.asarray(tokens) == CLS, -1, (jnp.asarray(tokens) - 1) // self.group_size)

    def sample(self, key: Key[Array, ""], n: int) -> Batch:
        """Draw sequences.

        Args:
            key: typed key.
            n: number of sequences.

        Returns:
            Tokens (n, T), CLS last; the group as target of every position, of which the last one counts.

        Raises:
            FlowError: if the key is none, or n is below 1.
        """
        check_key(key)
        check_count("n", n)
        order, group_key = jax.random.split(key)
        _, place = jax.lax.top_k(jax.random.uniform(order, (n, self.group_size), jnp.float32), self.distinct)
        group = jax.random.randint(group_key, (n, 1), 0, self.n_groups)
        tokens = jnp.pad((1 + group * self.group_size + place).astype(jnp.int32), ((0, 0), (0, 1)), constant_values=CLS)
        targets = jnp.broadcast_to(group, tokens.shape)
        return Batch(tokens, targets, jnp.broadcast_to(jnp.arange(self.length) == self.distinct, tokens.shape))

    def bayes(self, batch: Batch) -> Bayes:
        """Return the exact answer: the group of the first token, at every position.

        Args:
            batch: sequences of this task.

        Returns:
            Probabilities (n, T, n_groups), one-hot, and their entropy, 0 bits.
        """
        group = jnp.broadcast_to(self.group_of(batch.inputs[:, :1]), batch.inputs.shape)
        return Bayes(jax.nn.one_hot(group, self.n_groups), jnp.zeros(group.shape))
