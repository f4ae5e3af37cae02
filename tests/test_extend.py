"""A newcomer's first hour: a chapter, a new part, a notebook edited as a script.

All of it in a copy of the sources.
"""

import json
import shutil
import subprocess
import sys

import pytest

from tests.tree import ROOT, copy_sources, make, run

STAMPS = """
import sys
from pathlib import Path

sys.path.insert(0, "book/_ext")
from nbdev_book import read_notebook

for path in sorted(Path("nbs").rglob("[0-9]*.ipynb")):
    print(path, read_notebook(path.read_text()).cells[-1].source.splitlines()[0])
"""


def did(answer):
    """What a command said, when it went well."""
    code, said = answer
    assert code == 0, said[-4000:]
    return said


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A copy of the sources with two chapters added, one of them in a part of its own."""
    clone = copy_sources(tmp_path_factory.mktemp("clone") / "serving_or")
    subprocess.run(["git", "init", "-q"], cwd=clone, check=True)
    did(make("new", "PART=experts", "NAME=newcomer", cwd=clone))
    did(make("new", "PART=harbour", "NAME=quay", cwd=clone))
    did(make("package", cwd=clone))
    return clone


def chapter(clone, name):
    (path,) = clone.glob(f"nbs/*/*_{name}.ipynb")
    return path


def test_the_chapter_is_in_its_place(clone):
    new = chapter(clone, "newcomer")
    last = sorted((ROOT / "nbs/experts").glob("[0-9]*.ipynb"))[-1]
    assert int(new.name[:2]) == int(last.name[:2]) + 1
    toc = (clone / "_toc.yml").read_text().splitlines()
    line = f"  - file: nbs/experts/{new.stem}"
    assert toc[toc.index(line) - 1] == f"  - file: nbs/experts/{last.stem}"
    assert toc[toc.index("- caption: Harbour") + 3] == "  - file: nbs/harbour/01_quay"
    assert toc.index("- caption: Harbour") < toc.index("- caption: Tools")
    ids = [{c["id"] for c in json.loads(p.read_text())["cells"]} for p in clone.rglob("*.ipynb")]
    assert sum(map(len, ids)) == len(set.union(*ids))


def test_the_chapter_runs_and_is_tested(clone):
    for name in ("newcomer", "quay"):
        path = chapter(clone, name).relative_to(clone)
        did(run("nbdev_test", "--path", path, cwd=clone))
    paths = ("tests/experts/test_newcomer.py", "tests/harbour/test_quay.py")
    assert "6 passed" in did(run("pytest", "-n", "0", *paths, cwd=clone))
    use = "from serving_or.harbour.quay import in_quay; print(in_quay(2, 3))"
    assert did(run(sys.executable, "-c", use, cwd=clone)) == "6.0\n"


def test_the_chapter_is_in_good_style(clone):
    mine = ["nbs/harbour", "tests/harbour", "serving_or/harbour", "tests/experts/test_newcomer.py"]
    did(run("ruff", "format", "--check", *mine, cwd=clone))
    did(run("ruff", "check", *mine, cwd=clone))
    did(run("mypy", "serving_or/harbour", cwd=clone))


def test_the_chapter_keeps_the_rules_of_the_house(clone):
    did(run("pytest", "-n", "0", "tests/test_house.py", "-k", "newcomer or quay", cwd=clone))


def test_the_chapter_is_in_the_book(clone, book):
    # with the other chapters' results, known so far
    shutil.copytree(ROOT / "book/_build/.jupyter_cache", clone / "book/_build/.jupyter_cache")
    did(make("book", cwd=clone))
    html = clone / "book/_build/html"
    stem = chapter(clone, "newcomer").stem
    page = (html / f"nbs/experts/{stem}.html").read_text(encoding="utf-8")
    assert 'data-call="serving_or.experts.newcomer:newcomer_present"' in page
    assert "6.0 requests" in page
    assert f"E{int(stem[:2])}." in page and "Figure E" in page
    reference = (html / "book/reference/experts.newcomer.html").read_text(encoding="utf-8")
    assert "serving_or.experts.newcomer.in_newcomer" in reference
    assert f"{stem}.html" in (html / "book/index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "given, said",
    [
        ([], "say which"),
        (["PART=experts"], "say which"),
        (["PART=experts", "NAME=relaxation"], "is there already"),
        (["PART=experts", "NAME=place"], "must not take its name"),
        (["PART=experts", "NAME=2fast"], "must be a name for Python"),
        (["PART=experts", "NAME=lambda"], "must be a name for Python"),
        (["PART=../experts", "NAME=queue"], "must be a name for Python"),
        (["PART=data", "NAME=queue"], "is no part"),
        (["PART=experts", "NAME=queue", "NUMBER=5"], "05_relaxation.ipynb has it"),
        (["PART=experts", "NAME=queue", "NUMBER=five"], "from 1 to 99"),
    ],
)
def test_what_does_not_fit_is_refused(clone, given, said):
    def files():
        return {p for folder in ("nbs", "tests", "serving_or") for p in clone.glob(f"{folder}/**")}

    before = files()
    code, answer = make("new", *given, cwd=clone)
    assert code != 0 and said in answer and "Traceback" not in answer
    assert files() == before


def test_a_free_number_can_be_asked_for(clone):
    did(make("new", "PART=harbour", "NAME=crane", "NUMBER=7", cwd=clone))
    did(make("new", "PART=harbour", "NAME=buoy", "NUMBER=3", cwd=clone))
    toc = (clone / "_toc.yml").read_text().splitlines()
    at = toc.index("  - file: nbs/harbour/01_quay")
    assert toc[at + 1 : at + 3] == [
        "  - file: nbs/harbour/03_buoy",
        "  - file: nbs/harbour/07_crane",
    ]
    text = (clone / "nbs/harbour/07_crane.ipynb").read_text()
    assert "eq-crane-little" in text and "eq-name-little" not in text


def test_a_notebook_is_edited_as_a_script(clone):
    path = chapter(clone, "quay")
    before = json.loads(path.read_text())
    relative = path.relative_to(clone)
    did(run("jupytext", "--to", "py:percent", relative, "-o", "build/quay.py", cwd=clone))
    script = clone / "build/quay.py"
    script.write_text(script.read_text().replace("at least 0.\n", "0 or more.\n"))
    did(run("jupytext", "--update", "--to", "ipynb", script, "-o", relative, cwd=clone))
    did(run("nbdev_clean", "--fname", relative, cwd=clone))
    after = json.loads(path.read_text())
    assert [c["id"] for c in after["cells"]] == [c["id"] for c in before["cells"]]
    changed = [a for a, b in zip(after["cells"], before["cells"]) if a != b]
    assert len(changed) == 1 and "0 or more." in "".join(changed[0]["source"])
    did(make("package", cwd=clone))
    assert "0 or more." in (clone / "serving_or/harbour/quay.py").read_text()


def test_the_export_is_the_same_every_time(clone):
    def state():
        files = (clone / "serving_or").rglob("*.py")
        return {p: p.read_bytes() for p in files if p.name != "_modidx.py"}

    before = state()
    did(run("nbdev_export", cwd=clone))
    did(run("ruff", "format", "serving_or", cwd=clone))
    assert state() == before


@pytest.mark.parametrize(
    "file, again, not_again",
    [
        # imported
        ("serving_or/experts/model.py", "experts/03_static", "tools/01_answers"),
        # imported by what it imports
        ("serving_or/tools/plots.py", "experts/03_static", "tools/01_answers"),
        # data of what it imports
        ("serving_or/data/SOURCES.md", "tools/06_data", "tools/01_answers"),
    ],
)
def test_a_changed_file_runs_the_chapters_that_use_it_again(clone, file, again, not_again):
    def stamps():
        said = did(run(sys.executable, "-c", STAMPS, cwd=clone))
        return dict(line.split(" ", 1) for line in said.splitlines())

    before = stamps()
    with open(clone / file, "a") as f:
        f.write("\n# changed\n")
    changed = {name for name, stamp in stamps().items() if stamp != before[name]}
    assert f"nbs/{again}.ipynb" in changed and f"nbs/{not_again}.ipynb" not in changed
