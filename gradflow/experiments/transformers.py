"""Small transformers trained by sweeps: what the experiments on attention sinks share.

Training draws fresh sequences at every step, in float32; sequences for evaluation are drawn once a member and never
trained on. An axis of names (maps, heads, positions) compiles a kernel a point, learning rates and seeds share one.
"""

import dataclasses
import functools
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Key, PyTree

from gradflow import losses
from gradflow.diagnostics import attention_entropy, largest_weight, sink_score
from gradflow.errors import FlowWarning
from gradflow.models import Capture, Transformer
from gradflow.sweep import Descent, sweep
from gradflow.types import Batch

MAPS = {
    "softmax": "softmax",
    "uniform": "uniform",
    "sigmoid": "sigmoid",
    "normalised-sigmoid": "normalised sigmoid",
    "elu1": "ELU + 1",
    "normalised-elu1": "normalised ELU + 1",
    "elu-elu": "(ELU + 1)(ELU + 1)",
    "normalised-elu-elu": "normalised (ELU + 1)(ELU + 1)",
    "linear": "linear",
    "clipped-linear": "linear / max(|sum|, 1)",
    "mlp": "MLP kernel",
    "clipped-mlp": "MLP kernel / max(|sum|, 1)",
    "softmax1": "softmax1",
    "sink-logit": "softmax with a sink logit",
    "length-sigmoid": "sigmoid, bias -log n",
    "sparsemax": "sparsemax",
}
SIGNED = ("linear", "clipped-linear", "mlp", "clipped-mlp")  # weights below zero: a share means nothing
PRECISION = "float32"
WEIGHT_DECAY = 0.01
RATE = 8e10  # of the matrix products of a step, with AdamW and drawing, a second on two cores
Arrays = dict[str, np.ndarray]

adamw = functools.partial(optax.adamw, weight_decay=WEIGHT_DECAY)


@dataclasses.dataclass(frozen=True)
class FreshBatches:
    """Draws new sequences at every step: `batches=` of a descent whose data is `(batch, auxiliary)`.

    Equal ones are one kernel.

    Attributes:
        task: has `sample(key, n)`.
        size: sequences of a step.
    """

    task: Any
    size: int

    def __call__(self, key: Key[Array, ""], step: Any, args: tuple[Batch, Any]) -> tuple[Batch, Any]:
        """Return the data of one step; the share of the other positions stays."""
        del step
        return self.task.sample(key, self.size), args[1]


def member(
    key: Key[Array, ""], *, task: Any, evaluated: int, auxiliary: Any = 0.2, **options: Any
) -> tuple[Callable, Transformer, tuple[Batch, Any]]:
    """Build a member of a sweep: a new transformer, and sequences to evaluate it on.

    Args:
        key: of the draws.
        task: has `n_tokens`, `length` and `sample(key, n)`.
        evaluated: sequences for evaluation.
        auxiliary: weight of the positions before the last in the loss.
        **options: of `Transformer.init`.

    Returns:
        `(loss, model, args)`.
    """
    model_key, data_key = jax.random.split(key)
    usual = {"max_length": task.length, "dtype": PRECISION, "classes": getattr(task, "n_classes", None)}
    model = Transformer.init(model_key, task.n_tokens, **usual | options)
    return losses.auxiliary_cross_entropy, model, (task.sample(data_key, evaluated), jnp.asarray(auxiliary, PRECISION))


def predictions(logits: Float[Array, "n T C"], batch: Batch) -> dict[str, Float[Array, ""]]:
    """Return how good predictions are at the last position, and the loss at the others.

    Args:
        logits: of the model.
        batch: with the targets.

    Returns:
        `accuracy` and `last_loss` at the last position, `other_loss` as a mean over the others that count, in nats.
    """
    log_p = jax.nn.log_softmax(logits, axis=-1)
    surprise = -jnp.take_along_axis(log_p, batch.targets[..., None], axis=-1)[..., 0]
    others = batch.mask[:, :-1]
    return {
        "accuracy": jnp.mean((jnp.argmax(logits[:, -1], axis=-1) == batch.targets[:, -1]).astype(logits.dtype)),
        "last_loss": jnp.mean(surprise[:, -1]),
        "other_loss": jnp.sum(jnp.where(others, surprise[:, :-1], 0)) / jnp.maximum(jnp.sum(others), 1),
    }


