"""What the experiment computes: the flow of setting A, descent beside it, the clock, random starts and controls."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from gradflow import losses
from gradflow.activations import AbstractActivation, Linear, Sigmoid
from gradflow.compare import flow_descent_gap
from gradflow.descent import gradient_descent
from gradflow.diagnostics import entropy
from gradflow.experiments import audits
from gradflow.experiments.base import Stage
from gradflow.experiments.polarization.config import Config
from gradflow.flow import gradient_flow, log_times
from gradflow.laws import audit
from gradflow.laws import polarization as laws
from gradflow.laws.polarization.winners import Rule
from gradflow.models import ValueSoftmax, paper
from gradflow.trajectory import Trajectory
from gradflow.types import Data

SEED = 2603_06248
LARGE, SMALL = 0.1, 1e-3  # scales of the two kinds of random starts
SQUARE_HORIZON = 1e3  # by then the square loss has converged to rounding

Arrays = dict[str, np.ndarray]


def stages(config: Config) -> list[Stage]:
    """Return the stages, each independent of the others."""
    parts = [("flow", flow), ("descent", descent), ("gap", gap), ("clock", clock), ("starts", starts)]
    parts += [("controls", controls), ("laws", law_residuals)]
    return [Stage(name, functools.partial(compute, config)) for name, compute in parts]


def flow(config: Config, workspace: Path) -> Arrays:
    """Integrate setting A to the horizon."""
    run = _flow(config)
    steps = {"steps": np.asarray(run.stats["num_steps"]), "steps_to_1e12": _steps_to(config, 1e12)}
    return {"t": np.asarray(run.ts), **_path(run.observed, paper.logistic().args), **steps}


def descent(config: Config, workspace: Path) -> Arrays:
    """Run the paper's gradient descent."""
    setting = paper.logistic()
    run = _descend(config, setting.step_size, workspace / "descent")
    return {"step": np.asarray(run.ts), **_path(run.observed, setting.args)}


def gap(config: Config, workspace: Path) -> Arrays:
    """Measure how far descent is from the flow at matched times, for each step size."""
    along = _flow(config)
    runs = {size: _descend(config, size, workspace / f"descent-{size}") for size in config.step_sizes}
    gaps = {size: flow_descent_gap(along, run, size) for size, run in runs.items()}
    common = functools.reduce(np.intersect1d, [np.asarray(g.ts) for g in gaps.values()])
    rows = [np.asarray(g.distance)[np.isin(np.asarray(g.ts), common)] for g in gaps.values()]
    return {"t": common, "step_size": np.asarray(config.step_sizes), "distance": np.stack(rows)}


def clock(config: Config, workspace: Path) -> Arrays:
    """Follow three losses along the orbit, and the orbit itself far beyond any horizon."""
    setting = paper.logistic()
    direction = setting.args.x[0]
    early = np.append(0.0, log_times(1e-2, SQUARE_HORIZON, len(config.ts) - 1))
    paths = {"logistic": _flow(config), "exponential": _flow(config, losses.exponential)}
    for target in config.targets:
        aligned = Data(setting.args.x, jnp.full(1, target))
        paths[f"square_{target:g}"] = _flow(config, losses.square, aligned, ts=early)
    out = {}
    for name, run in paths.items():
        out |= {f"{name}_{key}": value for key, value in _on_clock(config, run.observed, direction).items()}
        out[f"{name}_t"] = np.asarray(run.ts)
    taus = np.append(0.0, log_times(1e-2, config.tau, len(config.ts) - 1))
    beyond = laws.orbit(setting.model, direction, jnp.asarray(taus), None, config.rtol)
    out["orbit_tau"], out["orbit_weights"] = taus, np.asarray(beyond.weights)
    out["orbit_alignment_sum"] = np.asarray(jnp.einsum("d,tdn->t", direction, beyond.values))
    out["orbit_constant"] = np.asarray(laws.polarization_constant(beyond, direction))
    return out


