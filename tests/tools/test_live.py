"Live examples: what a reader may move, what the page holds, and where the package has a function."

import ast
import json
import re
import subprocess
import sys
from html import unescape
from math import prod

import nbformat
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import serving_or.tools.live as live
from serving_or.tools.live import (
    Control,
    answer,
    controls,
    exported,
    interact,
    page,
    show,
    slowest_first,
)
from serving_or.tools.plots import Picture, bars
from tests.tree import ROOT


def moved(k=2, share=0.25, load="even", on=False):
    return f"{k} {share} {load} {on}"


def test_the_forms_of_a_range():
    found = controls(moved, k=(0, 4), share=(0.0, 1.0, 0.25), load=["even", "odd"], on=True)
    assert [c.kind for c in found] == ["slider", "slider", "menu", "box"]
    assert [c.values for c in found[:2]] == [(0, 1, 2, 3, 4), (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert [c.start for c in found] == [2, 0.25, "even", False]
    (menu,) = controls(moved, load={"like each other": "even", "not": "odd"})
    assert menu.labels == ("like each other", "not") and menu.values == ("even", "odd")


@pytest.mark.parametrize(
    "given, words",
    [
        ({"n": (0, 4)}, "has no argument 'n'"),
        ({"k": (4, 0)}, "low <= high"),
        ({"k": (0, 4, 0)}, "a positive step"),
        ({"k": "0 to 4"}, "give (low, high)"),
        ({"k": (5, 9)}, "starts at 2, which is not among its values"),
    ],
)
def test_a_range_that_is_none_is_told(given, words):
    with pytest.raises(ValueError) as caught:
        controls(moved, **given)
    assert words in str(caught.value)


def states_of(html):
    return json.loads(html.split('class="live-states">')[1].split("</script>")[0])


def test_the_page_holds_every_state_or_some_that_are_spread():
    found = controls(slowest_first, k=(0, 12))
    states = states_of(page(slowest_first, found, ["numpy"]))
    assert states == {f"{k}": slowest_first(k) for k in range(13)}
    many = states_of(page(slowest_first, controls(slowest_first, k=(0, 400)), ["numpy"]))
    held = [int(at) for at in many]
    assert len(held) == 60 and held[0] == 0 and held[-1] == 400 and 4 in held
    assert max(np.diff(held)) <= 14 and all(many[f"{k}"] == slowest_first(k) for k in held)


def test_large_pictures_are_stored_less_often(monkeypatch):
    monkeypatch.setattr(live, "BYTES", 5 * len(slowest_first()))
    assert len(states_of(page(slowest_first, controls(slowest_first, k=(0, 12)), []))) == 5


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=4),
    st.integers(1, 60),
    st.randoms(use_true_random=False),
)
def test_what_is_held_is_little_and_holds_the_start(sizes, most, random):
    starts = [random.randrange(n) for n in sizes]
    found = [Control("k", "slider", tuple(range(n)), s) for n, s in zip(sizes, starts)]
    held = live._held(found, most)
    assert prod(map(len, held)) <= most
    assert all(s in h and h == sorted(set(h)) for s, h in zip(starts, held))
    for n, h in zip(sizes, held):
        assert len(h) < 3 or (h[0], h[-1]) == (0, n - 1)


def shown(v=1e-05, k=3, most=float("inf")):
    return f"{v!r} {k!r} {most!r} {type(k).__name__}"


def test_values_cross_whatever_they_look_like_in_another_language(monkeypatch):
    """Small numbers, NumPy's integers and infinity; a slider's right end is one of its values."""
    monkeypatch.setattr(live, "exported", lambda _: "serving_or.tools.live:shown")
    monkeypatch.setattr(live, "shown", shown, raising=False)
    found = controls(
        shown,
        v=(1e-05, 4e-05, 1e-05),
        k=list(np.arange(3, 5)),
        most={"much": float("inf"), "little": np.float64(2)},
    )
    html = page(shown, found, [])
    assert states_of(html)["0,0,0"] == "<pre>1e-05 3 inf int</pre>"
    assert states_of(html)["3,1,1"] == "<pre>4e-05 4 2.0 int</pre>"
    (v,) = re.findall(r'name="v"[^>]*data-values="([^"]*)"', html)
    assert [float(text) for text in json.loads(unescape(v))] == [1e-05, 2e-05, 3e-05, 4e-05]
    (ends,) = controls(shown, v=(1e-05, 0.4))
    assert ends.values[-1] == 0.4 and len(ends.values) == 21


