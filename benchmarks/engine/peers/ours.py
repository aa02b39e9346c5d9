"""gradflow: the loss and the model as a user writes them, derivatives by JAX."""

from collections import Counter

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import gradflow as gf
from benchmarks.engine.outcome import Outcome
from benchmarks.engine.problems import Ensemble


def _entropy(t, model, args):
    return gf.diagnostics.entropy(model.weights)


class Ours:
    """The members of an ensemble in `gradient_flow_ensemble`."""

    def __init__(self, ensemble: Ensemble, solver: str = "auto", threads: int | None = None, lanes: int | None = None):
        """Turn arrays into models and data; the square loss with Hessian H is that of the design sqrt(d H)."""
        self.ensemble, self.solver, self.threads, self.lanes = ensemble, solver, threads, lanes
        self.models = gf.models.ValueSoftmax(jnp.asarray(ensemble.values), jnp.asarray(ensemble.scores))
        if ensemble.kind == "square":
            self.loss, self.data, axis = gf.losses.square, _design(ensemble), 0
        else:
            self.loss, axis = gf.losses.logistic, None
            self.data = gf.tasks.Data(jnp.asarray(ensemble.first[0]), jnp.ones(1))
        self.in_axes = (eqx.if_array(0), axis)

    def run(self, rtol: float):
        """Solve, and wait for the answer."""
        return jax.block_until_ready(
            gf.gradient_flow_ensemble(
                self.loss,
                self.models,
                self.data,
                in_axes=self.in_axes,
                t1=self.ensemble.t1,
                ts=self.ensemble.ts,
                observe=None if self.ensemble.ts is None else _entropy,
                solver=self.solver,
                rtol=rtol,
                atol=1e-3 * rtol,
                max_steps=10_000_000,
                threads=self.threads,
                lanes=self.lanes,
            )
        )

    def read(self, raw) -> Outcome:
        """Return the answer of a run."""
        names = Counter(np.ravel(raw.status).tolist())
        note = "" if set(names) == {"successful"} else f"ended: {dict(names)}"
        return Outcome(
            values=np.asarray(raw.final.values),
            scores=np.asarray(raw.final.scores),
            steps=np.asarray(raw.stats["num_steps"]),
            gradients=np.asarray(raw.stats["num_gradients"]),
            saved=None if self.ensemble.ts is None else np.asarray(raw.observed),
            note=note,
        )


class OursAlone:
    """The only member of an ensemble in `gradient_flow`."""

    def __init__(self, ensemble: Ensemble, solver: str = "auto"):
        """Turn arrays into a model and data."""
        self.solver, self.t1 = solver, float(ensemble.t1[0])
        self.model = gf.models.ValueSoftmax(jnp.asarray(ensemble.values[0]), jnp.asarray(ensemble.scores[0]))
        self.data = jax.tree.map(lambda x: x[0], _design(ensemble))

    def run(self, rtol: float):
        """Solve, and wait for the answer."""
        return jax.block_until_ready(
            gf.gradient_flow(
                gf.losses.square, self.model, self.data, t1=self.t1, rtol=rtol, solver=self.solver,
                max_steps=10_000_000, throw=False,
            )
        )  # fmt: skip

    def read(self, raw) -> Outcome:
        """Return the answer of a run."""
        counts = (np.asarray(raw.stats[name])[None] for name in ("num_steps", "num_gradients"))
        note = "" if raw.status == "successful" else f"ended: {raw.status}"
        return Outcome(np.asarray(raw.final.values)[None], np.asarray(raw.final.scores)[None], *counts, note=note)


def _design(ensemble: Ensemble) -> gf.tasks.Data:
    """Return x with x^T x / d = H, and y = x w, so that mean (x . beta - y)^2 / 2 = (beta - w)^T H (beta - w) / 2."""
    eigenvalues, vectors = np.linalg.eigh(ensemble.first)
    d = eigenvalues.shape[-1]
    x = np.sqrt(d * eigenvalues)[..., None] * np.swapaxes(vectors, -1, -2)
    return gf.tasks.Data(jnp.asarray(x), jnp.asarray(x @ ensemble.second))
