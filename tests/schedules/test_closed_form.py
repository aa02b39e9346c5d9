"""The closed-form M step as an optimiser: the law's own step, monotone, beside other groups, masked and in batches."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradflow as gf
from gradflow.descent.optimizer import canonical
from gradflow.laws import em

T, C, N = 9, 4, 3
KEY = jax.random.key(0)
LOSS = gf.losses.cross_entropy
HEAD = gf.models.AttentionHead.normal(KEY, 5, 3, 4, C, scale=0.5)
SEVERAL = gf.models.MultiHeadAttention.normal(KEY, 2, 5, 3, 4, C, scale=0.5)
MASK = jax.random.bernoulli(jax.random.key(5), 0.8, (N, T))
BATCH = gf.types.Batch(jax.random.normal(jax.random.key(1), (N, T, 5)), jax.random.randint(KEY, (N, T), 0, C), MASK)
ONE = jax.tree.map(lambda leaf: leaf[:1], BATCH)
m_step = gf.schedules.closed_form_values


def observe(step, model, args):
    return LOSS(model, args)


def m_steps(head, batch, steps, values="w_v", default=0.0, **options):
    optimizer = gf.schedules.parameter_groups({values: m_step()}, default=default)
    return gf.gradient_descent(LOSS, head, optimizer, batch, steps=steps, **options)


@pytest.mark.parametrize("kind", ["head", "several", "free values"])
def test_it_is_the_step_of_the_law(kind):
    free = gf.models.FreeValueHead.normal(KEY, T, 5, 3, 4, C, scale=0.5)
    head, values = {"head": (HEAD, "w_v"), "several": (SEVERAL, "w_v"), "free values": (free, "values")}[kind]
    run = m_steps(head, ONE, 1, values)
    step = em.closed_form_step(head, ONE.inputs[0], ONE.targets[0], ONE.mask[0])
    moved = getattr(run.final, values) - getattr(head, values)
    np.testing.assert_allclose(moved, step, atol=1e-10 * float(jnp.abs(step).max()))
    np.testing.assert_array_equal(run.final.w_o, head.w_o)


@pytest.mark.parametrize("head", [HEAD, SEVERAL], ids=["head", "several"])
def test_it_is_monotone_over_many_sequences(head):
    losses = m_steps(head, BATCH, 60, save_at=np.arange(61), observe=observe).observed
    assert np.diff(losses).max() < 1e-12
    assert losses[-1] < losses[0] - 0.2


def test_it_needs_no_gradient_of_its_own_scale_and_moves_beside_others():
    """Twice as many copies of the data are the same mean loss, and the same steps."""
    twice = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf]), BATCH)
    runs = [m_steps(HEAD, batch, 5, default=0.01) for batch in (BATCH, twice)]
    np.testing.assert_allclose(runs[0].final.w_v, runs[1].final.w_v, rtol=1e-8)
    assert float(jnp.abs(runs[0].final.w_q - HEAD.w_q).max()) > 0


def test_members_batches_and_frozen_leaves():
    heads = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]), HEAD)
    optimizer = gf.schedules.parameter_groups({"w_v": m_step()}, default=0.01)
    options = {"steps": 4, "trainable": gf.schedules.only(HEAD, "w_v", "w_o")}
    run = gf.gradient_descent_ensemble(LOSS, heads, optimizer, BATCH, **options)
    alone = gf.gradient_descent(LOSS, HEAD, optimizer, BATCH, **options)
    np.testing.assert_allclose(run.final.w_v[0], alone.final.w_v, atol=1e-9)
    np.testing.assert_array_equal(run.final.w_q, heads.w_q)
    drawn = gf.gradient_descent(LOSS, HEAD, m_step(), BATCH, steps=1, batches=first, key=KEY)
    np.testing.assert_allclose(drawn.final.w_v, m_steps(HEAD, ONE, 1).final.w_v, atol=1e-12)
    np.testing.assert_array_equal(drawn.final.w_q, HEAD.w_q)
    assert canonical(m_step()) is canonical(m_step(1))


def first(key, step, batch):
    return jax.tree.map(lambda leaf: leaf[:1], batch)


def plain(model, args):
    return jnp.sum(model.weight**2)


BAD = (
    (lambda: m_step(3.0), "damping is 3.0"),
    (lambda: m_step("half"), "damping is 'half'"),
    (
        lambda: gf.gradient_descent(plain, eqx.nn.Linear(2, 2, key=KEY), m_step(), None, steps=1),
        "needs a head of gf.models",
    ),
    (
        lambda: gf.gradient_descent(
            LOSS, HEAD, gf.schedules.parameter_groups({"w_o": m_step()}, default=0.1), ONE, steps=1
        ),
        "'w_v', which is frozen or in another group",
    ),
    (lambda: gf.gradient_descent(without_batch, HEAD, m_step(), None, steps=1), "args is a NoneType"),
)


def without_batch(head, args):
    return jnp.sum(head.w_v**2)


@pytest.mark.parametrize(("call", "message"), BAD, ids=lambda x: x if isinstance(x, str) else "")
def test_bad_input(call, message):
    with pytest.raises(gf.FlowError, match=message):
        call()
