"The search: never worse, in time, no bound of a part taken for the whole; its steps."

from time import perf_counter, process_time

import numpy as np
import pytest

from serving_or.blocks.bounds import chain_bound
from serving_or.blocks.cluster import Cluster
from serving_or.blocks.conservative_greedy import NoPlacement, cg_bp, cg_bprr
from serving_or.blocks.designs import sweep
from serving_or.blocks.flow import route_exact
from serving_or.blocks.link_program import enumeration
from serving_or.blocks.plan import Placement, check
from serving_or.blocks.routing import lone_bound, route
from serving_or.blocks.search import (
    NEIGHBOURHOODS,
    Search,
    _best_cuts,
    _between,
    _of_groups,
    at_work,
    improve,
    prices_of,
    realised,
    run_search,
    tally,
    two_at_a_time,
    worth,
)
from serving_or.tools.answers import Clock, Infeasible
from tests.instances import THREE, fleet, tiny_cluster
from tests.long import LONG, cases

CLOSE = 1 + 1e-7


def test_between_optimum_and_sweep():
    rng = np.random.default_rng(4)
    for _ in range(40):
        c, R = tiny_cluster(rng), int(rng.integers(1, 5))
        try:
            swept = sweep(c, R)
        except (NoPlacement, Infeasible):
            continue
        best = enumeration(c, R)
        for limit in (0.0, 0.05):
            searched = improve(swept, time_limit=limit)
            assert best.cost <= searched.cost * CLOSE and searched.cost <= swept.cost
            assert searched.bound <= best.cost * CLOSE
            assert searched.status != "optimal" or np.isclose(searched.cost, best.cost)


def test_it_searches_and_never_gets_worse():
    rng = np.random.default_rng(11)
    gained = 0
    for _ in range(4):
        n = 6
        memory, tau, rtt = rng.integers(8, 25, n), rng.integers(1, 20, n), rng.integers(1, 30, n)
        c = Cluster(6, 3, 1, memory, tau, rtt)
        try:
            swept = sweep(c, 4)
        except (NoPlacement, Infeasible):
            continue
        searched = improve(swept, time_limit=1.5, seed=1)
        assert searched.cost <= swept.cost and searched.bound >= swept.bound * (1 - 1e-9)
        check(c, searched.placement, searched.chains, 4, searched.bound)
        gained += searched.cost < swept.cost - 1e-9
    assert gained > 0


def test_a_bound_on_one_placement_is_none_on_the_plan():
    for call in (route, route_exact):
        plan = call(THREE, cg_bp(THREE, 4), 4)
        assert plan.cost == 90 and np.isclose(plan.bound, 90) and plan.scope == "placement"
        # too short for a bound beyond the lone one, then long enough
        better = improve(plan, time_limit=0.5)
        assert better.cost == 80 and better.bound == 70 == lone_bound(THREE, 4)
        assert better.status != "optimal" and better.scope == "all"
        better = improve(plan, time_limit=2)
        assert better.cost == 80 and better.status == "optimal"
        # even where nothing better is found
        same = improve(plan, time_limit=0)
        assert same.cost == 90 and same.bound == 70 and same.status == "time_limit"


def test_bounds_that_contradict_a_plan_are_refused():
    plan = cg_bprr(THREE, 4)
    with pytest.raises(ValueError, match=r"bound is 1000000000.0; it must be .*at most 90"):
        improve(plan, bound=1e9)
    with pytest.raises(ValueError, match="bound 85.0 is above the cost 80.0"):
        improve(plan, time_limit=2, bound=85)
    assert improve(plan, time_limit=2, bound=80).status == "optimal"
    assert improve(plan, time_limit=2, bound=chain_bound(THREE, 4).value).cost == 80


def both_clocks():
    "Processor and wall time: several threads add to the first, other processes to the second."
    return np.array([process_time(), perf_counter()])


def test_time_is_kept():
    hard = fleet(60, 0.2)
    swept = sweep(hard, 300)
    improve(cg_bprr(THREE, 4), time_limit=0.1)
    for limit in (0.0, 0.5, 1.0):
        began = both_clocks()
        plan = improve(swept, time_limit=limit)
        assert (both_clocks() - began).min() < limit + 0.5
        assert plan.cost <= swept.cost and plan.status == "time_limit"


