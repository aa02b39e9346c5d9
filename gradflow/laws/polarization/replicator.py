"""Law 17 and the replicator form of every normalised map: s_i' / s_i = phi_i - <s, phi>.

One sample is the case c = gamma u; any loss of beta = V s has advantages c = -V^T g in its place.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from gradflow.errors import FlowError
from gradflow.laws.invariants import has_primitive
from gradflow.laws.paths import Path, over_rows, softmax_path, softmax_temperature, value_path
from gradflow.laws.polarization.local import Local, local
from gradflow.models import ValueSoftmax


def softmax_fitness(here: Local, model: ValueSoftmax) -> Float[Array, " n"]:
    """Return phi = r_a s (c - <s, c>) / T^2, the fitness weighted by the own share: replicator-like, no replicator."""
    return here.rate_scores * here.weights * here.centred / softmax_temperature(model) ** 2


def square_fitness(here: Local, model: ValueSoftmax) -> Float[Array, " n"]:
    """Return phi = 4 r_a (c - <s, c>) / |a|^2: of normalised squares, an exact replicator (law 17)."""
    return 4 * here.rate_scores * here.centred / jnp.sum(model.scores**2)


def map_fitness(here: Local, model: ValueSoftmax) -> Float[Array, " n"]:
    """Return phi_i = r_a s_i (c_i - <s, c>) / F'(a_i)^2 of a normalised map with primitive F, F' = f / f'."""
    slope = jax.vmap(jax.grad(model.activation.primitive))(model.scores)
    return here.rate_scores * here.weights * here.centred / slope**2


def softmax_replicator(
    loss: Callable, path: Path, args: PyTree = None, rates: PyTree | None = None
) -> Float[Array, "... T n"]:
    """Return s_i'/s_i - (phi_i - <s, phi>), phi = gamma s (u - z), in clock units (beside law 17, derived).

    Condition: softmax. Any loss of beta; s' is the autodiff image of the flow field, not the formula.

    Args:
        loss: of the run.
        path: a run or stacked models.
        args: data of the loss.
        rates: as given to `gf.gradient_flow`.

    Returns:
        The residual over |g|; 0 where s_i is 0.
    """
    return _residual(softmax_fitness, loss, softmax_path(path), args, rates)


def square_replicator(
    loss: Callable, path: Path, args: PyTree = None, rates: PyTree | None = None
) -> Float[Array, "... T n"]:
    """Return s_i'/s_i - (phi_i - <s, phi>), phi = (4 gamma / |a|^2)(u - z), in clock units (law 17, derived).

    Condition: s = a^2 / sum a^2 with every a_i nonzero. Any loss of beta.

    Args:
        loss: of the run.
        path: a run or stacked models.
        args: data of the loss.
        rates: as given to `gf.gradient_flow`.

    Returns:
        The residual over |g|; 0 where s_i is 0.
    """
    return _residual(square_fitness, loss, value_path(path), args, rates)


def replicator(loss: Callable, path: Path, args: PyTree = None, rates: PyTree | None = None) -> Float[Array, "... T n"]:
    """Return s_i'/s_i - (phi_i - <s, phi>), phi_i = gamma s_i (u_i - z) / F'(a_i)^2, in clock units (derived).

    Condition: a normalised map with a primitive, away from its kinks. Any loss of beta.

    Args:
        loss: of the run.
        path: a run or stacked models.
        args: data of the loss.
        rates: as given to `gf.gradient_flow`.

    Returns:
        The residual over |g|; 0 where s_i is 0.

    Raises:
        FlowError: if the map is not normalised or has no primitive.
    """
    models = value_path(path)
    if not (models.activation.normalised and has_primitive(models.activation)):
        raise FlowError(
            f"path has the activation {models.activation.name!r}: only normalised maps with a primitive have a "
            "replicator form"
        )
    return _residual(map_fitness, loss, models, args, rates)


def _residual(fitness: Callable, loss: Callable, models: ValueSoftmax, args, rates) -> Float[Array, "... T n"]:
    def at(model):
        here = local(loss, model, args, rates)
        phi = fitness(here, model)
        growth = phi - jnp.dot(here.weights, phi, precision="highest")
        _, moved = jax.jvp(model.activation, (model.scores,), (here.score_velocity,))
        alive = here.weights > 0
        measured = jnp.where(alive, moved / jnp.where(alive, here.weights, 1), growth)
        return here.in_clock(measured - growth)

    return over_rows(at, models)
