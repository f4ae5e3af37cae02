"""One page and one JSON for a deployment: the same numbers in both, those of the doors; and files
that are bad, hostile or without an answer."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from serving_or.blocks.two_time_scales import design_capacity
from serving_or.cli import report as room
from serving_or.cli.app import command_line
from serving_or.cli.blocks import blocks_init
from serving_or.cli.fleet import MAIN
from serving_or.cli.report import (
    Chart,
    Deployment,
    Replica,
    Report,
    Room,
    Section,
    Table,
    decide,
    play_trace,
    read_deployment,
    report_init,
    room_of,
    step_times,
    with_spares,
    work_bound,
)
from serving_or.experts.maps import check_map, read_map
from serving_or.experts.next_window import Repair, backtest
from serving_or.experts.repair import plan
from serving_or.fleet.kv_cache import cache_tokens
from serving_or.fleet.load_dependent_service import Engine
from serving_or.tools.answers import Infeasible
from serving_or.tools.data import RequestTrace, load_experts
from serving_or.tools.files import BadFile
from serving_or.tools.models import CARDS, GPUS
from tests.long import cases

# ten minutes of the trace, so that a report takes a second
SMALL = report_init().replace("  rate: 40", "  length: 600 s\n  rate: 20")
SWARM = """\
model: BLOOM-176B
trace: {requests: azure_code, length: 600 s}
targets: {ttft: 30 s, tpot: 1 s, share: 0.9}
blocks: {cluster: cluster.yaml, rate: 0.05, count: 60, launch: bigscience/bloom}
"""


def run(line):
    return CliRunner().invoke(command_line(), ["report", *line.split()])


@pytest.fixture
def here(tmp_path, monkeypatch):
    "An empty folder to work in."
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    "A report of the small sample: its folder, the result of the command, the record."
    folder = tmp_path_factory.mktemp("report")
    before = os.getcwd()
    os.chdir(folder)
    try:
        Path("deployment.yaml").write_text(SMALL)
        result = run("deployment.yaml -o page.html --time-limit 1000")
    finally:
        os.chdir(before)
    assert result.exit_code == 0, result.output
    return folder, result, Report.load(folder / "page.json")


class Page(HTMLParser):
    "What stands on a page: tags, cells with a value, addresses; every tag is closed."

    VOID = frozenset({"meta", "br", "path", "rect"})

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.cells, self.links, self.words = [], [], [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append(tag)
        if "data-value" in attrs:
            self.cells.append(float(attrs["data-value"]))
        self.links += [v for k, v in attrs.items() if k in ("href", "src", "action", "data")]
        assert not any(k.startswith("on") for k in attrs)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def numbers(report):
    "The numbers of a report's overview and tables, in the order of the page."
    overview = [v for s in report.sections for v in (s.value, s.bound)]
    rows = [v for s in report.sections for t in s.tables for row in t.rows for v in row]
    return [v for v in [*overview, *rows] if isinstance(v, int | float)]


# the page and the JSON


def test_the_page_is_whole_and_needs_nothing_else(done):
    folder, _, report = done
    text = (folder / "page.html").read_text()
    page = Page(text)
    assert all(link.startswith("#") for link in page.links)
    assert not set(page.tags) & {"script", "link", "iframe", "img", "object", "embed"}
    addresses = re.findall(r"https?://[^\"' <]+", text)
    assert set(addresses) == {"http://www.w3.org/2000/svg"}
    assert "url(" not in text and "@import" not in text and "default-src 'none'" in text
    assert page.tags.count("svg") == sum(s.chart is not None for s in report.sections) == 5
    assert "prefers-color-scheme: dark" in text and "@media print" in text


def test_every_number_of_the_page_is_that_of_the_json(done):
    folder, _, report = done
    assert Page((folder / "page.html").read_text()).cells == numbers(report)
    told = json.loads((folder / "page.json").read_text())
    assert len(told["sections"]) == 5 and report.html() == (folder / "page.html").read_text()


def test_the_command_and_the_door_say_the_same(done):
    folder, result, report = done
    assert result.stdout == report.summary() + "\n"
    again = decide(read_deployment(folder / "deployment.yaml"), None, 0)
    assert again == report and hash(again) == hash(report)
    frame = report.to_frame()
    assert list(frame.index) == [s.key for s in report.sections]


def test_json_on_standard_output(here):
    Path("d.yaml").write_text(SMALL.split("gpu:")[0] + "gpu: {name: H100}\n")
    result = run("d.yaml --json")
    told = json.loads(result.stdout)
    assert result.exit_code == 0 and told["summary"]["faults"] == []
    assert sorted(p.name for p in here.iterdir()) == [
        "d-report.html",
        "d-report.json",
        "d.yaml",
    ]


def test_the_map_is_one_for_the_engine(done):
    folder, _, _ = done
    check_map(read_map(folder / "page-map.json"), 64, 2, 27, "sglang", redundant=8)


# numbers are those of the doors


def test_experts_by_the_doors(done):
    _, _, report = done
    loads = load_experts(window=8).loads
    section, made = report.section("experts"), plan(loads.sum(axis=0), 2, 8)
    assert (section.value, section.bound, section.gap) == (made.value, made.bound, made.gap)
    tried = backtest(loads, 2, 8, policies={"repair": Repair(0.02)})
    row = {r[0]: r for r in section.tables[0].rows}["repair"]
    assert row[3] == tried.next_window.mean() and row[1] == 100 * tried.moved.mean()
    for _, latency, added, cost, bound, ratio in section.tables[1].rows:
        assert bound <= cost and ratio == cost / bound and latency <= cost and added >= 0


def test_fleet_by_the_doors(done):
    folder, _, report = done
    d = read_deployment(folder / "deployment.yaml")
    balance = {r[0]: r for r in report.section("experts").tables[0].rows}["repair"][3]
    stored = replace(
        d.card,
        parameters=d.card.parameters + 8 * d.card.expert,
        num_experts=d.card.num_experts + 8,
    )
    tokens = cache_tokens(stored, GPUS["A10"], 2)
    section = report.section("fleet")
    rows = dict(section.tables[1].rows)
    assert rows["KV room, tokens"] == tokens and rows["balance of the experts' work"] == balance
    room_ = room_of(d, balance=balance)
    n = int(section.value)
    assert play_trace(room_, d.trace, n).good(d.ttft, d.tpot) >= d.share
    assert n == 1 or play_trace(room_, d.trace, n - 1).good(d.ttft, d.tpot) < d.share
    assert report.section("batching").tables[0].caption.split()[2].isdigit()


def test_blocks_by_the_doors(here):
    Path("cluster.yaml").write_text(blocks_init())
    Path("swarm.yaml").write_text(SWARM)
    d = read_deployment("swarm.yaml")
    assert d.card.weight_bits == 4.25 and d.card == CARDS["BLOOM-176B"].stored(4.25, overhead=0.01)
    section = decide(d, time_limit=1).section("blocks")
    arrivals = room.Arrivals.from_trace(d.trace, 0.05, 60, 2, 0)
    found = design_capacity(d.swarm.cluster, arrivals=arrivals, lengths=room.Lengths(148))
    assert f"for {found.requests} requests at a time" in section.decision
    assert section.value <= found.plan.cost and section.bound <= section.value
    assert section.tables[-1].rows[0][1].startswith("python ")
    assert len(section.tables[1].rows) == d.swarm.cluster.n


# the bound on replicas


@settings(max_examples=cases(1000))
@given(st.integers(0, 10**6))
def test_no_rule_of_dealing_beats_the_bound(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 40))
    batch = int(rng.integers(1, 5))
    engine = Engine(rng.uniform(0, 0.1), rng.uniform(0.001, 0.05), batch, 5, stalls=True)
    trace = RequestTrace(
        "x",
        np.sort(rng.choice([0, 1, 5]) * rng.random(n)),
        rng.integers(1, 50, n),
        rng.integers(1, 12, n),
    )
    room_ = Room(engine, 1000, 0.01 * rng.random(), 1.0)
    prefill = room_.prompt_token * trace.prompt
    ttft, tpot = 0.1 + rng.random(), rng.uniform(0.02, 0.3)
    for replicas in (1, 2, 3, 5):
        to = rng.integers(replicas, size=n) if rng.random() < 0.5 else None
        if to is None:
            felt = play_trace(room_, trace, replicas)
            met = felt.good(ttft, tpot)
        else:
            good = 0
            for k in range(replicas):
                at = np.flatnonzero(to == k)
                some = RequestTrace(
                    "y", *(v[at] for v in (trace.arrival, trace.prompt, trace.output))
                )
                good += (
                    round(play_trace(room_, some, 1).good(ttft, tpot) * len(at)) if len(at) else 0
                )
            met = good / n
        # with the share that is met, the bound may not ask for more
        if met > 0:
            asked = (trace.arrival, prefill, trace.output, ttft, tpot, met)
            assert work_bound(engine, *asked) <= replicas


def clever(rng, engine, a, p, o, replicas, d, c, kept):
    """First tokens and ends under a rule that knows all, gives up whom it likes, pauses and moves
    requests, and always takes the one that is most urgent; written for this test alone."""
    n = len(a)
    first, done, left, free = np.full(n, np.inf), np.full(n, np.inf), o.copy(), [0.0] * replicas
    new, ready, busy = set(np.flatnonzero(kept).tolist()), set(), []
    each, eager = engine.alpha + engine.beta, rng.choice([0, 0.5, 1])
    while new or ready or busy:
        k = int(np.argmin(free))
        t = free[k]
        ready |= {i for end, i in busy if end <= t}
        busy = [(end, i) for end, i in busy if end > t]
        # those that cannot be on target any more are left
        ready = {i for i in ready if t + left[i] * each <= first[i] + c * o[i] + 1e-12}
        new = {i for i in new if t + p[i] <= a[i] + d + 1e-12}
        here = sorted((a[i] - p[i], i) for i in new if a[i] <= t)
        urgent = sorted((first[i] + c * o[i] - left[i] * each, i) for i in ready)
        if here and (not urgent or rng.random() < eager):
            i = here[0][1]
            new.discard(i)
            free[k] = first[i] = t + p[i]
            busy.append((free[k], i))
        elif urgent:
            batch = [i for _, i in urgent[: engine.batch]]
            free[k] = t + engine.alpha + engine.beta * len(batch)
            ready -= set(batch)
            left[batch] -= 1
            busy += [(free[k], i) for i in batch if left[i]]
            done[[i for i in batch if not left[i]]] = free[k]
        else:
            later = [end for end, _ in busy] + [a[i] for i in new if a[i] > t]
            free[k] = min(later, default=np.inf)
            if not later:
                break
    return first, done


@settings(max_examples=cases(4000))
@given(st.integers(0, 10**6))
def test_no_schedule_beats_the_bound(seed):
    rng = np.random.default_rng(seed)
    n, batch = int(rng.integers(1, 25)), int(rng.integers(1, 6))
    engine = Engine(rng.uniform(0, 0.1), rng.uniform(0.001, 0.05), batch, 5, stalls=True)
    a = np.sort(rng.choice([0, 0.5, 3]) * rng.random(n))
    p = rng.choice([0, 0.001, 0.01, 0.1]) * rng.integers(1, 50, n)
    o = rng.integers(1, 12, n)
    d, c = rng.uniform(0.05, 1), (engine.alpha + engine.beta) * rng.choice([1, 1.5, 3, 8])
    work = p + o * (engine.alpha / batch + engine.beta)
    for replicas in (1, 2):
        kept = np.ones(n, bool)
        kept[np.argsort(-work)[: rng.integers(0, n)]] = False
        first, done = clever(rng, engine, a, p, o, replicas, d, c, kept)
        met = np.flatnonzero(np.isfinite(done) & (first <= a + d + 1e-12))
        met = met[done[met] - first[met] <= c * o[met] + 1e-12]
        if len(met):
            assert work_bound(engine, a, p, o, d, c, len(met) / n) <= replicas


def test_the_bound_is_met_where_batches_are_full():
    engine = Engine(0.04, 0.01, 4, 10, stalls=True)
    a, p, o = np.zeros(40), np.zeros(40), np.full(40, 10)
    rng = np.random.default_rng(0)
    first, done = clever(rng, engine, a, p, o, 10, 0.01, 0.081, np.ones(40, bool))
    assert (first <= 0.01).all() and (done - first <= 0.81).all()
    assert work_bound(engine, a, p, o, 0.01, 0.081) == 10


def test_first_tokens_alone_may_decide():
    # no steps to speak of: a hundred prefills of 0.1 s within 1 s
    engine = Engine(0.0, 1e-9, 4, 10, stalls=True)
    asked = (np.zeros(100), np.full(100, 0.1), np.full(100, 10))
    assert work_bound(engine, *asked, 1, 1e3) >= 9
    assert work_bound(engine, *asked, 1, 1e3, share=0.5) in (4, 5)


@pytest.mark.parametrize(
    "change",
    [
        {"arrival": [1.0, 0.0]},
        {"prefill": [0.0]},
        {"output": [1.0, np.nan]},
        {"ttft": 0},
        {"share": 1.5},
        {"engine": Engine(0.04, 0.01, 4, 10)},
        {"arrival": [], "prefill": [], "output": []},
    ],
)
def test_what_the_bound_refuses(change):
    engine = Engine(0.04, 0.01, 4, 10, stalls=True)
    asked = dict(arrival=[0.0, 1.0], prefill=[0.0, 0.0], output=[5, 5], ttft=1, tpot=0.1)
    assert work_bound(engine, **asked) == 1
    with pytest.raises(ValueError):
        work_bound(**{"engine": engine} | asked | change)


def test_a_target_that_is_met_exactly_is_met():
    "A prefill of 1 s and a target of 1 s, at times that round."
    arrival = np.sort(np.random.default_rng(0).random(200) * 3600)
    trace = RequestTrace("x", arrival - arrival[0], np.full(200, 1000), np.full(200, 20))
    replica = Replica(GPUS["L40S"], steps=(0.01, 0.001, 0.001))
    for ttft, tpot in ((1.0, 0.1), (5.0, 0.011), (1.0, 0.011)):
        d = Deployment("x", CARDS["Llama-3.1-8B"], trace, ttft, tpot, 0.9999, replica)
        assert not decide(d).section("fleet").failed
    d = replace(d, ttft=0.999)
    assert decide(d).section("fleet").tables[0].rows == (("nearest with an answer", 1.0),)
    d = replace(d, ttft=1.0, tpot=0.0109)
    assert decide(d).section("fleet").tables[0].rows == (("nearest with an answer", 0.011),)
    # where both are missed there is no single number
    assert decide(replace(d, ttft=0.5)).section("fleet").tables == ()


def test_the_bound_grows_with_the_share_and_the_crowd():
    engine = Engine(0.04, 0.01, 4, 10, stalls=True)
    crowd = lambda n, **more: work_bound(
        engine, np.zeros(n), np.zeros(n), np.full(n, 10), 1, 0.1, **more
    )
    assert [crowd(n) for n in (1, 10, 100, 1000)] == [1, 1, 10, 100]
    assert [crowd(100, share=q) for q in (0.1, 0.5, 0.9, 1.0)] == [1, 5, 9, 10]


def test_a_burst_is_seen_behind_a_quiet_hour():
    engine = Engine(0.04, 0.01, 4, 10, stalls=True)
    arrival = np.concatenate([np.linspace(0, 3600, 100), np.full(100, 3600.0)])
    asked = (np.zeros(200), np.full(200, 10), 1, 0.1)
    assert work_bound(engine, arrival, *asked) >= 9


# where decisions meet


def test_spares_are_experts_to_the_memory_only():
    card = CARDS["DeepSeek-V2-Lite"]
    more = with_spares(card, 5)
    assert more.total - card.total == 5 * card.expert.sum() and more.active == card.active
    assert with_spares(CARDS["Llama-3.1-8B"], 5) == CARDS["Llama-3.1-8B"]


def test_measured_steps_come_first():
    replica = Replica(GPUS["L4"], steps=(0.01, 0.001, 1e-5))
    assert step_times(CARDS["Llama-3.1-8B"], replica, 100, 8, 0.5) == (0.01, 0.001, 1e-5)
    with pytest.raises(ValueError, match="T4 has no bandwidth"):
        step_times(CARDS["Llama-3.1-8B"], Replica(GPUS["T4"]), 100)


def test_balance_slows_prompts_down():
    card, replica = CARDS["DeepSeek-V2-Lite"], Replica(GPUS["A10"], 2)
    even, odd = (step_times(card, replica, 1000, 0, b)[2] for b in (1.0, 0.5))
    routed = 6 * card.expert.sum()
    assert odd / even == pytest.approx((card.active + routed) / card.active)


# no answer


@pytest.mark.parametrize(
    "change, failed, said",
    [
        (("ttft: 1 s", "ttft: 30 ms"), ["fleet"], "first token within"),
        (("name: A10\n", "name: L4\n  memory: 10 GB\n"), ["fleet", "batching"], "it needs"),
    ],
)
def test_a_decision_without_an_answer(here, change, failed, said):
    text = SMALL.replace(*change)
    assert text != SMALL
    Path("d.yaml").write_text(text)
    result = run("d.yaml -o d.html")
    report = Report.load("d.json")
    assert result.exit_code == 1 and [s.key for s in report.sections if s.failed] == failed
    assert said in report.section(failed[0]).decision
    assert (
        not report.section("experts").failed
        and "the rest of the report stands" in Path("d.html").read_text()
    )


def test_nearest_targets_have_an_answer(here):
    text = SMALL.split("  offers:")[0].replace("ttft: 1 s", "ttft: 30 ms")
    Path("d.yaml").write_text(text)
    d = read_deployment("d.yaml")
    section = decide(d).section("fleet")
    near = section.tables[0].rows[0][1]
    assert near > 0.03
    assert f"within {near:g} s" in section.decision
    mended = replace(d, ttft=near)
    assert not decide(mended).section("fleet").failed
    less = replace(d, ttft=near * 0.99)
    assert decide(less).section("fleet").failed


# bad files


@pytest.mark.parametrize(
    "old, new, line, required",
    [
        ("ttft: 1 s", "ttft: 1", 5, "with its unit"),
        ("ttft: 1 s, ", "", 5, "a time"),
        ("DeepSeek-V2-Lite ", "DeepSeek-V9 ", 2, "config.json"),
        ("azure_conv", "azure_con", 4, "a CSV file, or one of"),
        ("loads: esft", "loads: day.npy", 15, "a recording"),
        ("name: A10", "name: A11", 7, "unless name is one of"),
        ("name: A10", "name: T4", 7, "a second"),
        ("count: 2", "count: two", 9, "a whole number"),
        ("redundant: 8", "redundant: -8", 16, "at least 1"),
        ("redundant: 8", "redundent: 8", 16, "one of the fields"),
        ("share: 0.95", "share: 1.5", 5, "at most"),
        ("write: sglang", "write: ollama", 18, "one of"),
        ("DeepSeek-V2-Lite ", "DeepSeek-V3 ", 15, "58 layers with 256 experts"),
        ("window: 8 ", "window: 800000 ", 17, "window"),
        ("window: 8 ", "gpus: 4\n  window: 8 ", 17, "left out, or gpu.count, 2"),
    ],
)
def test_a_mistake_is_told_with_its_line(here, old, new, line, required):
    text = report_init().replace(old, new, 1)
    assert text != report_init()
    Path("d.yaml").write_text(text)
    result = run("d.yaml")
    assert result.exit_code == 2 and not result.stdout and required in result.stderr
    if required != "window":
        found = [int(n) for n in re.findall(r"d\.yaml:(\d+):", result.stderr)]
        assert any(abs(n - line) <= 1 for n in found), result.stderr
    assert sorted(p.name for p in here.iterdir()) == ["d.yaml"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{model: 1}",
        "model: Llama-3.1-8B\ntrace: {requests: azure_conv}\ntargets: {ttft: 1 s, tpot: 1 s}\n",
        "a: &a [*a]",
        "\x00",
        "{" * 1000,
    ],
)
def test_what_is_no_deployment(here, text):
    Path("d.yaml").write_text(text)
    result = run("d.yaml")
    assert result.exit_code == 2 and not result.stdout and "internal" not in result.stderr


def test_paths_that_are_none(here):
    assert run("missing.yaml").exit_code == 2
    Path("d.yaml").write_text(SMALL)
    assert run("d.yaml -o nowhere/page.html").exit_code == 2
    refused = run("d.yaml -o page.pdf")
    assert refused.exit_code == 2 and "must end in .html" in refused.stderr
    Path("page.json").mkdir()
    assert run("d.yaml -o page.html").exit_code == 2 and not Path("page.html").exists()
    assert run(".").exit_code == 2


def test_a_cluster_of_another_model(here):
    Path("cluster.yaml").write_text(blocks_init())
    Path("d.yaml").write_text(SWARM.replace("BLOOM-176B", "Llama-3.1-8B"))
    result = run("d.yaml")
    assert result.exit_code == 2 and "that of cluster.yaml, BLOOM-176B" in result.stderr
    Path("d.yaml").write_text("weight_bits: 8\n" + SWARM)
    assert "4.25, or left out" in run("d.yaml").stderr


def test_trace_and_model_from_files(here):
    rows = [f"{i / 10},{500 + i},{20 + i % 7}" for i in range(80)]
    Path("day.csv").write_text("arrival,prompt,output\n" + "\n".join(rows))
    config = dict(model_type="llama", torch_dtype="bfloat16", hidden_size=1024, vocab_size=1000)
    config |= dict(intermediate_size=4096, num_hidden_layers=4, num_attention_heads=8)
    Path("config.json").write_text(json.dumps(config | {"num_key_value_heads": 8}))
    text = (
        "model: config.json\ntrace: {requests: day.csv, start: 1 s, length: 5 s}\n"
        "targets: {ttft: 1 s, tpot: 50 ms}\ngpu: {name: mine, memory: 8 GB}\n"
        "steps: {step: 5 ms, each: 0.1 ms, prompt_token: 10 us}\n"
    )
    Path("d.yaml").write_text(text)
    d = read_deployment("d.yaml")
    assert len(d.trace) == 50 and d.trace.prompt[0] == 510 and d.replica.steps[2] == 1e-5
    assert d.rate == pytest.approx(10) and decide(d).section("fleet").value == 1


# hostile names


def test_a_map_that_runs_is_repaired(here):
    loads = load_experts(window=8).loads[:6]
    np.save("day.npy", loads)
    old = plan(loads[0], 2, 8)
    old.save("old.json")
    text = "gpu: {name: A10, count: 2}\nexperts: {loads: day.npy, redundant: 8, old: old.json}\n"
    Path("d.yaml").write_text(SMALL.split("gpu:")[0] + text)
    section = decide(read_deployment("d.yaml")).section("experts")
    made = plan(loads.sum(axis=0), 2, 8, old=old.physical)
    assert section.value == made.value and f"{made.transfers.sum()} transfers" in section.decision
    assert not any(p.name.endswith("-map.json") for p in here.iterdir())


def test_names_are_shown_and_not_obeyed(here):
    name = "<script>alert(1)<!--"
    rows = "".join(f"{i},100,10\n" for i in range(20))
    Path(f"{name}.csv").write_text("arrival,prompt,output\n" + rows)
    cluster = blocks_init().replace("name: paris", 'name: "<img src=x onerror=y>"')
    Path("cluster.yaml").write_text(cluster.replace("paris:", '"<img src=x onerror=y>":'))
    deployment = SWARM.replace("azure_code, length: 600 s", f'"{name}.csv"')
    Path("d.yaml").write_text(deployment.replace("bigscience/bloom", '"a/<b>"'))
    result = run("d.yaml --time-limit 1")
    assert result.exit_code == 0, result.output
    text = Path("d-report.html").read_text()
    page = Page(text)
    assert "script" not in page.tags and "img" not in page.tags and "b" not in page.tags
    assert "&lt;script&gt;" in text and "&lt;img src=x onerror=y&gt;" in text


@settings(max_examples=cases(1000))
@given(st.text(max_size=40), st.text(max_size=40), st.floats() | st.integers())
def test_any_text_is_safe_on_the_page(a, b, x):
    chart = Chart(a, [1, 2], {b: [1.0, 2.0]}, a, b)
    bars = Chart(b, [a, "z"], {a: [1.0, 2.0]}, b, a, "bars")
    made = [
        Section("k", a, b, tables=[Table(b, [a], [[x], [b]])], chart=c, proved=a)
        for c in (chart, bars)
    ]
    page = Page(Report(a, b, made).html())
    assert page.tags.count("section") == 2 and "script" not in page.tags


def test_records_refuse_what_cannot_be():
    with pytest.raises(ValueError, match="optimal"):
        Section("k", "t", "d", "optimal", 2.0, 1.0)
    with pytest.raises(ValueError, match="bound"):
        Section("k", "t", "d", "feasible", 1.0, 2.0)
    with pytest.raises(ValueError, match="cells"):
        Table("c", ["a"], [[1, 2]])
    trace = RequestTrace("x", np.arange(3.0), np.ones(3, int), np.ones(3, int))
    with pytest.raises(ValueError, match="at least 10"):
        Deployment("x", CARDS["Llama-3.1-8B"], trace, 1, 1)
    with pytest.raises(ValueError, match="the report has"):
        Report("a", "b", []).section("fleet")


# interrupts


def test_nothing_is_left_behind_after_ctrl_c(here):
    Path("deployment.yaml").write_text(report_init())
    command = [sys.executable, "-c", MAIN, "report", "deployment.yaml", "--verbose"]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    seen = ""
    while "report:" not in seen:
        seen += running.stderr.read(1)
    time.sleep(0.1)
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=60)
    assert running.returncode == 130
    assert [p.name for p in here.iterdir()] == ["deployment.yaml"]


def test_a_full_disk_leaves_no_half_page(here, monkeypatch):
    Path("d.yaml").write_text(SMALL.split("gpu:")[0] + "gpu: {name: H100}\n")

    def full(path, text):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(room, "write_whole", full)
    result = run("d.yaml")
    assert result.exit_code == 2 and "No space left" in result.stderr
    assert [p.name for p in here.iterdir()] == ["d.yaml"]


# the command line


def test_run_needs_no_name(here):
    text = report_init()
    assert run("init").stdout == text
    Path("d.yaml").write_text(SMALL.split("gpu:")[0] + "gpu: {name: H100}\n")
    short = run("d.yaml --json")
    assert short.stdout == run("run d.yaml --json").stdout == run("--json d.yaml").stdout
    assert "init" in run("--help").stdout and run("").exit_code in (0, 2)
    assert "--time-limit" in run("run --help").stdout


def test_a_time_limit_is_for_all(here):
    Path("cluster.yaml").write_text(blocks_init())
    Path("d.yaml").write_text(SWARM)
    begin = time.process_time()
    decide(read_deployment("d.yaml"), time_limit=0)
    assert time.process_time() - begin < 8
    with pytest.raises(ValueError, match="time_limit"):
        decide(read_deployment("d.yaml"), time_limit=-1)


def test_errors_keep_their_kinds(here):
    with pytest.raises(BadFile) as caught:
        Path("d.yaml").write_text(report_init().replace("ttft: 1 s", "ttft: 1"))
        read_deployment("d.yaml")
    assert caught.value.problems[0].field == "targets.ttft"
    trace = RequestTrace("x", np.arange(20.0), np.full(20, 10**6), np.full(20, 10))
    d = Deployment("x", CARDS["Llama-3.1-8B"], trace, 1, 1, replica=Replica(GPUS["A10"]))
    with pytest.raises(Infeasible, match="gpu.count") as caught:
        room_of(d)
    needed = caught.value.nearest
    assert room_of(replace(d, replica=Replica(GPUS["A10"], needed))).engine.batch == 1
    with pytest.raises(Infeasible):
        room_of(replace(d, replica=Replica(GPUS["A10"], needed - 1)))
