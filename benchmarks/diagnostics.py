"""Diagnostics of attention, jitted, against plain NumPy formulas of the same quantities."""

import jax
import numpy as np

import gradflow as gf
from benchmarks.measure import Row, first_call, ready, warm

SHAPE = (16, 12, 12, 64, 64)  # sequences, layers, heads, queries, keys


def _entropy(attention):
    weights = attention / attention.sum(-1, keepdims=True)
    each = -(weights * np.log(np.where(weights > 0, weights, 1))).sum(-1)
    return (each[..., 1:] / np.log(np.arange(2, attention.shape[-1] + 1, dtype=np.float32))).mean(-1)


def _sink_token(attention):
    columns = attention[..., 1:, :].sum(-2)
    return columns.argmax(-1), columns.max(-1) / columns.sum(-1)


NUMPY = {
    "sink score": lambda a: a[..., 1:, 0].sum(-1) / a[..., 1:, :].sum((-2, -1)),
    "sink rate": lambda a: (a[..., 0].mean(-1) > 0.3).mean(0),
    "sink token": _sink_token,
    "sparsity": lambda a: a[..., -1, :].max(-1) / a[..., -1, :].sum(-1),
    "largest weight": lambda a: a.max(-1).mean(-1),
    "entropy": _entropy,
}
OURS = {
    "sink score": gf.diagnostics.sink_score,
    "sink rate": lambda a: gf.diagnostics.sink_rate(a, per_head=True),
    "sink token": gf.diagnostics.sink_token,
    "sparsity": gf.diagnostics.sparsity,
    "largest weight": lambda a: gf.diagnostics.largest_weight(a).mean(-1),
    "entropy": lambda a: gf.diagnostics.attention_entropy(a, causal=True),
}


def _all(calls):
    return lambda attention: {name: call(attention) for name, call in calls.items()}


def _attention() -> np.ndarray:
    scores = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)
    weights = np.where(np.tril(np.ones(SHAPE[-2:], bool)), np.exp(2 * scores), 0)
    return weights / weights.sum(-1, keepdims=True)


def _row(name, ours, plain, attention, on_device, aim="") -> Row:
    jitted = jax.jit(ours)
    found, first = first_call(lambda: jitted(on_device))
    for mine, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(plain(attention)), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6, err_msg=name)
    (best, median), (plain_best, _) = warm(lambda: ready(jitted(on_device)), lambda: plain(attention), repeats=7)
    note = f"{1e3 * best:.3g} ms, median {1e3 * median:.3g} ms; NumPy {1e3 * plain_best:.3g} ms"
    return Row(name, plain_best / best, "x", aim, first, note)


def run() -> list[Row]:
    """Measure all in one call, then each."""
    attention = _attention()
    on_device = jax.device_put(attention)
    name = f"diagnostics of attention {SHAPE}: over NumPy"
    rows = [_row(name, _all(OURS), _all(NUMPY), attention, on_device, ">= 2")]
    return rows + [_row(f"  {each}", OURS[each], NUMPY[each], attention, on_device) for each in OURS]
