"Programs against SciPy, bounds in exact arithmetic, and neighbours in one process."

import copy
import pickle
import sys
import time
from dataclasses import replace
from fractions import Fraction
from itertools import product

import highspy
import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csc_array

import serving_or.tools.programs as programs
from serving_or.tools.programs import Builder, Model, Program, dual_bound, relaxation, solve
from tests.long import cases

CASES = cases(2000)


def drawn(seed, integer=None, infinite=True):
    "A small program with whole data, of any kind: infeasible and unbounded ones, too."
    rng = np.random.default_rng(seed)
    n, m = rng.integers(1, 6, 2)
    matrix = rng.integers(-3, 5, (m, n)) * (rng.random((m, n)) < 0.7)
    low, high = np.sort(rng.integers(-6, 12, (2, m)), axis=0).astype(float)
    low, high = (
        np.where(rng.random(m) < 0.4, -np.inf, low),
        np.where(rng.random(m) < 0.4, np.inf, high),
    )
    lower, upper = np.sort(rng.integers(-3, 6, (2, n)), axis=0).astype(float)
    if infinite:
        upper = np.where(rng.random(n) < 0.3, np.inf, upper)
        lower = np.where(rng.random(n) < 0.1, -np.inf, lower)
    cost = rng.integers(-5, 8, n).astype(float)
    whole = rng.random(n) < 0.5 if integer is None else np.full(n, integer)
    return Program(cost, lower, upper, whole, csc_array(matrix.astype(float)), low, high, {})


def peer(p, relaxed=False):
    "SciPy's answer: value, inf when infeasible, -inf when unbounded."
    kinds = np.zeros(p.cost.size) if relaxed else p.integer.astype(int)
    rows = LinearConstraint(p.matrix.toarray(), p.low, p.high)
    answer = milp(p.cost, integrality=kinds, bounds=Bounds(p.lower, p.upper), constraints=rows)
    if answer.status in (3, 4):
        again = milp(
            0 * p.cost, integrality=kinds, bounds=Bounds(p.lower, p.upper), constraints=rows
        )
        return np.inf if again.status == 2 else -np.inf
    return {0: answer.fun, 2: np.inf}[answer.status]


@pytest.mark.parametrize("scipy", [False, True])
@pytest.mark.parametrize("relaxed", [False, True])
def test_like_scipy(relaxed, scipy, monkeypatch):
    if scipy:
        monkeypatch.setattr(programs, "_highspy", lambda: None)
    seen = set()
    for seed in range(CASES):
        p = drawn(seed)
        answer, best = solve(p, relaxed=relaxed), peer(p, relaxed)
        seen.add(answer.status.value)
        # the peer may break a limit by 1e-6
        assert not np.isfinite(best) or answer.bound <= best + 2e-6 * (1 + abs(best))
        if best == np.inf:
            assert answer.status == "infeasible" and answer.bound == np.inf and answer.x is None
        elif best == -np.inf:
            # SciPy gives up on some programs; those have a proved bound
            assert answer.status == "unbounded" or relaxation(p) > -np.inf
        else:
            assert answer.status == "optimal"
            assert answer.value == pytest.approx(best, rel=2e-6, abs=2e-6) == answer.bound
            assert answer.bound <= answer.value == p.cost @ answer.x
            rows = p.matrix @ answer.x
            assert (rows >= p.low - 1e-6).all() and (rows <= p.high + 1e-6).all()
            assert (answer.x >= p.lower).all() and (answer.x <= p.upper).all()
            if not relaxed:
                assert (answer.x[p.integer] % 1 == 0).all()
    assert seen == {"optimal", "infeasible", "unbounded"}


def optimum(p):
    "The optimum of a small integer program with finite limits, by trying all points."
    points = product(*(range(int(a), int(b) + 1) for a, b in zip(p.lower, p.upper)))
    A = p.matrix.toarray()
    values = [
        p.cost @ x for x in map(np.array, points) if ((A @ x >= p.low) & (A @ x <= p.high)).all()
    ]
    return min(values, default=None)


