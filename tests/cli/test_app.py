"""What every command promises: codes, streams, files, help; some of it in real processes."""

import inspect
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from typer.testing import CliRunner

from serving_or import __version__
from serving_or.cli.app import (
    EXITS,
    PARTS,
    Terminated,
    as_json,
    command_line,
    commands,
    exit_code,
    group_of,
    sections,
    texts_of,
)
from serving_or.cli.blocks import blocks_init
from serving_or.cli.fleet import MAIN, fleet_init
from serving_or.tools.answers import Infeasible, NotFound, Record, Result, Status, TooLarge
from tests.long import cases
from tests.tree import ROOT

ALL = [(part, name) for part in PARTS for name in commands(part)]
# a command that takes for ever, one that fails, in a process of its own
SLOW = """
import serving_or.cli.fleet as fleet, time, sys

def fleet_slow():
    "Sleep."
    print("begun", file=sys.stderr, flush=True)
    time.sleep(60)

def fleet_deaf():
    "Wait in C for what never comes, as a solver does that hears no signals."
    import ctypes
    C, lock = ctypes.CDLL(None), ctypes.create_string_buffer(64)
    C.pthread_mutex_lock(lock)
    print("begun", file=sys.stderr, flush=True)
    C.pthread_mutex_lock(lock)

fleet.fleet_slow, fleet.fleet_deaf = fleet_slow, fleet_deaf
fleet.__all__ += ["fleet_slow", "fleet_deaf"]
"""


@dataclass(frozen=True, eq=False)
class Answer(Record):
    """An answer of the commands below."""

    name: str
    values: np.ndarray
    faults: tuple = ()

    def summary(self):
        return f"the answer to {self.name}"


def ask(
    name: str, times: int = 1, *, level: float, kind: Literal["a-b", "c"] = "c", bare: bool = False
):
    """Ask something.

    And say more
    about it.

    Parameters
    ----------
    name : str
        What is asked.
    times : int
        How often.
    level : float
        How ``loud``, in
        decibels.
    kind : {"a-b", "c"}
        Of which kind.
    bare : bool
        Without more.

    Returns
    -------
    Answer

    Examples
    --------
    >>> 1 + 1
    2

    $ serving-or demo ask --level 1 why
    """
    return Answer(f"{name}, {times}, {level}, {kind}, {bare}", np.arange(3.0))


def fail(kind: str, *, service_time: float = 0.0):
    """Fail.

    Parameters
    ----------
    kind : str
        How.
    service_time : float
        A number.
    """
    raise {
        "infeasible": Infeasible("no fleet is large enough"),
        "lost": NotFound("nothing was found"),
        "large": TooLarge("too many"),
        "value": ValueError("service_time is -1.0; it must be a finite number, at least 0"),
        "inside": ValueError("level is 1 without service_time; my_service_time has kind"),
        "named": ValueError("kind.npy has no service_time.csv"),
        "argument": ValueError("kind is 'argument'; it must be 'value'"),
        "empty": ValueError(),
        "lines": ValueError("a.yaml:1: x is y\na.yaml:2: y is \x1b[2J"),
        "file": FileNotFoundError(2, "No such file or directory", "a.csv"),
        "package": ModuleNotFoundError("torch is not installed"),
        "ours": ZeroDivisionError("division by zero"),
        "pipe": BrokenPipeError(32, "Broken pipe"),
        "stop": KeyboardInterrupt(),
        "terminated": Terminated(),
        "memory": MemoryError(),
    }[kind]


def check(*, faults: int = 0):
    """Check something.

    Parameters
    ----------
    faults : int
        How many are found.
    """
    return Answer("check", np.zeros(0), tuple("abc"[:faults]))


def copy(text: str, *, output: Path | None = None, verbose: bool = False, again: list[str] = ()):
    """Write a file itself.

    Parameters
    ----------
    text : str
        What it says.
    output : Path
        Where.
    verbose : bool
        Say more.
    again : list of str
        More lines.
    """
    if output is not None:
        output.write_text(text)
    return f"{text} {verbose} {list(again)}"


DEMO = group_of({"ask": ask, "fail": fail, "check": check, "copy": copy})


def run(*arguments, app=DEMO):
    return CliRunner().invoke(app, list(map(str, arguments)))


def process(*arguments, code=MAIN, **more):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    more = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | more
    return subprocess.run(command, env=environment, text=True, timeout=60, **more)


# A function is a command


