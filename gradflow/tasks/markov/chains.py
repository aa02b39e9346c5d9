"""What tasks on Markov chains share: checked matrices, draws, the stationary law, the forward filter, predictives."""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Key, Shaped

from gradflow.errors import FlowError, is_traced, shown
from gradflow.tasks.arguments import check_count, check_key
from gradflow.types import Batch, Bayes

# The lazy chain (I + P) / 2 after 2^60 steps: at rest unless it mixes more slowly than rounding errors do.
_SQUARINGS = 60


class Filtered(NamedTuple):
    """What the forward filter knows after each observation, as logarithms; -inf where a state is impossible.

    Attributes:
        log_state: log p(state_t | o_1 .. o_t).
        log_next: log p(state_{t+1} | o_1 .. o_t).
    """

    log_state: Float[Array, "T S"]
    log_next: Float[Array, "T S"]


@jax.jit
def forward_filter(
    transition: Float[Array, "S S"], initial: Float[Array, " S"], log_likelihood: Float[Array, "T S"]
) -> Filtered:
    """Filter hidden states: alpha_1(j) ~ pi_j p(o_1 | j), alpha_t(j) ~ p(o_t | j) sum_i alpha_{t-1}(i) T_ij.

    Everything is kept as logarithms and normalised at each step, so that long sequences, zero transitions and evidence
    that overturns earlier evidence by any factor are exact. From an observation on that no reachable state can emit,
    there is no posterior, and the result is NaN.

    Args:
        transition: T, p(state_{t+1} = j | state_t = i) in row i.
        initial: pi, the law of the first state.
        log_likelihood: log p(o_t | state), up to a constant a position; -inf where impossible.

    Returns:
        Laws of the present and of the next state, a row for each observation.

    Raises:
        FlowError: if the shapes do not fit.
    """
    shapes = (jnp.shape(transition), jnp.shape(initial), jnp.shape(log_likelihood)[1:])
    if shapes != ((*shapes[1], *shapes[1]), shapes[1], shapes[1]) or len(shapes[1]) != 1:
        raise FlowError(
            f"transition, initial and log_likelihood have shapes {shapes[0]}, {shapes[1]} and "
            f"{jnp.shape(log_likelihood)}; pass (S, S), (S,) and (T, S)"
        )
    dtype = jnp.result_type(transition, initial, log_likelihood, 0.0)
    log_transition = _log(jnp.asarray(transition, dtype))

    def step(log_predicted: Array, log_seen: Array) -> tuple[Array, Filtered]:
        joint = log_predicted + log_seen
        log_state = joint - _log_sum_exp(joint)
        log_next = _log_sum_exp(log_state[:, None] + log_transition)
        return log_next, Filtered(log_state, log_next)

    return lax.scan(step, _log(jnp.asarray(initial, dtype)), jnp.asarray(log_likelihood, dtype))[1]


@functools.partial(jax.jit, static_argnames="length")
def draw_chain(
    key: Key[Array, ""], transition: Float[Array, "S S"], initial: Float[Array, " S"], length: int
) -> Int[Array, " length"]:
    """Draw a path of a chain.

    Args:
        key: typed key.
        transition: row-stochastic.
        initial: law of the first state.
        length: number of states drawn, >= 1.

    Returns:
        States; one that has probability zero is never drawn.
    """
    rows = _log(transition)

    # The largest of log p + Gumbel noise is a draw from p, and never one of probability zero.
    def step(row: Array, noise: Array) -> tuple[Array, Array]:
        state = jnp.argmax(row + noise)
        return rows[state], state

    return lax.scan(step, _log(initial), jax.random.gumbel(key, (length, len(initial)), transition.dtype))[1]


