"The line program against enumeration, its cuts against brute force, and what has no plan."

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_or import blocks
from serving_or.blocks import BadPlan, Cluster, Infeasible, NotFound, Placement, check, milp
from serving_or.blocks.line_program import (
    _best,
    block_line_program,
    capacity,
    capacity_hull,
    envelope,
    memory_hull,
    most_requests,
    read_line,
    twins,
)
from serving_or.blocks.link_program import (
    best_routing,
    enumeration,
    paper_program,
    placements,
)
from serving_or.blocks.routing import lone_bound
from serving_or.tools.answers import Clock, gap
from serving_or.tools.programs import Outcome, Solution, dual_bound, relaxation, solve
from tests.instances import BEST, EXAMPLE_A, WAYS, random_placement, unequal_cluster
from tests.instances import THREE as EXAMPLE_B
from tests.long import cases


def random_cluster(rng, n, blocks, requests, clients):
    "Whole numbers and tight memory; some servers without room for a block, some times equal."
    s_m, s_c = int(rng.integers(1, 6)), int(rng.integers(0, 4))
    memory = rng.integers(0, (s_m + s_c * requests) * blocks + s_m + 1, n)
    return Cluster(
        blocks, s_m, s_c, memory, rng.integers(1, 6, n), rng.integers(0, 9, (clients, n))
    )


def value(method, *arguments, **options):
    "The cost, or infinity when there is proved to be no plan."
    try:
        return method(*arguments, **options).cost
    except Infeasible:
        return np.inf


@pytest.mark.parametrize("seed", range(60))
def test_line_paper_and_enumeration_agree(seed):
    rng = np.random.default_rng(seed)
    clients, requests = int(rng.integers(1, 3)), int(rng.integers(1, 4))
    c = random_cluster(rng, int(rng.integers(1, 4)), int(rng.integers(1, 5)), requests, clients)
    exact = value(enumeration, c, requests)
    assert value(milp, c, requests) == pytest.approx(exact, rel=1e-6)
    if (
        seed < 45
    ):  # the paper's program forces every server to hold a block: no loss, it costs nobody else
        assert value(milp, c, requests, formulation="paper") == pytest.approx(exact, rel=1e-6)


def test_some_of_these_have_a_plan_and_some_have_not():
    found = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        clients, requests = int(rng.integers(1, 3)), int(rng.integers(1, 4))
        c = random_cluster(rng, int(rng.integers(1, 4)), int(rng.integers(1, 5)), requests, clients)
        found.append(value(enumeration, c, requests) < np.inf)
    assert sum(found) >= 20 and sum(found) <= 50


@pytest.mark.parametrize("seed", range(25))
def test_relaxations_are_bounds_and_so_are_any_multipliers(seed):
    rng = np.random.default_rng(100 + seed)
    c = random_cluster(rng, 3, 4, 2, 1 + seed % 2)
    best, demand = value(enumeration, c, 2), c.demand(2)
    small = c.take(c.counts(1) > 0)
    for program in (
        paper_program(small, demand),
        block_line_program(small, demand, cuts=False),
        block_line_program(small, demand),
    ):
        answer = solve(program, relaxed=True)
        if answer.status == "optimal":
            assert relaxation(program) <= best * (1 + 1e-6) + 1e-9
        for scale in (0.1, 1.0, 10.0):
            y = rng.normal(size=len(program.low)) * scale
            assert dual_bound(program, y) <= best * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize("seed", range(40))
def test_capacity_and_its_hull_against_brute_force(seed):
    rng = np.random.default_rng(seed)
    c, R = random_cluster(rng, 3, int(rng.integers(1, 7)), 4, 1), 4
    phi = capacity(c, R)
    for j in range(c.n):
        for U in range(R + 1):
            held = [
                m
                for m in range(c.blocks + 1)
                if c.slots(np.where(np.arange(c.n) == j, m, 0))[j] >= 0
            ]
            slow = (
                max(
                    min(U * m, c.slots(np.where(np.arange(c.n) == j, m, 0))[j] if m else 0)
                    for m in held
                )
                if U
                else 0
            )
            assert phi[j, U] == slow
    server, slope, intercept = capacity_hull(c, R)
    for j in range(c.n):
        lines = slope[server == j][:, None] * np.arange(R + 1) + intercept[server == j][:, None]
        assert np.all(lines >= phi[j] - 1e-9) and np.all(
            np.isclose(lines.min(axis=0), phi[j]) | (lines.min(axis=0) > phi[j])
        )
        assert np.isclose(lines.min(axis=0)[[0, R]], phi[j, [0, R]]).all()


