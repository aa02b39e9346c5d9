"""A stabilised explicit Runge-Kutta method for stiff gradient flows.

The Jacobian of a gradient flow is minus a Hessian (times positive rates): its spectrum is real. A Runge-Kutta-Chebyshev
step of s gradients is stable up to 0.44 s^2 / lambda_max, where a method of fixed stages pays s / 2 gradients for every
1 / lambda_max. This one is of third order; `chebyshev_table` derives its coefficients. No Hessian is formed: its
spectral radius comes from differences of gradients.

A step is a machine that evaluates one gradient at a time. A single run loops over it; the lanes of an ensemble each
keep their own, so that none waits for the one with most stages. The recurrence runs on Z_j = (Y_j - y0) / b_j and its
differences, where no rounding errors of the size of y0 add up:

    Z_j - Z_{j-1} = Z_{j-1} - Z_{j-2} + 2 (w0 - 1) Z_{j-1} + 2 w1 dt ((f(Y_{j-1}) - f0) / b_{j-1} + T_{j-1}(w0) f0).
"""

from typing import Any, ClassVar, Literal, NamedTuple

import diffrax
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from gradflow.errors import FlowError, shown
from gradflow.flow.norms import norm
from gradflow.flow.solvers.chebyshev_table import CUBIC_ERROR, LARGEST, SMALLEST, table

POWER, READY, STAGE, LAST, DONE = range(5)  # where a step stands: the first and the last two evaluate gradients
POWER_ITERATIONS = 40
POWER_CHANGE = 0.02  # relative change of the radius at which the iteration ends
RADIUS_SAFETY = 1.15  # the iteration converges from below
REFRESH = 20  # accepted steps between two estimates of the radius
MANY_STAGES = 40  # a step that has so many finds the radius anew: two or three gradients more
STIFF_ERROR = 0.5  # weight of the stiffest modes in the error; more makes rounding in float32 count
PROBE = 1 / 8  # power of eps: the part of the first stage that its slope is found from; rounding grows by its inverse
Loop = Literal["bounded", "checkpointed", "lax"]


class Scheme(NamedTuple):
    """Coefficients of a step: a row of `chebyshev_table.Table`.

    Attributes:
        starts: the row of the table where its stages begin.
        growth: 2 (w0 - 1).
        slope: 2 w1.
        picks: the three stages that are summed up.
        weights: of each (columns) in the change of the state, in the error, in dt times the slope at the start.
    """

    starts: Int[Array, ""]
    growth: Float[Array, ""]
    slope: Float[Array, ""]
    picks: Int[Array, "3"]
    weights: Float[Array, "3 3"]


class Machine(NamedTuple):
    """A step in progress.

    Attributes:
        phase: POWER: the power method runs; READY: the radius is known; STAGE: stages; LAST: the slope at the end.
        stage: the stage that is computed next; in the phase POWER iterations so far.
        stages: s of this step; 0 where it needs too many.
        t: time at its start.
        dt: its size.
        y0: state at its start.
        f0: field there.
        older: Z of the latest stage less Z of the one before; the field at the end when the step is done.
        latest: Z of the latest stage, the new state behind `finish`; the direction while the power method runs.
        middle: Z of the first stage that is summed up, the error behind `finish`.
        late: Z of the second, dt times the slope at the start of the dense output behind `finish`.
        scheme: coefficients.
        size: how far the power method goes along its direction.
        radius: spectral radius of the Jacobian.
        iterations: of the power method for this step, once it has stages.
    """

    phase: Int[Array, ""]
    stage: Int[Array, ""]
    stages: Int[Array, ""]
    t: Float[Array, ""]
    dt: Float[Array, ""]
    y0: PyTree
    f0: PyTree
    older: PyTree
    latest: PyTree
    middle: PyTree
    late: PyTree
    scheme: Scheme
    size: Float[Array, ""]
    radius: Float[Array, ""]
    iterations: Int[Array, ""]


def first_direction(y0: PyTree) -> PyTree:
    """Return a start of the power method that no symmetry of a model makes orthogonal to what it looks for."""
    raw = jax.tree.map(lambda x: jnp.cos(1.0 + jnp.arange(x.size, dtype=x.dtype) ** 1.5).reshape(x.shape), y0)
    length = norm(raw)
    return jax.tree.map(lambda x: x / length, raw)


def needed_stages(dt, radius) -> Int[Array, ""]:
    """Return the smallest number of stages for which a step is stable; one more than there are if none is enough."""
    return _stages_of(_scheme_index(dt, radius))