def check_draw(key: Any, n: Any, length: Any) -> None:
    """Refuse what no sequences with a next symbol can be drawn from.

    Args:
        key: what was passed as `key`.
        n: number of sequences.
        length: symbols of a sequence.

    Raises:
        FlowError: if the key is not a typed key, or a size is too small or traced.
    """
    check_key(key)
    check_count("n", n)
    check_count("length", length)
    if length < 2:
        raise FlowError(f"length is {length}: a sequence with a next symbol has at least 2")


def next_symbols(sequences: Int[Array, "n length"]) -> Batch:
    """Return each symbol with the one that follows as its target."""
    return Batch(sequences[:, :-1], sequences[:, 1:], jnp.ones_like(sequences[:, 1:], bool))


@jax.jit
def long_run_law(transition: Float[Array, "S S"], initial: Float[Array, " S"]) -> Float[Array, " S"]:
    """Return the fraction of time in each state in the long run, from an initial law; periodic chains included.

    It is the stationary law where there is one; a chain with several closed classes ends in each by its chance.

    Args:
        transition: row-stochastic.
        initial: law of the first state.

    Returns:
        A stationary law.
    """

    def square(power: Array, _: None) -> tuple[Array, None]:
        power = jnp.matmul(power, power, precision="highest")
        return power / jnp.sum(power, axis=-1, keepdims=True), None

    lazy = (transition + jnp.eye(len(transition), dtype=transition.dtype)) / 2
    limit, _ = lax.scan(square, lazy, None, length=_SQUARINGS)
    return jnp.matmul(initial, limit, precision="highest")


def entropy(probabilities: Float[Array, "... C"]) -> Float[Array, "..."]:
    """Return -sum p log p over the last axis, in nats; 0 log 0 = 0, with zero slope."""
    negligible = _is_negligible(probabilities)
    safe = jnp.where(negligible, 1, probabilities)
    return jnp.sum(jnp.where(negligible, 0, 0 - safe * jnp.log(safe)), axis=-1)  # 0 -: a certain outcome has 0, not -0


def as_bayes(probabilities: Float[Array, "n T C"]) -> Bayes:
    """Return a posterior predictive with its entropy in bits."""
    return Bayes(probabilities, entropy(probabilities) / math.log(2))


def surprise(bayes: Bayes, batch: Batch) -> Float[Array, "n T"]:
    """Return -log p(target) of an exact predictor in nats, 0 where masked.

    Its mean over the unmasked targets is the least loss to be expected of any model, and under the task's own prior the
    mean of the predictive's entropy.

    Args:
        bayes: from the task's `bayes(batch)`.
        batch: sequences, targets and mask.
    """
    targets = jnp.where(batch.mask, batch.targets, 0)
    chosen = jnp.take_along_axis(bayes.probabilities, targets[..., None], axis=-1)[..., 0]
    return jnp.where(batch.mask, -_log(chosen), 0)


def one_hot(batch: Batch, n_classes: int) -> Batch:
    """Return a batch of tokens with one-hot rows as inputs, as a single attention head reads them.

    Args:
        batch: with integer inputs (n, T).
        n_classes: C.

    Returns:
        The batch with inputs (n, T, C) in the default float type.

    Raises:
        FlowError: if the inputs are not integers in [0, C).
    """
    symbols = as_symbols(batch.inputs, n_classes)
    return Batch(jax.nn.one_hot(symbols, n_classes, dtype=jnp.result_type(float)), batch.targets, batch.mask)


def as_symbols(inputs: Shaped[Array, "n T ..."], n_classes: int) -> Int[Array, "n T"]:
    """Read symbols from integers (n, T) or one-hot rows (n, T, C).

    Args:
        inputs: of a batch.
        n_classes: C.

    Returns:
        Symbols in [0, C).

    Raises:
        FlowError: if the shape is neither, or concrete values are no symbols.
    """
    inputs = jnp.asarray(inputs)
    if inputs.ndim == 3 and inputs.shape[-1] == n_classes:
        _check_one_hot(inputs)
        return jnp.argmax(inputs, axis=-1)
    if inputs.ndim != 2 or not jnp.issubdtype(inputs.dtype, jnp.integer):
        raise FlowError(
            f"inputs has shape {inputs.shape} and dtype {inputs.dtype}; pass integers (n, T) "
            f"or one-hot rows (n, T, {n_classes})"
        )
    if not is_traced(inputs) and inputs.size:
        low, high = np.min(np.asarray(inputs)), np.max(np.asarray(inputs))
        if low < 0 or high >= n_classes:
            raise FlowError(f"inputs holds {low} to {high}; symbols must be in 0 .. {n_classes - 1}")
    return inputs


