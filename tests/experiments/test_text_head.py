"""One head on text: the short form of attention against the dense one, claims that follow numbers, figures."""

import string

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from trial import Trial, changed

import gradflow as gf
from gradflow.experiments import audits
from gradflow.experiments.text_head import measures, pages
from gradflow.experiments.text_head.config import D_V
from gradflow.experiments.text_head.stages import unrouted

TRIAL = Trial.of("text-head", seeds=2, length=40, horizons=(5.0, 20.0), saves=4)
CONFIG, EXPERIMENT, verdicts = TRIAL.config, TRIAL.experiment, TRIAL.verdicts
FIGURES = ["loss", "inside", "characters", "laws"]
SIZE = 7


@pytest.fixture(scope="module")
def head():
    return gf.models.AttentionHead.normal(jax.random.key(0), SIZE, 3, 4, SIZE, scale=1.0)


@pytest.fixture(scope="module")
def page():
    return pages.Page.of(jax.random.randint(jax.random.key(1), (31,), 0, SIZE), SIZE)


def test_the_loss_of_a_page_and_its_gradient_are_those_of_the_head(head, page):
    for own, where in ((page, None), (page.alone(), jnp.eye(30, dtype=bool))):

        def dense(head, where=where):
            logits = jax.nn.log_softmax(head(page.own, where))
            return -jnp.mean(jnp.take_along_axis(logits, page.targets[:, None], axis=1))

        short, slow = (jax.value_and_grad(loss)(head) for loss in (lambda h, own=own: pages.page_loss(h, own), dense))
        for ours, other in zip(jax.tree.leaves(short), jax.tree.leaves(slow), strict=True):
            np.testing.assert_allclose(ours, other, rtol=1e-11, atol=1e-13)
    assert float(pages.page_loss(head, page)) == pytest.approx(float(gf.losses.cross_entropy(head, page.batch)))


def test_without_queries_and_keys_attention_is_uniform_and_stays_so(head, page):
    flat = unrouted(head)
    np.testing.assert_allclose(pages.mix(flat, page), jnp.cumsum(page.own, 0) / jnp.arange(1, 31)[:, None])
    slope = jax.grad(pages.page_loss)(flat, page)
    assert not slope.w_q.any() and not slope.w_k.any() and slope.w_v.any()


def test_floors_are_entropies_of_counts(page):
    joint = np.zeros((SIZE, SIZE))
    np.add.at(joint, (np.asarray(page.own).argmax(1), np.asarray(page.targets)), 1 / 30)

    def entropy(p):
        return -(p[p > 0] * np.log(p[p > 0])).sum()

    found = pages.floors(page)
    assert float(found["unigram"]) == pytest.approx(entropy(joint.sum(0)))
    assert float(found["bigram"]) == pytest.approx(entropy(joint) - entropy(joint.sum(1)))
    flat = pages.unseen_floors(page, page, 1e9)
    assert float(flat["unseen_bigram"]) == pytest.approx(float(flat["unseen_unigram"]), rel=1e-6)
    assert float(pages.unseen_floors(page, page, 1e-9)["unseen_bigram"]) == pytest.approx(float(found["bigram"]))


def test_windows_follow_each_other_and_a_text_too_short_is_refused():
    found = pages.windows(100)
    first, second = pages.page_of(found, 0), pages.page_of(found, 1)
    assert int(first.targets[-1]) == int(second.own[0].argmax())
    mixed = pages.page_of(found, 0, jax.random.key(3))
    assert (np.bincount(mixed.targets, minlength=80) - np.bincount(first.targets, minlength=80)).__abs__().sum() <= 2
    assert (mixed.targets != first.targets).mean() > 0.5
    with pytest.raises(gf.FlowError, match="length is 3000"):
        pages.windows(3000)


