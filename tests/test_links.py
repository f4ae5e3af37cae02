"""Every link of the built book, and the checker itself on pages that have dead ones."""

import sys

import pytest

from tests.tree import ROOT

sys.path.insert(0, str(ROOT / "book" / "_ext"))
import links


@pytest.fixture
def html(tmp_path):
    """A book of two pages."""
    site = tmp_path / "html"
    (site / "_static").mkdir(parents=True)
    (site / "lite/files/nbs").mkdir(parents=True)
    (site / "lite/index.html").write_text("")
    (site / "lite/files/nbs/01_x.ipynb").write_text("{}")
    (site / "_static/live.json").write_text('{"wheel": "a.whl"}')
    (site / "_static/a.whl").write_text("")
    (site / "b.html").write_text('<h1 id="here">B</h1><a name="old"></a>')
    return site


@pytest.mark.parametrize(
    "tag, why",
    [
        ('<a href="b.html#here">', ""),
        ('<a href="b.html#old">', ""),
        ('<a href="#top">', ""),
        ('<a href="https://example.org/a">', ""),
        ('<a href="lite/index.html?path=nbs/01_x.ipynb">', ""),
        ('<div data-call="serving_or.tools.live:slowest_first">', ""),
        ('<a href="c.html">', "no such file"),
        ('<a href="b.html#there">', "no such anchor"),
        ('<a href="#there">', "no such anchor"),
        ('<img src="_static/b.png">', "no such file"),
        ('<a href="../../b.html">', "leaves the site"),
        ('<a href="https://example/a">', "has no host"),
        ('<a href="ftp://example.org/a">', "is neither http nor https"),
        ('<a href="lite/index.html?path=nbs/02_y.ipynb">', "no such notebook"),
        ('<div data-call="serving_or.tools.live:slowest">', "no such function"),
        ('<div data-call="serving_or.tools.lively:slowest_first">', "no such module"),
    ],
)
def test_what_is_alive_and_what_is_dead(html, tag, why):
    (html / "a.html").write_text(f'<html><body id="body">{tag}</body></html>')
    _, dead, _ = links.check(html)
    assert [reason for _, _, reason in dead] == ([why] if why else [])


def test_a_wheel_that_is_not_there_is_a_dead_link(html):
    (html / "_static/a.whl").unlink()
    assert [where for where, *_ in links.check(html)[1]] == ["_static/live.json"]


def test_no_link_of_the_book_is_dead(book, capsys):
    counted, dead, outside = links.check(book)
    with capsys.disabled():
        print("\n" + links.said(counted, dead))
    assert not dead, "\n".join(map(str, dead[:20]))
    assert counted["pages"] >= 100 and counted["inside"] >= 5000 and outside
