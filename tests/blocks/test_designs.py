"Designs: the sweep between bound, optimum and CG-BPRR, lanes, what is left of the guarantee."

from contextlib import suppress
from dataclasses import replace
from itertools import product
from time import process_time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_or.blocks.bounds import chain_bound
from serving_or.blocks.cluster import Cluster
from serving_or.blocks.conservative_greedy import ORDERS, NoPlacement, cg_bprr, place_for
from serving_or.blocks.designs import (
    _dealt,
    _placed,
    _trials,
    _types,
    candidate_designs,
    lanes,
    reserve_for,
    sweep,
    uncontended,
)
from serving_or.blocks.flow import coverage, route_exact
from serving_or.blocks.link_program import enumeration
from serving_or.blocks.plan import Placement
from serving_or.blocks.routing import bulk, lone_bound
from serving_or.tools.answers import Infeasible
from tests.instances import BAD_REQUESTS, EXAMPLE_A, STRANDED, THREE, fleet, tiny_cluster
from tests.long import cases

CLOSE = 1 + 1e-7


# ---- the sweep


def test_bound_optimum_sweep_and_method_in_order():
    rng = np.random.default_rng(4)
    met = better = 0
    for _ in range(120):
        c, R = tiny_cluster(rng), int(rng.integers(1, 5))
        try:
            swept = sweep(c, R)
        except (NoPlacement, Infeasible):
            continue
        best, bound = enumeration(c, R), chain_bound(c, R).value
        assert lone_bound(c, R) <= bound * CLOSE and bound <= best.cost * CLOSE
        assert best.cost <= swept.cost * CLOSE and swept.bound <= best.cost * CLOSE
        try:
            conservative = cg_bprr(c, R)
        except NoPlacement:
            continue
        assert swept.cost <= conservative.cost * CLOSE
        assert conservative.cost <= conservative.guarantee * CLOSE
        met, better = met + 1, better + (swept.cost < conservative.cost - 1e-9)
    assert met > 40 and better > 3


def test_the_worked_examples():
    assert sweep(THREE, 4).cost == 80
    # no single design has a placement; lanes have
    plan = sweep(EXAMPLE_A, 4)
    assert plan.cost == 70 and list(plan.visits) == [12, 2, 2] and plan.guarantee == np.inf


def ways_through(c, placement, client):
    "Cost and caches by server of every chain of a client, by following all."
    found, open_ = [], [(1, 0.0, (0,) * c.n)]
    while open_:
        x, cost, used = open_.pop()
        if x == c.blocks + 1:
            found.append((cost, np.array(used)))
            continue
        for j in range(c.n):
            a, e = int(placement.a[j]), int(placement.a[j] + placement.m[j])
            if placement.m[j] and a <= x < e and np.isfinite(c.rtt[client, j]):
                more = c.rtt[client, j] + c.tau[j] * (e - x)
                taken = tuple(u + (e - x) * (i == j) for i, u in enumerate(used))
                open_.append((e, cost + more, taken))
    return sorted(found, key=lambda way: way[0])


def best_routing(c, placement, demand):
    "The least mean cost of serving all through a placement, by trying all; infinite without one."
    ways = [ways_through(c, placement, k) for k in range(len(demand))]
    who = [k for k, count in enumerate(demand) for _ in range(count)]
    best = np.inf

    def serve(i, least, slots, total):
        nonlocal best
        if total >= best:
            return
        if i == len(who):
            best = total
            return
        # requests of one client take their ways in order
        first = least if i and who[i] == who[i - 1] else 0
        for w, (cost, used) in enumerate(ways[who[i]][first:], first):
            if (used <= slots).all():
                serve(i + 1, w, slots - used, total + cost)

    serve(0, 0, c.slots(placement.m), 0.0)
    return best / len(who)


def clients_that_reach(rng, clients, n):
    "Round trips; now and then a server is out of reach, but some server is not."
    rtt = rng.integers(1, 13, (clients, n)).astype(float)
    rtt[rng.random(rtt.shape) < rng.choice([0.0, 0.3])] = np.inf
    rtt[np.arange(clients), rng.integers(0, n, clients)] = rng.integers(1, 13, clients)
    return rtt


