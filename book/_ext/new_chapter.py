"""Begin a chapter: a notebook from the template, its line in the contents, its test.

make new PART=experts NAME=queue
make new PART=experts NAME=queue NUMBER=13

A notebook and its module have the same path: nbs/experts/16_queue.ipynb is
serving_or/experts/queue.py. The number is the next after the part's last one, unless it is given.
"""

import ast
import json
import keyword
import re
import sys
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "serving_or"
# New parts stand before these in the contents.
LAST_PARTS = ("Tools", "Reference")

TEST = '''"""What the chapter claims, on many numbers; and what it refuses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from {package}.{part}.{name} import in_{name}

moderate = st.integers(0, 10**6)


@given(moderate, moderate)
def test_time_and_rate_count_alike(rate, time):
    assert in_{name}(rate, time) == in_{name}(time, rate)
    assert in_{name}(2 * rate, time) == 2 * in_{name}(rate, time)


@pytest.mark.parametrize("rate, time", [(-1, 1), (1, -1)])
def test_a_negative_number_is_refused(rate, time):
    with pytest.raises(ValueError, match="at least 0"):
        in_{name}(rate, time)
'''


class Refused(Exception):
    """The chapter cannot be made; the text says why."""


def chapters(part, root=ROOT):
    """The chapters of a part, number to module name."""
    found = {}
    for path in sorted((root / "nbs" / part).glob("[0-9]*_*.ipynb")):
        number, _, name = path.stem.partition("_")
        found[int(number)] = name
    return found


def identifier(text, what):
    """A name that can be imported, or a refusal."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", text) or keyword.iskeyword(text):
        raise Refused(
            f"{what} is {text!r}; it must be a name for Python in small letters, such as queue"
        )
    return text


def public_names(path):
    """Names that a module of the package defines at its top level or imports."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body if path.is_file() else ():
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {alias.asname or alias.name for alias in node.names}
    return names


def check(part, name, number, root=ROOT):
    """Refuse what would not fit into the house; return the chapter's number."""
    identifier(part, "PART")
    identifier(name, "NAME")
    folder, taken = root / PACKAGE / part, chapters(part, root)
    if folder.exists() and not (folder / "__init__.py").is_file():
        raise Refused(f"PART is {part!r}; {PACKAGE}/{part} is there and is no part")
    if name in taken.values() or (folder / f"{name}.py").exists():
        raise Refused(f"NAME is {name!r}; {PACKAGE}.{part}.{name} is there already")
    for path in [folder / "__init__.py", *sorted(folder.glob("[a-z]*.py"))]:
        if name in public_names(path):
            raise Refused(
                f"NAME is {name!r}, which {path.relative_to(root)} has as a function or class;"
                " a module must not take its name"
            )
    if number is None:
        return max(taken, default=0) + 1
    if number in taken:
        raise Refused(f"NUMBER is {number}; nbs/{part}/{number:02}_{taken[number]}.ipynb has it")
    return number


def prefix(part, name, root=ROOT):
    """What stands between eq- and the rest in the labels of the chapter, once in the book."""
    short = name.replace("_", "-")
    label = re.compile(rf"\b(eq|thm|prf|fig|tab|ex|alg|def|lem)-{short}-")
    texts = (p.read_text(encoding="utf-8") for p in (root / "nbs").rglob("[0-9]*.ipynb"))
    return f"{part}-{short}" if any(label.search(text) for text in texts) else short


def notebook(part, name, root=ROOT):
    """The template under the chapter's name, with cell ids of its own."""
    text = (root / "nbs/_template.ipynb").read_text(encoding="utf-8")
    text = text.replace("part.name", f"{part}.{name}")
    text = text.replace("-name-", f"-{prefix(part, name, root)}-")
    # a public name is given once
    text = text.replace("in_name", f"in_{name}").replace("name_present", f"{name}_present")
    nb = json.loads(text)
    for cell in nb["cells"]:
        cell["id"] = uuid.uuid4().hex[:8]
    return json.dumps(nb, indent=1, ensure_ascii=False) + "\n"


def with_line(toc, part, number, name):
    """The contents with the chapter's line, in the place of its number."""
    line = f"  - file: nbs/{part}/{number:02}_{name}"
    lines = toc.splitlines()
    mine = [i for i, text in enumerate(lines) if text.startswith(f"  - file: nbs/{part}/")]
    if mine:
        before = [i for i in mine if int(re.search(r"/(\d+)_", lines[i])[1]) < number]
        at = before[-1] + 1 if before else mine[0]
        lines.insert(at, line)
    else:
        captions = [f"- caption: {caption}" for caption in LAST_PARTS]
        at = next((i for i, text in enumerate(lines) if text in captions), len(lines))
        caption = f"- caption: {part.replace('_', ' ').capitalize()}"
        lines[at:at] = [caption, "  numbered: 2", "  chapters:", line]
    return "\n".join(lines) + "\n"


def new_chapter(part, name, number=None, root=ROOT):
    """Write the files of a chapter; return their paths."""
    number = check(part, name, number, root)
    files = {
        root / f"nbs/{part}/{number:02}_{name}.ipynb": notebook(part, name, root),
        root / f"tests/{part}/test_{name}.py": TEST.format(package=PACKAGE, part=part, name=name),
    }
    door = root / PACKAGE / part / "__init__.py"
    if not door.exists():
        files[door] = f'"""{part.capitalize()}: what is decided, in a line."""\n\n__all__ = []\n'
    contents = root / "_toc.yml"
    files[contents] = with_line(contents.read_text(encoding="utf-8"), part, number, name)
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(files)


def main(part="", name="", number=None):
    try:
        if not (part and name):
            raise Refused("say which: make new PART=experts NAME=queue")
        if number is not None and not re.fullmatch(r"[1-9]\d?", number):
            raise Refused(f"NUMBER is {number!r}; it must be a whole number from 1 to 99")
        files = new_chapter(part, name, number and int(number))
    except Refused as refusal:
        sys.exit(f"new chapter: {refusal}")
    for path in files:
        print(path.relative_to(ROOT))
    print("Write the chapter, then: make test. Its module appears with make package.")


if __name__ == "__main__":
    main(*sys.argv[1:])
