"Three optima against each other, bounds against the optimum, counts against enumeration."

import pickle
import time
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_or import experts
from serving_or.experts import hindsight
from serving_or.experts.certificate import run
from serving_or.experts.hindsight import (
    Glue,
    closing_in,
    configurations,
    count_optima,
    dynamic_program,
    hindsight_of_a_spike,
    improve,
    optimum,
    secant_program,
    secant_rows,
    simple_schedules,
    value_tables,
    window_rows,
)
from serving_or.experts.level_chain import chain_of, chain_rows, path, price, threshold_depths
from serving_or.experts.model import Problem, Schedule, latency
from serving_or.experts.one_step import best_level
from serving_or.experts.policies import Chase, Myopic, Never, played
from serving_or.experts.regularized_greedy import RegularizedGreedy, ReverseEntropy
from serving_or.experts.relaxation import relax
from serving_or.experts.rounding import Credit, Hysteresis
from serving_or.tools.answers import Clock, TooLarge, progress
from serving_or.tools.generators import KINDS, trace
from serving_or.tools.programs import Outcome, Solution, dual_bound, solve
from tests.experts.oracles import Exact, integer_program, over_scales
from tests.instances import AWKWARD, EIGHT_STEPS, best_schedule, problems, small
from tests.long import cases


def chain_bound(problem):
    chain = chain_of(problem)
    return chain.latency(0).sum() + solve(chain_rows(chain), relaxed=True).bound


def secant_bound(problem):
    lowest = best_level(problem.loads, problem.extra).sum()
    return lowest + solve(secant_rows(problem), relaxed=True).bound


@pytest.fixture
def large(monkeypatch):
    "Use the method for large problems on small ones."
    monkeypatch.setattr(hindsight, "CONFIGURATIONS", 0)


@pytest.mark.parametrize("part", range(4))
def test_three_optima_agree_and_bounds_are_ordered(part, large):
    for seed in range(part, cases(240, 80), 4):
        p = small(seed)
        dp, chain, secant = dynamic_program(p), optimum(p, 10), secant_program(p, 10)
        near = pytest.approx(dp.cost, rel=1e-6, abs=1e-6)
        assert dp.bound == pytest.approx(
            dp.cost, rel=1e-12, abs=1e-12
        )  # the table's value is the path's cost
        assert chain.cost == near and secant.cost == near
        assert {dp.status, chain.status, secant.status} == {"optimal"}
        lp = chain_bound(p)
        assert secant_bound(p) <= lp + 1e-6 * max(1, lp)
        assert lp <= dp.cost + 1e-9
        for s in (chain, secant):
            assert s.bound <= dp.cost + 1e-9
            assert np.all(s.bounds <= dp.bounds + 1e-9) and np.all(
                np.diff(s.bounds) >= -1e-9
            )  # of every prefix
        for s in simple_schedules(p).values():
            assert dp.cost <= s.cost + 1e-9


def test_dynamic_program_against_all_schedules():
    for seed in range(12):
        g = np.random.default_rng(seed)
        p = Problem(g.integers(0, 9, (3, 2)), 3, 1.5, [1, 2])
        x = configurations(2, 3)
        best = min(Schedule(p, x[list(i)]).cost for i in np.ndindex(4, 4, 4))
        assert dynamic_program(p).cost == pytest.approx(best)
        prefixes = [Problem(p.loads[:t], 3, 1.5, [1, 2]) for t in (1, 2, 3)]
        costs = [dynamic_program(prefix).cost for prefix in prefixes]
        assert costs == pytest.approx(list(dynamic_program(p).bounds))


def test_configurations_are_all_and_different():
    for m, k in [(1, 0), (1, 5), (4, 0), (3, 4), (5, 3)]:
        x = configurations(m, k)
        every = [c for c in np.ndindex(*(k + 1,) * m) if sum(c) == k]
        assert len(np.unique(x, axis=0)) == len(x) == len(every)
        assert np.all(x.sum(axis=1) == k) and x.min() >= 0


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

        def row(entries, bound):  # entries . z <= bound
            a = np.zeros(2 * n + T)
            for j, v in entries:
                a[j] += v
            rows.append(a)
            right.append(bound)

        for t in range(T):
            row([(j, 1) for j in s[t].ravel()], k)
            for i in range(m):
                r = p.loads[t, i]
                row(
                    [(2 * n + t, -1)]
                    + [(s[t, i, c], -(r / (c + 1) - r / (c + 2))) for c in range(k)],
                    -r,
                )
                for c in range(k):
                    if c:
                        row([(s[t, i, c], 1), (s[t, i, c - 1], -1)], 0)
                    before = float(c < p.start[i]) if t == 0 else 0.0
                    row(
                        [(s[t, i, c], 1), (n + s[t, i, c], -1)]
                        + ([(s[t - 1, i, c], -1)] if t else []),
                        before,
                    )
        cost = np.concatenate([np.zeros(n), np.full(n, p.move_price), np.ones(T)])
        bounds = [(0, 1)] * n + [(0, None)] * n + [(low, None) for low in lowest]
        staircase = linprog(cost, np.array(rows), np.array(right), bounds=bounds).fun
        secant = secant_bound(p)
        assert secant == pytest.approx(staircase, rel=1e-6, abs=1e-6)


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
        togo, ways = latency(p.loads[-1], x), np.ones(len(x), int)  # backwards, unlike the chapter
        for t in range(p.steps - 2, -1, -1):
            through = moves + togo
            ways = (
                np.isclose(through, through.min(axis=1, keepdims=True), rtol=0, atol=1e-9) * ways
            ).sum(axis=1)
            togo = latency(p.loads[t], x) + through.min(axis=1)
        begin = togo + p.move_price * np.maximum(x - p.start, 0).sum(axis=1)
        assert begin.min() == pytest.approx(s.cost)
        assert ways[np.isclose(begin, begin.min(), rtol=0, atol=1e-9)].sum() == 1


