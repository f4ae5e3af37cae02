"""Groups of servers: what they hold, when they pay, and what no grouping beats."""

from contextlib import suppress
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_or.blocks import tensor_parallel as tp
from serving_or.blocks.bounds import chain_bound
from serving_or.blocks.cluster import Cluster
from serving_or.blocks.conservative_greedy import NoPlacement, cg_bprr
from serving_or.blocks.designs import sweep
from serving_or.blocks.line_program import milp
from serving_or.blocks.link_program import enumeration
from serving_or.blocks.tensor_parallel import (
    Fabric,
    GroupedPlan,
    all_reduce,
    break_even_rtt,
    group_bound,
    grouped,
    plan_groups,
    shares_of,
)
from serving_or.tools.answers import Clock, Infeasible, NotFound, TooLarge
from tests.blocks.oracles import Oracle
from tests.long import cases


def some_cluster(rng, n=3, L=3, clients=1, ties=False):
    "A small cluster in whole numbers, and round trips between its servers."
    draw = (lambda k, *s: rng.choice([2, 4], s)) if ties else (lambda k, *s: rng.integers(1, k, s))
    memory = rng.integers(3, 16, n) if not ties else rng.choice([8, 12], n)
    cluster = Cluster(L, 2, 1, memory, draw(20, n), draw(20, clients, n))
    apart = draw(12, n, n).astype(float)
    return cluster, Fabric(apart + apart.T, transfer=float(rng.integers(0, 3)))


def partitions(items):
    if not items:
        yield []
        return
    for rest in partitions(items[1:]):
        yield [[items[0]], *rest]
        for i in range(len(rest)):
            yield [*rest[:i], [items[0], *rest[i]], *rest[i + 1 :]]


def best_of_all(cluster, fabric, demand, shares):
    "Every partition, with each of some shares for each group, by plain enumeration of plans."
    best = np.inf
    for groups in partitions(list(range(cluster.n))):
        for some in product(*(shares(g) for g in groups)):
            one = restated(cluster, groups, fabric, some)
            best = min(best, best_plan(one, demand))
    return best


def best_plan(cluster, demand):
    oracle = Oracle(cluster)
    return min(oracle.routed(spans, demand) for spans in oracle.placements) / sum(demand)


def restated(cluster, groups, fabric, shares):
    "The cluster of groups, in loops."
    memory, tau, rtt = [], [], []
    for group, share in zip(groups, shares):
        p = len(group)
        r = max((fabric.rtt[i, j] for i in group for j in group if i != j), default=0.0)
        ways = (
            r / 2 + (p - 1) * fabric.transfer,
            r + 2 * (p - 1) / p * fabric.transfer,
        )
        memory.append(min(cluster.memory[j] / s for j, s in zip(group, share)))
        tau.append(max(cluster.tau[j] * s for j, s in zip(group, share)) + 2 * min(ways) * (p > 1))
        rtt.append([max(cluster.rtt[c, j] for j in group) for c in range(len(cluster.clients))])
    L, s_m, s_c = cluster.blocks, cluster.block_size, cluster.cache_size
    return Cluster(L, s_m, s_c, memory, tau, np.array(rtt).T)


def by_memory_and_speed(cluster):
    def shares(group):
        w = cluster.memory[group], 1 / cluster.tau[group]
        return [x / x.sum() for x in w][: 2 if len(group) > 1 else 1]

    return shares


@pytest.mark.parametrize("seed", range(cases(200)))
def test_bound_search_and_all_partitions_against_enumeration(seed):
    rng = np.random.default_rng(seed)
    n, clients = (2, 2) if seed % 3 == 2 else (3, 1)
    cluster, fabric = some_cluster(rng, n, 3, clients, ties=seed % 2 == 1)
    demand = np.full(clients, 2 // clients + seed % 2)
    best = best_of_all(cluster, fabric, demand, by_memory_and_speed(cluster))
    bound = group_bound(cluster, demand, fabric)
    assert bound <= best * (1 + 1e-9)
    try:
        every, found = (
            plan_groups(cluster, demand, fabric, method=m, time_limit=None)
            for m in ("all", "search")
        )
    except NotFound:
        return
    assert best * (1 - 1e-9) <= every.value <= found.value * (1 + 1e-9)
    assert found.bound <= every.value and (bound == 0 or abs(found.bound - bound) <= 1e-6 * bound)
    with suppress(Infeasible):
        assert found.value <= sweep(cluster, demand).cost * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(cases(60)))
