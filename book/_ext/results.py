"""What is proved, quoted, measured: every theorem and every figure, from marks in the chapters.

A theorem, lemma, proposition or corollary of a chapter has a proof right behind it, or one further
on that begins ``Of {prf:ref}`label` ``. It may say

    :class: ours         a statement of ours, open for checking
    :class: quoted       no proof here, but a ``{cite}`` in it
    :code: name, part.name, part.module.name

and ``:code:`` names what states or uses it: functions of its own module, front doors of a part, or
functions of another module. A figure or table is measured by its own cell, when the page is built,
unless the cell says where its numbers come from: ``#| source:`` and a work of the bibliography, a
target of the Makefile (``make swarm``) or a file of ``bench/``.

These directives of Markdown pages list what the marks say:

    ```{results}         everything, chapter by chapter
    ```{theorems}        theorems in the order of their names, with what states them
    ```{algorithms}      front doors that optimise or bound, with what is proved for them
"""

import ast
import posixpath
import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cache

import nbformat
from captions import of_call, of_cell
from chapter_numbers import number_of
from contents import parts
from docutils.parsers.rst import directives
from nbdev_book import (
    PACKAGE,
    ROOT,
    all_modules,
    chapter_of,
    link_to,
    module_file,
    split_directives,
)
from reference import PARTS, front_doors, public
from sphinx_proof.directive import ElementDirective

KINDS = ("theorem", "lemma", "proposition", "corollary")
STANDINGS = {
    "proved": "proved here",
    "ours": "ours, open for checking",
    "quoted": "quoted",
    "measured": "measured",
}
OPENED = re.compile(r"^(?P<fence>:{3,}|`{3,})\{prf:(?P<kind>\w+)\} *(?P<title>.*?) *$")
OPTION = re.compile(r"^:(?P<name>\w+): *(?P<value>.*?) *$")
CITED = re.compile(r"\{cite:?\w*\}`([^`]+)`")
PROVES = re.compile(r"^\*?Of \{prf:ref\}`([^`]+)`")
SOURCES = re.compile(r"^\*\*Sources\.\*\*.*(?:\n.+)*", re.M)
BENCH = re.compile(r"`(bench/\w+\.py)`")
COST = re.compile(r"\bO\(")


@dataclass
class Statement:
    """A theorem, lemma, proposition or corollary, and its marks."""

    page: str
    kind: str
    title: str
    label: str
    marks: list = field(default_factory=list)
    code: list = field(default_factory=list)
    cited: list = field(default_factory=list)
    proved: bool = False

    @property
    def standing(self):
        "The word for what it is."
        return next((mark for mark in ("quoted", "ours") if mark in self.marks), "proved")


@dataclass
class Exhibit:
    """A figure or table with a caption; `function` is that of a live example."""

    page: str
    label: str
    caption: str
    function: str
    source: str

    @property
    def standing(self):
        "The word for what it is."
        return "quoted" if is_work(self.source) else "measured"


def is_work(source):
    "Whether a source is one of the bibliography."
    return bool(source) and not source.startswith(("make ", "bench/"))


def blocks(text):
    "The prf: directives of a cell: kind, title, options, content, and what stands before them."
    lines, at, before = text.split("\n"), 0, []
    while at < len(lines):
        hit = OPENED.match(lines[at])
        if not hit:
            before.append(lines[at])
            at += 1
            continue
        body = []
        while (at := at + 1) < len(lines) and lines[at].strip() != hit["fence"]:
            body.append(lines[at])
        options = {}
        while body and (option := OPTION.match(body[0])):
            options[option["name"]] = option["value"]
            body.pop(0)
        said = "\n".join(body).strip()
        yield hit["kind"], hit["title"], options, said, "\n".join(before).strip()
        at, before = at + 1, []


def statements(page, nb):
    "The theorems of a chapter, with whether they have a proof."
    found = []
    for cell in filter(is_text, nb.cells):
        last = None
        for kind, title, options, said, before in blocks(cell.source):
            if kind == "proof":
                named = PROVES.match(said)
                proved = [s for s in found if named and s.label == named[1]]
                if not named and last and not before:
                    proved = [last]
                for statement in proved:
                    statement.proved = True
            last = None
            if kind in KINDS:
                words = [name.strip() for name in options.get("code", "").split(",")]
                keys = [k.strip() for hit in CITED.findall(said) for k in hit.split(",")]
                label, marks = options.get("label", ""), options.get("class", "").split()
                last = Statement(page, kind, title, label, marks, [*filter(None, words)], keys)
                found.append(last)
    return found


def is_text(cell):
    return cell.cell_type == "markdown"


def exhibits(page, nb):
    "The figures and tables of a chapter that have a caption."
    module, found = page.rpartition("/")[2].partition("_")[2], []
    for cell in nb.cells:
        if cell.cell_type == "code":
            told, source = split_directives(cell.source)
            told = dict(told)
            named = of_cell(source, told, module)
            if named:
                live = of_call(source, module)
                function = live[0].split("-", 2)[2] if live else ""
                found.append(Exhibit(page, *named, function, told.get("source", "")))
    return found


