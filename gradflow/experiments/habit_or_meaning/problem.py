"""A transformer that reads rearranged sequences, with a lead on one key of its last layer; what is read off it."""

import functools
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from gradflow import losses
from gradflow.diagnostics import sink_score
from gradflow.experiments.habit_or_meaning.sequences import (
    ABSENT,
    EXCHANGED,
    LED,
    TO,
    VARIANTS,
    Layout,
    Sequences,
    arranged,
    layout,
    layouts,
    rows_read,
    strangers,
)
from gradflow.experiments.transformers import PRECISION, predictions
from gradflow.models import Transformer
from gradflow.models.attention import AbstractKernel
from gradflow.tasks import Induction

TARGET = 1 + TO  # place of the key that is given the lead
READ = -3  # the row before the task's last two: it sees all keys that others see


class Led(AbstractKernel):
    """A kernel of scores, to which a lead is added.

    Attributes:
        base: the kernel.
        lead: of each key, or of each head, row and key.
    """

    takes_bias: ClassVar[bool] = True
    base: AbstractKernel
    lead: Float[Array, "*H_T T"]

    def __call__(self, queries, keys, mask=None, bias=None):
        """Return scores with the lead, and their weights."""
        lead = jnp.broadcast_to(self.lead, (*queries.shape[:2], keys.shape[1]))
        return self.base(queries, keys, mask, lead if bias is None else bias + lead)


class Reader(eqx.Module):
    """A transformer with a mask.

    Attributes:
        model: with its table of positions in the order of the places.
        where: which keys a row sees.
    """

    model: Transformer
    where: Bool[Array, "T T"]

    def __call__(self, tokens: Any, capture: bool = False) -> Any:
        """Return logits, or logits and what happened inside."""
        return self.model(tokens, self.where, capture=capture)


def reader(model: Transformer, positions: Any, hidden: Any) -> Reader:
    """Return a model that reads rearranged sequences.

    Args:
        model: the transformer.
        positions: the row of the table that each place gets (T,).
        hidden: whether place 0 is hidden from the others.

    Returns:
        The model with its mask.
    """
    if model.positions is not None:
        model = eqx.tree_at(lambda m: m.positions, model, model.positions[positions])
    place = jnp.arange(len(positions))
    return Reader(model, ~(hidden & (place == 0) & (place[:, None] > 0)))


def of_arm(model: Transformer, data: Sequences, extra: Any = 0.0) -> Reader:
    """Return a model that reads the sequences of its arm.

    Args:
        model: the transformer.
        data: of the arm.
        extra: added to the scores of the last layer beside the lead.

    Returns:
        The model with its mask.
    """
    length = data.batch.inputs.shape[-1]
    lead = data.lead * data.left * jax.nn.one_hot(TARGET, length, dtype=PRECISION) + extra
    kernel = Led(model.blocks[-1].attention.kernel, lead)
    model = eqx.tree_at(lambda m: m.blocks[-1].attention.kernel, model, kernel)
    hidden = data.arm >= ABSENT
    usual, removed = (layout(VARIANTS[name], length).positions for name in ("usual", "removed"))
    return reader(model, jnp.where(hidden, removed, usual), hidden)


def loss(model: Transformer, data: Sequences, extra: Any = 0.0) -> Float[Array, ""]:
    """Return the loss of the induction task on the sequences of an arm."""
    return losses.auxiliary_cross_entropy(of_arm(model, data, extra), (data.batch, data.auxiliary))


def build(
    key: Key[Array, ""],
    arm: Any,
    *,
    task: Induction,
    evaluated: int,
    auxiliary: float,
    lead: float,
    gone: int,
    **options,
) -> tuple[Any, Transformer, Sequences]:
    """Build a member: a new transformer and sequences to evaluate it on, the same for all arms of a seed.

    Args:
        key: of the draws.
        arm: its number.
        task: induction with BOS.
        evaluated: sequences for evaluation.
        auxiliary: weight of the positions before the last.
        lead: of the arm that has one, at step 0.
        gone: step at which it has faded out.
        **options: of `Transformer.init`.

    Returns:
        `(loss, model, args)`.
    """
    model_key, data_key, place_key, other_key = jax.random.split(key, 4)
    model = Transformer.init(model_key, task.n_tokens, max_length=task.length, dtype=PRECISION, **options)
    if model.positions is not None:
        rows = np.arange(task.length)
        rows[[0, TO]] = TO, 0
        table = jnp.where(arm == EXCHANGED, model.positions[rows], model.positions)
        model = eqx.tree_at(lambda m: m.positions, model, table)
    plain = task.sample(data_key, evaluated)
    numbers = jnp.asarray([auxiliary, lead, gone, 1.0], PRECISION)
    args = Sequences(
        batch=arranged(task, place_key, plain, arm),
        auxiliary=numbers[0],
        arm=jnp.asarray(arm),
        lead=jnp.where(arm == LED, numbers[1], 0),
        gone=numbers[2],
        left=numbers[3],
        plain=plain,
        strangers=strangers(task, other_key, plain.inputs),
    )
    return loss, model, args


def observe(step: Any, model: Transformer, data: Sequences) -> dict[str, Array]:
    """Return how well a model predicts, where its last layer attends, and what its scores are and are pushed to.

    Args:
        step: of training.
        model: the transformer.
        data: for evaluation.

    Returns:
        `accuracy`, `last_loss`, `other_loss`; `sink` (H,), the paper's score; of the row `READ` attention `row`,
        `score` and `push` (H, T), minus the gradient of the loss by the score; of the variants `profile`
        (variant, H, T), the share of each key in the rows read, and `right` (variant,), the accuracy.
    """
    data = data.at(step)
    logits, capture = jax.vmap(functools.partial(of_arm(model, data), capture=True))(data.batch.inputs)
    attention, scores = capture.attention[:, -1], capture.scores[:, -1]
    profile, right = jax.lax.map(functools.partial(read_variant, model, data), layouts(attention.shape[-1]))
    return predictions(logits, data.batch) | {
        "sink": jnp.mean(sink_score(attention, slice(1, -2)), axis=0),
        "row": jnp.mean(attention[:, :, READ], axis=0),
        "score": jnp.mean(scores[:, :, READ], axis=0),
        "push": -jax.grad(lambda extra: loss(model, data, extra))(jnp.zeros_like(scores[0]))[:, READ],
        "profile": profile,
        "right": right,
    }


def read_variant(model: Transformer, data: Sequences, variant: Layout) -> tuple[Float[Array, "H T"], Float[Array, ""]]:
    """Return where the last layer attends on rearranged sequences, and how often the continuation is right.

    Args:
        model: the transformer.
        data: for evaluation.
        variant: how sequences are rearranged.

    Returns:
        Shares of the keys in the rows read, as means over sequences, and accuracy on sequences whose asked pair is
        not torn apart.
    """
    plain = data.plain
    tokens = jnp.where(variant.replaced, plain.inputs.at[:, 0].set(data.strangers), plain.inputs)[:, variant.order]
    changed = reader(model, variant.positions, variant.hidden)
    logits, capture = jax.vmap(functools.partial(changed, capture=True))(tokens)
    shares = jnp.mean(capture.attention[:, -1, :, rows_read(tokens.shape[1])], axis=(0, 2))
    right = jnp.argmax(logits[:, -1], axis=-1) == plain.targets[:, -1]
    torn = (variant.order[0] != 0) & (plain.targets[:, -1] == plain.inputs[:, TO + 1])
    return shares, (jnp.sum(right & ~torn) / jnp.maximum(jnp.sum(~torn), 1)).astype(PRECISION)
