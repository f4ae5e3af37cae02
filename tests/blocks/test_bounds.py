"No plan is below a bound: against enumeration, any prices, a program over all patterns."

import dataclasses
import time
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog

from serving_or import blocks
from serving_or.blocks import Cluster, Infeasible, cg_bprr, chain_bound, lone_bound
from serving_or.blocks import bounds as chapter
from serving_or.blocks.bounds import (
    Bound,
    _aggregate_prices,
    aggregate_bound,
    best_bound,
    exit_bound,
    exit_program,
    from_staircases,
    held_spans,
    multiplier_bound,
    staircases,
    strip_bound,
    strip_value,
    trimmed,
)
from serving_or.blocks.flow import route_exact
from serving_or.blocks.line_program import capacity_hull, milp
from serving_or.blocks.link_program import enumeration
from serving_or.blocks.routing import cheapest_patterns
from serving_or.tools.programs import Outcome, Solution, solve
from tests.instances import EXAMPLE_A, fleet, random_placement, tiny_cluster
from tests.long import cases


def random_cluster(rng, n=3, blocks=4, requests=3, clients=1):
    s_m, s_c = int(rng.integers(1, 6)), int(rng.integers(0, 4))
    memory = rng.integers(0, (s_m + s_c * requests) * blocks + s_m + 1, n)
    return Cluster(
        blocks, s_m, s_c, memory, rng.integers(1, 6, n), rng.integers(0, 9, (clients, n))
    )


def optimum(c, requests):
    try:
        return enumeration(c, requests).cost
    except Infeasible:
        return np.inf


@pytest.mark.parametrize("seed", range(60))
def test_bounds_are_below_the_optimum_and_prices_prove_them(seed):
    rng = np.random.default_rng(seed)
    clients = 1 + seed % 2
    c = random_cluster(rng, int(rng.integers(1, 4)), int(rng.integers(1, 5)), 3, clients)
    best, demand = optimum(c, 3), c.demand(3)
    try:
        found = chain_bound(c, 3)
    except Infeasible:
        assert best == np.inf
        return
    assert found.value <= best * (1 + 1e-9)
    # from the multipliers alone
    assert multiplier_bound(c, demand, found.multipliers) <= found.value * (1 + 1e-12)
    assert found.value == pytest.approx(
        max(multiplier_bound(c, demand, found.multipliers), lone_bound(c, 3), aggregate_bound(c, 3))
    )
    assert lone_bound(c, 3) <= found.value * (1 + 1e-9) and aggregate_bound(c, 3) <= found.value * (
        1 + 1e-6
    )
    assert found.value >= found.limit * (1 - 1e-5)  # and no prices prove more
    for scale in (0.1, 1.0, 10.0):  # any prices give a bound
        price = rng.exponential(scale, len(found.multipliers)) * (
            rng.random(len(found.multipliers)) < 0.5
        )
        assert multiplier_bound(c, demand, price) <= best * (1 + 1e-9)
        assert multiplier_bound(c, demand, price) <= found.limit * (1 + 1e-5) + 1e-9


def patterns(c):
    "All ways to split L blocks over the servers."
    most = c.counts(1)
    return np.array(
        [k for k in product(*(range(m + 1) for m in most)) if sum(k) == c.blocks]
    ).reshape(-1, c.n)


@pytest.mark.parametrize("seed", range(30))
def test_column_generation_equals_the_program_over_all_patterns(seed):
    rng = np.random.default_rng(1000 + seed)
    c, R = random_cluster(rng, 3, 4, 4, 2), np.array([3, 1])
    server, slope, intercept = capacity_hull(c, 4)
    k = patterns(c)
    if len(k) == 0:
        with pytest.raises(Infeasible):
            chain_bound(c, R)
        return
    cost = np.concatenate([k @ c.tau + (k > 0) @ c.rtt[a] for a in (0, 1)])
    visits = np.tile(k[:, server] - slope * (k[:, server] > 0), (2, 1)).T
    answer = linprog(cost, visits, intercept, np.kron(np.eye(2), np.ones(len(k))), R)
    if answer.status == 2:
        with pytest.raises(Infeasible):
            chain_bound(c, R)
    else:
        assert chain_bound(c, R).value == pytest.approx(answer.fun / 4, rel=1e-5)


