"""Replicas: coverage, exact routing, the order of all methods, lanes, failures and rental, against enumeration and independent code."""
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_or.blocks import (
    Cluster,
    Infeasible,
    NoPlacement,
    Placement,
    TooLarge,
    cg_bprr,
    chain_bound,
    check,
    coverage,
    improve,
    lanes,
    largest_requests,
    largest_robust,
    lone_bound,
    losses,
    petals_like,
    place_robust,
    rental,
    robust,
    route_exact,
    surviving,
    sweep,
    uncontended,
)
from serving_or.blocks.cluster import BLOOM
from serving_or.blocks.conservative_greedy import cg_bp
from serving_or.blocks.designs import candidate_designs as designs
from serving_or.blocks.failures import by_domain, labels
from serving_or.blocks.link_program import enumeration
from serving_or.tools.models import A100, MIG

CLOSE = 1 + 1e-7


def fleet(n=12, fast=0.25, output=128, seed=0, clients=1, overhead=100.0, **more):
    "A100s and small slices, scattered."
    rng = np.random.default_rng(seed)
    return Cluster.of(BLOOM, [A100 if j < round(fast * n) else MIG for j in range(n)], overhead + rng.uniform(1, 20, (clients, n)), output=output, **more)


def tiny(rng, n=None, clients=1):
    n, L = n or int(rng.integers(1, 4)), int(rng.integers(1, 5))
    return Cluster(L, 3, 1, rng.integers(4, 25, n), rng.integers(1, 20, n), rng.integers(1, 20, (clients, n)))


def random_placement(rng, c):
    "Spans that fit, anywhere."
    most = c.counts(0)
    m = np.array([rng.integers(0, k + 1) for k in most])
    return Placement([rng.integers(1, c.blocks + 2 - k) for k in m], m)


# ---- the order of the methods


def test_bound_optimum_improve_sweep_method_in_order():
    rng = np.random.default_rng(4)
    met = better = 0
    for _ in range(120):
        c, R = tiny(rng), int(rng.integers(1, 5))
        try:
            swept = sweep(c, R)
        except (NoPlacement, Infeasible):
            continue
        best, searched = enumeration(c, R), improve(swept, budget=0.0)
        bound = chain_bound(c, R).value
        assert lone_bound(c, R) <= bound * CLOSE and bound <= best.cost * CLOSE and best.cost <= searched.cost * CLOSE and searched.cost <= swept.cost
        assert swept.bound <= best.cost * CLOSE and searched.bound <= best.cost * CLOSE
        try:
            conservative = cg_bprr(c, R)
        except NoPlacement:
            continue
        assert swept.cost <= conservative.cost * CLOSE and conservative.cost <= conservative.guarantee * CLOSE
        met, better = met + 1, better + (swept.cost < conservative.cost - 1e-9)
    assert met > 40 and better > 3


def test_improve_searches_and_never_gets_worse():
    rng = np.random.default_rng(11)
    gained = 0
    for _ in range(4):
        n = 6
        c = Cluster(6, 3, 1, rng.integers(8, 25, n), rng.integers(1, 20, n), rng.integers(1, 30, n))
        try:
            swept = sweep(c, 4)
        except (NoPlacement, Infeasible):
            continue
        searched = improve(swept, budget=1.5, seed=1)
        assert searched.cost <= swept.cost and searched.bound >= swept.bound * (1 - 1e-9)
        check(c, searched.placement, searched.chains, 4, searched.bound)
        gained += searched.cost < swept.cost - 1e-9
    assert gained > 0


def test_the_two_worked_examples():
    common = dict(blocks=4, block_size=4, cache_size=1, tau=[10, 20, 20], rtt=[10, 10, 10])
    assert sweep(Cluster(memory=[16, 12, 12], **common), 4).cost == 80
    plan = sweep(Cluster(memory=[24, 6, 6], **common), 4)  # no single design has a placement; lanes have
    assert plan.cost == 70 and list(plan.visits) == [12, 2, 2] and plan.guarantee == np.inf


