"What an importer gets: a light door, a whole wheel; and that the sources are what they should be."

import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAVY = {
    "cvxpy",
    "matplotlib",
    "networkx",
    "highspy",
    "scipy",
    "pandas",
    "IPython",
    "nbdev",
    "fastcore",
    "ipywidgets",
    "pydantic",
    "yaml",
}
NOTEBOOKS = sorted(
    p for p in (ROOT / "nbs").rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts
)


def loaded(statement, path=None):
    "The modules that a statement loads in a new interpreter."
    code = f"import sys; {statement}; print('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, *(["-S"] if path else []), "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
        env={"PYTHONPATH": str(path)} if path else None,
    )
    return {name.partition(".")[0] for name in done.stdout.split()}


def parts():
    return sorted(p.parent.name for p in (ROOT / "serving_or").glob("*/__init__.py"))


def test_the_door_is_light():
    assert not loaded("import serving_or") & (HEAVY | {"numpy"})


@pytest.mark.parametrize("part", parts())
def test_a_part_loads_numpy_and_nothing_heavy(part):
    assert not loaded(f"from serving_or import {part}") & HEAVY


@pytest.mark.parametrize(
    "module",
    sorted(
        str(p.relative_to(ROOT).with_suffix("")).replace("/", ".")
        for p in (ROOT / "serving_or").rglob("[a-z]*.py")
    ),
)
def test_a_module_loads_nothing_heavy(module):
    assert not loaded(f"import {module}") & HEAVY


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    out, copy = (
        tmp_path_factory.mktemp("dist"),
        tmp_path_factory.mktemp("copy"),
    )  # setuptools builds in the source tree
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in listed.splitlines():
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "-o", out, copy],
        check=True,
        capture_output=True,
    )
    return out


def test_wheel_and_sdist_are_whole(built):
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as z:
        inside = set(z.namelist())
    tracked = subprocess.run(
        ["git", "ls-files", "serving_or"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert set(tracked) <= inside
    assert any(name.endswith("LICENSE") for name in inside)
    with tarfile.open(sdist) as t:
        inside = {name.partition("/")[2] for name in t.getnames()}
    assert (
        set(tracked) | {"settings.ini", "setup.py", "LICENSE", "README.md", "CITATION.cff"}
        <= inside
    )


def test_the_wheel_imports_by_itself(built, tmp_path):
    (wheel,) = built.glob("*.whl")
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--no-deps",
            "--no-index",
            "--disable-pip-version-check",
            "--target",
            tmp_path,
            wheel,
        ],
        check=True,
    )
    assert "serving_or" in loaded("import serving_or", tmp_path)
    assert not loaded("import serving_or", tmp_path) & (HEAVY | {"numpy"})


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda p: str(p.relative_to(ROOT)))
def test_notebooks_are_sources(notebook):
    "No outputs, stable ids, one idea, a title with a claim, and a module of the same path."
    nb = json.loads(notebook.read_text(encoding="utf-8"))
    code = [c for c in nb["cells"] if c["cell_type"] == "code"]
    assert not any(c["outputs"] or c["execution_count"] for c in code)
    assert (
        nb["nbformat"] == 4
        and nb["nbformat_minor"] >= 5
        and len({c["id"] for c in nb["cells"]}) == len(nb["cells"]) <= 60
    )
    first, second = ("".join(c["source"]) for c in nb["cells"][:2])
    title = second.split("\n")
    assert title[0].startswith("# ") and title[2].startswith("> ")
    if not notebook.name.startswith("_"):
        part, module = notebook.parent.name, notebook.stem.partition("_")[2]
        assert first == f"#| default_exp {part}.{module}"
        assert (ROOT / "serving_or" / part / f"{module}.py").is_file()
        assert f"nbs/{part}/{notebook.stem}" in (ROOT / "_toc.yml").read_text()


# Routing is the last step of CG-BPRR, and a chapter of its own; it rests on the model alone.
AHEAD = {("serving_or.blocks.cg_bprr", "serving_or.blocks.routing")}


def test_arrows_point_one_way():
    "tools <- fleet, experts, blocks; a chapter imports chapters with a smaller number only."
    number = {
        f"serving_or.{p.parent.name}.{p.stem.partition('_')[2]}": int(p.stem.partition("_")[0])
        for p in NOTEBOOKS
        if not p.name.startswith("_")
    }
    sys.path.insert(0, str(ROOT / "book" / "_ext"))
    from nbdev_book import module_imports

    for module in number:
        part = module.split(".")[1]
        for other in (m for m in module_imports(module) if m in number):
            there = other.split(".")[1]
            assert there in (part, "tools"), f"{module} imports {other}"
            if there == part != "tools" and (module, other) not in AHEAD:
                assert number[other] < number[module], f"{module} imports {other}"
