"Churn: repairs against enumeration of all placements, what is never worse, what is refused."

import pickle
from dataclasses import replace
from itertools import permutations
from time import process_time

import numpy as np
import pytest

from serving_or.blocks import churn
from serving_or.blocks.churn import (
    Event,
    RepairedPlan,
    _by_program,
    _Task,
    after_a_loss,
    after_churn,
    churn_changes,
    mended,
    plan_anew,
    reloads,
    renamed,
    repair,
    stay,
)
from serving_or.blocks.cluster import Cluster
from serving_or.blocks.designs import sweep
from serving_or.blocks.failures import surviving
from serving_or.blocks.flow import route_exact
from serving_or.blocks.plan import Chain, Placement, check
from serving_or.blocks.routing import lone_bound
from serving_or.blocks.simulation import Arrivals, WithRoom, simulate
from serving_or.tools.answers import Clock, Infeasible, NotFound
from tests.blocks.oracles import Oracle, spans_of
from tests.instances import fleet, random_placement
from tests.long import cases

NAMES = list("ABCDEF")
CLOSE = 1 + 1e-7


def any_fleet(rng, n, L, C, names):
    "Servers that all differ."
    sizes = rng.integers(2, 16, n), rng.integers(1, 9, n), rng.integers(1, 20, (C, n))
    return Cluster(L, 2, 1, *sizes, servers=names)


def drawn(rng):
    "A plan, servers that leave, servers that join, a price."
    while True:
        n, C = int(rng.integers(2, 5)), int(rng.integers(1, 3))
        L = 3 if n == 4 else int(rng.integers(2, 5))
        c, R = any_fleet(rng, n, L, C, NAMES[:n]), rng.integers(0, 3, C)
        try:
            plan = sweep(c, np.maximum(R, [1] + [0] * (C - 1)))
        except (Infeasible, NotFound):
            continue
        lost = [int(rng.integers(n))] if rng.random() < 0.8 else []
        joined = any_fleet(rng, 1, L, C, ["new"]) if rng.random() < 0.5 and n < 4 else None
        return plan, lost, joined, float(rng.choice([0, 0.5, 3, 30]))


def started(plan, lost, joined):
    "The cluster after churn, and what its servers hold."
    now, stayed = after_churn(plan.cluster, lost, joined)
    more = now.n - len(stayed)
    a = np.append(plan.placement.a[stayed], np.ones(more, int))
    return now, Placement(a, np.append(plan.placement.m[stayed], np.zeros(more, int)))


def blocks_of(span):
    return set(range(*span))


def all_values(plan, lost, joined, price):
    "The value of every placement, by enumeration, and how many servers it changes."
    now, held = started(plan, lost, joined)
    oracle, before, R = Oracle(now), spans_of(held), plan.requests
    for spans in oracle.placements:
        loads = sum(len(blocks_of(s) - blocks_of(h)) for s, h in zip(spans, before))
        changed = sum(s != h for s, h in zip(spans, before))
        yield oracle.routed(spans, R.tolist()) / R.sum() + price * loads, changed


def assert_the_parts(plan, lost, joined, price, best):
    "The program alone finds and proves the best; in no time the bound still holds."
    now, held = started(plan, lost, joined)
    lone = lone_bound(now, plan.requests)
    task = _Task(now, held, plan.requests, price, 0, Clock())
    answer, bound = _by_program(task, None, lone)
    assert answer.value == pytest.approx(best) == pytest.approx(bound, rel=1e-6)
    missing = int((~held.hosts(now.blocks).any(axis=0)).sum())
    try:
        hurried = repair(plan, lost, joined, price, time_limit=0)
    except NotFound:
        return
    assert lone + price * missing <= hurried.bound * CLOSE <= best * CLOSE**2


