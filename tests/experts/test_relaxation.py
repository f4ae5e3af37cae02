"The conjugates against independent minimisation, the dual bound for any multipliers, and the relaxation against another solver and enumeration."
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from serving_or import experts
from serving_or.experts.model import Problem, Schedule, latency, water_level
from serving_or.experts.relaxation import budgeted_conjugate, conjugate, lower_bound, relax

many = settings(max_examples=300, deadline=None)
few = settings(max_examples=60, deadline=None)
load = st.one_of(st.integers(0, 9).map(float), st.floats(1e-9, 1e6), st.sampled_from([0.0, 1e-12, 1e12]))
price = st.one_of(st.integers(0, 9).map(float), st.floats(1e-9, 1e3))


@st.composite
def priced(draw, m=st.integers(1, 6)):
    "Loads and nonnegative prices of the same length."
    n = draw(m)
    return np.array(draw(st.lists(load, min_size=n, max_size=n))), np.array(draw(st.lists(price, min_size=n, max_size=n)))


@st.composite
def problems(draw, most_steps=6, most_experts=5, most_extra=7):
    "Small problems with ties, zeros, loads of every size, fractional starts, and prices from 0 to huge."
    T, m, k = draw(st.integers(1, most_steps)), draw(st.integers(1, most_experts)), draw(st.integers(0, most_extra))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = draw(st.sampled_from(["integers", "lognormal", "decades", "sparse"]))
    loads = {"integers": rng.integers(0, 5, (T, m)).astype(float), "lognormal": np.exp(2 * rng.normal(size=(T, m))),
             "decades": 10.0 ** rng.uniform(-6, 6, (T, m)), "sparse": rng.exponential(8.0, (T, m)) * (rng.random((T, m)) < 0.4)}[kind]
    w = draw(st.sampled_from([0.0, 1e-6, 0.5, 2.0, 20.0, 1e6]))
    start = None if draw(st.booleans()) else k * rng.dirichlet(np.full(m, 0.5))
    return Problem(loads, k, w, start), rng


def one_dimensional(r, z):
    "min over levels of level + sum z (r / level - 1)^+, interval by interval, by bounded scalar search."
    def h(L):
        return L + z @ np.maximum(r / L - 1.0, 0.0)

    ends = np.unique(r[r > 0])
    if ends.size == 0:
        return 0.0
    ends = np.concatenate([[ends[0] * 1e-9], ends])
    best = min(h(L) for L in ends)
    for low, high in zip(ends[:-1], ends[1:]):
        u = minimize_scalar(lambda t: h(np.exp(t)), bounds=(np.log(low), np.log(high)), method="bounded", options={"xatol": 1e-10})
        best = min(best, u.fun)
    return best


@many
@given(priced())
@example((np.array([9.0]), np.array([16.0])))                                  # a kink: buy nothing
@example((np.array([6.0, 6.0, 0.0]), np.array([1.0, 1.0, 0.0])))
def test_conjugate_is_the_least_over_levels(case):
    r, z = case
    oracle = one_dimensional(r, z)
    assert conjugate(r, z) <= oracle * (1 + 1e-12) + 1e-300
    assert conjugate(r, z) >= oracle * (1 - 1e-9) - 2e-9 * r.max()             # the oracle stops at 1e-9 of the smallest load


def test_conjugate_special_cases():
    assert conjugate([4.0], [1.0]) == 3.0                                      # 2 sqrt(z r) - z
    assert conjugate([4.0], [5.0]) == 4.0                                      # buy nothing
    assert conjugate([0.0, 0.0], [1.0, 0.0]) == 0.0
    assert conjugate([3.0, 1.0], [0.0, 5.0]) == 1.0                            # the first is free, so the level is the second's load
    assert conjugate([1.0, 2.0], [1.0, -1e-9]) == -np.inf


@many
@given(priced(), st.one_of(st.just(0.0), st.floats(1e-12, 1)))
def test_conjugate_is_sublinear(case, c):
    r, z = case
    assert conjugate(r, c * z) >= np.sqrt(c) * conjugate(r, z) * (1 - 1e-9)


@many
@given(priced(), st.integers(0, 12), st.integers(0, 2**32 - 1))
def test_budgeted_conjugate_is_below_every_placement_and_above_every_dual(case, k, seed):
    r, z = case
    rng = np.random.default_rng(seed)
    z = z - rng.choice([0.0, 1.0, 50.0])
    G = budgeted_conjugate(r, z, k)
    scale = 1e-9 * (1 + abs(G) + k * np.abs(z).max())
    x = k * rng.dirichlet(np.full(r.size, 0.3), 50)
    assert G <= (latency(r, x) + x @ z).min() + scale
    assert abs(budgeted_conjugate(r, z + 7.0, k) - G - 7.0 * k) <= scale + 1e-9 * 7 * k
    shifts = -z.min() + np.concatenate([[0.0], np.geomspace(1e-3, 1e4, 200)])
    assert np.all(conjugate(r, z + shifts[:, None]) - k * shifts <= G + scale + 1e-9 * k * np.abs(shifts))


@many
@given(st.integers(0, 2**32 - 1))
def test_budgeted_conjugate_is_attained(seed):
    "Two experts: one number decides, so bounded search finds the minimum."
    rng = np.random.default_rng(seed)
    r, z, k = rng.integers(0, 9, 2).astype(float), rng.normal(size=2) * 3, int(rng.integers(1, 9))
    cost = lambda a: latency(r, [a, k - a]) + z @ [a, k - a]
    found = min(minimize_scalar(cost, bounds=(0, k), method="bounded", options={"xatol": 1e-10}).fun, cost(0.0), cost(float(k)))
    assert abs(budgeted_conjugate(r, z, k) - found) <= 1e-6 * (1 + abs(found))


