"""Calls what takes and returns arrays while beartype compares every argument and result with its annotation.

Run in a process of its own, since the checks are put in while gradflow is imported.
"""

from beartype import BeartypeConf, beartype
from jaxtyping import TypeCheckError, install_import_hook

check = beartype(conf=BeartypeConf(is_pep484_tower=True))  # an int is a float
ROOMS = ["gradflow.activations", "gradflow.losses", "gradflow.tasks", "gradflow.models", "gradflow.diagnostics"]
ROOMS += ["gradflow.laws.routing", "gradflow.laws.em", "gradflow.laws.state_space", "gradflow.observables"]


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

    check_heads(gf, key)

    try:
        gf.diagnostics.largest_weight(scores, axis="last")
    except TypeCheckError:
        return
    raise AssertionError("nothing is checked")


def check_heads(gf, key) -> None:
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    seen, trace = gf.diagnostics, jax.eval_shape
    weights, values, visible = jnp.ones((2, 3, 5, 5)), jnp.ones((2, 3, 5, 4)), jnp.ones((5, 5), bool)
    sources = jnp.zeros((2, 1, 5), int)
    trace(lambda a: seen.mutual_information(a, sources, 3), weights)
    some = {"where": visible, "rows": visible[0]}
    trace(lambda a: seen.mutual_information(a, sources[0, 0], 3, queries=sources[0, 0], **some), weights[0, 0])
    trace(lambda a: seen.specialisation(a, sources[0, 0], 3, **some), weights[0, 0])
    trace(lambda s: seen.shuffled(key, s, visible[0]), sources)
    valid = jnp.ones((2, 3), bool)
    trace(lambda a, v: seen.dissociation(jnp.arange(3.0), a, v, where=visible, valid=valid), weights, values)
    trace(lambda a: seen.routing_distance(a[0], a[0, -1], visible), weights)
    trace(lambda a: seen.total_variation(a, a[0, 0], where=visible), weights)
    trace(lambda v: seen.relative_distance(v, v[:, 0]), values)
    trace(lambda v: seen.value_pca(v[0], seen.principal_components(v[0, -1], True)), values)
    trace(lambda v: seen.spearman(v[..., 0], v[0, 0, :, 0], visible[0]), values)
    trace(lambda v: seen.query_key_alignment(v, v, jnp.ones((2, 3, 5, 5))), values)
    trace(lambda v: seen.key_orthogonality(v), values)

    chain = gf.tasks.StickyMarkov.noisy()
    batch = chain.sample(key, 2, length=6)
    chain.bayes(batch)
    x, targets = batch.inputs[0], batch.targets[0]
    sizes = (x.shape[-1], 3, 4, chain.n_states)
    head = gf.models.AttentionHead.normal(key, *sizes)
    for other in (
        gf.models.FreeValueHead.normal(key, len(x), *sizes),
        gf.models.MultiHeadAttention.normal(key, 2, *sizes),
    ):
        trace(lambda x: other(x, capture=True), x)  # noqa: B023
        trace(lambda x: gf.laws.head_gradients(other, x, targets, batch.mask[0]), x)  # noqa: B023
    check_laws(gf, head, x, targets)
    one = jax.tree.map(lambda leaf: leaf[:1], batch)
    trace(lambda x: gf.HeadObservables()(0.0, head, eqx.tree_at(lambda b: b.inputs, one, x[None])), x)


def check_laws(gf, head, x, targets) -> None:
    import jax
    import jax.numpy as jnp

    routing, em, spaces, trace = gf.laws.routing, gf.laws.em, gf.laws.state_space, jax.eval_shape
    of_state = ("advantage", "responsibilities", "mean_compatibility", "jacobian_form", "variance_identity", "row_law")
    of_state += ("compatibility_step", "feedback", "feedback_law", "value_step", "freezing_bound", "freezing_excess")
    for name in of_state:
        trace(lambda x: getattr(routing, name)(routing.head_state(head, x, targets)), x)  # noqa: B023
    trace(lambda x: routing.loss_drop(routing.head_gradients(head, x, targets)), x)
    trace(lambda x: routing.loss_drop_law(head, x, targets), x)
    for name in ("closed_form_step", "responsibilities", "elbo_gap", "mixture_gradients", "mixture_residual"):
        trace(lambda x: getattr(em, name)(head, x, targets), x)  # noqa: B023
    for name in ("tempered_responsibilities", "surrogate_gap", "routing_limit", "normalised_step", "proximal_residual"):
        trace(lambda x: getattr(em, name)(head, x, targets, 0.5), x)  # noqa: B023
    free = gf.models.FreeHead(jnp.zeros((5, 5)), jnp.ones((5, 4)), head.w_o)
    trace(lambda targets: em.em_step(free, targets), targets)
    space = spaces.StateSpace(jnp.zeros(5), jnp.ones((5, 3)), jnp.ones((5, 3)), jnp.ones((5, 2)))
    trace(spaces.recurrence, space)
    trace(spaces.state_space_gradients, space, jnp.ones((5, 2)))


if __name__ == "__main__":
    main()
