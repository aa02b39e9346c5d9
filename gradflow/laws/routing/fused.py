"""The cross-entropy of one softmax head, value and gradient in one pass over blocks of rows.

All that the loss asks of a row is known once its weights are: with F = A X, logits Z = F W_V W_O, R = (P - Y) / N and
U = R W_O^T, the routing law D_ij = A_ij (u_i . v_j - u_i . g_i) reads no other row, and the gradients are sums over
rows (arXiv 2512.22473, section 3):

    dL/dW_V = F^T U,  dL/dW_O = W_V^T F^T R,  X^T D X = sum_i x_i (D_i X),
    dL/dW_Q = X^T D X W_K / sqrt(d_k),  dL/dW_K = (X^T D X)^T W_Q / sqrt(d_k).

So a block of rows stays in the cache, no (T, T) array exists, and most of what causality hides is never computed.
Inside, positions that are attended to come first and rows last, (j, i): sums over j are then sums of whole vectors.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import sequential_vmap
from jax.custom_derivatives import custom_vjp_primal_tree_values
from jaxtyping import Array, Bool, Float

from gradflow.activations import Softmax
from gradflow.activations.base import as_float
from gradflow.errors import FlowError, shown
from gradflow.losses import checked_tokens
from gradflow.models import AttentionHead
from gradflow.types import Batch

ENTRIES = 2**18  # of a block of weights: with those of its gradient it about fills a second-level cache
MOST_ROWS = 128  # in a block: with more of them causality hides less
LOOPS = 8  # over blocks, each with the columns that its last row sees: more compile longer and save little


@checked_tokens
def head_cross_entropy(head: AttentionHead, batch: Batch) -> Float[Array, ""]:
    """Return `gf.losses.cross_entropy(head, batch)` of a softmax head, with a gradient that is much faster on a CPU.

    Memory grows with T and not with T^2. A call that is not differentiated computes no gradient; where neither W_Q nor
    W_K is differentiated, as when `trainable` freezes them, their part is left out. The work for a pair of positions
    grows with d_in: this is for inputs that are not much wider than queries and values together.

    Members under `jax.vmap`, and sequences of a batch, are evaluated one after another, since one of them keeps a core
    busy. `gf.gradient_descent_ensemble(..., lanes=1)` spreads members over the cores.

    The gradient is a closed form, for reverse mode; JAX refuses forward mode of the loss itself. Forward mode over
    reverse, which implicit solvers and the sharpness use, differentiates the closed form. The inputs have no gradient.

    Args:
        head: with a softmax of any temperature, causal or not.
        batch: sequences of float inputs (n, T, d_in), targets and mask. Precisions below float32 are raised to it.

    Returns:
        The mean over unmasked targets, in nats; 0 if all are masked. NaN if a row that counts reads an input that is
        not finite, or its target is no class.

    Raises:
        FlowError: if the head is of another kind, the inputs do not fit it, or they are to be differentiated;
            `gf.losses.cross_entropy` does all of these.
    """
    inputs, mask = _checked(head, batch), jnp.asarray(batch.mask)
    finite = jnp.all(jnp.isfinite(inputs), axis=-1)
    hot = jax.nn.one_hot(batch.targets, head.w_o.shape[1], dtype=bool) & mask[..., None]
    dtype = jnp.result_type(inputs, head.w_q, head.w_k, head.w_v, head.w_o, jnp.float32)
    loss = jax.vmap(functools.partial(_loss, head.causal), (None, 0, 0))
    total = jnp.sum(loss(_folded(head, dtype), jnp.where(finite[..., None], inputs, 0).astype(dtype), hot))
    # Multiplied, and not selected, so that the gradient is NaN as well.
    spoilt = mask & (_reads_bad(~finite, head.causal) | ~jnp.any(hot, axis=-1))
    return total * jnp.where(jnp.any(spoilt), jnp.nan, 1.0) / jnp.maximum(jnp.sum(mask), 1)


def _checked(head: Any, batch: Batch) -> Float[Array, "n T d_in"]:
    """Return the inputs as floats, or refuse what the kernel cannot do."""
    other = "; gf.losses.cross_entropy takes any model"
    if not isinstance(head, AttentionHead) or not isinstance(head.activation, Softmax):
        found = type(head).__name__ + (f" with {shown(head.activation)}" if isinstance(head, AttentionHead) else "")
        raise FlowError(f"head is {found}: head_cross_entropy takes an AttentionHead with the softmax{other}")
    inputs = jnp.asarray(batch.inputs)
    if head.w_q.ndim != 2 or inputs.ndim != 3 or inputs.shape[2] != head.w_q.shape[0] or inputs.size == 0:
        raise FlowError(
            f"inputs has shape {inputs.shape} and w_q {head.w_q.shape}: head_cross_entropy takes one head (d_in, d_k) "
            f"and sequences (n, T, d_in), none of them empty{other}"
        )
    return as_float(inputs)


def _reads_bad(bad: Bool[Array, "n T"], causal: bool) -> Bool[Array, "n T"]:
    """Return which rows attend to a bad position."""
    return jnp.cumsum(bad, axis=1) > 0 if causal else jnp.any(bad, axis=1, keepdims=True)


class Weights(NamedTuple):
    """The weights of a head with every scale folded in: logits_i = sum_j softmax_j(x_i Q K^T x_j) x_j V [W_O].

    Attributes:
        queries: W_Q / (temperature sqrt(d_k)); None, as `keys`, in a gradient that leaves them out.
        keys: W_K.
        values: W_V W_O if that is narrower, else W_V.
        readout: None if `values` holds it, else W_O.
    """

    queries: Float[Array, "d_in d_k"]
    keys: Float[Array, "d_in d_k"]
    values: Float[Array, "d_in width"]
    readout: Float[Array, "width C"] | None


def _folded(head: AttentionHead, dtype: Any) -> Weights:
    w_q, w_k, w_v, w_o = (jnp.asarray(w, dtype) for w in (head.w_q, head.w_k, head.w_v, head.w_o))
    temperature = jnp.asarray(cast(Softmax, head.activation).temperature, dtype)
    queries = w_q / (temperature * math.sqrt(max(w_q.shape[1], 1)))
    is_narrow = w_o.shape[1] <= w_o.shape[0]
    return Weights(queries, w_k, w_v @ w_o, None) if is_narrow else Weights(queries, w_k, w_v, w_o)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _loss(causal: bool, weights: Weights, x: Float[Array, "T d_in"], hot: Bool[Array, "T C"]) -> Float[Array, ""]:
    """Return the summed cross-entropy of the rows of one sequence that have a target."""
    return sequential_vmap(functools.partial(_value, causal))(weights, x, hot)


def _forward(causal: bool, weights: Any, x: Any, hot: Any) -> tuple[Array, Weights]:
    """Return the loss, and its gradient for the backward pass to scale."""
    if x.perturbed:
        raise FlowError("inputs are to be differentiated: head_cross_entropy cannot, gf.losses.cross_entropy can")
    routes = weights.queries.perturbed or weights.keys.perturbed
    gradient = sequential_vmap(functools.partial(_value_and_gradient, causal, routes))
    return gradient(*custom_vjp_primal_tree_values((weights, x, hot)))


def _backward(causal: bool, gradient: Weights, slope: Float[Array, ""]) -> tuple[Weights, None, None]:
    return jax.tree.map(lambda part: slope * part, gradient), None, None


_loss.defvjp(_forward, _backward, symbolic_zeros=True)


def _value(causal: bool, weights: Weights, x: Float[Array, "T d_in"], hot: Bool[Array, "T C"]) -> Float[Array, ""]:
    """Return the loss, mixing values, which are narrower than the inputs that the gradient needs mixed."""
    sources = _with_ones(x @ weights.values).T
    outputs = _over_blocks(lambda block: _attend(block, sources)[1], causal, weights, x, hot)
    return _errors(weights, outputs, hot.T)[1]


def _value_and_gradient(
    causal: bool, routes: bool, weights: Weights, x: Float[Array, "T d_in"], hot: Bool[Array, "T C"]
) -> tuple[Float[Array, ""], Weights]:
    """Return the loss and its gradient, without that of queries and keys unless `routes`."""
    sources, values = _with_ones(x).T, x @ weights.values

    def mix_and_pull(block: Block) -> tuple[Array, Array | None]:
        exponentials, mixed, total = _attend(block, sources)
        if not routes:
            return mixed, None
        slopes = _score_gradient(weights, block, values, exponentials, mixed, total)
        return mixed, sources[:-1, : len(slopes)] @ slopes

    mixed, pulled = _over_blocks(mix_and_pull, causal, weights, x, hot)
    outputs = weights.values.T @ mixed
    errors, loss = _errors(weights, outputs, hot.T)
    routing = None if pulled is None else (pulled @ x).T
    queries, keys = (None, None) if routing is None else (routing @ weights.keys, routing.T @ weights.queries)
    readout = None if weights.readout is None else outputs @ errors.T
    return loss, Weights(cast(Any, queries), cast(Any, keys), mixed @ _upstream(weights, errors).T, readout)


class Block(NamedTuple):
    """A block of rows and what it may attend to.

    Attributes:
        queries: of its rows.
        keys: of the positions that its rows may attend to.
        hidden: True where a row may not after all, None where it may everywhere.
        hot: True at the class of each row, nowhere if it has none.
    """

    queries: Float[Array, "i d_k"]
    keys: Float[Array, "j d_k"]
    hidden: Bool[Array, "j i"] | None
    hot: Bool[Array, "C i"]


def _over_blocks(work: Callable[[Block], Any], causal: bool, weights: Weights, x: Array, hot: Array) -> Any:
    """Return what `work` gives for each block, with the rows of all in the last axis."""
    length = len(x)
    rows = min(length, MOST_ROWS, max(16, ENTRIES // length // 16 * 16))
    count = -(-length // rows)
    each = max(2, -(-count // LOOPS)) if causal else count
    queries, keys = (jnp.pad(y, ((0, count * rows - length), (0, 0))) for y in (x @ weights.queries, x @ weights.keys))
    hot = jnp.pad(hot, ((0, count * rows - length), (0, 0))).T

    def loop(start: int, stop: int) -> Any:
        seen = min(stop * rows, length) if causal else length

        def one(index: Array) -> Any:
            first = index * rows
            hidden = jnp.arange(seen)[:, None] > first + jnp.arange(rows) if causal else None
            own = lax.dynamic_slice_in_dim(queries, first, rows), lax.dynamic_slice_in_dim(hot, first, rows, 1)
            return work(Block(own[0], keys[:seen], hidden, own[1]))

        return lax.map(one, jnp.arange(start, stop))

    parts = [loop(start, min(start + each, count)) for start in range(0, count, each)]
    return jax.tree.map(lambda *blocks: jnp.concatenate([*map(_rows_last, blocks)], axis=1)[:, :length], *parts)


def _rows_last(blocks: Float[Array, "b k i"]) -> Float[Array, "k b*i"]:
    return jnp.swapaxes(blocks, 0, 1).reshape(blocks.shape[1], -1)


def _with_ones(x: Float[Array, "j k"]) -> Float[Array, "j k+1"]:
    """Return columns with one of ones behind them: the sum of the weights then comes out of the same product."""
    return jnp.concatenate([x, jnp.ones_like(x[:, :1])], axis=1)


def _attend(
    block: Block, sources: Float[Array, "k+1 T"]
) -> tuple[Float[Array, "j i"], Float[Array, "k i"], Float[Array, " i"]]:
    """Return exp of scores above the largest of their row, the mean of the sources under it, and its sum."""
    scores = block.keys @ block.queries.T
    if block.hidden is not None:
        scores = jnp.where(block.hidden, -jnp.inf, scores)
    exponentials = jnp.exp(scores - lax.stop_gradient(jnp.max(scores, axis=0)))
    sums = sources[:, : len(exponentials)] @ exponentials
    return exponentials, sums[:-1] / sums[-1], sums[-1]


def _score_gradient(
    weights: Weights,
    block: Block,
    values: Float[Array, "T width"],
    exponentials: Float[Array, "j i"],
    mixed: Float[Array, "d_in i"],
    total: Float[Array, " i"],
) -> Float[Array, "j i"]:
    """Return D by the routing law."""
    upstream = _upstream(weights, _errors(weights, weights.values.T @ mixed, block.hot)[0])
    compatibility = values[: len(exponentials)] @ (upstream / total)
    # u.g would be cheaper; the mean of the same numbers cancels to the last bit where a row is sharp.
    mean = jnp.sum(exponentials * compatibility, axis=0) / total
    return exponentials * (compatibility - mean)


def _errors(
    weights: Weights, outputs: Float[Array, "width i"], hot: Bool[Array, "C i"]
) -> tuple[Float[Array, "C i"], Float[Array, ""]]:
    """Return N R, zero where a row has no target, and the summed cross-entropy of the rows that have one."""
    counts = jnp.any(hot, axis=0)
    logits = jnp.where(counts, outputs if weights.readout is None else weights.readout.T @ outputs, 0)
    logs = jax.nn.log_softmax(logits, axis=0)
    return jnp.where(counts, jnp.exp(logs) - hot, 0), -jnp.sum(jnp.where(hot, logs, 0))


def _upstream(weights: Weights, errors: Float[Array, "C i"]) -> Float[Array, "width i"]:
    return errors if weights.readout is None else weights.readout @ errors
