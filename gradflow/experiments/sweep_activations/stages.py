"""What the experiment computes: sweeps through `gf.sweep`, and refined one-hot times to check interpolated ones.

A run with an event ends there and has no final entropy, so one-hot times are read off the saves: the first one at which
the largest share is above the level, and a straight line in (log t, log-odds of the share) from the one before.
"""

import functools
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from gradflow import losses
from gradflow.errors import FlowWarning
from gradflow.experiments import audits
from gradflow.experiments.base import Stage
from gradflow.experiments.sweep_activations import problem
from gradflow.experiments.sweep_activations.config import LOSSES, Config
from gradflow.flow import Crossing
from gradflow.models import ValueSoftmax
from gradflow.sweep import Batched, Flow, sweep
from gradflow.types import Data

KEY = 2603_06248
LEVELS = {"half": 0.5, "most": 0.9}  # one weight above a half is above all others together; 0.9 as a second opinion
LANES = 16
AUDIT_HORIZON, AUDIT_RTOL = 1e4, 1e-8
Arrays = dict[str, np.ndarray]


def stages(config: Config) -> list[Stage]:
    """Return the stages, each independent of the others."""
    parts = [("length", length), ("condition", condition), ("sliding", sliding), ("refined", refined)]
    checked = audits.stage(functools.partial(_audited, config), t1=AUDIT_HORIZON, rtol=AUDIT_RTOL)
    return [*(Stage(name, functools.partial(compute, config)) for name, compute in parts), checked]


def _audited(config: Config) -> tuple[Any, ValueSoftmax, Data]:
    """Return the softmax of the sweep's first map on one sample, as a model of the library."""
    size = config.sizes[0]
    _, member, made = problem.one_sample(
        jax.random.key(KEY),
        activation=config.maps[0],
        loss_kind=LOSSES.index("logistic"),
        n=size,
        scale=config.scales[-1],
        size=size,
        target=config.target,
    )
    data = Data(made.objective.x[:1], made.objective.y[:1])
    return losses.logistic, ValueSoftmax(member.values, member.scores, member.activation), data


def length(config: Config, workspace: Path) -> Arrays:
    """Sweep the theorem's setting, one sample: map x loss x n x scale x seed."""
    axes = _axes(config, config.maps, config.scales) | {"seed": range(config.seeds)}
    return _swept(config, problem.one_sample, axes, workspace)


def condition(config: Config, workspace: Path) -> Arrays:
    """Sweep designs of many samples: map x loss x n x scale x condition number x seed."""
    axes = _axes(config, config.maps, config.kappa_scales)
    axes |= {"kappa": list(config.kappas), "seed": range(config.kappa_seeds)}
    return _swept(config, problem.many_samples, axes, workspace)


def sliding(config: Config, workspace: Path) -> Arrays:
    """Sweep the theorem's setting under the maps that are expected to slide along a kink, with fewer seeds."""
    axes = _axes(config, config.sliding_maps, config.scales) | {"seed": range(config.sliding_seeds)}
    return _swept(config, problem.one_sample, axes, workspace)


def refined(config: Config, workspace: Path) -> Arrays:
    """Run the first map under the logistic loss up to the refined time at which its largest share is a half."""
    axes = _axes(config, config.maps[:1], config.scales) | {"seed": range(config.seeds)}
    axes["loss_kind"] = Batched([LOSSES.index("logistic")])
    event = Crossing(problem.largest_share, LEVELS["half"])
    method = Flow(t1=config.horizon, event=event, solver="tsit5", lanes=LANES)
    ds = _run(config, problem.one_sample, axes, method, workspace)
    ended = _values(ds, "result") == "event_occurred"
    return {"half": np.where(ended, _values(ds, "t_final"), np.nan)[0, 0]}


def _axes(config: Config, maps: tuple[str, ...], scales: tuple[float, ...]) -> dict[str, Any]:
    return {
        "activation": list(maps),
        "loss_kind": Batched(list(range(len(LOSSES)))),
        "n": Batched(list(config.sizes)),
        "scale": list(scales),
    }


def _run(config: Config, build: Callable, axes: Mapping, method: Flow, workspace: Path) -> Any:
    made = functools.partial(build, size=max(config.sizes), target=config.target)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FlowWarning)  # members that fail are results here
        return sweep(
            made,
            axes,
            key=jax.random.key(KEY),
            method=method,
            observe=problem.observe,
            store=workspace / "sweep.zarr",
            progress=False,
        )


def _swept(config: Config, build: Callable, axes: Mapping, workspace: Path) -> Arrays:
    method = Flow(t1=config.horizon, ts=config.ts, stop=problem.has_converged, lanes=LANES)
    ds = _run(config, build, axes, method, workspace)
    valid = _values(ds, "valid")
    last = np.maximum(valid.sum(axis=-1) - 1, 0)[..., None]
    ends = {name: np.take_along_axis(_values(ds, name), last, -1)[..., 0] for name in ("largest", "entropy", "tau")}
    winner = np.take_along_axis(_values(ds, "winner"), last, -1)[..., 0]
    known = {name: _values(ds.isel(time=0), name) for name in ("leader", "longest", "gap")}
    share = np.where(valid, _values(ds, "largest"), np.nan)
    times = {name: crossing_times(config.ts, share, level) for name, level in LEVELS.items()}
    cost = {name: _values(ds, name) for name in ("num_steps", "num_gradients", "t_final", "result")}
    return {**ends, "winner": winner, **known, **times, **cost}


def _values(ds: Any, name: str) -> np.ndarray:
    values = np.asarray(ds[name].values)
    return np.array(values.tolist(), str).reshape(values.shape) if values.dtype.kind in "OT" else values


def crossing_times(ts: np.ndarray, share: np.ndarray, level: float) -> np.ndarray:
    """Return when each share first rises above a level, NaN where it does not.

    Args:
        ts: save times (T,), the first may be 0.
        share: (..., T), NaN after the end.
        level: between 0 and 1.

    Returns:
        Times (...): interpolated linearly in log t and in the log-odds of the share; the first save if it is above.
    """
    above = share > level
    after = above.argmax(axis=-1)
    before = np.maximum(after - 1, 0)
    low, high = (np.take_along_axis(share, place[..., None], -1)[..., 0] for place in (before, after))
    odds = [np.log(x / np.maximum(1 - x, 1e-300)) for x in (np.maximum(low, 1e-300), np.maximum(high, 1e-300))]
    with np.errstate(invalid="ignore", divide="ignore"):
        part = (np.log(level / (1 - level)) - odds[0]) / (odds[1] - odds[0])
    floor = ts[ts > 0].min() / 10  # stands for the start on the axis of log t
    left, right = np.log(np.maximum(ts[before], floor)), np.log(np.maximum(ts[after], floor))
    times = np.where(after > 0, np.exp(left + np.clip(part, 0, 1) * (right - left)), ts[0])
    return np.where(above.any(axis=-1), times, np.nan)
