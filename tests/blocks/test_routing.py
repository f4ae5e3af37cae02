"Routing: dynamic programs against enumeration, networkx and scipy; bulk against one by one."

from dataclasses import replace
from itertools import combinations_with_replacement, product

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_or import blocks
from serving_or.blocks.cluster import Cluster
from serving_or.blocks.plan import BadPlan, Chain, NoRoute, Placement, check, token_time, visits
from serving_or.blocks.routing import (
    Hops,
    Links,
    bulk,
    cheapest,
    chosen_chain,
    direct_bound,
    direct_floor,
    entries,
    in_ticks,
    lone_bound,
    out_of_ticks,
    plan_direct,
    route,
    route_direct,
)
from serving_or.tools.answers import Infeasible, NotFound, Scope
from tests.instances import BAD_REQUESTS, placed_cluster, unequal_cluster
from tests.long import cases

FAST = settings(max_examples=cases(2000, 100), deadline=None)


def all_chains(cluster, placement, slots):
    "Every feasible list of servers with its blocks, by depth-first search; no client."
    found, a, e = [], placement.a, placement.e

    def go(x, servers, blocks):
        if x == cluster.blocks + 1:
            found.append((servers, blocks))
        for j in range(cluster.n):
            if a[j] <= x < e[j] and e[j] - x <= slots[j]:
                go(int(e[j]), (*servers, j), (*blocks, int(e[j] - x)))

    go(1, (), ())
    return found


def least(cluster, ways, c, forward=False):
    return min(
        (token_time(cluster, Chain(c, *way), forward=forward) for way in ways), default=np.inf
    )


def by_networkx(cluster, placement, c, slots):
    a, e, graph = placement.a, placement.e, nx.DiGraph()
    graph.add_nodes_from(["s", "t"])
    for j in np.flatnonzero(placement.m):
        for i, x in [("s", 1), *((i, e[i]) for i in np.flatnonzero(placement.m))]:
            if a[j] <= x < e[j] and e[j] - x <= slots[j] and np.isfinite(cluster.rtt[c, j]):
                graph.add_edge(i, j, weight=cluster.rtt[c, j] + cluster.tau[j] * (e[j] - x))
        if e[j] == cluster.blocks + 1:
            graph.add_edge(j, "t", weight=0)
    return nx.dijkstra_path_length(graph, "s", "t") if nx.has_path(graph, "s", "t") else np.inf


def by_scipy(cluster, placement, c, slots):
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    n, a, e = cluster.n, placement.a, placement.e
    W = np.zeros(
        (n + 2, n + 2)
    )  # zero is "no arc" in a sparse matrix, so every arc carries 1 more for each visit
    for j in np.flatnonzero(placement.m):
        for i, x in [(n, 1), *((i, e[i]) for i in np.flatnonzero(placement.m))]:
            if a[j] <= x < e[j] and e[j] - x <= slots[j] and np.isfinite(cluster.rtt[c, j]):
                W[i, j] = cluster.rtt[c, j] + cluster.tau[j] * (e[j] - x)
        if e[j] == cluster.blocks + 1:
            W[j, n + 1] = 1.0
    return dijkstra(csr_array(W), indices=n)[n + 1] - 1.0


@FAST
@given(st.integers(0, 10**9))
def test_boundary_program_is_enumeration_and_dijkstra(seed):
    cluster, placement = placed_cluster(seed)
    slots = cluster.slots(placement.m)
    cost, chains = cheapest(cluster, placement)
    ways = all_chains(cluster, placement, slots)
    for c in range(2):
        assert (
            cost[c]
            == least(cluster, ways, c)
            == by_networkx(cluster, placement, c, slots)
            == by_scipy(cluster, placement, c, slots)
        )
        assert (chains[c] is None) == (cost[c] == np.inf)
        if chains[c]:
            assert check(cluster, placement, [chains[c]], np.eye(2)[c]).cost == cost[c]
    assert Links(cluster, placement).costs().tolist() == cost.tolist()


