"""The house as it stands: who imports whom, and how large each room is.

make house    prints both; tests/test_house.py holds the rules against them.
"""

import ast
import json
from dataclasses import dataclass

from nbdev_book import PACKAGE, ROOT, split_directives

# An arrow points to a lower floor, or to a smaller number in the same part. A part that is not
# named here stands beside experts and blocks.
FLOORS = {"tools": 0, "fleet": 1, "cli": 3}
# Habits, not limits.
MODULE_LINES, BODY_LINES = 250, 40


def floor(part):
    return FLOORS.get(part, 2)


@dataclass(frozen=True)
class Room:
    """A chapter and its module."""

    part: str
    number: int
    module: str

    @property
    def name(self):
        return f"{PACKAGE}.{self.part}.{self.module}"

    @property
    def file(self):
        return ROOT / PACKAGE / self.part / f"{self.module}.py"

    @property
    def notebook(self):
        return ROOT / "nbs" / self.part / f"{self.number:02}_{self.module}.ipynb"

    @property
    def test(self):
        return ROOT / "tests" / self.part / f"test_{self.module}.py"

    def __str__(self):
        return f"{self.part}.{self.module}"

    def may_import(self, other):
        if self.part == other.part:
            return other.number < self.number
        return floor(other.part) < floor(self.part)


def parts():
    """The parts: folders of the package that can be imported."""
    return sorted(p.parent.name for p in (ROOT / PACKAGE).glob("*/__init__.py"))


def rooms():
    """Every chapter, by part and number."""
    found = []
    for path in sorted((ROOT / "nbs").glob("*/[0-9]*_*.ipynb")):
        number, _, module = path.stem.partition("_")
        found.append(Room(path.parent.name, int(number), module))
    return found


def imported(source, package):
    """What a piece of Python imports from the package: (module, name or None) pairs.

    The name is None where the module itself is imported.
    """
    modules = {room.name for room in rooms()}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")
            parent = above[: len(above) + 1 - node.level] if node.level else []
            base = ".".join([*parent, *([node.module] if node.module else [])])
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                inside = whole in modules or whole in {f"{PACKAGE}.{part}" for part in parts()}
                yield (whole, None) if inside else (base, alias.name)


def doors(part):
    """What a part hands to others: name to the module that makes it."""
    path = ROOT / PACKAGE / part / "__init__.py"
    found = imported(path.read_text(encoding="utf-8"), f"{PACKAGE}.{part}")
    return {name: module for module, name in found if name}


def arrows(room):
    """The rooms that a module imports from, wherever the import stands."""
    others = {other.name: other for other in rooms()}
    source = room.file.read_text(encoding="utf-8")
    found = {others[m] for m, _ in imported(source, f"{PACKAGE}.{room.part}") if m in others}
    return sorted(found, key=str)


def cells(room):
    """The code cells of a chapter: directives and source."""
    for cell in json.loads(room.notebook.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            yield split_directives("".join(cell["source"]))


def exports(path):
    """The names in a module's ``__all__``, without importing it."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return ast.literal_eval(node.value)
    return None


def code_lines(node, source):
    """Numbers of the lines of a piece of code that are neither docstring nor comment nor empty."""
    docs = set()
    for inner in ast.walk(node):
        body = getattr(inner, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            value = body[0].value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                docs |= set(range(value.lineno, value.end_lineno + 1))
    lines = source.splitlines()
    first, last = getattr(node, "lineno", 1), getattr(node, "end_lineno", len(lines))
    return [
        n
        for n in range(first, last + 1)
        if n not in docs and lines[n - 1].strip() and not lines[n - 1].lstrip().startswith("#")
    ]


def sizes(room):
    """Code lines of a module, and of each function body in it."""
    source = room.file.read_text(encoding="utf-8")
    tree = ast.parse(source)
    bodies = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            first = node.body[0].lineno
            bodies[node.name] = sum(n >= first for n in code_lines(node, source))
    return len(code_lines(tree, source)), bodies


def report():
    """Lines that show the house."""
    all_bodies = []
    for room in rooms():
        lines, bodies = sizes(room)
        all_bodies += [(size, f"{room}.{name}") for name, size in bodies.items()]
        mark = "  *" if lines > MODULE_LINES else ""
        arrow = ", ".join(map(str, arrows(room))) or "-"
        yield f"{room.number:02} {room!s:32} {lines:5}{mark:3}  <- {arrow}"
    yield f"\n* above {MODULE_LINES} lines of code. The longest bodies:"
    yield from (f"{size:5}  {name}" for size, name in sorted(all_bodies, reverse=True)[:5])
    counts = sorted(size for size, _ in all_bodies)
    above = sum(size > BODY_LINES for size in counts)
    median, tail = counts[len(counts) // 2], counts[len(counts) * 9 // 10]
    yield f"{len(counts)} bodies, median {median}, p90 {tail}, {above} above {BODY_LINES} lines"


if __name__ == "__main__":
    print("\n".join(report()))