def test_a_missing_span_is_mended_by_no_more_than_it_held():
    rng, mends = np.random.default_rng(11), 0
    for _ in range(cases(200, few=12)):
        c = fleet(int(rng.integers(16, 20)), 0.0, seed=int(rng.integers(99)))
        plan = sweep(c, int(rng.integers(2, 6)))
        lost = rng.choice(np.flatnonzero(plan.visits), int(rng.integers(1, 3)), replace=False)
        now, held = started(plan, lost.tolist(), None)
        missing = int((~held.hosts(now.blocks).any(axis=0)).sum())
        answer = mended(_Task(now, held, plan.requests, 1e-3, 0, Clock(5)))
        if missing and answer is not None:
            loads = reloads(held, answer.placement).sum()
            mends += 1
            assert missing <= loads <= plan.placement.m[lost].sum()
    assert mends > 1


def test_a_small_repair_is_the_best_of_all():
    rng = np.random.default_rng(1)
    optimal, impossible, ways = 0, 0, set()
    for _ in range(cases(4000, few=60)):
        plan, lost, joined, price = drawn(rng)
        values = list(all_values(plan, lost, joined, price))
        best = min(v for v, _ in values)
        pairs = min(v for v, changed in values if changed <= 2)
        try:
            answer = repair(plan, lost, joined, price)
        except Infeasible:
            impossible += 1
            assert best == np.inf
            continue
        assert answer.value <= pairs * CLOSE and answer.value == pytest.approx(best)
        assert answer.bound <= best * CLOSE
        assert_the_parts(plan, lost, joined, price, best)
        optimal += answer.status == "optimal"
        ways.add(answer.way)
    assert optimal > impossible > 0 and {"keep", "route", "moves"} <= ways


def test_loads_are_counted_block_by_block():
    rng = np.random.default_rng(2)
    c = fleet(6)
    for _ in range(60):
        before, after = random_placement(rng, c), random_placement(rng, c)
        pairs = zip(spans_of(after), spans_of(before))
        counted = [len(blocks_of(new) - blocks_of(old)) for new, old in pairs]
        assert reloads(before, after).tolist() == counted
        assert not reloads(before, before).any()
    with pytest.raises(ValueError, match="the same ones"):
        reloads(Placement([1], [1]), Placement([1, 1], [1, 1]))


def test_what_survives_afterwards_is_the_best_that_does():
    "With one server that may fail next, against enumeration."
    rng = np.random.default_rng(3)
    found = missing = 0
    for _ in range(cases(1200, few=40)):
        plan, lost, joined, price = drawn(rng)
        now, held = started(plan, lost, joined)
        oracle, before, R = Oracle(now), spans_of(held), plan.requests
        best = np.inf
        for at in oracle.placements:
            p = Placement([a + 1 for a, _ in at], [e - a for a, e in at])
            if now.n > 1 and (surviving(now, p, 1) >= R.sum()).all():
                loads = sum(len(blocks_of(s) - blocks_of(h)) for s, h in zip(at, before))
                best = min(best, oracle.routed(at, R.tolist()) / R.sum() + price * loads)
        try:
            answer = repair(plan, lost, joined, price, failures=1)
        except (Infeasible, NotFound):
            missing += 1
            assert best == np.inf
            continue
        found += 1
        assert (surviving(now, answer.plan.placement, 1) >= R.sum()).all()
        assert answer.value == pytest.approx(best) and answer.bound <= best * CLOSE
    assert found > 5 and missing > 5


def test_a_dearer_block_is_loaded_less_often():
    rng = np.random.default_rng(4)
    fewer = 0
    for _ in range(cases(800, few=30)):
        plan, lost, joined, _ = drawn(rng)
        try:
            answers = [repair(plan, lost, joined, price) for price in (0.01, 1.0, 5.0, 50.0)]
        except Infeasible:
            continue
        loads = [int(a.loads.sum()) for a in answers]
        values = [a.value for a in answers]
        assert loads == sorted(loads, reverse=True) and values == sorted(values)
        fewer += loads[0] > loads[-1]
    assert fewer > 1


def many_servers(rng):
    "A fleet that is too large for the program, and a plan."
    while True:
        fast, seed = float(rng.choice([0.0, 0.1, 0.2, 0.4])), int(rng.integers(99))
        c = fleet(int(rng.integers(10, 20)), fast, seed=seed)
        try:
            return sweep(c, int(rng.integers(2, 10 if fast == 0 else 100)))
        except (Infeasible, NotFound):
            continue


