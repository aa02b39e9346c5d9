"""Batches of small flows for the laws: 20 seeds of one shape in one kernel."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradflow as gf
from gradflow.models import ValueSoftmax

SEEDS = 20
SIZES = (1, 2, 3, 8, 32)
FEW_SHAPES = ((1, 2), (3, 8), (32, 32))  # those that every run of the tests meets
SHAPES = ((2, 1), (1, 2), (8, 3), (3, 8), (32, 32))  # (d, n): each size on both axes
# One-sample flows depend on d only through u = V^T b*: a few d for each n are enough.
MORE_SHAPES = (*SHAPES, (1, 1), (2, 2), (3, 3), (2, 8), (8, 2), (8, 32), (32, 8), (1, 32), (32, 1))
EVERY_SHAPE = tuple((d, n) for d in SIZES for n in SIZES)
ROWS = 41  # save times of every flow, so that flows of one shape share a kernel
RTOL = 1e-10


class Batch(NamedTuple):
    """Flows of one shape: member axis first."""

    initial: ValueSoftmax
    path: ValueSoftmax  # (M, T, ...)
    data: Any  # member axis first
    direction: jax.Array  # (M, d)
    ts: np.ndarray


def slow_beyond(quick, cases) -> list:
    """The cases as parameters of a test; those that are not `quick` are marked slow."""
    return [case if case in quick else pytest.param(*case, marks=pytest.mark.slow) for case in cases]


def unit_samples(key, d: int, members: int = SEEDS, label: float = 1.0) -> gf.types.Data:
    x = jax.random.normal(key, (members, 1, d))
    return gf.types.Data(x / jnp.linalg.norm(x, axis=-1, keepdims=True), jnp.full((members, 1), label))


def times(first: float, last: float) -> np.ndarray:
    """The start and log-spaced times, ROWS in all."""
    return np.concatenate([[0.0], gf.log_times(first, last, ROWS - 1)])


def starts(
    key,
    d: int,
    n: int,
    *,
    scale: float = 0.1,
    score_scale: float = 0.0,
    score_mean: float = 0.0,
    activation=None,
    members: int = SEEDS,
) -> ValueSoftmax:
    """Stacked models."""
    options = {"scale": scale, "score_scale": score_scale, "score_mean": score_mean, "activation": activation}
    keys = jax.random.split(key, members)
    return eqx.filter_vmap(lambda k: ValueSoftmax.normal(k, d, n, **options))(keys)


@functools.cache
def _kernel(loss: Callable, solver: str, trainable: tuple[bool, bool] | None) -> Callable:
    """A jitted flow over members; one function for each loss, so that shapes and numbers share its cache."""

    @eqx.filter_jit
    def run(models, data, ts, rtol, rates):
        def one(model, sample, save):
            spec = None
            if trainable is not None:
                spec = ValueSoftmax(trainable[0], trainable[1], jax.tree.map(lambda _: False, model.activation))
            options = {"rtol": rtol, "rates": rates, "solver": solver, "trainable": spec}
            return gf.gradient_flow(loss, model, sample, t1=save[-1], ts=save, **options)

        return eqx.filter_vmap(one, in_axes=(eqx.if_array(0), eqx.if_array(0), 0))(models, data, ts)

    return run


def flow(loss, models, data, ts, *, rtol=RTOL, rates=None, solver="tsit5", trainable=None) -> ValueSoftmax:
    """The models along 20 flows, (M, T, ...); every member must have reached its end."""
    members = len(jax.tree.leaves(eqx.filter(models, eqx.is_array))[0])
    ts = jnp.broadcast_to(jnp.asarray(ts, float), (members, np.shape(ts)[-1]))
    runs = _kernel(loss, solver, trainable)(models, data, ts, jnp.asarray(rtol), rates)
    assert bool(runs.valid.all()), runs.result
    return runs.observed


@eqx.filter_jit
def _ends(loss, models, data, horizons, rtol, solver):
    def one(model, sample, member_ends):
        return eqx.filter_vmap(
            lambda end: gf.gradient_flow(loss, model, sample, t1=end, rtol=rtol, solver=solver).final
        )(member_ends)

    return eqx.filter_vmap(one, in_axes=eqx.if_array(0))(models, data, horizons)


def ends(loss, models, data, horizons, *, rtol=RTOL, solver="dopri8") -> ValueSoftmax:
    """The start and the ends of runs to horizons (H,) or (M, H) > 0, (M, 1 + H, ...): accepted steps only."""
    horizons = jnp.broadcast_to(jnp.asarray(horizons, float), (len(models.scores), np.shape(horizons)[-1]))
    final = _ends(loss, models, data, horizons, jnp.asarray(rtol), solver)
    path = jax.tree.map(lambda a, b: jnp.concatenate([a[:, None], b], 1) if eqx.is_array(a) else a, models, final)
    assert bool(jnp.isfinite(path.scores).all())
    return path


@functools.cache
def logistic_batch(d: int, n: int) -> Batch:
    """One-sample logistic flows from uniform scores to t = 1e6, rows from t = 0 on."""
    key = jax.random.fold_in(jax.random.key(0), 100 * d + n)
    data, models = unit_samples(key, d), starts(jax.random.fold_in(key, 1), d, n)
    ts = times(1e-1, 1e6)
    return Batch(models, flow(gf.losses.logistic, models, data, ts), data, data.x[:, 0], ts)


def losses_along(loss, path: ValueSoftmax, data) -> jax.Array:
    """The loss at each row, (M, T)."""
    return members(lambda p, s: eqx.filter_vmap(lambda m: loss(m, s))(p), path, data)


def members(law: Callable, *trees) -> Any:
    """Apply a law to each member of stacked arguments, in one kernel."""
    return eqx.filter_jit(eqx.filter_vmap(law, in_axes=eqx.if_array(0)))(*trees)


def largest(x) -> float:
    x = np.abs(np.asarray(x))
    return float(x.max()) if x.size else 0.0
