"""Where a chapter can be run: in a browser, on Binder, on Colab, as a download that gets its own.

JupyterLite's own kernel is run with the interpreter that it wants, of which no index has NumPy: so
the package is installed and imported there, and a widget is drawn; no chapter with NumPy runs in
it. Chapters themselves are run, cell by cell, in the older interpreter of the live examples.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import threading
import venv
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import nbformat
import pytest

from tests.conftest import Quiet
from tests.long import LONG
from tests.test_browser import download_pyodide
from tests.tree import ROOT, alone, run

sys.path.insert(0, str(ROOT / "book" / "_ext"))
import launch
import lite
import witness

CHAPTERS = sorted(
    path.relative_to(ROOT).with_suffix("").as_posix() for path in ROOT.glob("nbs/*/[0-9]*.ipynb")
)
ANSWERS = "nbs/tools/01_answers"


def told_by(cells):
    "What a run of some cells tells, in a process of its own."
    show = "display = print\nHTML = str\n"
    tell = witness.TELL.replace("    from IPython.display import HTML, display\n", "")
    code = "\n".join([witness.WATCH, show, *cells, tell])
    # a cell of a notebook is compiled under the kernel's name for it
    code = f"exec(compile({code!r}, '/tmp/ipykernel_1/1.py', 'exec'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(re.search(r'data-told="(.*?)"', done.stdout)[1].replace("&quot;", '"'))


def test_a_run_tells_what_it_loaded_and_asked_for():
    assert told_by(["import json", "x = 1"]) == {"packages": [], "asks": []}
    assert "numpy" in told_by(["import numpy"])["packages"]
    start = "import threading; t = threading.Thread(target=print); t.start(); t.join()"
    assert told_by([start])["asks"] == ["threads"]
    call = "import subprocess, sys; subprocess.run([sys.executable, '-c', ''])"
    assert told_by([call])["asks"] == ["processes"]
    grid = "from serving_or.tools.sweeps import Grid, fill; grid = Grid({'x': [1, 2]})"
    one = "table = fill(lambda rng, x: {'y': x}, grid, workers=WORKERS)"
    assert told_by([grid, one.replace("WORKERS", "1")])["asks"] == []
    assert told_by([grid, one.replace("WORKERS", "2")])["asks"] == ["processes"]


@pytest.mark.parametrize(
    "packages, asks, cells, words",
    [
        (["numpy", "scipy", "pandas"], [], [], ""),
        (["numpy", "highspy"], [], [], "HiGHS"),
        (["cvxpy", "scipy"], [], [], "CVXPY"),
        (["numpy", "typer"], [], [], "typer, which Pyodide does not carry"),
        # the package does without, a cell does not
        (["numba"], [], ["def f():\n    import numba"], ""),
        (["numba"], [], ["import numba"], "numba"),
        ([], ["threads"], [], "starts threads"),
        (["ipywidgets", "comm"], [], [], ""),
    ],
)
def test_why_a_browser_cannot_run_a_chapter(packages, asks, cells, words):
    said = launch.why_not({"packages": packages, "asks": asks}, cells)
    assert words in said and bool(said) == bool(words)


def version(text):
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def test_what_a_browser_carries_is_new_enough_and_of_the_kernel_s_release():
    assert launch.carried()["version"] == lite.version()
    least = dict(re.findall(r"(\S+)>=(\S+)", launch.settings()["requirements"]))
    have = launch.carried()["packages"]
    compared = {name for name in least if name in have}
    assert {"numpy", "scipy", "pandas", "matplotlib", "networkx", "pydantic"} <= compared
    assert not [name for name in compared if version(have[name]) < version(least[name])]


def test_an_own_wheel_installs(tmp_path):
    wheels = [lite.packed(name, tmp_path) for name in launch.OWN]
    to = tmp_path / "to"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--no-index", "--target", to, *wheels], check=True, capture_output=True)
    code = "import comm, ipywidgets; print(ipywidgets.__file__)"
    env = {"PYTHONPATH": str(to)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert str(to) in done.stdout, done.stderr


class Notebook:
    """A published notebook, its first two cells and the rest."""

    def __init__(self, path):
        self.nb = nbformat.read(path, as_version=4)
        nbformat.validate(self.nb)
        self.said, self.install, *self.rest = self.nb.cells


@pytest.mark.parametrize("page", CHAPTERS)
def test_a_published_notebook_gets_what_it_needs(page):
    nb = launch.published(ROOT / f"{page}.ipynb", launch.NEEDS, "install()")
    nbformat.validate(nb)
    assert nb.cells[0].source == launch.NEEDS and nb.cells[1].source == "install()"
    assert nb.cells[2].source.startswith("# ")
    assert not any(cell.source.startswith("#|") for cell in nb.cells)
    assert not any(cell.get("outputs") for cell in nb.cells)


def runs(book):
    return json.loads((book.parent / "runs.json").read_text(encoding="utf-8"))


def test_every_chapter_says_where_it_runs(book, capsys):
    """Under its claim: Binder and Colab, and the browser or the reason; notebooks are there."""
    told = runs(book)
    assert sorted(told) == CHAPTERS
    inside = []
    of = launch.settings()
    for page in CHAPTERS:
        html = (book / f"{page}.html").read_text(encoding="utf-8")
        assert 'class="witness"' not in html, page
        line = re.search(r'<p class="launch">(.*?)</p>', html, re.S)[1]
        links = dict(re.findall(r'href="([^"]*)">(.*?)</a>', line))
        links = {words: address.replace("&amp;", "&") for address, words in links.items()}
        binder, colab = urlsplit(links["on Binder"]), urlsplit(links["on Colab"])
        assert binder.path == f"/v2/gh/{of['user']}/{of['repo']}/{of['branch']}"
        assert parse_qs(binder.query) == {"labpath": [f"{page}.ipynb"]}
        assert colab.path == f"/github/{of['user']}/{of['repo']}/blob/notebooks/{page}.ipynb"
        why = launch.why_not(told[page], launch.sources_of(page))
        if why:
            assert "in this browser" not in links and "Not in a browser: it " in line
        else:
            inside.append(page)
            address = urlsplit(links["in this browser"])
            assert ((book / page).parent / address.path).resolve().is_file()
            (asked,) = parse_qs(address.query)["path"]
            assert Notebook(book / "lite/files" / asked).install.source.startswith("import piplite")
        download = Notebook(book / "_sources" / f"{page}.ipynb")
        assert launch.wheel_address() in download.install.source
    assert len(inside) >= 15
    with capsys.disabled():
        print(f"\n{len(inside)} of {len(CHAPTERS)} chapters run in a browser")


def test_the_site_of_notebooks_is_whole_and_small(book):
    site = book / "lite"
    size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    if not (site / "pyodide").exists():
        assert size <= 30e6, f"{size / 1e6:.1f} MB"
    index = json.loads((site / "pypi/all.json").read_text())
    assert {"serving-or", "ipywidgets", "comm"} <= {launch.plain(name) for name in index}
    (wheel,) = (site / "pypi").glob("serving_or-*.whl")
    live = json.loads((book / "_static/live.json").read_text())["wheel"]
    assert wheel.read_bytes() == (book / "_static" / live).read_bytes()
    for folder in [site / "files", *(p for p in (site / "files").rglob("*") if p.is_dir())]:
        listing = site / "api/contents" / folder.relative_to(site / "files") / "all.json"
        names = {entry["name"] for entry in json.loads(listing.read_text())["content"]}
        assert names == {path.name for path in folder.iterdir()}
    config = json.loads((site / "jupyter-lite.json").read_text())["jupyter-config-data"]
    assert config["contentsAllJsonFile"] == "all.json"
    names = {extension["name"] for extension in config["federated_extensions"]}
    assert names == set(lite.EXTENSIONS)


def test_a_download_installs_the_package_where_it_is_missing_and_only_there(book, tmp_path):
    """In an environment that has the libraries and not the package, then again in the same."""
    nb = Notebook(book / "_sources" / f"{ANSWERS}.ipynb")
    address = re.search(r"%pip install -q (\S+)", nb.install.source)[1]
    wheel = book / "_static" / address.rpartition("/")[2]
    assert wheel.is_file()
    code = nb.install.source.replace(address, str(wheel))
    venv.create(tmp_path / "venv", with_pip=True)
    (packages,) = (tmp_path / "venv/lib").glob("python*/site-packages")
    # what is installed here, but for the clone's own package, which lies on a path of its own
    ours = Path(nbformat.__file__).parents[1]
    (packages / "libraries.pth").write_text(f"{ours}\n")
    python = tmp_path / "venv/bin/python"
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    program = [
        "from IPython.core.interactiveshell import InteractiveShell",
        "import json, sys",
        "shell = InteractiveShell.instance()",
        "for source in json.load(sys.stdin):",
        "    shell.run_cell(source).raise_error()",
        "import serving_or; print('FROM', serving_or.__file__)",
    ]
    sources = [code, *(cell.source for cell in nb.rest if cell.cell_type == "code")]
    for times in range(2):
        done = subprocess.run(
            [python, "-c", "\n".join(program)],
            input=json.dumps(sources),
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=env,
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
        assert f"FROM {packages}" in done.stdout
        # the second time nothing is asked of pip: its word on a restarted kernel is not said
        assert ("restart the kernel" in done.stdout) == (times == 0), done.stdout


@pytest.fixture(scope="session")
def kernels_own():
    """A folder with the interpreter that JupyterLite's kernel wants, and the kernel's libraries.

    The interpreter is from npm, the libraries of pure Python from the package index, in the
    versions of its list. Skips where they do not install.
    """
    folder = ROOT / "build" / f"pyodide-{launch.carried()['version']}"
    with alone("pyodide-kernel"):
        if not (folder / "pyodide.mjs").exists() and not assemble(folder):
            pytest.skip("skipped: the kernel's interpreter does not install here")
    return folder


def assemble(folder):
    folder.mkdir(parents=True, exist_ok=True)
    spec = f"pyodide@{launch.carried()['version']}"
    try:
        pack = ["npm", "pack", "--silent", spec, "--pack-destination", folder]
        subprocess.run(pack, check=True, capture_output=True, timeout=120)
        (packed,) = folder.glob("pyodide-*.tgz")
        with tarfile.open(packed) as t:
            for name in ("pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip"):
                (folder / name).write_bytes(t.extractfile(f"package/{name}").read())
            lock = json.load(t.extractfile("package/pyodide-lock.json"))
            script = t.extractfile("package/pyodide.mjs").read()
        files = lite.files_of(lock, lite.FOR_KERNEL)
        entries = [e for e in lock["packages"].values() if e["file_name"] in files]
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder]
        python = ["--python-version", "3.14", "--only-binary", ":all:", "--platform", "any"]
        specs = [f"{e['name']}=={e['version']}" for e in entries]
        done = [*pip, *python, "--implementation", "py", "--abi", "none", *specs]
        subprocess.run(done, check=True, capture_output=True, timeout=240)
    except (OSError, subprocess.SubprocessError):
        return False
    for e in entries:  # the same versions, packed by another hand
        e["sha256"] = hashlib.sha256((folder / e["file_name"]).read_bytes()).hexdigest()
    (folder / "pyodide-lock.json").write_text(json.dumps(lock))
    # last: where it is, all of them are
    (folder / "pyodide.mjs").write_bytes(script)
    return True


def test_the_list_of_what_a_browser_carries_is_the_interpreter_s_own(kernels_own):
    lock = json.loads((kernels_own / "pyodide-lock.json").read_text())
    assert lite.table(lock) == launch.carried()


@pytest.fixture
def notebooks(book, tmp_path):
    """Serves a copy of the book's notebooks, with an interpreter where one is given."""
    servers = []

    def serve(pyodide=None):
        html = tmp_path / "html"
        shutil.copytree(book / "lite", html / "lite")
        if pyodide:
            (html / "_static").mkdir()
            live = json.loads((book / "_static/live.json").read_text())
            for name in ("live.json", live["wheel"]):
                shutil.copy2(book / "_static" / name, html / "_static")
            shutil.copy2(book.parent / "runs.json", tmp_path)
            code, said = run(sys.executable, "book/_ext/lite.py", html, pyodide)
            assert code == 0, said
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=html))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}/lite/notebooks/index.html?path="

    yield serve
    for server in servers:
        server.shutdown()


