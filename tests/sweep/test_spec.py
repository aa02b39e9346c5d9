"""Two sweeps are the same when their numbers and functions are; what differs is named."""

import functools
import json
import textwrap
import types

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gradflow.activations import Sigmoid
from gradflow.sweep import Descent, Flow, spec
from gradflow.sweep.spec import differences, digest, plain

SOURCE = """
import equinox, functools, jax
SIZE, TABLE = 3, (1.0, 2.0)

def loss(model, args):
    return (model * args).sum()

@jax.jit
def draw(key):
    return jax.random.normal(key, (SIZE,))

class Model(equinox.Module):
    x: jax.Array
    power: int = 2

    def __call__(self):
        return self.x**self.power

    @property
    def half(self):
        return self.x / 2

def build(key, *, scale, shift=0.5):
    inner = lambda x: x + shift
    return loss, Model(inner(draw(key))), TABLE
"""


def module(source: str) -> types.ModuleType:
    """A module as a notebook holds it: its functions have no source file."""
    made = types.ModuleType("made")
    exec(textwrap.dedent(source), made.__dict__)
    return made


@pytest.mark.parametrize(
    "change",
    [
        ("SIZE, TABLE = 3", "SIZE, TABLE = 4"),
        ("(1.0, 2.0)", "(1.0, 2.5)"),
        ("(model * args).sum()", "(model * args).mean()"),
        ("jax.random.normal", "jax.random.uniform"),
        ("shift=0.5", "shift=0.25"),
        ("x + shift", "x - shift"),
        ("self.x**self.power", "self.x * self.power"),
        ("self.x / 2", "self.x / 3"),
        ("power: int = 2", "power: int = 3"),
    ],
)
def test_a_function_is_known_by_all_it_uses(change):
    before, after = module(SOURCE), module(SOURCE.replace(*change))
    assert plain(before.build) == plain(module(SOURCE).build)
    assert plain(before.build) != plain(after.build)
    assert list(differences({"build": plain(before.build)}, {"build": plain(after.build)})) == [
        "build has another source"
    ]


def test_a_function_of_a_file_is_known_by_its_source(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    found = []
    for i, text in enumerate([SOURCE, SOURCE.replace("+ shift", "- shift"), "# moved\n" + SOURCE]):
        (tmp_path / f"written{i}.py").write_text(text)
        found.append(plain(__import__(f"written{i}").build))
    assert found[0] == found[2] != found[1]


def test_lambdas_on_one_line_differ():
    first, second, third = (lambda t: t + 1), (lambda t: t + 2), (lambda t: t + 1)
    assert plain(first) == plain(third) != plain(second)
    name = "other"
    assert list(differences({"observe": plain(first)}, {"observe": plain(name)})) == [
        f"observe is {first.__qualname__} (here other)"
    ]


def test_a_lambda_of_another_python_is_named_as_the_cause(monkeypatch):
    def holder(t):
        return (lambda: first)()(t)

    first = lambda t: t + 1  # noqa: E731
    here = {"observe": plain(holder), "build": plain(named), "method": {"stop": plain(first)}}
    monkeypatch.setattr(spec, "PYTHON", "3.99")
    there = {"observe": plain(holder), "build": plain(named), "method": {"stop": plain(first)}}
    texts = list(differences(here, there))
    assert [text.split(" holds a lambda, known by its bytecode")[0] for text in texts] == ["observe", "method.stop"]
    assert all("(here 3.99; a function written by `def` in a module is known by its source" in text for text in texts)


def named(key):
    return key


def test_functions_that_call_each_other_end():
    made = module("def one(x):\n    return two(x)\n\ndef two(x):\n    return one(x)\n")
    assert plain(made.one) == plain(made.one) != plain(made.two)


class Loss(eqx.Module):
    weight: jax.Array

    def value(self, model, args):
        return (self.weight * model).sum()


def test_everything_becomes_json():
    values = [
        Flow(t1=1.0, ts=np.arange(3.0), stop=lambda t, m, a: t > 1),
        Descent(optax.adam(1e-3), steps=3),
        Descent(functools.partial(optax.adam, b1=0.5), steps=3, hyperparameters={"learning_rate": "eta"}),
        [Sigmoid(-1.0), jnp.ones((2, 2)), jax.random.key(3), jnp.tanh, jax.nn.relu, Sigmoid, Loss(jnp.ones(2)).value],
        [float("inf"), None, True, range(3), np.float64(2.0), {"a": (1, 2)}, np.arange(2000), list(range(2000))],
    ]
    for value in values:
        text = json.dumps(plain(value))
        assert "0x" not in text
        assert json.loads(text) == plain(value)
        assert digest(plain(value)) == digest(json.loads(text))
    assert plain(np.arange(2000)) != plain(np.arange(2000) + 1)
    assert plain(Loss(jnp.ones(2)).value) != plain(Loss(jnp.zeros(2)).value)
    assert plain(optax.adam(1e-3)) == plain(optax.adam(1e-3)) != plain(optax.adam(1e-2))


def test_differences_name_what_changed():
    earlier = plain({"method": Flow(t1=1.0, rtol=1e-6), "axes": {"kappa": [1.0, 2.0]}, "key": [0, 1]})
    here = plain({"method": Flow(t1=2.0, rtol=1e-6, ts=[1.0]), "axes": {"kappa": [1.0, 3.0]}, "key": [0, 1]})
    assert list(differences(earlier, here)) == [
        "method.t1 = 1.0 (here 2.0)",
        "method.ts = null (here [1.0])",
        "axes.kappa = [1.0, 2.0] (here [1.0, 3.0])",
    ]
    assert list(differences(earlier, earlier)) == []
    (text,) = differences({"a": list(range(500))}, {"a": list(range(501))})
    assert len(text) < 200 and "(500 values)" in text and "(501 values)" in text
    stops = [plain({"stop": function}) for function in (lambda t: t > 1, lambda t: t > 2)]
    assert list(differences(*stops)) == ["stop has another source"]
