"""Chapters are numbered as their files are, by part.

``nbs/experts/07_regularized_greedy.ipynb`` is chapter E7, its sections are E7.1, E7.2, …, its
theorems, equations, figures and tables count from E7.1 each.
"""

import re

from docutils import nodes
from sphinx.environment.collectors.toctree import TocTreeCollector
from sphinx_external_toc.collectors import TocTreeCollectorWithStyles

CHAPTER = re.compile(r"nbs/(?P<part>\w)\w*/(?P<number>\d+)_")


def number_of(docname):
    "E7, or None for a page that is no chapter."
    hit = CHAPTER.match(docname)
    return f"{hit['part'].upper()}{int(hit['number'])}" if hit else None


def renumber(env):
    "Put the chapter's number in the place that Sphinx has counted."
    for docname, numbers in env.toc_secnumbers.items():
        chapter = number_of(docname)
        for anchor, number in numbers.items():
            if number:
                numbers[anchor] = (chapter, *number[1:]) if chapter else ()
        places = [env.titles[docname]]
        places += env.tocs[docname].findall(nodes.reference)
        for node in places:
            if node.get("secnumber"):
                node["secnumber"] = [chapter, *list(node["secnumber"])[1:]] if chapter else None


def numbered(app):
    "Let our numbers follow whatever has numbered the sections before, in whichever collector."
    count = TocTreeCollector.assign_section_numbers

    def assign_section_numbers(self, env):
        old = {name: dict(numbers) for name, numbers in env.toc_secnumbers.items()}
        count(self, env)
        renumber(env)
        return [name for name, new in env.toc_secnumbers.items() if new != old.get(name)]

    TocTreeCollectorWithStyles.assign_section_numbers = assign_section_numbers


def setup(app):
    app.connect("builder-inited", numbered)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