def test_no_design_routed_in_the_best_way_is_cheaper():
    "Against all ways of routing, with ties, several clients, and servers out of reach."
    assert cg_bprr(STRANDED, 4).cost == 38 and sweep(STRANDED, 4).cost == 24.25
    rng = np.random.default_rng(12)
    met = gained = 0
    for _ in range(cases(1000, few=120)):
        n, L, C = int(rng.integers(2, 5)), int(rng.integers(2, 5)), int(rng.integers(1, 3))
        rtt = clients_that_reach(rng, C, n)
        c = Cluster(L, 1, 2, rng.integers(1, 25, n), rng.integers(1, 5, n), rtt)
        demand = rng.integers(1, 4 - C // 2, C)
        costs, greedy = [np.inf], [np.inf]
        for order, design in product(ORDERS, candidate_designs(c, int(demand.sum())).tolist()):
            placement, capacity = place_for(c, demand, design, order)
            if (capacity < demand.sum()).any():
                continue
            costs.append(best_routing(c, placement, demand))
            _, total, rest = bulk(c, placement, demand)
            greedy.append(np.inf if rest.any() else total / demand.sum())
        if np.isfinite(min(costs)):
            plan = sweep(c, demand)
            assert plan.cost <= min(costs) * CLOSE and plan.bound <= plan.cost
            met, gained = met + 1, gained + (min(costs) < min(greedy) * (1 - 1e-9))
    assert met > 50 and gained > 0


# ---- reach


def test_each_client_its_own_server():
    own = Cluster(4, 1, 1, [20, 20], [1, 1], [[5, np.inf], [np.inf, 5]])
    assert sweep(own, [1, 1]).cost == 9
    shared = Cluster(4, 1, 1, [20, 20, 20], [1, 1, 40], [[5, np.inf, 20], [np.inf, 5, 20]])
    plan = sweep(shared, [1, 1])
    assert plan.cost == 9 == plan.guarantee
    # who has no requests does not count
    assert sweep(own, [3, 0]).cost == 9


def test_two_regions_of_many_servers():
    rng = np.random.default_rng(5)
    rtt = rng.uniform(20, 40, (4, 24))
    rtt[:2, 12:] = rtt[2:, :12] = np.inf
    c = Cluster(20, 4, 1, rng.uniform(30, 60, 24), rng.uniform(2, 5, 24), rtt)
    demand = np.array([3, 2, 3, 2])
    both = sweep(c, demand)
    halves = [sweep(c.take(range(12)), [3, 2, 0, 0]), sweep(c.take(range(12, 24)), [0, 0, 3, 2])]
    assert lone_bound(c, demand) <= both.cost <= 1.1 * np.mean([p.cost for p in halves])


def test_servers_out_of_reach_and_the_optimum():
    "Where milp has a plan the sweep has one nearly always, and it is never called cheaper."
    rng = np.random.default_rng(21)
    possible = found = 0
    for _ in range(cases(400, few=30)):
        n, L = int(rng.integers(2, 4)), int(rng.integers(2, 5))
        rtt = clients_that_reach(rng, 2, n)
        c = Cluster(L, 2, 1, rng.integers(8, 30, n), rng.integers(1, 5, n), rtt)
        demand = rng.integers(1, 3, 2)
        try:
            best = enumeration(c, demand)
        except Infeasible:
            with pytest.raises((Infeasible, NoPlacement)):
                sweep(c, demand)
            continue
        possible += 1
        with suppress(NoPlacement):
            plan = sweep(c, demand)
            assert best.cost <= plan.cost * CLOSE and plan.bound <= best.cost * CLOSE
            found += 1
    assert found >= 0.9 * possible > 10


@pytest.mark.parametrize("fast, output, R", [(0.25, 128, 60), (0.25, 2028, 12), (0.0, 128, 4)])
def test_sweep_on_fleets(fast, output, R):
    c = fleet(30, fast, output)
    swept = sweep(c, R)
    assert swept.bound <= swept.cost <= cg_bprr(c, R).cost * CLOSE
    assert (coverage(c, swept.placement) >= R).all()


def test_sweep_of_several_clients_is_the_best_order():
    c = fleet(16, 0.2, clients=3, overhead=5.0)
    demand = [5, 2, 1]
    alone = [sweep(c, demand, orders=order).cost for order in ORDERS]
    assert np.isclose(sweep(c, demand).cost, min(alone))
    assert np.isclose(sweep(c, demand, orders=("max", "mean")).cost, min(alone[:2]))


def test_orders_that_agree_are_tried_once():
    "With one client all do, though a mean of equal times may differ in its last digits."
    rng = np.random.default_rng(0)
    for R in (3, 7, 49):
        c = Cluster(5, 1, 0.1, rng.uniform(9, 20, 30), np.ones(30), rng.uniform(1, 99, 30))
        tried = list(_trials(c, np.array([R]), tuple(ORDERS), 64))
        assert [design for _, design, _ in tried] == candidate_designs(c, R)[::-1].tolist()


def test_designs_are_all_that_matter():
    rng = np.random.default_rng(5)
    for _ in range(60):
        c, R = tiny_cluster(rng), int(rng.integers(1, 12))
        # the largest of equal ones
        every = {tuple(c.counts(x)): x for x in range(1, R + 1)}
        assert list(candidate_designs(c, R)) == sorted(every.values())
    memory = np.random.default_rng(6).uniform(50, 100, 300)
    few = candidate_designs(Cluster(70, 1, 0.01, memory, np.ones(300), np.ones(300)), 5000, most=20)
    assert len(few) <= 20 and few[-1] == 5000 and (np.diff(few) > 0).all()
    # in tenths: what fits but for rounding fits
    for _ in range(60):
        L, block, cache, R = rng.integers(1, 12, 4).tolist()
        c = Cluster(L, block / 10, cache / 10, rng.integers(1, 90, 3) / 10, 1, 1)
        every = {tuple(c.counts(x)): x for x in range(1, R + 1)}
        assert list(candidate_designs(c, R)) == sorted(every.values())
    # of one design, CG-BPRR's own
    assert list(candidate_designs(THREE, 4, most=1)) == [4]
    assert sweep(THREE, 4, most=1).cost == cg_bprr(THREE, 4).cost


def test_of_equally_dear_plans_the_one_with_the_largest_design_stays():
    "The second server holds more under smaller designs, and nobody needs it."
    c = Cluster(4, 4, 1, memory=[200, 24], tau=[1, 50], rtt=[1, 50])
    assert list(candidate_designs(c, 20)) == [2, 4, 8, 20]
    plan = sweep(c, 20)
    assert plan.cost == 5 and plan.design == 20


def test_uncontended_cost_and_number():
    rng = np.random.default_rng(7)
    met = 0
    for _ in range(80):
        n, C, R = int(rng.integers(2, 8)), int(rng.integers(1, 4)), int(rng.integers(2, 9))
        memory, tau = rng.integers(6, 40, n), rng.integers(1, 9, n)
        rtt = rng.integers(1, 30, (C, n))
        c = Cluster(int(rng.integers(1, 10)), 2, 1, memory, tau, rtt)
        try:
            plan = sweep(c, R)
        except (NoPlacement, Infeasible):
            continue
        cost, sessions = uncontended(plan)
        assert sessions >= (plan.design or 1)
        few = int(min(sessions, R))
        demand = rng.multinomial(few, np.ones(C) / C) * (plan.requests > 0)
        free = route_exact(c, plan.placement, demand)
        assert (np.nan_to_num(free.client_cost) <= cost * CLOSE).all()
        met += plan.design is not None and plan.design < R
    assert met > 5


@pytest.mark.parametrize("unit", [1e-9, 1e-3, 1 / 3, 2.0**-30, 1024.0, 1e12])
def test_the_unit_of_time_changes_no_placement(unit):
    "Nor a plan: equal chains are equal in every unit."
    rng = np.random.default_rng(8)
    for _ in range(cases(200, few=25)):
        n, L, R = int(rng.integers(2, 8)), int(rng.integers(1, 8)), int(rng.integers(1, 6))
        memory, tau, rtt = rng.integers(3, 20, n), rng.integers(1, 6, n), rng.integers(0, 7, (2, n))
        c = Cluster(L, 2, 1, memory, tau, rtt)
        other = replace(c, tau=c.tau * unit, rtt=c.rtt * unit)
        assert lanes(c, R) == lanes(other, R)
        for design in range(1, R + 1):
            here, there = (place_for(x, c.demand(R), design, "mean")[0] for x in (c, other))
            assert here == there
        with suppress(NoPlacement, Infeasible):
            here, there = sweep(c, R), sweep(other, R)
            assert np.isclose(here.cost * unit, there.cost, rtol=1e-12)
            assert here.placement == there.placement and set(here.chains) == set(there.chains)


def test_a_bound_is_reported_and_a_wrong_one_refused():
    assert sweep(THREE, 4, bound=75).bound == 75 and sweep(THREE, 4, bound=3).bound == 70
    assert sweep(THREE, 4, bound=80).status == "optimal"
    with pytest.raises(ValueError, match="bound 85.0 is above the cost 80.0"):
        sweep(THREE, 4, bound=85)


def test_sweep_keeps_its_time():
    c = fleet(400, 0.2, clients=5, overhead=5.0)
    sweep(fleet(8), 3)
    for limit in (0.0, 0.5):
        began = process_time()
        plan = sweep(c, [500, 300, 200, 200, 100], time_limit=limit)
        assert process_time() - began < limit + 0.5
        assert limit > 0 or plan.status == "time_limit"
        assert plan.bound <= plan.cost


def test_nothing_is_printed_unless_verbose(capfd):
    sweep(THREE, 4)
    assert capfd.readouterr() == ("", "")
    sweep(THREE, 4, verbose=True)
    said = capfd.readouterr()
    assert said.out == "" and "sweep: " in said.err and "gap 12.50%" in said.err


# ---- lanes


@given(st.integers(0, 10**6))
def test_lanes_cover(seed):
    rng = np.random.default_rng(seed)
    kinds, n = int(rng.integers(1, 3)), int(rng.integers(1, 9))
    M, tau = rng.integers(4, 30, kinds).astype(float), rng.integers(1, 9, kinds).astype(float)
    kind = rng.integers(0, kinds, n)
    c = Cluster(int(rng.integers(1, 9)), 2, 1, M[kind], tau[kind], rng.integers(1, 20, n))
    R = int(rng.integers(1, 9))
    p = lanes(c, R)
    if p is None:
        return
    assert (coverage(c, p) >= R).all()
    assert route_exact(c, p, R).cost >= lone_bound(c, R) / CLOSE


def test_lanes_for_clients_that_reach_some_servers():
    "Everybody is served, and nothing is dearer than lanes on the servers that all reach."
    rng = np.random.default_rng(15)
    apart = together = 0
    for _ in range(cases(800, few=80)):
        n, C, kinds = int(rng.integers(4, 13)), int(rng.integers(2, 4)), int(rng.integers(1, 3))
        kind = rng.integers(0, kinds, n)
        M, tau = rng.integers(10, 30, kinds), rng.integers(1, 9, kinds)
        rtt = clients_that_reach(rng, C, n)
        rtt[:, ::2][rng.random(rtt[:, ::2].shape) < 0.7] = np.inf
        c = Cluster(int(rng.integers(1, 6)), 2, 1, M[kind], tau[kind], rtt)
        demand = rng.integers(0, 4, C)
        p = lanes(c, demand)
        common = np.flatnonzero(np.isfinite(rtt[demand > 0]).all(axis=0))
        shared = lanes(c.take(common), demand) if len(common) else None
        assert p is not None or shared is None
        if p is None:
            continue
        cost = route_exact(c, p, demand).cost
        assert (coverage(c, p) >= demand.sum()).all() and cost >= lone_bound(c, demand) / CLOSE
        together, apart = together + (shared is not None), apart + (shared is None)
    assert apart >= 5 and together >= 5, (apart, together)


def test_shared_servers_are_dealt_to_who_has_least():
    "Client 0 has a server of its own, so the one that both reach works for client 1."
    c = Cluster(2, 2, 1, [8, 8], [1, 9], [[5, 5], [np.inf, 5]])
    p = lanes(c, [1, 1])
    # on the second server alone, both would take 5 + 2 · 9
    assert p.m.tolist() == [2, 2] and route_exact(c, p, [1, 1]).cost == (7 + 23) / 2
    # two regions, each with the fleet that no single design serves
    near, out = [10] * 3, [np.inf] * 3
    two = Cluster(4, 4, 1, [24, 6, 6] * 2, [10, 20, 20] * 2, [near + out, out + near])
    assert lanes(two, [4, 4]).a.tolist() == [1, 4, 4] * 2 and sweep(two, [4, 4]).cost == 70
    # one of them in want
    assert lanes(two, [4, 40]) is None
    # a server for one session each; the largest, which both reach, must work for client 0
    c = Cluster(2, 2, 1, [6.5, 6, 7], [1] * 3, [[5, np.inf, 5], [np.inf, 5, 5]])
    assert lanes(c, [2, 1]).m.tolist() == [2, 2, 2] and lanes(c, [2, 2]) is None
    # one's own server at 30 and the shared one at 23 cost more than twice the shared one
    c = Cluster(2, 2, 1, [8] * 3, [12, 12, 9], [[6, np.inf, 5], [np.inf, 6, 5]])
    assert lanes(c, [1, 1]).m.tolist() == [0, 0, 2]
    # of servers that both reach the largest is dealt first, so the two others go together
    c = Cluster(2, 1, 1, [3, 4, 3], 1, 1)
    assert _dealt(c, np.ones((2, 3), bool), np.array([1, 1])).tolist() == [1, 0, 1]


def test_lanes_in_units_cover_too():
    # 200 requests times 11 · 31 numbers of servers is too much, so requests are counted in twos
    c = fleet(40, 0.25)
    p = lanes(c, 200)
    assert p is not None and (coverage(c, p) >= 200).all()


def best_lane_cost(c, R):
    "The least cost of lanes on a line of equal servers, by trying all ways to cut and to share."

    def segment(length, requests, servers):
        if requests <= 0:
            return {0: 0.0}
        found = {}
        for q in range(1, min(length, servers) + 1):
            room = int(c.sessions(np.full(c.n, -(-length // q)))[0])
            if room >= 1:
                here = min(room, requests) * (q * c.rtt[0, 0] + c.tau[0] * length)
                for used, cost in segment(length, requests - room, servers - q).items():
                    found[used + q] = min(found.get(used + q, np.inf), cost + here)
        return found

    def line(length, servers):
        if length == 0:
            return 0.0
        ways = product(range(1, length + 1), [servers])
        return min(
            (
                cost + line(length - first, servers - used)
                for first, left in ways
                for used, cost in segment(first, R, left).items()
            ),
            default=np.inf,
        )

    return line(c.blocks, c.n) / R


def test_the_nearest_server_goes_where_most_requests_pass():
    c = Cluster(4, 1, 1, [9, 9], 1, [7, 2])
    placement = _placed(c, _types(c, np.array([3])), [[(1, 1, 2), (3, 3, 2)]])
    assert placement.a.tolist() == [1, 3]


@pytest.mark.parametrize("requests", [9999, 10_000, 10_001, 12_345, 77_777])
def test_units_of_requests_are_rounded_up_and_room_down(requests):
    c = Cluster(3, 1, 1, [30_000.0] * 9, 1, 1)
    types = _types(c, np.array([requests]))
    assert types.unit > 1 and types.requests * types.unit >= requests
    assert types.requests == -(-requests // types.unit)
    sessions = [c.sessions([m] * 9)[0] for m in (1, 2, 3)]
    assert (types.room[0] == np.array(sessions) // types.unit).all()


def test_lanes_are_the_cheapest_lanes():
    rng = np.random.default_rng(9)
    met = 0
    for _ in range(60):
        n, L, R = int(rng.integers(1, 6)), int(rng.integers(1, 6)), int(rng.integers(1, 12))
        M, tau, t = int(rng.integers(4, 20)), int(rng.integers(0, 9)), int(rng.integers(0, 20))
        c = Cluster(L, 2, 1, [M] * n, [tau] * n, [t] * n)
        best, p = best_lane_cost(c, R), lanes(c, R)
        assert (p is None) == np.isinf(best)
        if p is not None:
            met += 1
            assert route_exact(c, p, R).cost <= best * CLOSE
    assert met > 15


def test_lanes_of_equal_servers_by_hand():
    "A server holds 3 blocks for one request, 2 for two or 1 for seven."
    c = Cluster(6, 2, 1, [9] * 6, [1] * 6, [10] * 6)
    assert [int(c.sessions([k] * 6)[0]) for k in (1, 2, 3)] == [7, 2, 1]
    # three lanes of two servers; two lanes of three servers, two requests each
    assert np.isclose(route_exact(c, lanes(c, 3), 3).cost, 2 * 10 + 6)
    assert np.isclose(route_exact(c, lanes(c, 4), 4).cost, 3 * 10 + 6)


def test_a_short_lane_beside_a_long_one():
    "A large server has room for one request with all blocks, small ones with one block each."
    c = Cluster(4, 2, 2, [16, 4, 4, 4, 4], [1] * 5, [10] * 5)
    assert list(lanes(c, 2).m) == [4, 1, 1, 1, 1]


def test_many_requests_on_few_servers_are_quick():
    c = Cluster(30, 2, 0.001, [40] * 6, [1] * 6, [10] * 6)
    began = process_time()
    p = lanes(c, 7000)
    assert process_time() - began < 5 and (p is None or (coverage(c, p) >= 7000).all())


def test_lanes_keep_their_time():
    c = fleet(60, 0.2)
    for limit in (0.0, 0.3):
        began = process_time()
        lanes(c, 300, time_limit=limit)
        assert process_time() - began < limit + 0.5


def test_thousands_of_different_servers_are_no_lanes():
    n = 1100
    c = Cluster(2, 1, 1, np.arange(n) + 5.0, np.ones(n), np.ones(n))
    assert lanes(c, 3) is None and sweep(c, 3, most=2).cost > 0


# ---- edges


def test_no_requests():
    plan = sweep(fleet(6), 0)
    assert plan.cost == 0 and lanes(fleet(6), 0) is None
    assert sweep(Cluster(4, 2, 1, [4, 1], [1, 2], [3, 5]), 0).cost == 0


def test_one_block_one_server_and_free_caches():
    # three requests on the first server, one on the second
    assert sweep(Cluster(1, 1, 1, [5, 2], [1, 2], [3, 1]), 4).cost == 3.75
    assert sweep(Cluster(3, 1, 1, [100], [1], [2]), 5).cost == 5
    free = Cluster(3, 1, 0, [3, 2], [1, 1], [2, 1])
    plan = sweep(free, 10**5)
    assert plan.cost == 5 and list(candidate_designs(free, 7)) == [7]
    assert coverage(free, plan.placement).min() >= 10**5


def test_infeasible_and_not_found():
    with pytest.raises(Infeasible) as error:
        sweep(Cluster(4, 4, 1, [4, 4, 4], [1, 1, 1], [1, 1, 1]), 1)
    assert error.value.largest == 0 and error.value.blocks_short == 4
    with pytest.raises(NoPlacement, match="up to 4 requests") as missing:
        sweep(THREE, 6)
    assert missing.value.blocks_short >= 1 and missing.value.largest == 4
    with pytest.raises(Infeasible):
        enumeration(THREE, 6)


def test_unreachable_server_is_not_used():
    c = Cluster(2, 1, 1, [20, 20], [1, 1], [[1, np.inf], [1, 3]])
    assert all(chain.servers == (0,) for chain in sweep(c, [1, 1]).chains if chain.client == 0)
    assert sweep(c, [0, 2]).cost == 3


@pytest.mark.parametrize("requests", BAD_REQUESTS)
def test_bad_requests(requests):
    c = Cluster(4, 2, 1, [20, 12], [1, 2], [[3, 5]] * 3)
    for door in (sweep, lanes):
        with pytest.raises(ValueError, match="requests"):
            door(c, requests)


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: sweep(THREE, 4, orders=()), "orders is empty"),
        (lambda: sweep(THREE, 4, orders=("max", "median")), r"orders\[1\] is 'median'"),
        (lambda: sweep(THREE, 4, orders=(None,)), r"orders\[0\] is None"),
        (lambda: sweep(THREE, 4, most=0), "most is 0"),
        (lambda: sweep(THREE, 4, most=2.5), "most is 2.5"),
        (lambda: sweep(THREE, 4, bound=np.nan), "bound is nan"),
        (lambda: sweep(THREE, 4, bound=-1), "bound is -1"),
        (lambda: sweep(THREE, 4, bound=np.inf), "bound is inf"),
        (lambda: sweep(THREE, 4, time_limit=-1), "time_limit is -1"),
        (lambda: sweep(THREE, 4, time_limit=np.nan), "time_limit is nan"),
        (lambda: sweep(THREE, 4, time_limit="1"), "time_limit is '1'"),
        (lambda: lanes(THREE, 4, time_limit=-0.1), "time_limit is -0.1"),
    ],
)
def test_bad_input_says_what_is_wrong(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("unit", [5e-324, 1e-300, 1e-150, 1e99])
def test_extreme_times(unit):
    c = Cluster(4, 4, 1, [16, 12, 12], np.array([1, 2, 2]) * unit, np.array([1, 1, 1]) * unit)
    plan = sweep(c, 4)
    assert plan.bound <= plan.cost and np.isfinite(plan.cost)


def test_live_example():
    for c, R, cost in ((6, 6, "74.0"), (7, 7, "101.0"), (5, 7, "78.3")):
        assert f"design {c}: {cost} ms" in reserve_for(c, R)
    assert "design 1: no plan" in reserve_for(1, 8)
    with pytest.raises(ValueError, match="design is 11"):
        reserve_for(11, 8)


def test_placements_are_plain_values():
    p = lanes(EXAMPLE_A, 4)
    assert p == Placement([1, 4, 4], [3, 1, 1])
    with pytest.raises(ValueError):
        p.a[0] = 2