def stable_step(stages, radius) -> Float[Array, ""]:
    """Return the largest step that is stable with that many stages."""
    index = jnp.searchsorted(jnp.asarray(table().stages), stages, side="right", method="compare_all") - 1
    reach = jnp.asarray(table().reaches, radius.dtype)[index] * (1 - 8 * jnp.finfo(radius.dtype).eps)
    return reach / jnp.maximum(RADIUS_SAFETY * radius, jnp.finfo(radius.dtype).tiny)


def _scheme_index(dt, radius) -> Int[Array, ""]:
    # The table is short: looking at all of it takes less time than a loop.
    reaches = jnp.asarray(table().reaches, dt.dtype)
    return jnp.searchsorted(reaches, lax.stop_gradient(RADIUS_SAFETY * dt * radius), method="compare_all")


def _stages_of(index) -> Int[Array, ""]:
    return jnp.asarray(np.append(table().stages, LARGEST + 1), jnp.int32)[index]


def begin(t, dt, y0, f0, direction, radius, *, estimate: Bool[Array, ""]) -> Machine:
    """Return a machine at the start of a step; with `estimate` it finds the spectral radius first."""
    zero, count = jnp.zeros_like(dt), jnp.zeros((), jnp.int32)
    cheap = RADIUS_SAFETY * dt * radius > table().reaches[table().stages < MANY_STAGES].max()
    return Machine(
        phase=jnp.where(estimate | cheap, POWER, READY).astype(jnp.int32),
        stage=count,
        stages=count,
        t=t,
        dt=dt,
        y0=y0,
        f0=f0,
        older=y0,
        latest=direction,
        middle=y0,
        late=y0,
        scheme=Scheme(count, zero, zero, jnp.zeros(3, jnp.int32), jnp.zeros((3, 3), dt.dtype)),
        size=lax.stop_gradient(jnp.sqrt(jnp.finfo(dt.dtype).eps) * (1 + norm(y0))),
        radius=radius,
        iterations=count,
    )


def first_stage(m: Machine, max_stages: int) -> Machine:
    """Choose the number of stages and compute the first; a step that needs too many is done at once, with none."""
    index = _scheme_index(m.dt, m.radius)
    scheme, stages = _scheme(index, m.dt.dtype), _stages_of(index)
    possible = stages <= max_stages
    first = jax.tree.map(lambda f: 0.5 * scheme.slope * m.dt * f, m.f0)
    return m._replace(
        phase=jnp.where(possible, STAGE, DONE).astype(jnp.int32),
        stage=jnp.full_like(m.stage, 2),
        stages=jnp.where(possible, stages, 0),
        older=first,
        latest=first,
        middle=first,  # the stage that a step of three sums up; others replace it
        late=first,
        scheme=scheme,
        iterations=m.stage,
    )


def is_running(m: Machine) -> Bool[Array, ""]:
    """Return whether the next thing a machine needs is a gradient."""
    return (m.phase != READY) & (m.phase != DONE)


def gradients(m: Machine) -> Int[Array, ""]:
    """Return how many gradients a step that is done has taken."""
    return m.iterations + m.stages


def advance(m: Machine, terms: Any, args: Any) -> Machine:
    """Evaluate one gradient and use it; a machine that needs none stays as it is."""
    return _advance(m, terms, args, m.phase == POWER, is_running(m))


def _advance(m: Machine, terms: Any, args: Any, powering: Any, running: Any = True) -> Machine:
    """Evaluate one gradient; where the phase is known in advance, what only other phases need is not computed."""
    last, complete = m.phase == LAST, m.stage >= m.stages
    staged = jnp.logical_and(running, jnp.logical_not(powering))
    reach, value, fraction = _place(m)
    a, b, c = (jnp.where(last, w, x) for w, x in zip(m.scheme.weights[0], (0, 0, reach), strict=True))
    c = jnp.where(powering, m.size, c)
    point = jax.tree.map(lambda y, *z: y + _weighted((a, b, c), z), m.y0, m.middle, m.late, m.latest)
    f = terms.vf(m.t + jnp.where(powering, 0, fraction) * m.dt, point, args)
    rise = jax.tree.map(jnp.subtract, f, m.f0)
    phase, radius, scale = _power(m, rise)
    kick = m.scheme.slope * m.dt
    weights = 1, m.scheme.growth, kick / reach, kick * value
    steps = jax.tree.map(lambda *x: _weighted(weights, x), m.older, m.latest, rise, m.f0)
    z = jax.tree.map(jnp.add, m.latest, steps)
    direction = jax.tree.map(lambda x, rise: jnp.where(scale > 0, lax.stop_gradient(rise) * scale, x), m.latest, rise)
    after = jnp.where(last, DONE, jnp.where(complete, LAST, STAGE))
    at_middle, at_late = (staged & (m.stage == pick) for pick in m.scheme.picks[:2])
    return m._replace(
        phase=jnp.where(staged, after, jnp.where(powering, phase, m.phase)).astype(jnp.int32),
        stage=m.stage + running,
        older=_choose(staged & ~last, steps, _choose(staged & last, f, m.older)),
        latest=_choose(staged & ~last, z, _choose(powering, direction, m.latest)),
        middle=_choose(at_middle, z, m.middle),
        late=_choose(at_late, z, m.late),
        radius=jnp.where(powering, radius, m.radius),
    )