def test_a_server_that_joins_makes_no_plan_dearer():
    rng = np.random.default_rng(5)
    for _ in range(cases(200, few=8)):
        plan = many_servers(rng)
        new = replace(fleet(1, 1.0, seed=7), servers=["new"], clients=plan.cluster.clients)
        answer = repair(plan, joined=new, time_limit=0.5)
        assert answer.value <= plan.cost and answer.plan.cluster.n == plan.cluster.n + 1


def test_on_larger_fleets_nothing_simple_is_better():
    rng = np.random.default_rng(6)
    ways = set()
    for _ in range(cases(200, few=16)):
        plan = many_servers(rng)
        lost = [int(rng.choice(np.flatnonzero(plan.visits)))]
        try:
            answer = repair(plan, lost, time_limit=1)
        except (Infeasible, NotFound):
            continue
        ways.add(answer.way)
        now, held = answer.plan.cluster, answer.held
        missing = int((~held.hosts(now.blocks).any(axis=0)).sum())
        assert answer.bound >= lone_bound(now, plan.requests) + answer.reload_price * missing - 1e-9
        try:
            again = route_exact(now, held, plan.requests)
        except (Infeasible, NotFound):
            assert answer.loads.sum() > 0
        else:
            assert answer.value <= again.cost * CLOSE
            most = (again.cost - answer.bound) / answer.reload_price
            assert answer.loads.sum() <= most + 1e-6
        fresh = sweep(now, plan.requests)
        value = fresh.cost + answer.reload_price * reloads(held, fresh.placement).sum()
        assert answer.value <= value / (1 - 0.02) * CLOSE
    assert len(ways) >= 2


def test_a_quiet_fleet_comes_to_rest():
    rng = np.random.default_rng(7)
    for _ in range(cases(100, few=4)):
        plan = many_servers(rng)
        price, total, begin = 1e-3 * plan.cost, 0, plan.cost
        for _ in range(4):
            answer = repair(plan, reload_price=price, time_limit=0.5)
            total, plan = total + int(answer.loads.sum()), answer.plan
            assert price * total <= (begin - plan.cost) * CLOSE + 1e-9
        again = repair(plan, reload_price=price, time_limit=0.5)
        assert again.loads.sum() == 0


def test_hysteresis_keeps_a_plan_that_is_little_worse():
    rng = np.random.default_rng(8)
    differ = 0
    for _ in range(cases(150, few=12)):
        plan = many_servers(rng)
        lost = [int(rng.choice(np.flatnonzero(plan.visits)))]
        known = dict(lost=lost, reload_price=0.0, time_limit=0.5)
        try:
            eager, lazy = (repair(plan, hysteresis=h, **known) for h in (0.0, 1.0))
        except (Infeasible, NotFound):
            continue
        assert eager.value <= lazy.value * CLOSE
        differ += eager.way == "replan" != lazy.way
    assert differ > 0


def test_equal_servers_change_names():
    rng = np.random.default_rng(9)
    c = Cluster(6, 1, 1, [20] * 5, [1] * 5, [[3, 3, 3, 3, 4]])
    for _ in range(cases(400, few=40)):
        before, after = random_placement(rng, c), random_placement(rng, c)
        got = renamed(c, before, after)
        assert (got.a[4], got.m[4]) == (after.a[4], after.m[4])
        assert sorted(zip(got.a[:4], got.m[:4])) == sorted(zip(after.a[:4], after.m[:4]))
        options = [[*order, 4] for order in permutations(range(4))]
        turned = (Placement(after.a[i], after.m[i]) for i in options)
        assert reloads(before, got).sum() == min(reloads(before, p).sum() for p in turned)


def test_time_is_kept():
    plan = sweep(fleet(60, 0.1), 150)
    repair(plan, [0], time_limit=0)
    for limit in (0.0, 0.3, 1.0):
        began = process_time()
        answer = repair(plan, [0, 7], time_limit=limit)
        assert process_time() - began < limit + max(0.2 * limit, 0.5)
        assert answer.status == "time_limit" or answer.gap <= 1 or limit == 1.0


