"""Neighbouring results that a value matrix or a deep linear network can show; each names its source."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from gradflow.errors import FlowError
from gradflow.laws.invariants import balances
from gradflow.laws.paths import leaf_rates, saved_models
from gradflow.models import DeepLinear, TiedSoftmax
from gradflow.types import Data


def balancedness(path: Any, rates: PyTree | None = None) -> Float[Array, " T"]:
    """Return the largest drift of W_l W_l^T / r_l - W_{l+1}^T W_{l+1} / r_{l+1} over all pairs of layers.

    Constant under the flow of any loss of the product; under gradient descent the drift is O(step size) at fixed t.

    Args:
        path: a run of a `DeepLinear` that saved its models, or stacked models.
        rates: as given to the run.

    Returns:
        The largest entry of the drift at each row; 0 for a single layer.

    Raises:
        FlowError: if the model is another one.
    """
    models = saved_models(path)
    if not isinstance(models, DeepLinear):
        raise FlowError(f"path holds a {type(models).__name__}: balancedness is about gf.models.DeepLinear")
    pairs = [jnp.max(jnp.abs(x - x[:1]), axis=(-2, -1)) for x in balances(models, rates)]
    rows = models.matrices[0]
    return jnp.max(jnp.stack(pairs), axis=0) if pairs else jnp.zeros(len(rows), rows.dtype)


def tied_growth(loss: Callable, model: TiedSoftmax, args: PyTree = None) -> Float[Array, ""]:
    """Return d/dt(|U|^2/2 - |a|^2/2) + <g, beta> for beta = U act(U a), which is 0.

    For one sample -<g, beta> is gamma z. Derived here for the tied model of arXiv 2603.06248. Conditions: unit rates;
    any loss of beta, any smooth map.

    Args:
        loss: a loss of beta = model().
        model: one model.
        args: data of the loss.

    Returns:
        The residual, with the derivative by autodiff.
    """
    slope = jax.grad(lambda values, query: loss(TiedSoftmax(values, query, model.activation), args), argnums=(0, 1))
    values, query = slope(model.values, model.query)
    pull = jax.grad(lambda beta: loss(_Predictor(beta), args))(model())
    return jnp.sum(model.query * query) - jnp.sum(model.values * values) + jnp.dot(pull, model(), precision="highest")


class _Predictor:
    """A bare beta in the place of a model."""

    def __init__(self, beta: Float[Array, " d"]):
        self.beta = beta

    def __call__(self) -> Float[Array, " d"]:
        return self.beta


def max_margin(data: Data) -> tuple[Float[Array, " d"], float]:
    """Return the hard-margin separator of separable data through the origin.

    Least distance programming by non-negative least squares (Lawson, Hanson, 1974, chapter 23).

    Args:
        data: samples (N, d) with labels in {-1, 1}.

    Returns:
        `(w_svm, margin)`: the shortest w with y_i x_i . w >= 1, and 1 / |w_svm|.

    Raises:
        FlowError: if the data are not separable.
    """
    from scipy.optimize import nnls

    signed = np.asarray(data.y, np.float64)[:, None] * np.asarray(data.x, np.float64)
    system = np.concatenate([signed.T, np.ones((1, len(signed)))])
    target = np.zeros(len(system))
    target[-1] = 1
    weights, _ = nnls(system, target)
    residual = system @ weights - target
    if abs(residual[-1]) < 1e-10 or (signed @ (-residual[:-1] / residual[-1])).min() < 1 - 1e-6:
        raise FlowError("data are not separable by a hyperplane through the origin: they have no maximal margin")
    separator = -residual[:-1] / residual[-1]
    return jnp.asarray(separator), 1 / float(np.linalg.norm(separator))


def separable_rate(ts: Float[Array, " T"], losses: Float[Array, "... T"], margin: float = 1.0) -> Float[Array, "... T"]:
    """Return t L margin^2 - 1, which goes to 0: L ~ |w_svm|^2 / t (after Soudry et al., 2018; the constant derived).

    With w = w_svm log t + O(1) every support vector has loss alpha_i / t, and sum alpha_i = |w_svm|^2. Conditions:
    logistic regression on separable data, linear or through a row of weights that ends one-hot; unit rates.

    Args:
        ts: times.
        losses: `gf.losses.logistic` at these times.
        margin: of `max_margin`; 1 for one sample of unit norm.

    Returns:
        The residual.
    """
    return ts * losses * margin**2 - 1


def svm_distance(ts: Float[Array, " T"], predictors: Float[Array, "T d"], data: Data) -> Float[Array, " T"]:
    """Return |w - w_svm log t|, which stays bounded while |w| grows like log t (Soudry et al., 2018, theorem 3).

    Condition: linear logistic regression on separable data, unit rates.

    Args:
        ts: times, > 1.
        predictors: w at these times.
        data: the samples.

    Returns:
        The distance at each time.
    """
    separator, _ = max_margin(data)
    return jnp.linalg.norm(predictors - jnp.log(ts)[:, None] * separator.astype(predictors.dtype), axis=-1)


def homogeneous_rate(ts: Float[Array, " T"], losses: Float[Array, "... T"], order: int) -> Float[Array, "... T"]:
    """Return h t L m^p / (1 + p / m) - 1, m = log(1 / L), p = 2 - 2 / h, which goes to 0 (after Lyu, Li, 2020).

    Their rate L = Theta(1 / (t (log t)^p)) with its constant for one sample of unit norm: from a balanced start the
    margin m obeys m' = h m^p e^-m, so e^m (1 + p / m + O(1 / m^2)) = h t m^p. Conditions: logistic or exponential
    loss, a balanced `DeepLinear` of h layers along the sample, unit rates. h = 1: t L - 1.

    Args:
        ts: times.
        losses: at these times, < 1.
        order: of homogeneity h, the number of layers.

    Returns:
        The residual.
    """
    power = 2 - 2 / order
    margin = -jnp.log(losses)
    return order * ts * losses * margin**power / (1 + power / margin) - 1


def loss_increase(losses: Float[Array, "... T"]) -> Float[Array, "..."]:
    """Return the largest rise of the loss between two rows over its size (T - 1,): 0 along a flow."""
    scale = jnp.abs(losses[..., :-1])
    return jnp.maximum(losses[..., 1:] - losses[..., :-1], 0) / jnp.where(scale > 0, scale, 1)


def dissipation(loss: Callable, model: PyTree, args: PyTree = None, rates: PyTree | None = None) -> Float[Array, ""]:
    """Return dL/dt + |grad L|_M^2 over |grad L|_M^2 for any model; M holds the rates.

    dL/dt is the forward-mode derivative of the loss along the flow field.

    Args:
        loss: any loss.
        model: one model, of which all float arrays move.
        args: data of the loss.
        rates: as given to `gf.gradient_flow`.

    Returns:
        The relative residual; 0 where the gradient is 0.
    """
    moving, fixed = eqx.partition(model, eqx.is_inexact_array)

    def value(params):
        return loss(eqx.combine(params, fixed), args)

    gradient = jax.grad(value)(moving)
    scale = [1.0] * len(jax.tree.leaves(gradient)) if rates is None else list(leaf_rates(rates, model).values())
    leaves, treedef = jax.tree.flatten(gradient)
    field = jax.tree.unflatten(treedef, [(-r * g).astype(g.dtype) for r, g in zip(scale, leaves, strict=True)])
    slope = jax.jvp(value, (moving,), (field,))[1]
    speed = sum(jnp.sum(-f * g) for f, g in zip(jax.tree.leaves(field), leaves, strict=True))
    return (slope + speed) / jnp.where(speed > 0, speed, 1)
