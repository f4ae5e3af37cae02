"""Policies against their literal statements, the checker, the bound and each other."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_or.fleet.batching_policies import (
    GBA,
    GSA,
    Aging,
    AMax,
    AMin,
    SmallestVolume,
    SortedF,
    _grown,
    _under_four_orders,
    _Worker,
    order_and_latency,
)
from serving_or.fleet.kv_cache import FCFS, MCSF, Requests, schedule, tokens_held
from tests.instances import SEVEN_REQUESTS, instances_of_requests, least_latency
from tests.long import cases


def literal_mcsf(requests, memory, predicted):
    "MC-SF as its authors state it, with its test at completion times."
    a, s, o = requests.arrival, requests.prompt, requests.output
    start, t = {}, 0
    while len(start) < len(requests):
        running = [j for j in start if start[j] + o[j] > t]
        waiting = [i for i in range(len(requests)) if i not in start and a[i] <= t]
        chosen = []
        for i in sorted(waiting, key=lambda i: (predicted[i], a[i], s[i], i)):
            planned = {j: start[j] for j in running} | dict.fromkeys([*chosen, i], t)
            ends = {p + predicted[j] for j, p in planned.items() if p + predicted[j] > t}
            held = [
                sum(s[j] + u - p for j, p in planned.items() if p + predicted[j] >= u) for u in ends
            ]
            if max(held) > memory:
                break
            chosen.append(i)
        start |= dict.fromkeys(chosen, t)
        t += 1
    return np.array([start[i] for i in range(len(requests))], int)


def literal_amin(requests, memory, lower):
    "The rule of the chapter, round by round: starts, and lost runs."
    a, s, o = (v.tolist() for v in (requests.arrival, requests.prompt, requests.output))
    level, running, done, start, lost, t = list(lower), set(), set(), {}, [], 0
    n = len(requests)

    def use(u, more=()):
        present = [j for j in [*running, *more] if u <= start[j] + level[j]]
        return sum(s[j] + u - start[j] for j in present)

    while len(done) < n:
        for j in sorted(running):
            if start[j] + o[j] == t:
                running.remove(j)
                done.add(j)
        for j in running:
            level[j] = max(level[j], t - start[j] + 1)
        while use(t + 1) > memory:
            j = min(running, key=lambda j: (level[j], -start[j], -j))
            running.remove(j)
            lost.append((j, start[j], t - start[j]))
        waiting = [i for i in range(n) if a[i] <= t and i not in done and i not in running]
        for i in sorted(waiting, key=lambda i: (level[i], a[i], s[i], i)):
            before = start.get(i)
            start[i] = t
            if any(use(u, [i]) > memory for u in range(t + 1, t + level[i] + 1)):
                start[i] = before
                break
            running.add(i)
        t += 1
    return np.array([start[i] for i in range(n)], int), lost


def literal_phases(requests, memory, plan, level=None, grow=None, stagger=True):
    "Slices and classes as the chapter says, round by round: starts, and lost runs."
    a, s, o = (v.tolist() for v in (requests.arrival, requests.prompt, requests.output))
    plan, running, done, start, lost, t, ready = list(plan), {}, set(), {}, [], 0, 0.0
    n = len(requests)

    def use(u, more):
        present = {**running, **more}
        return sum(s[j] + u - p for j, p in present.items() if u <= p + plan[j])

    def distance(j, rounds):
        return rounds / max(memory // (s[j] + (plan[j] + 1) / 2), 1)

    while len(done) < n:
        for j in sorted(running):
            ran = t - running[j]
            if ran == o[j]:
                done.add(j)
                ready -= distance(j, plan[j] - ran)
                start[j] = running.pop(j)
            elif ran == plan[j]:
                lost.append((j, running.pop(j), ran))
                plan[j] = min(int(np.ceil(plan[j] * grow)), memory - s[j])
        waiting = [i for i in range(n) if a[i] <= t and i not in done and i not in running]
        turn = plan if level is None else level
        for i in sorted(waiting, key=lambda i: (turn[i], a[i], s[i], i)):
            if stagger and ready >= t + 1:
                break
            if any(use(u, {i: t}) > memory for u in range(t + 1, t + plan[i] + 1)):
                break
            running[i], ready = t, max(ready, t) + distance(i, plan[i])
        t += 1
    return np.array([start[i] for i in range(n)], int), lost


def agree(table, starts, lost):
    "Whether a timetable is what the literal rule says."
    same = sorted(map(tuple, table.lost.tolist())) == sorted(lost)
    return same and (table.starts == starts).all()


def every(requests):
    "All policies, with what they need to know."
    most, n = int(requests.output.max(initial=1)), len(requests)
    yield from (FCFS(), MCSF(), SmallestVolume(), Aging(0.3), Aging(0), AMax(most), AMax(most + 3))
    yield from (AMin(), AMin(3), AMin(np.arange(1, n + 1)), GSA(), GSA(1.3, 2, stagger=False))
    yield from (GSA(5), GBA(), GBA(3, stagger=False), MCSF(requests.output * 2))


@settings(max_examples=cases(2000), deadline=None)
@given(instances_of_requests())
def test_every_timetable_passes_the_checker_and_the_bound(case):
    requests, memory = case
    for policy in every(requests):
        # a timetable checks itself when it is made, lost runs included
        table = schedule(requests, memory, policy)
        assert table.value >= table.bound and table.policy == type(policy).__name__
        rounds = np.arange(1, int(table.completions.max(initial=0)) + 1)
        held = np.zeros(len(rounds), int)
        runs = [(i, p, int(requests.output[i])) for i, p in enumerate(table.starts)]
        for i, p, length in [*runs, *table.lost.tolist()]:
            held[p : p + length] += requests.prompt[i] + np.arange(1, length + 1)
        assert (table.use(rounds) == held).all() and held.max(initial=0) == table.peak <= memory
        for i, begin, length in table.lost.tolist():
            # runs of one request do not overlap, and end before they are complete
            assert requests.arrival[i] <= begin and begin + length <= table.starts[i]
            assert 1 <= length < requests.output[i]


@settings(max_examples=cases(300), deadline=None)
@given(instances_of_requests(most=4, longest=3, gap=3))
def test_nobody_beats_the_optimum(case):
    requests, memory = case
    if len(requests):
        best = least_latency(requests, memory)
        assert all(best <= schedule(requests, memory, policy).value for policy in every(requests))


@settings(max_examples=cases(3000), deadline=None)
@given(instances_of_requests(), st.integers(0, 10**6))
def test_mcsf_is_what_its_authors_state(case, seed):
    requests, memory = case
    more = np.random.default_rng(seed).integers(0, 4, len(requests))
    predicted = np.minimum(requests.output + more, memory - requests.prompt)
    fast = schedule(requests, memory, MCSF(predicted)).starts
    assert (fast == literal_mcsf(requests, memory, predicted)).all()


@settings(max_examples=cases(3000), deadline=None)
@given(instances_of_requests(gap=9), st.integers(0, 10**6))
def test_amin_is_its_rule(case, seed):
    requests, memory = case
    lower = np.random.default_rng(seed).integers(1, 9, len(requests))
    lower = np.minimum(lower, memory - requests.prompt)
    starts, lost = literal_amin(requests, memory, lower)
    assert agree(schedule(requests, memory, AMin(lower)), starts, lost)
    # the theorem on evictions
    boundaries = {begin + length for _, begin, length in lost}
    assert len(boundaries) <= np.maximum(requests.output - lower, 0).sum()


@settings(max_examples=cases(2000), deadline=None)
@given(
    instances_of_requests(gap=9), st.sampled_from([1.3, 2.0, 5.0]), st.integers(1, 4), st.booleans()
)
def test_slices_and_classes_are_their_rules(case, growth, first, stagger):
    requests, memory = case
    plan = np.minimum(first, memory - requests.prompt)
    said = literal_phases(requests, memory, plan, grow=growth, stagger=stagger)
    assert agree(schedule(requests, memory, GSA(growth, first, stagger)), *said)
    # the class of an output is the least power of the growth that is not below it
    level = [next(k for k in range(99) if o <= growth**k * (1 + 1e-9)) for o in requests.output]
    said = literal_phases(requests, memory, requests.output, level, stagger=stagger)
    assert agree(schedule(requests, memory, GBA(growth, stagger)), *said)


def test_of_equal_estimates_the_last_to_begin_is_evicted():
    requests = Requests([1, 1, 1, 2], [1, 2, 3, 0], [6, 4, 3, 5])
    table = schedule(requests, 11, AMin([2, 2, 3, 3]))
    assert agree(table, *literal_amin(requests, 11, [2, 2, 3, 3]))
    # at 3 the estimates of requests 0, 1 and 2 are 3, and request 2 began at 2
    assert table.starts.tolist() == [1, 1, 6, 7] and [2, 2, 1] in table.lost.tolist()


def test_windows_slide_as_the_rules_say():
    rng = np.random.default_rng(3)
    for longest, memory, n in ((3, 9, 40), (29, 60, 30)):
        for gaps in ([0, 3, 60], [0, 0, longest, longest + 1, 2 * longest, 1025, 1200]):
            output = rng.integers(1, longest + 1, n)
            prompt = np.where(rng.random(n) < 0.2, memory - output, rng.integers(0, 5, n))
            requests = Requests(np.cumsum(rng.choice(gaps, n)), prompt, output)
            lower = np.minimum(rng.integers(1, longest + 1, n), memory - prompt)
            said = literal_amin(requests, memory, lower)
            assert agree(schedule(requests, memory, AMin(lower)), *said)
            plan = np.minimum(2, memory - prompt)
            for stagger in (False, True):
                said = literal_phases(requests, memory, plan, grow=2.0, stagger=stagger)
                assert agree(schedule(requests, memory, GSA(2.0, 2, stagger)), *said)


@settings(max_examples=cases(1000), deadline=None)
@given(instances_of_requests())
def test_with_exact_estimates_all_are_shortest_first(case):
    requests, memory = case
    exact = schedule(requests, memory, MCSF())
    if len(requests):
        for policy in (AMin(requests.output), AMax(requests.output), Aging(0)):
            table = schedule(requests, memory, policy)
            assert (table.starts == exact.starts).all() and not len(table.lost)


@settings(max_examples=cases(1000), deadline=None)
@given(instances_of_requests(), st.sampled_from([0.1, 0.5, 1, 3]))
def test_nobody_late_overtakes_under_aging(case, weight):
    requests, memory = case
    start, a, o = (
        schedule(requests, memory, Aging(weight)).starts,
        requests.arrival,
        requests.output,
    )
    for i in range(len(requests)):
        before = (start < start[i]) & (start >= a[i])
        assert (a[before] <= a[i] + (o[i] - o[before]) / weight + 1e-9).all()


@settings(max_examples=cases(500), deadline=None)
@given(instances_of_requests())
def test_much_aging_is_first_come_first_served(case):
    requests, memory = case
    aged = schedule(requests, memory, Aging(1000)).starts
    # among those that come together it is still the shortest that goes first
    order = np.lexsort((requests.output, requests.arrival))
    one = requests.take(order)
    distinct = Requests(np.arange(len(one)) * 2, one.prompt, one.output)
    first, late = (schedule(distinct, memory, p).starts for p in (FCFS(), Aging(1000)))
    assert (first == late).all() and len(aged) == len(requests)


def test_the_lost_rounds_of_slices_are_a_geometric_series():
    rng = np.random.default_rng(0)
    requests = Requests(
        np.sort(rng.integers(0, 300, 80)), rng.integers(0, 20, 80), rng.integers(1, 99, 80)
    )
    for growth in (1.5, 2.0, 4.0):
        table = schedule(requests, 300, GSA(growth))
        spent = np.bincount(table.lost[:, 0], table.lost[:, 2], minlength=80)
        # a slice is rounded up, by less than one round each time
        times = np.bincount(table.lost[:, 0], minlength=80)
        assert (
            spent <= requests.output * growth / (growth - 1) + times * growth / (growth - 1)
        ).all()
    two = schedule(requests, 300, GSA(2.0))
    spent = np.bincount(two.lost[:, 0], two.lost[:, 2], minlength=80)
    assert (spent < 2 * requests.output).all()


def test_sorted_f():
    with pytest.raises(ValueError, match="arrive together"):
        schedule(SEVEN_REQUESTS, 10, SortedF())
    rng = np.random.default_rng(2)
    for _ in range(cases(400)):
        n = int(rng.integers(0, 12))
        requests = Requests(np.full(n, 4), rng.integers(0, 9, n), rng.integers(1, 9, n))
        memory = int((requests.prompt + requests.output).max(initial=1)) + int(rng.integers(0, 20))
        table = schedule(requests, memory, SortedF())
        assert table.value >= table.bound
    # of two batches with one F the larger is taken
    assert _grown(np.array([1, 1]), np.array([1, 3]), np.arange(2), 9) == [0, 1]
    two = Requests(np.zeros(3), [0, 1, 8], [3, 1, 1])
    assert SortedF()._places(two, 9).tolist() == [1, 0, 2]
    # three small ones have F = 6/9, the large one 1, the small one that is left 2
    many = Requests(np.zeros(5), [8, 1, 1, 1, 1], [1, 2, 2, 2, 2])
    assert schedule(many, 9, SortedF()).starts.tolist() == [2, 0, 0, 0, 3]


def test_a_policy_can_be_used_again():
    policy = AMin([2, 2, 2, 2, 2, 2, 2])
    one, two = (schedule(SEVEN_REQUESTS, 11, policy) for _ in range(2))
    assert one == two and policy.lower.tolist() == [2] * 7


def test_idle_times_are_jumped_over():
    far = Requests([0, 2**40, 2**50], [3, 3, 3], [9, 9, 9])
    for policy in (AMin(), GSA(), GBA()):
        table = schedule(far, 20, policy)
        assert (table.latency < 40).all()


@pytest.mark.parametrize(
    "make, said",
    [
        (lambda: Aging(-1), "weight is -1"),
        (lambda: GSA(1.0), "growth is 1.0"),
        (lambda: GSA(first=0), "first is 0"),
        (lambda: AMin(0), "lower is 0"),
        (lambda: AMax([1, 2.5]), r"upper\[1\] is 2.5"),
        (lambda: schedule(SEVEN_REQUESTS, 11, AMax(5)), "reserve of request B is 5"),
        (lambda: schedule(SEVEN_REQUESTS, 11, AMin([1, 2])), "lower has shape"),
    ],
)
def test_bad_parameters(make, said):
    with pytest.raises(ValueError, match=said):
        make()


def test_the_live_picture():
    for memory in (1200, 2800):
        for load in (20, 50):
            requests, tables = _under_four_orders(memory, load, 0.5)
            assert len(requests) == 400 and len(tables) == 4
            assert f"utilisation {requests.utilisation(memory):.2f}" in order_and_latency(
                memory, load
            )


def test_what_a_worker_plans_is_what_it_holds():
    "At the end nothing is planned."
    requests = SEVEN_REQUESTS
    worker = _Worker(requests, 11, np.full(7, 1, np.int64))
    starts, lost = worker.run()
    assert (worker.q[worker.at + 1 :] == worker.cells[worker.at + 1 :]).all()
    who = np.concatenate([np.arange(7), lost[:, 0]])
    begin, length = (
        np.concatenate([starts, lost[:, 1]]),
        np.concatenate([requests.output, lost[:, 2]]),
    )
    assert tokens_held(requests.prompt[who], begin, length, np.arange(60)).max() <= 11
