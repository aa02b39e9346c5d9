"""What the experiment computes: one flow of all maps and starts a task, and descent beside one of them."""

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gradflow import losses
from gradflow.activations import by_name
from gradflow.descent import gradient_descent, log_steps
from gradflow.diagnostics import entropy
from gradflow.experiments import audits
from gradflow.experiments.base import Stage
from gradflow.experiments.panel import SOLVER, Objective, Panel, member, panel_loss
from gradflow.experiments.real_data.config import MAPS, SCALES, SIZE, START_SCORE, TASKS, Config
from gradflow.flow import gradient_flow, log_times
from gradflow.laws import polarization as laws
from gradflow.models import ValueSoftmax
from gradflow.tasks import real
from gradflow.types import Data

SEED = 2603_06248
FIRST_TIME = 1e-2
DESCENT_TASK = "wine-separable"
NEWTON_STEPS = 100

Arrays = dict[str, np.ndarray]


def stages(config: Config) -> list[Stage]:
    """Return one stage a task, descent, and the audit of a softmax; each independent of the others."""
    flows = [Stage(name, functools.partial(flow, config, name)) for name in TASKS]
    checked = audits.stage(functools.partial(_audited, config), t1=config.horizon(DESCENT_TASK), rtol=config.rtol)
    return [*flows, Stage("descent", functools.partial(descent, config)), checked]


def _audited(config: Config) -> tuple[Any, ValueSoftmax, Data]:
    train, _ = load(DESCENT_TASK)
    start = starts(config, train.x.shape[1])
    return losses.logistic, ValueSoftmax(start.values[0, config.seeds], start.scores[0, config.seeds]), train


def flow(config: Config, name: str, workspace: Path) -> Arrays:
    """Integrate every map from every start on one task."""
    del workspace
    task, (train, test) = TASKS[name], load(name)
    objective, start = Objective.of(train.x, train.y, **{task.loss: 1.0}), starts(config, train.x.shape[1])
    horizon = config.horizon(name)
    ts = np.append(0.0, log_times(FIRST_TIME, horizon, config.saves))
    run = gradient_flow(panel_loss, start, objective, t1=horizon, ts=ts, rtol=config.rtol, solver=SOLVER, throw=False)
    predicted, margin = predicted_winner(start, train, task.loss)
    return {
        "t": ts,
        **measure(run.observed, train, test, task.loss, ts),
        "predicted": predicted,
        "margin": margin,
        "floor": np.asarray(0.0 if task.separable else floor(train, task.loss)),
        "condition": np.asarray(condition_number(train)),
        "status": np.asarray(run.status),
        "solver_steps": np.asarray(run.stats["num_steps"]),
        "baseline": np.asarray(baseline(test)),
    }


def descent(config: Config, workspace: Path) -> Arrays:
    """Run gradient descent from the first start of the larger scale, softmax only."""
    train, test = load(DESCENT_TASK)
    objective = Objective.of(train.x, train.y, logistic=1.0)
    every, seed = starts(config, train.x.shape[1]), slice(config.seeds, config.seeds + 1)
    start = Panel(every.values[:1, seed], every.scores[:1, seed], every.activations[:1])
    save_at = log_steps(config.descent_steps, config.saves)
    run = gradient_descent(
        panel_loss,
        start,
        optax.sgd(config.step_size),
        objective,
        steps=config.descent_steps,
        save_at=save_at,
        checkpoint=workspace / "descent",
    )
    ts = save_at * config.step_size
    return {"t": ts, **measure(run.observed, train, test, "logistic", ts)}


def load(name: str) -> tuple[Data, Data]:
    """Return training and test data of a task."""
    return real(TASKS[name].data, positive=TASKS[name].positive)


def starts(config: Config, d: int) -> Panel:
    """Return the starts: uniform scores, values of each scale and seed, equal for every map."""
    key, count = jax.random.key(SEED), len(SCALES) * config.seeds
    draws = jnp.stack([jax.random.normal(jax.random.fold_in(key, i), (d, SIZE)) for i in range(count)])
    values = draws * jnp.repeat(jnp.array(SCALES), config.seeds)[:, None, None]
    return Panel.repeat(values, jnp.full((count, SIZE), START_SCORE), tuple(map(by_name, MAPS)))


def predicted_winner(start: Panel, train: Data, loss: str) -> tuple[np.ndarray, np.ndarray]:
    """Return argmax_i <v_i, -g(0)>, the winner of the one-sample theory, and its lead over the second, relative."""
    values = np.asarray(start.values[0])
    beta = values.mean(axis=-1)  # equal scores
    force = -np.einsum("sd,sdn->sn", gradient(beta, train, loss), values)
    ordered = np.sort(force, axis=-1)
    return force.argmax(axis=-1), (ordered[:, -1] - ordered[:, -2]) / np.abs(ordered).max(axis=-1)


