"Three optima against each other, bounds against the optimum, Belady's rule against enumeration."
from itertools import combinations
from time import monotonic

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_or import experts
from serving_or.experts import hindsight
from serving_or.experts.hindsight import configurations, dynamic_program, improve, optimum, secant_program, secant_rows, value_tables
from serving_or.experts.level_chain import chain_rows, depths, dual_bound, level_chain, path, price, solve_program, threshold_depths
from serving_or.experts.model import Problem, Schedule, latency
from serving_or.experts.one_step import best_level, lazy_chase, myopic
from serving_or.tools.generators import trace


def small(seed):
    "A small problem: ties, zeros, silent steps, k = 0, m = 1, k < m, w = 0 and T = 1 all occur."
    g = np.random.default_rng(seed)
    m, k, T = int(g.integers(1, 5)), int(g.integers(0, 7)), int(g.integers(1, 8))
    loads = [lambda: g.integers(0, 4, (T, m)), lambda: g.exponential(5, (T, m)), lambda: g.integers(0, 30, (T, m)) * (g.random((T, m)) < 0.6)][seed % 3]()
    loads = np.where(g.random((T, 1)) < 0.1, 0, loads)
    return Problem(loads, k, float(g.choice([0, 0.3, 1, 2, 5])), np.bincount(g.integers(0, m, k), minlength=m))


def policies(problem):
    rules = {"never": lambda r, x: x, "chase": lazy_chase, "myopic": lambda r, x: myopic(r, x, problem.move_price)}
    for name, rule in rules.items():
        x = problem.start
        yield name, Schedule(problem, np.array([x := rule(r, x) for r in problem.loads]))


def chain_bound(problem):
    chain = level_chain(problem)
    return chain.latency(0).sum() + solve_program(*chain_rows(chain))[1]


@pytest.fixture
def large(monkeypatch):
    "Use the method for large problems on small ones."
    monkeypatch.setattr(hindsight, "CONFIGURATIONS", 0)


@pytest.mark.parametrize("part", range(4))
def test_three_optima_agree_and_bounds_are_ordered(part, large):
    for seed in range(60 * part, 60 * part + 60):
        p = small(seed)
        dp, chain, secant = dynamic_program(p), optimum(p, 10), secant_program(p, 10)
        near = pytest.approx(dp.cost, rel=1e-6, abs=1e-6)
        assert dp.bound == pytest.approx(dp.cost, rel=1e-12, abs=1e-12)               # the table's value is the path's cost
        assert chain.cost == near and secant.cost == near
        assert {dp.status, chain.status, secant.status} == {"optimal"}
        lp = chain_bound(p)
        secant_lp = best_level(p.loads, p.extra).sum() + solve_program(*secant_rows(p))[1]
        assert secant_lp <= lp + 1e-6 * max(1, lp)
        assert lp <= dp.cost + 1e-9
        for s in (chain, secant):
            assert s.bound <= dp.cost + 1e-9
            assert np.all(s.bounds <= dp.bounds + 1e-9) and np.all(np.diff(s.bounds) >= -1e-9)   # of every prefix
        for _, s in policies(p):
            assert dp.cost <= s.cost + 1e-9


def test_dynamic_program_against_all_schedules():
    for seed in range(12):
        g = np.random.default_rng(seed)
        p = Problem(g.integers(0, 9, (3, 2)), 3, 1.5, [1, 2])
        x = configurations(2, 3)
        best = min(Schedule(p, x[list(i)]).cost for i in np.ndindex(4, 4, 4))
        assert dynamic_program(p).cost == pytest.approx(best)
        assert [dynamic_program(Problem(p.loads[:t], 3, 1.5, [1, 2])).cost for t in (1, 2, 3)] == pytest.approx(list(dynamic_program(p).bounds))


def test_configurations_are_all_and_different():
    for m, k in [(1, 0), (1, 5), (4, 0), (3, 4), (5, 3)]:
        x = configurations(m, k)
        assert len(np.unique(x, axis=0)) == len(x) == len({c for c in np.ndindex(*(k + 1,) * m) if sum(c) == k})
        assert np.all(x.sum(axis=1) == k) and x.min() >= 0


# Bounds

