"""Maps of heads, attention and norms: each number where it belongs."""

import numpy as np
import pytest

import gradflow as gf


@pytest.fixture
def ax():
    return gf.plot.new_figure()[1]


def cells(ax):
    return np.ma.asarray(ax.collections[0].get_array())


def test_heads_puts_layers_upwards_and_heads_across_with_the_colours_of_a_share(ax):
    values = np.array([[0.0, 0.25, 0.5], [0.6, 0.7, np.nan]])
    assert gf.plot.heads(values, label="sink rate", ax=ax) is ax
    np.testing.assert_array_equal(cells(ax).filled(np.nan), values)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("head", "layer")
    assert ax.collections[0].get_clim() == (0, 1)
    assert [text.get_text() for text in ax.texts] == ["0", "0.25", "0.5", "0.6", "0.7"]
    assert ax.figure.axes[1].get_ylabel() == "sink rate"


def test_many_heads_get_few_labels(ax):
    gf.plot.heads(np.full((24, 32), 3.0), limits=None, ax=ax)
    assert len(ax.get_xticks()) <= 10 and ax.get_xticks()[0] == 0.5
    assert not ax.texts


def test_attention_has_queries_downwards_and_the_same_colours_in_all_panels():
    maps = np.stack([np.eye(3), np.eye(3) / 2])
    axes = gf.plot.attention(maps, tokens=["a", "b", "c"])
    assert len(axes) == 2 and axes[0].yaxis_inverted()
    assert axes[0].collections[0].get_clim() == axes[1].collections[0].get_clim() == (0, 1)
    assert [label.get_text() for label in axes[1].get_xticklabels()] == ["a", "b", "c"]
    signed = gf.plot.attention(np.array([[0.5, -2.0]]), ax=gf.plot.new_figure()[1])
    assert signed.collections[0].get_clim() == (-2, 2)
    assert [axis.get_visible() for axis in gf.plot.attention(np.ones((5, 2, 2)))[0].figure.axes[:8]].count(False) == 3


def test_norms_are_logarithmic_and_hatch_what_is_not_above_zero(ax):
    gf.plot.norms(np.array([[1.0, 0.0], [1000.0, np.inf]]), tokens=["bos", "the"], ax=ax)
    assert cells(ax).mask.tolist() == [[False, True], [False, True]]
    assert ax.collections[0].get_clim() == pytest.approx((1, 1000))
    flat = gf.plot.norms(np.full((1, 2), 7.0), ax=gf.plot.new_figure()[1])
    low, high = flat.collections[0].get_clim()
    assert high / low == pytest.approx(10) and low < 7 < high
    gf.plot.norms(np.zeros((1, 2)), ax=gf.plot.new_figure()[1]).figure.canvas.draw()


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: gf.plot.heads([0.1, 0.2]), "layer, head"),
        (lambda: gf.plot.attention(np.ones(3)), "queries, keys"),
        (lambda: gf.plot.attention(np.ones((2, 2)), tokens=["a"]), "tokens has 1"),
        (lambda: gf.plot.attention(np.ones((2, 2, 2)), ax=[gf.plot.new_figure()[1]]), "one for each"),
        (lambda: gf.plot.norms(np.ones((2, 0))), "not empty"),
        (lambda: gf.plot.norms(np.ones((2, 2)), tokens=["a"]), "tokens has 1"),
    ],
)
def test_bad_values_are_named(call, words):
    with pytest.raises(gf.FlowError, match=words):
        call()
