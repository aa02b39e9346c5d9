"""Value-softmax models with different maps side by side, so that a figure with many panels is one kernel.

The models share nothing but the data: the gradient of a sum of losses moves each of them as its own loss would.
"""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gradflow.activations import AbstractActivation
from gradflow.models import ValueSoftmax

# The library's own Tsit5 writes its stages out, which is faster for one small model; a panel's arithmetic hides the
# overhead of Diffrax's loop over stages, and its kernel compiles in half the time.
SOLVER = diffrax.Tsit5()


class Panel(eqx.Module):
    """M maps, and for each of them models (V, a) on the same data.

    Attributes:
        values: V of each model.
        scores: a of each model.
        activations: the M maps.
    """

    values: Float[Array, "M *S d n"]
    scores: Float[Array, "M *S n"]
    activations: tuple[AbstractActivation, ...]

    @classmethod
    def repeat(
        cls, values: Float[Array, "*S d n"], scores: Float[Array, "*S n"], activations: tuple[AbstractActivation, ...]
    ) -> "Panel":
        """Start every map from the same values and scores."""
        count = len(activations)
        return cls(jnp.stack([values] * count), jnp.stack([scores] * count), activations)

    @property
    def weights(self) -> Float[Array, "M *S n"]:
        """The attention rows s = act(a), each by its own map."""
        return jnp.stack([act(row) for act, row in zip(self.activations, self.scores, strict=True)])

    def __call__(self) -> Float[Array, "M *S d"]:
        """Return beta = V s of every model."""
        return jnp.sum(self.values * self.weights[..., None, :], axis=-1)


class Objective(eqx.Module):
    """Data and the share of each loss, so that one kernel serves all losses.

    Attributes:
        x: inputs.
        y: targets or labels.
        square: factor of mean (x.beta - y)^2 / 2.
        logistic: factor of mean log(1 + exp(-y x.beta)).
        exponential: factor of mean exp(-y x.beta).
        linear: factor of -mean y x.beta: on one sample its time is the clock tau itself (gamma = 1).
    """

    x: Float[Array, "N d"]
    y: Float[Array, " N"]
    square: Float[Array, ""]
    logistic: Float[Array, ""]
    exponential: Float[Array, ""]
    linear: Float[Array, ""]

    @classmethod
    def of(cls, x: Float[Array, "N d"], y: Float[Array, " N"], **factors: float) -> "Objective":
        """Build the objective from the factors that are not zero."""
        names = ("square", "logistic", "exponential", "linear")
        return cls(jnp.asarray(x), jnp.asarray(y), *(jnp.asarray(float(factors.get(name, 0))) for name in names))


def panel_loss(panel: Panel, objective: Objective) -> Float[Array, ""]:
    """Return the sum over all models of their own losses."""
    return jnp.sum(member_losses(panel, objective))


def member_losses(panel: Panel, objective: Objective) -> Float[Array, " M *S"]:
    """Return the loss of every model."""
    predictions = jnp.matmul(panel(), objective.x.T, precision="highest")
    margins = objective.y * predictions
    # An unused exponential must not overflow: zero times infinity is not zero.
    used = jnp.where(objective.exponential > 0, margins, 0)
    losses = (
        objective.square * (predictions - objective.y) ** 2 / 2
        + objective.logistic * jax.nn.softplus(-margins)
        + objective.exponential * jnp.exp(-used)
        - objective.linear * margins
    )
    return jnp.mean(losses, axis=-1)


def member(panels: Panel, index: int) -> ValueSoftmax:
    """Return the models of one map out of panels stacked along a leading save axis: values (T, *S, d, n)."""
    return ValueSoftmax(panels.values[:, index], panels.scores[:, index], panels.activations[index])
