"Pictures: well-formed SVG whose shapes follow the data."

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_or.tools.plots import PALETTE, bars, figure_picture, lines, style, table, ticks

values = st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=1, max_size=8)
quick = settings(max_examples=100, deadline=None)


def shapes(picture, tag):
    "The elements of a kind in a picture, which is well-formed."
    return ElementTree.fromstring(picture).iter(f"{{http://www.w3.org/2000/svg}}{tag}")


def pens(picture):
    "The lines of a picture, without the legend's."
    return [p for p in shapes(picture, "path") if p.get("stroke-linejoin") == "round"]


@quick
@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9), st.integers(3, 12))
def test_ticks_are_round_and_inside(low, span, most):
    high = low + span
    if not high - low > 1e-9 * max(abs(low), abs(high)):
        return
    found = ticks(low, high, most)
    assert 0 < len(found) <= most + 1
    slack = 1e-6 * span
    assert (found >= low - slack).all() and (found <= high + slack).all()


@quick
@given(values)
def test_bars_are_as_high_as_their_values(series):
    picture = bars(range(len(series)), {"load": series})
    rects = list(shapes(picture, "rect"))
    heights = np.array([float(r.get("height")) for r in rects])
    scale = max(max(series), 0) - min(min(series), 0)
    if scale > 0:
        full = 260 - 30 - 46  # a row of words above, labels below
        np.testing.assert_allclose(heights, np.abs(series) / scale * full, atol=0.06)


@quick
@given(values)
def test_lines_pass_through_their_points(series):
    picture = lines({"cost": series})
    (path,) = pens(picture)
    assert len(re.findall("[ML]", path.get("d"))) == len(series)


def test_a_line_breaks_at_a_value_that_is_none():
    picture = lines({"cost": [1, np.nan, 3, np.inf, 5]})
    (path,) = pens(picture)
    assert path.get("d").count("M") == 3


def test_a_screen_reader_reads_numbers_only():
    (svg,) = shapes(lines({"a": [1, np.nan], "b": [np.inf] * 2}, title="c"), "svg")
    assert svg.get("aria-label") == "c. a ends at 1, b is not drawn"
    (svg,) = shapes(lines({"a": [1, 0.1 + 0.2 - 0.3]}), "svg")
    assert svg.get("aria-label") == "a ends at 0"


def test_words_are_escaped():
    picture = lines({"<a>": [1, 2]}, title="a < b & c")
    assert next(shapes(picture, "svg")).get("aria-label").startswith("a < b & c")
    assert "<td>&lt;i&gt;</td>" in table(["x"], [["<i>"]])


def test_stacked_bars_stand_on_each_other_and_colours_come_again():
    picture = bars(["x"], {f"s{j}": [j + 1] for j in range(9)}, stacked=True)
    rects = list(shapes(picture, "rect"))
    tops = [float(r.get("y")) for r in rects]
    feet = [float(r.get("y")) + float(r.get("height")) for r in rects]
    np.testing.assert_allclose(feet[1:], tops[:-1], atol=0.11)
    assert rects[0].get("fill") == rects[7].get("fill") != rects[6].get("fill")


def test_series_that_do_not_fit_are_told():
    with pytest.raises(ValueError, match="series 'b' has shape"):
        lines({"a": [1, 2], "b": [1, 2, 3]})
    with pytest.raises(ValueError, match="series is empty"):
        lines({})


def test_a_step_is_held_until_the_next_point():
    picture = lines({"cost": [1, 2, 4]}, x=[0, 1, 3], step=True)
    (path,) = pens(picture)
    starts = [float(v) for v in re.findall(r"[ML]([0-9.]+) ", path.get("d"))]
    ends = [float(v) for v in re.findall(r"H([0-9.]+)", path.get("d"))]
    assert ends[:2] == starts[1:] and len(ends) == 3 and ends[2] == 640 - 12


def test_few_of_many_labels_are_written():
    picture = bars(range(64), {"load": np.ones(64)})
    written = [t.text for t in shapes(picture, "text") if t.get("y") == "232"]
    assert written == [str(i) for i in range(0, 64, 4)]


def luminance(colour):
    "WCAG's relative luminance of #rrggbb."
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return np.dot([0.2126, 0.7152, 0.0722], linear)


# Vienot, Brettel and Mollon's simplified matrices on linear RGB: red-blind, green-blind
BLIND = {
    "protan": [[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]],
    "deutan": [[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]],
}


