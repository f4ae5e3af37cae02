"A newcomer's chapter: the template under a new name is found in the package, on the reference page and in the book."
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.xdist_group("book")  # one worker builds the book, once


@pytest.fixture(scope="module")
def clone(tmp_path_factory, book):
    "A copy of the sources with the chapter added, and the cells' results known so far."
    clone = tmp_path_factory.mktemp("clone") / "serving_or"
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\n")):
        if (ROOT / name).is_file():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, clone / name)
    shutil.copytree(ROOT / "book/_build/.jupyter_cache", clone / "book/_build/.jupyter_cache")

    text = (clone / "nbs/_template.ipynb").read_text(encoding="utf-8")
    nb = json.loads(text.replace("part.name", "experts.newcomer").replace("-name-", "-newcomer-"))
    (clone / "nbs/experts/98_newcomer.ipynb").write_text(json.dumps(nb), encoding="utf-8")
    toc = (clone / "_toc.yml").read_text()
    last = [line for line in toc.splitlines() if "nbs/experts/" in line][-1]
    (clone / "_toc.yml").write_text(toc.replace(last, last + "\n  - file: nbs/experts/98_newcomer"))
    return clone


def run(clone, *command):
    "Run a command of this environment on the copy's package."
    environment = os.environ | {"PYTHONPATH": str(clone), "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


def test_the_chapter_is_found(clone):
    run(clone, "nbdev_export")
    run(clone, "nbdev_test", "--path", "nbs/experts/98_newcomer.ipynb")
    assert run(clone, sys.executable, "-c", "from serving_or.experts.newcomer import in_system; print(in_system(2, 3))") == "6\n"
    # `make book` as it is, but for the environment, which is this one.
    ready = str(Path(sys.prefix) / "ready")
    run(clone, "make", "book", f"VENV={sys.prefix}", "-o", ready)
    html = clone / "book/_build/html"
    page = (html / "nbs/experts/98_newcomer.html").read_text(encoding="utf-8")
    assert 'data-call="serving_or.experts.newcomer:requests_present"' in page and "6.0 requests" in page
    assert "serving_or.experts.newcomer.in_system" in (html / "book/api.html").read_text(encoding="utf-8")
    assert "98_newcomer.html" in (html / "book/index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("file, again, not_again", [
    ("serving_or/experts/model.py", "nbs/experts/03_static.ipynb", "nbs/tools/03_live.ipynb"),     # imported
    ("serving_or/tools/plots.py", "nbs/experts/03_static.ipynb", "nbs/tools/02_plots.ipynb"),      # imported by what it imports
    ("serving_or/data/SOURCES.md", "nbs/experts/01_model.ipynb", "nbs/tools/02_plots.ipynb"),      # data of what it imports
])
def test_a_changed_file_runs_the_chapters_that_use_it_again(clone, file, again, not_again):
    code = ("import sys; sys.path.insert(0, 'book/_ext'); from nbdev_book import read_notebook; from pathlib import Path\n"
            "for p in sorted(Path('nbs').rglob('[0-9]*.ipynb')): print(p, read_notebook(p.read_text()).cells[-1].source)")

    def stamps():
        return dict(line.split(" ", 1) for line in run(clone, sys.executable, "-c", code).splitlines())

    before = stamps()
    with open(clone / file, "a") as f:
        f.write("\n# changed\n")
    changed = {name for name, stamp in stamps().items() if stamp != before[name]}
    assert again in changed and not_again not in changed
