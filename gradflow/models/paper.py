"""The first paper's settings A to E, from the draws of its public code (NumPy's legacy generator, float64).

A setting is ready to run: loss, model, data, and the step size of plain gradient descent in the library's units. The
paper's square losses carry other factors than `losses.square`; its step sizes are rescaled so that step k is the same.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from gradflow import losses
from gradflow.activations import AbstractActivation, Softmax
from gradflow.errors import FlowError
from gradflow.models.value_softmax import TiedSoftmax, ValueSoftmax
from gradflow.types import Data


class Setting(NamedTuple):
    """A run of the paper.

    Attributes:
        loss: of the library.
        model: at initialisation.
        args: data of the loss.
        step_size: of gradient descent on `loss`; the paper's flow time is `step_size * steps`.
        steps: of the paper.
        loss_factor: the paper's loss is this factor times `loss`.
    """

    loss: Callable
    model: PyTree
    args: Any
    step_size: float
    steps: int
    loss_factor: float


def logistic() -> Setting:
    """Setting A: logistic loss on one sample, d = n = 8, seed 123, step size .1, 1e6 steps."""
    draw = np.random.RandomState(123)
    values, scores, target = 0.1 * draw.randn(8, 8), 0.0 * draw.randn(8), draw.randn(8)
    return Setting(losses.logistic, _model(values, scores), _sample(target), 0.1, 1_000_000, 1.0)


def six_maps(activation: AbstractActivation, loss: str) -> Setting:
    """Setting B: six maps on one target, d = n = 10, seed 42.

    Args:
        activation: the map.
        loss: "square" (5,000 steps) or "logistic" (1e5 steps).

    Returns:
        The setting.

    Raises:
        FlowError: if the loss is neither.
    """
    target = _unit(np.random.RandomState(42).randn(10))
    draw = np.random.RandomState(42)
    model = _model(0.1 * draw.randn(10, 10), 1 + 0.1 * draw.randn(10), activation)
    if loss == "square":
        return Setting(losses.square, model, Data(jnp.eye(10), jnp.asarray(target)), 1.0, 5_000, 10.0)
    if loss == "logistic":
        return Setting(losses.logistic, model, _sample(target), 0.5, 100_000, 1.0)
    raise FlowError(f"loss is {loss!r}: setting B has 'square' and 'logistic'")


def tied(dimension: int) -> Setting:
    """Setting C: tied values, U = I, logistic loss, seed 42, step size .05, 1e4 steps; D = 10, 20, 50, 100."""
    target = _unit(np.random.RandomState(42).randn(dimension))
    draw = np.random.RandomState(42)
    draw.randn(dimension, dimension)
    model = TiedSoftmax(jnp.eye(dimension), jnp.asarray(1 + 0.1 * draw.randn(dimension)))
    return Setting(losses.logistic, model, _sample(target), 0.05, 10_000, 1.0)


def condition_number(kappa: float) -> Setting:
    """Setting D: least squares with singular values linspace(1, 1/kappa), d = n = 20, seed 123, 3e5 steps."""
    draw = np.random.RandomState(123)
    values, scores = 1e-5 * draw.randn(20, 20), 1e-3 * draw.randn(20)
    left, _, right = np.linalg.svd(draw.randn(20, 20))
    design = left @ np.diag(np.linspace(1, 1 / kappa, 20)) @ right
    data = Data(jnp.asarray(design), jnp.asarray(draw.randn(20)))
    return Setting(losses.square, _model(values, scores), data, 0.04, 300_000, 40.0)


def target_distribution() -> Setting:
    """Setting E: KL to a target distribution, d = n = 10, seed 123, step size .1, 1e7 steps."""
    draw = np.random.RandomState(123)
    values = 0.1 * draw.randn(10, 10)
    draw.randn(10)
    logits = 10 * draw.rand(10)
    p = np.exp(logits - logits.max())
    return Setting(losses.kl, _model(values.T, np.zeros(10)), jnp.asarray(p / p.sum()), 0.1, 10_000_000, 1.0)


def _model(values, scores, activation: AbstractActivation | None = None) -> ValueSoftmax:
    return ValueSoftmax(jnp.asarray(values), jnp.asarray(scores), activation or Softmax())


def _sample(target) -> Data:
    return Data(jnp.asarray(_unit(target))[None, :], jnp.ones(1))


def _unit(vector):
    return vector / np.linalg.norm(vector)
