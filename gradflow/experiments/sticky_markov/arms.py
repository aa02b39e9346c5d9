"""The arms of the comparison, their data and initial weights, and how they are trained by descent and by flow.

An arm is a choice of rates: W_V ten times as fast is what the paper calls EM. All arms of a seed share the sequence and
the initial weights. Members are ordered arm by arm, seeds within an arm.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from gradflow import losses
from gradflow.descent import gradient_descent_ensemble
from gradflow.experiments.sticky_markov.reading import attend
from gradflow.experiments.trees import is_array, member, repeated, stacked
from gradflow.flow import gradient_flow_ensemble
from gradflow.laws.routing import head_cross_entropy
from gradflow.models import AttentionHead
from gradflow.schedules import parameter_groups
from gradflow.tasks import StickyMarkov
from gradflow.trajectory import Trajectory
from gradflow.types import Batch

D_K, D_V, SCALE = 10, 15, 0.1
MEMBERS = (eqx.if_array(0), eqx.if_array(0))  # models and data both have one a member
LEAVES = ("w_q", "w_k", "w_v", "w_o")
FASTER = 10.0


class Arm(NamedTuple):
    """A way to train the head.

    Attributes:
        name: as in results.
        label: as in figures.
        rates: multipliers of the step size by leaf name; leaves that are not named have 1, those at 0 are frozen.
        is_closed: whether W_V takes the closed-form M step instead of a gradient step.
    """

    name: str
    label: str
    rates: Mapping[str, float]
    is_closed: bool = False

    def rate(self, leaf: str) -> float:
        """Return the multiplier of a leaf."""
        return self.rates.get(leaf, 1.0)


SGD = Arm("sgd", "SGD", {})
EM = Arm("em", "EM: V ×10", {"w_v": FASTER})
READ_OUT = Arm("o", "O ×10", {"w_o": FASTER})
ROUTING = Arm("qk", "Q, K ×10", {"w_q": FASTER, "w_k": FASTER})
ALL = Arm("all", "all ×10", dict.fromkeys(LEAVES, FASTER))
FROZEN = Arm("frozen", "V ×10, Q, K frozen", {"w_q": 0.0, "w_k": 0.0, "w_v": FASTER})
CLOSED = Arm("closed", "closed-form V", {}, is_closed=True)
MOVING = (SGD, EM, READ_OUT, ROUTING, ALL)  # those that need the whole head at each step
GRADIENT = (*MOVING, FROZEN)  # those that follow a flow
ARMS = (*GRADIENT, CLOSED)


class Problem(NamedTuple):
    """What all arms of a number of seeds start from; the seeds lie along axis 0.

    Attributes:
        heads: initial weights.
        batch: one sequence a seed: inputs (S, 1, T, d), targets and mask (S, 1, T).
        sources: the symbol hidden behind each input.
    """

    heads: AttentionHead
    batch: Batch
    sources: Int[Array, "S T"]


def task() -> StickyMarkov:
    """Return the paper's task: means fixed by seed 0, noise N(0, I)."""
    return StickyMarkov.noisy()


def problem(seeds: Sequence[int], length: int) -> Problem:
    """Draw the sequences and the initial weights.

    Args:
        seeds: of sequence, noise and weights.
        length: symbols of a sequence; one more than its positions.

    Returns:
        The problem, in JAX's default float type.
    """
    chain = task()
    keys = [jax.random.key(seed) for seed in seeds]
    batches = [chain.sample(key, 1, length=length) for key in keys]
    n_features = batches[0].inputs.shape[-1]
    # The same keys draw the same path where symbols are seen.
    sources = [StickyMarkov(chain.transition).sample(key, 1, length=length).inputs[0] for key in keys]
    heads = [
        AttentionHead.normal(jax.random.fold_in(key, 2), n_features, D_K, D_V, chain.n_states, scale=SCALE)
        for key in keys
    ]
    return Problem(stacked(heads), stacked(batches), jnp.stack(sources))