def finish(m: Machine) -> Machine:
    """Sum up the stages of a step once its last gradient is there."""
    stages = m.middle, m.late, m.latest
    change, error, start = (jax.tree.map(lambda *z, row=row: _weighted(row, z), *stages) for row in m.scheme.weights)
    return m._replace(latest=jax.tree.map(jnp.add, m.y0, change), middle=error, late=start)


def _weighted(weights, arrays) -> Any:
    return sum(map(jnp.multiply, weights, arrays))


def _scheme(index, dtype) -> Scheme:
    """Return the coefficients of a number of stages; an index beyond the table gives its last."""

    def row(name):
        column = getattr(table(), name)
        kind = jnp.int32 if column.dtype.kind == "i" else dtype
        return jnp.take(jnp.asarray(column, kind), index, axis=0, mode="clip")

    return Scheme(*map(row, Scheme._fields))


def _place(m: Machine) -> tuple[Array, Array, Array]:
    """Return where the field is evaluated next, and what its stage needs: b, T, c.

    The state is y0 + b * latest, the time t + c * dt.
    """
    row = jnp.take(jnp.asarray(table().rows, m.dt.dtype), m.scheme.starts + m.stage - 1, axis=0, mode="clip")
    # The slope of the first stage is linear in dt, see `chebyshev_table`: it comes from a point close to y0.
    part = jnp.where(m.stage == 2, jnp.finfo(m.dt.dtype).eps ** PROBE, 1).astype(m.dt.dtype)
    last = m.phase == LAST
    return jnp.where(last, 1, part * row[0]), row[1], jnp.where(last, 1, part * row[2])


def _choose(condition, a: PyTree, b: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), a, b)


def _power(m: Machine, rise) -> tuple[Array, Array, Array]:
    """Use f - f0 for one iteration of the power method: return phase, radius, and 1 / |f - f0|, 0 if unusable."""
    length = lax.stop_gradient(norm(rise))
    usable = jnp.isfinite(length) & (length > 0)
    radius = jnp.where(usable, length / m.size, m.radius)
    settled = (jnp.abs(radius - m.radius) <= POWER_CHANGE * radius) & (m.stage > 0)
    ended = settled | ~usable | (m.stage + 1 >= POWER_ITERATIONS)
    scale = jnp.where(usable, 1 / jnp.where(usable, length, 1), 0)
    return jnp.where(ended, READY, POWER), lax.stop_gradient(radius), scale


def embedded_error(m: Machine) -> PyTree:
    """Return the estimate of the local error of a finished step.

    For smooth components it is the cubic term of the step. Of the stiffest modes a step leaves up to 0.95 of what was
    there, where the flow leaves nothing; the field at the end tells how much. A mode at the limit of stability counts a
    quarter of its size.
    """
    weight = STIFF_ERROR * m.scheme.slope / 8  # c_1 = b_1 w1, of the order of 1 / (dt * radius)
    _, last = dense_slopes(m)
    return jax.tree.map(lambda cubic, f1, slope: cubic + weight * (m.dt * f1 - slope), m.middle, m.older, last)


def run_step(m: Machine, terms, args, *, enabled: Any, max_stages: int, loop: Loop) -> tuple[Machine, PyTree]:
    """Advance a machine to the end of its step.

    Args:
        m: at its start.
        terms: of the differential equation.
        args: of the field.
        enabled: whether to do anything.
        max_stages: a step that needs more is not made.
        loop: how the loops are differentiated.

    Returns:
        The machine, DONE if the step was made, and the direction of the largest eigenvalue.
    """

    def estimate(m: Machine):
        return _advance(m, terms, args, powering=True)

    def stage(m: Machine):
        return _advance(m, terms, args, powering=False)

    m = _loop(lambda m: enabled & (m.phase == POWER), estimate, m, POWER_ITERATIONS, loop)
    direction, m = m.latest, first_stage(m, max_stages)
    return finish(_loop(lambda m: enabled & is_running(m), stage, m, max_stages, loop)), direction


def _loop(condition, body, m: Machine, bound: int, kind: Loop) -> Machine:
    if kind == "lax":
        return lax.while_loop(condition, body, m)
    checkpoints = int(np.ceil(np.sqrt(2 * bound))) if kind == "checkpointed" else None
    return eqxi.while_loop(condition, body, m, max_steps=bound, kind=kind, checkpoints=checkpoints)


