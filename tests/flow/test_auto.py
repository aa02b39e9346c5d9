"""The solver that measures stiffness: when it changes, what it costs, what it says."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradflow as gf
from gradflow.flow import kernel
from gradflow.flow.solvers import dense
from gradflow.flow.solvers.explicit import AbstractUnrolled, Bosh3, Dopri8, Tsit5, interpolated, unrolled_stages
from gradflow.trajectory import result_name

TIMES = np.array([0.0, 0.3, 30.0, 300.0])


def quadratic(model, rates):
    return 0.5 * jnp.sum(rates * model**2)


def squares(t, model, rates):
    return model


def spectrum(condition):
    return jnp.geomspace(1.0, condition, 6)


def flow(condition, *, t1=300.0, **options):
    options = {"ts": TIMES, "rtol": 1e-6, "observe": squares, **options}
    return gf.gradient_flow(quadratic, jnp.ones(6), spectrum(condition), t1=t1, **options)


def test_a_stiff_flow_changes_to_the_chebyshev_method_and_says_so():
    run = flow(1e4)
    assert int(run.stats["num_chebyshev_steps"]) > 0
    assert int(run.stats["num_switches"]) >= 1
    assert 0 < float(run.stats["stiff_since"]) < 300
    assert float(run.stats["stiffness"]) == pytest.approx(1e4, rel=0.05)
    exact = np.exp(-np.outer(TIMES, spectrum(1e4)))
    np.testing.assert_allclose(run.observed, exact, atol=1e-5)
    explicit = flow(1e4, solver="tsit5", throw=False)
    assert explicit.status == "stiff"  # a million steps are not enough
    assert int(run.stats["num_gradients"]) * 100 < int(explicit.stats["num_gradients"])


def test_a_flow_that_is_not_stiff_stays_explicit_at_the_same_cost():
    run, explicit = flow(1.5, t1=3.0, ts=None), flow(1.5, t1=3.0, ts=None, solver="tsit5")
    assert int(run.stats["num_switches"]) == 0
    assert np.isinf(run.stats["stiff_since"])
    for name in ("num_steps", "num_gradients"):
        assert int(run.stats[name]) == int(explicit.stats[name])


def decaying(model, rates):
    """Stiff at the start, and flat once the stiff direction has grown: the spectral radius falls like 1 / x^2."""
    return jnp.log1p(jnp.exp(-rates[0] * model[0])) + 0.5 * jnp.sum((model[1:] - 1.0) ** 2)


def test_the_last_step_allowed_may_reach_the_horizon():
    steps = int(flow(1.5, t1=3.0, ts=None).stats["num_steps"])
    assert flow(1.5, t1=3.0, ts=None, max_steps=steps).status == "successful"
    assert flow(1.5, t1=3.0, ts=None, max_steps=steps - 1, throw=False).status == "max_steps_reached"


def test_a_run_in_chunks_counts_and_costs_the_same(monkeypatch):
    calls, run = [], kernel.run

    def counted(*args, **options):
        calls.append(1)
        return run(*args, **options)

    monkeypatch.setattr(kernel, "run", counted)
    monkeypatch.setattr(kernel, "CHUNK", 256)
    whole, chunks = (flow(1e4, ts=None, progress=progress) for progress in (False, True))
    for name, value in whole.stats.items():
        np.testing.assert_array_equal(chunks.stats[name], value, err_msg=name)
    assert len(calls) - 1 < 2 + 2 * int(whole.stats["num_gradients"]) / (6 * 256)


def test_the_largest_stiffness_is_remembered():
    run = gf.gradient_flow(decaying, jnp.zeros(3), jnp.array([300.0]), t1=10.0, rtol=1e-6, solver="chebyshev")
    assert float(run.stats["stiffness"]) == pytest.approx(300**2 / 4, rel=0.1)  # the curvature at the start


def test_a_flow_whose_stiffness_fades_costs_no_more_than_the_explicit_method():
    model, rates = jnp.zeros(3), jnp.array([300.0])
    auto, explicit = (
        gf.gradient_flow(decaying, model, rates, t1=1e3, rtol=1e-6, solver=solver) for solver in ("auto", "tsit5")
    )
    np.testing.assert_allclose(auto.final, explicit.final, rtol=1e-4)
    assert int(auto.stats["num_gradients"]) <= 1.1 * int(explicit.stats["num_gradients"])


def test_gradients_are_the_budget_of_max_steps():
    run = flow(1e4, max_steps=100, throw=False)
    assert run.status in ("max_steps_reached", "stiff")
    assert int(run.stats["num_gradients"]) <= 6 * 100 + 1100  # one step of the most stages may come on top


@pytest.mark.slow
@pytest.mark.parametrize("adjoint", [None, diffrax.ForwardMode(), diffrax.DirectAdjoint()])
def test_derivatives_through_both_methods(adjoint):
    def end(start):
        options = dict(t1=3.0, rtol=1e-8, adjoint=adjoint, max_steps=2000)
        return gf.gradient_flow(quadratic, start * jnp.ones(6), spectrum(300.0), **options).final.sum()

    derivative = jax.jacfwd(end) if isinstance(adjoint, diffrax.ForwardMode) else jax.grad(end)
    np.testing.assert_allclose(jax.jit(derivative)(1.0), np.exp(-3.0 * spectrum(300.0)).sum(), rtol=1e-5)


def test_members_change_by_themselves():
    conditions = jnp.geomspace(1.0, 1e4, 8)
    rates = jax.vmap(spectrum)(conditions)
    run = gf.gradient_flow_ensemble(
        quadratic, jnp.ones((8, 6)), rates, in_axes=(0, 0), t1=300.0, ts=TIMES, observe=squares, rtol=1e-6, lanes=4
    )
    assert set(result_name(run.result)) == {"successful"}
    switches = np.asarray(run.stats["num_switches"])
    assert switches[0] == 0 or int(run.stats["num_chebyshev_steps"][0]) < 30
    assert switches[-1] >= 1
    exact = np.exp(-TIMES[None, :, None] * np.asarray(rates)[:, None, :])
    np.testing.assert_allclose(run.observed, exact, atol=1e-5)


def test_many_lanes_load_together():
    rates = jax.vmap(spectrum)(jnp.geomspace(1.0, 100.0, 300))
    options = dict(in_axes=(None, 0), t1=3.0, rtol=1e-9)
    few, many = (gf.gradient_flow_ensemble(quadratic, jnp.ones(6), rates, lanes=n, **options) for n in (8, 128))
    np.testing.assert_allclose(many.final, few.final, rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(many.final, np.exp(-3.0 * rates), atol=1e-8)


def test_implicit_solvers_name_the_alternative_above_their_limit():
    with pytest.raises(gf.FlowError, match="solver='chebyshev'"):
        gf.gradient_flow(quadratic, jnp.ones(600), jnp.ones(600), t1=1.0, solver="kvaerno5")


@pytest.mark.parametrize("solver", [Tsit5(), Dopri8(), Bosh3()], ids=lambda s: type(s).__name__)
def test_dense_output_is_diffraxs(solver: AbstractUnrolled):
    term = diffrax.ODETerm(lambda t, y, args: -(y**2) + jnp.sin(t))
    y0, dt = jnp.array([1.0, 2.0]), 0.4
    points, stages = unrolled_stages(solver.tableau, term, 0.0, dt, y0, None, term.vf(0.0, y0, None))
    theirs = solver.interpolation_cls(t0=0.0, t1=dt, y0=y0, y1=points[-1], k=dt * jnp.stack(stages))
    for theta in (0.0, 0.1, 0.5, 0.9, 1.0):
        ours = interpolated(solver, theta, dt, y0, points[-1], stages)
        np.testing.assert_allclose(ours, theirs.evaluate(theta * dt), rtol=1e-13)


def test_the_coefficients_of_the_dense_output_add_up_to_the_step():
    for coefficients, tableau in ((dense.TSIT5, diffrax.Tsit5.tableau), (dense.dopri8(), diffrax.Dopri8.tableau)):
        np.testing.assert_allclose(np.sum(coefficients, axis=1), tableau.b_sol, atol=1e-8)
