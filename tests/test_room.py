"""Compiled kernels are counted when there is a new one, and dropped where there are too many."""

import jax.numpy as jnp
import optax
import pytest

import gradflow as gf
from gradflow import devices
from gradflow.problem import room


def bowl(model, args):
    return 0.5 * jnp.sum(model**2)


RUNS = {
    "flow": lambda size: gf.gradient_flow(bowl, jnp.ones(size), t1=1.0, solver="tsit5"),
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


def test_kernels_are_dropped_where_maps_are_short(monkeypatch):
    traced = []

    def loss(model, args):
        traced.append(model)
        return bowl(model, args)

    def traces(used):
        monkeypatch.setattr(devices, "MAPS_USED", used)
        room.note_kernel()
        traced.clear()
        assert gf.gradient_descent(loss, jnp.ones(2), optax.sgd(0.5), steps=1).final[0] == 0.5
        return len(traced)

    assert traces(1.0) > 0 and traces(1.0) == 0, "a second run compiles again"
    assert traces(0.0) > 0, "nothing was dropped"
