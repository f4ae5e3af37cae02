"""What the book asks of Sphinx beyond what it has.

* Notebooks are read with their nbdev directives turned into cell tags, so the sources keep their
  ``#|`` lines and the reader never sees one.
* A chapter is run again when its text, or a module or data file that it imports, has changed.
* The reference page lists the doors of each part, then every exported module, so that a new
  chapter is in it by itself.
* The formulas' one script and the wheel for the live examples are put beside the pages.
"""

import ast
import hashlib
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import nbformat

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
    ("code-fold", "true"): "hide-input",
    ("eval", "false"): "skip-execution",
}


def split_directives(source):
    "Return the leading ``#|`` lines of a cell as (name, value) pairs, and the rest."
    found, lines = [], source.splitlines(keepends=True)
    while lines and (hit := DIRECTIVE.match(lines[0].strip())):
        found.append((hit["name"], hit["value"].lower()))
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


def read_notebook(text):
    "Parse notebook JSON, turning nbdev directives into MyST-NB cell tags."
    nb = nbformat.reads(text, as_version=4)
    code = [cell for cell in nb.cells if cell.cell_type == "code"]
    module_imports.cache_clear()
    sources = [cell.source for cell in code]
    own = [value for name, value in split_directives(sources[0])[0] if name == "default_exp"]
    stamp = digest(dependencies(sources), *own)
    for cell in code:
        directives, cell.source = split_directives(cell.source)
        tags = cell.metadata.setdefault("tags", [])
        for name, value in directives:
            tag = TAGS.get((name, value)) or TAGS.get((name, None))
            if tag and tag not in tags:
                tags.append(tag)
        if not cell.source.strip() and "remove-cell" not in tags:
            tags.append("remove-cell")
    # The execution cache looks at cells alone: this one carries what they import. It is the last,
    # so that the title stays first.
    nb.cells.append(
        nbformat.v4.new_code_cell(f"# imports {stamp}", metadata={"tags": ["remove-cell"]})
    )
    return nb


def front_doors():
    "Of each part: its name, what it says of itself, and its doors with their modules."
    for path in sorted((ROOT / PACKAGE).glob("*/__init__.py")):
        tree, part = ast.parse(path.read_text(encoding="utf-8")), f"{PACKAGE}.{path.parent.name}"
        doors = []
        for node in tree.body:
            if isinstance(node, ast.ImportFrom):
                above = part.split(".")[: 3 - node.level] if node.level else []
                module = ".".join([*above, node.module])
                doors += [(alias.name, f"{module}.{alias.name}") for alias in node.names]
        yield part, ast.get_docstring(tree) or "", doors


def list_modules(app, docname, source):
    "Append to the reference page the doors of each part, then one section a module."
    if docname != "book/api":
        return
    for part, said, doors in front_doors():
        listed = ", ".join(f"{{py:obj}}`{name} <{target}>`" for name, target in doors)
        source[0] += f"\n## {part}\n\n{said}\n\n{listed}\n"
    for name, path in sorted(all_modules().items()):
        if path.name.startswith("_"):
            continue
        source[0] += f"\n## {name}\n\n```{{eval-rst}}\n.. automodule:: {name}\n   :members:\n```\n"


def add_static(app, config):
    "Bundle the formulas' script and, where it has been built, the live examples' wheel."
    package = Path(find_spec("sphinx-mathjax-offline").origin).parent
    config.html_static_path.append(str(package / "static/mathjax" / config.mathjax_path))
    live = ROOT / "book/_build/live"
    if live.is_dir():
        config.html_static_path.append(str(live))


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
    app.connect("source-read", list_modules)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