@pytest.mark.parametrize("seed", range(30))
def test_one_step_is_the_myopic_step_and_prices_at_both_ends(seed, large):
    p = small(seed)
    one = Problem(p.loads[:1], p.extra, p.move_price, p.start)
    assert optimum(one).cost == pytest.approx(simple_schedules(one)["myopic"].cost, abs=1e-9)
    assert optimum(Problem(p.loads, p.extra, 0.0, p.start)).cost == pytest.approx(
        best_level(p.loads, p.extra).sum(), abs=1e-9
    )
    dear = optimum(Problem(p.loads, p.extra, 1e7, p.start))
    assert dear.moved.sum() == 0 and np.allclose(dear.latency, latency(p.loads, p.start))


def test_heuristic_alone(large, monkeypatch):
    "Without branch and bound: within its own bound, never worse than three policies, nearly exact."
    monkeypatch.setattr(hindsight, "_branched", lambda *_: None)
    missed = 0
    for seed in range(300, 400):
        p = small(seed)
        s, best = optimum(p, 10), dynamic_program(p).cost
        assert s.bound <= best + 1e-9 and best <= s.cost + 1e-9
        assert all(s.cost <= other.cost + 1e-9 for other in simple_schedules(p).values())
        missed += s.cost > best * (1 + 1e-6) + 1e-9
    assert missed <= 5


def test_awkward_case_is_solved_by_branch_and_bound(large, monkeypatch):
    p = AWKWARD
    assert optimum(p).cost == 22.0 and optimum(p).status == "optimal"
    monkeypatch.setattr(hindsight, "_branched", lambda *_: None)
    s = optimum(p)
    assert s.bound <= 22.0 <= s.cost and s.status == "feasible" and s.gap > 0.01


@pytest.mark.parametrize(
    "m, k, T, value, secants",
    [
        (8, 8, 12, 223.265662, True),
        (16, 8, 12, 359.639830, True),
        (16, 16, 24, 535.934863, False),
        (64, 16, 24, 1299.874045, False),
    ],
)
def test_pinned_values(m, k, T, value, secants):
    "trace('ar', scale=25, seed=1); the secant program finds all four, the quick ones are run."
    p = Problem(trace("ar", m, T, 25, seed=1), k)
    s = optimum(p, 30)
    assert s.status == "optimal" and s.cost == pytest.approx(value, abs=1e-5)
    if secants:
        assert secant_program(p, 30).cost == pytest.approx(value, abs=1e-5)


def test_middle_size(large):
    p = Problem(trace("zipf", 64, 40, 25, seed=1), 16)
    s = optimum(p, 2)
    assert s.gap < 0.05 and s.bound <= s.cost and np.all(s.x.sum(axis=1) == 16)
    assert s.bounds[-1] >= s.bounds[-2] and all(
        s.bound <= other.cost for other in simple_schedules(p).values()
    )
    order = np.random.default_rng(0).permutation(64)
    q = Problem(p.loads[:, order], 16, 2.0, p.start[order])
    assert chain_bound(q) == pytest.approx(chain_bound(p), rel=1e-7)


def test_no_time_still_gives_a_schedule_and_a_bound(large, monkeypatch):
    # the moment that policies get is of the clock, and a busy machine may take it away
    monkeypatch.setattr(hindsight, "GRACE", 5.0)
    p = Problem(trace("ar", 32, 30, 25, seed=1), 16)
    s = optimum(p, 0.0)
    assert s.status == "time_limit" and s.bound >= best_level(p.loads, 16).sum() - 1e-9
    assert s.bound <= optimum(p, 5).cost and all(
        s.cost <= other.cost + 1e-9 for other in simple_schedules(p).values()
    )


def test_edges(large):
    assert optimum(Problem(np.zeros((3, 4)), 5)).cost == 0.0
    assert optimum(Problem([[3.0, 1.0]] * 4, 0)).cost == 12.0
    assert optimum(Problem([[3.0]] * 4, 2)).cost == pytest.approx(4.0)
    assert optimum(Problem([[6, 6, 6], [0, 0, 0], [6, 6, 6]], 2, 1.0)).cost == 12.0
    with pytest.raises(ValueError, match="no steps"):
        optimum(Problem(np.zeros((0, 4)), 5))
    with pytest.raises(ValueError, match=r"start\[0\] is 1.5"):
        optimum(Problem([[3.0, 1.0]], 3, 2.0, [1.5, 1.5]))


