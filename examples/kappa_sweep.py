"""A sweep of 11,250 flows: does a larger condition number make attention sparse?

Run it with `python examples/kappa_sweep.py`; it writes runs/kappa.zarr, kappa_sweep.svg and kappa_sweep.png into the
current folder. Stop it whenever you like: the same command goes on where it was.
"""

import jax

import gradflow as gf

jax.config.update("jax_enable_x64", True)


def build(key, *, activation, scale, kappa):
    """Return loss, model and data of one point of the grid."""
    data = gf.tasks.linear_regression(key, n_features=8, condition_number=kappa)
    model = gf.models.ValueSoftmax.normal(key, d=8, n=16, scale=scale, activation=activation)
    return gf.losses.square, model, data


def observe(t, model, data):
    """Return what is saved along each flow; the weights of the plain sigmoid do not sum to one."""
    return {"entropy": gf.diagnostics.entropy(model.weights)}


def main(kappas: int = 25, seeds: int = 50) -> None:
    """Sweep over map, scale, condition number and seed, and draw the entropy at the end, a panel for each scale."""
    axes = {
        "activation": ["softmax", "sigmoid", "normalised-sigmoid"],
        "scale": [0.01, 0.1, 1.0],
        "kappa": gf.log_range(1, 1e4, kappas),
        "seed": range(seeds),
    }
    method = gf.Flow(t1=1e6, ts=gf.log_times(1, 1e6, 60))
    ds = gf.sweep(build, axes, key=jax.random.key(0), method=method, observe=observe, store="runs/kappa.zarr")
    print(ds)

    final = ds.entropy.isel(time=-1).median("seed")
    grid = final.plot(x="kappa", hue="activation", col="scale", xscale="log")
    gf.plot.save(grid.fig, "kappa_sweep")


if __name__ == "__main__":
    main()
