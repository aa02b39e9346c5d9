"""What the tests of every experiment do: run it once, read its verdicts, break its results, draw it, resume it.

A file of tests names its experiment, and settings so small that all stages run in seconds:

    TRIAL = Trial.of("tied-values", dimensions=(10,), steps=100, horizon=20.0)
    quick, verdicts = TRIAL.fixture(), TRIAL.verdicts

    def test_verdicts_are_the_recorded_ones(quick):
        assert verdicts(quick) == TRIAL.experiment.recorded

    def test_every_claim_has_numbers_and_a_control(quick):
        TRIAL.check_claims(quick)

    def test_claims_fail_on_runs_that_break_them(quick):
        assert verdicts(changed(quick, "D10", flow_energy=np.zeros(3)))["energy-identity"] == "holds in part"

    def test_figures_draw_without_warnings(quick, tmp_path):
        TRIAL.check_figures(quick, ["tied-values", "weights", "controls", "energy-identity"], tmp_path)

    def test_paper_preset_checkpoints_and_resumes(tmp_path, monkeypatch):
        assert TRIAL.check_resuming("D10", tmp_path, monkeypatch) == ["descent"]

    @pytest.mark.slow
    def test_tiny_settings_run_through(tmp_path):
        TRIAL.check_all_runs(tmp_path)

`quick` is the results of the preset of that name, computed once a file. Experiments that take too long for it hand
made results to the same checks.
"""

import dataclasses
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradflow import experiments
from gradflow.descent import checkpoint
from gradflow.experiments.base import Experiment, Results

SMALLEST_FIGURE = 5_000  # bytes; an empty one has fewer
SHORTEST_TEXT = 50  # characters of a caption that says how a figure was made


@dataclasses.dataclass(frozen=True)
class Trial:
    """An experiment under test.

    Attributes:
        experiment: which.
        config: its settings, the preset `quick`.
        tiny: settings that take seconds.
    """

    experiment: Experiment
    config: Any
    tiny: Any

    @classmethod
    def of(cls, name: str, *, preset: str = "paper", **tiny: Any) -> "Trial":
        """Return the trial of an experiment whose tiny settings are a preset with some changed."""
        experiment = experiments.get(name)
        presets = {"quick": experiment.config(), "paper": experiment.config.paper()}
        return cls(experiment, presets["quick"], dataclasses.replace(presets[preset], **tiny))

    def fixture(self) -> Callable:
        """Return a fixture: the results of the preset `quick`, computed once a file."""

        @pytest.fixture(scope="module")
        def quick(tmp_path_factory: pytest.TempPathFactory) -> Results:
            return self.compute(self.config, tmp_path_factory.mktemp("quick"))

        return quick

    def compute(self, config: Any, folder: Path) -> Results:
        """Run all stages, each in a folder of its own, which a second call goes on with."""
        return {stage.name: stage.compute(_made(folder / stage.name)) for stage in self.experiment.stages(config)}

    def verdicts(self, results: Results, config: Any = None) -> dict[str, str]:
        """Return the verdict of each claim on results of `config`, the preset `quick` unless given."""
        claims = self.experiment.claims(self.config if config is None else config, results)
        return {claim.id: claim.verdict for claim in claims}

    def check_claims(self, results: Results) -> None:
        """Check that every claim says what, where, how much and against what."""
        for claim in self.experiment.claims(self.config, results):
            assert claim.statement and claim.paper and claim.control, claim.id
            assert any(character.isdigit() for character in claim.measured), f"{claim.id} measures nothing"
            assert "nan" not in claim.measured, f"{claim.id} measures {claim.measured}"

    def check_figures(self, results: Results, names: list[str], folder: Path) -> None:
        """Check that figures have their names and texts, and are drawn and written without a warning."""
        from gradflow import plot

        figures = self.experiment.figures(self.config, results)
        found = [figure.name for figure in figures]
        assert found == names, f"figures are {found}"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for figure in figures:
                assert figure.title and min(len(figure.caption), len(figure.alt)) > SHORTEST_TEXT, figure.name
                for path in plot.save(figure.draw(), folder / figure.name):
                    assert path.stat().st_size > SMALLEST_FIGURE, f"{path.name} looks empty"

    def check_resuming(self, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """Check that a tiny stage that is run again gives the same bits; return the checkpoints it leaves, sorted."""
        monkeypatch.setattr(checkpoint, "EVERY_SECONDS", 0.0)
        stage = next(stage for stage in self.experiment.stages(self.tiny) if stage.name == name)
        first, left = stage.compute(folder), sorted(path.name for path in folder.iterdir())
        check_equal({name: first}, {name: stage.compute(folder)})
        return left

    def check_all_runs(self, folder: Path) -> Results:
        """Check that tiny settings go through all stages to claims and figures; return their results."""
        results = self.compute(self.tiny, folder)
        claims = {claim.id for claim in self.experiment.claims(self.tiny, results)}
        assert claims == set(self.experiment.recorded), claims ^ set(self.experiment.recorded)
        assert all(figure.draw() for figure in self.experiment.figures(self.tiny, results))
        return results


def changed(results: Results, stage: str, **arrays: Any) -> Results:
    """Return results in which arrays of a stage are replaced: a claim must not hold on what breaks it."""
    return {**results, stage: {**results[stage], **arrays}}


def check_equal(first: Results, again: Results) -> None:
    """Check that two runs agree in every bit, NaN included."""
    for stage, arrays in first.items():
        for name, values in arrays.items():
            np.testing.assert_array_equal(values, again[stage][name], err_msg=f"{stage}, {name}")


def golden(part: str, file: str = "polarization.json") -> Any:
    """Return recorded numbers of the paper's own code, from tests/golden."""
    return json.loads((Path(__file__).parent / "golden" / file).read_text())[part]


def _made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder
