"""Someone holds a head of their own against the laws of attention: nothing to subclass, nothing to register.

Run it with `python examples/own_head.py`; it writes own_head.svg and own_head.png into the current folder.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import gradflow as gf

jax.config.update("jax_enable_x64", True)


class CosineHead(eqx.Module):
    """A causal head whose scores are cosines: a call that can `capture`, a `mask`, an `activation` and `w_o`."""

    w_q: jax.Array
    w_k: jax.Array
    w_v: jax.Array
    w_o: jax.Array
    activation: gf.activations.AbstractActivation = gf.activations.Softmax(temperature=0.2)

    def mask(self, length, where=None):
        """Return which positions a row may attend to."""
        causal = jnp.tril(jnp.ones((length, length), bool))
        return causal if where is None else causal & where

    def __call__(self, x, where=None, capture=False):
        """Return the logits, and what happened inside if asked."""
        scores, values = _unit(x @ self.w_q) @ _unit(x @ self.w_k).T, x @ self.w_v
        weights = self.activation(scores, where=self.mask(len(x), where))
        inside = gf.models.HeadCapture(scores, weights, values, outputs=weights @ values)
        logits = inside.outputs @ self.w_o
        return (logits, inside) if capture else logits


def _unit(vectors):
    return vectors / jnp.linalg.norm(vectors, axis=-1, keepdims=True)


def main() -> None:
    """Train the head by gradient flow, check the laws where it ends, and draw weights beside advantages."""
    *keys, task_key = jax.random.split(jax.random.key(0), 5)
    shapes = [(8, 4), (8, 4), (8, 6), (6, 8)]
    head = CosineHead(*(jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True)))
    batch = gf.tasks.one_hot(gf.tasks.StickyMarkov().sample(task_key, 1, length=13), 8)
    flow = gf.gradient_flow(gf.losses.cross_entropy, head, batch, t1=30.0, solver="tsit5")

    laws = gf.laws.routing
    state = laws.head_state(flow.final, batch.inputs[0], batch.targets[0])
    print(f"sum_j D_ij b_ij = Var(b):  residual {jnp.abs(laws.variance_identity(state)).max():.0e}")
    print(f"freezing bound:            exceeded by {laws.freezing_excess(state).max():.0e}")

    figure, axes = gf.plot.new_figure(1, 2, width=gf.plot.TWO_COLUMNS, height=3.0)
    rows = np.arange(len(state.weights))
    shown = {"weight": state.weights, "weight x advantage": state.weights * laws.advantage(state)}
    for ax, (label, values) in zip(axes, shown.items(), strict=True):
        seen = np.where(state.mask, values, np.nan)
        labels = {"xlabel": "key position", "ylabel": "query position", "label": label}
        gf.plot.heat_map(rows, rows, seen, centre=None if label == "weight" else 0.0, ax=ax, **labels)
        ax.invert_yaxis()
    gf.plot.save(figure, "own_head")


if __name__ == "__main__":
    main()
