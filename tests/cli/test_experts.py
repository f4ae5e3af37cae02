"""The experts' commands: what a line gives is what the function gives; files in, files out."""

import json
import os

import numpy as np
import pytest
from typer.testing import CliRunner

from serving_or.cli import experts as commands
from serving_or.cli.app import command_line
from serving_or.cli.experts import (
    experts_backtest,
    experts_check,
    experts_convert,
    experts_diagnose,
    experts_plan,
)
from serving_or.experts import OnePerGpu, RegularizedGreedy, backtest
from serving_or.experts.maps import ENGINES, check_map, read_map
from serving_or.experts.replicas import ReplicaPlan, counts_of
from serving_or.tools.answers import Record
from serving_or.tools.data import load_experts

SIZE = {"gpus": 8, "redundant": 8}
FLAGS = "--gpus 8 --redundant 8"


@pytest.fixture(scope="module")
def counts():
    "Twelve windows of three layers of a real model; the text changes after eight."
    return load_experts(["intent", "translation"], window=8).loads[8:20, :3]


@pytest.fixture
def folder(tmp_path, counts, monkeypatch):
    "A folder with a recording of twelve steps, and a map for the first six."
    monkeypatch.chdir(tmp_path)
    np.save("loads.npy", counts)
    np.save("early.npy", counts[:6])
    experts_plan("early.npy", **SIZE, to="sglang", output=tmp_path / "old.json")
    return tmp_path


def run(line):
    return CliRunner().invoke(command_line(), ["experts", *line.split()])


def loaded(text, name="answer.json"):
    "A record from the JSON of a command."
    with open(name, "w", encoding="utf-8") as file:
        file.write(text)
    return Record.load(name)


def test_a_plan_is_the_door_and_its_file_the_map(folder):
    answer = experts_plan("loads.npy", **SIZE)
    done = run(f"plan loads.npy {FLAGS} --to sglang -o map.json")
    assert done.exit_code == 0 and done.stdout == answer.summary() + "\n"
    assert "serving-or: map.json is written\n" in done.stderr
    read = check_map("map.json", 64, 8, layers=3, engine="sglang", redundant=8)
    assert np.array_equal(read.physical, answer.physical)
    assert loaded(run(f"plan loads.npy {FLAGS} --json").stdout) == answer


def test_without_an_engine_the_file_is_the_plan(folder):
    run(f"plan loads.npy {FLAGS} -o plan.json")
    plan = ReplicaPlan.load("plan.json")
    assert plan == experts_plan("loads.npy", **SIZE)
    # and it is a map that a repair can begin with
    again = experts_plan("loads.npy", **SIZE, old=folder / "plan.json")
    assert again.transfers.sum() == 0


def test_a_repair_keeps_its_caps(folder):
    line = f"plan loads.npy --last 4 {FLAGS} --old old.json"
    free = experts_plan("loads.npy", **SIZE, last=4, old=folder / "old.json")
    assert run(line).stdout == free.summary() + "\n" and free.transfers.sum() > 10
    most = loaded(run(f"{line} --max-transfers 10 --json").stdout)
    assert most.transfers.sum() <= 10 and most.value >= free.value
    bytes_ = loaded(run(f"{line} --max-bytes 50 --expert-bytes 10 --json").stdout)
    assert bytes_.transfers.sum() <= 5
    assert loaded(run(f"{line} --slack 9 --json").stdout).transfers.sum() == 0


def test_only_the_last_steps_are_planned_for(folder, counts):
    np.save("late.npy", counts[-4:])
    assert experts_plan("loads.npy", last=4, **SIZE) == experts_plan("late.npy", **SIZE)


def test_lost_gpus_are_named_one_by_one(folder):
    big = "--gpus 8 --redundant 16"
    run(f"plan early.npy {big} --to sglang -o wide.json")
    done = run(f"plan loads.npy {big} --old wide.json --lost 2 --json")
    assert done.exit_code == 0 and loaded(done.stdout).gpus == 7
    done = run(f"plan loads.npy {big} --old wide.json --lost 2 --lost 5")
    assert done.exit_code == 1 and done.stdout == ""


