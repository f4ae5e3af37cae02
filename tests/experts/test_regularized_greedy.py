"""The step against Clarabel and its optimality conditions, and the invariants of the analysis."""

import warnings
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from serving_or.experts import regularized_greedy as rooms
from serving_or.experts.certificate import run
from serving_or.experts.model import Problem, added, latency, water_level
from serving_or.experts.one_step import water_fill
from serving_or.experts.regularized_greedy import (
    RegularizedGreedy,
    ReverseEntropy,
    hedge,
    move_entropy,
    regularized_step,
    reverse_factor,
    reverse_step,
)
from serving_or.experts.relaxation import budgeted_conjugate, relax
from tests.instances import KINDS, draw_loads, draw_start, layer_steps, online_problems
from tests.long import cases

many = settings(max_examples=cases(4000, 200))
few = settings(max_examples=cases(1000, 30))


def duality_gap(r, x, start, rho):
    "f + <z, x> - G(z), relative as the solver can reach it; zero exactly at the minimiser."
    z = np.asarray(rho)[..., None] * np.log((1 + x) / (1 + start))
    k = round(float(start.sum()) / (start.size // start.shape[-1]))
    G = budgeted_conjugate(r, z, k)
    return np.abs(latency(r, x) + np.vecdot(z, x) - G) / ((1 + np.abs(G)) * max(1, k / 64))


@many
@given(layer_steps())
@example((np.array([9.0, 9.0, 0.0]), np.array([0.0, 0.0, 3.0]), 1.0, 2.0))
@example((np.array([1e300, 1e-300]), np.array([1.0, 2.0]), 1.0, 2.0))
@example((np.array([1e-300, 1e-301]), np.array([1.0, 2.0]), 1.0, 2.0))
def test_step_is_optimal(step):
    r, start, eta, w = step
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no overflow, no division by zero on the way
        x = regularized_step(r, start, eta, w)
    k = start.sum()
    assert x.shape == r.shape and np.all(x >= 0) and abs(x.sum() - k) <= 1e-9 * max(1, k)
    assert duality_gap(r, x, start, w / eta) <= 1e-10
    if r.max() == 0 or k == 0:
        assert np.array_equal(x, start)


@pytest.fixture(scope="module")
def clarabel():
    "The step as cvxpy states it, compiled once for each number of experts."
    import cvxpy as cp

    problems = {}

    def solve(r, q, rho):
        m = r.size
        if m not in problems:
            n, load, linear = cp.Variable(m), cp.Parameter(m, nonneg=True), cp.Parameter(m)
            weight, total = cp.Parameter(nonneg=True), cp.Parameter(nonneg=True)
            # rho n log(n / q), so that it is DPP
            entropy = -weight * cp.sum(cp.entr(n)) - linear @ n
            slowest = cp.max(cp.multiply(load, cp.inv_pos(n)))
            problem = cp.Problem(cp.Minimize(slowest + entropy), [n >= 1, cp.sum(n) == total])
            problems[m] = problem, n, load, linear, weight, total
        problem, n, load, linear, weight, total = problems[m]
        load.value, linear.value, weight.value, total.value = r, rho * np.log(q), rho, q.sum()
        problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
        x = np.maximum(n.value - 1, 0)
        return 1 + x * ((q.sum() - m) / x.sum())

    return solve


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
@pytest.mark.parametrize("kind", KINDS)
def test_step_is_never_worse_than_clarabel(kind, clarabel):
    import cvxpy as cp

    rng, compared = np.random.default_rng(KINDS.index(kind)), 0
    for _ in range(60):
        m, k = int(rng.choice([2, 3, 5, 8])), int(rng.integers(1, 20))
        r, start = draw_loads(rng, kind, m), draw_start(rng, m, k)
        eta, w = 10 ** rng.uniform(-1, 1), 10 ** rng.uniform(-1, 1)
        top = (r / (1 + start)).max()
        if top == 0:
            continue
        mine = 1 + regularized_step(r, start, eta, w)
        try:
            # in the units in which the solver does best
            theirs = clarabel(r / top, 1 + start, w / eta / top)
        except cp.error.SolverError:
            continue
        costs = [(r / n).max() + w / eta * move_entropy(n - 1, start) for n in (mine, theirs)]
        assert costs[0] <= costs[1] * (1 + 1e-8)
        compared += 1
    assert compared >= 40


@pytest.mark.parametrize(
    "layers, m, k, spread",
    [(58, 256, 64, 1.5), (58, 256, 16, 1.0), (20, 64, 1024, 6.0), (2, 10_000, 2_000, 1.0)],
)
def test_layers_at_once_are_layers_one_by_one(layers, m, k, spread):
    rng = np.random.default_rng(m + k)
    start = k * rng.dirichlet(np.full(m, 0.5), layers)
    for scale in (0.1, 4.0, 400.0):
        r = scale * np.exp(spread * rng.normal(size=(layers, m)))
        r[0] = 0.0  # a layer without load among the others
        x = regularized_step(r, start)
        assert np.array_equal(x[0], start[0]) and np.allclose(x.sum(axis=1), k, rtol=1e-12)
        assert duality_gap(r, x, start, np.full(layers, 2.0)).max() <= 1e-10
        for layer in range(0, layers, 7):
            away = np.abs(regularized_step(r[layer], start[layer]) - x[layer])
            assert away.max() <= 1e-9 * max(1, k / 64)
        start = x


def test_rows_that_do_not_settle_are_bracketed(monkeypatch):
    """With few GPUs an expert often stands exactly at the level with its last GPU: other way."""
    seen, bracket = [], rooms._bracket

    def counted(r, *rest):
        level, tau = bracket(r, *rest)
        seen.append((r.shape[0], (r == level[:, None]).any(axis=1).sum()))
        return level, tau

    monkeypatch.setattr(rooms, "_bracket", counted)
    rng = np.random.default_rng(0)
    start = np.full((40, 64), 4 / 64)
    for _ in range(10):
        r = 4 * np.exp(rng.normal(size=(40, 64)))
        x = regularized_step(r, start)
        assert duality_gap(r, x, start, np.full(40, 2.0)).max() <= 1e-10
        start = x
    rows, exact = np.sum(seen, axis=0)
    assert rows >= 20 and exact >= rows / 2


@many
@given(layer_steps(most_experts=40))
def test_bracket_alone_gives_the_same_answer(step):
    "The two ways to solve a step share no formula; on every row they agree."
    r, start, eta, w = step
    q, top = 1 + start, (r / (1 + start)).max()
    if top == 0 or start.sum() == 0:
        return
    rho, guess = np.array([w / eta / top]), np.array([0.5])
    level, tau = rooms._bracket(r[None] / top, q[None], q.sum(keepdims=True), rho, guess)
    n = np.maximum(np.maximum(r / top / level, tau * q), 1.0)
    x = (n - 1) * (start.sum() / (n - 1).sum())
    assert np.allclose(x, regularized_step(r, start, eta, w), atol=1e-8 * max(1, start.sum()))


@many
@given(layer_steps(), st.integers(0, 2**32 - 1), st.integers(-300, 300))
def test_step_does_not_know_names_or_units(step, seed, exponent):
    r, start, eta, w = step
    order = np.random.default_rng(seed).permutation(r.size)
    x = regularized_step(r, start, eta, w)
    tolerance = 1e-9 * max(1, start.sum())
    assert np.abs(regularized_step(r[order], start[order], eta, w) - x[order]).max() <= tolerance
    unit = 2.0**exponent
    assert np.abs(regularized_step(r * unit, start, eta, w * unit) - x).max() <= tolerance
    assert np.abs(regularized_step(r * 3.7, start, eta, w * 3.7) - x).max() <= tolerance
    assert np.abs(regularized_step(r, start, eta * 3.7, w * 3.7) - x).max() <= tolerance


@many
@given(layer_steps())
def test_movement_grows_with_eta_and_only_bottlenecks_rise(step):
    r, start, _, w = step
    path = [regularized_step(r, start, eta, w) for eta in (1e-9, 0.1, 0.5, 1.0, 3.0, 30.0, 1e12)]
    moved = [added(x[None], start)[0] for x in path]
    assert np.all(np.diff(moved) >= -1e-9 * max(1, start.sum()))
    assert np.all(np.diff(latency(r, path)) <= 1e-9 * r.max())
    for x in path:
        rise = x > start + 1e-6
        assert np.all(r[rise] / (1 + x[rise]) >= latency(r, x) * (1 - 1e-9))


def test_a_pass_must_reproduce_its_sets_not_only_its_sums():
    """Two passes in a row have the same sums, but other sets; the answer is the full chase."""
    r, start = [1.0, 0.0, 3.0, 1.0, 2.0], [0.0, 24.0, 0.0, 0.0, 0.0]
    x = regularized_step(r, start, eta=30.0, move_price=0.05042550124036127)
    assert np.allclose(x, [3, 0, 11, 3, 7], atol=1e-12)


def test_limits_of_eta_and_price():
    rng = np.random.default_rng(5)
    r, start = rng.exponential(5.0, 6), np.array([3.0, 1, 0, 2, 1, 1])
    assert np.allclose(regularized_step(r, start, 1e-15), start, atol=1e-9)
    assert np.allclose(regularized_step(r, start, 1.0, 1e15), start, atol=1e-9)
    for x in (regularized_step(r, start, 1e15), regularized_step(r, start, 1.0, 0.0)):
        assert np.allclose(x, water_fill(r, 8)) and np.isclose(latency(r, x), water_level(r, 8))
    assert np.array_equal(regularized_step(np.zeros(6), start, 1.0, 0.0), start)
    assert regularized_step([5.0], [7.0]).tolist() == [7.0]  # one expert
    assert regularized_step([5.0, 1.0], [0.0, 0.0]).tolist() == [0.0, 0.0]  # no extra GPU
    best = water_fill(np.array([6.0, 3.0, 3.0]), 3)
    # already where latency is lowest
    assert np.allclose(regularized_step([6.0, 3.0, 3.0], best), best)


@settings(max_examples=150, deadline=None)
@given(online_problems())
def test_movement_is_at_most_eta_times_latency(case):
    p, eta, _ = case
    s = run(p, RegularizedGreedy(eta))
    slight = 1e-9 * p.extra * p.move_price
    assert np.all(p.move_price * s.moved <= eta * s.latency * (1 + 1e-9) + slight)


@few
@given(online_problems())
def test_latency_and_cost_against_the_relaxation(case):
    p, eta, _ = case
    s, opt, w, k = run(p, RegularizedGreedy(eta)), relax(p).value, p.move_price, p.extra
    big = np.log1p(k)
    c = min(1.0, eta / big)
    first = w * c / eta * (p.start * np.log((1 + k) / (1 + p.start))).sum()
    last = w / eta * np.log((1 + s.x[-1]) / (1 + p.start)).sum()
    assert s.latency.sum() <= ((opt + first) / np.sqrt(c) + last) * (1 + 1e-6)
    ratio = max(1, np.sqrt(big / eta))
    assert s.cost <= (1 + eta) * (ratio * (opt + w * k) + w * k / eta) * (1 + 1e-6)
    if eta <= big:  # the proof goes through the bound, so the bound holds what the proof says
        assert s.latency.sum() <= ((s.bound + first) / np.sqrt(c) + last) * (1 + 1e-6)


def test_layers_of_a_policy():
    rng = np.random.default_rng(1)
    start, loads = rng.dirichlet(np.ones(5), 3) * 7, rng.exponential(5.0, (4, 3, 5))
    together = RegularizedGreedy(0.7)
    together.start(start, 7, 1.5)
    path = np.array([together.step(r) for r in loads])
    for layer in range(3):
        alone = Problem(loads[:, layer], 7, 1.5, start[layer])
        assert np.allclose(path[:, layer], run(alone, RegularizedGreedy(0.7)).x, atol=1e-9)
    loads[0, 2, 4] = np.nan
    with pytest.raises(ValueError, match=r"step 4: loads\[2, 4\] is nan"):
        together.step(loads[0])


@pytest.mark.parametrize("eta", [0.0, -1.0, np.nan, np.inf, True, None, "1", [1]])
def test_eta_must_be_positive(eta):
    with pytest.raises(ValueError, match="eta is"):
        RegularizedGreedy(eta)


def test_the_penalty_of_a_move():
    rng = np.random.default_rng(0)
    x, before = rng.dirichlet(np.ones(5), (2, 40)) * 7
    n, q = 1 + x, 1 + before
    assert np.allclose(move_entropy(x, before), (n * np.log(n / q)).sum(axis=1))
    assert np.all(move_entropy(x, before) >= 0) and np.all(move_entropy(x, x) == 0)


@pytest.mark.parametrize("eta", [5e-324, 1e-300, 1.0, 1e300])
@pytest.mark.parametrize("scale", [5e-324, 1e-308, 1.0, 1e300])
@pytest.mark.parametrize("price", [0.0, 5e-324, 1.0, 1e300])
def test_extreme_numbers(eta, scale, price):
    """No warning, no end of digits: a placement, whatever the units."""
    policy = RegularizedGreedy(eta)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        policy.start([2.5, 0.5, 1.0], 4, price)
        for r in ([3, 1, 0], [0, 0, 0], [1, 1, 1], [0, 2, 9]):
            x = policy.step(scale * np.array(r, float))
            assert np.all(x >= 0) and np.isclose(x.sum(), 4)


@pytest.mark.parametrize("eta", [0.25, 1.0, 3.0])
def test_the_live_example_draws(eta):
    for price in (1, 5):
        assert "GPUs" in hedge(eta, price) and "nan" not in hedge(eta, price)


@settings(max_examples=cases(2000))
@given(layer_steps())
def test_latency_never_rises_and_idle_experts_gain_nothing(step):
    r, start, eta, w = step
    x = regularized_step(r, start, eta, w)
    assert latency(r, x) <= latency(r, start) * (1 + 1e-9)
    assert np.all(x[r == 0] <= start[r == 0] + 1e-9 * max(1, start.sum()))


# ---- the entropy turned round ----


def reverse_by_bisection(r, x, eta, w, digits=60):
    """The reversed step in decimals: a bisection on the level, with tau from the budget."""
    with localcontext() as context:
        context.prec, context.Emin, context.Emax = digits, -(10**6), 10**6
        r, q = [Decimal(float(a)) for a in r], [1 + Decimal(float(a)) for a in x]
        rho, total = Decimal(float(w)) / Decimal(float(eta)), sum(q)

        def at(level):
            least = [max(Decimal(1), a / level) for a in r]
            tau = Decimal(1)
            while True:  # Newton on a convex function, from above
                free = [tau * b > c for b, c in zip(q, least)]
                share = sum(b for b, f in zip(q, free) if f)
                rest = total - sum(c for c, f in zip(least, free) if not f)
                if not share or rest / share >= tau:
                    break
                tau = rest / share
            p = sum(max(a / (level * tau) - b, 0) for a, b in zip(r, q) if a > level)
            return [max(c, tau * b) for b, c in zip(q, least)], rho * p - level

        high = max(a / b for a, b in zip(r, q))
        # below it the loads alone need more than there is
        low, empty = high / (10 * total), Decimal(0)
        for _ in range(4 * digits):
            middle = (low + high) / 2
            if sum(max(Decimal(1), a / middle) for a in r) > total:
                low = middle
                continue
            over = at(middle)[1]
            low, high = (middle, high) if over > empty else (low, middle)
        return np.array([float(n - 1) for n in at(high)[0]])


def reverse_objective(r, x, start, rho):
    return latency(r, x) + rho * move_entropy(start, x)


@settings(max_examples=cases(1500, 60), deadline=None)
@given(layer_steps(most_experts=7))
@example((np.array([9.0, 9.0, 0.0]), np.array([0.0, 0.0, 3.0]), 1.0, 2.0))
@example((np.array([1e300, 1e-300]), np.array([1.0, 2.0]), 0.5, 2.0))
@example((np.array([1e-300, 1e-301]), np.array([1.0, 2.0]), 0.5, 2.0))
@example((np.array([3.0, 1.0, 0.0]), np.array([2.5, 0.5, 1.0]), 0.5, 1e-9))
@example((np.array([3.0, 1.0, 0.0]), np.array([2.5, 0.5, 1.0]), 0.5, 1e9))
@example((np.array([1e-12, 1.0, 1e12]), np.array([3e-9, 5.0, 0.0]), 7.9, 1e-3))
def test_reverse_step_is_the_one_of_sixty_digits(step):
    r, start, eta, w = step
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = reverse_step(r, start, eta, w)
    k = start.sum()
    assert x.shape == r.shape and np.all(x >= 0) and abs(x.sum() - k) <= 1e-12 * max(1, k)
    if r.max() == 0 or k == 0:
        assert np.array_equal(x, start)
    else:
        assert np.abs(x - reverse_by_bisection(r, start, eta, w)).max() <= 1e-9 * max(1, k)


@many
@given(layer_steps(), st.integers(0, 2**32 - 1), st.integers(-300, 300))
def test_reverse_step_does_not_know_names_or_units(step, seed, exponent):
    r, start, eta, w = step
    order = np.random.default_rng(seed).permutation(r.size)
    x, tolerance = reverse_step(r, start, eta, w), 1e-9 * max(1, start.sum())
    assert np.abs(reverse_step(r[order], start[order], eta, w) - x[order]).max() <= tolerance
    unit = 2.0**exponent
    assert np.abs(reverse_step(r * unit, start, eta, w * unit) - x).max() <= tolerance
    assert np.abs(reverse_step(r * 3.7, start, eta, w * 3.7) - x).max() <= tolerance
    assert np.abs(reverse_step(r, start, eta * 3.7, w * 3.7) - x).max() <= tolerance


@many
@given(layer_steps(), st.integers(0, 2**32 - 1))
def test_facts_of_the_reversed_step(step, seed):
    """The four facts of the proof: multipliers at least 0, their sums against the counts and
    against any other counts, and the moves.
    """
    r, start, eta, w = step
    k, rng = start.sum(), np.random.default_rng(seed)
    if r.max() == 0 or k == 0:
        return
    x = reverse_step(r, start, eta, w)
    n, q, L, rho = 1 + x, 1 + start, latency(r, x), w / eta
    # units in which rounding is at 1
    slight = 1e-9 * max(L, rho * k) * r.size
    assert w * added(x[None], start)[0] <= eta * (L + slight)
    # p_i L where pinned: what rises, and what is held up
    tau = rooms._solved(r, start, eta, w, rooms._reverse_pass, rooms._reverse_shares)[2]
    lift = np.where(r >= L * (1 - 1e-12), rho * np.maximum(n / tau - q, 0), 0)
    # a bottleneck that stands at its last GPU carries what is left of 1
    edge = (r >= L * (1 - 1e-9)) & (n <= 1 + 1e-9)
    if edge.any():
        left = L - lift[~edge].sum()
        lift[edge] *= np.clip(left / max(lift[edge].sum(), 1e-300), 0, 1)
    assert abs(lift.sum() - L) <= slight / min(tau, 1)
    multipliers = (lift - rho * (n - q)) / n
    # scaled by the sharpness of tau
    slight = slight / tau
    assert multipliers.min() >= -slight and abs((multipliers * n).sum() - L) <= slight * r.size
    for other in (k * rng.dirichlet(np.full(r.size, 0.3)), k * np.eye(r.size)[0], start):
        assert (multipliers * (1 + other)).sum() <= L + slight * r.size * (1 + k)


@many
@given(layer_steps(), st.integers(0, 2**32 - 1))
def test_no_perturbation_is_better(step, seed):
    r, start, eta, w = step
    rng, k, x = np.random.default_rng(seed), start.sum(), reverse_step(r, start, eta, w)
    best = reverse_objective(r, x, start, w / eta)
    for share in (1e-6, 1e-3, 0.1, 1.0):
        other = x + share * (k * rng.dirichlet(np.full(r.size, 0.3)) - x)
        assert best <= reverse_objective(r, other, start, w / eta) * (1 + 1e-12) + 1e-15


@many
@given(layer_steps(most_experts=40))
def test_bracket_gives_the_reversed_step_too(step):
    r, start, eta, w = step
    q, top = 1 + start, (r / (1 + start)).max()
    if top == 0 or start.sum() == 0:
        return
    rho, guess = np.array([w / eta / top]), np.array([0.5])
    laws = rooms._reverse_pass, rooms._reverse_shares
    level, tau = rooms._bracket(r[None] / top, q[None], q.sum(keepdims=True), rho, guess, *laws)
    n = np.maximum(np.maximum(r / top / level, tau * q), 1.0)
    x = (n - 1) * (start.sum() / (n - 1).sum())
    assert np.allclose(x, reverse_step(r, start, eta, w), atol=1e-8 * max(1, start.sum()))


@pytest.mark.parametrize("layers, m, k, spread", [(58, 256, 16, 1.0), (20, 64, 1024, 6.0)])
def test_reversed_layers_at_once_are_layers_one_by_one(layers, m, k, spread):
    rng = np.random.default_rng(m + k)
    start = k * rng.dirichlet(np.full(m, 0.5), layers)
    for scale in (0.1, 4.0, 400.0):
        r = scale * np.exp(spread * rng.normal(size=(layers, m)))
        r[0] = 0.0
        x = reverse_step(r, start)
        assert np.array_equal(x[0], start[0]) and np.allclose(x.sum(axis=1), k, rtol=1e-12)
        for layer in range(0, layers, 7):
            away = np.abs(reverse_step(r[layer], start[layer]) - x[layer])
            assert away.max() <= 1e-9 * max(1, k / 64)
        start = x


def test_limits_of_the_reversed_step():
    rng = np.random.default_rng(5)
    r, start = rng.exponential(5.0, 6), np.array([3.0, 1, 0, 2, 1, 1])
    assert np.allclose(reverse_step(r, start, 1e-15), start, atol=1e-9)
    assert np.allclose(reverse_step(r, start, 1.0, 1e15), start, atol=1e-9)
    for x in (reverse_step(r, start, 1e15), reverse_step(r, start, 1.0, 0.0)):
        assert np.allclose(x, water_fill(r, 8)) and np.isclose(latency(r, x), water_level(r, 8))
    assert np.array_equal(reverse_step(np.zeros(6), start, 1.0, 0.0), start)
    assert reverse_step([5.0], [7.0]).tolist() == [7.0]
    assert reverse_step([5.0, 1.0], [0.0, 0.0]).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("eta", [5e-324, 1e-300, 0.5, 7.99, 1e300])
@pytest.mark.parametrize("scale", [5e-324, 1e-308, 1.0, 1e300])
@pytest.mark.parametrize("price", [0.0, 5e-324, 1.0, 1e300])
def test_extreme_numbers_of_the_reversed_policy(eta, scale, price):
    policy = ReverseEntropy(eta)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        policy.start([2.5, 0.5, 1.0], 4, price)
        for r in ([3, 1, 0], [0, 0, 0], [1, 1, 1], [0, 2, 9]):
            x = policy.step(scale * np.array(r, float))
            assert np.all(x >= 0) and np.isclose(x.sum(), 4)


def test_reversed_policy_owns_its_state_and_steps_whole_or_not():
    loads, policy = np.array([9.0, 1.0, 2.0]), ReverseEntropy()
    start = np.array([1.0, 1.0, 2.0])
    policy.start(start, 4)
    start[:] = 0
    first = policy.step(loads)
    kept = first.copy()
    first += 1
    for bad in ([np.nan, 1, 1], [-1, 1, 1], [1, 1]):
        with pytest.raises(ValueError):
            policy.step(bad)
    again = ReverseEntropy()
    again.start([1, 1, 2], 4)
    assert np.array_equal(again.step(loads), kept)
    assert np.array_equal(again.step(loads), policy.step(loads))


@pytest.mark.parametrize("eta", [0.0, -1.0, np.nan, np.inf, True, None, "1", [1]])
def test_reversed_eta_must_be_positive(eta):
    for door in (ReverseEntropy, reverse_factor):
        with pytest.raises(ValueError, match="eta is"):
            door(eta)


def test_factor_of_the_reversed_latencies():
    assert reverse_factor(2.0) == 1.0 and np.isclose(reverse_factor(0.5), 0.75)
    assert {reverse_factor(eta) for eta in (2.5, 8.0, 1e300)} == {1.0}
    etas = np.linspace(0.01, 7.99, 400)
    factors = [reverse_factor(float(eta)) for eta in etas]
    assert 0 < min(factors) and max(factors) <= 1
