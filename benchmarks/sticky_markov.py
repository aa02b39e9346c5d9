"""The runs of the sticky Markov chain (arXiv 2512.22473), one head on a long sequence, against PyTorch."""

import math
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import gradflow as gf
from benchmarks.measure import Row, first_call
from gradflow.experiments.sticky_markov import arms
from gradflow.laws.routing.fused import head_cross_entropy

SEEDS, STEPS, STEP_SIZE = 5, 1000, 0.01
SIZES = {"w_q": (20, 10), "w_k": (20, 10), "w_v": (20, 15), "w_o": (15, 8)}
ARMS = ((), ("w_v",), ("w_o",), ("w_q", "w_k"), tuple(SIZES))  # what moves ten times as fast
FROZEN = ("w_q", "w_k")  # in one arm more, where V moves ten times as fast
CLOSED_STEPS = 300  # of the arm in which W_V takes the closed-form M step
CHECKED = 3  # steps of PyTorch that are timed, scaled to all, and compared with ours
REPEATS = 3


def problem() -> tuple[Any, Any]:
    """Return a head and a sequence of 1999 positions for each seed, in float32."""
    keys = jax.random.split(jax.random.key(42), SEEDS)
    task = gf.tasks.StickyMarkov.noisy()
    heads = jax.vmap(lambda key: gf.models.AttentionHead.normal(key, 20, 10, 15, 8))(keys)
    batches = jax.vmap(lambda key: task.sample(key, 1))(keys)
    return jax.tree.map(lambda x: x.astype(jnp.float32) if eqx.is_inexact_array(x) else x, (heads, batches))


def descend(heads: Any, batches: Any, sizes: dict[str, Any], trainable: Any = None) -> gf.Trajectory:
    """Run members with a step size for each leaf, one member a kernel and one kernel a core."""
    return gf.gradient_descent_ensemble(
        head_cross_entropy,
        heads,
        gf.schedules.parameter_groups,
        batches,
        in_axes=eqx.if_array(0),
        hyperparameters=sizes | {"default": STEP_SIZE},
        trainable=trainable,
        steps=STEPS,
        save_at=[CHECKED, STEPS],
        lanes=1,
    )


def ours(heads: Any, batches: Any) -> tuple[gf.Trajectory, gf.Trajectory]:
    """Run every arm from every seed: those whose queries and keys move, and the one where they are frozen."""
    sizes = {name: np.repeat([STEP_SIZE * (10 if name in arm else 1) for arm in ARMS], SEEDS) for name in SIZES}
    stacked = jax.tree.map(lambda x: jnp.concatenate([x] * len(ARMS)), (heads, batches))
    frozen = gf.schedules.all_but(heads, *FROZEN)
    return descend(stacked[0], stacked[1], sizes), descend(heads, batches, {"w_v": 10 * STEP_SIZE}, frozen)


def masked(torch: Any, queries: Any, keys: Any, values: Any) -> Any:
    """Return the outputs of the head by a masked softmax."""
    hidden = torch.ones(len(queries), len(queries), dtype=torch.bool).triu(1)
    scores = (queries / math.sqrt(queries.shape[1])) @ keys.T
    return torch.softmax(scores.masked_fill(hidden, -math.inf), -1) @ values


def fused(torch: Any, queries: Any, keys: Any, values: Any) -> Any:
    """Return the same by PyTorch's fused attention, whose fast kernel wants values as wide as queries."""
    width = values.shape[1]
    padded = (torch.nn.functional.pad(x, (0, width - x.shape[1]))[None, None] for x in (queries, keys, values))
    scale = 1 / math.sqrt(queries.shape[1])
    return torch.nn.functional.scaled_dot_product_attention(*padded, is_causal=True, scale=scale)[0, 0]


def ours_closed(heads: Any, batches: Any) -> Any:
    """Run the arm in which W_V takes the closed-form M step from every seed."""
    start = arms.Problem(heads, batches, jnp.zeros(batches.targets[:, 0].shape, int))
    return arms.descend_closed(start, steps=CLOSED_STEPS, save_at=[CLOSED_STEPS], step_size=STEP_SIZE)


