"""What the book asks of Sphinx beyond what it has.

* Notebooks are read with their nbdev directives turned into cell tags, so the sources keep their
  ``#|`` lines and the reader never sees one.
* A chapter is run again when its text, or a module or data file that it imports, has changed.
* A cell's caption becomes a directive behind it (`captions`), its directives are told to what
  folds code (`folds`), and under a chapter's claim stand what to read before and its module.
* The formulas' scripts and the wheel for the live examples are put beside the pages.
"""

import ast
import hashlib
import re
import shutil
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import nbformat
from captions import of_cell
from chapter_numbers import number_of
from witness import TELL, WATCH

ROOT = Path(__file__).parents[2]
PACKAGE = "serving_or"
DIRECTIVE = re.compile(r"^#\s*\|\s*(?P<name>[\w-]+)\s*:?\s*(?P<value>.*?)\s*$")

# directive (and value, where it matters) -> the MyST-NB tag that does the same
TAGS = {
    ("hide", None): "remove-cell",
    ("default_exp", None): "remove-cell",
    ("hide_input", None): "remove-input",
    ("hide_output", None): "remove-output",
    ("echo", "false"): "remove-input",
    ("output", "false"): "remove-output",
    ("eval", "false"): "skip-execution",
}


def split_directives(source):
    "Return the leading ``#|`` lines of a cell as (name, value) pairs, and the rest."
    found, lines = [], source.splitlines(keepends=True)
    while lines and (hit := DIRECTIVE.match(lines[0].strip())):
        found.append((hit["name"], hit["value"]))
        lines.pop(0)
    return found, "".join(lines).lstrip("\n")


def module_file(name):
    "The file of a module of the package, or None."
    base = ROOT.joinpath(*name.split("."))
    return next((p for p in (base.with_suffix(".py"), base / "__init__.py") if p.is_file()), None)


def all_modules():
    "The package's modules, name to file."
    files = (ROOT / PACKAGE).rglob("*.py")
    return {".".join(p.relative_to(ROOT).with_suffix("").parts): p for p in files}


