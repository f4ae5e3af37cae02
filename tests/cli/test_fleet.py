"""The fleet's commands: what a line gives is what the function gives; traces from CSV files."""

import json
import re
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from serving_or.cli.app import command_line
from serving_or.cli.fleet import (
    BATCHING,
    _ticking,
    fleet_batch,
    fleet_cache,
    fleet_init,
    fleet_mix,
    fleet_staff,
    read_requests,
)
from serving_or.fleet.gpu_mix import read_fleet, write_fleet
from serving_or.fleet.staffing import Staffing, staff
from serving_or.tools.answers import Infeasible, Progress, Record
from serving_or.tools.data import REQUESTS, load_requests
from serving_or.tools.files import BadFile
from tests.long import cases

HEADER = "arrival,prompt,output\n"


def run(line, *paths):
    return CliRunner().invoke(command_line(), ["fleet", *line.split(), *map(str, paths)])


def written(folder, text, name="trace.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def loaded(folder, text):
    "A record from the JSON of a command."
    path = folder / "answer.json"
    path.write_text(text, encoding="utf-8")
    return Record.load(path)


# A trace from a file


def test_a_trace_is_read_as_it_was_written(tmp_path):
    path = written(tmp_path, HEADER + "10.5,3,4\n10.5,1,0\n12,0,7\n")
    trace = read_requests(path)
    assert trace.arrival.tolist() == [0, 0, 1.5] and trace.name == str(path)
    assert trace.prompt.tolist() == [3, 1, 0] and trace.output.tolist() == [4, 0, 7]
    assert trace.prompt.dtype.kind == "i"


def test_columns_may_stand_in_any_order_beside_others(tmp_path):
    text = '\ufeff output , user, arrival ,prompt\r\n4,"a, b",1e1,3\r\n\r\n5,c,11,6\r\n'
    trace = read_requests(written(tmp_path, text))
    assert trace.arrival.tolist() == [0, 1] and trace.output.tolist() == [4, 5]


@pytest.mark.parametrize("name", REQUESTS)
def test_a_shipped_trace_survives_a_file(name, tmp_path):
    shipped = load_requests(name)
    rows = zip(shipped.arrival.tolist(), shipped.prompt.tolist(), shipped.output.tolist())
    text = HEADER + "".join(f"{a!r},{p},{o}\n" for a, p, o in list(rows)[:500])
    read = read_requests(written(tmp_path, text))
    assert np.array_equal(read.arrival, shipped.arrival[:500])
    assert np.array_equal(read.output, shipped.output[:500])


@pytest.mark.parametrize(
    "text, said",
    [
        ("", ":1: arrival is missing"),
        ("\n\n", ":1: arrival is missing"),
        (HEADER, ":1: the file has no requests"),
        ("arrival,prompt\n1,2\n", ":1: output is missing; it must be one column of"),
        ("arrival,prompt,output,prompt\n1,2,3,4\n", ":1: prompt stands more than once"),
        ("Arrival,prompt,output\n1,2,3\n", ":1: arrival is missing"),
        (HEADER + "1,2\n", ":2: the file has 2 columns here; it must be a table of 3 columns"),
        (HEADER + "1,2,3,4\n", ":2: the file has 4 columns here"),
        (HEADER + "x,2,3\n", ":2: arrival is 'x'; it must be a number of seconds"),
        (HEADER + ",2,3\n", ":2: arrival is ''"),
        (HEADER + "nan,2,3\n", ":2: arrival is 'nan'"),
        (HEADER + "1e999,2,3\n", ":2: arrival is '1e999'"),
        (HEADER + "1_0,2,3\n", ":2: arrival is '1_0'"),
        (HEADER + "٣,2,3\n", ":2: arrival is '٣'"),
        (HEADER + "1,2.5,3\n", ":2: prompt is '2.5'; it must be a whole number of tokens"),
        (HEADER + "1,-2,3\n", ":2: prompt is '-2'"),
        (HEADER + "1,2,1e3\n", ":2: output is '1e3'"),
        (HEADER + "1,2,99999999999999999\n", ":2: output is '99999999999999999'"),
        (HEADER + "5,2,3\n\n4,2,3\n", ":4: arrival is 4; it must be at least that of the line"),
        (HEADER + '1,2,"3\n', ":2: the file cannot be read: unexpected end of data"),
        (HEADER + '1,"2"x,3\n', ":2: the file cannot be read"),
        (HEADER.encode() + b"1,\xff,3\n", ":2: the file has the byte 0xff here; it must be UTF-8"),
        (b"\x89PNG\r\n\x1a\n", ":1: the file has the byte 0x89"),
        (HEADER.encode("utf-16"), ":1: the file has the byte 0xff"),
        ("\0" * 40, ":1: arrival is missing"),
    ],
)
def test_a_bad_trace_is_told_with_its_line(text, said, tmp_path):
    path = written(tmp_path, text)
    with pytest.raises(BadFile) as caught:
        read_requests(path)
    assert str(caught.value).startswith(f"{path}{said}")
    done = run("batch --memory 1000", path)
    assert done.exit_code == 2 and done.stdout == "" and f"serving-or: {path}{said}" in done.stderr


def test_all_mistakes_are_told_at_once(tmp_path):
    path = written(tmp_path, HEADER + "0,1,1\nx,y,z\n1,1,1\n0.5,1,1\n" + "a,b,c\n" * 2000)
    with pytest.raises(BadFile) as caught:
        read_requests(path)
    said = str(caught.value).splitlines()
    assert "trace.csv:3: arrival" in said[0] and "trace.csv:5: arrival is 0.5" in said[3]
    # it stops after a thousand
    assert said[-1].endswith("more") and 1000 <= len(caught.value.problems) <= 1003


@given(st.text(alphabet='0123456789.,-e"\n\r aé\0', max_size=60), st.booleans())
def test_whatever_stands_in_it_a_file_is_read_or_refused(tmp_path_factory, text, named):
    path = written(tmp_path_factory.getbasetemp(), (HEADER if named else "") + text, "any.csv")
    try:
        trace = read_requests(path)
    except BadFile as error:
        assert all(line.startswith(str(path)) for line in str(error).splitlines())
    else:
        assert named and len(trace) and (np.diff(trace.arrival) >= 0).all()


def test_a_long_trace_is_read_in_time(tmp_path):
    """100,000 lines in at most 5 s of processor time where it takes half a second."""
    import time

    n = cases(1_000_000, 100_000)
    path = written(tmp_path, HEADER + "".join(f"{i / 10},100,20\n" for i in range(n)))
    begun = time.process_time()
    assert len(read_requests(path)) == n
    assert time.process_time() - begun < 5 * n / 100_000


def test_folders_and_devices_are_no_traces(tmp_path):
    assert run("batch --memory 1000", tmp_path).exit_code == 2
    assert run("batch --memory 1000", "/dev/null").exit_code == 2
    done = run("batch --memory 1000", tmp_path / "none.csv")
    assert done.exit_code == 2 and "none.csv" in done.stderr and "azure_conv" in done.stderr


# Commands


def test_staff_is_the_door(tmp_path):
    done = run("staff --rate 20 --service-time 1.5 --wait 0.2 --share 0.99")
    answer = staff(20, 1.5, wait=0.2, share=0.99)
    assert done.exit_code == 0 and done.stdout == answer.summary() + "\n"
    found = loaded(tmp_path, run("staff --rate 20 --service-time 1.5 --wait 0.2 --json").stdout)
    assert found == answer and isinstance(found, Staffing)
    assert fleet_staff(rate=20, service_time=1.5, wait=0.2) == answer
    kept = tmp_path / "kept.json"
    run("staff --rate 20 --service-time 1.5 --wait 0.2 -o", kept)
    assert Staffing.load(kept) == answer


@pytest.mark.parametrize(
    "line, code, said",
    [
        ("--rate 20 --service-time 4 --wait 0.2 --most 80", 1, "GPUs"),
        ("--rate 20 --service-time 4 --response 3.5", 1, ""),
        ("--rate 20 --service-time 4", 2, "give --waiting, --mean-wait, --wait, --response or"),
        ("--rate 20 --service-time 4 --abandoned 0.1", 2, "give --patience, in seconds"),
        ("--rate -1 --service-time 4 --wait 1", 2, "--rate"),
        ("--rate 20 --service-time nan --wait 1", 2, "--service-time"),
        ("--rate 20 --service-time 4 --wait 1 --share nan", 2, "--share"),
        ("--rate 20 --wait 1", 2, "--service-time"),
        ("--rate inf --service-time 4 --wait 1", 2, "--rate"),
        ("--rate 1e300 --service-time 1e300 --wait 1", 2, ""),
        ("--rate 20 --service-time 4 --wait 1 --most 2.5", 2, "--most"),
    ],
)
def test_what_cannot_be_staffed(line, code, said):
    done = run(f"staff {line}")
    assert (done.exit_code, done.stdout) == (code, "") and said in done.stderr
    assert "internal error" not in done.stderr


def test_cache_says_one_number():
    tokens = fleet_cache("Llama-3.1-8B", gpu="A100-80GB")
    for more in ("", " --json"):
        done = run(f"cache Llama-3.1-8B --gpu A100-80GB{more}")
        assert done.exit_code == 0 and json.loads(done.stdout) == tokens
    assert run("cache Llama-3.1-70B --gpu A100-80GB").exit_code == 1
    done = run("cache Llama --gpu A100-80GB")
    assert done.exit_code == 2 and done.stderr.startswith("serving-or: MODEL is 'Llama'")
    assert run("cache Llama-3.1-8B --gpu A100-80GB --gpus 0").exit_code == 2


@pytest.mark.parametrize("policy", BATCHING)
def test_batch_is_the_door(policy, tmp_path):
    line = f"batch azure_code --memory 20000 --first 60 --drop-large --policy {policy} --upper 2000"
    more = {"memory": 20000, "first": 60, "drop_large": True}
    answer = fleet_batch("azure_code", policy=policy, upper=2000, **more)
    assert run(line).stdout == answer.summary() + "\n"
    assert loaded(tmp_path, run(f"{line} --json").stdout) == answer


def test_advice_is_given_in_options(tmp_path):
    path = written(tmp_path, HEADER + "0,100,20\n1,50,0\n2,1,5\n")
    done = run("batch --memory 1000", path)
    assert done.exit_code == 2 and "; --drop-empty leaves them out" in done.stderr
    done = run("batch --memory 100 --drop-empty", path)
    assert done.exit_code == 1 and "leave them out with --drop-large" in done.stderr
    assert run("batch --memory 100 --drop-empty --drop-large", path).exit_code == 0
    with pytest.raises(Infeasible) as caught:
        fleet_staff(rate=20, service_time=4, wait=0.2, most=90)
    assert caught.value.nearest is not None


def test_seconds_are_shown_while_a_policy_runs():
    line = "batch azure_code --memory 20000 --first 300 --policy amin --drop-empty"
    quiet, told = run(line), run(f"{line} --verbose")
    assert told.exit_code == 0 and told.stdout == quiet.stdout and quiet.stderr == ""
    assert re.search(r"amin of \d+ requests: \d+\.\d s", told.stderr)


def test_the_seconds_go_on(monkeypatch):
    """Shown at least four times in three seconds, where it is six."""
    shown = []
    monkeypatch.setattr(Progress, "show", lambda self, *_: shown.append(1))
    with _ticking(True, "sleep"):
        time.sleep(3)
    assert len(shown) >= 4
    with pytest.raises(ValueError, match="ours"), _ticking(False, "fail"):
        raise ValueError("ours")
    assert not any("tick" in thread.name for thread in threading.enumerate())


def test_options_of_a_policy_reach_it():
    more = {"memory": 8000, "first": 80, "drop_large": True}
    for policy, option, values in (
        ("aging", "weight", (0.0, 100.0)),
        ("amax", "upper", (500, 4000)),
        ("amin", "lower", (1, 50)),
    ):
        first, second = (
            fleet_batch("azure_conv", policy=policy, **{"upper": 2000, option: v}, **more)
            for v in values
        )
        assert first.value != second.value
    assert fleet_batch("azure_conv", policy="aging", weight=0, **more).value == (
        fleet_batch("azure_conv", policy="mcsf", **more).value
    )


def test_a_file_of_the_same_trace_gives_the_same(tmp_path):
    shipped = load_requests("azure_code")
    rows = zip(shipped.arrival.tolist(), shipped.prompt.tolist(), shipped.output.tolist())
    path = written(tmp_path, HEADER + "".join(f"{a!r},{p},{o}\n" for a, p, o in list(rows)[:60]))
    more = {"memory": 20000, "drop_empty": True, "drop_large": True}
    named, read = fleet_batch("azure_code", first=60, **more), fleet_batch(str(path), **more)
    assert read.value == named.value and read.requests == named.requests


@pytest.mark.parametrize(
    "line, code",
    [
        ("batch azure_code --memory 100 --first 60 --drop-empty", 1),
        ("batch azure_code --memory 0", 2),
        ("batch azure_code --memory -5", 2),
        ("batch azure_code --memory 20000 --first -3", 2),
        ("batch azure_code --memory 20000 --round-seconds 0", 2),
        ("batch azure_code --memory 20000 --policy best", 2),
        ("batch azure_codes --memory 20000", 2),
        ("batch azure_code --memory 20000 --first 9 --policy amax", 2),
        ("batch azure_code --memory 20000 --first 9 --policy amax --upper 1", 2),
        ("batch azure_code --memory 20000 --first 9 --policy aging --weight -1", 2),
    ],
)
def test_what_cannot_be_batched(line, code):
    done = run(line)
    assert (done.exit_code, done.stdout) == (code, "") and "internal error" not in done.stderr


def test_the_sample_is_a_fleet_that_can_be_rented(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("init").stdout == fleet_init() and run("init -o fleet.yaml").exit_code == 0
    assert (tmp_path / "fleet.yaml").read_text() == fleet_init()
    done, answer = run("mix fleet.yaml"), fleet_mix(tmp_path / "fleet.yaml")
    assert done.exit_code == 0 and done.stdout == answer.summary() + "\n"
    assert loaded(tmp_path, run("mix fleet.yaml --json").stdout) == answer
    split = fleet_mix(tmp_path / "fleet.yaml", split=True)
    assert split.value <= answer.value and split.fleet.split and not answer.fleet.split
    write_fleet("split.yaml", split.fleet)
    assert fleet_mix(tmp_path / "split.yaml") == split


@pytest.mark.parametrize(
    "text, code, said",
    [
        ("", 2, "fleet.yaml:1"),
        ("gpus: [", 2, "fleet.yaml:2"),
        ("gpus: []\nclasses: []\n", 2, "fleet.yaml:"),
        (b"\xff\xfe", 2, "UTF-8"),
        ("short", 1, ""),
    ],
)
def test_what_cannot_be_rented(text, code, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, text, "fleet.yaml")
    if text == "short":
        run("init -o sample.yaml")
        fleet = read_fleet("sample.yaml")
        write_fleet("fleet.yaml", replace(fleet, stock=[0] * len(fleet.gpus)))
    before = set(tmp_path.iterdir())
    done = run("mix fleet.yaml -o answer.json")
    assert (done.exit_code, done.stdout) == (code, "") and said in done.stderr
    assert "internal error" not in done.stderr and set(tmp_path.iterdir()) == before