def test_a_call_reaches_the_function_and_its_answer_the_output():
    done = run("ask", "why", "--level", 2)
    assert done.exit_code == 0 and done.stderr == ""
    assert done.stdout == "the answer to why, 1, 2.0, c, False\n"
    done = run("ask", "why", 3, "--level", "-1e-3", "--kind", "a-b", "--bare")
    assert done.stdout == "the answer to why, 3, -0.001, a-b, True\n"


def test_json_is_the_record_itself(tmp_path):
    done = run("ask", "wäy", "--level", 2, "--json")
    kept = tmp_path / "answer.json"
    kept.write_text(done.stdout, encoding="utf-8")
    assert Answer.load(kept) == ask("wäy", level=2.0)
    assert json.loads(done.stdout)["name"] == "wäy, 1, 2.0, c, False" and done.stderr == ""


def test_the_file_is_the_record_and_the_output_its_summary(tmp_path):
    kept = tmp_path / "answer.json"
    done = run("ask", "why", "--level", 2, "-o", kept)
    assert Answer.load(kept) == ask("why", level=2.0) and done.stdout.startswith("the answer")
    assert done.stderr == f"serving-or: {kept} is written\n"
    both = run("ask", "why", "--level", 2, "--json", "--output", kept)
    printed = json.loads(both.stdout)
    assert printed.pop("summary") == {"text": "the answer to why, 1, 2.0, c, False"}
    assert printed == json.loads(kept.read_text())


def test_a_command_may_write_its_file_itself(tmp_path):
    kept = tmp_path / "copy.txt"
    done = run("copy", "hello", "-o", kept, "--again", "x", "--again", "y", "--verbose")
    assert kept.read_text() == "hello" and done.stdout == "hello True ['x', 'y']\n"
    # no terminal, no progress
    assert run("copy", "hello").stdout == "hello False []\n"
    assert json.loads(run("copy", "hello", "--json").stdout) == "hello False []"


def test_faults_end_with_one():
    assert run("check").exit_code == 0
    done = run("check", "--faults", 2, "--json")
    assert done.exit_code == 1 and json.loads(done.stdout)["faults"] == ["a", "b"]


def test_help_says_everything():
    text = run("ask", "--help").stdout
    for words in ("Ask something.", "And say more about it.", "What is asked.", "NAME", "TIMES"):
        assert words in text
    assert "How loud, in decibels." in " ".join(text.split()) and "required" in text
    assert "a-b" in text and "$ serving-or demo ask --level 1 why\n" in text and ">>>" not in text
    assert "Ask something." in run("--help").stdout


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["ask", "why"], "--level"),
        (["ask", "--level", "2"], "NAME"),
        (["ask", "why", "--level", "high"], "--level"),
        (["ask", "why", "--level", "2", "--kind", "d"], "a-b"),
        (["ask", "why", "2.5", "--level", "2"], "TIMES"),
        (["ask", "why", "--levle", "2"], "--levle"),
        (["ask", "why", "2", "3", "--level", "2"], "3"),
        (["tell"], "tell"),
    ],
)
def test_a_wrong_line_is_told_and_ends_with_two(arguments, said):
    done = run(*arguments)
    assert done.exit_code == 2 and done.stdout == "" and said in done.stderr


def test_sections_of_a_docstring():
    found = sections(inspect.getdoc(ask))
    assert list(found) == ["", "Parameters", "Returns", "Examples"]
    assert texts_of(found["Parameters"])["level"] == "How loud, in decibels."
    assert sections("") == {"": []} and texts_of([]) == {}


# What a script asks for


@dataclass(frozen=True, eq=False)
class Found(Result):
    """An optimisation, with numbers that JSON has no words for."""

    cost: np.ndarray
    bound: float = 1.0
    status: Status = Status.FEASIBLE

    @property
    def value(self):
        return float(self.cost.sum())

    @cached_property
    def odd(self):
        return {1: np.array([np.nan, np.inf, 2.0]), "n": (np.int64(3), None, True, Status.OPTIMAL)}

    @property
    def inner(self):
        return Answer("inside", np.zeros(1))

    @property
    def _own(self):
        return 1 / 0


