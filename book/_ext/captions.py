"""Captions of figures, tables and live examples, numbered by chapter.

A cell says ``#| label: fig-rounding-band`` and ``#| fig-cap: One sentence, with units.``
(``tbl-`` and ``tbl-cap`` for a table); a live example says ``interact(..., caption="...")``. The
reader of notebooks turns either into the directive of this file, behind the cell.
"""

import ast
import re

from docutils import nodes
from sphinx.transforms import SphinxTransform
from sphinx.util.docutils import SphinxDirective

LABEL = re.compile(r"(fig|tbl)-[a-z0-9_]+(-[a-z0-9_]+)*")


class table_figure(nodes.figure):
    """A table of a cell's output, with its caption above."""


class CellCaption(SphinxDirective):
    """The caption of the cell above; the argument is its label."""

    required_arguments = 1
    has_content = True

    def run(self):
        label = self.arguments[0]
        if not LABEL.fullmatch(label):
            raise self.error(f"{label!r} is no label: fig-<chapter>-<name> or tbl-<chapter>-<name>")
        is_table = label.startswith("tbl-")
        figure = (table_figure if is_table else nodes.figure)("", classes=["cell-figure"])
        said = nodes.Element()
        self.state.nested_parse(self.content, self.content_offset, said)
        figure += nodes.caption("", "", *said.children[0].children)
        figure["names"].append(label)
        figure["cell_caption"] = True
        self.state.document.note_explicit_target(figure)
        self.set_source_info(figure)
        return [figure]


class MoveOutputs(SphinxTransform):
    """Put the outputs of a cell into the figure that stands behind it."""

    default_priority = 850

    def apply(self):
        for figure in list(self.document.findall(nodes.figure)):
            if not figure.get("cell_caption"):
                continue
            place = figure.parent.index(figure)
            cell = figure.parent[place - 1] if place else None
            outputs = [
                part
                for part in (cell.children if isinstance(cell, nodes.container) else [])
                if part.get("nb_element") == "cell_code_output"
            ]
            if not outputs:
                continue
            (output,) = outputs
            figure.parent.remove(figure)
            shown, output.children = output.children, []
            is_words = [is_stream(part) for part in shown]
            figure_parts = [part for part, words in zip(shown, is_words) if not words]
            words = [part for part, told in zip(shown, is_words) if told]
            at = len(figure.children) if isinstance(figure, table_figure) else 0
            for part in reversed(figure_parts):
                figure.insert(at, part)
            output += [figure, *words]


def is_stream(node):
    return bool({"stream", "stderr"} & set(node.get("classes", [])))


def of_call(source, module):
    "Label and caption of the live example in a cell, or None."
    try:
        calls = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Call)]
    except SyntaxError:
        return None
    for call in calls:
        named = {k.arg: k.value for k in call.keywords}
        if getattr(call.func, "id", "") == "interact" and isinstance(
            named.get("caption"), ast.Constant
        ):
            function = getattr(call.args[0], "id", "example").strip("_")
            return f"fig-{module}-{function}", named["caption"].value
    return None


def of_cell(source, told, module):
    "Label and caption of a cell, from its directives or its call; None without a caption."
    kind = "tbl" if told.get("tbl-cap") else "fig"
    caption = told.get(f"{kind}-cap")
    called = of_call(source, module)
    if caption:
        name = called[0] if called else f"{kind}-{module}-unnamed"
        return told.get("label") or name, caption
    if called:
        return told.get("label") or called[0], called[1]
    return None


def visit_table(self, node):
    self.visit_figure(node)


def depart_table(self, node):
    self.depart_figure(node)


def title_of(node):
    return next(child.astext() for child in node if isinstance(child, nodes.caption))


def setup(app):
    both = (visit_table, depart_table)
    app.add_enumerable_node(table_figure, "table", title_of, html=both, text=both, latex=both)
    app.add_directive("cell-caption", CellCaption)
    app.add_transform(MoveOutputs)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
