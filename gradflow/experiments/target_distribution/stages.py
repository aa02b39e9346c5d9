"""What the experiment computes: the paper's descent, the flow until it stops, and models that fit without attention."""

import functools
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float

from gradflow import losses
from gradflow.activations import by_name
from gradflow.descent import gradient_descent
from gradflow.diagnostics import entropy
from gradflow.experiments import audits
from gradflow.experiments.base import Stage
from gradflow.experiments.panel import SOLVER, Panel
from gradflow.experiments.target_distribution.config import CONTROLS, Config
from gradflow.flow import gradient_flow, log_times
from gradflow.laws import polarization as laws
from gradflow.models import ValueSoftmax, paper

CONTROL_RTOL = 1e-8

Arrays = dict[str, np.ndarray]


class Target(eqx.Module):
    """The target and how close to it a flow has to come.

    Attributes:
        p: the distribution.
        distance: sum_i |p_i - q_i| at which the flow ends.
    """

    p: Float[Array, " d"]
    distance: Float[Array, ""]


def stages(config: Config) -> list[Stage]:
    """Return the stages, each independent of the others."""
    parts = [("descent", descent), ("flow", flow), ("controls", controls)]
    paper_run = functools.partial(audits.of_setting, paper.target_distribution)
    checked = audits.stage(paper_run, t1=config.control_time, rtol=CONTROL_RTOL)
    return [*(Stage(name, functools.partial(compute, config)) for name, compute in parts), checked]


def descent(config: Config, workspace: Path) -> Arrays:
    """Run the paper's gradient descent."""
    setting = paper.target_distribution()
    run = gradient_descent(
        setting.loss,
        setting.model,
        optax.sgd(setting.step_size),
        setting.args,
        steps=config.steps,
        save_at=config.save_at,
        checkpoint=workspace / "descent",
    )
    return {"step": config.save_at, "t": config.save_at * setting.step_size, **_path(run.observed, setting.args)}


def flow(config: Config, workspace: Path) -> Arrays:
    """Integrate the flow until the fit is exact to rounding; stiff towards its end, so by an implicit method."""
    del workspace
    setting = paper.target_distribution()
    target = Target(setting.args, jnp.asarray(config.stop_distance))
    run = gradient_flow(
        target_loss,
        setting.model,
        target,
        t1=config.horizon,
        ts=config.ts,
        rtol=config.rtol,
        solver="kvaerno5",
        stop=has_arrived,
        throw=False,
    )
    reached = np.asarray(run.valid)
    kept = jax.tree.map(lambda leaf: leaf[reached] if eqx.is_array(leaf) else leaf, run.observed)
    final = jax.tree.map(lambda leaf: leaf[None] if eqx.is_array(leaf) else leaf, run.final)
    return {
        "t": np.asarray(run.ts)[reached],
        **_path(kept, setting.args),
        **{f"end_{key}": value[0] for key, value in _path(final, setting.args).items()},
        "end_t": np.asarray(run.t_final),
        "status": np.asarray(run.status),
        "solver_steps": np.asarray(run.stats["num_steps"]),
    }


def controls(config: Config, workspace: Path) -> Arrays:
    """Integrate the same start with attention that cannot move and with an elementwise map, and fit p exactly."""
    del workspace
    setting = paper.target_distribution()
    p = setting.args
    panel = Panel.repeat(setting.model.values, setting.model.scores, tuple(map(by_name, CONTROLS)))
    ts = np.append(0.0, log_times(0.1, config.control_time, config.saves))
    run = gradient_flow(
        panel_kl, panel, p, t1=ts[-1], ts=ts, observe=observe_panel, rtol=CONTROL_RTOL, solver=SOLVER, throw=False
    )
    constant = jnp.log(p)[:, None] * jnp.ones_like(setting.model.scores)
    exact = ValueSoftmax(constant, jnp.zeros_like(setting.model.scores))
    return {
        "t": ts,
        **{key: np.asarray(value) for key, value in run.observed.items()},
        "status": np.asarray(run.status),
        "exact_kl": np.asarray(losses.kl(exact, p)),
        "exact_entropy": np.asarray(entropy(exact.weights)),
        "target": np.asarray(p),
    }


def target_loss(model: ValueSoftmax, target: Target) -> Float[Array, ""]:
    """Return KL(p || softmax(V s))."""
    return losses.kl(model, target.p)


def has_arrived(t: Float[Array, ""], model: ValueSoftmax, target: Target) -> Bool[Array, ""]:
    """Return whether the model's distribution is as close to p as asked for."""
    del t
    return jnp.sum(jnp.abs(jax.nn.softmax(model()) - target.p)) < target.distance


def panel_kl(panel: Panel, p: Float[Array, " d"]) -> Float[Array, ""]:
    """Return the sum of KL(p || softmax(V s)) over all models; each moves as by its own."""
    return jnp.sum(_kl(panel(), p))


def observe_panel(t: Float[Array, ""], panel: Panel, p: Float[Array, " d"]) -> dict[str, Array]:
    """Return loss and weights of every model."""
    del t
    weights = panel.weights
    return {"kl": _kl(panel(), p), "weights": weights, "entropy": entropy(weights / weights.sum(-1, keepdims=True))}


def _kl(logits: Float[Array, "M d"], p: Float[Array, " d"]) -> Float[Array, " M"]:
    return jnp.sum(p * (jnp.log(p) - jax.nn.log_softmax(logits)), axis=-1)


def _path(models: ValueSoftmax, p: Float[Array, " d"]) -> Arrays:
    """Return what is drawn and judged of stacked models."""
    return {key: np.asarray(value) for key, value in _measure(models, p).items()}


@eqx.filter_jit
def _measure(models: ValueSoftmax, p: Float[Array, " d"]) -> dict[str, Array]:
    weights = models.weights
    logits = jnp.einsum("tdn,tn->td", models.values, weights)
    return {
        "weights": weights,
        "entropy": entropy(weights),
        "kl": _kl(logits, p),
        "distance": jnp.sum(jnp.abs(jax.nn.softmax(logits) - p), axis=-1),
        "prediction_entropy": entropy(jax.nn.softmax(logits)),
        "column_sum_drift": jnp.abs(laws.column_sums(models)).max(axis=-1),
        "advantage": jnp.abs(models.values - logits[..., None]).max(axis=(-2, -1)),
    }