def test_solvers_work_after_somebody_else_has_used_highs_with_other_threads():
    "HiGHS keeps the thread count of a process's first model."
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


# Scales, limits, doors


def truth(schedule, exact):
    "A schedule's cost and bound against the exact optimum; what is wrong, or nothing."
    best, p = exact.best()[-1], schedule.problem
    # a rounding error of every sum, and of every denormal term
    slack = Fraction(5e-324) * 8 * p.steps * (p.experts + 2)
    cost = exact.cost(schedule.x)
    assert schedule.bound <= schedule.cost
    assert Fraction(schedule.bound) <= best * Fraction(1 + 1e-9) + slack and best <= cost
    assert abs(Fraction(schedule.cost) - cost) <= cost * Fraction(1e-12) + slack
    if schedule.status == "optimal":
        assert cost <= best * Fraction(1 + 2e-6) + slack
    return schedule.status


@pytest.mark.parametrize("configurations", [0, 600])
@pytest.mark.parametrize("limit", [None, 0, 0.05])
def test_no_answer_is_wrong_at_any_scale(limit, configurations, monkeypatch):
    "Prices from 0 to 1e300, loads from 1e-320 to 1e300; against whole numbers of any length."
    monkeypatch.setattr(hindsight, "CONFIGURATIONS", configurations)
    for seed in range(cases(1000, 100)):
        p = over_scales(seed)
        status = truth(optimum(p, limit), Exact(p))
        assert limit is not None or status == "optimal"


@pytest.mark.parametrize("program", [True, False])
def test_a_bound_stands_without_a_good_schedule_at_any_scale(program, large, monkeypatch):
    "A bad schedule hides nothing: it does not lower a bound. With the linear program and without."

    def cut(given, **more):
        found = solve(given, **more)
        status = found.status if program else Outcome.TIME_LIMIT
        return replace(found, status=status, x=np.zeros(given.cost.size), bound=found.bound)

    monkeypatch.setattr(hindsight, "solve", cut)
    monkeypatch.setattr(hindsight._Known, "offer", lambda *_: False)
    monkeypatch.setattr(hindsight, "_branched", lambda *_: None)
    monkeypatch.setattr(hindsight, "depths", lambda chain, x: np.zeros(len(x), np.intp))
    loose = 0
    for seed in range(cases(1000, 100)):
        p = over_scales(seed)
        found, exact = optimum(p, None), Exact(p)
        truth(found, exact)
        loose += found.bound < 0.999999 * float(exact.best()[-1]) or found.gap > 1e-3
    assert loose > cases(1000, 100) // 20


def value_of(p, seed):
    "The optimum of a problem of either kind, and how far rounding may be off."
    if isinstance(seed, int) and seed % 2:
        return best_schedule(p), 1e-320
    return float(Exact(p).best()[-1]), 1e-320


def drawn_glue(p, g, scale):
    "A glue with random prices, near the loads."
    glue, top = Glue(chain_of(p)), min(max(p.loads.max(), p.move_price), 1e290)
    glue.ask = g.exponential(scale, glue.chain.events) * top
    glue.room = g.exponential(scale, p.steps) * top * (g.random(p.steps) < 0.5)
    return glue


def test_any_prices_are_below_the_optimum_at_any_scale():
    tight = 0
    for seed in range(cases(2000, 100)):
        p = small(seed) if seed % 2 else over_scales(seed)
        best, tiny = value_of(p, seed)
        for scale in (0.0, 0.01, 0.1, 1.0, 100.0):
            glue = drawn_glue(p, np.random.default_rng(seed), scale)
            bound = glue.bound()
            assert bound <= best * (1 + 1e-12) + tiny
            # p-bar has the same value
            assert glue.bound() == pytest.approx(bound, rel=1e-9, abs=1e-9 * best)
            tight += bound > 0.9 * best
    assert tight > 20


def lagrangian(p, ask, room):
    "The minimum of the chain's program with both kinds of rows priced, as a linear program."
    chain = chain_of(p)
    program = chain_rows(chain)
    u, X, first = program.at["u"], program.at["X"], int((chain.position > 0).sum())
    cost, priced = program.cost.copy(), np.zeros(program.low.size, bool)
    cost[u] += ask
    cost[X] -= ask
    budgets = np.arange(program.low.size - p.steps, program.low.size)
    priced[first : first + chain.events] = priced[budgets] = True
    cost += program.matrix[budgets].T @ room
    keep = ~priced
    left = replace(
        program,
        cost=cost,
        matrix=program.matrix[keep],
        low=program.low[keep],
        high=program.high[keep],
    )
    least = solve(left, relaxed=True).value
    return chain.latency(0).sum() + least - p.extra * room.sum()


def test_the_glue_is_the_lagrangian_and_its_own_prices_are_no_worse():
    for seed in range(1, cases(800, 60), 2):
        p = small(seed)
        if not chain_of(p).events:
            continue
        glue = drawn_glue(p, np.random.default_rng(seed), 0.1)
        before = lagrangian(p, glue.ask, glue.room)
        bound = glue.bound()
        near = {"rel": 1e-7, "abs": 1e-7}
        assert bound == pytest.approx(lagrangian(p, glue.ask, glue.room), **near)
        assert bound >= before - 1e-7 * max(1, abs(before))
        assert glue.terms().sum() == pytest.approx(bound, rel=1e-9, abs=1e-9)