@pytest.mark.parametrize("seed", range(60))
def test_large_clusters_against_networkx(seed):
    rng = np.random.default_rng(seed)
    n, L = 60, 70
    cluster = Cluster(
        L,
        1.32,
        0.0085,
        rng.choice([79.1, 8.2], n, p=[0.2, 0.8]),
        rng.uniform(3, 16, n),
        rng.uniform(100, 130, (3, n)),
    )
    m = cluster.counts(int(rng.integers(1, 300)))
    placement = Placement(rng.integers(1, L - m + 2), m)
    cost, _ = cheapest(cluster, placement)
    oracle = [by_networkx(cluster, placement, c, cluster.slots(m)) for c in range(3)]
    np.testing.assert_allclose(cost, oracle, rtol=1e-12)
    np.testing.assert_allclose(Links(cluster, placement).costs(), oracle, rtol=1e-12)


@FAST
@given(st.integers(0, 10**9))
def test_forwarding_is_enumeration(seed):
    cluster, placement = placed_cluster(seed, n=5, L=6)
    ways = all_chains(cluster, placement, cluster.slots(placement.m))
    cost, chains = route_direct(cluster, placement)
    for c in range(2):
        assert cost[c] == least(cluster, ways, c, forward=True)
        if chains[c]:
            assert (
                check(cluster, placement, [chains[c]], np.eye(2)[c], forward=True).cost == cost[c]
            )


@FAST
@given(st.integers(0, 10**9))
def test_forwarding_with_half_round_trips_is_the_relay(seed):
    cluster, placement = placed_cluster(seed, clients=1)
    t = cluster.rtt[0]
    same = Cluster(cluster.blocks, 4, 1, cluster.memory, cluster.tau, t, hop=(t[:, None] + t) / 2)
    assert route_direct(same, placement)[0] == cheapest(same, placement)[0]


def one_by_one(cluster, placement, demand, forward):
    "Greedy as defined: a dynamic program for each request; ties go to the first client."
    slots, rest, total = cluster.slots(placement.m), np.array(demand), 0.0
    solve = route_direct if forward else cheapest
    while rest.any():
        cost, chains = solve(cluster, placement, slots)
        c = min(np.flatnonzero(rest), key=lambda c: (cost[c], c))
        if cost[c] == np.inf:
            break
        slots = slots - visits([chains[c]], cluster.n)
        rest[c] -= 1
        total += cost[c]
    return total, rest


@pytest.mark.parametrize("forward", [False, True])
def test_bulk_is_one_by_one(forward):
    served = 0
    for seed in range(150):
        cluster, placement = placed_cluster(seed)
        rng = np.random.default_rng(seed)
        # no ties between chains, which the two may break differently
        tilt = rng.random((2, cluster.n)) * 1e-3
        cluster = Cluster(
            cluster.blocks,
            4,
            1,
            cluster.memory,
            cluster.tau,
            cluster.rtt + tilt,
            hop=cluster.hop + rng.random(cluster.hop.shape) * 1e-3,
        )
        demand = rng.integers(0, 6, 2)
        chains, total, rest = bulk(cluster, placement, demand, forward=forward)
        expected, left = one_by_one(cluster, placement, demand, forward)
        assert rest.tolist() == left.tolist() and np.isclose(total, expected)
        check(cluster, placement, chains, demand - rest, forward=forward)
        served += demand.sum() > 0 and not rest.any()
        for cutoff in (total * 0.7, total * 1.01 + 1e-9):
            _, cut, left = bulk(cluster, placement, demand, cutoff=cutoff, forward=forward)
            # a client that is stuck does not stop the others
            assert cut in (np.inf, total)
            assert rest.any() or (cut == np.inf) == (demand.any() and cutoff <= total)
    assert served > 30