def _check_one_hot(inputs: Array) -> None:
    if is_traced(inputs):
        return
    values = np.asarray(inputs)
    if not np.all((values == 0) | (values == 1)) or np.any(values.sum(axis=-1) != 1):
        raise FlowError("inputs has rows that are not one-hot; pass one 1 a row, or integers (n, T)")


def as_float(argument: str, values: Any) -> Float[Array, "..."]:
    """Return numbers as a floating array, float32 as float32.

    Args:
        argument: its name, as typed.
        values: what was passed.

    Raises:
        FlowError: if these are not real numbers.
    """
    try:
        array = jnp.asarray(values)
    except (TypeError, ValueError):
        raise FlowError(f"{argument} is {shown(values)}; pass an array of numbers") from None
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise FlowError(f"{argument} has dtype {array.dtype}; pass real numbers")
    return array.astype(jnp.result_type(array, 0.0))


def as_law(argument: str, values: Any, shape: tuple[int, ...] | None = None) -> Float[Array, "..."]:
    """Check rows of probabilities: a square matrix, or an array of the given shape.

    Args:
        argument: its name, as typed.
        values: what was passed; only the shape of a traced array is looked at.
        shape: None for a square matrix.

    Returns:
        The array, floating.

    Raises:
        FlowError: if the shape is wrong, a probability is negative or NaN, or a row does not sum to one.
    """
    law = as_float(argument, values)
    square = law.ndim == 2 and law.shape[0] == law.shape[1] > 0
    if not (square if shape is None else law.shape == shape):
        raise FlowError(f"{argument} has shape {law.shape}; it must be {'square' if shape is None else shape}")
    if is_traced(law):
        return law
    rows = np.asarray(law, dtype=float).reshape(-1, law.shape[-1])
    if not np.all(rows >= 0):
        raise FlowError(f"{argument} holds {rows[~(rows >= 0)][0]:g}; probabilities must be >= 0")
    sums = rows.sum(axis=-1)
    wrong = int(np.argmax(np.abs(sums - 1)))
    if not abs(sums[wrong] - 1) <= max(1e-6, 4 * rows.shape[-1] * float(jnp.finfo(law.dtype).eps)):
        row = f"row {wrong} of {argument}" if law.ndim == 2 else argument
        raise FlowError(f"{row} sums to {sums[wrong]:.8g}, it must sum to 1; divide each row by its sum")
    return law


def _log(probabilities: Array) -> Array:
    impossible = _is_negligible(probabilities)
    return jnp.where(impossible, -jnp.inf, jnp.log(jnp.where(impossible, 1, probabilities)))


def _is_negligible(probabilities: Array) -> Array:
    """Return where a probability is zero or too small for a logarithm and its slope; False for NaN, which stays."""
    return probabilities < jnp.finfo(probabilities.dtype).tiny


def _log_sum_exp(terms: Array) -> Array:
    """Return log sum_i exp(terms_i) over the first axis; all -inf gives -inf with zero slope (JAX's slope is NaN)."""
    largest = lax.stop_gradient(jnp.max(terms, axis=0))
    shift = jnp.where(jnp.isneginf(largest), 0, largest)
    total = jnp.sum(jnp.exp(terms - shift), axis=0)
    nothing = total == 0
    return jnp.where(nothing, -jnp.inf, jnp.log(jnp.where(nothing, 1, total)) + shift)
