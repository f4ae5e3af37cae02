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
PYODIDE = "https://cdn.jsdelivr.net/pyodide/v314.0.7/full/"  # Python 3.14 with NumPy 2.4 and SciPy 1.18


def main(folder):
    folder = Path(folder)
    config = folder / "live.json"
    files = [ROOT / "settings.ini", ROOT / "setup.py", Path(__file__).resolve()]
    files += sorted(p for p in (ROOT / "serving_or").rglob("*") if p.is_file() and p.suffix != ".pyc")
    h = hashlib.sha256()
    for path in files:
        h.update(path.read_bytes())
    old = json.loads(config.read_text()) if config.is_file() else {}
    if old.get("digest") == h.hexdigest() and (folder / old["wheel"]).is_file():
        return
    for wheel in folder.glob("*.whl"):
        wheel.unlink()
    # From a copy: setuptools builds in the source tree, where it would find, and leave, files of other builds.
    with tempfile.TemporaryDirectory() as copy:
        for path in [*files, *(ROOT / name for name in ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"))]:
            to = Path(copy) / path.relative_to(ROOT)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, to)
        subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps",
                        "--no-build-isolation", "-w", folder.resolve(), copy], check=True)
    (wheel,) = folder.glob("*.whl")
    config.write_text(json.dumps({"pyodide": PYODIDE, "wheel": wheel.name, "digest": h.hexdigest()}, indent=1))


if __name__ == "__main__":
    main(sys.argv[1])