def test_all_steps_in_one_window_are_the_program():
    for seed in range(cases(1000, 60)):
        p = small(seed)
        chain = chain_of(p)
        glue = Glue(chain)
        assert glue.bound() == pytest.approx(np.sum(best_level(p.loads, p.extra)), rel=1e-9)
        hindsight._ascend(glue, 0, p.steps, Clock())
        assert glue.bound() == pytest.approx(chain_bound(p), rel=1e-9, abs=1e-9)


def test_the_bound_does_not_fall_and_windows_may_be_empty(monkeypatch):
    "Windows of any length, in any order, beginning with any prices."
    risen = 0
    for seed in range(cases(1500, 60)):
        p, g = small(seed), np.random.default_rng(seed)
        best, glue = best_schedule(p), drawn_glue(p, g, 0.05)
        bound = glue.bound()
        for _ in range(6):
            begin, end = np.sort(g.choice(p.steps + 1, 2, replace=False))
            glue.backward(0, p.steps)
            glue.forward(0, p.steps)
            hindsight._ascend(glue, begin, end, Clock())
            last, bound = bound, glue.bound()
            assert last - 1e-7 * max(1, best) <= bound <= best * (1 + 1e-9) + 1e-12
            risen += bound > last * (1 + 1e-6)
    assert risen > 30


@pytest.mark.parametrize("window, ahead", [(1, 0), (2, 1), (3, 0)])
def test_passes_only_rise(window, ahead, monkeypatch):
    monkeypatch.setattr(hindsight, "WINDOW", window)
    monkeypatch.setattr(hindsight, "AHEAD", ahead)
    for seed in range(cases(400, 15)):
        p = small(seed)
        glue, best = Glue(chain_of(p)), best_schedule(p)
        u = hindsight._rolled(glue, Clock())
        bound = glue.bound()
        for number in range(4):
            assert hindsight._swept(glue, u, number, Clock())
            last, bound = bound, glue.bound()
            assert last - 1e-7 * max(1, best) <= bound <= best * (1 + 1e-9) + 1e-12
        assert price(glue.chain, threshold_depths(glue.chain, u)).min() >= best * (1 - 1e-9)
        stopped = Glue(chain_of(p))
        assert hindsight._rolled(stopped, Clock(0)).all()


def test_whole_windows_are_below_the_optimum_for_any_prices_at_the_borders():
    "Copies of the start, and those that were never there, included."
    used = 0
    for seed in range(cases(1500, 60)):
        p, g = small(seed), np.random.default_rng(seed)
        glue, best = Glue(chain_of(p)), best_schedule(p)
        cuts = sorted({0, p.steps, *g.integers(0, p.steps + 1, 2).tolist()})
        chain = glue.chain
        beta = g.random((p.steps + 1, chain.events)) * p.move_price * (g.random() < 0.8)
        beta[0] = 0
        total = chain.latency(0).sum()
        for begin, end in zip(cuts[:-1], cuts[1:]):
            program, _, _ = window_rows(
                glue, begin, end, beta[begin].__getitem__, beta[end].__getitem__, integer=True
            )
            total += solve(program).value
        assert total <= best * (1 + 1e-9) + 1e-9
        used += len(cuts) > 2 and total > best - 1e-9
        # with the worth of each copy they prove no less than the glue
        hindsight._rolled(glue, Clock())
        bound, parts = glue.bound(), 0.0
        for begin, end in zip(cuts[:-1], cuts[1:]):
            part = hindsight._split(glue, begin, end, Clock())
            assert part >= glue.terms()[begin:end].sum() - 1e-6 * max(1, best)
            parts += part
        assert bound - 1e-6 * max(1, best) <= parts <= best * (1 + 1e-6) + 1e-9
    assert used > 3


def test_windows_side_by_side_against_all_sets_of_windows():
    for seed in range(30):
        g = np.random.default_rng(seed)
        steps, drawn = int(g.integers(1, 9)), {}
        for _ in range(g.integers(0, 7)):
            begin, end = np.sort(g.choice(steps + 1, 2, replace=False)).tolist()
            drawn[begin, end] = float(g.integers(-2, 6))
        every = [list(zip(drawn, chosen)) for chosen in product((0, 1), repeat=len(drawn))]
        sums = [0.0]
        for chosen in every:
            now = sorted(w for w, taken in chosen if taken)
            if all(a[1] <= b[0] for a, b in zip(now, now[1:])):
                sums.append(sum(drawn[w] for w in now))
        assert hindsight._tiled(drawn, steps) == max(sums)