@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_any_multipliers_give_a_bound(seed, other):
    p = small(seed)
    chain, best = level_chain(p), dynamic_program(p).cost
    g = np.random.default_rng(other)
    for rows, base in [(chain_rows(chain), chain.latency(0).sum()), (secant_rows(p), best_level(p.loads, p.extra).sum())]:
        y = g.normal(0, g.choice([0.1, 1, 10]), rows[2].size)
        assert base + dual_bound(*rows, y) <= best + 1e-9


def test_bound_of_the_multipliers_is_the_program_value():
    from scipy.optimize import linprog

    for seed in range(40):
        p = small(seed)
        cost, rows, lower, upper = chain_rows(level_chain(p))
        if cost.size:
            value = linprog(cost, -rows, -lower, bounds=np.column_stack([0 * upper, upper])).fun
            bound = solve_program(cost, rows, lower, upper)[1]
            assert value - 1e-6 * max(1, abs(value)) <= bound <= value + 1e-9


def test_staircase_relaxation_equals_secant_relaxation():
    from scipy.optimize import linprog

    for seed in range(25):
        p = small(seed)
        (T, m), k = p.loads.shape, p.extra
        if k == 0:
            continue
        lowest = best_level(p.loads, k)
        # Staircase with movement of single copies: s (T, m, k), y (T, m, k), L (T).
        n, s = T * m * k, np.arange(T * m * k).reshape(T, m, k)
        rows, right = [], []

        def row(entries, bound):                                                     # entries . z <= bound
            a = np.zeros(2 * n + T)
            for j, v in entries:
                a[j] += v
            rows.append(a)
            right.append(bound)

        for t in range(T):
            row([(j, 1) for j in s[t].ravel()], k)
            for i in range(m):
                r = p.loads[t, i]
                row([(2 * n + t, -1)] + [(s[t, i, c], -(r / (c + 1) - r / (c + 2))) for c in range(k)], -r)
                for c in range(k):
                    if c:
                        row([(s[t, i, c], 1), (s[t, i, c - 1], -1)], 0)
                    before = float(c < p.start[i]) if t == 0 else 0.0
                    row([(s[t, i, c], 1), (n + s[t, i, c], -1)] + ([(s[t - 1, i, c], -1)] if t else []), before)
        cost = np.concatenate([np.zeros(n), np.full(n, p.move_price), np.ones(T)])
        bounds = [(0, 1)] * n + [(0, None)] * n + [(low, None) for low in lowest]
        staircase = linprog(cost, np.array(rows), np.array(right), bounds=bounds).fun
        secant = lowest.sum() + solve_program(*secant_rows(p))[1]
        assert secant == pytest.approx(staircase, rel=1e-6, abs=1e-6)


def test_no_bound_is_spoiled_by_the_unit():
    p = small(7)
    value = dynamic_program(p).cost
    for unit in (1e-9, 1e9):
        q = Problem(p.loads * unit, p.extra, p.move_price * unit, p.start)
        assert chain_bound(q) == pytest.approx(chain_bound(p) * unit, rel=1e-6) and chain_bound(q) <= value * unit * (1 + 1e-9)


# Paging

def kept_at_best(chain, depth):
    "Enumerate which intervals to keep."
    p = chain.problem
    required = {t: {(chain.expert[e], chain.copy[e]) for e in range(chain.first[t], chain.first[t] + depth[t])} for t in range(p.steps)}
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
        chain = level_chain(p)
        depth = np.array([g.integers(0, n + 1) for n in chain.lengths])
        if 0 < depth.sum() <= 12:
            tried += 1
            best = chain.latency(depth).sum() + p.move_price * (depth.sum() - kept_at_best(chain, depth))
            assert price(chain, depth) == pytest.approx(best, abs=1e-9)
    assert tried > 50


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6))
def test_depths_price_path(seed):
    p, g = small(seed), np.random.default_rng(seed)
    chain, best = level_chain(p), dynamic_program(p)
    many = np.array([[g.integers(0, n + 1) for n in chain.lengths] for _ in range(6)])
    for depth, cost in zip(many, price(chain, many)):
        assert cost == pytest.approx(price(chain, depth))                            # together or alone
        x = path(chain, depth)
        assert np.all(x.sum(axis=1) == p.extra) and x.min(initial=0) >= 0
        assert best.cost - 1e-9 <= Schedule(p, x).cost <= cost + 1e-9
        assert np.all(depths(chain, x) >= depth)
    assert price(chain, depths(chain, best.x)) == pytest.approx(best.cost, abs=1e-9)
    for _, s in policies(p):
        assert price(chain, depths(chain, s.x)) <= s.cost + 1e-9


