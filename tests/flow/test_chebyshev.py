"""The Chebyshev method: its coefficients, its steps, and its use in Diffrax."""

import closed_forms
import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.polynomial import chebyshev as polynomials

import gradflow as gf
from gradflow.flow.solvers import Chebyshev, chebyshev
from gradflow.flow.solvers.chebyshev_table import DAMPED, LARGEST, SPACING, table

TABLE = table()
BOUNDED, FORWARD = (Chebyshev(loop=loop, max_stages=32) for loop in ("bounded", "lax"))
MODES = jnp.linspace(0.0, 1.0, 60)[1:]


def decay(t, y, args):
    return -MODES.astype(y.dtype) * y


def coupled(t, y, args):
    """Not linear and not autonomous: u = 1 / (1 / u0 + t + sin t), and v / v0 = u / u0."""
    rate = 1 + jnp.cos(t)
    return {"u": -rate * y["u"] ** 2, "v": -rate * y["u"] * y["v"]}


def softmax_field(t, y, args):
    """The square loss of a value-softmax model whose directions differ in scale by `args`."""

    def loss(y):
        values, scores = y
        error = values @ jax.nn.softmax(scores) - jnp.array([1.0, -0.5, 0.25], values.dtype)
        return 0.5 * jnp.sum(jnp.asarray(args, values.dtype) ** -jnp.linspace(0, 1, 3, dtype=values.dtype) * error**2)

    return jax.tree.map(jnp.negative, jax.grad(loss)(y))


def softmax_start(dtype=jnp.float64):
    values = 0.5 * np.random.RandomState(0).randn(3, 4)
    return jnp.asarray(values, dtype), jnp.zeros(4, dtype)


def stages_of(k):
    return slice(TABLE.starts[k], TABLE.starts[k] + TABLE.stages[k] + 1)


def stability(k, z):
    """R(z) of the change, the error and the slope of K-table row k, (3, Z)."""
    w0, w1 = 1 + TABLE.growth[k] / 2, TABLE.slope[k] / 2
    picks = TABLE.picks[k]
    values = polynomials.chebvander(w0 + w1 * np.asarray(z), int(TABLE.stages[k]))[:, picks]
    return TABLE.weights[k] @ (values - TABLE.rows[stages_of(k), 1][picks]).T


def one_step(field, t, dt, y, radius):
    """A step with a given spectral radius."""
    terms = diffrax.ODETerm(field)
    f0 = terms.vf(t, y, None)
    m = chebyshev.begin(t, dt, y, f0, y, radius, estimate=jnp.asarray(False))
    m = m._replace(phase=jnp.full_like(m.phase, chebyshev.READY))
    return chebyshev.run_step(m, terms, None, enabled=True, max_stages=LARGEST, loop="lax")[0]


@jax.jit
def decayed(dt, radius):
    """The largest mode after forty steps, and the stages of each."""
    radius = jnp.asarray(radius, float)
    y = jax.lax.fori_loop(0, 40, lambda _, y: one_step(decay, 0.0 * dt, dt, y, radius).latest, jnp.ones_like(MODES))
    return jnp.abs(y).max(), chebyshev.needed_stages(dt, radius)


def longest(k, radius):
    """The longest step that is taken with the stages of row k."""
    return chebyshev.stable_step(float(TABLE.stages[k]), jnp.asarray(radius))


def test_stage_counts_waste_little():
    stages = TABLE.stages
    assert stages[0] == 3 and stages[-1] == LARGEST
    steps = np.diff(stages)
    assert ((steps <= 2) | (stages[1:] <= SPACING * stages[:-1])).all()
    assert (np.diff(TABLE.reaches) > 0).all()
    assert (TABLE.reaches[8:] > 0.43 * stages[8:] ** 2 - 6).all()


@pytest.mark.parametrize("part", range(4))
def test_every_step_is_damped_on_the_whole_of_its_reach(part):
    for k in range(part, len(TABLE.stages), 4):
        count = 10 * int(TABLE.stages[k]) + 300
        nodes = (1 - np.cos(np.pi * np.arange(1, count + 1) / count)) / 2
        z = -TABLE.reaches[k] * nodes
        bound = np.maximum(DAMPED, np.exp(z)) + 1e-9
        assert (abs(1 + stability(k, z)[0]) <= bound).all(), TABLE.stages[k]
        assert abs(1 + stability(k, 1.1 * z)[0]).max() > 1.0, TABLE.stages[k]  # a control: the reach is no smaller


def test_every_step_is_of_order_three():
    scale, _, time = TABLE.rows.T
    for k, stages in enumerate(TABLE.stages):
        c, b, picks = time[stages_of(k)], scale[stages_of(k)], TABLE.picks[k]
        d, error, start = TABLE.weights[k] / b[picks]
        second = np.where(picks > 1, c[picks] ** 2, 0)
        np.testing.assert_allclose([d @ c[picks], d @ second], 1, rtol=1e-9, err_msg=str(stages))
        np.testing.assert_allclose([start @ c[picks], 1 + start @ second], 1, rtol=1e-9)
        np.testing.assert_allclose([error @ c[picks], error @ second], 0, atol=1e-9)
        z = -1e-2
        assert abs(1 + stability(k, [z])[0, 0] - np.exp(z)) < 0.05 * z**4  # the third derivative of R as well


