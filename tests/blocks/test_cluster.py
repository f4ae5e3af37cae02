"Clusters: memory against exact arithmetic, names, demand, files with every mistake, topologies."

import copy
import json
import pickle
import re
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_or.blocks.cluster import BLOOM, Cluster, free_slots, most_blocks, reserved, scatter
from serving_or.blocks.plan import Chain, Placement, check
from serving_or.tools.answers import Infeasible, NotFound
from serving_or.tools.files import GB, GIB, BadFile
from serving_or.tools.models import A100, CARDS, MIG, Device
from tests.instances import BAD_ARRAYS, BAD_REQUESTS, THREE
from tests.long import cases

FAST = settings(max_examples=cases(2000, 100), deadline=None)
tenths = st.integers(1, 400).map(lambda k: Fraction(k, 10))


@FAST
@given(tenths, tenths, tenths, st.integers(0, 12), st.integers(1, 30))
def test_floors_agree_with_exact_arithmetic(memory, block, cache, design, blocks):
    "Sizes with one decimal are not exact in floating point; counts must be those of the decimals."
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


@FAST
@given(
    st.integers(1, 70),
    st.integers(0, 10**6),
    st.floats(1e-30, 1e30),
    st.floats(1e-12, 1e3),
    st.sampled_from([0.0, 0.5e-9, 1e-9]),
    st.integers(-2, 2),
)
def test_reservations_hold_at_the_border(held, design, block, share, tolerance, ulps):
    "Memories at which a floor decides, and a few floats beside them."
    cache = block * share
    memory = held * (block + cache * design) / (1 + tolerance)
    for _ in range(abs(ulps)):
        memory = np.nextafter(memory, np.inf if ulps > 0 else 0)
    m = most_blocks([memory], block, cache, design, 10**4)
    assert (m == 0) | (free_slots([memory], block, cache, m) >= design * m)


def test_a_whole_quotient_just_below_counts():
    assert 0.3 / 0.1 < 3 and 0.7 / 0.1 < 7
    assert Cluster(9, 0.1, 0, [0.3, 0.7], [1, 1], [1, 1]).counts(5).tolist() == [3, 7]


def test_21_sessions_of_an_80_gb_a100():
    one = lambda memory: Cluster.of(
        BLOOM, [Device("one", memory, 3.2197, 0.0743, 32.99)], [[100.0]], prompt=20, output=128
    )
    assert one(80 * GB).sessions([53]) == [21]
    # 7 % more memory is 67 % more sessions
    assert one(80 * GIB).sessions([53]) == [35]


def test_no_cache_means_no_limit():
    cluster = Cluster(1, 4, 0, [4, 3.9], [1, 1], [1, 1])
    assert cluster.counts(10**6).tolist() == [1, 0]
    assert cluster.slots([1, 0]).tolist() == [np.inf, 0] and cluster.slots([1, 1])[1] < 0
    assert cluster.sessions([1, 0]).tolist() == [np.inf, 0]
    assert check(cluster, Placement([1, 1], [1, 0]), [Chain(0, [0], [1], 10**6)], 10**6).cost == 2


# Demand


def test_demand_from_a_number_or_a_vector():
    cluster = Cluster(1, 1, 1, [9], [1], np.ones((3, 1)))
    assert cluster.demand(8).tolist() == [3, 3, 2]
    for requests in ([0, 5, 1], (0, 5.0, 1), np.array([0, 5, 1], np.int8), np.float64([0, 5, 1])):
        demand = cluster.demand(requests)
        assert demand.tolist() == [0, 5, 1] and not demand.flags.writeable
    assert cluster.demand(np.array(7)).sum() == 7 and cluster.demand(2**53).sum() == 2**53


@pytest.mark.parametrize("wrong", BAD_REQUESTS, ids=repr)
def test_what_is_no_demand(wrong):
    with pytest.raises(ValueError, match="requests"):
        Cluster(1, 1, 1, [9], [1], np.ones((3, 1))).demand(wrong)


