"""A training step of a small transformer: against PyTorch, against its own matrix products, and four seeds at once."""

import functools
import time
import warnings
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import gradflow as gf
from benchmarks.measure import Row, first_call, warm
from gradflow.descent import gradient_descent_ensemble

LAYERS, WIDTH, HEADS, BATCH, LENGTH, VOCABULARY = 2, 128, 4, 256, 12, 100
STEPS, REPEATS, COMPARED, SEEDS = 20, 5, 5, 4
OPTIMIZER = optax.adamw(1e-3)  # Optax's weight decay is 1e-4, PyTorch's is set to that


def problem(width: int, seed: int = 0) -> tuple[Any, Any]:
    """Return a transformer in float32, and random sequences."""
    make = functools.partial(gf.models.Transformer.init, vocabulary=VOCABULARY, width=width, layers=LAYERS)
    model = make(jax.random.key(seed), heads=HEADS, max_length=LENGTH, dtype="float32")
    draw = np.random.RandomState(0)
    inputs, targets = (jnp.asarray(draw.randint(0, VOCABULARY, (BATCH, LENGTH)), jnp.int32) for _ in range(2))
    return model, gf.types.Batch(inputs, targets, jnp.ones((BATCH, LENGTH), bool))


def loss_before(step, model, batch):
    """Return the loss that a step starts from."""
    return gf.losses.cross_entropy(model, batch)


def descend(model: Any, batch: Any, steps: int, **options: Any) -> Any:
    """Train one model."""
    return gf.gradient_descent(gf.losses.cross_entropy, model, OPTIMIZER, batch, steps=steps, **options)


@jax.jit
def products(arrays: list[tuple[Any, Any]]) -> list[Any]:
    """Multiply pairs of matrices, or of stacks of them, `STEPS` times."""

    def once(_, results):
        # Each product waits for the last one of its shape, or the compiler would take it out of the loop.
        return [x @ (w + 1e-30 * y[..., :1, :1]) for (x, w), y in zip(arrays, results, strict=True)]

    return jax.lax.fori_loop(0, STEPS, once, [x @ w for x, w in arrays])


def step_products() -> list[tuple[Any, Any]]:
    """Return the factors of all matrix products of a step: each map forward, and both of its gradients."""
    rows, square, hidden = BATCH * LENGTH, (WIDTH, WIDTH), 4 * WIDTH
    maps = [square] * 4 + [(WIDTH, hidden), (hidden, WIDTH)]
    shapes = [((rows, a), (a, b)) for a, b in LAYERS * maps + [(WIDTH, VOCABULARY)]]
    pairs = (BATCH, HEADS)
    narrow = WIDTH // HEADS
    shapes += LAYERS * [
        ((*pairs, LENGTH, narrow), (*pairs, narrow, LENGTH)),
        ((*pairs, LENGTH, LENGTH), (*pairs, LENGTH, narrow)),
    ]
    draw, factors = np.random.RandomState(1), []
    for left, right in shapes:
        x, w, y = (jnp.asarray(draw.randn(*shape), jnp.float32) for shape in (left, right, (*left[:-1], right[-1])))
        factors += [(x, w), (y, jnp.array(jnp.swapaxes(w, -1, -2))), (jnp.swapaxes(x, -1, -2), y)]
    return factors


def torch_net(model: Any) -> Any:
    """Return the same model in PyTorch, with the same numbers."""
    import torch
    from torch.nn import functional

    def tensor(x: Any) -> Any:
        return torch.nn.Parameter(torch.tensor(np.asarray(x)))

    class Block(torch.nn.Module):
        def __init__(self, block: Any):
            super().__init__()
            attention, mlp = block.attention, block.feed_forward
            three = (attention.query, attention.key, attention.value)
            self.w_in = tensor(np.concatenate([np.asarray(p.weight).reshape(WIDTH, -1) for p in three], 1).T)
            self.b_in = tensor(np.concatenate([np.asarray(p.bias).reshape(-1) for p in three]))
            self.w_out, self.b_out = tensor(np.asarray(attention.w_o).reshape(-1, WIDTH).T), tensor(attention.b_o)
            self.up, self.b_up = tensor(mlp.w_in.T), tensor(mlp.b_in)
            self.down, self.b_down = tensor(mlp.w_out.T), tensor(mlp.b_out)
            self.norms = torch.nn.ParameterList(
                [
                    tensor(x)
                    for norm in (block.attention_norm, block.feed_forward_norm)
                    for x in (norm.weight, norm.bias)
                ]
            )

        def forward(self, x):
            normed = functional.layer_norm(x, (WIDTH,), self.norms[0], self.norms[1])
            three = functional.linear(normed, self.w_in, self.b_in).view(*x.shape[:2], 3, HEADS, WIDTH // HEADS)
            queries, keys, values = three.permute(2, 0, 3, 1, 4)
            attended = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
            x = x + functional.linear(attended.transpose(1, 2).reshape(x.shape), self.w_out, self.b_out)
            normed = functional.layer_norm(x, (WIDTH,), self.norms[2], self.norms[3])
            return x + functional.linear(
                functional.gelu(functional.linear(normed, self.up, self.b_up)), self.down, self.b_down
            )

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = tensor(model.embedding), tensor(model.positions)
            self.blocks = torch.nn.ModuleList([Block(block) for block in model.blocks])
            self.scale, self.shift = tensor(model.norm.weight), tensor(model.norm.bias)
            self.out, self.bias = tensor(model.unembedding.T), tensor(model.bias)

        def forward(self, tokens):
            x = functional.embedding(tokens, self.tokens) + self.positions
            for block in self.blocks:
                x = block(x)
            return functional.linear(functional.layer_norm(x, (WIDTH,), self.scale, self.shift), self.out, self.bias)

    return Net()


def torch_step(model: Any, batch: Any, *, compiled: bool) -> Callable[[], float]:
    """Return a training step in PyTorch, which returns the loss that it starts from."""
    import torch

    net = torch_net(model)
    # Optax's epsilon stands where PyTorch's does.
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=1e-4, eps=1e-8)
    inputs, targets = (torch.tensor(np.asarray(x), dtype=torch.long) for x in (batch.inputs, batch.targets))
    forward: Any = torch.compile(net) if compiled else net

    def step() -> float:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(forward(inputs).view(-1, VOCABULARY), targets.view(-1))
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def torch_kinds(model: Any, batch: Any) -> dict[str, tuple[int, Callable[[], float]]]:
    """Return threads and step of each way to run PyTorch that works here, after its first steps; losses are checked."""
    import torch

    expected = descend(model, batch, COMPARED, save_at=np.arange(COMPARED), observe=loss_before).observed
    kinds = {}
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for compiled in (False, True):
            step = torch_step(model, batch, compiled=compiled)
            try:
                losses = [step() for _ in range(COMPARED)]
            except Exception as error:  # torch.compile needs a C++ compiler
                print(f"torch.compile does not work here: {type(error).__name__}")
                continue
            difference = np.abs(np.array(losses) - np.asarray(expected)).max()
            if difference > 1e-4:
                raise AssertionError(f"the losses of the two sides differ by {difference:.1e}")
            kinds[f"{threads} thread{'s' * (threads > 1)}{', compiled' * compiled}"] = threads, step
    return kinds


