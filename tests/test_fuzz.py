"""Inputs that one need not trust: every reader of files, and every command, on spoiled input.

A case ends in an answer or in a documented error, in seconds; nothing is executed, nothing is
written. Each test says its seed: ``pytest "tests/test_fuzz.py::test_readers[read_map-3]"`` repeats
it. Limits of memory and what interrupts a write are tried in processes of their own.
"""

import errno
import io
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from typer.testing import CliRunner

from serving_or import blocks, experts, fleet
from serving_or.blocks.cluster import read_cluster
from serving_or.blocks.petals_rules import read_launch
from serving_or.cli.app import EXITS, command_line
from serving_or.cli.blocks import blocks_init
from serving_or.cli.fleet import fleet_init, read_requests
from serving_or.cli.grid import read_sweep, sweep_init
from serving_or.cli.report import read_deployment, report_init
from serving_or.tools import answers
from serving_or.tools.answers import NotFound, Record, write_whole
from serving_or.tools.array_files import read_arrays
from serving_or.tools.data import load_topology
from serving_or.tools.models import Card
from serving_or.tools.sweeps import Grid, fill
from tests.long import cases
from tests.tools.hostile import HOSTILE, npy_file, safetensors_file

ROOT = Path(__file__).parents[1]
SECONDS = 20
# tokens that mean something else to somebody
WORDS = """null ~ true no 1e400 -1e400 NaN .nan Infinity -0 0x10 1_000 1e-320 99999999999999999999
"3" -1 0 1.5 [] {} [[]] "" "\\u0000" "\\ud800" !!python/object:os.system &a *a << ? | > # %YAML
2024-01-01 12:30:00 8GB 8.GiB -3ms 1e999ms 0ms"""
MARKS = [b"\xef\xbb\xbf", b"\xff\xfe", b"\x00", b"\r\n", b"\r", b"\x85", b"\xed\xa0\x80", b"\x1b"]


@contextmanager
def within(seconds):
    "A call that hangs is a failure, not a hanging test."

    def over(*_):
        raise AssertionError(f"no answer within {seconds} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, 10 * seconds)
    began = time.process_time()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.process_time() - began < seconds, "too slow"


def pick(rng, options):
    return options[rng.integers(len(options))]


def spoil(rng, raw):
    "A valid file with bytes, tokens, lines or its encoding changed."
    raw = bytearray(raw)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(raw) + 1))
        how = int(rng.integers(9))
        if how == 0:
            raw[at : at + 1] = bytes([rng.integers(256)])
        elif how == 1:
            del raw[at:]
        elif how == 2:
            del raw[at : at + int(rng.integers(1, 30))]
        elif how == 3:
            raw[at:at] = raw[at : at + 40] * int(rng.integers(1, 4))
        elif how == 4:
            raw[at:at] = MARKS[rng.integers(len(MARKS))]
        elif how == 5:
            raw = bytearray(_other_encoding(rng, bytes(raw)))
        elif how == 6:
            lines = raw.split(b"\n")
            i, j = rng.integers(len(lines), size=2)
            lines[i], lines[j] = lines[j], lines[i] if rng.random() < 0.5 else lines[j]
            raw = bytearray(b"\n".join(lines))
        else:
            raw = bytearray(_other_word(rng, bytes(raw)))
    return bytes(raw)


def _other_word(rng, raw):
    "One number or word replaced."
    spans = [m.span() for m in WORD.finditer(raw)]
    if not spans:
        return raw
    start, stop = spans[rng.integers(len(spans))]
    return raw[:start] + pick(rng, WORDS.split()).encode() + raw[stop:]


WORD = re.compile(rb"[A-Za-z0-9_.+-]+")


def _other_encoding(rng, raw):
    name = ["utf-16", "utf-32", "utf-8-sig", "utf-7"][rng.integers(4)]
    try:
        return raw.decode().encode(name)
    except UnicodeDecodeError:
        return raw


class Canary:
    "What a pickle would do, if anybody let it."

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


# every reader, with valid files to spoil


def _saved(save, *arguments, **more):
    stream = io.BytesIO()
    save(stream, *arguments, **more)
    return stream.getvalue()


