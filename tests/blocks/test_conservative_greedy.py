"CG-BPRR: the rule as it reads, tiling, guarantee, feasibility, optimum by enumeration, edges."

import pickle
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_or.blocks.cluster import Cluster
from serving_or.blocks.conservative_greedy import (
    ORDERS,
    NoPlacement,
    cg_bp,
    cg_bprr,
    conservative_or_not,
    fastest,
    groups_of_clients,
    guarantee,
    largest_requests,
    near_rtt,
    nested,
    order_rtt,
    pace,
    spread,
    spread_by_reach,
    tile,
    tile_by_reach,
    weakest,
    window_rule,
    windows_by_reach,
)
from serving_or.blocks.link_program import enumeration
from serving_or.blocks.plan import Placement, check
from serving_or.tools.answers import Infeasible, NotFound
from tests.instances import BAD_REQUESTS, EXAMPLE_A, THREE
from tests.long import cases

CLOSE = 1 + 1e-12


def random_cluster(rng, clients=None, whole=False):
    "Servers from too small for a block to large enough for all; sometimes with twins and ties."
    n, L, C = rng.integers(1, 12), rng.integers(1, 16), clients or rng.integers(1, 4)
    numbers = lambda low, high, size: rng.integers(np.ceil(low), high + 1, size).astype(float)
    draw = numbers if whole else rng.uniform
    M, tau, rtt = draw(0.5, 40, n), draw(0, 20, n), draw(0, 60, (C, n))
    if n > 2 and rng.random() < 0.3:
        M[1], tau[1], rtt[:, 1] = M[0], tau[0], rtt[:, 0]
    return Cluster(int(L), float(draw(1, 4, 1)[0]), float(draw(0.05, 1.5, 1)[0]), M, tau, rtt)


def slow_rule(m, f, speed, L, R):
    "The placement rule in plain Python, window by window, both phases."
    order = sorted((j for j in range(len(m)) if np.isfinite(speed[j])), key=lambda j: (speed[j], j))
    price = 2 * max((speed[j] for j in order), default=0) or 1.0
    C, T, a = [0.0] * L, [R * price] * L, [1] * len(m)
    for j in order:
        starts = range(L - m[j] + 1)
        if any(c < R for c in C):
            open_ = [s for s in starts if any(c < R for c in C[s : s + m[j]])]
            value = {s: sum(T[s : s + m[j]]) for s in open_}
            best = max(value.values())
            s = next(s for s in open_ if value[s] >= best - 1e-9 * R * price)
        else:
            s = min(starts, key=lambda s: (sorted(C[s : s + m[j]]), s))
        for b in range(s, s + m[j]):
            T[b] -= (price - speed[j]) * min(max(R - C[b], 0), f[j])
            C[b] += f[j]
        a[j] = s + 1
    return np.array(a), np.array(C)


def parts(c, R, design, order="max"):
    t = order_rtt(c, c.demand(R), order)
    m = np.where(np.isfinite(t), c.counts(design), 0)
    return m, c.sessions(m), pace(c, m, t)


def test_tiling_guarantee_and_feasibility_on_many_clusters():
    rng = np.random.default_rng(1)
    placed = failed = 0
    while placed < 400:
        c, R = random_cluster(rng, whole=rng.random() < 0.5), int(rng.integers(1, 9))
        order = str(rng.choice(list(ORDERS)))
        m, f, speed = parts(c, R, R, order)
        assert (m.sum() >= c.blocks) == (R <= largest_requests(c, R))
        if m.sum() < c.blocks:
            failed += 1
            with pytest.raises((NoPlacement, Infeasible)):
                cg_bprr(c, R, order=order)
            continue
        placed += 1
        a, C, rest = window_rule(m, f, speed, c.blocks, R)
        tiles, left = fastest(m, speed, c.blocks)
        assert (a == tile(m, tiles, c.blocks)).all() and (rest == left).all() and (C >= R).all()
        plan = cg_bprr(c, R, order=order)
        assert plan.bound <= plan.cost * CLOSE
        assert np.nanmax(plan.client_cost) <= plan.guarantee * CLOSE
        assert (slow_rule(m, f, speed, c.blocks, R)[0][m > 0] == plan.placement.a[m > 0]).all()
    assert failed > 50


