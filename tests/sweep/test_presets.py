"""Sweeps without code: what settings mean, what they refuse, how files and ranges are read, what a summary says."""

import dataclasses
from pathlib import Path

import jax
import numpy as np
import pytest
import xarray

from gradflow import losses, tasks
from gradflow.errors import FlowError
from gradflow.models import TiedSoftmax
from gradflow.sweep import overview, presets, spec_file
from gradflow.sweep.settings import Settings, check_settings

KEY = jax.random.key(3)


def point(settings: Settings, **values):
    return presets.plan(settings).build(KEY, **values)


def test_settings_with_several_values_are_axes():
    plan = presets.plan(Settings(activation=("softmax", "sigmoid"), kappa=(1, 10), n=(4, 8), seeds=3))
    assert list(plan.axes) == ["activation", "n", "kappa", "seed"]
    assert plan.axes["kappa"].values == (1, 10) and plan.axes["n"] == (4, 8) and plan.axes["seed"] == range(3)
    assert plan.method.t1 == 1e6 and len(plan.method.ts) == 60 and plan.method.ts[0] == 1


def test_every_horizon_of_an_axis_is_its_own_end():
    plan = presets.plan(Settings(t1=(1.0, 10.0)))
    assert plan.axes["t1"].values == (1.0, 10.0) and plan.method.t1 == "t1" and plan.method.ts is None


def test_regression_is_what_the_task_draws():
    loss, model, problem = point(Settings(d=(3,), n=(5,), kappa=(1.0, 7.0), noise=(0.5,)), kappa=7.0)
    data_key, _ = jax.random.split(KEY)
    data = tasks.linear_regression(data_key, n_features=3, condition_number=7.0, noise=0.5)
    np.testing.assert_array_equal(problem.data.x, data.x)
    assert model.values.shape == (3, 5) and loss(model, problem) == losses.square(model, data)
    singular = np.linalg.svd(np.asarray(problem.data.x), compute_uv=False)
    np.testing.assert_allclose(singular[0] / singular[-1], 7.0)


def test_classification_takes_the_losses_of_labels():
    settings = Settings(task=("linear-classification",), loss=("logistic", "exponential"), d=(2,), samples=(6,))
    for name, expected in (("logistic", losses.logistic), ("exponential", losses.exponential)):
        loss, model, problem = point(settings, loss=name)
        assert problem.data.x.shape == (6, 2) and loss(model, problem) == expected(model, problem.data)
    loss, model, problem = point(Settings(task=("linear-classification",), d=(2,)))
    assert problem.data.x.shape == (16, 2) and loss(model, problem) == losses.logistic(model, problem.data)


def test_tied_model_has_one_matrix():
    _, model, _ = point(Settings(model=("tied-softmax",), n=(4,), d=(4,), score_mean=(1.0,)))
    assert isinstance(model, TiedSoftmax) and model.values.shape == (4, 4) and (model.query == 1).all()


def test_what_is_kept_is_what_can_be_shown():
    kept = presets.observe(0.0, *point(Settings(n=(4,)))[1:])
    np.testing.assert_allclose(kept["entropy"], np.log(4))
    assert {f"final_{name}" for name in kept} < set(presets.SHOWN)


REFUSED = {
    "unknown activation 'sofmax'; did you mean 'softmax'": {"activation": ("sofmax",)},
    "activation is empty": {"activation": ()},
    "n is 0": {"n": (4, 0)},
    "kappa is 0.5: it must be finite and at least 1": {"kappa": (0.5,)},
    "scale is nan: it must be finite": {"scale": (float("nan"),)},
    "score_mean is inf: it must be finite": {"score_mean": (float("inf"),)},
    "t1 is 0: it must be finite and above 0": {"t1": (0.0,)},
    "seeds is 0": {"seeds": 0},
    "key is 4294967296: it must be at most": {"key": 2**32},
    "unknown solver 'rk4'": {"solver": "rk4"},
    "rtol is 1e-20": {"rtol": 1e-20},
    "saves is 0": {"saves": 0},
    "first_save is 9: it must lie between 0 and t1 = 5": {"first_save": 9.0, "t1": (5.0,)},
    "leave out saves": {"t1": (1.0, 2.0), "saves": 3},
    "loss is 'logistic', which needs labels": {"loss": ("square", "logistic")},
    "has no condition number": {"task": ("linear-classification",), "kappa": (2.0,)},
    "noise is 1, but a fraction": {"task": ("linear-classification",), "noise": (1.0,)},
    "tied-softmax has as many values as features": {"model": ("tied-softmax",)},
}


