"""Calls what takes and returns arrays while beartype compares every argument and result with its annotation.

Run in a process of its own, since the checks are put in while gradflow is imported.
"""

from beartype import BeartypeConf, beartype
from jaxtyping import TypeCheckError, install_import_hook

check = beartype(conf=BeartypeConf(is_pep484_tower=True))  # an int is a float
ROOMS = ["gradflow.activations", "gradflow.losses", "gradflow.tasks", "gradflow.models", "gradflow.diagnostics"]


def main() -> None:
    with install_import_hook(ROOMS, "checked_program.check"):
        import gradflow as gf
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    key = jax.random.key(0)
    scores, mask = jax.random.normal(key, (2, 3, 4)), jnp.ones((2, 3, 4), bool)
    trace = jax.eval_shape  # shapes are there while tracing; compiling would take most of the time
    for name in gf.activations.names():
        act = gf.activations.by_name(name)
        trace(jax.vmap(act), scores, mask)
        trace(act.primitive, scores)

    data = gf.tasks.linear_classification(key, n_samples=6, n_features=4)
    gf.tasks.linear_regression(key, n_samples=6, n_features=4, condition_number=10)
    gf.tasks.target_distribution(key, 5)
    gf.tasks.single_sample(data.x[0])
    value_softmax = gf.models.ValueSoftmax.normal(key, d=4, n=5, scale=1)
    for model in (value_softmax, gf.models.paper.tied(4).model, gf.models.DeepLinear.normal(key, [4, 3, 1])):
        arrays, rest = eqx.partition(model, eqx.is_array)
        for loss in (gf.losses.logistic, gf.losses.exponential, gf.losses.square):
            trace(jax.grad(lambda moving, data: loss(eqx.combine(moving, rest), data)), arrays, data)  # noqa: B023
    gf.losses.kl(value_softmax, jnp.full(4, 0.25))

    trace(lambda x, m: gf.diagnostics.entropy(x, where=m, normalise=True), scores, mask)
    trace(lambda x: gf.diagnostics.sink_rate(x, per_head=True), jnp.ones((2, 2, 5, 5)))
    trace(gf.diagnostics.time_to_one_hot, jnp.arange(3), scores)
    for measure in ("rank_order_violations", "participation_ratio", "massive_activations", "sink_score"):
        trace(getattr(gf.diagnostics, measure), jnp.ones((2, 4, 4)))

    try:
        gf.diagnostics.largest_weight(scores, axis="last")
    except TypeCheckError:
        return
    raise AssertionError("nothing is checked")


if __name__ == "__main__":
    main()