def test_demand_with_labels():
    cluster = Cluster(1, 1, 1, [9], [1], [[1], [2]], clients=["a", "b"])
    assert cluster.demand(pd.Series({"a": 3, "b": 4})).tolist() == [3, 4]
    with pytest.raises(ValueError, match="labels"):
        cluster.demand(pd.Series({"b": 3, "a": 4}))


# What a cluster is


GOOD = dict(blocks=2, block_size=1, cache_size=1, memory=[3, 3], tau=[1, 1], rtt=[1, 1])


@pytest.mark.parametrize(
    "change, said",
    [
        (dict(blocks=0), "blocks is 0"),
        (dict(blocks=10**9), "blocks is 1000000000"),
        (dict(blocks=2.5), "blocks is 2.5"),
        (dict(blocks=True), "blocks is True"),
        (dict(block_size=0), "block_size is 0"),
        (dict(block_size=1e308), "block_size is 1e\\+308"),
        (dict(cache_size=-1), "cache_size is -1"),
        (dict(cache_size=np.nan), "cache_size is nan"),
        (dict(memory=[1, np.nan]), r"memory\[1\] is nan"),
        (dict(memory=["3", 3]), r"memory\[0\] is '3'"),
        (dict(tau=[1]), r"tau has shape \(1,\)"),
        (dict(tau=[1, np.inf]), r"tau\[1\] is inf"),
        (dict(tau=[1, 1e308]), r"tau\[1\] is 1e\+308"),
        (dict(rtt=[[1, -2]]), r"rtt\[0, 1\] is -2"),
        (dict(rtt=np.ones((0, 2))), "rtt has shape"),
        (dict(rtt=np.ones((1, 1, 2))), "rtt has shape"),
        (dict(hop=[[0, 1]]), r"hop has shape"),
        (dict(servers=["a"]), "servers has 1 entries"),
        (dict(servers="ab"), "servers is 'ab'"),
        (dict(clients=3), "clients is 3"),
        (dict(domain=["x"]), "domain has 1 entries"),
        (dict(memory_unit="Gb"), "memory_unit is 'Gb'"),
        (dict(time_unit="min"), "time_unit"),
        (dict(rent=[1, -1]), r"rent\[1\]"),
        (dict(exact="yes"), "exact is 'yes'"),
    ],
)
def test_bad_input_is_named(change, said):
    Cluster(**GOOD)
    with pytest.raises(ValueError, match=said):
        Cluster(**GOOD | change)


@pytest.mark.parametrize("wrong", BAD_ARRAYS, ids=repr)
@pytest.mark.parametrize("name", ["memory", "tau", "rtt", "hop", "rent", "prefill_rtt"])
def test_bad_arrays_are_refused(name, wrong):
    if wrong is None and name in ("hop", "rent", "prefill_rtt"):
        return
    if name in ("rtt", "hop", "prefill_rtt") and repr(wrong) == repr([[1, np.inf], [3, 4]]):
        return
    with pytest.raises(ValueError):
        Cluster(**GOOD | {name: wrong})


def test_arrays_are_copies_that_stay():
    memory, hop = np.array([3.0, 3.0]), np.zeros((2, 2))
    c = Cluster(**GOOD | dict(memory=memory, hop=hop))
    memory[0], hop[0] = 9, 9
    assert c.memory.tolist() == [3, 3] and (c.hop == 0).all()
    for value in (c.memory, c.hop, c.prompt_tau, c.demand(3)):
        with pytest.raises(ValueError):
            value[0] = 1
    demand = np.array([2])
    assert c.demand(demand) is not demand
    demand.flags.writeable = False
    Cluster(**GOOD | dict(memory=memory.astype(np.int8)))


def test_one_number_for_all():
    c = Cluster(2, 1, 1, [3, 4], tau=5, rtt=6, hop=7, rent=8)
    assert c == Cluster(2, 1, 1, [3, 4], [5, 5], [[6, 6]], hop=[[7, 7], [7, 7]], rent=[8, 8])
    assert Cluster(2, 1, 1, 9, 5, 6).n == 1


