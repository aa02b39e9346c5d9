"""What the experiment computes: the paper's runs as flow and descent, and an ensemble with its clock.

The clock tau = int |g| dt, g the gradient with respect to beta, is carried along as a state of its own, so it is as
accurate as the flow. It does not change when the loss is multiplied by a number.
"""

import functools
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gradflow import losses, tasks
from gradflow.descent import gradient_descent
from gradflow.diagnostics import entropy
from gradflow.errors import FlowWarning
from gradflow.experiments import audits
from gradflow.experiments.base import Stage
from gradflow.experiments.condition_number.config import Config
from gradflow.flow import Crossing, gradient_flow
from gradflow.laws import polarization as laws
from gradflow.models import ValueSoftmax, paper
from gradflow.types import Data

SEED = 2603_06248
VALUE_SCALE, SCORE_SCALE = 1e-5, 1e-3  # of the paper's setting
ENSEMBLE_RTOL = 1e-8
CONVERGED = 1e-12  # loss over the loss of beta = 0 at which a square-loss run ends
ENSEMBLE_HORIZON = 1e8
ORBIT_END, ORBIT_SAVES = 20.0, 2001  # of the one-sample orbit, in units of n

Arrays = dict[str, np.ndarray]


def stages(config: Config) -> list[Stage]:
    """Return the stages, each independent of the others."""
    parts = [("flow", flow), ("descent", descent), ("square", square), ("logistic", logistic), ("orbit", orbit)]
    paper_run = functools.partial(audits.of_setting, paper.condition_number, config.kappas[-1])
    checked = audits.stage(paper_run, t1=float(config.ts[-1]), rtol=ENSEMBLE_RTOL)
    return [*(Stage(name, functools.partial(compute, config)) for name, compute in parts), checked]


def flow(config: Config, workspace: Path) -> Arrays:
    """Integrate the paper's setting with its clock for each condition number."""
    rows = []
    for kappa in config.kappas:
        setting = paper.condition_number(kappa)
        model, ts = laws.Clocked.start(setting.model), config.ts
        loss = laws.clocked(losses.square)
        run = gradient_flow(loss, model, setting.args, t1=ts[-1], ts=ts, observe=_observe_clocked, rtol=config.rtol)
        rows.append(run.observed)
    return {"t": config.ts, **_stacked(rows)}


def descent(config: Config, workspace: Path) -> Arrays:
    """Run the paper's gradient descent for each condition number."""
    rows = []
    with warnings.catch_warnings():
        # A square loss that has converged to rounding moves no more: that is what these runs are for.
        warnings.simplefilter("ignore", FlowWarning)
        for kappa in config.kappas:
            setting = paper.condition_number(kappa)
            run = gradient_descent(
                setting.loss,
                setting.model,
                optax.sgd(setting.step_size),
                setting.args,
                steps=config.steps,
                save_at=config.save_at,
                observe=_observe,
                checkpoint=workspace / f"descent-{kappa:g}",
            )
            rows.append(run.observed)
    return {"step": config.save_at, "step_size": np.asarray(paper.condition_number(1.0).step_size), **_stacked(rows)}


def square(config: Config, workspace: Path) -> Arrays:
    """Run the square loss to its end, for targets of given norm and for solutions of given norm."""
    rows, labels = [], []
    for seed, kappa in ((seed, kappa) for seed in range(config.seeds) for kappa in config.ensemble_kappas):
        model, data = draw(config, seed, kappa)
        target = jax.random.normal(jax.random.fold_in(_key(seed), 2), (config.size,))
        kinds = [(0, norm, norm * target / jnp.linalg.norm(target)) for norm in config.targets]
        kinds += [(1, norm, norm * data.y) for norm in config.norms]
        for kind, norm, y in kinds:
            rows.append(_run_square(model, Data(data.x, y)))
            labels.append((seed, kappa, kind, norm))
    return {**_labelled(labels, ("seed", "kappa", "solution", "norm")), **_stacked(rows)}


def logistic(config: Config, workspace: Path) -> Arrays:
    """Run the logistic loss until beta reaches a budget of norm."""
    rows, labels = [], []
    for seed, kappa in ((seed, kappa) for seed in range(config.seeds) for kappa in config.ensemble_kappas):
        model, data = draw(config, seed, kappa)
        for norm in config.norms:
            rows.append(_run_logistic(model, Data(data.x, jnp.where(data.y < 0, -1.0, 1.0)), norm))
            labels.append((seed, kappa, norm))
    return {**_labelled(labels, ("seed", "kappa", "norm")), **_stacked(rows)}


