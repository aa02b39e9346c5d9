"""Markov tasks: the paper's chain, exact predictives by evidence and quadrature, calibration, refused arguments."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import betaln, gammaln, roots_jacobi
from scipy.stats import norm

from gradflow.errors import FlowError
from gradflow.tasks import Batch, BetaMarkov, DirichletMarkov, StickyMarkov, one_hot, sticky_transition, surprise

KEY = jax.random.key(11)
ZEROS = np.array([[0.0, 1.0, 0.0], [0.5, 0.0, 0.5], [0.0, 0.3, 0.7]])
MEANS = np.array([[0.0, 1.0], [1.0, -0.5], [-1.0, 0.2]])
SYMBOLS = np.array([[0, 0, 1, 2, 2, 2, 0, 1, 0, 0, 1], [2, 1, 2, 1, 1, 0, 0, 0, 2, 2, 1]])
TASKS = {
    "seen": StickyMarkov(),
    "noisy": StickyMarkov.noisy(n_features=4),
    "rows": DirichletMarkov(3, concentration=0.7, stickiness=2.0),
    "stay": BetaMarkov(2.0, 3.0),
}


def batch_of(inputs):
    shape = inputs.shape[:2]
    return Batch(inputs, np.zeros(shape, int), np.ones(shape, bool))


def test_the_paper_chain():
    row = np.asarray(sticky_transition())[0]
    np.testing.assert_allclose(row[:5], [0.34980, 0.16601, 0.08300, 0.05534, 0.04150], atol=5e-6)
    np.testing.assert_allclose(row[1:], row[:0:-1])
    np.testing.assert_allclose(StickyMarkov().entropy_rate, 1.829188059, atol=1e-9)
    np.testing.assert_allclose(StickyMarkov().entropy_rate / np.log(2), 2.63896, atol=1e-5)


def test_the_literal_chain_stays_with_probability_stay():
    literal = sticky_transition(literal=True)
    np.testing.assert_allclose(np.diagonal(literal), 0.3, rtol=1e-14)
    np.testing.assert_allclose(StickyMarkov(literal).entropy_rate, 1.88325, atol=5e-6)


@pytest.mark.parametrize("literal", [False, True])
@pytest.mark.parametrize("n_states", [2, 3, 7])
def test_rows_sum_to_one_for_any_size_and_traced_stay(n_states, literal):
    chains = jax.vmap(lambda stay: sticky_transition(n_states, stay, literal=literal))(jnp.array([0.0, 0.5, 0.99]))
    np.testing.assert_allclose(chains.sum(-1), 1, rtol=1e-14)
    assert (np.diff(np.asarray(chains)[:, 0, 0]) > 0).all()


def test_the_entropy_rate_of_any_chain():
    values, vectors = np.linalg.eig(ZEROS.T)
    law = np.real(vectors[:, np.argmax(np.real(values))])
    rows = -np.sum(ZEROS * np.log(np.where(ZEROS > 0, ZEROS, 1)), axis=-1)
    rate = StickyMarkov(ZEROS).entropy_rate
    np.testing.assert_allclose(rate, rows @ law / law.sum(), rtol=1e-12)
    assert StickyMarkov(np.eye(3)).entropy_rate == 0
    # Half of the time ends in a state that stays, half in two states that flip coins.
    split = np.array([[1.0, 0, 0], [0, 0.5, 0.5], [0, 0.5, 0.5]])
    np.testing.assert_allclose(StickyMarkov(split, initial=[0.5, 0.5, 0]).entropy_rate, np.log(2) / 2, rtol=1e-12)


def test_a_seen_symbol_gives_its_row():
    bayes = StickyMarkov(ZEROS).bayes(batch_of(SYMBOLS))
    np.testing.assert_array_equal(bayes.probabilities, ZEROS[SYMBOLS])
    np.testing.assert_allclose(bayes.entropy[0, :3], [0, 0, 1], atol=1e-15)


def test_the_noisy_chain_is_the_sum_over_paths():
    observations = np.random.default_rng(0).normal(size=(1, 5, 2))
    initial = np.array([0.2, 0.8, 0.0])
    bayes = StickyMarkov(ZEROS, initial=initial, means=MEANS, noise=0.7).bayes(batch_of(observations))
    for t in range(1, 6):
        weights = np.zeros(3)
        for path in itertools.product(range(3), repeat=t):
            chance = initial[path[0]] * np.prod([ZEROS[i, j] for i, j in itertools.pairwise(path)])
            density = norm.pdf(observations[0, :t], MEANS[list(path)], 0.7).prod()
            weights[path[-1]] += chance * density
        np.testing.assert_allclose(bayes.probabilities[0, t - 1], weights / weights.sum() @ ZEROS, atol=1e-12)


def test_noise_interpolates_between_the_row_and_ignorance():
    symbols = SYMBOLS[:1]
    clear, foggy = (StickyMarkov(means=np.eye(8), noise=level) for level in (0.01, 1e4))
    observed = batch_of(np.eye(8)[symbols])
    np.testing.assert_allclose(clear.bayes(observed).probabilities, np.asarray(clear.transition)[symbols], atol=1e-12)
    np.testing.assert_allclose(foggy.bayes(observed).entropy, 3, atol=1e-6)


def log_evidence_of_rows(symbols, prior):
    """log p(y_2 .. y_t | y_1), rows integrated out: products of Dirichlet normalisers."""
    counts = np.zeros_like(prior)
    np.add.at(counts, (symbols[:-1], symbols[1:]), 1)
    normaliser = [gammaln(rows).sum(-1) - gammaln(rows.sum(-1)) for rows in (prior + counts, prior)]
    return np.sum(normaliser[0] - normaliser[1])


def test_unknown_rows_are_ratios_of_evidences():
    task = TASKS["rows"]
    probabilities = np.asarray(task.bayes(batch_of(SYMBOLS)).probabilities)
    prior = 0.7 + 2.0 * np.eye(3)
    for sequence, t in itertools.product(range(2), range(1, 12)):
        seen = SYMBOLS[sequence, :t]
        continued = [log_evidence_of_rows(np.append(seen, j), prior) for j in range(3)]
        expected = np.exp(np.array(continued) - log_evidence_of_rows(seen, prior))
        np.testing.assert_allclose(probabilities[sequence, t - 1], expected, rtol=1e-12)


def test_an_unknown_stay_probability_is_a_quadrature():
    jumps = np.array([[0.0, 0.2, 0.8], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
    probabilities = np.asarray(BetaMarkov(2.0, 3.0, jumps).bayes(batch_of(SYMBOLS)).probabilities)
    nodes, weights = roots_jacobi(20, 2.0, 1.0)  # (1 - x)^(b - 1) (1 + x)^(a - 1): exact for these polynomials
    theta = (1 + nodes) / 2
    np.testing.assert_allclose(np.log(weights.sum() / 2**4), betaln(2.0, 3.0), rtol=1e-12)
    for sequence, t in itertools.product(range(2), range(1, 12)):
        stays = SYMBOLS[sequence, 1:t] == SYMBOLS[sequence, : t - 1]
        posterior = weights * theta ** stays.sum() * (1 - theta) ** (~stays).sum()
        stay = posterior @ theta / posterior.sum()
        expected = (1 - stay) * jumps[SYMBOLS[sequence, t - 1]]
        expected[SYMBOLS[sequence, t - 1]] += stay
        np.testing.assert_allclose(probabilities[sequence, t - 1], expected, rtol=1e-12, atol=1e-15)


WRONG = {
    "seen": StickyMarkov(sticky_transition(literal=True)),
    "noisy": StickyMarkov.noisy(n_features=4, noise=2.0),
    "rows": DirichletMarkov(3, concentration=0.7, stickiness=0.0),
    "stay": BetaMarkov(6.0, 3.0),
}


@eqx.filter_jit
def measured(task, batch):
    """Mean loss of each sequence, mean entropy in nats, largest defect of a sum of probabilities."""
    bayes = task.bayes(batch)
    defect = jnp.max(jnp.abs(bayes.probabilities.sum(-1) - 1))
    return surprise(bayes, batch).mean(-1), np.log(2) * bayes.entropy.mean(-1), defect


def calibration(task, batch):
    """Mean of loss - entropy over sequences in standard errors, and the mean loss."""
    loss, entropy, defect = measured(task, batch)
    assert defect < 1e-12
    gap = np.asarray(loss - entropy)
    return gap.mean() / (gap.std(ddof=1) / np.sqrt(len(gap))), loss.mean()


@pytest.mark.parametrize("kind", TASKS)
def test_the_loss_is_the_entropy_on_average_and_only_for_the_right_predictor(kind):
    batch = eqx.filter_jit(lambda task: task.sample(KEY, 1500, length=13))(TASKS[kind])
    assert batch.targets.shape == batch.mask.shape == batch.inputs.shape[:2] == (1500, 12) and batch.mask.all()
    errors, loss = calibration(TASKS[kind], batch)
    wrong_errors, wrong_loss = calibration(WRONG[kind], batch)
    assert abs(errors) < 3 and loss < wrong_loss
    assert abs(wrong_errors) > 5  # negative control


def test_the_settings_of_the_paper():
    """One sequence of 2000, five seeds: the exact filter's loss and accuracy (facts: 1.841, .337 and 1.809, .369)."""
    task = StickyMarkov.noisy()
    np.testing.assert_array_equal(task.means, StickyMarkov.noisy().means)

    @jax.jit
    def run(seed):
        batch = task.sample(jax.random.key(seed), 1)
        bayes = task.bayes(batch)
        accuracy = (bayes.probabilities.argmax(-1) == batch.targets).mean()
        return batch.inputs, surprise(bayes, batch).mean(), accuracy, np.log(2) * bayes.entropy.mean()

    for seed in (42, 2024, 1337, 7777, 9999):
        inputs, loss, accuracy, entropy = run(seed)
        assert inputs.shape == (1, 1999, 20)
        assert 1.79 < loss < 1.86 and 0.32 < accuracy < 0.39
        assert 1.829188059 < entropy < np.log(8)


