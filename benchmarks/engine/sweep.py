"""1,024 square-loss flows with condition numbers from 1 to 1,000, to a loss of 1e-6."""

import dataclasses
import os

from benchmarks.engine import precision, problems
from benchmarks.engine.line import Line, lines
from benchmarks.engine.peers.ours import Ours
from benchmarks.engine.peers.with_diffrax import Diffrax
from benchmarks.engine.peers.with_numba import Numba
from benchmarks.engine.peers.with_scipy import Scipy
from benchmarks.engine.peers.with_torchode import Torchode
from benchmarks.engine.precision import Measured, Method
from benchmarks.engine.reference import costs, exact

TARGET = 1e-5
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
AUTO, TSIT5, ONE_CORE, NUMBA = "gradflow", "gradflow, Tsit5", "gradflow, one thread", "Numba by hand, parallel"
VMAP = "vmap(diffeqsolve)"


def run(quick: bool = False) -> list[Line]:
    """Compare everything at a median relative error of 1e-5 at the end."""
    members = 128 if quick else 1024
    ensemble, reference = exact(problems.square(members, 1e3), loss=1e-6)
    methods = [*_gradflow(), *_diffrax(costs(reference)), *_torchode(costs(reference)), *_scipy()]
    results = precision.compare(methods, ensemble, reference, target=TARGET)
    workload = f"{members:,} square-loss flows, condition 1..1000, to loss 1e-6"
    return [*lines(workload, results), *_by_step(workload, results), *second_core(workload, results)]


def _gradflow() -> list[Method]:
    return [
        Method(AUTO, Ours),
        Method(TSIT5, lambda e: Ours(e, solver="tsit5")),
        Method(ONE_CORE, lambda e: Ours(e, threads=1), like=AUTO),
        Method(NUMBA, Numba),
    ]


def _diffrax(order) -> list[Method]:
    name = "lax.map(batch_size={}) over sorted members"
    return [
        Method(VMAP, Diffrax, aim=60),
        *(
            Method(
                name.format(batch),
                lambda e, b=batch: Diffrax(e, order=order if e.members == len(order) else None, batch=b),
                aim=6,
                like=VMAP,
                family="map",
                note="fastest of 4, 8, 16",
            )
            for batch in (4, 8, 16)
        ),
    ]


def _torchode(order) -> list[Method]:
    whole = [
        Method(f"torchode, {n} thread{'s' * (n > 1)}", lambda e, n=n: Torchode(e, threads=n), aim=15, family="torchode")
        for n in sorted({1, CORES})
    ]
    slices = [
        Method(
            f"torchode, batches of {batch} sorted members",
            lambda e, b=batch: Torchode(e, order=order if e.members == len(order) else None, batch=b, threads=1),
            aim=15,
            family="torchode, sorted",
            note="fastest of 64, 128",
        )
        for batch in (64, 128)
    ]
    return [*whole, *(dataclasses.replace(one, like=whole[0].name) for one in slices)]


def _scipy() -> list[Method]:
    note = "fastest of RK45, DOP853, odeint"
    return [
        Method(
            f"SciPy loop, {method}, field in {'Numba' if compiled else 'NumPy'}",
            lambda e, m=method, c=compiled: Scipy(e, m, compiled=c),
            share=1 / 16,
            aim=60,
            family=f"SciPy {compiled}",
            note=note,
        )
        for compiled in (False, True)
        for method in ("RK45", "DOP853", "odeint")
    ]


def _by_step(workload: str, results: list[Measured]) -> list[Line]:
    """Return wall time by attempted step of a member, for the two that take the same steps."""
    by_name = {one.method.name: one for one in results}
    ours, by_hand = (1e6 * by_name[name].warm / by_name[name].outcome.steps.sum() for name in (TSIT5, NUMBA))
    return [
        Line(workload, "a step of a member: gradflow, Tsit5", warm=ours, unit="us"),
        Line(workload, "a step of a member: Numba by hand", warm=by_hand, unit="us", ratio=by_hand / ours, aim="1.3"),
    ]


def second_core(workload: str, results: list[Measured]) -> list[Line]:
    """Return how much faster all threads are than one."""
    by_name = {one.method.name: one for one in results}
    gain = by_name[ONE_CORE].warm / by_name[AUTO].warm
    return [Line(workload, f"{CORES} threads against one", ratio=gain, aim="1.7" if CORES == 2 else "")]