@pytest.mark.parametrize("fast, output, R", [(0.25, 128, 60), (0.25, 2028, 12), (0.0, 128, 4)])
def test_sweep_on_fleets(fast, output, R):
    c = fleet(30, fast, output)
    swept = sweep(c, R)
    assert swept.bound <= swept.cost <= cg_bprr(c, R).cost * CLOSE
    assert (coverage(c, swept.placement) >= R).all()


def test_sweep_of_several_clients_is_the_best_rank():
    c = fleet(16, 0.2, clients=3, overhead=5.0)
    demand = [5, 2, 1]
    assert np.isclose(sweep(c, demand).cost, min(sweep(c, demand, ranks=(r,)).cost for r in ("max", "mean", "min", "largest")))


def test_designs_are_all_that_matter():
    rng = np.random.default_rng(5)
    for _ in range(60):
        c, R = tiny(rng), int(rng.integers(1, 12))
        every = {tuple(c.counts(x)): x for x in range(1, R + 1)}  # the largest of equal ones
        assert list(designs(c, R)) == sorted(every.values())
    many = Cluster(70, 1, 0.01, np.random.default_rng(6).uniform(50, 100, 300), np.ones(300), np.ones(300))
    few = designs(many, 5000, most=20)
    assert len(few) <= 20 and few[-1] == 5000 and (np.diff(few) > 0).all()


def test_uncontended_cost_and_number():
    rng = np.random.default_rng(7)
    met = 0
    for _ in range(80):
        n, C, R = int(rng.integers(2, 8)), int(rng.integers(1, 4)), int(rng.integers(2, 9))
        c = Cluster(int(rng.integers(1, 10)), 2, 1, rng.integers(6, 40, n), rng.integers(1, 9, n), rng.integers(1, 30, (C, n)))
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


# ---- lanes


@given(st.integers(0, 10**6))
@settings(max_examples=80, deadline=None)
def test_lanes_cover(seed):
    rng = np.random.default_rng(seed)
    kinds, n = int(rng.integers(1, 3)), int(rng.integers(1, 9))
    M, tau = rng.integers(4, 30, kinds).astype(float), rng.integers(1, 9, kinds).astype(float)
    kind = rng.integers(0, kinds, n)
    c, R = Cluster(int(rng.integers(1, 9)), 2, 1, M[kind], tau[kind], rng.integers(1, 20, n)), int(rng.integers(1, 9))
    p = lanes(c, R)
    if p is None:
        return
    assert (coverage(c, p) >= R).all()
    assert route_exact(c, p, R).cost >= lone_bound(c, R) / CLOSE


def test_lanes_in_units_cover_too():
    c = fleet(40, 0.25)  # 200 requests times 11 · 31 numbers of servers is too much, so requests are counted in twos
    p = lanes(c, 200)
    assert p is not None and (coverage(c, p) >= 200).all()


def test_lanes_of_equal_servers_by_hand():
    "Six equal servers, six blocks, three requests: a server holds 3 blocks for one request, 2 for two or 1 for six."
    c = Cluster(6, 2, 1, [9] * 6, [1] * 6, [10] * 6)
    assert [int(c.sessions([k] * 6)[0]) for k in (1, 2, 3)] == [7, 2, 1]
    p = lanes(c, 3)
    assert np.isclose(route_exact(c, p, 3).cost, 2 * 10 + 6)  # three lanes of two servers
    q = lanes(c, 4)  # two lanes of three servers, two requests each; or one of six would carry all four
    assert np.isclose(route_exact(c, q, 4).cost, 3 * 10 + 6)


# ---- failures


