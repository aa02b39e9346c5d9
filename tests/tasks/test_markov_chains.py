"""The forward filter against enumeration of all paths, draws, long-run laws, symbols and their surprise."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradflow.errors import FlowError
from gradflow.tasks import Batch, Bayes, forward_filter, one_hot, surprise
from gradflow.tasks.markov.chains import draw_chain, entropy, long_run_law

KEY = jax.random.key(5)
RNG = np.random.default_rng(5)
DENSE = RNG.dirichlet(np.ones(3), size=3)
ZEROS = np.array([[0.0, 1.0, 0.0], [0.5, 0.0, 0.5], [0.0, 0.3, 0.7]])
ABSORBING = np.array([[0.6, 0.2, 0.2], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
CHAINS = {"dense": DENSE, "zeros": ZEROS, "absorbing": ABSORBING, "still": np.eye(3)}
START = {"uniform": np.full(3, 1 / 3), "certain": np.array([1.0, 0.0, 0.0])}


def enumerated(transition, initial, log_likelihood):
    """p(state_t | o_1 .. o_t) and p(state_{t+1} | o_1 .. o_t) by summing over every path."""
    states, following = [], []
    for t in range(1, len(log_likelihood) + 1):
        weights = np.zeros(len(initial))
        for path in itertools.product(range(len(initial)), repeat=t):
            chance = initial[path[0]] * np.prod([transition[i, j] for i, j in itertools.pairwise(path)])
            weights[path[-1]] += chance * np.exp(sum(log_likelihood[k, state] for k, state in enumerate(path)))
        states.append(weights / weights.sum())
        following.append(states[-1] @ transition)
    return np.array(states), np.array(following)


@pytest.mark.parametrize("start", START)
@pytest.mark.parametrize("chain", CHAINS)
def test_the_filter_is_the_sum_over_paths(chain, start):
    log_likelihood = RNG.normal(size=(6, 3))
    filtered = forward_filter(CHAINS[chain], START[start], log_likelihood)
    states, following = enumerated(CHAINS[chain], START[start], log_likelihood)
    np.testing.assert_allclose(np.exp(filtered.log_state), states, atol=1e-12)
    np.testing.assert_allclose(np.exp(filtered.log_next), following, atol=1e-12)
    np.testing.assert_allclose(np.exp(filtered.log_next).sum(-1), 1, rtol=1e-13)


def test_one_position():
    filtered = forward_filter(DENSE, START["uniform"], np.zeros((1, 3)))
    np.testing.assert_allclose(np.exp(filtered.log_state), [START["uniform"]], rtol=1e-14)
    np.testing.assert_allclose(np.exp(filtered.log_next), [DENSE.mean(0)], rtol=1e-14)


def test_mixed_precisions_are_promoted():
    filtered = forward_filter(np.eye(2, dtype=np.float32), np.array([1, 0]), np.zeros((1, 2)))
    np.testing.assert_array_equal(filtered.log_state, [[0.0, -np.inf]])
    assert filtered.log_next.dtype == jnp.float64


def test_a_cycle_is_known_by_its_phase():
    """Six states in a circle, T = 100: the posterior of the phase is a product over positions."""
    cycle = np.roll(np.eye(6), 1, axis=1)
    log_likelihood = 3 * RNG.normal(size=(100, 6))
    filtered = forward_filter(cycle, np.full(6, 1 / 6), log_likelihood)
    at = (np.arange(6)[:, None] + np.arange(100)) % 6
    evidence = log_likelihood[np.arange(100), at].sum(-1)
    expected = evidence - np.logaddexp.reduce(evidence)
    np.testing.assert_allclose(np.asarray(filtered.log_state[-1])[(np.arange(6) + 99) % 6], expected, atol=1e-10)


def test_later_evidence_overturns_earlier_evidence_beyond_underflow():
    """A filter of probabilities would have put the second state at exactly zero and left it there."""
    filtered = forward_filter(np.eye(2), np.full(2, 0.5), np.array([[2000.0, 0.0], [0.0, 5000.0]]))
    np.testing.assert_allclose(filtered.log_state, [[0.0, -2000.0], [-3000.0, 0.0]], atol=1e-9)


def test_an_impossible_observation_has_no_posterior():
    impossible = np.array([[0.0, 0.0], [-np.inf, 0.0], [0.0, 0.0]])
    filtered = forward_filter(np.eye(2), np.array([1.0, 0.0]), impossible)
    np.testing.assert_array_equal(filtered.log_state[0], [0.0, -np.inf])
    assert np.isnan(filtered.log_state[1:]).all()


@pytest.mark.parametrize("chain", CHAINS)
def test_gradients_are_finite_with_zero_transitions(chain):
    def chance(transition, seen):
        return jnp.sum(jnp.exp(forward_filter(transition, jnp.array([1.0, 0.0, 0.0]), seen).log_next)[:, 1])

    for gradient in jax.grad(chance, argnums=(0, 1))(jnp.asarray(CHAINS[chain]), jnp.zeros((6, 3))):
        assert np.isfinite(gradient).all()


def test_filters_are_mapped_and_stay_in_float32():
    seen = jnp.asarray(RNG.normal(size=(2, 6, 3)), jnp.float32)
    transition, initial = jnp.asarray(ZEROS, jnp.float32), jnp.asarray(START["uniform"], jnp.float32)
    mapped = jax.jit(jax.vmap(forward_filter, (None, None, 0)))(transition, initial, seen)
    assert mapped.log_state.dtype == mapped.log_next.dtype == jnp.float32
    exact = forward_filter(ZEROS, START["uniform"], np.asarray(seen[1], float))
    np.testing.assert_allclose(np.exp(mapped.log_state[1]), np.exp(exact.log_state), atol=1e-5)


def test_draws_follow_the_law_and_never_the_impossible():
    draw = jax.vmap(lambda key: draw_chain(key, jnp.asarray(ZEROS), jnp.asarray(START["certain"]), 50))
    paths = np.asarray(draw(jax.random.split(KEY, 400)))
    assert (paths[:, 0] == 0).all()
    counts = np.zeros((3, 3))
    np.add.at(counts, (paths[:, :-1], paths[:, 1:]), 1)
    assert (counts[ZEROS == 0] == 0).all()
    visits = counts.sum(-1, keepdims=True)
    error = (counts / visits - ZEROS) / np.sqrt(np.maximum(ZEROS * (1 - ZEROS), 1e-12) / visits)
    assert np.abs(error).max() < 4


def eigenvector_law(transition):
    values, vectors = np.linalg.eig(transition.T)
    law = np.real(vectors[:, np.argmax(np.real(values))])
    return law / law.sum()


@pytest.mark.parametrize("transition", [DENSE, ZEROS, np.roll(np.eye(3), 1, axis=1)], ids=["dense", "zeros", "cycle"])
def test_the_long_run_law_is_the_eigenvector(transition):
    for initial in START.values():
        np.testing.assert_allclose(long_run_law(transition, initial), eigenvector_law(transition), atol=1e-13)


def test_the_long_run_law_of_a_slow_and_of_an_absorbing_chain():
    slow = np.array([[1 - 1e-9, 1e-9], [3e-9, 1 - 3e-9]])
    np.testing.assert_allclose(long_run_law(slow, np.array([0.0, 1.0])), [0.75, 0.25], rtol=1e-6)
    ruin = np.array([[1.0, 0, 0, 0], [0.5, 0, 0.5, 0], [0, 0.5, 0, 0.5], [0, 0, 0, 1.0]])
    np.testing.assert_allclose(long_run_law(ruin, np.array([0, 1.0, 0, 0])), [2 / 3, 0, 0, 1 / 3], atol=1e-14)


def test_entropy_of_zeros():
    p = jnp.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    np.testing.assert_allclose(entropy(p), [np.log(2), 0.0], rtol=1e-15)
    assert np.isfinite(jax.grad(lambda p: jnp.sum(entropy(p)))(p)).all()


def test_surprise_reads_unmasked_targets_only():
    probabilities = np.array([[[0.25, 0.75], [1.0, 0.0]]])
    bayes = Bayes(probabilities, entropy(probabilities) / np.log(2))
    batch = Batch(np.zeros((1, 2), int), np.array([[1, -1]]), np.array([[True, False]]))
    np.testing.assert_allclose(surprise(bayes, batch), [[-np.log(0.75), 0.0]])
    sure = Batch(batch.inputs, np.array([[1, 1]]), np.array([[True, True]]))
    np.testing.assert_array_equal(surprise(bayes, sure)[0, 1], np.inf)


def test_one_hot_rows():
    batch = one_hot(Batch(np.array([[2, 0]]), np.array([[0, 1]]), np.ones((1, 2), bool)), 3)
    np.testing.assert_array_equal(batch.inputs, [[[0.0, 0, 1], [1, 0, 0]]])
    assert batch.inputs.dtype == jnp.float64


def test_shapes_that_do_not_fit_are_named():
    with pytest.raises(FlowError, match=r"shapes \(3, 3\), \(3,\) and \(6, 4\); pass \(S, S\), \(S,\) and \(T, S\)"):
        forward_filter(DENSE, START["uniform"], np.zeros((6, 4)))
