"""The page of dependencies: every requirement is on it, and what it names really uses it."""

import ast
import configparser
import re
import sys

import pytest

from tests.tree import ROOT

PAGE = (ROOT / "book/dependencies.md").read_text(encoding="utf-8")
# a library's name in code, where it is another than in settings.ini
MODULES = {
    "pyyaml": "yaml",
    "pytest-xdist": "dist",
    "jupyterlite-core": "jupyterlite",
    "jupyterlite-pyodide-kernel": "pyodide-kernel",
}


def requirements():
    "The lists of settings.ini: which, and the names of their libraries."
    config = configparser.ConfigParser()
    config.read(ROOT / "settings.ini", encoding="utf-8")
    lists = {k: v for k, v in config["DEFAULT"].items() if k.endswith("requirements")}
    return {k: {re.split(r"[<>=!~]", r)[0] for r in v.split()} for k, v in lists.items()}


def rows(section):
    "The rows of a section's table: cells without their bars."
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines][1:]


RUNTIME, EXTRAS, DEV = map(rows, ("What the package needs", "Extras", "What developing needs"))


def imported(path):
    "The libraries that a file imports, anywhere in it."
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def test_every_requirement_is_on_the_page_once_and_nothing_else():
    lists = requirements()
    assert {row[0] for row in RUNTIME} == lists.pop("requirements")
    dev = lists.pop("dev_requirements")
    extras = set().union(*lists.values())
    assert {row[0] for row in EXTRAS} == extras
    # what an extra has, developers have too, and the page has once
    assert {row[0] for row in DEV} == dev - extras
    every = [row[0] for row in RUNTIME + EXTRAS + DEV]
    assert len(every) == len(set(every))


def test_each_row_names_its_extra():
    lists = requirements()
    for library, _, what, _ in EXTRAS:
        extra = re.match(r"`(\w+)`", what)[1]
        assert library in lists[f"{extra}_requirements"]


@pytest.mark.parametrize("row", RUNTIME + EXTRAS + DEV, ids=lambda row: row[0])
def test_what_is_named_uses_the_library(row):
    library, users, what, why = row
    assert what and why
    named = re.findall(r"`([^`]+)`", users)
    assert named, library
    word = MODULES.get(library, library.replace("-", "_"))
    for name in named:
        module = ROOT / f"{name.replace('.', '/')}.py"
        if module.exists():
            assert word in imported(module), f"{name} does not import {library}"
        else:
            text = (ROOT / name).read_text(encoding="utf-8")
            assert library in text or word in text, f"{name} does not name {library}"


def test_the_package_imports_nothing_that_is_not_required():
    lists = requirements()
    known = lists["requirements"].union(
        *(lists[k] for k in lists if k not in ("dev_requirements",))
    )
    known = {MODULES.get(name, name) for name in known} | {"serving_or"}
    # parts of what is required
    known |= {"pydantic_core", "IPython", "matplotlib_inline", "cycler", "click"}
    for path in sorted((ROOT / "serving_or").rglob("*.py")):
        strange = imported(path) - known - set(sys.stdlib_module_names)
        assert not strange, f"{path.relative_to(ROOT)} imports {strange}"


def test_what_is_written_by_hand_is_there():
    for ours, *_ in rows("What is written by hand"):
        for name in re.findall(r"`(serving_or[\w.]+)`", ours):
            parts = name.split(".")
            path = ROOT.joinpath(*parts[:3]).with_suffix(".py")
            assert path.exists(), name
            if len(parts) > 3:
                text = path.read_text(encoding="utf-8")
                assert re.search(rf"^(def|class) {parts[3]}\b", text, re.M), name