def test_surviving_is_the_worst_loss():
    rng = np.random.default_rng(8)
    for _ in range(60):
        n = int(rng.integers(2, 8))
        c = replace(tiny(rng, n=n), domain=rng.integers(0, 4, n).tolist())
        p, f = random_placement(rng, c), int(rng.integers(0, 3))
        label, names = labels(c)
        worst = np.min([coverage(c, Placement(p.a, np.where(np.isin(label, lost), 0, p.m))) for lost in combinations(range(len(names)), min(f, len(names)))], axis=0)
        assert np.allclose(surviving(c, p, f), worst)
        assert np.allclose(by_domain(c, p).sum(axis=0), coverage(c, p))


def test_robust_plans_survive_every_loss():
    rng = np.random.default_rng(9)
    found = 0
    for _ in range(60):
        n, f = int(rng.integers(3, 9)), int(rng.integers(1, 3))
        c = Cluster(int(rng.integers(1, 7)), 2, 1, rng.integers(6, 40, n), rng.integers(1, 9, n), rng.integers(1, 30, n), domain=rng.integers(0, 5, n).tolist())
        R = int(rng.integers(1, 5))
        try:
            answer = robust(c, R, f)
        except (NoPlacement, Infeasible):
            continue
        found += 1
        p, label, names = answer.plan.placement, *labels(c)
        assert answer.capacity >= R and (surviving(c, p, f) >= R).all()
        for lost in combinations(range(len(names)), f):
            left = Placement(p.a, np.where(np.isin(label, lost), 0, p.m))
            again = route_exact(c, left, R)
            reported = answer.losses[tuple(names[i] for i in lost)]
            assert np.isfinite(reported) and again.cost <= max(reported, answer.plan.cost) * CLOSE
        assert answer.worst >= answer.plan.cost - 1e-9 or answer.losses
        assert "survives" in answer.summary()
    assert found > 20


def test_robust_with_no_failures_is_plain_coverage():
    c = fleet(12)
    assert (surviving(c, place_robust(c, 20, 0), 0) >= 20).all()


def test_robust_errors_name_what_is_short():
    c = fleet(9, 0.22)
    most = largest_robust(c)
    assert 0 < most < largest_requests(c)
    robust(c, most)
    with pytest.raises(NoPlacement, match=f"up to {most} requests") as error:
        robust(c, 10 * most)
    assert error.value.blocks_short > 0 and error.value.largest == most


def test_losses_of_one_server_by_hand():
    c = Cluster(2, 1, 1, [10, 10, 4], [1, 1, 1], [1, 2, 30])
    plan = check(c, Placement([1, 1, 1], [2, 2, 2]), cg_bprr(c, 1).chains, 1)
    assert losses(plan) == {(0,): 4.0, (1,): 3.0, (2,): 3.0} and losses(plan, 2)[0, 1] == 32.0
    assert losses(plan, 3)[0, 1, 2] == np.inf
    big = Cluster(1, 1, 1, [3] * 200, [1] * 200, [1] * 200)
    with pytest.raises(TooLarge):
        losses(sweep(big, 1), 3)


# ---- rental


def test_frontier_falls_and_its_bound_holds():
    rng = np.random.default_rng(10)
    points = 0
    for _ in range(12):
        n = int(rng.integers(3, 7))
        kind = rng.integers(0, 2, n)
        c = Cluster(int(rng.integers(2, 5)), 3, 1, np.array([20.0, 9.0])[kind], np.array([2.0, 7.0])[kind], rng.integers(1, 20, n), rent=np.array([2.0, 0.5])[kind])
        R = int(rng.integers(1, 3))
        frontier = rental(c, R)
        prices, costs = [p for p, _, _ in frontier.points], [plan.cost for _, _, plan in frontier.points]
        assert frontier.complete and (np.diff(prices) > 0).all() and (np.diff(costs) < 0).all()
        subsets = [list(s) for size in range(1, n + 1) for s in combinations(range(n), size)]
        exact = []
        for s in subsets if n < 5 else []:
            try:
                exact.append((c.rent[s].sum(), enumeration(c.take(s), R).cost))
            except Infeasible:
                pass
        for price, counts, plan in frontier.points:
            points += 1
            assert np.isclose(price, plan.cluster.rent.sum()) and np.isclose(price, np.dot(counts, [o[2] for o in frontier.offers]))
            assert frontier.price_bound(plan.cost) <= price + 1e-9 and frontier.cheapest(plan.cost)[0] == price
            for paid, cost in exact:  # any subset of servers, not only the nearest ones
                if cost <= plan.cost + 1e-9:
                    assert frontier.price_bound(plan.cost) <= paid + 1e-9
        assert len(frontier.to_frame()) == len(frontier.points)
    assert points > 12