def test_colours_stand_out_in_both_themes_and_from_each_other():
    for colour in PALETTE:
        light = 1.05 / (luminance(colour) + 0.05)
        dark = (luminance(colour) + 0.05) / (luminance("#14181e") + 0.05)
        assert min(light, dark) >= 3, colour
    rgb = np.array([[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in PALETTE[:4]])
    for matrix in BLIND.values():
        seen = np.clip(rgb**2.2 @ np.array(matrix).T, 0, 1) ** (1 / 2.2)
        apart = np.linalg.norm(seen[:, None] - seen[None], axis=-1)
        assert apart[np.triu_indices(4, 1)].min() > 0.1


def test_lines_differ_by_their_dashes_too():
    picture = lines({name: [1, 2] for name in "abcd"})
    assert len({p.get("stroke-dasharray") for p in pens(picture)}) == 4


@given(
    st.lists(st.text("abcdefgh ", min_size=1, max_size=30), max_size=6, unique=True),
    st.text("ab cd", max_size=200),
)
def test_words_above_the_axes_fit_for_a_telephone(names, title):
    """Letters of 18 pixels, about half as wide: no word leaves the picture, none meets another."""
    picture = lines({"v": [1, 2]} | {name: [1, 2] for name in names}, title=title, size=(640, 400))
    above = [t for t in shapes(picture, "text") if t.get("text-anchor") is None]
    places = sorted((float(t.get("y")), float(t.get("x")), len(t.text or "")) for t in above)
    for _, x, n in places:
        assert x + 9.2 * n <= 640 or n > 60 or " " not in title
    for (y, x, n), (below, right, _) in zip(places, places[1:]):
        assert y != below or x + 9.2 * n <= right


def test_a_figure_of_matplotlib_is_a_picture_of_the_page():
    pytest.importorskip("matplotlib").use("Agg")
    import matplotlib.pyplot as plt

    with plt.rc_context():
        style()
        fig, ax = plt.subplots(figsize=(5, 2))
        ax.plot([1, 2, np.nan], label="cost")
        ax.axhline(1, color="0.7")
        ax.set(xlabel="step", ylabel="tokens", title="a < b")
        picture = figure_picture(fig)
        again = figure_picture(fig)
        plt.close(fig)
    svg = ElementTree.fromstring(picture)
    assert svg.get("aria-label") == "a < b. tokens against step. cost ends at 2"
    assert picture == again
    text = [t.text for t in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert "step" in text and "a < b" in text
    assert "#000000" not in picture and "currentColor 30%" in picture and "<style" not in picture


def test_two_figures_of_a_page_share_no_names():
    plt = pytest.importorskip("matplotlib.pyplot")
    names = []
    for values in ([1, 2], [2, 1]):
        fig, ax = plt.subplots(figsize=(2, 2))
        ax.plot(values)
        picture = figure_picture(fig)
        plt.close(fig)
        names.append(set(re.findall(r'\sid="([^"]*)"', picture)))
        assert set(re.findall(r"(?:href=\"|url\()#([^\")]*)", picture)) <= names[-1]
    assert names[0] and not names[0] & names[1]


@pytest.mark.parametrize("stacked", [False, True])
def test_bars_that_are_not_finite_are_not_drawn(stacked):
    picture = bars("abc", {"x": [1, np.nan, 3], "y": [2, 5, np.inf]}, stacked=stacked)
    assert "nan" not in picture and "inf" not in picture
    heights = [float(r.get("height")) for r in shapes(picture, "rect")]
    assert [h == 0 for h in heights] == [False, True, False, False, False, True]
    # the others stand where they would without them
    zeros = bars("abc", {"x": [1, 0, 3], "y": [2, 5, 0]}, stacked=stacked)
    where = [[r.get(k) for k in ("x", "y", "height")] for r in shapes(picture, "rect")]
    assert where == [[r.get(k) for k in ("x", "y", "height")] for r in shapes(zeros, "rect")]


def test_ticks_reach_both_ends_and_a_flat_axis_has_a_length():
    assert ticks(0, 6, most=6).tolist() == [0, 1, 2, 3, 4, 5, 6]
    written = [t.text for t in shapes(bars("a", {"x": [0]}), "text")]
    assert "0" in written and "1" in written and "2" not in written


def test_a_step_is_named_in_its_middle_and_a_bar_stands_on_the_axis():
    picture = lines({"x": [1, 2]}, step=True)
    (pen,) = pens(picture)
    ends = [float(v) for v in re.findall(r"[MH]([0-9.]+)", pen.get("d"))]
    middle = (ends[0] + ends[1]) / 2
    names = {t.text: float(t.get("x")) for t in shapes(picture, "text") if t.get("y") == "232"}
    assert names["1"] == pytest.approx(middle, abs=0.1)
    side, above = (
        [{k: float(r.get(k)) for k in ("y", "width", "height")} for r in shapes(p, "rect")]
        for p in (bars("a", {"x": [1], "y": [2]}, stacked=s) for s in (False, True))
    )
    assert len({r["y"] + r["height"] for r in side}) == 1
    assert above[1]["y"] + above[1]["height"] == pytest.approx(above[0]["y"])
    # one bar on the other is as wide as two side by side
    assert above[0]["width"] == pytest.approx(2 * side[0]["width"] + 1, abs=0.2)


def test_a_small_end_is_said():
    assert "ends at 0.005" in lines({"x": [1, 0.005]})
    assert "ends at 0" in lines({"x": [1, 1e-13]})


def test_a_sentence_in_a_table_may_be_broken():
    sentence = "a bracket stands where a comma must stand"
    picture = table(["size", "said"], [[2.0, sentence], [123456789, "short"]])
    assert f'<td class="words">{sentence}</td>' in picture
    assert picture.count("<td>") == 3 and picture.count("<td") == 4