def test_chain_lists_the_levels():
    for seed in range(60):
        p = small(seed)
        chain = level_chain(p)
        assert np.all(chain.lengths <= p.extra) and np.all(chain.gain >= 0)
        for t in range(p.steps):
            for n in range(chain.lengths[t] + 1):
                e = slice(chain.first[t], chain.first[t] + n)
                x = np.bincount(chain.expert[e], minlength=p.experts)
                assert latency(p.loads[t], x) == pytest.approx(chain.latency(np.where(np.arange(p.steps) == t, n, 0))[t])
                assert sorted(chain.copy[e]) == sorted(c for count in x for c in range(1, count + 1))
        assert chain.latency(chain.lengths) == pytest.approx(best_level(p.loads, p.extra))


def test_improve_and_thresholds():
    p = Problem(trace("ar", 16, 20, 25, 3), 12)
    chain = level_chain(p)
    u = np.random.default_rng(0).random(chain.step.size)
    u = np.concatenate([np.sort(u[chain.first[t]:chain.first[t + 1]])[::-1] for t in range(p.steps)])
    for depth in threshold_depths(chain, u, grid=5):
        assert np.all((0 <= depth) & (depth <= chain.lengths))
    assert any(np.array_equal(d, np.bincount(chain.step[u >= 0.4], minlength=p.steps)) for d in threshold_depths(chain, u, grid=5))
    better, done = improve(chain, depth, monotonic() + 20)
    assert done and price(chain, better) < price(chain, depth)
    same, done = improve(chain, depth, monotonic() - 1)
    assert not done and np.array_equal(same, depth)


# The optimum

def test_worked_examples():
    def example(early, spike, late, before, after, k, w):
        return Problem([early] * before + [spike] + [early] + [late] * after, k, w)

    cases = {
        48.333: (example((20, 4), (4, 20), (4, 20), 3, 3, 4, 2.0), [3, 3, 3, 2, 2, 0, 0, 0]),
        50.300: (example((18, 2), (2, 18), (2, 28), 3, 3, 4, 2.0), [3, 3, 3, 2, 2, 0, 0, 0]),
        43.000: (example((12, 2), (2, 12), (2, 12), 5, 5, 4, 2.0), [3] * 5 + [2, 2] + [0] * 5),
        34.711: (example((19, 2), (2, 19), (2, 19), 4, 4, 8, 1.0), [5, 5, 5, 5, 4, 4, 0, 0, 0, 0]),
    }
    for value, (p, first) in cases.items():
        s = experts.optimum(p)
        assert round(s.cost, 3) == value and s.x[:, 0].tolist() == first and s.status == "optimal"
        x, moves, table = value_tables(p)
        assert table[-1].min() == pytest.approx(s.cost)
        togo, ways = latency(p.loads[-1], x), np.ones(len(x), int)                    # backwards, unlike the chapter
        for t in range(p.steps - 2, -1, -1):
            through = moves + togo
            ways = (np.isclose(through, through.min(axis=1, keepdims=True), rtol=0, atol=1e-9) * ways).sum(axis=1)
            togo = latency(p.loads[t], x) + through.min(axis=1)
        begin = togo + p.move_price * np.maximum(x - p.start, 0).sum(axis=1)
        assert begin.min() == pytest.approx(s.cost)
        assert ways[np.isclose(begin, begin.min(), rtol=0, atol=1e-9)].sum() == 1


@pytest.mark.parametrize("seed", range(30))
def test_one_step_is_the_myopic_step_and_prices_at_both_ends(seed, large):
    p = small(seed)
    one = Problem(p.loads[:1], p.extra, p.move_price, p.start)
    assert optimum(one).cost == pytest.approx(dict(policies(one))["myopic"].cost, abs=1e-9)
    assert optimum(Problem(p.loads, p.extra, 0.0, p.start)).cost == pytest.approx(best_level(p.loads, p.extra).sum(), abs=1e-9)
    dear = optimum(Problem(p.loads, p.extra, 1e7, p.start))
    assert dear.moved.sum() == 0 and np.allclose(dear.latency, latency(p.loads, p.start))


