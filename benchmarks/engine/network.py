"""Networks on handwritten digits: a tanh MLP of 85,002 parameters and a block of softmax attention, in float32."""

import dataclasses
import functools
import math
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

import gradflow as gf
from benchmarks.engine.line import Line

WIDTH, TOKENS, CLASSES = 32, 8, 10
REFERENCE_RTOL = 1e-6  # in float64
FAR = 0.3  # an answer this far from the reference, relative to how far the parameters moved, is another answer
OTHERS = (10.0, 3.0, 0.3)  # times the tolerance of Tsit5, among which the cheapest with its error is sought
SLACK = 1.2
LONG = 20.0  # seconds above which a call is not repeated
MOST_STEPS = 5_000  # of Tsit5, after which its time is a lower bound


class Attention(eqx.Module):
    """The eight rows of a digit as tokens, one head of softmax attention with a residual, their mean, a read-out."""

    embedding: Float[Array, "8 w"]
    positions: Float[Array, "8 w"]
    query: Float[Array, "w w"]
    key: Float[Array, "w w"]
    value: Float[Array, "w w"]
    readout: Float[Array, "w c"]

    def __init__(self, key):
        keys = jax.random.split(key, 6)
        shapes = [(TOKENS, WIDTH), (TOKENS, WIDTH), *[(WIDTH, WIDTH)] * 3, (WIDTH, CLASSES)]
        arrays = [jax.random.normal(k, shape) / math.sqrt(shape[0]) for k, shape in zip(keys, shapes, strict=True)]
        self.embedding, self.positions, self.query, self.key, self.value, self.readout = arrays

    def __call__(self, x: Float[Array, " 64"]) -> Float[Array, " c"]:
        """Return the logits of one digit."""
        tokens = x.reshape(TOKENS, TOKENS) @ self.embedding + self.positions
        scores = (tokens @ self.query) @ (tokens @ self.key).T / math.sqrt(WIDTH)
        mixed = tokens + jax.nn.softmax(scores, axis=-1) @ (tokens @ self.value)
        return mixed.mean(axis=0) @ self.readout


class Digits(eqx.Module):
    """Pixels in [0, 1] and classes."""

    x: Float[Array, "N 64"]
    y: Int[Array, " N"]


def mlp(key) -> eqx.nn.MLP:
    """Draw the MLP 64-256-256-10."""
    return eqx.nn.MLP(64, CLASSES, 256, 2, activation=jnp.tanh, key=key)


def square(model: Callable, data: Digits) -> Float[Array, ""]:
    """Return the mean squared distance of the outputs from the one-hot classes."""
    wrong = jax.vmap(model)(data.x) - jax.nn.one_hot(data.y, CLASSES, dtype=data.x.dtype)
    return jnp.mean(jnp.sum(wrong**2, axis=1))


def cross_entropy(model: Callable, data: Digits) -> Float[Array, ""]:
    """Return the mean of -log softmax(outputs)[class]."""
    log_p = jax.nn.log_softmax(jax.vmap(model)(data.x))
    return -jnp.mean(jnp.take_along_axis(log_p, data.y[:, None], axis=1))


@dataclasses.dataclass(frozen=True)
class Case:
    """One network, loss, horizon and tolerance.

    Attributes:
        name: of the workload.
        build: draws the network.
        loss: of network and digits.
        t1: horizon.
        rtol: relative tolerance; the absolute one is a thousandth of it.
        gradients: how many times fewer gradients than Tsit5 to reach, or "".
        seconds: how many times faster than Tsit5 to be, or "".
    """

    name: str
    build: Callable
    loss: Callable
    t1: float
    rtol: float
    gradients: str = ""
    seconds: str = "0.91"


def run(quick: bool = False) -> Iterator[Line]:
    """Compare with Tsit5 of Diffrax at the same tolerance, case by case."""
    for case in _cases(quick):
        print(f"  {case.name}", file=sys.stderr)
        yield from _measure(case, 128 if quick else None)


def _cases(quick: bool) -> list[Case]:
    horizons = (10.0,) if quick else (10.0, 100.0, 1000.0)
    tolerances = (1e-3,) if quick else (1e-3, 1e-4)
    mean_square = [
        Case(f"MLP on digits, square loss, t = {t:g}, rtol {rtol:.0e}", mlp, square, t, rtol, "10", "8")
        for t in ((10.0,) if quick else (100.0,))
        for rtol in tolerances
    ]
    entropy = [
        Case(f"{name} on digits, cross-entropy, t = {t:g}, rtol {rtol:.0e}", build, cross_entropy, t, rtol)
        for name, build in (("MLP", mlp), ("attention", Attention))
        for t in horizons
        for rtol in tolerances
    ]
    return [*mean_square, *entropy]


