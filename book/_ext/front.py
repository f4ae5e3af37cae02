"""What pages that are no chapters have: live examples, and the map of the chapters.

    ```{live} serving_or.experts.spikes_and_shifts:glance
    length=(1, 12), labels={"length": "steps"}
    ```

is `interact(glance, length=(1, 12), labels={"length": "steps"})`, and

    ```{chapter-map}
    ```

lists the chapters of `_toc.yml`, part by part.
"""

import ast
import os
from importlib import import_module

from contents import parts
from docutils import nodes
from docutils.statemachine import StringList
from nbdev_book import dependencies, module_file
from sphinx.util.docutils import SphinxDirective


def arguments(text):
    "Keyword arguments, written as in a call."
    call = ast.parse(f"interact({text})", mode="eval").body
    return {word.arg: ast.literal_eval(word.value) for word in call.keywords}


def example(target, text):
    "The HTML of a live example."
    from serving_or.tools.live import interact

    os.environ["SERVING_OR_BOOK"] = "1"
    module, name = target.split(":")
    return str(interact(getattr(import_module(module), name), **arguments(text)))


class Live(SphinxDirective):
    """A live example; the argument is ``module:function``, the content what `interact` takes."""

    required_arguments = 1
    has_content = True

    def run(self):
        target = self.arguments[0]
        for module in dependencies([f"import {target.partition(':')[0]}"]):
            self.env.note_dependency(str(module_file(module)))
        try:
            html = example(target, " ".join(self.content))
        except (ValueError, SyntaxError, AttributeError, ImportError) as error:
            raise self.error(f"{target}: {error}") from error
        return [nodes.raw("", html, format="html")]


def listed(chapters):
    "A list of chapters in Markdown: number and title, and the claim."
    return [f"- {{doc}}`{c.number} {c.title} </{c.page}>` {c.claim}" for c in chapters]


class ChapterMap(SphinxDirective):
    """The chapters with their claims, in a box for each part."""

    def run(self):
        found = []
        for caption, chapters in parts().items():
            known = [c for c in chapters if c.page in self.env.found_docs]
            part = nodes.container("", classes=["chapter-map"])
            lines = [f"**{caption}**", "", *listed(known)]
            self.state.nested_parse(StringList(lines, "chapters"), self.content_offset, part)
            found.append(part)
        return found


def setup(app):
    app.add_directive("live", Live)
    app.add_directive("chapter-map", ChapterMap)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