class ChebyshevState(NamedTuple):
    """What `Chebyshev` remembers between two steps.

    Attributes:
        slope: field at the current state.
        direction: of the largest eigenvalue.
        radius: spectral radius.
        age: accepted steps since it was estimated.
        dt: size of the last accepted step.
    """

    slope: PyTree
    direction: PyTree
    radius: Float[Array, ""]
    age: Int[Array, ""]
    dt: Float[Array, ""]


class Chebyshev(diffrax.AbstractAdaptiveSolver):
    """Runge-Kutta-Chebyshev of third order for fields with a real negative spectrum, such as gradient flows.

    Usable in `diffrax.diffeqsolve` with any adaptive step size controller; works for models of any size, since no
    Hessian is formed. The number of stages follows the step size and the spectral radius, which is estimated by the
    power method on differences of the field, kept for twenty steps and found anew after a rejection.

    Attributes:
        max_stages: most gradients in one step, 3 to 1000; a step that needs more is refused at no cost.
        loop: how the loop over the stages is differentiated: "bounded" (forward and reverse mode), "checkpointed"
            (reverse mode, cheaper) or "lax" (forward mode only, cheapest).
    """

    max_stages: int = 1000
    loop: Loop = "bounded"
    term_structure: ClassVar = diffrax.AbstractTerm
    interpolation_cls: ClassVar = diffrax.ThirdOrderHermitePolynomialInterpolation.from_k

    def __check_init__(self):
        """Refuse numbers of stages that no step has."""
        if not SMALLEST <= self.max_stages <= LARGEST:
            raise FlowError(f"max_stages={shown(self.max_stages)}: must be between {SMALLEST} and {LARGEST}")

    def order(self, terms):
        """Return the order of convergence."""
        del terms
        return 3

    def error_order(self, terms):
        """Return the order of the error estimate."""
        del terms
        return 3

    def init(self, terms, t0, t1, y0, args):
        """Evaluate the field; the spectral radius is found in the first step."""
        return initial_state(terms.vf(t0, y0, args), y0, jnp.asarray(t1 - t0))

    def func(self, terms, t0, y0, args):
        """Evaluate the field."""
        return terms.vf(t0, y0, args)

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        """Advance one step; see `diffrax.AbstractSolver.step`."""
        if made_jump is not False:
            fresh = lax.cond(made_jump, lambda: terms.vf(t0, y0, args), lambda: solver_state.slope)
            solver_state = solver_state._replace(slope=fresh)
        m, after = stabilised_step(terms, t0, jnp.asarray(t1 - t0), y0, args, solver_state, self.max_stages, self.loop)
        return m.latest, refused_error(m), dense_info(m), after, diffrax.RESULTS.successful


def initial_state(slope: PyTree, y0: PyTree, dt) -> ChebyshevState:
    """Return the state before the first step."""
    return ChebyshevState(
        slope, first_direction(y0), jnp.zeros_like(dt), jnp.asarray(REFRESH, jnp.int32), jnp.zeros_like(dt)
    )


def stabilised_step(
    terms, t0, dt, y0, args, state: ChebyshevState, max_stages: int, loop: Loop, enabled: Any = True
) -> tuple[Machine, ChebyshevState]:
    """Run one step, and return its machine and the state behind it."""
    rejected = dt < 0.99 * state.dt  # a controller that has just accepted a step does not shrink the next one
    estimate = (state.age >= REFRESH) | rejected
    m = begin(t0, dt, y0, state.slope, state.direction, state.radius, estimate=estimate)
    m, direction = run_step(m, terms, args, enabled=enabled, max_stages=max_stages, loop=loop)
    age = jnp.where(m.iterations > 0, 0, state.age) + 1
    return m, ChebyshevState(m.older, direction, m.radius, age, dt)


def refused_error(m: Machine) -> PyTree:
    """Return the error of a finished step, infinite where it needed too many stages."""
    return jax.tree.map(lambda e: jnp.where(m.stages > 0, e, jnp.inf), embedded_error(m))


def dense_slopes(m: Machine) -> tuple[PyTree, PyTree]:
    """Return dt times the slopes at both ends of the cubic that a finished step has inside, see `chebyshev_table`."""

    def last(y0, y1, error, first):
        return 2 * (y1 - y0) - first + error / CUBIC_ERROR

    return m.late, jax.tree.map(last, m.y0, m.latest, m.middle, m.late)


def dense_info(m: Machine) -> dict[str, Any]:
    """Return what the cubic Hermite polynomial of a finished step needs."""
    return {"y0": m.y0, "y1": m.latest, "k": jax.tree.map(lambda *k: jnp.stack(k), *dense_slopes(m))}