@pytest.mark.parametrize("message", REFUSED)
def test_settings_that_no_sweep_can_use(message: str):
    with pytest.raises(FlowError) as caught:
        check_settings(Settings(**REFUSED[message]))
    assert message in str(caught.value)


def test_ranges_are_even_in_the_logarithm():
    assert spec_file.expand("kappa", ["1:1e4:5", "3"]) == ["1.0", "10.0", "100.0", "1000.0", "10000.0", "3"]
    assert spec_file.expand("n", ["8:64:4"]) == ["8", "16", "32", "64"]
    assert spec_file.expand("activation", ["a:b:c"]) == ["a:b:c"] and spec_file.expand("out", ["1:2:3"]) == ["1:2:3"]
    for wrong in ("0:1:3", "1:2:0", "1:2:2.5"):
        with pytest.raises(FlowError, match=f"kappa is {wrong}"):
            spec_file.expand("kappa", [wrong])


def test_a_file_is_read_as_words(tmp_path: Path):
    path = tmp_path / "spec.toml"
    path.write_text('activation = ["softmax", "sigmoid"]\nkappa = "1:100:3"\nscale = 1e-2\nseeds = 4\n')
    assert spec_file.read_spec(path) == {
        "activation": ["softmax", "sigmoid"],
        "kappa": ["1:100:3"],
        "scale": ["0.01"],
        "seeds": ["4"],
    }
    for text, message in {
        "kapa = 3": "'kapa', which is no setting of a sweep; did you mean 'kappa'",
        "kappa = true": "kappa = True: give numbers or names",
        "[kappa]\nfirst = 1": "give numbers or names",
        "kappa = ": "is not TOML",
    }.items():
        path.write_text(text)
        with pytest.raises(FlowError, match=r"spec\.toml") as caught:
            spec_file.read_spec(path)
        assert message in str(caught.value)


@pytest.fixture
def ds() -> xarray.Dataset:
    """A result of two maps, three scales and two seeds, where one member failed."""
    members = ("activation", "scale", "seed")
    codes = np.full((2, 3, 2), "successful", "U20")
    codes[1, 2, 0] = "stiff"
    entropy = np.arange(24.0).reshape(2, 3, 2, 2)
    entropy[1, 2, 0] = np.nan
    return xarray.Dataset(
        {
            "entropy": ((*members, "time"), entropy),
            "valid": ((*members, "time"), np.isfinite(entropy)),
            "num_steps": (members, np.arange(12).reshape(2, 3, 2)),
            "result": (members, codes),
        },
        {"activation": ["softmax", "sigmoid"], "scale": [1.0, 2.0, 3.0], "seed": [0, 1]},
    )


def test_summary_counts_and_ranges(ds):
    axis, (first, second) = overview.rows(ds, "final_entropy")
    assert axis == "activation" and first == overview.Row("softmax", 6, {}, 1.0, 6.0, 11.0, 2.5)
    assert (second.failures, second.low, second.median, second.high) == ({"stiff": 1}, 13.0, 17.0, 23.0)
    axis, (only,) = overview.rows(ds.isel(activation=[0], scale=[0]), "num_steps")
    assert axis is None and only == overview.Row(None, 2, {}, 0.0, 0.5, 1.0, 0.5)


def test_medians_leave_out_members_without_a_number(ds):
    values = overview.quantity(ds, "final_entropy")
    assert overview.longest(ds, 2) == ["scale", "activation"]
    medians = overview.median(values, ["activation", "scale"])
    np.testing.assert_array_equal(medians, [[2, 6, 10], [14, 18, 23]])
    bare = overview.median(values.isel(seed=[0]), ["scale", "activation"])
    assert np.isnan(bare[2, 1]) and np.isfinite(bare).sum() == 5


def test_a_quantity_is_one_number_a_member(ds):
    assert set(overview.quantities(ds)) == {"final_entropy", "num_steps"}
    with pytest.raises(FlowError, match="unknown quantity 'entropy'; did you mean 'final_entropy'"):
        overview.quantity(ds, "entropy")


def test_every_setting_is_documented():
    described = Settings.__doc__ or ""
    assert all(f" {field.name}: " in described for field in dataclasses.fields(Settings))
