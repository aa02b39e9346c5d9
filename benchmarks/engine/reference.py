"""Exact answers: Tsit5 at a tolerance of 1e-12, checked against LSODA with the Jacobian written out."""

import dataclasses

import numpy as np

from benchmarks.engine.outcome import Outcome, errors
from benchmarks.engine.peers.with_numba import Numba
from benchmarks.engine.peers.with_scipy import Scipy
from benchmarks.engine.precision import pick, spread
from benchmarks.engine.problems import Ensemble

RTOL, CHECKED, ORDINARY = 1e-12, 4, 1e-5
AGREE = 1e-8  # what is reached at a relative tolerance of 1e-10 of two methods that share nothing


def exact(ensemble: Ensemble, loss: float | None = None) -> tuple[Ensemble, Outcome]:
    """Return the ensemble and its exact answer.

    Args:
        ensemble: what to solve.
        loss: if given, each member's horizon becomes the time at which its loss falls below this.

    Returns:
        The ensemble with its horizons; the answer, whose `steps` are those of a run at rtol 1e-5, the members' costs.

    Raises:
        AssertionError: if LSODA disagrees on any of four members.
    """
    solver = Numba(ensemble, stop=-1.0 if loss is None else loss)
    states, ended, steps = solver.run(RTOL)
    answer = solver.read((states, ended, steps))
    if loss is not None:
        ensemble = dataclasses.replace(ensemble, t1=ended)
    cost = Numba(ensemble)
    answer = dataclasses.replace(answer, steps=cost.read(cost.run(ORDINARY)).steps)
    index = spread(ensemble.members, answer.steps, min(1.0, CHECKED / ensemble.members))
    check = Scipy(ensemble.take(index), "odeint")
    difference = errors(check.read(check.run(1e-11)), pick(answer, index)).max()
    if not difference < AGREE:
        raise AssertionError(f"the two references differ by {difference:.1e}")
    return ensemble, answer


def costs(answer: Outcome) -> np.ndarray:
    """Return the members from the cheapest to the dearest."""
    return np.argsort(answer.steps, kind="stable")
