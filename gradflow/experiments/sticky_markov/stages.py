"""What the experiment computes: the chain and its exact filter, the arms by descent, and their flows."""

import functools
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from gradflow import laws, losses
from gradflow.experiments import audits
from gradflow.experiments.base import Stage
from gradflow.experiments.sticky_markov import arms
from gradflow.experiments.sticky_markov.config import Config, spaced
from gradflow.experiments.sticky_markov.reading import read_all
from gradflow.experiments.trees import member
from gradflow.tasks import StickyMarkov, surprise
from gradflow.tasks.markov import sticky_transition
from gradflow.trajectory import Trajectory

Arrays = dict[str, np.ndarray]


def stages(config: Config) -> list[Stage]:
    """Return the stages, each independent of the others."""
    parts = [("chain", chain), ("descent", descent), ("closed", closed), ("flow", flow)]
    return [Stage(name, functools.partial(compute, config)) for name, compute in parts]


def chain(config: Config, workspace: Path) -> Arrays:
    """Measure the chain itself, and what the exact filter reaches on each sequence."""
    start, task = arms.problem(config.seeds, config.length), arms.task()
    batches = [member(start.batch, seed) for seed in range(len(config.seeds))]
    posteriors = [task.bayes(batch) for batch in batches]
    literal = StickyMarkov(sticky_transition(literal=True))
    hits = [jnp.mean(p.probabilities.argmax(-1) == b.targets) for p, b in zip(posteriors, batches, strict=True)]
    return {
        "row": np.asarray(task.transition[0]),
        "entropy_rate": np.asarray(task.entropy_rate),
        "literal_entropy_rate": np.asarray(literal.entropy_rate),
        "filter_loss": np.array([float(jnp.mean(surprise(p, b))) for p, b in zip(posteriors, batches, strict=True)]),
        "filter_accuracy": np.array(list(map(float, hits))),
        "symbols_loss": np.array([_loss_of_symbols(task, start, seed) for seed in range(len(config.seeds))]),
    }


def _loss_of_symbols(task: StickyMarkov, start: arms.Problem, seed: int) -> float:
    """Return the loss of the chain's own row on a sequence, for a reader that sees the symbols."""
    chosen = task.transition[start.sources[seed], start.batch.targets[seed, 0]]
    return float(-jnp.mean(jnp.log(chosen)))


def descent(config: Config, workspace: Path) -> Arrays:
    """Run the six arms of gradient steps for every seed."""
    start = arms.problem(config.seeds, config.length)
    low = arms.at_precision(start, config.precision)
    options = {"steps": config.steps, "save_at": config.save_at, "step_size": config.step_size}
    heads = arms.joined(arms.descend(low, arms.MOVING, **options), arms.descend_frozen(low, **options))
    return {"step": config.save_at, **_measured(config, start, heads, config.save_at)}


def closed(config: Config, workspace: Path) -> Arrays:
    """Run the arm with the closed-form M step."""
    start, save_at = arms.problem(config.seeds, config.length), config.closed_save_at
    heads = arms.descend_closed(start, steps=config.closed_steps, save_at=save_at, step_size=config.step_size)
    return {"step": save_at, **_measured(config, start, heads, save_at)}


def flow(config: Config, workspace: Path) -> Arrays:
    """Integrate the flow of the six arms that follow one, and check the laws along the EM arm of the first seed."""
    start, ts = arms.problem(config.seeds, config.length), config.ts
    run = arms.flow(start, arms.MOVING, ts=ts, rtol=config.rtol)
    heads = arms.joined(arms.by_arm(run.observed, len(config.seeds)), arms.flow_frozen(start, ts=ts, rtol=config.rtol))
    return {
        "t": ts,
        "evaluations": np.asarray(run.stats["num_gradients"]),
        **_measured(config, start, heads, ts),
        **_audited(config, start, run),
    }


def _measured(config: Config, start: arms.Problem, heads: Any, saves: np.ndarray) -> Arrays:
    measured = spaced(len(saves) - 1, config.measured)
    return {"measured": measured, **read_all(heads, start.batch, start.sources, measured)}


def _audited(config: Config, start: arms.Problem, run: Trajectory) -> Arrays:
    """Check every law that applies along the flow of the EM arm from the first seed."""
    index = arms.MOVING.index(arms.EM) * len(config.seeds)
    rows = spaced(len(config.ts) - 1, config.audited)
    one = run.member(index)
    some = member((one.ts, one.observed, one.valid), rows)
    one = eqx.tree_at(lambda run: (run.ts, run.observed, run.valid), one, some)
    table = laws.audit(one, losses.cross_entropy, member(start.batch, 0), rates=dict(arms.EM.rates), rtol=config.rtol)
    return audits.stored(table)
