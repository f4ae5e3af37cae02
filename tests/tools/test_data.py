"""The shipped data: their terms, their traps and exact counts; files of one's own."""

import hashlib
import subprocess
import sys
from datetime import datetime
from decimal import Decimal
from importlib import resources
from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_or.tools import data

SHIPPED = resources.files("serving_or").joinpath("data")
FILES = sorted(
    f"{folder.name}/{file.name}"
    for folder in SHIPPED.iterdir()
    if folder.is_dir()
    for file in folder.iterdir()
)
quick = settings(max_examples=60, deadline=None)


# terms


def test_the_terms_name_every_file_and_its_digest():
    terms = (SHIPPED / "SOURCES.md").read_text(encoding="utf-8")
    rows = {line.split("`")[1]: line for line in terms.splitlines() if line.startswith("| `")}
    assert len(FILES) == 9 and sorted(rows) == FILES
    for name, row in rows.items():
        assert hashlib.sha256(SHIPPED.joinpath(*name.split("/")).read_bytes()).hexdigest() in row


def test_import_is_light():
    code = "import sys, serving_or.tools.data; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"networkx", "pandas", "matplotlib", "scipy"} & set(done.stdout.split())


# requests


@pytest.mark.parametrize(
    "name, rows, last, prompts, outputs, distinct",
    [
        ("azure_conv", 19366, 3501.721937, (2, 14050), (7, 1000), 19366),
        ("azure_code", 8819, 3435.948056, (3, 7437), (6, 1899), 8819),
        ("mooncake_conversation", 12031, 3536.999, (891, 126195), (1, 2000), 1180),
        ("mooncake_synthetic", 3993, 1022.025, (13, 191378), (1, 893), 3982),
    ],
)
def test_requests(name, rows, last, prompts, outputs, distinct):
    r = data.load_requests(name)
    assert len(r) == rows and r.arrival[0] == 0 and r.arrival[-1] == last
    assert (np.diff(r.arrival) >= 0).all() and len(np.unique(r.arrival)) == distinct
    assert (r.prompt.min(), r.prompt.max()) == prompts and (
        r.output.min(),
        r.output.max(),
    ) == outputs
    assert (r.arrival.dtype, r.prompt.dtype, r.output.dtype) == (np.float64, np.int64, np.int64)
    frame = r.to_frame()
    assert list(frame) == ["arrival", "prompt", "output"] and frame.shape == (rows, 3)
    assert str(rows) in r.summary()


@pytest.mark.parametrize("name", ["azure_conv", "azure_code"])
def test_azure_arrivals_are_the_nearest_floats(name):
    lines = SHIPPED.joinpath("requests", data.REQUESTS[name]).read_text().splitlines()[1:]
    stamps = [line.split(",")[0] for line in lines]
    assert {s[:10] for s in stamps} == {"2023-11-16"} and {
        len(s.split(".")[1]) for s in stamps
    } == {7}

    def seconds(stamp):  # exact: a decimal number of seconds in the day
        clock = datetime.strptime(stamp[11:19], "%H:%M:%S")
        return clock.hour * 3600 + clock.minute * 60 + clock.second + Decimal("0" + stamp[19:])

    exact = [float(seconds(s) - seconds(stamps[0])) for s in stamps]
    assert data.load_requests(name).arrival.tolist() == exact


def test_mooncake_arrivals_are_the_nearest_floats():
    lines = (
        SHIPPED.joinpath("requests", data.REQUESTS["mooncake_synthetic"])
        .read_text()
        .splitlines()[1:]
    )
    assert data.load_requests("mooncake_synthetic").arrival.tolist() == [
        float(Decimal(line.split(",")[0]) / 1000) for line in lines
    ]


# expert counts


def test_expert_shapes_and_sums():
    every = data.load_experts()
    assert (
        every.loads.shape == (213, 26, 64)
        and every.loads.dtype == np.int64
        and every.loads.sum() == 33279 * 6 * 26
    )
    assert [(every.domain == t).sum() for t in data.TASKS] == [127, 33, 13, 40]
    law = data.load_experts("law", window=8)
    assert law.loads.shape == (4, 26, 64) and set(law.domain) == {"law"}
    first = np.flatnonzero(every.domain == "law")[0]
    np.testing.assert_array_equal(law.loads[1], every.loads[first + 8 : first + 16].sum(axis=0))
    two = data.load_experts(["translation", "intent"], window=10, layer=25)
    assert (
        two.loads.shape == (4 + 12, 64)
        and two.domain.tolist() == ["translation"] * 4 + ["intent"] * 12
    )
    np.testing.assert_array_equal(
        two.loads[:4], data.load_experts("translation", window=10).loads[:, 25]
    )