@pytest.fixture
def tab(browser):
    """A page that reaches this machine only, and keeps what else it asked for."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    page = context.new_page()
    page.foreign = []

    def refuse(route):
        page.foreign.append(route.request.url)
        route.abort()

    here = ("http://127.0.0.1:", "data:", "blob:")
    context.route(lambda url: not url.startswith(here), refuse)
    yield page
    context.close()


def test_the_notebook_opens_and_asks_for_python_only(tab, notebooks):
    tab.goto(f"{notebooks()}{ANSWERS}.ipynb")
    tab.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=60000)
    tab.wait_for_function("document.body.innerText.includes('in a Python that runs')")
    tab.wait_for_timeout(3000)
    host = f"https://cdn.jsdelivr.net/pyodide/v{launch.carried()['version']}/full/"
    assert all(url.startswith(host) for url in tab.foreign), tab.foreign


TRY = """import piplite
await piplite.install(['ipywidgets'])
await piplite.install(['serving_or'], deps=False)
import serving_or, ipywidgets
print('made', serving_or.__version__)
ipywidgets.IntSlider(value=3, description='extra')"""


def test_the_kernel_runs_and_installs_the_package(tab, notebooks, kernels_own, capsys):
    """In the site's own kernel and interpreter; NumPy is not had for it, so no chapter runs."""
    tab.goto(f"{notebooks(kernels_own)}{ANSWERS}.ipynb")
    tab.wait_for_selector(".jp-Notebook .jp-CodeCell .cm-content", timeout=60000)
    tab.wait_for_timeout(2000)
    tab.locator(".jp-Notebook .jp-CodeCell .cm-content").first.click()
    tab.keyboard.press("Control+A")
    tab.keyboard.insert_text(TRY)
    tab.keyboard.press("Shift+Enter")
    shown = "document.querySelector('.jp-OutputArea')?.innerText.includes('made ')"
    tab.wait_for_function(shown, timeout=150000)
    tab.wait_for_selector(".jp-OutputArea .widget-slider", timeout=30000)
    assert not tab.foreign
    with capsys.disabled():
        print("\nrun in JupyterLite's kernel: the package's import, a widget; not run: NumPy")