@dataclass
class Chapter:
    """What a chapter states and shows, and what it says of its sources."""

    page: str
    statements: list
    exhibits: list
    sources: str


@cache
def read(path):
    "A chapter's marks."
    page = path.relative_to(ROOT).with_suffix("").as_posix()
    nb = nbformat.read(path, as_version=4)
    texts = [hit[0] for c in nb.cells if is_text(c) for hit in SOURCES.finditer(c.source)]
    said = " ".join(texts).replace("**Sources.** ", "")
    return Chapter(page, statements(page, nb), exhibits(page, nb), " ".join(said.split()))


def book():
    "The chapters of the book by part, in its order."
    return {
        caption: [read(ROOT / f"{c.page}.ipynb") for c in chapters]
        for caption, chapters in parts().items()
    }


def targets(statement):
    "The names that a theorem's code stands for, in full; None for one that does not exist."
    part, own = statement.page.split("/")[1:]
    own = f"{PACKAGE}.{part}.{own.partition('_')[2]}"
    found = {}
    for name in statement.code:
        first, _, rest = name.partition(".")
        doors = front_doors(first) if (ROOT / PACKAGE / first / "__init__.py").is_file() else {}
        if rest in doors:
            found[name] = doors[rest]
        elif rest and module_file(f"{PACKAGE}.{name.rpartition('.')[0]}"):
            found[name] = known(f"{PACKAGE}.{name.rpartition('.')[0]}", name.rpartition(".")[2])
        else:
            found[name] = known(own, name)
    return found


def known(module, name):
    "A public name of a module in full, or None."
    path = module_file(module)
    return f"{module}.{name}" if path and name in public(tree_of(path)) else None


@cache
def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"))


# Pages ------------------------------------------------------------------------------------------


def in_cell(text):
    "Markdown for a cell of a table."
    return " ".join(text.split()).replace("|", "\\|")


def linked(target, name=None):
    "A link to a name's entry in the reference."
    return f"{{py:obj}}`{name or target.rpartition('.')[2]} <{target}>`"


def codes(statement):
    "Links to what states a theorem."
    return ", ".join(linked(target) for target in targets(statement).values() if target)


def standing_of(statement):
    "The standing of a theorem, with its source if it is quoted."
    if statement.standing == "quoted":
        return f"quoted {{cite:p}}`{','.join(statement.cited)}`"
    return STANDINGS[statement.standing]


def measured_by(exhibit):
    "The standing of a figure, in words."
    if is_work(exhibit.source):
        return f"quoted {{cite:p}}`{exhibit.source}`"
    if exhibit.source:
        return f"measured by `{exhibit.source}`"
    return "live, computed" if exhibit.function else "measured"


def seen_from_book(text, part):
    "A chapter's words, with its links as they are from a page of `book/`."

    def moved(hit):
        return f"]({posixpath.normpath(posixpath.join(f'../nbs/{part}', hit[1]))}"

    return re.sub(r"\]\((?!https?:|#)([^)#\s]+)", moved, text)


def counted(chapters):
    "How many there are of each standing."
    return Counter(
        item.standing for chapter in chapters for item in (*chapter.statements, *chapter.exhibits)
    )


def fold(title, lines):
    "Lines behind a title that opens them."
    return [f"::::{{dropdown}} {title}", *lines, "::::", ""]


def of_chapter(chapter):
    "One chapter: its theorems in view, its figures and its sources one click away."
    lines = [f"### {link_to(chapter.page)}", ""]
    if chapter.statements:
        lines += ["| | says | standing |", "|---|---|---|"]
        lines += [
            f"| {{prf:ref}}`{s.label}` | {in_cell(s.title)} | {standing_of(s)} |"
            for s in chapter.statements
        ]
        lines.append("")
    if chapter.exhibits:
        rows = ["| | shows | standing |", "|---|---|---|"]
        rows += [
            f"| {{numref}}`{e.label}` | {in_cell(e.caption)} | {measured_by(e)} |"
            for e in chapter.exhibits
        ]
        n = len(chapter.exhibits)
        lines += fold(f"{n} figures and tables" if n > 1 else "A figure or table", rows)
    if chapter.sources:
        said = seen_from_book(chapter.sources, chapter.page.split("/")[1])
        lines += fold("What the chapter says of its sources", [said])
    return lines


def everything():
    "All parts, chapter by chapter, behind the counts."
    found = book()
    heads = list(STANDINGS)
    lines = ["| part | " + " | ".join(STANDINGS[h] for h in heads) + " |"]
    lines.append("|---|" + "---:|" * len(heads))
    for caption, chapters in found.items():
        counts = counted(chapters)
        lines.append(f"| {caption} | " + " | ".join(str(counts[h]) for h in heads) + " |")
    for caption, chapters in found.items():
        lines += ["", f"## {caption}", ""]
        for chapter in chapters:
            if chapter.statements or chapter.exhibits:
                lines += of_chapter(chapter)
    return lines