def orbit(config: Config, workspace: Path) -> Arrays:
    """Follow the one-sample orbit from the scores of each seed: what the clock alone predicts."""
    own = paper.condition_number(1.0).model.scores
    taus, rows = (
        _clock_times(config.size),
        [_orbit_entropy(draw(config, seed, 1.0)[0].scores) for seed in range(config.seeds)],
    )
    paper_run = {"paper_tau": _clock_times(own.size), "paper_entropy": _orbit_entropy(own)}
    return {"tau": taus, "entropy": np.stack(rows), **paper_run}


def _clock_times(size: int) -> np.ndarray:
    return np.linspace(0.0, ORBIT_END * size, ORBIT_SAVES)


def _orbit_entropy(scores: Any) -> np.ndarray:
    start, direction = ValueSoftmax.zero_values(scores, scores.size), jnp.eye(scores.size)[0]
    return np.asarray(entropy(laws.orbit(start, direction, jnp.asarray(_clock_times(scores.size))).weights))


def draw(config: Config, seed: int, kappa: float) -> tuple[ValueSoftmax, Data]:
    """Draw a small start and a design with singular values linspace(1, 1/kappa), as in the paper's setting.

    Args:
        config: settings.
        seed: all condition numbers of a seed share its start and its singular vectors.
        kappa: condition number.

    Returns:
        Model, and data whose solution has norm 1.
    """
    model_key, data_key = jax.random.fold_in(_key(seed), 0), jax.random.fold_in(_key(seed), 1)
    size = config.size
    model = ValueSoftmax.normal(model_key, size, size, scale=VALUE_SCALE, score_scale=SCORE_SCALE)
    return model, tasks.linear_regression(data_key, n_features=size, condition_number=kappa, spacing="linear")


def _key(seed: int) -> Any:
    return jax.random.fold_in(jax.random.key(SEED), seed)


def _run_square(model: ValueSoftmax, data: Data) -> Any:
    run = gradient_flow(
        laws.clocked(losses.square),
        laws.Clocked.start(model),
        data,
        t1=ENSEMBLE_HORIZON,
        observe=_observe_clocked,
        rtol=ENSEMBLE_RTOL,
        stop=_has_converged,
    )
    return run.observed


def _run_logistic(model: ValueSoftmax, data: Data, norm: float) -> Any:
    run = gradient_flow(
        laws.clocked(losses.logistic),
        laws.Clocked.start(model),
        data,
        t1=ENSEMBLE_HORIZON,
        observe=_observe_clocked,
        rtol=ENSEMBLE_RTOL,
        event=Crossing(_norm, norm),
    )
    return run.observed


def _observe(step: Any, model: ValueSoftmax, data: Data) -> dict[str, Any]:
    weights = model.weights
    return {
        "entropy": entropy(weights),
        "largest": weights.max(),
        "loss": losses.square(model, data),
        "norm_beta": jnp.linalg.norm(model()),
    }


def _observe_clocked(t: Any, state: Any, data: Data) -> dict[str, Any]:
    # The columns of V sum to -int g dt (V(0) is negligible): at most tau long, and that long when g never turns.
    net = jnp.linalg.norm(state.model.values.sum(axis=1))
    return _observe(t, state.model, data) | {"tau": state.tau, "net": net}


def _has_converged(t: Any, state: Any, data: Data) -> Any:
    return losses.square(state.model, data) < CONVERGED * jnp.mean(data.y**2) / 2


def _norm(t: Any, state: Any, data: Data) -> Any:
    return jnp.linalg.norm(state.model())


def _stacked(rows: list[dict[str, Any]]) -> Arrays:
    """Stack runs along axis 0; runs that saved their end alone give one number each."""
    stacked = {name: np.stack([np.asarray(row[name]) for row in rows]) for name in rows[0]}
    return {name: x[:, 0] if x.shape[1] == 1 else x for name, x in stacked.items()}


def _labelled(labels: list[tuple], names: tuple[str, ...]) -> Arrays:
    return {f"of_{name}": np.asarray(column) for name, column in zip(names, zip(*labels, strict=True), strict=True)}