def test_two_symbols_are_one_position():
    batch = StickyMarkov().sample(KEY, 3, length=2)
    assert batch.inputs.shape == batch.targets.shape == (3, 1)
    for kind, first in (("seen", 2.63896), ("rows", None), ("stay", None)):
        bayes = TASKS[kind].bayes(batch_of(SYMBOLS[:, :1]))
        assert bayes.entropy.shape == (2, 1) and np.isfinite(bayes.entropy).all()
        assert first is None or np.allclose(bayes.entropy, first, atol=1e-5)


def test_a_key_is_a_seed_and_keys_are_mapped():
    draw = jax.jit(jax.vmap(lambda key: TASKS["noisy"].sample(key, 2, length=6)))
    keys = jax.random.split(KEY)
    first, again = draw(keys), draw(keys[::-1])
    np.testing.assert_allclose(first.inputs, again.inputs[::-1], atol=1e-14)
    np.testing.assert_array_equal(first.targets, again.targets[::-1])
    # Neither keys nor sequences share a draw.
    assert (first.inputs[0] != first.inputs[1]).all() and (first.inputs[0, 0] != first.inputs[0, 1]).all()


def test_the_next_input_symbol_is_the_target_and_a_cycle_is_followed():
    batch = StickyMarkov(np.roll(np.eye(6), 1, axis=1)).sample(KEY, 4, length=9)
    np.testing.assert_array_equal(batch.inputs[:, 1:], batch.targets[:, :-1])
    np.testing.assert_array_equal(batch.targets, (batch.inputs + 1) % 6)


