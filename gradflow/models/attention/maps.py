"""Attention kernels by name, for sweeps and command lines: every activation, and what acts on queries and keys."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from gradflow.activations import AbstractActivation, Linear, names
from gradflow.activations.registry import as_activation, by_name
from gradflow.errors import FlowError, shown, unknown
from gradflow.models.attention.kernels import (
    AbstractKernel,
    ClippedKernel,
    EluKernel,
    LengthSigmoid,
    MLPKernel,
    NormalisedKernel,
    ScoreKernel,
    SinkLogit,
)


class Sizes(NamedTuple):
    """What a kernel with parameters is made for.

    Attributes:
        key: for its draws.
        heads: H.
        d_k: width of queries and keys.
    """

    key: PRNGKeyArray
    heads: int
    d_k: int


_KERNELS: dict[str, Callable[[Sizes], AbstractKernel]] = {
    "elu-elu": lambda sizes: EluKernel(),
    "normalised-elu-elu": lambda sizes: NormalisedKernel(EluKernel()),
    "mlp": lambda sizes: MLPKernel.init(sizes.key, sizes.d_k),
    "clipped-mlp": lambda sizes: ClippedKernel(MLPKernel.init(sizes.key, sizes.d_k)),
    "clipped-linear": lambda sizes: ClippedKernel(ScoreKernel(Linear())),
    "sink-logit": lambda sizes: SinkLogit(jnp.zeros(sizes.heads)),
    "length-sigmoid": lambda sizes: LengthSigmoid(),
}

# The twelve maps of arXiv 2603.06248. Its code adds 1e-9 to the sums of normalised positive maps, which those of scores
# do without here: where f underflows they are uniform instead of zero. Signed maps are clipped.
PAPER_MAPS = (
    "softmax",
    "uniform",
    "sigmoid",
    "normalised-sigmoid",
    "elu1",
    "normalised-elu1",
    "elu-elu",
    "normalised-elu-elu",
    "linear",
    "clipped-linear",
    "mlp",
    "clipped-mlp",
)


def attention_maps() -> tuple[str, ...]:
    """Return the names that `Transformer.init(attention=...)` knows."""
    return (*names(), *_KERNELS)


def as_kernel(attention: AbstractKernel | AbstractActivation | str | None, sizes: Sizes) -> AbstractKernel:
    """Return an attention kernel from itself, an activation, a name, or None for the softmax.

    Args:
        attention: what a user passes.
        sizes: of the layer, and the key of the kernel's parameters.

    Returns:
        The kernel.

    Raises:
        FlowError: if it is none of these; the nearest name is suggested.
    """
    if isinstance(attention, AbstractKernel):
        return attention
    if isinstance(attention, type) and issubclass(attention, AbstractKernel):
        raise FlowError(f"attention is the class {attention.__name__}: pass one of it, {attention.__name__}()")
    if not isinstance(attention, str):
        if attention is not None and not isinstance(attention, AbstractActivation):
            raise FlowError(f"attention is {shown(attention)}: pass a name, an activation or an attention kernel")
        return ScoreKernel(as_activation(attention))
    if attention in _KERNELS:
        return _KERNELS[attention](sizes)
    try:
        return ScoreKernel(by_name(attention))
    except FlowError:
        raise unknown("attention map", attention, attention_maps()) from None
