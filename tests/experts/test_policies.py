"The step against Clarabel and its optimality conditions, the invariants of the analysis, the certificate for any policy, and what policies refuse."
import warnings

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from serving_or import experts
from serving_or.experts import Certificate, Chase, Myopic, Never, Policy, Problem, RegularizedGreedy, run
from serving_or.experts import regularized_greedy as online
from serving_or.experts.model import added, latency, water_level
from serving_or.experts.one_step import water_fill
from serving_or.experts.regularized_greedy import regularized_step
from serving_or.experts.relaxation import budgeted_conjugate, relax

many = settings(max_examples=400, deadline=None)
few = settings(max_examples=40, deadline=None)
KINDS = ("lognormal", "integers", "sparse", "decades", "equal")


def draw_loads(rng, kind, shape):
    return {"lognormal": lambda: np.exp(rng.choice([0.3, 1.0, 3.0]) * rng.normal(size=shape)), "integers": lambda: rng.integers(0, 4, shape).astype(float),
            "sparse": lambda: rng.exponential(5.0, shape) * (rng.random(shape) < 0.4), "decades": lambda: 10.0 ** rng.uniform(-6, 6, shape),
            "equal": lambda: np.full(shape, float(rng.integers(1, 9)))}[kind]()


def draw_start(rng, m, k):
    "Inside, near the border, or a vertex."
    if rng.random() < 0.25:
        return k * np.eye(m)[rng.integers(m)]
    return k * rng.dirichlet(np.full(m, rng.choice([0.1, 1.0, 10.0])))


@st.composite
def steps(draw, most_experts=11, most_extra=40):
    "A step: loads, a start, eta, and the price."
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    m, k = draw(st.integers(1, most_experts)), draw(st.integers(0, most_extra))
    r = draw_loads(rng, draw(st.sampled_from(KINDS)), m)
    return r, draw_start(rng, m, k), float(10 ** rng.uniform(-2, 2)), float(10 ** rng.uniform(-2, 2))


