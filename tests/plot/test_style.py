"""The style leaves Matplotlib as it was, looks are fixed, and files come out whole and reproducible."""

import matplotlib
import pytest
from matplotlib import pyplot

import gradflow as gf
from gradflow.plot.looks import OKABE_ITO


def test_style_changes_nothing_afterwards():
    before = dict(matplotlib.rcParams)
    with gf.plot.style():
        assert matplotlib.rcParams["font.size"] == 8
        assert not matplotlib.rcParams["axes.spines.top"]
    gf.plot.scalar([1, 2], [1, 2])
    pyplot.close("all")
    assert dict(matplotlib.rcParams) == before


def test_figures_have_the_widths_of_columns_and_are_unknown_to_pyplot():
    one, ax = gf.plot.new_figure()
    two, axes = gf.plot.new_figure(2, 2, sharex=True)
    assert tuple(one.get_size_inches()) == (gf.plot.ONE_COLUMN, 2.4)
    assert tuple(two.get_size_inches()) == (gf.plot.TWO_COLUMNS, 4.8)
    assert axes.shape == (2, 2) and not ax.spines["top"].get_visible()
    assert one.get_constrained_layout() and pyplot.get_fignums() == []


def test_save_writes_svg_and_png_the_same_each_time(tmp_path):
    def drawn():
        figure, ax = gf.plot.new_figure()
        gf.plot.scalar([1, 10], [1, 0.1], ax=ax)
        return figure

    first = gf.plot.save(drawn(), tmp_path / "new" / "one.v2")
    second = gf.plot.save(drawn(), tmp_path / "two")
    assert [path.name for path in first] == ["one.v2.svg", "one.v2.png"]
    for a, b in zip(first, second, strict=True):
        assert a.read_bytes() == b.read_bytes()
    assert pyplot.imread(first[1]).shape[:2] == (480, 650)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "two.png", "two.svg"]


def test_save_into_a_file_is_one_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(gf.FlowError, match=r"path_stem is .*cannot be written"):
        gf.plot.save(gf.plot.new_figure()[0], tmp_path / "file" / "figure")


def test_each_activation_has_one_look_of_its_own():
    looks = {name: gf.plot.activation_look(name) for name in gf.activations.names()}
    assert len({str(look) for look in looks.values()}) == len(looks)
    assert looks["softmax"] == gf.plot.activation_look(gf.activations.Softmax())
    assert looks["sigmoid"]["color"] == looks["normalised-sigmoid"]["color"] != looks["softmax"]["color"]
    with pytest.raises(gf.FlowError, match="softmax"):
        gf.plot.activation_look("sofmax")


def test_member_and_verdict_looks():
    looks = gf.plot.member_looks(20)
    assert len({str(look) for look in looks}) == 20
    assert all(look["color"] in OKABE_ITO.values() for look in looks)
    verdicts = ("holds", "holds in part", "does not hold", "not tested")
    colours, symbols = zip(*map(gf.plot.verdict_look, verdicts), strict=True)
    assert len(set(colours)) == len(set(symbols)) == 4
    with pytest.raises(gf.FlowError, match="did you mean 'holds'"):
        gf.plot.verdict_look("hold")


def test_names_at_the_ends_of_curves_do_not_overlap():
    figure, ax = gf.plot.new_figure()
    ax.set(xlim=(0, 1), ylim=(0, 1))
    ends = [(1, 0.5), (1, 0.501), (1, 0.9), (1, 0.499)]
    gf.plot.label_ends(ax, ends, ["a", "b", "c", "d"], ["black"] * 4)
    figure.draw_without_rendering()
    boxes = {text.get_text(): text.get_window_extent() for text in ax.texts}
    heights = {name: (box.y0 + box.y1) / 2 for name, box in boxes.items()}
    assert heights["d"] < heights["a"] < heights["b"] < heights["c"]
    assert not any(boxes[p].overlaps(boxes[q]) for p, q in ("da", "ab", "bc"))


def test_titles_are_wrapped_to_the_panel():
    _, ax = gf.plot.new_figure()
    gf.plot.title(ax, "softmax goes one-hot, the sigmoid does not, whatever the loss")
    assert "\n" in ax.get_title(loc="left")