@FAST
@given(st.integers(0, 10**9), st.integers(0, 6), st.integers(0, 6))
def test_route_returns_checked_plans_between_its_bounds(seed, first, second):
    cluster, placement = placed_cluster(seed)
    alone = cheapest(cluster, placement)[0]
    lost = [c for c, r in enumerate((first, second)) if r and alone[c] == np.inf]
    try:
        plan = route(cluster, placement, [first, second])
    except NoRoute as error:
        assert error.client == lost[0]
        x = error.boundary  # reached by a partial chain, and nothing beyond it
        short = Cluster(x - 1, 4, 1, cluster.memory, cluster.tau, cluster.rtt) if x > 1 else None
        inside = np.where(placement.e <= x, placement.m, 0)
        assert (
            x == 1
            or cheapest(short, Placement(placement.a, inside), cluster.slots(placement.m))[0][
                error.client
            ]
            < np.inf
        )
        return
    except NotFound as error:
        assert (
            not lost
            and error.served == first + second - error.unserved.sum()
            and error.unserved.sum() > 0
        )
        return
    assert not lost
    assert lone_bound(cluster, [first, second]) <= plan.bound + 1e-9 <= plan.cost + 2e-9
    assert (
        plan.visits.tolist() == visits(plan.chains, cluster.n).tolist()
        and (plan.visits <= cluster.slots(placement.m)).all()
    )


def best_lone(cluster, c):
    "Alone on the fleet by brute force over the numbers of blocks."
    most = cluster.counts(1)
    return min(
        (
            sum(cluster.rtt[c, j] + cluster.tau[j] * k for j, k in enumerate(ks) if k)
            for ks in product(*(range(k + 1) for k in most))
            if sum(ks) == cluster.blocks
        ),
        default=np.inf,
    )


@pytest.mark.parametrize("seed", range(80))
def test_lone_bound_is_brute_force(seed):
    cluster, _ = placed_cluster(seed, n=4, L=5)
    best = [best_lone(cluster, c) for c in range(2)]
    if np.isinf(best).any():
        with pytest.raises(Infeasible) as caught:
            lone_bound(cluster, [1, 1])
        assert caught.value.blocks_short > 0
        # of the others nothing is known, unless nobody can be served
        assert caught.value.largest == (0 if np.isinf(best).all() else None)
    else:
        assert np.isclose(lone_bound(cluster, [3, 1]), (3 * best[0] + best[1]) / 4)
    assert lone_bound(cluster, 0) == 0.0


def test_lone_bound_is_below_every_placement():
    "All placements of tiny clusters: the bound is attained by the best one for a single request."
    for seed in range(25):
        cluster, _ = placed_cluster(seed, n=3, L=4, clients=1)
        spans = [
            [(1, 0)] + [(a, m) for m in range(1, k + 1) for a in range(1, cluster.blocks - m + 2)]
            for k in cluster.counts(1)
        ]
        best = min(cheapest(cluster, Placement(*zip(*choice)))[0][0] for choice in product(*spans))
        assert best == best_lone(cluster, 0)


def test_greedy_can_strand():
    cluster = Cluster(2, 4, 1, memory=[10, 5, 5], tau=[5, 1, 20], rtt=[5, 1, 20])
    placement = Placement([1, 1, 2], [2, 1, 1])
    with pytest.raises(NotFound) as caught:
        route(cluster, placement, 2)
    assert caught.value.served == 1 and caught.value.unserved.tolist() == [1]
    assert (
        check(cluster, placement, [Chain(0, (0,), (2,)), Chain(0, (1, 2), (1, 1))], 2).cost == 28.5
    )


def test_no_route_says_where():
    cluster = Cluster(4, 4, 1, memory=[40, 40], tau=[1, 1], rtt=[[1, 1], [1, np.inf]])
    placement = Placement([1, 3], [2, 2])
    assert route(cluster, placement, [2, 0]).cost == 6
    with pytest.raises(NoRoute) as caught:
        route(cluster, placement, [0, 1])
    assert (caught.value.client, caught.value.boundary, caught.value.blocks_short) == (1, 3, 2)
    full = Cluster(
        2, 4, 1, memory=[8.5, 50], tau=[1, 1], rtt=[1, 1]
    )  # holds both blocks, without room for a single cache
    with pytest.raises(NoRoute) as caught:
        route(full, Placement([1, 2], [2, 1]), 1)
    assert caught.value.boundary == 1 and caught.value.blocks_short == 1
    cut = Cluster(
        4, 4, 1, memory=[40, 40], tau=[1, 1], rtt=[1, 1], hop=np.full((2, 2), np.inf)
    )  # relayed it works, forwarded it does not
    assert route(cut, placement, 3).cost == 6
    with pytest.raises(NoRoute, match="block 3") as caught:
        route(cut, placement, 3, forward=True)
    assert caught.value.boundary == 3 and caught.value.blocks_short == 0
    with pytest.raises(BadPlan):
        route(full, Placement([1, 1], [2, 3]), 1)


