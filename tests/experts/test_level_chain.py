"Belady's rule against enumeration, the chain against brute force, its program against others."

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_or.experts.level_chain import (
    chain_of,
    chain_rows,
    depths,
    eight_deep,
    go_down,
    path,
    price,
    threshold_depths,
)
from serving_or.experts.model import Problem, Schedule, latency
from serving_or.experts.one_step import best_level
from serving_or.tools.programs import dual_bound, solve
from tests.instances import EIGHT_STEPS, best_schedule, small

seeds = st.integers(0, 10**6)


def chain_bound(problem):
    chain = chain_of(problem)
    return chain.latency(0).sum() + solve(chain_rows(chain), relaxed=True).bound


# The chain


def test_chain_lists_the_levels():
    for seed in range(60):
        p = small(seed)
        chain = chain_of(p)
        assert np.all(chain.lengths <= p.extra) and np.all(chain.gain >= 0)
        for t in range(p.steps):
            for n in range(chain.lengths[t] + 1):
                e = slice(chain.first[t], chain.first[t] + n)
                x = np.bincount(chain.expert[e], minlength=p.experts)
                here = chain.latency(np.where(np.arange(p.steps) == t, n, 0))[t]
                assert latency(p.loads[t], x) == pytest.approx(here)
                copies = sorted(c for count in x for c in range(1, count + 1))
                assert sorted(chain.copy[e]) == copies
        assert chain.latency(chain.lengths) == pytest.approx(best_level(p.loads, p.extra))


def test_a_chain_cannot_be_changed_and_needs_whole_gpus():
    chain = chain_of(Problem(EIGHT_STEPS, 4))
    with pytest.raises(ValueError, match="read-only"):
        chain.levels[0] = 1.0
    with pytest.raises(ValueError, match=r"start\[0\] is 1.5; it must be a whole number"):
        chain_of(Problem([[3.0, 1.0]], 3, 2.0, [1.5, 1.5]))


# Paging


def kept_at_best(chain, depth):
    "Enumerate which intervals to keep."
    p = chain.problem
    required = {}
    for t in range(p.steps):
        events = range(chain.first[t], chain.first[t] + depth[t])
        required[t] = {(chain.expert[e], chain.copy[e]) for e in events}
    required[-1] = {(i, c) for i in range(p.experts) for c in range(1, int(p.start[i]) + 1)}
    intervals = []
    for t in range(p.steps):
        for key in required[t]:
            before = [s for s in range(-1, t) if key in required[s]]
            if before:
                intervals.append(range(before[-1] + 1, t))
    room = [p.extra - depth[t] for t in range(p.steps)]
    for size in range(len(intervals), -1, -1):
        for some in combinations(intervals, size):
            if all(sum(t in i for i in some) <= room[t] for t in range(p.steps)):
                return size


def test_beladys_rule_against_enumeration():
    tried = 0
    for seed in range(120):
        p, g = small(seed), np.random.default_rng(seed)
        chain = chain_of(p)
        depth = np.array([g.integers(0, n + 1) for n in chain.lengths])
        if 0 < depth.sum() <= 12:
            tried += 1
            moved = depth.sum() - kept_at_best(chain, depth)
            best = chain.latency(depth).sum() + p.move_price * moved
            assert price(chain, depth) == pytest.approx(best, abs=1e-9)
    assert tried > 50


@given(seeds)
def test_depths_price_path(seed):
    p, g = small(seed), np.random.default_rng(seed)
    chain, best = chain_of(p), best_schedule(p)
    many = np.array([[g.integers(0, n + 1) for n in chain.lengths] for _ in range(6)])
    for depth, cost in zip(many, price(chain, many)):
        # together or alone
        assert cost == pytest.approx(price(chain, depth))
        x = path(chain, depth)
        assert np.all(x.sum(axis=1) == p.extra) and x.min(initial=0) >= 0
        assert best - 1e-9 <= Schedule(p, x).cost <= cost + 1e-9
        assert np.all(depths(chain, x) >= depth)
        assert price(chain, depths(chain, x)) <= Schedule(p, x).cost + 1e-9