def imports(source, package=""):
    "Names of the package's modules that a piece of Python imports, wherever the import stands."
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")
            parent = above[: len(above) + 1 - node.level] if node.level else []
            base = ".".join([*parent, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{a.name}" for a in node.names)


@cache
def module_imports(name):
    "Modules of the package that one of its modules imports directly, its parents included."
    path = module_file(name)
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    named = imports(path.read_text(encoding="utf-8"), package)
    found = {n for n in named if n.startswith(PACKAGE) and module_file(n)}
    # nbdev's index of all names changes with every chapter, and no result depends on it.
    found.discard(f"{PACKAGE}._modidx")
    return frozenset(found | ({package} if package and package != name else set()))


def dependencies(sources):
    "All modules of the package behind some cells, following imports to the end."
    todo, seen = set(), set()
    for source in sources:
        try:
            todo |= {n for n in imports(source) if n.startswith(PACKAGE) and module_file(n)}
        except SyntaxError:  # a cell with magics: assume that it may use anything
            todo |= set(all_modules())
    todo = {n.removesuffix(".__init__") for n in todo}
    while todo:
        name = todo.pop()
        seen.add(name)
        todo |= module_imports(name) - seen
    return sorted(seen)


def digest(modules, own=""):
    """A short hash of some modules, and of the data if the data module is among them.

    It may also be the chapter's own module, whose code runs in the chapter.
    """
    files = [module_file(m) for m in modules]
    if f"{PACKAGE}.tools.data" in (*modules, f"{PACKAGE}.{own}"):
        files += sorted(p for p in (ROOT / PACKAGE / "data").rglob("*") if p.is_file())
    h = hashlib.sha256()
    for path in files:
        h.update(path.read_bytes())
    return h.hexdigest()[:12]


def of_files(names=""):
    "A short hash of the files that a page reads, `#| reads: bench/results.json`, from the root."
    read = b"".join((ROOT / name).read_bytes() for name in names.split())
    return hashlib.sha256(read).hexdigest()[:12] if names else ""


def chapter_of(module):
    "The page of a module's chapter, or None."
    part, _, name = module.removeprefix(f"{PACKAGE}.").partition(".")
    found = sorted(ROOT.glob(f"nbs/{part}/*_{name}.ipynb")) if name else []
    return found[0].relative_to(ROOT).with_suffix("").as_posix() if found else None


def title_of(page):
    "The title of a chapter, from its first heading."
    nb = nbformat.read(ROOT / f"{page}.ipynb", as_version=4)
    texts = (cell.source for cell in nb.cells if cell.cell_type == "markdown")
    return next(re.search(r"^# (.*)", text, re.M)[1].strip() for text in texts)


def link_to(page):
    "A link to a chapter, with its number."
    return f"{{doc}}`{number_of(page)} {title_of(page)} </{page}>`"


def before(module):
    "The chapters of the same part on which a module rests, without those that others rest on."

    def in_part(name):
        part = module.rpartition(".")[0]
        return {n for n in module_imports(name) if n.rpartition(".")[0] == part} - {name}

    direct = in_part(module)
    behind, todo = set(), set().union(*map(in_part, direct)) if direct else set()
    while todo:
        behind |= todo
        todo = set().union(*map(in_part, todo)) - behind
    return sorted(page for name in direct - behind if (page := chapter_of(name)))


def compass(own):
    "Under the claim: what to read before, and the module."
    module = f"{PACKAGE}.{own}"
    if not module_file(module):
        return ""
    parts = [", ".join(map(link_to, before(module)))]
    said = f"Rests on {parts[0]}. " if parts[0] else ""
    said += f"Module {{doc}}`{module} </book/reference/{own}>`."
    return f"\n:::{{container}} compass\n{said}\n:::\n"


def with_captions(nb, module):
    "Behind each cell that has a caption, a cell with the directive that numbers it."
    cells = []
    for cell in nb.cells:
        cells.append(cell)
        if cell.cell_type == "code" and "remove-cell" not in cell.metadata.get("tags", []):
            found = of_cell(cell.source, cell.metadata["told"], module)
            if found:
                text = "::::{{cell-caption}} {}\n{}\n::::".format(*found)
                cells.append(nbformat.v4.new_markdown_cell(text))
    nb.cells = cells


STYLE = "from serving_or.tools.plots import style\nstyle()"


def with_style(nb):
    "Matplotlib's figures in the book's style, where a chapter has any."
    code = [cell for cell in nb.cells if cell.cell_type == "code"]
    if any(re.search(r"^import matplotlib|plt\.|\.plot\b", cell.source, re.M) for cell in code):
        hidden = nbformat.v4.new_code_cell(STYLE, metadata={"tags": ["remove-cell"], "told": {}})
        nb.cells.insert(nb.cells.index(code[0]) + 1, hidden)


def read_notebook(text):
    "Parse notebook JSON, turning nbdev directives into MyST-NB cell tags."
    nb = nbformat.reads(text, as_version=4)
    code = [cell for cell in nb.cells if cell.cell_type == "code"]
    module_imports.cache_clear()
    sources = [cell.source for cell in code]
    own = [value for name, value in split_directives(sources[0])[0] if name == "default_exp"]
    reads = [value for name, value in split_directives(sources[0])[0] if name == "reads"]
    stamp = digest(dependencies(sources), *own) + of_files(*reads)
    for cell in code:
        directives, cell.source = split_directives(cell.source)
        tags = cell.metadata.setdefault("tags", [])
        for name, value in directives:
            tag = TAGS.get((name, value.lower())) or TAGS.get((name, None))
            if tag and tag not in tags:
                tags.append(tag)
        cell.metadata["told"] = dict(directives)
        if not cell.source.strip() and "remove-cell" not in tags:
            tags.append("remove-cell")
    title = next((cell for cell in nb.cells if cell.cell_type == "markdown"), None)
    if own and title is not None:
        claim = re.search(r"^>.*\n?(>.*\n?)*", title.source, re.M)
        end = claim.end() if claim else len(title.source)
        title.source = f"{title.source[:end]}{compass(own[0])}\n{title.source[end:]}"
    with_captions(nb, own[0].rpartition(".")[2] if own else "page")
    with_style(nb)
    # The execution cache looks at cells alone: this one carries what they import. It is the last,
    # so that the title stays first.
    last, tags = f"# imports {stamp}", ["remove-cell"]
    if own:  # a chapter says what its run needed, for the links under its claim
        watch = nbformat.v4.new_code_cell(WATCH, metadata={"tags": tags, "told": {}})
        nb.cells.insert(nb.cells.index(code[0]) + 1, watch)
        last, tags = last + TELL, ["remove-input"]
    nb.cells.append(nbformat.v4.new_code_cell(last, metadata={"tags": tags}))
    return nb


MATHJAX = (
    *("startup.js", "core.js", "input/tex.js", "output/chtml.js", "output/chtml/fonts/tex.js"),
    *("a11y/assistive-mml.js", "output/chtml/fonts/woff-v2"),
)


def add_static(app, config):
    "Where it has been built, the wheel of the live examples stands beside the pages."
    live = ROOT / "book/_build/live"
    if live.is_dir():
        config.html_static_path.append(str(live))


def add_formulas(app, wrong):
    "The scripts and fonts that draw formulas: those of MathJax that the pages use."
    if wrong or app.builder.name != "html":
        return
    package = Path(find_spec("sphinx-mathjax-offline").origin).parent
    for name in MATHJAX:
        source, to = package / "static/mathjax" / name, Path(app.outdir, "_static/mathjax", name)
        to.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, to, dirs_exist_ok=True)
        else:
            shutil.copy2(source, to)


def without_thebe(app, config):
    """Take out Thebe, which Jupyter Book always adds.

    It declares its script twice on a page and asks a network for kernels; live.js does its work.
    """
    for listeners in app.events.listeners.values():
        for listener in [e for e in listeners if e.handler.__module__.startswith("sphinx_thebe")]:
            app.disconnect(listener.id)
    app.registry.css_files[:] = [file for file in app.registry.css_files if "thebe" not in file[0]]


def setup(app):
    app.connect("config-inited", without_thebe)
    app.connect("config-inited", add_static)
    app.connect("build-finished", add_formulas)
    others = ("folds", "captions", "chapter_numbers", "reference", "pages", "front", "results")
    for other in (*others, "launch"):
        app.setup_extension(other)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
