"""Real text for small transformers: tasks that a sweep can hold, and the loss at every position.

A task of `gf.tasks` on a text holds arrays, which neither hash nor compare. Here a task is its settings and the digest
of its text; it is built from them once a process.
"""

import collections
import dataclasses
import functools
import hashlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from gradflow import losses
from gradflow.errors import whole_number
from gradflow.experiments import transformers
from gradflow.models import Transformer
from gradflow.tasks import Bigram, Characters, corpus
from gradflow.types import Batch

OTHER = "\N{REPLACEMENT CHARACTER}"  # stands for all characters that are not among the most frequent ones
PARTS = ("training", "held out")


@functools.lru_cache(maxsize=8)
def read(source: str, letters: int) -> str:
    """Return a text in lower case with a short alphabet.

    Args:
        source: as `gf.tasks.corpus` takes it: a file in UTF-8, or "bible".
        letters: the largest alphabet; of a larger one, the most frequent characters but one stay and `OTHER` stands
            for the rest.

    Returns:
        The text.

    Raises:
        FlowError: if it cannot be read, is empty or is not UTF-8, or `letters` is below 2.
    """
    whole_number("letters", letters, 2)
    text = corpus(source).lower()
    counts = collections.Counter(text)
    if len(counts) <= letters:
        return text
    kept = dict(counts.most_common(letters - 1))
    return text.translate({ord(letter): OTHER for letter in counts if letter not in kept})


def digest(text: str) -> str:
    """Return a hash of a text, by which a sweep knows that it goes on with the same one."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclasses.dataclass(frozen=True)
class BigramText:
    """`gf.tasks.Bigram` of a text, known by its settings; a token BOS may stand before its sequences.

    Attributes:
        source: of the text.
        letters: of the alphabet, at most.
        triggers: how many of the most frequent characters.
        characters: of a sequence that a model reads.
        bos: whether a token that is no character comes first; what follows it does not count.
        digest: of the text.
    """

    source: str
    letters: int
    triggers: int
    characters: int
    bos: bool
    digest: str

    @classmethod
    def of(cls, source: str, letters: int, triggers: int, characters: int, bos: bool = False) -> "BigramText":
        """Return the task; its text is read and its settings are checked at once.

        Args:
            source: of the text.
            letters: of the alphabet, at most.
            triggers: how many of the most frequent characters.
            characters: of a sequence that a model reads.
            bos: whether a token that is no character comes first.

        Returns:
            The task.

        Raises:
            FlowError: if the text or a setting cannot be used.
        """
        made = cls(source, letters, triggers, characters, bos, digest(read(source, letters)))
        _bigram(made)
        return made

    @property
    def task(self) -> Bigram:
        """The task with its table, in float32, without BOS."""
        return _bigram(self)

    @property
    def length(self) -> int:
        """T, tokens that a model reads."""
        return self.characters + self.bos

    @property
    def n_tokens(self) -> int:
        """Size of the vocabulary."""
        return self.task.n_tokens + self.bos

    @property
    def n_classes(self) -> int:
        """Number of classes, which BOS is none of."""
        return self.task.n_classes

    def sample(self, key: Key[Array, ""], n: int) -> Batch:
        """Draw n sequences, the same with BOS and without."""
        batch = self.task.sample(key, n)
        if not self.bos:
            return batch
        first = jnp.full((n, 1), self.task.n_tokens, batch.inputs.dtype)
        joined = jnp.concatenate([first, batch.inputs], axis=1)
        return Batch(joined, jnp.concatenate([batch.inputs[:, :1], batch.targets], axis=1), joined != first)

    def is_trigger(self, batch: Batch) -> Bool[Array, "n T"]:
        """Return which tokens are triggers."""
        return self.task.is_trigger(batch.inputs)

    def known(self, batch: Batch) -> Bool[Array, "n T"]:
        """Return where the next character follows a trigger that has occurred before."""
        return self._behind_bos(self.task.known(self._characters(batch)), False)

    def exact(self, batch: Batch) -> Float[Array, "n T"]:
        """Return the loss of the exact posterior at each position, in nats; 0 at BOS."""
        inside = self._characters(batch)
        p = jnp.take_along_axis(self.task.bayes(inside).probabilities, inside.targets[..., None], axis=-1)[..., 0]
        return self._behind_bos(-jnp.log(p), 0)

    def _characters(self, batch: Batch) -> Batch:
        return jax.tree.map(lambda x: x[:, int(self.bos) :], batch)

    def _behind_bos(self, values: Array, first: Any) -> Array:
        return jnp.pad(values, ((0, 0), (int(self.bos), 0)), constant_values=first)


@dataclasses.dataclass(frozen=True)
class CharactersText:
    """`gf.tasks.Characters` of a part of a text, known by its settings.

    Attributes:
        source: of the text.
        letters: of the alphabet, at most.
        length: T.
        part: one of `PARTS`: the first nine tenths of the text, or the rest.
        digest: of the text.
    """

    source: str
    letters: int
    length: int
    part: str
    digest: str

    @classmethod
    def of(cls, source: str, letters: int, length: int) -> "tuple[CharactersText, CharactersText]":
        """Return the task of the part for training and of the part that is held out.

        Args:
            source: of the text.
            letters: of the alphabet, at most.
            length: T.

        Returns:
            Two tasks of one alphabet.

        Raises:
            FlowError: if the text or a setting cannot be used.
        """
        name = digest(read(source, letters))
        training, held_out = (cls(source, letters, length, part, name) for part in PARTS)
        _characters(training)
        return training, held_out

    @property
    def task(self) -> Characters:
        """The task with its text."""
        return _characters(self)

    @property
    def n_tokens(self) -> int:
        """Size of the vocabulary, with BOS."""
        return self.task.n_tokens

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return self.task.n_classes

    def sample(self, key: Key[Array, ""], n: int) -> Batch:
        """Draw n windows."""
        return self.task.sample(key, n)


def member(
    key: Key[Array, ""], *, task: Any, evaluated: int, **options: Any
) -> tuple[Callable, Transformer, tuple[Batch, Any]]:
    """Build a member of a sweep that learns every position; see `transformers.member`.

    Args:
        key: of the draws.
        task: of the sequences for evaluation.
        evaluated: how many.
        **options: of `Transformer.init`.

    Returns:
        `(loss, model, args)`.
    """
    _, model, args = transformers.member(key, task=task, evaluated=evaluated, auxiliary=0.0, **options)
    return every_position, model, args


def every_position(model: Transformer, args: tuple[Batch, Any]) -> Float[Array, ""]:
    """Return the cross-entropy of all targets that count, in nats."""
    return losses.cross_entropy(model, args[0])


def surprise(logits: Float[Array, "n T C"], batch: Batch) -> Float[Array, "n T"]:
    """Return the loss at each position, in nats."""
    log_p = jax.nn.log_softmax(logits, axis=-1)
    return -jnp.take_along_axis(log_p, batch.targets[..., None], axis=-1)[..., 0]


@functools.lru_cache(maxsize=8)
def _bigram(task: BigramText) -> Bigram:
    with jax.ensure_compile_time_eval():
        made = Bigram.of(read(task.source, task.letters), task.triggers, task.characters)
        return jax.tree.map(lambda x: x.astype(jnp.float32) if jnp.issubdtype(x.dtype, jnp.floating) else x, made)


@functools.lru_cache(maxsize=8)
def _characters(task: CharactersText) -> Characters:
    with jax.ensure_compile_time_eval():
        return Characters.of(read(task.source, task.letters), task.length).split()[PARTS.index(task.part)]