def test_no_requests_need_nothing():
    plan = sweep(fleet(4), 5)
    answer = repair(plan, [0, 1, 2, 3], requests=0)
    assert answer.value == answer.bound == 0 and answer.plan.cluster.n == 0
    with pytest.raises(Infeasible, match="not one request"):
        repair(plan, [0, 1, 2, 3])


# Who is there

THREE = Cluster(
    4, 4, 1, [16, 12, 12], [10, 20, 20], [10] * 3, servers=["A", "B", "C"], rent=[3, 1, 1]
)


def new_server(**more):
    given = dict(memory=[24], tau=[5], rtt=[10], servers=["D"]) | more
    return Cluster(given.pop("blocks", 4), given.pop("block_size", 4), 1, **given)


def test_clusters_are_put_together_field_by_field():
    joined = new_server(prefill_tau=[50], domain=["far"])
    now, stayed = after_churn(THREE, ["B"], joined)
    assert now.servers == ("A", "C", "D") and stayed.tolist() == [0, 2]
    assert now.memory.tolist() == [16, 12, 24] and now.rtt.tolist() == [[10, 10, 10]]
    assert now.prefill_tau.tolist() == [10, 20, 50] and now.prefill_rtt is None
    assert now.domain == ("A", "C", "far") and now.rent is None
    rented, _ = after_churn(THREE, [], new_server(rent=[2]))
    assert rented.rent.tolist() == [3, 1, 1, 2] and rented.domain is None
    hopped = replace(THREE, hop=np.ones((3, 3)))
    assert after_churn(hopped, ["A"])[0].hop is None


@pytest.mark.parametrize(
    "lost, joined, said",
    [
        (["X"], None, r"lost\[0\] is 'X'; the cluster has no such server; it has A, B, C"),
        (["A", "A"], None, r"lost\[1\] is 'A'; the server is lost already"),
        (["A", 0], None, "lost already"),
        ([3], None, r"lost\[0\] is 3; there are 3 servers"),
        ([-1], None, r"lost\[0\] is -1"),
        ([1.5], None, r"lost\[0\] is 1.5"),
        ([True], None, r"lost\[0\] is True"),
        (None, None, "lost is None"),
        ([], new_server(servers=["A"]), "joined has a server 'A', and so has the cluster"),
        ([], new_server(blocks=5), "joined has blocks 5"),
        ([], new_server(block_size=3), "joined has block_size 3"),
        ([], new_server(time_unit="s"), "joined has time_unit 's'"),
        ([], new_server(clients=["other"]), "joined has clients"),
        ([], 3, "joined"),
    ],
)
def test_servers_that_cannot_be_meant(lost, joined, said):
    with pytest.raises(ValueError, match=said):
        repair(sweep(THREE, 2), lost, joined)


def test_a_name_alone_and_names_of_several():
    assert after_churn(THREE, "B")[1].tolist() == after_churn(THREE, 1)[1].tolist() == [0, 2]
    twins = replace(THREE, servers=["A", "A", "C"])
    with pytest.raises(ValueError, match="2 servers have this name; give a position"):
        after_churn(twins, ["A"])
    # who has left may come back under its name
    back = new_server(servers=["B"])
    assert after_churn(THREE, ["B"], back)[0].servers == ("A", "C", "B")


@pytest.mark.parametrize(
    "more, said",
    [
        (dict(reload_price=-1), "reload_price is -1"),
        (dict(reload_price=np.nan), "reload_price is nan"),
        (dict(hysteresis=1.5), "hysteresis is 1.5"),
        (dict(failures=-1), "failures is -1"),
        (dict(failures=0.5), "failures is 0.5"),
        (dict(time_limit=-1), "time_limit is -1"),
        (dict(requests=[1, 2]), "requests"),
    ],
)
def test_bad_input_says_what_is_wrong(more, said):
    with pytest.raises(ValueError, match=said):
        repair(sweep(THREE, 2), **more)


