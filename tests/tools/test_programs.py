"Programs against SciPy, bounds in exact arithmetic, and neighbours in one process."

import os
from fractions import Fraction
from itertools import product

import highspy
import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csc_array

import serving_or.tools.programs as programs
from serving_or.tools.programs import Builder, Model, Program, dual_bound, relaxation, solve

CASES = 2000 if os.environ.get("SERVING_OR_LONG") else 60


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
        assert answer.bound <= best + 1e-9 * abs(best) if np.isfinite(best) else True
        if best == np.inf:
            assert answer.status == "infeasible" and answer.bound == np.inf and answer.x is None
        elif best == -np.inf:
            assert answer.status == "unbounded" and answer.bound == -np.inf
        else:
            assert answer.status == "optimal"
            assert answer.value == pytest.approx(best, rel=1e-7, abs=1e-7) == answer.bound
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


def test_builder_sums_over_what_is_beyond_the_shape():
    b = Builder()
    x = b.columns("x", (2, 3), upper=2, cost=1)
    assert b.rows((2,), ([[1, 2, 3]], x), low=[1, 2]).tolist() == [0, 1]
    b.entries(1, x[1], 1.0)
    assert b.build().matrix.toarray().tolist() == [[1, 2, 3, 0, 0, 0], [0, 0, 0, 2, 3, 4]]
