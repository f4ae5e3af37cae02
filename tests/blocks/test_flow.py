"Flows: coverage, exact routing against search, chains of a flow, prices that prove bounds."

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_or.blocks import flow
from serving_or.blocks.cluster import Cluster
from serving_or.blocks.flow import (
    coverage,
    covered,
    flow_prices,
    flow_program,
    peel,
    route_exact,
)
from serving_or.blocks.link_program import best_routing
from serving_or.blocks.plan import BadPlan, Chain, Placement, check, token_time, visits
from serving_or.blocks.routing import bulk, cheapest, lone_bound, route, route_direct
from serving_or.tools.answers import Infeasible, NotFound, Scope
from serving_or.tools.programs import Outcome, Solution, solve
from tests.instances import (
    BAD_REQUESTS,
    BEST,
    STUCK,
    STUCK_AT,
    THREE,
    Visitor,
    odd,
    odd_array,
    placed_cluster,
    random_placement,
    tiny_cluster,
    unequal_cluster,
)
from tests.long import cases

CLOSE = 1 + 1e-7


def test_capacity_counts_whole_sessions():
    rng = np.random.default_rng(0)
    for _ in range(cases(400, 100)):
        c = tiny_cluster(rng)
        p = random_placement(rng, c)
        spans = list(zip(p.a, p.m, c.memory))
        f = lambda m, M: (M - c.block_size * m) // c.cache_size // m
        slow = [
            sum(f(m, M) for a, m, M in spans if m and a <= b < a + m)
            for b in range(1, c.blocks + 1)
        ]
        assert list(coverage(c, p)) == slow


def test_a_covered_placement_serves_everybody():
    "Random covered placements with several clients; greedy routing is stuck on some of them."
    rng = np.random.default_rng(1)
    found = stuck = 0
    while found < cases(400, 100):
        n, L, C = int(rng.integers(3, 8)), int(rng.integers(2, 8)), int(rng.integers(1, 4))
        memory, tau = rng.integers(4, 30, n), rng.integers(0, 9, n)
        c = Cluster(L, 2, 1, memory, tau, rng.integers(0, 30, (C, n)))
        p = random_placement(rng, c)
        R = int(coverage(c, p).min())
        if R == 0:
            continue
        found += 1
        demand = rng.multinomial(R, np.ones(C) / C)
        plan = route_exact(c, p, demand)
        assert plan.gap < 1e-6 and list(plan.requests) == list(demand)
        assert plan.scope == Scope.PLACEMENT and plan.status == "feasible"
        _, total, rest = bulk(c, p, demand)
        stuck += rest.any()
        if not rest.any():
            assert plan.cost * R <= total * CLOSE
    assert stuck > 0


def test_exact_routing_is_complete_search():
    rng = np.random.default_rng(2)
    served = refused = 0
    while served < cases(120, 40) or refused < cases(60, 20):
        c = tiny_cluster(rng, n=3, clients=int(rng.integers(1, 3)))
        p, R = random_placement(rng, c), int(rng.integers(1, 6))
        demand = c.demand(R)
        total, _ = best_routing(c, p, demand)
        if np.isinf(total):
            refused += 1
            with pytest.raises(Infeasible, match="no routing"):
                route_exact(c, p, demand)
        else:
            served += 1
            assert np.isclose(route_exact(c, p, demand).cost * R, total)


def test_relaxed_flow_is_below_the_whole_one():
    rng = np.random.default_rng(3)
    strict = 0
    for _ in range(80):
        c = tiny_cluster(rng, n=3)
        p, R = random_placement(rng, c), int(rng.integers(1, 6))
        used = np.flatnonzero(p.m)
        try:
            plan = route_exact(c, p, R)
        except Infeasible:
            continue
        program = flow_program(c, c.demand(R), used, p.a[used], p.m[used])
        relaxed = float(program.cost @ solve(program).x)
        assert relaxed <= plan.cost * R * CLOSE
        strict += relaxed < plan.cost * R - 1e-6
    assert strict > 0


