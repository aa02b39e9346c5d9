"""Work against precision: every method is timed at the tolerance at which it makes the same error.

On a few members the error of a method is measured over a range of tolerances; the tolerance that gives the error aimed
at comes from a straight line between two neighbours, log against log. The method then runs at that tolerance.
"""

import dataclasses
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from benchmarks.engine.outcome import Outcome, errors
from benchmarks.engine.problems import Ensemble

TOLERANCES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10)
SLACK = 1.2  # how much larger than aimed at an error may be
AGREEMENT = 30.0  # an answer further off than this many times the error aimed at is another answer


@dataclasses.dataclass(frozen=True)
class Method:
    """A method by its name.

    Attributes:
        name: as the table shows it.
        bind: makes it from an ensemble; the result has `run(rtol)` and `read(raw)`.
        share: fraction of the members that are run for timing; the time is divided by it.
        aim: how many times slower than the first method it should be, or 0.
        like: name of a method whose tolerance it shares: the same solver on the same members, mapped differently.
        family: of several methods of a family only the fastest is shown.
        note: for the table.
    """

    name: str
    bind: Callable[[Ensemble], Any]
    share: float = 1.0
    aim: float = 0.0
    like: str = ""
    family: str = ""
    note: str = ""


@dataclasses.dataclass
class Measured:
    """What a method took at the tolerance of equal error.

    Attributes:
        method: which.
        rtol: its tolerance.
        first: seconds of the first call, compiling included.
        seconds: of each later call, for all members.
        error: median over members.
        worst: largest over members.
        outcome: the answer.
    """

    method: Method
    rtol: float
    first: float
    seconds: list[float]
    error: float
    worst: float
    outcome: Outcome

    @property
    def warm(self) -> float:
        """Seconds of the best call."""
        return min(self.seconds)


def tolerance(
    method: Method, sample: Ensemble, reference: Outcome, target: float, ladder: Sequence[float] = TOLERANCES
) -> tuple[float, float]:
    """Return the tolerance at which the median error over the sample is `target`, and the seconds of the first call.

    Args:
        method: which.
        sample: a few members.
        reference: their exact answer.
        target: the error aimed at.
        ladder: tolerances from loose to tight; the search ends at the first that is good enough.

    Raises:
        AssertionError: if no tolerance is good enough.
    """
    solver = method.bind(sample)

    def error_at(rtol: float) -> float:
        error = float(np.median(errors(solver.read(solver.run(rtol)), reference)))
        print(f"  {method.name}: rtol {rtol:.1e}, error {error:.1e}", file=sys.stderr)
        return error

    begin = time.perf_counter()
    solver.run(ladder[0])
    first, before = time.perf_counter() - begin, None
    for rtol in ladder:
        error = error_at(rtol)
        if error <= target:
            break
        before = (rtol, error) if np.isfinite(error) else None
    else:
        raise AssertionError(f"{method.name} errs by {error:.1e} at rtol {rtol:.0e}, more than {target:.0e}")
    if before is not None and error < target:
        tight, rtol = rtol, _between(before, (rtol, error), target)
        while rtol > tight and error_at(rtol) > SLACK * target:  # the line between two tolerances need not be straight
            rtol = max(tight, rtol / 2)
    return rtol, first


def _between(loose: tuple[float, float], tight: tuple[float, float], target: float) -> float:
    (rtol0, error0), (rtol1, error1) = np.log(loose), np.log(tight)
    weight = (np.log(target) - error1) / (error0 - error1)
    return float(np.exp(rtol1 + weight * (rtol0 - rtol1)))


def spread(members: int, cost: Float[np.ndarray, " M"], share: float) -> np.ndarray:
    """Return a share of the members, spread evenly from the cheapest to the dearest."""
    count = max(1, round(members * share))
    return np.argsort(cost, kind="stable")[np.linspace(0, members - 1, count).round().astype(int)]


def compare(
    methods: Sequence[Method],
    ensemble: Ensemble,
    reference: Outcome,
    *,
    target: float,
    sample: int = 32,
    repeats: int = 5,
    budget: float = 60.0,
) -> list[Measured]:
    """Time every method at equal error, in turns.

    Args:
        methods: the first is what the others are compared with.
        ensemble: what to solve.
        reference: its exact answer, whose steps order the members by cost.
        target: median relative error aimed at.
        sample: members on which tolerances are chosen.
        repeats: rounds at most.
        budget: seconds after which a method is not called again.

    Returns:
        One result a method.

    Raises:
        AssertionError: if an answer is far from the reference.
    """
    index = spread(ensemble.members, reference.steps, min(1.0, sample / ensemble.members))
    few, exact = ensemble.take(index), pick(reference, index)
    chosen: dict[str, tuple[float, float]] = {}
    for method in methods:
        shared = chosen.get(method.like)
        chosen[method.name] = tolerance(method, few, exact, target) if shared is None else (shared[0], 0.0)
    runs = [_first(method, *chosen[method.name], ensemble, reference, target) for method in methods]
    for _ in range(repeats):
        for measured, solver, scale in runs:
            if sum(measured.seconds) * scale < budget:
                begin = time.perf_counter()
                solver.run(measured.rtol)
                measured.seconds.append((time.perf_counter() - begin) / scale)
    return _fastest([measured for measured, _, _ in runs])


def _fastest(results: list[Measured]) -> list[Measured]:
    """Drop the slower members of each family."""
    best: dict[str, float] = {}
    for measured in results:
        family = measured.method.family or measured.method.name
        best[family] = min(measured.warm, best.get(family, np.inf))
    return [one for one in results if one.warm == best[one.method.family or one.method.name]]


def _first(method: Method, rtol: float, first: float, ensemble: Ensemble, reference: Outcome, target: float):
    index = spread(ensemble.members, reference.steps, method.share)
    part = ensemble if method.share == 1 else ensemble.take(index)
    exact = reference if method.share == 1 else pick(reference, index)
    solver, scale = method.bind(part), len(index) / ensemble.members
    begin = time.perf_counter()
    raw = solver.run(rtol)
    first = max(first, time.perf_counter() - begin)  # a kernel for any number of members was compiled for the sample
    outcome = solver.read(raw)
    error = errors(outcome, exact)
    print(f"  {method.name}: first call {first:.2f} s, error {np.median(error):.1e}", file=sys.stderr)
    if not np.median(error) < AGREEMENT * target:
        raise AssertionError(f"{method.name} at rtol {rtol:.1e} errs by {np.median(error):.1e}, not by {target:.0e}")
    measured = Measured(method, rtol, first, [], float(np.median(error)), float(error.max()), outcome)
    return measured, solver, scale


def pick(outcome: Outcome, index: np.ndarray) -> Outcome:
    """Return the answer of these members alone."""
    fields = ("values", "scores", "steps", "gradients", "saved")
    return dataclasses.replace(
        outcome, **{name: None if (x := getattr(outcome, name)) is None else x[index] for name in fields}
    )