def test_expert_statistics():
    every = data.load_experts()
    total = {t: every.loads[every.domain == t].sum(axis=0) for t in data.TASKS}
    hottest = [np.median(r.max(axis=1) / r.mean(axis=1)) for r in total.values()]
    np.testing.assert_allclose(hottest, [3.96, 3.28, 4.35, 5.58], atol=0.005)
    np.testing.assert_allclose(
        [np.median(data.zipf_slope(r)) for r in total.values()],
        [0.50, 0.37, 0.43, 0.74],
        atol=0.005,
    )
    apart = [
        data.total_variation(total[a], total[b]).mean() for a, b in combinations(data.TASKS, 2)
    ]
    assert round(min(apart), 2) == 0.29 and round(max(apart), 2) == 0.44
    own = [every.loads[every.domain == t] for t in data.TASKS]
    within = [data.total_variation(r[::2].sum(axis=0), r[1::2].sum(axis=0)).mean() for r in own]
    assert round(min(within), 2) == 0.02 and round(max(within), 2) == 0.06


@quick
@given(
    st.lists(st.integers(0, 50), min_size=2, max_size=8).filter(any),
    st.integers(1, 9),
    st.randoms(),
)
def test_total_variation_is_a_distance_of_shares(a, times, random):
    b = a.copy()
    random.shuffle(b)
    tv = data.total_variation(a, b)
    assert (
        0 <= tv <= 1 + 1e-12
        and np.isclose(tv, data.total_variation(b, a))
        and np.isclose(tv, data.total_variation(np.multiply(a, times), b))
    )
    moved = sum(max(x - y, 0) for x, y in zip(a, b)) / sum(
        a
    )  # equal totals: what has to be routed elsewhere
    assert np.isclose(tv, moved) and data.total_variation(a, a) == 0


@quick
@given(st.floats(0, 2), st.integers(4, 40), st.integers(0, 9))
def test_zipf_slope_finds_the_exponent(s, m, seed):
    loads = np.random.default_rng(seed).permutation(100 * np.arange(1, m + 1) ** -s)
    assert np.isclose(data.zipf_slope(loads), s, atol=1e-9)


# topologies


@pytest.mark.parametrize(
    "name, nodes, edges, placed, zero, median, largest",
    [
        ("abovenet", 23, 31, 1, 0, 37.5, 184.1),
        ("bellcanada", 48, 64, 0, 0, 26.8, 89.1),
        ("gtsce", 149, 193, 8, 4, 10.4, 41.8),
    ],
)
def test_topology(name, nodes, edges, placed, zero, median, largest):
    g = data.load_topology(name)
    assert (
        type(g) is nx.Graph
        and (len(g), g.number_of_edges()) == (nodes, edges)
        and nx.is_connected(g)
        and nx.number_of_selfloops(g) == 0
    )
    assert set(g) == {str(i) for i in range(nodes)} and {
        tuple(d) for _, d in g.nodes(data=True)
    } == {("label", "country", "latitude", "longitude", "placed")}
    assert (
        sum(p for _, p in g.nodes(data="placed")) == placed
        and sum(km == 0 for _, _, km in g.edges(data="length")) == zero
    )
    for n, d in g.nodes(data=True):
        if d["placed"]:  # in these graphs all neighbours of such a node have coordinates
            assert not any(g.nodes[v]["placed"] for v in g[n])
            np.testing.assert_allclose(
                [d["latitude"], d["longitude"]],
                np.mean([[g.nodes[v]["latitude"], g.nodes[v]["longitude"]] for v in g[n]], axis=0),
            )
    rtt = data.round_trip(g)
    pairs = rtt[np.triu_indices(nodes, 1)]
    assert np.isclose(np.median(pairs), median, atol=0.05) and np.isclose(
        pairs.max(), largest, atol=0.05
    )
    assert (
        np.allclose(rtt, rtt.T)
        and (np.diag(rtt) == 0).all()
        and pairs.min() >= 2 * data.LEAST_DELAY
    )