def test_no_shares_at_all_beat_the_bound(seed):
    "The bound is for any shares, not only for the two that the search tries."
    rng = np.random.default_rng(seed)
    cluster, fabric = some_cluster(rng, 3, 3, 1)
    bound = group_bound(cluster, 2, fabric)

    def shares(group):
        w = rng.dirichlet(np.ones(len(group)), 4 if len(group) > 1 else 1)
        return list(np.maximum(w, 1e-3) / np.maximum(w, 1e-3).sum(axis=1, keepdims=True))

    assert bound <= best_of_all(cluster, fabric, np.array([2]), shares) * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(cases(60)))
def test_alone_the_bound_is_below_and_near_what_it_was(seed):
    "Servers out of reach of each other: no group but single servers."
    rng = np.random.default_rng(seed)
    cluster, _ = some_cluster(rng, 4, 4, 1, ties=seed % 2 == 0)
    far = Fabric(np.where(np.eye(4) > 0, 0, np.inf))
    try:
        best = milp(cluster, 2)
    except Infeasible:
        return
    bound = group_bound(cluster, 2, far, tolerance=1e-9)
    assert bound <= best.cost * (1 + 1e-9)
    # kinds share the lines of their servers, which loses nothing
    assert bound >= chain_bound(cluster, 2, tolerance=1e-9).value * (1 - 1e-6)
    assert abs(group_bound(cluster, 2, far, sizes=[1]) - bound) <= 1e-6 * max(bound, 1)


@pytest.mark.parametrize("seed", range(cases(200)))
def test_servers_without_memory_or_time_and_links_that_are_none(seed):
    "Zeros, infinite round trips, other units and other ways: no error, and a bound that holds."
    rng = np.random.default_rng(seed)
    cluster, fabric = some_cluster(rng, 3, 3, 1)
    memory, tau, scale = cluster.memory.copy(), cluster.tau.copy(), 10.0 ** rng.integers(-6, 7)
    memory[rng.integers(3)] *= seed % 4 > 0
    tau[rng.integers(3)] *= seed % 3 > 0
    cluster = Cluster(3, 2, 1, memory, tau * scale, cluster.rtt * scale)
    apart = np.where(rng.random((3, 3)) < 0.1, np.inf, fabric.rtt * scale)
    way = ("best", "direct", "two_step", "ring", "ideal")[seed % 5]
    fabric = Fabric(apart, fabric.transfer * scale, way)
    best = np.inf
    for groups in partitions([0, 1, 2]):
        if all(np.isfinite(fabric.block(g)) for g in groups):
            for _ in range(4):
                some = [rng.dirichlet(np.ones(len(g))) + 1e-3 for g in groups]
                one = grouped(cluster, groups, fabric, [x / x.sum() for x in some])
                best = min(best, best_plan(one, np.array([2])))
    bound = group_bound(cluster, 2, fabric, time_limit=None)
    assert bound <= best * (1 + 1e-9)
    for method in ("all", "search"):
        with suppress(NotFound):
            answer = plan_groups(cluster, 2, fabric, method=method, time_limit=None)
            assert bound * (1 - 1e-9) <= answer.value and answer.bound <= answer.value


