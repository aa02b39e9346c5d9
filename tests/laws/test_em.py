"""EM in attention: both exact versions, the closed-form M step and the normalised step, each with what must fail."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradflow as gf
from gradflow.laws import em

T, C = 7, 4
KEY = jax.random.key(4)
X = jax.random.normal(jax.random.key(1), (T, 5))
TARGETS = jax.random.randint(jax.random.key(2), (T,), 0, C)
MASK = jnp.array([True, True, False, True, True, False, True])
# Rows 2 and 4 attend to nothing; one of them counts.
WHERE = (jax.random.uniform(jax.random.key(3), (T, T)) < 0.8).at[jnp.array([2, 4])].set(False)
SOFT = gf.activations.Softmax(temperature=1.7)
HEADS = {
    "head": gf.models.AttentionHead.normal(KEY, 5, 3, 4, C, scale=0.8, activation=SOFT),
    "free values": gf.models.FreeValueHead.normal(KEY, T, 5, 3, 4, C, scale=0.8),
    "free": gf.models.FreeHead.normal(KEY, T, 4, C, scale=0.8, causal=False),
    "several": gf.models.MultiHeadAttention.normal(KEY, 2, 5, 3, 4, C, scale=0.8),
}
SIGMOID = gf.models.AttentionHead.normal(KEY, 5, 3, 4, C, scale=0.8, activation="sigmoid")
SINGLE = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), HEADS["head"])
every_head = pytest.mark.parametrize("kind", HEADS)
one_head = pytest.mark.parametrize("kind", ["head", "free"])
BETAS = (1e-1, 1e-2, 1e-3, 1e-4)
ETA = 0.3


def largest(x):
    return max(jnp.max(jnp.abs(leaf)) for leaf in jax.tree.leaves(x))


def measure(head, x):
    """Everything about one head at the inputs above, in one kernel."""
    at = (head, x, TARGETS)
    seen = (MASK, WHERE)
    weights = head(x, WHERE, capture=True)[1].weights
    step = em.proximal_step(*at, ETA, 0.0, *seen)
    found = {
        "weights": weights,
        "limits": jax.vmap(lambda beta: largest(em.routing_limit(*at, beta, *seen)))(jnp.array(BETAS, x.dtype)),
        "limit": em.routing_limit(*at, BETAS[1], *seen),
        "tempered": em.tempered_responsibilities(*at, BETAS[1], *seen),
        "surrogate": em.surrogate_gap(*at, 3.0, *seen),
        "surrogate of weights": em.surrogate_gap(*at, 3.0, *seen, posterior=weights),
        "gradient": largest(step) / ETA,
        "proximal": jax.vmap(lambda beta: largest(em.proximal_residual(*at, ETA, *seen, beta=beta)))(
            jnp.array([0.0, 1e-3, 1e-4], x.dtype)
        ),
        "normalised": em.normalised_residual(*at, ETA, *seen),
        "normalised of plain": em.normalised_residual(*at, ETA, *seen, step=step),
        "preconditioned": em.closed_form_residual(*at, *seen),
    }
    if weights.ndim == 2:
        posterior = em.responsibilities(*at, *seen)
        found |= {
            "posterior": posterior,
            "mixture": em.mixture_residual(*at, *seen),
            "mixture gradients": em.mixture_gradients(*at, *seen),
            "elbo": em.elbo_gap(*at, *seen),
            "elbo of weights": em.elbo_gap(*at, *seen, posterior=weights),
        }
    return found


@functools.cache
def measured(kind):
    head = {"sigmoid": SIGMOID, "float32": SINGLE, **HEADS}[kind]
    return jax.device_get(eqx.filter_jit(measure)(head, X.astype(head.w_o.dtype)))


@one_head
def test_mixture_gradients_are_those_of_autodiff(kind):
    found = measured(kind)
    assert largest(found["mixture"]) < 1e-12
    assert largest(found["mixture gradients"]) > 0.1


@pytest.mark.parametrize("length", [1, 64])
def test_mixture_gradients_at_other_lengths(length):
    head = gf.models.FreeHead.normal(KEY, length, 4, C, scale=0.8)
    targets = jax.random.randint(KEY, (length,), 0, C)
    assert largest(eqx.filter_jit(em.mixture_residual)(head, None, targets)) < 1e-12


def test_a_gate_is_a_responsibility_for_the_softmax_alone():
    found = measured("sigmoid")
    assert largest(found["mixture"].scores) > 0.1 * largest(found["mixture gradients"].scores)
    assert largest(found["mixture"].values) < 1e-12


@one_head
def test_the_e_step_closes_the_gap_of_the_bound(kind):
    found = measured(kind)
    weights, posterior = found["weights"], found["posterior"]
    alive = np.any(HEADS[kind].mask(T, WHERE), axis=1)
    np.testing.assert_allclose(posterior.sum(1), alive, atol=1e-14)
    np.testing.assert_allclose(posterior[5], weights[5], rtol=1e-14)  # no evidence there
    assert abs(found["elbo"]) < 1e-14
    held = np.asarray(MASK)[:, None] & (weights > 0)
    ratio = np.log(np.where(held, weights, 1) / np.where(held, posterior, 1))
    assert found["elbo of weights"] == pytest.approx((weights * ratio).sum() / float(MASK.sum()), rel=1e-10)
    assert found["elbo of weights"] > 1e-3


RUNS = 50


def em_losses(head, targets, mask, uses_weights):
    """Loss before each of 40 steps; the control puts attention in the place of the responsibilities."""
    batch = gf.types.Batch(jnp.zeros((1, T, 1)), targets[None], mask[None])

    def step(h, _):
        weights = h(None, capture=True)[1].weights
        posterior = jnp.where(uses_weights, weights, em.responsibilities(h, None, targets, mask))
        new = em.em_step(h, targets, mask, posterior=posterior)
        return new, (em.mixture_loss(h, batch), em.em_increase(h, targets, mask))

    return jax.lax.scan(step, head, None, length=40)[1]


def random_runs():
    keys = jax.random.split(jax.random.key(8), RUNS)
    heads = jax.vmap(lambda k: gf.models.FreeHead.normal(k, T, 4, C, scale=1.0))(keys)
    targets = jax.vmap(lambda k: jax.random.randint(k, (T,), 0, C))(keys)
    masks = jax.vmap(lambda k: jax.random.bernoulli(k, 0.8, (T,)))(keys).at[:, 0].set(True)
    return heads, targets, masks


def test_em_is_monotone_and_needs_responsibilities():
    runs = eqx.filter_vmap(em_losses, in_axes=(eqx.if_array(0), 0, 0, None))
    both = eqx.filter_jit(eqx.filter_vmap(runs, in_axes=(None, None, None, 0)))
    (losses, control), (increase, _) = both(*random_runs(), jnp.array([False, True]))
    assert np.diff(losses, axis=1).max() < 1e-12
    assert increase.max() < 1e-12
    assert (losses[:, -1] < losses[:, 0] - 0.1).all()
    rising = (np.diff(control, axis=1) > 1e-6).any(axis=1)
    assert rising.any(), "with attention in place of the responsibilities the loss rises"
    assert (control[:, -1] > losses[:, -1] + 0.1).all()


@every_head
def test_the_routing_law_is_the_limit_of_an_e_step(kind):
    limits = measured(kind)["limits"]
    np.testing.assert_allclose(limits[:-1] / limits[1:], 10, rtol=0.1)


def test_the_limit_is_that_of_the_e_step_and_of_the_slope():
    """The parts of the residual, each by another route than its own."""
    found, head = measured("free"), HEADS["free"]
    slope = jax.grad(lambda s: score_loss(eqx.tree_at(lambda h: h.scores, head, s)))(head.scores)
    np.testing.assert_allclose((found["weights"] - found["tempered"]) / BETAS[1] - slope, found["limit"], atol=1e-12)


def score_loss(head):
    log_p = jax.nn.log_softmax(head(X, WHERE))[jnp.arange(T), TARGETS]
    return -jnp.sum(jnp.where(MASK, log_p, 0)) / MASK.sum()


def test_the_limit_fails_for_a_sigmoid():
    assert measured("sigmoid")["limits"].min() > 0.1 * measured("sigmoid")["gradient"]


@every_head
def test_the_e_step_minimises_the_surrogate(kind):
    found = measured(kind)
    assert largest(found["surrogate"]) < 1e-14
    assert found["surrogate of weights"].min() > 1e-6


@every_head
def test_steps_of_the_values(kind):
    """The proximal step is the responsibility law at beta = 0; the normalised one divides it by what a position got."""
    found = measured(kind)
    exact, *far = found["proximal"]
    assert exact < 1e-14
    assert far[0] / far[1] == pytest.approx(10, rel=0.1)
    assert largest(found["normalised"]) < 1e-14
    assert largest(found["normalised of plain"]) > 0.1 * found["gradient"]


def test_the_responsibility_law_needs_no_softmax_and_the_e_step_needs_rows_of_one():
    found = measured("sigmoid")
    assert largest(found["normalised"]) < 1e-14
    assert found["proximal"][0] > 0.1 * found["gradient"]


def test_float32():
    found = measured("float32")
    assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves(found))
    for name in ("mixture", "normalised", "surrogate", "elbo"):
        assert largest(found[name]) < 1e-5


def closed_form_losses(head, x, targets, mask):
    """Loss at each of 50 steps of the closed-form M step."""
    batch = gf.types.Batch(x[None], targets[None], mask[None])

    def step(h, _):
        moved = h.w_v + em.closed_form_step(h, x, targets, mask)
        increase = em.closed_form_increase(h, x, targets, mask)
        return eqx.tree_at(lambda m: m.w_v, h, moved), (gf.losses.cross_entropy(h, batch), increase)

    return jax.lax.scan(step, head, None, length=50)[1]


@pytest.mark.parametrize("kind", ["head", "several"])
def test_the_closed_form_step_never_raises_the_loss(kind):
    keys = jax.random.split(jax.random.key(9), 30)
    build = {
        "head": lambda k: gf.models.AttentionHead.normal(k, 5, 3, 4, C, scale=1.0),
        "several": lambda k: gf.models.MultiHeadAttention.normal(k, 2, 5, 3, 4, C, scale=1.0),
    }[kind]
    x = jax.vmap(lambda k: jax.random.normal(k, (T, 5)))(keys)
    _, targets, masks = random_runs()
    run = eqx.filter_jit(eqx.filter_vmap(closed_form_losses))
    losses, increase = run(jax.vmap(build)(keys), x, targets[:30], masks[:30])
    assert np.diff(losses, axis=1).max() < 1e-12
    assert increase.max() < 1e-12
    assert (losses[:, -1] < losses[:, 0] - 0.05).all()


@every_head
def test_the_closed_form_step_is_a_preconditioned_gradient(kind):
    assert largest(measured(kind)["preconditioned"]) < 1e-9


@pytest.mark.parametrize("kind", ["free values", "several"])
def test_the_bound_holds_for_any_step(kind):
    head = HEADS[kind]
    shape = (head.values if kind == "free values" else head.w_v).shape
    steps = jax.random.normal(jax.random.key(5), (40, *shape)) * jnp.geomspace(0.01, 30, 40).reshape(
        40, *[1] * len(shape)
    )

    def violation(step, curvature):
        return em.closed_form_violation(head, X, TARGETS, step, MASK, WHERE, curvature)

    found = jax.jit(jax.vmap(jax.vmap(violation, (0, None)), (None, 0)))(steps, jnp.array([0.5, 0.02]))
    assert found[0].max() < 1e-12
    assert found[1].max() > 1e-3, "a smaller curvature is no bound"


def test_inputs_in_place_of_what_is_attended_miss():
    """F is A X, not X; and eight times the step is beyond the bound."""
    x = jax.random.normal(KEY, (40, 5))
    targets = jax.random.randint(KEY, (40,), 0, C)
    head = gf.models.AttentionHead.normal(KEY, 5, 3, 4, C, scale=0.5)

    @eqx.filter_jit
    def run(head):
        right = em.closed_form_step(head, x, targets)
        errors = jax.nn.softmax(head(x)) - jax.nn.one_hot(targets, C)
        wrong = -2 * jnp.linalg.pinv(x) @ errors @ jnp.linalg.pinv(head.w_o)
        far = em.closed_form_increase(head, x, targets, step=8 * right)
        return largest(right), largest(right - wrong), em.closed_form_increase(head, x, targets), far

    size, miss, increase, far = run(head)
    assert miss > 0.1 * size
    assert increase == 0
    assert far > 1e-3


def test_extreme_heads_stay_finite():
    scores = jnp.array([[0.0, 5e4], [-5e4, 5e4]])
    head = gf.models.FreeHead(scores, jnp.array([[300.0], [-300.0]]), 9 * jnp.ones((1, 3)), causal=False)
    targets, nothing = jnp.array([0, 2]), jnp.zeros((2, 2), bool)

    @eqx.filter_jit
    def run(head):
        return [
            em.mixture_gradients(head, None, targets),
            em.responsibilities(head, None, targets),
            em.em_step(head, targets).values,
            em.tempered_responsibilities(head, None, targets, 1e6),
            em.normalised_step(head, None, targets, 0.1),
            em.closed_form_step(head, None, targets),
            em.mixture_gradients(head, None, targets, where=nothing),
            em.em_step(head, targets, where=nothing).scores,
            em.closed_form_step(head, None, targets, jnp.zeros(2, bool)),
        ]

    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(run(head)))


LINEAR = gf.models.AttentionHead.normal(KEY, 5, 3, 4, C, activation="linear")
BATCH = gf.types.Batch(X[None], jnp.full((1, T), 9), MASK[None])


def test_a_traced_class_that_is_none_gives_nan_and_no_number():
    assert np.isnan(em.mixture_loss(HEADS["head"], BATCH))
    slopes = jax.jit(jax.grad(em.mixture_loss))(HEADS["head"], BATCH)
    assert all(np.isnan(slope).any() for slope in (slopes.w_q, slopes.w_k, slopes.w_v, slopes.w_o))
    found = jax.jit(lambda targets: em.normalised_step(HEADS["head"], X, targets, ETA))(jnp.full(T, C))
    assert np.isnan(found).any()
    gradients = jax.jit(lambda targets: gf.laws.head_gradients(HEADS["head"], X, targets))(TARGETS.at[0].set(-1))
    assert np.isnan(gradients.w_v).any() and not np.isnan(gradients.upstream[1]).any()


BAD = (
    (lambda: em.responsibilities(HEADS["head"], X, TARGETS + 9), "targets holds .* 4 classes"),
    (lambda: em.responsibilities(HEADS["head"], X, TARGETS[:3]), "each of the 7 positions"),
    (lambda: em.responsibilities(HEADS["head"], X, TARGETS, jnp.ones(T)), "mask is .* 7 booleans"),
    (lambda: em.responsibilities(HEADS["several"], X, TARGETS), "several heads"),
    (lambda: em.em_step(HEADS["head"], TARGETS), "FreeHead"),
    (lambda: em.responsibilities(LINEAR, X, TARGETS), "'linear', whose weights can be negative"),
    (lambda: em.tempered_responsibilities(HEADS["head"], X, TARGETS, -1.0), "beta is -1.0"),
    (lambda: em.tempered_responsibilities(HEADS["head"], X, TARGETS, "1"), "beta is '1'"),
    (lambda: em.surrogate(HEADS["head"], X, TARGETS, jnp.eye(T), 0.0), "beta is 0.0"),
    (lambda: em.surrogate_gap(HEADS["head"], X, TARGETS, 0.0), "beta is 0.0"),
    (lambda: em.routing_limit(HEADS["head"], X, TARGETS, 0.0), "beta is 0.0"),
    (lambda: em.proximal_step(HEADS["head"], X, TARGETS, ETA, -1.0), "beta is -1.0"),
    (lambda: em.mixture_loss.check_model(HEADS["head"], BATCH), "targets holds 9 and the model has 4 classes"),
    (lambda: em.closed_form_step(eqx.nn.Linear(2, 2, key=KEY), X, TARGETS), "Linear"),
)


@pytest.mark.parametrize(("call", "message"), BAD, ids=lambda x: x if isinstance(x, str) else "")
def test_bad_input(call, message):
    with pytest.raises(gf.FlowError, match=message):
        call()
