"""The flow that `alternating` follows: gradient flows of some leaves at a time, one after the other."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from gradflow.errors import FlowError, is_traced
from gradflow.flow import gradient_flow
from gradflow.flow.options import save_times
from gradflow.flow.solve import raise_failure
from gradflow.schedules.leaves import moving
from gradflow.schedules.phases import Phase, check_phases
from gradflow.trajectory import Trajectory, blank, result_name

SAME_TIME = 1e-9  # relative distance below which a save time is the end of a phase
MOST_PHASES = 1_000_000


def alternating_flow(
    loss: Callable,
    model: PyTree,
    args: PyTree = None,
    *,
    phases: Sequence[Phase | tuple],
    t1: float,
    t0: float = 0.0,
    ts: Any = None,
    throw: bool = True,
    **options: Any,
) -> Trajectory:
    """Integrate the gradient flow of the leaves of one phase at a time, over and over until `t1`.

    ```python
    em = [(("w_q", "w_k"), 0.1), (("w_v", "w_o"), 0.5)]
    run = gf.schedules.alternating_flow(gf.losses.cross_entropy, head, batch, phases=em, t1=60.0)
    ```

    `alternating` with `length / eta` steps a phase is the descent that follows it. Each phase is a `gradient_flow` of
    its own, exact to its tolerances; phases of the same leaves share a compiled kernel.

    Args:
        loss: `loss(model, args) -> scalar`.
        model: any Equinox module.
        args: data of the loss.
        phases: names of leaves and time of each phase; leaves in none never move. The last phase may be cut by `t1`.
        t1: horizon.
        t0: start, of the first phase.
        ts: save times `(T,)` within [t0, t1]; None saves at the end only.
        throw: raise a `FlowError` that carries the trajectory when a phase fails.
        options: `observe`, `rates`, `solver`, `rtol`, `atol`, `max_steps`, `stop` and `event` of `gradient_flow`;
            `max_steps` is of each phase.

    Returns:
        The trajectory, as `gradient_flow` returns it. It ends with the first phase that fails or stops; `stats` counts
        all phases.

    Raises:
        FlowError: if an argument cannot be used, a name fits no leaf, the call is traced, or a phase fails and `throw`
            is True.
    """
    if is_traced((model, args, t0, t1, ts)):
        raise FlowError("alternating_flow was called under jit, grad or vmap: call it outside, or use gradient_flow")
    if "trainable" in options or "progress" in options or "adjoint" in options:
        wrong = next(name for name in ("trainable", "progress", "adjoint") if name in options)
        raise FlowError(f"alternating_flow takes no {wrong!r}: the phases say what moves, and runs outside of jit")
    specs = [
        (moving(model, phase.names, f"phases[{index}]"), phase.length)
        for index, phase in enumerate(check_phases(phases))
    ]
    start, end, times = save_times(t0, t1, ts, np.float64)
    wanted = None if ts is None else np.asarray(times)
    runs: list[Trajectory] = []
    for stretch in _stretches([length for _, length in specs], float(start), float(end), wanted):
        run = gradient_flow(
            loss,
            runs[-1].final if runs else model,
            args,
            t0=stretch.begin,
            t1=stretch.end,
            ts=stretch.ts,
            trainable=specs[stretch.phase][0],
            throw=False,
            **options,
        )
        runs.append(_keep(run, stretch.kept))
        if result_name(run.result) != "successful":
            break
    trajectory = _join(runs, wanted)
    if throw:
        raise_failure(trajectory)
    return trajectory


class Stretch(NamedTuple):
    """One phase once: which, from when to when, and its save times, of which only those `kept` were asked for."""

    phase: int
    begin: float
    end: float
    ts: np.ndarray | None
    kept: np.ndarray


def _stretches(lengths: Sequence[float], t0: float, t1: float, wanted: np.ndarray | None) -> Iterator[Stretch]:
    """Yield the phases of a run with equally many save times each, so that they share a kernel."""
    ends = _ends(lengths, t0, t1)
    if wanted is None:
        places, most = np.zeros(0, int), 0
    else:
        places = np.searchsorted(ends + SAME_TIME * np.abs(ends), wanted)
        most = int(np.bincount(places).max())
    for index, (begin, end) in enumerate(zip([t0, *ends[:-1]], ends, strict=True)):
        ts, kept = None, np.ones(1, bool)
        if wanted is not None:
            ts, kept = _filled(np.clip(wanted[places == index], begin, end), float(begin), float(end), most)
        yield Stretch(index % len(lengths), float(begin), float(end), ts, kept)


def _ends(lengths: Sequence[float], t0: float, t1: float) -> np.ndarray:
    """Return the end of each phase, of which the last is t1."""
    cycle = float(np.sum(lengths))
    cycles = (t1 - t0) / cycle
    if cycles * len(lengths) > MOST_PHASES:
        raise FlowError(
            f"phases last {cycle:g} together, so that t1 = {t1:g} is after {cycles:.3g} rounds: choose longer ones"
        )
    ends = t0 + (cycle * np.arange(math.ceil(cycles) + 1)[:, None] + np.cumsum(lengths)).ravel()
    return np.append(ends[ends < t1 - SAME_TIME * abs(t1)], t1)


def _filled(asked: np.ndarray, begin: float, end: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return `count` save times with those asked for among them, and which those are."""
    others = np.linspace(begin, end, 2 * count + 2)[1:-1]
    others = others[~np.isin(others.astype(np.float32), asked.astype(np.float32))][: count - len(asked)]
    ts = np.sort(np.append(asked, others))
    return ts, np.isin(ts, asked)


def _keep(run: Trajectory, kept: np.ndarray) -> Trajectory:
    """Return a run without the save times that nobody asked for."""
    rows = jax.tree.map(lambda x: x[kept] if eqx.is_array(x) else x, (run.ts, run.observed, run.valid))
    return eqx.tree_at(lambda r: (r.ts, r.observed, r.valid), run, rows)


def _join(runs: Sequence[Trajectory], wanted: np.ndarray | None) -> Trajectory:
    """Return consecutive runs as one; save times that were not reached are not valid."""
    last, saved = runs[-1], runs[-1:] if wanted is None else runs
    ts = last.ts if wanted is None else jnp.asarray(wanted, last.ts.dtype)
    arrays, static = eqx.partition([run.observed for run in saved], eqx.is_array)
    missing = len(ts) - sum(len(run.valid) for run in saved)
    valid = jnp.concatenate([*(run.valid for run in saved), jnp.zeros(missing, bool)])
    joined = jax.tree.map(lambda *x: jnp.concatenate([*x, jnp.zeros((missing, *x[0].shape[1:]), x[0].dtype)]), *arrays)
    return Trajectory(
        ts=ts,
        observed=eqx.combine(blank(joined, valid), static[0]),
        valid=valid,
        final=last.final,
        t_final=last.t_final,
        result=last.result,
        stats={name: _total(name, [run.stats[name] for run in runs]) for name in last.stats},
    )


def _total(name: str, counts: list) -> Any:
    """Return a count over all phases (-1 where one is unknown), the first time or the largest of what is no count."""
    numbers = np.asarray(counts)
    if name.startswith("num_"):
        return numbers.sum() if (numbers >= 0).all() else np.asarray(-1)
    return numbers.min() if name == "stiff_since" else numbers.max()