def test_the_summary_is_the_verdict_and_what_is_computed(tmp_path):
    found = Found(np.array([1.0, 3.0]))
    told = json.loads(as_json(found))
    assert told.pop("summary") == {
        "text": found.summary(),
        "status": "feasible",
        "value": 4.0,
        "bound": 1.0,
        "gap": 0.75,
        "ratio": 4.0,
        "scope": "all",
        "odd": {"1": [None, "inf", 2.0], "n": [3, None, True, "optimal"]},
    }
    assert told == json.loads(found.to_json())
    endless = json.loads(as_json(Found(np.array([np.inf]), bound=0.0)))["summary"]
    assert endless["value"] == endless["ratio"] == "inf" and endless["gap"] == 1.0
    kept = tmp_path / "a.json"
    kept.write_text(as_json(found), encoding="utf-8")
    assert Found.load(kept) == found == Record.load(kept)
    # the fields count, whatever a summary says
    kept.write_text(as_json(found).replace('"value": 4.0', '"value": 9.0'), encoding="utf-8")
    assert Found.load(kept).value == 4.0


@pytest.mark.parametrize(
    "line",
    [
        "fleet staff --rate 20 --service-time 1 --wait 0.3",
        "fleet batch azure_code --memory 50000 --first 50 --drop-empty",
        "fleet mix fleet.yaml",
        "experts plan loads.json --gpus 4 --redundant 4",
        "experts plan loads.json --gpus 4 --redundant 4 --old map.json",
        "blocks plan cluster.yaml --requests 3",
    ],
)
def test_what_optimises_says_value_bound_gap_and_status(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("fleet.yaml").write_text(fleet_init())
    Path("cluster.yaml").write_text(blocks_init())
    Path("loads.json").write_text(json.dumps([[[9, 1, 2, 3, 4, 5, 6, 7]]] * 2))
    Path("map.json").write_text(json.dumps([[*range(8), 0, 5, 6, 7]]))
    done = run(*line.split(), "--json", app=command_line())
    Path("answer.json").write_text(done.stdout, encoding="utf-8")
    told, answer = json.loads(done.stdout)["summary"], Record.load("answer.json")
    assert isinstance(answer, Result) and told["text"] == answer.summary()
    for name in ("value", "bound", "gap", "ratio", "status", "scope"):
        assert told[name] == getattr(answer, name)


# Errors


@pytest.mark.parametrize(
    "kind, code, said",
    [
        ("infeasible", 1, "no fleet is large enough"),
        ("lost", 1, "nothing was found"),
        ("large", 2, "too many"),
        ("value", 2, "--service-time is -1.0; it must be a finite number, at least 0"),
        ("inside", 2, "level is 1 without --service-time; my_service_time has kind"),
        ("named", 2, "kind.npy has no service_time.csv"),
        ("argument", 2, "KIND is 'argument'; it must be 'value'"),
        ("empty", 2, "ValueError"),
        ("file", 2, "a.csv: No such file or directory"),
        ("package", 2, "torch is not installed"),
        ("stop", 130, "stopped"),
        ("terminated", 143, "stopped"),
        ("ours", 70, "internal error: ZeroDivisionError: division by zero (--debug shows where)"),
        ("memory", 70, "internal error: MemoryError: MemoryError (--debug shows where)"),
    ],
)
def test_an_error_is_a_code_and_a_line(kind, code, said, tmp_path):
    kept = tmp_path / "old.json"
    kept.write_text("old")
    done = run("fail", kind, "-o", kept, "--json")
    assert (done.exit_code, done.stdout, done.stderr) == (code, "", f"serving-or: {said}\n")
    assert kept.read_text() == "old" and os.listdir(tmp_path) == ["old.json"]
    assert code in EXITS


def test_each_line_of_a_message_is_ours_and_obeys_nobody():
    done = run("fail", "lines")
    assert done.stderr == "serving-or: a.yaml:1: x is y\nserving-or: a.yaml:2: y is \\x1b[2J\n"


def test_a_pipe_that_nobody_reads_is_no_error():
    done = run("fail", "pipe")
    assert (done.exit_code, done.stderr) == (141, "")


def test_debug_shows_where():
    done = run("fail", "value", "--debug")
    assert done.exit_code == 2 and "Traceback" in done.stderr and "in fail" in done.stderr
    assert "Traceback" not in run("fail", "ours").stderr


def test_codes_are_told():
    assert {exit_code(e) for e in (Infeasible("a"), ValueError(), OSError(), EOFError())} == {
        1,
        2,
        70,
    }
    assert set(EXITS) == {0, 1, 2, 70, 130, 141, 143}


# Files


@pytest.mark.parametrize("place", ["", "none/a.json", "file/a.json"])
def test_a_place_that_cannot_be_written_is_refused_before_the_run(place, tmp_path):
    (tmp_path / "file").write_text("old")
    # the command would end with 70
    done = run("fail", "ours", "-o", tmp_path / place)
    assert done.exit_code == 2 and "--output must be" in done.stderr and done.stdout == ""
    assert (tmp_path / "file").read_text() == "old" and os.listdir(tmp_path) == ["file"]


def test_a_folder_without_permission(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    done = run("ask", "why", "--level", 1, "-o", tmp_path / "a.json")
    assert done.exit_code == 2 and "cannot be written to" in done.stderr
    assert not os.listdir(tmp_path)


def test_a_device_is_left_alone(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert run("ask", "why", "--level", 1, "-o", pipe).exit_code == 2 and pipe.is_fifo()


# Processes


def test_the_version_and_the_help_of_a_real_process():
    done = process("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"serving-or {__version__}\n", "")
    text = process("--help").stdout
    assert all(part in text for part in PARTS) and "--install-completion" in text
    assert all(len(line) <= 100 for line in text.splitlines()) and "\x1b" not in text
    assert all(ord(c) < 128 for c in text)


def test_the_help_is_quick_and_loads_no_part():
    """At most 0.6 s of processor time where it takes 0.2 s: three times for a slow machine."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    code = f"import sys\ntry: {MAIN}\nfinally: print(*sys.modules, file=sys.stderr)"
    loaded = set(process("--help", code=code).stderr.split())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    heavy = {"pandas", "scipy", "matplotlib", "networkx", "cvxpy", "highspy", "pydantic", "rich"}
    parts = {f"serving_or.{part}" for part in ("fleet", "experts", "blocks")}
    assert not loaded & (heavy | parts) and "numpy" in loaded and spent <= 0.6


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("name", ["slow", "deaf"])
def test_ctrl_c_and_sigterm_end_it_soon(name, number, tmp_path):
    """Within 20 s where it takes one: the machine may be busy."""
    kept = tmp_path / "old.json"
    kept.write_text("old")
    command = [sys.executable, "-c", SLOW + MAIN, "fleet", name, "-o", kept]
    running = subprocess.Popen(
        command,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert running.stderr.readline() == "begun\n"
        running.send_signal(number)
        begun = time.monotonic()
        said = running.communicate(timeout=30)
    finally:
        running.kill()
    assert running.returncode == 128 + number and said == ("", "serving-or: stopped\n")
    assert time.monotonic() - begun < 20 and os.listdir(tmp_path) == ["old.json"]
    assert kept.read_text() == "old"


WRITING = """
import os, sys, time
{how}
def fsync(file):
    print("begun", file=sys.stderr, flush=True)
    wait()
os.fsync = fsync
"""
WAITS = {
    "Python": "def wait(): time.sleep(60)",
    "C": """def wait():
    import ctypes
    C, lock = ctypes.CDLL(None), ctypes.create_string_buffer(64)
    C.pthread_mutex_lock(lock), C.pthread_mutex_lock(lock)""",
}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("where", WAITS)
def test_a_signal_while_a_file_is_written_leaves_the_old_one_alone(where, number, tmp_path):
    "Whether the system hears it, or the process has to be ended in the middle of a write."
    kept = tmp_path / "old.yaml"
    kept.write_text("old")
    code = WRITING.format(how=WAITS[where]) + MAIN
    running = subprocess.Popen(
        [sys.executable, "-c", code, "blocks", "init", "-o", kept],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert running.stderr.readline() == "begun\n" and len(os.listdir(tmp_path)) == 2
        running.send_signal(number)
        said = running.communicate(timeout=30)
    finally:
        running.kill()
    assert (running.returncode, *said) == (128 + number, "", "serving-or: stopped\n")
    assert os.listdir(tmp_path) == ["old.yaml"] and kept.read_text() == "old"


def test_a_reader_that_goes_away():
    read, write = os.pipe()
    os.close(read)
    done = process("--help", stdout=write)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="skipped: no /dev/full")
def test_a_full_disk():
    with open("/dev/full", "w") as full:
        done = process("--help", stdout=full)
    assert done.returncode == 2 and "No space left" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_an_output_in_another_encoding_is_ascii(encoding):
    """Also when a file name is not UTF-8, of which Python makes half a character."""
    code = "from serving_or.cli.app import _put; _put(chr(34) + 'α é ' + chr(0xDCE9) + chr(34))"
    environment = {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": encoding, "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    assert done.returncode == 0 and json.loads(done.stdout.decode("utf-8")) == "α é \udce9"
    text = code.replace("chr(34) + 'α é ' + chr(0xDCE9) + chr(34)", "'α é'")
    done = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True)
    assert done.stdout.decode("utf-8") == ("α é" if encoding == "utf-8" else "\\u03b1 \\u00e9")


def test_completion_is_typers():
    words = {
        "_SERVING_OR_COMPLETE": "complete_bash",
        "COMP_WORDS": "serving-or f",
        "COMP_CWORD": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", MAIN],
        env=os.environ | words | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["fleet"]


# Every command


@pytest.mark.parametrize("part, name", ALL, ids=" ".join)
def test_every_command_is_told_in_full(part, name):
    function = commands(part)[name]
    told = sections(function.__doc__)
    texts = texts_of(told["Parameters"])
    parameters = inspect.signature(function).parameters
    assert list(texts) == list(parameters) and all(texts.values())
    done = run(part, name, "--help", app=command_line())
    said = " ".join(done.stdout.split())
    assert done.exit_code == 0 and told[""][0] in said
    for parameter in parameters.values():
        option = parameter.kind is parameter.KEYWORD_ONLY
        spelled = f"--{parameter.name.replace('_', '-')}" if option else parameter.name.upper()
        assert spelled in said and texts[parameter.name] in said
    for option in ("--json", "--debug", "-o", "--help"):
        assert option in said
    assert any(line.strip().startswith("$ serving-or") for line in told["Examples"])


# what is right most of the time, and what never is
GOOD = {
    "rate": "20",
    "service_time": "1",
    "wait": "0.3",
    "gpu": "L4",
    "gpus": "4",
    "experts": "8",
    "redundant": "4",
    "to": "sglang",
    "output": "out.json",
    "memory": "20000",
    "first": "9",
    "requests": "3",
    "model": "m",
    "tokens": "9",
    "count": "20",
}
# fmt: off
ODD = [
    "0", "-1", "1", "64", "nan", "inf", "1e308", "1e-320", "9" * 400, "", "x", "é\udce9", "--", "-",
    "a\0b", ".", "none", "/dev/null", "map.json", "loads.json", "fleet.yaml", "out.yaml",
]
# fmt: on


def some_line(rng, part, name):
    "A line for a command, with a few odd things in it."
    line = [part, name]
    for parameter in inspect.signature(commands(part)[name]).parameters.values():
        if parameter.kind is not parameter.KEYWORD_ONLY:
            right = ["map.json", "loads.json", "fleet.yaml", "Llama-3.1-8B", "azure_code"]
            right += ["cluster.yaml", "plan.json"] if part == "blocks" else []
            line.append(rng.choice(right if rng.random() < 0.9 else ODD))
        elif rng.random() < (0.95 if parameter.name in GOOD else 0.1):
            usual = GOOD.get(parameter.name, "2") if rng.random() < 0.9 else rng.choice(ODD)
            line.append(f"--{parameter.name.replace('_', '-')}")
            line += [] if parameter.annotation is bool else [usual]
    return line + rng.choice([[], [], ["--json"], ["--bogus"], ["--help"]])


def test_no_line_makes_a_mistake_of_ours(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    loads = [[[9, 1, 2, 3, 4, 5, 6, 7], [1, 1, 2, 3, 5, 8, 13, 21]]] * 3
    Path("loads.json").write_text(json.dumps(loads))
    for line in ("plan loads.json --gpus 4 --redundant 4 --to sglang -o map.json", "init"):
        part = "fleet" if line == "init" else "experts"
        text = run(part, *line.split(), app=command_line()).stdout
    Path("fleet.yaml").write_text(text)
    Path("cluster.yaml").write_text(blocks_init())
    done = run(
        "blocks", "plan", "cluster.yaml", "--requests", 3, "-o", "plan.json", app=command_line()
    )
    assert done.exit_code == 0
    rng, codes = random.Random(0), set()
    for _ in range(cases(8000, 400)):
        line = some_line(rng, *rng.choice(ALL))
        done = run(*line, app=command_line())
        codes.add(done.exit_code)
        assert done.exit_code in (0, 1, 2), (line, done.stderr)
        assert done.exit_code == 0 or done.stderr or line[1] == "check", line
        assert "Traceback" not in done.stderr and isinstance(done.exception, SystemExit | None)
    assert codes == {0, 1, 2}