@pytest.mark.parametrize("seed", range(40))
def test_the_memory_hull_says_the_same_as_the_memory(seed):
    "For whole blocks and visits: under all lines exactly when it fits."
    rng = np.random.default_rng(seed)
    c, R = random_cluster(rng, 3, int(rng.integers(1, 7)), 4, 1), int(rng.integers(1, 6))
    server, slope, intercept = memory_hull(c, R)
    for j in range(c.n):
        for m in range(c.counts(0)[j] + 1):
            for H in range(R * c.blocks + 2):
                fits = H <= R * m and c.block_size * m + c.cache_size * H <= c.memory[j]
                assert np.all(H <= slope[server == j] * m + intercept[server == j] + 1e-9) == fits


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 30), min_size=2, max_size=12))
def test_envelope_is_the_least_concave_majorant(y):
    x, y = np.arange(len(y)), np.array(y, float)
    slope, intercept = envelope(x, y)
    hull = (slope * x[:, None] + intercept).min(axis=1)
    assert np.all(np.diff(slope) < 0) and np.all(hull >= y - 1e-9)
    least = [
        max(
            [y[i]]
            + [
                y[a] + (y[b] - y[a]) * (i - a) / (b - a)
                for a in range(i)
                for b in range(i + 1, len(y))
            ]
        )
        for i in x
    ]
    assert np.allclose(hull, least)


def test_the_two_examples():
    a, b = milp(EXAMPLE_A, 4), milp(EXAMPLE_B, 4)
    assert a.cost == pytest.approx(70) and a.status == "optimal" and a.bound == pytest.approx(70)
    assert (
        b.cost == pytest.approx(80)
        and b.status == "optimal"
        and b.gap == pytest.approx(0, abs=1e-6)
    )
    assert milp(EXAMPLE_B, 4, "paper").cost == pytest.approx(80)


def test_scaling_times_scales_the_cost_and_memory_changes_nothing():
    scaled = replace(EXAMPLE_B, tau=EXAMPLE_B.tau * 7, rtt=EXAMPLE_B.rtt * 7)
    assert milp(scaled, 4).cost == pytest.approx(7 * 80)
    larger = replace(EXAMPLE_B, memory=EXAMPLE_B.memory * 3, block_size=12, cache_size=3)
    assert milp(larger, 4).cost == pytest.approx(80)


def test_a_start_is_never_made_worse():
    cluster = Cluster(4, 1, 1, [40, 40], [1, 9], [1, 1])
    slow = check(cluster, Placement([1, 1], [0, 4]), [blocks.Chain(0, (1,), (4,), 3)], 3)
    plan = milp(cluster, 3, start=slow)
    assert (
        plan.cost == pytest.approx(5)
        and slow.cost == pytest.approx(37)
        and plan.status == "optimal"
    )
    kept = milp(
        EXAMPLE_B, 4, time_limit=0, start=blocks.route(EXAMPLE_B, milp(EXAMPLE_B, 4).placement, 4)
    )
    assert kept.cost == pytest.approx(80) and lone_bound(EXAMPLE_B, 4) <= kept.bound <= kept.cost


def test_no_plan():
    with pytest.raises(Infeasible) as error:  # not even one request: three blocks of four
        milp(Cluster(4, 4, 1, [5, 5, 5], [1, 1, 1], [0, 0, 0]), 2)
    assert error.value.blocks_short == 1 and error.value.largest == (0,)
    tight = Cluster(4, 4, 1, [6, 6, 6, 6], [1, 1, 1, 1], [0, 0, 0, 0])
    for formulation, requests in (("line", 5), ("paper", 3)):
        with pytest.raises(
            Infeasible, match=f"{requests} requests cannot be served at once; 2 of them can"
        ) as error:
            milp(tight, requests, formulation)
        assert error.value.largest == (2,)
    assert most_requests(tight, np.array([5]), Clock()) == (2,) and milp(
        tight, 2
    ).cost == pytest.approx(4)
    with pytest.raises(NotFound):
        milp(
            Cluster(20, 4, 1, [24] * 12, np.arange(1, 13), np.arange(12)),
            6,
            "paper",
            time_limit=0.01,
        )
    with pytest.raises(ValueError, match="formulation is 'x'"):
        milp(EXAMPLE_A, 1, "x")


