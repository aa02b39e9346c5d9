"""Real data sets for linear predictors, from scikit-learn (extra `data`); nothing is downloaded."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from gradflow.errors import FlowError, unknown
from gradflow.tasks.arguments import check_key, check_range
from gradflow.types import Data

# Name -> the class that is labelled 1 by default, None for a regression.
_POSITIVE = {"breast_cancer": 0, "wine": 0, "digits": 0, "diabetes": None}


def datasets() -> tuple[str, ...]:
    """Return the names that `real` knows."""
    return tuple(_POSITIVE)


def real(
    name: str, *, key: Key[Array, ""] | None = None, test_fraction: float = 0.25, positive: int | None = None
) -> tuple[Data, Data]:
    """Load a real data set, split at random, standardised by the statistics of its training part.

    | name | rows, columns | positive class by default |
    |---|---|---|
    | `breast_cancer` | 569, 30 | 0, malignant |
    | `wine` | 178, 13 | 0, against the two other cultivars |
    | `digits` | 1797, 64 | 0, against the nine other digits |
    | `diabetes` | 442, 10 | none: a regression, `y` standardised as well |

    Args:
        name: one of `datasets()`.
        key: typed key of the split; None is `jax.random.key(0)`. It may be traced or mapped over.
        test_fraction: fraction of rows held out, in [0, 1); round(fraction N) rows.
        positive: the class labelled 1, all others -1.

    Returns:
        Training and test data in the default float type. Columns that are constant in the training part are zero.

    Raises:
        FlowError: if scikit-learn is missing, or the name, class or fraction is not a known one.
    """
    if name not in _POSITIVE:
        raise unknown("data set", name, _POSITIVE)
    check_range("test_fraction", test_fraction, 0, 1)
    key = jax.random.key(0) if key is None else key
    check_key(key)
    inputs, targets = _load(name)
    n_test = round(test_fraction * len(inputs))
    if n_test == len(inputs):
        raise FlowError(f"test_fraction is {test_fraction}: it leaves no training row of {len(inputs)}; pass less")
    order = jax.random.permutation(key, len(inputs))
    train, test = order[n_test:], order[:n_test]
    x = _standardised(jnp.asarray(inputs, float), train)
    if _POSITIVE[name] is None:
        if positive is not None:
            raise FlowError(f"positive is {positive}, but {name!r} is a regression; leave it out")
        y = _standardised(jnp.asarray(targets, float), train)
    else:
        y = jnp.asarray(_labels(name, targets, positive))
    return Data(x=x[train], y=y[train]), Data(x=x[test], y=y[test])


def _load(name: str) -> tuple[np.ndarray, np.ndarray]:
    try:
        from sklearn import datasets as library
    except ImportError:
        raise FlowError('real data sets need scikit-learn; pip install "gradflow-jax[data]"') from None
    load: Callable[..., Any] = getattr(library, f"load_{name}")
    return load(return_X_y=True)


def _labels(name: str, classes: np.ndarray, positive: int | None) -> np.ndarray:
    positive = _POSITIVE[name] if positive is None else positive
    known = np.unique(classes).tolist()
    if positive not in known:
        raise FlowError(f"positive is {positive!r}, but the classes of {name!r} are {known}")
    return np.where(classes == positive, 1.0, -1.0)


def _standardised(values: Float[Array, "N ..."], rows: Array) -> Float[Array, "N ..."]:
    """Return values with mean 0 and variance 1 over the given rows; columns constant there become zero."""
    seen = values[rows]
    centred = values - seen.mean(axis=0)
    deviation = seen.std(axis=0)
    # Rounding leaves a constant column a deviation of a few ulp.
    constant = deviation <= 16 * jnp.finfo(values.dtype).eps * jnp.abs(seen).max(axis=0)
    return jnp.where(constant, 0, centred / jnp.where(constant, 1, deviation))