def test_integer_windows_close_in_from_both_sides(monkeypatch):
    "Windows of 1, 2, 5 steps; what they claim is below the optimum and never falls."
    monkeypatch.setattr(hindsight, "SHORT", -1)
    monkeypatch.setattr(hindsight, "SHORTEST", 1)
    claims, claim = [], hindsight._Known.claim

    def heard(known, word):
        claims.append(word)
        claim(known, word)

    monkeypatch.setattr(hindsight._Known, "claim", heard)
    risen = closed = 0
    n = cases(600, 40)
    for seed in range(n):
        g = np.random.default_rng(seed)
        spiky = Problem(np.where(g.random((8, 5)) < 0.3, 10.0, 1.0), 3, 2.0, [1, 1, 1, 0, 0])
        p = small(seed) if seed % 2 else spiky
        best, glue = best_schedule(p), Glue(chain_of(p))
        known = hindsight._Known(glue.chain, progress(False, ""), 0)
        hindsight._rolled(glue, Clock())
        bound = glue.bound()
        known.prove(bound)
        claims.clear()
        hindsight._polished(known, glue, Clock())
        assert np.all(np.diff([bound, *claims]) >= -1e-7 * max(1, best))
        assert (
            all(word <= best * (1 + 1e-6) + 1e-9 for word in claims) and known.cost >= best - 1e-9
        )
        risen += bool(claims) and claims[-1] > bound + 1e-3 * best
        closed += known.cost <= best * (1 + 1e-6) + 1e-9
        # no time, no window
        claims.clear()
        hindsight._polished(known, glue, Clock(0))
        assert not claims
    assert risen > n / 20 and closed > 0.8 * n


def test_neighbourhoods_are_schedules_and_offers_never_worsen(monkeypatch):
    better, exact, n = 0, 0, cases(800, 60)
    monkeypatch.setattr(hindsight, "AROUND", 1)
    for seed in range(n):
        p, g = small(seed), np.random.default_rng(seed)
        glue = Glue(chain_of(p))
        chain = glue.chain
        known = hindsight._Known(chain, progress(False, ""), 0)
        known.offer([g.integers(0, chain.lengths + 1)])
        for _ in range(3):
            begin, end = np.sort(g.choice(p.steps + 1, 2, replace=False))
            cost, x = known.cost, path(chain, known.depth)
            new = hindsight._neighbour(glue, known.depth, x, begin, end, Clock())
            assert np.all((new >= 0) & (new <= chain.lengths))
            same = np.delete(new == known.depth, np.arange(begin, end))
            assert same.all() and known.offer([new]) == (known.cost < cost)
            assert best_schedule(p) * (1 - 1e-9) <= known.cost <= cost
            better += known.cost < cost
        whole = hindsight._neighbour(glue, known.depth, x, 0, p.steps, Clock())
        exact += price(chain, whole) <= best_schedule(p) * (1 + 1e-5)
    # HiGHS may give back what it began with
    assert better > 10 and exact > 0.9 * n


def test_the_other_methods_are_not_wrong_at_any_scale():
    for seed in range(cases(1000, 50)):
        p = over_scales(seed)
        exact = Exact(p)
        assert truth(dynamic_program(p), exact) == "optimal"
        secant, best = secant_program(p), exact.best()[-1]
        # on the word of a solver with absolute tolerances of 1e-6
        assert secant.bound <= secant.cost and best <= exact.cost(secant.x)
        assert Fraction(secant.bound) <= best * Fraction(1 + 1e-5) + Fraction(1e-320)
        prefixes = zip(dynamic_program(p).bounds, exact.best())
        assert all(
            abs(Fraction(b) - v) <= best * Fraction(1e-9) + Fraction(1e-320) for b, v in prefixes
        )


def test_an_integer_program_by_other_hands_agrees(large):
    "Indexed by time, expert and number of GPUs, solved by SciPy; prices near the loads."
    for seed in range(cases(1000)):
        p, g = over_scales(seed), np.random.default_rng(seed)
        top = p.loads.max()
        if 1e-290 < top < 1e290:
            p = Problem(p.loads, p.extra, top * 10 ** g.uniform(-2, 1), p.start)
            value = integer_program(p)
            assert float(Exact(p).best()[-1]) == pytest.approx(value, rel=2e-6, abs=1e-6 * top)
            assert optimum(p).cost == pytest.approx(value, rel=2e-6, abs=1e-6 * top)


def test_larger_problems_agree_with_the_integer_program():
    for seed in range(cases(40, 2)):
        p = Problem(trace(list(KINDS)[seed % 5], 6, 5, 12, seed=seed), 5, 1.5)
        best = optimum(p, None)
        assert best.status == "optimal" and best.cost == pytest.approx(integer_program(p), rel=2e-6)


@settings(max_examples=cases(1000, 80))
@given(problems(), st.integers(-250, 250))
def test_no_bound_above_a_value_at_any_scale(drawn, power):
    "Prices from nothing to a million times the loads, and units from 1e-250 to 1e250."
    p, _ = drawn
    x = configurations(p.experts, p.extra)
    start = x[np.abs(x - p.start).sum(axis=1).argmin()]
    p = Problem(p.loads * 10.0**power, p.extra, p.move_price * 10.0**power, start)
    best = best_schedule(p)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hindsight, "CONFIGURATIONS", 0)
        found, secant = optimum(p, 10), secant_program(p, 10)
    for s in (found, dynamic_program(p), optimum(p, 0)):
        assert s.bound <= best * (1 + 1e-9) and best <= s.cost * (1 + 1e-9)
        assert s.status != "optimal" or s.cost <= best * (1 + 2e-6)
    # on the word of a solver with absolute tolerances of 1e-6
    assert secant.bound <= best * (1 + 1e-5) and best <= secant.cost * (1 + 1e-9)


