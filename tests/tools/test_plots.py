"Pictures: well-formed SVG whose shapes follow the data."

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_or.tools.plots import bars, lines, table, ticks

values = st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=1, max_size=8)
quick = settings(max_examples=100, deadline=None)


def shapes(picture, tag):
    "The elements of a kind in a picture, which is well-formed."
    return ElementTree.fromstring(picture).iter(f"{{http://www.w3.org/2000/svg}}{tag}")


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
    rects = [r for r in shapes(picture, "rect") if r.get("y") != "7"]
    heights = np.array([float(r.get("height")) for r in rects])
    scale = max(max(series), 0) - min(min(series), 0)
    if scale > 0:
        full = 260 - 28 - 40
        np.testing.assert_allclose(heights, np.abs(series) / scale * full, atol=0.06)


@quick
@given(values)
def test_lines_pass_through_their_points(series):
    picture = lines({"cost": series})
    (path,) = [p for p in shapes(picture, "path") if p.get("stroke-width") == "2"]
    assert len(re.findall("[ML]", path.get("d"))) == len(series)


def test_a_line_breaks_at_a_value_that_is_none():
    picture = lines({"cost": [1, np.nan, 3, np.inf, 5]})
    (path,) = [p for p in shapes(picture, "path") if p.get("stroke-width") == "2"]
    assert path.get("d").count("M") == 3


def test_a_screen_reader_reads_numbers_only():
    (svg,) = shapes(lines({"a": [1, np.nan], "b": [np.inf] * 2}, title="c"), "svg")
    assert svg.get("aria-label") == "c. a ends at 1, b is not drawn"


def test_words_are_escaped():
    picture = lines({"<a>": [1, 2]}, title="a < b & c")
    assert next(shapes(picture, "svg")).get("aria-label").startswith("a < b & c")
    assert "<td>&lt;i&gt;</td>" in table(["x"], [["<i>"]])


def test_stacked_bars_stand_on_each_other_and_colours_come_again():
    picture = bars(["x"], {f"s{j}": [j + 1] for j in range(9)}, stacked=True)
    rects = [r for r in shapes(picture, "rect") if r.get("y") != "7"]
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
    (path,) = [p for p in shapes(picture, "path") if p.get("stroke-width") == "2"]
    starts = [float(v) for v in re.findall(r"[ML]([0-9.]+) ", path.get("d"))]
    ends = [float(v) for v in re.findall(r"H([0-9.]+)", path.get("d"))]
    assert ends[:2] == starts[1:] and len(ends) == 3 and ends[2] == 640 - 12


def test_few_of_many_labels_are_written():
    picture = bars(range(64), {"load": np.ones(64)})
    written = [t.text for t in shapes(picture, "text") if t.get("y") == "236"]
    assert written == [str(i) for i in range(0, 64, 4)]
