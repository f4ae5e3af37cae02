"""Where a chapter can be run: in the reader's browser, on Binder, on Colab, or as a download.

Under a chapter's claim stand the links; where a browser cannot run it, the reason. Which of the
two is not written by hand: a chapter's run tells what it loaded and asked for (`witness`), and
`pyodide.json` tells what Python in a browser carries, by the interpreter's own list.
"""

import ast
import json
import re
from configparser import ConfigParser
from functools import cache
from html import unescape
from importlib.metadata import packages_distributions
from pathlib import Path

import nbformat
from docutils import nodes
from nbdev_book import ROOT, split_directives

# Packages of pure Python that Pyodide does not carry; the book's site does, beside our own wheel.
OWN = ("ipywidgets", "comm", "jupyterlab_widgets")
# Solvers that Pyodide carries, and on which no chapter has been run there.
UNTRIED = {"highspy", "cvxpy"}
NAMES = {"highspy": "HiGHS", "cvxpy": "CVXPY", "pyyaml": "PyYAML", "numpy": "NumPy"}
EXTRAS = ("fast", "engines", "cluster", "dev", "bench")


@cache
def settings():
    "The project's settings."
    ini = ConfigParser(delimiters=["="])
    ini.read(ROOT / "settings.ini", encoding="utf-8")
    return ini["DEFAULT"]


@cache
def carried():
    "What Pyodide carries of what the project asks for, name to version; and Pyodide's version."
    return json.loads(Path(__file__).with_name("pyodide.json").read_text(encoding="utf-8"))


def plain(name):
    "A distribution's name as indices compare it."
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def asked_for(*extras):
    "Names of the distributions that the project, or some of its extras, asks for."
    words = [f"{extra}_requirements" for extra in extras] or ["requirements"]
    found = " ".join(settings()[word] for word in words).split()
    return {plain(re.split(r"[<>=!~\[]", name)[0]) for name in found}


@cache
def distributions():
    "Names of distributions, by what is imported."
    return {name: {plain(d) for d in found} for name, found in packages_distributions().items()}


def imported(sources):
    "Top-level names that some cells import themselves, not in a function that may do without."
    for source in sources:
        try:
            tree = ast.parse(source)
        except SyntaxError:  # a cell with magics
            continue
        for node in tree.body:
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module.partition(".")[0]


def needs(told, sources):
    """The distributions that a chapter needs.

    Those of an extra count where a cell imports them: the package does without.
    """

    def known(names):
        return set().union(*(distributions().get(name, set()) for name in names))

    extra = asked_for(*EXTRAS) - asked_for()
    return (known(told["packages"]) & asked_for()) | (known(imported(sources)) & extra)


def why_not(told, sources):
    "Why a browser cannot run a chapter, in words; empty where it can."
    wanted = needs(told, sources) - {plain(name) for name in OWN}
    have = set(carried()["packages"])
    missing = sorted(NAMES.get(name, name) for name in wanted - have - UNTRIED)
    untried = sorted(NAMES[name] for name in wanted & UNTRIED)
    said = [f"it needs {' and '.join(missing)}, which Pyodide does not carry"] if missing else []
    said += [f"it solves with {' and '.join(untried)}, not tried there"] if untried else []
    asks = [what for what in told["asks"] if what in ("processes", "threads", "sockets")]
    said += [f"it starts {' and '.join(asks)}, which a page has not"] if asks else []
    return "; ".join(said)


def addresses(page):
    "Where Binder and Colab open a chapter."
    of = settings()
    binder = f"https://mybinder.org/v2/gh/{of['user']}/{of['repo']}/{of['branch']}"
    colab = f"https://colab.research.google.com/github/{of['user']}/{of['repo']}/blob/notebooks"
    return {
        "on Binder": f"{binder}?labpath={page}.ipynb",
        "on Colab": f"{colab}/{page}.ipynb",
    }


def lite_address(page):
    "The chapter in the book's own site of notebooks, seen from its page."
    return f"{'../' * page.count('/')}lite/notebooks/index.html?path={page}.ipynb"


def links(page, why):
    "A line of links, and the reason where a browser cannot run the chapter."
    found = {} if why else {"in this browser": lite_address(page)}
    line = nodes.paragraph("", "Run this chapter: ", classes=["launch"])
    for i, (words, address) in enumerate({**found, **addresses(page)}.items()):
        line += nodes.Text(", " if i else "")
        line += nodes.reference("", words, refuri=address, internal=False)
    line += nodes.Text(f". Not in a browser: {why}." if why else ".")
    return line


def witness_of(doctree):
    "What a chapter's run has told, taken out of its page."
    for raw in list(doctree.findall(nodes.raw)):
        hit = re.search(r'class="witness" data-told="([^"]*)"', raw.astext())
        if hit:
            cell = raw
            while cell.parent is not doctree and "cell" not in cell.get("classes", []):
                cell = cell.parent
            cell.parent.remove(cell)
            return json.loads(unescape(hit[1]))
    return None


def add_links(app, doctree):
    "Under the claim: where the chapter runs."
    page = app.env.docname
    told = witness_of(doctree)
    boxes = [box for box in doctree.findall(nodes.container) if "compass" in box["classes"]]
    if told and boxes and page.startswith("nbs/"):
        boxes[0] += links(page, why_not(told, sources_of(page)))
        app.env.metadata[page]["runs"] = json.dumps(told)


def sources_of(page):
    "The code of a chapter's cells."
    nb = nbformat.read(ROOT / f"{page}.ipynb", as_version=4)
    return [split_directives(c.source)[1] for c in nb.cells if c.cell_type == "code"]


NEEDS = """This notebook is a chapter of *Operations research for serving AI models*. It needs the \
package `serving_or`. Where that is missing, the next cell fetches the wheel from the book's own \
site; in a clone of the repository, `pip install -e .` does the same."""
INSTALL = """from importlib.util import find_spec

if find_spec("serving_or") is None:
    %pip install -q {}"""


def wheel_address():
    "Where the site has the wheel of this very source."
    of = settings()
    wheel = f"{of['lib_name']}-{of['version']}-py3-none-any.whl"
    return f"{of['doc_host']}{of['doc_baseurl']}_static/{wheel}"


def published(path, said, code):
    "A chapter's notebook as a reader gets it: without directives, after two cells of its own."
    nb = nbformat.read(path, as_version=4)
    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.source = split_directives(cell.source)[1]
    first = [
        nbformat.v4.new_markdown_cell(said, id="needs"),
        nbformat.v4.new_code_cell(code, id="install"),
    ]
    nb.cells = first + [cell for cell in nb.cells if cell.source.strip()]
    return nb


def complete_downloads(app, wrong):
    "A notebook that is downloaded says first what it needs, gets it, and has no directives."
    if wrong or app.builder.name != "html":
        return
    for path in Path(app.outdir, "_sources/nbs").rglob("*.ipynb"):
        nbformat.write(published(path, NEEDS, INSTALL.format(wheel_address())), path)
    runs = {page: data["runs"] for page, data in app.env.metadata.items() if "runs" in data}
    told = {page: json.loads(text) for page, text in sorted(runs.items())}
    record = Path(app.outdir).parent / "runs.json"
    record.write_text(json.dumps(told, indent=1), encoding="utf-8")


def setup(app):
    app.connect("doctree-read", add_links)
    app.connect("build-finished", complete_downloads)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
