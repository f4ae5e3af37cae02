"Enumeration and the program of the literature."

import inspect
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import combinations_with_replacement, product

import numpy as np
import pytest

from serving_or import blocks
from serving_or.blocks import (
    BadPlan,
    Chain,
    Cluster,
    Infeasible,
    NotFound,
    Placement,
    TooLarge,
    aggregate_bound,
    best_bound,
    cg_bprr,
    chain_bound,
    check,
    coverage,
    exit_bound,
    improve,
    lone_bound,
    max_flow_placement,
    milp,
    route,
    route_exact,
    strip_bound,
    sweep,
)
from serving_or.blocks.conservative_greedy import ORDERS, groups_of_clients, place_for
from serving_or.blocks.designs import by_reach, candidate_designs
from serving_or.blocks.link_program import (
    best_routing,
    enumeration,
    packing_cluster,
    paper_program,
    placements,
    read_paper,
    write_paper,
)
from serving_or.tools.programs import relaxation, solve
from tests.blocks.oracles import Oracle, any_cluster, spans_of
from tests.instances import EXAMPLE_A, unequal_cluster
from tests.instances import THREE as EXAMPLE_B
from tests.long import cases


def test_all_placements_are_listed_once():
    a, m = placements(EXAMPLE_A)
    assert len(a) == 275 == len({(*x, *y) for x, y in zip(a.tolist(), m.tolist(), strict=True)})
    assert (a + m <= 5).all() and (m <= EXAMPLE_A.counts(0)).all() and (a >= 1).all()


def test_too_many_placements_are_told():
    large = Cluster(70, 1, 1, [1000] * 10, [1] * 10, [1] * 10)
    with pytest.raises(TooLarge) as error:
        enumeration(large, 1)
    assert error.value.size > error.value.limit == 300_000
    with pytest.raises(ValueError, match="most is 0"):
        enumeration(EXAMPLE_A, 1, most=0)


def test_the_two_examples():
    a, b = enumeration(EXAMPLE_A, 4), enumeration(EXAMPLE_B, 4)
    assert (a.cost, a.status, b.cost, b.status) == (70, "optimal", 80, "optimal")
    assert a.bound == a.cost and a.gap == 0
    with pytest.raises(Infeasible, match="none of 275 placements serves 5 requests"):
        enumeration(EXAMPLE_A, 5)
    assert enumeration(EXAMPLE_A, 0).cost == 0


def test_routing_of_one_placement_with_a_cutoff():
    placement = enumeration(EXAMPLE_B, 4).placement
    total, chains = best_routing(EXAMPLE_B, placement, np.array([4]))
    assert total == 320 and sum(c.count for c in chains) == 4
    assert best_routing(EXAMPLE_B, placement, np.array([4]), cutoff=320) == (np.inf, [])
    assert best_routing(EXAMPLE_B, Placement([1, 1, 1], [2, 0, 0]), np.array([1]))[0] == np.inf


def test_two_clients_deal_out_what_both_want():
    "One cheap server with room for two requests: the far client needs it more."
    c = Cluster(1, 1, 1, memory=[3, 9], tau=[1, 1], rtt=[[0, 1], [0, 9]])
    plan = enumeration(c, [2, 2])
    assert plan.cost == pytest.approx((2 * 2 + 2 * 1) / 4)


@pytest.mark.parametrize("seed", range(12))
def test_a_plan_written_and_solved_is_read_back(seed):
    rng = np.random.default_rng(seed)
    c = Cluster(3, 2, 1, rng.integers(4, 12, 3), rng.integers(1, 5, 3), rng.integers(0, 9, (1, 3)))
    try:
        plan = enumeration(c, 2)
    except Infeasible:
        return
    program = paper_program(c, plan.requests)
    answer = solve(program, start=write_paper(program, c, plan))
    assert answer.value == pytest.approx(plan.cost) and relaxation(program) <= plan.cost + 1e-9
    placement, chains = read_paper(program, answer.x)
    both = [type(k)(0, k.servers, k.blocks, k.count) for k in chains]
    assert check(c, placement, both, 2).cost == pytest.approx(plan.cost)


# blocks that are not alike, against sums over single blocks


