"""What the experiment computes: exact flows of heads on windows of the text, and on the same characters permuted."""

import functools
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from gradflow import laws, losses
from gradflow.experiments import audits
from gradflow.experiments.base import Stage
from gradflow.experiments.text_head import measures
from gradflow.experiments.text_head.config import D_K, D_V, SCALE, Config
from gradflow.experiments.text_head.pages import Page, floors, page_loss, page_of, unseen_floors, windows
from gradflow.experiments.trees import member, stacked
from gradflow.flow import gradient_flow_ensemble
from gradflow.models import AttentionHead
from gradflow.trajectory import Trajectory

SEED = 1776
Arrays = dict[str, np.ndarray]


def stages(config: Config) -> list[Stage]:
    """Return one stage for the text and one for its characters permuted, independent of each other."""
    return [
        Stage(name, functools.partial(compute, config)) for name, compute in (("text", whole), ("permuted", permuted))
    ]


def whole(config: Config, workspace: Path) -> Arrays:
    """Train on the text: with attention, with uniform attention, and with attention to the present character only."""
    del workspace
    found = windows(config.length)
    pages = stacked([page_of(found, seed) for seed in range(config.seeds)])
    unseen = stacked([page_of(found, seed + 1) for seed in range(config.seeds)])
    heads = starts(config, len(found.alphabet))
    run = _flow(config, [(heads, pages), (unrouted(heads), pages), (heads, jax.vmap(Page.alone)(pages))])
    softmax, uniform, own = (_part(run.observed, config.seeds, arm) for arm in range(3))
    out = _measured(config, softmax, uniform, pages, unseen)
    out |= {"own_loss": measures.losses_of(own, jax.vmap(Page.alone)(pages), unseen)["loss"]}
    out |= jax.vmap(lambda page, other: unseen_floors(page, other, config.smoothing))(pages, unseen)
    out |= measures.chance_clouds(jax.random.key(SEED), pages)
    best = int(np.argmin(out["softmax_unseen"][0]))
    out |= measures.characters(member(softmax, 0, best), member(pages, 0)) | {"shown": best}
    out |= {"alphabet": np.array(list(found.alphabet)), "evaluations": run.stats["num_gradients"]}
    return _plain(out) | _audited(config, run, member(pages, 0))


def permuted(config: Config, workspace: Path) -> Arrays:
    """Train on the same windows with their characters permuted, from the same starts."""
    del workspace
    found = windows(config.length)
    keys = jax.random.split(jax.random.fold_in(jax.random.key(SEED), 1), config.seeds)
    pages = stacked([page_of(found, seed, key) for seed, key in enumerate(keys)])
    heads = starts(config, len(found.alphabet))
    run = _flow(config, [(heads, pages), (unrouted(heads), pages)])
    softmax, uniform = (_part(run.observed, config.seeds, arm) for arm in range(2))
    return _plain(_measured(config, softmax, uniform, pages, pages))


def starts(config: Config, size: int) -> AttentionHead:
    """Return the initial head of each run."""
    keys = jax.random.split(jax.random.key(SEED), config.seeds)
    return eqx.filter_vmap(lambda key: AttentionHead.normal(key, size, D_K, D_V, size, scale=SCALE))(keys)


def unrouted(heads: AttentionHead) -> AttentionHead:
    """Return heads of uniform attention: at W_Q = W_K = 0 the gradients of both are zero, and the flow stays there."""
    return eqx.tree_at(lambda head: (head.w_q, head.w_k), heads, replace_fn=jnp.zeros_like)


def _flow(config: Config, arms: list[tuple[AttentionHead, Page]]) -> Trajectory:
    heads, pages = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *arms)
    return gradient_flow_ensemble(
        page_loss,
        heads,
        pages,
        in_axes=(eqx.if_array(0), 0),
        t1=config.horizons[-1],
        ts=config.ts,
        rtol=config.rtol,
        throw=True,
    )


def _part(tree: Any, size: int, index: int) -> Any:
    return member(tree, slice(index * size, (index + 1) * size))


def _measured(config: Config, softmax: Any, uniform: Any, pages: Page, unseen: Page) -> dict[str, Any]:
    ts = jnp.asarray(config.ts)
    within = ts <= jnp.asarray(config.horizons)[:, None]
    out = {"t": config.ts} | jax.vmap(floors)(pages)
    for name, heads in (("softmax", softmax), ("uniform", uniform)):
        found = measures.losses_of(heads, pages, unseen) | measures.clouds(heads, pages)
        found |= measures.freezing(ts, heads, pages, within, config.epsilon)
        out |= {f"{name}_{key}": value for key, value in found.items()}
    return out | measures.inside(softmax, pages)


def _plain(arrays: dict[str, Any]) -> Arrays:
    return {name: np.asarray(value) for name, value in arrays.items()}


def _audited(config: Config, run: Trajectory, page: Page) -> Arrays:
    """Check every law along the flow of the first head."""
    return audits.stored(laws.audit(run.member(0), losses.cross_entropy, page.batch, rtol=config.rtol))