@pytest.mark.parametrize("seed", range(40))
def test_the_knapsack_finds_the_cheapest_pattern(seed):
    rng = np.random.default_rng(seed)
    most, L = rng.integers(0, 4, 4), int(rng.integers(1, 6))
    visit, block = rng.normal(3, 4, (2, 4)), rng.exponential(3, 4)
    cost, k = cheapest_patterns(visit, block, most, L)
    every = np.array([p for p in product(*(range(m + 1) for m in most)) if sum(p) == L]).reshape(
        -1, 4
    )
    for c in range(2):
        if len(every) == 0:
            assert cost[c] == np.inf
        else:
            assert cost[c] == pytest.approx((every @ block + (every > 0) @ visit[c]).min())
            assert (
                k[c].sum() == L
                and np.all(k[c] <= most)
                and k[c] @ block + (k[c] > 0) @ visit[c] == pytest.approx(cost[c])
            )


@pytest.mark.parametrize("seed", range(60))
def test_a_sort_solves_the_sum_of_all_capacities(seed):
    "The aggregate bound is the value of its linear program, solved by scipy."
    rng = np.random.default_rng(seed)
    n, C, R = int(rng.integers(1, 5)), int(rng.integers(1, 3)), int(rng.integers(1, 9))
    memory, tau = rng.integers(4, 60, n), rng.integers(0, 9, n)
    c = Cluster(5, 3, 1, memory, tau, rng.integers(0, 30, (C, n)))
    server, slope, intercept = capacity_hull(c, R)
    lines, t = np.eye(n)[server], c.rtt[c.demand(R) > 0].min(axis=0)
    answer = linprog(
        np.append(t, c.tau) / R,
        A_ub=np.hstack([-slope[:, None] * lines, lines]),
        b_ub=intercept,
        A_eq=[[0] * n + [1] * n],
        b_eq=[R * 5],
        bounds=[(0, R)] * n + [(0, None)] * n,
    )
    if answer.status == 2:
        with pytest.raises(Infeasible):
            aggregate_bound(c, R)
    else:
        assert aggregate_bound(c, R) == pytest.approx(answer.fun)


@pytest.mark.parametrize("seed", range(cases(500, 40)))
def test_the_prices_of_the_aggregate_bound_prove_it(seed):
    rng = np.random.default_rng(seed)
    n, clients, R = int(rng.integers(1, 7)), int(rng.integers(1, 3)), int(rng.integers(1, 12))
    c = random_cluster(rng, n, 5, 4, clients)
    c = dataclasses.replace(c, rtt=np.where(rng.random(c.rtt.shape) < 0.1, np.inf, c.rtt))
    try:
        value = aggregate_bound(c, R)
    except Infeasible:
        return
    prices = _aggregate_prices(c, c.demand(R), capacity_hull(c, R))
    assert multiplier_bound(c, R, prices) >= value * (1 - 1e-9)


def test_where_the_greedy_plan_is_proved_optimal():
    "Servers with room for all: one server serves everybody, and the bound meets it."
    c = Cluster(6, 2, 1, [60, 60, 60], [2, 3, 4], [5, 1, 1])
    plan = cg_bprr(c, 4)
    assert chain_bound(c, 4).value == pytest.approx(plan.cost) == optimum(c, 1)


@pytest.mark.parametrize("name", ["chains", "strip"])
def test_the_limit_says_nothing_while_requests_are_without_a_server(name):
    "It was 9.8 after one round, and 981 are proved after all."
    bound = {"chains": chain_bound, "strip": strip_bound}[name]
    c = Cluster(1, 1, 1, [2, 500], [1, 1], [[0, 1000], [1000, 0]])
    found = [bound(c, [100, 1], rounds=rounds) for rounds in (0, 1, 2, 3, 500)]
    assert found[-1].value == pytest.approx(milp(c, [100, 1]).cost)
    assert all(b.limit >= found[-1].value * (1 - 1e-6) for b in found)


def test_a_client_without_requests_is_nobody_s_neighbour():
    c = Cluster(1, 1, 1, [9], [1], [[0], [10]])
    for bound in (aggregate_bound, lone_bound):
        assert bound(c, [0, 2]) == 11
    assert chain_bound(c, [0, 2]).value == pytest.approx(11)


