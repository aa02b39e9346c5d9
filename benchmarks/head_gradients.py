"""All gradients of an attention head in closed form, against automatic differentiation of the same head."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import gradflow as gf
from benchmarks.measure import Row, first_call, warm

LENGTH = 2000


def _loss(head, x, targets):
    return gf.losses.cross_entropy(head, gf.types.Batch(x[None], targets[None], jnp.ones((1, len(x)), bool)))


def _rows(name: str, aim: str) -> list[Row]:
    """Compare on the sizes of the sticky Markov chain; both give the gradients of W_Q, W_K, W_V and W_O."""
    key = jax.random.key(0)
    head = gf.models.AttentionHead.normal(key, 20, 10, 15, 8, scale=0.3, activation=name)
    x = jax.random.normal(key, (LENGTH, 20))
    targets = jax.random.randint(key, (LENGTH,), 0, 8)
    closed, autodiff = eqx.filter_jit(gf.laws.head_gradients), eqx.filter_jit(jax.grad(_loss))
    found, first = first_call(lambda: closed(head, x, targets))
    expected, first_autodiff = first_call(lambda: autodiff(head, x, targets))
    difference = max(
        float(np.abs(getattr(found, w) - getattr(expected, w)).max() / np.abs(getattr(expected, w)).max())
        for w in ("w_q", "w_k", "w_v", "w_o")
    )
    if difference > 1e-10:
        raise AssertionError(f"the two gradients differ by {difference:.1e}")
    calls = [lambda call=call: call(head, x, targets) for call in (closed, autodiff)]
    (best, median), (best_autodiff, median_autodiff) = warm(*calls, repeats=20)
    note = f"{1e3 * best:.3g} ms, median {1e3 * median:.3g} ms, with D, B and U; gradients differ by {difference:.0e}"
    return [
        Row(f"head_gradients at T = {LENGTH}, {name}: over jax.grad", best_autodiff / best, "x", aim, first, note),
        Row("  jax.grad", 1e3 * best_autodiff, "ms", "", first_autodiff, f"median {1e3 * median_autodiff:.3g} ms"),
    ]


def run() -> list[Row]:
    """Measure the softmax, and two maps that are not."""
    return [*_rows("softmax", ">= 1"), *_rows("sigmoid", ">= 1"), *_rows("normalised-sigmoid", ">= 1")]
