"""What is measured in a model: where attention goes, and how long and how peaked the vectors of each token are."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gradflow.diagnostics import activation_peaks, massive_activations
from gradflow.experiments import transformers
from gradflow.experiments.massive_activations.config import ABSOLUTE, LEFT_OUT, RELATIVE
from gradflow.models import Transformer
from gradflow.types import Batch

ROWS = slice(1, -LEFT_OUT)


def observe(step: Any, model: Transformer, args: tuple[Batch, Any]) -> dict[str, Array]:
    """Return what `observe_induction` does, attention on BOS, and how far the largest activations stand out.

    Args:
        step: not used.
        model: of this step.
        args: sequences for evaluation, and the weight of the other positions.

    Returns:
        With L layers, H heads and T tokens, as means over sequences: `on_bos` (L, H), the attention that a query puts
        on BOS; `peak_ratio` (L + 1, T), the largest activation of a token over the median of its layer; `massive`
        (L + 1,), the share of sequences with a massive activation; and the rest.
    """
    found = transformers.observe_induction(step, model, args)
    _, capture = jax.vmap(functools.partial(model, capture=True))(args[0].inputs)  # XLA shares it with the line above
    stream = jnp.concatenate([capture.embedded[:, None], capture.hidden], axis=1)
    found["on_bos"] = jnp.mean(capture.attention[..., ROWS, 0], axis=(0, -1))
    return found | outliers(stream)


def outliers(stream: Float[Array, "n L T d"]) -> dict[str, Array]:
    """Return how far the largest activations stand out, as means over sequences.

    Args:
        stream: hidden states of several layers.

    Returns:
        `peak_ratio` (L, T) and `massive` (L,), see `observe`.
    """
    massive = massive_activations(stream, ABSOLUTE, RELATIVE)
    return {
        "peak_ratio": jnp.mean(activation_peaks(stream).ratio, axis=0),
        "massive": jnp.mean(jnp.any(massive, axis=(-1, -2)).astype(stream.dtype), axis=0),
    }
