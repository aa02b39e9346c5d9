"""Compiled kernels are counted when there is a new one, and dropped where there are too many."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import gradflow as gf
from gradflow import devices
from gradflow.problem import room


def bowl(model, args):
    return 0.5 * jnp.sum(model**2)


RUNS = {
    "flow": lambda size: gf.gradient_flow(bowl, jnp.ones(size), t1=1.0, solver="tsit5"),
    "flows": lambda size: gf.gradient_flow_ensemble(bowl, jnp.ones((2, size)), t1=1.0, solver="tsit5"),
    "descent": lambda size: gf.gradient_descent(bowl, jnp.ones(size), optax.sgd(0.1), steps=2),
    "descents": lambda size: gf.gradient_descent_ensemble(bowl, jnp.ones((2, size)), optax.sgd(0.1), steps=2),
}


@pytest.mark.parametrize("kind", RUNS)
def test_maps_are_counted_once_for_each_new_kernel(kind, monkeypatch):
    looks = []
    monkeypatch.setattr(room, "release_kernels", lambda: looks.append(kind))
    RUNS[kind](2)
    looks.clear()
    seen = []
    for size in (2, 2, 3, 3, 3):
        RUNS[kind](size)
        seen.append(len(looks))
    assert seen == [1, 1, 1, 2, 2]


@pytest.mark.parametrize("kind", ["flows", "descent"])
def test_kernels_are_dropped_where_maps_are_short(monkeypatch, kind):
    traced = []

    def loss(model, args):
        traced.append(model)
        return bowl(model, args)

    def traces(used):
        monkeypatch.setattr(devices, "MAPS_USED", used)
        room.note_kernel()
        traced.clear()
        if kind == "flows":
            run = gf.gradient_flow_ensemble(loss, jnp.ones((1, 2)), t1=float(np.log(2.0)), solver="tsit5")
        else:
            run = gf.gradient_descent(loss, jnp.ones(2), optax.sgd(0.5), steps=1)
        np.testing.assert_allclose(run.final, 0.5, rtol=1e-5)
        return len(traced)

    first, again = traces(1.0), traces(1.0)
    assert again < first, "a second run compiles again"
    before = room.era()
    assert traces(0.0) > again, "nothing was dropped"
    assert room.era() > before
