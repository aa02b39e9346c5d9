"""The sticky chain: arms against other code, readings against dense attention, verdicts and their controls, figures."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from trial import Trial, changed

import gradflow as gf
from gradflow.experiments import audits, intervals
from gradflow.experiments.sticky_markov import arms, numbers, reading
from gradflow.experiments.trees import member
from gradflow.laws import Audit, Row

TRIAL = Trial.of(
    "sticky-markov",
    preset="quick",
    seeds=(42, 2024),
    length=81,
    steps=6,
    closed_steps=3,
    saves=4,
    measured=2,
    audited=2,
)
EXPERIMENT, CONFIG, verdicts = TRIAL.experiment, TRIAL.config, TRIAL.verdicts
quick = TRIAL.fixture()
# Final losses of an independent run of the public code's settings, seed 42, and attention entropies over log i.
ENDS = {"sgd": 2.0310, "em": 1.9319, "o": 1.9250, "qk": 1.8600, "all": 1.8250, "frozen": 2.0270, "closed": 1.8300}
SPREADS = {"sgd": 0.986, "em": 0.960, "o": 0.959, "qk": 0.561, "all": 0.752, "frozen": 0.991, "closed": 0.991}
FIGURES = ["em-and-sgd", "controls", "inside", "flow", "laws"]


@pytest.fixture
def made():
    """Results as the paper's settings give them, without training."""
    shift = np.linspace(-0.02, 0.02, len(CONFIG.seeds))

    def losses(names, saves):
        fall = np.linspace(0, 1, saves) ** 1.4
        ends = np.array([ENDS[name] for name in names])[:, None] + shift
        return numbers.UNIFORM - (numbers.UNIFORM - ends)[..., None] * fall

    def stage(group, clock, times):
        names = [arm.name for arm in group]
        measured = np.arange(0, len(times), 10)
        ramp = np.linspace(0, 1, len(measured))
        rows = np.ones((len(names), len(CONFIG.seeds), 1))
        spread = 1 - (1 - np.array([SPREADS[name] for name in names]))[:, None, None] * rows[:1] * ramp
        return {
            clock: times,
            "measured": measured,
            "loss": losses(names, len(times)),
            "accuracy": rows * (0.13 + 0.1 * ramp),
            "prediction_entropy": rows * (numbers.UNIFORM - 0.1 * ramp),
            "attention_entropy": spread,
            "information": rows * (0.01 + 0.4 * ramp),
            "chance": rows * (0.004 + 0 * ramp),
            "same_symbol": rows * (0.13 - 0.02 * ramp) + 4 * shift[:, None] * ramp,
        }

    seen = 1.829188059 + shift / 4
    laws = audits.stored(Audit("a flow", (Row("-", "row", 1e-16, 1e-10), Row("-", "column", 0.0, 1e-2)), ()))
    return {
        "chain": {
            "row": np.asarray(gf.tasks.sticky_transition()[0]),
            "entropy_rate": np.asarray(gf.tasks.StickyMarkov().entropy_rate),
            "literal_entropy_rate": np.asarray(1.88325),
            "filter_loss": seen - 0.01,
            "filter_accuracy": np.full(len(CONFIG.seeds), 0.35),
            "symbols_loss": seen,
        },
        "descent": stage(arms.GRADIENT, "step", CONFIG.save_at),
        "closed": stage([arms.CLOSED], "step", CONFIG.closed_save_at),
        "flow": stage(arms.GRADIENT, "t", CONFIG.ts) | laws | {"evaluations": np.full(25, 100)},
    }


@pytest.fixture(scope="module")
def start():
    return arms.problem(TRIAL.tiny.seeds, TRIAL.tiny.length)


OPTIONS = {"steps": TRIAL.tiny.steps, "save_at": TRIAL.tiny.save_at, "step_size": 0.01}


def end(heads, arm=0, seed=0):
    """Return the last saved head of an arm as a list of arrays."""
    return [np.asarray(w)[arm, seed, -1] for w in (heads.w_q, heads.w_k, heads.w_v, heads.w_o)]


def leaves(head):
    return [head.w_q, head.w_k, head.w_v, head.w_o]


def test_sources_are_the_symbols_behind_the_inputs(start):
    means = np.asarray(arms.task().means)
    np.testing.assert_array_equal(start.sources[:, 1:], start.batch.targets[:, 0, :-1])
    noise = np.asarray(start.batch.inputs[:, 0]) - means[np.asarray(start.sources)]
    assert noise.std() == pytest.approx(1, abs=0.05) and abs(noise.mean()) < 0.05


def test_readings_are_those_of_dense_attention(start):
    heads = jax.tree.map(lambda w: 8 * w if eqx.is_array(w) else w, start.heads)
    head, x, own = member(heads, 0), start.batch.inputs[0, 0], start.sources[0]
    found = reading.read(member(heads, slice(0, 1)), member(start.batch, 0), start.sources[0])
    logits, inside = head(x, capture=True)
    rows = gf.diagnostics.entropy(inside.weights, where=head.mask(len(x)), normalise=True)[1:]
    same = (np.asarray(inside.weights) * np.asarray(own[:, None] == own)).sum(-1).mean()
    know = gf.diagnostics.mutual_information(inside.weights, own, 8)
    assert float(found["attention_entropy"][0]) == pytest.approx(float(rows.mean()), rel=1e-12)
    assert float(found["same_symbol"][0]) == pytest.approx(float(same), rel=1e-12)
    assert float(found["information"][0]) == pytest.approx(float(know), rel=1e-9)
    hits = (np.asarray(logits).argmax(-1) == np.asarray(start.batch.targets[0, 0])).mean()
    assert float(found["accuracy"][0]) == pytest.approx(float(hits))


