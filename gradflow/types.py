"""Containers that tasks produce and losses consume, and the result codes every run returns."""

import diffrax
import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

Number = Array | np.ndarray  # numbers of a kernel: on the host until they are needed


class RESULTS(diffrax.RESULTS):  # pyright: ignore[reportGeneralTypeIssues]
    """Result codes of a run: Diffrax's, and the ends that only a training flow can meet."""

    nonfinite_start = "The loss or its gradient is not finite at the initial model."
    nonfinite_loss = (
        "The loss or its gradient became NaN or infinite; `final` is the last state where both were finite."
    )
    kink = (
        "The trajectory slides along a kink, where the gradient jumps and the flow has no classical solution; use "
        "`gradient_descent`, a smooth map, or a looser `rtol`."
    )
    stiff = (
        "`max_steps` was reached with the step size held at the stability limit of an explicit method: the flow is "
        "stiff; use `solver='auto'`, which changes to a method for stiff flows, or a larger `max_steps`."
    )
    interrupted = "The run was interrupted; what had finished is kept."


class Data(eqx.Module):
    """Samples of a supervised problem with a linear predictor.

    Attributes:
        x: inputs, one sample a row.
        y: labels in {-1, 1} for classification, real targets for regression.
    """

    x: Float[Array, "N d"]
    y: Float[Array, " N"]


class Batch(eqx.Module):
    """Sequences with targets at the positions that count.

    Attributes:
        inputs: what the model reads.
        targets: class index at each position.
        mask: True where a target counts.
    """

    inputs: Shaped[Array, "n T ..."]
    targets: Int[Array, "n T"]
    mask: Bool[Array, "n T"]


class Bayes(eqx.Module):
    """The exact posterior predictive of a task.

    Attributes:
        probabilities: of each class at each position.
        entropy: of those probabilities, in bits.
    """

    probabilities: Float[Array, "n T C"]
    entropy: Float[Array, "n T"]
