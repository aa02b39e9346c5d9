"""Laws 11, 12, 16, 18: how fast the loss and the losers' weight go to zero."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from gradflow.laws.paths import Path, alignments, softmax_path
from gradflow.types import Data


def others(weights: Float[Array, "... n"]) -> Float[Array, "..."]:
    """Return 1 - s_max as the sum of the other weights, without cancellation."""
    return jnp.sum(jnp.sort(weights, axis=-1)[..., :-1], axis=-1)


def loss_decay(ts: Float[Array, " T"], losses: Float[Array, "... T"]) -> Float[Array, "... T"]:
    """Return t L - 1, which goes to 0 (law 11, derived).

    Conditions: softmax, logistic loss, one sample of unit norm, not the equal start of law 10, unit rates. Within 2 %
    at t = 1e6 for n <= 32 and an initial scale >= 1e-2; smaller starts need t >= 1000 x onset.

    Args:
        ts: times.
        losses: at these times.

    Returns:
        The residual.
    """
    return ts * losses - 1


def polarization_constant(path: Path, direction: Float[Array, " d"]) -> Float[Array, "... T"]:
    """Return W^2 (1 - s_max) n / (2 (n - 1)) - 1, W = u_win - mean(u_losers), which goes to 0 (law 12, derived).

    Conditions: softmax, one sample, n >= 2. Within 1 % at tau = 1000, n <= 16, a(0) = 0, |u(0)| <= .1, later for a
    near-tie in u(0) (the two best within 1 %).

    Args:
        path: a run or stacked models.
        direction: b*.

    Returns:
        The relative residual at each row.
    """
    models = softmax_path(path)
    n, weights, u = models.scores.shape[-1], models.weights, alignments(models, direction)
    best = jnp.argmax(weights, axis=-1, keepdims=True)
    leader = jnp.take_along_axis(u, best, axis=-1)[..., 0]
    gap = leader - (jnp.sum(u, axis=-1) - leader) / (n - 1)
    return gap**2 * others(weights) * n / (2 * (n - 1)) - 1


def excess_violation(
    ts: Float[Array, " T"], losses: Float[Array, "... T"], initial: Float[Array, "..."], data: Data, n: int
) -> Float[Array, "... T"]:
    """Return by how much the relative excess loss breaks its bound; 0 where it holds (law 16, derived).

    The bound is (L(t) - L*) / (L(0) - L*) <= exp(-2 lambda_min(X^T X) t / (n N)) for the library's mean square loss
    with 1/2, since |s|^2 >= 1/n. Conditions: weights that sum to one, unit rates. Trivial where lambda_min = 0.

    Args:
        ts: times since the start.
        losses: `gf.losses.square` at these times.
        initial: the same at the start.
        data: samples (N, d) with real targets.
        n: number of values.

    Returns:
        A number >= 0 at each time; what lies below the rounding of L / L(0) counts as 0.
    """
    x, y = data.x, data.y
    best = jnp.matmul(x, jnp.linalg.lstsq(x, y)[0], precision="highest") - y
    floor = jnp.mean(best**2) / 2
    initial = jnp.asarray(initial)[..., None]
    smallest = jnp.linalg.eigvalsh(jnp.matmul(x.T, x, precision="highest"))[0]
    bound = jnp.exp(-2 * jnp.maximum(smallest, 0) * ts / (n * len(x)))
    excess, scale = losses - floor, jnp.where(initial > floor, initial - floor, 1)
    rounding = 64 * jnp.finfo(losses.dtype).eps * initial / scale
    return jnp.maximum(excess / scale - bound - rounding, 0)


def frozen_weights_decay(
    ts: Float[Array, " T"], losses: Float[Array, "... T"], weights: Float[Array, "... n"]
) -> Float[Array, "... T"]:
    """Return t L |s|^2 - 1, which goes to 0 (law 18, derived).

    Conditions: s frozen (`trainable`), logistic loss, one sample of unit norm.

    Args:
        ts: times.
        losses: at these times.
        weights: the frozen s.

    Returns:
        The residual.
    """
    return ts * losses * jnp.sum(weights**2, axis=-1)[..., None] - 1


def frozen_values_decay(
    tau: Float[Array, "... T"], weights: Float[Array, "... T n"], gap: Float[Array, "..."]
) -> Float[Array, "... T"]:
    """Return tau (1 - s_max) n Delta / (n - 1) - 1, which goes to 0 (law 18, derived): .03 % at tau Delta = 1e5.

    Conditions: V frozen (`trainable`), u_win - u_j = Delta > 0 for all others, n >= 2, softmax.

    Args:
        tau: clock.
        weights: at these clocks.
        gap: Delta.

    Returns:
        The residual.
    """
    n = weights.shape[-1]
    return tau * others(weights) * n * jnp.asarray(gap)[..., None] / (n - 1) - 1