def test_edges_of_the_input():
    one = Cluster(
        1, 4, 0, [4], [3], [[2]]
    )  # one block, no caches to pay for: any number of requests
    plan = route(one, Placement([1], [1]), 10**6)
    assert plan.cost == plan.bound == 5 and len(plan.chains) == 1
    assert plan.scope == Scope.PLACEMENT and plan.status == "feasible"
    assert route(one, Placement([1], [0]), 0).cost == 0
    twins = Cluster(3, 1, 1, [9, 9], [2, 2], [1, 1])
    plan = route(twins, Placement([1, 1], [3, 3]), 4)  # two each, the first server first
    assert [(c.servers, c.count) for c in plan.chains] == [((0,), 2), ((1,), 2)] and plan.cost == 7
    assert entries(
        Cluster(4, 1, 1, [9] * 3, 1, [1] * 3), Placement([1, 2, 1], [3, 2, 0]), [np.inf, -5, 3]
    ).tolist() == [1, 4, 1]
    with pytest.raises(ValueError, match="hop"):
        Hops(twins, Placement([1, 1], [3, 3]))


def test_links_change_only_where_they_must():
    "After each chain the kept links give what a fresh dynamic program gives."
    taken = 0
    for seed in range(60):
        cluster, placement = placed_cluster(seed)
        links = Links(cluster, placement)
        while True:
            cost = links.costs()
            assert cost.tolist() == cheapest(cluster, placement, links.slots)[0].tolist()
            if np.isinf(cost).all():
                break
            links.take(*links.chain(int(cost.argmin())), count=1)
            taken += 1
        assert (links.slots >= 0).all()
    assert taken > 100


def test_the_live_example_answers_everywhere():
    for a, t, tau in product((3, 5, 7, 9), (0, 20, 40, 60), (2, 6, 10)):
        assert chosen_chain(a, t, tau).count("<svg") == 1


@pytest.mark.parametrize("wrong", BAD_REQUESTS, ids=repr)
def test_what_cannot_be_routed(wrong):
    cluster = Cluster(1, 1, 1, [9], [1], np.ones((3, 1)))
    for call in (
        lambda: route(cluster, Placement([1], [1]), wrong),
        lambda: lone_bound(cluster, wrong),
    ):
        with pytest.raises(ValueError, match="requests"):
            call()


@pytest.mark.parametrize(
    "slots", [[1], [1, np.nan], "12", [None, 1], [1, "2"], [[1, 2]], [1, 2j]], ids=repr
)
def test_slots_are_checked(slots):
    cluster = Cluster(2, 1, 1, [9, 9], [1, 1], [1, 1], hop=np.ones((2, 2)))
    for call in (cheapest, route_direct):
        with pytest.raises(ValueError, match="slots"):
            call(cluster, Placement([1, 1], [2, 2]), slots)
        with pytest.raises(BadPlan):
            call(cluster, Placement([1, 2], [2, 2]))
        with pytest.raises(ValueError, match="placement"):
            call(cluster, None)


def test_slots_that_are_full_to_the_last_digit():
    "Given as shares, added up in any order."
    c = Cluster(3, 1, [0.1, 0.2, 0.3], [9.0], 1, [1], hop=[[0]])
    place = Placement([1], [3])
    for shares in ((0.1, 0.2, 0.3), (0.3, 0.2, 0.1), (0.2, 0.3, 0.1)):
        slots = [sum(share / 0.3 for share in shares)]
        assert cheapest(c, place, slots)[0][0] == 4 == route_direct(c, place, slots)[0][0]
    assert np.isinf(cheapest(c, place, [2 * (1 - 1e-6)])[0][0])