def test_labels_units_and_captions(monkeypatch):
    monkeypatch.setenv("SERVING_OR_BOOK", "1")
    html = interact(
        slowest_first, caption="Load", labels={"k": "extra <GPUs>"}, units={"k": "GPUs"}, k=(0, 4)
    )
    assert "extra &lt;GPUs&gt;" in html and "<output>4 GPUs</output>" in html
    with pytest.raises(ValueError, match="'n' has a label or a unit, but no range"):
        interact(slowest_first, units={"n": "GPUs"}, k=(0, 4))


def test_a_button_only_where_python_adds_something_and_with_its_size():
    assert "Run it live (18 MB)" in page(
        slowest_first, controls(slowest_first, k=(0, 4)), ["numpy"]
    )
    both = page(slowest_first, controls(slowest_first, k=(0, 4)), ["numpy", "scipy"])
    assert "Run it live (38 MB)" in both
    assert "live-start" not in page(slowest_first, controls(slowest_first, k=[3, 4]), ["numpy"])


def test_the_book_gets_a_page_and_a_kernel_widgets(monkeypatch):
    monkeypatch.setenv("SERVING_OR_BOOK", "1")
    assert isinstance(interact(slowest_first, k=(0, 12)), Picture)
    monkeypatch.delenv("SERVING_OR_BOOK")
    widget = interact(slowest_first, k=(0, 12))
    assert widget.children[0].value == 4 and widget.children[0].max == 12


def test_a_function_of_a_notebook_is_found_in_the_package():
    def drifting_experts():
        "As a notebook has it: of another module, and of the name that the package knows."

    assert exported(drifting_experts) == "serving_or.tools.generators:drifting_experts"
    assert exported(bars) == "serving_or.tools.plots:bars"
    with pytest.raises(ValueError, match="no module"):
        exported(moved)


def test_only_the_package_answers():
    assert show(3.5) == "<pre>3.5</pre>" and show("<b>") == "<pre>&lt;b&gt;</pre>"
    assert answer("serving_or.tools.live:slowest_first", '{"k": 4}') == slowest_first(4)
    with pytest.raises(ValueError, match="not a module of serving_or"):
        answer("os:getcwd", "{}")


def _spread(k=0):
    "A name that two modules of the package have."


def test_details_that_a_reader_would_stumble_over(monkeypatch):
    # 0.3 / 0.1 is a little less than 3
    (tenths,) = controls(lambda x=0.0: x, x=(0.0, 0.3, 0.1))
    assert tenths.values == (0.0, 0.1, 0.2, 0.3)
    (price,) = controls(lambda move_price=1: price, move_price=(1, 2))
    assert price.words == "move price"
    with pytest.raises(ValueError, match="tools.live.*tools.programs"):
        exported(_spread)
    # a picture's end tags do not end the element that holds it
    html = page(slowest_first, controls(slowest_first, k=(0, 4)), ["numpy"])
    assert html.split('class="live-states">')[1].count("</") == 2
    # a picture beyond the limit is stored once
    monkeypatch.setattr(live, "BYTES", len(slowest_first()) // 2)
    html = page(slowest_first, controls(slowest_first, k=(0, 12)), ["numpy"])
    assert list(states_of(html)) == ["4"]
    monkeypatch.delenv("SERVING_OR_BOOK", raising=False)
    menu = interact(moved, load={"like each other": "even"}).children[0]
    assert list(menu.options) == [("like each other", "even")]


ALONE = """
import importlib, json, sys

class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("scipy", "highspy", "pandas", "matplotlib", "networkx", "yaml"):
            raise ModuleNotFoundError(f"no module named {name!r}", name=name)

sys.meta_path.insert(0, Nothing())
for module, name in json.load(sys.stdin):
    try:
        getattr(importlib.import_module(module), name)()
    except Exception as error:
        print(f"{module}:{name}: {error!r}")
"""


def live_calls():
    "Of each live example: its module, its function, and the packages that it names."
    for path in sorted(ROOT.glob("nbs/*/[0-9]*.ipynb")):
        home = f"serving_or.{path.parent.name}.{path.stem.partition('_')[2]}"
        for cell in nbformat.read(path, 4).cells:
            if cell.cell_type != "code" or "\ninteract(" not in "\n" + cell.source:
                continue
            for call in ast.walk(ast.parse(cell.source)):
                if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "interact":
                    named = {k.arg: k.value for k in call.keywords}
                    words = (
                        ast.literal_eval(named["packages"]) if "packages" in named else ("numpy",)
                    )
                    yield home, call.args[0].id, tuple(words)


def test_a_live_function_needs_no_package_that_it_does_not_name():
    "A browser has loaded NumPy and nothing else, so a solver behind a door is not there."
    calls = [(home, name) for home, name, words in live_calls() if words == ("numpy",)]
    assert len(calls) >= 20
    done = subprocess.run(
        [sys.executable, "-c", ALONE],
        input=json.dumps(calls),
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    assert done.stdout == ""
