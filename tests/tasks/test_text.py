"""Text as windows of characters: positions, contexts, the floors of simple predictors, files that cannot be used."""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradflow.errors import FlowError
from gradflow.losses import cross_entropy
from gradflow.tasks import text


@pytest.fixture
def file(tmp_path: Path):
    path = tmp_path / "text.txt"
    path.write_text("abcabdabc", encoding="utf-8")
    return path


def read(data, indices):
    return ["".join(data.alphabet[i] for i in row) for row in np.asarray(indices)]


def test_windows_do_not_overlap_and_targets_follow(file):
    data = text(file, window=3)
    assert data.alphabet == "abcd" and data.batch.inputs.shape == (2, 3, 4)
    assert read(data, data.symbols) == ["abc", "abd"]
    assert read(data, data.batch.inputs.argmax(-1)) == ["abc", "abd"]
    assert read(data, data.batch.targets) == ["bca", "bda"]
    assert data.batch.mask.all() and data.batch.inputs.dtype == jnp.float64
    np.testing.assert_array_equal(data.batch.inputs.sum(-1), 1)
    cross_entropy.check(data.batch)


def test_one_window_of_everything(file):
    data = text(file, window=None)
    assert read(data, data.symbols) == ["abcabdab"] and read(data, data.batch.targets) == ["bcabdabc"]


def test_a_context_holds_the_characters_before(file):
    data = text(file, window=3, context=3)
    before, middle, present = (data.batch.inputs[..., 4 * k : 4 * k + 4].argmax(-1) for k in range(3))
    assert read(data, before) == ["abc", "abd"]
    assert read(data, middle) == ["bca", "bda"]
    assert read(data, present) == read(data, data.symbols) == ["cab", "dab"]
    assert read(data, data.batch.targets) == ["abd", "abc"]


class Table(eqx.Module):
    """Logits by the present character."""

    logits: jax.Array

    def __call__(self, x):
        return x @ self.logits


def test_the_floors_are_the_losses_of_counting(file):
    data = text(file, window=None)
    counts = np.zeros((4, 4))
    np.add.at(counts, (np.asarray(data.symbols[0]), np.asarray(data.batch.targets[0])), 1)
    logs = np.log(np.where(counts > 0, counts, 1e-30))
    marginal = np.broadcast_to(np.log(counts.sum(0)), (4, 4))
    np.testing.assert_allclose(data.bigram_entropy, cross_entropy(Table(logs), data.batch), rtol=1e-12)
    np.testing.assert_allclose(data.unigram_entropy, cross_entropy(Table(marginal), data.batch), rtol=1e-12)
    assert data.bigram_entropy < data.unigram_entropy < np.log(4)


def test_the_text_of_the_package():
    data = text()
    assert data.batch.targets.shape[1] == 64 and data.batch.targets.size > 4000
    assert read(data, data.symbols[:1])[0].startswith("When in the Course of human events, it becomes necessary")
    # English: about 3 nats a character, and 2 to 2.5 given the one before.
    assert 2.8 < data.unigram_entropy < 3.2 and 2.0 < data.bigram_entropy < 2.5


def test_any_alphabet(tmp_path):
    path = tmp_path / "greek.txt"
    path.write_text("μῆνιν ἄειδε θεὰ", encoding="utf-8")
    data = text(str(path), window=5)
    assert read(data, data.symbols)[0] == "μῆνιν"


def test_a_text_goes_through_jit(file):
    data = text(file, window=3)
    np.testing.assert_allclose(jax.jit(lambda data: data.bigram_entropy)(data), data.bigram_entropy)


def test_files_that_cannot_be_used_are_named(tmp_path, file):
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "latin.txt").write_bytes("Müller".encode("latin-1"))
    for call, message in (
        (lambda: text(tmp_path / "empty.txt"), "empty.txt.*the file is empty; pass a text"),
        (lambda: text(tmp_path / "latin.txt"), "latin.txt.*is not UTF-8 text; save it as UTF-8"),
        (lambda: text(tmp_path / "none.txt"), r"none.txt.*cannot be read \(No such file or directory\)"),
        (lambda: text(tmp_path), "cannot be read"),
        (lambda: text(3), r"path is 3: it cannot be read \(not a path\)"),
        (
            lambda: text(file, window=9),
            r"has 9 characters, a window of 9 with context 1 takes 10; pass a smaller window",
        ),
        (lambda: text(file, window=None, context=9), "takes 10"),
        (lambda: text(file, window=0), "window is 0: it must be a whole number, at least 1"),
        (lambda: text(file, context=1.5), "context is 1.5"),
    ):
        with pytest.raises(FlowError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)