@pytest.mark.parametrize("seed", range(cases(60)))
def test_any_multipliers_prove_a_bound(seed):
    "The theorem asks nothing of the multipliers but that they are not negative."
    rng = np.random.default_rng(seed)
    cluster, fabric = some_cluster(rng, 3, 3, 1, ties=seed % 2 == 0)
    best = best_of_all(cluster, fabric, np.array([2]), by_memory_and_speed(cluster))
    master = tp._GroupMaster(cluster, np.array([2]), fabric, None)
    for _ in range(20):
        eta = rng.exponential(10.0 ** rng.integers(-2, 3), len(master.hull[0]))
        pi = rng.exponential(10.0 ** rng.integers(-3, 4), len(master.count))
        assert master.priced(eta * (rng.random(len(eta)) < 0.5), pi)[0] <= best * (1 + 1e-9)
    # where room is short
    tiny = Cluster(4, 4, 1, memory=[16, 12, 12], tau=[10, 20, 20], rtt=[10, 10, 10])
    master = tp._GroupMaster(tiny, np.array([4]), Fabric(np.where(np.eye(3) > 0, 0, np.inf)), None)
    for _ in range(20):
        eta, pi = rng.exponential(20, len(master.hull[0])), rng.random(len(master.count)) + 1e-3
        assert master.priced(eta, pi)[0] <= 80 * (1 + 1e-9)


def test_groups_of_the_bound_have_all_memory_and_the_best_pace():
    c = Cluster(4, 2, 1, memory=[16, 12, 5], tau=[10, 20, 0], rtt=[10, 30, 20])
    master = tp._GroupMaster(c, np.array([2]), Fabric(np.zeros((3, 3))), None)
    made = {tuple(np.flatnonzero(v).tolist()): i for i, v in enumerate(master.V)}
    kind = tp.kinds_of(c, Fabric(np.zeros((3, 3))))
    for group, memory, tau in (((0, 1), 28, 20 / 3), ((0, 2), 21, 0), ((0, 1, 2), 33, 0)):
        i = made[tuple(sorted(kind[list(group)].tolist()))]
        assert master.groups.memory[i] == memory
        assert abs(master.groups.tau[i] - tau) < 1e-12
        assert master.groups.rtt[0, i] == c.rtt[0, list(group)].max()


@pytest.mark.parametrize("seed", [147, *range(cases(100))])
def test_all_partitions_are_the_best_sweep(seed):
    rng = np.random.default_rng(seed)
    cluster, fabric = some_cluster(rng, 4, 4, 1, ties=seed % 2 == 0)
    cluster, shares, best = replace(cluster, memory=cluster.memory + 8), by_memory_and_speed, np.inf
    for groups in partitions([0, 1, 2, 3]):
        for some in product(*(shares(cluster)(g) for g in groups)):
            with suppress(Infeasible, NotFound):
                best = min(best, sweep(restated(cluster, groups, fabric, some), 2).cost)
    answer = plan_groups(cluster, 2, fabric, method="all", time_limit=None)
    assert abs(answer.value - best) <= 1e-9 * best


def test_where_the_search_begins_and_what_it_changes():
    c = Cluster(4, 2, 1, 8.0 + np.arange(9), np.full(9, 3.0), np.full(9, 3.0))
    near = Fabric(np.abs(np.subtract.outer(np.arange(9.0), np.arange(9.0))))
    tried = tp._Groupings(c, 2, near, None, Clock(None))
    starts = list(tried.starts())
    assert {by for state in starts for g, by in state if len(g) > 1} == {"memory", "compute"}
    assert any((3, 4, 5) in [g for g, _ in state] for state in starts)
    whole = [(tuple(range(9)), "memory")]
    cuts = {tuple(sorted(len(g) for g, _ in state)) for state in tried.moves(whole)}
    assert cuts == {(1, 8), (4, 5)}
    alone = [((j,), "equal") for j in range(9)]
    pairs = {g for state in tried.moves(alone) for g, _ in state if len(g) == 2}
    assert {(0, 1), (0, 6), (7, 8)} <= pairs and (0, 7) not in pairs
    for state in [*starts, *tried.moves(whole), *tried.moves(alone)]:
        assert sorted(j for g, _ in state for j in g) == list(range(9))