def _arrays():
    x = np.arange(16).reshape(2, 2, 4)
    return [
        _saved(np.save, x),
        _saved(np.savez, weight=x, y=x[0]),
        _saved(np.savez_compressed, logical_count=x),
        safetensors_file({"a": x, "1_3": x[0]}),
        json.dumps({"logical_count": x.tolist()}).encode(),
        json.dumps({"a": 1, "b": [2, 3]}).encode() + b"\n" + json.dumps({"a": 2}).encode(),
        b"1,2,3\n4,5,6\n",
        b"0\t1\t\t0.5\t0.5\n2\t3\t\t0.5\t0.5\n",
        b"a: [1, 2]\nb: &x {c: 3}\nd: *x\n",
    ]


def _maps(folder):
    plan = [[0, 1, 2, 3, 0, 1]]
    found = []
    for engine in ("sglang", "vllm", "tensorrt-llm", "vllm-ascend"):
        path = folder / (engine + (".yaml" if engine == "tensorrt-llm" else ".json"))
        experts.write_map(plan, path, engine, experts=4, gpus=3)
        found.append(path.read_bytes())
    return [*found, _saved(np.save, np.array(plan)), b"0,1,2,3,0,1\n"]


GRID = Grid({"load": [0.5, 0.8], "name": ["a", "b"]})


def _cell(rng, load, name):
    return {"wait": load, "far": float("inf"), "said": name, "none": None}


def _read_cells(path):
    "The file of a sweep that was stopped, where the sweep looks for it."
    # a disk's time is not what is tried
    with tempfile.TemporaryDirectory() as folder, mock.patch("os.fsync"):
        (Path(folder) / "cells.jsonl").write_bytes(path.read_bytes())
        fill(_cell, GRID, folder)


def _cells(folder):
    fill(_cell, GRID, folder)
    return (folder / "cells.jsonl").read_bytes()


def _records():
    c = blocks.Cluster(4, 4.0, 1.0, [24, 16, 16], [10, 20, 20], [10, 10, 10])
    plan = blocks.sweep(c, 2)
    problem = experts.Problem([[3.0, 1, 1], [1, 3, 1]], 2)
    found = [
        plan,
        blocks.repair(plan, [1]),
        blocks.Arrivals([0, 1], 2, 3),
        blocks.ChainQueue(1, [0.5, 2], [1, 2]),
        experts.run(problem, experts.RegularizedGreedy()),
        experts.plan([[5.0, 3, 1, 0]], gpus=2, redundant=2),
        experts.ExpertMap([[0, 1, 2, 3, 0, 1]], gpus=3),
        fleet.Requests([0.0, 1], [2, 3], [4, 5]),
        fleet.staff(10.0, 1.0, wait=0.1),
        fill(_cell, GRID),
    ]
    return [record.to_json().encode() for record in found]


CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "torch_dtype": "bfloat16",
}
GRAPH = """<?xml version="1.0"?><graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key attr.name="Latitude" attr.type="double" for="node" id="a"/>
<key attr.name="Longitude" attr.type="double" for="node" id="b"/>
<graph edgedefault="undirected"><node id="0"><data key="a">50</data><data key="b">8</data></node>
<node id="1"><data key="a">48</data><data key="b">2</data></node><node id="2"/>
<edge source="0" target="1"/><edge source="1" target="2"/></graph></graphml>"""
TRACE = b"arrival,prompt,output\n0,100,20\n1.5,60,30\n2.5,900,1\n"


@pytest.fixture(scope="module")
def readers(tmp_path_factory):
    "Name: a file's ending, the reader, valid files."
    folder = tmp_path_factory.mktemp("valid")
    arrays, maps = _arrays(), _maps(folder)
    launch = "python -m petals.cli.run_server m --block_indices 0:4 --attn_cache_tokens 592"
    launch += " --inference_max_length 148 --throughput 12.5 --new_swarm"
    return {
        "read_arrays": ("", read_arrays, [*arrays, *maps]),
        "read_loads": ("", lambda p: experts.read_loads(p, experts=4), arrays),
        "read_map": ("", experts.read_map, maps),
        "check_map": ("", lambda p: experts.check_map(p, 4, 3, engine="vllm-ascend"), maps),
        "read_cluster": (".yaml", read_cluster, [blocks_init().encode()]),
        "from_yaml": (".json", blocks.Cluster.from_yaml, [json.dumps(CLUSTER).encode()]),
        "read_fleet": (".yaml", fleet.read_fleet, [fleet_init().encode()]),
        "from_config": (".json", Card.from_config, [json.dumps(CONFIG).encode()]),
        "read_requests": (".csv", read_requests, [TRACE]),
        "load_topology": (".graphml", load_topology, [GRAPH.encode()]),
        "Record.load": (".json", Record.load, _records()),
        "read_sweep": (".yaml", read_sweep, [sweep_init().encode(), *map(str.encode, SWEEPS)]),
        "cells of a sweep": ("", _read_cells, [_cells(folder)]),
        "read_deployment": (
            ".yaml",
            read_deployment,
            [report_init().encode(), *map(str.encode, DEPLOYMENTS)],
        ),
        "read_launch": ("", lambda p: read_launch(p.read_text("utf-8")), [launch.encode()]),
    }