def test_steps_at_the_limit_of_stability_shrink_every_mode():
    radius = 1 / chebyshev.RADIUS_SAFETY  # no safety: the true radius is 1
    for k, stages in enumerate(TABLE.stages):
        dt = longest(k, radius)
        assert float(dt) == pytest.approx(TABLE.reaches[k])
        largest, needed = decayed(dt, radius)
        assert int(needed) == stages
        assert float(largest) < 1.0, stages


def test_half_the_spectral_radius_is_not_enough():
    for k in (0, 5, 20, 60):
        dt = longest(k, 0.5)
        assert not float(decayed(dt, 0.5)[0]) < 1e3  # overflows, or is on the way there
        m = one_step(decay, 0.0 * dt, dt, jnp.ones_like(MODES), jnp.asarray(0.5))
        assert float(abs(chebyshev.embedded_error(m)).max()) > 0.1  # the error says so


@pytest.mark.parametrize("stages", [3, 4, 7, 40])
def test_steps_converge_with_order_three(stages):
    k = int(np.searchsorted(TABLE.stages, stages))
    start, end = {"u": jnp.asarray(0.7), "v": jnp.asarray(-1.3)}, 2.0

    @jax.jit
    def error(count):
        dt = end / count
        radius = TABLE.reaches[k] / chebyshev.RADIUS_SAFETY / dt * (1 - 1e-12)

        def body(i, carry):
            y, worst = carry
            m = one_step(coupled, i * dt, dt, y, radius)
            inside = Chebyshev.interpolation_cls(t0=i * dt, t1=(i + 1) * dt, **chebyshev.dense_info(m))
            return m.latest, jnp.maximum(worst, distance(inside.evaluate((i + 0.4) * dt), (i + 0.4) * dt))

        def distance(y, t):
            shrunk = 1 / (1 + 0.7 * (t + jnp.sin(t)))
            return jnp.maximum(abs(y["u"] - 0.7 * shrunk), abs(y["v"] + 1.3 * shrunk))

        y, inside = jax.lax.fori_loop(0, jnp.asarray(count, int), body, (start, jnp.zeros(())))
        return jnp.stack([distance(y, end), inside])

    errors = np.array([error(n) for n in (20.0, 40.0, 80.0)])
    orders = np.log2(errors[:-1] / errors[1:])
    assert (abs(orders - 3) < 0.3).all(), orders


def test_solver_meets_closed_forms_between_its_steps():
    system = closed_forms.quadratic(size=6, condition=1e4)
    times = np.geomspace(0.1, 1e4, 23)

    def field(t, y, hessian):
        return -hessian @ y

    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(field),
        Chebyshev(),
        0.0,
        1e4,
        None,
        system.model,
        system.args,
        saveat=diffrax.SaveAt(ts=times),
        stepsize_controller=diffrax.PIDController(rtol=1e-7, atol=1e-9),
    )
    exact = np.stack([system.exact(t) for t in times])
    np.testing.assert_allclose(solution.ys, exact, atol=2e-6)
    assert int(solution.stats["num_steps"]) < 1500  # a method whose steps stability holds needs 3000 and more


def solve_softmax(solver, rtol, condition, y0, t1, times):
    return diffrax.diffeqsolve(
        diffrax.ODETerm(softmax_field),
        solver,
        jnp.zeros_like(t1),
        t1,
        None,
        y0,
        condition,
        saveat=diffrax.SaveAt(ts=times),
        stepsize_controller=diffrax.PIDController(rtol=rtol, atol=1e-2 * rtol),
        max_steps=100_000,
    )


def largest_difference(a, b):
    return max(float(jnp.abs(x - y).max()) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


@pytest.mark.slow
def test_stiff_flow_agrees_with_an_implicit_solver_in_both_precisions():
    times = jnp.geomspace(1.0, 1e4, 9)
    reference = solve_softmax(diffrax.Kvaerno5(), 1e-10, 1e3, softmax_start(), jnp.asarray(1e4), times).ys
    run = jax.jit(solve_softmax, static_argnums=0)
    for rtol in (1e-4, 1e-7):
        ours = run(Chebyshev(loop="lax"), rtol, 1e3, softmax_start(), jnp.asarray(1e4), times)
        assert largest_difference(ours.ys, reference) < 40 * rtol
    single = jnp.float32
    ours = run(
        Chebyshev(loop="lax"),
        jnp.asarray(1e-5, single),
        jnp.asarray(1e3, single),
        softmax_start(single),
        jnp.asarray(1e4, single),
        times.astype(single),
    )
    assert {y.dtype for y in ours.ys} == {jnp.dtype("float32")}
    assert largest_difference(ours.ys, reference) < 1e-3
    assert int(ours.stats["num_rejected_steps"]) < 0.3 * int(ours.stats["num_steps"])  # rounding refuses no steps


def final_norm(y0, scale, solver):
    def field(t, y, scale):
        return -scale * jnp.array([1.0, 30.0, 300.0]) * jnp.sinh(y)

    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(field),
        solver,
        0.0,
        0.5,
        0.1,
        y0,
        scale,
        stepsize_controller=diffrax.ConstantStepSize(),
        adjoint=diffrax.DirectAdjoint() if solver.loop != "checkpointed" else diffrax.RecursiveCheckpointAdjoint(),
        max_steps=8,
    )
    return jnp.sum(solution.ys[-1] ** 2 * jnp.array([1.0, 10.0, 100.0]))