def at_precision(start: Problem, dtype: str) -> Problem:
    """Return a problem in another float type."""
    return jax.tree.map(lambda x: x.astype(dtype) if eqx.is_inexact_array(x) else x, start)


def by_arm(tree: Any, seeds: int) -> Any:
    """Return members `(arms * seeds, ...)` as `(arms, seeds, ...)` in NumPy arrays."""
    return jax.tree.map(lambda x: np.asarray(x).reshape(-1, seeds, *x.shape[1:]) if is_array(x) else x, tree)


def descend(start: Problem, arms: Sequence[Arm], *, steps: int, save_at: Any, step_size: float) -> AttentionHead:
    """Train arms whose routing moves by full-batch descent, all in one kernel.

    Args:
        start: data and initial weights.
        arms: of `MOVING`; one kernel serves any of them.
        steps: number of updates.
        save_at: steps after which the weights are saved.
        step_size: of the leaves at rate 1.

    Returns:
        Heads along the run, leaves (arms, S, saves, ...).
    """
    seeds = len(start.sources)
    sizes = {leaf: np.repeat([step_size * arm.rate(leaf) for arm in arms], seeds) for leaf in LEAVES}
    run = gradient_descent_ensemble(
        head_cross_entropy,
        repeated(start.heads, len(arms)),
        functools.partial(parameter_groups, default=0.0),
        repeated(start.batch, len(arms)),
        in_axes=MEMBERS,
        hyperparameters=sizes,
        steps=steps,
        save_at=save_at,
        lanes=1,
        throw=True,
    )
    return by_arm(run.observed, seeds)


def descend_closed(start: Problem, *, steps: int, save_at: Any, step_size: float) -> AttentionHead:
    """Train with the closed-form M step of Boehning's bound for W_V, and gradient steps for the other leaves.

    Args:
        start: data and initial weights.
        steps: number of updates.
        save_at: steps after which the weights are saved.
        step_size: of W_Q, W_K and W_O.

    Returns:
        Heads along the run, leaves (1, S, saves, ...).
    """
    run = gradient_descent_ensemble(
        head_cross_entropy,
        start.heads,
        parameter_groups({"w_v": M_STEP}, default=step_size),
        start.batch,
        in_axes=MEMBERS,
        steps=steps,
        save_at=save_at,
        lanes=1,
        throw=True,
    )
    return by_arm(run.observed, len(start.sources))


def _m_step(updates: Any, state: Any, params: Any = None, *, model: Any, args: Any, **extra: Any) -> tuple[Any, Any]:
    """Return Delta W_V = -2 N (F^T F)^+ dL/dW_V (W_O W_O^T)^+, as `gf.schedules.closed_form_values`, by blocks of rows.

    With F = A X the logits are F W_V W_O, whose Hessian is at most I / 2 (Boehning 1992).
    """
    del params, extra
    features = attend(model, args.inputs[0]).features
    # LAPACK's QR of F itself starts threads of its own, which wait for each other where cores are shared.
    left, right = jnp.linalg.pinv(features.T @ features, hermitian=True), jnp.linalg.pinv(model.w_o)
    step = -2 * len(features) * (left @ updates.w_v @ right.T @ right)
    return eqx.tree_at(lambda head: head.w_v, updates, step), state


# `gf.schedules.closed_form_values` keeps (T, T) arrays, at T = 1999 many times as long a step as the gradient's.
M_STEP = optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), cast(Any, _m_step))


