"""Flows with an exact solution, alone and side by side in one model, for every solver, transform and precision."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq

import gradflow as gf


class System(NamedTuple):
    """A flow and its exact state: `exact(t)` has the structure of `model`, with NumPy leaves."""

    loss: Callable
    model: Any
    args: Any
    exact: Callable[[float], Any]


def quadratic_loss(model, hessian):
    return 0.5 * model @ hessian @ model


def quadratic(size: int = 4, condition: float = 30.0) -> System:
    """theta' = -H theta, so theta(t) = exp(-H t) theta(0)."""
    rotation, _ = np.linalg.qr(np.random.RandomState(0).randn(size, size))
    eigenvalues = np.geomspace(1.0, 1 / condition, size)
    start = np.linspace(1.0, 2.0, size)

    def exact(t):
        return rotation @ (np.exp(-eigenvalues * t) * (rotation.T @ start))

    return System(quadratic_loss, jnp.asarray(start), jnp.asarray(rotation * eigenvalues @ rotation.T), exact)


def margin_loss(model, direction):
    """-<b*, V s>: the loss whose time is the clock tau of law 6."""
    return -direction @ model()


def two_values(alignments: tuple[float, float] = (0.3, -0.1)) -> System:
    """n = 2 on the clock (law 19): w^2/2 - cosh D is constant, dD/dt = w / (1 + cosh D), from equal scores D = 0."""
    u0 = np.asarray(alignments)
    w0 = u0[0] - u0[1]

    def difference(gap):
        return np.sqrt(w0**2 + 2 * (np.cosh(gap) - 1))

    def elapsed(gap):
        return quad(lambda x: (1 + np.cosh(x)) / difference(x), 0, gap, epsabs=1e-13, epsrel=1e-13)[0]

    def exact(t):
        gap = brentq(lambda x: elapsed(x) - t, 0, 60, xtol=1e-14, rtol=1e-14) if t else 0.0
        w, total = difference(gap), u0.sum() + t
        return gf.models.ValueSoftmax(np.array([[total + w, total - w]]) / 2, np.array([gap, -gap]) / 2)

    model = gf.models.ValueSoftmax(jnp.asarray(u0)[None], jnp.zeros(2))
    return System(margin_loss, model, jnp.ones(1), exact)


def symmetric(n: int = 3, start: float = 0.2) -> System:
    """All values and scores equal, exponential loss: s stays uniform and z = log(exp(z0) + t / n) (law 10)."""

    def exact(t):
        z = np.log(np.exp(start) + t / n)
        return gf.models.ValueSoftmax(np.full((1, n), z), np.zeros(n))

    model = gf.models.ValueSoftmax(jnp.full((1, n), start), jnp.zeros(n))
    return System(gf.losses.exponential, model, gf.tasks.Data(jnp.ones((1, 1)), jnp.ones(1)), exact)


def balanced(target: float = 2.0, start: float = 0.1) -> System:
    """Two balanced layers along one direction, square loss: b' = 2 b (y - b), a logistic curve."""
    direction = np.array([0.6, 0.8])

    def exact(t):
        b = target / (1 + (target / start - 1) * np.exp(-2 * target * t))
        scale = np.sqrt(b)
        return gf.models.DeepLinear((scale * np.outer(direction, direction), scale * direction[None]))

    model = gf.models.DeepLinear.balanced(jnp.asarray(direction), 2, scale=np.sqrt(start))
    data = gf.tasks.Data(jnp.asarray(direction)[None], jnp.array([target]))
    return System(gf.losses.square, model, data, exact)


SYSTEMS = {"quadratic": quadratic, "two values": two_values, "symmetric": symmetric, "balanced": balanced}


def joint_loss(models, args):
    """Sum of losses that share nothing: each part follows its own flow, and one kernel tests them all."""
    return (
        quadratic_loss(models["quadratic"], args["quadratic"])
        + margin_loss(models["two values"], args["two values"])
        + gf.losses.exponential(models["symmetric"], args["symmetric"])
        + gf.losses.square(models["balanced"], args["balanced"])
    )


def joint() -> System:
    """All systems side by side in one dictionary."""
    parts = {name: make() for name, make in SYSTEMS.items()}
    models = {name: system.model for name, system in parts.items()}
    args = {name: system.args for name, system in parts.items()}
    return System(joint_loss, models, args, lambda t: {name: system.exact(t) for name, system in parts.items()})


def cast(tree: Any, dtype: Any) -> Any:
    """Return a pytree with its floating-point arrays in another precision."""
    return jax.tree.map(lambda x: x.astype(dtype) if eqx.is_inexact_array(x) else x, tree)


def distance(model: Any, exact: Any) -> float:
    """Return the largest difference between two models, relative to the largest entry of the leaf (at least 1)."""
    arrays = [jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array_like)) for tree in (model, exact)]
    return max(
        float(np.max(np.abs(np.asarray(a) - b)) / max(1.0, np.max(np.abs(b)))) for a, b in zip(*arrays, strict=True)
    )
