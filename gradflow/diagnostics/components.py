"""Principal components of a cloud, and the path of a cloud along the components of one of its snapshots."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Shaped

from gradflow.diagnostics.arguments import as_float
from gradflow.errors import FlowError, whole_number


class PrincipalComponents(NamedTuple):
    """The axes of a cloud: centre and scale of each feature, then directions by decreasing variance.

    Attributes:
        mean: of each feature.
        scale: of each feature: its standard deviation if standardised, else 1.
        directions: orthonormal, one a row, min(N, d) of them. The entry of largest magnitude is positive. A direction
            without variance is zero, because it would be arbitrary.
    """

    mean: Float[Array, "... d"]
    scale: Float[Array, "... d"]
    directions: Float[Array, "... k d"]


class ValuePCA(NamedTuple):
    """A cloud along principal components.

    Attributes:
        coordinates: of each vector.
        shares: of the variance of the cloud around its own mean, by component: PC1, then `shares[..., :2].sum(-1)` for
            PC1 + PC2.
        basis: the components used.
    """

    coordinates: Float[Array, "... N k"]
    shares: Float[Array, "... k"]
    basis: PrincipalComponents


def principal_components(vectors: Shaped[Array, "... N d"], standardise: bool = False) -> PrincipalComponents:
    """Return the principal components of a cloud, with signs that do not depend on the machine.

    Where variances are equal the directions are arbitrary within their plane. For derivatives the directions are
    constants, so they are finite there as well.

    Args:
        vectors: one vector a row.
        standardise: divide each feature by its standard deviation (over N, not N - 1) first; a constant one is kept.

    Returns:
        The components.

    Raises:
        FlowError: if an axis is missing or empty.
    """
    vectors = as_float("vectors", vectors, ("N", "d"))
    if not min(vectors.shape[-2:]):
        raise FlowError(f"vectors has shape {vectors.shape}; principal components need a vector with a feature")
    mean = jnp.mean(vectors, axis=-2)
    centred = vectors - mean[..., None, :]
    scale = _deviations(vectors, centred) if standardise else jnp.ones_like(mean)
    return PrincipalComponents(mean, scale, _directions(lax.stop_gradient(centred / scale[..., None, :])))


def value_pca(
    values: Shaped[Array, "... N d"],
    basis: PrincipalComponents | None = None,
    n_components: int = 2,
    standardise: bool = False,
) -> ValuePCA:
    """Return the coordinates and explained shares of a cloud along its first principal components.

    With the `basis` of one snapshot, for instance `principal_components(values[-1])`, the clouds of all saves have the
    same axes and origin, so that their coordinates are a path. Without it each snapshot has its own axes. Derivatives
    treat the directions as constants: exact for the shares along a cloud's own axes, where these are distinct.

    Args:
        values: one vector a row.
        basis: components of another cloud, with their own standardisation; None fits each cloud.
        n_components: how many to keep.
        standardise: divide each feature by its standard deviation first; only without `basis`.

    Returns:
        Coordinates, explained shares (0 for a cloud without extent) and the basis.

    Raises:
        FlowError: if the shapes do not fit, more components are asked than there are, or `standardise` is given with a
            basis, which has a scale already.
    """
    values = as_float("values", values, ("N", "d"))
    if basis is not None and standardise:
        raise FlowError("standardise is True, but a basis keeps its own scale; pass it to principal_components")
    basis = principal_components(values, standardise) if basis is None else basis
    available, width = basis.directions.shape[-2:]
    if whole_number("n_components", n_components) > available:
        raise FlowError(f"n_components is {n_components}; a basis of this cloud has min(N, d) = {available}")
    if values.shape[-1] != width:
        raise FlowError(f"values has shape {values.shape}; the basis is of vectors with {width} features")
    scaled = (values - basis.mean[..., None, :]) / basis.scale[..., None, :]
    directions = jnp.swapaxes(basis.directions[..., :n_components, :], -2, -1)
    coordinates = jnp.matmul(scaled, directions, precision="highest")
    # Shares do not depend on the scale; at scale one their squares neither underflow nor overflow.
    centred = scaled - jnp.mean(scaled, axis=-2, keepdims=True)
    size = lax.stop_gradient(jnp.max(jnp.abs(centred), axis=(-2, -1), keepdims=True, initial=0))
    centred = centred / jnp.where(size > 0, size, 1)
    total = jnp.sum(centred**2, axis=(-2, -1))[..., None]
    along = jnp.sum(jnp.matmul(centred, directions, precision="highest") ** 2, axis=-2)
    return ValuePCA(coordinates, jnp.where(total > 0, along / jnp.where(total > 0, total, 1), 0), basis)


def _deviations(vectors: Float[Array, "... N d"], centred: Float[Array, "... N d"]) -> Float[Array, "... d"]:
    """Return the standard deviation of each feature, or 1 where it is constant up to rounding."""
    largest, spread = (lax.stop_gradient(jnp.max(jnp.abs(x), axis=-2)) for x in (vectors, centred))
    varies = spread > 10 * jnp.finfo(vectors.dtype).eps * largest
    unit = jnp.where(varies, spread, 1)
    square = jnp.mean((centred / unit[..., None, :]) ** 2, axis=-2)
    return jnp.where(varies, unit * jnp.sqrt(jnp.where(varies, square, 1)), 1)


def _directions(centred: Float[Array, "... N d"]) -> Float[Array, "... k d"]:
    _, sizes, directions = jnp.linalg.svd(centred, full_matrices=False)
    least = max(centred.shape[-2:]) * jnp.finfo(centred.dtype).eps * jnp.max(sizes, axis=-1, keepdims=True, initial=0)
    heaviest = jnp.argmax(jnp.abs(directions), axis=-1, keepdims=True)
    signs = jnp.sign(jnp.take_along_axis(directions, heaviest, axis=-1))
    return jnp.where((sizes > least)[..., None], signs * directions, 0)