def test_edges():
    assert milp(EXAMPLE_A, 0).cost == 0
    assert milp(Cluster(1, 2, 1, [3], [5], [2]), 1).cost == pytest.approx(
        7
    )  # one block, one server
    free = Cluster(3, 2, 0, [6, 2], [1, 1], [4, 1])  # caches that take no room
    assert milp(free, 50).cost == pytest.approx(value(enumeration, free, 2))
    lonely = Cluster(
        2, 1, 1, [9, 9], [1, 1], [[np.inf, 3], [2, np.inf]]
    )  # each client reaches one server
    assert milp(lonely, 2).cost == pytest.approx(np.mean([3 + 2, 2 + 2]))
    nobody = Cluster(2, 1, 1, [9], [1], [[np.inf], [1]])
    with pytest.raises(Infeasible):
        milp(nobody, [1, 0])
    same = Cluster(4, 2, 1, [12, 12, 12], [2, 2, 2], [1, 1, 1])  # duplicate servers
    assert milp(same, 3).cost == pytest.approx(value(enumeration, same, 3))
    assert [g.tolist() for g in twins(same)] == [[0, 1, 2]] and twins(EXAMPLE_A)[0].tolist() == [
        1,
        2,
    ]


def test_a_stopped_search_keeps_what_the_start_has_proved():
    begun = milp(EXAMPLE_B, 4)
    assert begun.status == "optimal" and begun.bound == pytest.approx(80)
    stopped = milp(EXAMPLE_B, 4, time_limit=0, start=begun)
    assert stopped.bound == begun.bound and stopped.status == "optimal"
    # a bound of one placement is no bound of all
    routed = blocks.route_exact(EXAMPLE_B, blocks.cg_bp(EXAMPLE_B, 4), 4)
    assert routed.cost == 90 and routed.bound == pytest.approx(90)
    better = milp(EXAMPLE_B, 4, start=routed)
    assert better.cost == pytest.approx(80) and better.status == "optimal"
    late = milp(EXAMPLE_B, 4, time_limit=0, start=routed)
    assert late.bound <= 80 and late.cost == 90 and late.status == "time_limit"


def test_a_bound_of_another_cluster_is_not_kept():
    begun = milp(replace(EXAMPLE_B, rtt=[90, 10, 10]), 4)
    late = milp(EXAMPLE_B, 4, time_limit=0, start=begun)
    assert begun.bound > 80 and late.bound <= 80 <= late.cost


def test_equal_servers_start_in_order_and_long_visits_cost_their_entries():
    same = Cluster(4, 2, 1, [12, 12, 12], [2, 2, 2], [1, 1, 1])
    program = block_line_program(same, np.array([3]))
    first = solve(program).x[program.at["s"]] @ np.arange(1, 5)
    assert (np.diff(first) > -1e-6).all()
    # one client, one request, a block a server: four hops, also in the relaxation
    small = Cluster(4, 4, 1, [5] * 4, [1] * 4, [10] * 4)
    assert relaxation(block_line_program(small, np.array([1]))) == pytest.approx(44)


@pytest.mark.parametrize("time_limit", [-0.001, np.nan, "1", True])
def test_a_time_limit_that_is_none_is_refused(time_limit):
    with pytest.raises(ValueError, match="time_limit"):
        milp(EXAMPLE_A, 4, time_limit=time_limit)


def test_the_nearest_feasible_requests_are_told_by_client():
    c = Cluster(4, 4, 1, memory=[24, 6, 6], tau=[10, 20, 20], rtt=[[10, 10, 10], [20, 20, 20]])
    with pytest.raises(Infeasible, match="4 of them can") as error:
        milp(c, [3, 4])
    assert sum(error.value.largest) == 4 and np.all(np.array(error.value.largest) <= [3, 4])
    assert milp(c, error.value.largest).status == "optimal"


def test_a_client_that_reaches_nobody_does_not_hide_the_others():
    c = Cluster(2, 1, 1, [9], [1], [[np.inf], [1]])
    with pytest.raises(Infeasible, match="not one request of client 0") as error:
        milp(c, [1, 2])
    assert error.value.largest == (0, 2)


@pytest.mark.parametrize("short", [0.0, 30.0, 1e3])
def test_bytes_that_are_not_there_are_not_sold(short):
    "Example (a) in bytes; a program in bytes takes 30 bytes of a gigabyte for rounding."
    memory = EXAMPLE_A.memory * 1e9 - [short, 0, 0]
    c = replace(EXAMPLE_A, block_size=4e9, cache_size=1e9, memory=memory)
    plan = milp(c, 4, "paper") if short == 0 else None
    if plan is not None:
        assert plan.cost == pytest.approx(70)
    # 30 bytes of 24e9 are within the stated tolerance of every memory, a thousand are not
    exact = value(enumeration, c, 4)
    assert value(milp, c, 4) == pytest.approx(exact)
    try:
        assert milp(c, 4, "paper").cost >= exact * (1 - 1e-9)
    except (Infeasible, NotFound):
        assert exact == np.inf or short > 0