@pytest.mark.parametrize("kind", ["seen", "rows", "stay"])
def test_one_hot_inputs_and_numpy_inputs_are_read_alike(kind):
    task = TASKS[kind]
    batch = batch_of(SYMBOLS)
    for inputs in (jnp.asarray(SYMBOLS), one_hot(batch, task.n_states).inputs):
        np.testing.assert_array_equal(task.bayes(batch_of(inputs)).entropy, task.bayes(batch).entropy)


def test_numbers_of_a_task_are_mapped_over():
    batch = batch_of(jnp.asarray(SYMBOLS))

    def entropies(number):
        rows = DirichletMarkov(3, concentration=number).bayes(batch).entropy
        stay = BetaMarkov(a=number).bayes(batch).entropy
        seen = StickyMarkov(sticky_transition(3, 0.1 * number)).bayes(batch).entropy
        return jnp.stack([rows, stay, seen])

    mapped = jax.jit(jax.vmap(entropies))(jnp.array([0.5, 3.0]))
    np.testing.assert_allclose(mapped[1], entropies(3.0), rtol=1e-12)
    assert (mapped[0] != mapped[1]).mean() > 0.9


def test_float32_stays_float32():
    task = StickyMarkov.noisy(jnp.asarray(sticky_transition(), jnp.float32), n_features=4)
    wide = StickyMarkov(sticky_transition(), means=np.asarray(task.means, float))

    @jax.jit
    def run():
        batch = task.sample(KEY, 2, length=400)
        same = Batch(batch.inputs.astype(float), batch.targets, batch.mask)
        rows = DirichletMarkov(3, concentration=jnp.float32(1), stickiness=jnp.float32(2)).bayes(batch_of(SYMBOLS))
        return (batch.inputs, task.entropy_rate, rows.entropy, task.bayes(batch)), wide.bayes(same)

    narrow, exact = run()
    assert {leaf.dtype for leaf in jax.tree.leaves(narrow)} == {jnp.dtype("float32")}
    np.testing.assert_allclose(narrow[3].probabilities, exact.probabilities, atol=1e-5)
    np.testing.assert_allclose(narrow[1], 1.829188059, rtol=1e-6)


