"""Hindsight against all starts in all rounds; windows, rows and bounds against it."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_or.fleet import lookahead
from serving_or.fleet.batching_policies import Aging, SmallestVolume
from serving_or.fleet.kv_cache import (
    FCFS,
    MCSF,
    Requests,
    check_starts,
    look_ahead,
    schedule,
    volume_bound,
)
from serving_or.fleet.lookahead import (
    Hindsight,
    better_order,
    enumerated,
    hindsight,
    hindsight_bound,
    last_starts,
    starts_program,
    whole_bound,
    without_hope,
)
from serving_or.tools.answers import Clock, Infeasible
from serving_or.tools.programs import Outcome, Solution, solve
from tests.long import cases

SLIP = Requests([0] * 4, [2, 1, 2, 2], [5, 3, 2, 5])
SEVEN = Requests([0, 0, 2, 5, 5, 5, 5], [3, 1, 2, 1, 2, 3, 3], [2, 6, 8, 2, 3, 4, 2])


def made(seed, most=6):
    "A few requests: equal ones, full memory, idle gaps, single tokens all occur."
    g = np.random.default_rng(seed)
    n, memory = int(g.integers(1, most + 1)), int(g.integers(4, 15))
    prompt = g.integers(0, min(4, memory), n)
    output = np.array([g.integers(1, memory - s + 1) for s in prompt])
    if g.random() < 0.3:
        output[:] = output.min()
        prompt[:] = prompt.min()
    arrival = g.integers(0, 12, n) * int(g.random() < 0.6) * g.choice([1, 3])
    return Requests(arrival, prompt, output), memory


def every_start(requests, memory, horizon):
    "The least total latency over all starts up to a horizon: no cleverness at all."
    spans = [range(int(a), horizon + 1) for a in requests.arrival]
    best = np.inf
    for starts in product(*spans):
        cost = sum(t + o - a for t, o, a in zip(starts, requests.output, requests.arrival))
        if cost < best:
            use = np.zeros(horizon + int(requests.output.max()) + 2)
            for t, s, o in zip(starts, requests.prompt, requests.output):
                use[t + 1 : t + o + 1] += s + np.arange(1, o + 1)
            if use.max() <= memory:
                best = cost
    return best


@pytest.mark.parametrize("seed", range(cases(400, 30)))
def test_enumeration_against_all_starts_up_to_a_far_horizon(seed):
    requests, memory = made(seed, most=3)
    horizon = int(requests.arrival.max() + requests.output.sum())
    if np.prod(horizon + 1.0 - requests.arrival) > 60_000:
        return
    found = enumerated(requests, memory)
    assert check_starts(requests, found, memory) <= memory
    value = (found + requests.output - requests.arrival).sum()
    assert value == every_start(requests, memory, horizon)


@pytest.mark.parametrize("seed", range(cases(1200, 50)))
def test_hindsight_is_the_optimum(seed):
    requests, memory = made(seed, most=5)
    optimum = (enumerated(requests, memory) + requests.output - requests.arrival).sum()
    answer = hindsight(requests, memory, time_limit=30)
    assert answer.value == optimum and answer.bound == optimum and answer.status == "optimal"
    assert check_starts(requests, answer.starts, memory) == answer.peak <= memory
    relaxed = hindsight_bound(requests, memory)
    assert volume_bound(requests, memory) <= relaxed <= optimum
    for rule in (MCSF(), FCFS(), SmallestVolume(), Aging(0.5)):
        assert schedule(requests, memory, rule).value >= optimum


@pytest.mark.parametrize("seed", range(cases(600, 30)))
def test_windows_and_rows_lose_no_optimum(seed):
    "Whatever U: every optimal schedule is in the windows, satisfies all rows, and is not fixed."
    requests, memory = made(seed, most=4)
    best = enumerated(requests, memory)
    optimum = int((best + requests.output - requests.arrival).sum())
    for value in (optimum, optimum + 1, schedule(requests, memory, FCFS()).value, 2 * optimum + 5):
        last = last_starts(requests, memory, value)
        assert (best <= last).all()
        program = starts_program(requests, memory, last)
        x = np.zeros(len(program.cost))
        for i, t in enumerate(best):
            x[(program.at["who"] == i) & (program.at["when"] == t)] = 1
        assert x.sum() == len(best) and program.cost @ x == optimum
        use = program.matrix @ x
        assert (use <= program.high + 1e-9).all() and (use >= program.low - 1e-9).all()
        relaxed = solve(program, relaxed=True)
        assert whole_bound(relaxed.bound) <= optimum
        smaller, bound = without_hope(program, relaxed, value)
        assert whole_bound(bound) <= optimum
        if optimum < value:
            assert (smaller.upper[x > 0] == 1).all()


@pytest.mark.parametrize("seed", range(cases(300, 20)))
def test_any_multipliers_fix_no_optimum(seed):
    requests, memory = made(seed, most=4)
    best = enumerated(requests, memory)
    optimum = int((best + requests.output - requests.arrival).sum())
    program = starts_program(requests, memory, last_starts(requests, memory, optimum + 2))
    g = np.random.default_rng(seed)
    relaxed = solve(program, relaxed=True)
    if relaxed.multipliers is None:
        return
    y = relaxed.multipliers * g.uniform(0, 2, len(program.low)) + g.normal(
        0, 0.05, len(program.low)
    )
    from dataclasses import replace

    smaller, bound = without_hope(program, replace(relaxed, multipliers=y), optimum + 1)
    assert bound <= optimum + 1e-9
    for i, t in enumerate(best):
        at = (program.at["who"] == i) & (program.at["when"] == t)
        assert smaller.upper[at] == 1


@pytest.mark.parametrize("seed", range(cases(200, 12)))
def test_more_memory_and_fewer_requests_never_hurt_the_optimum(seed):
    requests, memory = made(seed, most=5)
    value = hindsight(requests, memory, 30).value
    assert hindsight(requests, memory + 1, 30).value <= value
    roomy = int((requests.prompt + requests.output).sum())
    assert hindsight(requests, roomy).value == requests.output.sum()
    if len(requests) > 1:
        rest = requests.take(np.arange(len(requests)) > 0)
        first = value - hindsight(rest, memory, 30).value
        assert first >= requests.output[0]


@pytest.mark.parametrize("seed", range(cases(200, 25)))
def test_orders_are_moved_until_no_move_helps(seed):
    requests, memory = made(seed, most=6)
    before = schedule(requests, memory, FCFS())
    starts = better_order(requests, memory, before.starts, Clock())
    assert check_starts(requests, starts, memory) <= memory
    assert starts.sum() <= before.starts.sum()
    if len(requests) > 1:
        order = np.argsort(starts, kind="stable").tolist()
        for i, j in product(range(len(order)), repeat=2):
            moved = order.copy()
            moved.insert(j, moved.pop(i))
            other = look_ahead(requests, memory, np.argsort(moved), requests.output)
            assert other.sum() >= starts.sum()


@pytest.mark.parametrize("seed", range(cases(100, 8)))
def test_longer_outputs_and_larger_memories(seed):
    "Three requests of up to forty tokens: programs of some thousand entries."
    g = np.random.default_rng(seed)
    memory = int(g.integers(40, 80))
    prompt = g.integers(0, 20, 3)
    output = np.array([g.integers(1, min(40, memory - s) + 1) for s in prompt])
    requests = Requests(g.integers(0, 40, 3) * int(g.integers(2)), prompt, output)
    optimum = (enumerated(requests, memory) + output - requests.arrival).sum()
    answer = hindsight(requests, memory, time_limit=30)
    assert answer.value == answer.bound == optimum
    assert hindsight_bound(requests, memory) <= optimum


def test_the_two_slips_of_paper():
    assert hindsight(SLIP, 9).value == 23 and enumerated(SLIP, 9).sum() + 15 == 23
    assert schedule(SLIP, 9, MCSF()).value == 24
    assert [hindsight(SEVEN, M).value for M in (10, 11)] == [41, 38]
    assert [schedule(SEVEN, M, MCSF()).value for M in (10, 11)] == [41, 53]


@settings(max_examples=cases(200), deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 40))
def test_a_shift_of_all_arrivals_and_their_order_change_nothing(seed, shift):
    requests, memory = made(seed, most=4)
    order = np.random.default_rng(seed).permutation(len(requests))
    moved = Requests(
        requests.arrival[order] + shift, requests.prompt[order], requests.output[order]
    )
    assert hindsight(moved, memory).value == hindsight(requests, memory).value


def test_the_last_to_start_may_be_a_short_one():
    "The short request comes too late to go first; the windows must reach it."
    pair = Requests([0, 5], [1, 8], [10, 3])
    assert hindsight(pair, 11).value == 18 and enumerated(pair, 11).tolist() == [0, 10]
    assert last_starts(pair, 11, 18).tolist() == [5, 10]


def test_far_apart_and_full():
    "Idle gaps of a million rounds, requests that fill the memory, and none at all."
    apart = Requests([0, 10**6, 10**6], [3, 3, 3], [2, 2, 2])
    answer = hindsight(apart, 5)
    assert answer.value == 2 + 2 + 4 and answer.status == "optimal"
    none = hindsight(Requests([], [], []), 5)
    assert none.value == none.bound == 0 and none.status == "optimal"
    with pytest.raises(Infeasible, match="request 1"):
        hindsight(Requests([0, 0], [1, 4], [1, 2]), 5)
    assert hindsight_bound(Requests([], [], []), 5) == 0


def test_no_time_and_too_many_requests_still_give_an_honest_answer():
    g = np.random.default_rng(0)
    prompt, output = g.integers(1, 6, 40), g.integers(1, 24, 40)
    many = Requests(np.zeros(40), prompt, output)
    quick = hindsight(many, 30, time_limit=0)
    assert quick.status == "time_limit" and quick.bound == volume_bound(many, 30)
    assert quick.value <= min(schedule(many, 30, rule).value for rule in (FCFS(), MCSF()))
    longer = hindsight(many, 30, time_limit=2)
    # how much better depends on the machine
    assert longer.value <= quick.value and longer.bound >= quick.bound
    crowd = Requests(np.arange(3000) // 3, 5, 20)
    huge = hindsight(crowd, 200, time_limit=3)
    assert huge.status == "feasible" and huge.bound <= huge.value
    assert hindsight_bound(crowd, 200) == volume_bound(crowd, 200)


@pytest.mark.parametrize(
    "said, bound, status",
    [
        # the clock ends the tree at once: what the relaxation proves stays
        (Solution(Outcome.TIME_LIMIT), 20, "time_limit"),
        (Solution(Outcome.TIME_LIMIT, bound=21.2), 22, "time_limit"),
        # nothing is left below the schedule that is known
        (Solution(Outcome.INFEASIBLE, bound=np.inf), 23, "optimal"),
        # what is left is worse than it
        (Solution(Outcome.OPTIMAL, bound=25.0), 23, "optimal"),
        (Solution(Outcome.FAILED), 20, "feasible"),
    ],
)
def test_what_is_made_of_the_solver_s_word(monkeypatch, said, bound, status):
    best = hindsight(SLIP, 9)
    mixed = lambda *a, relaxed=False, **k: solve(*a, relaxed=True) if relaxed else said
    monkeypatch.setattr(lookahead, "solve", mixed)
    answer = hindsight(SLIP, 9, start=best)
    assert (answer.value, answer.bound, answer.status) == (23, bound, status)


def test_a_start_is_used_and_checked():
    optimal = hindsight(SLIP, 9)
    again = hindsight(SLIP, 9, time_limit=0, start=optimal)
    assert again.value == 23 and again.status == "time_limit"
    with pytest.raises(ValueError, match="other requests"):
        hindsight(SEVEN, 10, start=optimal)
    with pytest.raises(ValueError, match="more than the memory, 8"):
        hindsight(SLIP, 8, start=optimal)
    with pytest.raises(ValueError, match="start is of type"):
        hindsight(SLIP, 9, start=[0, 1, 2, 3])
    with pytest.raises(ValueError, match="time_limit"):
        hindsight(SLIP, 9, time_limit=-1)
    with pytest.raises(ValueError, match="bound"):
        Hindsight(SLIP, 9, [1, 1, 0, 6], bound=24)