def test_a_start_for_other_requests_is_refused():
    plan = milp(EXAMPLE_B, 4)
    with pytest.raises(BadPlan, match="requests"):
        milp(EXAMPLE_B, 3, start=plan)
    with pytest.raises(ValueError, match="start is of type str; it must be a Plan or None"):
        milp(EXAMPLE_B, 4, start="plan")
    hops = replace(EXAMPLE_B, hop=np.zeros((3, 3)))
    forwarded = blocks.route(hops, plan.placement, 4, forward=True)
    with pytest.raises(BadPlan, match="relayed plan"):
        milp(hops, 4, start=forwarded)


@settings(max_examples=cases(2000), deadline=None)
@given(st.integers(0, 10**6))
def test_the_hull_needs_corners_only(seed):
    "Against the envelope of the whole table, also for caches without size and huge numbers."
    rng = np.random.default_rng(seed)
    R = int(rng.integers(1, 40))
    c = random_cluster(rng, 3, int(rng.integers(1, 9)), R, 1)
    if (c.memory < c.block_size).all():
        return
    server, slope, intercept = capacity_hull(c, R)
    phi = capacity(c, R)
    for j in range(c.n):
        a, b = envelope(np.arange(R + 1), phi[j])
        mine = (slope[server == j] * np.arange(R + 1)[:, None] + intercept[server == j]).min(axis=1)
        full = (a * np.arange(R + 1)[:, None] + b).min(axis=1)
        np.testing.assert_allclose(mine, full, atol=1e-9)


def test_a_gap_is_a_share_of_the_cost():
    hard = Cluster(6, 4, 1, [13, 14, 15, 13, 16], [7, 12, 9, 15, 11], [20, 35, 15, 40, 25])
    plan = milp(hard, 3, time_limit=5)
    assert plan.gap == gap(plan.cost, plan.bound) and plan.bound <= plan.cost


# units of time and memory


def in_units(c, time, size):
    "The same fleet with times and sizes in other units."
    return replace(
        c,
        tau=c.tau * time,
        rtt=c.rtt * time,
        hop=c.hop * time,
        memory=c.memory * size,
        block_size=np.multiply(c.block_size, size),
        cache_size=np.multiply(c.cache_size, size),
    )


def decided(method, c):
    "What a method decides: placement, chains and status, or the kind of error; and the cost."
    try:
        plan = method(c)
    except (Infeasible, NotFound) as error:
        return type(error), 0.0
    return (plan.placement, set(plan.chains), plan.status), plan.cost


@pytest.mark.parametrize("seed", range(cases(300)))
def test_units_decide_nothing(seed):
    "Whole numbers in ms, s and us, and in GB, bytes and KiB: the same plans, ties included."
    rng = np.random.default_rng([seed, 16])
    n, L, R = int(rng.integers(2, 6)), int(rng.integers(2, 7)), int(rng.integers(1, 6))
    if alike := rng.random() < 0.7:
        rtt = rng.integers(0, 9, (2, n))
        c = Cluster(L, 3, 1, rng.integers(4, 30, n), rng.integers(1, 6, n), rtt)
        held = random_placement(rng, c)
    else:
        c = unequal_cluster(rng, n, L, clients=2)
        held = Placement(np.ones(n, int), np.minimum(c.longest(0)[:, 0], rng.integers(0, L + 1, n)))
    c = replace(c, hop=rng.integers(0, 9, (n, n)))
    methods = [
        lambda c: blocks.route(c, held, R),
        lambda c: blocks.route(c, held, R, forward=True),
        lambda c: blocks.route_exact(c, held, R),
        lambda c: blocks.plan_direct(c, R),
        lambda c: milp(c, R),
    ]
    methods += [lambda c: blocks.cg_bprr(c, R), lambda c: blocks.sweep(c, R)] * alike
    for method in methods:
        here, cost = decided(method, c)
        time = float(rng.choice([1e-3, 1e3, 1 / 3]))
        size = float(rng.choice([1, 1e9, 1e9 / 1024]))
        there, other = decided(method, in_units(c, time, size))
        assert here == there and other == pytest.approx(cost * time, rel=1e-9)