def test_plans_that_cannot_be_repaired():
    way = Chain(0, (0, 1), (2, 2))
    hop = replace(THREE, hop=np.full((3, 3), 5.0))
    forwards = check(hop, Placement([1, 3, 3], [2, 2, 2]), [way], 1, forward=True)
    with pytest.raises(ValueError, match="plan forwards"):
        repair(forwards)
    differ = replace(THREE, block_size=[4, 4, 3, 3])
    with pytest.raises(ValueError, match="blocks that are alike"):
        repair(check(differ, Placement([1, 3, 3], [2, 2, 2]), [way], 1))
    far = Cluster(1, 1, 1, [9] * 3, [1] * 3, [[1, np.inf, 1], [np.inf, 1, 1]])
    with pytest.raises(ValueError, match="failures is 1 and clients reach different servers"):
        repair(sweep(far, [1, 1]), failures=1)
    assert repair(sweep(far, [1, 1])).loads.sum() == 0


def test_records(tmp_path):
    answer = repair(sweep(THREE, 2), ["B"], new_server(), 0.0)
    answer.save(tmp_path / "plan.json")
    for again in (RepairedPlan.load(tmp_path / "plan.json"), pickle.loads(pickle.dumps(answer))):
        assert again == answer and again.way == answer.way and again.held == answer.held
    assert answer.summary() == repr(answer) and "blocks to load" in repr(answer)
    frame = answer.to_frame()
    assert frame["loads"].tolist() == answer.loads.tolist() and frame["before"]["D"] == "nothing"
    assert list(frame.index) == ["A", "C", "D"] and "aria-label" in answer.plot()
    changed = [b != a for b, a in zip(frame["before"], frame["after"])]
    assert answer.changed.tolist() == changed
    for wrong in (dict(bound=1e9), dict(way="magic"), dict(reload_price=-1), dict(held=None)):
        with pytest.raises(ValueError):
            replace(answer, **wrong)
    with pytest.raises(ValueError, match="status is 'optimal'"):
        replace(answer, status="optimal", bound=0.0)


# Under way

PAIR = Cluster(2, 1, 1, [9, 9, 9], [10, 20, 15], [10] * 3, servers=["near", "far", "new"])


def test_changes_by_hand():
    """near leaves at 100 and comes back empty at 200; two blocks take 50 to load, one after
    another, and the server is there when it has both."""
    two = PAIR.take([0, 1])
    plan = check(two, Placement([1, 1], [2, 2]), [Chain(0, (0,), (2,))], 1)
    events = [Event(100, ["near"]), Event(200, [], ["near"])]
    rule = lambda plan, lost, joined, requests: repair(plan, lost, joined, 0.1, requests=requests)
    changes, loads = churn_changes(plan, events, rule, load_time=25)
    assert [c.time for c in changes] == [0, 100, 200, 250] and loads == 2
    assert [c.placement.m.tolist() for c in changes] == [[2, 2], [0, 2], [0, 2], [2, 2]]
    idle, none = churn_changes(plan, events, stay, load_time=25)
    assert none == 0 and [c.placement.m[0] for c in idle] == [2, 0, 0]
    # what is still being loaded when it leaves again never comes
    again = [*events, Event(230, ["near"])]
    changes, loads = churn_changes(plan, again, rule, load_time=25)
    assert [c.time for c in changes] == [0, 100, 200, 230] and changes[-1].placement.m[0] == 0


def test_who_joins_first_is_away_at_the_beginning():
    plan = check(PAIR, Placement([1, 1, 1], [2, 2, 2]), [Chain(0, (0,), (2,))], 1)
    changes, _ = churn_changes(plan, [Event(10, [], ["new"])], plan_anew)
    assert changes[0].placement.m.tolist() == [2, 2, 0] and changes[1].placement.m[2] == 2