def test_readings_are_those_of_dense_attention(head, page):
    scales = jnp.array([0.0, 0.4, 0.9, 1.0])
    saves = jax.tree.map(lambda w: w * scales.reshape(-1, *(1,) * w.ndim), head)
    ts, within = jnp.array([0.0, 1.0, 10.0, 100.0]), jnp.ones((1, 4), bool)
    one = jax.tree.map(lambda leaf: leaf[None], (saves, page))
    found = jax.tree.map(lambda leaf: leaf[0], measures.freezing(ts, *one, within, jnp.asarray(0.05)))
    captured = [jax.tree.map(lambda w, i=i: w[i], saves)(page.own, capture=True)[1] for i in range(4)]
    causal = jnp.tril(jnp.ones((30, 30), bool))
    weights, values, scores = (jnp.stack([getattr(c, k) for c in captured]) for k in ("weights", "values", "scores"))
    apart = gf.diagnostics.routing_distance(weights, where=causal)
    # Rows that have seen one character only cannot move, and do not count here.
    rows = int((np.asarray(page.log_seen > -jnp.inf).sum(1) > 1).sum())
    np.testing.assert_allclose(found["distance"][0], apart * 29 / rows, atol=1e-12)
    np.testing.assert_allclose(found["distance"][1], gf.diagnostics.relative_distance(values), atol=1e-12)
    held = jnp.where(causal, scores, 0)
    np.testing.assert_allclose(found["distance"][2], gf.diagnostics.relative_distance(held), atol=1e-12)
    inside = jax.tree.map(lambda leaf: leaf[0, -1], measures.inside(*one))
    same = (np.asarray(weights[-1]) * np.asarray(page.own @ page.own.T)).sum(1).mean()
    assert float(inside["own_weight"]) == pytest.approx(same)
    assert float(inside["loss"]) == pytest.approx(float(pages.page_loss(head, page)))
    assert max(inside["routing"], inside["responsibility"]) < 1e-12
    assert min(inside["no_baseline"], inside["no_weights"]) > 0.1


@pytest.fixture(scope="module")
def made():
    """Results of a head that learns bigrams, freezes first by the paper's yardstick, and overfits."""
    return {"text": made_stage(2.0) | made_text(), "permuted": made_stage(2.6)}


def made_stage(end):
    seeds, ts = CONFIG.seeds, CONFIG.ts
    fall, ones = np.linspace(1, 0, len(ts)), np.ones((CONFIG.seeds, len(ts)))
    shift = np.linspace(-0.02, 0.02, seeds)[:, None]
    tau = np.ones((seeds, 3, 1)) * np.asarray(CONFIG.horizons) * np.array([0.1, 0.5, 0.6])[:, None]
    common = {"t": ts, "unigram": np.full(seeds, 2.9), "bigram": np.full(seeds, 1.7)}
    for arm, last in (("softmax", end), ("uniform", 2.75)):
        common |= {
            f"{arm}_loss": last + shift + fall,
            f"{arm}_unseen": 2.8 + shift + (fall - 0.5) ** 2,
            f"{arm}_participation": 5 + shift + 3 * fall,
            f"{arm}_shares": np.ones((seeds, len(ts), 2)) * [0.4, 0.2],
            f"{arm}_tau": tau,
            f"{arm}_way": np.full((seeds, len(CONFIG.horizons)), 0.5 if arm == "softmax" else 0.0),
            f"{arm}_distance": ones[:, None] * np.ones((1, 3, 1)) * fall,
        }
    names = ("routing_norm", "value_norm", "attention_entropy", "own_weight", "own_uniform")
    return common | {name: 0.5 * ones for name in names}


def made_text():
    shape, alphabet = (CONFIG.seeds, len(CONFIG.ts)), ["\n", " ", *string.ascii_letters]
    size = len(alphabet)
    rng = np.random.default_rng(0)
    audit = gf.laws.Audit("a run", (gf.laws.Row("-", "routing", 1e-15, 1e-10),) * 6, ())
    return {
        "routing": np.full(shape, 1e-15),
        "responsibility": np.full(shape, 1e-15),
        "no_baseline": np.full(shape, 0.4),
        "no_weights": np.full(shape, 0.5),
        "own_loss": np.full(shape, 1.9),
        "unseen_unigram": np.full(CONFIG.seeds, 2.95),
        "unseen_bigram": np.full(CONFIG.seeds, 2.5),
        "chance_participation": rng.uniform(9, 10, (CONFIG.seeds, 20)),
        "chance_shares": np.full((CONFIG.seeds, 20, 2), 0.2),
        "alphabet": np.array(alphabet),
        "places": rng.normal(size=(size, 2)),
        "place_shares": np.array([0.5, 0.2]),
        "attention": rng.uniform(0.1, 1, (size, size)),
        "frequency": np.full((size, size), 0.2),
        "shown": np.array(5),
        "count": np.maximum(40.0 - np.arange(size), 0),
        **audits.stored(audit),
    }


