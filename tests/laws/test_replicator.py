"""Law 17: normalised squares are a replicator equation, and the replicator-like form of every normalised map."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from systems import EVERY_SHAPE, SEEDS, SHAPES, flow, largest, members, slow_beyond, starts, times, unit_samples

import gradflow as gf

laws = gf.laws.polarization
LOGISTIC = gf.losses.logistic
KEY = jax.random.key(80)
MAPS = [name for name in gf.activations.names() if name.startswith("normalised-")] + ["softmax"]
SMOOTH = [name for name in MAPS if gf.activations.by_name(name).smooth]


def points(name, d, n, mean=1.0, scale=0.1):
    """Stacked random models, (M, 1, ...): the form holds at each model, so that it needs no flow."""
    act = gf.activations.by_name(name)
    models = starts(KEY, d, n, scale=1.0, score_scale=scale, score_mean=mean, activation=act)
    return jax.tree.map(lambda x: x[:, None] if eqx.is_array(x) else x, models)


def form(law, path, data, loss=LOGISTIC):
    return largest(members(lambda p, s: law(loss, p, s), path, data))


def both_forms_of_logistic(path, data):
    return jnp.stack([laws.square_replicator(LOGISTIC, path, data), laws.replicator(LOGISTIC, path, data)])


@pytest.mark.parametrize(("d", "n"), slow_beyond(SHAPES, EVERY_SHAPE))
def test_normalised_squares_are_a_replicator(d, n):
    data = unit_samples(KEY, d)
    positive, signed = points("normalised-square", d, n), points("normalised-square", d, n, mean=0.0, scale=1.0)
    path = jax.tree.map(lambda x, y: jnp.concatenate([x, y], 1) if eqx.is_array(x) else x, positive, signed)
    assert float(jnp.abs(path.scores).min()) > 0
    assert largest(members(both_forms_of_logistic, path, data)) < 1e-12
    if n > 1:
        softmax = eqx.tree_at(lambda m: m.activation, path, gf.activations.Softmax())
        assert form(laws.square_replicator, softmax, data) > 1e-2, "the softmax is no replicator"


@pytest.mark.parametrize(
    ("name", "d", "n"),
    slow_beyond(
        [(name, *SHAPES[1 + i % 4]) for i, name in enumerate(SMOOTH)],
        [(name, d, n) for name in SMOOTH for d, n in SHAPES],
    ),
)
def test_every_normalised_map_has_a_replicator_form(name, d, n):
    data, path = unit_samples(KEY, d), points(name, d, n)
    assert form(laws.replicator, path, data) < 1e-12
    if n > 1 and name != "normalised-square":
        assert form(laws.square_replicator, path, data) > 1e-2, "only squares have the fitness of squares"


def test_forms_hold_for_many_samples_and_other_losses():
    keys = jax.random.split(KEY, SEEDS)
    data = jax.vmap(lambda key: gf.tasks.linear_regression(key, n_features=3, n_samples=6))(keys)
    path = points("normalised-square", 3, 8)
    assert form(laws.square_replicator, path, data, gf.losses.square) < 1e-12
    assert form(laws.replicator, points("normalised-softplus", 3, 8), data, gf.losses.square) < 1e-12


def test_squares_polarize_along_their_replicator():
    models = starts(KEY, 3, 8, score_scale=0.1, score_mean=1.0, activation=gf.activations.by_name("normalised-square"))
    path = flow(LOGISTIC, models, unit_samples(KEY, 3), times(1e-1, 1e6))
    assert form(laws.square_replicator, path, unit_samples(KEY, 3)) < 1e-12
    assert float(path.weights[:, -1].max(-1).min()) > 0.5
    assert bool((jnp.sign(path.scores) == 1).all()), "a score of a square never crosses 0"


def test_maps_without_a_form_are_refused():
    assert set(SMOOTH) >= {"softmax", "normalised-square", "normalised-sigmoid", "normalised-softplus"}
    for name in ("sigmoid", "softmax1"):
        with pytest.raises(gf.FlowError, match="replicator form"):
            laws.replicator(LOGISTIC, points(name, 3, 8), None)
    assert np.isfinite(form(laws.replicator, points("normalised-abs", 3, 8), unit_samples(KEY, 3)))