def by_hand(cluster, a, m, demand):
    "The least total time of all routings of spans, block by block; infinite without one."
    L, n = cluster.blocks, cluster.n
    size, cache = (np.broadcast_to(s, L) for s in (cluster.block_size, cluster.cache_size))
    left = [M - sum(size[b - 1] for b in range(x, x + k)) for M, x, k in zip(cluster.memory, a, m)]
    if min(left) < 0:
        return np.inf, []
    spans, found = [set(range(x, x + k)) for x, k in zip(a, m)], []
    for way in product(range(n), repeat=L):  # the server of each block
        runs = [[b for b in range(1, L + 1) if way[b - 1] == j] for j in range(n)]
        if all(
            not run or (run == list(range(run[0], a[j] + m[j])) and set(run) <= spans[j])
            for j, run in enumerate(runs)
        ):
            use = [sum(cache[b - 1] for b in run) for run in runs]
            found.append((way, use))
    best, chosen = np.inf, []
    each = [list(combinations_with_replacement(found, q)) for q in demand]
    for together in product(*each):
        ways = [(c, way, use) for c, some in enumerate(together) for way, use in some]
        if all(sum(use[j] for _, _, use in ways) <= left[j] for j in range(n)):
            total = sum(
                sum(cluster.tau[j] for j in way) + sum(cluster.rtt[c, j] for j in set(way))
                for c, way, _ in ways
            )
            if total < best:
                best, chosen = total, [(c, way) for c, way, _ in ways]
    return best, chosen


def all_spans(cluster):
    "Every placement, also those that do not fit."
    L = cluster.blocks
    one = [(1, 0), *((a, m) for m in range(1, L + 1) for a in range(1, L + 2 - m))]
    for held in product(one, repeat=cluster.n):
        yield tuple(zip(*held))


@pytest.mark.parametrize("seed", range(cases(400)))
def test_unequal_blocks_against_sums_block_by_block(seed):
    rng = np.random.default_rng([seed, 11])
    clients = int(rng.integers(1, 3))
    c = unequal_cluster(rng, L=int(rng.integers(2, 4)), clients=clients)
    demand = rng.integers(0, 3 if clients == 2 else 4, clients)
    best = np.inf
    for a, m in all_spans(c):
        total, chosen = by_hand(c, a, m, demand)
        best = min(best, total)
        if rng.random() < 0.05 and total < np.inf and demand.any():
            placement = Placement(a, m)
            assert route_exact(c, placement, demand).cost == pytest.approx(total / demand.sum())
            chains = [Chain(k, *runs_of(way)) for k, way in chosen]
            assert check(c, placement, chains, demand).cost == pytest.approx(total / demand.sum())
            with suppress(NotFound):
                assert route(c, placement, demand).cost >= total / demand.sum() - 1e-9
        elif rng.random() < 0.05:
            with pytest.raises((BadPlan, Infeasible)) if total == np.inf else nothing():
                route_exact(c, Placement(a, m), demand)
    mean = best / max(demand.sum(), 1)
    for method in (enumeration, milp):
        if mean < np.inf:
            plan = method(c, demand)
            assert plan.cost == pytest.approx(mean) and plan.status == "optimal"
            assert lone_bound(c, demand) <= mean * (1 + 1e-9)
        else:
            with pytest.raises(Infeasible):
                method(c, demand)


def runs_of(way):
    "Servers and numbers of blocks of a chain, from the server of each block."
    servers = list(dict.fromkeys(way))
    return servers, [way.count(j) for j in servers]


@contextmanager
def nothing():
    yield


@pytest.mark.parametrize("seed", range(cases(400)))
def test_padded_blocks_give_plans_that_fit_and_prove_nothing(seed):
    rng = np.random.default_rng([seed, 12])
    c = unequal_cluster(rng, clients=1)
    R, padded = int(rng.integers(1, 4)), c.padded()
    assert padded.alike and (padded.exact == c.alike)
    for method in (cg_bprr, sweep, milp):
        try:
            plan = method(padded, R)
        except NotFound:
            continue
        except Infeasible:
            assert c.alike
            continue
        assert c.alike or plan.status != "optimal"
        assert check(c, plan.placement, plan.chains, R).cost == plan.cost
        assert milp(c, R, start=replace(plan, cluster=c)).cost <= plan.cost * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(cases(400)))
def test_a_reservation_of_unequal_blocks_holds_whatever_the_chains(seed):
    rng = np.random.default_rng([seed, 13])
    c = unequal_cluster(rng, L=int(rng.integers(2, 9)))
    a, design = rng.integers(1, c.blocks + 1, c.n), int(rng.integers(0, 4))
    most = c.longest(design)[np.arange(c.n), a - 1]
    size, cache = (np.broadcast_to(s, c.blocks) for s in (c.block_size, c.cache_size))
    for M, x, m in zip(c.memory, a, most):
        need = np.cumsum((size + design * cache)[x - 1 :])
        assert m == (need <= M).sum()
    assert (c.sessions(most, a)[most > 0] >= design).all()
    held = Placement(a, most)
    assert (coverage(c, held) >= design * held.hosts(c.blocks).any(axis=0)).all()
    assert (c.earliest(a, a + most, c.slots(most, a))[most > 0] <= (a + most)[most > 0]).all()