@settings(max_examples=cases(2000, 60), deadline=None)
@given(st.integers(0, 10**9), st.integers(0, 5))
def test_any_prices_prove_a_bound(seed, requests):
    "Random prices, and those of the linear program, never above the best routing."
    cluster, place = placed_cluster(seed, n=5, L=5, clients=1)
    demand = cluster.demand(requests)
    try:
        plan = route_exact(cluster, place, requests)
    except Infeasible:
        return
    if requests == 0:
        return
    used = np.flatnonzero(place.m)
    spans = used, place.a[used], place.m[used]
    program = flow_program(cluster, demand, *spans)
    relaxed = solve(program)
    rng = np.random.default_rng(seed)
    multipliers = [relaxed.multipliers, -rng.exponential(2.0, len(program.low))]
    for y in multipliers:
        answer = Solution(Outcome.OPTIMAL, multipliers=y)
        togo, worth = flow_prices(program, answer, cluster, *spans)
        slots = cluster.slots(place.m)[used]
        bound = requests * togo[0, 1] - worth @ slots
        assert bound <= plan.cost * requests * CLOSE + 1e-9 and (worth >= 0).all()
        if y is relaxed.multipliers and (slots >= place.m[used]).all():
            enough = np.minimum(slots, requests * place.m[used])
            assert np.isclose(requests * togo[0, 1] - worth @ enough, relaxed.value)


@pytest.mark.parametrize("seed", range(cases(400, 60)))
def test_prices_of_unequal_caches_prove_the_value(seed):
    "A visit pays for the caches of its own blocks."
    rng = np.random.default_rng(seed)
    cluster = unequal_cluster(rng, n=4, clients=2)
    demand, longest = rng.integers(1, 4, 2), cluster.longest(1)
    used = np.flatnonzero(longest.any(axis=1))
    a = np.array([rng.choice(np.flatnonzero(longest[j])) for j in used], int) + 1
    spans = used, a, longest[used, a - 1]
    program = flow_program(cluster, demand, *spans)
    answer = solve(program)
    if answer.status != "optimal" or answer.multipliers is None:
        return
    togo, worth = flow_prices(program, answer, cluster, *spans)
    slots = program.high[program.at["use"]]
    finite = worth > 0
    proved = demand @ togo[:, 1] - worth[finite] @ slots[finite]
    assert proved == pytest.approx(answer.value, rel=1e-7)


@settings(max_examples=cases(1000, 60), deadline=None)
@given(st.integers(0, 10**9))
def test_peeling_keeps_cost_and_slots(seed):
    cluster, place = placed_cluster(seed)
    rng = np.random.default_rng(seed)
    demand = rng.integers(0, 6, 2)
    chains, total, rest = bulk(cluster, place, demand)
    rows = [
        (c.client, j, x, k, c.count)
        for c in chains
        for j, x, k in zip(c.servers, np.cumsum([1, *c.blocks[:-1]]), c.blocks)
    ]
    table = np.array(rows, int).reshape(-1, 5).T
    again = peel(*table)
    assert np.isclose(sum(c.count * token_time(cluster, c) for c in again), total)
    assert visits(again, cluster.n).tolist() == visits(chains, cluster.n).tolist()
    assert len(again) <= table.shape[1]
    served = [sum(c.count for c in again if c.client == i) for i in (0, 1)]
    assert served == (demand - rest).tolist()


def test_where_greedy_is_stuck():
    assert bulk(STUCK, STUCK_AT, STUCK.demand(2))[2].sum() == 1
    plan = route_exact(STUCK, STUCK_AT, 2)
    assert plan.cost == 10 and plan.gap < 1e-6
    with pytest.raises(Infeasible):
        route_exact(STUCK, STUCK_AT, 4)
    unlike = Cluster(3, 1, 1, [5, 4, 6], [0, 2, 1], [1, 7, 7], exact=False)
    with pytest.raises(NotFound, match="no proof"):
        route_exact(unlike, STUCK_AT, 4)


