"""What follows at each row: the softmax's law, the mean, the variance, and the sum that vanishes for each map.

Residuals are over the size of the terms that they are the difference of. With several heads arrays have an axis H in
front.
"""

import functools

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from gradflow.activations import (
    ELU,
    AbstractActivation,
    AbstractElementwise,
    AbstractHomogeneous,
    AbstractPositive,
    Normalised,
    Softmax,
    Softmax1,
    Sparsemax,
    Uniform,
)
from gradflow.activations.base import parameter
from gradflow.errors import FlowError
from gradflow.laws.routing.score_laws import log_slope
from gradflow.laws.routing.state import HeadState, relative, require_normalised, require_softmax


def softmax_law(
    weights: Float[Array, "... T"], compatibility: Float[Array, "... T"], temperature: float | Array = 1.0
) -> Float[Array, "... T"]:
    """Return A (b - E_A[b]) / T, the score gradient of a softmax row (arXiv 2512.22473, the routing law).

    Applied to the weights of another map it is wrong, by more than 10 % for sigmoid and linear weights: the control.

    Args:
        weights: A, any rows.
        compatibility: b.
        temperature: T.

    Returns:
        D.
    """
    mean = jnp.sum(weights * compatibility, axis=-1, keepdims=True)
    return jnp.where(weights == 0, 0, weights * (compatibility - mean)) / temperature


def advantage(state: HeadState) -> Float[Array, "*H T T"]:
    """Return -(b_ij - E_{A_i}[b]), by which attending to j lowers the loss more than the row does on average.

    Positive is useful: descent raises a softmax's s_ij exactly there. Zero at masked entries.

    Args:
        state: of a head whose map is normalised.

    Returns:
        The advantage.

    Raises:
        FlowError: if the weights need not sum to one, so that there is no average.
    """
    require_normalised(state, "the advantage")
    return jnp.where(state.mask, -state.centred, 0)


def responsibilities(state: HeadState) -> Float[Array, "*H T T"]:
    """Return A as posterior responsibilities of the positions for each row, which it is for a softmax alone.

    For every map A gates what the values receive, dL/dV = A^T U; read `state.weights` for these gates.

    Args:
        state: of a head.

    Returns:
        Responsibilities; rows sum to one.

    Raises:
        FlowError: if the map is no softmax.
    """
    require_softmax(state, "a responsibility")
    return state.weights


def mean_compatibility(state: HeadState) -> Float[Array, "*H T"]:
    """Return sum_j A_ij b_ij - u_i . g_i: 0 for every map, and the mean E_A[b] is u.g where the map is normalised."""
    kept = jnp.where(state.mask & (state.weights != 0), state.weights * state.compatibility, 0)
    return relative(jnp.sum(kept, axis=-1) - state.mean[..., 0], kept)


def jacobian_form(state: HeadState) -> Float[Array, "*H T T"]:
    """Return D_i - C(A_i) b_i with C(A) = (diag(A) - A A^T) / T, the Jacobian of the softmax.

    Args:
        state: of a head with softmax weights.

    Returns:
        The residual.

    Raises:
        FlowError: if the map is no softmax.
    """
    temperature = require_softmax(state, "D = C b")
    expected = softmax_law(state.weights, state.compatibility, parameter(temperature, state.scores))
    return relative(state.score_gradient - expected, state.weights * state.compatibility / temperature)


def variance_identity(state: HeadState) -> Float[Array, "*H T"]:
    """Return T sum_j D_ij b_ij - Var_{A_i}(b): routing sees the loss through the spread of b, never below 0.

    Args:
        state: of a head with softmax weights.

    Returns:
        The residual.

    Raises:
        FlowError: if the map is no softmax.
    """
    temperature = require_softmax(state, "the variance identity")
    spread = jnp.where(state.mask, state.centred, 0)
    variance = jnp.sum(state.weights * spread**2, axis=-1)
    products = jnp.where(state.mask, state.score_gradient * state.compatibility, 0) * temperature
    squares = jnp.where(state.mask, state.weights * state.compatibility**2, 0)
    return relative(jnp.sum(products, axis=-1) - variance, jnp.sum(squares, axis=-1))


