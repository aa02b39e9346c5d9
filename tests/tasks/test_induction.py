"""Induction and groups: the law of the data by its statistics, the exact posterior by enumeration, bad sizes."""

import itertools
from collections import Counter

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gradflow as gf
from gradflow.tasks import Groups, Induction

KEY, MANY = jax.random.key(0), 20_000
TINY = Induction(n_symbols=4, distinct=3)


def every_sequence(task):
    """Return all sequences of a task, which are equally likely."""
    rows = []
    for symbols in itertools.permutations(range(1, task.n_symbols + 1), task.distinct):
        for at in range(task.distinct - 1):
            start = [0] if task.bos else []
            rows.append([*start, *symbols, symbols[at] + task.offset, symbols[at + 1]])
    return np.array(rows)


@pytest.mark.parametrize("task", [Induction(), Induction(shift=False), Induction(bos=False, n_symbols=19, distinct=6)])
def test_a_sequence_is_what_the_paper_describes(task):
    batch = task.sample(KEY, 300)
    tokens = np.concatenate([batch.inputs, batch.targets[:, -1:]], axis=1)
    assert batch.inputs.shape == (300, task.length) and np.asarray(batch.mask).all()
    np.testing.assert_array_equal(batch.inputs[:, 1:], batch.targets[:, :-1])
    first = int(task.bos)
    assert not first or (tokens[:, 0] == 0).all()
    symbols, query, last = tokens[:, first : first + task.distinct], tokens[:, -2] - task.offset, tokens[:, -1]
    assert all(len(set(row)) == task.distinct for row in symbols)
    assert symbols.min() == 1 and symbols.max() == task.n_symbols < task.n_tokens
    at = (symbols == query[:, None]).argmax(1)
    np.testing.assert_array_equal(np.take_along_axis(symbols, at[:, None] + 1, 1)[:, 0], last)


def test_the_paper_s_sizes():
    assert (Induction().n_tokens, Induction().length, Induction(shift=False).n_tokens) == (100, 12, 50)
    assert Induction().n_classes == 100
    assert (Groups().n_tokens, Groups().length, Groups().n_classes) == (41, 11, 4)


def test_all_sequences_are_equally_likely():
    batch = TINY.sample(KEY, MANY)
    counts = Counter(map(tuple, np.concatenate([batch.inputs, batch.targets[:, -1:]], axis=1).tolist()))
    cases = every_sequence(TINY)
    assert set(counts) == set(map(tuple, cases.tolist()))
    expected = MANY / len(cases)
    chi_squared = sum((count - expected) ** 2 for count in counts.values()) / expected
    assert chi_squared < len(cases) + 4 * np.sqrt(2 * len(cases))


@pytest.mark.parametrize("options", [{}, {"shift": False}, {"bos": False}], ids=str)
def test_bayes_is_the_conditional_law(options):
    task = Induction(n_symbols=4, distinct=3, **options)
    cases = every_sequence(task)
    batch = gf.tasks.Batch(cases[:, :-1], cases[:, 1:], np.ones(cases[:, 1:].shape, bool))
    found = task.bayes(batch)
    for row, tokens in enumerate(cases):
        for t in range(task.length):
            like = cases[(cases[:, : t + 1] == tokens[: t + 1]).all(1)]
            law = np.bincount(like[:, t + 1], minlength=task.n_tokens) / len(like)
            np.testing.assert_allclose(found.probabilities[row, t], law, atol=1e-12)
    surprise = -np.log2(np.take_along_axis(np.asarray(found.probabilities), batch.targets[..., None], -1))
    np.testing.assert_allclose(surprise.mean(), found.entropy.mean(), rtol=1e-12)
    assert (np.asarray(found.entropy[:, -1]) == 0).all()


def test_wrong_predictors_are_not_bayes():
    batch = TINY.sample(KEY, 100)
    uniform = np.full((100, TINY.length), np.log2(4))
    assert np.abs(uniform - TINY.bayes(batch).entropy).max() > 1


def test_groups_hold_one_group_and_all_are_drawn_alike():
    task = Groups(n_tokens=13, distinct=2)
    batch = task.sample(KEY, MANY)
    groups = np.asarray(task.group_of(batch.inputs))
    assert (groups[:, -1] == -1).all() and (np.asarray(batch.inputs)[:, -1] == 0).all()
    np.testing.assert_array_equal(groups[:, :-1], np.asarray(batch.targets)[:, :-1])
    np.testing.assert_array_equal(np.asarray(batch.mask).sum(0), [0, 0, MANY])
    pairs = Counter(map(tuple, np.asarray(batch.inputs)[:, :-1].tolist()))
    assert len(pairs) == 4 * 3 * 2
    chi_squared = sum((count - MANY / 24) ** 2 for count in pairs.values()) / (MANY / 24)
    assert chi_squared < 24 + 4 * np.sqrt(48)
    known = task.bayes(batch)
    np.testing.assert_array_equal(np.argmax(known.probabilities, -1), batch.targets)
    assert not np.asarray(known.entropy).any()


@given(st.integers(0, 2**31 - 1))
def test_draws_depend_on_the_key_alone(seed):
    first, again = (TINY.sample(jax.random.key(seed), 2).inputs for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert first.dtype == np.int32


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Induction(n_symbols=5, distinct=6), "distinct is 6 and n_symbols 5"),
        (lambda: Induction(distinct=1), "distinct is 1"),
        (lambda: Induction(bos="moved"), "bos is 'moved': pass True or False"),
        (lambda: Groups(n_tokens=40), "equal groups; pass a multiple of 4, plus 1"),
        (lambda: Groups(distinct=11), "a group has 10 tokens"),
        (lambda: TINY.sample(KEY, 0), "n is 0"),
        (lambda: Groups().sample(0, 3), "typed key"),
    ],
)
def test_bad_sizes_are_refused(make, message):
    with pytest.raises(gf.FlowError, match=message):
        make()