def test_slots_of_the_caller_stay():
    cluster = Cluster(2, 1, 1, [9, 9], [1, 1], [1, 1])
    slots = np.array([4.0, 4.0])
    links = Links(cluster, Placement([1, 1], [2, 2]), slots)
    links.costs()
    links.take((0,), (2,), 1)
    assert slots.tolist() == [4, 4] and links.slots.tolist() == [2, 4]
    demand = cluster.demand(3)
    bulk(cluster, Placement([1, 1], [2, 2]), demand)
    assert demand.tolist() == [3]


def test_where_blocks_are_not_alike_nothing_is_proved():
    cluster = Cluster(4, 4, 1, memory=[9, 9], tau=[1, 1], rtt=[1, 1], exact=False)
    for call in (
        lambda: route(cluster, Placement([1, 3], [1, 1]), 1),
        lambda: lone_bound(cluster, 1),
    ):
        with pytest.raises(NotFound, match="no proof"):
            call()


# plans whose servers forward


def best_forwarded(cluster, demand):
    "The least mean cost over all placements and forwarded routings, by trying them."
    L, best, n = cluster.blocks, np.inf, cluster.n
    one = [(1, 0), *((a, m) for m in range(1, L + 1) for a in range(1, L + 2 - m))]
    size, cache = (np.broadcast_to(s, L) for s in (cluster.block_size, cluster.cache_size))
    for held in product(one, repeat=n):
        placement = Placement(*zip(*held))
        room = [M - size[a - 1 : a - 1 + m].sum() for M, (a, m) in zip(cluster.memory, held)]
        if min(room) < 0:
            continue
        ways = []
        for servers, run in all_chains(cluster, placement, np.full(n, L)):
            e, use = 1 + np.cumsum(run), np.zeros(n)
            use[list(servers)] = [cache[x - k - 1 : x - 1].sum() for x, k in zip(e, run)]
            ways.append((servers, run, use))
        each = [combinations_with_replacement(range(len(ways)), int(q)) for q in demand]
        for chosen in product(*each):
            if (sum(ways[w][2] for some in chosen for w in some) <= np.array(room)).all():
                total = sum(
                    token_time(cluster, Chain(c, *ways[w][:2]), forward=True)
                    for c, some in enumerate(chosen)
                    for w in some
                )
                best = min(best, total)
    return best / demand.sum()


@pytest.mark.parametrize("seed", range(cases(400)))
def test_forwarded_plans_and_their_bounds_against_all_plans(seed):
    rng = np.random.default_rng([seed, 14])
    c = unequal_cluster(rng, L=int(rng.integers(2, 4)), clients=int(rng.integers(1, 3)))
    c = replace(c, hop=rng.integers(0, 15, (c.n, c.n)))
    demand = rng.multinomial(int(rng.integers(1, 4)), np.ones(len(c.clients)) / len(c.clients))
    best = best_forwarded(c, demand)
    if best == np.inf:
        with pytest.raises((Infeasible, NotFound)):
            plan_direct(c, demand)
        return
    assert direct_bound(c, demand) <= best * (1 + 1e-9)
    # any bound on relayed plans of the floor
    assert blocks.milp(direct_floor(c), demand).bound <= best * (1 + 1e-9)
    try:
        plan = plan_direct(c, demand)
    except NotFound as error:
        assert error.bound <= best * (1 + 1e-9)
        return
    assert plan.forward and best * (1 - 1e-9) <= plan.cost <= plan.guarantee * (1 + 1e-9)
    assert plan.status != "optimal" or plan.cost == pytest.approx(best)
    assert check(c, plan.placement, plan.chains, demand, plan.bound, forward=True) == replace(
        plan, guarantee=np.inf, design=None
    )


