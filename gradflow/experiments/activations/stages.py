"""What the experiment computes: descents of setting B, flows beside them, and the late stage on the clock."""

import functools
import warnings
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from gradflow.activations import by_name
from gradflow.descent import gradient_descent, log_steps
from gradflow.errors import FlowWarning
from gradflow.experiments import audits
from gradflow.experiments.activations.config import KINKED, LATE, LOSSES, NAMES, Config
from gradflow.experiments.base import Stage
from gradflow.experiments.panel import SOLVER, Objective, Panel, member, member_losses, panel_loss
from gradflow.flow import gradient_flow, log_times
from gradflow.laws import polarization as laws
from gradflow.models import ValueSoftmax, paper
from gradflow.trajectory import Trajectory

SEED = 2603_06248
FIRST_TIME = 1e-2
REPORTED_TAU = (60.0, 200.0)
AUDITED = "normalised-square"  # the softmax is in the experiment `polarization`

Arrays = dict[str, np.ndarray]


def stages(config: Config) -> list[Stage]:
    """Return the stages, each independent of the others."""
    parts = [("descent", descent), ("flow", flow), ("late", late)]
    runs = [Stage(name, functools.partial(compute, config)) for name, compute in parts]
    return [*runs, audits.stage(_audited, t1=_square_horizon(config), rtol=config.rtol)]


def _audited() -> tuple[Any, Any, Any]:
    return audits.of_setting(paper.six_maps, by_name(AUDITED), "logistic")