def by_name(statement):
    "Its place among names: letters and digits only."
    return re.sub(r"[^a-z0-9 ]", "", statement.title.lower()).strip()


def all_theorems():
    "Theorems of each part in the order of their names."
    lines = []
    for caption, chapters in book().items():
        found = sorted((s for c in chapters for s in c.statements), key=by_name)
        if found:
            lines += [
                "",
                f"## {caption}",
                "",
                "| name | | in code | standing |",
                "|---|---|---|---|",
            ]
            lines += [
                f"| {in_cell(s.title)} | {{prf:ref}}`{s.label}` | {codes(s)} | {standing_of(s)} |"
                for s in found
            ]
    return lines


# Algorithms -------------------------------------------------------------------------------------


def definition(target):
    "The syntax tree of a function or class, or None."
    module, _, name = target.rpartition(".")
    path = module_file(module)
    body = tree_of(path).body if path else []
    return next((node for node in body if getattr(node, "name", "") == name), None)


@cache
def results():
    "The classes that have a value, a bound and a status: those that derive from Result."
    bases = {}
    for path in all_modules().values():
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef):
                bases[node.name] = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    found = {"Result"}
    while more := {name for name, of in bases.items() if of & found} - found:
        found |= more
    return found


def answer(node):
    "What a door returns: value and bound, a bound, or nothing of the kind."
    given = ast.unparse(node.returns).strip("'\"") if getattr(node, "returns", None) else ""
    names = set(re.findall(r"\w+", given))
    if names & results():
        return "value, bound"
    if node.name.endswith("bound") or names & {"Bound", "Relaxation", "Certificate"}:
        return "bound"
    return ""


def does(node):
    "What a door does, and how much work it is: sentences of its docstring."
    said = ast.get_docstring(node) or ""
    # without the names of its sections
    said = " ".join(re.sub(r"^.*\n-+$", "", said, flags=re.M).split())
    first = re.split(r"(?<=\.) ", said)[0]
    work = [part.rstrip(".;:") for part in re.split(r"(?<=[.;:]) ", said) if COST.search(part)]
    return first + (f" *Work:* {work[0]}." if work else "")


def algorithms(part):
    "Doors of a part that optimise or bound: name, entry, definition, answer, theorems."
    rest_on = {}
    for chapters in book().values():
        for chapter in chapters:
            for statement in chapter.statements:
                for target in targets(statement).values():
                    rest_on.setdefault(target, []).append(statement)
    for name, target in doors_of(part).items():
        node = definition(target)
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) or node.name in results():
            continue
        given, proved = answer(node), rest_on.get(target, [])
        if given or proved:
            yield name, target, node, given, proved


def doors_of(part):
    "Front doors of a part; of the tools, all that is public."
    if part != "tools":
        doors = front_doors(part)
        order = public(tree_of(ROOT / PACKAGE / part / "__init__.py"))
        return {name: doors[name] for name in order if name in doors}
    names = [n for n in all_modules() if n.startswith(f"{PACKAGE}.tools.")]
    return {n: f"{m}.{n}" for m in sorted(names) for n in public(tree_of(module_file(m)))}


def all_algorithms():
    "The table of each part."
    lines = []
    for part in ("fleet", "experts", "blocks", "tools"):
        lines += ["", f"## {PARTS.get(part, part.capitalize())}", ""]
        lines += ["| | does | returns | proved for it | chapter |", "|---|---|---|---|---|"]
        for name, target, node, given, proved in algorithms(part):
            on = ", ".join(f"{{prf:ref}}`{s.label}` {s.title}" for s in proved)
            page = chapter_of(target.rpartition(".")[0])
            home = f"{{doc}}`{number_of(page)} </{page}>`" if page else ""
            row = (linked(target, name), does(node), given, on, home)
            lines.append(f"| {' | '.join(map(in_cell, row))} |")
    return lines


LISTS = {"results": everything, "theorems": all_theorems, "algorithms": all_algorithms}
PLACE = re.compile(r"^```\{(results|theorems|algorithms)\}\n```$", re.M)


def fill(app, docname, source):
    "Put the lists in their places; a page that has one depends on all chapters."
    if not docname.startswith("book/") or not PLACE.search(source[0]):
        return
    read.cache_clear()
    tree_of.cache_clear()
    source[0] = PLACE.sub(lambda hit: "\n".join(LISTS[hit[1]]()), source[0])
    for chapters in parts().values():
        for chapter in chapters:
            app.env.note_dependency(str(ROOT / f"{chapter.page}.ipynb"))


def setup(app):
    ElementDirective.option_spec["code"] = directives.unchanged
    app.add_css_file("results.css")
    app.connect("source-read", fill)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
