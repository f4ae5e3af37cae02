"""The blocks' commands: what a line gives is what the function gives; hostile files; exit codes."""

import json
import os
import random

import numpy as np
import pytest
from typer.testing import CliRunner

from serving_or.blocks.churn import RepairedPlan, repair
from serving_or.blocks.cluster import read_cluster
from serving_or.blocks.conservative_greedy import cg_bprr
from serving_or.blocks.designs import sweep
from serving_or.blocks.line_program import milp
from serving_or.blocks.petals_rules import launch_commands, read_launch
from serving_or.blocks.plan import Plan
from serving_or.blocks.simulation import Arrivals, Lengths, Run, simulate
from serving_or.blocks.two_time_scales import WaitingPenalised
from serving_or.cli import blocks as commands
from serving_or.cli.app import command_line
from serving_or.cli.blocks import (
    blocks_init,
    blocks_launch,
    blocks_plan,
    blocks_repair,
    blocks_simulate,
)
from serving_or.tools.answers import Record
from tests.long import cases

PEER = "/ip4/10.0.0.7/tcp/31337/p2p/QmedTaZXmULqwspJXz44SsPZyTNKxhnnFvYRajfH7MGhCY"
SMALL = """\
model: {blocks: 4, block_size: 4 GB, cache_size: 1 GB}
servers:
  - {name: A, memory: 16 GB, tau: 10 ms}
  - {name: B, count: 2, memory: 12 GB, tau: 20 ms}
  - {name: C, memory: 12 GB, tau: 0.02 s, domain: far}
clients:
  - {name: office, rtt: 10 ms}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    "A folder with two clusters and plans for them."
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster.yaml").write_text(blocks_init())
    (tmp_path / "small.yaml").write_text(SMALL)
    sweep(read_cluster("cluster.yaml"), 40).save("plan.json")
    sweep(read_cluster("small.yaml"), 4).save("small.json")
    return tmp_path


def run(line):
    return CliRunner().invoke(command_line(), ["blocks", *line.split()])


def loaded(text):
    "A record from the JSON of a command."
    with open("answer.json", "w", encoding="utf-8") as file:
        file.write(text)
    return Record.load("answer.json")


# A plan


def test_the_sample_is_a_cluster(folder):
    assert run("init").stdout == blocks_init()
    assert run("init -o again.yaml").exit_code == 0
    assert read_cluster("again.yaml") == read_cluster("cluster.yaml")


def test_a_plan_is_the_door(folder):
    done = run("plan cluster.yaml --requests 40 -o new.json")
    plan = Plan.load("new.json")
    assert done.exit_code == 0 and done.stdout == plan.summary() + "\n"
    assert plan == sweep(read_cluster("cluster.yaml"), 40)
    assert loaded(run("plan cluster.yaml --requests 40 --json").stdout) == plan


def test_every_method(folder):
    c = read_cluster("small.yaml")
    doors = {"cg": cg_bprr, "sweep": sweep, "milp": milp}
    for method, door in doors.items():
        answer = loaded(run(f"plan small.yaml --requests 4 --method {method} --json").stdout)
        assert answer.cost == pytest.approx(door(c, 4).cost)
    line = "plan small.yaml --requests 4 --method improve --time-limit 1 --json"
    assert loaded(run(line).stdout).cost == pytest.approx(milp(c, 4).cost)
    assert set(doors) | {"improve"} == set(commands.METHODS)
    hint = str(blocks_plan.__annotations__["method"])
    assert all(repr(method) in hint for method in commands.METHODS) and hint.count("'") == 8


def test_requests_of_each_client(folder):
    answer = loaded(run("plan cluster.yaml --requests 30 --requests 10 --json").stdout)
    assert answer.requests.tolist() == [30, 10]
    done = run("plan cluster.yaml --requests 30 --requests 10 --requests 1")
    assert done.exit_code == 2 and "--requests" in done.stderr


def test_seconds_for_a_bound(folder):
    plain = loaded(run("plan cluster.yaml --requests 200 --json").stdout)
    proved = loaded(run("plan cluster.yaml --requests 200 --prove 2 --json").stdout)
    assert plain.bound < proved.bound <= proved.cost == plain.cost
    told = json.loads(run("plan cluster.yaml --requests 200 --json").stdout)["summary"]
    assert told["value"] == plain.cost and told["status"] == plain.status


def test_blocks_that_differ(folder):
    text = SMALL.replace("block_size: 4 GB", "block_size: {1-2: 4 GB, 3-4: 3 GB}")
    (folder / "differ.yaml").write_text(text)
    assert run("plan differ.yaml --requests 2").exit_code == 2
    done = run("plan differ.yaml --requests 2 --method milp --json")
    assert done.exit_code == 0 and loaded(done.stdout).status == "optimal"
    padded = loaded(run("plan differ.yaml --requests 2 --padded --json").stdout)
    assert not padded.cluster.exact and padded.status == "feasible"


# Lines


def test_lines_are_read_back(folder):
    line = "launch plan.json --to petals --model bigscience/bloom --tokens 148 --port 31330"
    done = run(f"{line} --initial-peers {PEER} --initial-peers {PEER}1")
    plan = Plan.load("plan.json")
    lines = [text for text in done.stdout.splitlines() if not text.startswith("#")]
    peers = [PEER, PEER + "1"]
    assert lines == list(launch_commands(plan, "bigscience/bloom", 148, peers, 31330).values())
    names = [text[2:] for text in done.stdout.splitlines() if text.startswith("#")]
    for name, text in zip(names, lines, strict=True):
        j, read = plan.cluster.servers.index(name), read_launch(text)
        assert (read.start + 1, read.end + 1) == (plan.placement.a[j], plan.placement.e[j])
        assert read.port == 31330 and list(read.initial_peers) == peers
    answer = loaded(run(f"{line} --initial-peers {PEER} --json").stdout)
    assert answer == blocks_launch(
        "plan.json", model="bigscience/bloom", tokens=148, port=31330, initial_peers=[PEER]
    )


def test_a_swarm_begins_with_one(folder, caplog):
    with caplog.at_level("WARNING", logger="serving_or"):
        done = run("launch plan.json --model m --tokens 148 --device cpu --quant-type none")
    assert done.exit_code == 0 and done.stdout.count("--new_swarm") == done.stdout.count("#") == 1
    assert "--initial-peers" in caplog.text and read_launch(done.stdout.splitlines()[1]).start == 0


def test_names_do_not_become_commands(folder):
    (folder / "evil.yaml").write_text(SMALL.replace("name: A", 'name: "A\\nrm -rf /"'))
    assert run("plan evil.yaml --requests 4 -o evil.json").exit_code in (0, 2)
    plan = Plan.load("small.json")
    record = json.loads((folder / "small.json").read_text())
    record["cluster"]["servers"][0] = "A\nrm -rf /"
    (folder / "evil.json").write_text(json.dumps(record))
    done = run(f"launch evil.json --model m --tokens 9 --initial-peers {PEER}")
    rows = done.stdout.splitlines()
    assert done.exit_code == 0 and len(rows) == 2 * (plan.placement.m > 0).sum()
    assert all(row.startswith(("# ", "python -m petals.")) for row in rows)
    done = run(f"launch small.json --model x;ls --tokens 9 --initial-peers {PEER}")
    assert done.exit_code == 2 or "'x;ls'" in done.stdout


# A repair


def test_a_repair_is_the_door(folder):
    plan = Plan.load("plan.json")
    done = run("repair plan.json --lost paris-1 --time-limit 2 -o new.json")
    answer = RepairedPlan.load("new.json")
    assert done.exit_code == 0 and done.stdout == answer.summary() + "\n"
    assert answer.plan == repair(plan, ["paris-1"], time_limit=2).plan and answer.loads.sum() > 0
    again = blocks_repair("new.json", lost=["oslo-1"], reload_price=0.0, time_limit=2)
    assert again.reload_price == 0 and again.plan.cluster.n == plan.cluster.n - 2
    dear = run(
        "repair plan.json --lost paris-1 --requests 10 --reload-price 5 --time-limit 2 --json"
    )
    assert loaded(dear.stdout).plan.requests.sum() == 10 and loaded(dear.stdout).reload_price == 5


def test_only_what_has_changed_is_started_anew(folder):
    run("repair plan.json --lost paris-1 --time-limit 2 -o new.json")
    line = f"--model m --tokens 148 --initial-peers {PEER} --json"
    all_ = loaded(run(f"launch new.json {line}").stdout)
    some = loaded(run(f"launch new.json --changed {line}").stdout)
    changed = RepairedPlan.load("new.json")
    assert len(some.servers) == changed.changed.sum() < len(all_.servers)
    assert set(zip(some.servers, some.lines)) <= set(zip(all_.servers, all_.lines))
    assert run(f"launch plan.json --changed {line}").exit_code == 2
    # a swarm runs: without one of its servers, no line at all rather than one of a second swarm
    alone = run("launch new.json --changed --model m --tokens 148")
    assert (alone.exit_code, alone.stdout) == (2, "") and "--initial-peers" in alone.stderr
    run("repair plan.json --lost oslo-1 --time-limit 2 -o same.json")
    assert not RepairedPlan.load("same.json").changed.any()
    none = f"launch same.json --changed --model m --tokens 148 --initial-peers {PEER}"
    assert run(none).stdout == "# no server has to be started\n"


def test_the_cluster_as_it_is_now(folder):
    same = run("repair small.json --now small.yaml --json")
    assert loaded(same.stdout).loads.sum() == 0
    text = SMALL.replace("name: A", "name: Z").replace("rtt: 10 ms", "rtt: 12 ms")
    (folder / "now.yaml").write_text(text)
    answer = loaded(run("repair small.json --now now.yaml --json").stdout)
    cluster = answer.plan.cluster
    assert set(cluster.servers) == {"Z", "B-1", "B-2", "C"} and (cluster.rtt == 12).all()
    assert answer.held.m[cluster.servers.index("Z")] == 0
    assert cluster.domain[cluster.servers.index("C")] == "far"
    for change in (("16 GB", "20 GB"), ("office", "home"), ("blocks: 4", "blocks: 5")):
        (folder / "now.yaml").write_text(SMALL.replace(*change))
        done = run("repair small.json --now now.yaml")
        assert done.exit_code == 2 and done.stderr, change
    assert run("repair small.json --now small.yaml --lost A").exit_code == 2
    twins = (folder / "small.json").read_text().replace('"B-2"', '"B-1"')
    (folder / "twins.json").write_text(twins)
    done = run("repair twins.json --now small.yaml")
    assert done.exit_code == 2 and "several servers named 'B-1'" in done.stderr


# A simulation


def test_a_simulation_is_the_door(folder, caplog):
    done = run("simulate small.json --rate 2 --count 50 --seed 3 -o run.json")
    felt, plan = Run.load("run.json"), Plan.load("small.json")
    assert done.exit_code == 0 and done.stdout == felt.summary() + "\n"
    same = Arrivals.poisson(2, 50, clients=1, seed=3)
    assert felt == simulate(plan.cluster, plan.placement, same, WaitingPenalised())
    assert loaded(run("simulate small.json --rate 2 --count 50 --seed 3 --json").stdout) == felt
    # the caches are of what the file says, and not of what comes
    told = "for the 148 tokens of the longest request; give --tokens"
    assert told in caplog.text
    caplog.clear()
    short = run("simulate small.json --rate 2 --count 50 --seed 3 --tokens 148")
    assert short.stdout == done.stdout and not caplog.text
    line = "simulate small.json --rate 2 --count 50 --seed 3 --prompt 60"
    assert run(line).stdout == done.stdout and "for the 188 tokens" in caplog.text
    # said, it is another thing: no request of 188 tokens fits, or it waits
    assert run(f"{line} --tokens 148").stdout != done.stdout


def test_every_router_meets_the_same_requests(folder):
    line = "simulate plan.json --rate 0.7 --count 200 --json --router"
    runs = {name: loaded(run(f"{line} {name}").stdout) for name in commands.ROUTERS}
    arrivals = {felt.arrivals.arrival.tobytes() for felt in runs.values()}
    assert len(arrivals) == 1 and len({felt.router for felt in runs.values()}) == len(runs)
    hint = str(blocks_simulate.__annotations__["router"])
    assert all(repr(name) in hint for name in commands.ROUTERS)
    assert hint.count("'") == 2 * len(commands.ROUTERS)


def test_a_trace_and_what_a_cache_is_for(folder):
    (folder / "own.csv").write_text("arrival,prompt,output\n0,100,20\n1,60,30\n2,9000,1\n")
    line = "simulate plan.json --trace own.csv --tokens 148"
    done = run(f"{line} --count 2 --json")
    felt = loaded(done.stdout)
    assert felt.lengths == Lengths(148) and felt.arrivals.tokens.tolist() == [120, 90]
    many = loaded(run(f"{line} --rate 0.1 --json").stdout)
    assert np.diff(many.arrivals.arrival).tolist() == [10_000, 10_000]
    huge = f"{line.replace('148', '1')} --json"
    assert run(huge).exit_code in (1, 2) and loaded(run(f"{huge} --reject").stdout).rejected > 0
    named = loaded(run("simulate plan.json --trace azure_conv --count 30 --rate 0.1 --json").stdout)
    assert len(named.arrivals) == 30
    other = "simulate plan.json --trace azure_conv --count 30 --rate 0.1 --seed 5 --json"
    assert (loaded(run(other).stdout).arrivals.client != named.arrivals.client).any()


def test_a_repaired_plan_is_simulated(folder):
    run("repair plan.json --lost paris-1 --time-limit 1 -o new.json")
    felt = loaded(run("simulate new.json --rate 0.1 --count 40 --json").stdout)
    assert felt.cluster.n == 15 and felt.rejected == 0


# What is refused

ODD = [
    *[b"", b"\x00", b"\xff\xfe", b"[]", b"{}", b"null", b"1e999", b'{"type": "blocks.Plan"}'],
    *[b"a: &a [*a]", b"- " * 3000, b"[" * 100_000, b'{"a":' * 5000, b"!!python/object:os.system x"],
]


@pytest.mark.parametrize(
    "line, code, said",
    [
        ("plan none.yaml --requests 1", 2, "none.yaml"),
        ("plan . --requests 1", 2, ""),
        ("plan cluster.yaml", 2, "--requests"),
        ("plan cluster.yaml --requests -1", 2, "--requests"),
        ("plan cluster.yaml --requests 1.5", 2, "--requests"),
        ("plan cluster.yaml --requests x", 2, "--requests"),
        ("plan cluster.yaml --requests 100000", 1, "287"),
        ("plan small.yaml --requests 99", 1, ""),
        ("plan cluster.yaml --requests 1 --method magic", 2, "magic"),
        ("plan cluster.yaml --requests 1 --method cg --time-limit 3", 2, "--time-limit"),
        ("plan cluster.yaml --requests 1 --time-limit -1", 2, "--time-limit"),
        ("plan cluster.yaml --requests 1 --prove -1", 2, "--prove"),
        ("plan cluster.yaml --requests 1 --prove nan", 2, "--prove"),
        ("plan unit.yaml --requests 1", 2, "unit.yaml:3: servers.0.memory is '16 ms'"),
        ("plan cluster.yaml --requests 1 -o none/new.json", 2, "none"),
        ("launch plan.json --tokens 9", 2, "--model"),
        ("launch plan.json --model m", 2, "--tokens"),
        ("launch plan.json --model m --tokens 0", 2, "--tokens"),
        ("launch plan.json --model m --tokens 9 --port 70000", 2, "--port"),
        ("launch plan.json --model m --tokens 9 --device toaster", 2, "--device"),
        ("launch plan.json --model m --tokens 9 --device cpu", 2, "--quant-type"),
        ("launch plan.json --model m --tokens 9 --initial-peers x", 2, "--initial-peers"),
        ("launch plan.json --model m --tokens 9 --dht-prefix a.b", 2, "--dht-prefix"),
        ("launch plan.json --model m --tokens 9 --to exo", 2, "exo"),
        ("launch cluster.yaml --model m --tokens 9", 2, "must be a file of blocks plan"),
        ("launch card.json --model m --tokens 9", 2, "card.json holds a Cluster"),
        ("simulate plan.json", 2, "--rate is not given"),
        ("simulate plan.json --rate 0", 2, "--rate"),
        ("simulate plan.json --rate nan", 2, "--rate"),
        ("simulate plan.json --rate 1e-300", 2, "arrivals end at 1.02"),
        ("simulate plan.json --rate 1 --count -1", 2, "--count"),
        ("simulate plan.json --rate 1 --generate 0", 2, "--generate"),
        ("simulate plan.json --rate 1 --prompt -1", 2, "--prompt"),
        ("simulate plan.json --rate 1 --tokens 0", 2, "--tokens"),
        ("simulate plan.json --rate 1 --tokens 1 --count 9", 1, "148 tokens"),
        ("simulate plan.json --rate 1 --router petals-like", 2, "petals-like"),
        ("simulate plan.json --trace none.csv", 2, "none.csv"),
        ("simulate plan.json --trace unsorted.csv", 2, "unsorted.csv:3: arrival"),
        ("simulate plan.json --trace empty.csv", 2, "--drop-empty"),
        ("repair none.json", 2, "none.json"),
        ("repair plan.json --lost madrid", 2, "--lost[0] is 'madrid'"),
        ("repair plan.json --lost oslo-1 --lost oslo-1", 2, "--lost[1] is 'oslo-1'"),
        ("repair plan.json --lost paris-1 --lost paris-2", 1, ""),
        ("repair plan.json --reload-price -1", 2, "--reload-price"),
        ("repair plan.json --failures -1", 2, "--failures"),
        ("repair plan.json --hysteresis 2", 2, "--hysteresis"),
        ("repair plan.json --now none.yaml", 2, "none.yaml"),
        ("repair plan.json --now small.yaml", 2, ""),
    ],
)
def test_bad_input_is_told_and_leaves_everything_as_it_was(line, code, said, folder):
    (folder / "unit.yaml").write_text(SMALL.replace("16 GB", "16 ms"))
    read_cluster("small.yaml").save("card.json")
    (folder / "unsorted.csv").write_text("arrival,prompt,output\n2,10,20\n1,10,20\n")
    (folder / "empty.csv").write_text("arrival,prompt,output\n2,10,0\n3,10,20\n")
    before = {name: os.stat(name).st_mtime_ns for name in os.listdir()}
    done = run(line)
    assert (done.exit_code, done.stdout) == (code, "") and said in done.stderr, done.stderr
    assert done.stderr and "internal error" not in done.stderr
    assert {name: os.stat(name).st_mtime_ns for name in os.listdir()} == before


def test_hostile_files(folder):
    """Of any bytes, and good ones with some bytes changed: 0, 1 or 2, and a word on what is odd."""
    rng, codes = random.Random(0), set()
    for i in range(cases(3000, 150)):
        kind = ("cluster.yaml", "small.json", "small.yaml")[i % 3]
        text = bytearray((folder / kind).read_bytes())
        for _ in range(rng.randint(1, 6)):
            at = rng.randrange(len(text))
            text[at : at + rng.randint(0, 3)] = rng.choice([b"", b"9", b"-", b"{", b"\xff", b": "])
        hostile = ODD[i] if i < len(ODD) else bytes(text)
        (folder / "odd").write_bytes(hostile)
        line = "plan odd --requests 3" if kind.endswith("yaml") else "repair odd --time-limit 1"
        done = run(line)
        codes.add(done.exit_code)
        assert done.exit_code in (0, 1, 2), (hostile, done.stderr)
        assert done.exit_code == 0 or done.stderr
    assert {0, 2} <= codes