def test_edges():
    assert route_exact(THREE, BEST, 0).cost == 0
    nothing = Placement([1, 1, 1], [0, 0, 0])
    assert coverage(THREE, nothing).tolist() == [0] * 4
    with pytest.raises(Infeasible):
        route_exact(THREE, nothing, 1)
    free = Cluster(2, 1, 0, [2], [1], [1])
    assert coverage(free, Placement([1], [2])).tolist() == [np.inf] * 2
    assert route_exact(free, Placement([1], [2]), 10**6).cost == 3
    far = Cluster(1, 1, 1, [9], [1], [[1], [np.inf]])
    with pytest.raises(Infeasible):
        route_exact(far, Placement([1], [1]), [0, 1])
    assert route_exact(far, Placement([1], [1]), [1, 0]).cost == 2


@pytest.mark.parametrize("wrong", BAD_REQUESTS, ids=repr)
def test_what_cannot_be_routed(wrong):
    cluster = Cluster(1, 1, 1, [9], [1], np.ones((3, 1)))
    with pytest.raises(ValueError, match="requests"):
        route_exact(cluster, Placement([1], [1]), wrong)


@pytest.mark.parametrize("wrong", [-1, np.nan, "3", True, [1]], ids=repr)
def test_time_limits_are_checked(wrong):
    with pytest.raises(ValueError, match="time_limit"):
        route_exact(THREE, BEST, 4, time_limit=wrong)
    with pytest.raises(BadPlan):
        route_exact(THREE, Placement([1, 1, 1], [9, 0, 0]), 4)
    # greedy routing is known to be the best, or at least an answer
    assert route_exact(THREE, BEST, 4, time_limit=0).gap == 0
    late = Cluster(2, 1, 1, [4, 4, 9], [1, 1, 1], [1, 2, 9])
    plan = route_exact(late, Placement([1, 1, 1], [2, 2, 2]), 2, time_limit=0)
    assert plan.status == "time_limit" and plan.cost == 3.5 and plan.bound == 3
    with pytest.raises(NotFound, match="more time") as caught:
        route_exact(STUCK, STUCK_AT, 2, time_limit=0)
    assert caught.value.unserved.tolist() == [2] and caught.value.bound >= 0


def test_a_stopped_search_keeps_the_cheaper_chains(monkeypatch):
    "What the program has found in time may cost more than what greedy routing gave."
    c = Cluster(2, 2, 1, memory=[6, 60, 60], tau=[1, 1, 1], rtt=[1, 2, 9])
    place = Placement([1, 1, 1], [2, 2, 2])
    stopped = Solution(Outcome.TIME_LIMIT, bound=7.0)
    for dear, best in (([Chain(0, (2,), (2,), 2)], 3.5), ([Chain(0, (1,), (2,), 2)], 3.5)):
        monkeypatch.setattr(flow, "_solved", lambda *_, found=dear: (found, stopped))
        plan = route_exact(c, place, 2)
        assert (plan.cost, plan.bound, plan.status) == (best, 3.5, "time_limit")


def test_one_line_if_asked(capfd):
    route_exact(THREE, BEST, 4)
    assert capfd.readouterr() == ("", "")
    route_exact(THREE, BEST, 4, verbose=True)
    said = capfd.readouterr()
    assert said.out == "" and "route_exact" in said.err and "80" in said.err


def test_requests_are_read_once(monkeypatch):
    "Each door reads them, and no room behind it."
    read, seen = Cluster.demand, []
    monkeypatch.setattr(Cluster, "demand", lambda c, given: (seen.append(1), read(c, given))[1])
    chains = route(THREE, BEST, 4).chains
    lone_bound(THREE, 4)
    route_exact(THREE, BEST, 4)
    check(THREE, BEST, chains, 4)
    assert len(seen) == 4