def test_no_multipliers_prove_too_much():
    proved = 0
    for seed in range(CASES):
        p = drawn(seed, integer=True, infinite=False)
        best, rng = optimum(p), np.random.default_rng(seed)
        if best is None:
            continue
        for size in (1.0, 1.0, 1e-8, 1e8):
            y = size * rng.normal(size=p.low.size)
            bound = dual_bound(p, y)
            proved += bound > -np.inf
            assert Fraction(bound) <= Fraction(best)
        assert Fraction(relaxation(p)) <= Fraction(best) and solve(p).value == best
    assert proved > CASES


def exactly(p, y):
    "B(y) of the chapter, in fractions; all limits finite."
    A, y = p.matrix.toarray(), [Fraction(v) for v in y]
    d = [
        Fraction(c) - sum(Fraction(a) * v for a, v in zip(column, y))
        for c, column in zip(p.cost, A.T)
    ]
    rows = zip([*y, *d], [*p.low, *p.lower], [*p.high, *p.upper])
    return sum(min(v * Fraction(low), v * Fraction(high)) for v, low, high in rows)


@pytest.mark.parametrize("case", ["any", "wide", "no multipliers"])
def test_rounding_never_lifts_a_bound(case):
    """Any sums; wide limits at columns whose reduced cost is 0 but for rounding; costs alone."""
    wide, free = case == "wide", case == "no multipliers"
    lost = []
    for seed in range(cases(2000, 200)):
        rng = np.random.default_rng(seed)
        m, n = rng.integers(1, 6), rng.integers(1, 30 if free else 6)
        A, y = rng.normal(size=(m, n)), rng.normal(size=m) * (not free)
        low, lower = rng.normal(size=m), rng.normal(size=n)
        cost = A.T @ y if wide else rng.normal(size=n)
        upper = lower + (1e6 if wide else rng.exponential(size=n))
        high = low + rng.exponential(size=m)
        p = Program(cost, lower, upper, np.zeros(n, bool), csc_array(A), low, high, {})
        exact, bound = exactly(p, y), Fraction(dual_bound(p, y))
        assert bound <= exact
        size = np.abs(y) @ np.maximum(abs(low), abs(high)) + 1e6 * wide * np.abs(y).sum() + n
        lost.append(float(exact - bound) / size)
    assert max(lost) < 1e-13


def test_a_reduced_cost_of_one_digit_counts_at_a_wide_limit():
    """It is 2**-52 in fractions, and rounding alone cannot tell its sign."""
    cost, lower, upper = np.array([1 + 2.0**-52]), np.array([-(2.0**40)]), np.array([np.inf])
    row = csc_array(np.ones((1, 1))), np.zeros(1), np.full(1, np.inf)
    p = Program(cost, lower, upper, np.zeros(1, bool), *row, {})
    assert -(2.0**-11) < dual_bound(p, [1.0]) <= -(2.0**-12)


def test_options_and_limits_are_checked():
    p = drawn(0)
    for wrong in (np.nan, -1, True, "60"):
        with pytest.raises(ValueError, match="time_limit"):
            solve(p, time_limit=wrong)
    for options in (
        {"nonsense": 1},
        {"time_limit": np.nan},
        {"mip_rel_gap": -1.0},
        {"presolve": 3},
    ):
        with pytest.raises(ValueError, match="HiGHS has no option"):
            programs._highs(highspy, options)


def test_a_model_grows_like_a_program():
    for seed in range(CASES):
        p, rng = drawn(seed, integer=False), np.random.default_rng(seed)
        model, A = Model(), p.matrix.toarray()
        a, c = rng.integers(0, p.low.size + 1), rng.integers(0, p.cost.size + 1)
        model.add_columns(p.cost[:c], p.lower[:c], p.upper[:c])
        model.add_rows(A[:a, :c], p.low[:a], p.high[:a])
        model.run()
        model.add_columns(0 * p.cost[c:], p.lower[c:], p.upper[c:], A[:a, c:])
        model.run()
        model.add_rows(A[a:], p.low[a:], p.high[a:])
        model.set_cost(np.arange(c, p.cost.size), p.cost[c:])
        grown, whole = model.run(), solve(p)
        assert grown.status == whole.status
        if whole.status == "optimal":
            assert grown.value == pytest.approx(whole.value, rel=1e-7, abs=1e-7) == grown.bound


EMPTY = csc_array((0, 0))