@pytest.mark.parametrize("w", [1e6, 1e7, 1e8, 1e12, 1e100])
def test_huge_prices_do_not_reach_the_solver(w, large):
    "The bound was above the cost in most of these, and the status 'optimal'."
    for seed in range(25):
        g = np.random.default_rng(seed)
        p = Problem(g.exponential(1.0, (8, 5)), 9, w)
        s = optimum(p, 10)
        assert s.status == "optimal" and s.moved.sum() == 0 and s.gap < 1e-12


def test_denormal_loads_end():
    p = Problem(np.full((4, 4), 5e-324), 5)
    assert optimum(p).status == "optimal" and optimum(p).moved.sum() == 0


@pytest.mark.parametrize("seed", range(cases(400, 30)))
def test_denormal_loads_ask_for_no_more_than_there_is(seed, monkeypatch):
    monkeypatch.setattr(hindsight, "CONFIGURATIONS", 0)
    g = np.random.default_rng(seed)
    loads = g.choice([g.random((6, 3)), g.integers(0, 20, (6, 3)) * 0.05])
    loads = loads * g.choice([5e-320, 1e-312])
    p = Problem(loads, extra=3, move_price=0.0, start=[2, 1, 0])
    assert chain_of(p).lengths.max() <= 3
    found = optimum(p, 0)
    assert found.bound <= dynamic_program(p).cost * (1 + 1e-3) and found.cost >= found.bound


@pytest.mark.parametrize("limit", [0.0, 0.3, 1.0])
def test_limits_are_kept(limit):
    p = Problem(trace("ar", 96, 80, 25, seed=1), 48)
    began = time.process_time()
    s = optimum(p, limit)
    spent = time.process_time() - began
    # a busy machine may take the processor away
    assert s.status == "time_limit" and spent <= limit + 2.0
    assert s.bound >= best_level(p.loads, 48).sum() - 1e-9


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_limits_are_kept_at_middle_size(limit):
    "64 experts, 64 GPUs, 60 steps; within a fifth, or half a second."
    p = Problem(trace("zipf", 64, 60, 25, seed=1), 64)
    began = time.process_time()
    s = optimum(p, limit)
    assert time.process_time() - began <= limit + max(0.2 * limit, 0.5)
    assert s.bound >= best_level(p.loads, 64).sum() * (1 - 1e-9)
    assert all(s.cost <= other.cost for other in simple_schedules(p).values())


def test_the_best_cheap_bound_is_never_lost(monkeypatch):
    "Where the linear program says nothing, the certificate and the relaxation do."
    monkeypatch.setattr(hindsight, "solve", lambda *_, **__: Solution(Outcome.TIME_LIMIT))
    for kind in ("ar", "spikes"):
        p = Problem(trace(kind, 12, 15, 8, seed=3), 9)
        s, lowest = optimum(p, None), best_level(p.loads, 9).sum()
        cheap = {lowest, run(p, Never()).bound, relax(p).bound}
        assert s.bound == pytest.approx(max(cheap)) and s.bound > 1.05 * lowest
        paths = [played(p, policy) for policy in (Chase(), Myopic())]
        for policy, rounding in product((ReverseEntropy, RegularizedGreedy), (Hysteresis, Credit)):
            paths.append(played(p, policy(), rounding()))
        assert s.cost <= min(Schedule(p, x).cost for x in paths)


def test_the_cheap_bound_comes_before_the_program(monkeypatch, large):
    "It was lost where the program took all the time: a longer limit proved less than none."
    p = Problem(trace("zipf", 24, 20, 25, seed=1), 12)
    lowest = float(best_level(p.loads, 12).sum())

    def slow(*_):
        monkeypatch.setattr(Clock, "left", lambda self: 0.0)

    monkeypatch.setattr(hindsight, "_linearly", slow)
    s = optimum(p, None)
    assert (
        s.status == "time_limit" and s.bound >= run(p, Never()).bound * (1 - 1e-9) > 1.01 * lowest
    )
    assert s.cost <= min(other.cost for other in simple_schedules(p).values())


@pytest.mark.parametrize("limit", [0, 1])
def test_limits_are_kept_at_the_largest_size(limit):
    """1,024 experts, 256 GPUs, 200 steps. Neither the whole program nor the relaxation is set up
    when there is no time for it; that alone took half a second.
    """
    p = Problem(trace("zipf", 1024, 200, 25, seed=1), 256)
    began = time.process_time()
    s = optimum(p, limit)
    assert time.process_time() - began <= limit + 0.5
    assert s.status == "time_limit" and s.bound >= best_level(p.loads, 256).sum() * (1 - 1e-9)


def test_nothing_is_set_up_that_has_no_time(monkeypatch, large):
    def refuse(*_, **__):
        raise AssertionError("there was no time for this")

    for name in ("relax", "solve", "chain_rows"):
        monkeypatch.setattr(hindsight, name, refuse)
    assert optimum(Problem(trace("ar", 8, 12, 25, seed=1), 8), 0).status == "time_limit"


