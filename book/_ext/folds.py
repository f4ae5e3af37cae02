"""What of a chapter's code is in view, and what is one click away.

In view is what a reader came for: signatures, the first line of a docstring, bodies that fit a
screen, examples. Folded are imports, classes, helpers that begin with an underscore, plotting,
the functions behind live examples, long docstrings, long bodies and long checks. A cell may say
otherwise: ``#| code-fold: true`` folds it, ``#| code-fold: false`` leaves it open.
"""

import ast
import re
from html import escape

from docutils import nodes
from sphinx.transforms import SphinxTransform

# lines that stay in view: of a body, of a helper's, of a body in a long cell, of an example
BODY, HELPER, SHORT, EXAMPLE, HEAD = 12, 4, 6, 10, 8
# lines from which on a cell is long
LONG = 24
DRAWS = re.compile(r"\b(plt|axes|axis|ax|nx\.draw\w*|interact|display)\b\s*[.(]")


class folded_block(nodes.literal_block):
    """A cell's code: ``folds`` are (first line, last line, words), ``whole`` is a summary."""


def lines_of(node):
    "First and last line of a statement, its decorators included."
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    return first, node.end_lineno


def docstring(node):
    "The docstring's statement, or None."
    body = getattr(node, "body", None)
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        return body[0] if isinstance(body[0].value.value, str) else None
    return None


def first_line(node):
    "The first sentence or two of what is defined, or nothing."
    return " ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split())


def count(n):
    return f"{n} line{'s' if n != 1 else ''}"


def kinds(tree):
    "What a cell defines, what it imports, and the rest."
    defined = [n for n in tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef))]
    imported = [n for n in tree.body if isinstance(n, (ast.Import, ast.ImportFrom))]
    return defined, imported, [n for n in tree.body if n not in defined and n not in imported]


def summary(tree, source):
    "Words for a cell that is folded whole."
    defined, imported, rest = kinds(tree)
    lines = count(len(source.splitlines()))
    if defined:
        node = next((n for n in defined if not n.name.startswith("_")), defined[0])
        what = "class " if isinstance(node, ast.ClassDef) else ""
        names = f"{what}{node.name}" + (f" and {len(defined) - 1} more" if defined[1:] else "")
        return f"{names}, {lines}", first_line(node)
    if imported and not rest:
        return f"Imports, {lines}", ""
    if re.search(r"\binteract\(", source):
        return f"The example's call, {lines}", ""
    if DRAWS.search(source):
        return f"Code of the figure, {lines}", ""
    names = [n.targets[0].id for n in rest if is_constant(n)]
    if names:
        return f"{', '.join(names[:3])}{' …' if names[3:] else ''}, {lines}", ""
    return f"Code, {lines}", ""


def is_constant(node):
    return isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)


def is_whole(tree, source, told):
    "Whether all of a cell is folded."
    if told.get("code-fold"):
        return told["code-fold"] != "false"
    defined, imported, rest = kinds(tree)
    lines = len(source.splitlines())
    if imported and not defined and not [n for n in rest if not is_constant(n)]:
        return lines > 1
    if "export" in told or "exporti" in told:
        classes = any(isinstance(n, ast.ClassDef) for n in defined)
        helpers = bool(defined) and all(n.name.startswith("_") for n in defined)
        return lines > 6 and (classes or helpers or not defined or "exporti" in told)
    if re.search(r"\binteract\(", source) and not defined:
        return True
    return lines > 4 and bool(re.search(r"\bplt\.|\bsubplots\(", source))


def of_function(node, told, most):
    "The folds of one function: its docstring's rest, and a body that does not fit."
    most = min(most, HELPER) if node.name.startswith("_") else most
    doc = docstring(node)
    if doc is not None:
        # its first paragraph is in view
        seen = doc.lineno + doc.value.value.partition("\n\n")[0].rstrip().count("\n")
        if doc.end_lineno > seen + 1:
            rest = count(doc.end_lineno - seen)
            yield seen + 1, doc.end_lineno, f"⋯ {rest} of documentation"
    first = node.body[0].lineno if doc is None else doc.end_lineno + 1
    if node.end_lineno - first + 1 > most and told.get("code-fold") != "false":
        yield first, node.end_lineno, f"⋯ body, {count(node.end_lineno - first + 1)}"


