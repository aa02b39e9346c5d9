"""Laws 2, 9 and 19 of two values at every d: 20 seeds, rtol 1e-10. Controls are in the quick tests of the same laws."""

import jax
import numpy as np
import pytest
from systems import SIZES, ends, flow, largest, members, starts, times, unit_samples

import gradflow as gf

pytestmark = pytest.mark.slow
laws = gf.laws.polarization
LOGISTIC = gf.losses.logistic
KEY = jax.random.key(90)


@pytest.mark.parametrize("d", SIZES)
def test_two_values_conserve_their_hyperbolic_invariant(d):
    data = unit_samples(KEY, d)
    for scale in (0.1, 1.0):
        path = flow(LOGISTIC, starts(KEY, d, 2, scale=scale, score_scale=scale), data, times(1e-1, 1e6))
        assert largest(laws.hyperbolic(path)) < 1e-7


@pytest.mark.parametrize("d", SIZES)
def test_two_values_have_the_winner_of_their_rule(d):
    models, data = starts(KEY, d, 2, scale=1.0, score_scale=1.0), unit_samples(KEY, d)
    path = flow(LOGISTIC, models, data, times(1e-1, 1e10))
    wrong = members(lambda p, i, s: laws.winner_mismatch(p, i, s.x[0], "two"), path, models, data)
    assert not bool(wrong.any())


@pytest.mark.parametrize("d", SIZES)
def test_two_values_follow_their_closed_form(d):
    direction = unit_samples(KEY, d).x[:, 0]
    path = ends(laws.alignment_loss, starts(KEY, d, 2, score_scale=0.5), direction, np.linspace(2, 20, 10))
    gap = members(laws.closed_form_gap, path, direction)
    assert largest(gap.w) < 1e-9
    assert largest(gap.D) < 1e-9
    assert largest(gap.invariant) < 1e-9