@pytest.mark.parametrize("to", ENGINES)
def test_a_map_goes_from_engine_to_engine_and_back(to, folder):
    ending = ENGINES[to].endings[0]
    done = run(f"convert old.json --to {to} --gpus 8 -o there{ending}")
    assert done.exit_code == 0 and "old.json" not in done.stderr
    again = read_map(f"there{ending}")
    assert np.array_equal(again.physical, read_map("old.json").physical)
    run(f"convert there{ending} --to sglang --gpus 8 -o back.json")
    assert (folder / "back.json").read_text() == (folder / "old.json").read_text()
    done = run(f"check there{ending} --experts 64 --gpus 8 --redundant 8 --to {to} --json")
    assert done.exit_code == 0 and json.loads(done.stdout)["faults"] == []


def test_dense_layers_and_experts_reach_the_writer(folder):
    run("convert old.json --to sglang --gpus 8 --dense 2 -o new.json")
    assert read_map("new.json").physical.shape == (5, 72)
    run(f"plan loads.npy {FLAGS} --to sglang --dense 1 -o plan.json")
    assert read_map("plan.json").physical.shape == (4, 72)
    done = run("convert old.json --to sglang --gpus 8 --experts 65 -o wrong.json")
    assert done.exit_code == 2 and "expert 64" in done.stderr


def test_the_map_that_runs_counts_for_ascend(folder):
    """It takes no expert that stays on its card in another slot."""
    physical = read_map("old.json").physical.copy()
    physical[:, :3] = np.roll(physical[:, :3], 1, axis=1)
    (folder / "turned.json").write_text(json.dumps(physical.tolist()))
    line = "check turned.json --experts 64 --gpus 8 --to vllm-ascend"
    assert run(line).exit_code == 0 and run(f"{line} --old old.json").exit_code == 1
    convert = "convert turned.json --to vllm-ascend --gpus 8 -o new.json"
    assert run(f"{convert} --old old.json").exit_code == 2 and not os.path.exists("new.json")
    assert run(convert).exit_code == 0


def test_a_wrong_map_ends_with_one_and_says_where(folder):
    physical = read_map("old.json").physical.copy()
    physical[1, 4] = physical[1, 5]
    (folder / "bad.json").write_text(json.dumps({"physical_to_logical_map": physical.tolist()}))
    done = run("check bad.json --experts 64 --gpus 8 --json")
    found = experts_check("bad.json", experts=64, gpus=8)
    assert done.exit_code == 1 and loaded(done.stdout) == found
    assert any("layer 1" in fault for fault in found.faults)
    assert run("check bad.json --experts 64 --gpus 8").stdout == found.summary() + "\n"
    assert run("check old.json --experts 65 --gpus 8").exit_code == 1
    assert run("check old.json --experts 64 --gpus 7").exit_code == 1
    assert run("check old.json --experts 64 --gpus 8 --layers 4").exit_code == 1
    assert run("check old.json --experts 64 --gpus 8 --redundant 9").exit_code == 1
    done = run("convert bad.json --to vllm --gpus 8 -o new.json")
    assert done.exit_code == 2 and "layer 1" in done.stderr and not os.path.exists("new.json")


def test_backtest_is_the_door(folder):
    done = run(f"backtest loads.npy {FLAGS} --window 2")
    answer = experts_backtest("loads.npy", **SIZE, window=2)
    assert done.exit_code == 0 and done.stdout == answer.summary() + "\n" and done.stderr == ""
    assert loaded(run(f"backtest loads.npy {FLAGS} --window 2 --json").stdout) == answer
    priced = run(f"backtest loads.npy {FLAGS} --window 2 --expert-bytes 1e6 --old old.json")
    assert priced.exit_code == 0 and priced.stdout != done.stdout