@pytest.mark.parametrize("name", ["chains", "strip", "exits"])
def test_what_is_out_of_reach_helps_nobody(name):
    "There is room for all, but not where client 0 can go."
    bound = {"chains": chain_bound, "strip": strip_bound, "exits": exit_bound}[name]
    c = Cluster(1, 1, 1, [3, 50], [1, 1], [[0, np.inf], [0, 0]])
    assert bound(c, [2, 5]).value == pytest.approx(1)
    with pytest.raises(Infeasible):
        bound(c, [3, 5])


def test_an_example_where_the_bound_is_not_the_optimum():
    c = Cluster(4, 4, 1, [24, 6, 6], [10, 20, 20], [10, 10, 10])
    assert chain_bound(c, 4).value <= 70 and optimum(c, 4) == pytest.approx(70)


def test_scaling_and_more_requests():
    rng = np.random.default_rng(7)
    for _ in range(10):
        c = dataclasses.replace(random_cluster(rng, 4, 5, 6), memory=rng.integers(30, 60, 4))
        values = []
        for R in (1, 2, 3, 5):
            try:
                values.append(chain_bound(c, R).value)
            except Infeasible:
                break
        assert np.all(np.diff(values) >= -1e-6 * np.max(values, initial=1))
        if values:
            scaled = dataclasses.replace(c, tau=c.tau * 3, rtt=c.rtt * 3)
            assert chain_bound(scaled, 1).value == pytest.approx(3 * values[0])


def test_edges_and_bad_prices():
    c = Cluster(3, 2, 1, [12, 12], [1, 2], [[4, 1], [np.inf, 1]])
    assert chain_bound(c, 0).value == 0
    assert chain_bound(c, [0, 1]).value <= optimum(c, [0, 1]) and np.isfinite(
        chain_bound(c, [0, 1]).value
    )
    assert chain_bound(Cluster(1, 2, 1, [3], [5], [2]), 1).value == pytest.approx(7)
    free = Cluster(3, 2, 0, [6, 2], [1, 1], [4, 1])
    assert chain_bound(free, 9).value <= optimum(free, 2) * (1 + 1e-9)
    n = len(chain_bound(c, 2).multipliers)
    for bad in (np.full(n, -1.0), np.ones(n + 1), np.full(n, np.nan)):
        with pytest.raises(ValueError, match="multipliers"):
            multiplier_bound(c, 2, bad)
    with pytest.raises(Infeasible):
        chain_bound(Cluster(3, 2, 1, [3, 3], [1, 1], [0, 0]), 1)
    with pytest.raises(Infeasible):
        aggregate_bound(Cluster(3, 2, 1, [9, 3], [1, 1], [0, 0]), 50)
    assert (
        blocks.chain_bound is chain_bound
        and "no relayed plan for 2 requests" in chain_bound(c, 2).summary()
        and len(chain_bound(c, 2).to_frame()) <= n
    )


@pytest.mark.parametrize("time_limit", [0, 0.05, 1, 3])
@pytest.mark.parametrize("n", [3, 60, 1000])
def test_a_limit_holds_and_nothing_cheap_is_lost(time_limit, n):
    "A thousand servers that all differ took 9 s of 3, and returned less than the aggregate bound."
    rng = np.random.default_rng(n)
    c = Cluster(
        40, 1.3, 0.05, rng.uniform(6, 24, n), rng.uniform(4, 16, n), rng.uniform(60, 120, n)
    )
    R = 2 * n
    began = time.process_time()
    try:
        found = chain_bound(c, R, time_limit=time_limit)
    except Infeasible:
        assert n == 3
        return
    spent = time.process_time() - began
    assert spent <= max(1.2 * time_limit, time_limit + 0.5)
    assert found.value >= max(lone_bound(c, R), aggregate_bound(c, R))