def of_example(tree, source):
    "The folds of a cell that is not exported: its long end, or its checks."
    lines = len(source.splitlines())
    if lines <= EXAMPLE:
        return
    asserts = [n for n in tree.body if isinstance(n, ast.Assert)]
    first = min((lines_of(n)[0] for n in asserts), default=0)
    if 1 < first and first > 4:
        yield first, lines, f"⋯ checks, {count(lines - first + 1)}"
        last = first - 1
    else:
        last = lines
    if last > EXAMPLE + 2:
        start = max((lines_of(n)[1] for n in tree.body if lines_of(n)[1] <= HEAD), default=HEAD) + 1
        if last - start >= 3:
            yield start, last, f"⋯ {count(last - start + 1)}"


def folds(source, told):
    "The folds of a cell: what to write on the whole, or ranges of lines."
    try:
        tree = ast.parse(source)
    except SyntaxError:  # magics
        return None, []
    if is_whole(tree, source, told):
        return summary(tree, source), []
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    inner = {id(m) for n in functions for m in ast.walk(n) if m is not n}
    outer = [node for node in functions if id(node) not in inner]
    found = [fold for node in outer for fold in of_function(node, told, BODY)]
    if len(source.splitlines()) - sum(b - a + 1 for a, b, _ in found) > LONG:
        found = [fold for node in outer for fold in of_function(node, told, SHORT)]
    if not {"export", "exporti"} & set(told) and not functions:
        found += of_example(tree, source)
    return None, sorted(found)


class FoldCode(SphinxTransform):
    """Replace the code of each cell by one that knows its folds."""

    default_priority = 900

    def apply(self):
        for cell in list(self.document.findall(nodes.container)):
            if cell.get("nb_element") != "cell_code":
                continue
            told = cell.get("cell_metadata", {}).get("told", {})
            for part in cell.children:
                if part.get("nb_element") != "cell_code_source":
                    continue
                for block in list(part.findall(nodes.literal_block)):
                    whole, ranges = folds(block.astext(), told)
                    new = folded_block(block.rawsource, block.astext(), **block.attributes)
                    new["whole"], new["folds"] = whole, ranges
                    block.replace_self(new)
                if whole:
                    part["classes"].append("folded")


def with_buttons(html, ranges):
    "Highlighted lines, with those of a range behind a button at the end of the line above."
    parts = re.fullmatch(r"(.*?<pre>(?:<span></span>)?)(.*)(</pre>.*)", html, re.S)
    head, body, tail = parts.groups()
    lines = body.rstrip("\n").split("\n")
    for first, last, words in ranges:
        button = (
            '<button type="button" class="unfold" aria-expanded="false"'
            f' data-words="{escape(words)}">{escape(words)}</button>'
        )
        lines[first - 2] += button + '<span class="fold">'
        lines[last - 1] += "</span>"
    return head + "\n".join(lines) + "\n" + tail


def visit(self, node):
    html = self.highlighter.highlight_block(
        node.rawsource, node.get("language", "ipython3"), location=node, linenos=False
    )
    if node["folds"]:
        html = with_buttons(html, node["folds"])
    lang = node.get("language", "default")
    block = f'<div class="highlight-{lang} notranslate">{html}</div>\n'
    if node["whole"]:
        words, said = node["whole"]
        more = f' <span class="said">{escape(said)}</span>' if said else ""
        title = f"<summary>{escape(words)}{more}</summary>"
        block = f'<details class="code-fold">{title}\n{block}</details>\n'
    self.body.append(block)
    raise nodes.SkipNode


def visit_text(self, node):
    "In other builders, and where pages are only read, it is a block of code."
    self.visit_literal_block(node)


def setup(app):
    other = (visit_text, lambda self, node: self.depart_literal_block(node))
    app.add_node(folded_block, html=(visit, None), text=other, latex=other)
    app.add_transform(FoldCode)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
