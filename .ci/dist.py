"""Wheel and sdist: built from what git knows, looked into, installed and tried in an empty folder.

    python .ci/dist.py build FOLDER     # both into FOLDER
    python .ci/dist.py check FOLDER     # twine's check, and what is inside
    python .ci/dist.py try FOLDER       # the wheel in a new environment, in an empty folder

`try` gets the libraries from where pip gets them; with CONSTRAINTS=constraints.txt, those versions.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# seconds of a processor: the package, and the help of its command
LIMITS = {"import serving_or": 0.3, "serving-or --help": 0.6}


def run(*command, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def known():
    "Names of the files that git knows."
    return [name for name in run("git", "ls-files", "-z", cwd=ROOT).split("\0") if name]


def build(folder):
    "From a copy: setuptools builds in the source tree, where files of other builds lie."
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as copy:
        for name in known():
            to = Path(copy, name)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to)
        run(sys.executable, "-m", "build", "--no-isolation", "-o", folder, copy)
    for path in sorted(folder.iterdir()):
        print(f"{path.stat().st_size / 1e6:.2f} MB  {path.name}")


def inside(folder):
    "The names in the wheel, and in the sdist."
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as z:
        names = set(z.namelist())
    with tarfile.open(sdist) as t:
        return names, {m.name.partition("/")[2] for m in t.getmembers() if m.isfile()}


def faults(folder):
    "What is missing in wheel and sdist, and what is there that should not be."
    wheel, sdist = inside(folder)
    package = {name for name in known() if name.startswith("serving_or/")}
    data = {name for name in package if name.startswith("serving_or/data/")}
    found = [f"wheel lacks {name}" for name in sorted(package - wheel)]
    found += [f"sdist lacks {name}" for name in sorted(package - sdist)]
    found += [] if "serving_or/py.typed" in wheel else ["wheel lacks py.typed"]
    found += [] if any("/licences/" in name for name in data) else ["data without licences"]
    if not any(name.endswith("/LICENSE") for name in wheel):
        found.append("wheel lacks LICENSE")
    for name in sorted(wheel):
        if not name.startswith(("serving_or/", "serving_or-")) or name.endswith(".pyc"):
            found.append(f"wheel has {name}")
    for name in sorted(sdist):
        if name.startswith(("tests/", "bench/", "nbs/", "book/")) or name.endswith(
            (".ipynb", ".pyc")
        ):
            found.append(f"sdist has {name}")
    return found


def check(folder):
    files = sorted(folder.iterdir())
    print(run(sys.executable, "-m", "twine", "check", "--strict", *files).strip())
    found = faults(folder)
    if found:
        sys.exit("\n".join(found))
    wheel, sdist = inside(folder)
    print(f"wheel: {len(wheel)} files, sdist: {len(sdist)} files, as they should be")


def least(times, *command, **options):
    "The least of a few runs: seconds of a processor, and on the clock, where a busy machine shows."
    used, passed = [], []
    for _ in range(times):
        before = os.times()
        run(*command, **options)
        after = os.times()
        user = after.children_user - before.children_user
        used.append(user + after.children_system - before.children_system)
        passed.append(after.elapsed - before.elapsed)
    return min(used), min(passed)


def try_out(folder):
    "Install the wheel where nothing is, and do what README says."
    (wheel,) = folder.glob("*.whl")
    with tempfile.TemporaryDirectory() as base:
        empty = Path(base, "empty")
        empty.mkdir()
        venv.create(Path(base, "venv"), with_pip=True)
        bin_ = Path(base, "venv", "bin")
        given = os.environ.get("CONSTRAINTS")
        constraints = ["-c", ROOT / given] if given else []
        pip = [bin_ / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        run(*pip, *constraints, wheel)
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "SERVING_OR"))}
        here = {"cwd": empty, "env": clean | {"PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}"}}
        python = bin_ / "python"
        took = {
            "python": least(10, python, "-c", "pass", **here),
            "import serving_or": least(10, python, "-c", "import serving_or", **here),
            "serving-or --help": least(10, bin_ / "serving-or", "--help", **here),
        }
        for what, (used, passed) in took.items():
            print(f"{used:.2f} s of a processor, {passed:.2f} s on the clock  {what}")
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        for code in re.findall(r"```python\n(.*?)```", readme, re.S):
            print(run(python, "-c", code, **here).strip())
        shown = run(bin_ / "serving-or", "fleet", "staff", "--rate", 20, "--service-time", 4,
                    "--wait", 0.2, "--json", **here)  # fmt: skip
        status = json.loads(shown)["summary"]["status"]
        print(f"serving-or fleet staff: {status}")
        left = [path.name for path in empty.iterdir()]
    slow = [what for what, limit in LIMITS.items() if took[what][0] > limit]
    if slow or left:
        sys.exit(f"too slow: {slow}; files left in an empty folder: {left}")


if __name__ == "__main__":
    {"build": build, "check": check, "try": try_out}[sys.argv[1]](Path(sys.argv[2]).resolve())