@few
@given(problems())
def test_any_multipliers_give_a_bound(case):
    p, rng = case
    value = relax(p).value
    prefix = [relax(Problem(p.loads[:t + 1], p.extra, p.move_price, p.start)).value for t in range(p.steps)]
    assert np.isclose(prefix[-1], value, rtol=2e-6, atol=1e-12)
    for b in (np.zeros((p.steps + 1, p.experts)), *(p.move_price * rng.random((5, p.steps + 1, p.experts)) ** rng.choice([0.2, 1, 5]))):
        running = lower_bound(p, b)
        assert np.all(running <= np.array(prefix) * (1 + 1e-9) + 1e-12)
        moved = lower_bound(p, b + rng.normal(size=(p.steps + 1, 1)))           # a constant for each row changes nothing
        assert np.allclose(moved, running, rtol=1e-6, atol=1e-8 * (1 + p.extra) * (1 + p.move_price))


@pytest.mark.parametrize("b, message", [(np.zeros((3, 2)), "shape"), (np.array([[0, 0], [0, 2.5]]), "row 1"), (np.array([[0, np.nan], [0, 0]]), "row 0")])
def test_multipliers_that_are_none(b, message):
    with pytest.raises(ValueError, match=message):
        lower_bound(Problem([[1.0, 2.0]], 2, move_price=2.0), b)


@few
@given(problems())
def test_relaxation_closes_its_gap(case):
    p, _ = case
    answer = relax(p)
    assert answer.status == "optimal" and answer.gap <= 1e-6
    assert answer.bound <= answer.value * (1 + 1e-9)
    assert np.all(answer.x >= -1e-12) and np.allclose(answer.x.sum(axis=1), p.extra)
    assert np.isclose(Schedule(p, answer.x).cost, answer.value)                # a schedule, at its own cost
    if p.move_price == 0:
        assert np.isclose(answer.value, water_level(p.loads, p.extra).sum(), rtol=2e-6)


@pytest.mark.parametrize("seed", range(8))
def test_both_methods_agree(seed):
    rng = np.random.default_rng(seed)
    T, m, k = int(rng.integers(1, 13)), int(rng.integers(2, 9)), int(rng.integers(1, 20))
    p = Problem(np.exp(rng.normal(size=(T, m))) * 10, k, float(rng.uniform(0.2, 5)), k * rng.dirichlet(np.ones(m)))
    one, two = relax(p), relax(p, method="cvxpy")
    assert two.gap < 1e-5 and np.isclose(one.value, two.value, rtol=5e-6)
    assert max(one.bound, two.bound) <= min(one.value, two.value) * (1 + 1e-9)


def brute_force(p):
    "The best integer schedule, by dynamic programming over all placements."
    every = np.array([x for x in product(range(p.extra + 1), repeat=p.experts) if sum(x) == p.extra])
    moves = p.move_price * np.maximum(every[None] - every[:, None], 0).sum(axis=2)
    value = p.move_price * np.maximum(every - p.start, 0).sum(axis=1) + latency(p.loads[0], every)
    for r in p.loads[1:]:
        value = (value[:, None] + moves).min(axis=0) + latency(r, every)
    return value.min()


@pytest.mark.parametrize("seed", range(12))
def test_relaxation_is_below_the_best_integer_schedule(seed):
    rng = np.random.default_rng(seed)
    p = Problem(rng.integers(0, 30, (int(rng.integers(1, 9)), int(rng.integers(2, 4)))).astype(float), int(rng.integers(0, 6)), float(rng.uniform(0, 4)))
    assert relax(p).bound <= brute_force(p) * (1 + 1e-9)


def test_integrality_gap_family():
    for k in (1, 3, 9):
        p = Problem(np.ones((1, k + 1)), k, 1e-9, start=np.eye(k + 1)[0] * k)
        assert np.isclose(relax(p).value, (k + 1) / (2 * k + 1), rtol=1e-6) and (k > 5 or np.isclose(brute_force(p), 1.0))


def test_dear_moves_never_happen():
    p = Problem(np.random.default_rng(3).exponential(5.0, (9, 4)), 6, move_price=1e6, start=[3, 2, 1, 0])
    assert np.isclose(relax(p).value, Schedule(p, np.tile(p.start, (9, 1))).cost)


def test_one_step_against_a_line_search():
    p = Problem([[30.0, 2.0]], 5, 2.0, start=[1, 4])
    cost = lambda a: latency([30.0, 2.0], [1 + a, 4 - a]) + 2 * a
    assert np.isclose(relax(p).value, minimize_scalar(cost, bounds=(0, 4), method="bounded").fun, rtol=1e-6)


def test_relax_reports_what_it_reached():
    p = Problem(np.random.default_rng(0).exponential(5.0, (40, 12)), 24)
    loose = relax(p, tol=0.2)
    assert loose.status == "optimal" and loose.gap <= 0.2 and loose.bound <= relax(p).value <= loose.value * (1 + 1e-9)
    short = relax(p, tol=1e-12, time_limit=1e-3)
    assert short.status in ("time_limit", "feasible") and short.bound <= short.value
    with pytest.raises(ValueError, match="'cuts'"):
        relax(p, method="newton")


def test_front_door():
    assert experts.relax is relax and "gap" in experts.relax(Problem([[1.0, 2.0]], 1)).summary()
