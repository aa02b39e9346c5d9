"""Diffrax as its documentation says: `diffeqsolve`, a PID controller, and `vmap` or `lax.map` over members."""

import functools
from collections.abc import Callable

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.engine.outcome import Outcome
from benchmarks.engine.problems import Ensemble

MAX_STEPS = 10_000_000


class Diffrax:
    """The members of an ensemble under one Diffrax solver, with the gradient of the loss written out."""

    def __init__(
        self, ensemble: Ensemble, solver: diffrax.AbstractSolver | None = None, order=None, batch: int | None = None
    ):
        """Choose how members are mapped.

        Args:
            ensemble: what to solve.
            solver: None is `diffrax.Tsit5()`.
            order: members from the cheapest to the dearest, for `lax.map`.
            batch: None is `vmap`; else members that `lax.map` takes at a time.
        """
        self.order = np.arange(ensemble.members) if order is None else np.asarray(order)
        ordered = ensemble.take(self.order)
        arrays = (ordered.values, ordered.scores, ordered.first, ordered.t1)
        self.arrays = [jnp.asarray(x) for x in arrays]
        self.shared = jnp.asarray(ensemble.second)
        self.ts = None if ensemble.ts is None else jnp.asarray(ensemble.ts)
        solver = diffrax.Tsit5() if solver is None else solver
        self.solve = _compiled(ensemble.kind, solver, batch, ensemble.ts is not None)
        self.stages = solver.tableau.num_stages - 1 if isinstance(solver, diffrax.AbstractERK) else 0

    def run(self, rtol: float):
        """Solve, and wait for the answer."""
        return jax.block_until_ready(self.solve(self.arrays, self.shared, self.ts, rtol))

    def read(self, raw) -> Outcome:
        """Return the answer of a run, in the ensemble's own order."""
        back = np.argsort(self.order)
        (values, scores), saved, steps = jax.tree.map(lambda x: np.asarray(x)[back], raw)
        gradients = self.stages * steps + 2 if self.stages else np.full_like(steps, -1)
        return Outcome(values, scores, steps, gradients, saved)


def _square(beta, hessian, target):
    return hessian @ (beta - target)


def _logistic(beta, sample, unused):
    return -sample[0] * jax.nn.sigmoid(-sample[0] @ beta)


def field(slope: Callable) -> Callable:
    """Return the velocity of (V, a) under the gradient `slope(beta, first, second)` of the loss by beta."""

    def velocity(t, y, args):
        values, scores = y
        s = jax.nn.softmax(scores)
        g = slope(values @ s, *args)
        q = values.T @ g
        return -jnp.outer(g, s), -s * (q - s @ q)

    return velocity


def _entropy(t, y, args):
    return jax.scipy.special.entr(jax.nn.softmax(y[1])).sum()


@functools.cache
def _compiled(kind: str, solver: diffrax.AbstractSolver, batch: int | None, saves: bool):
    term = diffrax.ODETerm(field({"square": _square, "logistic": _logistic}[kind]))

    def member(values, scores, first, t1, second, ts, rtol):
        subs = [diffrax.SubSaveAt(t1=True), *([diffrax.SubSaveAt(ts=ts, fn=_entropy)] if saves else [])]
        solution = diffrax.diffeqsolve(
            term,
            solver,
            0.0,
            t1,
            None,
            (values, scores),
            (first, second),
            saveat=diffrax.SaveAt(subs=subs),
            stepsize_controller=diffrax.PIDController(rtol=rtol, atol=1e-3 * rtol),
            max_steps=MAX_STEPS,
            adjoint=diffrax.ForwardMode(),  # the plain loop, without checkpoints for a reverse mode
            throw=False,
        )
        final = jax.tree.map(lambda x: x[0], solution.ys[0])
        return final, solution.ys[1] if saves else None, solution.stats["num_steps"]

    @jax.jit
    def solve(arrays, second, ts, rtol):
        def one(arrays):
            return member(*arrays, second, ts, rtol)

        if arrays[0].shape[0] == 1:  # under vmap a branch that is not taken is computed all the same
            return jax.tree.map(lambda x: x[None], one([x[0] for x in arrays]))
        return jax.vmap(one)(arrays) if batch is None else lax.map(one, arrays, batch_size=batch)

    return solve