SWEEPS = [
    """{"kind": "blocks", "methods": ["cg"], "topologies": ["gtsce"], "requests": [2]}""",
    """kind: fleet
policies: [fcfs, mcsf]
traces: [azure_conv]
memory: [9000]
parts: 2
count: 20
step: 0.5
""",
]
DEPLOYMENTS = [
    """model: Llama-2-7B
trace: {requests: azure_code, start: 10 s, length: 60 s, rate: 4, drop_empty: true}
targets: {ttft: 1 s, tpot: 100 ms}
weight_bits: 8
gpu: {name: A100, memory: 40 GB, bandwidth: 1 TB, operations: 1e14, share: 0.8, batch: 9}
steps: {step: 10 ms, each: 0.1 ms, prompt_token: 0.1 ms}
""",
]


CLUSTER = {
    "model": {"blocks": 4, "block_size": "4 GB", "cache_size": "1 GB"},
    "servers": [{"name": "A", "memory": "16 GB", "tau": "10 ms", "count": 2}],
    "clients": [{"name": "office", "rtt": "10 ms"}],
}
NAMES = ["read_arrays", "read_loads", "read_map", "check_map", "read_cluster", "from_yaml"]
NAMES += ["read_fleet", "from_config", "read_requests", "load_topology", "Record.load"]
# read_launch stays last: it takes a text
NAMES += ["read_sweep", "cells of a sweep", "read_deployment", "read_launch"]
FILES = NAMES[:-1]


def told(call):
    "Nothing, or what a call did that is not documented."
    try:
        with within(SECONDS):
            call()
    except (ValueError, NotFound, OSError) as error:
        return None if str(error) else "an error without words"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"[:200]
    return None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(cases(400, 10)))
@pytest.mark.parametrize("name", NAMES)
def test_readers(name, seed, readers, tmp_path, record_property):
    "A hundred and sixty spoiled files of each reader, and each hostile one."
    ending, read, good = readers[name]
    rng, wrong = np.random.default_rng([seed, NAMES.index(name)]), []
    file = tmp_path / f"file{ending}"
    tried = [spoil(rng, good[rng.integers(len(good))]) for _ in range(160)]
    tried += list(HOSTILE.values()) if seed == 0 else []
    for data in tried:
        file.write_bytes(data)
        found = told(lambda: read(file))
        if found:
            wrong.append(f"{data[:300]!r}: {found}")
    record_property("cases", len(tried))
    assert os.listdir(tmp_path) == [file.name]
    assert not wrong, f"{len(wrong)} of {len(tried)}\n" + "\n".join(wrong[:5])


def kinds():
    "Every record that a file can name."
    # parts that are loaded when they are asked for
    import serving_or.cli.blocks
    import serving_or.cli.experts
    import serving_or.cli.fleet  # noqa: F401

    known = answers._RECORDS.items()
    return sorted((k, c) for k, c in known if c.__module__.startswith("serving_or."))


VALUES = [None, True, -1, 0, 1, 2, 0.5, 1e300, 10**30, "x", "", [], [1], [[1, 2], [3, 4]], {}]
VALUES += [
    {"float": "nan"},
    {"float": "inf"},
    {"array": "float", "shape": [2], "values": [1.0, 2.0]},
]
VALUES += [{"array": "int", "shape": [10**12], "values": []}, {"dict": [["a", 1], ["a", 2]]}]
VALUES += [{"type": "blocks.Placement", "a": [1], "m": [1]}, {"type": "blocks.Chain"}, [10**9] * 3]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(cases(200, 6)))
def test_records_of_every_kind(seed, tmp_path, record_property):
    "Every class that a file can name, with fields that are anything."
    rng, wrong, count = np.random.default_rng(seed), [], 0
    file = tmp_path / "record.json"
    for kind, cls in kinds():
        names = [f.name for f in fields(cls) if f.init]
        for _ in range(4):
            given = {n: VALUES[rng.integers(len(VALUES))] for n in names if rng.random() < 0.9}
            file.write_text(json.dumps({"type": kind, **given}))
            found, count = told(lambda: Record.load(file)), count + 1
            if found:
                wrong.append(f"{kind} {given}: {found}")
    record_property("cases", count)
    assert not wrong, "\n".join(wrong[:5])