def unlike(n, L, seed=0, clients=1):
    "Servers that all differ."
    rng = np.random.default_rng(seed)
    rtt = rng.uniform(60, 120, (clients, n))
    return Cluster(L, 1.3, 0.05, rng.uniform(4, 12, n), rng.uniform(4, 16, n), rtt)


@pytest.mark.parametrize("limit", (0.0, 0.05, 1.0, 3.0) if LONG else (0.0, 0.05, 1.0))
def test_every_size_keeps_every_limit(limit):
    improve(cg_bprr(THREE, 4), time_limit=0.1)
    many = Cluster(70, 1.3, 0.005, *(unlike(1000, 70).memory * k for k in (2, 1, 10)))
    sizes = [(THREE, 4), (unlike(40, 20), 12), (fleet(60, 0.2), 60), (fleet(1000, 0.2), 5000)]
    for c, R in [*sizes, (many, 1000)]:
        start = sweep(c, R, most=3)
        began = both_clocks()
        plan = improve(start, time_limit=limit)
        assert (both_clocks() - began).min() < limit + max(0.5, 0.2 * limit)
        assert plan.bound <= plan.cost <= start.cost
        # the sweep itself always tries one design
        began = both_clocks()
        assert sweep(c, R, time_limit=limit).cost >= plan.bound
        assert (both_clocks() - began).min() < limit + 0.5


def reached_by_some(rng, clients, n):
    "Round trips of clients that reach only some of the servers."
    rtt = rng.integers(1, 20, (clients, n)).astype(float)
    rtt[rng.random(rtt.shape) < 0.25] = np.inf
    rtt[np.arange(clients), rng.integers(0, n, clients)] = 9
    return rtt


def test_several_clients_that_reach_some_servers():
    "Never worse than the start, never below the optimum, and what is called optimal is."
    rng = np.random.default_rng(31)
    met = gained = 0
    for _ in range(cases(400, few=25)):
        n, L, C = int(rng.integers(2, 4)), int(rng.integers(2, 5)), int(rng.integers(1, 4))
        c = Cluster(
            L, 2, 1, rng.integers(6, 25, n), rng.integers(1, 9, n), reached_by_some(rng, C, n)
        )
        demand = rng.integers(0, 3, C)
        try:
            start = sweep(c, demand)
        except (NoPlacement, Infeasible):
            continue
        best = enumeration(c, demand).cost
        plan = improve(start, time_limit=0.3)
        assert best <= plan.cost * CLOSE and plan.cost <= start.cost
        assert plan.bound <= best * CLOSE
        assert plan.status != "optimal" or np.isclose(plan.cost, best)
        met, gained = met + 1, gained + (plan.cost < start.cost - 1e-9)
    assert met >= 10


@pytest.mark.parametrize("name", NEIGHBOURHOODS)
def test_each_neighbourhood_gives_plans(name):
    "Whatever a model says, what comes back is a plan for these requests, routed and checked."
    alike = Cluster(6, 2, 1, [9] * 6, [1] * 6, np.arange(6) + 10)
    two = fleet(14, 0.3, 512, clients=2, overhead=5.0)
    found = 0
    for c, demand in ((alike, [4]), (two, [5, 2]), (unlike(12, 10), [6]), (THREE, [4])):
        start = sweep(c, demand)
        search = Search(start, 0.0, Clock(2.0), seed=3)
        for _ in range(3):
            plan = realised(search, NEIGHBOURHOODS[name](search))
            search.note(name, plan)
            if plan is not None:
                found += 1
                check(c, plan.placement, plan.chains, demand)
        assert search.plan.cost <= start.cost and len(search.steps) == 3
    assert found > 0


def test_tries_are_counted():
    search = Search(sweep(unlike(12, 10), 6), 0.0, Clock(1.0))
    begin = search.plan.cost
    run_search(search, lambda value, bound: None)
    table = tally(search.steps)
    assert table["tries"].sum() == len(search.steps) >= 2
    assert np.isclose(table["gained"].sum(), begin - search.plan.cost)
    assert (table["gains"] <= table["tries"]).all() and (table["seconds"] >= 0).all()
    costs = [step.value for step in search.steps]
    assert (np.diff(costs) <= 0).all() and costs[-1] == search.plan.cost


