"""What an importer gets: a light door, a whole wheel; and sources that are as they should be."""

import json
import subprocess
import sys
import tarfile
import zipfile

import pytest

from tests.tree import ROOT, copy_sources, sources

NOTEBOOKS = sorted(
    p for p in (ROOT / "nbs").rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts
)
MODULES = sorted(
    ".".join(p.relative_to(ROOT).with_suffix("").parts)
    for p in (ROOT / "serving_or").rglob("[a-z]*.py")
)
PARTS = sorted(p.parent.name for p in (ROOT / "serving_or").glob("*/__init__.py"))


def loaded(statement, path=None):
    """Packages outside the standard library that a statement loads in a new interpreter."""
    code = f"import sys; before = set(sys.modules); {statement}; print(*set(sys.modules) - before)"
    done = subprocess.run(
        [sys.executable, *(["-S"] if path else []), "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
        env={"PYTHONPATH": str(path or ROOT)},
    )
    names = {name.partition(".")[0] for name in done.stdout.split()}
    # NumPy's own extensions appear under names of their own
    return {name for name in names - sys.stdlib_module_names if not name.startswith("_cython")}


def test_the_door_is_light():
    assert loaded("import serving_or") == {"serving_or"}


@pytest.mark.parametrize("name", [f"serving_or.{part}" for part in PARTS] + MODULES)
def test_a_part_and_a_module_load_numpy_and_nothing_else(name):
    assert loaded(f"import {name}") <= {"serving_or", "numpy"}


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    # from a copy: setuptools builds in the source tree
    out, copy = tmp_path_factory.mktemp("dist"), copy_sources(tmp_path_factory.mktemp("copy"))
    build = [sys.executable, "-m", "build", "--no-isolation", "-o", out, copy]
    subprocess.run(build, check=True, capture_output=True)
    return out


def test_wheel_and_sdist_are_whole(built):
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    package = {name for name in sources() if name.startswith("serving_or/")}
    with zipfile.ZipFile(wheel) as z:
        inside = set(z.namelist())
    assert package | {"serving_or/py.typed"} <= inside
    assert any(name.endswith("LICENSE") for name in inside)
    assert not any(name.startswith(("tests/", "bench/", "nbs/")) for name in inside)
    with tarfile.open(sdist) as t:
        inside = {name.partition("/")[2] for name in t.getnames()}
    assert package | {"settings.ini", "setup.py", "LICENSE", "README.md", "CITATION.cff"} <= inside


def test_what_is_published_passes_its_own_checks(built):
    """Those of `make dist`: twine's, nothing in it that is no part of it, data with licences."""
    command = [sys.executable, ROOT / ".ci/dist.py", "check", built]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and "as they should be" in done.stdout, done.stdout + done.stderr


def test_the_wheel_imports_by_itself(built, tmp_path):
    (wheel,) = built.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-deps", "--no-index", "--target", tmp_path, wheel], check=True)
    assert loaded("import serving_or", tmp_path) == {"serving_or"}


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda p: str(p.relative_to(ROOT)))
def test_notebooks_are_sources(notebook):
    """No outputs, stable ids, one idea, a title with a claim."""
    nb = json.loads(notebook.read_text(encoding="utf-8"))
    code = [c for c in nb["cells"] if c["cell_type"] == "code"]
    assert not any(c["outputs"] or c["execution_count"] for c in code)
    assert (nb["nbformat"], nb["nbformat_minor"]) >= (4, 5)
    ids = {c["id"] for c in nb["cells"]}
    assert len(ids) == len(nb["cells"]) <= 60
    title = "".join(nb["cells"][1]["source"]).split("\n")
    assert title[0].startswith("# ") and title[2].startswith("> ")