# the command line

COMMANDS = [
    "blocks init",
    "blocks plan FILE --requests 4",
    "blocks launch FILE --model m --tokens 9",
    "blocks repair FILE --lost A-1 --time-limit 0.2",
    "blocks simulate FILE --rate 1 --count 5 --tokens 148",
    "experts diagnose FILE --gpus 2",
    "experts backtest FILE --gpus 2 --redundant 2 --window 1",
    "experts plan FILE --gpus 2 --redundant 2",
    "experts check FILE --experts 4 --gpus 3",
    "experts convert FILE --to sglang --experts 4 --gpus 3",
    "fleet staff --rate 3 --service 0.5 --wait 0.1",
    "fleet cache --model Llama-2-7B --gpu A100",
    "fleet batch --trace FILE --memory 9000 --count 3",
    "fleet mix FILE --time-limit 0.2",
    "report init",
    "report run FILE --time-limit 0.2 --seed 1",
    "sweep init",
    "sweep run FILE --workers 1",
]
ODD = ["-1", "nan", "inf", "1e400", "", "x", "--", "-9e99", "1.5", "\x00", "\udcff", "../..", "/"]
ODD += ["/dev/null", "--help=1", "9" * 400, "\x1b[31m", "=", "*", "~", "null", "[1]", "1,2", "0"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(cases(400, 10)))
def test_commands(seed, readers, tmp_path, monkeypatch, record_property):
    "Every command, with a spoiled file, an odd word, or both: an exit code that is documented."
    monkeypatch.chdir(tmp_path)
    rng, wrong, count, runner, app = np.random.default_rng(seed), [], 0, CliRunner(), command_line()
    # the samples of report and sweep are good for half a minute
    long = {report_init().encode(), sweep_init().encode()}
    files = [data for name in FILES for data in readers[name][2] if data not in long]
    for line in COMMANDS:
        for _ in range(8):
            words, file = line.split(), f"file{['', '.json', '.yaml', '.csv'][rng.integers(4)]}"
            Path(file).write_bytes(spoil(rng, files[rng.integers(len(files))]))
            at = rng.integers(2, len(words) + 1)
            if rng.random() < 0.7:
                words[at : at + rng.integers(2)] = [ODD[rng.integers(len(ODD))]]
            words = [file if word == "FILE" else word for word in words]
            before, count = sorted(os.listdir()), count + 1
            with within(10 * SECONDS):
                done = runner.invoke(app, words)
            if done.exit_code not in set(EXITS) - {70}:
                wrong.append(f"{words} → {done.exit_code} {done.stderr[-300:]} {done.exception!r}")
            elif done.exit_code == 2 and not done.stderr:
                wrong.append(f"{words} → 2 without a word")
            # only a report is for a file
            wrote = set(os.listdir()) - set(before)
            if line.startswith("report run") and done.exit_code in (0, 1):
                [os.remove(name) for name in wrote if name.startswith("file-report.")]
            if sorted(os.listdir()) != before:
                wrong.append(f"{words} wrote {wrote}")
            os.remove(file)
    record_property("cases", count)
    assert not wrong, f"{len(wrong)} of {count}\n" + "\n".join(wrong[:5])


# what is no file, or another one than it says


@pytest.mark.parametrize("name", [name for name in FILES if name != "cells of a sweep"])
def test_what_is_no_ordinary_file(name, readers, tmp_path, record_property):
    "Pipes are not waited for, devices not read to their end, loops not followed."
    ending, read, good = readers[name]
    pipe, loop, link = (tmp_path / f"{n}{ending}" for n in ("pipe", "loop", "link"))
    os.mkfifo(pipe)
    loop.symlink_to(loop)
    (tmp_path / f"zero{ending}").symlink_to("/dev/zero")
    (tmp_path / f"folder{ending}").mkdir()
    (tmp_path / "inside").write_bytes(good[0])
    link.symlink_to("inside")
    for word in ("pipe", "loop", "zero", "folder", "gone", "a\x00b", "x" * 300, "\udcff"):
        with pytest.raises((ValueError, OSError)) as error, within(SECONDS):
            read(tmp_path / f"{word}{ending}")
        if isinstance(error.value, OSError) and word != "\udcff":
            assert word in str(error.value)
    read(link)
    record_property("cases", 9)