def test_doors_that_need_equal_blocks_say_so():
    c = Cluster(3, [1, 2, 2], 1, [9, 9], [1, 1], [1, 1])
    for call in (
        lambda: cg_bprr(c, 1),
        lambda: sweep(c, 1),
        lambda: milp(c, 1, "paper"),
        lambda: c.counts(1),
        lambda: c.slots([1, 1]),
        lambda: c.sessions([1, 1]),
    ):
        with pytest.raises(ValueError, match="this needs blocks that are alike.*padded"):
            call()


@pytest.mark.parametrize("sizes", [([1, 2, 2], 1), (1, [1, 0, 2]), ([1, 2, 2], [2, 2, 0])])
def test_every_door_is_right_about_unequal_blocks_or_refuses_them(sizes):
    hop = np.ones((3, 3))
    c = Cluster(3, *sizes, [19, 19, 9], [1, 2, 3], [1, 2, 3], hop=hop, rent=[1, 2, 3])
    best = enumeration(c, 2)
    given = dict(
        cluster=c, requests=2, placement=best.placement, plan=best, reserve=1, failures=1, target=9
    )
    given |= dict(arrivals=blocks.Arrivals([0, 5], 1, 2), rate=1, design=1, events=[], model="m")
    given |= dict(
        lost=[], joined=None, tokens=9, p=2, rtt=1, tau=1, blocks=3, servers=[0, 1], groups=[[0, 1]]
    )
    given |= dict(
        fabric=blocks.Fabric(np.ones((3, 3))), before=best.placement, after=best.placement
    )
    right = {"milp", "enumeration", "route", "route_exact", "route_direct", "cheapest", "coverage"}
    right |= {"lone_bound", "direct_bound", "direct_floor", "plan_direct", "losses"}
    refused = set()
    for name in blocks.__all__:
        door = getattr(blocks, name)
        if not inspect.isfunction(door) or name == "check":
            continue
        wanted = inspect.signature(door).parameters
        if name in ("break_even_rtt", "read_launch"):  # of no cluster
            continue
        some = {k for k, p in wanted.items() if p.kind != p.VAR_KEYWORD and p.default is p.empty}
        needed = some | {"cluster", "plan", "rate"}
        try:
            answer = door(**{k: given[k] for k in needed & set(wanted)})
        except ValueError as error:
            said = {"launch_commands": "cache_size differs by block"}
            assert said.get(name, "this needs blocks that are alike") in str(error), name
            refused.add(name)
            continue
        value = getattr(answer, "value", answer)
        if name.endswith("bound") and not name.startswith("direct"):
            assert value <= best.cost * (1 + 1e-9), name
    assert {"cg_bprr", "sweep"} <= refused and not refused & right


def test_sizes_of_a_plan_on_unequal_blocks_are_told():
    c = Cluster(3, [1, 2, 4], [1, 0, 2], [8, 4], [1, 1], [1, 1], memory_unit="GB")
    held = Placement([2, 1], [2, 1])
    plan = check(c, held, [Chain(0, (1, 0), (1, 2))], 1)
    table = plan.to_frame()
    assert table["parameters, GB"].tolist() == [6, 1] and table["caches, GB"].tolist() == [2, 1]
    with pytest.raises(BadPlan, match="memory 7 GB; 2 blocks take 6 and leave 1 for caches"):
        check(replace(c, memory=[7, 4]), held, [Chain(0, (1, 0), (1, 2))], 1)


# everything against trying everything, in code of its own

BOUNDS = (aggregate_bound, chain_bound, strip_bound, exit_bound, best_bound)


def of_every_design(c, demand):
    "Placements of every design that a sweep tries."
    for design, order in product(candidate_designs(c, int(demand.sum())).tolist(), ORDERS):
        placement, capacity = place_for(c, demand, design, order)
        if (capacity >= demand.sum()).all():
            yield placement
        if len(groups_of_clients(c, demand)[0]) > 1:
            yield by_reach(c, demand, design, order)


