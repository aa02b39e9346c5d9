"""Law 5: how fast the loss falls, and what moves a score."""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from gradflow.laws.paths import Path, over_rows, softmax_path, softmax_temperature
from gradflow.laws.polarization.local import Local, centring, local


def loss_dissipation(
    loss: Callable, path: Path, args: PyTree = None, rates: PyTree | None = None
) -> Float[Array, "... T"]:
    """Return dL/dt + g^T M g over g^T M g, M = r_V |s|^2 I + r_a V C^2 V^T / T^2 (law 5, derived).

    Paper 1, section 3, drops the square of C in one line. Condition: softmax (temperature T, 1 by default).
    Any loss, data, d and n. dL/dt comes from autodiff along the flow.

    Args:
        loss: of the run.
        path: a run or stacked models.
        args: data of the loss.
        rates: as given to `gf.gradient_flow`.

    Returns:
        The relative residual at each row; 0 where the gradient is 0.
    """

    def at(model):
        here = local(loss, model, args, rates)
        slope = -jnp.sum(here.value_velocity**2) / here.rate_values - jnp.sum(here.score_velocity**2) / here.rate_scores
        speed = _speed(here, softmax_temperature(model))
        return (slope + speed) / jnp.where(speed > 0, speed, 1)

    return over_rows(at, softmax_path(path))


def _speed(here: Local, temperature) -> Float[Array, ""]:
    """Return g^T M g."""
    moved = centring(here.weights, here.advantage) / temperature
    kinetic = here.rate_values * jnp.sum(here.weights**2) * jnp.sum(here.gradient**2)
    return kinetic + here.rate_scores * jnp.sum(moved**2)


def score_velocity(
    loss: Callable, path: Path, args: PyTree = None, rates: PyTree | None = None
) -> Float[Array, "... T n"]:
    """Return a_i' - (r_a / (r_V T)) (v_i - beta) . v_i' in clock units (law 5, derived).

    Condition: softmax. Any loss, data, d and n.

    Args:
        loss: of the run.
        path: a run or stacked models.
        args: data of the loss.
        rates: as given to `gf.gradient_flow`.

    Returns:
        The residual over |g| for each score.
    """

    def at(model):
        here = local(loss, model, args, rates)
        beta = jnp.matmul(here.values, here.weights, precision="highest")
        push = jnp.sum((here.values - beta[:, None]) * here.value_velocity, axis=0)
        expected = here.rate_scores / (here.rate_values * softmax_temperature(model)) * push
        return here.in_clock(here.score_velocity - expected)

    return over_rows(at, softmax_path(path))