def starts(config: Config, workspace: Path) -> Arrays:
    """Run random starts: uniform scores with values of scale 0.1, and everything small."""
    data, d = paper.logistic().args, len(paper.logistic().args.x[0])
    key = jax.random.key(SEED)
    out: Arrays = {"t": config.ts}
    kinds: tuple[tuple[Rule, float, float], ...] = (("uniform", LARGE, 0.0), ("small", SMALL, SMALL))
    for rule, scale, score_scale in kinds:
        keys = [jax.random.fold_in(key, seed) for seed in range(config.seeds)]
        models = [ValueSoftmax.normal(k, d, d, scale=scale, score_scale=score_scale) for k in keys]
        paths = [_path(_flow(config, data=data, model=model).observed, data) for model in models]
        stacked = jax.tree.map(lambda *x: jnp.stack(x) if eqx.is_array(x[0]) else x[0], *models)
        predicted = laws.predicted_winner(stacked, data.x[0], rule)
        out |= {
            f"{rule}_predicted": np.asarray(predicted.index),
            f"{rule}_margin": np.asarray(predicted.margin),
            f"{rule}_longest": np.asarray(jnp.argmax(jnp.linalg.norm(stacked.values, axis=1), axis=-1)),
            f"{rule}_winner": np.stack([path["weights"][-1].argmax() for path in paths]),
            f"{rule}_others": np.stack([path["others"] for path in paths]),
            f"{rule}_loss": np.stack([path["loss"] for path in paths]),
        }
    return out


def controls(config: Config, workspace: Path) -> Arrays:
    """Run the same start under elementwise maps, and a start at which all values are equal."""
    setting = paper.logistic()
    out: Arrays = {"t": config.ts, "step": config.save_at}
    maps: dict[str, AbstractActivation] = {"sigmoid": Sigmoid(), "linear": Linear()}
    for name, activation in maps.items():
        model = eqx.tree_at(lambda m: m.activation, setting.model, activation)
        out[f"{name}_weights"] = np.asarray(_flow(config, model=model).observed.weights)
    model = eqx.tree_at(lambda m: m.activation, setting.model, Sigmoid())
    run = _descend(config, setting.step_size, workspace / "sigmoid", model)
    out["sigmoid_descent_weights"] = np.asarray(run.observed.weights)
    values = jnp.broadcast_to(setting.model.values[:, :1], setting.model.values.shape)
    equal = _flow(config, model=ValueSoftmax(values, jnp.zeros_like(setting.model.scores)))
    path = _path(equal.observed, setting.args)
    return out | {"equal_weights": path["weights"], "equal_loss": path["loss"]}


def law_residuals(config: Config, workspace: Path) -> Arrays:
    """Evaluate the laws of `gradflow.laws.polarization` that setting A can show, along the flow and the descent."""
    setting = paper.logistic()
    along = _flow(config)
    flow_laws = _residuals(along.observed, along.ts, setting.args)
    run = _descend(config, setting.step_size, workspace / "descent")
    descent_laws = {
        "descent_score_sum": laws.score_sum(run.observed),
        "descent_perpendicular_values": laws.perpendicular_values(run.observed, setting.args.x[0]),
    }
    named = {name: np.asarray(value) for name, value in {**flow_laws, **descent_laws}.items()}
    checked = audits.stored(audit(along, setting.loss, setting.args, rtol=config.rtol))
    return {"t": np.asarray(along.ts), "step": np.asarray(run.ts), **named, **checked}


