"No plan is below a bound: against enumeration, any prices, a program over all patterns."

import dataclasses
import time
from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog

from serving_or import blocks
from serving_or.blocks import Cluster, Infeasible, cg_bprr, chain_bound, lone_bound
from serving_or.blocks.bounds import (
    ChainBound,
    aggregate_bound,
    exit_program,
    held_spans,
    multiplier_bound,
)
from serving_or.blocks.flow import route_exact
from serving_or.blocks.line_program import capacity_hull
from serving_or.blocks.link_program import enumeration
from serving_or.blocks.routing import cheapest_patterns
from serving_or.tools.programs import solve
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


def test_where_the_greedy_plan_is_proved_optimal():
    "Servers with room for all: one server serves everybody, and the bound meets it."
    c = Cluster(6, 2, 1, [60, 60, 60], [2, 3, 4], [5, 1, 1])
    plan = cg_bprr(c, 4)
    assert chain_bound(c, 4).value == pytest.approx(plan.cost) == optimum(c, 1)


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
    assert ChainBound.load(tmp_path / "bound.json") == found
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
