"""Every solver on every closed-form system, in both precisions; the unrolled step against Diffrax's own."""

import warnings

import closed_forms
import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradflow as gf
from gradflow.flow import Tsit5
from gradflow.flow.solvers import IMPLICIT_LIMIT

JOINT = closed_forms.joint()
TIMES = [0.0, 0.3, 2.0, 7.0]


def row(models, i):
    return jax.tree.map(lambda x: x[i] if hasattr(x, "ndim") and x.ndim else x, models)


@pytest.mark.parametrize(
    ("solver", "rtol", "tolerance"),
    [
        ("auto", 1e-10, 1e-8),
        pytest.param("dopri8", 1e-10, 1e-8, marks=pytest.mark.slow),
        pytest.param("kvaerno5", 1e-7, 1e-5, marks=pytest.mark.slow),
        pytest.param("kvaerno3", 1e-6, 1e-4, marks=pytest.mark.slow),
        pytest.param(diffrax.Dopri5(), 1e-9, 1e-7, marks=pytest.mark.slow),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_solver_meets_every_closed_form(solver, rtol, tolerance):
    run = gf.gradient_flow(JOINT.loss, JOINT.model, JOINT.args, t1=7.0, ts=TIMES, solver=solver, rtol=rtol)
    assert run.status == "successful"
    assert bool(run.valid.all())
    errors = [closed_forms.distance(row(run.observed, i), JOINT.exact(t)) for i, t in enumerate(TIMES)]
    for saved, start in zip(jax.tree.leaves(row(run.observed, 0)), jax.tree.leaves(JOINT.model), strict=True):
        np.testing.assert_array_equal(saved, start)  # the first saved time is t0: the initial state, exactly
    assert max(errors) < tolerance
    assert closed_forms.distance(run.final, JOINT.exact(7.0)) < tolerance
    assert closed_forms.distance(run.final, JOINT.exact(7.7)) > 1e-3  # a control: the comparison sees a wrong time


def test_float32_keeps_its_precision():
    model, args = closed_forms.cast((JOINT.model, JOINT.args), jnp.float32)
    run = gf.gradient_flow(JOINT.loss, model, args, t1=7.0, ts=TIMES, rtol=1e-6)
    assert {x.dtype for x in jax.tree.leaves(run.final) if hasattr(x, "dtype")} == {jnp.dtype("float32")}
    assert run.ts.dtype == run.t_final.dtype == jnp.float32
    assert max(closed_forms.distance(row(run.observed, i), JOINT.exact(t)) for i, t in enumerate(TIMES)) < 1e-4


def solve(solver, saveat, step=None):
    system = closed_forms.two_values()
    params = (system.model.values, system.model.scores)

    def field(t, y, args):
        model = gf.models.ValueSoftmax(*y)
        gradient = jax.grad(system.loss)(model, args)
        return (-gradient.values, -gradient.scores)

    controller = diffrax.PIDController(rtol=1e-8, atol=1e-10) if step is None else diffrax.ConstantStepSize()
    return diffrax.diffeqsolve(
        diffrax.ODETerm(field),
        solver,
        0.0,
        5.0,
        step,
        params,
        system.args,
        saveat=saveat,
        stepsize_controller=controller,
    )


def test_unrolled_step_is_diffrax_tsit5():
    times = jnp.linspace(0.0, 5.0, 41)
    ours, theirs = (solve(solver, diffrax.SaveAt(ts=times, dense=True)) for solver in (Tsit5(), diffrax.Tsit5()))
    assert int(ours.stats["num_steps"]) == int(theirs.stats["num_steps"])
    for a, b in zip(jax.tree.leaves(ours.ys), jax.tree.leaves(theirs.ys), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-13)
    for t in (0.123, 3.3):
        for a, b in zip(ours.evaluate(t), theirs.evaluate(t), strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-13)


def test_unrolled_step_converges_with_order_five():
    system = closed_forms.two_values()
    exact = system.exact(5.0)
    errors = []
    for step in (0.5, 0.25, 0.125):
        values, scores = (y[-1] for y in solve(Tsit5(), diffrax.SaveAt(t1=True), step).ys)
        errors.append(closed_forms.distance(gf.models.ValueSoftmax(values, scores), exact))
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert (abs(orders - 5) < 0.5).all(), orders


def test_names_and_instances_are_one_solver():
    system = closed_forms.quadratic()
    finals = [
        gf.gradient_flow(system.loss, system.model, system.args, t1=1.0, solver=solver).final
        for solver in ("auto", "tsit5", "TSIT5", Tsit5())
    ]
    assert all(np.array_equal(finals[0], other) for other in finals[1:])


def square_norm(model, args):
    return 0.5 * jnp.sum(model**2)


def test_implicit_solver_is_refused_for_large_models():
    with pytest.raises(gf.FlowError, match=r"Kvaerno5 is implicit .* 501 x 501 .*solver='chebyshev'"):
        gf.gradient_flow(square_norm, jnp.ones(IMPLICIT_LIMIT + 1), t1=1.0, solver="kvaerno5")
    run = gf.gradient_flow(square_norm, jnp.ones(4), t1=1.0, solver="kvaerno5", rtol=1e-6)
    np.testing.assert_allclose(run.final, np.exp(-1) * np.ones(4), rtol=1e-5)


@pytest.mark.parametrize(
    ("solver", "message"),
    [
        ("tsit6", "unknown solver 'tsit6'; did you mean 'tsit5'"),
        (diffrax.Euler(), "adaptive"),
        (None, "solver is None"),
    ],
)
def test_unusable_solver(solver, message):
    with pytest.raises(gf.FlowError, match=message):
        gf.gradient_flow(square_norm, jnp.ones(2), t1=1.0, solver=solver)


@pytest.mark.parametrize("solver", ["tsit5", "dopri8"])
def test_gradients_are_counted(solver):
    """`num_gradients` is what a counter inside the loss sees."""
    calls = []

    def counted(model, args):
        jax.debug.callback(lambda: calls.append(1))
        return 0.5 * jnp.sum(model**2)

    run = gf.gradient_flow(counted, jnp.ones(2), t1=3.0, solver=solver)
    jax.effects_barrier()
    assert len(calls) == int(run.stats["num_gradients"])
    assert int(run.stats["num_steps"]) == int(run.stats["num_accepted_steps"]) + int(run.stats["num_rejected_steps"])


def test_unknown_cost_is_minus_one():
    run = gf.gradient_flow(square_norm, jnp.ones(4), t1=1.0, solver="kvaerno5", rtol=1e-6)
    assert int(run.stats["num_gradients"]) == -1


@pytest.mark.slow
def test_stiff_linear_flow_is_right_or_named():
    """Rates over six decades to t = 1e3: solvers for stiff flows are right; an explicit one says what to use."""
    rates = np.geomspace(1.0, 1e-6, 7)
    system = closed_forms.System(closed_forms.quadratic_loss, jnp.ones(7), jnp.asarray(np.diag(1e3 * rates)), None)
    exact = np.exp(-1e6 * rates)
    implicit = gf.gradient_flow(system.loss, system.model, system.args, t1=1e3, solver="kvaerno5", rtol=1e-7)
    np.testing.assert_allclose(implicit.final, exact, atol=1e-5)
    options = dict(t1=1e3, max_steps=2000, throw=False)
    explicit = gf.gradient_flow(system.loss, system.model, system.args, solver="tsit5", **options)
    assert explicit.status == "stiff"
    assert "auto" in explicit.message
    enough = gf.gradient_flow(system.loss, system.model, system.args, t1=1e3, rtol=1e-6)
    assert enough.status == "successful"
    np.testing.assert_allclose(enough.final, exact, atol=1e-4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mild = gf.gradient_flow(system.loss, system.model, system.args, t1=1e-2, max_steps=5, throw=False)
    assert mild.status == "max_steps_reached"  # a run that is cut short without being stiff keeps the plain code


def least_squares(model, args):
    rotation, curvature = args
    return 0.5 * jnp.sum(curvature * (rotation @ model - 1) ** 2)


@pytest.mark.parametrize(("dtype", "rtol"), [("float32", 1e-6), ("float32", 1e-4), ("float64", 1e-8), ("float64", 0.3)])
def test_a_smooth_stiff_flow_is_never_a_kink(dtype, rtol):
    """Errors near rounding do not fall with the step size, as those of a jump: they are no evidence for one."""
    rotation, _ = np.linalg.qr(np.random.RandomState(0).randn(12, 12))
    args = (jnp.asarray(rotation, dtype), jnp.geomspace(1e2, 1e-4, 12, dtype=dtype))
    options = dict(t1=1e4, rtol=rtol, max_steps=40_000, throw=False)
    run = gf.gradient_flow(least_squares, jnp.zeros(12, dtype), args, solver="tsit5", **options)
    assert run.status == "stiff"
    auto = gf.gradient_flow(least_squares, jnp.zeros(12, dtype), args, **options)
    assert auto.status == ("stiff" if (dtype, rtol) == ("float32", 1e-6) else "successful")  # as tight as float32 goes


def test_a_large_spectral_radius_is_still_seen():
    args = (jnp.eye(3), jnp.array([1e25, 1.0, 1e-3]))
    options = dict(t1=1.0, max_steps=500, throw=False)
    run = gf.gradient_flow(least_squares, jnp.zeros(3), args, solver="tsit5", **options)
    assert run.status == "stiff"
