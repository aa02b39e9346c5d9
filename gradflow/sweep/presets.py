"""From settings to a sweep: the builder, the axes, the flow and what is kept."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float, Key

from gradflow import activations, tasks
from gradflow.diagnostics import entropy, largest_weight
from gradflow.models import TiedSoftmax, ValueSoftmax
from gradflow.sweep.axes import SEED, Batched
from gradflow.sweep.methods import Flow
from gradflow.sweep.settings import COUNTS, LOSSES, NAMES, RANGES, REGRESSION, TIED, Settings, check_settings
from gradflow.types import Data

SAMPLES_A_FEATURE = 8  # of classification
# One number a member: what `observe` keeps, at the end, and what a sweep says of every member.
SHOWN = ("final_entropy", "final_largest_weight", "final_loss", "num_steps", "num_gradients", "t_final")


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """The arguments of `sweep`.

    Attributes:
        build: the builder, which holds the settings that do not vary.
        axes: those that do, and the seed.
        key: of all draws.
        method: the flow.
        observe: what is kept.
    """

    build: Callable
    axes: dict[str, Any]
    key: Key[Array, ""]
    method: Flow
    observe: Callable


class Problem(eqx.Module):
    """Data that knows its loss, so that one `observe` serves every loss of a grid.

    Attributes:
        data: samples.
        loss: name of the loss.
    """

    data: Data
    loss: str = eqx.field(static=True)


def plan(settings: Settings) -> Plan:
    """Return the sweep of these settings.

    Args:
        settings: what varies, what does not, and how runs go.

    Returns:
        The arguments of `sweep`.

    Raises:
        FlowError: if a setting cannot be used.
    """
    check_settings(settings)
    varied, fixed = {}, {}
    for name in (*NAMES, *COUNTS, *RANGES):
        values = getattr(settings, name)
        if len(values) > 1:
            varied[name] = Batched(values) if name in RANGES else values
        elif values and name != "t1":
            fixed[name] = values[0]
    method = Flow(
        t1="t1" if "t1" in varied else settings.t1[0],
        ts=settings.times(),
        solver=settings.solver,
        rtol=settings.rtol,
        max_steps=settings.max_steps,
    )
    axes = {**varied, SEED: range(settings.seeds)}
    return Plan(functools.partial(build, **fixed), axes, jax.random.key(settings.key), method, observe)


def build(
    key: Key[Array, ""],
    *,
    activation: str,
    task: str,
    model: str,
    n: int,
    d: int,
    scale: Any,
    kappa: Any,
    noise: Any,
    score_mean: Any,
    score_scale: Any,
    loss: str | None = None,
    samples: int | None = None,
) -> tuple[Callable, ValueSoftmax | TiedSoftmax, Problem]:
    """Build one point; the arguments are the settings.

    Returns:
        Loss, model and data.
    """
    data_key, model_key = jax.random.split(key)
    loss = loss or ("square" if task == REGRESSION else "logistic")
    if task == REGRESSION:
        data = tasks.linear_regression(data_key, n_features=d, n_samples=samples, condition_number=kappa, noise=noise)
    else:
        data = tasks.linear_classification(data_key, samples or SAMPLES_A_FEATURE * d, d, noise=noise)
    start = ValueSoftmax.normal(
        model_key,
        d,
        n,
        scale=scale,
        score_mean=score_mean,
        score_scale=score_scale,
        activation=activations.by_name(activation),
    )
    if model == TIED:
        return loss_of, TiedSoftmax(start.values, start.scores, start.activation), Problem(data, loss)
    return loss_of, start, Problem(data, loss)


def loss_of(model: ValueSoftmax | TiedSoftmax, problem: Problem) -> Float[Array, ""]:
    """Return the loss that the problem names."""
    return LOSSES[problem.loss](model, problem.data)


def observe(t: Any, model: ValueSoftmax | TiedSoftmax, problem: Problem) -> dict[str, Array]:
    """Return the entropy of the weights, the largest of them, and the loss."""
    del t
    weights = model.weights
    return {"entropy": entropy(weights), "largest_weight": largest_weight(weights), "loss": loss_of(model, problem)}