def plain(cost, lower=0, upper=1, matrix=None, low=-np.inf, high=np.inf, integer=False):
    """A program from lists."""
    cost = np.array(cost, float)
    matrix = csc_array(np.zeros((0, cost.size)) if matrix is None else np.array(matrix, float))
    spread = lambda v, n: np.array(np.broadcast_to(np.asarray(v, float), (n,)))
    rows, n = matrix.shape
    kinds = spread(integer, n) > 0
    limits = spread(lower, n), spread(upper, n)
    return Program(cost, *limits, kinds, matrix, spread(low, rows), spread(high, rows), {})


@pytest.fixture(params=["highspy", "scipy"])
def door(request, monkeypatch):
    """With highspy, and where it cannot be imported."""
    if request.param == "scipy":
        monkeypatch.setitem(sys.modules, "highspy", None)
    return request.param


@pytest.mark.parametrize("integer", [False, True])
def test_without_rows_or_columns(integer, door):
    nothing = Program(*[np.zeros(0)] * 3, np.zeros(0, bool), EMPTY, np.zeros(0), np.zeros(0), {})
    assert solve(nothing).value == 0 == relaxation(nothing) and solve(nothing).x.shape == (0,)
    assert Builder().build().matrix.shape == (0, 0) and Model().run().value == 0
    row = replace(nothing, matrix=csc_array((1, 0)), low=np.array([-1.0]), high=np.array([1.0]))
    assert solve(row).status == "optimal"
    assert solve(replace(row, low=np.array([0.5]))).status == "infeasible"
    p = plain([1, -1, 0], [-2.5, 0, 1], [3, 7.5, 4], integer=integer)
    found = solve(p)
    assert found.x.tolist() == ([-2, 7, 1] if integer else [-2.5, 7.5, 1])
    assert found.value == found.x @ p.cost and found.bound == pytest.approx(found.value, rel=1e-12)
    assert solve(plain([1, 0], -np.inf, 0, integer=integer)).status == "unbounded"
    assert solve(plain([0, 0], -np.inf, np.inf, integer=integer)).x.tolist() == [0, 0]
    inside = plain([1], 0.2, 0.8, integer=integer)
    assert solve(inside).status == ("infeasible" if integer else "optimal")
    hollow = plain([1, 2], matrix=[[0, 0]], low=0, high=3, integer=integer)
    assert solve(hollow).value == 0
    assert solve(replace(hollow, low=np.array([1.0]))).status == "infeasible"


def test_limits_that_cross(door):
    for p in (
        plain([1], 2, 1, [[1]]),
        plain([1], 0, 1, [[1]], low=2, high=1),
        plain([1], np.inf, np.inf, [[1]]),
        plain([1], -np.inf, -np.inf, [[1]]),
        plain([1], 0, 1, [[1]], low=np.inf),
    ):
        found = solve(p)
        assert found.status == "infeasible" and found.bound == np.inf and not found.trusted


def test_infinite_limits(door):
    free = plain([1, 1], -np.inf, np.inf, [[1, 1], [1, -1]], low=[3, -1], high=[np.inf, 1])
    assert solve(free).value == pytest.approx(3) and 3 - 1e-9 <= solve(free).bound <= 3
    assert solve(plain([-1], 0, np.inf, [[-1]], high=0)).status == "unbounded"
    assert solve(plain([-1], 0, np.inf, [[1]], high=2.5, integer=True)).value == -2
    both = plain([-1, -1], 0, np.inf, [[1, -1], [-1, 1]], high=[0, 0])
    assert solve(both).status == "unbounded" and relaxation(both) == -np.inf


def test_the_two_ways_to_nothing(door):
    "Programs that a presolver leaves as unbounded or infeasible."
    for integer in (False, True):
        p = plain([-1, 0], 0, np.inf, [[1, -1], [0, 1]], high=[0, np.inf], low=[-np.inf, 1])
        p = replace(p, integer=np.full(2, integer))
        assert solve(p).status == "unbounded"
        assert solve(replace(p, high=np.array([0, 0.5]), low=np.array([-np.inf, 1]))).status == (
            "infeasible"
        )
    half = plain([0, 0], 0, 9, [[2, 2]], low=3, high=3, integer=True)
    assert solve(half).status == "infeasible" and solve(half).trusted and relaxation(half) <= 0


