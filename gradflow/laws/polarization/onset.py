"""Laws 13, 14, 15: what small scores do before the softmax notices, and when it does."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from gradflow.laws.paths import Path, alignments, softmax_path
from gradflow.laws.polarization.clock import clock
from gradflow.models import ValueSoftmax


def early_scores(path: Path, direction: Float[Array, " d"]) -> Float[Array, "... T"]:
    """Return the residual of a_i - mean(a) = sinh(tau / n) (u_i(0) - mean(u(0))) over its largest component (law 13).

    Derived by linearising at uniform s. Conditions: softmax, one sample, unit rates, the first row is the start with
    uniform scores. Within 1e-3 while |a - mean a| < 1e-3.

    Args:
        path: a run or stacked models from t = 0 on.
        direction: b*.

    Returns:
        The relative residual at each row; 0 where nothing has moved.
    """
    models = softmax_path(path)
    tau = clock(models, direction)[..., None]
    merit = _centred(alignments(models, direction)[..., :1, :])
    expected = jnp.sinh(tau / models.scores.shape[-1]) * merit
    return _relative(_centred(models.scores), expected)


def late_scores(
    scores: Float[Array, "... n"], initial: Float[Array, "... n"], target: Float[Array, "..."]
) -> Float[Array, "..."]:
    """Return the residual of a(inf) - mean = cosh(y) (a(0) - mean) over its largest component (law 14, derived).

    Conditions: softmax, square loss (<b*, beta> - y)^2 / 2 run to its end, V(0) = 0, small a(0), unit rates. Within 1 %
    for y <= 3 and |a(0)| ~ 1e-4.

    Args:
        scores: a at the end.
        initial: a(0).
        target: y.

    Returns:
        The relative residual.
    """
    return _relative(_centred(scores), jnp.cosh(jnp.asarray(target))[..., None] * _centred(initial))


def onset_constant(
    onset: Float[Array, "..."], initial: ValueSoftmax, direction: Float[Array, " d"]
) -> Float[Array, "..."]:
    """Return c = t max_i(u_i(0) - mean u(0)) / n of a run whose s_max crosses 1/2 at t (law 15, derived).

    For a fixed draw, c is constant to 10 % over initial scales 1e-2 .. 1e-4. Conditions: softmax, logistic loss, one
    sample of unit norm, small scores.

    Args:
        onset: t, from `event=gf.Crossing(s_max, 0.5)`.
        initial: model at t = 0, or stacked ones.
        direction: b*.

    Returns:
        The constant.
    """
    merit = _centred(alignments(initial, direction))
    return onset * jnp.max(merit, axis=-1) / merit.shape[-1]


def onset_spread(constants: Float[Array, "... S"]) -> Float[Array, "..."]:
    """Return (max - min) / mean of the onset constants of one draw at several scales: below 10 % (law 15)."""
    return (jnp.max(constants, axis=-1) - jnp.min(constants, axis=-1)) / jnp.mean(constants, axis=-1)


def _centred(x: Float[Array, "... n"]) -> Float[Array, "... n"]:
    return x - jnp.mean(x, axis=-1, keepdims=True)


def _relative(x: Float[Array, "... n"], expected: Float[Array, "... n"]) -> Float[Array, "..."]:
    size = jnp.max(jnp.abs(expected), axis=-1)
    return jnp.max(jnp.abs(x - expected), axis=-1) / jnp.where(size > 0, size, 1)
