"""The fused loss of a softmax head: value and gradient of `cross_entropy`, whatever the sizes, masks and scores."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import gradflow as gf
from gradflow.laws.routing.fused import head_cross_entropy

KEY = jax.random.key(11)
D_IN, CLASSES = 5, 6
cross_entropy = gf.losses.cross_entropy
fused_gradient = eqx.filter_jit(jax.value_and_grad(head_cross_entropy))
plain_gradient = eqx.filter_jit(jax.value_and_grad(cross_entropy))
fused = eqx.filter_jit(head_cross_entropy)


def head_of(d_v=4, scale=0.8, **options):
    return gf.models.AttentionHead.normal(KEY, D_IN, 3, d_v, CLASSES, scale=scale, **options)


def batch_of(length: int, sequences: int = 1):
    x = jax.random.normal(KEY, (sequences, length, D_IN))
    targets = jax.random.randint(KEY, (sequences, length), 0, CLASSES)
    mask = jnp.ones((sequences, length), bool).at[:, 3::4].set(False)
    return gf.types.Batch(x, targets, mask)


def distance(found, expected, least=1e-300) -> float:
    """Return the largest difference of two trees, each leaf's over its size."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    return max(float(np.abs(a - b).max() / max(np.abs(b).max(), least)) for a, b in pairs)


@pytest.mark.parametrize(
    ("length", "sequences", "options"),
    [
        (1, 1, {}),
        (7, 3, {}),
        (300, 1, {}),
        (130, 2, {"causal": False, "d_v": 8, "activation": gf.activations.Softmax(0.7)}),
    ],
    ids=["one position", "sequences", "blocks", "not causal"],
)
def test_value_and_gradient_are_those_of_cross_entropy(length, sequences, options):
    head, batch = head_of(**options), batch_of(length, sequences)
    expected = plain_gradient(head, batch)
    # Nothing is routed to a single position: that gradient is zero but for rounding.
    assert distance(fused_gradient(head, batch), expected, least=1e-3) < 1e-12
    assert distance(fused(head, batch), expected[0]) < 1e-12
    if length > 1:
        assert distance(fused(eqx.tree_at(lambda h: h.w_k, head, -head.w_k), batch), expected[0]) > 1e-3


@pytest.mark.parametrize("size", [1e2, 1e4])
def test_extreme_scores_keep_every_digit(size):
    head, batch = head_of(), batch_of(7, 3)
    _, inside = head(batch.inputs[0], capture=True)
    sharp = eqx.tree_at(lambda h: h.w_q, head, head.w_q * size / jnp.abs(inside.scores).max())
    found, expected = fused_gradient(sharp, batch), plain_gradient(sharp, batch)
    # At scores of 1e4 every row is sharp to the last bit: the gradient of W_Q is of size 1e-68, and must still agree.
    assert distance(found, expected) < 1e-11
    assert (np.abs(expected[1].w_q).max() < 1e-30) == (size == 1e4)


def test_single_precision_stays_single():
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), head_of())
    batch = batch_of(7, 3)
    narrow = gf.types.Batch(batch.inputs.astype(jnp.float32), batch.targets, batch.mask)
    found = fused_gradient(single, narrow)
    assert {leaf.dtype for leaf in jax.tree.leaves(found)} == {jnp.dtype("float32")}
    assert distance(found, plain_gradient(jax.tree.map(lambda leaf: leaf.astype(float), single), batch)) < 1e-5


