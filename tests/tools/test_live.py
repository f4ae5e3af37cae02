"Live examples: what a reader may move, what the page holds, and where the package has a function."

import json

import pytest

from serving_or.tools.live import answer, controls, exported, interact, page, show, slowest_first
from serving_or.tools.plots import Picture, bars


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


def test_the_page_holds_every_state_or_the_first():
    found = controls(slowest_first, k=(0, 12))
    html = page(slowest_first, found, ["numpy"])
    states = json.loads(html.split('class="live-states">')[1].split("</script>")[0])
    assert states == {f"[{k}]": slowest_first(k) for k in range(13)}
    many = page(slowest_first, controls(slowest_first, k=(0, 60)), ["numpy"])
    states = json.loads(many.split('class="live-states">')[1].split("</script>")[0])
    assert list(states) == ["[4]"]


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