def test_gradients_with_respect_to_the_observations_are_finite():
    task = StickyMarkov(ZEROS, means=MEANS)

    def total(inputs):
        return jnp.sum(task.bayes(batch_of(inputs)).entropy)

    for size in (1.0, 1e3, 1e200):
        assert np.isfinite(jax.grad(total)(jnp.full((1, 5, 2), size))).all()


NAN = np.zeros((1, 5, 2))
NAN[0, 3, 1] = np.nan


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: StickyMarkov([[0.5, 0.4], [0.5, 0.5]]), "row 0 of transition sums to 0.9, it must sum to 1"),
        (lambda: StickyMarkov([[1.5, -0.5], [0.5, 0.5]]), "transition holds -0.5; probabilities must be >= 0"),
        (lambda: StickyMarkov([[np.nan, 1.0], [0.5, 0.5]]), "transition holds nan"),
        (lambda: StickyMarkov(np.ones((2, 3)) / 3), r"transition has shape \(2, 3\); it must be square"),
        (lambda: StickyMarkov(np.zeros((0, 0))), r"transition has shape \(0, 0\); it must be square"),
        (lambda: StickyMarkov("sticky"), "transition is 'sticky'; pass an array of numbers"),
        (lambda: StickyMarkov(1j * np.eye(2)), "transition has dtype complex128; pass real numbers"),
        (lambda: StickyMarkov(ZEROS, initial=[0.5, 0.5]), r"initial has shape \(2,\); it must be \(3,\)"),
        (lambda: StickyMarkov(ZEROS, initial=[0.5, 0.5, 0.5]), "initial sums to 1.5"),
        (lambda: StickyMarkov(means=MEANS), r"means has shape \(3, 2\); it must be \(8, d\)"),
        (lambda: StickyMarkov(ZEROS, means=MEANS + np.nan), "means holds numbers that are not finite"),
        (lambda: StickyMarkov(noise=0.0), "noise is 0.0; pass a number > 0"),
        (lambda: StickyMarkov.noisy(n_features=0), "n_features is 0"),
        (lambda: StickyMarkov.noisy(key=0), "key is 0; pass a typed key"),
        (lambda: sticky_transition(1), "n_states is 1: a chain that jumps needs at least 2"),
        (lambda: sticky_transition(stay=1.0), "stay is 1.0; pass a number >= 0 and < 1"),
        (lambda: StickyMarkov().sample(0, 1), "key is 0; pass a typed key"),
        (lambda: StickyMarkov().sample(KEY, 0), "n is 0"),
        (lambda: StickyMarkov().sample(KEY, 1, length=1), "length is 1: a sequence with a next symbol has at least 2"),
        (lambda: StickyMarkov(ZEROS).bayes(batch_of(SYMBOLS + 1)), r"inputs holds 1 to 3; symbols must be in 0 .. 2"),
        (lambda: StickyMarkov(ZEROS).bayes(batch_of(SYMBOLS * 1.0)), "pass integers"),
        (lambda: StickyMarkov(ZEROS).bayes(batch_of(np.ones((1, 2, 3)))), "inputs has rows that are not one-hot"),
        (lambda: StickyMarkov(ZEROS, means=MEANS).bayes(batch_of(SYMBOLS)), r"it must be \(n, T, 2\)"),
        (lambda: StickyMarkov(ZEROS, means=MEANS).bayes(batch_of(NAN)), r"inputs\[\(0, 3, 1\)\] is nan"),
        (lambda: DirichletMarkov(0), "n_states is 0"),
        (lambda: DirichletMarkov(concentration=0.0), "concentration is 0.0; pass a number > 0"),
        (lambda: DirichletMarkov(stickiness=-1.0), "stickiness is -1.0; pass a number >= 0"),
        (lambda: BetaMarkov(0.0), "a is 0.0; pass a number > 0"),
        (lambda: BetaMarkov(1.0, -1.0), "b is -1.0; pass a number > 0"),
        (lambda: BetaMarkov(jumps=np.eye(2)), "jumps holds a probability of staying"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(FlowError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