def test_infeasible_is_proved():
    proved = infeasible = 0
    for seed in range(CASES):
        p = drawn(seed, integer=False)
        found = solve(p)
        if found.status == "infeasible":
            infeasible += 1
            proved += not found.trusted
            if found.multipliers is not None:
                free = replace(p, cost=np.zeros_like(p.cost))
                assert dual_bound(free, found.multipliers) > 0
    assert infeasible > CASES / 10 and proved > 0.9 * infeasible


@pytest.mark.parametrize("time_limit", [0, 0.05, 0.5])
def test_time_limits_hold(time_limit, door):
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 100, (30, 200))
    p = plain(-rng.integers(1, 100, 200), 0, 1, sizes, high=sizes.sum(axis=1) / 3, integer=True)
    began, wall = time.process_time(), time.perf_counter()
    found = solve(p, time_limit)
    assert found.seconds <= time.perf_counter() - wall
    assert time.process_time() - began <= time_limit + 1
    assert found.status == "time_limit" and p.cost.sum() * 1.001 <= found.bound <= -4956
    assert found.x is None or found.bound <= found.value == p.cost @ found.x
    assert found.value == np.inf or (p.matrix @ found.x <= p.high).all()
    began = time.process_time()
    assert solve(p, time_limit, relaxed=True).bound <= -4956
    model = Model(p)
    assert model.run(0).status == "time_limit" and model.run(0).x is None
    assert model.run().value == pytest.approx(solve(p, relaxed=True).value)
    assert time.process_time() - began <= time_limit + 2


def test_a_process_of_its_own_says_the_same(monkeypatch):
    "Large integer programs with a limit run apart; here all do."
    mixed = [p for p in map(drawn, range(60)) if p.integer.any()][:12]
    here = [solve(p, 60.0) for p in mixed]
    monkeypatch.setattr(programs, "_LARGE", -1)
    apart = [solve(p, 60.0) for p in mixed]
    assert {a.status.value for a in here} == {"optimal", "infeasible", "unbounded"}
    for p, one, other in zip(mixed, here, apart, strict=True):
        assert (one.status, one.value, one.bound) == (other.status, other.value, other.bound)
        again = solve(p, 60.0, start=one.x) if one.x is not None else one
        assert (again.status, again.value) == (one.status, one.value)
    with pytest.raises(ValueError, match="no option 'bogus'"):
        solve(mixed[0], 60.0, options={"bogus": 1})


def test_a_process_that_dies_is_no_answer(monkeypatch):
    p = next(p for p in map(drawn, range(60)) if p.integer.any() and solve(p).status == "optimal")
    monkeypatch.setattr(programs, "_LARGE", -1)
    for child in ("import sys; sys.exit(3)", "print('x' * 100)"):
        monkeypatch.setattr(programs, "_CHILD", child)
        found = solve(p, 60.0)
        assert found.status == "failed" and found.x is None and found.bound <= solve(p).value


def test_a_process_is_ended_with_the_best_that_it_told(monkeypatch):
    "A child that answers once and then hears nothing, as a solver within a round of cuts."
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 100, (30, 200))
    p = plain(-rng.integers(1, 100, 200), 0, 1, sizes, high=sizes.sum(axis=1) / 3, integer=True)
    deaf = """
exponent = {exponent}
import time, numpy as np, sys, serving_or.tools.programs as programs
programs._receive(sys.stdin.buffer)
x = np.eye(1, 200)[0]
words = {"outcome": "time_limit", "unclear": False, "last": False}
programs._send(sys.stdout.buffer, x=x, bound=-6000.0 / 2**exponent, **words)
time.sleep(60)
"""
    deaf = deaf.replace("{exponent}", str(programs._scaled(p, None)[1]))
    monkeypatch.setattr(programs, "_LARGE", -1)
    monkeypatch.setattr(programs, "_CHILD", deaf)
    began = time.perf_counter()
    found = solve(p, 5.0)
    # five seconds, and as much again for a busy machine
    assert time.perf_counter() - began < 10
    assert found.status == "time_limit" and found.value == p.cost[0]
    assert found.bound == pytest.approx(-6000, rel=1e-8)


