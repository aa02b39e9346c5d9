"""Square-loss flows with condition numbers from 1 to 1e6: the automatic choice against Tsit5 in the same pool."""

from benchmarks.engine import precision, problems
from benchmarks.engine.line import Line, lines
from benchmarks.engine.peers.ours import Ours
from benchmarks.engine.precision import Method
from benchmarks.engine.reference import exact
from benchmarks.engine.sweep import AUTO, TARGET, TSIT5


def run(quick: bool = False) -> list[Line]:
    """Compare at a median relative error of 1e-5 at the end."""
    members = 64 if quick else 1024
    ensemble, reference = exact(problems.square(members, 1e6), loss=1e-6)
    methods = [Method(AUTO, Ours), Method(TSIT5, lambda e: Ours(e, solver="tsit5"), aim=5)]
    results = precision.compare(methods, ensemble, reference, target=TARGET, repeats=3)
    return lines(f"{members:,} square-loss flows, condition 1..1e6, to loss 1e-6", results)