@pytest.mark.slow
def test_derivatives_agree_with_differences_in_both_modes_and_under_vmap():
    y0, scale = jnp.array([0.5, -0.4, 0.3]), 1.0
    value = jax.jit(final_norm, static_argnums=2)
    difference = 1e-5

    def slope(i):
        step = difference * jnp.eye(3)[i]
        return (value(y0 + step, scale, FORWARD) - value(y0 - step, scale, FORWARD)) / (2 * difference)

    expected = np.array([slope(i) for i in range(3)])
    by_scale = (value(y0, 1 + difference, FORWARD) - value(y0, 1 - difference, FORWARD)) / (2 * difference)
    for solver in (BOUNDED, Chebyshev(loop="checkpointed", max_stages=32)):
        reverse = jax.jit(jax.grad(final_norm, argnums=(0, 1)), static_argnums=2)(y0, scale, solver)
        np.testing.assert_allclose(reverse[0], expected, rtol=1e-5, atol=1e-9)
        np.testing.assert_allclose(reverse[1], by_scale, rtol=1e-5)

    @jax.jit
    def forward(y0):
        return jax.jvp(lambda y: final_norm(y, scale, FORWARD), (y0,), (jnp.ones(3),))[1]

    np.testing.assert_allclose(forward(y0), expected.sum(), rtol=1e-5)
    scales = jnp.array([0.1, 1.0, 3.0])  # members with different numbers of stages
    together = jax.vmap(value, in_axes=(None, 0, None))(y0, scales, BOUNDED)
    np.testing.assert_allclose(together, [value(y0, s, FORWARD) for s in scales], rtol=1e-12)


def test_lanes_that_advance_by_single_gradients_make_the_same_steps():
    terms = diffrax.ODETerm(decay)
    dts = jnp.array([0.5, 40.0, 900.0])

    def start(dt):
        y, zero = jnp.cos(jnp.arange(len(MODES), dtype=float)), 0.0 * dt
        direction = chebyshev.first_direction(y)
        return chebyshev.begin(zero, dt, y, decay(zero, y, None), direction, zero, estimate=jnp.asarray(True))

    def whole(dt):
        return chebyshev.run_step(start(dt), terms, None, enabled=True, max_stages=LARGEST, loop="lax")[0]

    @jax.vmap
    def forward(m, count):
        first = chebyshev.first_stage(m, LARGEST)
        m = jax.tree.map(lambda a, b: jnp.where(m.phase == chebyshev.READY, a, b), first, m)
        return chebyshev.advance(m, terms, None), count + chebyshev.is_running(m)

    m, count = jax.lax.while_loop(
        lambda c: (c[0].phase != chebyshev.DONE).any(), lambda c: forward(*c), (jax.vmap(start)(dts), jnp.zeros(3, int))
    )
    m = jax.vmap(chebyshev.finish)(m)
    expected = jax.vmap(whole)(dts)
    assert len(set(np.asarray(m.stages))) == 3
    for name in ("latest", "older", "middle", "late", "radius", "stages", "iterations"):
        np.testing.assert_allclose(getattr(m, name), getattr(expected, name), rtol=1e-9, atol=1e-12, err_msg=name)
    np.testing.assert_array_equal(chebyshev.gradients(m), count)


def test_steps_of_too_many_stages_are_refused():
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(decay),
        Chebyshev(max_stages=6, loop="lax"),
        0.0,
        1e3,
        None,
        jnp.ones_like(MODES),
        stepsize_controller=diffrax.PIDController(rtol=1e-3, atol=1e-3),
    )
    np.testing.assert_allclose(solution.ys[-1], np.exp(-1e3 * MODES), atol=1e-2)
    longest_step = float(TABLE.reaches[3]) / (1 - chebyshev.POWER_CHANGE)
    assert TABLE.stages[3] == 6
    assert int(solution.stats["num_accepted_steps"]) >= 1e3 / longest_step
    for most in (2, LARGEST + 1):
        with pytest.raises(gf.FlowError, match=f"max_stages={most}: must be between 3 and 1000"):
            Chebyshev(max_stages=most)
