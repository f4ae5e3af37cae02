"""Ctrl-C and SIGTERM while the program loads, after it has answered, and never a traceback."""

import os
import subprocess
import sys

import pytest

from serving_or.cli.fleet import MAIN
from tests.tree import ROOT

SIGNALS = pytest.mark.parametrize("number", [2, 15])

# a signal when a module is asked for; the handler of `program` is in place before all of these
STRUCK = """
import os, signal, sys
class Struck:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            os.kill(os.getpid(), {number})
sys.meta_path.insert(0, Struck())
"""


def ended(code, *arguments):
    command = [sys.executable, "-c", code + MAIN, *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("name", ["serving_or.cli.app", "logging", "numpy", "typer"])
@SIGNALS
def test_ctrl_c_in_the_first_tenth_of_a_second(number, name):
    done = ended(STRUCK.format(name=name, number=number), "--help")
    assert (done.returncode, done.stderr) == (
        128 + number,
        "serving-or: stopped\n",
    ) and done.stdout == ""


@pytest.mark.parametrize("name", ["serving_or.cli.fleet", "serving_or.fleet.staffing"])
@SIGNALS
def test_ctrl_c_while_a_part_is_loaded(number, name):
    """Typer is at work then; a library that is loading may swallow the signal for a second."""
    staff = ["fleet", "staff", "--rate", "20", "--service-time", "4", "--wait", "0.2"]
    done = ended(STRUCK.format(name=name, number=number), *staff)
    assert done.returncode == 128 + number and "Traceback" not in done.stderr and done.stdout == ""


@SIGNALS
def test_ctrl_c_after_the_answer(number):
    late = f"import atexit, os; atexit.register(os.kill, os.getpid(), {number})\n"
    done = ended(late, "--version")
    assert done.stdout.startswith("serving-or ") and done.stderr == ""
    assert done.returncode in (0, -number)


def test_the_program_is_light_before_it_is_ready():
    code = "import serving_or.cli.start, sys; print('numpy' in sys.modules, len(sys.modules))"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-S", "-c", code], env=environment, capture_output=True)
    heavy, count = done.stdout.split()
    assert heavy == b"False" and int(count) < 80
