"""Real data sets: shapes, splits, standardisation by the training part, labels, refused arguments."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradflow.errors import FlowError
from gradflow.losses import logistic, square
from gradflow.tasks import datasets, real

KEY = jax.random.key(1)
SIZES = {"breast_cancer": (569, 30, 212), "wine": (178, 13, 59), "digits": (1797, 64, 178), "diabetes": (442, 10, None)}


@pytest.mark.parametrize("name", SIZES)
def test_splits_are_standardised_by_their_training_part(name):
    rows, columns, positives = SIZES[name]
    train, test = real(name, key=KEY)
    assert len(test.y) == round(rows / 4) and len(train.y) + len(test.y) == rows
    assert train.x.shape[1] == test.x.shape[1] == columns and train.x.dtype == train.y.dtype == jnp.float64
    np.testing.assert_allclose(train.x.mean(0), 0, atol=1e-12)
    spread = np.asarray(train.x.std(0))
    constant = spread == 0
    np.testing.assert_allclose(spread[~constant], 1, rtol=1e-12)
    assert constant.sum() < 6 and (name == "digits") == constant.any()
    assert (np.asarray(test.x)[:, constant] == 0).all() and np.isfinite(test.x).all()
    # The test part is standardised with foreign statistics: its own are near 0 and 1, not equal to them.
    assert 1e-6 < np.abs(test.x.mean(0)).max() < 1
    if positives is None:
        np.testing.assert_allclose([train.y.mean(), train.y.std()], [0, 1], atol=1e-12)
        square.check(train)
    else:
        labels = np.concatenate([train.y, test.y])
        assert set(labels) == {-1.0, 1.0} and (labels == 1).sum() == positives
        logistic.check(train)


def test_the_key_is_the_split():
    (first, _), (again, _), (default, _), (other, _) = (
        real("wine", key=key) for key in (KEY, KEY, None, jax.random.key(2))
    )
    np.testing.assert_array_equal(first.x, again.x)
    assert (first.y != other.y).any()
    np.testing.assert_array_equal(default.x, real("wine", key=jax.random.key(0))[0].x)
    mapped, _ = jax.vmap(lambda key: real("wine", key=key))(jnp.stack([KEY, jax.random.key(2)]))
    np.testing.assert_allclose(mapped.x[0], first.x, atol=1e-12)
    np.testing.assert_array_equal(mapped.y[1], other.y)


def test_no_row_is_on_both_sides():
    train, test = real("wine", key=KEY, test_fraction=0.5)
    undone = np.concatenate([train.x, test.x])
    assert len(np.unique(undone.round(9), axis=0)) == 178


def test_any_class_against_the_rest():
    train, test = real("digits", key=KEY, positive=7, test_fraction=0.0)
    assert (train.y == 1).sum() == 179 and test.x.shape == (0, 64) and test.y.shape == (0,)


def test_names():
    assert set(datasets()) == set(SIZES)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: real("winne"), "unknown data set 'winne'; did you mean 'wine'"),
        (lambda: real("wine", key=0), "key is 0; pass a typed key"),
        (lambda: real("wine", test_fraction=1.0), "test_fraction is 1.0"),
        (lambda: real("wine", test_fraction=0.999), "leaves no training row of 178"),
        (lambda: real("wine", positive=5), r"positive is 5, but the classes of 'wine' are \[0, 1, 2\]"),
        (lambda: real("diabetes", positive=1), "'diabetes' is a regression"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(FlowError, match=message):
        call()


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(FlowError, match=r'pip install "gradflow-jax\[data\]"'):
        real("wine")