def test_heuristic_alone(large, monkeypatch):
    "Without branch and bound: a schedule within its own bound, never worse than three policies, and optimal nearly always."
    monkeypatch.setattr(hindsight, "BRANCH", 0)
    missed = 0
    for seed in range(300, 400):
        p = small(seed)
        s, best = optimum(p, 10), dynamic_program(p).cost
        assert s.bound <= best + 1e-9 and best <= s.cost + 1e-9
        assert all(s.cost <= other.cost + 1e-9 for _, other in policies(p))
        missed += s.cost > best * (1 + 1e-6) + 1e-9
    assert missed <= 5


def test_awkward_case_is_solved_by_branch_and_bound(large, monkeypatch):
    p = Problem([[9, 10, 4], [1, 3, 9], [10, 10, 1]], 2, 2.0, [0, 0, 2])
    assert optimum(p).cost == 22.0 and optimum(p).status == "optimal"
    monkeypatch.setattr(hindsight, "BRANCH", 0)
    s = optimum(p)
    assert s.bound <= 22.0 <= s.cost and s.status == "feasible" and s.gap > 0.01


@pytest.mark.parametrize("m, k, T, value, secants", [(8, 8, 12, 223.265662, True), (16, 8, 12, 359.639830, True), (16, 16, 24, 535.934863, False), (64, 16, 24, 1299.874045, False)])
def test_pinned_values(m, k, T, value, secants):
    "trace('ar', scale=25, seed=1). The secant program, given up to five seconds, finds the same values in all four; only the quick ones are run here."
    p = Problem(trace("ar", m, T, 25, seed=1), k)
    s = optimum(p, 30)
    assert s.status == "optimal" and s.cost == pytest.approx(value, abs=1e-5)
    if secants:
        assert secant_program(p, 30).cost == pytest.approx(value, abs=1e-5)


def test_middle_size(large):
    p = Problem(trace("zipf", 64, 40, 25, seed=1), 16)
    s = optimum(p, 5)
    assert s.gap < 0.02 and s.bound <= s.cost and np.all(s.x.sum(axis=1) == 16)
    assert s.bounds[-1] >= s.bounds[-2] and all(s.bound <= other.cost for _, other in policies(p))
    order = np.random.default_rng(0).permutation(64)
    q = Problem(p.loads[:, order], 16, 2.0, p.start[order])
    assert chain_bound(q) == pytest.approx(chain_bound(p), rel=1e-7)


def test_no_time_still_gives_a_schedule_and_a_bound(large):
    p = Problem(trace("ar", 32, 30, 25, seed=1), 16)
    s = optimum(p, 0.0)
    assert s.status == "time_limit" and s.bound >= best_level(p.loads, 16).sum() - 1e-9
    assert s.bound <= optimum(p, 5).cost and all(s.cost <= other.cost + 1e-9 for _, other in policies(p))


def test_edges(large):
    assert optimum(Problem(np.zeros((3, 4)), 5)).cost == 0.0
    assert optimum(Problem([[3.0, 1.0]] * 4, 0)).cost == 12.0
    assert optimum(Problem([[3.0]] * 4, 2)).cost == pytest.approx(4.0)
    assert optimum(Problem([[6, 6, 6], [0, 0, 0], [6, 6, 6]], 2, 1.0)).cost == 12.0
    with pytest.raises(ValueError, match="no steps"):
        optimum(Problem(np.zeros((0, 4)), 5))
    with pytest.raises(ValueError, match="expert 0 starts with 1.5"):
        optimum(Problem([[3.0, 1.0]], 3, 2.0, [1.5, 1.5]))


def test_solvers_work_after_somebody_else_has_used_highs_with_other_threads():
    "HiGHS keeps the thread count of a process's first model, and a later model with another count ends unsolved, in silence."
    import highspy

    from serving_or.experts import relax

    problem = Problem(np.random.default_rng(0).lognormal(0, 1, (8, 8)) * 10, extra=8)
    for threads in (2, 1, 2):
        theirs = highspy.Highs()
        theirs.silent()
        theirs.setOptionValue("threads", threads)
        x = theirs.addVariable(0, 1, 1.0)
        theirs.addConstr(x >= 0.5)
        highspy.Highs.resetGlobalScheduler(True)
        theirs.run()
        assert theirs.getModelStatus() == highspy.HighsModelStatus.kOptimal
        assert relax(problem).gap < 1e-5
        assert optimum(problem, time_limit=20).status == "optimal"
