"""The shipped data: their terms, their traps and exact counts; the generators: seeds, sums, fitted statistics."""

import hashlib
import subprocess
import sys
from datetime import datetime
from decimal import Decimal
from importlib import resources
from itertools import combinations
from statistics import NormalDist

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_or.tools import data, generators

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
    assert len(FILES) == 8 and sorted(rows) == FILES
    for name, row in rows.items():
        assert hashlib.sha256(SHIPPED.joinpath(*name.split("/")).read_bytes()).hexdigest() in row


def test_import_is_light():
    heavy = "import sys, serving_or.tools.data; print(sorted({'networkx', 'pandas', 'matplotlib', 'scipy'} & set(sys.modules)))"
    assert (
        subprocess.run(
            [sys.executable, "-c", heavy], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )


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


# generators


@quick
@given(
    st.integers(1, 3),
    st.integers(1, 9),
    st.integers(1, 12),
    st.integers(1, 500),
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0, 20),
    st.floats(0, 1),
    st.integers(0, 2**32),
)
def test_generated_loads_sum_to_the_tokens(
    layers, experts, steps, tokens, diurnal, switch, spike, noise, seed
):
    made = generators.generate_experts(
        layers,
        experts,
        steps,
        tokens,
        diurnal=diurnal,
        switch=switch,
        spike=spike,
        noise=noise,
        seed=seed,
    )
    again = generators.generate_experts(
        layers,
        experts,
        steps,
        tokens,
        diurnal=diurnal,
        switch=switch,
        spike=spike,
        noise=noise,
        seed=seed,
    )
    assert (
        made.loads.shape == (steps, layers, experts)
        and (made.loads >= 0).all()
        and (made.loads.sum(axis=2) == tokens).all()
    )
    np.testing.assert_array_equal(made.loads, again.loads)
    assert (
        made.domain.tolist() == again.domain.tolist()
        and made.domain[0] == "intent"
        and set(made.domain) <= set(generators.SPREAD)
    )


def test_another_seed_gives_other_loads():
    assert (
        generators.generate_experts(1, 8, 4, 1000, seed=1).loads
        != generators.generate_experts(1, 8, 4, 1000, seed=2).loads
    ).any()


def test_each_knob_moves_only_its_own_part():
    calm = dict(diurnal=0, switch=0, spike=0, noise=0)
    n = 10**12  # so many tokens that the loads are the shares to six digits
    still = generators.generate_experts(2, 16, 300, n, **calm).loads / n
    assert (
        np.abs(still - still[0]).max() < 1e-4
        and generators.generate_experts(2, 16, 300, n, **calm).domain.tolist() == ["intent"] * 300
    )
    switched = generators.generate_experts(2, 16, 300, n, **calm | {"switch": 0.05})
    steps = data.total_variation(switched.loads[1:], switched.loads[:-1]).mean(axis=1)
    changes = switched.domain[1:] != switched.domain[:-1]
    assert 5 < changes.sum() < 30 and steps[changes].min() > 0.1 and steps[~changes].max() < 1e-4
    high = generators.generate_experts(2, 16, 300, n, **calm | {"spike": 4}).loads / n
    lifted = (
        high - still > 0.05
    )  # a height of 4 means adds (4 - 5 p) / 16 / (1 + 4 / 16) or so to a share p
    assert set(lifted.sum(axis=2).ravel()) == {0, 1} and 0.005 < lifted.any(axis=2).mean() < 0.1
    for layer in range(2):
        runs = np.diff(np.flatnonzero(np.diff(np.r_[0, lifted[:, layer].any(axis=1), 0])))[::2]
        assert runs.min() >= 1 and np.median(runs) <= 3
    # the height of a spike: without its addition the share is p, with it (p + h / m) / (1 + h / m)
    t, layer, expert = (index[0] for index in np.nonzero(lifted))
    np.testing.assert_allclose(
        high[t, layer, expert], (still[0, layer, expert] + 4 / 16) / (1 + 4 / 16), rtol=1e-4
    )
    daily = generators.generate_experts(2, 16, 289, n, **calm | {"diurnal": 0.5}).loads / n
    np.testing.assert_allclose(daily[288], daily[0], atol=1e-4)  # a full period
    noon = generators.generate_experts(2, 16, 289, n, **calm | {"diurnal": 1}).loads[144] / n
    np.testing.assert_allclose(daily[144], (still[0] + noon) / 2, atol=1e-4)