@pytest.fixture(scope="session")
def older():
    """The interpreter of the live examples, with NumPy, SciPy, pandas and Matplotlib."""
    with alone("pyodide"):
        folder = download_pyodide(ROOT / "build" / "pyodide")
    if folder is None:
        pytest.skip("skipped: no interpreter with NumPy installs here")
    return folder


# A chapter's cells, one after the other, as a notebook runs them; top-level await is allowed there.
CELLS = """async ([cdn, wheel, packages, wheels, sources]) => {
    const { loadPyodide } = await import(cdn + 'pyodide.mjs');
    const py = await loadPyodide({ indexURL: cdn });
    await py.loadPackage([...packages, 'ipython']);
    for (const one of [wheel, ...wheels]) {
        py.unpackArchive(await (await fetch(one)).arrayBuffer(), 'wheel');
    }
    py.globals.set('sources', py.toPy(sources));
    return await py.runPythonAsync(`
import os, sys, time, traceback
from IPython.core.interactiveshell import InteractiveShell
os.environ['MPLBACKEND'] = 'agg'
shell = InteractiveShell.instance()
shell.enable_gui = lambda *a, **k: None
began, said = time.time(), 'ran'
for i, source in enumerate(sources):
    result = shell.run_cell(source, silent=True)
    if not result.success:
        error = result.error_in_exec or result.error_before_exec
        lines = traceback.format_exception(error)[-3:]
        said = f'cell {i}: ' + ''.join(lines)[-600:] + source[:200]
        break
f'{said} in {time.time() - began:.0f} s'
    `);
}"""
# One that takes a second; all of them in a long run.
SAMPLE = ("nbs/tools/01_answers",)