@pytest.mark.parametrize("seed", range(cases(400)))
def test_a_relayed_promise_holds_forwarded_where_hops_are_no_slower(seed):
    rng = np.random.default_rng([seed, 15])
    n, clients = int(rng.integers(2, 8)), int(rng.integers(1, 3))
    where = rng.uniform(0, 50, (n + clients, 2))
    far = np.linalg.norm(where[:, None] - where, axis=2)
    overhead = float(rng.choice([0, 5, 50]))
    c = Cluster(
        int(rng.integers(1, 9)),
        4,
        1,
        rng.integers(8, 60, n),
        rng.integers(1, 9, n),
        far[n:, :n] + overhead,
        hop=far[:n, :n] / 2 + overhead,
    )
    R = int(rng.integers(1, 5))
    try:
        plan = blocks.cg_bprr(c, R)
    except (NotFound, Infeasible):
        return
    direct = route(c, plan.placement, R, forward=True)
    assert direct.cost <= plan.cost * (1 + 1e-12) <= plan.guarantee * (1 + 1e-9)
    # so the promise may be given along with the forwarded plan
    check(c, plan.placement, direct.chains, R, forward=True, guarantee=plan.guarantee)
    assert direct_bound(c, R) <= direct.cost * (1 + 1e-12)


def test_forwarding_needs_hops_and_says_what_is_proved():
    c = Cluster(4, 4, 1, [16, 12], [10, 20], [10, 10])
    for door in (plan_direct, direct_bound):
        with pytest.raises(ValueError, match="hop is None"):
            door(c, 1)
    far = replace(c, hop=np.full((2, 2), 5.0))
    # by which halves a token can come in and leave, and these may differ
    ways = replace(c, rtt=[10, 3], hop=[[0, 6], [5, 0]])
    assert direct_floor(ways).rtt.tolist() == [[5 / 2 + 6 / 2, 3 / 2 + 3 / 2]]
    assert plan_direct(far, 0).cost == 0 == direct_bound(far, 0)
    with pytest.raises(Infeasible, match="no forwarded chain"):
        plan_direct(replace(far, memory=[4, 4]), 1)
    with pytest.raises(NotFound):
        plan_direct(replace(far, memory=[4, 4], exact=False), 1)
    # out of a server's way there may be none back
    cut = replace(far, hop=np.full((2, 2), np.inf))
    with pytest.raises(Infeasible):
        direct_bound(cut, 1)
    assert direct_bound(replace(cut, memory=[40, 12]), 1) == 50


@pytest.mark.parametrize("seed", range(cases(200, 40)))
def test_no_unit_of_time_breaks_a_tie(seed):
    "Sums that are equal in whole milliseconds differ in the last digit in other units."
    rng, n, L = np.random.default_rng([seed, 16]), 9, 8
    tau, rtt, hop = (rng.integers(1, 4, shape) for shape in (n, (2, n), (n, n)))
    cluster = Cluster(L, 4, 1, rng.integers(20, 40, n), tau, rtt, hop=hop)
    m = np.minimum(cluster.counts(1), rng.integers(1, 5, n))
    placement = Placement(rng.integers(1, L - m + 2), m)
    slots = cluster.slots(placement.m)
    whole = cheapest(cluster, placement)[1], route_direct(cluster, placement)[1]
    chains = [bulk(cluster, placement, np.array([2, 3]), forward=f)[0] for f in (False, True)]
    for unit in (1e-3, 0.1, 1 / 3, 7e-9, 1e6):
        other = replace(
            cluster, tau=cluster.tau * unit, rtt=cluster.rtt * unit, hop=cluster.hop * unit
        )
        assert cheapest(other, placement, slots)[1] == whole[0]
        assert route_direct(other, placement)[1] == whole[1]
        for f in (False, True):
            assert bulk(other, placement, np.array([2, 3]), forward=f)[0] == chains[f]


def test_a_client_that_is_stuck_does_not_stop_the_others():
    cluster = Cluster(2, 4, 1, [20], [1], [[3], [np.inf]])
    for cutoff in (np.inf, 1e9):
        chains, total, rest = bulk(cluster, Placement([1], [2]), np.array([2, 1]), cutoff)
        assert (len(chains), total, rest.tolist()) == (1, 10, [0, 1])
    # the cutoff counts every request that is left
    chains, total, rest = bulk(cluster, Placement([1], [2]), np.array([2, 0]), 9.0)
    assert not chains and total == np.inf