def test_what_does_not_fit_is_scored_by_what_is_short_then_by_what_is_held():
    c = Cluster(6, 2, 1, [8, 8, 5, 5], [3] * 4, [3] * 4)
    tried = tp._Groupings(c, 4, Fabric(np.zeros((4, 4))), None, Clock(None))
    alone = [((j,), "equal") for j in range(4)]
    one_pair = [((2, 3), "equal"), ((0,), "equal"), ((1,), "equal")]
    with pytest.raises(NoPlacement) as none:
        sweep(c, 4)
    assert tried.score(alone) == (none.value.blocks_short, np.inf, -c.counts(1).sum())
    pooled = grouped(c, [[2, 3]], Fabric(np.zeros((4, 4))))
    assert tried.score(one_pair)[2] == -pooled.counts(1).sum() < -c.counts(1).sum()
    assert tried.score(one_pair) < tried.score(alone)


def test_sizes_of_an_engine_are_found_in_a_large_fleet():
    "Two groups of 16 are far better than servers alone, and no merge of two servers is allowed."
    fleet = Cluster(40, 4, 1, [20] * 48, [10] * 48, [50] * 48)
    answer = plan_groups(fleet, 8, Fabric(np.full((48, 48), 0.1)), sizes=[1, 16], time_limit=60)
    assert answer.largest == 16 and answer.status == "optimal"
    many = tp._Groupings(fleet, 8, Fabric(np.full((48, 48), 0.1)), None, Clock(None))
    starts = [max(len(g) for g, _ in state) for state in many.starts()]
    assert {1, 2, 3, 4, 48} <= set(starts) and len(set(starts)) <= tp.MOST_STARTS


def test_never_dearer_than_the_sweep_with_all_its_designs():
    "The search tries few designs for each grouping, but all of them for servers alone."
    memory, tau, rtt = [52, 17, 46, 12, 39, 21], [6, 7, 15, 16, 5, 11], [5, 53, 57, 22, 32, 32]
    cluster, far = Cluster(16, 2, 0.02, memory, tau, rtt), Fabric(np.full((6, 6), 1e3))
    assert sweep(cluster, 316, most=24).cost > 1.2 * sweep(cluster, 316).cost
    answer = plan_groups(cluster, 316, far, time_limit=None)
    assert answer.value <= sweep(cluster, 316).cost * (1 + 1e-9)


def test_speeds_and_memories_are_those_of_the_group():
    c = Cluster(4, 4, 1, memory=[16, 12, 0], tau=[0, 20, 10], rtt=[10, 10, 10])
    np.testing.assert_allclose(shares_of(c, [1, 2], "compute"), [1 / 3, 2 / 3])
    assert shares_of(c, [0, 1], "compute").tolist() == [1, 0]
    net = Fabric(np.zeros((3, 3)))
    for group, by in (([0, 1], "compute"), ([1, 2], "memory")):
        with pytest.raises(ValueError, match="positive"):
            grouped(c, [group], net, by)
    with pytest.raises(ValueError, match="empty"):
        shares_of(c, [])


def test_no_server_at_all():
    none = Cluster(4, 4, 1, [16], [10], [10]).take([])
    net = Fabric(np.zeros((0, 0)))
    assert grouped(none, [], net).n == 0 and group_bound(none, 1, net) == 0
    with pytest.raises(Infeasible, match="no server"):
        plan_groups(none, 1, net)


def test_the_printed_example():
    tiny = Cluster(4, 4, 1, memory=[16, 12, 12], tau=[10, 20, 20], rtt=[10, 10, 10])
    for r, pair, three in (
        (0.8, 62.0, 34.2666667),
        (9.8, 80.0, 70.2666667),
        (12.2333333, None, 80.0),
    ):
        net, half = Fabric(np.full((3, 3), r), 0.1, "ideal"), [[0.5, 0.25, 0.25]]
        assert abs(enumeration(grouped(tiny, [[0, 1, 2]], net, half), 4).cost - three) < 1e-5
        if pair:
            assert abs(enumeration(grouped(tiny, [[1, 2]], net), 4).cost - pair) < 1e-9
    assert abs(break_even_rtt(10, 20, 2, 2, 0.1) - (10 / 2 + 10 - 0.2)) < 1e-12


