"""Induction with BOS in front, anywhere or nowhere: what a model is trained on, and how a test rearranges it.

All arms have sequences of one length, so that they share a kernel. Where BOS is absent its place is hidden from every
other row and not trained on, and the other tokens take the positions from 0 on: the same as a sequence without it.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from gradflow.experiments.transformers import PRECISION
from gradflow.tasks import Induction
from gradflow.types import Batch

FIRST, MOVED, ABSENT, EXCHANGED, LED = range(5)  # arms; the last two are without BOS and differ in their start
TO = 2  # where BOS or a position is moved to, counted from the first token that is seen


class Variant(NamedTuple):
    """How a test rearranges sequences, and where the things are that a sink may be tied to.

    Attributes:
        label: in words.
        bos: place of the token BOS, None where it is not seen.
        zero: place of the embedding of position 0, None where it is not used.
        first: the first place that is seen.
        replaced: whether another symbol stands in for BOS.
    """

    label: str
    bos: int | None
    zero: int | None
    first: int
    replaced: bool = False


VARIANTS = {
    "usual": Variant("BOS first", 0, 0, 0),
    "token": Variant("BOS moved", TO, 0, 0),
    "position": Variant("position 0 moved", 0, TO, 0),
    "both": Variant("both moved", TO, TO, 0),
    "replaced": Variant("a symbol for BOS", None, 0, 0, replaced=True),
    "hidden": Variant("BOS and position 0 gone", None, None, 1),
    "removed": Variant("BOS gone", None, 1, 1),
    "removed-position": Variant("BOS gone, position 0 moved", None, 1 + TO, 1),
}


class Layout(NamedTuple):
    """A variant as arrays.

    Attributes:
        order: the token of the usual sequence that each place gets.
        positions: the row of the table of positions that each place gets.
        hidden: whether place 0 is hidden from the others.
        replaced: whether another symbol stands in for BOS.
    """

    order: Int[Array | np.ndarray, "*n T"]
    positions: Int[Array | np.ndarray, "*n T"]
    hidden: Bool[Array | np.ndarray, "*n"]
    replaced: Bool[Array | np.ndarray, "*n"]


class Sequences(NamedTuple):
    """What a step or an evaluation reads.

    Attributes:
        batch: sequences of the arm.
        auxiliary: weight of the positions before the last.
        arm: its number.
        lead: added to the scores of one key in the last layer at step 0.
        gone: step at which the lead has faded out.
        left: part of the lead that is left.
        plain: sequences with BOS in front, for tests.
        strangers: a symbol for each of them that it does not have.
    """

    batch: Batch
    auxiliary: Float[Array, ""]
    arm: Int[Array, ""]
    lead: Float[Array, ""]
    gone: Float[Array, ""]
    left: Float[Array, ""]
    plain: Batch
    strangers: Int[Array, " n"]

    def at(self, step: Any) -> "Sequences":
        """Return the same with what is left of the lead at a step."""
        return self._replace(left=jnp.maximum(1 - step / self.gone, 0).astype(PRECISION))


@dataclasses.dataclass(frozen=True)
class Draw:
    """Draws the sequences of a step: `batches=` of a descent. Equal ones are one kernel.

    Attributes:
        task: induction with BOS.
        size: sequences of a step.
    """

    task: Induction
    size: int

    def __call__(self, key: Key[Array, ""], step: Any, data: Sequences) -> Sequences:
        """Return the data of one step; arms of one seed see the same sequences."""
        sequences, places = jax.random.split(key)
        plain = self.task.sample(sequences, self.size)
        return data.at(step)._replace(batch=arranged(self.task, places, plain, data.arm))


def layout(variant: Variant, length: int) -> Layout:
    """Return a variant as arrays."""
    order, positions = np.arange(length), np.arange(length)
    if variant.bos == TO:
        order[: TO + 1] = *range(1, TO + 1), 0
    if variant.zero is not None:
        positions = (positions - variant.first) % length
        positions[[variant.first, variant.zero]] = positions[[variant.zero, variant.first]]
    return Layout(order, positions, np.asarray(variant.first > 0), np.asarray(variant.replaced))


def layouts(length: int) -> Layout:
    """Return all variants, stacked in their order."""
    return Layout(*map(np.stack, zip(*(layout(variant, length) for variant in VARIANTS.values()), strict=True)))


def arranged(task: Induction, key: Key[Array, ""], plain: Batch, arm: Any) -> Batch:
    """Return sequences of an arm: BOS where the arm has it; what it hides, and BOS itself, are no targets.

    Args:
        task: of the sequences.
        key: of the places of BOS.
        plain: sequences with BOS in front.
        arm: its number.

    Returns:
        The sequences. A moved BOS stands anywhere but between the symbol that is asked for and the next.
    """
    n, length = plain.inputs.shape
    place = jnp.arange(length)
    asked = jnp.argmax(plain.inputs[:, 1:-1] == plain.inputs[:, -1:] - task.offset, axis=1)
    draws = jax.random.uniform(key, (n, length - 1), jnp.float32)
    to = jnp.argmax(jnp.where(place[:-1] == asked[:, None] + 1, -1, draws), axis=1)
    to = jnp.where(arm == MOVED, to, 0)[:, None]
    order = jnp.where(place < to, place + 1, jnp.where(place == to, 0, place))
    inputs = jnp.take_along_axis(plain.inputs, order, axis=1)
    targets = jnp.concatenate([inputs[:, 1:], plain.targets[:, -1:]], axis=1)
    return Batch(inputs, targets, (targets != 0) & ((arm < ABSENT) | (place > 0)))


def strangers(task: Induction, key: Key[Array, ""], tokens: Int[Array, "n T"]) -> Int[Array, " n"]:
    """Return for each sequence a symbol that it does not have."""
    known = (tokens[:, :, None] == jnp.arange(1, 1 + task.n_symbols)).any(axis=1)
    draws = jax.random.uniform(key, known.shape, jnp.float32)
    return 1 + jnp.argmax(jnp.where(known, -1, draws), axis=1).astype(tokens.dtype)


def rows_read(length: int) -> slice:
    """Return the rows that tests read: after everything that was moved, before the task's last two."""
    return slice(TO + 2, length - 2)
