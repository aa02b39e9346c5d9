"""Bigrams and heads that rest: claims and their controls on made runs, readings by hand, texts that fail, resuming."""

import functools
import string

import jax
import numpy as np
import pytest
from trial import Trial, changed

import gradflow as gf
from gradflow.experiments import texts
from gradflow.experiments.bigram import numbers, readings
from gradflow.experiments.bigram.numbers import KNOWN, OTHER
from gradflow.experiments.bigram.readings import ANSWER, FIRST, PLACES
from gradflow.experiments.bigram.stages import BOS, ONE, TWO

TEXT = "the quick brown fox jumps over the lazy dog and then the other dogs, 0 of them, run; " * 3
TASK = {"letters": 12, "triggers": 2, "length": 9, "maps": ("softmax", "sigmoid", "uniform")}
SIZES = {"seeds": 2, "width": 8, "heads": 2, "batch": 4, "steps": 3, "evaluated": 6, "saves": 2}
TRIAL = Trial.of("bigram", **TASK, **SIZES)
EXPERIMENT, CONFIG, verdicts = TRIAL.experiment, TRIAL.config, TRIAL.verdicts
quick = TRIAL.fixture()


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return str(path)


@pytest.fixture
def made():
    """Results as the quick settings give them, without training."""
    steps, seeds, size = CONFIG.save_at, CONFIG.seeds, CONFIG.length
    shift = np.linspace(-0.01, 0.01, seeds)[:, None]
    heads = CONFIG.heads

    def falling(start, end, by):
        return np.interp(steps, (0, by), (start, end)) + shift * (steps > 0)

    def stage(names, layers, able, length, rests):
        share = np.full((len(names), seeds, len(steps), layers, heads, 2, len(PLACES)), 1 / len(PLACES))
        for row, name in enumerate(names):
            first = rests[name]
            looks = 0.9 if able[name] else 0.2
            share[row, :, 1:, -1, 0, KNOWN] = np.array([0.05, looks, 0, 0, 0.95 - looks])
            share[row, :, 1:, -1, 0, OTHER] = np.array([first, 0.1, 0, 0, 0.9 - first])
        share += shift[:, :, None, None, None, None] / 10
        right = np.stack([np.interp(steps, (0, 100), (0.03, 0.99 if able[name] else 0.5)) + shift for name in names])
        added = np.ones((len(names), seeds, len(steps), layers, heads, 2)) * np.array([4.0, 3.0])
        mass = np.ones_like(added) * np.array([2.0, 1.5])
        curves = (len(names), seeds, len(steps))
        return {
            "step": steps,
            "alphabet": np.array(list(string.ascii_lowercase + " .,;:\n")),
            "known_loss": np.stack([falling(3.6, 0.01 if able[name] else 1.0, 100) for name in names]),
            "accuracy": right,
            "new_loss": np.full(curves, 3.5),
            "known_alone": np.full(curves, 2.9),
            "other_loss": np.stack([falling(4.0, 2.35, 20) for _ in names]),
            "other_exact": np.full(curves, 2.3),
            "share": share,
            "mass": mass,
            "added": added,
            "value_first": np.full((*curves, layers, heads), 0.9),
            "tokens": np.arange(len(names) * length).reshape(-1, length) % 32,
            "looked_up": np.zeros((len(names), length), bool),
            "example": np.random.default_rng(0).random((len(names), layers, heads, length, length)),
        }

    able = {name: name != "uniform" for name in CONFIG.maps}
    plain, bos = dict.fromkeys(CONFIG.maps, 0.1), {"softmax": 0.6, "sigmoid": 0.2}
    found = {
        TWO: stage(CONFIG.maps, 2, able, size, plain),
        ONE: stage(("softmax",), 1, {"softmax": False}, size, plain),
        BOS: stage(CONFIG.bos_maps, 2, able, size + 1, bos),
    }
    found[BOS]["value_first"][0] = 0.7
    return found


