"""What a run returns: names of codes, rows that were not reached, observables that cannot be saved."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradflow as gf
from gradflow.trajectory import blank, is_successful, observed_arrays, result_name


def square_norm(model, args):
    return 0.5 * jnp.sum(model**2)


def mixed(t, model, args):
    return {"float": model, "int": jnp.arange(2), "bool": model > 0, "number": 1.5, "numpy": np.ones(2), "time": t}


def never(t, model, args):
    return t > 0.5


def test_rows_that_were_not_reached():
    run = gf.gradient_flow(
        square_norm, jnp.ones(2), t1=10.0, ts=[0.0, 0.1, 9.0], observe=mixed, stop=never, throw=False
    )
    np.testing.assert_array_equal(run.valid, [True, True, False])
    assert np.isnan(run.observed["float"][2]).all()
    assert np.isnan(run.observed["time"][2])
    np.testing.assert_array_equal(run.observed["int"], [[0, 1], [0, 1], [0, 0]])
    assert run.observed["bool"].dtype == bool
    assert not run.observed["bool"][2].any()
    np.testing.assert_array_equal(run.observed["number"][:2], 1.5)


def test_a_member_of_an_ensemble_is_its_run():
    models = jnp.array([[1.0, 2.0], [3.0, 4.0]])
    runs = gf.gradient_flow_ensemble(square_norm, models, t1=1.0, ts=[0.5, 1.0], solver="tsit5")
    one = runs.member(-1)
    np.testing.assert_array_equal(one.observed, runs.observed[1])
    assert one.status == "successful" and one.ts.shape == (2,) and one.stats["num_steps"] == runs.stats["num_steps"][1]
    with pytest.raises(gf.FlowError, match="2 members"):
        runs.member(2)
    with pytest.raises(gf.FlowError, match="no members"):
        one.member(0)


def test_blank():
    tree = {"a": jnp.ones((3, 2)), "b": jnp.ones(3, jnp.int32), "c": jnp.ones((3, 1), bool)}
    blanked = blank(tree, jnp.array([True, False, True]))
    np.testing.assert_array_equal(blanked["a"][:, 0], [1, np.nan, 1])
    np.testing.assert_array_equal(blanked["b"], [1, 0, 1])
    np.testing.assert_array_equal(blanked["c"][:, 0], [True, False, True])


def test_a_trajectory_is_a_pytree():
    run = gf.gradient_flow(square_norm, jnp.ones(2), t1=1.0)
    doubled = jax.tree.map(lambda x: 2 * x if jnp.issubdtype(x.dtype, jnp.floating) else x, run)
    assert isinstance(doubled, gf.Trajectory)
    assert doubled.status == "successful"
    np.testing.assert_allclose(doubled.final, 2 * run.final)


def test_status_message_and_success():
    assert result_name(gf.RESULTS.kink) == "kink"
    assert result_name(gf.RESULTS.max_steps_reached) == "max_steps_reached"
    run = gf.gradient_flow(square_norm, jnp.ones(2), t1=1.0)
    assert (run.status, run.message) == ("successful", "The run reached its end.")
    assert bool(is_successful(run.result))
    assert bool(is_successful(gf.RESULTS.event_occurred))
    assert not bool(is_successful(gf.RESULTS.stiff))


@pytest.mark.parametrize(
    ("returned", "match"),
    [
        ("x", "observe returned str 'x' at `its root`"),
        ({"a": jnp.ones(1), "b": jnp.tanh}, r"at `\['b'\]`"),
        (None, "holds no array"),
        ({}, "holds no array"),
        (jnp.tanh, "return a pytree of arrays"),
    ],
)
def test_what_cannot_be_saved(returned, match):
    with pytest.raises(gf.FlowError, match=match):
        observed_arrays(lambda t, m, a: returned, 0.0, None, None)
