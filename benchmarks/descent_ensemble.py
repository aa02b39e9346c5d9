"""Thousands of descents against `jax.vmap` of the same loop over all of them at once, with and without an early end."""

import functools
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import gradflow as gf
from benchmarks.measure import Row, first_call, warm
from gradflow.descent import gradient_descent_ensemble

MEMBERS, STEPS = 4096, 2000
STOP_STEPS, TARGET = 20_000, 1e-6
STEP_SIZE = 4.0
REPEATS = 3


def ensemble(members: int, largest_condition: float) -> tuple[Any, Any]:
    """Return value-softmax models and square-loss data of d = 8, n = 16, condition numbers 1 to the largest."""
    keys = jax.random.split(jax.random.key(0), members)
    order = np.random.RandomState(0).permutation(members)  # no tool may profit from members in order of difficulty
    conditions = np.geomspace(1, largest_condition, members)[order]
    make_model = functools.partial(gf.models.ValueSoftmax.normal, d=8, n=16, scale=0.3)
    make_data = functools.partial(gf.tasks.linear_regression, n_features=8)
    data = jax.vmap(lambda key, condition: make_data(key, condition_number=condition))(keys, conditions)
    return jax.vmap(make_model)(keys), data


def is_fitted(step, model, data):
    """Return whether the loss is small."""
    return gf.losses.square(model, data) < TARGET


@functools.partial(jax.jit, static_argnames=("steps", "stops"))
def vmapped(models, data, step_size, *, steps: int, stops: bool):
    """Run every member in one loop by `jax.vmap`, as one writes it by hand; with `stops` until the slowest is done."""
    optimizer = optax.sgd(step_size)

    def one(model, data):
        def body(carry):
            step, model, state = carry
            updates, state = optimizer.update(jax.grad(gf.losses.square)(model, data), state)
            return step + 1, optax.apply_updates(model, updates), state

        def is_running(carry):
            going = carry[0] < steps
            return going & ~is_fitted(carry[0], carry[1], data) if stops else going

        return jax.lax.while_loop(is_running, body, (jnp.array(0), model, optimizer.init(model)))[:2]

    return jax.vmap(one)(models, data)


def compare(name: str, members: int, largest_condition: float, steps: int, *, stops: bool) -> list[Row]:
    """Measure both in turns on the same members."""
    models, data = ensemble(members, largest_condition)

    def ours():
        return gradient_descent_ensemble(
            gf.losses.square,
            models,
            optax.sgd,
            data,
            in_axes=(0, 0),
            hyperparameters={"learning_rate": STEP_SIZE},
            steps=steps,
            stop=is_fitted if stops else None,
        )

    def theirs():
        return vmapped(models, data, STEP_SIZE, steps=steps, stops=stops)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gf.FlowWarning)  # members that have converged to the last bit say so
        run, first = first_call(ours)
        (their_steps, their_models), their_first = first_call(theirs)
        difference = float(np.abs(run.final.scores - np.asarray(their_models.scores)).max())
        if difference > 1e-9 or (np.asarray(their_steps) != run.t_final).any():
            raise AssertionError(f"the two ensembles differ by {difference:.1e}, or in their steps")
        (mine, _), (other, _) = warm(ours, theirs, repeats=REPEATS)
    lane_step = mine / run.t_final.sum() * 1e9
    note = f"vmap: {other:.3g} s, first call {their_first:.2g} s; scores differ by {difference:.0e}"
    shown = f"{run.t_final.mean():.0f} steps mean, {run.t_final.max():,} max; {lane_step:.0f} ns a step of a member"
    return [
        Row(name, mine, "s", "", first, f"best of {REPEATS}; {shown}; efficiency {run.stats['efficiency']:.2f}"),
        Row("  times the speed of vmap", other / mine, "x", "", None, note),
    ]


def run() -> list[Row]:
    """Measure equal lengths, then an early end."""
    return [
        *compare(f"descent of {MEMBERS:,} members, {STEPS:,} steps", MEMBERS, 100.0, STEPS, stops=False),
        *compare(f"descent of {MEMBERS:,} members to loss {TARGET:g}", MEMBERS, 10.0, STOP_STEPS, stops=True),
    ]
