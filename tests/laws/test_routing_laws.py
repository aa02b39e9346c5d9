"""Laws of attention at a head: all gradients in closed form, what follows at each row, steps, bounds and gauges."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from systems import largest

import gradflow as gf

routing = gf.laws.routing
models = gf.models
KEY = jax.random.key(3)
T, D_IN, CLASSES, HEADS = 7, 5, 6, 2
LOSS = gf.losses.cross_entropy
SIGNED = ("normalised-linear", "normalised-elu")  # maps with poles, where a sum of weights vanishes


def worst(tree) -> float:
    return max(map(largest, jax.tree.leaves(tree)))


def inputs(length: int = T):
    x = jax.random.normal(KEY, (length, D_IN))
    targets = jax.random.randint(KEY, (length,), 0, CLASSES)
    mask = jnp.arange(length) != 3
    where = jax.random.bernoulli(KEY, 0.7, (length, length)).at[4].set(False)
    return x, targets, mask, where


def heads(length: int = T, activation="softmax", causal=True):
    options = {"scale": 0.8, "activation": activation, "causal": causal}
    return {
        "shared": models.AttentionHead.normal(KEY, D_IN, 3, 4, CLASSES, **options),
        "free values": models.FreeValueHead.normal(KEY, length, D_IN, 3, 4, CLASSES, **options),
        "free": models.FreeHead.normal(KEY, length, 4, CLASSES, **options),
        "several": models.MultiHeadAttention.normal(KEY, HEADS, D_IN, 3, 4, CLASSES, **options),
    }


gradient_law = eqx.filter_jit(routing.gradient_law)
head_gradients = eqx.filter_jit(gf.laws.head_gradients)
head_state = eqx.filter_jit(routing.head_state)


@pytest.mark.parametrize("kind", ["shared", "free values", "free", "several"])
def test_all_gradients_are_those_of_autodiff(kind):
    head = heads()[kind]
    x, targets, mask, where = inputs()
    residuals = gradient_law(head, x, targets, mask, where)
    assert worst(residuals) < 1e-12
    missing = {name for name, value in residuals._asdict().items() if value is None}
    free = {"queries", "keys", "w_q", "w_k", "w_v"}
    assert missing == {"shared": set(), "several": set(), "free values": {"w_v"}, "free": free}[kind]
    if kind == "several":
        assert residuals.scores.shape == (HEADS, T, T)


@pytest.mark.slow
@pytest.mark.parametrize("length", [1, 2, 7, 64])
@pytest.mark.parametrize("name", gf.activations.names())
def test_all_gradients_of_every_map_and_size(name, length):
    x, targets, mask, where = inputs(length)
    for causal in (True, False):
        head = heads(length, name, causal)["shared"]
        head = eqx.tree_at(lambda h: (h.w_q, h.w_k), head, (jnp.abs(head.w_q), jnp.abs(head.w_k)))
        positive = jnp.abs(x)  # scores of one sign: no signed map meets its pole
        residuals = gradient_law(head, positive, targets, mask, where)
        assert worst(residuals) < 1e-12
        if name not in SIGNED:
            assert worst(gradient_law(heads(length, name, causal)["shared"], x, targets, mask, where)) < 1e-12


@pytest.mark.parametrize("name", ["softmax", "normalised-exp", "softmax1"])
def test_rows_of_one_sharp_weight_keep_their_digits(name):
    """D_0 = A_0 (A_1 (b_0 - b_1) + m b_0), m = 1 - sum A, in which nothing cancels; A (b - A.b) rounds like |A b|."""
    values, w_o = jax.random.normal(KEY, (2, 4)), jax.random.normal(jax.random.key(1), (4, CLASSES))
    for gap in (5.0, 20.0, 30.0, 36.0, 300.0):
        scores = jnp.array([[0.0, 0.0], [40.0, 40.0 - gap]])
        head = models.FreeHead(scores, values, w_o, activation=name)
        found = head_gradients(head, None, jnp.array([0, 1]))
        state = head_state(head, None, jnp.array([0, 1]))
        weights, (first, second) = state.weights[1], state.compatibility[1]
        missing = weights[0] * jnp.exp(-40.0) if name == "softmax1" else 0.0
        expected = weights[0] * (weights[1] * (first - second) + missing * first)
        np.testing.assert_allclose(found.scores[1, 0], expected, rtol=1e-12)
        if name != "softmax1":
            np.testing.assert_allclose(found.scores[1].sum(), 0, atol=1e-14 * abs(expected))
            assert abs(weights[0] * routing.advantage(state)[1, 0] / expected + 1) < 1e-12


def test_soft_targets_batches_numpy_and_single_precision():
    head = heads()["several"]
    x, targets, _, _ = inputs()
    xs = np.asarray(jnp.stack([x, 2 * x]))
    soft = np.asarray(jax.nn.softmax(jax.random.normal(KEY, (2, T, CLASSES))))
    batched = eqx.filter_vmap(gradient_law, in_axes=(None, 0, 0))(head, xs, soft)
    assert worst(batched) < 1e-12
    assert batched.scores.shape == (2, HEADS, T, T)
    single = jax.tree.map(lambda a: a.astype(np.float32), head)
    residuals = gradient_law(single, xs[0].astype(np.float32), np.asarray(targets))
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(residuals))
    assert worst(residuals) < 1e-5


def test_gradients_are_those_of_the_loss_and_padding_may_hold_anything():
    head = heads()["shared"]
    x, targets, _, _ = inputs()
    mask = jnp.arange(T) < 5
    batch = gf.types.Batch(x[None], targets[None], mask[None])
    slopes = jax.jit(jax.grad(LOSS))(head, batch)
    found = head_gradients(head, x.at[5:].set(jnp.nan), targets.at[5:].set(-1), mask)
    for name in ("w_q", "w_k", "w_v", "w_o"):
        np.testing.assert_allclose(getattr(found, name), getattr(slopes, name), 1e-12, 1e-15)
    assert (found.scores[5:] == 0).all()
    nothing = head_gradients(head, x, targets, jnp.zeros(T, bool))
    assert worst(nothing) == 0


@functools.partial(jax.jit, static_argnums=1)
def softmax_laws(keys, length, scale):
    """Measure one random head a key; what they share is the length of the sequence and the scale of the scores."""

    def at(key):
        head = models.AttentionHead.normal(key, D_IN, 3, 4, CLASSES, scale=1.0)
        head = eqx.tree_at(lambda h: h.w_q, head, scale * head.w_q)
        x = jax.random.normal(key, (length, D_IN))
        return routing.head_state(head, x, jax.random.randint(key, (length,), 0, CLASSES))

    def measure(key):
        state = at(key)
        bound = routing.freezing_bound(state)
        return {
            "sums": jnp.sum(state.score_gradient, -1) / jnp.max(jnp.abs(state.weights * state.compatibility)),
            "rows": routing.row_law(state),
            "mean": routing.mean_compatibility(state),
            "jacobian": routing.jacobian_form(state),
            "variance": routing.variance_identity(state),
            "excess": routing.freezing_excess(state),
            "first row": state.score_gradient[0] / jnp.max(jnp.abs(state.compatibility)),
            "feedback": routing.feedback_law(state, 0.1),
            "mass": jnp.sum(routing.responsibilities(state), -1) - 1,
            "against": jnp.max(state.score_gradient * routing.advantage(state)),
            # no laws: the controls
            "half the bound": jnp.max(jnp.abs(state.score_gradient).sum(-1) - bound / 2),
            "share": routing.routing_share(state),
        }

    return jax.vmap(measure)(keys)


@pytest.mark.parametrize("length", [7, pytest.param(64, marks=pytest.mark.slow)])
def test_consequences_of_the_softmax_law(length):
    keys = jax.random.split(KEY, 20)
    found = softmax_laws(keys, length, 1.0)
    for name in ("sums", "rows", "mean", "jacobian", "variance", "feedback", "mass"):
        assert largest(found[name]) < 1e-14, name
    assert largest(found["first row"]) < 1e-15, "the first row of a causal head has nothing to choose"
    assert largest(found["excess"]) < 1e-14
    assert float(found["against"].max()) <= 0, "descent raises a score exactly where the advantage is positive"
    assert float(found["half the bound"].max()) > 0, "half the freezing bound is exceeded"
    sharp = softmax_laws(keys, length, 30.0)
    assert largest(sharp["excess"]) < 1e-14
    assert float(np.median(sharp["share"])) < 0.5 * float(np.median(found["share"])), "sharp rows freeze"


@eqx.filter_jit
def sigmoid_controls(head, x, targets):
    state = routing.head_state(head, x, targets)
    wrong = routing.softmax_law(state.weights, state.compatibility)
    variance = jnp.sum(state.weights * (state.compatibility - state.mean) ** 2, -1)
    found = jnp.sum(state.score_gradient * state.compatibility, -1)
    return state.score_gradient - wrong, state.score_gradient, variance - found, variance


@pytest.mark.parametrize("name", ["sigmoid", "linear"])
def test_the_softmax_law_fails_for_other_maps(name):
    x, targets, _, _ = inputs()
    off, gradient, gap, variance = sigmoid_controls(heads(activation=name)["shared"], x, targets)
    assert largest(off) > 0.1 * largest(gradient)
    assert largest(gap) > 0.1 * largest(variance)


def test_laws_refuse_maps_that_they_are_not_about():
    x, targets, _, _ = inputs()
    sigmoid = head_state(heads(activation="sigmoid")["shared"], x, targets)
    for law in (routing.variance_identity, routing.jacobian_form, routing.freezing_bound, routing.responsibilities):
        with pytest.raises(gf.FlowError, match=r"activation is 'sigmoid': .* is about the softmax"):
            law(sigmoid)
    for law in (routing.advantage, routing.feedback):
        with pytest.raises(gf.FlowError, match="do not sum to one"):
            law(sigmoid)


def test_the_loss_falls_as_predicted_to_first_order():
    x, targets, mask, where = inputs()
    law = eqx.filter_jit(routing.loss_drop_law)
    for kind in ("shared", "free"):
        assert worst(law(heads()[kind], x, targets, mask, where)) < 1e-12
    head = heads()["shared"]
    gradients = head_gradients(head, x, targets, mask)
    drop = routing.loss_drop(gradients)
    np.testing.assert_allclose(drop.scores, jnp.sum(gradients.scores**2))
    batch = gf.types.Batch(x[None], targets[None], mask[None])
    moved = jax.tree.map(lambda w, g: w - 1e-6 * g, head, jax.grad(LOSS)(head, batch))
    np.testing.assert_allclose((LOSS(head, batch) - LOSS(moved, batch)) / 1e-6, drop.weights, rtol=1e-4)


def test_padding_may_hold_anything_in_a_step_of_the_values():
    x, targets, _, _ = inputs()
    head, mask = heads()["shared"], jnp.arange(T) < T - 1  # the last position, which no other reads
    rows = x.at[-1].set(jnp.nan), x.at[-1].set(0)
    steps = [routing.value_step(head_state(head, row, targets, mask), row) for row in rows]
    np.testing.assert_array_equal(*steps)


def test_shared_values_move_together():
    head, (x, targets, _, _) = heads()["shared"], inputs()
    state = head_state(head, x, targets)
    gradients = routing.gradients_of(head, x, state)
    np.testing.assert_allclose(x @ -gradients.w_v, routing.value_step(state, x), 1e-12, 1e-15)
    np.testing.assert_allclose(-gradients.values, routing.value_step(state), 1e-12, 1e-15)
    assert largest(routing.value_step(state, x) - routing.value_step(state)) > 0.1 * largest(gradients.values)


def test_feedback_grows_the_advantage_under_its_condition_and_not_always():
    state = head_state(heads()["shared"], *inputs()[:2])
    found = routing.feedback(state)
    condition = routing.own_feedback_grows(state.weights)
    assert ((found.own > 0) == condition)[1:][state.mask[1:]].all()
    after = eqx.tree_at(lambda s: s.values, state, state.values + routing.value_step(state))
    compatibility = after.upstream @ after.values.T
    mean = jnp.sum(state.weights * compatibility, -1, keepdims=True)
    growth = jnp.where(state.mask, mean - compatibility, 0) - routing.advantage(state)
    np.testing.assert_allclose(found.own + found.cross, growth, 1e-10, 1e-14)
    assert (growth < 0)[condition & state.mask].any(), "other queries can reverse it: it is no theorem"


def test_gauges_are_conserved_by_the_flow_and_change_by_their_squares_under_descent():
    x, targets, mask, _ = inputs()
    batch, rates = gf.types.Batch(x[None], targets[None], mask[None]), {"w_v": 10.0, "w_k": 0.5}
    head = heads()["several"]
    for residual in routing.gauge_step(LOSS, head, batch, 0.3, rates).values():
        assert largest(residual) < 1e-12
    flow = gf.gradient_flow(LOSS, head, batch, t1=10.0, ts=[0.0, 1.0, 10.0], rates=rates, solver="tsit5", rtol=1e-10)
    drift = gf.laws.conserved_drift(flow.observed, batch, rates)
    assert set(drift) == {"query_key", "value_output", "output_row_sums"}
    assert worst(drift) < 1e-8
    plain = gf.laws.conserved_drift(flow.observed, batch)
    assert largest(plain["value_output"]) > 1e-2, "without the rates it is no invariant"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["shared", "free values", "free", "several"])
def test_audit_of_flows_of_every_kind_of_head(kind):
    x, targets, mask, _ = inputs()
    batch, rates = gf.types.Batch(x[None], targets[None], mask[None]), {"w_o": 3.0}
    head = heads(activation="softmax" if kind != "free" else "normalised-softplus")[kind]
    flow = gf.gradient_flow(LOSS, head, batch, t1=1e6, ts=[0.0, 1.0, 100.0, 1e6], rates=rates)
    audit = gf.laws.audit(flow, LOSS, batch, rates=rates)
    assert audit.holds, str(audit)
    moved = eqx.tree_at(lambda run: run.observed.w_o, flow, flow.observed.w_o.at[1].multiply(1.01))
    assert not gf.laws.audit(moved, LOSS, batch, rates=rates).holds


def test_rows_of_free_scores_keep_their_sums():
    _, targets, _, _ = inputs()
    batch = gf.types.Batch(jnp.zeros((1, T, 0)), targets[None], jnp.ones((1, T), bool))
    head = heads()["free"]
    run = gf.gradient_descent(LOSS, head, optax.sgd(0.5), batch, steps=200, save_at=[0, 10, 200])
    drift = gf.laws.conserved_drift(run.observed, batch)
    assert worst((drift["score_row_sums"], drift["output_row_sums"])) < 1e-12
    assert largest(drift["value_output"]) > 1e-3, "descent leaves it in second order"
    names = set(gf.laws.conserved(heads(activation="normalised-sigmoid")["free"], batch))
    assert names == {"value_output", "output_row_sums", "score_row_primitives"}
    audit = gf.laws.audit(run, LOSS, batch)
    assert audit.holds, str(audit)
    assert "drifts by O(step size) under descent" in str(audit)


HARD = [("softmax", 3, 20.0, "float64"), ("softmax", 3, 5.0, "float32"), ("normalised-relu", 1, 0.5, "float64")]
RARE = [("softmax1", 3, 20.0, "float64"), ("sparsemax", 3, 20.0, "float64")]
RARE += [(f"normalised-{name}", 1, 0.5, "float64") for name in ("square", "abs", "sigmoid")]


@pytest.mark.parametrize(
    ("name", "d_k", "scale", "dtype"), [*HARD, *(pytest.param(*case, marks=pytest.mark.slow) for case in RARE)]
)
def test_audits_hold_where_gradients_vanish(name, d_k, scale, dtype):
    """Rows of one weight, and maps that see no scale at d_k = 1: what is left of a gradient there is rounding."""
    x, targets, mask, _ = inputs()
    head = models.AttentionHead.normal(KEY, D_IN, d_k, 4, CLASSES, scale=scale, activation=name)
    head, x = jax.tree.map(lambda leaf: leaf.astype(dtype) if eqx.is_array(leaf) else leaf, (head, x))
    audit = gf.laws.audit(head, LOSS, gf.types.Batch(x[None], targets[None], mask[None]))
    assert audit.holds, str(audit)


def test_audit_of_one_model():
    x, targets, mask, _ = inputs()
    batch = gf.types.Batch(x[None], targets[None], mask[None])
    head = heads(activation="sigmoid")["several"]
    audit = gf.laws.audit(head, LOSS, batch)
    assert audit.holds, str(audit)
    assert len(audit.rows) == 6
    assert {entry.reason for entry in audit.skipped} >= {"the map is sigmoid", "holds along a run; this is one model"}
    assert str(audit).startswith("one MultiHeadAttention, loss cross_entropy")
    with pytest.raises(gf.FlowError, match="initial"):
        gf.laws.audit(head, LOSS, batch, initial=head)
    block = gf.laws.audit(
        models.AttentionBlock.normal(KEY, D_IN, 1), lambda block, x: jnp.sum(jax.vmap(block)(x)), x[None]
    )
    assert "the model is a block" in str(block)


def test_the_fused_loss_is_audited_as_the_cross_entropy_that_it_is():
    x, targets, mask, _ = inputs()
    batch = gf.types.Batch(x[None], targets[None], mask[None])
    audits = [gf.laws.audit(heads()["shared"], loss, batch) for loss in (LOSS, routing.head_cross_entropy)]
    assert audits[0] == audits[1] and audits[0].holds


BAD = {
    "targets holds 6 and the head has 6 classes": {"targets": jnp.full(T, CLASSES)},
    "targets has shape": {"targets": jnp.zeros(T - 1, int)},
    "targets has a row that sums to 0": {"targets": jnp.zeros((T, CLASSES))},
    "mask has shape": {"mask": jnp.ones((T, T), bool)},
    "where has shape": {"where": jnp.ones(T, bool)},
    "x has shape": {"x": jnp.ones((T, D_IN + 1))},
    "pass its `attention`": {"head": models.AttentionBlock.normal(KEY, D_IN, 1)},
    "head is 'ArrayImpl'|head is ": {"head": jnp.ones(3)},
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_refused_in_one_line(message):
    with pytest.raises(gf.FlowError, match="pass its `attention`"):
        routing.gauge(models.AttentionBlock.normal(KEY, D_IN, 1))
    x, targets, mask, where = inputs()
    good = {"head": heads()["shared"], "x": x, "targets": targets, "mask": mask, "where": where}
    with pytest.raises(gf.FlowError, match=message) as caught:
        gf.laws.head_gradients(**(good | BAD[message]))
    assert "\n" not in str(caught.value)
