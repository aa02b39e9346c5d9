"""Mutual information and specialisation against enumeration, SciPy and scikit-learn, and at chance where they must."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import entropy as scipy_entropy
from sklearn.metrics import homogeneity_score

import gradflow as gf
from gradflow import diagnostics

# One kernel of a whole function compiles several times faster than its operations one by one.
mutual_information = jax.jit(diagnostics.mutual_information, static_argnums=2)
specialisation = jax.jit(diagnostics.specialisation, static_argnums=2)
shuffled = jax.jit(diagnostics.shuffled)

SYMBOLS = st.lists(st.integers(0, 2), min_size=6, max_size=6)
CAUSAL = np.tril(np.ones((6, 6), bool))


def information(joint):
    """I in bits of a table of probabilities."""
    independent = joint.sum(1, keepdims=True) * joint.sum(0)
    return scipy_entropy(joint.ravel(), independent.ravel(), base=2)


def table(attention, own, sources, n_classes=3):
    """The joint probabilities, one pair of positions at a time."""
    joint = np.zeros((n_classes, n_classes))
    for i, row in enumerate(attention):
        for j, weight in enumerate(row):
            joint[own[i], sources[j]] += weight / row.sum() / len(attention)
    return joint


@given(SYMBOLS, SYMBOLS, st.integers(0, 10**6))
def test_information_by_enumeration(own, sources, seed):
    own, sources = np.array(own), np.array(sources)
    attention = np.random.default_rng(seed).exponential(size=(6, 6)) ** 3
    expected = information(table(attention * CAUSAL, own, sources))
    assert mutual_information(attention, sources, 3, queries=own, where=CAUSAL) == pytest.approx(expected, abs=1e-13)
    # Rows need not sum to one: a row counts by its shape.
    scaled = attention * np.geomspace(1e-200, 1e200, 6)[:, None]
    assert mutual_information(scaled, sources, 3, queries=own, where=CAUSAL) == pytest.approx(expected, abs=1e-13)


def test_information_of_heads_whose_answer_is_known():
    sources = np.array([0, 1, 2, 0, 1, 2])
    itself, previous = np.eye(6), np.eye(6, k=-1)
    assert mutual_information(itself, sources, 3) == pytest.approx(np.log2(3))
    # The previous symbol determines this one, without a single weight on the same symbol.
    counted = np.arange(6) > 0
    full = scipy_entropy([1, 2, 2], base=2)
    assert mutual_information(previous, sources, 3) == pytest.approx(full)
    assert mutual_information(previous + itself, sources, 3, where=CAUSAL & ~np.eye(6, dtype=bool), rows=counted) == (
        pytest.approx(full)
    )
    assert mutual_information(np.ones((6, 6)), sources, 3) == pytest.approx(0, abs=1e-15)
    assert mutual_information(itself, np.zeros(6, int), 3) == 0


def test_information_is_at_chance_for_shuffled_queries_and_uniform_attention():
    sources = np.random.default_rng(0).integers(0, 4, 400)
    scores = np.where(sources[:, None] == (sources + 1) % 4, 3.0, 0.0)
    causal = np.tril(np.ones((400, 400), bool))
    informed = np.asarray(jax.nn.softmax(jnp.where(causal, scores, -jnp.inf)))

    def measure(attention, queries):
        return mutual_information(attention, sources, 4, queries, causal)

    found, uniform = measure(informed, sources), measure(np.ones((400, 400)), sources)
    chance = np.array([measure(informed, shuffled(jax.random.key(seed), sources)) for seed in range(5)])
    assert found > 1 and uniform < 0.001 and chance.shape == (5,) and chance.max() < found / 20


def test_a_negative_weight_has_no_information_where_it_is_read():
    signed = np.array([[1.5, -0.5], [0.5, 0.5]])
    sources = np.array([0, 1])
    assert np.isnan(mutual_information(signed, sources, 2)) and np.isnan(specialisation(signed, sources, 2))
    for measure in (mutual_information, specialisation):
        assert measure(signed, sources, 2, rows=np.array([False, True])) == 0
        assert measure(np.where(signed < 0, np.nan, signed), sources, 2, where=signed > 0) > 0


@pytest.mark.parametrize("measure", [mutual_information, specialisation])
def test_values_and_gradients_are_finite_at_the_edges(measure):
    symbols = np.array([0, 1, 2, 0, 1, 2])
    both = jax.jit(jax.value_and_grad(lambda a, rows: measure(a, symbols, 3, rows=rows)))
    for attention in (np.eye(6), np.zeros((6, 6)), CAUSAL * 1.0, np.eye(6) * 1e300):
        value, gradient = both(attention, np.ones(6, bool))
        assert 0 <= value <= np.log2(3) + 1e-14 and np.isfinite(gradient).all()
    assert both(np.eye(6), np.zeros(6, bool))[0] == 0
    assert jax.eval_shape(both, np.eye(6, dtype=np.float32), np.ones(6, bool))[0].dtype == jnp.float32
    for length in (0, 1):
        assert measure(np.ones((length, length)), np.zeros(length, int), 1) == 0


def test_the_gradient_of_information():
    generator = np.random.default_rng(0)
    attention, symbols = generator.uniform(size=(6, 6)), np.array([0, 1, 2, 0, 1, 2])
    step = 1e-6 * generator.normal(size=(6, 6))
    for measure in (mutual_information, specialisation):
        slope = np.sum(jax.jit(jax.grad(measure), static_argnums=2)(attention, symbols, 3) * 2 * step)
        difference = measure(attention + step, symbols, 3) - measure(attention - step, symbols, 3)
        assert slope == pytest.approx(float(difference), rel=1e-6)


def test_heads_and_sequences_are_batches():
    attention = np.random.default_rng(0).uniform(size=(2, 3, 6, 6))
    symbols = np.random.default_rng(1).integers(0, 3, (2, 1, 6))
    for measure in (mutual_information, specialisation):
        together = measure(attention, symbols, 3)
        assert together.shape == (2, 3)
        single = [[measure(head, own[0], 3) for head in heads] for heads, own in zip(attention, symbols, strict=True)]
        np.testing.assert_allclose(together, single, atol=1e-15)


def test_under_jit_a_symbol_outside_the_classes_does_not_count():
    attention, symbols = np.ones((3, 3)) + np.eye(3), np.array([0, 1, 5])
    for measure in (mutual_information, specialisation):
        found = measure(attention, symbols, 2)
        kept = np.array([True, True, False])
        where = kept if measure is mutual_information else None
        expected = measure(attention, np.array([0, 1, 0]), 2, rows=kept, where=where)
        assert found == pytest.approx(float(expected), abs=1e-15)


@given(SYMBOLS, st.lists(st.integers(0, 3), min_size=6, max_size=6))
def test_specialisation_of_hard_assignments_is_homogeneity(classes, columns):
    score = homogeneity_score(classes, columns)
    if len(set(classes)) == 1:
        score = 0  # scikit-learn calls a single class fully homogeneous; here there is nothing to specialise in
    assert specialisation(np.eye(4)[columns], np.array(classes), 3) == pytest.approx(score, abs=1e-13)


def test_specialisation_is_the_mass_weighted_purity_of_columns():
    classes = np.array([0, 0, 1, 2])
    weights = np.array([[0.7, 0.3], [0.6, 0.4], [0.1, 0.9], [0.5, 0.5]])
    mass = weights.sum(0)
    per_class = np.stack([weights[classes == c].sum(0) for c in range(3)])
    within = (mass / mass.sum()) @ scipy_entropy(per_class, axis=0)
    assert specialisation(weights, classes, 3) == pytest.approx(1 - within / scipy_entropy([2, 1, 1]), abs=1e-14)
    # At base rates it is 0, however unequal these are and whatever the masses.
    assert specialisation(np.tile([0.9, 0.1], (4, 1)), classes, 3) == pytest.approx(0, abs=1e-14)


@given(st.integers(0, 1000), st.lists(st.booleans(), min_size=6, max_size=6))
def test_shuffled_permutes_only_what_counts(seed, rows):
    rows, symbols = np.array(rows), np.arange(6)
    found = np.asarray(shuffled(jax.random.key(seed), symbols, rows))
    assert sorted(found) == symbols.tolist() and (found[~rows] == symbols[~rows]).all()


def test_shuffled_draws_anew_for_each_sequence():
    symbols = np.tile(np.arange(30), (2, 1))
    found = np.asarray(shuffled(jax.random.key(0), symbols))
    assert (found[0] != found[1]).any() and (np.sort(found) == symbols).all() and (found != symbols).mean() > 0.8
    assert shuffled(jax.random.key(0), np.zeros(0, int)).shape == (0,)


@pytest.mark.parametrize(
    "call, words",
    [
        (
            lambda: diagnostics.mutual_information(np.eye(2), np.array([0, 2]), 2),
            r"sources runs from 0 to 2; .* \[0, 1\]",
        ),
        (
            lambda: diagnostics.mutual_information(np.eye(2), np.array([0, 1]), 2, queries=np.array([-1, 0])),
            "queries runs from -1",
        ),
        (lambda: diagnostics.mutual_information(np.eye(2), np.array([0.0, 1]), 2), "dtype float64; pass class indices"),
        (lambda: diagnostics.mutual_information(np.eye(2), np.array([0, 1, 1]), 2), r"shape \(3,\); pass \(..., 2\)"),
        (lambda: diagnostics.mutual_information(np.eye(2), np.array([0, 1]), 2.5), "n_classes is 2.5"),
        (lambda: diagnostics.mutual_information(np.ones(2), np.array([0, 1]), 2), "attention has shape"),
        (lambda: diagnostics.mutual_information(np.ones((3, 2, 2)), np.zeros((2, 2), int), 2), "must broadcast"),
        (lambda: diagnostics.specialisation(np.eye(2), np.array([0, 2]), 2), "classes runs from 0 to 2"),
        (lambda: diagnostics.specialisation(np.ones(2), np.array([0, 1]), 2), "responsibilities has shape"),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(gf.FlowError, match=words):
        call()