@pytest.mark.parametrize("exponent", [-300, -30, -9, 0, 9, 15, 30, 300])
def test_the_unit_of_costs_does_not_matter(exponent, door):
    for seed in range(CASES // 4):
        p = drawn(seed)
        here, there = solve(p), solve(replace(p, cost=p.cost * 10.0**exponent))
        assert here.status == there.status or (door == "scipy" and there.status == "imprecise")
        if here.status == "optimal" == there.status:
            value, scale = here.value * 10.0**exponent, 10.0 ** max(exponent, -300)
            assert there.value == pytest.approx(value, rel=1e-7, abs=1e-7 * scale)
            assert there.bound == pytest.approx(value, rel=1e-7, abs=1e-7 * scale)
            assert there.bound <= there.value


@pytest.mark.parametrize("exponent", [-20, -12, 12, 18, 100])
def test_the_unit_of_rows_does_not_matter(exponent, door):
    for seed in range(CASES // 4):
        p, factor = drawn(seed, infinite=False), 10.0**exponent
        q = replace(p, matrix=p.matrix * factor, low=p.low * factor, high=p.high * factor)
        here, there = solve(p), solve(q)
        assert here.status == there.status
        if here.status == "optimal":
            assert there.value == pytest.approx(here.value, rel=1e-7, abs=1e-6)
            assert there.bound <= there.value


@pytest.mark.parametrize("price", [1e3, 1e6, 1e8, 1e10])
def test_dear_columns_hide_nothing(price):
    "What the best answer does not pay must not decide which answer is best."
    for seed in range(CASES // 3):
        rng = np.random.default_rng(seed)
        cost = rng.integers(1, 30, 8).astype(float)
        weights = rng.integers(1, 9, (3, 8)).astype(float)
        dear = np.append(cost, [price] * 2)
        columns = np.hstack([weights, np.full((3, 2), 100.0)])
        p = plain(dear, 0, 1, columns, low=weights.sum(axis=1) / 2, integer=True)
        best = min(
            cost @ x
            for x in map(np.array, product((0, 1), repeat=8))
            if (weights @ x >= p.low).all()
        )
        for unit in (None, best):
            found = solve(p, unit=unit)
            assert found.value == best and best * (1 - 1e-6) <= found.bound <= best
        assert relaxation(p) <= best


def test_a_tree_that_lies_is_not_believed(monkeypatch):
    p = plain([-4, -4, -3], 0, 1, [[3, 3, 2]], high=6, integer=True)
    honest, original = solve(p), programs._run

    def lying(*arguments):
        said = original(*arguments)
        said.bound += 3.0
        return said

    monkeypatch.setattr(programs, "_run", lying)
    found = solve(p)
    assert honest.status == "optimal" and honest.trusted and found.value == honest.value
    assert found.bound <= honest.value and not found.trusted and found.status == "imprecise"
    # no time for a second solve: nothing is claimed but what is free
    monkeypatch.setattr(programs.Clock, "over", lambda self: True)
    monkeypatch.setattr(programs, "_run", lambda *a: programs._Said("optimal", honest.x, bound=0.0))
    assert solve(p).bound == pytest.approx(-11)


def test_a_point_that_breaks_limits_is_not_returned(monkeypatch):
    p = plain([-1, -1], 0, 1, [[1, 1]], high=1.5)
    for wrong in ([1, 1], [2, -0.5], [np.nan, 0], [0.75, 0.7501]):
        said = lambda *a, x=wrong: programs._Said(programs.Outcome.OPTIMAL, np.array(x, float))
        monkeypatch.setattr(programs, "_run", said)
        found = solve(p)
        assert found.x is None and found.value == np.inf and found.status == "imprecise"
    # whole numbers that are not quite: the other columns are found again
    monkeypatch.undo()
    p = plain([1, -1], 0, [9, 1e6], [[-1e5, 1]], high=0)
    p = replace(p, integer=np.array([True, False]))
    original = programs._run

    def rounded(program, *arguments):
        if program.integer.any():
            return programs._Said(programs.Outcome.OPTIMAL, np.array([0.9999999, 1e5 - 0.01]))
        return original(program, *arguments)

    monkeypatch.setattr(programs, "_run", rounded)
    assert solve(p).x.tolist() == pytest.approx([1, 1e5 - 0.01])
    monkeypatch.setattr(programs, "_run", lambda p, *a: rounded(replace(p), *a))


def test_start():
    p = plain([-4, -4, -3], 0, 1, [[3, 3, 2]], high=6, integer=True)
    for start in (([0, 2], [1, 1]), np.array([1, 0, 1]), ([], [])):
        assert solve(p, start=start).value == solve(p).value
    for start in (([3], [1]), ([0.5], [1]), ([0], [np.nan]), ([0, 1], [1]), [1, 2], "11"):
        with pytest.raises(ValueError, match="start"):
            solve(p, start=start)


def test_a_start_does_not_come_back_as_the_optimum():
    "Where presolve leaves nothing, HiGHS 1.16 returns its start: of these three in any case."
    for seed in (1770, 1894, 2801, *range(CASES // 4)):
        p = drawn(seed, True, False)
        best = solve(p)
        worst = solve(replace(p, cost=-p.cost))
        if best.status == worst.status == "optimal":
            found = solve(p, start=worst.x)
            assert found.status == "optimal" and found.value == pytest.approx(best.value, abs=1e-9)


@pytest.mark.parametrize(
    "changes, said",
    [
        (dict(cost=np.array([1, np.nan])), r"cost\[1\] is nan"),
        (dict(cost=np.array([1, np.inf])), "cost has elements that are not finite"),
        (dict(upper=np.array([np.nan, 1])), r"upper\[0\] is nan"),
        (dict(low=np.array([np.nan])), r"low\[0\] is nan"),
        (dict(low=np.zeros(2)), r"low has shape \(2,\); with 1 rows it must be \(1,\)"),
        (dict(integer=np.zeros(3, bool)), "integer has shape"),
        (dict(matrix=csc_array([[1, np.inf]])), "matrix has elements"),
    ],
)
def test_what_is_no_program(changes, said):
    good = plain([1, 2], matrix=[[1, 1]], low=1)
    with pytest.raises(ValueError, match=said):
        replace(good, **changes)


def test_multipliers_are_checked():
    p = plain([1, 2], matrix=[[1, 1]], low=1)
    for wrong in ([np.nan], [np.inf], [1, 2], 1.0, ["1"], None, [[1]]):
        with pytest.raises(ValueError, match="multipliers"):
            dual_bound(p, wrong)
    y = np.array([1.0])
    assert dual_bound(p, y) <= 1 and y.tolist() == [1.0]


def test_model_arguments_are_checked():
    model = Model()
    model.add_columns([1.0, 2.0])
    for call in (
        lambda: model.add_rows([[1.0]]),
        lambda: model.add_rows([[1.0, np.nan]]),
        lambda: model.add_rows([[1.0, 1.0]], low=np.nan),
        lambda: model.add_columns([np.nan]),
        lambda: model.add_columns([1.0], matrix=[[1.0]]),
        lambda: model.set_cost([0], np.inf),
        lambda: Model(unit=0.0),
        lambda: Model(options={"threads": -3}),
        lambda: model.run(time_limit=np.nan),
        lambda: solve(model.program, unit=-1.0),
        lambda: solve(model.program, tolerance=np.nan),
    ):
        with pytest.raises(ValueError):
            call()
    model.add_rows([[1.0, 1.0]], low=3.0)
    assert model.run().value == 3 and model.program.matrix.shape == (1, 2)


def test_exact_bounds_with_infinite_limits():
    "Against the optimum in fractions, on programs whose optimum is known by construction."
    for seed in range(CASES):
        rng = np.random.default_rng(seed)
        n, m = rng.integers(2, 7, 2)
        A = rng.integers(-3, 4, (m, n)).astype(float)
        x, y = rng.integers(0, 4, n).astype(float), rng.integers(0, 4, m).astype(float)
        # complementary slackness: x and y are optimal
        slack = rng.integers(0, 5, n) * (x == 0)
        cost, low = A.T @ y + slack, A @ x - rng.integers(0, 3, m) * (y == 0)
        p = plain(cost, 0, np.inf, A, low=low)
        best = Fraction(cost @ x)
        assert Fraction(dual_bound(p, y)) <= best
        assert dual_bound(p, y) == pytest.approx(float(best), rel=1e-9, abs=1e-9)
        for noise in (1e-15, 1e-12, 1e-6, 0.1):
            assert dual_bound(p, y * (1 + noise * rng.normal(size=m))) <= best
        found = solve(p)
        assert found.status == "optimal" and found.value == pytest.approx(float(best), abs=1e-6)
        assert found.trusted or Fraction(found.bound) <= best


def own_model(threads=2):
    """Somebody's own model in this process."""
    model = highspy.Highs.__base__()
    model.setOptionValue("output_flag", False)
    model.setOptionValue("threads", threads)
    for _ in range(6):
        model.addCol(-1.0, 0.0, 1.0, 0, np.array([], np.int32), np.array([]))
        model.changeColIntegrality(model.getNumCol() - 1, highspy.HighsVarType.kInteger)
    model.addRow(-np.inf, 5.0, 6, np.arange(6, dtype=np.int32), np.full(6, 2.0))
    model.run()
    return model


def own_cvxpy():
    """Somebody's cvxpy in this process."""
    import cvxpy as cp

    x = cp.Variable(6, integer=True)
    problem = cp.Problem(cp.Minimize(-cp.sum(x)), [2 * cp.sum(x) <= 5, x >= 0, x <= 1])
    problem.solve(solver=cp.HIGHS)
    return problem.status, round(problem.value)


P = plain([-4, -4, -3], 0, 1, [[3, 3, 2]], high=6, integer=True)
OURS = {
    "solve": lambda: solve(P).status,
    "relaxed": lambda: solve(P, relaxed=True).status,
    "relaxation": lambda: relaxation(P) and "optimal",
    "model": lambda: Model(P).run().status,
    "unproved": lambda: Model(P).run(prove=False).status,
    "infeasible": lambda: solve(replace(P, low=np.array([9.0]))).status and "optimal",
    "refused": lambda: refused() and "optimal",
}


def refused():
    with pytest.raises(ValueError):
        solve(P, options={"nonsense": 1})
    return True


@pytest.mark.parametrize("ours", OURS)
def test_neighbours_in_one_process(ours):
    "Each of theirs runs before and after each of ours; two of theirs may disturb each other."
    optimal = highspy.HighsModelStatus.kOptimal
    highspy.Highs.resetGlobalScheduler(True)
    theirs = own_model(2)
    assert theirs.getModelStatus() == optimal
    assert OURS[ours]() == "optimal"
    assert own_model(2).getModelStatus() == optimal
    # their old model runs again
    theirs.changeColCost(0, -2.0)
    theirs.run()
    assert theirs.getModelStatus() == optimal and theirs.getObjectiveValue() == -3
    for _ in range(2):
        assert OURS[ours]() == "optimal"
        assert own_cvxpy() == ("optimal", -2)
    assert OURS[ours]() == "optimal"
    assert own_model(2).getModelStatus() == optimal


def test_nothing_is_printed(capfd, door):
    for seed in range(20):
        solve(drawn(seed)), relaxation(drawn(seed)), Model(drawn(seed)).run()
    solve(P, 0.001)
    assert capfd.readouterr() == ("", "")


def test_arguments_are_not_changed_and_results_are_frozen():
    for seed in range(10):
        p = drawn(seed)
        before, y = copy.deepcopy(p), np.ones(p.low.size)
        found = solve(p)
        Model(p).run(), dual_bound(p, y), relaxation(p)
        for name in ("cost", "lower", "upper", "integer", "low", "high"):
            assert np.array_equal(getattr(p, name), getattr(before, name))
        assert (p.matrix != before.matrix).nnz == 0 and (y == 1).all()
        assert found.x is None or not found.x.flags.writeable
        twin = pickle.loads(pickle.dumps((p, found)))
        assert twin[1] == found and solve(twin[0]).status == found.status


def test_without_proof_a_model_is_the_solver(door):
    p = plain([1, 3], 0, 1, [[1, 1]], low=1.5)
    quick = Model(p).run(prove=False)
    assert quick.value == 2.5 and quick.bound == -np.inf and quick.multipliers.tolist() == [3]
    assert quick.reduced.tolist() == [-2, 0] == solve(p).reduced.tolist()
    assert Model(p, options={"simplex_dual_edge_weight_strategy": 1}).run().bound <= 2.5


def test_builder_sums_over_what_is_beyond_the_shape():
    b = Builder()
    x = b.columns("x", (2, 3), upper=2, cost=1)
    assert b.rows((2,), ([[1, 2, 3]], x), low=[1, 2]).tolist() == [0, 1]
    b.entries(1, x[1], 1.0)
    assert b.build().matrix.toarray().tolist() == [[1, 2, 3, 0, 0, 0], [0, 0, 0, 2, 3, 4]]
