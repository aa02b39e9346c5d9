"""The member of the sweep: a value-softmax padded to the longest sequence, on data of which every number is an array.

Length, loss, scale and condition number are numbers here, so that each map is one kernel.
"""

from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gradflow import tasks
from gradflow.activations import AbstractActivation, by_name
from gradflow.diagnostics import entropy
from gradflow.experiments.panel import Objective, member_losses
from gradflow.experiments.sweep_activations.config import FEATURES, LOSSES, SCORE

CONVERGED = 1e-12  # loss over its value at beta = 0 below which nothing that is reported moves any more


class Padded(eqx.Module):
    """beta = V s over the first n of `size` places, with its clock.

    Attributes:
        values: V.
        scores: a.
        present: which places take part.
        tau: clock int |dL/dbeta| dt.
        activation: the map.
    """

    values: Float[Array, "d size"]
    scores: Float[Array, " size"]
    present: Bool[Array, " size"]
    tau: Float[Array, ""]
    activation: AbstractActivation

    @property
    def weights(self) -> Float[Array, " size"]:
        """The attention row; exactly 0 at places that take no part."""
        return self.activation(self.scores, where=self.present)

    def __call__(self) -> Float[Array, " d"]:
        """Return beta = V s."""
        return jnp.matmul(self.values, self.weights, precision="highest")


class Problem(eqx.Module):
    """Data, and what is known before the run.

    Attributes:
        objective: samples and loss.
        start_loss: loss at beta = 0.
        leader: place of the value furthest along the first step, the predicted winner.
        longest: place of the longest value, a prediction that knows no data.
        gap: advantage of the leader over the mean value, along the first step.
    """

    objective: Objective
    start_loss: Float[Array, ""]
    leader: Int[Array, ""]
    longest: Int[Array, ""]
    gap: Float[Array, ""]


def _loss_of(beta: Float[Array, " d"], objective: Any) -> Any:
    return member_losses(cast(Any, lambda: beta), objective)  # beta stands for a model that returns it


def loss(model: Padded, problem: Problem) -> Float[Array, ""]:
    """Return the loss; its flow moves the clock by |g| as well."""
    value, gradient = jax.value_and_grad(_loss_of)(model(), problem.objective)
    speed = jax.lax.stop_gradient(jnp.linalg.norm(gradient))
    return value - speed * (model.tau - jax.lax.stop_gradient(model.tau))


def one_sample(key: Any, *, activation: str, loss_kind: Any, n: Any, scale: Any, size: int, target: float) -> Any:
    """Build a member whose samples are all one and the same unit vector, the setting of the theorem.

    Args:
        key: of the draws; the first n of `size` values are the same for every n.
        activation: name of the map.
        loss_kind: place in `LOSSES`.
        n: values that take part.
        scale: standard deviation of the values.
        size: places.
        target: y under the square loss; the label is 1.

    Returns:
        `(loss, model, problem)`.
    """
    value_key, data_key = jax.random.split(key)
    sample = jax.random.normal(data_key, (FEATURES,))
    x = jnp.broadcast_to(sample / jnp.linalg.norm(sample), (FEATURES, FEATURES))
    return _member(value_key, activation, loss_kind, n, scale, size, x, jnp.full(FEATURES, target))


def many_samples(
    key: Any, *, activation: str, loss_kind: Any, n: Any, scale: Any, kappa: Any, size: int, target: float
) -> Any:
    """Build a member with as many samples as features and a design of given condition number, as in setting D.

    Args:
        key: of the draws.
        activation: name of the map.
        loss_kind: place in `LOSSES`.
        n: values that take part.
        scale: standard deviation of the values.
        kappa: singular values of the design are linspace(1, 1/kappa).
        size: places.
        target: |y| under the square loss; labels are the signs of y.

    Returns:
        `(loss, model, problem)`.
    """
    value_key, data_key, target_key = jax.random.split(key, 3)
    design = tasks.linear_regression(data_key, n_features=FEATURES, condition_number=kappa, spacing="linear")
    y = jax.random.normal(target_key, (FEATURES,))
    y = target * y / jnp.linalg.norm(y)
    return _member(value_key, activation, loss_kind, n, scale, size, design.x, y)


def _member(key: Any, activation: str, loss_kind: Any, n: Any, scale: Any, size: int, x: Any, y: Any) -> Any:
    present = jnp.arange(size) < n
    values = jnp.where(present, scale * jax.random.normal(key, (FEATURES, size)), 0)
    scores = jnp.where(present, SCORE, 0.0)
    square, logistic, exponential = (jnp.where(loss_kind == place, 1.0, 0.0) for place in range(len(LOSSES)))
    labels = jnp.where(loss_kind == LOSSES.index("square"), y, jnp.sign(y))
    objective = Objective(x, labels, square, logistic, exponential, jnp.zeros(()))
    start, gradient = jax.value_and_grad(_loss_of)(jnp.zeros(FEATURES), objective)
    merit = -jnp.matmul(gradient / jnp.linalg.norm(gradient), values, precision="highest")
    leader = jnp.argmax(jnp.where(present, merit, -jnp.inf))
    longest = jnp.argmax(jnp.sum(values**2, axis=0))
    problem = Problem(objective, start, leader, longest, merit[leader] - jnp.sum(merit) / n)
    return loss, Padded(values, scores, present, jnp.zeros(()), by_name(activation)), problem


def shares(model: Padded) -> Float[Array, " size"]:
    """Return |s_i| / sum |s|: the weights themselves where they sum to one, and comparable where they do not."""
    sizes = jnp.abs(model.weights)
    total = jnp.sum(sizes)
    return sizes / jnp.where(total > 0, total, 1)


def largest_share(t: Any, model: Padded, problem: Problem) -> Float[Array, ""]:
    """Return the share of the largest weight."""
    return jnp.max(shares(model))


def observe(t: Any, model: Padded, problem: Problem) -> dict[str, Any]:
    """Return what is saved at each time."""
    share = shares(model)
    return {
        "largest": jnp.max(share),
        "entropy": entropy(share),
        "winner": jnp.argmax(share),
        "tau": model.tau,
        "leader": problem.leader,
        "longest": problem.longest,
        "gap": problem.gap,
    }


def has_converged(t: Any, model: Padded, problem: Problem) -> Any:
    """Return whether the loss has fallen so far that the weights have stopped, or the logistic tail is in its end."""
    return _loss_of(model(), problem.objective) < CONVERGED * problem.start_loss