def routing(attention: Float[Array, "n L H T T"], rows: slice, causal: bool = True) -> dict[str, Array]:
    """Return where attention goes, as means over sequences.

    Args:
        attention: weights.
        rows: queries that count for the sink score.
        causal: whether a row sees itself and earlier positions only.

    Returns:
        `sink` (L, H), `entropy` (L, H) as a fraction of the largest, `largest` (L, H), the largest weight of a row as
        a mean over rows, and `map` (L, H, T, T).
    """
    return {
        "sink": jnp.mean(sink_score(attention, rows), axis=0),
        "entropy": jnp.mean(attention_entropy(attention, causal=causal), axis=0),
        "largest": jnp.mean(largest_weight(attention), axis=(0, -1)),
        "map": jnp.mean(attention, axis=0),
    }


def sizes(capture: Capture) -> dict[str, Array]:
    """Return how long the vectors of each token are, as means over sequences.

    Args:
        capture: of a batch.

    Returns:
        `state_norm` (L + 1, T) of the residual stream, before the first block and after each; `state_peak` (L + 1, T),
        its largest entry; `key_norm` and `value_norm` (L, KV, T).
    """
    stream = jnp.concatenate([capture.embedded[:, None], capture.hidden], axis=1)
    return {
        "state_norm": jnp.mean(jnp.linalg.norm(stream, axis=-1), axis=0),
        "state_peak": jnp.mean(jnp.max(jnp.abs(stream), axis=-1), axis=0),
        "key_norm": jnp.mean(jnp.linalg.norm(capture.keys, axis=-1), axis=0),
        "value_norm": jnp.mean(jnp.linalg.norm(capture.values, axis=-1), axis=0),
    }


def observe_induction(step: Any, model: Transformer, args: tuple[Batch, Any]) -> dict[str, Array]:
    """Return predictions, routing and sizes of a model on the sequences for evaluation of the induction task."""
    del step
    batch = args[0]
    logits, capture = jax.vmap(functools.partial(model, capture=True))(batch.inputs)
    # Without BOS's own row and the task's last two, as in the public code of arXiv 2603.06248.
    return predictions(logits, batch) | routing(capture.attention, slice(1, -2)) | sizes(capture)


def train(
    build: Callable,
    axes: Mapping[str, Any],
    method: Descent,
    observe: Callable[[Any, Any, Any], PyTree],
    workspace: Path,
    seed: int,
    *,
    store: str = "sweep.zarr",
    parameters: bool = False,
) -> Any:
    """Train a grid of transformers, stored and resumed in the folder of a stage.

    Args:
        build: see `gf.sweep`.
        axes: of the grid.
        method: optimiser, steps, learning rates and batches.
        observe: what is saved.
        workspace: of the stage.
        seed: of all draws.
        store: name of the folder, where a stage has several.
        parameters: whether final models are kept.

    Returns:
        The sweep as an `xarray.Dataset`; members that fail hold NaN.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FlowWarning)  # members that diverge are results here
        return sweep(
            build,
            axes,
            key=jax.random.key(seed),
            method=method,
            observe=observe,
            store=workspace / store,
            parameters=parameters,
            progress=False,
        )


def values(ds: Any, *names: str) -> Arrays:
    """Return variables of a sweep as arrays, axes in the order of the grid."""
    return {name: np.asarray(ds[name].values) for name in names}


def planned(runs: int, steps: int, flops: float) -> str:
    """Return what a grid of runs costs, in words.

    Args:
        runs: how many.
        steps: of each.
        flops: multiplications and additions of a step, see `step_flops`.

    Returns:
        One line; the time is that of two cores of the machine where the rate was measured.
    """
    hours = runs * steps * flops / RATE / 3600
    length = (
        f"{60 * hours:.0f} minutes" if hours < 2 else f"{hours:.0f} hours" if hours < 48 else f"{hours / 24:.0f} days"
    )
    return f"{runs:,} runs of {steps:,} steps: about {length} on two cores; finished parts are kept, --resume goes on"


def step_flops(batch: int, length: int, width: int, layers: int, *, mlp: bool = True) -> float:
    """Return the multiplications and additions of the matrix products of one step, forward and backward."""
    parameters = layers * width**2 * (12 if mlp else 4)
    return 6 * batch * length * parameters
