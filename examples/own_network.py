"""Someone brings an own network: nothing to subclass, nothing to register.

Run it with `python examples/own_network.py`; it writes own_network.svg and own_network.png into the current folder.
"""

import equinox as eqx
import jax

import gradflow as gf

jax.config.update("jax_enable_x64", True)


def loss(model, data):
    """Return the mean squared error."""
    return ((jax.vmap(model)(data.x)[:, 0] - data.y) ** 2).mean()


def observe(t, model, data):
    """Return what is saved along the flow: the loss, and the largest eigenvalue of its Hessian."""
    return {"loss": loss(model, data), "sharpness": gf.diagnostics.sharpness(loss, model, data)}


def main() -> None:
    """Integrate the flow of an MLP and draw loss and sharpness."""
    key = jax.random.key(0)
    data = gf.tasks.linear_classification(key, n_samples=64, n_features=8)
    mlp = eqx.nn.MLP(8, 1, 64, 2, key=key)
    times = gf.log_times(1e-2, 1e3, 40)

    flow = gf.gradient_flow(loss, mlp, data, t1=1e3, ts=times, observe=observe, progress=True)

    figure, (left, right) = gf.plot.new_figure(1, 2)
    gf.plot.scalar(flow.ts, flow.observed["loss"], ylabel="loss", ax=left)
    gf.plot.scalar(flow.ts, flow.observed["sharpness"], ylabel="sharpness", log="x", ax=right)
    gf.plot.save(figure, "own_network")


if __name__ == "__main__":
    main()