def test_noise_has_the_stated_deviation_and_memory():
    made = generators.generate_experts(
        1,
        200,
        4000,
        10**14,
        diurnal=0,
        switch=0,
        spike=0,
        noise=0.3,
        spread={"flat": 0.0},
        shared=0.0,
        seed=3,
    )
    z = np.log(made.loads[:, 0] / made.loads[:, 0].mean(axis=1, keepdims=True))
    assert np.isclose(z.std(), 0.3, rtol=0.03)
    z -= z.mean()
    assert np.isclose(
        (z[1:] * z[:-1]).mean() / z.var(), np.exp(-1 / generators.RELAXATION), rtol=0.02
    )


@pytest.mark.parametrize("seed", range(3))
def test_the_fitted_constants_give_the_statistics_of_the_counts(seed):
    made = generators.generate_experts(
        400, 64, 40, 50_000, diurnal=0, switch=0.4, spike=0, seed=seed
    )
    total = {t: made.loads[made.domain == t].sum(axis=0) for t in data.TASKS}
    hottest = [np.median(r.max(axis=1) / r.mean(axis=1)) for r in total.values()]
    np.testing.assert_allclose(
        hottest, [3.96, 3.28, 4.35, 5.58], rtol=0.09
    )  # three standard deviations of the largest median over 400 layers
    slopes = [np.median(data.zipf_slope(r)) for r in total.values()]
    assert 0.37 < min(slopes) and max(slopes) < 0.74
    apart = [
        data.total_variation(total[a], total[b]).mean() for a, b in combinations(data.TASKS, 2)
    ]
    assert 0.29 < min(apart) and max(apart) < 0.44
    for t in data.TASKS:  # halves of sixteen windows with the tokens of a task
        quiet = generators.generate_experts(
            26,
            64,
            16,
            6 * 8300 // 16,
            diurnal=0,
            switch=0,
            spike=0,
            spread={t: generators.SPREAD[t]},
            seed=seed,
        ).loads
        halves = [(quiet[:8], quiet[8:]), (quiet[::2], quiet[1::2])]
        assert all(
            0.02 < data.total_variation(a.sum(axis=0), b.sum(axis=0)).mean() < 0.06
            for a, b in halves
        )


@pytest.mark.parametrize(
    "spreads, shared", [((0.7, 0.9), 0.3), ((0.5, 0.5), 0.0), ((0.6, 0.6), 0.6)]
)
def test_total_variation_of_two_domains_by_the_theorem(spreads, shared):
    made = generators.generate_experts(
        1,
        100_000,
        40,
        10**14,
        diurnal=0,
        switch=0.5,
        spike=0,
        noise=0,
        spread=dict(zip("ab", spreads)),
        shared=shared,
    )
    a, b = (made.loads[made.domain == d][0, 0] for d in "ab")
    theta = np.sqrt(sum(s**2 for s in spreads) - 2 * shared**2)
    assert np.isclose(data.total_variation(a, b), 2 * NormalDist().cdf(theta / 2) - 1, atol=0.005)


@quick
@given(
    st.sampled_from(generators.KINDS),
    st.integers(1, 9),
    st.integers(1, 30),
    st.floats(0.01, 1e4),
    st.integers(0, 2**32),
)
def test_families(kind, m, T, scale, seed):
    loads = generators.trace(kind, m, T, scale, seed)
    assert loads.shape == (T, m) and (loads > 0).all() and np.isclose(loads.mean(), scale)
    np.testing.assert_array_equal(loads, generators.trace(kind, m, T, scale, seed))
    np.testing.assert_allclose(loads, scale * generators.trace(kind, m, T, 1.0, seed))


