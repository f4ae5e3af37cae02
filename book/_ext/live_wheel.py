"""Build the wheel that runs in the reader's browser, and say in live.json where it is.

    python book/_ext/live_wheel.py FOLDER

Nothing is built when no file of the package has changed since the last time.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Python 3.14 with NumPy 2.4 and SciPy 1.18
PYODIDE = "https://cdn.jsdelivr.net/pyodide/v314.0.7/full/"
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


def main(folder):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "live.json"
    files = sources()
    now = digest(files)
    old = json.loads(config.read_text()) if config.is_file() else {}
    if old.get("digest") == now and (folder / old["wheel"]).is_file():
        return
    new = {"pyodide": PYODIDE, "wheel": build(files, folder).name, "digest": now}
    config.write_text(json.dumps(new, indent=1))


if __name__ == "__main__":
    main(sys.argv[1])
