"""Functions that carry arrays or tracers, or are made anew, are named."""

import functools
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import gradflow as gf
from gradflow.callables import REMADE_LIMIT, check_callable, essence


def plain(model, args):
    return jnp.sum(model**2)


def weighted(weights, model, args):
    return jnp.sum(weights * model**2)


def closing_over(weights):
    def closed(model, args):
        return jnp.sum(weights * model**2)

    return closed


def caught_warnings(function):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    return [str(w.message) for w in caught if issubclass(w.category, gf.FlowWarning)]


def test_a_plain_function_is_silent():
    assert caught_warnings(lambda: [check_callable("loss", plain) for _ in range(10)]) == []
    assert caught_warnings(lambda: check_callable("loss", functools.partial(weighted, 2.0))) == []


def test_closing_over_an_array_is_said_once():
    messages = caught_warnings(lambda: [check_callable("loss", closing_over(jnp.ones(2))) for _ in range(2)])
    assert len(messages) == 1
    assert "loss `closing_over.<locals>.closed` closes over the array `weights`" in messages[0]
    assert "pass it through `args`" in messages[0]


class Holder:
    """A plain object with arrays, whose method is the loss."""

    def __init__(self):
        self.weights = jnp.ones(2)

    def loss(self, model, args):
        return jnp.sum(self.weights * model**2)


def test_tracers_are_refused():
    def inside(weights):
        return gf.gradient_flow(closing_over(weights), jnp.ones(2), t1=1.0).final

    with pytest.raises(gf.FlowError, match=r"loss closes over `weights`, a value being traced .*through `args`"):
        jax.jit(inside)(jnp.ones(2))
    with pytest.raises(gf.FlowError, match="loss closes over `argument 0`, a value being traced"):
        jax.grad(lambda w: gf.gradient_flow(functools.partial(weighted, w), jnp.ones(2), t1=1.0).final.sum())(
            jnp.ones(2)
        )
    with pytest.raises(gf.FlowError, match="observe closes over `scale`"):
        jax.jit(lambda scale: gf.gradient_flow(plain, jnp.ones(2), t1=1.0, observe=lambda t, m, a: scale * m).observed)(
            2.0
        )


def test_made_anew_is_said_once():
    kept = []

    def again():
        def anew(model, args):
            return jnp.sum(model**2)

        kept.append(anew)
        check_callable("observe", anew)

    messages = caught_warnings(lambda: [again() for _ in range(3 * REMADE_LIMIT)])
    assert len(messages) == 1
    assert "observe `test_made_anew_is_said_once.<locals>.again.<locals>.anew` was made anew" in messages[0]
    assert "define it once" in messages[0]


def test_functions_of_equal_text_are_no_remakes():
    def define():
        namespace = {}
        exec("def loss(model, args):\n    return (model**2).sum()\n", namespace)
        return namespace["loss"]

    functions = [define() for _ in range(3 * REMADE_LIMIT)]  # a notebook cell that is run again and again
    assert caught_warnings(lambda: [check_callable("loss", function) for function in functions]) == []


class Loss(eqx.Module):
    weights: jax.Array

    def __call__(self, model, args):
        return jnp.sum(self.weights * model**2)

    def method(self, model, args):
        return self(model, args)


@pytest.mark.parametrize("function", [Loss(jnp.ones(2)), Loss(jnp.ones(2)).method], ids=["module", "method"])
def test_modules_that_hold_arrays_are_refused(function):
    with pytest.raises(gf.FlowError, match="holds arrays, so it cannot pick a kernel: write a function"):
        gf.gradient_flow(function, jnp.ones(2), t1=1.0)


def test_modules_without_arrays_are_functions():
    class Power(eqx.Module):
        exponent: int = eqx.field(static=True)

        def __call__(self, model, args):
            return 0.5 * jnp.sum(model**self.exponent)

    run = gf.gradient_flow(Power(2), jnp.ones(2), t1=1.0)
    assert float(run.final[0]) == pytest.approx(0.36788, abs=1e-5)


def test_a_method_of_an_object_with_arrays():
    holder = Holder()
    messages = caught_warnings(lambda: gf.gradient_flow(holder.loss, jnp.ones(2), t1=1.0))
    assert len(messages) <= 1


def test_not_callable():
    with pytest.raises(gf.FlowError, match="stop is 3, not a callable"):
        check_callable("stop", 3)


def made(scale, power=2, *, offset=0.0):
    """Functions of one definition, recursive ones among them."""

    def loss(model, args, shift=offset):
        return scale * model**power + shift if args else loss(model, True)

    return loss


SAME = [
    (plain, plain),
    (made(2.0), made(2.0)),
    (functools.partial(made(plain), args=(1, (made(1),))), functools.partial(made(plain), args=(1, (made(1),)))),
    (Holder.loss, Holder.loss),
]
OTHER = [
    (made(2.0), made(3.0)),
    (made(2.0), made(2)),
    (made(0.0), made(-0.0)),
    (made(2.0), made(2.0, 3)),
    (made(2.0), made(2.0, offset=1.0)),
    (made(made(1.0)), made(made(2.0))),
    (made(jnp.ones(2)), made(jnp.ones(2))),
    (Holder().loss, Holder().loss),
    (functools.partial(weighted, 2.0), functools.partial(weighted, 3.0)),
    (functools.partial(plain, args=1), functools.partial(plain, args=True)),
]


@pytest.mark.parametrize(("one", "two"), SAME)
def test_functions_that_do_the_same_have_one_essence(one, two):
    assert essence(one) == essence(two) and hash(essence(one)) == hash(essence(two))


@pytest.mark.parametrize(("one", "two"), OTHER)
def test_functions_that_may_differ_have_their_own(one, two):
    assert essence(one) != essence(two) and essence(one) == essence(one)