def test_pickles_are_never_run(tmp_path, record_property):
    "In arrays of objects, in archives, as they are: read as numbers, or not at all."
    canary, count = tmp_path / "ran", 0
    bad = Canary(canary)
    raw = pickle.dumps(bad)
    with zipfile.ZipFile(inner := io.BytesIO(), "w") as archive:
        for name, data in (("a/data.pkl", raw), ("a/version", b"3"), ("a/byteorder", b"little")):
            archive.writestr(name, data)
    with zipfile.ZipFile(outside := io.BytesIO(), "w") as archive:
        archive.writestr("../../outside.npy", _saved(np.save, np.ones(2)))
        archive.writestr("/tmp/outside.npy", _saved(np.save, np.ones(2)))
    array = np.array([bad, None], object)
    files = [raw, pickle.dumps([bad], 0), inner.getvalue(), _saved(np.save, array)]
    files += [_saved(np.savez, a=array), npy_file((1,), "|O", raw), outside.getvalue()]
    for data in files:
        for ending in ("", ".npy", ".npz", ".pt", ".pkl", ".json"):
            file = tmp_path / f"file{ending}"
            file.write_bytes(data)
            for read in (read_arrays, lambda p: experts.read_loads(p, experts=4), experts.read_map):
                assert told(lambda: read(file)) is None
                count += 1
            file.unlink()
    record_property("cases", count)
    assert not list(tmp_path.iterdir()) and not Path("/tmp/outside.npy").exists()
    assert not (tmp_path.parents[1] / "outside.npy").exists()


# what would fill the memory

BOMBS = """
import io, resource, sys, zipfile
from pathlib import Path

from numpy.lib.format import write_array_header_1_0

from serving_or import blocks, experts, fleet
from serving_or.cli.fleet import read_requests
from serving_or.tools.answers import Record
from serving_or.tools.array_files import read_arrays
from serving_or.tools.data import load_topology
from serving_or.tools.models import Card

# more than a reader takes of the largest text, and less than these files would be
most = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_AS, (most, most))
folder = Path(sys.argv[2])
files = {
    "sparse": lambda f: f.truncate(2**40),
    "zeros": lambda f: f.truncate(2**26),
    "aliases": lambda f: f.write(b"a0: &a0 [1,1,1,1,1,1,1,1,1]\\n" + b"".join(
        b"a%d: &a%d [" % (i, i) + b",".join([b"*a%d" % (i - 1)] * 9) + b"]\\n"
        for i in range(1, 30))),
    "deep": lambda f: f.write(b"[" * 10**5),
    "deep yaml": lambda f: f.write(b"a: {" * 10**5),
    "long": lambda f: f.write(b"[" + b"1," * 10**6 + b"1]"),
    "entities": lambda f: f.write(b"<!DOCTYPE g [<!ENTITY a '" + b"a" * 1000 + b"'>" + b"".join(
        b"<!ENTITY a%d '%s'>" % (i, (b"&a%d;" % (i - 1) if i else b"&a;") * 10)
        for i in range(12)) + b"]><graphml>&a11;</graphml>"),
}


def zeros(name, head):
    # a gigabyte that takes a megabyte
    def bomb(f):
        with zipfile.ZipFile(f, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            with archive.open(name, "w", force_zip64=True) as stream:
                stream.write(head)
                for _ in range(1024):
                    stream.write(bytes(2**20))
    return bomb


head = {"descr": "<i8", "fortran_order": False, "shape": (1, 4, 2**25)}
buffer = io.BytesIO()
write_array_header_1_0(buffer, head)
files["zip of an array"] = zeros("weight.npy", buffer.getvalue())
files["zip of a pickle"] = zeros("a/data.pkl", b"")
readers = {
    ".npz": read_arrays, ".pt": lambda p: experts.read_loads(p, experts=4),
    ".dat": experts.read_map, ".yaml": blocks.Cluster.from_yaml, ".yml": fleet.read_fleet,
    ".json": Record.load, ".config.json": Card.from_config, ".csv": read_requests,
    ".graphml": load_topology,
}
count = 0
for word, write in files.items():
    path = folder / "bomb"
    with path.open("wb") as stream:
        write(stream)
    for ending, read in readers.items():
        path = path.rename(folder / f"bomb{ending}")
        try:
            read(path)
        except (ValueError, OSError) as error:
            assert str(error)
        except BaseException as error:
            raise SystemExit(f"{word} {ending}: {type(error).__name__} {error}")
        count += 1
    path.unlink()
# the peak since this program began; the system's ru_maxrss would count who started it, too
status = open("/proc/self/status").read()
print(count, status.split("VmHWM:")[1].split()[0])
"""