def test_a_rule_that_finds_nothing_leaves_things_as_they_are():
    alone = Cluster(2, 1, 1, [9, 2], [10, 20], [10] * 2, servers=["A", "B"])
    plan = check(alone, Placement([1, 1], [2, 1]), [Chain(0, (0,), (2,))], 1)
    for rule in (None, stay, plan_anew, lambda *_: None):
        changes, loads = churn_changes(plan, [Event(5, ["A"])], rule)
        assert changes[1].placement.m.tolist() == [0, 1] and loads == 0


def test_sessions_are_served_through_churn():
    "Whole, one after the other, on any rule; replayed by the simulation itself."
    rng = np.random.default_rng(10)
    broken = 0
    for i in range(cases(200, few=6)):
        plan = many_servers(rng)
        used = np.flatnonzero(plan.visits)
        name = plan.cluster.servers[int(rng.choice(used))]
        arrivals = Arrivals.poisson(0.3, 60, seed=i)
        when = arrivals.arrival[[20, 40]]
        events = [Event(when[0], [name]), Event(when[1], [], [name])]
        price = 0.001 * plan.cost
        quick = lambda plan, lost, joined, requests, price=price: repair(
            plan, lost, joined, price, requests=requests, time_limit=0.3
        )
        for rule in (stay, quick, plan_anew):
            changes, _ = churn_changes(plan, events, rule, load_time=1000.0)
            known = dict(churn=changes[1:], reject=True)
            run = simulate(plan.cluster, changes[0].placement, arrivals, WithRoom(), **known)
            assert (
                np.bincount(run.request, run.tokens, 60)[run.served].tolist()
                == [128.0] * run.served.sum()
            )
            broken += len(run.request) - len(np.unique(run.request))
    assert broken > 0


@pytest.mark.parametrize(
    "events, said",
    [
        ([Event(5, ["X"])], r"events\[0\] is 'X'; the cluster has no such server"),
        ([Event(5, ["near"]), Event(4, ["far"])], r"events\[1\] is at 4, before the one at 5"),
        ([Event(5, ["near"]), Event(6, ["near"])], "'near' leaves and is not there"),
        ([Event(5, [], ["new"]), Event(6, [], ["new"])], "'new' joins and is there already"),
        (["near"], r"events\[0\]"),
        (3, "events is 3"),
    ],
)
def test_events_that_cannot_be(events, said):
    plan = check(PAIR, Placement([1, 1, 1], [2, 2, 2]), [Chain(0, (0,), (2,))], 1)
    with pytest.raises(ValueError, match=said):
        churn_changes(plan, events)
    for bad in (dict(time=-1), dict(time=np.nan), dict(lost="near"), dict(lost=[3])):
        with pytest.raises(ValueError):
            Event(**dict(time=1.0) | bad)


def test_live_example():
    assert "3 blocks to load" in after_a_loss("A", 1) or "4 blocks to load" in after_a_loss("A", 1)
    assert "0 blocks to load" in after_a_loss("E", 0)


def test_the_bound_holds_without_the_program(monkeypatch):
    "Missing blocks count once each; the search alone is never below the best."
    monkeypatch.setattr("serving_or.blocks.churn.MOST_COLUMNS", 0)
    rng, missed = np.random.default_rng(12), 0
    for _ in range(cases(1000, few=40)):
        plan, lost, joined, price = drawn(rng)
        best = min(v for v, _ in all_values(plan, lost, joined, price))
        try:
            answer = repair(plan, lost, joined, price, time_limit=0.5)
        except (Infeasible, NotFound):
            continue
        missing = int((~answer.held.hosts(answer.plan.cluster.blocks).any(axis=0)).sum())
        lone = lone_bound(answer.plan.cluster, plan.requests)
        assert answer.bound <= best * CLOSE and best <= answer.value * CLOSE
        assert lone + price * missing <= answer.bound * CLOSE
        missed += missing > 0
    assert missed > 0


