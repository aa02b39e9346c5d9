"""Windows of a text as one head on one-hot characters sees them: its own character, and a bag of earlier ones.

Without positions a score depends on two characters only, s_ij = M[c_i, c_j] with M = W_Q W_K^T / sqrt(d_k). All
occurrences of a character get one weight, so with n_i(c) of them up to position i row i mixes inputs by

    F_i(c) = sum_j A_ij 1[c_j = c] = softmax_c(M[c_i, c] + log n_i(c)),

and loss and gradient, which are exactly those of the head, take T C numbers instead of T^2.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from gradflow.errors import FlowError
from gradflow.models import AttentionHead
from gradflow.tasks import text
from gradflow.tasks.text import Text
from gradflow.types import Batch


class Page(eqx.Module):
    """A window.

    Attributes:
        own: the present character of each position, one-hot.
        log_seen: log of how often each character has occurred up to each position; -inf where it has not.
        targets: the next character of each position.
    """

    own: Float[Array, "T C"]
    log_seen: Float[Array, "T C"]
    targets: Int[Array, " T"]

    @classmethod
    def of(cls, characters: Int[Array, " T+1"], size: int) -> "Page":
        """Return the page of characters, each an index below `size`."""
        own = jax.nn.one_hot(characters[:-1], size, dtype=jnp.result_type(float))
        return cls(own, jnp.log(jnp.cumsum(own, axis=0)), characters[1:])

    @property
    def batch(self) -> Batch:
        """The page as a batch of one sequence."""
        return Batch(self.own[None], self.targets[None], jnp.ones_like(self.targets, bool)[None])

    def alone(self) -> "Page":
        """Return the page of a reader that sees nothing but the present character."""
        return Page(self.own, jnp.log(self.own), self.targets)


def mix(head: AttentionHead, page: Page) -> Float[Array, "T C"]:
    """Return F = A X: how much weight each position gives to each character."""
    return jax.nn.softmax(page.own @ head.w_q @ head.w_k.T / math.sqrt(head.w_q.shape[-1]) + page.log_seen)


def page_loss(head: AttentionHead, page: Page) -> Float[Array, ""]:
    """Return the mean cross-entropy of the next characters, in nats: `gf.losses.cross_entropy(head, page.batch)`."""
    logits = mix(head, page) @ (head.w_v @ head.w_o)
    chosen = jnp.take_along_axis(logits, page.targets[:, None], axis=-1)[:, 0]
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - chosen)


def windows(length: int) -> Text:
    """Cut the text of the package into windows.

    Args:
        length: characters of a window.

    Returns:
        Two windows at least: one to train on, and the next, which is not seen.

    Raises:
        FlowError: if the text is shorter than two windows.
    """
    found = text(window=length)
    if len(found.symbols) < 2:
        raise FlowError(f"length is {length}: the text must hold two windows; pass a smaller length")
    return found


def page_of(found: Text, window: int, shuffle: Key[Array, ""] | None = None) -> Page:
    """Return a window as a page.

    Args:
        found: windows.
        window: which; those after the last begin anew.
        shuffle: permutes the characters, so that there is nothing to route by; None leaves them in order.

    Returns:
        The page.
    """
    window %= len(found.symbols)
    characters = jnp.append(found.symbols[window], found.batch.targets[window, -1])
    ordered = characters if shuffle is None else jax.random.permutation(shuffle, characters)
    return Page.of(ordered, len(found.alphabet))


def floors(page: Page) -> dict[str, Float[Array, ""]]:
    """Return the least losses, on the page itself, of predictors that see nothing and the present character.

    Args:
        page: one.

    Returns:
        `unigram` H(next) and `bigram` H(next | present), in nats.
    """
    size = page.own.shape[-1]
    one = Text(page.batch, jnp.argmax(page.own, axis=-1)[None], "?" * size)
    return {"unigram": one.unigram_entropy, "bigram": one.bigram_entropy}


def unseen_floors(page: Page, unseen: Page, smoothing: float) -> dict[str, Float[Array, ""]]:
    """Return the losses on another page of what a page says about frequencies.

    Args:
        page: counted.
        unseen: predicted.
        smoothing: k in p(c' | c) = (n(c, c') + k p(c')) / (n(c) + k), with p(c') = (n(c') + 1) / (T + C).

    Returns:
        `unseen_unigram` and `unseen_bigram`, in nats.
    """
    follows = jax.nn.one_hot(page.targets, page.own.shape[-1], dtype=page.own.dtype)
    unigram = (jnp.sum(follows, axis=0) + 1) / (follows.shape[0] + follows.shape[1])
    pairs = page.own.T @ follows + smoothing * unigram
    bigram = pairs / jnp.sum(pairs, axis=-1, keepdims=True)
    rows = {"unseen_unigram": unigram[unseen.targets]}
    rows["unseen_bigram"] = jnp.take_along_axis(unseen.own @ bigram, unseen.targets[:, None], axis=-1)
    return {name: -jnp.mean(jnp.log(p)) for name, p in rows.items()}