def test_chapters_run_in_a_browser_s_python(browser, book, older, tmp_path, capsys):
    """Those that the older interpreter carries: an error here would be one in the page, too."""
    lock = json.loads((older / "pyodide-lock.json").read_text())
    have = {launch.plain(name) for name in lock["packages"]}
    told = runs(book)
    wanted = {page: launch.needs(t, launch.sources_of(page)) for page, t in told.items()}
    inside = [page for page in told if not launch.why_not(told[page], launch.sources_of(page))]
    able = [page for page in inside if wanted[page] <= have | set(launch.OWN)]
    live = json.loads((book / "_static/live.json").read_text())["wheel"]
    shutil.copy2(book / "_static" / live, tmp_path)
    own = [lite.packed(name, tmp_path).name for name in launch.OWN]
    (tmp_path / "pyodide").symlink_to(older)
    (tmp_path / "page.html").write_text("<!doctype html><title>a page</title>")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    home = f"http://127.0.0.1:{server.server_port}/"
    report, wrong = [], []
    for page in [page for page in able if LONG or page in SAMPLE]:
        context = browser.new_context()
        tab = context.new_page()
        tab.set_default_timeout(600000)
        tab.goto(f"{home}page.html")
        packages = sorted(wanted[page] - set(launch.OWN))
        wheels = [home + name for name in own]
        sources = [source for source in launch.sources_of(page) if source.strip()]
        given = [f"{home}pyodide/", home + live, packages, wheels, sources]
        said = tab.evaluate(CELLS, given)
        context.close()
        report.append(f"{page}: {said}")
        wrong += [report[-1]] if not said.startswith("ran") else []
    server.shutdown()
    with capsys.disabled():
        print(f"\n{len(report)} of {len(inside)} chapters run in a browser's Python: {report}")
        print(f"not had for it: {sorted(set().union(*(wanted[p] for p in inside)) - have)}")
    assert report and not wrong, "\n".join(wrong)