def test_a_missing_block_is_paid_once_in_the_bound(monkeypatch):
    "One request alone would take 10 on A, a second has no room there; the block is loaded once."
    monkeypatch.setattr("serving_or.blocks.churn.MOST_COLUMNS", 0)
    plan = sweep(Cluster(1, 1, 1, [9], [1], [1], servers=["X"]), 2)
    joined = Cluster(1, 1, 1, [2, 9], [5, 25], [5, 5], servers=["A", "B"])
    answer = repair(plan, ["X"], joined, 100.0, time_limit=0.5)
    assert (answer.value, answer.bound) == (130, 110) and answer.status != "optimal"


# The moves


def test_every_move_is_a_span_or_none_of_one_server():
    c = Cluster(3, 2, 1, [9, 6, 2], [1, 1, 1], [1, 1, 1])
    spans = [(0, 1, 0), (0, 1, 1), (0, 2, 1), (0, 3, 1), (0, 1, 2), (0, 2, 2), (0, 1, 3)]
    assert sorted(churn.every_move(c)) == sorted(
        [*spans, (1, 1, 0), (1, 1, 1), (1, 2, 1), (1, 3, 1), (1, 1, 2), (1, 2, 2), (2, 1, 0)]
    )


def test_a_move_stops_with_the_clock_and_a_greedy_task_needs_no_program(monkeypatch):
    plan = sweep(THREE, 2)
    task = _Task(THREE, plan.placement, plan.requests, 0.0, 0, Clock(0))
    now = churn._Answer(np.inf, plan.placement, [], "route")
    moves = iter(list(churn.every_move(THREE)))
    assert churn.best_move(task, now, moves) is None and len(list(moves)) > 5
    told = [after_a_loss(name, 1) for name in "ABE"]
    monkeypatch.setattr(churn, "exact_chains", None)
    assert [after_a_loss(name, 1) for name in "ABE"] == told


def test_offers_are_ranked_by_what_they_save_beside_what_is_held_now(monkeypatch):
    "Multipliers and spans' values at random; every net value again, one by one."
    rng = np.random.default_rng(13)
    for _ in range(20):
        c = Cluster(4, 2, 1, [9, 9, 7], [1, 2, 3], [1, 2, 3])
        held, now = random_placement(rng, c), random_placement(rng, c)
        if not now.m.all():
            continue
        R, price, rent = 3, float(rng.choice([0.5, 4.0])), rng.integers(0, 9, 3).astype(float)
        values = {}

        def worth(cluster, j, togo, demand, values=values, c=c):
            spans = [(a, m) for k, a, m in churn.every_move(c) if k == j and m]
            values[j] = rng.integers(0, 50, len(spans)).astype(float)
            return np.array([(*s, v) for s, v in zip(spans, values[j])])

        monkeypatch.setattr(churn, "worth", worth)
        monkeypatch.setattr(churn, "prices_of", lambda *_, rent=rent: (0.0, None, rent))
        offers = churn._offers(_Task(c, held, np.array([R]), price, 0, Clock()), now)
        loads_of = lambda j, a, m: len(
            blocks_of((a, a + m)) - blocks_of((int(held.a[j]), int(held.e[j])))
        )
        nets = {}
        for j in range(3):
            spans = [(a, m) for k, a, m in churn.every_move(c) if k == j and m]
            lost = rent[j] * min(c.slots(now.m)[j], R * now.m[j])
            before = loads_of(j, int(now.a[j]), int(now.m[j]))
            for (a, m), v in [((1, 0), 0.0), *zip(spans, values[j])]:
                nets[j, a, m] = v - lost - R * price * (loads_of(j, a, m) - before)
        assert [nets[o] for o in offers] == sorted(nets.values(), reverse=True)[: len(offers)]


def test_where_domains_may_fail_equal_servers_change_names_within_one():
    c = Cluster(2, 1, 1, [9] * 4, [1] * 4, [1] * 4, domain=["n", "n", "s", "s"])
    before, after = Placement([1, 1, 2, 2], [1] * 4), Placement([2, 1, 1, 2], [1] * 4)
    assert reloads(before, renamed(c, before, after)).sum() == 0
    apart = renamed(c, before, after, apart=True)
    assert sorted(apart.a[:2]) == sorted(after.a[:2]) and sorted(apart.a[2:]) == sorted(after.a[2:])
