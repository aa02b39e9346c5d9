"""Peaks of hidden states and relative norms against hand-made cases."""

import jax
import numpy as np
import pytest

import gradflow as gf
from gradflow import diagnostics
from gradflow.diagnostics import massive_activations

activation_peaks, relative_norm = jax.jit(diagnostics.activation_peaks), jax.jit(diagnostics.relative_norm)


def test_peaks_are_the_numbers_behind_massive_activations():
    hidden = np.full((2, 3, 5), 0.1)
    hidden[0, 1, 2], hidden[1, 0, 4] = -150.0, 20.0
    peaks = activation_peaks(hidden)
    np.testing.assert_allclose(peaks.magnitude, [[0.1, 150, 0.1], [20, 0.1, 0.1]])
    assert peaks.feature[0, 1] == 2 and peaks.feature[1, 0] == 4
    np.testing.assert_allclose(peaks.median, 0.1)
    np.testing.assert_allclose(peaks.ratio[0, 1], 1500)
    massive = (peaks.magnitude > 100) & (peaks.ratio >= 1000)
    assert massive.tolist() == massive_activations(hidden).any(-1).tolist()


def test_padding_keeps_out_of_the_median_and_zeros_have_no_ratio():
    hidden = np.array([[1.0, 3.0, -2.0], [900.0, 900.0, 900.0], [0.0, 4.0, 5.0]])
    assert activation_peaks(hidden, where=np.array([True, False, True])).median[0] == 2.5
    nothing = activation_peaks(hidden, where=np.zeros(3, bool))
    assert np.isnan(nothing.median).all()
    assert np.isnan(activation_peaks(0 * hidden).ratio).all()
    spike = activation_peaks(np.eye(3)[:1] * 7)
    assert spike.ratio[0] == np.inf and spike.magnitude[0] == 7


def test_relative_norm_of_a_sink_with_a_small_value():
    values = np.ones((2, 1, 5, 4))
    values[0, 0, 0] *= 0.1
    values[1, 0, 3] *= 8
    np.testing.assert_allclose(relative_norm(values), [[0.1], [1]], rtol=1e-12)
    np.testing.assert_allclose(relative_norm(values, token=np.array([[0], [3]])), [[0.1], [8]], rtol=1e-12)
    np.testing.assert_allclose(relative_norm(values, token=-2), [[1], [8]], rtol=1e-12)
    keep = np.array([True, True, False, False, False])
    values[..., 2:, :] = 50
    np.testing.assert_allclose(relative_norm(values, where=keep)[0], 0.1, rtol=1e-12)
    np.testing.assert_allclose(relative_norm(values * 1e-200, where=keep)[0], 0.1, rtol=1e-12)  # squares underflow
    assert relative_norm(np.array([[1.0], [0.0], [0.0]])) == np.inf
    assert np.isnan(relative_norm(np.zeros((3, 2))))


@pytest.mark.slow
def test_gradient_of_a_relative_norm_at_a_zero_vector():
    values = np.random.default_rng(0).normal(size=(5, 4)) * (np.arange(5) > 0)[:, None]
    assert np.isfinite(jax.grad(relative_norm)(values)).all()


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: activation_peaks(np.ones(3)), "hidden has shape"),
        (lambda: activation_peaks(np.ones((0, 3))), "needs a token"),
        (lambda: relative_norm(np.ones((1, 3))), "T >= 2"),
        (lambda: diagnostics.relative_norm(np.ones((2, 3)), token=2), "outside an axis of length 2"),
        (lambda: diagnostics.relative_norm(np.ones((2, 3)), token=0.5), "whole number"),
    ],
)
def test_bad_states_are_named(call, words):
    with pytest.raises(gf.FlowError, match=words):
        call()
