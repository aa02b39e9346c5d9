"""Scalar losses of a model and its data, `loss(model, args) -> scalar`, each with a check of the data it is given.

`loss.check(args)` raises one `FlowError` on concrete data that the loss cannot mean, and does nothing under tracing;
`loss.check_model(model, args)`, where there is one, does so on data that do not fit the model.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gradflow.errors import FlowError, is_traced, shown
from gradflow.types import Batch, Data

LossFunction = TypeVar("LossFunction", bound=Callable[..., Any])


def checked(
    check: Callable[[Any], None], check_model: Callable[[Any, Any], None] | None = None
) -> Callable[[LossFunction], LossFunction]:
    """Attach checks of the data to a loss, as its attributes `check` and `check_model`.

    Args:
        check: raises `FlowError` on bad concrete `args`; it is not called under tracing.
        check_model: raises `FlowError` on concrete `args` that do not fit a model; called with `(model, args)`.

    Returns:
        A decorator that returns the loss itself.
    """

    def check_concrete(args: Any) -> None:
        if not is_traced(args):
            check(args)

    def check_fit(model: Any, args: Any) -> None:
        if check_model is not None and not is_traced(args):
            check_model(model, args)

    def attach(loss: LossFunction) -> LossFunction:
        cast(Any, loss).check, cast(Any, loss).check_model = check_concrete, check_fit
        return loss

    return attach


def _check_samples(data: Any) -> None:
    if not (hasattr(data, "x") and hasattr(data, "y")):
        raise FlowError(f"args is {_kind(data)}; this loss needs samples, gf.tasks.Data(x, y)")
    x, y = np.asarray(data.x), np.asarray(data.y)
    if x.ndim != 2:
        hint = "use x[None, :] for a single sample" if x.ndim == 1 else "put one sample in each row"
        raise FlowError(f"x has shape {x.shape}, it must be (samples, features); {hint}")
    if y.shape != x.shape[:1]:
        raise FlowError(f"y has shape {y.shape} for {x.shape[0]} samples in x; pass one target a row of x")
    if x.shape[0] == 0:
        raise FlowError(f"x has shape {x.shape}: a mean over no samples is not defined; pass at least one")
    _check_finite("x", x)
    _check_finite("y", y)


def _check_labels(data: Any) -> None:
    _check_samples(data)
    labels = np.asarray(data.y)
    wrong = labels[(labels != 1) & (labels != -1)]
    if wrong.size:
        binary = bool(np.all((labels == 0) | (labels == 1)))
        hint = "use 2 * y - 1" if binary else "use `gf.losses.square` for real targets"
        raise FlowError(f"y holds the label {wrong[0]:g}, labels must be -1 or 1; {hint}")


def _check_tokens(batch: Any) -> None:
    if not all(hasattr(batch, name) for name in ("inputs", "targets", "mask")):
        raise FlowError(f"args is {_kind(batch)}; cross_entropy needs a Batch(inputs, targets, mask)")
    targets, mask = np.asarray(batch.targets), np.asarray(batch.mask)
    if not np.issubdtype(targets.dtype, np.integer):
        raise FlowError(f"targets has dtype {targets.dtype}; pass class indices, integers")
    if mask.dtype != np.bool_:
        raise FlowError(f"mask has dtype {mask.dtype}; pass booleans, for instance mask.astype(bool)")
    if targets.ndim != 2 or mask.shape != targets.shape or np.shape(batch.inputs)[:2] != targets.shape:
        shapes = f"inputs {np.shape(batch.inputs)}, targets {targets.shape}, mask {mask.shape}"
        raise FlowError(f"{shapes}; targets and mask must be (sequences, positions), as the first two axes of inputs")
    if not targets.size:
        raise FlowError(f"targets has shape {targets.shape}; pass at least one sequence of at least one position")
    if np.any(targets[mask] < 0):
        raise FlowError(f"targets holds {targets[mask].min()} where mask is True; pass class indices >= 0")


@eqx.filter_jit
def _logits(model: Any, inputs: Any) -> Array:
    return jax.vmap(model)(inputs)


def _check_classes(model: Any, batch: Any) -> None:
    if hasattr(model, "check_inputs"):
        model.check_inputs(batch.inputs)
    # The trace of a compiled function is remembered: a second run of the same model costs nothing.
    classes = eqx.filter_eval_shape(_logits, model, batch.inputs).shape[-1]
    targets = np.asarray(batch.targets)[np.asarray(batch.mask)]
    if np.any(targets >= classes):
        raise FlowError(f"targets holds {targets.max()} and the model has {classes} classes: pass 0 .. {classes - 1}")


def _check_auxiliary(args: Any) -> None:
    if not isinstance(args, tuple) or len(args) != 2:
        raise FlowError(f"args is {_kind(args)}; auxiliary_cross_entropy needs the pair (batch, auxiliary)")
    _check_tokens(args[0])
    number = np.ndim(args[1]) == 0 and np.issubdtype(np.asarray(args[1]).dtype, np.number)
    if not number or not 0 <= args[1] < np.inf:
        raise FlowError(f"auxiliary is {shown(args[1])}; pass a finite number >= 0")


def _check_auxiliary_classes(model: Any, args: Any) -> None:
    _check_classes(model, args[0])


def _check_distribution(p: Any) -> None:
    if not isinstance(p, jax.Array | np.ndarray):
        raise FlowError(f"args is {_kind(p)}; kl needs a probability vector, an array of shape (d,)")
    values = np.asarray(p).astype(np.float64)
    if values.ndim != 1 or values.size == 0:
        raise FlowError(f"p has shape {values.shape}; pass one distribution, shape (d,) with d >= 1")
    _check_finite("p", values)
    if values.min() < 0:
        raise FlowError(f"p holds {values.min():g}; probabilities must be >= 0")
    # Low precision cannot sum to one more closely than its own rounding.
    resolution = 4 * float(jnp.finfo(p.dtype).eps) if jnp.issubdtype(p.dtype, jnp.floating) else 0.0
    if abs(values.sum() - 1) > max(1e-6, resolution):
        raise FlowError(f"p sums to {values.sum():.8g}, it must sum to 1; use p / p.sum()")


def _check_finite(name: str, values: np.ndarray) -> None:
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        place = ", ".join(str(index) for index in bad[0])
        raise FlowError(f"{name}[{place}] is {values[tuple(bad[0])]} ({len(bad)} not finite); remove or fill them")


def _kind(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


@checked(_check_labels)
def logistic(model: Any, data: Data) -> Float[Array, ""]:
    """Return mean_i log(1 + exp(-y_i x_i . beta)), beta = model().

    Args:
        model: a linear predictor, called without arguments, giving beta (d,).
        data: samples with labels in {-1, 1}.
    """
    return jnp.mean(jax.nn.softplus(-_margins(model, data)))


@checked(_check_labels)
def exponential(model: Any, data: Data) -> Float[Array, ""]:
    """Return mean_i exp(-y_i x_i . beta), beta = model(). It overflows to infinity at very negative margins.

    Args:
        model: a linear predictor, called without arguments, giving beta (d,).
        data: samples with labels in {-1, 1}.
    """
    return jnp.mean(jnp.exp(-_margins(model, data)))


@checked(_check_samples)
def square(model: Any, data: Data) -> Float[Array, ""]:
    """Return mean_i (x_i . beta - y_i)^2 / 2, beta = model().

    Args:
        model: a linear predictor, called without arguments, giving beta (d,).
        data: samples with real targets.
    """
    return jnp.mean((_predictions(model, data) - data.y) ** 2) / 2


checked_tokens = checked(_check_tokens, _check_classes)  # for losses of classes on a `Batch`


@checked_tokens
def cross_entropy(model: Any, batch: Batch) -> Float[Array, ""]:
    """Return the mean over unmasked targets of -log softmax(logits)[target], in nats; 0 if all are masked.

    What the model says at a masked position is never read. A logit of -inf gives its class probability zero, and the
    loss stays finite as long as that class is not the target.

    Args:
        model: gives logits (T, C) from one sequence (T,) of tokens; mapped over the batch.
        batch: sequences, targets and mask. Precisions below float32 are summed in float32.
    """
    surprise = _surprise(model, batch)
    return jnp.sum(jnp.where(batch.mask, surprise, 0)) / jnp.maximum(jnp.sum(batch.mask), 1)


@checked(_check_auxiliary, _check_auxiliary_classes)
def auxiliary_cross_entropy(model: Any, args: tuple[Batch, Any]) -> Float[Array, ""]:
    """Return the cross-entropy of the last targets plus a share of that of the others, in nats.

    The loss of the induction task of arXiv 2603.06248: mean of the last position + auxiliary * mean of the others.

    Args:
        model: gives logits (T, C) from one sequence (T,) of tokens; mapped over the batch.
        args: sequences with their targets, and the share, a number >= 0.
    """
    batch, auxiliary = args
    is_last = jnp.arange(batch.targets.shape[1]) == batch.targets.shape[1] - 1
    surprise = _surprise(model, batch)

    def mean(counts: Array) -> Array:
        return jnp.sum(jnp.where(counts, surprise, 0)) / jnp.maximum(jnp.sum(counts), 1)

    return mean(batch.mask & is_last) + auxiliary * mean(batch.mask & ~is_last)


@checked(_check_distribution)
def kl(model: Any, p: Float[Array, " d"]) -> Float[Array, ""]:
    """Return KL(p || softmax(model())) in nats.

    Args:
        model: called without arguments, gives logits (d,).
        p: a distribution; its zeros contribute nothing, whatever the logit.
    """
    support = p > 0
    log_p = jnp.log(jnp.where(support, p, 1))
    log_q = jnp.where(support, jax.nn.log_softmax(model()), 0)
    return jnp.sum(p * (log_p - log_q))


def _surprise(model: Any, batch: Batch) -> Float[Array, "n T"]:
    """Return -log softmax(logits)[target] in nats; what the model says at a masked position is never read."""
    logits = jax.vmap(model)(batch.inputs)
    wide = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    kept = jnp.where(batch.mask[..., None], wide, 0)
    targets = jnp.where(batch.mask, batch.targets, 0)
    chosen = jnp.take_along_axis(kept, targets[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(kept, axis=-1) - chosen


def _predictions(model: Any, data: Data) -> Float[Array, " N"]:
    return jnp.matmul(data.x, model(), precision="highest")


def _margins(model: Any, data: Data) -> Float[Array, " N"]:
    return data.y * _predictions(model, data)
