"""The sticky Markov chain of the second paper: symbols that are seen, or that noisy vectors hint at."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from gradflow.errors import FlowError, is_traced
from gradflow.tasks.arguments import check_count, check_key, check_range
from gradflow.tasks.markov.chains import (
    as_bayes,
    as_float,
    as_law,
    as_symbols,
    check_draw,
    draw_chain,
    entropy,
    forward_filter,
    long_run_law,
    next_symbols,
)
from gradflow.types import Batch, Bayes


def sticky_transition(
    n_states: int = 8, stay: float | Array = 0.3, *, literal: bool = False
) -> Float[Array, "n_states n_states"]:
    """Return the chain of arXiv 2512.22473: it stays, or jumps with weight 1 / circular distance.

    The public code normalises rows that already hold `stay` on the diagonal, scales them by 1 - stay and adds `stay` to
    the diagonal once more. With the defaults the chain therefore stays with probability .349802, and its entropy rate
    is 1.829188 nats; the literal one stays with probability .3 (1.88325 nats).

    Args:
        n_states: C, >= 2.
        stay: s in [0, 1).
        literal: whether the probability of staying is `stay` itself.

    Returns:
        A row-stochastic, circulant matrix in the default float type; its stationary law is uniform.

    Raises:
        FlowError: if `n_states` is below 2 or `stay` outside [0, 1).
    """
    check_count("n_states", n_states)
    if n_states < 2:
        raise FlowError(f"n_states is {n_states}: a chain that jumps needs at least 2")
    check_range("stay", stay, 0, 1)
    apart = np.abs(np.subtract.outer(np.arange(n_states), np.arange(n_states)))
    distance = np.minimum(apart, n_states - apart)
    weights = jnp.asarray(np.where(distance > 0, 1 / np.maximum(distance, 1), 0), jnp.result_type(float))
    total = jnp.sum(weights, axis=-1, keepdims=True)
    eye = jnp.eye(n_states, dtype=weights.dtype)
    if literal:
        return (1 - stay) * weights / total + stay * eye
    return (1 - stay) * (weights + stay * eye) / (total + stay) + stay * eye


class StickyMarkov(eqx.Module):
    """Predict the next symbol of a known Markov chain (arXiv 2512.22473; the sticky chain by default).

    A sequence y_0, y_1, ... gives the target y_t at each position t = 1, 2, ... The input there is the symbol y_{t-1};
    or, if `means` is set, x_t = mu_{y_{t-1}} + noise N(0, I), so that the chain is hidden: `StickyMarkov.noisy()` is
    the paper's setting.

    Attributes:
        transition: P, p(y_{t+1} = j | y_t = i) in row i.
        initial: law of y_0.
        means: mu, one row a symbol; None if symbols are seen.
        noise: standard deviation of the observations around their means.
    """

    transition: Float[Array, "C C"]
    initial: Float[Array, " C"]
    means: Float[Array, "C d"] | None
    noise: Float[Array, ""]

    def __init__(
        self, transition: Any = None, *, initial: Any = None, means: Any = None, noise: float | Array = 1.0
    ) -> None:
        """Check a chain and how it is observed.

        Args:
            transition: rows that sum to one, zeros allowed; None is `sticky_transition()`.
            initial: None is uniform.
            means: None if symbols are seen.
            noise: > 0; read only if `means` is set.

        Raises:
            FlowError: if a law is not one, or a shape does not fit.
        """
        self.transition = sticky_transition() if transition is None else as_law("transition", transition)
        n_states, dtype = len(self.transition), self.transition.dtype
        uniform = jnp.full((n_states,), 1 / n_states, dtype)
        self.initial = uniform if initial is None else as_law("initial", initial, (n_states,)).astype(dtype)
        self.means = None if means is None else _as_means(means, n_states).astype(dtype)
        check_range("noise", noise, 0, closed=False)
        self.noise = as_float("noise", noise).astype(dtype)

    @classmethod
    def noisy(
        cls,
        transition: Any = None,
        *,
        n_features: int = 20,
        key: Key[Array, ""] | None = None,
        initial: Any = None,
        noise: float | Array = 1.0,
    ) -> "StickyMarkov":
        """Hide the chain behind observations with means mu ~ N(0, I), the same for every sequence and seed.

        Args:
            transition: rows that sum to one; None is `sticky_transition()`.
            n_features: d, dimension of an observation; the paper's is 20.
            key: typed key of the means; None is `jax.random.key(0)`.
            initial: law of the first symbol; None is uniform.
            noise: standard deviation of the observations around their means.

        Returns:
            The task.

        Raises:
            FlowError: if a law is not one, or a number is out of range.
        """
        check_count("n_features", n_features)
        key = jax.random.key(0) if key is None else key
        check_key(key)
        transition = sticky_transition() if transition is None else as_law("transition", transition)
        means = jax.random.normal(key, (len(transition), n_features), transition.dtype)
        return cls(transition, initial=initial, means=means, noise=noise)

    @property
    def n_states(self) -> int:
        """C, the number of symbols."""
        return len(self.transition)

    @property
    def entropy_rate(self) -> Float[Array, ""]:
        """H_min = -sum_i pi_i sum_j P_ij log P_ij in nats, the least loss of a predictor that sees the symbols.

        pi is the fraction of time in each state: the stationary law, or what `initial` leads to where it is not unique.
        """
        return jnp.sum(long_run_law(self.transition, self.initial) * entropy(self.transition))

    def sample(self, key: Key[Array, ""], n: int, *, length: int = 2000) -> Batch:
        """Draw independent sequences.

        Args:
            key: typed key.
            n: number of sequences.
            length: symbols of a sequence, >= 2; the paper's 2000 give 1999 positions.

        Returns:
            Integer inputs (n, length - 1), or observations (n, length - 1, d) if `means` is set; all targets count.

        Raises:
            FlowError: if the key is not a typed key or a size is too small.
        """
        check_draw(key, n, length)
        chain_key, noise_key = jax.random.split(key)
        keys = jax.random.split(chain_key, n)
        batch = next_symbols(jax.vmap(lambda k: draw_chain(k, self.transition, self.initial, length))(keys))
        if self.means is None:
            return batch
        shape = (*batch.inputs.shape, self.means.shape[1])
        noise = self.noise * jax.random.normal(noise_key, shape, self.means.dtype)
        return Batch(self.means[batch.inputs] + noise, batch.targets, batch.mask)

    def bayes(self, batch: Batch) -> Bayes:
        """Return the exact law of each target given the inputs up to its position.

        Symbols: the row P_y. Observations: the forward filter with N(x; mu_k, noise^2 I), then one step of P.

        Args:
            batch: inputs as `sample` draws them, or one-hot symbols; targets and mask are not read.

        Returns:
            Probabilities and their entropy in bits.

        Raises:
            FlowError: if the inputs have another shape, or concrete values are not finite or no symbols.
        """
        if self.means is None:
            return as_bayes(self.transition[as_symbols(batch.inputs, self.n_states)])
        observations = _as_observations(batch.inputs, self.means)
        # log N(x; mu_k, noise^2 I) without |x|^2, which is common to all states and may overflow.
        projected = jnp.matmul(observations, self.means.T, precision="highest")
        log_likelihood = (projected - jnp.sum(self.means**2, axis=-1) / 2) / self.noise**2
        filtered = jax.vmap(forward_filter, (None, None, 0))(self.transition, self.initial, log_likelihood)
        return as_bayes(jnp.exp(filtered.log_next))


def _as_means(means: Any, n_states: int) -> Float[Array, "C d"]:
    means = as_float("means", means)
    if means.ndim != 2 or means.shape[0] != n_states or means.shape[1] == 0:
        raise FlowError(f"means has shape {means.shape}; it must be ({n_states}, d), a row for each state")
    if not is_traced(means) and not np.all(np.isfinite(means)):
        raise FlowError("means holds numbers that are not finite; pass finite ones")
    return means


def _as_observations(inputs: Any, means: Float[Array, "C d"]) -> Float[Array, "n T d"]:
    observations = as_float("inputs", inputs)
    if observations.ndim != 3 or observations.shape[-1] != means.shape[1]:
        raise FlowError(f"inputs has shape {observations.shape}; it must be (n, T, {means.shape[1]})")
    if not is_traced(observations) and not np.all(np.isfinite(observations)):
        place = tuple(np.argwhere(~np.isfinite(np.asarray(observations)))[0].tolist())
        raise FlowError(f"inputs[{place}] is {observations[place]}; remove or fill what is not finite")
    return observations