def odd_cluster(rng, visitor):
    "A cluster from arguments of which some are wrong; a plain one where that is refused."
    n, C, L = int(rng.integers(1, 5)), int(rng.integers(1, 3)), int(rng.integers(1, 7))
    given = dict(blocks=L, block_size=2, cache_size=rng.choice([0, 1, 0.1, 5e-324, 1e99]))
    given |= dict(memory=odd_array(rng, n), tau=odd_array(rng, n), rtt=odd_array(rng, C, n))
    more = dict(
        prefill_tau=odd_array(rng, n),
        prefill_rtt=odd_array(rng, C, n),
        hop=odd_array(rng, n, n),
        rent=odd_array(rng, n),
        domain=list("abcdefgh"[:n]),
        servers=[f"s{j}" for j in range(n)],
        clients=list("uvw"[:C]),
        memory_unit="GB",
        exact=bool(rng.random() < 0.7),
    )
    given |= {name: value for name, value in more.items() if rng.random() < 0.2}
    given = {name: odd(rng, value, 0.03) for name, value in given.items()}
    made = visitor.call(Cluster, **given)
    if made is not None and made.blocks < 1000:
        return made
    whole = lambda *shape: rng.integers(0, 9, shape).astype(float)
    return Cluster(L, 2, 1, 4 * whole(n), 1 + whole(n), whole(C, n), hop=whole(n, n))


def test_doors_meet_anything(capsys):
    """Clusters, placements, chains, demands, routings and plans from arguments of any kind: only
    the documented errors, in time, nothing changed, and no bound above a cost.
    """
    visitor = Visitor(ValueError, NotFound)
    for seed in range(cases(4000, 150)):
        rng = np.random.default_rng(seed)
        c = odd_cluster(rng, visitor)
        demand = odd(rng, odd_array(rng, len(c.clients)) if rng.random() < 0.5 else 4, 0.15)
        visitor.call(c.demand, demand)
        visitor.call(c.take, odd(rng, rng.random(c.n) < 0.5, 0.3))
        visitor.call(c.counts, odd(rng, 3, 0.5))
        good = random_placement(rng, c)
        a, m = (
            odd(rng, v, 0.1) if rng.random() < 0.9 else odd_array(rng, c.n)
            for v in (good.a, good.m)
        )
        place = odd(rng, visitor.call(Placement, a, m) or good, 0.05)
        visitor.call(Chain, *(odd(rng, v, 0.2) for v in (0, (0,), (c.blocks,), 1)))
        slots = odd(rng, odd_array(rng, c.n), 0.1)
        for door in (cheapest, route_direct):
            visitor.call(door, odd(rng, c, 0.02), place)
            visitor.call(door, c, place, slots)
        visitor.call(coverage, odd(rng, c, 0.02), place)
        lone = visitor.call(lone_bound, c, demand)
        forward = bool(c.hop is not None and rng.random() < 0.3)
        plans = [
            visitor.call(route, odd(rng, c, 0.02), place, demand, forward=forward),
            visitor.call(route_exact, c, place, demand, time_limit=odd(rng, 2.0, 0.1)),
        ]
        for plan in filter(None, plans):
            assert plan.bound <= plan.cost
            assert plan.forward or lone is None or lone <= plan.cost * CLOSE
            claims = dict(bound=plan.bound, status=None, guarantee=np.inf, scope="placement")
            claims = {name: odd(rng, value, 0.2) for name, value in claims.items()}
            chains, served = odd(rng, plan.chains, 0.1), odd(rng, plan.requests, 0.1)
            visitor.call(check, c, plan.placement, chains, served, forward=plan.forward, **claims)
            for show in (plan.summary, plan.to_frame, plan.plot):
                visitor.call(show)
    with capsys.disabled():
        print(f"\n{visitor.calls} calls of the doors of clusters, plans, routing and flows")
    assert not visitor.wrong, "\n".join(visitor.wrong[:9])


def test_the_live_example_answers_everywhere():
    for first in range(1, 9):
        for blocks in range(1, 5):
            for requests in range(3, 7):
                assert covered(first, blocks, requests).count("<svg") == 1