def test_segments_of_equal_servers():
    "One segment is the whole line here: its program is exact but for shared ends."
    c = Cluster(6, 2, 1, [9] * 6, [1] * 6, [10] * 6)
    search = Search(sweep(c, 4), 0.0, Clock(None))
    values = []
    for _ in range(6):
        plan = realised(search, NEIGHBOURHOODS["segments"](search))
        search.note("segments", plan)
        values.append(np.inf if plan is None else plan.cost)
    # lanes of equal servers by hand: 36
    assert min(values) <= 36 * CLOSE and min(values) >= chain_bound(c, 4).value / CLOSE


def test_the_best_way_to_cut_is_the_best_of_all():
    "Of all sequences of segments that fit the line and the servers."

    def least(values, blocks, servers):
        if blocks == 0:
            return 0.0
        ways = [k for k in values if k[0] <= blocks and k[1] <= servers]
        rests = (values[k] + least(values, blocks - k[0], servers - k[1]) for k in ways)
        return min(rests, default=np.inf)

    rng = np.random.default_rng(2)
    none = 0
    for _ in range(60):
        L, n = int(rng.integers(1, 8)), int(rng.integers(1, 7))
        keys = {(int(rng.integers(1, L + 1)), int(rng.integers(1, n + 1))) for _ in range(5)}
        values = {k: float(rng.choice([rng.integers(1, 20), np.inf])) for k in keys}
        value, parts = _best_cuts(values | {(0, 0): 0.0}, L, n)
        assert value == least(values, L, n)
        none += np.isinf(value)
        if value < np.inf:
            assert sum(values[k] for k in parts) == value
            assert sum(k[0] for k in parts) == L and sum(k[1] for k in parts) <= n
    assert 5 < none < 55


def test_equal_servers_are_exchanged():
    "Two equal servers at 10 and 50 ms: the near one takes the span where most requests pass."
    c = Cluster(2, 1, 1, [8, 8, 9], [1, 1, 1], [50, 10, 60])
    at = Placement([2, 1, 1], [1, 0, 1])
    search = Search(route(c, at, 3), 0.0, Clock(2.0))
    assert realised(search, at, exchanges=1).cost == 50 + 60 + 2
    plan = realised(search, at)
    assert plan.cost == 10 + 60 + 2 and plan.placement.m.tolist() == [0, 1, 1]


def test_tries_in_vain_give_more_freedom():
    plan = cg_bprr(THREE, 4)
    search, better = Search(plan, 0.0, Clock(2.0)), improve(plan, time_limit=2)
    for i in range(1, 9):
        assert not search.note("near", None if i % 2 else plan)
        assert search.vain["near"] == search.vain["in a row"] == i
        assert search.width["near"] == i // 4
    assert search.note("used", better) and search.plan is better
    # what found something starts anew; others are as far as they were
    assert search.vain == {"near": 8, "used": 0, "in a row": 0} and search.width["used"] == 0
    assert search.steps[-1].gained == 10 and search.steps[0].gained == 0
    # a dearer plan is not kept
    assert not search.note("used", plan) and search.plan is better


def test_spans_from_cut_to_cut(monkeypatch):
    c = Cluster(6, 2, 1, [9, 9, 15], [1] * 3, [10] * 3)
    search, cuts = Search(sweep(c, 1), 0.0, Clock(1.0)), np.array([1, 2, 5, 7])
    groups, longest = _of_groups(search, np.array([0, 1, 2]))
    found = [tuple(s) for s in _between(search, cuts, groups, longest).tolist()]
    # the small ones hold up to three blocks, the large one up to five
    small, large = [(1, 1), (2, 3), (5, 2)], [(1, 1), (1, 4), (2, 3), (2, 5), (5, 2)]
    wanted = {(search.groups[0], *s) for s in small} | {(search.groups[2], *s) for s in large}
    assert set(found) == wanted and len(found) == len(wanted)
    monkeypatch.setattr("serving_or.blocks.search.SPANS", 4)
    assert len(_between(search, cuts, groups, longest)) == 4


def test_without_a_limit_it_ends():
    plan = improve(cg_bprr(THREE, 4), time_limit=None)
    assert plan.cost == 80 and plan.status == "optimal"