@pytest.mark.parametrize(
    "name, median, largest",
    [("abovenet", 37.5, 180), ("bellcanada", 26.8, 89), ("gtsce", 10.3, 40)],
)
def test_median_length_of_links_without_coordinates(name, median, largest):
    "The other usual rule: a link without a known end has the median length of the others."
    g = data.load_topology(name)
    unknown = [(u, v) for u, v in g.edges if g.nodes[u]["placed"] or g.nodes[v]["placed"]]
    rest = np.median([d for u, v, d in g.edges(data="delay") if (u, v) not in unknown])
    nx.set_edge_attributes(g, dict.fromkeys(unknown, rest), "delay")
    pairs = data.round_trip(g)[np.triu_indices(len(g), 1)]
    assert np.isclose(np.median(pairs), median, atol=0.05) and round(pairs.max()) == largest


def test_topology_traps():
    raw = nx.read_graphml(SHIPPED.joinpath("topology", "Bellcanada.graphml").open("rb"))
    assert (
        isinstance(raw, nx.MultiGraph)
        and raw.number_of_edges() == 65
        and nx.Graph(raw).number_of_edges() == 64
    )
    gts = data.load_topology("gtsce")
    labels = [label for _, label in gts.nodes(data="label")]
    assert labels.count("None") == 4 and labels.count("Istanbul") == 2


def test_great_circle():
    point = np.array([[0.0, 0.0], [0.0, 180.0], [90.0, 12.0], [52.5, 13.4], [48.1, 11.6]])
    turn = np.pi * data.EARTH_RADIUS
    np.testing.assert_allclose(data.great_circle(point[0], point[1:3]), [turn, turn / 2])

    def unit(p):  # the angle between unit vectors, another formula for the same distance
        lat, lon = np.radians(p)
        return np.array([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)])

    np.testing.assert_allclose(
        data.great_circle(point[3], point[4]),
        data.EARTH_RADIUS * np.arccos(unit(point[3]) @ unit(point[4])),
        rtol=1e-9,
    )


@quick
@given(st.integers(1, 7), st.randoms(), st.floats(1, 3), st.floats(0, 5), st.floats(0.01, 2))
def test_round_trip_against_networkx(n, random, stretch, access, least):
    g = nx.Graph()
    g.add_nodes_from(random.sample(range(100), n))
    for u in g:
        for v in g:
            if u < v and random.random() < 0.5:
                g.add_edge(u, v, delay=random.choice([0.0, random.random() * 3]))
    lengths = dict(
        nx.all_pairs_dijkstra_path_length(g, weight=lambda u, v, d: max(d["delay"], least))
    )
    expected = [[2 * stretch * lengths[u].get(v, np.inf) + access for v in g] for u in g]
    np.testing.assert_allclose(data.round_trip(g, stretch, access, least), expected)


# a file of one's own

NAMES = {"Latitude": "double", "Longitude": "double", "label": "string"}
KEY = '<key id="{0}" for="node" attr.name="{0}" attr.type="{1}"/>'


def data_of(at):
    "What a node of a GraphML file says of its place."
    values = () if at is None else zip(("Latitude", "Longitude"), at, strict=True)
    return "".join(f'<data key="{name}">{v}</data>' for name, v in values)


def graphml(path, nodes, edges, kind="undirected"):
    "A GraphML file: nodes to (latitude, longitude) or None, and edges."
    keys = "".join(KEY.format(*pair) for pair in NAMES.items())
    body = "".join(f'<node id="{n}">{data_of(at)}</node>' for n, at in nodes.items())
    body += "".join(f'<edge source="{u}" target="{v}"/>' for u, v in edges)
    graph = f'{keys}<graph edgedefault="{kind}">{body}</graph>'
    path.write_text(f'<graphml xmlns="http://graphml.graphdrawing.org/xmlns">{graph}</graphml>')
    return path


def test_a_file_of_ones_own(tmp_path):
    at = {"a": (0, 0), "b": (0, 90), "c": None}
    g = data.load_topology(graphml(tmp_path / "own.graphml", at, ["ab", "bc"]))
    assert type(g) is nx.Graph and [d["placed"] for _, d in g.nodes(data=True)] == [
        False,
        False,
        True,
    ]
    assert (
        np.isclose(g["a"]["b"]["length"], np.pi * data.EARTH_RADIUS / 2)
        and g["b"]["c"]["length"] == 0
    )
    assert g.nodes["a"]["label"] == "a" and g.nodes["a"]["country"] == ""
    assert data.load_topology(str(tmp_path / "own.graphml")).edges == g.edges