def test_families_have_their_feature():
    for kind in ("zipf", "shifts"):  # one profile in every step
        loads = np.sort(generators.trace(kind, 16, 200), axis=1)
        np.testing.assert_allclose(loads, np.tile(loads[0], (200, 1)))
        assert np.isclose(data.zipf_slope(loads[0]), 0.8)
    same = [
        (np.diff(generators.trace(kind, 16, 400), axis=0) == 0).all(axis=1).mean()
        for kind in ("shifts", "zipf", "ar")
    ]
    assert 0.9 < same[0] < 1 and same[1] < 0.05 and same[2] == 0
    spikes = generators.trace("spikes", 16, 400)
    assert (
        np.isclose(spikes.max() / spikes.min(), 10)
        and len(np.unique(spikes)) == 2
        and np.isclose((spikes == spikes.max()).mean(), 0.05, atol=0.01)
    )
    bursts = generators.trace("bursts", 16, 2000)
    on = bursts > bursts.min()
    began = (on[1:] & ~on[:-1]).sum()
    assert np.isclose(on.sum() / began, 5, rtol=0.1) and np.isclose(
        on.mean(), 0.2, atol=0.03
    )  # 5 on, 20 off


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
    """The other usual rule: a link that touches a node without coordinates has the median length of the other links."""
    g = data.load_topology(name)
    unknown = [(u, v) for u, v in g.edges if g.nodes[u]["placed"] or g.nodes[v]["placed"]]
    rest = np.median([d for u, v, d in g.edges(data="delay") if (u, v) not in unknown])
    nx.set_edge_attributes(g, {e: rest for e in unknown}, "delay")
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


# bad input


@pytest.mark.parametrize(
    "call, words",
    [
        (
            lambda: data.load_requests("azure"),
            "azure_conv, azure_code, mooncake_conversation, mooncake_synthetic",
        ),
        (lambda: data.load_topology("Abvt"), "abovenet, bellcanada, gtsce"),
        (lambda: data.load_experts("code"), "intent, law, summary, translation"),
        (lambda: data.load_experts(["law", "code"]), "intent, law, summary, translation"),
        (lambda: data.load_experts([]), "intent, law, summary, translation"),
        (lambda: data.load_experts("summary", window=14), "13 sequences"),
        (lambda: data.load_experts(window=0), "window is 0"),
        (lambda: data.load_experts(layer=26), "0 to 25"),
        (lambda: data.load_experts(layer=-1), "0 to 25"),
        (lambda: generators.trace("sine", 4, 4), "ar, zipf, spikes, shifts, bursts"),
        (lambda: generators.trace("ar", 0, 4), "m is 0"),
        (lambda: generators.trace("ar", 4, 4, scale=-1), "scale is -1"),
        (lambda: generators.generate_experts(1, 0, 4, 10), "experts is 0"),
        (lambda: generators.generate_experts(1, 4, 4, 10, diurnal=1.5), "diurnal is 1.5"),
        (lambda: generators.generate_experts(1, 4, 4, 10, switch=-0.1), "switch is -0.1"),
        (lambda: generators.generate_experts(1, 4, 4, 10, noise=float("nan")), "noise is nan"),
        (lambda: generators.generate_experts(1, 4, 4, 10, shared=0.8), "shared is 0.8"),
        (lambda: generators.generate_experts(1, 4, 4, 10, spread={}), "shared is"),
        (lambda: data.round_trip(nx.path_graph(2)), "delay of edge"),
        (lambda: data.round_trip(nx.Graph(), stretch=0.5), "stretch is 0.5"),
        (lambda: data.round_trip(nx.Graph(), least=0), "least is 0"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        call()