def against_torch() -> list[Row]:
    """Measure a step of both in turns, and the matrix products alone."""
    import torch

    model, batch = problem(WIDTH)
    factors = step_products()
    _, first = first_call(lambda: descend(model, batch, STEPS).final)
    kinds = torch_kinds(model, batch)
    first_call(lambda: products(factors))
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    ours, alone = [], []
    for _ in range(REPEATS):
        # The difference of two lengths leaves out what a run does once, such as the look at its start and end.
        long, short = (first_call(lambda n=n: descend(model, batch, n).final)[1] for n in (3 * STEPS, STEPS))
        ours.append((long - short) / (2 * STEPS))
        alone.append(first_call(lambda: products(factors))[1] / (STEPS + 1))
        for name, (threads, step) in kinds.items():
            torch.set_num_threads(threads)
            begin = time.perf_counter()
            for _ in range(STEPS):
                step()
            seconds[name].append((time.perf_counter() - begin) / STEPS)
    best = {name: min(times) for name, times in seconds.items()}
    note = f"PyTorch {torch.__version__.partition('+')[0]}, ms: " + "; ".join(
        f"{k} {1e3 * v:.0f}" for k, v in best.items()
    )
    name = f"training step, {LAYERS} layers, d = {WIDTH}, {BATCH} x {LENGTH} tokens"
    return [
        Row(name, 1e3 * min(ours), "ms", "", first, f"best of {REPEATS}, float32, AdamW; losses as PyTorch's to 1e-4"),
        Row("  times the speed of PyTorch's best", min(best.values()) / min(ours), "x", ">= 1.4", None, note),
        Row(
            "  rate of its matrix products, of theirs alone",
            100 * min(alone) / min(ours),
            "%",
            ">= 65",
            None,
            f"alone, those of the attention included: {1e3 * min(alone):.1f} ms",
        ),
    ]


def seeds(width: int, steps: int, aim: str) -> Row:
    """Measure four seeds in one call against one after another."""
    pairs = [problem(width, seed) for seed in range(SEEDS)]
    models = [model for model, _ in pairs]
    batch = pairs[0][1]
    stacked = jax.tree.map(lambda *x: jnp.stack(x) if eqx.is_array(x[0]) else x[0], *models)

    def together():
        loss = gf.losses.cross_entropy
        return gradient_descent_ensemble(loss, stacked, OPTIMIZER, batch, steps=steps).final.embedding

    def one_by_one():
        return [descend(model, batch, steps).final.embedding for model in models]

    ours, first = first_call(together)
    theirs, their_first = first_call(one_by_one)
    difference = np.abs(np.asarray(ours) - np.asarray(theirs)).max()
    if difference > 1e-3:
        raise AssertionError(f"the two ways differ by {difference:.1e}")
    (mine, _), (other, _) = warm(together, one_by_one, repeats=3)
    note = f"{mine:.2f} s against {other:.2f} s for {steps} steps, first call {their_first:.1f} s"
    return Row(f"{SEEDS} seeds in one call, d = {width}, times one after another", other / mine, "x", aim, first, note)


def run() -> list[Row]:
    """Measure a step, then seeds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gf.FlowWarning)
        return [*against_torch(), seeds(WIDTH, STEPS, ">= 1"), seeds(32, 5 * STEPS, ">= 2")]
