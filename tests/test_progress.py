"""The progress bar: drawn by the host, absent when not asked for."""

import contextlib

import jax.numpy as jnp
import optax

import gradflow as gf
from gradflow.descent import solve as descent
from gradflow.flow import kernel
from gradflow.progress import bar, no_bar, stages


def square_norm(model, args):
    return 0.5 * jnp.sum(model**2)


def test_a_bar_can_be_moved():
    with bar("flow", total=2.0) as show:
        assert show(1.0, "half") is None
        show(2.0)


def test_a_bar_is_drawn_on_standard_error_and_never_into_a_pipe(capsys, monkeypatch):
    def run_both():
        with bar("flow", total=2.0) as show, stages("toy") as watch:
            show(1.0, "half")
            watch("figures", 1, 2)
        return capsys.readouterr()

    piped = run_both()
    assert piped.out == piped.err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    drawn = run_both()
    assert drawn.out == "" and "flow" in drawn.err and "figures" in drawn.err


def test_no_bar_prints_nothing(capfd):
    with no_bar() as show:
        assert show(1.0, "half") is None
    gf.gradient_flow(square_norm, jnp.ones(2), t1=1.0)
    gf.gradient_descent(square_norm, jnp.ones(2), optax.sgd(0.1), steps=3)
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


def test_progress_is_shown_and_changes_nothing(monkeypatch):
    shown_labels = []

    @contextlib.contextmanager
    def recorded(label, total):
        shown_labels.append(label)
        with bar(label, total) as show:
            yield show

    monkeypatch.setattr(descent, "bar", recorded)
    monkeypatch.setattr(kernel, "bar", recorded)
    plain = gf.gradient_descent(square_norm, jnp.ones(2), optax.sgd(0.1), steps=30)
    shown = gf.gradient_descent(square_norm, jnp.ones(2), optax.sgd(0.1), steps=30, progress=True)
    assert float(plain.final[0]) == float(shown.final[0])
    gf.gradient_flow(square_norm, jnp.ones(2), t1=1.0, progress=True)
    assert shown_labels == ["descent", "flow"]