class Descent:
    """One run in PyTorch: autograd and plain steps."""

    def __init__(self, attention: Callable, head: Any, batch: Any, faster: tuple[str, ...], frozen: tuple[str, ...]):
        """Turn arrays into tensors."""
        import torch

        self.torch, self.attention = torch, attention
        self.weights = {name: torch.tensor(np.asarray(getattr(head, name))) for name in SIZES}
        self.moving = {name: STEP_SIZE * (10 if name in faster else 1) for name in SIZES if name not in frozen}
        self.x, self.y = (torch.tensor(np.asarray(x[0])) for x in (batch.inputs, batch.targets))
        for name in self.moving:
            self.weights[name].requires_grad_()

    def step(self) -> None:
        """Update the weights once."""
        queries, keys, values = (self.x @ self.weights[name] for name in ("w_q", "w_k", "w_v"))
        outputs = self.attention(self.torch, queries, keys, values)
        loss = self.torch.nn.functional.cross_entropy(outputs @ self.weights["w_o"], self.y.long())
        moving = [self.weights[name] for name in self.moving]
        with self.torch.no_grad():
            for weight, slope, size in zip(
                moving, self.torch.autograd.grad(loss, moving), self.moving.values(), strict=True
            ):
                weight -= size * slope

    def seconds(self, threads: int) -> float:
        """Return the best seconds of a step."""
        self.torch.set_num_threads(threads)
        best = math.inf
        for _ in range(REPEATS):
            begin = time.perf_counter()
            for _ in range(CHECKED):
                self.step()
            best = min(best, (time.perf_counter() - begin) / CHECKED)
        return best


def check(attention: Callable, run: gf.Trajectory, head: Any, batch: Any) -> float:
    """Return by how much the two differ after a few steps of the first arm."""
    theirs = Descent(attention, head, batch, (), ())
    for _ in range(CHECKED):
        theirs.step()
    difference = max(
        float(np.abs(getattr(run.observed, name)[0, 0] - theirs.weights[name].detach().numpy()).max()) for name in SIZES
    )
    if difference > 1e-6:
        raise AssertionError(f"the two descents differ by {difference:.1e} after {CHECKED} steps")
    return difference


def theirs(attention: Callable, head: Any, batch: Any, threads: int) -> float:
    """Return the seconds of all runs one after another, from a few steps of each kind."""
    full = Descent(attention, head, batch, ("w_v",), ()).seconds(threads)
    part = Descent(attention, head, batch, ("w_v",), FROZEN).seconds(threads)
    return SEEDS * STEPS * (len(ARMS) * full + part)


def run() -> list[Row]:
    """Measure ours as they are, and PyTorch from a few steps, scaled."""
    heads, batches = problem()
    first, seconds_first = first_call(lambda: ours(heads, batches))
    seconds = first_call(lambda: ours(heads, batches))[1]
    head, batch = jax.tree.map(lambda x: x[0], (heads, batches))
    runs = SEEDS * (len(ARMS) + 1)
    rows = [Row(f"sticky Markov, {runs} runs of {STEPS:,} steps", seconds, "s", "< 90", seconds_first, "float32")]
    closed_first, closed = (first_call(lambda: ours_closed(heads, batches))[1] for _ in range(2))
    name = f"  with the closed form of W_V, {runs + SEEDS} runs"
    rows.append(Row(name, seconds + closed, "s", "< 90", seconds_first + closed_first, f"{CLOSED_STEPS} steps of it"))
    for attention, name, aim in ((masked, "a masked softmax", ">= 10"), (fused, "its fused attention, padded", "")):
        difference = check(attention, first[0], head, batch)
        times = {threads: theirs(attention, head, batch, threads) for threads in (1, 2)}
        shown = ", ".join(f"{threads} threads {spent:.0f} s" for threads, spent in times.items())
        note = f"from {CHECKED} steps, scaled: {shown}; weights differ by {difference:.0e}"
        rows.append(Row(f"  times the speed of PyTorch, {name}", min(times.values()) / seconds, "x", aim, None, note))
    return rows
