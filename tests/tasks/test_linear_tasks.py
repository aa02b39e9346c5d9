"""Synthetic tasks: shapes, exact spectra and fractions, determinism, tracing, refused arguments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradflow.errors import FlowError
from gradflow.tasks import linear_classification, linear_regression, single_sample, target_distribution

KEY = jax.random.key(3)


def flipped_labels(noise):
    clean, noisy = (linear_classification(KEY, 60, 5, noise=level) for level in (0.0, noise))
    np.testing.assert_array_equal(clean.x, noisy.x)
    return int((clean.y != noisy.y).sum())


def is_separable(data, steps=5000):
    """Run the perceptron, which stops exactly when the data is separable."""
    signed, weights = np.asarray(data.y[:, None] * data.x), np.zeros(data.x.shape[1])
    for _ in range(steps):
        wrong = signed[signed @ weights <= 0]
        if not len(wrong):
            return True
        weights += wrong[0]
    return False


def test_classification_is_separable_with_labels_of_both_signs():
    data = linear_classification(KEY, 60, 5)
    assert data.x.shape == (60, 5) and data.y.shape == (60,) and data.x.dtype == data.y.dtype == jnp.float64
    assert set(np.asarray(data.y)) == {-1.0, 1.0}
    assert is_separable(data)
    assert not is_separable(linear_classification(KEY, 60, 5, noise=0.2))  # negative control


@pytest.mark.parametrize(("noise", "flips"), [(0.1, 6), (0.26, 16), (0.0, 0)])
def test_noise_flips_an_exact_number_of_labels(noise, flips):
    assert flipped_labels(noise) == flips


def test_margin_is_kept():
    near, far = (linear_classification(KEY, 60, 5, margin=margin) for margin in (0.0, 0.7))
    shift = np.asarray((far.x - near.x) * near.y[:, None])
    normal = shift[0] / 0.7
    np.testing.assert_allclose(shift, np.broadcast_to(0.7 * normal, shift.shape), atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(normal), 1)
    assert (np.asarray(far.y) * (np.asarray(far.x) @ normal)).min() >= 0.7


def test_single_sample_is_the_direction():
    data = single_sample(jnp.array([3.0, 4.0]))
    np.testing.assert_allclose(data.x, [[0.6, 0.8]])
    np.testing.assert_array_equal(data.y, [1.0])
    np.testing.assert_allclose(single_sample(jnp.array([3e200, 4e200]), label=2.0).x, [[0.6, 0.8]])
    assert single_sample(jnp.array([3, 4]), label=2.5).y[0] == 2.5
    assert jax.vmap(single_sample)(jnp.eye(3)).x.shape == (3, 1, 3)


@pytest.mark.parametrize("shape", [(6, 6), (12, 4), (3, 7), (5, 1), (1, 1)])
@pytest.mark.parametrize("spacing", ["log", "linear"])
def test_the_spectrum_is_exact(shape, spacing):
    n_samples, n_features = shape
    rank = min(shape)
    kappa = 1.0 if rank == 1 else 1e3
    data = linear_regression(
        KEY, n_samples=n_samples, n_features=n_features, condition_number=kappa, spacing=spacing, target_norm=2.0
    )
    assert data.x.shape == shape and data.y.shape == (n_samples,)
    singular = np.linalg.svd(np.asarray(data.x), compute_uv=False)
    space = np.geomspace if spacing == "log" else np.linspace
    np.testing.assert_allclose(singular, space(1, 1 / kappa, rank), rtol=1e-11)
    # Without noise the targets are in the range of X, with coefficients no longer than the norm that was asked.
    coefficients, *_ = np.linalg.lstsq(np.asarray(data.x), np.asarray(data.y))
    np.testing.assert_allclose(data.x @ coefficients, data.y, atol=1e-12)
    assert np.linalg.norm(coefficients) <= 2 + 1e-9
    if n_samples >= n_features:
        np.testing.assert_allclose(np.linalg.norm(coefficients), 2, rtol=1e-9)


def test_noise_is_added_to_the_targets_only():
    clean, noisy = (linear_regression(KEY, n_features=4, n_samples=500, noise=noise) for noise in (0.0, 0.3))
    np.testing.assert_array_equal(clean.x, noisy.x)
    np.testing.assert_allclose((noisy.y - clean.y).std(), 0.3, rtol=0.1)


def test_numbers_may_be_traced_and_mapped():
    kappas = jnp.array([1.0, 10.0, 1e4])
    data = jax.jit(
        jax.vmap(lambda kappa: linear_regression(KEY, n_features=8, condition_number=kappa, noise=0.1 * kappa))
    )(kappas)
    np.testing.assert_allclose(np.linalg.cond(np.asarray(data.x)), kappas, rtol=1e-9)
    single = linear_regression(KEY, n_features=8, condition_number=10.0, noise=1.0)
    np.testing.assert_allclose(data.x[1], single.x, atol=1e-14)
    np.testing.assert_allclose(data.y[1], single.y, atol=1e-14)
    flips = jax.vmap(lambda noise: linear_classification(KEY, 60, 5, noise=noise).y)(jnp.array([0.0, 0.1]))
    assert (flips[0] != flips[1]).sum() == 6


def test_target_distribution_is_the_papers():
    p = target_distribution(KEY, 10)
    assert p.shape == (10,) and (p > 0).all()
    np.testing.assert_allclose(p, jax.nn.softmax(10 * jax.random.uniform(KEY, (10,))))
    assert target_distribution(KEY, 10, temperature=0.01).max() > p.max()
    np.testing.assert_array_equal(target_distribution(KEY, 1), [1.0])


def test_a_key_is_a_seed():
    draws = [linear_regression(jax.random.key(seed), n_features=4).x for seed in (0, 0, 1)]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert np.abs(draws[0] - draws[2]).max() > 0.1
    mapped = jax.vmap(lambda key: linear_regression(key, n_features=4).x)(jnp.stack([jax.random.key(0), KEY]))
    np.testing.assert_allclose(mapped[0], draws[0], atol=1e-14)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: linear_classification(0, 4, 2), r"key is 0; pass a typed key, jax.random.key\(0\)"),
        (lambda: linear_classification(jax.random.PRNGKey(0), 4, 2), "pass a typed key"),
        (lambda: linear_classification(jax.random.split(KEY), 4, 2), r"key has shape \(2,\)"),
        (lambda: linear_classification(KEY, 0, 2), "n_samples is 0; pass an integer >= 1"),
        (lambda: linear_classification(KEY, 4, 2.5), "n_features is 2.5"),
        (lambda: linear_classification(KEY, 4, 2, noise=1.0), "noise is 1.0; pass a number >= 0 and < 1"),
        (lambda: linear_classification(KEY, 4, 2, margin=-1), "margin is -1; pass a number >= 0 and finite"),
        (lambda: linear_regression(KEY, n_features=0), "n_samples is 0"),
        (lambda: linear_regression(KEY, n_features=3, condition_number=0.5), "condition_number is 0.5"),
        (lambda: linear_regression(KEY, n_features=1, condition_number=2.0), "a design of rank 1 has 1"),
        (lambda: linear_regression(KEY, n_features=3, spacing="cubic"), "spacing is 'cubic'; pass 'log' or 'linear'"),
        (lambda: linear_regression(KEY, n_features=3, noise="much"), "noise is 'much'; pass a number"),
        (lambda: jax.jit(lambda n: linear_regression(KEY, n_features=n).x)(3), "n_samples is traced"),
        (lambda: target_distribution(KEY, 3, temperature=0.0), "temperature is 0.0; pass a number > 0"),
        (lambda: single_sample(jnp.zeros(3)), "target is zero or not finite"),
        (lambda: single_sample(jnp.ones((2, 3))), r"target has shape \(2, 3\)"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(FlowError, match=message):
        call()