def test_policies_by_name(folder):
    names = "keep, rebuild,relabelled,repair,repair:0.1,ewma,cautious:0"
    line = [
        "experts",
        "backtest",
        "loads.npy",
        *FLAGS.split(),
        "--window",
        "2",
        "--policies",
        names,
    ]
    answer = loaded(CliRunner().invoke(command_line(), [*line, "--json"]).stdout)
    assert answer.names == tuple(name.strip() for name in names.split(","))
    usual = experts_backtest("loads.npy", **SIZE, window=2)
    same = {"keep": "keep", "rebuild": "rebuild", "relabelled": "rebuild, relabelled"}
    same |= {"repair": "repair, 2 %", "ewma": "repair, EWMA, 2 %"}
    for name, other in same.items():
        here, there = answer.names.index(name), usual.names.index(other)
        assert np.array_equal(answer.transfers[here], usual.transfers[there])
    sent = dict(zip(answer.names, answer.transfers.sum(axis=(1, 2))))
    assert 0 == sent["keep"] < sent["repair:0.1"] < sent["repair"]
    loads = np.load("loads.npy")[:, :1]
    np.save("one.npy", loads.reshape(6, 2, 1, 64).sum(axis=1))
    priced = experts_backtest("one.npy", gpus=72, redundant=8, move_price=3.0, policies="online")
    by_hand = {"online": OnePerGpu(RegularizedGreedy(), move_price=3.0)}
    assert priced == backtest(np.load("one.npy"), 72, 8, policies=by_hand, move_price=3.0)


def test_every_policy_is_in_the_help():
    text = run("backtest --help").stdout
    assert all(name in text for name in commands.MAP_POLICIES)


def test_the_number_of_a_wrong_option_is_no_fault_of_the_map(folder):
    """Said as "nothing is wrong" once: the exit code was 0."""
    for option in ("--layers 0", "--redundant -1", "--experts 999999999"):
        done = run(f"check old.json --gpus 8 {option} {'' if 'exp' in option else '--experts 64'}")
        assert done.exit_code == 2 and done.stdout == "" and option.split()[0] in done.stderr


def test_diagnose_is_the_door(folder):
    line = f"diagnose loads.npy {FLAGS} --window 2 --expert-bytes 1e7 --dense 0.02 --moe 0.01"
    done = run(line)
    more = {"window": 2, "expert_bytes": 1e7, "dense": 0.02, "moe": 0.01}
    answer = experts_diagnose("loads.npy", **SIZE, **more)
    assert done.exit_code == 0 and done.stdout == answer.summary() + "\n"
    assert loaded(run(f"{line} --json").stdout) == answer


def test_progress_goes_to_standard_error_alone(folder):
    done = run(f"backtest loads.npy {FLAGS} --window 2 --verbose")
    assert done.stderr and done.stdout == run(f"backtest loads.npy {FLAGS} --window 2").stdout


def test_what_is_odd_about_a_recording_is_said(folder, caplog):
    steps = np.load("early.npy")
    steps[2] = 0
    np.save("odd.npy", steps)
    with caplog.at_level("WARNING", logger="serving_or"):
        assert run(f"plan odd.npy {FLAGS}").exit_code == 0
    assert "odd.npy: 1 of 6 steps had no load" in caplog.text


