"""1,024 logistic flows that cost the same, to t = 1e5, with 100 saves of one observable: on one core and on all."""

from benchmarks.engine import precision, problems
from benchmarks.engine.line import Line, lines
from benchmarks.engine.peers.ours import Ours
from benchmarks.engine.peers.with_diffrax import Diffrax
from benchmarks.engine.peers.with_torchdiffeq import Torchdiffeq
from benchmarks.engine.peers.with_torchode import Torchode
from benchmarks.engine.precision import Method
from benchmarks.engine.reference import exact
from benchmarks.engine.sweep import AUTO, CORES, ONE_CORE, VMAP, second_core
from benchmarks.engine.worker import in_new_process

TARGET = 1e-5  # largest absolute error of an entropy that is saved


def run(quick: bool = False) -> list[Line]:
    """Compare on all cores here, and on one core in a process that has no other."""
    here = measure(quick)
    return [*in_new_process("benchmarks.engine.homogeneous", "measure", quick, cores=1), *here] if CORES > 1 else here


def measure(quick: bool, cores: int = CORES) -> list[Line]:
    """Compare with what is best for homogeneous members on this many cores."""
    members = 128 if quick else 1024
    ensemble, reference = exact(problems.logistic(members))
    methods = [
        Method(AUTO, lambda e: Ours(e, threads=cores)),
        Method(VMAP, Diffrax, aim=2.5 if cores == 1 else 4),
        *(
            Method(f"torchode, {n} thread{'s' * (n > 1)}", lambda e, n=n: Torchode(e, threads=n), 1, 5, "", "torchode")
            for n in sorted({1, cores})
        ),
        Method("torchdiffeq, one step size for all", lambda e: Torchdiffeq(e, threads=cores)),
    ]
    if cores > 1:
        methods.insert(1, Method(ONE_CORE, lambda e: Ours(e, threads=1), like=AUTO))
    results = precision.compare(methods, ensemble, reference, target=TARGET)
    workload = f"{members:,} logistic flows, t1 = 1e5, 100 saves, {cores} core{'s' * (cores > 1)}"
    return [*lines(workload, results), *(second_core(workload, results) if cores > 1 else [])]
