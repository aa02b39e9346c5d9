"""What an audited run is: the facts about it on which the conditions of the laws depend."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from gradflow import losses
from gradflow.activations import Softmax
from gradflow.errors import FlowError, is_traced
from gradflow.flow.options import DEFAULT_RTOL
from gradflow.laws import measures
from gradflow.laws.invariants import has_primitive
from gradflow.laws.paths import at_rows, leaf_rates, saved_models, saved_times
from gradflow.laws.polarization.local import local
from gradflow.laws.routing.fused import head_cross_entropy
from gradflow.models import TiedSoftmax, ValueSoftmax
from gradflow.trajectory import Trajectory
from gradflow.types import Batch

_local = eqx.filter_jit(local)


class Tolerances(NamedTuple):
    """What residuals are held against.

    Attributes:
        exact: linear invariants, which Runge-Kutta steps keep to rounding, over the size of their terms.
        pointwise: identities at one model, relative or in clock units.
        integrated: quantities that the integrator keeps to its tolerance, over the size of their terms.
    """

    exact: float
    pointwise: float
    integrated: float


# float32 rounds at 6e-8, and the sums of a law have up to some thousand terms of mixed sign.
EXACT = {"float64": 1e-12, "float32": 1e-4}
POINTWISE = {"float64": 1e-10, "float32": 1e-3}
INTEGRATED_OVER_RTOL = 100.0


class Run:
    """A run as the laws see it.

    Attributes:
        loss: of the run.
        args: its data.
        rates: of the run.
        models: those saved, stacked, after the start if that is known.
        ts: their times (steps of a descent).
        from_start: whether the first row is the start.
        is_descent: whether the run is an optimiser's.
        is_point: whether there is no run, but one model.
        tolerances: for its dtype.
    """

    def __init__(
        self,
        trajectory: Any,
        loss: Callable,
        args: PyTree,
        rates: PyTree | None,
        initial: Any,
        rtol: float | None,
    ):
        if is_traced((trajectory, args)):
            raise FlowError("trajectory is being traced: call audit outside jit, grad and vmap")
        # The same numbers; the laws differentiate the loss in forward mode too.
        self.loss = losses.cross_entropy if loss is head_cross_entropy else loss
        self.args, self.rates = args, rates
        self.is_point = not isinstance(trajectory, Trajectory)
        if self.is_point:
            self.models, self.ts, self.is_descent = _stacked(trajectory, initial), np.zeros(1), False
        else:
            self._read(trajectory)
        self.from_start = bool(self.ts[0] == 0)
        if initial is not None and not self.from_start:
            self._prepend(initial)
        self.tolerances = self._tolerances(rtol)
        if rates is not None:
            leaf_rates(rates, self.models)  # refuse rates that do not fit before anything is computed

    def _read(self, trajectory: Trajectory) -> None:
        if np.ndim(trajectory.valid) != 1:
            shape = np.shape(trajectory.valid)
            raise FlowError(f"trajectory is an ensemble of shape {shape}: audit one, trajectory.member(0)")
        self.models, self.ts = saved_models(trajectory), saved_times(trajectory).astype(np.float64)
        self.is_descent = "stalled_fraction" in trajectory.stats

    def _prepend(self, initial: Any) -> None:
        if jax.tree.structure(initial) != jax.tree.structure(self.models):
            raise FlowError(f"initial is a {type(initial).__name__} of another structure than the models of the run")

        def join(first, rest):
            return jnp.concatenate([jnp.asarray(first)[None].astype(rest.dtype), rest]) if eqx.is_array(rest) else rest

        self.models = jax.tree.map(join, initial, self.models)
        self.ts = np.concatenate([[0.0], self.ts])
        self.from_start = True

    def _tolerances(self, rtol: float | None) -> Tolerances:
        floats = [leaf.dtype.name for leaf in jax.tree.leaves(self.models) if eqx.is_inexact_array(leaf)]
        name = floats[0]
        rtol = DEFAULT_RTOL[name] if rtol is None else rtol
        return Tolerances(EXACT[name], POINTWISE[name], INTEGRATED_OVER_RTOL * max(rtol, 1e-12))

    @functools.cached_property
    def pointwise(self) -> dict[str, Any]:
        """What `measures.pointwise` finds."""
        direction = None if self.why_no_softmax or self.why_many else self.direction
        options = {
            "softmax": not self.why_no_softmax,
            "form": not self.why_no_replicator,
            "tied": self.has_tied_identity,
        }
        return measures.pointwise(self.loss, self.models, self.args, self.rates, direction, **options)

    @property
    def losses(self) -> np.ndarray:
        """The loss at each row."""
        return np.asarray(self.pointwise["loss"], np.float64)

    @property
    def is_value_softmax(self) -> bool:
        """Whether the model is a value-softmax of any map."""
        return isinstance(self.models, ValueSoftmax)

    @property
    def why_no_softmax(self) -> str:
        """Why the laws of the softmax do not apply; empty if they do."""
        if not self.is_value_softmax:
            return "the model is no value-softmax"
        if not isinstance(self.models.activation, Softmax):
            return f"the map is {self.models.activation.name}"
        temperature = self.models.activation.temperature
        if isinstance(temperature, (int, float)):
            return ""
        return "the temperature is an array, which moves"

    @property
    def why_no_replicator(self) -> str:
        """Why the map has no replicator form; empty if it has one."""
        if not self.is_value_softmax:
            return "the model is no value-softmax"
        activation = self.models.activation
        fits = activation.normalised and has_primitive(activation)
        return "" if fits else f"the map {activation.name} is not normalised, or has no F"

    @property
    def n(self) -> int:
        """Number of values."""
        return self.models.scores.shape[-1]

    @property
    def unit(self) -> bool:
        """Whether all rates are 1 and, for a softmax, so is the temperature."""
        plain = self.rates is None or all(float(rate) == 1 for rate in leaf_rates(self.rates, self.models).values())
        return plain and getattr(getattr(self.models, "activation", None), "temperature", 1.0) == 1.0

    @functools.cached_property
    def start(self) -> Any:
        """The model of the first row."""
        return at_rows(self.models, 0)

    @functools.cached_property
    def why_many(self) -> str:
        """Why the one-sample theory does not apply; empty if it does."""
        x = getattr(self.args, "x", None)
        if x is None or np.ndim(x) != 2:
            return "args holds no samples"
        if len(x) != 1:
            return f"{len(x)} samples, not one"
        if self.direction is None:
            return "the gradient does not point along the sample"
        return ""

    @functools.cached_property
    def direction(self) -> Any:
        """The unit vector b* with g = -gamma b*, or None if the gradient is not along the one sample."""
        sample = jnp.asarray(self.args.x)[0]
        unit = sample / jnp.linalg.norm(sample)
        gradient = _local(self.loss, self.start, self.args).gradient
        along = jnp.dot(unit, gradient, precision="highest")
        rest = jnp.linalg.norm(gradient - along * unit)
        return None if rest > 1e-3 * jnp.abs(along) else -jnp.sign(along) * unit

    @property
    def uniform_start(self) -> bool:
        """Whether the scores of the first row are all equal."""
        return bool(jnp.ptp(self.start.scores) == 0)

    @property
    def equal_start(self) -> bool:
        """Whether scores and values of the first row are all equal: the saddle of law 10."""
        return self.uniform_start and bool((self.start.values == self.start.values[:, :1]).all())

    @property
    def unit_sample(self) -> bool:
        """Whether the one sample has unit norm."""
        return abs(float(jnp.linalg.norm(self.args.x[0])) - 1) < 1e-5

    def is_loss(self, *kinds: Callable) -> bool:
        """Return whether the loss is one of the library's."""
        return self.loss in kinds

    @property
    def has_tied_identity(self) -> bool:
        """Whether the model is a `TiedSoftmax` with a loss that is known to read beta alone, at unit rates."""
        linear = self.is_loss(losses.logistic, losses.exponential, losses.square, losses.kl)
        return isinstance(self.models, TiedSoftmax) and linear and self.unit

    @property
    def rounding(self) -> float:
        """How far a sum over classes of softmax probabilities can drift, which rounds at every time (or step)."""
        rates = [1.0] if self.rates is None else leaf_rates(self.rates, self.models).values()
        fastest = max(float(np.max(rate)) for rate in rates)
        return float(jnp.finfo(self.models.w_o.dtype).eps) * fastest * float(self.ts[-1])

    @property
    def is_batch(self) -> bool:
        """Whether the loss is `gf.losses.cross_entropy` of a batch."""
        return self.is_loss(losses.cross_entropy) and isinstance(self.args, Batch)

    @property
    def is_kl(self) -> bool:
        """Whether the loss is `gf.losses.kl`."""
        return self.is_loss(losses.kl)


def _stacked(model: Any, initial: Any) -> Any:
    """Return one model as a stack of one."""
    if not any(map(eqx.is_inexact_array, jax.tree.leaves(model))):
        raise FlowError(f"trajectory is a {type(model).__name__}: audit takes what `gradient_flow` returns, or a model")
    if initial is not None:
        raise FlowError("initial is given beside a single model: it belongs to a run that was not saved at t = 0")
    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None] if eqx.is_array(leaf) else leaf, model)