def test_paths_cost_no_more_than_prices_where_room_is_short():
    "Many copies wait, for different steps: which of them to drop matters."
    for seed in range(40):
        g = np.random.default_rng(seed)
        p = Problem(
            g.exponential(10, (14, 7)), 6, 2.0, np.bincount(g.integers(0, 7, 6), minlength=7)
        )
        chain = chain_of(p)
        depth = np.array([g.integers(0, n + 1) for n in chain.lengths])
        assert Schedule(p, path(chain, depth)).cost <= price(chain, depth) * (1 + 1e-12)


# The program


@given(seeds, seeds)
def test_any_multipliers_give_a_bound(seed, other):
    p = small(seed)
    chain, g = chain_of(p), np.random.default_rng(other)
    program = chain_rows(chain)
    y = g.normal(0, g.choice([0.1, 1, 10]), program.low.size)
    assert chain.latency(0).sum() + dual_bound(program, y) <= best_schedule(p) + 1e-9


def test_the_bound_is_the_value_of_the_program_and_below_the_optimum():
    from scipy.optimize import Bounds, LinearConstraint, milp

    for seed in range(40):
        p = small(seed)
        chain = chain_of(p)
        q = chain_rows(chain)
        bound = solve(q, relaxed=True).bound
        assert chain.latency(0).sum() + bound <= best_schedule(p) + 1e-9
        if q.cost.size:
            rules = LinearConstraint(q.matrix, q.low, q.high)
            value = milp(q.cost, constraints=rules, bounds=Bounds(q.lower, q.upper)).fun
            assert value - 1e-6 * max(1, abs(value)) <= bound <= value + 1e-9


def test_the_program_is_exact():
    for seed in range(60):
        p = small(seed)
        chain = chain_of(p)
        found = solve(chain_rows(chain))
        assert chain.latency(0).sum() + found.value == pytest.approx(best_schedule(p), abs=1e-7)


def test_no_bound_is_spoiled_by_the_unit():
    p = small(7)
    value = best_schedule(p)
    for unit in (1e-9, 1e9):
        q = Problem(p.loads * unit, p.extra, p.move_price * unit, p.start)
        assert chain_bound(q) == pytest.approx(chain_bound(p) * unit, rel=1e-6)
        assert chain_bound(q) <= value * unit * (1 + 1e-9)


def test_thresholds():
    g = np.random.default_rng(0)
    chain = chain_of(Problem(g.exponential(25, (20, 16)), 12))
    u = g.random(chain.events)
    parts = zip(chain.first, chain.first[1:])
    u = np.concatenate([np.sort(u[a:b])[::-1] for a, b in parts])
    found = threshold_depths(chain, u, grid=5)
    for depth in found:
        assert np.all((0 <= depth) & (depth <= chain.lengths))
    taken = np.bincount(chain.step[u >= 0.4], minlength=20)
    assert any(np.array_equal(d, taken) for d in found)
    assert len(np.unique(found, axis=0)) == len(found)


def test_thresholds_between_those_of_the_grid():
    chain = chain_of(Problem([[9.0, 0.0], [0.0, 9.0]], 2, 1.0, [1, 1]))
    assert chain.lengths.tolist() == [2, 2]
    found = threshold_depths(chain, [0.47, 0.45, 0.46, 0.44], grid=2)
    assert found.tolist() == [[0, 0], [1, 0], [1, 1], [2, 1], [2, 2]]


def test_half_an_event():
    "The exercise: equal loads, and GPUs that stand on a third expert."
    for T in (1, 2, 8, 9):
        one = Problem([[6.0, 6.0, 0.0]] * T, 1, 1.0, [0, 0, 1])
        assert chain_of(one).events == 0 and best_schedule(one) == 6 * T
        two = Problem([[6.0, 6.0, 0.0]] * T, 2, 4.0, [0, 0, 2])
        chain = chain_of(two)
        assert chain.gain.tolist() == [0.0, 3.0] * T
        assert best_schedule(two) == min(6 * T, 8 + 3 * T) == pytest.approx(chain_bound(two))


@pytest.mark.parametrize("before, spike, after", [(1, 0, 3), (4, 4, 4), (3, 2, 4)])
def test_live_example(before, spike, after):
    picture = go_down(before, spike, after)
    assert f"<td>{price(*eight_deep(before, spike, after)):.3f}</td>" in picture
