"""What an axis may hold, which kernel its values share, and what they are called."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradflow.activations import Sigmoid, Softmax, by_name
from gradflow.errors import FlowError
from gradflow.sweep import Batched, Static, log_range
from gradflow.sweep.axes import dimensions


def kinds(axes) -> dict[str, str]:
    return {axis.name: axis.kind for dimension in dimensions(axes) for axis in dimension.axes}


def labels(values) -> list:
    return dimensions({"a": values})[0].axes[0].labels.tolist()


def test_kinds_of_axes():
    axes = {
        "floats": [0.1, 1.0],
        "mixed": [0, 0.5],
        "array": np.array([1.0, 2.0]),
        "jax": jnp.array([1.0, 2.0]),
        "seed": range(3),
        "ints": [1, 2],
        "flags": [True, False],
        "words": ["a", "b"],
        "modules": [Softmax(), Sigmoid(-1.0)],
        "batched": Batched([1, 2]),
        "static": Static([0.1, 1.0]),
    }
    shared = {"floats", "mixed", "array", "jax", "batched"}
    assert kinds(axes) == {name: "batched" if name in shared else "static" for name in axes} | {"seed": "seed"}
    assert kinds({"seed": [3, 5]}) == {"seed": "seed"}
    assert kinds({"seed": Static([3, 5])}) == {"seed": "static"}
    assert kinds({}) == {}


def test_labels():
    assert labels([0.1, 1]) == [0.1, 1.0] and labels([2, 3]) == [2, 3] and labels([True]) == [True]
    assert labels(["a", None, 3]) == ["a", "None", "3"]
    assert labels([Softmax(), Sigmoid(-1.0), by_name("normalised-sigmoid")])[1] == "Sigmoid(bias=-1.0)"
    assert labels([jax.nn.relu, jnp.tanh, kinds]) == ["relu", "tanh", "kinds"]
    assert labels(Static({"small": jnp.zeros(3), "large": lambda x: x})) == ["small", "large"]
    assert labels(jnp.arange(2)) == [0, 1] and labels(x / 2 for x in range(2)) == [0.0, 0.5]


def test_zipped_axes_advance_together():
    (dimension,) = dimensions({("scale", "kappa"): [(0.1, 1.0), (1, 10)]})
    assert dimension.name == "scale_kappa" and dimension.size == 2 and dimension.batched
    assert [axis.labels.tolist() for axis in dimension.axes] == [[0.1, 1.0], [1.0, 10.0]]
    (dimension,) = dimensions({("name", "kappa"): [("a", 1.0), ("b", 1.0)]})
    assert not dimension.batched and [axis.kind for axis in dimension.axes] == ["static", "batched"]
    (dimension,) = dimensions({("n", "m"): Batched([(1, 2), (1, 3)])})
    assert dimension.batched


def test_log_range_has_exact_ends():
    numbers = log_range(1, 1e4, 25)
    assert (numbers[0], numbers[-1], len(numbers)) == (1.0, 1e4, 25)
    np.testing.assert_allclose(np.diff(np.log(numbers)), np.log(1e4) / 24)
    assert log_range(10, 0.1, 2).tolist() == [10, 0.1] and log_range(1, 3, 1).tolist() == [3]


@pytest.mark.parametrize(
    ("axes", "match"),
    [
        ({"key": [1.0]}, "'key', which the sweep itself uses"),
        ({"time": [1.0]}, "'time', which the sweep itself uses"),
        ({"result": [1.0]}, "'result', which the sweep itself uses"),
        ({"my axis": [1.0]}, "'my axis': names are parameters"),
        ({3: [1.0]}, "name 3"),
        ({"a": []}, "axis 'a' is empty"),
        ({"seed": range(0)}, "axis 'seed' is empty"),
        ({"a": "softmax"}, "axis 'a' is 'softmax': give a list"),
        ({"a": 3.0}, "axis 'a' is 3.0: give a list"),
        ({"a": [1.0, float("nan")]}, "axis 'a' holds NaN"),
        ({"a": Static([np.nan])}, "axis 'a' holds NaN"),
        ({"a": [1.0, 2.0, 1]}, "axis 'a' holds 1.0 twice"),
        ({"a": ["x", "x"]}, "axis 'a' holds 'x' twice"),
        ({"a": [Sigmoid(-1.0), Sigmoid(-1.0)]}, "twice.*gf.Static"),
        ({"a": [lambda x: x]}, "a function without a short name of its own: name it, gf.Static"),
        ({"a": [functools.partial(jnp.sum, axis=0)]}, "a partial without a short name"),
        ({"a": [object()]}, "a object without a short name"),
        ({"a": [jnp.zeros(3)]}, "without a short name"),
        ({"a": ["x" * 61]}, "a str without a short name"),
        ({"a": Batched(["x"])}, "axis 'a' is batched, but holds 'x'"),
        ({"seed": [-1]}, "seed.* is -1"),
        ({"seed": [0.5]}, "seed.* is 0.5"),
        ({"seed": [2**32]}, "seeds lie between"),
        ({("a", "b"): [(1.0, 2.0), (1.0,)]}, "each row needs 2 values"),
        ({("a", "b"): [(1.0, 2.0), (1.0, 2.0)]}, "twice"),
        ({("a",): [(1.0,)]}, "several names"),
        ({("a", "b"): [(1.0, 2.0)], "a": [1.0]}, "'a' twice"),
        ([("a", [1.0])], "give a dictionary"),
    ],
)
def test_bad_axes(axes, match):
    with pytest.raises(FlowError, match=match) as caught:
        dimensions(axes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("arguments", "match"), [((0, 1, 3), "positive ends"), ((1, 2, 0), "n is 0")])
def test_bad_ranges(arguments, match):
    with pytest.raises(FlowError, match=match):
        log_range(*arguments)
