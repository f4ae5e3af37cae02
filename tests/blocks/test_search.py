"The search: never worse, in time, no bound of a part taken for the whole; its steps."

from time import process_time

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
from serving_or.blocks.search import improve, prices_of, two_at_a_time, worth
from serving_or.tools.answers import Clock, Infeasible
from tests.instances import THREE, fleet, tiny_cluster

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


def test_time_is_kept():
    hard = fleet(60, 0.2)
    swept = sweep(hard, 300)
    improve(cg_bprr(THREE, 4), time_limit=0.1)
    for limit in (0.0, 0.5, 1.0):
        began = process_time()
        plan = improve(swept, time_limit=limit)
        assert process_time() - began < limit + 0.5
        assert plan.cost <= swept.cost and plan.status == "time_limit"


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
    assert "after 0 tries: 102.00 ms" in two_at_a_time(0, 1)
    assert "after 8 tries: 79.25 ms" in two_at_a_time(8, 1)