@given(st.integers(2, 8), st.floats(1, 100), st.floats(0, 30), st.integers(1, 40), st.floats(0, 2))
def test_below_the_break_even_a_group_is_faster(p, t, tau, B, beta):
    at = break_even_rtt(t, tau, B, p, beta, overhead=0.25)
    for r in (at * 0.99 - 1e-9, at * 1.01 + 1e-9):
        if r < 0 or at <= 0:
            continue
        group = t + B * (tau / p + 2 * all_reduce(p, r, beta, overhead=0.25))
        chain = p * t + B * tau
        assert (group <= chain * (1 + 1e-12)) == (r < at) or abs(group - chain) < 1e-6 * chain


@pytest.mark.parametrize("seed", range(cases(100)))
def test_a_group_is_a_server_with_the_memory_of_its_tightest_member(seed):
    rng = np.random.default_rng(seed)
    cluster, fabric = some_cluster(rng, 5, 6, 2)
    share = rng.dirichlet(np.ones(3))
    one = grouped(cluster, [[3, 0, 4]], fabric, [share])
    plain = restated(cluster, [[3, 0, 4], [1], [2]], fabric, [share, [1.0], [1.0]])
    for name in ("memory", "tau", "rtt"):
        np.testing.assert_allclose(getattr(one, name), getattr(plain, name), rtol=1e-12)
    for m in range(1, 7):
        room = int(one.slots([m, 0, 0])[0])
        fits = [
            (s * (2 * m + c) <= cluster.memory[[3, 0, 4]] * (1 + 1e-9)).all()
            for s, c in ((share, room), (share, room + 1))
        ]
        assert room < 0 or fits == [True, False]
    for by, least in (("memory", cluster.memory[[3, 0, 4]].sum()), ("compute", None)):
        w = shares_of(cluster, [3, 0, 4], by)
        made = tp.super_server(
            cluster, [3, 0, 4], w, replace(fabric, rtt=fabric.rtt * 0, transfer=0)
        )
        if least:
            assert abs(made["memory"] - least) < 1e-9 * least
        else:
            assert abs(made["tau"] - 1 / (1 / cluster.tau[[3, 0, 4]]).sum()) < 1e-9
    pooled = grouped(cluster, [[3, 0, 4]], fabric).counts(2)[0]
    assert pooled >= min(cluster.counts(2)[[3, 0, 4]].sum(), 6)


def test_kinds_are_servers_that_may_be_exchanged():
    cluster = Cluster(4, 2, 1, [8, 8, 8, 8, 9], [3] * 5, [1] * 5)
    site = np.array([0, 0, 1, 1, 0])
    fabric = Fabric(np.where(site[:, None] == site, 1.0, 7.0))
    assert tp.kinds_of(cluster, fabric).tolist() == [0, 0, 1, 1, 2]
    one_way = fabric.rtt.copy()
    one_way[0, 2] = 9
    assert len(set(tp.kinds_of(cluster, Fabric(one_way)).tolist())) == 5
    V = tp.group_kinds(np.array([0, 0, 1, 1, 2]), None)
    assert len(V) == 17 and len(tp.group_kinds(np.array([0, 0, 1, 1, 2]), [1, 2])) == 3 + 5


def test_promises_hold_on_groups_and_prompts_are_counted():
    rng = np.random.default_rng(1)
    c, fabric = some_cluster(rng, 4, 4, 2)
    c = replace(c, memory=c.memory + 20, prefill_tau=c.tau * 3, prefill_rtt=c.rtt * 2, rent=c.tau)
    one = grouped(c, [[0, 2]], replace(fabric, prompt=10))
    share = shares_of(c, [0, 2])
    assert one.rent[0] == c.rent[[0, 2]].sum()
    ar = all_reduce(2, fabric.rtt[[0, 2], [2, 0]].max(), fabric.transfer * 10)
    assert abs(one.prefill_tau[0] - ((share * c.prefill_tau[[0, 2]]).max() + 2 * ar)) < 1e-9
    assert (one.prefill_rtt[:, 0] == c.prefill_rtt[:, [0, 2]].max(axis=1)).all()
    plan = cg_bprr(one, [2, 2])
    assert plan.cost <= plan.guarantee * (1 + 1e-12)