def setting(loss: str, names: tuple[str, ...]) -> tuple[Panel, Objective, float]:
    """Return setting B for several maps at once.

    Args:
        loss: "square" or "logistic".
        names: of the maps.

    Returns:
        The models, the objective in the library's units, and the step size of descent on it.
    """
    maps = tuple(by_name(name) for name in names)
    single = paper.six_maps(maps[0], loss)
    rows = len(single.args.y)
    # Ten copies of the one sample have the mean of one: both losses then share the shapes of one kernel.
    data = jax.tree.map(lambda leaf: jnp.repeat(leaf, 10 // rows, axis=0), single.args)
    panel = Panel.repeat(single.model.values, single.model.scores, maps)
    return panel, Objective.of(data.x, data.y, **{loss: 1.0}), single.step_size


def descent(config: Config, workspace: Path) -> Arrays:
    """Run the paper's gradient descents, all maps in one run."""
    out: Arrays = {}
    for loss, steps in zip(LOSSES, (config.square_steps, config.logistic_steps), strict=True):
        panel, objective, step_size = setting(loss, NAMES)
        save_at = log_steps(steps, config.saves)
        optimizer = optax.inject_hyperparams(optax.sgd)(learning_rate=step_size)
        store = workspace / loss
        with warnings.catch_warnings():
            # The square loss converges to rounding within the paper's 5,000 steps, which is what this run shows.
            warnings.simplefilter("ignore", FlowWarning)
            run = gradient_descent(
                panel_loss, panel, optimizer, objective, steps=steps, save_at=save_at, checkpoint=store
            )
        out |= {f"{loss}_{key}": value for key, value in path(run, objective, config.rows).items()}
        out |= {f"{loss}_step": save_at, f"{loss}_t": save_at * step_size}
    return out


def flow(config: Config, workspace: Path) -> Arrays:
    """Integrate the flows of both losses: L1 by itself, since it can end at a kink, the other maps together."""
    del workspace
    out: Arrays = {}
    others = tuple(name for name in NAMES if name != KINKED)
    options = _options(config)
    for loss, horizon in zip(LOSSES, (_square_horizon(config), config.horizon), strict=True):
        ts = np.append(0.0, log_times(FIRST_TIME, horizon, config.saves))
        runs = []
        for names in ((KINKED,), others):
            panel, objective, _ = setting(loss, names)
            run = gradient_flow(panel_loss, panel, objective, t1=horizon, ts=ts, **options)
            runs.append((run, path(run, objective, config.rows), len(names)))
        paths = [along for _, along, _ in runs]
        out |= {f"{loss}_{key}": np.concatenate([along[key] for along in paths], axis=1) for key in paths[0]}
        out |= {
            f"{loss}_t": ts,
            f"{loss}_end": np.concatenate([np.full(count, float(run.t_final)) for run, _, count in runs]),
            f"{loss}_status": np.concatenate([np.full(count, run.status) for run, _, count in runs]),
            f"{loss}_solver_steps": np.array([int(run.stats["num_steps"]) for run, _, _ in runs]),
        }
    return out


def late(config: Config, workspace: Path) -> Arrays:
    """Follow positive normalised maps on the clock: the loss -z has gamma = 1, so that its time is tau."""
    del workspace
    taus = np.union1d(np.append(0.0, log_times(0.1, config.late_tau, config.saves)), REPORTED_TAU)
    draws = 0.1 * jax.random.normal(jax.random.key(SEED), (config.late_seeds, 1, config.late_size))
    scores = jnp.ones((config.late_seeds, config.late_size))
    objective, options = Objective.of(jnp.ones((1, 1)), jnp.ones(1), linear=1.0), _options(config)
    panel = Panel.repeat(draws, scores, tuple(by_name(name) for name in LATE))
    run = gradient_flow(panel_loss, panel, objective, t1=taus[-1], ts=taus, **options)
    weights = np.stack([np.asarray(member(run.observed, index).weights) for index in range(len(LATE))])
    end, smallest = _l1_ends(draws, scores, objective, taus[-1], options)
    return {
        "tau": taus,
        "rest": np.moveaxis(1 - weights.max(axis=-1), 1, -1),
        "status": np.asarray(run.status),
        "zeros": np.moveaxis((weights == 0).sum(axis=-1), 1, -1),
        "kink_tau": end,
        "kink_smallest_score": smallest,
    }


def _options(config: Config) -> dict[str, Any]:
    return {"rtol": config.rtol, "solver": SOLVER, "throw": False}


def _square_horizon(config: Config) -> float:
    return config.square_steps * paper.six_maps(by_name("softmax"), "square").step_size


def _l1_ends(draws, scores, objective: Objective, horizon: float, options: dict[str, Any]) -> np.ndarray:
    """Return where the flow of each start under the L1 map ends, and its smallest score there."""
    ends = []
    for values, row in zip(draws, scores, strict=True):
        start = Panel.repeat(values, row, (by_name(KINKED),))
        run = gradient_flow(panel_loss, start, objective, t1=horizon, **options)
        ends.append((float(run.t_final), float(jnp.abs(run.final.scores).min())))
    return np.array(ends).T


def path(run: Trajectory, objective: Objective, rows: int) -> Arrays:
    """Return what is drawn of a run that saved panels, maps along axis 1; NaN where the run had ended.

    Args:
        run: a flow or a descent.
        objective: its data.
        rows: number of saves to pad to, so that runs of different lengths share one compiled measurement.

    Returns:
        Arrays of (saves, maps, ...).
    """
    count = len(run.ts)
    panels = jax.tree.map(lambda leaf: _padded(np.asarray(leaf), rows), run.observed)
    members = [member(panels, index) for index in range(len(panels.activations))]
    measured = [_measure(models, objective) for models in members]
    stacked = {key: np.stack([np.asarray(row[key])[:count] for row in measured], axis=1) for key in measured[0]}
    reached = np.asarray(run.valid)
    return {key: np.where(reached.reshape((-1,) + (1,) * (x.ndim - 1)), x, np.nan) for key, x in stacked.items()}


def _padded(leaf: np.ndarray, rows: int) -> np.ndarray:
    return np.concatenate([leaf, np.repeat(leaf[-1:], rows - len(leaf), axis=0)])


@eqx.filter_jit
def _measure(models: ValueSoftmax, objective: Objective) -> dict[str, jax.Array]:
    single = Panel(models.values[None], models.scores[None], (models.activation,))
    drift = jnp.abs(laws.primitive(models))
    return {
        "weights": models.weights,
        "scores": models.scores,
        "loss": member_losses(single, objective)[0],
        "drift": drift if models.activation.normalised else drift.max(axis=-1),
    }
