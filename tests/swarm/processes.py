"""Programs in sessions of their own, all of whose processes are ended.

PETALS starts a network daemon and a dozen handlers for each server, and the daemon outlives a
parent that was killed. A program that starts in a session of its own has them in its group.
"""

import os
import signal
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path


class Failed(RuntimeError):
    """A program ended, or was ended, before it had done its work."""


def start(words, log: Path, folder: Path, **more: str) -> subprocess.Popen:
    """Start a program in a new session, its output in a file."""
    with log.open("wb") as out:
        return subprocess.Popen(
            [str(word) for word in words],
            stdout=out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            cwd=folder,
            env=os.environ | more,
            start_new_session=True,
        )


def living(group: int) -> bool:
    """Whether a process of the group is left that has not ended."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, of = stat.read_text().rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue
        if int(of) == group and state not in "ZX":
            return True
    return False


def end(program: subprocess.Popen, patience: float = 5.0) -> None:
    """End the whole group of a program: asked first, then killed."""
    for what in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(program.pid, what)
        except ProcessLookupError:
            break
        until = time.monotonic() + patience
        while living(program.pid) and time.monotonic() < until:
            program.poll()
            time.sleep(0.05)
        if not living(program.pid):
            break
    program.wait()


@contextmanager
def running():
    """A list for programs; at its end all of their groups are ended, whatever has happened."""
    programs: list[subprocess.Popen] = []
    try:
        yield programs
    finally:
        for program in programs:
            end(program)


def tail(log: Path, lines: int = 12) -> str:
    """The last lines of a program's output."""
    said = log.read_text(errors="replace").splitlines() if log.exists() else []
    return "\n".join(said[-lines:])


def await_text(program: subprocess.Popen, log: Path, text: str, limit: float) -> str:
    """The first line with a text in a program's output, or `Failed` with what it said last."""
    until = time.monotonic() + limit
    while time.monotonic() < until:
        over = program.poll() is not None
        for line in log.read_text(errors="replace").splitlines():
            if text in line:
                return line
        if over:
            raise Failed(f"{program.args[:3]} ended with {program.returncode}:\n{tail(log)}")
        time.sleep(0.1)
    raise Failed(f"{program.args[:3]} did not say {text!r} in {limit:g} s:\n{tail(log)}")


def await_end(program: subprocess.Popen, log: Path, limit: float) -> None:
    """Wait until a program has ended well; otherwise `Failed` with what it said last."""
    try:
        code = program.wait(limit)
    except subprocess.TimeoutExpired:
        raise Failed(f"{program.args[:3]} took more than {limit:g} s:\n{tail(log)}") from None
    if code:
        raise Failed(f"{program.args[:3]} ended with {code}:\n{tail(log)}")
