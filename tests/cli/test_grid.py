"""A sweep from its file: what each cell is, what is refused, and what a signal leaves behind."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from typer.testing import CliRunner

from serving_or import experts, fleet
from serving_or.cli.app import command_line
from serving_or.cli.fleet import MAIN
from serving_or.cli.grid import read_sweep, sweep_init, sweep_run
from serving_or.tools.answers import Record
from serving_or.tools.data import load_experts, load_requests
from serving_or.tools.files import BadFile
from serving_or.tools.generators import trace
from serving_or.tools.sweeps import SweepTable
from tests.tree import ROOT

SMALL = """
kind: experts
policies: [never, reverse]
roundings: [none, credit]
traces: [ar, law]
extra: [8]
move_price: [2.0]
seeds: 2
experts: 6
steps: 12
"""
OTHERS = {
    "blocks": "methods: [cg, sweep]\ntopologies: [abovenet]\nrequests: [2]\nseeds: 2\n",
    "blocks-online": "routers: [waiting, petals]\ntopologies: [abovenet]\nrates: [0.1]\n"
    "count: 20\nrequests: 2\n",
    "fleet": "policies: [fcfs, mcsf]\ntraces: [azure_code]\nmemory: [20000]\nparts: 2\ncount: 50\n",
}


def written(folder, text=SMALL):
    path = folder / "sweep.yaml"
    path.write_text(text)
    return path


def call(*arguments):
    return CliRunner().invoke(command_line(), list(map(str, arguments)))


def test_cells_are_what_the_doors_say(tmp_path):
    frame = sweep_run(written(tmp_path)).to_frame()
    assert len(frame) == 16
    for _, row in frame.iterrows():
        if row.trace == "ar":
            loads = trace("ar", 6, 12, seed=row.seed)
        else:
            loads = load_experts("law", window=4, layer=row.seed).loads
            loads = loads / loads.mean()
        policy = {"never": experts.Never, "reverse": experts.ReverseEntropy}[row.policy]()
        rounding = {"none": None, "credit": experts.Credit()}[row.rounding]
        found = experts.run(experts.Problem(loads, 8, 2.0), policy, rounding)
        assert (row.cost, row.bound, row.ratio) == (found.cost, found.bound, found.ratio)
        assert row.cost == pytest.approx(row.latency + 2 * row.moved)


@pytest.mark.parametrize("kind", OTHERS)
def test_the_other_kinds_have_values_above_their_bounds(tmp_path, kind):
    table = sweep_run(written(tmp_path, f"kind: {kind}\n{OTHERS[kind]}"))
    frame = table.to_frame()
    assert not table.failed and len(frame) in (2, 4)
    if kind == "blocks-online":
        assert (frame["p95"] >= frame["mean"] * 0.9).all() and (frame["rejected"] == 0).all()
    else:
        assert (frame["value"] >= frame["bound"]).all()


def test_a_part_of_a_trace_is_that_of_the_door(tmp_path):
    table = sweep_run(written(tmp_path, f"kind: fleet\n{OTHERS['fleet']}"))
    requests = fleet.Requests.from_trace(load_requests("azure_code"), 0.05, drop_empty=True)
    some = requests.take(np.arange(50, 100))
    some = fleet.Requests(some.arrival - some.arrival.min(), some.prompt, some.output)
    found = fleet.schedule(some, 20_000, fleet.MCSF())
    row = table.to_frame().query("policy == 'mcsf' and part == 1").iloc[0]
    assert (row.value, row.bound) == (found.value, found.bound)


def test_a_cell_that_fails_ends_with_one_and_stands_in_the_table(tmp_path):
    text = f"kind: fleet\n{OTHERS['fleet']}".replace("memory: [20000]", "memory: [10, 20000]")
    done = call("sweep", written(tmp_path, text), "--json")
    failed = json.loads(done.stdout)["failed"]
    assert len(failed["dict"]) == 4 and "Infeasible" in json.dumps(failed)
    assert done.exit_code == 1


def test_from_a_sample_to_a_table(tmp_path):
    sample, out = tmp_path / "sample.yaml", tmp_path / "out"
    assert call("sweep", "init", "-o", sample).exit_code == 0
    assert sample.read_text() == sweep_init() and len(read_sweep(sample)[1]) == 300
    path = written(tmp_path)
    done = call("sweep", path, "--out", out)
    assert done.exit_code == 0 and done.stdout.startswith("16 cells"), done.stderr
    table = Record.load(out / "table.json")
    assert isinstance(table, SweepTable) and table == sweep_run(path) == sweep_run(path, out=out)
    assert call("sweep", "run", path, "--json").stdout == call("sweep", path, "--json").stdout
    # another experiment in the same folder
    written(tmp_path, SMALL.replace("steps: 12", "steps: 13"))
    done = call("sweep", path, "--out", out)
    assert done.exit_code == 2 and "holds another sweep" in done.stderr
    assert Record.load(out / "table.json") == table


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "has no kind"),
        ("[experts]", "has no kind"),
        ("kind: os", "has the kind 'os'"),
        ("kind: [experts]", "has the kind"),
        ("kind: experts", "policies"),
        (SMALL.replace("never", "os.system"), "sweep.yaml:3: policies.0 is 'os.system'"),
        (SMALL.replace("never", "!!python/name:os.system x"), "tag"),
        (SMALL.replace("seeds: 2", "seeds: 0"), "seeds is 0"),
        (SMALL.replace("seeds: 2", "seeds: 27"), "at most 26 with a recording"),
        (SMALL.replace("seeds: 2", "seeds: .nan"), "seeds"),
        (SMALL.replace("[8]", "8"), "extra"),
        (SMALL.replace("[8]", "[]"), "extra"),
        (SMALL.replace("[8]", "[8, 8]"), "distinct"),
        (SMALL.replace("[8]", "[1.5]"), "extra"),
        (SMALL.replace("[2.0]", "[-1]"), "move_price"),
        (SMALL + "more: 1\n", "more"),
        (SMALL + "extra: [9]\n", "extra"),
        ("[" * 5000, "deep"),
        ("a: &a [1, 1, 1, 1]\n" + "\n".join(
            f"{c}: &{c} [*{b}, *{b}, *{b}, *{b}, *{b}, *{b}, *{b}, *{b}, *{b}]"
            for b, c in zip("abcdefghi", "bcdefghij")), ""),
        ("x: " + "y" * 2_000_000, "too large"),
        ("\x00", "control"),
    ],
)  # fmt: skip
def test_a_file_from_a_stranger_is_refused_in_words(tmp_path, text, said):
    done = call("sweep", written(tmp_path, text), "--out", tmp_path / "out")
    assert done.exit_code == 2 and said in done.stderr and done.stdout == ""
    assert "internal" not in done.stderr and not (tmp_path / "out").exists()


def test_a_product_that_is_too_large_is_refused(tmp_path):
    text = SMALL.replace("[8]", str(list(range(1, 101)))).replace(
        "traces: [ar, law]", "traces: [ar]"
    )
    text = text.replace("[2.0]", str([float(i) for i in range(100)])).replace("2\n", "1000\n", 1)
    with pytest.raises(ValueError, match="cells"):
        read_sweep(written(tmp_path, text.replace("seeds: 2", "seeds: 1000")))
    with pytest.raises(BadFile):
        read_sweep(written(tmp_path, "kind: 3"))
    with pytest.raises(OSError):
        read_sweep(tmp_path / "none.yaml")
    done = call("sweep", tmp_path / "none.yaml")
    assert done.exit_code == 2 and "none.yaml" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_loses_nothing_that_was_finished(tmp_path, number):
    path, out = written(tmp_path), tmp_path / "out"
    slow = "import time, serving_or.cli.grid as g\nrun = g.run\n"
    slow += "g.run = lambda *a: (time.sleep(0.2), run(*a))[1]\n" + MAIN
    process = subprocess.Popen(
        [sys.executable, "-c", slow, "sweep", path, "--out", out],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
    )
    cells, end = out / "cells.jsonl", time.monotonic() + 60
    while not (cells.exists() and cells.read_bytes().count(b"\n") > 3):
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.02)
    process.send_signal(number)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == (-9 if number == signal.SIGKILL else 128 + number), said
    kept = cells.read_bytes()
    assert 3 < kept.count(b"\n") < 17 and not (out / "table.json").exists()
    table = sweep_run(path, out=out)
    assert table == sweep_run(path) and cells.read_bytes().startswith(kept[: kept.rindex(b"\n")])
