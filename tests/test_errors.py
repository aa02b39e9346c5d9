"""The exception, the warning, and the words they use."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradflow as gf
from gradflow.errors import is_traced, nearest, shown, unknown, whole_number


def test_flow_error_is_a_value_error_with_a_trajectory():
    error = gf.FlowError("x is 1: use 2", trajectory="run")
    assert isinstance(error, ValueError)
    assert (str(error), error.trajectory) == ("x is 1: use 2", "run")
    assert gf.FlowError("x").trajectory is None


def test_interrupted_is_a_keyboard_interrupt():
    error = gf.Interrupted("run")
    assert isinstance(error, KeyboardInterrupt)
    assert error.trajectory == "run"
    assert "interrupted" in str(error)


def test_nearest():
    assert nearest("sofmax", ["softmax", "relu"]) == "; did you mean 'softmax'?"
    assert nearest("zzz", ["b", "a"]) == "; choose one of a, b."
    assert "unknown map 'sofmax'; did you mean 'softmax'?" in str(unknown("map", "sofmax", ["softmax"]))


@pytest.mark.parametrize("value", [1, 1.0, np.int64(1), np.float32(1), jnp.asarray(1)])
def test_whole_numbers(value):
    result = whole_number("n", value)
    assert (result, type(result)) == (1, int)


@pytest.mark.parametrize("value", [0, -1, 1.5, np.nan, np.inf, True, None, "1", [1], 1 + 0j])
def test_not_whole_numbers(value):
    with pytest.raises(gf.FlowError, match=r"n is .*: it must be a whole number, at least 1"):
        whole_number("n", value)


def test_values_are_shown_on_one_short_line():
    assert shown("x") == "'x'"
    text = shown(np.ones((20, 20)))
    assert len(text) == 60 and "\n" not in text and text.endswith("...")


def test_is_traced():
    seen = []
    jax.jit(lambda x: seen.append(is_traced({"a": x, "b": 1})) or x)(1.0)
    assert seen == [True]
    assert not is_traced({"a": jnp.ones(2), "b": None})
