"""What is computed: the filter's entropies, the arms by descent, and two arms on targets in random order."""

import functools
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from gradflow import losses
from gradflow.experiments import audits
from gradflow.experiments.base import Stage
from gradflow.experiments.em_manifold.config import Config
from gradflow.experiments.em_manifold.reading import Known, cloud, read_shapes
from gradflow.experiments.sticky_markov import arms
from gradflow.experiments.sticky_markov.reading import read_all
from gradflow.experiments.trees import member

SHUFFLED = (arms.SGD, arms.EM)  # the arms that are trained on targets in random order as well
AUDIT_TIME, AUDIT_RTOL = 10.0, 1e-6

Arrays = dict[str, np.ndarray]


def stages(config: Config) -> list[Stage]:
    """Return the stages, each independent of the others."""
    parts = [("chain", chain), ("descent", descent), ("closed", closed), ("shuffled", shuffled)]
    audit = audits.stage(functools.partial(_audited, config), t1=AUDIT_TIME, rtol=AUDIT_RTOL)
    return [*(Stage(name, functools.partial(compute, config)) for name, compute in parts), audit]


def _audited(config: Config) -> tuple[Any, Any, Any]:
    """Return loss, head and sequence of the SGD arm, whose flow has all rates at 1."""
    start = arms.problem(config.seeds[:1], config.audit_length)
    return losses.cross_entropy, member(start.heads, 0), member(start.batch, 0)


def chain(config: Config, workspace: Path) -> Arrays:
    """Measure the filter's entropies, and the clouds that no training has made: inputs, and Gaussian vectors."""
    start = arms.problem(config.seeds, config.length)
    told, d_v = known(start), start.heads.w_v.shape[-1]
    rows = []
    for seed in range(len(config.seeds)):
        own, inputs = member(told, seed), start.batch.inputs[seed, 0]
        noise = jax.random.normal(jax.random.key(config.seeds[seed]), (len(inputs), d_v))
        rows.append(cloud("inputs", inputs, own) | cloud("noise", noise, own))
    return {
        "entropies": np.asarray(told.entropies),
        "entropy_rate": np.asarray(arms.task().entropy_rate / jnp.log(2)),
        **{name: np.array([float(row[name]) for row in rows]) for name in rows[0]},
    }


def known(start: arms.Problem) -> Known:
    """Return what the readers are told of each sequence."""
    task = arms.task()
    entropies = [task.bayes(member(start.batch, seed)).entropy[0] for seed in range(len(start.sources))]
    permuted = [jax.random.permutation(jax.random.key(seed), row) for seed, row in enumerate(entropies)]
    return Known(start.sources, jnp.stack(entropies), jnp.stack(permuted))


def descent(config: Config, workspace: Path) -> Arrays:
    """Run the six arms of gradient steps for every seed."""
    start, options = arms.problem(config.seeds, config.length), _options(config)
    low = arms.at_precision(start, config.precision)
    heads = arms.joined(arms.descend(low, arms.MOVING, **options), arms.descend_frozen(low, **options))
    return _measured(start, heads, config.save_at)


def closed(config: Config, workspace: Path) -> Arrays:
    """Run the arm with the closed-form M step."""
    start, save_at = arms.problem(config.seeds, config.length), config.closed_save_at
    heads = arms.descend_closed(start, steps=config.closed_steps, save_at=save_at, step_size=config.step_size)
    return _measured(start, heads, save_at)


def shuffled(config: Config, workspace: Path) -> Arrays:
    """Run SGD and EM on targets in random order, which nothing in the inputs predicts."""
    start = arms.problem(config.seeds, config.length)
    orders = [jax.random.permutation(jax.random.key(seed), start.batch.targets.shape[-1]) for seed in config.seeds]
    targets = jnp.stack([row[:, order] for row, order in zip(start.batch.targets, orders, strict=True)])
    mixed = eqx.tree_at(lambda problem: problem.batch.targets, start, targets)
    heads = arms.descend(arms.at_precision(mixed, config.precision), SHUFFLED, **_options(config))
    return _measured(mixed, heads, config.save_at)


def _options(config: Config) -> dict[str, Any]:
    return {"steps": config.steps, "save_at": config.save_at, "step_size": config.step_size}


def _measured(start: arms.Problem, heads: Any, save_at: np.ndarray) -> Arrays:
    found = read_all(heads, start.batch, known(start), np.arange(len(save_at)), read_shapes)
    return {"step": save_at, **found}