def test_a_certificate_that_was_cut_off_counts_the_lowest_latencies_of_the_rest():
    class Steps:
        def __init__(self, steps):
            self.left = steps

        def over(self):
            self.left -= 1
            return self.left < 0

    rest_counted = 0
    for seed in range(60):
        p, n = small(seed), seed % 5
        lowest, best = np.atleast_1d(best_level(p.loads, p.extra)), best_schedule(p)
        proved = hindsight._certified(p, lowest, Steps(n))
        if 0 < n < p.steps:
            least = run(p, Never()).bounds[n - 1] + lowest[n:].sum()
            assert proved >= least * (1 - 1e-8)
            rest_counted += least > lowest.sum() * 1.01
        assert lowest.sum() <= proved <= best * (1 + 1e-12)
    assert rest_counted > 3


def test_what_the_certificate_proves_when_there_was_no_time():
    for seed in range(60):
        p = small(seed)
        lowest = np.atleast_1d(best_level(p.loads, p.extra))
        proved = hindsight._certified(p, lowest, Clock(None))
        assert lowest.sum() <= proved <= best_schedule(p) * (1 + 1e-12)
        assert hindsight._certified(p, lowest, Clock(0)) == lowest.sum()
    p = Problem(trace("ar", 16, 60, 5, seed=1), 16)
    lowest = best_level(p.loads, p.extra)
    assert hindsight._certified(p, lowest, Clock(None)) > 1.2 * lowest.sum()


def test_a_claim_above_the_cost_is_left_out():
    "It must not make a schedule optimal."
    p = Problem(EIGHT_STEPS, 4)
    never = np.tile(p.start, (8, 1))
    lowest, cost = best_level(p.loads, 4), Schedule(p, never).cost
    claims = {cost * 1.01: (40.0, "feasible"), 48.0: (48.0, "feasible"), cost: (cost, "optimal")}
    for word, answer in claims.items():
        s = hindsight._answer(p, never, lowest, [40.0], word, Clock(None))
        assert (pytest.approx(s.bound), s.status) == answer
        assert s.trusted == (word in (48.0, cost)) == ("word" in s.summary())
    assert not hindsight._answer(p, never, lowest, [40.0], 39.0, Clock(None)).trusted
    assert not hindsight._answer(p, never, lowest, [cost], cost, Clock(None)).trusted


def enumerated_optima(problem):
    paths = product(range(problem.extra + 1), repeat=problem.steps)
    costs = []
    for first in paths:
        x = np.column_stack([first, problem.extra - np.array(first)])
        costs.append(Schedule(problem, x).cost)
    return int(np.sum(np.array(costs) <= min(costs) * (1 + 1e-9)))


def test_optima_are_counted_like_an_enumeration_in_any_unit():
    ties = [[4.0, 4.0], [0.0, 0.0], [6.0, 0.0], [0.0, 0.0]]
    cases = [
        Problem(ties, 2, 1.0, [0, 2]),
        Problem([[2, 4], [4, 2]], 1, 1.0, [1, 0]),
        Problem([[1.0, 0.0]], 1),
        Problem(np.zeros((3, 2)), 2, 0.0),
    ]
    counts = [count_optima(p) for p in cases]
    assert counts == [enumerated_optima(p) for p in cases] and counts[1:] == [2, 1, 27]
    for unit in (1e-100, 1e-10, 1e10, 1e100):
        for p, n in zip(cases, counts):
            q = Problem(p.loads * unit, p.extra, p.move_price * unit, p.start)
            assert count_optima(q) == n
    eight = Problem(EIGHT_STEPS, 4)
    assert count_optima(eight) == count_optima(Problem(EIGHT_STEPS * 1e-10, 4, 2e-10)) == 1
    with pytest.raises(ValueError, match="tolerance"):
        count_optima(eight, -1.0)


def test_too_many_placements_are_refused():
    p = Problem(np.ones((2, 30)), 30)
    for call in (dynamic_program, value_tables, count_optima):
        with pytest.raises(TooLarge) as error:
            call(p)
        assert pickle.loads(pickle.dumps(error.value)).size == error.value.size > 1e16


def test_improve_and_its_clock():
    p = Problem(trace("ar", 16, 20, 25, 3), 12)
    chain = chain_of(p)
    relaxed = solve(chain_rows(chain), relaxed=True)
    depth = threshold_depths(chain, relaxed.x[: chain.events])[0]
    better, done = improve(chain, depth, Clock(20))
    assert done and price(chain, better) < price(chain, depth)
    again, _ = improve(chain, depth, Clock(20))
    assert np.array_equal(again, better)
    same, done = improve(chain, depth, Clock(0))
    assert not done and np.array_equal(same, depth)


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_any_multipliers_of_the_secant_program_give_a_bound(seed, other):
    p, g = small(seed), np.random.default_rng(other)
    program = secant_rows(p)
    y = g.normal(0, g.choice([0.1, 1, 10]), program.low.size)
    lowest = best_level(p.loads, p.extra).sum()
    assert lowest + dual_bound(program, y) <= best_schedule(p) + 1e-9