def test_a_cluster_is_a_value(tmp_path):
    c = Cluster(**GOOD | dict(rtt=[[1, np.inf]], hop=np.eye(2), domain=["x", 3], rent=[1, 2]))
    same = Cluster(**GOOD | dict(rtt=[1, np.inf], hop=np.eye(2), domain=("x", 3), rent=[1.0, 2]))
    assert c == same and hash(c) == hash(same) and c != replace(c, blocks=3)
    c.save(tmp_path / "c.json")
    for again in (Cluster.load(tmp_path / "c.json"), pickle.loads(pickle.dumps(c)), copy.copy(c)):
        assert again == c and not again.memory.flags.writeable
    text = (tmp_path / "c.json").read_text().replace("3.0", "-3.0", 1)
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(ValueError, match="memory"):
        Cluster.load(tmp_path / "bad.json")


def test_the_prompt_has_the_times_of_tokens_unless_given():
    c = replace(THREE, tau=[1, 2, 3], rtt=[4, 5, 6])
    assert c.prompt_tau.tolist() == [1, 2, 3] and c.prompt_rtt.tolist() == [[4, 5, 6]]
    given = replace(c, prefill_tau=[7, 8, 9])
    assert replace(given, tau=[1, 1, 1]).prompt_tau.tolist() == [7, 8, 9]


def test_names_come_from_tables():
    trips = pd.DataFrame([[1, 2], [3, 4]], index=["u", "v"], columns=["a", "b"])
    c = Cluster(2, 1, 1, pd.Series({"a": 3, "b": 4}), [1, 1], trips)
    assert c.servers == ("a", "b") and c.clients == ("u", "v")
    assert list(c.to_frame().index) == ["a", "b"]
    for wrong in (dict(tau=pd.Series({"b": 1, "a": 1})), dict(servers=["a", "c"])):
        with pytest.raises(ValueError, match="labels"):
            Cluster(**dict(GOOD, memory=pd.Series({"a": 3, "b": 4}), rtt=trips) | wrong)
    assert Cluster(**GOOD).servers == ("server 0", "server 1")


def test_take_keeps_everything_of_a_server():
    hop = np.arange(9).reshape(3, 3)
    cluster = replace(THREE, hop=hop, rent=[1, 2, 3], domain=["x", "y", "z"])
    part = cluster.take([2, 0])
    assert part.memory.tolist() == [12, 16] and part.hop.tolist() == [[8, 6], [2, 0]]
    assert part.rent.tolist() == [3, 1] and part.domain == ("z", "x")
    assert part.servers == ("server 2", "server 0") and part.rtt.shape == (1, 2)
    assert cluster.take(cluster.memory > 12).n == 1 and cluster.take([]).n == 0
    for wrong in ([3], [0, 0], [-1], [0.5], ["a"]):
        with pytest.raises(ValueError, match="servers"):
            cluster.take(wrong)


def test_unlike_blocks_prove_nothing():
    error = Infeasible("it does not fit")
    assert THREE.proved(error) is error
    unlike = replace(THREE, exact=False).proved(error)
    assert isinstance(unlike, NotFound) and "no proof" in str(unlike)


# Files

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
    assert (c.blocks, c.block_size, c.cache_size) == (4, 4, 1)
    assert (c.memory_unit, c.time_unit) == ("GB", "ms")
    assert c.memory.tolist() == [16, 12 * GIB / GB, 12 * GIB / GB]
    assert c.tau.tolist() == [10, 20, 20] and c.prompt_tau.tolist() == [20, 20, 20]
    assert c.rtt.tolist() == [[10] * 3, [5, np.inf, np.inf]]
    assert c.prompt_rtt.tolist() == [[10] * 3, [1000] * 3]
    assert c.servers == ("a", "b-1", "b-2") and c.domain == ("a", "oslo", "oslo")
    assert c.rent is None and c.hop[1, 2] == 3


def test_json_is_the_same(tmp_path):
    (tmp_path / "c.yaml").write_text(FILE)
    (tmp_path / "c.json").write_text(json.dumps(yaml.safe_load(FILE), indent="\t"))
    assert Cluster.from_yaml(tmp_path / "c.yaml") == Cluster.from_yaml(tmp_path / "c.json")


