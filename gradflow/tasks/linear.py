"""Synthetic data for linear predictors: one sample, classification, regression with a prescribed spectrum."""

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from gradflow.errors import FlowError, is_traced
from gradflow.tasks.arguments import check_count, check_key, check_range
from gradflow.types import Data


def single_sample(target: Float[Array, " d"], label: float | Array = 1.0) -> Data:
    """Return one sample, the direction b* = target / |target|, as in the one-sample theory of arXiv 2603.06248.

    Args:
        target: any nonzero vector; it is normalised.
        label: y, 1 or -1 for classification, any number for the square loss.

    Returns:
        `x` (1, d) of unit norm and `y` (1,).

    Raises:
        FlowError: if `target` is not a finite nonzero vector.
    """
    target = jnp.asarray(target)
    target = target.astype(jnp.result_type(target, 0.0))
    if target.ndim != 1 or target.shape[0] == 0:
        raise FlowError(f"target has shape {target.shape}; pass one vector, shape (d,) with d >= 1")
    if not is_traced(target) and not (np.all(np.isfinite(target)) and np.any(target)):
        raise FlowError("target is zero or not finite; pass a finite nonzero vector")
    scaled = target / jnp.max(jnp.abs(target))  # the square of the norm can overflow or vanish
    direction = scaled / jnp.linalg.norm(scaled)
    return Data(x=direction[None], y=jnp.asarray(label, direction.dtype).reshape(1))


def linear_classification(
    key: Key[Array, ""], n_samples: int, n_features: int, *, noise: float | Array = 0.0, margin: float | Array = 0.0
) -> Data:
    """Draw Gaussian inputs with labels in {-1, 1} from a random hyperplane through the origin.

    Args:
        key: typed key.
        n_samples: N.
        n_features: d.
        noise: fraction of labels that are flipped, exactly round(noise N) of them. With 0 the data is separable.
        margin: every sample is moved away from the hyperplane by this much, before labels are flipped.

    Returns:
        `x` (N, d), `y` (N,) in the default float type.

    Raises:
        FlowError: if a size is below 1, `noise` outside [0, 1) or `margin` negative.
    """
    _check_sizes(key, n_samples, n_features)
    check_range("noise", noise, 0, 1)
    check_range("margin", margin, 0)
    normal_key, sample_key, flip_key = jax.random.split(key, 3)
    normal = _unit_vector(normal_key, n_features)
    x = jax.random.normal(sample_key, (n_samples, n_features))
    y = jnp.where(_product(x, normal) >= 0, 1.0, -1.0)
    x = x + margin * y[:, None] * normal
    flipped = jax.random.permutation(flip_key, n_samples) < jnp.round(noise * n_samples)
    return Data(x=x, y=jnp.where(flipped, -y, y))


def linear_regression(
    key: Key[Array, ""],
    *,
    n_features: int,
    n_samples: int | None = None,
    condition_number: float | Array = 1.0,
    noise: float | Array = 0.0,
    spacing: Literal["log", "linear"] = "log",
    target_norm: float | Array = 1.0,
) -> Data:
    """Draw a regression whose design has singular values from 1 down to 1 / condition_number, exactly.

    Targets are y = X beta* + noise, beta* in a random direction. Only sizes and `spacing` are static: the numbers may
    be traced, so a sweep over them is one kernel.

    Args:
        key: typed key.
        n_features: d.
        n_samples: N, by default d.
        condition_number: kappa >= 1, the ratio of the largest to the smallest of the min(N, d) singular values of X
            (the Hessian of the square loss has kappa^2).
        noise: standard deviation of the noise on each target.
        spacing: `log` for singular values in geometric, `linear` in arithmetic progression (the paper's setting D).
        target_norm: |beta*|.

    Returns:
        `x` (N, d), `y` (N,) in the default float type.

    Raises:
        FlowError: if a size is below 1, kappa below 1, `noise` or `target_norm` negative, `spacing` unknown, or
            kappa differs from 1 although the design has a single singular value.
    """
    n_samples = n_features if n_samples is None else n_samples
    _check_sizes(key, n_samples, n_features)
    check_range("condition_number", condition_number, 1)
    check_range("noise", noise, 0)
    check_range("target_norm", target_norm, 0)
    rank = min(n_samples, n_features)
    if rank == 1 and not is_traced(condition_number) and np.any(np.asarray(condition_number) != 1):
        raise FlowError(f"condition_number is {condition_number}, but a design of rank 1 has 1; pass 1")
    left_key, right_key, target_key, noise_key = jax.random.split(key, 4)
    spectrum = _spectrum(rank, jnp.asarray(condition_number, jnp.result_type(float)), spacing)
    left = _orthonormal_columns(left_key, n_samples, rank)
    right = _orthonormal_columns(right_key, n_features, rank)
    x = _product(left * spectrum, right.T)
    y = _product(x, target_norm * _unit_vector(target_key, n_features))
    return Data(x=x, y=y + noise * jax.random.normal(noise_key, (n_samples,)))


def target_distribution(key: Key[Array, ""], n: int, *, temperature: float | Array = 0.1) -> Float[Array, " n"]:
    """Draw a distribution softmax(r / temperature) with r uniform in [0, 1), as in setting E of arXiv 2603.06248.

    Args:
        key: typed key.
        n: number of classes.
        temperature: smaller is sparser; the paper's is 0.1.

    Returns:
        Positive probabilities that sum to one.

    Raises:
        FlowError: if `n` is below 1 or `temperature` not positive.
    """
    check_key(key)
    check_count("n", n)
    check_range("temperature", temperature, 0, closed=False)
    return jax.nn.softmax(jax.random.uniform(key, (n,)) / temperature)


def _check_sizes(key: Any, n_samples: Any, n_features: Any) -> None:
    check_key(key)
    check_count("n_samples", n_samples)
    check_count("n_features", n_features)


def _spectrum(rank: int, condition_number: Float[Array, ""], spacing: str) -> Float[Array, " rank"]:
    steps = jnp.linspace(0.0, 1.0, rank)
    if spacing == "log":
        return condition_number**-steps
    if spacing == "linear":
        return 1 - steps * (1 - 1 / condition_number)
    raise FlowError(f"spacing is {spacing!r}; pass 'log' or 'linear'")


def _orthonormal_columns(key: Key[Array, ""], n_rows: int, n_columns: int) -> Float[Array, "n_rows n_columns"]:
    """Draw orthonormal columns, uniformly: QR of a Gaussian matrix, with the signs that make it unique."""
    q, r = jnp.linalg.qr(jax.random.normal(key, (n_rows, n_columns)))
    return q * jnp.where(jnp.diagonal(r) < 0, -1, 1)


def _unit_vector(key: Key[Array, ""], size: int) -> Float[Array, " size"]:
    vector = jax.random.normal(key, (size,))
    return vector / jnp.linalg.norm(vector)


def _product(left: Array, right: Array) -> Array:
    return jnp.matmul(left, right, precision="highest")
