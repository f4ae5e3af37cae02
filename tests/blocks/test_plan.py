"The model of the blocks part: memory, times, files and the checker, against exact arithmetic and broken plans."
from dataclasses import replace
from fractions import Fraction

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_or.blocks.plan import token_time, request_time
from serving_or.blocks.cluster import A100, CARDS, GB, MIG, Cluster, Device, scatter
from serving_or.tools.files import GIB, BadFile
from serving_or.blocks.plan import BadPlan, Chain, Infeasible, NoRoute, NotFound, Placement, TooLarge, check, spans, visits

FAST = settings(max_examples=300, deadline=None)
tenths = st.integers(1, 400).map(lambda k: Fraction(k, 10))


@FAST
@given(tenths, tenths, tenths, st.integers(0, 12), st.integers(1, 30))
def test_floors_agree_with_exact_arithmetic(memory, block, cache, design, blocks):
    "Sizes with one decimal are not exact in floating point; the counts must be those of the decimals."
    cluster = Cluster(blocks, float(block), float(cache), [float(memory)], [1], [1])
    m = min(memory // (block + cache * design), blocks)
    assert cluster.counts(design) == [m]
    if m:
        assert cluster.slots([m]) == (memory - block * m) // cache
        assert cluster.sessions([m]) == (memory - block * m) // (cache * m) >= design


@FAST
@given(st.floats(1, 1e4), st.floats(1e-3, 100), st.floats(1e-6, 10), st.integers(1, 200))
def test_reserving_for_c_leaves_c_sessions(memory, block, cache, design):
    cluster = Cluster(70, block, cache, [memory], [1], [1])
    m = cluster.counts(design)
    assert m == 0 or cluster.sessions(m) >= design
    assert (np.diff(cluster.counts([0, *range(1, 40)])[:, 0]) <= 0).all()


def test_a_whole_quotient_just_below_counts():
    assert 0.3 / 0.1 < 3 and 0.7 / 0.1 < 7
    assert Cluster(9, 0.1, 0, [0.3, 0.7], [1, 1], [1, 1]).counts(5).tolist() == [3, 7]


def test_21_sessions_of_an_80_gb_a100():
    bloom = CARDS["BLOOM-176B"]
    cluster = Cluster.of(bloom, [Device("80 GB", 80 * GB, 3.2197, 0.0743, 32.99)], [[100.0]], prompt=20, output=128)
    assert cluster.sessions([53]) == [21]
    gib = Cluster.of(bloom, [Device("80 GiB", 80 * GIB, 3.2197, 0.0743, 32.99)], [[100.0]], prompt=20, output=128)
    assert gib.sessions([53]) == [35]  # 7 % more memory is 67 % more sessions


def test_cards():
    bloom = CARDS["BLOOM-176B"]
    assert bloom.parameters == 2_466_437_120 and round(bloom.block_bytes() / GB, 4) == 1.3234
    assert [round(bloom.sizes(20 + out)["cache_size"] / 1e6, 3) for out in (64, 128, 2028)] == [4.817, 8.487, 117.441]
    for card in CARDS.values():
        assert card.cache_per_token() == 2 * card.kv_heads * card.head * 2 and card.heads % card.kv_heads == 0
    assert bloom.sizes([20, 148, 30]) == bloom.sizes(148)  # reserve for the longest
    llama = CARDS["Llama-3.1-405B"].sizes(4096)  # the numbers of the exercise on grouped queries
    assert [int((80 * GB - 30 * llama["block_size"]) // (30 * heads * llama["cache_size"])) for heads in (1, 16)] == [56, 3]


def test_no_cache_means_no_limit():
    cluster = Cluster(1, 4, 0, [4, 3.9], [1, 1], [1, 1])
    assert cluster.counts(10**6).tolist() == [1, 0] and cluster.slots([1, 0]).tolist() == [np.inf, 0] and cluster.slots([1, 1])[1] < 0
    assert cluster.sessions([1, 0]).tolist() == [np.inf, 0]
    assert check(cluster, Placement([1, 1], [1, 0]), [Chain(0, [0], [1], 10**6)], 10**6).cost == 2


def test_one_server_holds_all_and_no_requests():
    cluster = Cluster(3, 2, 1, [20, 2], [5, 1], [[7, 1], [np.inf, 1]])
    place = Placement([1, 1], [3, 0])
    plan = check(cluster, place, [Chain(0, (0,), (3,), 4)], [4, 0])
    assert plan.cost == 7 + 15 and np.isnan(plan.client_cost[1]) and plan.client_cost[0] == 22
    empty = check(cluster, place, [], 0)
    assert empty.cost == 0 and empty.status == "optimal" and empty.gap == 0
    with pytest.raises(BadPlan, match="cannot reach"):
        check(cluster, place, [Chain(1, (0,), (3,), 1)], [0, 1])


def test_demand_from_a_number_or_a_vector():
    cluster = Cluster(1, 1, 1, [9], [1], np.ones((3, 1)))
    assert cluster.demand(8).tolist() == [3, 3, 2] and cluster.demand([0, 5, 1]).tolist() == [0, 5, 1]
    for wrong in (-1, 2.5, np.nan, [1, 2], [1, 2, -1], [1, 2, 0.5]):
        with pytest.raises(ValueError, match="requests"):
            cluster.demand(wrong)


@pytest.mark.parametrize("change, said", [
    (dict(blocks=0), "blocks is 0"), (dict(block_size=0), "block_size is 0.0"), (dict(cache_size=-1), "cache_size is -1.0"),
    (dict(memory=[1, np.nan]), r"memory\[1\] is nan"), (dict(tau=[1]), r"tau has shape \(1,\)"), (dict(tau=[1, np.inf]), r"tau\[1\] is inf"),
    (dict(rtt=[[1, -2]]), r"rtt\[0, 1\] is -2"), (dict(hop=[[0, 1]]), r"hop has shape"), (dict(servers=["a"]), "servers has 1 entries"),
    (dict(memory_unit="Gb"), "memory_unit is 'Gb'"), (dict(time_unit="min"), "time_unit"), (dict(price=[1, -1]), r"price\[1\]")])
def test_bad_input_is_named(change, said):
    good = dict(blocks=2, block_size=1, cache_size=1, memory=[3, 3], tau=[1, 1], rtt=[1, 1])
    Cluster(**good)
    with pytest.raises(ValueError, match=said):
        Cluster(**good | change)


THREE = Cluster(4, 4, 1, [16, 12, 12], [10, 20, 20], [10, 10, 10])
BEST = Placement([1, 3, 3], [2, 2, 2])
WAYS = [Chain(0, (0, 1), (2, 2), 2), Chain(0, (0, 2), (2, 2), 2)]


def test_the_worked_examples():
    plan = check(THREE, BEST, WAYS, 4, bound=80)
    assert (plan.cost, plan.status, plan.gap) == (80, "optimal", 0) and (THREE.slots(BEST.m) == plan.visits).all()
    plan = check(THREE, Placement([1, 3, 4], [2, 1, 1]), [Chain(0, (0, 1, 2), (2, 1, 1), 4)], 4, bound=80)
    assert (plan.cost, plan.status, plan.gap) == (90, "feasible", 0.125)


def test_alike_chains_are_merged():
    one = [replace(c, count=1) for c in WAYS for _ in range(2)]
    plan = check(THREE, BEST, one, 4)
    assert plan.chains == tuple(WAYS) and plan.cost == 80


@pytest.mark.parametrize("place, chains, requests, bound, rule", [
    (Placement([1, 3, 4], [2, 2, 2]), WAYS, 4, 0, "span"), (Placement([0, 3, 3], [2, 2, 2]), WAYS, 4, 0, "span"),
    (Placement([1, 3], [2, 2]), WAYS, 4, 0, "span"), (Placement([1, 3, 3], [2, -1, 2]), WAYS, 4, 0, "span"),
    (Placement([1, 3, 3], [4, 2, 2]), [Chain(0, (0,), (4,), 1)], 1, 0, "memory"),
    (BEST, [Chain(0, (0, 1), (2, 2), 3), Chain(0, (0, 2), (2, 2), 1)], 4, 0, "memory"),
    (BEST, [Chain(0, (0, 1), (2, 1), 4)], 4, 0, "chain"), (BEST, [Chain(0, (0,), (2,), 4)], 4, 0, "chain"),
    (BEST, [Chain(0, (1, 0), (2, 2), 1)], 1, 0, "chain"), (BEST, [Chain(0, (0, 1, 2), (2, 2, 0), 1)], 1, 0, "chain"),
    (BEST, [Chain(0, (0, 7), (2, 2), 1)], 1, 0, "chain"), (BEST, [Chain(1, (0, 1), (2, 2), 1)], 1, 0, "chain"),
    (BEST, [Chain(0, (0, 1), (2, 2), 0)], 0, 0, "chain"), (Placement([1, 3, 3], [2, 2, 0]), [Chain(0, (0, 2), (2, 2), 1)], 1, 0, "chain"),
    (BEST, WAYS, 5, 0, "requests"), (BEST, WAYS, 4, 80.1, "bound")])
def test_the_checker_refuses(place, chains, requests, bound, rule):
    with pytest.raises(BadPlan) as caught:
        check(THREE, place, chains, requests, bound)
    assert caught.value.rule == rule


def test_forwarding_and_first_token():
    cluster = replace(THREE, hop=[[0, 3, 5], [9, 0, 9], [9, 9, 0]], prefill_tau=[100, 200, 200], prefill_rtt=[[1, 2, 3]])
    assert token_time(cluster, WAYS[0], forward=True) == 5 + 20 + 3 + 40 + 5
    assert token_time(cluster, WAYS[1], prefill=True) == (1 + 200) + (3 + 400)
    assert request_time(cluster, WAYS[1], 11) == 604 + 10 * 80
    plan = check(cluster, BEST, WAYS, 4, forward=True)
    assert plan.cost == (73 + 75) / 2 and plan.first == (603 + 604) / 2
    with pytest.raises(ValueError, match="hop"):
        token_time(THREE, WAYS[0], forward=True)


def test_plans_speak():
    plan = check(THREE, BEST, WAYS, 4, bound=80)
    assert "4 requests of 1 client, 4 blocks on 3 of 3 servers" in plan.summary() and "80 ms per token, bound 80, optimal" in plan.summary()
    frame = plan.to_frame()
    assert (frame["parameters, bytes"] + frame["caches, bytes"]).tolist() == [16, 12, 12] == frame["memory, bytes"].tolist()
    named = replace(THREE, servers=["<a>", "b", "c"])
    assert "<a>" not in spans(named, BEST, WAYS) and "&lt;a&gt;" in check(named, BEST, WAYS, 4)._repr_html_()
    assert visits(WAYS, 3).tolist() == [8, 4, 4]


def test_placements_are_values():
    assert Placement([3, 2], [0, 1]) == Placement([1, 2], [0, 1]) and len({Placement([1], [2]), Placement([1], [2]), Placement([1], [3])}) == 2
    with pytest.raises(ValueError, match="whole"):
        Placement([1.5], [1])
    with pytest.raises(ValueError):
        Placement([1], [1]).a[0] = 2


def test_take_keeps_everything_of_a_server():
    cluster = replace(THREE, hop=np.arange(9).reshape(3, 3), price=[1, 2, 3], domain=["x", "y", "z"])
    part = cluster.take([2, 0])
    assert part.memory.tolist() == [12, 16] and part.hop.tolist() == [[8, 6], [2, 0]] and part.price.tolist() == [3, 1]
    assert part.domain == ("z", "x") and part.servers == ("server 2", "server 0") and part.rtt.shape == (1, 2)
    assert cluster.take(cluster.memory > 12).n == 1 and cluster.take([]).n == 0


def test_errors_are_kinds_of_builtin_errors():
    assert issubclass(Infeasible, ValueError) and issubclass(NoRoute, Infeasible) and issubclass(NotFound, RuntimeError)
    assert issubclass(BadPlan, ValueError) and issubclass(TooLarge, ValueError) and issubclass(BadFile, ValueError)
    assert Infeasible("no", blocks_short=2, largest=3).largest == 3


FILE = """\
model: {blocks: 4, block_size: 4 GB, cache_size: 1 GB}
servers:
  - {name: a, memory: 16 GB, tau: 10 ms, prefill_tau: 20 ms}
  - name: b
    count: 2
    memory: 12 GiB
    tau: 0.02 s
    domain: oslo
clients:
  - {name: c, rtt: 10 ms}
  - {name: d, rtt: {a: 5 ms, b: inf ms}, prefill_rtt: 1 s}
hop: [[0 ms, 1 ms, 2 ms], [1 ms, 0 ms, 3 ms], [2 ms, 3 ms, 0 ms]]
"""


def test_a_file(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(FILE)
    c = Cluster.from_yaml(path)
    assert (c.blocks, c.block_size, c.cache_size, c.memory_unit, c.time_unit) == (4, 4, 1, "GB", "ms")
    assert c.memory.tolist() == [16, 12 * GIB / GB, 12 * GIB / GB] and c.tau.tolist() == [10, 20, 20] and c.prefill_tau.tolist() == [20, 20, 20]
    assert c.rtt.tolist() == [[10] * 3, [5, np.inf, np.inf]] and c.prefill_rtt.tolist() == [[10] * 3, [1000] * 3]
    assert c.servers == ("a", "b-1", "b-2") and c.domain == ("a", "oslo", "oslo") and c.price is None and c.hop[1, 2] == 3


def test_json_is_the_same(tmp_path):
    import json

    import yaml

    (tmp_path / "c.yaml").write_text(FILE)
    (tmp_path / "c.json").write_text(json.dumps(yaml.safe_load(FILE), indent="\t"))
    a, b = Cluster.from_yaml(tmp_path / "c.yaml"), Cluster.from_yaml(tmp_path / "c.json")
    assert a.memory.tolist() == b.memory.tolist() and a.rtt.tolist() == b.rtt.tolist() and a.servers == b.servers


@pytest.mark.parametrize("old, new, field, line, said", [
    ("memory: 16 GB", "memory: 16", "servers.0.memory", 3, "one of the units"), ("memory: 16 GB", "memory: 16 Gb", "servers.0.memory", 3, "one of the units"),
    ("tau: 0.02 s", "tau: fast", "servers.1.tau", 7, "one of the units"), ("    tau: 0.02 s\n", "", "servers.1.tau", 4, "a value"),
    ("count: 2", "count: 0", "servers.1.count", 5, "greater"), ("memory: 16 GB", "memory: -16 GB", "servers.0.memory", 3, "greater"),
    ("block_size: 4 GB", "block_size: 0 GB", "model.block_size", 1, "greater"), ("domain: oslo", "site: oslo", "servers.1.site", 8, "xtra"),
    ("{a: 5 ms, b: inf ms}", "{a: 5 ms}", "clients.1.rtt", 11, "each of the servers a, b"), ("name: b", "name: a", "servers.1.name", 4, "no other server"),
    ("model: {blocks: 4, block_size: 4 GB, cache_size: 1 GB}", "model: BLOOM-176B", "tokens", 1, "tokens"),
    ("model: {blocks: 4, block_size: 4 GB, cache_size: 1 GB}", "model: GPT", "model", 1, "BLOOM-176B"),
    ("[1 ms, 0 ms, 3 ms], ", "", "hop", 12, "square"), ("hop: [[0 ms, 1 ms", "hop: [[0 ms, x", "hop.0.1", 12, "units"),
    ("clients:", "clients: [", "", None, "YAML"), (FILE, "", "model", 1, "a value"), (FILE, "- 1", "", 1, "")])
def test_mistakes_in_a_file(tmp_path, old, new, field, line, said):
    path = tmp_path / "c.yaml"
    assert old in FILE
    path.write_text(FILE.replace(old, new, 1))
    with pytest.raises(BadFile, match="c.yaml:") as caught:
        Cluster.from_yaml(path)
    found = {name: (at, message) for name, at, message in caught.value.problems}
    assert field in found and (line is None or found[field][0] == line) and said.lower() in found[field][1].lower(), caught.value.problems


def test_on_a_topology():
    graph = nx.Graph([("a", "b"), ("b", "c")])
    times = np.array([[0, 4, 10], [4, 0, 6], [10, 6, 0]], float)
    kind = dict(blocks=2, block_size=1, cache_size=1, memory=[4, 4], tau=[1, 1])
    for rtt in (times, lambda g: times):
        c = Cluster.from_topology(graph, ["c", "b"], ["a", "c"], rtt=rtt, overhead=1, prefill_overhead=3, **kind)
        assert c.rtt.tolist() == [[11, 5], [1, 7]] and c.prefill_rtt.tolist() == [[13, 7], [3, 9]] and c.hop.tolist() == [[1, 4], [4, 1]]
        assert c.servers == ("c", "b") and c.clients == ("a", "c")
    with pytest.raises(ValueError, match="'z' is not a node"):
        Cluster.from_topology(graph, ["z"], ["a"], rtt=times, **kind)
    with pytest.raises(ValueError, match="shape"):
        Cluster.from_topology(graph, ["b"], ["a"], rtt=times[:2], **kind)


@pytest.mark.parametrize("nodes, servers, fast", [(23, 9, 2), (48, 19, 4), (149, 60, 12)])
def test_scattered_deployments_have_the_authors_sizes(nodes, servers, fast):
    graph = nx.path_graph(nodes)
    cluster = scatter(graph, seed=3, clients=2, rtt=lambda g: np.abs(np.subtract.outer(np.arange(nodes), np.arange(nodes))))
    assert cluster.n == servers and (cluster.tau == A100.tau).sum() == fast and (cluster.tau == MIG.tau).sum() == servers - fast
    assert not set(cluster.servers) & set(cluster.clients) and cluster.rtt.shape == (2, servers) and (cluster.rtt > 100).all()
    again = scatter(graph, seed=3, clients=2, rtt=np.zeros((nodes, nodes)))
    assert again.servers == cluster.servers and (again.rtt == 100).all()
