"""Follow against the optimum, and mixtures against their theorem, on schedules made to hurt them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_or.experts.hindsight import dynamic_program, optimum
from serving_or.experts.model import Problem, Schedule, latency
from serving_or.experts.certificate import run
from serving_or.experts.policies import Chase, Myopic, Never, Policy
from serving_or.experts.regularized_greedy import RegularizedGreedy
from serving_or.experts.predictions import Follow, Mix, Rounded, alternating, ewma, last, noisy, perfect, seasonal, wrong
from serving_or.experts.rounding import Credit, Hysteresis
from serving_or.tools.generators import trace

EPS = [0.01, 0.25, 1.0, 4.0, 100.0]


class Replay(Policy):
    def __init__(self, path):
        self.path = np.asarray(path, float)

    def place(self, loads):
        return self.path[self.taken]


@st.composite
def duels(draw, most=6):
    """A problem and schedules that take turns at being good, in bursts of any length."""
    n, m, k = draw(st.integers(2, most)), draw(st.integers(1, 5)), draw(st.integers(0, 8))
    T = draw(st.integers(1, 60))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    start = rng.multinomial(k, np.full(m, 1 / m))
    kind = draw(st.sampled_from(["corners", "random", "bursts"]))
    if kind == "random":
        paths = k * rng.dirichlet(np.full(m, 0.4), (n, T))
    else:
        sits = np.eye(m)[rng.integers(m, size=n)] * k
        paths = np.repeat(sits[:, None], T, axis=1).astype(float)
        if kind == "bursts":
            paths[:, rng.random(T) < 0.3] = k * np.eye(m)[rng.integers(m)]
    busy = np.repeat(rng.integers(m, size=T), rng.integers(1, 12, size=T))[:T]
    loads = 10.0 ** rng.uniform(-1, 2) * (np.eye(m)[busy] + 0.1 * rng.random((T, m)) * rng.integers(2))
    return Problem(loads, k, float(rng.choice([0.0, 0.3, 2.0, 30.0])), start), paths


def expected(problem, policies, eps):
    """Expected cost of the drawn mixture, from the weights and every possible switch."""
    mix = Mix(policies, eps)
    mix.start(problem.start, problem.extra, problem.move_price)
    total, p, at = 0.0, mix.p, np.tile(problem.start, (len(policies), 1))
    for r in problem.loads:
        mix.step(r)
        new = np.array([policy.x for policy in mix.policies])
        rise, fall = np.maximum(mix.p - p, 0), np.maximum(p - mix.p, 0)
        joint = np.diag(np.minimum(p, mix.p))
        if rise.sum() > 0:
            joint = joint + np.outer(fall, rise / rise.sum())
        moves = np.maximum(new[None] - at[:, None], 0).sum(axis=-1)
        total += mix.p @ latency(r, new) + problem.move_price * (joint * moves).sum()
        p, at = mix.p, new
    return total, mix


@settings(deadline=None, max_examples=200)
@given(duels(), st.sampled_from(EPS))
def test_a_mixture_is_within_its_bound_after_every_step(drawn, eps):
    problem, paths = drawn
    mix, cost, before = Mix([Replay(x) for x in paths], eps), 0.0, problem.start
    mix.start(problem.start, problem.extra, problem.move_price)
    for r in problem.loads:
        x = mix.step(r)
        cost += latency(r, x) + problem.move_price * np.maximum(x - before, 0).sum()
        before = x
        assert np.all(mix.p >= 0) and np.isclose(mix.p.sum(), 1)
        assert cost <= mix.guarantee * (1 + 1e-9) + 1e-9
    assert np.allclose(mix.costs, [Schedule(problem, x).cost for x in paths])
    best, constant = mix.costs.min(), np.log(len(paths)) * problem.move_price * problem.extra / eps
    assert np.isclose(mix.guarantee, (1 + eps) * (best + constant))


@settings(deadline=None, max_examples=60)
@given(duels(), st.sampled_from(EPS))
def test_a_drawn_mixture_is_within_the_bound_in_exact_expectation(drawn, eps):
    problem, paths = drawn
    cost, mix = expected(problem, [Replay(x) for x in paths], eps)
    assert cost <= mix.guarantee * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize("n", [2, 4])
def test_draws_have_the_expected_cost(n):
    rng = np.random.default_rng(4)
    problem = Problem(rng.exponential(8, (30, 3)), 5, start=[2, 2, 1])
    paths = [rng.multinomial(5, rng.dirichlet(np.ones(3)), 30) for _ in range(n)]
    exact, _ = expected(problem, [Replay(x) for x in paths], 1.0)
    costs = []
    for seed in range(300):
        mix = Mix([Replay(x) for x in paths], 1.0, seed)
        mix.start(problem.start, 5)
        costs.append(Schedule(problem, np.array([mix.step(r) for r in problem.loads])).cost)
    assert abs(np.mean(costs) - exact) < 3 * np.std(costs) / np.sqrt(len(costs))


def test_a_drawn_mixture_of_whole_policies_is_whole_and_replays():
    problem = Problem(trace("shifts", 6, 40, 20.0, seed=2), 9)
    policies = [Follow(last, 3), Rounded(RegularizedGreedy(), Credit())]
    first, again = (run(problem, Mix(policies, 1.0, seed=5)) for _ in range(2))
    assert first.x.dtype.kind == "i" and np.array_equal(first.x, again.x)


def test_rounded_is_what_run_rounds():
    problem = Problem(trace("ar", 8, 30, 10.0), 12)
    for rounding in (Hysteresis(), Credit()):
        assert np.array_equal(run(problem, Rounded(RegularizedGreedy(), rounding)).x, run(problem, RegularizedGreedy(), rounding).x)


def test_the_limits_of_eps():
    rng = np.random.default_rng(5)
    problem = Problem(rng.exponential(5, (20, 3)), 4, start=[2, 1, 1])
    paths = 4 * rng.dirichlet(np.ones(3), (3, 20))
    assert np.allclose(run(problem, Mix([Replay(x) for x in paths], 1e-9)).x, paths.mean(axis=0), atol=1e-6)
    mix = Mix([Replay(x) for x in paths], 1e9)
    x = run(problem, mix).x
    leader = np.argmin(np.cumsum([Schedule(problem, p).costs for p in paths], axis=1), axis=0)
    assert np.allclose(x, paths[leader, np.arange(20)])


def test_equal_policies_give_that_policy():
    problem = Problem(trace("ar", 5, 30, 9.0), 7)
    alone = run(problem, RegularizedGreedy())
    for policies in ([RegularizedGreedy()] * 1, [RegularizedGreedy(), RegularizedGreedy()], [RegularizedGreedy() for _ in range(3)]):
        mixed = run(problem, Mix(policies))
        assert np.allclose(mixed.x, alone.x) and np.isclose(mixed.cost, alone.cost)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 3), st.integers(0, 5), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_a_perfect_forecast_of_everything_is_the_optimum(m, k, T, seed):
    rng = np.random.default_rng(seed)
    problem = Problem(np.rint(rng.exponential(6, (T, m))), k, float(rng.choice([0.0, 1.0, 2.0, 1e6])), rng.multinomial(k, np.full(m, 1 / m)))
    followed = run(problem, Follow(perfect(problem.loads), T))
    assert np.isclose(followed.cost, dynamic_program(problem).cost)
    assert np.isclose(run(problem, Follow(last, 0)).latency[0] + problem.move_price * run(problem, Follow(last, 0)).moved[0], run(problem, Myopic()).costs[0])


def test_plans_of_many_experts_are_close_to_the_optimum_and_never_above_bounds():
    problem = Problem(trace("zipf", 12, 25, 20.0, seed=3), 12)
    best = optimum(problem, time_limit=5.0)
    followed = run(problem, Follow(perfect(problem.loads), 25))
    assert best.bound - 1e-6 <= followed.cost <= 1.03 * best.cost
    for policy in (Never(), Chase(), Myopic(), Follow(last), Follow(wrong), Mix([Follow(ewma()), Never()], seed=1)):
        assert run(problem, policy).cost >= best.bound - 1e-6


def test_predictors_say_what_they_say():
    loads = np.arange(20.0).reshape(10, 2)
    seen = loads[:4]
    assert np.array_equal(last(seen, 2), [[6, 7], [6, 7]])
    assert np.array_equal(wrong(seen, 1), [[21, 18]])
    assert np.array_equal(perfect(loads)(seen, 3), loads[4:7]) and len(perfect(loads)(loads, 3)) == 0
    assert np.array_equal(seasonal(3)(seen, 4), [loads[1], loads[2], loads[3], loads[1]])
    assert np.array_equal(seasonal(9)(seen, 1), last(seen, 1))
    mean = seen[0]
    for row in seen[1:]:
        mean = 0.7 * mean + 0.3 * row
    assert np.allclose(ewma(0.3)(seen, 2), [mean, mean])
    assert np.array_equal(noisy(loads, 0.0)(seen, 3), loads[4:7])
    assert np.array_equal(noisy(loads, 0.5, 1)(seen, 3), noisy(loads, 0.5, 1)(seen, 3))
    turns = alternating(perfect(loads), wrong, every=2)
    assert np.array_equal(turns(loads[:2], 1), loads[2:3]) and np.array_equal(turns(loads[:3], 1), wrong(loads[:3], 1))


@pytest.mark.parametrize("m, k", [(1, 4), (3, 0), (6, 2)])
@pytest.mark.parametrize("w", [0.0, 2.0, 1e9])
def test_corners(m, k, w):
    for loads in (np.zeros((3, m)), np.full((1, m), 7.0), np.vstack([np.zeros(m), np.arange(m) + 1.0, np.zeros(m)])):
        problem = Problem(loads, k, w)
        for policy in (Follow(last), Follow(perfect(loads)), Mix([Follow(wrong), RegularizedGreedy()]), Mix([Never(), Chase()], seed=0)):
            schedule = run(problem, policy)
            assert np.isfinite(schedule.cost) and np.allclose(schedule.x.sum(axis=1), k)
            assert w < 1e9 or schedule.moved.sum() < 1e-6 or isinstance(policy, Mix)


def test_a_broken_step_leaves_no_trace():
    good, policy = [[5.0, 1.0], [1.0, 6.0], [1.0, 6.0]], Mix([Follow(ewma()), RegularizedGreedy()])
    expected_ = run(Problem(good, 4), policy).x
    policy.start([2, 2], 4)
    for t, r in enumerate(good):
        for bad in ([np.nan, 1.0], [1.0, -1.0], [1.0]):
            with pytest.raises(ValueError):
                policy.step(bad)
        assert np.array_equal(policy.step(r), expected_[t])


def test_a_broken_forecast_is_named_and_leaves_no_trace():
    answers = iter([np.array([[np.nan, 1.0]]), np.array([[1.0, 1.0]])])
    policy = Follow(lambda seen, horizon: next(answers))
    policy.start([2, 2], 4)
    with pytest.raises(ValueError, match="predictor, after step 0"):
        policy.step([9.0, 1.0])
    assert policy.x.tolist() == [2, 2] and len(policy.seen) == 0
    policy.step([9.0, 1.0])
    assert len(policy.seen) == 1


def test_bad_input_is_named():
    for call, match in [
        (lambda: Mix([]), "at least one policy"),
        (lambda: Mix([Never()], 0.0), "eps"),
        (lambda: Mix([Never()], np.inf), "eps"),
        (lambda: Follow(last, -1), "horizon"),
        (lambda: Follow(last, 1.5), "horizon"),
        (lambda: ewma(0), "share"),
    ]:
        with pytest.raises(ValueError, match=match):
            call()