def test_window_rule_and_spread_are_the_rule_for_any_design():
    rng = np.random.default_rng(2)
    covered = 0
    for _ in range(300):
        c, R = random_cluster(rng), int(rng.integers(1, 9))
        design = int(rng.integers(1, R + 1))
        m, f, speed = parts(c, R, design)
        a, C, rest = window_rule(m, f, speed, c.blocks, R)
        if (C >= R).all():
            spread(a, C, rest, m, f)
            covered += 1
        slow_a, slow_C = slow_rule(m, f, speed, c.blocks, R)
        assert (a[m > 0] == slow_a[m > 0]).all() and np.allclose(C, slow_C)
        held = Placement(a, m).hosts(c.blocks).T @ f
        assert np.allclose(held, C)
    assert covered > 80


@given(st.integers(0, 10**6), st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_units_do_not_matter(seed, times, sizes):
    rng = np.random.default_rng(seed)
    c, R = random_cluster(rng), int(rng.integers(1, 6))
    design = int(rng.integers(1, R + 1))
    other = replace(
        c,
        tau=c.tau * times,
        rtt=c.rtt * times,
        memory=c.memory * sizes,
        block_size=c.block_size * sizes,
        cache_size=c.cache_size * sizes,
    )
    try:
        plan = cg_bprr(c, R, design)
    except (Infeasible, NotFound) as error:
        with pytest.raises(type(error)):
            cg_bprr(other, R, design)
        return
    again = cg_bprr(other, R, design)
    assert np.isclose(again.cost, plan.cost * times, rtol=1e-9)
    assert (again.placement.m == plan.placement.m).all()


@given(st.integers(0, 10**6))
def test_order_of_servers_does_not_matter_without_ties(seed):
    rng = np.random.default_rng(seed)
    c, R = random_cluster(rng), int(rng.integers(1, 6))
    m, _, speed = parts(c, R, R)
    if m.sum() < c.blocks or len(set(speed[m > 0])) < (m > 0).sum():
        return
    shuffled = c.take(rng.permutation(c.n))
    assert np.isclose(cg_bprr(c, R).cost, cg_bprr(shuffled, R).cost)
    assert np.isclose(guarantee(c, R), guarantee(shuffled, R))


def test_bound_optimum_method_guarantee_in_order():
    rng = np.random.default_rng(6)
    better = met = 0
    for _ in range(150):
        n, L, R = int(rng.integers(1, 4)), int(rng.integers(1, 5)), int(rng.integers(1, 5))
        c = Cluster(L, 3, 1, rng.integers(4, 25, n), rng.integers(1, 20, n), rng.integers(1, 20, n))
        try:
            plan = cg_bprr(c, R)
        except (NoPlacement, Infeasible):
            continue
        optimum = enumeration(c, R).cost
        assert plan.bound <= optimum * CLOSE and optimum <= plan.cost * CLOSE
        assert plan.cost <= plan.guarantee * CLOSE
        better += optimum < plan.cost - 1e-9
        met += 1
    assert met > 50 and better > 5


def test_the_two_worked_examples():
    with pytest.raises(NoPlacement, match="1 of 4 blocks .* up to 2 requests") as error:
        cg_bprr(EXAMPLE_A, 4)
    assert (error.value.blocks_short, error.value.largest) == (1, 2)
    plan = enumeration(EXAMPLE_A, 4)
    assert plan.cost == 70 and list(plan.visits) == [12, 2, 2]
    assert (EXAMPLE_A.memory == 4 * plan.placement.m + plan.visits).all()
    greedy = cg_bprr(THREE, 4)
    assert greedy.cost == greedy.guarantee == 90
    assert list(greedy.placement.a) == [1, 3, 4] and list(greedy.placement.m) == [2, 1, 1]
    plan = enumeration(THREE, 4)
    assert plan.cost == 80 and (THREE.memory == 4 * plan.placement.m + plan.visits).all()
    assert cg_bprr(THREE, 4, design=2).cost == 80


@given(st.integers(0, 10**6))
def test_largest_number_of_requests(seed):
    rng = np.random.default_rng(seed)
    c = random_cluster(rng)
    most = largest_requests(c)
    if most:
        assert cg_bp(c, most).hosts(c.blocks).any(axis=0).all()
    with pytest.raises(NoPlacement) as error:
        cg_bp(c, most + 1)
    assert error.value.largest == most
    assert error.value.blocks_short == c.blocks - c.counts(most + 1).sum() > 0
    space = c.blocks + c.n - 1
    assert np.floor((c.memory.sum() - c.block_size * space) / (c.cache_size * space)) <= most


# ---- many alike servers, and clients that reach only some servers


def test_what_recurs_is_what_the_rule_chooses_one_by_one():
    rng = np.random.default_rng(3)
    for _ in range(cases(2000)):
        L, kinds, n = int(rng.integers(1, 30)), rng.integers(1, 4), int(rng.integers(1, 400))
        of = np.sort(rng.integers(0, kinds, n))
        m, f = rng.integers(1, L + 1, kinds)[of], rng.integers(1, 4, kinds)[of].astype(float)
        C = rng.integers(0, 3, L) * float(rng.integers(1, 20))
        a, slow_C, many_C = np.ones(n, int), C.copy(), C.copy()
        spread(a, many_C, np.arange(n), m, f)
        for j, k in enumerate(m):
            start = weakest(slow_C, np.add.outer(np.arange(L - k + 1), np.arange(k)))
            slow_C[start : start + k] += f[j]
            assert a[j] == start + 1
        assert (slow_C == many_C).all()


def reached_cluster(rng, kind):
    "Up to four clients; reach is nested (regions in regions), or random."
    n, C = int(rng.integers(1, 6)), int(rng.integers(2, 5))
    if kind == "nested":
        sets = [range(C), range(C // 2), range(C // 2, C), *([c] for c in range(C))]
        reach = np.array([np.isin(np.arange(C), sets[rng.integers(len(sets))]) for _ in range(n)]).T
    else:
        reach = rng.random((C, n)) < 0.6
    rtt = np.where(reach, rng.integers(1, 20, (C, n)), np.inf)
    L, memory, tau = int(rng.integers(1, 5)), rng.integers(3, 20, n), rng.integers(1, 9, n)
    return Cluster(L, 2, 1, memory, tau, rtt)


def spans_for_all(groups, m, L):
    "Whether some spans of m blocks cover the line for every group, by trying all."
    ways = product(*(range(1, L - k + 2) if k else [1] for k in m.tolist()))
    return any(
        all((Placement(a, m).hosts(L)[those]).any(axis=0).all() for those in groups) for a in ways
    )


@pytest.mark.parametrize("kind", ["nested", "random"])
def test_clients_that_reach_only_some_servers(kind):
    rng = np.random.default_rng(31)
    placed = missed = several = 0
    for _ in range(cases(3000, few=200)):
        c = reached_cluster(rng, kind)
        demand = rng.integers(0, 3, len(c.clients))
        R = int(demand.sum())
        groups, wanted = groups_of_clients(c, demand)
        if R == 0 or len(groups) == 1:
            continue
        m = c.counts(R)
        assert wanted.sum() == R and (np.diff(groups @ c.memory) >= 0).all()
        most = largest_requests(c, demand)
        enough, possible = (groups @ m >= c.blocks).all(), spans_for_all(groups, m, c.blocks)
        speed = pace(c, m, near_rtt(c, demand))
        tiled = not tile_by_reach(groups, m, speed, c.blocks)[2].any()
        assert possible or not tiled
        if nested(groups[:, m > 0]):
            assert tiled == enough == possible
        if nested(groups[:, m > 0]) and tiled:
            _, tiles, _ = tile_by_reach(groups, m, speed, c.blocks)
            own = np.zeros(c.n, bool)
            for those in groups:
                first = fastest(np.where(those, m, 0), np.where(those, speed, np.inf), c.blocks)
                own[first[0]] = True
            # nobody but the groups' own tiles
            assert not tiles.any(axis=0)[~own].any() and (tiles <= groups).all()
        missed += possible and not tiled
        assert kind == "random" or (R <= most) == tiled
        if not tiled:
            with pytest.raises((NoPlacement, Infeasible)):
                cg_bprr(c, demand)
            continue
        plan = cg_bprr(c, demand)
        placed, several = placed + 1, several + (len(groups) > 2)
        assert plan.bound <= plan.cost * CLOSE
        assert np.nanmax(plan.client_cost) <= plan.guarantee * CLOSE < np.inf
        assert guarantee(c, demand) == plan.guarantee
        # clients without requests do not matter
        some = demand > 0
        same = cg_bprr(replace(c, rtt=c.rtt[some], clients=()), demand[some])
        assert same.placement == plan.placement and np.isclose(same.cost, plan.cost)
    assert placed > 30 and several > 5 and missed < 0.02 * placed + 1


def test_three_clients_that_each_reach_two_servers():
    "Each reaches blocks enough, and no placement serves them all."
    around = [[5, 5, np.inf], [5, np.inf, 5], [np.inf, 5, 5]]
    c = Cluster(2, 4, 1, [7, 7, 7], [1, 1, 1], around)
    assert not nested(np.isfinite(around))
    with pytest.raises(NoPlacement, match="that every client reaches who needs it"):
        cg_bprr(c, [1, 1, 1])
    with pytest.raises(Infeasible):
        enumeration(c, [1, 1, 1])
    assert cg_bprr(c, [1, 1, 0]).cost == 12


def test_the_last_tile_runs_what_is_left():
    c = Cluster(10, 2, 1, memory=[25, 17, 9], tau=[3, 1, 1], rtt=[6, 8, 4])
    assert guarantee(c, 2) == 8 + 4 + 4 + 2 + 6 + 3 * 4


def test_tiles_of_most_groups_choose_first():
    "In order of pace alone the third server, which both reach, splits what the last one needs."
    groups = np.array([[1, 1, 1, 0], [0, 1, 0, 1]], bool)
    a, _, bare = tile_by_reach(groups, np.array([2, 2, 2, 4]), np.array([1.0, 2, 3, 4]), 6)
    assert not bare.any() and a.tolist() == [3, 1, 5, 3]


def test_servers_left_over_go_where_a_group_has_least():
    groups = np.array([[1, 1, 0, 0, 1], [0, 0, 1, 1, 1]], bool)
    a, m, f = np.array([1, 2, 1, 2, 1]), np.ones(5, int), np.array([1.0, 2, 9, 2, 1])
    spread_by_reach(a, groups, np.array([4]), m, f, 2)
    assert a[4] == 1
    # by windows: after four servers both requests have a session everywhere, then in turn
    together, m = np.ones((1, 6), bool), np.ones(6, int)
    a, C = windows_by_reach(together, np.array([2]), m, np.ones(6), np.arange(1.0, 7), 2)
    assert a[4:].tolist() == [1, 2] and C.tolist() == [2, 2]


def test_each_client_its_own_server():
    own = Cluster(4, 1, 1, [20, 20], [1, 1], [[5, np.inf], [np.inf, 5]])
    assert cg_bprr(own, [1, 1]).cost == 9 == guarantee(own, [1, 1])
    # a slow server that both reach, 20 + 4 * 40
    shared = Cluster(4, 1, 1, [20, 20, 20], [1, 1, 40], [[5, np.inf, 20], [np.inf, 5, 20]])
    assert cg_bprr(shared, [1, 1]).cost == 9 and cg_bprr(shared.take([2]), [1, 1]).cost == 180
    assert cg_bprr(shared, [1, 1], design=1).cost == 9
    with pytest.raises(Infeasible):
        cg_bprr(own.take([0]), [1, 1])


# ---- edges


def simple(**change):
    usual = dict(blocks=4, block_size=2, cache_size=1, memory=[20, 12], tau=[1, 2], rtt=[[3, 5]])
    return Cluster(**(usual | change))


def test_server_too_small_for_a_block_stays_out():
    c = simple(memory=[20, 1.9, 12], tau=[1, 0, 2], rtt=[[3, 0, 5]])
    plan = cg_bprr(c, 2)
    assert plan.placement.m[1] == 0 and all(1 not in chain.servers for chain in plan.chains)
    assert plan.cost == cg_bprr(c.take([0, 2]), 2).cost


def test_one_server_holds_all():
    plan = cg_bprr(simple(memory=[100, 12]), 3)
    assert plan.placement.m[0] == 4 and plan.status == "optimal"
    assert plan.guarantee == plan.cost == 3 + 4 * 1


def test_no_requests():
    # the second cannot hold the model
    for c in (simple(), simple(memory=[4, 1])):
        plan = cg_bprr(c, 0)
        assert plan.cost == 0 and plan.chains == () and plan.status == "optimal"
        assert plan.guarantee == np.inf


def test_one_block():
    plan = cg_bprr(simple(blocks=1), 3)
    assert list(plan.placement.m) == [1, 1] and plan.cost == 4 == plan.bound


def test_caches_without_size():
    c = simple(cache_size=0, memory=[5, 5])
    assert largest_requests(c) == np.inf
    assert largest_requests(simple(cache_size=0, memory=[5, 1])) == 0
    plan, one = cg_bprr(c, 10**6), cg_bprr(c, 1)
    assert plan.placement == one.placement and plan.cost == one.cost <= plan.guarantee
    # infinite sessions in the second phase
    extra = cg_bprr(simple(cache_size=0, memory=[8, 8, 4], tau=[1, 1, 1], rtt=[[1, 1, 1]]), 7)
    assert list(extra.placement.a) == [1, 1, 1] and extra.cost == 5


def test_ties_go_to_the_first_and_twins_are_tiled():
    c = simple(memory=[8, 8, 8], tau=[1, 1, 1], rtt=[[2, 2, 2]])
    plan = cg_bprr(c, 1)
    assert list(plan.placement.a) == [1, 3, 1] and list(plan.placement.m) == [2, 2, 2]


def test_unreachable_servers_and_clients():
    c = simple(rtt=[[3, np.inf], [3, 5]], memory=[20, 100])
    # client 0 reaches only server 0
    with pytest.raises(NoPlacement) as error:
        cg_bprr(c, [4, 4])
    assert error.value.blocks_short == 2 and error.value.largest == largest_requests(c, [1, 1]) == 3
    assert cg_bprr(c, [0, 8]).placement.m[1] == 4 and largest_requests(c, [0, 1]) > 8
    assert cg_bprr(c, [1, 1]).chains[0].servers == (0,)
    with pytest.raises(Infeasible, match="client 0"):
        cg_bprr(simple(rtt=[[np.inf, np.inf], [3, 5]]), [1, 1])


def test_memory_at_the_edge_of_a_block():
    for M, held in ((0.3, 3), (0.3 * (1 - 1e-6), 2), (3 * 0.1, 3)):
        c = Cluster(3, 0.07, 0.03, [M], [1], [1])
        # 0.3 / (0.07 + 0.03) is 2.9999999999999996 in floats
        assert c.counts(1)[0] == held
    assert cg_bprr(Cluster(3, 0.07, 0.03, [0.3], [1], [1]), 1).cost == 4


def test_requests_of_several_clients():
    c = simple(rtt=[[3, 5], [5, 3]], memory=[40, 40])
    plan = cg_bprr(c, [2, 1])
    assert {chain.client: chain.count for chain in plan.chains} == {0: 2, 1: 1}
    assert list(plan.client_cost) == [7, 9] and np.isclose(plan.cost, (2 * 7 + 9) / 3)


def test_design_above_the_requests_is_safe():
    c = simple(memory=[40, 40])
    plan = cg_bprr(c, 2, design=5)
    assert plan.design == 5 and plan.cost <= plan.guarantee < np.inf
    check(c, plan.placement, [replace(plan.chains[0], count=5)], 5)


@pytest.mark.parametrize("requests", BAD_REQUESTS)
def test_bad_requests(requests):
    c = simple(rtt=[[3, 5]] * 3)
    for door in (cg_bp, cg_bprr, guarantee, largest_requests):
        with pytest.raises(ValueError, match="requests"):
            door(c, requests)


@pytest.mark.parametrize("bad", [-1, 0.5, np.nan, np.inf, "2", True, 2j, [2], 1e300, {}])
def test_bad_designs(bad):
    for door in (cg_bp, cg_bprr, guarantee):
        with pytest.raises(ValueError, match=r"design is .*; it must be a whole number, at least"):
            door(simple(), 1, bad)


@pytest.mark.parametrize("bad", ["median", "", None, 1, ["max"], np.nan])
def test_bad_orders(bad):
    for door in (cg_bp, cg_bprr, guarantee):
        with pytest.raises(ValueError, match=r"order is .*; it must be one of 'max', 'mean'"):
            door(simple(), 1, order=bad)


def test_a_design_that_does_not_cover_says_which_block():
    c = Cluster(7, 6, 1, [23, 27, 34], [2, 2, 5], [15, 19, 19])
    with pytest.raises(NotFound, match="first is 1"):
        cg_bprr(c, 4, design=1)


def test_errors_travel_between_processes():
    with pytest.raises(NoPlacement) as error:
        cg_bprr(EXAMPLE_A, 4)
    again = pickle.loads(pickle.dumps(error.value))
    assert type(again) is NoPlacement and str(again) == str(error.value)
    assert (again.blocks_short, again.largest, again.served) == (1, 2, 0)
    assert list(again.unserved) == [4]


# ---- extremes


def scaled(c, times):
    "The same fleet with times in another unit."
    return replace(c, tau=c.tau * times, rtt=c.rtt * times)


@given(st.integers(0, 10**6), st.sampled_from([1e-3, 1e3, 1e-6, 0.1, 1 / 3, 7.3]))
def test_the_unit_of_time_does_not_break_ties(seed, times):
    "Whole numbers: equal paces are many, and only rounding could tell them apart."
    rng = np.random.default_rng(seed)
    n, L, R = int(rng.integers(2, 9)), int(rng.integers(1, 10)), int(rng.integers(1, 6))
    rtt = rng.integers(0, 7, (int(rng.integers(1, 4)), n))
    c = Cluster(L, 2, 1, rng.integers(3, 20, n), rng.integers(1, 6, n), rtt)
    for order in ORDERS:
        for design in (R, max(1, R - 1)):
            try:
                p = cg_bp(c, R, design, order)
            except NoPlacement:
                continue
            assert cg_bp(scaled(c, times), R, design, order) == p


def test_a_fleet_in_seconds_costs_what_it_costs_in_milliseconds():
    "Three paces that agree, 0.4 each, and sums of floats that do not."
    c = Cluster(6, 1, 0, [3] * 4, np.array([1, 3, 2, 3]) / 10, np.array([9, 3, 6, 3]) / 10)
    assert len(set(pace(c, c.counts(1), c.rtt[0]))) == 1
    assert cg_bp(c, 1) == cg_bp(scaled(c, 1e-3), 1) == cg_bp(scaled(c, 10), 1)


@pytest.mark.parametrize("unit", [5e-324, 1e-300, 1e-150, 1e99])
def test_extreme_times(unit):
    c = replace(simple(memory=[10, 10]), tau=[1 * unit, 2 * unit], rtt=[[3 * unit, 5 * unit]])
    plan = cg_bprr(c, 2)
    assert plan.bound <= plan.cost <= plan.guarantee * (1 + 1e-9)
    assert list(plan.placement.m) == [2, 2]


def test_extreme_numbers_of_requests():
    c = simple()
    for R in (2**53, 10**15):
        with pytest.raises(NoPlacement):
            cg_bprr(c, R)
    assert largest_requests(simple(cache_size=5e-324)) == np.inf
    assert largest_requests(simple(cache_size=1e-300, memory=[1, 1])) == 0
    with pytest.raises(NoPlacement, match="caches of 9007199254740992"):
        cg_bprr(c, 1, design=2**53)


def test_arguments_stay_and_results_are_not_shared():
    requests = np.array([2])
    c = simple(memory=[40, 40])
    plan = cg_bprr(c, requests)
    requests[0] = 7
    assert plan.requests[0] == 2
    with pytest.raises(ValueError):
        plan.requests[0] = 3


def test_live_example():
    shown = conservative_or_not(16, 12, 12, 4)
    assert "CG-BPRR: 90 ms" in shown and "Optimum: 80 ms" in shown
    assert "no placement" in conservative_or_not(24, 6, 6, 4)