class ReadOut(eqx.Module):
    """What is left of a head whose routing never moves: logits = F W_V W_O with F = A X fixed.

    Attributes:
        w_v: W_V.
        w_o: W_O.
    """

    w_v: Float[Array, "*S d_in d_v"]
    w_o: Float[Array, "*S d_v C"]

    def __call__(self, features: Float[Array, "T d_in"]) -> Float[Array, "T C"]:
        """Return the logits."""
        return features @ self.w_v @ self.w_o

    @classmethod
    def of(cls, start: Problem) -> tuple["ReadOut", Batch]:
        """Return the read-outs of the initial heads, and the batches whose inputs are their features."""
        features = [attend(member(start.heads, i), x[0]).features for i, x in enumerate(start.batch.inputs)]
        batch = Batch(jnp.stack(features)[:, None], start.batch.targets, start.batch.mask)
        return cls(start.heads.w_v, start.heads.w_o), batch

    def heads(self, initial: AttentionHead, saves: int) -> AttentionHead:
        """Return saved read-outs (1, S, saves, ...) as heads, with the initial routing at each save."""
        w_q, w_k = (np.repeat(np.asarray(w)[None, :, None], saves, axis=2) for w in (initial.w_q, initial.w_k))
        return eqx.tree_at(
            lambda head: (head.w_q, head.w_k, head.w_v, head.w_o), initial, (w_q, w_k, self.w_v, self.w_o)
        )


def descend_frozen(start: Problem, *, steps: int, save_at: Any, step_size: float) -> AttentionHead:
    """Train W_V ten times as fast as W_O while W_Q and W_K stay at their initial values.

    Args:
        start: data and initial weights.
        steps: number of updates.
        save_at: steps after which the weights are saved.
        step_size: of W_O.

    Returns:
        Heads along the run, leaves (1, S, saves, ...).
    """
    models, batch = ReadOut.of(start)
    run = gradient_descent_ensemble(
        losses.cross_entropy,
        models,
        parameter_groups({"w_v": FROZEN.rate("w_v") * step_size}, default=step_size),
        batch,
        in_axes=MEMBERS,
        steps=steps,
        save_at=save_at,
        lanes=1,
        throw=True,
    )
    return by_arm(run.observed, len(start.sources)).heads(start.heads, len(save_at))


def joined(moving: AttentionHead, frozen: AttentionHead) -> AttentionHead:
    """Put the arm with frozen routing behind the others: heads in the order of `GRADIENT`."""
    return jax.tree.map(lambda *x: np.concatenate(x) if isinstance(x[0], np.ndarray) else x[0], moving, frozen)


def flow(start: Problem, arms: Sequence[Arm], *, ts: Any, rtol: float) -> Trajectory:
    """Integrate the gradient flow of arms whose routing moves: their rates instead of step sizes.

    Args:
        start: data and initial weights.
        arms: of `MOVING`; one kernel serves any of them.
        ts: save times, t = eta k for step k.
        rtol: relative tolerance.

    Returns:
        The ensemble, members arm by arm.
    """
    seeds = len(start.sources)
    return gradient_flow_ensemble(
        head_cross_entropy,
        repeated(start.heads, len(arms)),
        repeated(start.batch, len(arms)),
        in_axes=MEMBERS,
        t1=ts[-1],
        ts=ts,
        rates={leaf: np.repeat([arm.rate(leaf) for arm in arms], seeds) for leaf in LEAVES},
        solver="tsit5",
        rtol=rtol,
        lanes=1,
        throw=True,
    )


def flow_frozen(start: Problem, *, ts: Any, rtol: float) -> AttentionHead:
    """Integrate the flow of W_V ten times as fast as W_O while W_Q and W_K stay at their initial values.

    Args:
        start: data and initial weights.
        ts: save times.
        rtol: relative tolerance.

    Returns:
        Heads along the flow, leaves (1, S, saves, ...).
    """
    models, batch = ReadOut.of(start)
    run = gradient_flow_ensemble(
        losses.cross_entropy,
        models,
        batch,
        in_axes=MEMBERS,
        t1=ts[-1],
        ts=ts,
        rates={"w_v": FROZEN.rate("w_v")},
        solver="tsit5",
        rtol=rtol,
        lanes=1,
        throw=True,
    )
    return by_arm(run.observed, len(start.sources)).heads(start.heads, len(ts))