def test_the_same_seed_gives_the_same_search():
    c = Cluster(5, 3, 1, [11, 9, 10, 11, 11, 7], [2, 8, 5, 3, 8, 5], [15, 11, 8, 21, 21, 27])
    first, second = (improve(cg_bprr(c, 4), None, seed=5, bound=69.5) for _ in range(2))
    assert first.placement == second.placement and first.cost == second.cost == 69.5


def test_what_a_span_is_worth_at_most():
    "Adding a span lowers the linear program by no more than slots times the best gain per block."
    rng = np.random.default_rng(3)
    tried = lowered = 0
    while tried < 150:
        c, R, clock = tiny_cluster(rng, n=3), int(rng.integers(1, 5)), Clock()
        demand = c.demand(R)
        try:
            placement = sweep(c, R).placement
        except (NoPlacement, Infeasible):
            continue
        for j in range(3):
            rest = np.setdiff1d(np.flatnonzero(placement.m), [j])
            prices = prices_of(c, demand, placement, rest, clock) if len(rest) else None
            if prices is None:
                continue
            value, togo, _ = prices
            for start, blocks, estimate in worth(c, j, togo, demand):
                a, m = placement.a.copy(), placement.m.copy()
                a[j], m[j] = start, blocks
                k, e = np.arange(1, m[j] + 1), a[j] + m[j]
                gain = togo[:, e - k] - togo[:, [e]] - c.rtt[demand > 0, j][:, None] - c.tau[j] * k
                if not np.isfinite(gain).all():
                    continue
                most = c.slots(m)[j] * max((gain / k).max(), 0)
                again, _, _ = prices_of(c, demand, Placement(a, m), np.append(rest, j), clock)
                assert value - again <= most + 1e-6 and estimate <= most + 1e-6
                tried, lowered = tried + 1, lowered + (again < value - 1e-6)
    assert lowered > 5


def test_no_requests_and_free_caches():
    assert improve(sweep(fleet(6), 0), time_limit=0.5).cost == 0
    free = Cluster(3, 1, 0, [3, 2], [1, 1], [2, 1])
    assert improve(sweep(free, 10**5), time_limit=0.2).cost == 5


def test_thousands_of_different_servers():
    n = 1100
    c = Cluster(2, 1, 1, np.arange(n) + 5.0, np.ones(n), np.ones(n))
    plan = sweep(c, 3, most=2)
    assert improve(plan, time_limit=1).cost <= plan.cost


def test_forwarding_is_refused():
    c = Cluster(2, 1, 1, [9, 9], [1, 1], [1, 1], hop=[[0, 1], [1, 0]])
    with pytest.raises(ValueError, match="forwards"):
        improve(route(c, cg_bp(c, 1), 1, forward=True))


@pytest.mark.parametrize(
    "arguments, words",
    [
        (dict(time_limit=-1), "time_limit is -1"),
        (dict(time_limit=np.nan), "time_limit is nan"),
        (dict(time_limit="10"), "time_limit is '10'"),
        (dict(seed=-1), "seed is -1"),
        (dict(seed=0.5), "seed is 0.5"),
        (dict(bound=np.nan), "bound is nan"),
        (dict(bound=-3), "bound is -3"),
        (dict(bound="80"), "bound is '80'"),
    ],
)
def test_bad_input_says_what_is_wrong(arguments, words):
    with pytest.raises(ValueError, match=words):
        improve(cg_bprr(THREE, 4), **arguments)


def test_verbose_is_one_line(capfd):
    improve(cg_bprr(THREE, 4), time_limit=0.2)
    assert capfd.readouterr() == ("", "")
    improve(cg_bprr(THREE, 4), time_limit=0.2, verbose=True)
    said = capfd.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and "improve: " in said.err


def test_live_example():
    assert "sweep: 440.7 ms" in at_work(0) and "boundaries" in at_work(5)
    assert "after 0 tries: 102.00 ms" in two_at_a_time(0, 1)
    assert "after 8 tries: 79.25 ms" in two_at_a_time(8, 1)
    # numbers that a reader types
    assert "after 9 tries" in two_at_a_time(9, 1)
    with pytest.raises(ValueError, match="tries is -1"):
        two_at_a_time(-1, 1)