def test_a_file_with_a_card(tmp_path):
    path = tmp_path / "c.yaml"
    rest = FILE[FILE.index("servers:") :]
    model = "model: BLOOM-176B\ntokens: 148\n"
    path.write_text(model + "weight_bits: 4.25\noverhead: 0.01\n" + rest)
    c = Cluster.from_yaml(path)
    assert c.blocks == 70 and round(c.block_size, 4) == 1.3234 and c.alike
    path.write_text(model + "weight_bits: 8\nkv_bits: 8\n" + rest)
    half = Cluster.from_yaml(path)
    assert np.isclose(half.block_size * 1.01 / c.block_size, 8 / 4.25)
    assert half.cache_size == c.cache_size / 2
    # three dense blocks and 58 with experts: the largest counts, and nothing is proved
    path.write_text("model: DeepSeek-V3\ntokens: 148\n" + rest)
    assert not Cluster.from_yaml(path).alike


def test_servers_without_a_domain_are_their_own(tmp_path):
    path = tmp_path / "c.yaml"
    text = FILE.replace("count: 2", "count: 3").replace("    domain: oslo\n", "")
    text = text[: text.index("hop:")].replace("name: a,", "name: a, domain: x,")
    path.write_text(text)
    assert Cluster.from_yaml(path).domain == ("x", "b-1", "b-2", "b-3")


MODEL = "model: {blocks: 4, block_size: 4 GB, cache_size: 1 GB}"


@pytest.mark.parametrize(
    "old, new, field, line, said",
    [
        ("memory: 16 GB", "memory: 16", "servers.0.memory", 3, "with its unit"),
        ("memory: 16 GB", "memory: 16 Gb", "servers.0.memory", 3, "with its unit"),
        ("memory: 16 GB", "memory: inf GB", "servers.0.memory", 3, "a size"),
        ("memory: 16 GB", "memory: -16 GB", "servers.0.memory", 3, "at least 0"),
        ("memory: 16 GB", "memory: 16 GB, memory: 12 GB", "servers.0.memory", 3, "once"),
        ("tau: 0.02 s", "tau: fast", "servers.1.tau", 7, "with its unit"),
        ("tau: 0.02 s", "tau: -1 s", "servers.1.tau", 7, "at least 0"),
        ("tau: 0.02 s", "tau: inf s", "servers.1.tau", 7, "a time"),
        ("    tau: 0.02 s\n", "", "servers.1.tau", 4, "a time"),
        ("count: 2", "count: 0", "servers.1.count", 5, "at least 1"),
        ("count: 2", "count: 1e9", "servers.1.count", 5, "whole"),
        ("count: 2", "count: 1000000000", "servers.1.count", 5, "at most"),
        ("count: 2", "count: true", "servers.1.count", 5, "whole"),
        ("blocks: 4", "blocks: true", "model.blocks", 1, "whole"),
        ("blocks: 4", "blocks: 1e9", "model.blocks", 1, "whole"),
        ("block_size: 4 GB", "block_size: 0 GB", "model.block_size", 1, "more than 0"),
        ("domain: oslo", "site: oslo", "servers.1.site", 8, "one of the fields"),
        ("domain: oslo", "price: 2", "servers.1.price", 8, "one of the fields"),
        ("domain: oslo", "rent: 2", "servers.0.rent", 3, "other servers have a rent"),
        ("domain: oslo", "rent: -2", "servers.1.rent", 8, "at least 0"),
        ("domain: oslo", "domain: a", "servers.0.domain", 3, "another server's domain"),
        ("{a: 5 ms, b: inf ms}", "{a: 5 ms}", "clients.1.rtt", 11, "each of the servers a, b"),
        ("{a: 5 ms, b: inf ms}", "{1: 5 ms, b: 5 ms}", "clients.1.rtt", 11, ""),
        ("{a: 5 ms, b: inf ms}", "{a: 5 ms, b: nan ms}", "clients.1.rtt.b", 11, "a time"),
        ("rtt: 10 ms", "rtt: -1 ms", "clients.0.rtt", 10, "at least 0"),
        ("name: b", "name: a", "servers.1.name", 4, "a name of its own"),
        ("name: a,", "name: b-2,", "servers.1.name", 4, "a name of its own"),
        ("name: d", "name: c", "clients.1.name", 11, "a name of its own"),
        ("name: d", "name: 7", "clients.1.name", 11, "text"),
        (MODEL, "model: BLOOM-176B", "tokens", 1, "tokens"),
        (MODEL, "model: GPT\ntokens: 9", "model", 1, "BLOOM-176B"),
        (MODEL, MODEL + "\ntokens: 9", "tokens", 2, "absent"),
        (MODEL, MODEL + "\nkv_bits: 9", "kv_bits", 2, "absent"),
        ("[1 ms, 0 ms, 3 ms], ", "", "hop", 12, "square"),
        ("hop: [[0 ms, 1 ms", "hop: [[0 ms, x", "hop.0.1", 12, "with its unit"),
        ("clients:", "clients: [", "", None, "YAML"),
        (FILE, "", "", 1, "a mapping with the fields model"),
        (FILE, "- 1", "", 1, "a mapping"),
        (FILE, "[" * 3000, "", 1, "deep"),
    ],
)
def test_mistakes_in_a_file(tmp_path, old, new, field, line, said):
    path = tmp_path / "c.yaml"
    assert old in FILE
    path.write_text(FILE.replace(old, new, 1))
    with pytest.raises(BadFile, match="c.yaml:") as caught:
        Cluster.from_yaml(path)
    found = [p for p in caught.value.problems if p.field == field]
    assert found, caught.value.problems
    assert line is None or line in [p.line for p in found]
    assert said.lower() in " ".join(p.required for p in found).lower(), found
    assert len(str(caught.value)) < 4000


