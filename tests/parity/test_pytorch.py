"""PyTorch computes the same weights, gradients and optimiser steps."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from torch.nn import functional

import gradflow as gf

MAPS = {
    "softmax": lambda x: torch.softmax(x, -1),
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "elu": functional.elu,
    "softplus": functional.softplus,
    "normalised-sigmoid": lambda x: torch.sigmoid(x) / torch.sigmoid(x).sum(-1, keepdim=True),
    "normalised-softplus": lambda x: functional.softplus(x) / functional.softplus(x).sum(-1, keepdim=True),
}
OPTIMISERS = {
    "sgd": (optax.sgd(0.1), lambda parameters: torch.optim.SGD(parameters, lr=0.1)),
    "momentum": (optax.sgd(0.1, momentum=0.9), lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9)),
    "adam": (optax.adam(0.01), lambda parameters: torch.optim.Adam(parameters, lr=0.01)),
}
STEPS = 200


@pytest.mark.parametrize("name", MAPS)
def test_weights_and_their_gradients(name: str):
    scores, upstream = np.random.default_rng(0).normal(scale=3.0, size=(2, 5, 7))
    act = gf.activations.by_name(name)
    weights, pull = jax.vjp(act, jnp.asarray(scores))
    theirs = torch.tensor(scores, requires_grad=True)
    expected = MAPS[name](theirs)
    expected.backward(torch.tensor(upstream))
    np.testing.assert_allclose(weights, expected.detach(), rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(pull(jnp.asarray(upstream))[0], theirs.grad, rtol=1e-12, atol=1e-14)


def torch_attention(x, w_q, w_k, w_v, w_o, mask):
    """PyTorch's own attention of each head, causal if there is no mask; the scale is its default."""
    causal = mask is None
    outputs = functional.scaled_dot_product_attention(x @ w_q, x @ w_k, x @ w_v, attn_mask=mask, is_causal=causal)
    return (outputs @ w_o).sum(0)


@pytest.mark.parametrize("masked", [False, True], ids=["causal", "masked"])
@pytest.mark.parametrize("heads", [1, 3])
def test_attention_and_its_gradients(heads: int, masked: bool):
    rng = np.random.default_rng(2)
    x, upstream = rng.normal(size=(9, 4)), rng.normal(size=(9, 6))
    weights = [rng.normal(size=(heads, *shape)) for shape in ((4, 3), (4, 3), (4, 5), (5, 6))]
    where = (rng.random((9, 9)) < 0.5) | np.eye(9, dtype=bool) if masked else None
    layer = gf.models.MultiHeadAttention(*map(jnp.asarray, weights), causal=not masked)
    layer = layer.head(0) if heads == 1 else layer
    logits, pull = jax.vjp(lambda layer, x: layer(x, where), layer, jnp.asarray(x))
    gradients, by_input = pull(jnp.asarray(upstream))

    theirs = [torch.tensor(array, requires_grad=True) for array in (x, *weights)]
    expected = torch_attention(*theirs, None if where is None else torch.tensor(where))
    expected.backward(torch.tensor(upstream))
    np.testing.assert_allclose(logits, expected.detach(), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(by_input, theirs[0].grad, rtol=1e-11, atol=1e-12)
    for name, tensor in zip(("w_q", "w_k", "w_v", "w_o"), theirs[1:], strict=True):
        ours = getattr(gradients, name).reshape(tensor.shape)
        np.testing.assert_allclose(ours, tensor.grad, rtol=1e-11, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_descent_of_a_value_softmax(name: str):
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(16, 4)), rng.choice([-1.0, 1.0], size=16)
    values, scores = rng.normal(scale=0.1, size=(4, 6)), rng.normal(scale=0.1, size=6)
    ours, theirs = OPTIMISERS[name]

    model = gf.models.ValueSoftmax(jnp.asarray(values), jnp.asarray(scores))
    data = gf.tasks.Data(jnp.asarray(x), jnp.asarray(y))
    final = gf.gradient_descent(gf.losses.logistic, model, ours, data, steps=STEPS).final

    v, a = torch.tensor(values, requires_grad=True), torch.tensor(scores, requires_grad=True)
    optimiser = theirs([v, a])
    for _ in range(STEPS):
        optimiser.zero_grad()
        margins = torch.tensor(y) * (torch.tensor(x) @ (v @ torch.softmax(a, 0)))
        functional.softplus(-margins).mean().backward()
        optimiser.step()
    np.testing.assert_allclose(final.values, v.detach(), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(final.scores, a.detach(), rtol=1e-10, atol=1e-12)