def test_a_grouping_makes_the_impossible_possible():
    "Blocks that no server holds alone."
    c = Cluster(2, 10, 1, [8, 8, 8, 8], [4] * 4, [5] * 4)
    with pytest.raises(Infeasible):
        sweep(c, 1)
    answer = plan_groups(c, 2, Fabric(np.full((4, 4), 1.0)))
    assert answer.largest >= 3 and 0 < answer.bound <= answer.value
    with pytest.raises(NotFound, match="groupings"):
        plan_groups(c, 200, Fabric(np.full((4, 4), 1.0)))


def test_results_cannot_lie():
    c = Cluster(4, 4, 1, memory=[16, 12, 12], tau=[10, 20, 20], rtt=[10, 10, 10])
    net = Fabric(np.full((3, 3), 0.8), 0.1)
    found = plan_groups(c, 4, net, time_limit=0)
    assert found.value < np.inf and "groups" in found.summary()
    assert plan_groups(c, 4, net).status == "optimal"
    padded = plan_groups(replace(c, exact=False), 4, net)
    assert padded.gap < 1e-9 and padded.status == "feasible"
    # a server alone is always a group
    assert plan_groups(c, 4, net, sizes=[2]).largest == 2
    far = Fabric(np.where(np.eye(3) > 0, 0, np.inf))
    assert abs(group_bound(c, 4, far, sizes=[2]) - 80) < 1e-6
    assert abs(Fabric.of([[0]], width=14336, gbit=2).transfer - 14336 * 16 / 2e6) < 1e-12
    with pytest.raises(ValueError, match="another"):
        GroupedPlan(c, net, ((0, 1, 2),), (np.full(3, 1 / 3),), sweep(c, 4))
    for change in (dict(cache_size=0.01), dict(blocks=2), dict(block_size=3), dict(exact=False)):
        other = sweep(grouped(replace(c, **change), [[0, 1, 2]], net), 4)
        with pytest.raises(ValueError, match="another " + next(iter(change))):
            GroupedPlan(c, net, ((0, 1, 2),), (shares_of(c, [0, 1, 2]),), other)
    with pytest.raises(ValueError, match="of 3 servers"):
        GroupedPlan(c, net, ((1, 2),), (np.full(2, 0.5),), sweep(grouped(c, [[1, 2]], net), 4))


@pytest.mark.parametrize(
    "call, said",
    [
        (dict(groups=[[0, 1], [1]]), "in groups"),
        (dict(groups=[[0, 7]]), "groups"),
        (dict(groups=[[]]), "empty"),
        (dict(groups="ab"), "list of lists"),
        (dict(groups=[[0, 1]], shares=[[0.5, 0.51]]), "sum to 1"),
        (dict(groups=[[0, 1]], shares=[[1.0, 0.0]]), "positive"),
        (dict(groups=[[0, 1]], shares=["memory"] * 2), "2 entries"),
        (dict(groups=[[0, 1]], shares="luck"), "luck"),
    ],
)
def test_what_is_no_grouping_is_refused(call, said):
    c = Cluster(4, 4, 1, memory=[16, 12, 12], tau=[10, 20, 20], rtt=[10, 10, 10])
    with pytest.raises(ValueError, match=said):
        grouped(c, fabric=Fabric(np.zeros((3, 3))), **call)


def test_other_bad_input():
    c = Cluster(4, 4, 1, memory=[16, 12, 12], tau=[10, 20, 20], rtt=[10, 10, 10])
    with pytest.raises(ValueError, match=r"must be \(n, n\)"):
        Fabric(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="2 servers; the cluster has 3"):
        plan_groups(c, 1, Fabric(np.zeros((2, 2))))
    many = Cluster(4, 4, 1, 16.0 + np.arange(30), np.full(30, 3.0), np.full(30, 3.0))
    with pytest.raises(TooLarge, match="sizes"):
        group_bound(many, 2, Fabric(np.ones((30, 30))))
    with pytest.raises(TooLarge, match="8"):
        plan_groups(many, 2, Fabric(np.ones((30, 30))), method="all")
    # the search says what it can without a bound
    assert plan_groups(many, 2, Fabric(np.ones((30, 30))), time_limit=0.2).bound == 0