@eqx.filter_jit
def _residuals(models: ValueSoftmax, ts: Any, data: Data) -> dict[str, Any]:
    direction, loss = data.x[0], losses.logistic
    rates = laws.clock_rates(loss, models, data, direction)
    return {
        "score_sum": laws.score_sum(models),
        "perpendicular_values": laws.perpendicular_values(models, direction),
        "loss_dissipation": laws.loss_dissipation(loss, models, data),
        "score_velocity": jnp.abs(laws.score_velocity(loss, models, data)).max(axis=-1),
        "alignment_sum": rates.alignment_sum,
        "alignment_square": rates.alignment_square,
        "value_square": rates.value_square,
        "margin": rates.margin,
        "order_violations": laws.order_violations(models, direction),
        "alignment_gap_shrinkage": laws.alignment_gap_shrinkage(models, direction),
        "leader_gap_shrinkage": laws.leader_gap_shrinkage(models, direction),
        "score_gap_shrinkage": laws.score_gap_shrinkage(models, direction),
        "loss_decay": laws.loss_decay(ts, _losses(models, data)),
        "polarization_constant": laws.polarization_constant(models, direction),
        "early_scores": laws.early_scores(models, direction),
    }


def _flow(
    config: Config,
    loss: Callable = losses.logistic,
    data: Data | None = None,
    model: ValueSoftmax | None = None,
    ts: np.ndarray | None = None,
) -> Trajectory:
    """Integrate setting A, with whatever is given in place of its own loss, data or model."""
    setting = paper.logistic()
    ts = config.ts if ts is None else ts
    model, data = setting.model if model is None else model, setting.args if data is None else data
    return gradient_flow(loss, model, data, t1=ts[-1], ts=ts, rtol=config.rtol)


def _steps_to(config: Config, t1: float) -> np.ndarray:
    """Count the steps to an earlier horizon, with save times that share the kernel."""
    setting, early = paper.logistic(), np.append(0.0, log_times(1e-2, t1, len(config.ts) - 1))
    run = gradient_flow(setting.loss, setting.model, setting.args, t1=t1, ts=early, rtol=config.rtol)
    return np.asarray(run.stats["num_steps"])


def _descend(config: Config, step_size: float, checkpoint: Path, model: ValueSoftmax | None = None) -> Trajectory:
    """Run gradient descent of setting A to the same flow time, and save at the same times, whatever the step size."""
    setting = paper.logistic()
    optimizer = optax.inject_hyperparams(optax.sgd)(learning_rate=step_size)
    ratio = setting.step_size / step_size
    save_at = np.unique(np.round(config.save_at * ratio).astype(int))
    model = setting.model if model is None else model
    steps = int(save_at[-1])
    return gradient_descent(
        setting.loss, model, optimizer, setting.args, steps=steps, save_at=save_at, checkpoint=checkpoint
    )


def _path(models: ValueSoftmax, data: Data) -> Arrays:
    """Return what the figures draw of stacked models, in the letters of the paper."""
    arrays = _measure(models, data)
    return {name: np.asarray(value) for name, value in arrays.items()}


@eqx.filter_jit
def _measure(models: ValueSoftmax, data: Data) -> dict[str, Any]:
    u = jnp.einsum("d,tdn->tn", data.x[0], models.values, precision="highest")
    weights = models.weights
    return {
        "u": u,
        "a": models.scores,
        "weights": weights,
        "others": jnp.sum(jnp.sort(weights, axis=-1)[:, :-1], axis=-1),
        "entropy": entropy(weights),
        "tau": u.sum(axis=-1) - u[0].sum(),
        "loss": _losses(models, data),
    }


def _on_clock(config: Config, models: ValueSoftmax, direction: Any) -> Arrays:
    """Return where a run is on its clock, and how far from the orbit of the loss that has no clock of its own.

    The orbit is integrated a hundred times more finely than the run, so that the distance is the run's own error.
    """
    path = _path(models, Data(direction[None], jnp.ones(1)))
    margin = np.sum(path["u"] * path["weights"], axis=-1)
    kept = {name: path[name] for name in ("tau", "entropy", "others")}
    return {**kept, "margin": margin, "gap": np.asarray(laws.orbit_gap(models, direction, None, 0.01 * config.rtol))}


def _losses(models: ValueSoftmax, data: Data) -> Any:
    return eqx.filter_vmap(lambda model: losses.logistic(model, data))(models)
