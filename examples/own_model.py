"""A theorist checks a law on a value-softmax: flow, descent and theory in one plot, and a table of the laws.

Run it with `python examples/own_model.py`; it writes own_model.svg and own_model.png into the current folder.
"""

import jax
import optax

import gradflow as gf

jax.config.update("jax_enable_x64", True)


def main() -> None:
    """Integrate the flow, run descent beside it, audit the laws, and draw."""
    key = jax.random.key(0)
    data = gf.tasks.linear_classification(key, n_samples=64, n_features=8)
    model = gf.models.ValueSoftmax.normal(key, d=8, n=16, scale=0.1)
    times = gf.log_times(1e-1, 1e12, 200)
    steps = gf.log_steps(100_000, 100)

    flow = gf.gradient_flow(gf.losses.logistic, model, data, t1=1e12, ts=times)
    descent = gf.gradient_descent(gf.losses.logistic, model, optax.sgd(0.1), data, steps=100_000, save_at=steps)
    print(gf.laws.audit(flow, gf.losses.logistic, data))

    ax = gf.plot.weights(flow, descent=descent, step_size=0.1)
    gf.plot.title(ax, "softmax goes one-hot, and descent follows the flow")
    gf.plot.save(ax.figure, "own_model")


if __name__ == "__main__":
    main()
