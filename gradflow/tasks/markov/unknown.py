"""Markov chains whose law is drawn anew for each sequence, so that it must be inferred from the symbols seen."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Key

from gradflow.errors import FlowError, is_traced
from gradflow.tasks.arguments import check_count, check_range
from gradflow.tasks.markov.chains import as_bayes, as_float, as_law, as_symbols, check_draw, draw_chain, next_symbols
from gradflow.tasks.markov.sticky import sticky_transition
from gradflow.types import Batch, Bayes


class DirichletMarkov(eqx.Module):
    """Predict the next symbol of a chain with unknown transition rows, P_i ~ Dirichlet(a + kappa e_i).

    Attributes:
        concentration: a > 0, for every symbol.
        stickiness: kappa >= 0, more of it for staying.
        n_states: C.
    """

    concentration: Float[Array, ""]
    stickiness: Float[Array, ""]
    n_states: int = eqx.field(static=True)

    def __init__(
        self, n_states: int = 8, *, concentration: float | Array = 1.0, stickiness: float | Array = 4.0
    ) -> None:
        """Check the prior.

        Args:
            n_states: C >= 1.
            concentration: a > 0.
            stickiness: kappa >= 0.

        Raises:
            FlowError: if a number is out of range.
        """
        check_count("n_states", n_states)
        check_range("concentration", concentration, 0, closed=False)
        check_range("stickiness", stickiness, 0)
        self.n_states = n_states
        self.concentration = as_float("concentration", concentration)
        self.stickiness = as_float("stickiness", stickiness)

    @property
    def prior(self) -> Float[Array, "C C"]:
        """Pseudo-counts of each row, a + kappa delta_ij."""
        eye = jnp.eye(self.n_states, dtype=self.concentration.dtype)
        return self.concentration + self.stickiness * eye

    def sample(self, key: Key[Array, ""], n: int, *, length: int = 2000) -> Batch:
        """Draw sequences, each from rows of its own; the first symbol is uniform.

        Args:
            key: typed key.
            n: number of sequences.
            length: symbols of a sequence, >= 2.

        Returns:
            Integer inputs and targets (n, length - 1); all targets count.

        Raises:
            FlowError: if the key is not a typed key or a size is too small.
        """
        check_draw(key, n, length)
        row_key, chain_key = jax.random.split(key)
        shape = (n, self.n_states)
        return _draw(chain_key, jax.random.dirichlet(row_key, self.prior, shape, self.prior.dtype), length)

    def bayes(self, batch: Batch) -> Bayes:
        """Return p(j | y_1 .. y_t) = (n_ij + a + kappa delta_ij) / (n_i + C a + kappa), i = y_t, n_ij the jumps so far.

        Args:
            batch: inputs as `sample` draws them, or one-hot symbols; targets and mask are not read.

        Returns:
            Probabilities and their entropy in bits.

        Raises:
            FlowError: if the inputs are not symbols in [0, C).
        """
        symbols = as_symbols(batch.inputs, self.n_states)
        return as_bayes(jax.vmap(_counted, (None, 0))(self.prior, symbols))


class BetaMarkov(eqx.Module):
    """Predict the next symbol of a chain with an unknown probability of staying, theta ~ Beta(a, b).

    From i the chain stays with probability theta, else it jumps to j with probability q_ij, which is known.

    Attributes:
        a: first parameter of the prior.
        b: second parameter of the prior.
        jumps: q, row-stochastic with a zero diagonal.
    """

    a: Float[Array, ""]
    b: Float[Array, ""]
    jumps: Float[Array, "C C"]

    def __init__(self, a: float | Array = 1.0, b: float | Array = 1.0, jumps: Any = None) -> None:
        """Check the prior and the law of the jumps.

        Args:
            a: > 0.
            b: > 0.
            jumps: None is the sticky chain's, 1 / circular distance among 8 states.

        Raises:
            FlowError: if a number is out of range, or `jumps` is not a law without staying.
        """
        check_range("a", a, 0, closed=False)
        check_range("b", b, 0, closed=False)
        self.jumps = sticky_transition(stay=0.0) if jumps is None else as_law("jumps", jumps)
        if not is_traced(self.jumps) and np.any(np.diagonal(np.asarray(self.jumps))):
            raise FlowError("jumps holds a probability of staying; set its diagonal to 0 and divide rows by their sums")
        self.a = as_float("a", a).astype(self.jumps.dtype)
        self.b = as_float("b", b).astype(self.jumps.dtype)

    @property
    def n_states(self) -> int:
        """C, the number of symbols."""
        return len(self.jumps)

    def sample(self, key: Key[Array, ""], n: int, *, length: int = 2000) -> Batch:
        """Draw sequences, each with a theta of its own; the first symbol is uniform.

        Args:
            key: typed key.
            n: number of sequences.
            length: symbols of a sequence, >= 2.

        Returns:
            Integer inputs and targets (n, length - 1); all targets count.

        Raises:
            FlowError: if the key is not a typed key or a size is too small.
        """
        check_draw(key, n, length)
        stay_key, chain_key = jax.random.split(key)
        stay = jax.random.beta(stay_key, self.a, self.b, (n,), self.jumps.dtype)
        eye = jnp.eye(self.n_states, dtype=stay.dtype)
        return _draw(chain_key, _mixed(stay[:, None, None], eye, self.jumps), length)

    def bayes(self, batch: Batch) -> Bayes:
        """Return the predictive: staying has (n_s + a) / (n + a + b), n_s of n steps so far; the rest follows q.

        Args:
            batch: inputs as `sample` draws them, or one-hot symbols; targets and mask are not read.

        Returns:
            Probabilities and their entropy in bits.

        Raises:
            FlowError: if the inputs are not symbols in [0, C).
        """
        symbols = as_symbols(batch.inputs, self.n_states)
        stayed = symbols[:, 1:] == symbols[:, :-1]
        stays = jnp.pad(jnp.cumsum(stayed, axis=-1), ((0, 0), (1, 0)))
        steps = jnp.arange(symbols.shape[1])
        stay = (stays + self.a) / (steps + self.a + self.b)
        here = jax.nn.one_hot(symbols, self.n_states, dtype=self.jumps.dtype)
        return as_bayes(_mixed(stay[..., None], here, self.jumps[symbols]))


@jax.jit
def _counted(prior: Float[Array, "C C"], symbols: Int[Array, " T"]) -> Float[Array, "T C"]:
    def step(carry: tuple[Array, Array], symbol: Array) -> tuple[tuple[Array, Array], Array]:
        counts, before = carry
        counts = counts.at[before, symbol].add(1, mode="drop")
        return (counts, symbol), counts[symbol] / jnp.sum(counts[symbol])

    # Nothing comes before the first symbol: the index C adds nothing.
    nowhere = jnp.full((), len(prior), symbols.dtype)
    return lax.scan(step, (prior, nowhere), symbols)[1]


def _mixed(stay: Float[Array, "..."], here: Float[Array, "... C"], jumps: Float[Array, "... C"]) -> Array:
    return stay * here + (1 - stay) * jumps


def _draw(key: Key[Array, ""], transitions: Float[Array, "n C C"], length: int) -> Batch:
    n, n_states, _ = transitions.shape
    uniform = jnp.full((n_states,), 1 / n_states, transitions.dtype)
    draw = jax.vmap(lambda k, transition: draw_chain(k, transition, uniform, length))
    return next_symbols(draw(jax.random.split(key, n), transitions))
