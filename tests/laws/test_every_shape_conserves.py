"""Laws 3 and 20 at every d and n where they are defined: 20 seeds, rtol 1e-10.

One-sample flows depend on d only through u = V^T b*, so that each size need only come up on both axes.
"""

import jax
import pytest
from systems import SHAPES, ends, flow, largest, starts, times, unit_samples

import gradflow as gf
from gradflow.laws.invariants import has_primitive

pytestmark = pytest.mark.slow
laws = gf.laws.polarization
LOGISTIC = gf.losses.logistic
KEY = jax.random.key(90)
NAMES = [
    name
    for name in gf.activations.names()
    if gf.activations.by_name(name).smooth and has_primitive(gf.activations.by_name(name))
]
# Two shapes a map; the unnormalised maps, and the normalised ones, meet each shape.
PRIMITIVES = [(name, *SHAPES[(i + shift) % len(SHAPES)]) for i, name in enumerate(NAMES) for shift in (0, 2)]


def test_primitives_come_up_at_every_shape():
    for normalised in (True, False):
        met = {case[1:] for case in PRIMITIVES if gf.activations.by_name(case[0]).normalised == normalised}
        assert met == set(SHAPES)


@pytest.mark.parametrize(("name", "d", "n"), PRIMITIVES)
def test_primitives_are_conserved(name, d, n):
    models = starts(KEY, d, n, score_scale=0.1, score_mean=1.0, activation=gf.activations.by_name(name))
    path = ends(LOGISTIC, models, unit_samples(KEY, d), [*gf.log_times(1.0, 1e5, 6), 1e8])
    drift = laws.primitive(path)
    assert largest(drift) < 1e-7
    assert largest(path.scores - path.scores[:, :1]) > 1e-3 or (n == 1 and path.activation.normalised)
    if n <= 8:
        assert largest(drift[:, :-1]) < 1e-9


@pytest.mark.parametrize(("d", "n"), SHAPES)
def test_columns_of_a_target_distribution_are_conserved(d, n):
    p = jax.vmap(lambda key: gf.tasks.target_distribution(key, d))(jax.random.split(KEY, 20))
    path = flow(gf.losses.kl, starts(KEY, d, n), p, times(1e-1, 1e4))
    assert largest(laws.column_sums(path)) < 1e-9
    assert largest(path.values[:, -1] - path.values[:, 0]) > 0.1 or d == 1, "one class has nothing to learn"
