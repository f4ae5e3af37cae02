"""Of every page: its description for search engines. The page of symbols is put together from the
chapters' own tables, and the bibliography names its entries as the text does.
"""

import re
from html import escape

import nbformat
from docutils import nodes
from nbdev_book import ROOT, link_to
from pybtex.plugin import register_plugin
from pybtex.style.formatting.unsrt import Style
from pybtex.style.labels import BaseLabelStyle


class AuthorYearLabels(BaseLabelStyle):
    """Huang and Li 2026, as the text cites it; a letter tells two of a year apart."""

    def format_labels(self, sorted_entries):
        plain = [self.label(entry) for entry in sorted_entries]
        for i, label in enumerate(plain):
            same = [j for j, other in enumerate(plain) if other == label]
            yield label + ("abcdefgh"[same.index(i)] if len(same) > 1 else "")

    def label(self, entry):
        people = entry.persons.get("author") or entry.persons.get("editor") or []
        names = [" ".join([*p.prelast_names, *p.last_names]).strip("{}") for p in people]
        if not names:
            who = entry.fields.get("organization") or entry.fields.get("title", entry.key)
        elif len(names) > 2 or names[-1] == "others":
            who = f"{names[0]} et al."
        else:
            who = " and ".join(names)
        return f"{who} {entry.fields.get('year', '')}".strip()


class AuthorYear(Style):
    default_sorting_style = "author_year_title"
    default_label_style = AuthorYearLabels


def describe(app, pagename, templatename, context, doctree):
    "The chapter's claim, or a page's first paragraph, as its description."
    if doctree is None:
        return
    first = next((p for p in doctree.findall(nodes.paragraph) if len(p.astext().split()) > 4), None)
    if first is not None:
        words = " ".join(first.astext().split())
        words = words if len(words) <= 300 else words[:297].rsplit(" ", 1)[0] + " …"
        context["metatags"] += f'\n<meta name="description" content="{escape(words)}" />'


def complete_lists(app, doctree, docname):
    "A term without a definition, as a parameter without words, is given an empty one."
    for item in doctree.findall(nodes.definition_list_item):
        if not any(isinstance(child, nodes.definition) for child in item):
            item += nodes.definition("", nodes.paragraph())


TABLE = re.compile(r"^\| *(?:letter|symbol) *\|.*\n(?:\|.*\n?)+", re.M | re.I)


def in_order(path):
    "Parts in the order of the book, then chapters."
    parts = ["fleet", "experts", "blocks"]
    part = path.parent.name
    return (parts.index(part) if part in parts else len(parts), part, path.name)


def gather_symbols(app, docname, source):
    "The tables of letters, from the chapters that have one."
    if docname != "book/symbols":
        return
    for path in sorted(ROOT.glob("nbs/*/[0-9]*.ipynb"), key=in_order):
        texts = [c.source for c in nbformat.read(path, 4).cells if c.cell_type == "markdown"]
        tables = [hit[0] for text in texts for hit in TABLE.finditer(text + "\n")]
        page = path.relative_to(ROOT).with_suffix("").as_posix()
        if tables and page in app.env.found_docs:
            part = path.parent.name
            # a link to a neighbour of the chapter, seen from here
            rows = re.sub(r"\]\((?=\d\d_\w+\.ipynb)", f"](../nbs/{part}/", "\n".join(tables))
            source[0] += f"\n## {part.capitalize()}: {link_to(page)}\n\n" + rows


def setup(app):
    app.connect("source-read", gather_symbols)
    app.connect("doctree-resolved", complete_lists)
    register_plugin("pybtex.style.formatting", "author_year", AuthorYear)
    app.connect("html-page-context", describe)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