def test_rental_needs_prices_and_few_types():
    c = fleet(12)
    with pytest.raises(ValueError, match="no rents"):
        rental(c, 1)
    with pytest.raises(TooLarge):
        rental(Cluster(1, 1, 1, np.arange(3, 23), np.ones(20), np.ones(20), rent=np.ones(20)), 1)
    priced = replace(c, rent=np.ones(12))
    assert rental(priced, 1).price_bound(0.0) == np.inf and rental(priced, 1).cheapest(0.0) is None


# ---- edges


def test_no_requests():
    c = fleet(6)
    plan = sweep(c, 0)
    assert plan.cost == 0 and improve(plan, 0.5).cost == 0 and route_exact(c, plan.placement, 0).chains == ()


def test_one_block_one_server_and_free_caches():
    assert sweep(Cluster(1, 1, 1, [5, 2], [1, 2], [3, 1]), 4).cost == 3.75  # three requests on the first server, one on the second
    assert sweep(Cluster(3, 1, 1, [100], [1], [2]), 5).cost == 5
    free = Cluster(3, 1, 0, [3, 2], [1, 1], [2, 1])
    plan = sweep(free, 10**5)
    assert plan.cost == 5 and list(designs(free, 7)) == [7] and coverage(free, plan.placement).min() >= 10**5
    assert improve(plan, 0.2).cost == 5 and (surviving(free, plan.placement, 0) > 10**5).all()


def test_infeasible_and_not_found():
    with pytest.raises(Infeasible) as error:
        sweep(Cluster(4, 4, 1, [4, 4, 4], [1, 1, 1], [1, 1, 1]), 1)
    assert error.value.largest == 0 and error.value.blocks_short == 4
    with pytest.raises(NoPlacement) as error:
        sweep(Cluster(4, 4, 1, [16, 12, 12], [10, 20, 20], [10, 10, 10]), 6)
    assert error.value.blocks_short >= 1 and error.value.largest == 4 and "up to 4 requests" in str(error.value)
    with pytest.raises(Infeasible):
        enumeration(Cluster(4, 4, 1, [16, 12, 12], [10, 20, 20], [10, 10, 10]), 6)


def test_unreachable_server_is_not_used():
    c = Cluster(2, 1, 1, [20, 20], [1, 1], [[1, np.inf], [1, 3]])
    assert sweep(c, [1, 1]).placement.m[1] == 0 and sweep(c, [0, 2]).cost == 3


def test_petals_like_spreads_the_weakest_first():
    c = Cluster(4, 1, 1, [4, 4, 4], [1, 1, 1], [1, 1, 1])
    p = petals_like(c, reserve=1)
    assert list(p.m) == [2, 2, 2] and list(p.a) == [1, 3, 1]
    assert list(petals_like(c, 1, headroom=2).m) == [1, 1, 1] and list(petals_like(c, 1, headroom=9).m) == [0, 0, 0]


def test_improve_refuses_forwarding():
    c = Cluster(2, 1, 1, [9, 9], [1, 1], [1, 1], hop=[[0, 1], [1, 0]])
    p = cg_bp(c, 1)
    from serving_or.blocks import route

    with pytest.raises(ValueError, match="forwards"):
        improve(route(c, p, 1, forward=True))
