"""The reference: a page a module, its front doors first, with links to its chapter and back.

The pages are written before Sphinx reads its sources, into `book/reference/`, which is not
committed; a new chapter has its page by itself.
"""

import ast
import re

from nbdev_book import PACKAGE, ROOT, all_modules, chapter_of, link_to

FOLDER = ROOT / "book/reference"
PARTS = {"fleet": "Fleet", "experts": "Experts", "blocks": "Blocks", "cli": "The command line"}


def front_doors(part):
    "The doors of a part: name to the module that has it, in the part's own order."
    path = ROOT / PACKAGE / part / "__init__.py"
    doors = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            above = f"{PACKAGE}.{part}".split(".")[: 3 - node.level] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            doors |= {alias.asname or alias.name: f"{module}.{alias.name}" for alias in node.names}
    return doors


def public(tree):
    "The names of `__all__`, or all that are given and do not begin with an underscore."
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return list(ast.literal_eval(node.value))
    return [n.name for n in tree.body if hasattr(n, "name") and not n.name.startswith("_")]


def entries(name, path):
    "Of each public name of a module: its kind, the first line of its docstring, and itself."
    tree = ast.parse(path.read_text(encoding="utf-8"))
    given = {n.name: n for n in tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    for public_name in public(tree):
        node = given.get(public_name)
        if node is None:
            yield public_name, "data", ""
            continue
        kind = "class" if isinstance(node, ast.ClassDef) else "function"
        yield public_name, kind, " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())


def described(name, kind):
    "The directive that writes one name's entry."
    more = "\n   :members:" if kind == "class" else "\n   :no-value:" if kind == "data" else ""
    return f"```{{eval-rst}}\n.. auto{kind}:: {name}{more}\n```\n"


def claim(path):
    "What a module says of itself."
    said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(said.split())


def page(name, path):
    "The page of one module."
    own = name.removeprefix(f"{PACKAGE}.")
    doors = front_doors(own.partition(".")[0]) if "." in own else {}
    first = [n for n, target in doors.items() if target == f"{name}.{n}"]
    found = {n: kind for n, kind, _ in entries(name, path)}
    chapter = chapter_of(name)
    lines = [f"# {own}\n", f"{claim(path)}\n"]
    if chapter:
        lines.append(f"Derived and explained in {link_to(chapter)}.\n")
    lines.append(f"```{{eval-rst}}\n.. py:module:: {name}\n```\n")
    part = own.partition(".")[0]
    if first:
        usage = f"`from {PACKAGE} import {part}`, then `{part}.{first[0]}`."
        lines.append(f"## Front doors\n\n{usage}\n")
        lines += [described(f"{name}.{n}", found[n]) for n in first if n in found]
    rest = [n for n in found if n not in first]
    if rest:
        head = "Further names" if first else "Names"
        lines.append(f"## {head}\n\n`from {name} import {rest[0]}`.\n")
        lines += [described(f"{name}.{n}", found[n]) for n in rest]
    return "\n".join(lines)


def summary(target):
    "The first sentence of a door's docstring."
    module, _, name = target.rpartition(".")
    path = all_modules().get(module)
    said = {n: s for n, _, s in entries(module, path)} if path else {}
    text = said.get(name, "")
    return re.split(r"(?<=[.:]) ", text)[0]


def listed():
    "The list of all parts: doors with a sentence each, then the modules."
    lines = []
    for path in sorted((ROOT / PACKAGE).glob("*/__init__.py")):
        part = path.parent.name
        said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        lines.append(f"\n## {PARTS.get(part, part.capitalize())}\n\n{said}\n")
        doors = front_doors(part)
        if doors:
            lines.append("| door | |\n|---|---|")
            lines += [
                f"| {{py:obj}}`{part}.{name} <{target}>` | {summary(target).replace('|', ' ')} |"
                for name, target in doors.items()
            ]
        own = [n.removeprefix(f"{PACKAGE}.") for n in modules() if n.split(".")[1] == part]
        lines.append("\nModules: " + ", ".join(f"{{doc}}`{n} </book/reference/{n}>`" for n in own))
    return "\n".join(lines) + "\n"


def modules():
    "The modules that have a page, in the order of their chapters."

    def place(name):
        return (name.split(".")[1], chapter_of(name) or "~", name)

    names = all_modules().items()
    known = [n for n, p in names if not p.name.startswith("_") and n.count(".") == 2]
    return sorted(known, key=place)


def write(app=None):
    "All pages, those that are no longer ones removed; a page that is as before is left alone."
    FOLDER.mkdir(exist_ok=True)
    new = {n.removeprefix(f"{PACKAGE}."): page(n, all_modules()[n]) for n in modules()}
    for path in FOLDER.glob("*.md"):
        if path.stem not in new:
            path.unlink()
    for own, text in new.items():
        path = FOLDER / f"{own}.md"
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def fill(app, docname, source):
    if docname == "book/api":
        source[0] += listed()


def setup(app):
    write()
    app.connect("source-read", fill)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