def test_what_would_fill_the_memory(tmp_path, record_property):
    "Four gigabytes of addresses, of which the libraries take one; and 600 MB of them in use."
    line = [sys.executable, "-c", BOMBS, str(4 * 2**30), str(tmp_path)]
    one = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        line, env={**os.environ, **one}, cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]
    count, kilobytes = map(int, done.stdout.split())
    assert kilobytes < 600_000
    record_property("cases", count)


# what interrupts a write


def _writers():
    "Name: a writer of a file, in two versions."
    c = [blocks.Cluster(2, 1.0, 1.0, [9.0], [tau], [1.0]) for tau in (1.0, 2.0)]
    rows = [[[0, 1, 2, 3, 0, 1]], [[0, 1, 2, 3, 2, 3]]]
    large = [blocks.Arrivals(np.arange(20_000.0) + i, 1, 1) for i in (0, 1)]
    found = {
        "save": lambda path, i: blocks.sweep(c[i], 1).save(path),
        "save much": lambda path, i: large[i].save(path),
    }
    found["write_fleet"] = lambda path, i: (
        fleet.write_fleet(path) if i == 0 else write_whole(path, "another")
    )
    for engine in ("sglang", "vllm", "tensorrt-llm", "vllm-ascend"):
        found[engine] = lambda path, i, engine=engine: experts.write_map(
            rows[i], path, engine, experts=4, gpus=3
        )
    return found


STOPS = [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt(), SystemExit(143)]


@pytest.mark.parametrize("stop", STOPS, ids=["full disk", "Ctrl-C", "SIGTERM that raises"])
@pytest.mark.parametrize("step", ["fsync", "replace", "realpath"])
@pytest.mark.parametrize("name", _writers())
def test_a_write_that_is_stopped(name, step, stop, tmp_path, monkeypatch):
    "The old file stands, whole, and nothing else is there."
    path = tmp_path / ("file.yaml" if name == "tensorrt-llm" else "file.json")
    write = _writers()[name]
    write(path, 0)
    before = path.read_bytes()

    def stopped(*_, **__):
        raise stop

    monkeypatch.setattr(answers.os.path if step == "realpath" else answers.os, step, stopped)
    with pytest.raises(type(stop)):
        write(path, 1)
    monkeypatch.undo()
    assert path.read_bytes() == before and os.listdir(tmp_path) == [path.name]
    write(path, 1)
    assert path.read_bytes() != before and os.listdir(tmp_path) == [path.name]


WRITE = """
import resource, signal, sys
from serving_or.tools.answers import write_whole

texts = [word * 300_000 for word in "ab"]
if sys.argv[2] == "full":
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
print("begun", flush=True)
for i in range(10**6):
    write_whole(sys.argv[1], texts[i % 2])
"""


@pytest.mark.parametrize("how", ["SIGINT", "SIGTERM", "SIGKILL", "full"])
def test_a_process_that_is_stopped_while_it_writes(how, tmp_path):
    "The file is one of the two, whole; what a killed process leaves is hidden, and read by nobody."
    path, texts = tmp_path / "file", {word * 300_000 for word in "ab"}
    for i in range(3):
        write_whole(path, "a" * 300_000)
        line = [sys.executable, "-c", WRITE, str(path), how]
        with subprocess.Popen(
            line, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as child:
            child.stdout.readline()
            if how != "full":
                time.sleep(0.05 * (i + 1))
                child.send_signal(getattr(signal, how))
            said = child.communicate(timeout=60)[1]
        assert child.returncode != 0 and path.read_text() in texts
        left = [name for name in os.listdir(tmp_path) if name != "file"]
        assert all(name.startswith(".file.") and name.endswith(".part") for name in left)
        if how == "full":
            assert not left and "File too large" in said and str(path) in said
    for name in left:
        os.remove(tmp_path / name)