def test_verdicts_on_expected_numbers_are_the_recorded_ones(made):
    assert verdicts(made) == EXPERIMENT.recorded


def test_every_claim_has_numbers_and_a_control(made):
    TRIAL.check_claims(made)


def test_figures_draw_without_warnings(made, tmp_path):
    TRIAL.check_figures(made, ["table-and-look-up", "one-sequence", "where-it-looks", "rest"], tmp_path)


def test_claims_fail_on_runs_that_break_them(made):
    two, bos = functools.partial(changed, made, TWO), functools.partial(changed, made, BOS)
    shares = {stage: made[stage]["share"] for stage in (TWO, BOS)}

    def moved(stage, kind, place, value):
        share = shares[stage].copy()
        share[..., kind, place] = value
        return verdicts(changed(made, stage, share=share))

    assert verdicts(two(accuracy=0.5 * made[TWO]["accuracy"]))["looks-up"] == "holds in part"
    assert verdicts(changed(made, ONE, accuracy=0 * made[ONE]["accuracy"] + 0.95))["looks-up"] == "holds in part"
    swapped = two(known_loss=made[TWO]["other_loss"] - 2.3, other_loss=made[TWO]["known_loss"] + 2.3)
    assert verdicts(swapped)["bigrams-first"] == "does not hold"
    assert moved(TWO, KNOWN, ANSWER, 0.1)["induction-head"] == "does not hold"
    assert moved(TWO, OTHER, ANSWER, 0.9)["induction-head"] == "holds in part"
    assert moved(TWO, OTHER, FIRST, 0.5)["rests-on-first-character"] == "holds"
    assert moved(BOS, OTHER, FIRST, 0.1)["rests-on-bos"] == "does not hold"
    assert moved(BOS, OTHER, FIRST, 0.6)["elementwise-rests-without"] == "holds in part"
    quiet = {stage: changed(made, stage, added=made[stage]["added"] * [1, 0.1]) for stage in (TWO, BOS)}
    assert verdicts(quiet[TWO])["dormant-where-not-needed"] == "holds in part"
    assert verdicts({**quiet[TWO], BOS: quiet[BOS][BOS]})["dormant-where-not-needed"] == "holds"
    assert verdicts(bos(value_first=0 * made[BOS]["value_first"] + 0.3))["bos-value-drained"] == "holds"


def test_the_head_that_looks_up_is_chosen_for_each_run(made):
    share = made[TWO]["share"].copy()
    share[0, 1, -1, -1, 1, KNOWN, ANSWER] = 0.99
    np.testing.assert_array_equal(
        numbers.looking_head(CONFIG, changed(made, TWO, share=share), numbers.SOFTMAX), [0, 1, 0, 0, 0]
    )


def test_places_of_a_sequence_by_hand():
    found = np.asarray(readings.places(np.array([[0, 1, 0, 0, 2]])))[0]
    assert (found.sum(0) == 1).all()
    # The query at position 3 is a 0: followers of earlier zeros are at 1 and 3, itself; the first token is at 0.
    np.testing.assert_array_equal(found[:, 3].argmax(0), [0, 1, 3, 1, 4])
    # The query at position 4 has not occurred before.
    np.testing.assert_array_equal(found[:, 4].argmax(0), [0, 4, 4, 3, 2])