@pytest.mark.parametrize("bad", [np.nan, -1.0, "3", True, [1.0], 1j])
def test_bad_limits_are_named(bad):
    p = Problem(EIGHT_STEPS, 4)
    for call in (optimum, secant_program):
        with pytest.raises(ValueError, match="time_limit"):
            call(p, bad)


def test_answers_are_frozen_saved_and_sent(tmp_path, large, capfd):
    p = Problem(trace("ar", 8, 12, 25, seed=1), 8)
    s = optimum(p, time_limit=None, seed=3)
    s.save(tmp_path / "schedule.json")
    assert Schedule.load(tmp_path / "schedule.json") == s == pickle.loads(pickle.dumps(s))
    with pytest.raises(ValueError, match="read-only"):
        s.x[0, 0] = 9
    assert capfd.readouterr() == ("", "")
    optimum(p, verbose=True)
    out, err = capfd.readouterr()
    assert out == "" and "optimum: " in err and "gap" in err and err.count("\n") <= 1


def test_labels_come_along(large):
    import pandas as pd

    loads = pd.DataFrame([[6.0, 2, 1], [1, 6, 2]], index=["mon", "tue"], columns=list("abc"))
    s = optimum(Problem(loads, 2, 0.5))
    assert list(s.counts_frame().columns) == ["a", "b", "c"] and list(s.to_frame().index) == [
        "mon",
        "tue",
    ]


def test_live_example_takes_every_corner():
    for w, spike, shift in product((0.5, 3.5), (0, 3), (False, True)):
        assert "hindsight" in hindsight_of_a_spike(w, spike, shift)
    for kind, w, windows in product(("zipf", "bursts"), (1.0, 8.0), (0, 13)):
        assert "integrality" in closing_in(kind, w, windows)


def test_steps_that_no_window_reached_are_taken_as_deep_as_can_be(monkeypatch):
    "A pass that was cut off left them as they were at the start, and lost half of the cost."
    p = Problem(trace("ar", 32, 60, 25, seed=1), 8)
    chain = chain_of(p)
    ascend, seen = hindsight._ascend, []

    def once(*given):
        seen.append(given)
        return ascend(*given) if len(seen) == 1 else None

    monkeypatch.setattr(hindsight, "_ascend", once)
    monkeypatch.setattr(hindsight, "_simple_depths", lambda *_: iter([]))
    known, glue = hindsight._Known(chain, progress(False, ""), 0), Glue(chain)
    never = known.cost
    hindsight._cheaply(known, glue, Clock(0))
    deepest = known.cost
    assert deepest == price(chain, chain.lengths) < 0.8 * never
    hindsight._linearly(known, glue, Clock())
    assert known.cost < deepest and np.array_equal(known.depth[20:], chain.lengths[20:])


def test_each_chunk_begins_where_the_one_before_ends(monkeypatch):
    "Rounded at thresholds alone, in chunks of three steps; from a wrong start four times as far."
    for name, value in {"WHOLE": -1, "CHUNK": 3, "BESIDE": 2}.items():
        monkeypatch.setattr(hindsight, name, value)
    monkeypatch.setattr(hindsight, "improve", lambda chain, depth, *_: (depth, True))
    cost = best = 0.0
    for seed in range(12):
        g = np.random.default_rng(seed)
        loads = np.where(g.random((9, 5)) < 0.3, 10.0, 1.0) * g.uniform(0.8, 1.2, (9, 5))
        p = Problem(loads, 4, 2.0, [1, 1, 1, 1, 0])
        known = hindsight._Known(chain_of(p), progress(False, ""), 0)
        known.u = solve(chain_rows(known.chain), relaxed=True).x[: known.chain.events]
        hindsight._rounded(known, None, Clock())
        cost, best = cost + known.cost, best + best_schedule(p)
    assert best * (1 - 1e-12) <= cost <= 1.006 * best


def test_windows_share_the_time_that_is_left():
    windows = [(0, 2), (2, 4), (4, 6)]
    shares = [clock.limit for _, _, clock in hindsight._shares(windows, Clock(12))]
    assert shares == pytest.approx([4, 6, 12], abs=1.0)
    # a moment at least, but no more than there is
    short = [clock.limit for _, _, clock in hindsight._shares(windows, Clock(0.6))]
    assert short[0] == hindsight.MOMENT and max(short) <= 0.6
    assert not list(hindsight._shares(windows, Clock(0)))


def test_the_relaxation_is_not_asked_where_the_program_was_solved(large, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("the program proves more")

    monkeypatch.setattr(hindsight, "relax", refuse)
    assert optimum(AWKWARD, None).cost == 22.0


def test_ten_instances_at_three_limits():
    "Limits are kept, and no bound is below the relaxation's or the certificate's."
    every = list(product((1.0, 3.0, 15.0), KINDS, ((24, 12, 20), (32, 16, 16))))
    for limit, kind, (m, k, T) in every[: cases(len(every), 2)]:
        p = Problem(trace(kind, m, T, 25, seed=2), k)
        began = time.process_time()
        found = optimum(p, limit)
        assert time.process_time() - began <= limit + max(0.2 * limit, 0.5)
        cheap = max(relax(p).bound, run(p, Never()).bound)
        assert cheap * (1 - 1e-9) <= found.bound <= found.cost