def test_ticks():
    "A program's times are the same in every unit, and its bound holds for the times as they were."
    times = np.array([1 / 3, 0.1, 1e3, np.inf])
    c = Cluster(3, 1, 1, [9] * 4, [1, 2, 3, 4], times, prefill_tau=1, hop=np.ones((4, 4)))
    small, scale = in_ticks(c, 0.1)
    assert scale == 0.1 and small.rtt[0, 1:].tolist() == [1.0, 1e4, np.inf]
    assert small.prefill_tau is None and small.hop is None
    for unit in (1e-3, 1 / 3, 1e9):
        other = replace(c, tau=c.tau * unit, rtt=c.rtt * unit)
        same, _ = in_ticks(other, 0.1 * unit)
        assert same.rtt.tolist() == small.rtt.tolist() and same.tau.tolist() == small.tau.tolist()
    # the largest time where the scale says nothing; 1 where all are 0
    assert in_ticks(c, 0.0)[1] == 1e3 == in_ticks(c, np.inf)[1]
    assert in_ticks(replace(c, tau=0, rtt=0), 0.0)[1] == 1.0
    # no chain's time is below what its ticks say, less the rounding
    rng = np.random.default_rng(0)
    for _ in range(100):
        c = Cluster(5, 1, 1, [9] * 3, rng.uniform(0, 3, 3), rng.uniform(0, 9, 3))
        small, scale = in_ticks(c, float(rng.uniform(1e-9, 1e9)))
        chain = Chain(0, (0, 1, 2), (2, 1, 2))
        true, bound = token_time(c, chain), token_time(small, chain)
        assert out_of_ticks(bound, c, scale) <= true * (1 + 1e-12)
        assert (
            true - 2 * 8 * scale * 2.0**-36 <= out_of_ticks(bound, c, scale) * (1 + 1e-12) + 1e-12
        )


def test_a_chain_may_not_come_back():
    "Two fast servers for one block each: a way over both, and back, is no chain."
    c = Cluster(3, 4, 1, [5, 5, 15], [1, 1, 100], [10] * 3, hop=np.ones((3, 3)))
    # A, B and A again would take 5 + 1 + 1 + 1 + 1 + 1 + 5; the floor visits each once
    assert direct_bound(c, 1) == 3 * 1 + 1 + 1 + 100
    plan = plan_direct(c, 1)
    assert plan.cost == plan.guarantee == 5 + 1 + 1 + 1 + 1 + 100 + 5 and plan.design == 1
    assert plan.bound == 105 and plan.status == "feasible"
    # where every server reaches itself in no time, hops matter and not the floor
    slow = replace(c, hop=np.full((3, 3), 50.0), tau=[1, 1, 1])
    assert direct_bound(slow, 1) == plan_direct(slow, 1).cost == 10 + 3


def test_a_plan_for_servers_that_forward_tries_smaller_designs():
    "Reserving for all requests costs a hop; for half of them there are two chains without."
    c = Cluster(2, 4, 1, [10, 10], [1, 1], [2, 2], hop=np.ones((2, 2)))
    plan = plan_direct(c, 2)
    assert plan.cost == 4 and plan.design == 1 and plan.guarantee == np.inf
    assert [chain.count for chain in plan.chains] == [1, 1] and len(plan.chains) == 2
    safe = plan_direct(c, 2, most=1)
    assert safe.cost == safe.guarantee == 5 and safe.design == 2
    # clients count by their requests: nine of ten are near the second server, which ends the chain
    two = Cluster(2, 4, 1, [25, 25], [1, 1], [[2, 9], [9, 2]], hop=np.full((2, 2), 50.0))
    assert plan_direct(two, [0, 2]).chains[0].servers == (1,)
    assert plan_direct(replace(two, memory=[20, 20]), [1, 4]).cost == (11 + 4 * 4) / 5
