"""What one token does to the answer of a model, read from sequences it was never trained on."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from gradflow.diagnostics import flip_rate, one_token_attack, sparsity, token_influence
from gradflow.experiments import transformers
from gradflow.models import Transformer
from gradflow.tasks import Groups
from gradflow.types import Batch

KEYS = {"flip": 0, "flip_random": 1, "replacements": 2}  # seeds of the draws of each reading, the same for all runs
REPLACEMENTS = 4  # tokens put at each position for the influence


class Blind(eqx.Module):
    """A model whose attention is hidden: what a head attends to most is then any token, the first one."""

    model: Transformer

    def __call__(self, tokens: Int[Array, " T"], *, capture: bool = False) -> PyTree:
        """Return logits, and attention that prefers none of the tokens."""
        if not capture:
            return self.model(tokens)
        logits, found = self.model(tokens, capture=True)
        level = jnp.zeros_like(found.attention[:1, :1])
        return logits, eqx.tree_at(lambda each: each.attention, found, level)


def observe_few(
    step: Any, model: Transformer, args: tuple[Batch, Any], *, task: Groups, pairs: int
) -> dict[str, Float[Array, ""]]:
    """Return how good and how sparse a model is, and whether exchanged tokens turn it.

    Args:
        step: of training.
        model: at that step.
        args: sequences for evaluation, and the weight of other positions.
        task: that they are of.
        pairs: how many exchange their most attended tokens.

    Returns:
        `accuracy`, `last_loss` in nats, `sparsity` of the CLS row as a mean over heads, layers and sequences, and
        `flip`, the flip rate, largest over heads.
    """
    del step, task
    batch = args[0]
    logits, capture = jax.vmap(functools.partial(model, capture=True))(batch.inputs)
    good = transformers.predictions(logits, batch)
    return {
        "accuracy": good["accuracy"],
        "last_loss": good["last_loss"],
        "sparsity": jnp.mean(sparsity(capture.attention)),
        "flip": _flips(model, batch, pairs, "flip"),
    }


def observe(
    step: Any, model: Transformer, args: tuple[Batch, Any], *, task: Groups, pairs: int, attacked: int
) -> dict[str, Float[Array, ""]]:
    """Return what `observe_few` does, and all else that one token can do.

    Args:
        step: of training.
        model: at that step.
        args: sequences for evaluation, and the weight of other positions.
        task: that they are of.
        pairs: how many exchange their most attended tokens.
        attacked: sequences in which every replacement of one token is tried.

    Returns:
        What `observe_few` does; `flip_random`, the flip rate of any token instead of the most attended, `attack`, the
        success rate of the worst replacement, and `top_share`, the part of all influence on the logits that the most
        influential token of a sequence has.
    """
    batch = args[0]
    few, content = batch.inputs[:attacked], jnp.arange(1, task.n_tokens)
    attack = one_token_attack(model, few, batch.targets[:attacked, -1], content, where=few > 0)
    drawn = jax.random.choice(_key("replacements"), content, (REPLACEMENTS,), replace=False)
    moved = jax.lax.map(lambda tokens: token_influence(model, tokens, drawn).logits[:-1], few)
    return observe_few(step, model, args, task=task, pairs=pairs) | {
        "flip_random": _flips(Blind(model), batch, pairs, "flip_random"),
        "attack": attack.rate,
        "top_share": jnp.mean(jnp.max(moved, axis=-1) / jnp.maximum(jnp.sum(moved, axis=-1), 1e-12)),
    }


def _flips(model: Any, batch: Batch, pairs: int, name: str) -> Float[Array, ""]:
    return flip_rate(model, batch.inputs, batch.targets[:, -1], n_pairs=pairs, key=_key(name))


def _key(name: str) -> Any:
    return jax.random.key(KEYS[name])
