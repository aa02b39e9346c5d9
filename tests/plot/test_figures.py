"""What the figures draw: every value where it belongs, zeros at the edge, nothing dropped in silence."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from matplotlib import pyplot

import gradflow as gf
from gradflow.compare import Gap
from gradflow.models import paper
from gradflow.plot.looks import OKABE_ITO


@pytest.fixture
def ax():
    return gf.plot.new_figure()[1]


def data_of(line):
    x, y = (np.asarray(v, float) for v in line.get_data())
    keep = np.isfinite(x) & np.isfinite(y)
    return x[keep].tolist(), y[keep].tolist()


def curves(ax):
    """Lines in data coordinates with something in them."""
    return [line for line in ax.lines if line.get_transform() == ax.transData and data_of(line)[0]]


def edge_marks(ax):
    return [line for line in ax.lines if line.get_marker() in ("v", "<")]


def read(t, model, args):
    return {"weights": model.weights}


def stop_late(t, model, args):
    return t > 50.0


@pytest.fixture(scope="module")
def runs():
    setting = paper.logistic()
    ts = gf.log_times(1, 1e3, 20)
    flow = gf.gradient_flow(setting.loss, setting.model, setting.args, t1=1e3, ts=ts)
    stopped = gf.gradient_flow(setting.loss, setting.model, setting.args, t1=1e3, ts=ts, observe=read, stop=stop_late)
    at = [0, 10, 100, 1000, 10_000]
    descent = gf.gradient_descent(setting.loss, setting.model, optax.sgd(0.1), setting.args, steps=10_000, save_at=at)
    return flow, stopped, descent


def test_weights_draws_flow_as_lines_and_descent_as_dots_on_one_time_axis(ax, runs):
    flow, _, descent = runs
    assert gf.plot.weights(flow, descent=descent, step_size=0.1, ax=ax) is ax
    assert ax.get_xscale() == ax.get_yscale() == "log"
    lines = [line for line in curves(ax) if line.get_linestyle() != "None"]
    dots = [line for line in curves(ax) if line.get_linestyle() == "None"]
    assert len(lines) == len(dots) == 8
    weights = np.asarray(eqx.filter_vmap(lambda model: model.weights)(flow.observed))
    np.testing.assert_allclose(data_of(lines[2])[1], weights[:, 2])
    np.testing.assert_allclose(data_of(dots[2])[0], [1, 10, 100, 1000])
    # The descent's step 0 lies at t = 0: marked at the left edge, not dropped.
    assert [data_of(mark)[0] for mark in edge_marks(ax)] == [[0]] * 8
    winner = int(weights[-1].argmax())
    assert lines[winner].get_linewidth() == max(line.get_linewidth() for line in lines)
    texts = {text.get_text(): text.get_color() for text in ax.texts}
    assert texts[f"$s_{{{winner}}}$"] == lines[winner].get_color() and "uniform 1/8" in texts


def test_weights_leaves_out_what_was_not_reached(ax, runs):
    _, stopped, _ = runs
    assert not stopped.valid.all()
    gf.plot.weights(stopped, ax=ax)
    assert max(data_of(curves(ax)[0])[0]) <= float(stopped.t_final)


def test_weights_makes_an_axis_of_its_own(runs):
    ax = gf.plot.weights(runs[0])
    assert tuple(ax.figure.get_size_inches()) == (3.25, 2.4)
    pyplot.close(ax.figure)


def test_signed_weights_get_a_linear_axis(ax, runs):
    rows = jnp.asarray([[0.5, 0.5, 0.0], [1.5, -0.5, 0.0]])
    flow = eqx.tree_at(lambda t: (t.observed, t.ts, t.valid), runs[0], (rows, jnp.array([1.0, 2.0]), jnp.ones(2, bool)))
    gf.plot.weights(flow, ax=ax)
    assert ax.get_yscale() == "linear"
    assert -0.5 in data_of(curves(ax)[1])[1] and not edge_marks(ax)


def test_weights_names_what_is_missing(runs):
    flow, _, descent = runs
    with pytest.raises(gf.FlowError, match="step_size is None"):
        gf.plot.weights(flow, descent=descent)
    bare = eqx.tree_at(lambda t: t.observed, flow, {"loss": jnp.ones(20)})
    with pytest.raises(gf.FlowError, match="holds no weights"):
        gf.plot.weights(bare)
    fewer = eqx.tree_at(lambda t: t.observed, flow, jnp.ones((20, 3)))
    with pytest.raises(gf.FlowError, match="descent has 8 weights and flow 3"):
        gf.plot.weights(fewer, descent=descent, step_size=0.1)
    with pytest.raises(gf.FlowError, match="reached none"):
        gf.plot.weights(eqx.tree_at(lambda t: t.valid, flow, jnp.zeros(20, bool)))


def test_zeros_on_a_log_axis_are_marked_at_its_edge(ax):
    gf.plot.scalar([1, 2, 3, 4], [1, 1e-30, 0, 0], ax=ax)
    (mark,) = edge_marks(ax)
    assert mark.get_xdata().tolist() == [3, 4] and mark.get_ydata().tolist() == [0, 0]
    assert data_of(curves(ax)[0]) == ([1, 2], [1, 1e-30])
    ax.figure.draw_without_rendering()


def test_a_curve_of_zeros_alone_and_a_zero_in_the_corner(ax):
    gf.plot.scalar([0, 1], [0, 0], ax=ax)
    ax.figure.draw_without_rendering()
    assert len(edge_marks(ax)) == 2
    linear = gf.plot.new_figure()[1]
    gf.plot.scalar([0, 1], [0, 1], log="", ax=linear)
    assert not edge_marks(linear) and data_of(curves(linear)[0]) == ([0, 1], [0, 1])


def test_dots_are_thinned_evenly_in_log_t(ax):
    ts = np.arange(100_001)
    gf.plot.scalar(ts, ts + 1.0, dots=True, ax=ax)
    times, _ = data_of(curves(ax)[0])
    assert 10 <= len(times) <= 20 and times[-1] == 100_000 and times[1] < 100


def test_lines_names_a_few_curves_and_shades_many():
    ts, values = np.geomspace(1, 100, 5), np.outer(np.ones(5), [3.0, 1.0, 2.0])
    few, many = gf.plot.new_figure(1, 2)[1]
    gf.plot.lines(ts, values, names=["a", "b", "c"], bold=1, log="x", ax=few, ylabel="score")
    assert [text.get_text() for text in few.texts] == ["a", "b", "c"] and few.get_ylabel() == "score"
    assert curves(few)[1].get_linewidth() == 2
    gf.plot.lines(ts, np.tile(values, 3), log="x", ax=many)
    assert len({str(line.get_color()) for line in curves(many)}) == 9 and not many.texts
    with pytest.raises(gf.FlowError, match="lines needs"):
        gf.plot.lines(ts, ts, ax=many)


def test_bands_shows_every_seed_the_median_and_the_interval(ax):
    x, members = np.arange(1.0, 4), np.array([[1.0, 2, 3], [2, 3, 4], [9, 9, np.nan]])
    gf.plot.bands(x, members, interval=(0, 1), log="", label="softmax", ax=ax)
    *faint, median = curves(ax)
    assert len(faint) == 3 and all(line.get_alpha() < 0.5 for line in faint)
    assert data_of(median)[1] == [2, 3, 3.5] and median.get_linewidth() == 2
    band = ax.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == 1 and band[:, 1].max() == 9
    with pytest.raises(gf.FlowError, match="bands needs"):
        gf.plot.bands(x, members[0], ax=ax)


def test_residuals_colours_each_law_by_its_outcome(ax):
    gf.plot.residuals(["kept", "exact", "control"], [1e-14, 0, 1e-2], [1e-12, 1e-12, 1e-8], ax=ax)
    dots = [line for line in ax.lines if line.get_marker() in ("o", "X") and data_of(line)[0]]
    assert [(dot.get_xdata()[0], dot.get_color()) for dot in dots] == [
        (1e-14, OKABE_ITO["green"]),
        (1e-2, OKABE_ITO["vermillion"]),
    ]
    assert len(edge_marks(ax)) == 1
    assert [label.get_text() for label in ax.get_yticklabels()] == ["kept", "exact", "control"]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["holds", "does not", "tolerance"]
    with pytest.raises(gf.FlowError, match="1 names, 2 values"):
        gf.plot.residuals(["one"], [1, 2], [1, 2])


def test_heat_map_centres_signed_values_and_hatches_gaps(ax):
    gf.plot.heat_map([1, 2], ["a", "b"], [[1, -4], [np.nan, 0]], centre=0, ax=ax)
    image = ax.collections[0]
    assert (image.norm.vmin, image.norm.vmax) == (-4, 4)
    assert ax.patch.get_hatch() and sorted(text.get_text() for text in ax.texts) == ["-4", "0", "1"]
    with pytest.raises(gf.FlowError, match=r"it must be \(2, 1\)"):
        gf.plot.heat_map([1], [1, 2], [[1, 2]])


def test_gaps_references_and_the_papers_values(ax):
    ts = np.array([1e3, 1e4])
    distances = {eta: Gap(ts, eta * np.array([1.0, 2.0]), eta * np.ones(2)) for eta in (0.1, 0.05)}
    gf.plot.gaps(distances, ax=ax)
    gf.plot.reference(ax, 0.3, "floor")
    gf.plot.reference(ax, 2e3, "onset", axis="x")
    gf.plot.paper_value(ax, [1e3], [0.2])
    gf.plot.legend(ax, handles=ax.lines[-1:])
    assert data_of(curves(ax)[0])[1] == [0.05, 0.1]
    assert {"floor", "onset", r"$\eta$ = 0.1"} <= {text.get_text() for text in ax.texts}
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["paper"]
    assert ax.get_legend().get_texts()[0].get_fontsize() == 8