def duality_gap(r, x, start, rho):
    "f + <z, x> - G(z), relative as the solver can reach it; zero exactly at the minimiser."
    z = np.asarray(rho)[..., None] * np.log((1 + x) / (1 + start))
    k = round(float(start.sum()) / (start.size // start.shape[-1]))
    G = budgeted_conjugate(r, z, k)
    return np.abs(latency(r, x) + np.vecdot(z, x) - G) / ((1 + np.abs(G)) * max(1, k / 64))


@many
@given(steps())
@example((np.array([9.0, 9.0, 0.0]), np.array([0.0, 0.0, 3.0]), 1.0, 2.0))
@example((np.array([1e300, 1e-300]), np.array([1.0, 2.0]), 1.0, 2.0))
@example((np.array([1e-300, 1e-301]), np.array([1.0, 2.0]), 1.0, 2.0))
def test_step_is_optimal(step):
    r, start, eta, w = step
    with warnings.catch_warnings():
        warnings.simplefilter("error")                                         # no overflow, no division by zero on the way
        x = regularized_step(r, start, eta, w)
    k = start.sum()
    assert x.shape == r.shape and np.all(x >= 0) and abs(x.sum() - k) <= 1e-9 * max(1, k)
    assert duality_gap(r, x, start, w / eta) <= 1e-10
    if r.max() == 0 or k == 0:
        assert np.array_equal(x, start)


def penalty(n, q):
    "Relative entropy of counts with equal sums, in the form that loses no digits when they are close."
    return (n * np.log(n / q) - n + q).sum()


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
            cost = cp.max(cp.multiply(load, cp.inv_pos(n))) - weight * cp.sum(cp.entr(n)) - linear @ n    # rho n log(n / q), so that it is DPP
            problems[m] = cp.Problem(cp.Minimize(cost), [n >= 1, cp.sum(n) == total]), n, load, linear, weight, total
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
            theirs = clarabel(r / top, 1 + start, w / eta / top)               # in the units in which the solver does best
        except cp.error.SolverError:
            continue
        costs = [(r / n).max() + w / eta * penalty(n, 1 + start) for n in (mine, theirs)]
        assert costs[0] <= costs[1] * (1 + 1e-8)
        compared += 1
    assert compared >= 40


@pytest.mark.parametrize("layers, m, k, spread", [(58, 256, 64, 1.5), (58, 256, 16, 1.0), (20, 64, 1024, 6.0), (2, 10_000, 2_000, 1.0)])
def test_layers_at_once_are_layers_one_by_one(layers, m, k, spread):
    rng = np.random.default_rng(m + k)
    start = k * rng.dirichlet(np.full(m, 0.5), layers)
    for scale in (0.1, 4.0, 400.0):
        r = scale * np.exp(spread * rng.normal(size=(layers, m)))
        r[0] = 0.0                                                             # a layer without load among the others
        x = regularized_step(r, start)
        assert np.array_equal(x[0], start[0]) and np.allclose(x.sum(axis=1), k, rtol=1e-12)
        assert duality_gap(r, x, start, np.full(layers, 2.0)).max() <= 1e-10
        for layer in range(0, layers, 7):
            assert np.abs(regularized_step(r[layer], start[layer]) - x[layer]).max() <= 1e-9 * max(1, k / 64)
        start = x


def test_rows_that_do_not_settle_are_bracketed(monkeypatch):
    "With few extra GPUs an expert often stands exactly at the level with its last GPU; those rows must take the other way, and be right."
    seen, bracket = [], online._bracket

    def counted(r, *rest):
        level, tau = bracket(r, *rest)
        seen.append((r.shape[0], (r == level[:, None]).any(axis=1).sum()))
        return level, tau

    monkeypatch.setattr(online, "_bracket", counted)
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
@given(steps(most_experts=40))
def test_bracket_alone_gives_the_same_answer(step):
    "The two ways to solve a step share no formula; on every row they agree."
    r, start, eta, w = step
    q, top = 1 + start, (r / (1 + start)).max()
    if top == 0 or start.sum() == 0:
        return
    level, tau = online._bracket(r[None] / top, q[None], q.sum(keepdims=True), np.array([w / eta / top]), np.array([0.5]))
    n = np.maximum(np.maximum(r / top / level, tau * q), 1.0)
    x = (n - 1) * (start.sum() / (n - 1).sum())
    assert np.allclose(x, regularized_step(r, start, eta, w), atol=1e-8 * max(1, start.sum()))


@many
@given(steps(), st.integers(0, 2**32 - 1), st.integers(-300, 300))
def test_step_does_not_know_names_or_units(step, seed, exponent):
    r, start, eta, w = step
    order = np.random.default_rng(seed).permutation(r.size)
    x = regularized_step(r, start, eta, w)
    tolerance = 1e-9 * max(1, start.sum())
    assert np.abs(regularized_step(r[order], start[order], eta, w) - x[order]).max() <= tolerance
    unit = 2.0 ** exponent
    assert np.abs(regularized_step(r * unit, start, eta, w * unit) - x).max() <= tolerance
    assert np.abs(regularized_step(r * 3.7, start, eta, w * 3.7) - x).max() <= tolerance
    assert np.abs(regularized_step(r, start, eta * 3.7, w * 3.7) - x).max() <= tolerance


@many
@given(steps())
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
    "Here two passes in a row have the same sums, but the second one's solution has other sets; the answer is the full chase."
    x = regularized_step([1.0, 0.0, 3.0, 1.0, 2.0], [0.0, 24.0, 0.0, 0.0, 0.0], eta=30.0, move_price=0.05042550124036127)
    assert np.allclose(x, [3, 0, 11, 3, 7], atol=1e-12)


def test_limits_of_eta_and_price():
    rng = np.random.default_rng(5)
    r, start = rng.exponential(5.0, 6), np.array([3.0, 1, 0, 2, 1, 1])
    assert np.allclose(regularized_step(r, start, 1e-15), start, atol=1e-9)
    assert np.allclose(regularized_step(r, start, 1.0, 1e15), start, atol=1e-9)
    for x in (regularized_step(r, start, 1e15), regularized_step(r, start, 1.0, 0.0)):
        assert np.allclose(x, water_fill(r, 8)) and np.isclose(latency(r, x), water_level(r, 8))
    assert np.array_equal(regularized_step(np.zeros(6), start, 1.0, 0.0), start)
    assert regularized_step([5.0], [7.0]).tolist() == [7.0]                    # one expert
    assert regularized_step([5.0, 1.0], [0.0, 0.0]).tolist() == [0.0, 0.0]     # no extra GPU
    best = water_fill(np.array([6.0, 3.0, 3.0]), 3)
    assert np.allclose(regularized_step([6.0, 3.0, 3.0], best), best)          # already where latency is lowest


@st.composite
def traces(draw):
    "A problem with k >= 1 and a positive price, and an eta."
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    T, m, k = draw(st.integers(1, 20)), draw(st.integers(1, 6)), draw(st.integers(1, 30))
    loads = draw_loads(rng, draw(st.sampled_from(KINDS)), (T, m)) * draw(st.sampled_from([0.1, 1.0, 20.0]))
    return Problem(loads, k, draw(st.sampled_from([0.5, 2.0, 10.0])), draw_start(rng, m, k)), draw(st.sampled_from([0.1, 0.5, 1.0, 3.0, np.log1p(k)])), rng


@settings(max_examples=150, deadline=None)
@given(traces())
def test_movement_is_at_most_eta_times_latency(case):
    p, eta, _ = case
    s = run(p, RegularizedGreedy(eta))
    assert np.all(p.move_price * s.moved <= eta * s.latency * (1 + 1e-9) + 1e-9 * p.extra * p.move_price)


@few
@given(traces())
def test_latency_and_cost_against_the_relaxation(case):
    p, eta, _ = case
    s, opt, w, k = run(p, RegularizedGreedy(eta)), relax(p).value, p.move_price, p.extra
    big = np.log1p(k)
    c = min(1.0, eta / big)
    first = w * c / eta * (p.start * np.log((1 + k) / (1 + p.start))).sum()
    last = w / eta * np.log((1 + s.x[-1]) / (1 + p.start)).sum()
    assert s.latency.sum() <= ((opt + first) / np.sqrt(c) + last) * (1 + 1e-6)
    assert s.cost <= (1 + eta) * (max(1, np.sqrt(big / eta)) * (opt + w * k) + w * k / eta) * (1 + 1e-6)
    if eta <= big:                                                             # the proof goes through the bound, so the bound holds what the proof says
        assert s.latency.sum() <= ((s.bound + first) / np.sqrt(c) + last) * (1 + 1e-6)


class Wander(Policy):
    "Goes anywhere."

    def __init__(self, rng):
        self.rng = rng

    def place(self, loads):
        return draw_start(self.rng, loads.size, self.extra)


@few
@given(traces())
def test_certificate_is_below_the_relaxation_whoever_plays(case):
    p, eta, rng = case
    prefix = np.array([relax(Problem(p.loads[:t + 1], p.extra, p.move_price, p.start)).value for t in range(p.steps)])
    level = np.cumsum(water_level(p.loads, p.extra))
    for policy in (Never(), RegularizedGreedy(eta), Wander(rng)):
        bounds = run(p, policy).bounds
        assert np.all(bounds <= prefix * (1 + 1e-9) + 1e-12)
        assert np.all(bounds >= level * (1 - 1e-9) - 1e-9 * p.extra * p.move_price) and np.all(np.diff(bounds) >= 0)
    alone = Certificate(p.start, p.extra, p.move_price)
    assert np.all(np.array([alone.step(r) for r in p.loads]) <= bounds * (1 + 1e-9) + 1e-9)   # a second source never hurts


def test_certificate_of_free_moves_and_of_nothing():
    r = np.random.default_rng(2).exponential(3.0, (5, 4))
    for w, k in [(0.0, 3), (2.0, 0), (1e9, 3)]:
        s = run(Problem(r, k, w), RegularizedGreedy())
        assert water_level(r, k).sum() * (1 - 1e-9) <= s.bound <= s.cost * (1 + 1e-9)
    assert run(Problem(np.zeros((3, 2)), 2), RegularizedGreedy()).summary().startswith("cost 0 ")


# Loads, start, price; then by policy: latency, l1 movement (price / 2 each), cost; recomputed independently of this package.
WORKED = {
    "equal": (([[20, 4]] * 3 + [[4, 20]] + [[20, 4]] + [[4, 20]] * 3, 4, 2.0),
              {"never": (53.333, 0, 53.333), "chase": (32.0, 28, 60.0), "myopic": (53.333, 0, 53.333), 1.0: (41.104, 14.376, 55.480), np.log(5): (37.898, 17.193, 55.091)}),
    "heavier": (([[18, 2]] * 3 + [[2, 18]] + [[18, 2]] + [[2, 28]] * 3, 4, 2.0),
                {"never": (58.0, 0, 58.0), "chase": (34.8, 28, 62.8), "myopic": (51.0, 2, 53.0), 1.0: (43.262, 14.463, 57.725), 3.0: (37.563, 20.019, 57.582)}),
    "longer": (([[12, 2]] * 5 + [[2, 12]] + [[12, 2]] + [[2, 12]] * 5, 4, 2.0), {"never": (48.0, 0, 48.0), "chase": (28.8, 28, 56.8), "myopic": (48.0, 0, 48.0), 1.0: (37.584, 13.304, 50.888)}),
    "counted once": (([[19, 2]] * 4 + [[2, 19]] + [[19, 2]] + [[2, 19]] * 4, 8, 1.0), {"chase": (21.111, 56, 49.111), "never": (38.0, 0, 38.0), "myopic": (38.0, 0, 38.0), 1.0: (30.002, 21.710, 40.857)}),
}


@pytest.mark.parametrize("name", WORKED)
def test_worked_examples(name):
    (loads, k, w), table = WORKED[name]
    p = Problem(loads, k, w)
    for who, (latency_, l1, cost) in table.items():
        s = run(p, {"never": Never, "chase": Chase, "myopic": Myopic}[who]() if isinstance(who, str) else RegularizedGreedy(who))
        assert np.allclose([s.latency.sum(), 2 * s.moved.sum(), s.cost], [latency_, l1, cost], atol=1.1e-3), who


def test_worked_path_and_bounds():
    p = Problem(WORKED["equal"][0][0], 4)
    s = run(p, RegularizedGreedy())
    assert s.x[:, 0].round(2).tolist() == [2.94, 3.54, 3.94, 2.28, 3.11, 1.75, 0.91, 0.36]
    assert 42.946 <= s.bound <= relax(p).value and np.isclose(relax(p).value, 48.317, atol=1e-3)
    assert run(p, Chase()).x.dtype.kind == "i" and run(p, RegularizedGreedy()).x.dtype.kind == "f"


@pytest.mark.parametrize("policy", [Never(), Chase(), Myopic(), RegularizedGreedy()])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_a_broken_load_leaves_no_trace(policy, bad):
    rng = np.random.default_rng(37)
    loads = rng.exponential(5.0, (60, 5))
    policy.start(np.array([2, 1, 1, 0, 0]), 4)
    path = [policy.step(r) for r in loads[:37]]
    broken = loads[37].copy()
    broken[3] = bad
    with pytest.raises(ValueError, match="step 37: the load of expert 3"):
        policy.step(broken)
    with pytest.raises(ValueError, match="step 37: the loads have shape"):
        policy.step(loads[37, :4])
    assert np.array_equal(policy.x, path[-1]) and policy.taken == 37
    path += [policy.step(r) for r in loads[37:]]
    assert np.array_equal(path, run(Problem(loads, 4, start=[2, 1, 1, 0, 0]), policy).x)      # as if it had not happened


def test_layers_of_a_policy():
    rng = np.random.default_rng(1)
    start, loads = rng.dirichlet(np.ones(5), 3) * 7, rng.exponential(5.0, (4, 3, 5))
    together = RegularizedGreedy(0.7)
    together.start(start, 7, 1.5)
    path = np.array([together.step(r) for r in loads])
    for layer in range(3):
        assert np.allclose(path[:, layer], run(Problem(loads[:, layer], 7, 1.5, start[layer]), RegularizedGreedy(0.7)).x, atol=1e-9)
    loads[0, 2, 4] = np.nan
    with pytest.raises(ValueError, match="step 4: the load of expert 4 of layer 2"):
        together.step(loads[0])


@pytest.mark.parametrize("policy, x0, k, message", [
    (Never(), [1, 2], 4, "sum to extra = 4"), (Never(), [-1, 5], 4, "at least 0"), (Never(), 3, 3, "must be at least 0"), (Never(), [np.nan, 1], 1, "must be at least 0"),
    (Chase(), [0.5, 0.5], 1, "whole GPUs"), (Myopic(), [[1, 0], [0, 1]], 1, "one layer")])
def test_starts_that_are_none(policy, x0, k, message):
    with pytest.raises(ValueError, match=message):
        policy.start(x0, k)


@pytest.mark.parametrize("eta", [0.0, -1.0, np.nan, np.inf])
def test_eta_must_be_positive(eta):
    with pytest.raises(ValueError, match="eta is"):
        RegularizedGreedy(eta)


def test_rounding_protocol():
    "run hands the rounding the start, then each step's loads and fractional placement; the certificate does not depend on it."
    class Floor:
        def start(self, x0, k, move_price):
            self.given, self.seen = (np.array(x0), k, move_price), []

        def step(self, loads, x):
            self.seen.append((loads, x))
            whole = np.floor(x + 1e-9).astype(int)
            whole[np.argmax(x - whole)] += self.given[1] - whole.sum()
            return whole

    p = Problem(np.random.default_rng(0).exponential(6.0, (12, 4)), 9, 1.5)
    rounding, fractional = Floor(), run(p, RegularizedGreedy())
    s = run(p, RegularizedGreedy(), rounding=rounding)
    assert rounding.given[1:] == (9, 1.5) and np.array_equal(rounding.given[0], p.start)
    assert np.array_equal([r for r, _ in rounding.seen], p.loads) and np.array_equal([x for _, x in rounding.seen], fractional.x)
    assert s.x.dtype.kind == "i" and np.array_equal(s.bounds, fractional.bounds)


def test_a_policy_without_place_says_so():
    class Unfinished(Policy):
        pass

    policy = Unfinished()
    policy.start([1, 0], 1)
    with pytest.raises(NotImplementedError, match="Unfinished must define place"):
        policy.step([1.0, 2.0])


def test_front_doors():
    assert experts.run is run and {"Never", "Chase", "Myopic", "RegularizedGreedy", "Certificate"} <= set(dir(experts))