@pytest.mark.parametrize("seed", range(cases(1000)))
def test_all_doors_against_an_oracle(seed):
    rng = np.random.default_rng([seed, 20])
    c, demand = any_cluster(rng, Cluster)
    oracle = Oracle(c)
    best, R = oracle.optimum(demand.tolist()), int(demand.sum())
    near = best * (1 + 1e-7)
    plans = []
    for method in (enumeration, milp):
        if best == np.inf:
            with pytest.raises(Infeasible) as error:
                method(c, demand)
            if method == milp:
                largest = np.array(error.value.largest)
                assert largest.shape == demand.shape and (largest <= demand).all()
                assert oracle.serves(largest.tolist())
                assert largest.sum() == oracle.most(demand.tolist())
            continue
        plans.append(method(c, demand))
        assert plans[-1].cost == pytest.approx(best) and plans[-1].status == "optimal"
    heuristics = (cg_bprr, sweep) if c.alike else ()
    for method in heuristics:
        try:
            plans.append(method(c, demand))
        except Infeasible:
            assert best == np.inf
        except NotFound:
            pass
    for bound in (lone_bound, *(BOUNDS if c.alike else ())):
        try:
            proved = bound(c, demand)
        except Infeasible:
            assert best == np.inf
            continue
        assert getattr(proved, "value", proved) <= near + 1e-12
    swept = plans[-1] if heuristics and plans and plans[-1].design is not None else None
    if swept is not None and R:
        for placement in of_every_design(c, demand):
            assert swept.cost * R <= oracle.routed(spans_of(placement), demand.tolist()) + 1e-6
        plans.append(improve(swept, time_limit=0.3))
        assert plans[-1].cost <= swept.cost * (1 + 1e-9)
    for plan in plans:
        assert plan.cost >= best - 1e-7 * max(best, 1) and plan.bound <= near + 1e-12
        assert plan.status != "optimal" or plan.cost <= near + 1e-12
        assert oracle.routed(spans_of(plan.placement), demand.tolist()) <= plan.cost * R + 1e-6


def groups_exist(weights, groups):
    "Whether the weights can be put into groups of one sum, by trying all."
    each = sum(weights) / groups
    return any(
        all(sum(w for w, g in zip(weights, where) if g == k) == each for k in range(groups))
        for where in product(range(groups), repeat=len(weights))
    )


@pytest.mark.parametrize("seed", range(cases(120)))
def test_plans_of_the_least_cost_are_partitions(seed):
    rng = np.random.default_rng([seed, 30])
    R = 2 if seed % 3 else 3
    while True:
        weights = rng.integers(1, 5, rng.integers(R, 5)).tolist()
        if sum(weights) % R == 0 and max(weights) <= sum(weights) // R <= (4 if R == 2 else 3):
            break
    c = packing_cluster(weights, R)
    most = [c.slots(np.full(c.n, m)).tolist() for m in range(1, c.blocks + 1)]
    assert np.max(most, axis=0).tolist() == weights
    try:
        plan = enumeration(c, R)
    except Infeasible:
        assert not groups_exist(weights, R)
        return
    assert plan.visits.tolist() == weights and plan.cost >= c.n / R
    assert (plan.cost == pytest.approx(c.n / R)) == groups_exist(weights, R)


@pytest.mark.parametrize("seed", range(cases(80)))
def test_the_tight_form_has_the_same_optimum_and_a_better_relaxation(seed):
    rng = np.random.default_rng([seed, 31])
    n, L, R = int(rng.integers(2, 4)), int(rng.integers(2, 5)), int(rng.integers(1, 4))
    c = Cluster(L, 2, 1, rng.integers(2, 14, n), rng.integers(0, 9, n), rng.integers(0, 9, n))
    loose, tight = (paper_program(c, np.array([R]), tight=t) for t in (False, True))
    answer = solve(tight)
    try:
        best = enumeration(c, R).cost
    except Infeasible:
        assert answer.status == "infeasible"
        return
    assert answer.value == pytest.approx(best)
    assert relaxation(loose) <= relaxation(tight) + 1e-6 and relaxation(tight) <= best + 1e-6


def test_the_largest_flow_is_the_most_whole_sessions():
    rng = np.random.default_rng(32)
    met = 0
    for _ in range(cases(200)):
        n, L = int(rng.integers(1, 4)), int(rng.integers(1, 4))
        rtt = rng.integers(1, 9, (2, n)).astype(float)
        rtt[rng.random((2, n)) < 0.1] = np.inf
        c = Cluster(L, 2, 1, rng.integers(2, 20, n), rng.integers(1, 9, n), rtt)
        near = c.take(np.flatnonzero(np.isfinite(rtt).all(axis=0)))
        every = zip(*placements(near)) if near.n else ()
        most = max((coverage(near, Placement(*p)).min() for p in every), default=0)
        if most == 0:
            # c has two clients; nothing is proved where one of them does not reach a server
            with pytest.raises(Infeasible if near.n == n else NotFound):
                max_flow_placement(c, [1, 1])
            continue
        met += 1
        placement = max_flow_placement(c, [1, 1])
        assert coverage(c, placement).min() == most
        assert route_exact(c, placement, int(most)).cost > 0
    assert met > 10
    big = Cluster(70, 1, 1, [1000] * 20, [1] * 20, [1] * 20)
    with pytest.raises(TooLarge):
        max_flow_placement(big)
    with pytest.raises(NotFound):
        max_flow_placement(EXAMPLE_A, time_limit=0)