def measure(panels: Panel, train: Data, test: Data, loss: str, ts: np.ndarray) -> Arrays:
    """Return what is drawn and judged of stacked panels: axes (map, time, start)."""
    members = [member(panels, index) for index in range(len(panels.activations))]
    weights = np.stack([np.asarray(models.weights) for models in members])
    beta = np.sum(np.moveaxis(np.asarray(panels.values), 1, 0) * weights[..., None, :], axis=-1)
    shares = weights / weights.sum(axis=-1, keepdims=True)
    pull = np.linalg.norm(gradient(beta, train, loss), axis=-1)
    return {
        "shares": shares,
        "entropy": np.asarray(entropy(shares)),
        "loss": losses_of(beta, train, loss),
        "clock": _integrated(pull, ts),
        "norm": np.linalg.norm(beta, axis=-1),
        "train_score": score(beta, train),
        "test_score": score(beta, test),
        "drift": np.stack([_drift(models) for models in members]),
    }


def losses_of(beta: np.ndarray, data: Data, loss: str) -> np.ndarray:
    """Return the loss of each predictor (..., d)."""
    predictions, y = beta @ np.asarray(data.x).T, np.asarray(data.y)
    if loss == "square":
        return ((predictions - y) ** 2).mean(axis=-1) / 2
    margins = y * predictions
    return (np.logaddexp(0, -margins) if loss == "logistic" else np.exp(-margins)).mean(axis=-1)


def gradient(beta: np.ndarray, data: Data, loss: str) -> np.ndarray:
    """Return g = grad l(beta) of each predictor (..., d)."""
    x, y = np.asarray(data.x), np.asarray(data.y)
    predictions = beta @ x.T
    if loss == "square":
        slope = predictions - y
    elif loss == "logistic":
        slope = -y * np.exp(-np.logaddexp(0, y * predictions))
    else:
        slope = -y * np.exp(-y * predictions)
    return slope @ x / len(y)


def score(beta: np.ndarray, data: Data) -> np.ndarray:
    """Return accuracy for labels, R^2 for real targets."""
    predictions, y = beta @ np.asarray(data.x).T, np.asarray(data.y)
    if is_classification(data):
        return (predictions * y > 0).mean(axis=-1)
    return 1 - ((predictions - y) ** 2).mean(axis=-1) / y.var()


def is_classification(data: Data) -> bool:
    """Return whether the targets are labels."""
    return bool((np.abs(np.asarray(data.y)) == 1).all())


def _drift(models: ValueSoftmax) -> np.ndarray:
    """Return how far the primitives of law 3 have moved (T, S); of the map without attention, the scores."""
    if models.activation.primitive(jnp.ones(1)) is None:
        return np.abs(np.asarray(models.scores - models.scores[:1])).max(axis=-1)
    over_starts = ValueSoftmax(jnp.moveaxis(models.values, 0, 1), jnp.moveaxis(models.scores, 0, 1), models.activation)
    drift = np.abs(np.asarray(laws.primitive(over_starts)))
    return (drift if models.activation.normalised else drift.max(axis=-1)).T


def _integrated(pull: np.ndarray, ts: np.ndarray) -> np.ndarray:
    """Return the clock int |g| dt by the trapezoidal rule (map, time, start); saves are dense in log t."""
    pieces = 0.5 * (pull[:, 1:] + pull[:, :-1]) * np.diff(ts)[:, None]
    return np.concatenate([np.zeros_like(pull[:, :1]), np.cumsum(pieces, axis=1)], axis=1)


def floor(train: Data, loss: str) -> float:
    """Return the smallest loss of any linear predictor, on data that no hyperplane separates: a finite minimiser."""
    x, y = np.asarray(train.x), np.asarray(train.y)
    if loss == "square":
        return float(((x @ np.linalg.lstsq(x, y, rcond=None)[0] - y) ** 2).mean() / 2)
    beta = np.zeros(x.shape[1])
    for _ in range(NEWTON_STEPS):
        miss = 1 / (1 + np.exp(np.clip(y * (x @ beta), -500, 500)))
        curvature = (x * (miss * (1 - miss))[:, None]).T @ x / len(y)
        step = np.linalg.lstsq(curvature, x.T @ (y * miss) / len(y), rcond=1e-10)[0]
        beta = beta + step / max(1.0, np.linalg.norm(step))
    return float(np.logaddexp(0, -y * (x @ beta)).mean())


def condition_number(train: Data) -> float:
    """Return the ratio of the largest to the smallest singular value of X, without those that are zero."""
    singular = np.linalg.svd(np.asarray(train.x), compute_uv=False)
    return float(singular[0] / singular[singular > 1e-10 * singular[0]][-1])


def baseline(test: Data) -> float:
    """Return the score of the constant prediction: the share of the larger class, or R^2 = 0."""
    y = np.asarray(test.y)
    return float(max((y == 1).mean(), (y == -1).mean())) if is_classification(test) else 0.0
