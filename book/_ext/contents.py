"""The chapters in the order of `_toc.yml`: for the README's table and the front page's map.

python book/_ext/contents.py

writes the table into README.md, between its two marks; `make package` does so.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import nbformat
import yaml
from chapter_numbers import number_of

ROOT = Path(__file__).resolve().parents[2]
MARKS = "<!-- chapters: written by make package -->\n", "<!-- end of chapters -->\n"


@dataclass(frozen=True)
class Chapter:
    """A chapter: its page, its number, its title, and what it claims."""

    page: str
    number: str
    title: str
    claim: str


def chapter(page, root=ROOT):
    "A chapter, from the cell that has its title and claim."
    cells = nbformat.read(root / f"{page}.ipynb", as_version=4).cells
    text = next(cell.source for cell in cells if cell.cell_type == "markdown")
    title, claim = re.search(r"^# (.*?)\s*$\s*^> (.*?)\s*$", text, re.M).groups()
    return Chapter(page, number_of(page), title, claim)


def parts(root=ROOT):
    "The parts of the book that have chapters: caption to chapters."
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    found = {}
    for part in toc["parts"]:
        pages = [entry["file"] for entry in part["chapters"] if "file" in entry]
        chapters = [chapter(page, root) for page in pages if number_of(page)]
        if chapters:
            found[part["caption"]] = chapters
    return found


def table(root=ROOT):
    "The README's table."
    lines = ["| | chapter | |", "|---|---|---|"]
    for caption, chapters in parts(root).items():
        lines.append(f"| | **{caption}** | |")
        for c in chapters:
            said = c.claim.replace("|", "\\|")
            lines.append(f"| {c.number} | [{c.title}]({c.page}.ipynb) | {said} |")
    return "\n".join(lines) + "\n"


def with_table(readme, root=ROOT):
    "The README with today's table between its marks."
    first, last = MARKS
    before, _, rest = readme.partition(first)
    _, _, after = rest.partition(last)
    if not after:
        raise SystemExit(f"README.md must have the marks {first.strip()} and {last.strip()}")
    return f"{before}{first}\n{table(root)}\n{last}{after}"


def main(root=ROOT):
    path = root / "README.md"
    old = path.read_text(encoding="utf-8")
    new = with_table(old, root)
    if new != old:
        path.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