def test_members_of_an_ensemble_descend_as_with_cross_entropy():
    keys, batch = jax.random.split(KEY, 3), batch_of(7, 3)
    heads = jax.vmap(lambda key: gf.models.AttentionHead.normal(key, D_IN, 3, 4, CLASSES))(keys)
    step_sizes = np.array([0.1, 0.2, 0.3])
    options = {"hyperparameters": {"learning_rate": step_sizes}, "steps": 5, "lanes": 2, "threads": 1}
    run = gf.gradient_descent_ensemble(head_cross_entropy, heads, optax.sgd, batch, **options)
    for member, step_size in enumerate(step_sizes):
        head = jax.tree.map(lambda leaf, member=member: leaf[member], heads)
        for _ in range(5):
            slopes = plain_gradient(head, batch)[1]
            head = jax.tree.map(lambda leaf, slope, size=step_size: leaf - size * slope, head, slopes)
        assert distance(jax.tree.map(lambda leaf, member=member: leaf[member], run.final), head) < 1e-12


def dots(function, *arguments) -> int:
    return str(jax.make_jaxpr(function)(*arguments)).count("dot_general")


def test_only_what_is_asked_for_is_computed():
    head, batch = head_of(), batch_of(7, 3)

    def of_values(w_v):
        return head_cross_entropy(eqx.tree_at(lambda h: h.w_v, head, w_v), batch)

    full = fused_gradient(head, batch)[1]
    assert distance(jax.jit(jax.grad(of_values))(head.w_v), full.w_v) < 1e-13
    value, values = dots(head_cross_entropy, head, batch), dots(jax.grad(of_values), head.w_v)
    assert value < values < dots(jax.grad(head_cross_entropy), head, batch)


def test_no_array_of_all_pairs_exists():
    head, batch = head_of(), batch_of(1500)
    assert "[1500,1500]" not in str(jax.make_jaxpr(jax.grad(head_cross_entropy))(head, batch))
    assert "[1,1500,1500]" in str(jax.make_jaxpr(jax.grad(cross_entropy))(head, batch))


def test_second_derivatives_by_forward_over_reverse():
    head, batch = head_of(), batch_of(7, 3)

    @eqx.filter_jit
    def curvature(loss):
        return jax.jvp(lambda h: jax.grad(loss)(h, batch), (head,), (head,))[1]

    assert distance(curvature(head_cross_entropy), curvature(cross_entropy)) < 1e-11


def test_what_is_not_finite_or_no_class_reaches_only_rows_that_count():
    head, batch = head_of(), batch_of(7, 3)
    bad = gf.types.Batch(
        batch.inputs.at[1, 6].set(jnp.nan), batch.targets.at[0, 3].set(99), batch.mask.at[1, 6].set(False)
    )
    assert distance(fused_gradient(head, bad), plain_gradient(head, bad)) < 1e-12
    empty = gf.types.Batch(batch.inputs, batch.targets, jnp.zeros_like(batch.mask))
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(fused_gradient(head, empty)))
    for wrong in (
        gf.types.Batch(bad.inputs, batch.targets, batch.mask.at[1, 6].set(True)),
        gf.types.Batch(batch.inputs, batch.targets.at[0, 0].set(99), batch.mask),
    ):
        assert all(np.isnan(leaf).all() for leaf in jax.tree.leaves(fused_gradient(head, wrong)))


def test_what_it_cannot_do_names_the_alternative():
    head, batch = head_of(), batch_of(7, 3)
    free = gf.models.FreeHead.normal(KEY, 7, 4, CLASSES)
    heads: list[Any] = [free, head_of(activation="sigmoid"), gf.models.AttentionHead.normal(KEY, 4, 3, 4, CLASSES)]
    for wrong in heads:
        with pytest.raises(gf.FlowError, match=r"gf\.losses\.cross_entropy"):
            head_cross_entropy(wrong, batch)

    def of_inputs(x):
        return head_cross_entropy(head, gf.types.Batch(x, batch.targets, batch.mask))

    with pytest.raises(gf.FlowError, match="inputs are to be differentiated"):
        jax.grad(of_inputs)(batch.inputs)
    with pytest.raises(gf.FlowError, match="mask has dtype"):
        head_cross_entropy.check(gf.types.Batch(batch.inputs, batch.targets, batch.mask * 1.0))
