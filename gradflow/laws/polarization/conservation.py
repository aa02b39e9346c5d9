"""Laws 1, 3, 4, 20: what the flow conserves, as the drift from the first saved row."""

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from gradflow.laws import invariants
from gradflow.laws.paths import Path, drift, softmax_path, value_path


def score_sum(path: Path) -> Float[Array, "... T"]:
    """Return the drift of sum_i a_i (law 1, derived).

    The softmax does not see a common shift of the scores, so the gradient has none: any loss, any data, any rates;
    exact under plain gradient descent too.

    Args:
        path: a run, or stacked models, of a softmax.

    Returns:
        sum_i a_i(t) - sum_i a_i(first row).
    """
    return drift(jnp.sum(softmax_path(path).scores, axis=-1), axis=-1)


def primitive(path: Path, rates: PyTree | None = None) -> Float[Array, "..."]:
    """Return the drift of the primitives F, F' = f / f' (law 3, derived).

    A normalised map s_i = f(a_i) / sum f conserves sum_i F(a_i); an unnormalised s_i = f(a_i) conserves
    |v_i|^2 / (2 r_V) - F(a_i) / r_a for every i. Any loss of beta = V s.

    Args:
        path: a run, or stacked models, whose map has a primitive.
        rates: as given to `gf.gradient_flow`.

    Returns:
        (..., T) for a normalised map, (..., T, n) for another.
    """
    models = value_path(path)
    values = invariants.primitive(models, rates)
    return drift(values, axis=-1 if models.activation.normalised else -2)


def perpendicular_values(path: Path, direction: Float[Array, " d"]) -> Float[Array, "... T"]:
    """Return the largest drift of V_perp = (I - b* b*^T) V (law 4, derived).

    Condition: one sample, so that every gradient points along b*. Any map and loss. Exact under descent too.

    Args:
        path: a run or stacked models.
        direction: b*, of unit norm.

    Returns:
        max_ij |V_perp(t) - V_perp(first row)|_ij.
    """
    values = value_path(path).values
    along = jnp.einsum("d,...dn->...n", direction, values, precision="highest")
    perpendicular = values - direction[:, None] * along[..., None, :]
    return jnp.max(jnp.abs(drift(perpendicular, axis=-3)), axis=(-2, -1))


def column_sums(path: Path) -> Float[Array, "... T n"]:
    """Return the drift of each column sum of V (law 20, derived).

    Condition: the loss reads softmax(V s), as KL(p || softmax(V s)) does: its gradient p_model - p sums to zero.

    Args:
        path: a run or stacked models.

    Returns:
        sum_d V_di(t) - sum_d V_di(first row).
    """
    return drift(invariants.column_sums(value_path(path).values), axis=-2)
