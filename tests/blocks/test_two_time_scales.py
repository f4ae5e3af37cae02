"""Routers against enumeration of all chains, and the design capacity against its definition."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import poisson

from serving_or.blocks.cluster import Cluster, scatter
from serving_or.blocks.conservative_greedy import cg_bprr, largest_requests
from serving_or.blocks.designs import sweep
from serving_or.blocks.plan import NoRoute, Placement, request_time
from serving_or.blocks.simulation import Arrivals, Lengths, simulate
from serving_or.blocks.two_time_scales import (
    ExactWait,
    WaitingPenalised,
    design_capacity,
    poisson_quantile,
    poisson_share,
    present_at_once,
    size_biased,
)
from serving_or.tools.answers import Infeasible
from serving_or.tools.data import load_topology
from tests.blocks.test_simulation import chains_through, runs
from tests.long import cases


class Against:
    "Asks a router, and compares what it chose with the best of all chains, and another router."

    def __init__(self, router, other):
        self.router, self.other, self.differ = router, other, 0

    def start(self, cluster, placement):
        self.router.start(cluster, placement)
        self.other.start(cluster, placement)

    def costs(self, pool, request, way):
        "With waits added, and with the longest one."
        hop, block = pool.times(request)
        take = pool.cluster.cached
        waits = [pool.from_time(j, take(x, e) * request.units) - pool.time for j, x, e in way]
        alone = sum(hop[j] + block[j] * (e - x) for j, x, e in way)
        return np.array([sum(waits) + alone, max(waits) + alone])

    def choose(self, pool, request):
        ways = chains_through(pool.placement, pool.cluster.blocks)
        best = np.min([self.costs(pool, request, way) for way in ways], axis=0)
        found = []
        for router in (self.router, self.other):
            try:
                chain = router.choose(pool, request)
            except NoRoute:
                assert np.isinf(best).all()
                raise
            ends = np.cumsum((1, *chain.blocks)).tolist()
            found.append(self.costs(pool, request, list(zip(chain.servers, ends, ends[1:]))))
        adds, exact = found if isinstance(self.router, WaitingPenalised) else found[::-1]
        assert adds[0] == pytest.approx(best[0], rel=1e-9)
        assert exact[1] == pytest.approx(best[1], rel=1e-9)
        assert exact[1] <= adds[1] * (1 + 1e-9)
        self.differ += exact[1] < adds[1] * (1 - 1e-9)
        return chain if self.router is router else self.router.choose(pool, request)


@pytest.mark.parametrize("routers", [(WaitingPenalised, ExactWait), (ExactWait, WaitingPenalised)])
@given(run=runs())
@settings(max_examples=cases(3000))
def test_each_chosen_chain_is_the_best_of_all_chains(routers, run):
    cluster, placement, arrivals, lengths = run
    both = Against(*(router() for router in routers))
    simulate(cluster, placement, arrivals, both, lengths=lengths, reject=True)


def test_the_routers_do_differ():
    # few large requests on overlapping spans
    rng, differ = np.random.default_rng(0), 0
    for _ in range(20):
        cluster = Cluster(3, 1, 1, [3, 3, 3, 6], [5, 6, 7, 14], rng.integers(0, 9, 4).tolist())
        placement = Placement([1, 2, 3, 1], [1, 1, 1, 3])
        both = Against(WaitingPenalised(), ExactWait())
        simulate(cluster, placement, Arrivals.poisson(20, 40, 0, 5, seed=1), both)
        differ += both.differ
    assert differ > 10


@pytest.mark.parametrize("router", [WaitingPenalised, ExactWait])
def test_a_request_too_large_is_named(router):
    cluster = Cluster(4, 4, 1, memory=[16, 12], tau=[10, 20], rtt=[10, 10])
    placement = sweep(cluster, 1).placement
    a = Arrivals([0, 1], [1, 50], 3)
    with pytest.raises(NoRoute, match="request 1 has 53 tokens"):
        simulate(cluster, placement, a, router(), lengths=Lengths(4))
    assert simulate(cluster, placement, a, router(), lengths=Lengths(4), reject=True).rejected == 1


# for how many


@given(st.integers(0, 200), st.floats(0, 150))
def test_the_share_is_the_poisson_distribution(requests, mean):
    assert poisson_share(requests, mean) == pytest.approx(poisson.cdf(requests, mean), abs=1e-12)


@given(st.floats(0, 500), st.floats(0.01, 0.999))
def test_the_quantile_is_the_fewest(mean, share):
    found = poisson_quantile(mean, share)
    assert poisson_share(found, mean) >= share
    assert found == 1 or poisson_share(found - 1, mean) < share


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), max_size=12))
@settings(max_examples=cases(1000))
def test_present_at_once_is_counted(rows):
    gaps, time = np.array(rows, int).reshape(-1, 2).T
    a = Arrivals(np.cumsum(gaps), 1, 1)
    seen, share = present_at_once(a, time)
    at, end = a.arrival, a.arrival + time
    for i in range(len(a)):
        before = sum(end[k] > at[i] for k in range(i))
        assert seen[i] == before + 1
    if len(a) and at[-1] > at[0]:
        mean = (np.minimum(end, at[-1]) - at).sum() / (at[-1] - at[0])
        assert share.sum() == pytest.approx(1)
        assert share @ np.arange(len(share)) == pytest.approx(mean)


@pytest.mark.parametrize("method", [cg_bprr, sweep])
@pytest.mark.parametrize("name, rate", [("abovenet", 0.2), ("bellcanada", 2), ("gtsce", 1)])
def test_the_design_is_consistent_and_the_first_one(method, name, rate):
    cluster = scatter(load_topology(name), seed=1)
    found = design_capacity(cluster, rate, method=method)
    assert not found.capped and found.plan == method(cluster, found.requests)
    assert [R for R, _ in found.tried][1:] == [asked for _, asked in found.tried][:-1]
    assert all(asked > R for R, asked in found.tried[:-1])
    assert found.tried[-1][1] <= found.tried[-1][0] == found.requests
    assert found.mean == pytest.approx(rate / 1000 * found.time)
    assert found.requests >= round(found.mean + found.mean**0.5)
    times = [request_time(cluster, chain, 128) for chain in found.plan.chains]
    assert found.time == pytest.approx(
        np.average(times, weights=[chain.count for chain in found.plan.chains])
    )
    # more safety is not less room
    assert design_capacity(cluster, rate, method=method, safety=2).requests >= found.requests
    assert (
        poisson_share(
            design_capacity(cluster, rate, method=method, quantile=0.99).requests, found.mean
        )
        >= 0.98
    )


def test_beyond_what_can_be_placed_the_largest_is_taken():
    cluster = scatter(load_topology("abovenet"), seed=1)
    found = design_capacity(cluster, 100, method=cg_bprr)
    assert found.capped and found.requests == largest_requests(cluster)
    assert "the largest that can be placed" in found.summary()
    tiny = Cluster(4, 4, 1, memory=[4, 4], tau=1, rtt=1)
    with pytest.raises(Infeasible):
        design_capacity(tiny, 1)


def test_equal_lengths_are_a_trace_too():
    cluster = scatter(load_topology("bellcanada"), seed=0)
    a = Arrivals.poisson(0.5, 4000)
    plain = design_capacity(cluster, a.rate)
    trace = design_capacity(cluster, arrivals=a)
    assert trace.tokens == pytest.approx(148) and trace.requests == plain.requests
    seen = design_capacity(cluster, arrivals=a, quantile=0.86)
    in_time = design_capacity(cluster, arrivals=a, quantile=0.86, seen_by="time")
    # Poisson arrivals see time averages, and themselves
    assert abs(seen.requests - 1 - in_time.requests) <= 1
    assert abs(in_time.requests - plain.requests) <= 2


def test_the_design_is_the_same_in_seconds():
    sizes = {"memory": [16, 12, 12]}
    in_ms = Cluster(4, 4, 1, **sizes, tau=[10, 20, 20], rtt=[10, 10, 10])
    in_s = Cluster(4, 4, 1, **sizes, tau=[0.01, 0.02, 0.02], rtt=[0.01] * 3, time_unit="s")
    ms, s = (design_capacity(c, 1, output=20) for c in (in_ms, in_s))
    assert ms.requests == s.requests == 3 and ms.mean == pytest.approx(s.mean) == 1.6
    assert ms.time == pytest.approx(1000 * s.time)


def test_the_largest_may_be_enough():
    quick = Cluster(4, 4, 1, memory=[40], tau=[10], rtt=[10])
    slow = replace(quick, tau=[100], rtt=[100])

    def method(cluster, requests):
        # whoever asks for one only gets the slow one, and more than five cannot be placed
        if requests > 5:
            raise Infeasible("five at most")
        return sweep(slow if requests == 1 else quick, requests)

    found = design_capacity(quick, 1, output=50, method=method)
    # 25 s for each on the slow one, 2.5 s on the quick one
    assert found.tried == ((1, 30), (5, 4)) and found.requests == 5
    assert not found.capped and "largest" not in found.summary()


def test_what_is_reserved_is_the_mean_of_those_present():
    cluster = scatter(load_topology("bellcanada"), seed=0)
    # a short and a long kind; the time is that of later tokens nearly alone
    a = Arrivals(1e5 * np.arange(100), 10, [20, 380] * 50)
    seen = []

    def watched(cluster, requests):
        seen.append(cluster.cache_size)
        return sweep(cluster, requests)

    found = design_capacity(cluster, arrivals=a, lengths=Lengths(300), method=watched)
    first = sweep(replace(cluster, cache_size=cluster.cache_size * 210 / 300), 1)
    T = [
        np.average(
            [request_time(cluster, chain, output) for chain in first.chains],
            weights=[chain.count for chain in first.chains],
        )
        for output in (20, 380)
    ]
    tokens = (30 * T[0] + 390 * T[1]) / (T[0] + T[1])
    assert found.tokens == pytest.approx(tokens) and tokens > 350
    assert found.mean == pytest.approx(a.rate / 1000 * found.time)
    held = cluster.cache_size / 300 * np.array([210] + [tokens] * (len(seen) - 1))
    np.testing.assert_allclose(seen, held)
    assert found.plan.cluster.cache_size == seen[-1]


def test_a_given_rate_stretches_the_trace():
    cluster = scatter(load_topology("bellcanada"), seed=0)
    a = Arrivals.poisson(0.5, 2000, seed=3)
    slow = Arrivals(a.arrival * 4, a.prompt, a.output)
    for seen_by in ("arrivals", "time"):
        more = {"quantile": 0.9, "seen_by": seen_by}
        found = design_capacity(cluster, a.rate, arrivals=slow, **more)
        assert found.requests == design_capacity(cluster, arrivals=a, **more).requests
        assert found.requests > design_capacity(cluster, arrivals=slow, **more).requests


def test_crowds_beyond_all_measure():
    tiny = Cluster(4, 4, 1, memory=[16, 12, 12], tau=[10, 20, 20], rtt=[10, 10, 10])
    for rate in (1e9, 1e15):
        found = design_capacity(tiny, rate, output=20, quantile=0.99)
        assert found.capped and found.requests == 4
    assert poisson_quantile(1e12, 0.99) == pytest.approx(1e12 + 2.3263 * 1e6, abs=1e3)
    assert poisson_share(3, 0) == 1
    assert poisson_share(2, 3.0) == pytest.approx((1 + 3 + 4.5) * np.exp(-3))


def test_lengths_must_fit_the_cluster():
    cluster = Cluster(4, 4, 1, memory=[16, 12], tau=[10, 20], rtt=[10, 10])
    with pytest.raises(ValueError, match="would take less than no time"):
        design_capacity(cluster, arrivals=Arrivals([0, 1], 1, 1), lengths=Lengths(4, 100, 1.0))
    with pytest.raises(ValueError, match="tau_slope has shape"):
        design_capacity(cluster, 1, lengths=Lengths(4, 1, [1, 2, 3]))


@pytest.mark.parametrize(
    "given, said",
    [
        ({"rate": None}, "rate is None; give requests a second, or arrivals"),
        ({"rate": 0}, "rate is 0; .* above 0"),
        ({"rate": np.nan}, "rate is nan"),
        ({"output": 0}, "output is 0"),
        ({"safety": -1}, "safety is -1"),
        ({"quantile": 0}, "quantile is 0"),
        ({"quantile": 1}, "quantile is 1; a Poisson process has no largest"),
        ({"quantile": 1.1}, "quantile is 1.1"),
        ({"seen_by": "me"}, "seen_by is 'me'"),
        ({"arrivals": Arrivals([], 1, 1)}, "arrivals is empty"),
        ({"arrivals": Arrivals([0, 0], 1, 1), "rate": None}, "rate is nan"),
        (
            {"arrivals": Arrivals([5, 5], 1, 1), "quantile": 0.9, "seen_by": "time"},
            "arrivals all come at one time",
        ),
        ({"arrivals": Arrivals([0], 1, 1, 3)}, r"client\[0\] is 3"),
        ({"arrivals": [1, 2]}, "arrivals is of type list"),
    ],
)
def test_bad_input(given, said):
    cluster = Cluster(4, 4, 1, memory=[16, 12], tau=[10, 20], rtt=[10, 10])
    with pytest.raises(ValueError, match=said):
        design_capacity(cluster, **({"rate": 1.0} | given))


def test_bad_sizes():
    with pytest.raises(ValueError, match="time is 0.0 for a request; it must be above 0"):
        present_at_once(Arrivals([0, 1], 1, 1), [0, 1])
    with pytest.raises(ValueError, match=r"time has shape \(3,\); it must be one number or"):
        present_at_once(Arrivals([0, 1], 1, 1), [1, 1, 1])
    with pytest.raises(ValueError, match="time is 0 for all"):
        size_biased([1, 2], [0, 0])
    with pytest.raises(ValueError):
        size_biased([1, 2], [1])