def test_parallel_links_and_one_way_links(tmp_path):
    at = {"a": (0, 0), "b": (0, 90), "c": (10, 45)}
    double = data.load_topology(graphml(tmp_path / "p.graphml", at, ["ab", "ab", "bc"]))
    assert type(double) is nx.Graph and double.number_of_edges() == 2
    both = data.load_topology(
        graphml(tmp_path / "b.graphml", at, ["ab", "ba", "bc", "cb"], "directed")
    )
    assert type(both) is nx.Graph
    ring = data.load_topology(graphml(tmp_path / "r.graphml", at, ["ab", "bc", "ca"], "directed"))
    turn = sum(ms for _, _, ms in ring.edges(data="delay"))
    np.testing.assert_allclose(data.round_trip(ring), turn * (1 - np.eye(3)))
    dead_end = data.load_topology(graphml(tmp_path / "d.graphml", at, ["ab", "bc"], "directed"))
    assert np.isinf(data.round_trip(dead_end)[~np.eye(3, dtype=bool)]).all()


def test_of_parallel_links_the_fastest_counts():
    g = nx.MultiGraph()
    for delay in (5.0, 2.0, 9.0):
        g.add_edge("a", "b", delay=delay)
    assert data.round_trip(g).tolist() == [[0, 4], [4, 0]]


def broken(path, text):
    path.write_text(text)
    return path


ISLAND = {"a": (0, 0), "b": (0, 90), "c": None, "d": None}
BOMB = (
    '<!DOCTYPE g [<!ENTITY a "aaaaaaaaaa">'
    + "".join(f'<!ENTITY {chr(98 + i)} "{f"&{chr(97 + i)};" * 10}">' for i in range(9))
    + "]><graphml>&j;</graphml>"
)


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda p: graphml(p, ISLAND, ["ab", "cd"]), "2 nodes, such as 'c', have no coordinates"),
        (lambda p: graphml(p, {"a": (91, 0)}, []), "of node 'a', the Latitude is 91"),
        (lambda p: graphml(p, {"a": ("nan", 0)}, []), "the Latitude is nan"),
        (lambda p: graphml(p, {"a": ("north", 0)}, []), "is not GraphML"),
        (lambda p: graphml(p, {}, []), "has no nodes"),
        (lambda p: broken(p, "graph [ ]"), "is not GraphML"),
        (lambda p: broken(p, ""), "is not GraphML"),
        (lambda p: broken(p, BOMB), "is not GraphML"),
    ],
)
def test_a_file_that_cannot_be_read_is_told_in_words(tmp_path, make, words):
    path = make(tmp_path / "bad.graphml")
    with pytest.raises(ValueError) as caught:
        data.load_topology(path)
    assert words in str(caught.value) and str(path) in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        data.load_topology(tmp_path / "none.graphml")


@pytest.mark.parametrize("delay", ["5 ms", "7", None, float("nan"), -1.0, float("inf"), True])
def test_a_delay_is_a_number(delay):
    g = nx.Graph()
    g.add_edge("a", "b", delay=delay)
    with pytest.raises(ValueError, match="the delay of edge"):
        data.round_trip(g)


def test_traces_are_frozen_records(tmp_path):
    for trace in (data.load_requests("azure_code"), data.load_experts("law", layer=2)):
        trace.save(tmp_path / "trace.json")
        assert type(trace).load(tmp_path / "trace.json") == trace
        for name in ("arrival", "prompt", "loads"):
            if hasattr(trace, name):
                with pytest.raises(ValueError):
                    getattr(trace, name)[0] = 1


# bad input


@pytest.mark.parametrize(
    "call, words",
    [
        (
            lambda: data.load_requests("azure"),
            "'azure_conv', 'azure_code', 'mooncake_conversation', 'mooncake_synthetic'",
        ),
        (lambda: data.load_topology("Abvt"), "'abovenet', 'bellcanada', 'gtsce'"),
        (lambda: data.load_experts("code"), "'intent', 'law', 'summary', 'translation'"),
        (lambda: data.load_experts(["law", "code"]), "'intent', 'law', 'summary', 'translation'"),
        (lambda: data.load_experts([]), "task is empty"),
        (lambda: data.load_experts("summary", window=14), "window is 14"),
        (lambda: data.load_experts(window=0), "window is 0"),
        (lambda: data.load_experts(layer=26), "layer is"),
        (lambda: data.load_experts(layer=-1), "layer is"),
        (lambda: data.round_trip(nx.path_graph(2)), "delay of edge"),
        (lambda: data.round_trip(nx.Graph(), stretch=0.5), "stretch is 0.5"),
        (lambda: data.round_trip(nx.Graph(), least=0), "least is 0"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        call()
