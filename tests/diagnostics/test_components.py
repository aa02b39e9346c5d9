"""Principal components against scikit-learn, their signs, and clouds for which they are not determined."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

import gradflow as gf
from gradflow import diagnostics

# One kernel of a whole function compiles several times faster than its operations one by one.
principal_components = jax.jit(diagnostics.principal_components, static_argnames="standardise")
value_pca = jax.jit(diagnostics.value_pca, static_argnames=("n_components", "standardise"))

CLOUD = np.random.default_rng(0).normal(size=(30, 5)) @ np.diag([5.0, 3, 2, 1, 0.5]) + 7


@pytest.mark.parametrize("standardise", [False, True])
@pytest.mark.parametrize("cloud", [CLOUD, CLOUD[:4], CLOUD[:2]])
def test_agrees_with_scikit_learn(cloud, standardise):
    pca = PCA()
    expected = pca.fit_transform(StandardScaler(with_std=standardise).fit_transform(cloud))
    found = value_pca(cloud, n_components=min(cloud.shape), standardise=standardise)
    determined = pca.explained_variance_ratio_ > 1e-12
    np.testing.assert_allclose(found.shares, pca.explained_variance_ratio_, atol=1e-14)
    np.testing.assert_allclose(np.abs(found.coordinates), np.abs(expected), atol=1e-12)
    np.testing.assert_allclose(
        np.abs(found.basis.directions[determined]), np.abs(pca.components_[determined]), atol=1e-12
    )


@given(st.integers(0, 10**6))
def test_signs_and_axes_do_not_depend_on_the_order_or_reflection_of_the_cloud(seed):
    generator = np.random.default_rng(seed)
    cloud = generator.normal(size=(6, 3))
    directions = np.asarray(principal_components(cloud).directions)
    assert (directions[np.arange(3), np.abs(directions).argmax(1)] > 0).all()
    np.testing.assert_allclose(directions @ directions.T, np.eye(3), atol=1e-14)
    for other in (generator.permutation(cloud), -cloud, cloud + 10):
        np.testing.assert_allclose(principal_components(other).directions, directions, atol=1e-9)


def test_a_path_along_the_axes_of_its_last_snapshot():
    growth = np.array([0, 0.5, 1, 2])[:, None, None]
    history = np.array([3.0, -1]) + growth * np.array([[1.0, 1], [-1, -1], [0.5, -0.5], [-0.5, 0.5]])
    basis = principal_components(history[-1])
    path = value_pca(history, basis)
    assert path.coordinates.shape == (4, 4, 2) and path.shares.shape == (4, 2)
    root = np.sqrt(2)
    np.testing.assert_allclose(path.coordinates[:, 0], growth[:, 0] * np.array([root, 0]), atol=1e-14)
    np.testing.assert_allclose(path.shares, [[0, 0], [0.8, 0.2], [0.8, 0.2], [0.8, 0.2]], atol=1e-14)
    # A cloud that moves as a whole leaves the origin, and keeps its shares.
    moved = value_pca(history[-1] + 1, basis)
    np.testing.assert_allclose(moved.coordinates - path.coordinates[-1], np.tile([root, 0], (4, 1)), atol=1e-14)
    np.testing.assert_allclose(moved.shares, path.shares[-1], atol=1e-14)
    # Control: with axes of its own each snapshot is turned anew; the first has none at all.
    own = value_pca(history)
    np.testing.assert_allclose(own.shares, path.shares, atol=1e-14)
    assert np.abs(own.basis.directions[0]).max() == 0


@pytest.mark.parametrize("size", [1e-200, 1e-30, 1, 1e200])
@pytest.mark.parametrize("standardise", [False, True])
def test_shares_have_no_scale(size, standardise):
    shares = value_pca((CLOUD - 7) * size, standardise=standardise).shares
    np.testing.assert_allclose(shares, value_pca(CLOUD - 7, standardise=standardise).shares, rtol=1e-12)


def test_constant_features_are_not_blown_up():
    cloud = np.concatenate([CLOUD, np.full((30, 1), 0.1)], axis=1)
    found = principal_components(cloud, standardise=True)
    assert found.scale[-1] == 1
    np.testing.assert_allclose(found.scale[:-1], CLOUD.std(0), rtol=1e-13)


@pytest.mark.parametrize("cloud", [np.ones((5, 3)), np.ones((1, 1)), np.zeros((2, 2)), np.full((3, 1), 1e300)])
def test_a_cloud_without_extent_has_no_axes(cloud):
    found = value_pca(cloud, n_components=1)
    assert np.abs(found.coordinates).max() == 0 and found.shares.tolist() == [0]
    assert np.abs(found.basis.directions).max() == 0


@pytest.mark.parametrize("standardise", [False, True])
def test_gradients_are_finite_where_variances_coincide(standardise):
    gradient = jax.jit(jax.grad(lambda v: jnp.sum(value_pca(v, standardise=standardise).shares ** 2)))
    for cloud in (np.eye(4), np.zeros((4, 4)), np.diag([1.0, 1, 2, 3])):
        assert np.isfinite(gradient(cloud)).all()


def test_the_gradient_of_shares_is_exact_where_they_are_distinct():
    gradient = jax.jit(jax.grad(lambda v: value_pca(v).shares[0]))(CLOUD)
    step = 1e-5 * np.random.default_rng(1).normal(size=CLOUD.shape)
    difference = value_pca(CLOUD + step).shares[0] - value_pca(CLOUD - step).shares[0]
    assert np.sum(gradient * 2 * step) == pytest.approx(float(difference), rel=1e-7)


def test_batches_jit_vmap_and_types():
    clouds = np.stack([CLOUD, CLOUD[::-1] ** 2, CLOUD * np.arange(5)])
    together, mapped = value_pca(clouds), jax.jit(jax.vmap(value_pca))(clouds)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-11), together, mapped)
    narrow = jax.eval_shape(value_pca, np.float32(CLOUD))
    assert {leaf.dtype for leaf in jax.tree.leaves(narrow)} == {np.dtype("float32")}
    # Correlation with a hidden coordinate, as the manifold of values is measured.
    assert abs(diagnostics.spearman(together.coordinates[0, :, 0], CLOUD[:, 0])) > 0.9


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: diagnostics.principal_components(np.ones(3)), "vectors has shape"),
        (lambda: diagnostics.principal_components(np.ones((0, 3))), "a vector with a feature"),
        (lambda: diagnostics.value_pca(np.ones((2, 0))), "a vector with a feature"),
        (lambda: diagnostics.value_pca(CLOUD, n_components=6), r"n_components is 6; .* min\(N, d\) = 5"),
        (lambda: diagnostics.value_pca(CLOUD, n_components=0), "n_components is 0"),
        (lambda: diagnostics.value_pca(CLOUD, diagnostics.principal_components(CLOUD[:, :3])), "3 features"),
        (
            lambda: diagnostics.value_pca(CLOUD, diagnostics.principal_components(CLOUD), standardise=True),
            "standardise is True",
        ),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(gf.FlowError, match=words):
        call()
