"""This tree and copies of it, for tests that build, install or extend the project."""

import fcntl
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]


@contextmanager
def alone(name):
    """Let one process at a time do something in this tree; the others wait."""
    (ROOT / "build").mkdir(exist_ok=True)
    with open(ROOT / "build" / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def sources(tree=ROOT):
    """Names of the files that git knows or would add."""
    command = ["git", "ls-files", "-z", "-co", "--exclude-standard"]
    listed = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=True).stdout
    return sorted(name for name in listed.split("\0") if name and (tree / name).is_file())


def copy_sources(to):
    """A copy of the sources, of the same age, so that make sees what it sees here."""
    for name in sources():
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, to / name)
    return to


def run(*command, cwd=ROOT):
    """Run a command on a tree's package, in the environment that runs the tests.

    Returns its code and all that it said.
    """
    ours = ("MAKE", "MFLAGS", "PYTEST", "SERVING_OR", "COLUMNS")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    environment["PYTHONPATH"] = str(cwd)
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = [str(part) for part in command]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def make(*arguments, cwd=ROOT):
    """Run make on a tree, as it is but for the environment, which is this one."""
    ready = Path(sys.prefix) / "ready"
    return run("make", *arguments, f"VENV={sys.prefix}", "-o", ready, cwd=cwd)