def test_claims_on_made_results_follow_their_numbers(made):
    TRIAL.check_claims(made)
    assert verdicts(made) == {
        "laws-hold": "holds",
        "audit": "holds",
        "beats-unigram": "holds",
        "beats-bigram": "does not hold",
        "attention-adds": "holds",
        "unseen-text": "holds in part",
        "routing-first": "holds in part",
        "values-on-a-line": "holds in part",
    }


def test_claims_fail_on_runs_that_break_them(made):
    run, swap = made["text"], lambda **arrays: verdicts(changed(made, "text", **arrays))
    assert swap(routing=run["routing"] + 1e-9)["laws-hold"] == "holds in part"
    assert swap(no_baseline=0 * run["routing"], no_weights=0 * run["routing"])["laws-hold"] == "does not hold"
    assert swap(audit_residual=np.ones(6))["audit"] == "does not hold"
    high = run["softmax_loss"] + 2
    assert swap(softmax_loss=high)["beats-unigram"] == "does not hold"
    assert swap(softmax_loss=high)["attention-adds"] == "does not hold"
    low, known = run["softmax_loss"] - 1, run["softmax_unseen"] - 1
    assert swap(softmax_loss=low)["beats-bigram"] == "holds in part"
    assert swap(softmax_loss=low, softmax_unseen=known)["beats-bigram"] == "holds"
    assert swap(softmax_loss=run["softmax_loss"] + 0.65)["attention-adds"] == "holds in part"
    assert swap(softmax_unseen=known)["unseen-text"] == "holds"
    assert swap(softmax_unseen=run["softmax_unseen"] + 1)["unseen-text"] == "does not hold"
    late, alike = run["softmax_tau"].copy(), run["softmax_tau"].copy()
    late[:, 0] *= 100
    alike[:, 2] /= 100
    assert swap(softmax_tau=late)["routing-first"] == "does not hold"
    assert swap(softmax_tau=alike)["routing-first"] == "holds"
    assert swap(softmax_participation=np.full_like(high, 9.5))["values-on-a-line"] == "does not hold"
    assert swap(softmax_shares=np.full_like(run["softmax_shares"], 0.9))["values-on-a-line"] == "holds"


def test_heads_that_hardly_move_do_not_count(made):
    still = np.zeros_like(made["text"]["softmax_way"])
    assert verdicts(changed(made, "text", softmax_way=still))["routing-first"] == "not tested"
    TRIAL.check_claims(changed(made, "text", softmax_way=still))


def test_figures_draw_without_warnings(made, tmp_path):
    TRIAL.check_figures(made, FIGURES, tmp_path)


@pytest.mark.slow
def test_the_quick_run_has_the_recorded_verdicts(tmp_path):
    quick = TRIAL.compute(CONFIG, tmp_path)
    assert verdicts(quick) == EXPERIMENT.recorded
    TRIAL.check_claims(quick)
    np.testing.assert_allclose(quick["text"]["loss"], quick["text"]["softmax_loss"], rtol=1e-12)


@pytest.mark.slow
def test_paper_preset_starts_and_resumes(tmp_path, monkeypatch):
    paper = EXPERIMENT.config.paper()
    assert paper.seeds > CONFIG.seeds and paper.ts[-1] == paper.horizons[-1]
    assert TRIAL.check_resuming("permuted", tmp_path, monkeypatch) == []


@pytest.mark.slow
def test_tiny_settings_run_through(tmp_path):
    found = TRIAL.check_all_runs(tmp_path)
    assert found["text"]["chance_participation"].shape == (2, measures.DRAWS) and D_V >= 2