@pytest.mark.parametrize(
    "bad", [{"time_limit": -1}, {"time_limit": np.nan}, {"tolerance": -1}, {"rounds": 2.5}]
)
def test_bad_arguments_are_told(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        chain_bound(EXAMPLE_A, 4, **bad)


def test_the_unit_of_time_changes_no_bound():
    for unit in (1e-6, 1e6):
        scaled = dataclasses.replace(EXAMPLE_A, tau=EXAMPLE_A.tau * unit, rtt=EXAMPLE_A.rtt * unit)
        assert chain_bound(scaled, 4).value == pytest.approx(unit * chain_bound(EXAMPLE_A, 4).value)


def test_a_bound_says_what_it_ranges_over_and_is_built_of_what_proves_it(tmp_path):
    found = chain_bound(EXAMPLE_A, 4)
    assert found.scope == "relayed" and found.plot().startswith("<svg")
    found.save(tmp_path / "bound.json")
    assert Bound.load(tmp_path / "bound.json") == found
    with pytest.raises(ValueError, match="multipliers"):
        dataclasses.replace(found, multipliers=-found.multipliers - 1)
    with pytest.raises(ValueError, match="multipliers"):
        dataclasses.replace(found, multipliers=found.multipliers[1:])


# the exit program


def enumerated(seed):
    "A tiny cluster with its optimum: one or two clients, equal servers or not, partial reach."
    rng = np.random.default_rng(seed)
    n, L, clients = int(rng.integers(1, 4)), int(rng.integers(1, 5)), 1 + seed % 2
    c = random_cluster(rng, n, L, 3, clients)
    if seed % 3 == 0:
        c = dataclasses.replace(c, memory=np.full(n, c.memory[0]), tau=np.full(n, c.tau[0]))
    if seed % 5 == 0:
        c = dataclasses.replace(c, rtt=np.where(rng.random(c.rtt.shape) < 0.2, np.inf, c.rtt))
    return c, c.demand(3), optimum(c, 3)


@pytest.mark.parametrize("seed", range(cases(1200, 60)))
def test_the_exit_program_is_exact_for_single_servers_and_a_bound_for_groups(seed):
    c, demand, best = enumerated(seed)
    alone = np.arange(c.n)
    for mean in (False, True):
        program = exit_program(c, demand, groups=alone, mean=mean)
        answer = solve(program.program)
        assert answer.value == pytest.approx(best) and (answer.x is not None) == (best < np.inf)
        if answer.x is not None:
            assert route_exact(c, program.place(answer.x), demand).cost == pytest.approx(best)
    # groups of equal servers, and all servers in one group
    for groups in (None, 0 * alone, alone):
        relaxed = solve(exit_program(c, demand, groups=groups).program, relaxed=True)
        assert relaxed.bound <= best * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize("seed", range(cases(300, 25)))
def test_exits_count_visits_at_least_as_well_as_all_together(seed):
    "The lines of each server hold in all groups, also of servers that differ."
    c, demand, best = enumerated(seed)
    if best == np.inf:
        return
    for groups in (None, np.zeros(c.n, int)):
        relaxed = solve(exit_program(c, demand, groups=groups).program, relaxed=True)
        assert relaxed.value >= aggregate_bound(c, demand) * (1 - 1e-7) - 1e-9


@pytest.mark.parametrize("seed", range(cases(400, 40)))
def test_a_plan_is_a_solution_of_the_exit_program_at_its_cost(seed):
    rng = np.random.default_rng(seed)
    c, R = tiny_cluster(rng, clients=1 + seed % 2), int(rng.integers(1, 4))
    c = dataclasses.replace(c, memory=c.memory * 2)
    try:
        plan = route_exact(c, random_placement(rng, c), R)
    except Infeasible:
        return
    found = exit_program(c, c.demand(R), groups=np.arange(c.n), mean=True)
    columns, values = found.begin(plan)
    x = np.zeros(len(found.program.cost))
    x[columns] = values
    p = found.program
    value = p.matrix @ x
    assert (value >= p.low - 1e-9).all() and (value <= p.high + 1e-9).all()
    assert p.cost @ x == pytest.approx(plan.cost)
    assert route_exact(c, found.place(x), R).cost <= plan.cost * (1 + 1e-9)
    # only the spans in use, entered only where the plan does
    entries = np.unique(
        found.visits[values[len(found.spans) :].reshape(len(c.clients), -1).any(axis=0), 1]
    )
    few = exit_program(
        c, c.demand(R), held_spans(plan, found.groups), np.arange(c.n), entries, mean=True
    )
    assert solve(few.program).value <= plan.cost * (1 + 1e-9)
    few.begin(plan)


def test_a_plan_with_other_spans_is_no_start():
    c = fleet(6)
    plan = cg_bprr(c, 2)
    found = exit_program(c, c.demand(2), spans=np.array([[0, 1, 2], [1, 2, 3]]), mean=True)
    with pytest.raises(ValueError, match="no such column"):
        found.begin(plan)


# the strip form


@pytest.mark.parametrize("seed", range(cases(1000, 60)))
def test_staircases_are_plans_and_plans_are_staircases(seed):
    rng = np.random.default_rng(seed)
    clients, R = 1 + seed % 3, int(rng.integers(1, 5))
    c = tiny_cluster(rng, n=int(rng.integers(1, 6)), clients=clients)
    c = dataclasses.replace(c, memory=c.memory * 2)
    try:
        plan = route_exact(c, random_placement(rng, c), R)
    except Infeasible:
        return
    heights, demand = staircases(plan), c.demand(R)
    assert (heights.sum(axis=1) == demand[:, None]).all()
    total = heights.sum(axis=0)
    assert (total.sum(axis=1) == plan.visits).all()
    # the cost by the theorem, from the last heights and the areas
    last = [heights[i][np.arange(c.n), np.maximum(plan.placement.e - 2, 0)] for i in range(clients)]
    used = plan.placement.m > 0
    away = sum(c.rtt[i, used] @ last[i][used] for i in range(clients))
    assert (away + c.tau @ total.sum(axis=1)) / R == pytest.approx(plan.cost)
    again = from_staircases(c, heights)
    assert again.cost == pytest.approx(plan.cost) and (staircases(again) == heights).all()
    # more than is asked for: longer staircases, and a plan that costs no more
    more = heights + (heights > 0) * np.cumsum(rng.integers(0, 2, heights.shape), axis=2)
    fewer = trimmed(more, demand)
    assert (fewer.sum(axis=1) == demand[:, None]).all() and (fewer <= more).all()
    room = dataclasses.replace(c, memory=c.memory * 100)
    plan = from_staircases(room, fewer)
    areas = more.sum(axis=(0, 2))
    ends = [more[i].max(axis=1) for i in range(clients)]
    full = sum(c.rtt[i] @ ends[i] for i in range(clients)) + c.tau @ areas
    assert plan.cost * R <= full + 1e-9


def test_what_is_no_staircase_is_refused():
    c = Cluster(3, 1, 1, [20, 20], [1, 1], [1, 1])
    with pytest.raises(ValueError, match="leave server 0 before block 3"):
        from_staircases(c, np.array([[[2, 2, 1], [0, 0, 1]]]))
    with pytest.raises(ValueError, match="same sum"):
        from_staircases(c, np.array([[[1, 2, 2], [0, 0, 1]]]))
    with pytest.raises(blocks.BadPlan, match="memory"):
        from_staircases(c, np.full((1, 2, 3), 6))


# the strip bound, and the largest of all


@pytest.mark.parametrize("seed", range(cases(2000, 80)))
def test_strip_exits_and_the_best_are_below_the_optimum(seed):
    c, demand, best = enumerated(seed)
    try:
        found = best_bound(c, demand)
    except Infeasible:
        assert best == np.inf
        return
    assert found.value == max(found.others.values()) <= best * (1 + 1e-9)
    strip = strip_bound(c, demand)
    assert strip.value <= strip.limit * (1 + 1e-9) and strip.value >= strip.limit * (1 - 1e-5)
    R, K = int(demand.sum()), max(int(c.counts(1).max()), 1)
    G = np.cumsum(strip.multipliers[:R])
    prices = np.cumsum(strip.multipliers[R:].reshape(-1, K), axis=1)
    proved = strip_value(c, demand, G, prices)
    cheap = max(lone_bound(c, demand), aggregate_bound(c, demand))
    assert strip.value == pytest.approx(max(proved, cheap))
    # any prices, also with G = 0, c = 0, or of any sign
    rng = np.random.default_rng(seed)
    for scale in (0.3, 3.0, 30.0):
        G = np.cumsum(rng.exponential(scale, R)) * (seed % 3 > 0)
        lengths = np.cumsum(rng.exponential(scale, (len(demand), K)), axis=1) * (seed % 4 > 0)
        assert strip_value(c, demand, G, lengths) <= best * (1 + 1e-9)
        signs = rng.normal(0, scale, R), rng.normal(0, scale, K)
        assert strip_value(c, demand, *signs) <= best * (1 + 1e-9)
    if best < np.inf:
        start = milp(c, demand)
        again = strip_bound(c, demand, start)
        assert again.value == pytest.approx(strip.value, rel=1e-4) and again.value <= best * (
            1 + 1e-9
        )


@pytest.mark.parametrize("seed", range(cases(300, 25)))
def test_the_value_of_staircases_by_enumeration(seed):
    "All staircases of each server are listed, in fractions; rounding never goes above them."
    rng = np.random.default_rng(seed)
    n, L, R = int(rng.integers(1, 4)), int(rng.integers(1, 4)), int(rng.integers(1, 5))
    c = Cluster(L, 2, 1, rng.integers(3, 20, n), rng.uniform(1, 6, n), rng.uniform(0, 9, n))
    K = max(int(c.counts(1).max()), 1)
    prices = rng.normal(2, 4, R), np.cumsum(rng.normal(6, 5, K))
    G, lengths, tau, rtt = ([Fraction(v) for v in x] for x in (*prices, c.tau, c.rtt[0]))
    total = L * min(sum(G[s - 1] for s in some) for some in splits(R, range(1, R + 1))) + R * min(
        sum(lengths[k - 1] for k in some) for some in splits(L, range(1, K + 1))
    )
    for j in range(n):
        best = Fraction(0)
        for m in range(1, int(c.counts(1)[j]) + 1):
            slots = c.slots(np.full(n, m))[j]
            for S in product(range(1, R + 1), repeat=m):
                if sum(S) <= slots and all(a >= b for a, b in zip(S, S[1:])):
                    visits = sum(lengths[p] * (S[p] - (S + (0,))[p + 1]) for p in range(m))
                    times = rtt[j] * S[0] + tau[j] * sum(S)
                    best = max(best, sum(G[s - 1] for s in S) + visits - times)
        total -= best
    proved = strip_value(c, R, *prices)
    assert proved <= total / R and proved == pytest.approx(float(total / R))


def test_the_solvers_word_alone_does_not_make_requests_infeasible(monkeypatch):
    "Without multipliers that prove it the answer is the cheap bounds."
    c = Cluster(4, 4, 1, memory=[16, 12, 12], tau=[10, 20, 20], rtt=[10, 10, 10])
    said = Solution(Outcome.INFEASIBLE, trusted=True)
    monkeypatch.setattr(chapter, "solve", lambda *_, **__: said)
    found = exit_bound(c, 4)
    assert (
        found.value == max(lone_bound(c, 4), aggregate_bound(c, 4)) and not found.multipliers.size
    )
    said = Solution(Outcome.INFEASIBLE, trusted=False)
    with pytest.raises(Infeasible, match="4 requests do not fit"):
        exit_bound(c, 4)


def splits(total, sizes):
    "All ways to write a number as a sum of sizes."
    if total == 0:
        return [[]]
    return [[s, *rest] for s in sizes if s <= total for rest in splits(total - s, sizes)]


def test_five_large_servers_and_twenty_five_requests():
    "Solved to proof elsewhere: 548.11 ms lies between every bound and every plan."
    c = fleet(5, 1.0, output=2028)
    c = dataclasses.replace(c, rtt=np.full((1, 5), 118.65))
    found = best_bound(c, 25)
    assert found.others["chains"] == pytest.approx(518.05, abs=0.02)
    assert found.others["exits"] == pytest.approx(541.01, abs=0.02)
    assert 541 < found.others["strip"] < 548.11 < cg_bprr(c, 25).cost


BOUNDS = [chain_bound, strip_bound, exit_bound, best_bound]


@pytest.mark.parametrize("bound", BOUNDS)
def test_units_of_time_and_memory_change_no_bound(bound):
    c = fleet(8, 0.25, output=2028)
    c, R = dataclasses.replace(c, blocks=12), 9
    value = bound(c, R).value
    for unit in (1e-9, 1e9):
        memory = {k: getattr(c, k) * unit for k in ("memory", "block_size", "cache_size")}
        assert bound(dataclasses.replace(c, **memory), R).value == pytest.approx(value)
        slow = dataclasses.replace(c, tau=c.tau * unit, rtt=c.rtt * unit)
        assert bound(slow, R).value == pytest.approx(unit * value, rel=1e-5)


def test_the_best_of_those_that_there_was_time_for():
    assert list(best_bound(fleet(12), 5, time_limit=0).others) == ["chains"]


@pytest.mark.parametrize("bound", BOUNDS[1:])
@pytest.mark.parametrize("time_limit", [0, 0.05, 1])
@pytest.mark.parametrize("n", [3, 40, 300])
def test_all_bounds_keep_their_limits(bound, time_limit, n):
    rng = np.random.default_rng(n)
    memory, tau, rtt = rng.uniform(6, 24, n), rng.uniform(4, 16, n), rng.uniform(60, 120, n)
    c, R = Cluster(20, 1.3, 0.05, memory, tau, rtt), n
    began = time.process_time()
    found = bound(c, R, time_limit=time_limit)
    assert time.process_time() - began <= max(1.2 * time_limit, time_limit + 0.5)
    assert found.value >= max(lone_bound(c, R), aggregate_bound(c, R)) * (1 - 1e-12)


@pytest.mark.parametrize("bound", BOUNDS)
def test_edges_of_all_bounds(bound, tmp_path):
    c = Cluster(3, 2, 1, [12, 12], [1, 2], [[4, 1], [np.inf, 1]])
    assert bound(c, 0).value == 0 and bound(c, [0, 1]).value <= optimum(c, [0, 1]) * (1 + 1e-9)
    assert bound(Cluster(1, 2, 1, [3], [5], [2]), 1).value == pytest.approx(7)
    free = Cluster(3, 2, 0, [6, 2], [1, 1], [4, 1])
    assert bound(free, 9).value == pytest.approx(optimum(free, 2))
    for small, R in ((Cluster(3, 2, 1, [3, 3], [1, 1], [0, 0]), 1), (c, 40)):
        with pytest.raises(Infeasible):
            bound(small, R)
    found = bound(c, 2)
    assert "no relayed plan for 2 requests" in found.summary() and found.plot().startswith("<svg")
    assert len(found.to_frame()) == (found.multipliers != 0).sum() and found.scope == "relayed"
    found.save(tmp_path / "bound.json")
    assert Bound.load(tmp_path / "bound.json") == found
    for bad in ({"name": "other"}, {"multipliers": np.full(3, np.nan)}, {"requests": [-1, 1]}):
        with pytest.raises(ValueError):
            dataclasses.replace(found, **bad)
    for bad in ({"time_limit": -1}, {"time_limit": np.nan}, {"requests": 1.5}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            bound(**({"cluster": c, "requests": 1} | bad))


def test_a_start_is_checked():
    c = fleet(6)
    plan = cg_bprr(c, 2)
    for bound in (strip_bound, best_bound):
        assert bound(c, 2, start=plan).value <= plan.cost
        with pytest.raises(blocks.BadPlan, match="3 requests"):
            bound(c, 3, start=plan)
    with pytest.raises(ValueError, match="heights has shape"):
        strip_value(c, 2, [1.0], [1.0])
    with pytest.raises(blocks.TooLarge):
        strip_value(fleet(60), 2000, np.zeros(2000), np.zeros(max(fleet(60).counts(1))))


@pytest.mark.parametrize("seed", range(cases(600, 40)))
def test_blocks_that_differ(seed):
    "The exit program takes them as they are; the other bounds say that they do not."
    rng = np.random.default_rng(seed)
    n, L, clients = int(rng.integers(1, 4)), int(rng.integers(2, 5)), 1 + seed % 2
    c = random_cluster(rng, n, L, 3, clients)
    sizes = {"block_size": rng.integers(1, 6, L), "cache_size": rng.integers(1, 4, L)}
    some = list(sizes)[: 1 + seed % 2] if seed % 3 else list(sizes)[1:]
    c = dataclasses.replace(c, memory=c.memory * 1.5, **{k: sizes[k] for k in some})
    best, demand = optimum(c, 3), c.demand(3)
    program = exit_program(c, demand, groups=np.arange(n))
    answer = solve(program.program)
    assert answer.value == pytest.approx(best)
    if best < np.inf:
        assert route_exact(c, program.place(answer.x), demand).cost == pytest.approx(best)
        assert exit_bound(c, 3).value <= best * (1 + 1e-9)
    if not c.alike:
        if best < np.inf:
            assert list(best_bound(c, 3).others) == ["exits"]
        for bound in (chain_bound, strip_bound, aggregate_bound):
            with pytest.raises(ValueError, match="alike|fits|fit"):
                bound(c, 3)