@functools.cache
def _digits(rows: int | None):
    from sklearn.datasets import load_digits

    inputs, classes = load_digits(return_X_y=True)
    return inputs[:rows] / 16, classes[:rows]


def _problem(case: Case, rows: int | None, dtype) -> tuple[Any, Digits]:
    model = case.build(jax.random.key(0))
    cast = jax.tree.map(lambda x: x.astype(dtype) if eqx.is_inexact_array(x) else x, model)
    inputs, classes = _digits(rows)
    return cast, Digits(jnp.asarray(inputs, dtype), jnp.asarray(classes))


def _gradflow(case: Case, model, data, rtol: float, t1: float):
    trajectory = gf.gradient_flow(case.loss, model, data, t1=t1, rtol=rtol, max_steps=10_000_000, throw=False)
    if trajectory.status != "successful":
        raise AssertionError(f"{case.name}: gradflow ended with {trajectory.status}")
    return jax.block_until_ready(trajectory.final), trajectory.stats


@eqx.filter_jit
def _tsit5(loss, model, data, rtol, t1):
    arrays, static = eqx.partition(model, eqx.is_inexact_array)

    def velocity(t, y, data):
        return jax.tree.map(jnp.negative, jax.grad(lambda y: loss(eqx.combine(y, static), data))(y))

    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(velocity),
        diffrax.Tsit5(),
        jnp.zeros_like(t1),
        t1,
        None,
        arrays,
        data,
        stepsize_controller=diffrax.PIDController(rtol=rtol, atol=1e-3 * rtol),
        max_steps=MOST_STEPS,
        adjoint=diffrax.ForwardMode(),
        throw=False,
    )
    final = eqx.combine(jax.tree.map(lambda x: x[0], solution.ys), static)
    return final, solution.stats["num_steps"], diffrax.is_successful(solution.result)


def _diffrax(case: Case, model, data, rtol: float, t1: float):
    numbers = (jnp.asarray(x, data.x.dtype) for x in (rtol, t1))
    final, steps, ended = jax.block_until_ready(_tsit5(case.loss, model, data, *numbers))
    return (final if ended else None), {"num_steps": steps, "num_gradients": 6 * steps + 2}


def _measure(case: Case, rows: int | None) -> list[Line]:
    exact = _flat(_gradflow(case, *_problem(case, rows, jnp.float64), REFERENCE_RTOL, case.t1)[0])
    model, data = _problem(case, rows, jnp.float32)
    start = _flat(model)

    def line(name: str, solve: Callable, rtol: float) -> Line:
        first = _seconds(solve, case, model, data, rtol, 1e-3)[1]  # the same kernel: the horizon is an argument
        (final, stats), warm = _seconds(solve, case, model, data, rtol, case.t1)
        for _ in range(2 if warm < LONG else 0):
            warm = min(warm, _seconds(solve, case, model, data, rtol, case.t1)[1])
        steps, gradients = (float(stats[key]) for key in ("num_steps", "num_gradients"))
        note = f"rtol {rtol:.0e}"
        if final is None:
            note += f"; stopped after {MOST_STEPS:,} steps, so the ratios are lower bounds"
            return Line(case.name, name, first, warm, steps=steps, gradients=gradients, note=note)
        error = float(np.linalg.norm(_flat(final) - exact) / np.linalg.norm(exact - start))
        if not error < FAR:
            raise AssertionError(f"{case.name}: {name} errs by {error:.1e}")
        return Line(case.name, name, first, warm, steps=steps, gradients=gradients, error=error, note=note)

    theirs = line("Diffrax, Tsit5", _diffrax, case.rtol)
    same = line("gradflow, same tolerance", _gradflow, case.rtol)
    others = [line("gradflow", _gradflow, factor * case.rtol) for factor in OTHERS]
    allowed = same.error if theirs.error is None else SLACK * theirs.error
    enough = [one for one in (same, *others) if one.error <= allowed]
    equal = min(enough or [same], key=lambda one: one.gradients)
    fewer = theirs.gradients / equal.gradients
    return [
        dataclasses.replace(equal, method="gradflow, equal error"),
        dataclasses.replace(same, ratio=same.warm / equal.warm),
        dataclasses.replace(theirs, ratio=theirs.warm / equal.warm, aim=case.seconds),
        Line(case.name, "gradients of Tsit5 over gradflow's", ratio=fewer, aim=case.gradients),
    ]


def _seconds(solve: Callable, *arguments) -> tuple[Any, float]:
    begin = time.perf_counter()
    result = solve(*arguments)
    return result, time.perf_counter() - begin


def _flat(model) -> Float[np.ndarray, " size"]:
    leaves = jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))
    return np.concatenate([np.ravel(x) for x in leaves]).astype(np.float64)
