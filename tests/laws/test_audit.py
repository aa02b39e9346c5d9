"""`gf.laws.audit`: what a run shows, what it cannot, and that a broken run is found out."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import gradflow as gf

KEY = jax.random.key(0)


def laws_in(entries) -> set[str]:
    return {entry.law for entry in entries}


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
def test_first_piece_of_the_users_page(dtype):
    data = gf.tasks.linear_classification(KEY, n_samples=64, n_features=8)
    model = gf.models.ValueSoftmax.normal(KEY, d=8, n=16, scale=0.1)
    model, data = jax.tree.map(lambda x: x.astype(dtype), (model, data))
    flow = gf.gradient_flow(gf.losses.logistic, model, data, t1=1e12, ts=gf.log_times(1e-1, 1e12, 200))
    audit = gf.laws.audit(flow, gf.losses.logistic, data)
    assert audit.holds, str(audit)
    assert laws_in(audit.rows) == {"-", "1", "5", "17"}
    assert {entry.law: entry.reason for entry in audit.skipped}["7"] == "64 samples, not one"
    text = str(audit)
    assert text.count("\n") == len(audit.rows) + len(audit.skipped) + 3
    assert "sum of scores is constant" in text
    assert "<table>" in audit._repr_html_()


@functools.cache
def setting_a():
    setting = gf.models.paper.logistic()
    return setting, gf.gradient_flow(setting.loss, setting.model, setting.args, t1=1e8, ts=gf.log_times(1e-1, 1e8, 60))


def test_one_sample_run_meets_the_whole_theory():
    setting, flow = setting_a()
    audit = gf.laws.audit(flow, setting.loss, setting.args, initial=setting.model)
    assert audit.holds, str(audit)
    assert laws_in(audit.rows) == {"-", "1", "4", "5", "6", "7", "8", "9", "11", "17"}
    late = gf.laws.audit(flow, setting.loss, setting.args)
    assert late.holds
    assert {"8", "9", "11"} <= laws_in(late.skipped)


def test_a_tampered_run_is_found_out():
    setting, flow = setting_a()
    moved = flow.observed.scores * 1.01 + 1e-3 * jnp.arange(60)[:, None]
    shifted = eqx.tree_at(lambda t: t.observed.scores, flow, moved)
    audit = gf.laws.audit(shifted, setting.loss, setting.args, initial=setting.model)
    assert not audit.holds
    assert not audit["1"][0].holds
    assert not audit["7"][0].holds
    assert audit["4"][0].holds
    assert "  NO" in str(audit)
    broken = eqx.tree_at(lambda t: t.observed.values, flow, flow.observed.values.at[5].set(jnp.nan))
    assert not gf.laws.audit(broken, setting.loss, setting.args).holds


@pytest.mark.slow
def test_two_values_and_the_square_loss():
    sample = gf.tasks.single_sample(jnp.asarray([1.0, 2.0, 2.0]), label=1.5)
    model = gf.models.ValueSoftmax.normal(KEY, 3, 2)
    flow = gf.gradient_flow(gf.losses.square, model, sample, t1=1e2, ts=[0.0, 1.0, 10.0, 100.0])
    audit = gf.laws.audit(flow, gf.losses.square, sample)
    assert audit.holds, str(audit)
    assert {"2", "7", "8", "16", "19"} <= laws_in(audit.rows)
    assert audit["2"][0].residual > 0


def test_rates_are_part_of_the_laws():
    data, rates = gf.tasks.linear_regression(KEY, n_features=3), {"values": 2.0}
    model = gf.models.ValueSoftmax.normal(KEY, 3, 2)
    flow = gf.gradient_flow(gf.losses.square, model, data, t1=1e2, ts=[0.0, 1.0, 10.0, 100.0], rates=rates)
    audit = gf.laws.audit(flow, gf.losses.square, data, rates=rates)
    assert audit.holds, str(audit)
    assert {entry.law: entry.reason for entry in audit.skipped}["16"] == "rates or temperature are not 1"
    assert not gf.laws.audit(flow, gf.losses.square, data)["2"][0].holds


@pytest.mark.slow
def test_other_models_and_losses_get_what_applies():
    p = gf.tasks.target_distribution(KEY, 4)
    value = gf.models.ValueSoftmax.normal(KEY, 4, 3, activation="sigmoid")
    flow = gf.gradient_flow(gf.losses.kl, value, p, t1=10.0, ts=[1.0, 10.0])
    audit = gf.laws.audit(flow, gf.losses.kl, p)
    assert audit.holds, str(audit)
    assert laws_in(audit.rows) == {"-", "3", "20"}
    tied = gf.models.TiedSoftmax(jnp.eye(3), jnp.asarray([1.0, 0.9, 1.1]))
    sample = gf.tasks.single_sample(jnp.asarray([1.0, 2.0, 2.0]))
    flow = gf.gradient_flow(gf.losses.logistic, tied, sample, t1=10.0, ts=[1.0, 10.0])
    audit = gf.laws.audit(flow, gf.losses.logistic, sample)
    assert audit.holds, str(audit)
    assert "d(|U|^2 - |a|^2)/dt" in str(audit)


def own_loss(model, data):
    return jnp.mean((jax.vmap(model)(data.x)[:, 0] - data.y) ** 2)


def test_own_network_gets_the_general_laws():
    data = gf.tasks.linear_regression(KEY, n_features=3)
    mlp = eqx.nn.MLP(3, 1, 4, 1, activation=jnp.tanh, key=KEY)
    flow = gf.gradient_flow(own_loss, mlp, data, t1=10.0, ts=[1.0, 10.0])
    audit = gf.laws.audit(flow, own_loss, data)
    assert audit.holds, str(audit)
    assert [row.law for row in audit.rows] == ["-", "-"]
    assert audit.skipped[0].reason == "the model is a MLP"


def test_descent_keeps_what_is_linear():
    setting = gf.models.paper.logistic()
    run = gf.gradient_descent(
        setting.loss, setting.model, optax.sgd(0.1), setting.args, steps=1000, save_at=[0, 10, 1000]
    )
    audit = gf.laws.audit(run, setting.loss, setting.args)
    assert audit.holds, str(audit)
    assert laws_in(audit.rows) == {"1", "4"}


def test_one_model_is_audited_for_what_holds_at_one():
    setting, _ = setting_a()
    audit = gf.laws.audit(setting.model, setting.loss, setting.args)
    assert audit.holds, str(audit)
    assert laws_in(audit.rows) == {"-", "5", "6", "17"}
    assert {"1", "7", "8", "11"} <= {e.law for e in audit.skipped if e.reason == "holds along a run; this is one model"}


def test_what_cannot_be_audited_is_refused_in_one_line():
    setting, plain = setting_a()
    weights = dataclasses.replace(plain, observed=plain.observed.weights)
    with pytest.raises(gf.FlowError, match="observe=None"):
        gf.laws.audit(weights, setting.loss, setting.args)
    with pytest.raises(gf.FlowError, match="initial"):
        gf.laws.audit(plain, setting.loss, setting.args, initial=jnp.ones(3))
    with pytest.raises(gf.FlowError, match="rates"):
        gf.laws.audit(plain, setting.loss, setting.args, rates={"valeus": 2.0})
    with pytest.raises(gf.FlowError, match="or a model"):
        gf.laws.audit(setting.loss, setting.loss, setting.args)
    with pytest.raises(gf.FlowError, match="save axis"):
        gf.laws.polarization.score_sum(setting.model)
    nothing = eqx.tree_at(lambda t: t.valid, plain, np.zeros(60, bool))
    with pytest.raises(gf.FlowError, match="saved no model"):
        gf.laws.audit(nothing, setting.loss, setting.args)
