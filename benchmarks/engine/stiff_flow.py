"""One square-loss flow with condition number 1e6 to t = 1e7, d = 8, n = 16."""

import diffrax

from benchmarks.engine import precision, problems
from benchmarks.engine.line import Line, lines
from benchmarks.engine.peers.ours import OursAlone
from benchmarks.engine.peers.with_diffrax import Diffrax
from benchmarks.engine.peers.with_scipy import Scipy
from benchmarks.engine.precision import Method
from benchmarks.engine.reference import exact

TARGET = 1e-4
IMPLICIT = (diffrax.Kvaerno3, diffrax.Kvaerno4, diffrax.Kvaerno5)


def run(quick: bool = False) -> list[Line]:
    """Compare at a relative error of 1e-4 at the end."""
    condition = 1e4 if quick else 1e6
    ensemble, reference = exact(problems.square(1, condition, t1=10 * condition))
    note = "fastest of " + ", ".join(solver.__name__ for solver in IMPLICIT)
    methods = [
        Method("gradflow", OursAlone),
        Method("gradflow, Chebyshev", lambda e: OursAlone(e, "chebyshev")),
        Method("Diffrax, Tsit5", Diffrax, aim=100),
        *(
            Method(f"Diffrax, {s.__name__}", lambda e, s=s: Diffrax(e, s()), aim=20, family="implicit", note=note)
            for s in IMPLICIT
        ),
        *(
            Method(
                f"SciPy, {m}, field and Jacobian in {'Numba' if compiled else 'NumPy'}",
                lambda e, m=m, c=compiled: Scipy(e, m, c),
                aim=2,
            )
            for compiled in (False, True)
            for m in ("BDF", "Radau", "LSODA", "odeint")
        ),
    ]
    results = precision.compare(methods, ensemble, reference, target=TARGET, repeats=10, budget=20)
    return lines(f"one square-loss flow, condition {condition:.0e}, t = {10 * condition:.0e}", results)