@pytest.mark.parametrize("bos", [False, True])
def test_readings_are_those_of_the_model_sequence_by_sequence(bos, file):
    task = texts.BigramText.of(file, 12, 2, 9, bos)
    _, model, args = texts.member(jax.random.key(0), task=task, evaluated=6, width=8, layers=2, heads=2)
    found = jax.jit(lambda batch: readings.observe(0, model, (batch, args[1]), task=task))(args[0])
    tokens, targets = (np.asarray(x) for x in (args[0].inputs, args[0].targets))
    logits, inside = jax.vmap(lambda t: model(t, capture=True))(tokens)
    surprise = -np.take_along_axis(np.asarray(jax.nn.log_softmax(logits)), targets[..., None], -1)[..., 0]
    triggers = set(np.asarray(task.task.triggers).tolist())
    table, losses, sums = np.asarray(task.task.table), {}, {}
    for n, row in enumerate(tokens.tolist()):
        for t in range(int(bos), len(row)):
            kind = (KNOWN if row[t] in row[int(bos) : t] else None) if row[t] in triggers else OTHER
            losses.setdefault(kind, []).append(surprise[n, t])
            if kind == OTHER:
                losses.setdefault("exact", []).append(-np.log(table[row[t], targets[n, t]]))
            if kind is not None and t:
                shares = np.asarray(inside.attention)[n, :, :, t]  # softmax: each sums to one
                answers = [j for j in range(1, t + 1) if row[j - 1] == row[t]]
                sums.setdefault(kind, []).append((shares[..., 0], shares[..., answers].sum(-1)))
    for kind, name in ((KNOWN, "known_loss"), (None, "new_loss"), (OTHER, "other_loss"), ("exact", "other_exact")):
        assert float(found[name]) == pytest.approx(np.mean(losses[kind]), rel=1e-4)
    for kind in (KNOWN, OTHER):
        first, answer = np.mean(sums[kind], axis=0)
        np.testing.assert_allclose(found["share"][:, :, kind, FIRST], first, rtol=1e-3)
        np.testing.assert_allclose(found["share"][:, :, kind, ANSWER], answer, rtol=1e-3)
    np.testing.assert_allclose(found["mass"], 1, rtol=1e-5)


def test_bos_comes_before_the_same_sequences_and_does_not_count(file):
    plain, joined = (texts.BigramText.of(file, 12, 2, 9, bos).sample(jax.random.key(0), 3) for bos in (False, True))
    np.testing.assert_array_equal(joined.inputs[:, 1:], plain.inputs)
    np.testing.assert_array_equal(joined.targets[:, 1:], plain.targets)
    assert (joined.inputs[:, 0] == 12).all() and not joined.mask[:, 0].any() and joined.mask[:, 1:].all()


def test_a_task_on_a_text_is_known_by_its_settings_and_its_text(file, tmp_path):
    first, again = (texts.BigramText.of(file, 12, 2, 9) for _ in range(2))
    assert first == again and hash(first) == hash(again)
    other = tmp_path / "other.txt"
    other.write_text(TEXT.upper() + "!")
    assert texts.BigramText.of(str(other), 12, 2, 9).digest != first.digest
    assert len(set(texts.read(file, 12))) == 12 and texts.OTHER in texts.read(file, 12)
    assert texts.OTHER not in texts.read(file, 60)


@pytest.mark.parametrize(
    ("content", "message"), [(None, "cannot be read"), (b"", "is empty"), (b"\xff\xfe\x00", "not UTF-8")]
)
def test_a_text_that_cannot_be_used_fails_before_anything_is_trained(content, message, tmp_path):
    path = tmp_path / "bad.txt"
    if content is not None:
        path.write_bytes(content)
    config = type(CONFIG)(text=str(path))
    for made in (EXPERIMENT.plan, EXPERIMENT.stages):
        with pytest.raises(gf.FlowError, match=message):
            made(config)


@pytest.mark.slow
def test_quick_run_gives_the_recorded_verdicts(quick):
    assert verdicts(quick) == EXPERIMENT.recorded


@pytest.mark.slow
@pytest.mark.parametrize("stage", [TWO, ONE, BOS])
def test_a_stage_again_gives_the_same_bits(stage, file, tmp_path, monkeypatch):
    trial = Trial.of("bigram", text=file, **TASK, **SIZES)
    (tmp_path / "stage").mkdir()
    assert trial.check_resuming(stage, tmp_path / "stage", monkeypatch) == ["sweep.zarr"]


@pytest.mark.slow
def test_tiny_settings_run_through(file, tmp_path):
    Trial.of("bigram", text=file, **TASK, **SIZES).check_all_runs(tmp_path)