def test_an_arm_is_a_descent_with_other_rates(start):
    ours = arms.descend(start, (arms.SGD, arms.EM), **OPTIONS)
    step = gf.schedules.at_rates(arms.EM.rates, 0.01)
    alone = gf.gradient_descent(
        gf.losses.cross_entropy, member(start.heads, 1), step, member(start.batch, 1), steps=TRIAL.tiny.steps
    )
    for found, other in zip(end(ours, 1, 1), leaves(alone.final), strict=True):
        np.testing.assert_allclose(found, other, rtol=1e-10, atol=1e-13)


@pytest.mark.slow
def test_frozen_arm_is_the_whole_head_with_its_routing_held(start):
    whole, short = arms.descend(start, (arms.FROZEN,), **OPTIONS), arms.descend_frozen(start, **OPTIONS)
    for found, other in zip(end(short), end(whole), strict=True):
        np.testing.assert_allclose(found, other, rtol=1e-10, atol=1e-13)
    np.testing.assert_array_equal(end(short)[0], start.heads.w_q[0])


@pytest.mark.slow
def test_closed_form_arm_is_the_library_s_and_monotone(start):
    found = arms.descend_closed(start, **OPTIONS)
    step = gf.schedules.parameter_groups({"w_v": gf.schedules.closed_form_values()}, default=0.01)
    alone = gf.gradient_descent(
        gf.losses.cross_entropy, member(start.heads, 0), step, member(start.batch, 0), steps=TRIAL.tiny.steps
    )
    for ours, other in zip(end(found), leaves(alone.final), strict=True):
        np.testing.assert_allclose(ours, other, rtol=1e-8, atol=1e-10)
    read = reading.read_all(found, start.batch, start.sources, [0])
    assert (np.diff(read["loss"], axis=-1) < 0).all()


def test_first_below_interpolates_and_says_never():
    times, losses = np.array([0.0, 10.0, 20.0]), np.array([3.0, 2.0, 1.0])
    found = numbers.first_below(times, losses, [3.5, 2.0, 1.75, 1.0, 0.5])
    np.testing.assert_allclose(found, [0, 10, 12.5, 20, np.inf])


def test_intervals_hold_the_mean_and_shrink_to_it():
    values = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    found = intervals.mean_over_seeds(values)
    assert found.low < found.value == 3 < found.high
    assert intervals.mean_over_seeds(np.ones(5)) == (1.0, 1.0, 1.0)


def test_verdicts_on_the_paper_s_numbers_are_the_recorded_ones(made):
    assert verdicts(made) == EXPERIMENT.recorded


def test_every_claim_has_numbers_and_a_control(made):
    TRIAL.check_claims(made)


def test_figures_draw_without_warnings(made, tmp_path):
    TRIAL.check_figures(made, FIGURES, tmp_path)


def test_claims_fail_on_runs_that_break_them(made):
    losses, rank = made["descent"]["loss"], {arm.name: i for i, arm in enumerate(arms.GRADIENT)}
    swap = functools.partial(changed, made, "descent")

    def moved(**sources):
        return verdicts(swap(loss=np.stack([losses[rank[sources.get(arm.name, arm.name)]] for arm in arms.GRADIENT])))

    assert moved(em="sgd")["em-is-faster"] == "does not hold"
    assert moved(em="sgd")["em-ends-lower"] == "does not hold"
    assert moved(qk="sgd")["controls-in-order"] == "holds in part"
    assert moved(qk="sgd")["fast-values-slow-routing"] == "holds"
    assert moved(frozen="em")["values-suffice"] == "holds"
    assert moved(o="sgd")["specific-to-values"] == "holds"
    assert moved(sgd="all", em="all")["near-the-optimum"] == "holds"
    chain, flow = made["chain"], made["flow"]
    literal = np.asarray(gf.tasks.sticky_transition(literal=True)[0])
    assert verdicts(changed(made, "chain", row=literal))["self-probability"] == "holds"
    assert verdicts(changed(made, "chain", entropy_rate=chain["literal_entropy_rate"]))["entropy-rate"] != "holds"
    sharp = changed(made, "closed", attention_entropy=0.5 * made["closed"]["attention_entropy"])
    assert verdicts(sharp)["m-step-without-sharp-routing"] == "holds in part"
    growing = swap(same_symbol=np.linspace(0.1, 0.5, 6) * np.ones((6, len(CONFIG.seeds), 1)))
    assert verdicts(growing)["same-symbol-attention"] == "holds"
    assert verdicts(changed(made, "flow", loss=flow["loss"][::-1]))["flow-agrees"] == "does not hold"
    assert verdicts(changed(made, "flow", audit_residual=flow["audit_tolerance"] * [2, 0.5]))["laws"] == "holds in part"


@pytest.mark.slow
def test_float32_descends_as_float64(start):
    low = arms.descend(arms.at_precision(start, "float32"), (arms.ALL,), **OPTIONS)
    high = arms.descend(start, (arms.ALL,), **OPTIONS)
    assert low.w_v.dtype == np.float32
    for ours, other in zip(end(low), end(high), strict=True):
        np.testing.assert_allclose(ours, other, atol=1e-6)


@pytest.mark.slow
def test_quick_run_gives_the_recorded_verdicts(quick):
    assert verdicts(quick) == EXPERIMENT.recorded


@pytest.mark.slow
def test_a_stage_again_gives_the_same_bits(tmp_path, monkeypatch):
    assert TRIAL.check_resuming("descent", tmp_path, monkeypatch) == []


@pytest.mark.slow
def test_tiny_settings_run_through(tmp_path):
    results = TRIAL.check_all_runs(tmp_path)
    assert audits.loaded(results["flow"]).holds
    assert jnp.isfinite(results["descent"]["loss"]).all()