# first tokens weigh


@pytest.mark.parametrize("seed", range(cases(200)))
def test_a_weight_is_a_cluster_for_every_method(seed):
    rng = np.random.default_rng([seed, 17])
    c = random_cluster(rng, 3, 3, 2, int(rng.integers(1, 3)))
    first_t = np.where(rng.random(c.rtt.shape) < 0.05, np.inf, rng.integers(0, 99, c.rtt.shape))
    c = replace(c, prefill_tau=rng.integers(1, 60, 3), prefill_rtt=first_t)
    output = float(rng.choice([1, 2, 8, 100, np.inf]))
    mixed, share = c.weighted(output), 1 / output
    try:
        best = enumeration(mixed, 2)
    except Infeasible:
        return
    of = lambda plan: share * plan.ttft + (1 - share) * plan.tpot
    # against all plans of the cluster as it is; infinite where either cannot be reached
    least = np.inf
    for a, m in zip(*placements(c)):
        total, chains = best_routing(mixed, Placement(a, m), c.demand(2))
        if total < np.inf:
            plan = check(c, Placement(a, m), chains, 2)
            assert of(plan) == pytest.approx(total / 2)
            least = min(least, of(plan))
    assert best.cost == pytest.approx(least)
    plans = [best, milp(mixed, 2)]
    for method in (blocks.cg_bprr, blocks.sweep):
        with suppress(NotFound):
            plans.append(method(mixed, 2))
    for plan in plans:
        there = check(c, plan.placement, plan.chains, 2)
        assert of(there) == pytest.approx(plan.cost) and plan.ttft == pytest.approx(there.ttft)
        assert plan.bound <= least * (1 + 1e-9) and plan.cost <= plan.guarantee * (1 + 1e-9)
    assert blocks.chain_bound(mixed, 2).value <= least * (1 + 1e-6)


@pytest.mark.parametrize("formulation", ["line", "paper"])
def test_programs_in_bytes_sell_none(formulation):
    "Example (a) is full to the last byte; a thousand bytes short it serves two requests fewer."
    full = in_units(replace(EXAMPLE_A, hop=np.zeros((3, 3))), 1, 1e9)
    assert milp(full, 4, formulation).cost == 70
    with pytest.raises(Infeasible) as error:
        milp(replace(full, memory=full.memory - 1000), 4, formulation)
    assert error.value.largest == (2,)


def test_the_nearest_feasible_is_told_for_each_client():
    far = np.inf
    c = Cluster(2, 4, 1, [10, 10], [1, 1], [[5, far], [far, 7]])
    assert milp(c, [1, 1]).cost == 8
    for demand, largest in (([1, 2], (1, 1)), ([3, 0], (1, 0)), (3, (1, 1))):
        with pytest.raises(Infeasible) as error:
            milp(c, demand)
        assert error.value.largest == largest
        milp(c, largest)
    # who reaches nobody does not hide that the other can be served
    with pytest.raises(Infeasible) as error:
        milp(replace(c, rtt=[[5, far], [far, far]]), [1, 1])
    assert error.value.largest == (1, 0)


def test_a_visit_of_no_blocks_is_left_out():
    "As the solver's tolerances may enter a server behind its span, or one without blocks."
    program = block_line_program(EXAMPLE_B, np.array([4]))
    answer = solve(program)
    placement, chains = read_line(program, answer.x)
    j = int(placement.m.argmax())
    behind = int(placement.a[j] + placement.m[j]) - 1
    stray = answer.x.copy()
    stray[program.at["x"][0, j, behind if behind < 4 else 0]] += 1.0
    if behind < 4:
        again = read_line(program, stray)
        assert again[0] == placement and again[1] == chains
    empty = np.where(np.isin(np.arange(len(stray)), program.at["z"]), 0.0, answer.x)
    nothing = read_line(program, empty)
    assert not nothing[0].m.any() and nothing[1] == []


@pytest.mark.parametrize("above", [0.0, 1e-12, 1e-9, 1e-3])
def test_a_bound_of_the_tree_is_no_more_than_the_cost(above):
    "The tree's bound may be above the cost by rounding, or by the value of another routing."
    plan = check(EXAMPLE_B, BEST, WAYS, 4)
    answer = Solution(Outcome.OPTIMAL)
    found = _best(answer, None, plan, plan.cost * (1 + above), Clock())
    assert found.bound == found.cost == plan.cost and found.status == "optimal"
