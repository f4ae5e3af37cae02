"""Build the wheel that runs in the reader's browser, and say in live.json where it is.

    python book/_ext/live_wheel.py FOLDER [PYODIDE]

With a folder that holds Pyodide, the interpreter and what live examples load are put beside it, and
a page asks no foreign host. Nothing is built when nothing has changed since the last time.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Python 3.12 with NumPy 2.0.2 and SciPy 1.14.1: the newest on which all live examples are tested
VERSION = "0.27.7"
PYODIDE = f"https://cdn.jsdelivr.net/pyodide/v{VERSION}/full/"
PYTHON = "3.12"
PARTS = ("pyodide.mjs", "pyodide.asm.*", "python_stdlib.zip", "pyodide-lock.json")
PACKAGES = ("numpy", "scipy")
PIP = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check"]
ALSO = ("settings.ini", "setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE")


def sources():
    """The files that the wheel is made of."""
    package = sorted((ROOT / "serving_or").rglob("*"))
    return [ROOT / name for name in ALSO] + [
        path for path in package if path.is_file() and path.suffix != ".pyc"
    ]


def digest(files):
    """A hash of some files, and of this one."""
    h = hashlib.sha256()
    for path in [*files, Path(__file__)]:
        h.update(path.read_bytes())
    return h.hexdigest()


def build(files, folder):
    """The wheel, built from a copy.

    Setuptools builds in the source tree, where it would find, and leave, files of other builds.
    """
    for wheel in folder.glob("*.whl"):
        wheel.unlink()
    with tempfile.TemporaryDirectory() as copy:
        for path in files:
            to = Path(copy) / path.relative_to(ROOT)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, to)
        to = folder.resolve()
        subprocess.run([*PIP, "--no-deps", "--no-build-isolation", "-w", to, copy], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def needed(lock, names):
    """The files of some packages and of what they depend on."""
    found, todo = {}, list(names)
    while todo:
        entry = lock["packages"][todo.pop()]
        found[entry["name"]] = entry["file_name"]
        todo += [name for name in entry["depends"] if name not in found]
    return sorted(found.values())


def bundle(source, folder):
    """Copy an interpreter beside the wheel; what it is called from there."""
    lock = json.loads((source / "pyodide-lock.json").read_text(encoding="utf-8"))
    if lock["info"]["python"][:4] != PYTHON:
        sys.exit(f"{source} has Python {lock['info']['python']}; the book is tested with {PYTHON}")
    files = [path for part in PARTS for path in sorted(source.glob(part))]
    files += [source / name for name in needed(lock, PACKAGES)]
    to = folder / "pyodide"
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir()
    for path in files:
        shutil.copy2(path, to)
    return "pyodide/"


def main(folder, pyodide=""):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "live.json"
    files = sources()
    now = digest(files) + str(pyodide)
    old = json.loads(config.read_text()) if config.is_file() else {}
    if old.get("digest") == now and (folder / old["wheel"]).is_file():
        return
    where = bundle(Path(pyodide), folder) if pyodide else PYODIDE
    if not pyodide:
        shutil.rmtree(folder / "pyodide", ignore_errors=True)
    new = {"pyodide": where, "wheel": build(files, folder).name, "digest": now}
    config.write_text(json.dumps(new, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:3])