@pytest.mark.parametrize(
    "line, code, said",
    [
        (f"plan none.npy {FLAGS}", 2, "none.npy"),
        (f"plan . {FLAGS}", 2, ""),
        (f"plan empty {FLAGS}", 2, "empty"),
        (f"plan binary {FLAGS}", 2, "binary"),
        (f"plan latin.json {FLAGS}", 2, "latin.json"),
        (f"plan negative.npy {FLAGS}", 2, ""),
        (f"plan pickled.npy {FLAGS}", 2, ""),
        ("plan loads.npy --gpus 7 --redundant 8", 2, "redundant must be one of"),
        ("plan loads.npy --gpus 0", 2, "--gpus"),
        ("plan loads.npy --gpus 8 --redundant -8", 2, "--redundant"),
        (f"plan loads.npy {FLAGS} --to sglang", 2, "--output is not given"),
        (f"plan loads.npy {FLAGS} --to sglang -o kept.yaml", 2, "files that end in .json"),
        (f"plan loads.npy {FLAGS} --to deepspeed -o new.json", 2, "deepspeed"),
        (f"plan loads.npy {FLAGS} -o none/new.json", 2, "none"),
        (f"plan loads.npy {FLAGS} --old none.json", 2, "none.json"),
        (f"plan loads.npy {FLAGS} --old loads.npy", 2, ""),
        (f"plan loads.npy {FLAGS} --last 0", 2, "--last"),
        (f"plan loads.npy {FLAGS} --last 13", 2, "--last"),
        (f"plan loads.npy {FLAGS} --old old.json --slack -1", 2, "--slack"),
        (f"plan loads.npy {FLAGS} --old old.json --lost 8", 2, "--lost"),
        (f"plan loads.npy {FLAGS} --old old.json --lost 2", 1, ""),
        (f"plan loads.npy {FLAGS} --slack -1", 2, "--slack"),
        (f"plan loads.npy {FLAGS} --old old.json --max-bytes 3", 2, "without --expert-bytes"),
        (f"plan loads.npy {FLAGS} --experts 32", 2, "loads.npy has loads of 64 experts, not of 32"),
        (f"plan loads.npy {FLAGS} --max-transfers 3", 2, "--max-transfers"),
        ("plan loads.npy --gpus 2 --redundant 100", 1, ""),
        ("check old.json --experts 0 --gpus 8", 2, "--experts"),
        ("check empty --experts 64 --gpus 8", 2, "empty"),
        ("convert old.json --to vllm -o new.json", 2, "--gpus is not given"),
        ("convert old.json --to vllm", 2, "--output"),
        (f"diagnose loads.npy {FLAGS} --dense 1", 2, "--moe is not given"),
        (f"diagnose loads.npy {FLAGS} --moe 1", 2, "--dense is not given"),
        (f"backtest loads.npy {FLAGS} --policies keep,rebuilt", 2, "--policies holds 'rebuilt'"),
        (f"backtest loads.npy {FLAGS} --policies keep:0.1", 2, "--policies holds 'keep:0.1'"),
        (f"backtest loads.npy {FLAGS} --policies keep,keep", 2, "twice"),
        (f"backtest loads.npy {FLAGS} --policies ,", 2, "--policies holds ''"),
        (f"backtest loads.npy {FLAGS} --policies repair:", 2, "--policies: slack is ''"),
        (f"backtest loads.npy {FLAGS} --policies repair:-1", 2, "--policies: slack is '-1'"),
        (f"backtest loads.npy {FLAGS} --policies ewma:nan", 2, "--policies: slack is 'nan'"),
        (f"backtest loads.npy {FLAGS} --policies online", 2, "--move-price is not given"),
        (f"backtest loads.npy {FLAGS} --policies online --move-price 1", 2, "one slot"),
        (f"diagnose loads.npy {FLAGS} --window 10", 2, ""),
        (f"backtest loads.npy {FLAGS} --window 12", 2, ""),
        (f"backtest loads.npy {FLAGS} --expert-bytes 0", 2, "--expert-bytes"),
    ],
)
def test_bad_input_is_told_and_leaves_everything_as_it_was(line, code, said, folder):
    (folder / "empty").touch()
    (folder / "binary").write_bytes(bytes(range(256)) * 9)
    (folder / "latin.json").write_bytes('{"é": [1]}'.encode("latin-1"))
    np.save("negative.npy", -np.ones((2, 3, 8)))
    np.save("pickled.npy", np.array([{}]), allow_pickle=True)
    (folder / "kept.yaml").write_text("kept")
    before = {name: os.stat(name).st_mtime_ns for name in os.listdir()}
    done = run(line)
    assert (done.exit_code, done.stdout) == (code, "") and said in done.stderr
    assert done.stderr and "internal error" not in done.stderr
    assert {name: os.stat(name).st_mtime_ns for name in os.listdir()} == before


def test_engines_and_choices_are_the_same():
    for name in ("experts_plan", "experts_check", "experts_convert"):
        hint = str(getattr(commands, name).__annotations__["to"])
        assert all(repr(engine) in hint for engine in ENGINES) and hint.count("'") == 8


def test_a_converted_map_holds_every_expert_of_the_first(folder):
    read = experts_convert("old.json", to="vllm", output=folder / "new.json", gpus=8)
    assert (counts_of(read.physical, 64) > 0).all()