def row_law(state: HeadState) -> Float[Array, "*H T"]:
    """Return sum_j D_ij / (log f)'(s_ij) - m_i u_i . g_i, the law of each row of every map of `gf.activations`.

    What stands for 1 / (log f)' and for m:

    | map | 1 / (log f)' | m | the law |
    |---|---|---|---|
    | softmax (T), sparsemax, uniform | T, 1, 1 | 0 | sum D = 0 |
    | f / sum f | f / f' | 0 | sum D / (log f)' = 0 |
    | f / (sum f + floor), softmax1 (f = exp) | f / f' | 1 - sum A | sum D / (log f)' = (1 - sum A) u.g |
    | f, unnormalised | f / f' | 1 | sum D / (log f)' = u.g |

    For exp that is sum D = u.g, for a homogeneous f of degree h, sum s D = h u.g. (The sigmoid has no law without its
    slope: none of sum D, sum s D is fixed.)

    Args:
        state: of a head.

    Returns:
        The residual.

    Raises:
        FlowError: if the map is not known to have such a law.
    """
    factor = inverse_log_slope(state.activation, state.scores)
    terms = jnp.where(state.score_gradient == 0, 0, state.score_gradient * factor)
    expected = missing_mass(state.activation, state.weights, state.mask) * state.mean[..., 0]
    # The terms A b and A (u.g) of the sum cancel, and their rounding is what is left.
    sizes = jnp.where(state.mask & (state.weights != 0), state.weights * state.compatibility, 0)
    return relative(jnp.sum(terms, axis=-1) - expected, terms, expected, sizes)


def has_row_law(activation: AbstractActivation) -> bool:
    """Return whether `row_law` knows the map."""
    inner = activation.base if isinstance(activation, Normalised) else activation
    return inverse_log_slope.dispatch(type(inner)) is not inverse_log_slope.dispatch(object)


def missing_mass(
    activation: AbstractActivation, weights: Float[Array, "*H T T"], mask: Bool[Array, "T T"]
) -> Float[Array, "*H T"]:
    """Return the share m of u.g that the row law of a map keeps: 0 if normalised, 1 if unnormalised, else 1 - sum A."""
    if isinstance(activation, AbstractElementwise):
        return jnp.ones(weights.shape[:-1], weights.dtype)
    if activation.normalised:
        return jnp.zeros(weights.shape[:-1], weights.dtype)
    return 1 - jnp.sum(jnp.where(mask, weights, 0), axis=-1)


@functools.singledispatch
def inverse_log_slope(activation: AbstractActivation, scores: Float[Array, "*m"]) -> Float[Array, "*m"]:
    """Return 1 / (log f)' = f / f' at each score, the factor of D in `row_law`; `register` makes a map known."""
    raise FlowError(f"activation is {activation.name!r}: it has no row law; register `inverse_log_slope` for it")


@inverse_log_slope.register(Softmax)
def _(activation: Softmax, scores: Array) -> Array:
    return jnp.broadcast_to(parameter(activation.temperature, scores), scores.shape)


@inverse_log_slope.register(Softmax1)
@inverse_log_slope.register(Sparsemax)
@inverse_log_slope.register(Uniform)
def _(activation: AbstractActivation, scores: Array) -> Array:
    return jnp.ones_like(scores)


@inverse_log_slope.register(Normalised)
def _(activation: Normalised, scores: Array) -> Array:
    return inverse_log_slope(activation.base, scores)


@inverse_log_slope.register(AbstractPositive)
def _(activation: AbstractPositive, scores: Array) -> Array:
    return 1 / log_slope(activation, scores)


@inverse_log_slope.register(AbstractHomogeneous)
def _(activation: AbstractHomogeneous, scores: Array) -> Array:
    return scores / activation.degree


@inverse_log_slope.register(ELU)
def _(activation: ELU, scores: Array) -> Array:
    return jnp.where(scores < 0, -jnp.expm1(-jnp.where(scores < 0, scores, 0)), scores)
