"""Audits of experiments: kept as arrays, read back as they were, and drawn."""

import numpy as np
import pytest
import toy_experiment as toy

import gradflow as gf
from gradflow import plot
from gradflow.experiments import audits
from gradflow.laws import Audit, Row, Skipped
from gradflow.models import paper

NOTHING = Audit("a model without laws", (), (Skipped("1", "the sum of scores", "no value-softmax"),))


@pytest.mark.parametrize("checked", [toy.AUDIT, NOTHING, Audit("empty", (), ())])
def test_audits_come_back_from_arrays_as_they_were(checked):
    arrays = audits.stored(checked)
    assert all(name.startswith("audit_") and array.dtype.kind in "Uf" for name, array in arrays.items())
    assert audits.loaded(arrays) == checked
    assert list(audits.all_audits({"flow": arrays, "descent": {"loss": np.zeros(3)}})) == [checked]


def test_verdict_and_text_count_the_laws_that_hold():
    assert audits.verdict(toy.AUDIT) == "holds in part"
    assert audits.measured(toy.AUDIT).startswith("1 of 2 laws") and "1.0e+06" in audits.measured(toy.AUDIT)
    broken = Audit("a run", (Row("1", "the sum", np.nan, 1e-12),), ())
    assert audits.verdict(broken) == "does not hold"


def test_the_stage_audits_a_flow_of_the_problem():
    setting = paper.logistic()
    stage = audits.stage(lambda: audits.of_setting(paper.logistic), t1=100.0, rtol=1e-8)
    checked = audits.loaded(stage.compute(None))
    assert stage.name == "audit" and checked.holds and len(checked.rows) > 10
    shifted = audits.stage(
        lambda: (lambda model, args: gf.losses.logistic(model, args) + model.scores[0], setting.model, setting.args),
        t1=100.0,
        rtol=1e-8,
    )
    assert not audits.loaded(shifted.compute(None)).holds


def test_the_figure_has_a_line_a_law(tmp_path):
    figure = audits.draw(toy.AUDIT)
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == [row.statement for row in toy.LAWS]
    plot.save(figure, tmp_path / "audit")