def test_files_that_are_no_text(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_bytes(FILE.encode("utf-16"))
    with pytest.raises(BadFile):
        Cluster.from_yaml(path)
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{b}: &{b} [{','.join(['*' + a] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi")
    )
    path.write_text(bomb)
    with pytest.raises(BadFile) as caught:
        Cluster.from_yaml(path)
    assert len(str(caught.value)) < 4000
    with pytest.raises(OSError):
        Cluster.from_yaml(tmp_path / "none.yaml")


def test_sizes_beyond_all_bounds_are_a_bad_file(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(FILE.replace("16 GB", "1e150 GB"))
    with pytest.raises(BadFile, match="describes no cluster"):
        Cluster.from_yaml(path)


# Topologies


def test_on_a_topology():
    graph = nx.Graph([("a", "b"), ("b", "c")])
    times = np.array([[0, 4, 10], [4, 0, 6], [10, 6, 0]], float)
    kind = dict(blocks=2, block_size=1, cache_size=1, memory=[4, 4], tau=[1, 1])
    for rtt in (times, lambda g: times):
        c = Cluster.from_topology(
            graph, ["c", "b"], ["a", "c"], rtt=rtt, overhead=1, prefill_overhead=3, **kind
        )
        assert c.rtt.tolist() == [[11, 5], [1, 7]] and c.prompt_rtt.tolist() == [[13, 7], [3, 9]]
        assert c.hop.tolist() == [[1, 4], [4, 1]]
        assert c.servers == ("c", "b") and c.clients == ("a", "c")
    for wrong, said in (
        (dict(servers=["z"]), "'z'; it is not a node"),
        (dict(servers="b"), "servers is 'b'"),
        (dict(rtt=times[:2]), "shape"),
        (dict(rtt=times - 5), "rtt"),
        (dict(overhead=-1), "overhead"),
        (dict(overhead=np.nan), "overhead"),
        (dict(prefill_overhead="3"), "prefill_overhead"),
    ):
        given = dict(servers=["c", "b"], clients=["a"], rtt=times) | kind | wrong
        with pytest.raises(ValueError, match=said):
            Cluster.from_topology(graph, **given)


@pytest.mark.parametrize("nodes, servers, fast", [(23, 9, 2), (48, 19, 4), (149, 60, 12)])
def test_scattered_deployments_have_the_authors_sizes(nodes, servers, fast):
    graph, at = nx.path_graph(nodes), np.arange(nodes)
    far = np.abs(np.subtract.outer(at, at))
    cluster = scatter(graph, seed=3, clients=2, rtt=lambda g: far)
    assert cluster.n == servers
    assert (cluster.tau == A100.tau).sum() == fast and (
        cluster.tau == MIG.tau
    ).sum() == servers - fast
    assert not set(cluster.servers) & set(cluster.clients) and cluster.rtt.shape == (2, servers)
    assert (cluster.rtt > 100).all()
    again = scatter(graph, seed=3, clients=2, rtt=np.zeros((nodes, nodes)))
    assert again.servers == cluster.servers and (again.rtt == 100).all()


def test_what_cannot_be_scattered():
    graph, far = nx.path_graph(5), np.ones((5, 5))
    for wrong, said in (
        (dict(clients=4), "5"),
        (dict(share=1.5), "share"),
        (dict(seed=-1), "seed"),
        (dict(card=CARDS["Llama-3.1-405B"]), "devices"),
        (dict(clients=0), "clients"),
    ):
        with pytest.raises(ValueError, match=said):
            scatter(graph, rtt=far, **wrong)
    quick, slow = Device("fast", 80 * GB, 5, 0, 0), Device("slow", 24 * GB, 9, 0, 0)
    c = scatter(graph, rtt=far, card=CARDS["Llama-3.1-405B"], devices=(quick, slow), fast=0.5)
    assert c.tau.tolist() == [5, 9] and c.blocks == 126


def test_the_live_example_answers_everywhere():
    for requests in range(0, 401, 50):
        for slices in (0, 7, 14):
            assert reserved(requests, slices).count("<svg") == 1


# blocks that differ


def test_sizes_of_single_blocks():
    c = Cluster(3, [1, 2, 3], [1, 0, 2], memory=[9, 4], tau=1, rtt=[1, 1])
    assert not c.alike and c.slot == 2 and c.held([1, 2], [4, 3]).tolist() == [6, 2]
    assert c.cached([1, 2, 3], [4, 3, 4]).tolist() == [1.5, 0, 1]
    # 6 of 9 in use, 3 left: one request that takes all three caches
    assert c.longest(1).tolist() == [[3, 2, 1], [2, 1, 0]] and c.most(1).tolist() == [3, 2]
    assert np.allclose(c.slots([3, 2], a=[1, 1]), [1.5, 0.5])
    assert c.sessions([3, 2], a=[1, 1]).tolist() == [1, 1]
    # a request needs a slot in block 3, none in block 2
    assert c.earliest([1, 1], [4, 3], [1 + 1e-9, 0]).tolist() == [2, 2]
    assert c.earliest([1, 1], [4, 3], [0.9, -1]).tolist() == [4, 3]
    # no block is alone in what it is
    assert Cluster(3, [2, 2, 2], [1, 1, 1], 9, 1, [1]) == Cluster(3, 2, 1, 9, 1, [1])
    assert pickle.loads(pickle.dumps(c)) == c == replace(c) and hash(c) == hash(replace(c))
    assert c.take([1]).longest(1).tolist() == [[2, 1, 0]]
    padded = c.padded()
    assert (padded.block_size, padded.cache_size, padded.exact) == (3, 2, False)
    assert padded.padded() == padded and THREE.padded() == THREE
    assert isinstance(padded.proved(Infeasible("no")), NotFound)
    assert isinstance(c.proved(Infeasible("no")), Infeasible)


@pytest.mark.parametrize(
    "sizes, said",
    [
        (dict(block_size=[1, 2]), "block_size has shape"),
        (dict(block_size=[1, 0, 2]), r"block_size\[1\] is 0.0; it must be more than 0"),
        (dict(block_size=[1, np.nan, 2]), r"block_size\[1\]"),
        (dict(cache_size=[1, -1, 2]), r"cache_size\[1\]"),
        (dict(cache_size=[1, 1e101, 2]), r"cache_size\[1\] is 1e\+101"),
        (dict(block_size=[[1, 2, 3]] * 2), "block_size has shape"),
    ],
)
def test_bad_sizes_of_single_blocks(sizes, said):
    with pytest.raises(ValueError, match=said):
        Cluster(**(dict(blocks=3, block_size=1, cache_size=1, memory=9, tau=1, rtt=[1]) | sizes))


def test_a_record_of_sizes_is_saved(tmp_path):
    c = Cluster(3, [1, 2, 3], 1, memory=[9, 4], tau=1, rtt=[1, 1])
    c.save(tmp_path / "c.json")
    assert Cluster.load(tmp_path / "c.json") == c


def test_a_card_gives_each_block_its_size(tmp_path):
    card = CARDS["DeepSeek-V3"]
    gpu = Device("gpu", 141 * GB, 1.0, 0.1, 1.0)
    c = Cluster.of(card, [gpu], 5, bits=4, kv_bits=8, tokens=1000)
    assert np.allclose(c.block_size * GB, card.parameters / 2)
    assert c.cache_size * GB == 576 * 1000 and c.exact
    # without tokens a whole request counts
    assert Cluster.of(card, [gpu], 5, 600, [400, 300], kv_bits=8).cache_size * GB == 576 * 1000
    ends = Cluster.of(card, [gpu], 5, bits=4, tokens=1000, ends=True)
    more = (ends.block_size - c.block_size) * GB
    assert np.allclose(more[[0, -1]], [129280 * 7168 / 2, (129280 + 1) * 7168 / 2])
    assert np.allclose(more[1:-1], 0)
    # a tied matrix stands at both ends
    gemma = CARDS["Gemma-3-27B"]
    first, *_, last = gemma.end_bytes(8)
    assert (first, last) == (262208 * 5376, 262209 * 5376) and gemma.outside == last
    windows = Cluster.of(gemma, [gpu], 5, tokens=10_000)
    alone = windows.cached(np.arange(1, 63), np.arange(2, 64))
    assert np.unique(alone.round(9)).tolist() == [0.1024, 1]
    path = tmp_path / "c.yaml"
    rest = FILE[FILE.index("servers:") :]
    path.write_text("model: DeepSeek-V3\ntokens: 1000\nweight_bits: 4\nends: true\n" + rest)
    assert np.allclose(Cluster.from_yaml(path).block_size, ends.block_size)
    runs = "{blocks: 4, block_size: {1-3: 600 MB, 4-4: 2 GB}, cache_size: {1-4: 1 MB}}"
    path.write_text(f"model: {runs}\n" + rest)
    c = Cluster.from_yaml(path)
    assert c.block_size.tolist() == [0.6, 0.6, 0.6, 2] and c.cache_size == 0.001


@pytest.mark.parametrize(
    "runs",
    [
        *("{1-3: 1 GB}", "{2-4: 1 GB}", "{1-2: 1 GB, 4-4: 1 GB}", "{1-5: 1 GB}", "{a: 1 GB}"),
        *("{1-99999999999999999999: 1 GB}", "{4-1: 1 GB}", "{1-2: 1 GB, 2-4: 1 GB}"),
        "{-1-4: 1 GB}",
    ],
)
def test_runs_of_blocks_that_do_not_fit(tmp_path, runs):
    path = tmp_path / "c.yaml"
    path.write_text(FILE.replace("block_size: 4 GB", f"block_size: {runs}"))
    with pytest.raises(BadFile, match="hold each of the blocks 1 to 4 once") as caught:
        Cluster.from_yaml(path)
    assert [(p.field, p.line) for p in caught.value.problems] == [("model.block_size", 1)]


# files that are meant to hurt

HURTFUL = """
import re, sys, time
from serving_or.blocks import BadFile, Cluster
from serving_or.tools.data import load_topology
for path in sys.argv[1:]:
    began = time.process_time()
    try:
        load_topology(path) if path.endswith("graphml") else Cluster.from_yaml(path)
        said = "accepted"
    except ValueError as error:
        said = f"{type(error).__name__} {error}"[:4500]
    spent = time.process_time() - began
    # of this program alone; ru_maxrss would begin with that of the process that started it
    peak = int(re.search("VmHWM:\\\\s*([0-9]+)", open("/proc/self/status").read())[1]) // 1024
    print(f"{spent:.3f}\\t{peak}\\t{' '.join(said.split())}")
"""


def test_files_that_hurt_are_refused_at_once(tmp_path):
    "In a process of its own: within a second and 200 MB each, with the file's name."
    rest = FILE[FILE.index("\n") :]
    quick = "a: &a [x,x,x,x,x,x,x,x,x]\n"
    bomb = quick + "".join(
        f"{b}: &{b} [{','.join(['*' + a] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi")
    )
    entity = (
        '<!DOCTYPE g [<!ENTITY a "ha">'
        + "".join(f'<!ENTITY {b} "{("&" + a + ";") * 10}">' for a, b in zip("abcdefgh", "bcdefghi"))
        + "]><graphml>&i;</graphml>"
    )
    files = {
        "bomb.yaml": bomb,
        "bomb_in.yaml": bomb + FILE,
        "count.yaml": FILE.replace("count: 2", "count: 1000000000"),
        "deep.yaml": "[" * 3000,
        "deep.json": '{"a":' * 3000,
        "surrogate.json": '{"model": "\\ud800"}',
        "twice.yaml": FILE.replace("count: 2", "count: 2\n    count: 3"),
        "truth.yaml": FILE.replace("blocks: 4", "blocks: true"),
        "key.yaml": FILE.replace("{a: 5 ms, b: inf ms}", "{1: 5 ms}"),
        "long.yaml": "x" * (3 << 20),
        "many.yaml": "model: {blocks: 100000, block_size: {1-100000: x}, cache_size: 1 GB}" + rest,
        "entity.graphml": entity,
        "none.graphml": "<graphml><graph/></graphml>",
        "no.graphml": "graph [ node [ id 0 ] ]",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "utf16.yaml").write_bytes(FILE.encode("utf-16"))
    paths = [str(p) for p in sorted(tmp_path.iterdir())]
    run = subprocess.run(
        [sys.executable, "-c", HURTFUL, *paths], capture_output=True, text=True, check=True
    )
    lines = run.stdout.splitlines()
    assert len(lines) == len(paths)
    for path, line in zip(paths, lines):
        spent, peak, said = line.split("\t")
        name = Path(path).name
        assert float(spent) < 1 and int(peak) < 200, line
        assert name in said and len(said) < 4400, line
        if not name.endswith("graphml"):
            assert re.match(rf"BadFile .*{name}(:\d+)?: ", said), line


def test_memories_that_are_full_to_the_last_digit():
    "0.1 and 0.2 add up to more than 0.3 in floating point, and yet they fill it."
    c = Cluster(2, [0.1, 0.2], 0, [0.3], 1, [1])
    assert c.longest()[0].tolist() == [2, 1] and c.sessions([2], [1])[0] == np.inf
    with_caches = Cluster(3, [0.1, 0.2, 0.3], [0.1, 0.2, 0.3], [1.2], 1, [1])
    assert with_caches.longest(1)[0].tolist() == [3, 2, 1]
    assert with_caches.sessions([3], [1]).tolist() == [1.0]
    assert with_caches.earliest([1], [4], with_caches.slots([3], [1])).tolist() == [1]


def test_a_server_that_one_kind_of_token_cannot_reach():
    "A whole request needs both, so the weighted cluster does without the server."
    far = np.inf
    c = Cluster(2, 4, 1, [9] * 3, 1, [2, far, 4], prefill_rtt=[far, 3, 8])
    for output in (1, 2, 1e9, far):
        assert np.isinf(c.weighted(output).rtt[0]).tolist() == [True, True, False]
    assert c.weighted(4).rtt[0, 2] == 8 / 4 + 3 * 4 / 4


def test_too_many_times_are_refused_before_they_are_built(tmp_path):
    path = tmp_path / "cluster.yaml"
    many = "\n".join(f"  - {{name: c{i}, rtt: 1 ms}}" for i in range(101))
    head, _, _ = FILE.partition("clients:")
    kinds = "\n".join(
        f"  - {{name: s{i}, count: 10000, memory: 9 GB, tau: 1 ms}}" for i in range(10)
    )
    path.write_text(f"{head.partition('servers:')[0]}servers:\n{kinds}\nclients:\n{many}\n")
    with pytest.raises(BadFile, match="at most 10,000,000 servers times clients"):
        Cluster.from_yaml(path)
