"Follow against the optimum, and mixtures against their theorem, on schedules made to hurt them."

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_or.experts.certificate import run
from serving_or.experts.hindsight import dynamic_program, optimum
from serving_or.experts.level_chain import chain_of, chain_rows, price, threshold_depths
from serving_or.experts.model import Problem, Schedule, latency
from serving_or.experts.policies import Chase, Myopic, Never, Policy, wait_cost
from serving_or.experts.predictions import (
    Follow,
    Mix,
    Rounded,
    alternating,
    ewma,
    last,
    linear_weights,
    noisy,
    perfect,
    planned,
    seasonal,
    softmax_weights,
    spoil,
    wrong,
)
from serving_or.experts.regularized_greedy import RegularizedGreedy, ReverseEntropy
from serving_or.experts.rounding import Credit, Hysteresis, Threshold
from serving_or.tools.generators import trace
from serving_or.tools.programs import solve
from tests.instances import AWKWARD, draw_loads
from tests.long import cases

EPS = [0.01, 0.25, 1.0, 4.0, 100.0]
WEIGHTS = st.sampled_from(["softmax", "linear"])


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
    loads = 10.0 ** rng.uniform(-1, 2) * (
        np.eye(m)[busy] + 0.1 * rng.random((T, m)) * rng.integers(2)
    )
    return Problem(loads, k, float(rng.choice([0.0, 0.3, 2.0, 30.0])), start), paths


def expected(problem, policies, eps, weights="softmax"):
    """Expected cost of the drawn mixture, from the weights and every possible switch."""
    mix = Mix(policies, eps, weights=weights)
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


@settings(deadline=None, max_examples=cases(4000, 200))
@given(duels(), st.sampled_from(EPS), WEIGHTS)
def test_a_mixture_is_within_its_bound_after_every_step(drawn, eps, weights):
    problem, paths = drawn
    mix, cost, before = Mix([Replay(x) for x in paths], eps, weights=weights), 0.0, problem.start
    mix.start(problem.start, problem.extra, problem.move_price)
    for r in problem.loads:
        x = mix.step(r)
        cost += latency(r, x) + problem.move_price * np.maximum(x - before, 0).sum()
        before = x
        assert np.all(mix.p >= 0) and np.isclose(mix.p.sum(), 1)
        assert cost <= mix.guarantee * (1 + 1e-9) + 1e-9
    assert np.allclose(mix.costs, [Schedule(problem, x).cost for x in paths])
    N, wk = len(paths), problem.move_price * problem.extra
    constant = {
        "softmax": (1 + eps) * np.log(N) / eps,
        "linear": (N - 1) ** 2 / N * (1 / (2 * eps) + 1),
    }
    assert np.isclose(mix.guarantee, (1 + eps) * mix.costs.min() + constant[weights] * wk)


@settings(deadline=None, max_examples=cases(2000, 60))
@given(duels(), st.sampled_from(EPS), WEIGHTS)
def test_a_drawn_mixture_is_within_the_bound_in_exact_expectation(drawn, eps, weights):
    problem, paths = drawn
    cost, mix = expected(problem, [Replay(x) for x in paths], eps, weights)
    assert cost <= mix.guarantee * (1 + 1e-9) + 1e-9


@settings(deadline=None, max_examples=cases(4000, 200))
@given(st.lists(st.floats(0, 3) | st.just(np.inf), max_size=6), st.sampled_from(EPS))
def test_straight_weights_are_the_nearest_point(behind, eps):
    """p is the projection: no corner of the simplex lies on the other side of it."""
    behind = np.array([0.0, *behind])
    p, N = linear_weights(behind, eps), behind.size
    assert np.all(p >= 0) and np.isclose(p.sum(), 1)
    finite = np.isfinite(behind)
    assert np.all(p[~finite] == 0)
    point = 1 / N - eps * behind[finite] / max(N - 1, 1)
    away = point - p[finite]
    scale = 1 + np.abs(away).max()
    assert np.all(away - away @ p[finite] <= 1e-9 * scale)
    if N == 2 and finite.all():
        assert np.isclose(p[0], np.clip(0.5 + eps * behind[1] / 2, 0, 1))


def abstract(charges, eps, weights):
    """Cost of the game in which a step costs <p, l> + D delta exactly, D = 1; and the costs."""
    C, p, total = np.zeros(charges.shape[1]), None, 0.0
    weigh = {"linear": linear_weights, "softmax": softmax_weights}[weights]
    p = weigh(C, eps)
    for step in charges:
        C = C + step
        new = weigh(C - C.min(), eps)
        total, p = total + new @ step + np.maximum(new - p, 0).sum(), new
    return total, C


@pytest.mark.parametrize("eps", [0.1, 0.5, 1.0, 3.0])
def test_one_sided_charges_attain_the_constant_of_straight_weights(eps):
    steps = 20000
    charges = np.column_stack([np.full(steps, 1.2 / eps / steps), np.zeros(steps)])
    total, C = abstract(charges, eps, "linear")
    assert C.min() == 0 and 0.999 < total / (1 / (4 * eps) + 0.5) <= 1
    # and turns attain the factor
    turns = np.zeros((4000, 2))
    turns[::2, 0] = turns[1::2, 1] = 1e-4
    total, C = abstract(turns, eps, "linear")
    assert np.isclose(total, (1 + eps) * C.min(), rtol=1e-3)


@settings(deadline=None, max_examples=cases(4000, 150))
@given(st.integers(2, 6), st.sampled_from(EPS), st.integers(0, 2**32 - 1), WEIGHTS)
def test_the_game_never_costs_more_than_the_constants(N, eps, seed, weights):
    """Bursts on one, on some, and on the leader, which is what hurts."""
    rng = np.random.default_rng(seed)
    C, p, total = np.zeros(N), np.full(N, 1 / N), 0.0
    weigh = {"linear": linear_weights, "softmax": softmax_weights}[weights]
    for _ in range(80):
        kind = rng.integers(3)
        aim = {0: rng.integers(N), 1: C.argmin(), 2: p.argmax()}[int(kind)]
        step = np.where(np.arange(N) == aim, rng.exponential(0.3 / eps), 0.0)
        C = C + step
        new = weigh(C - C.min(), eps)
        total, p = total + new @ step + np.maximum(new - p, 0).sum(), new
        constant = {
            "softmax": (1 + eps) * np.log(N) / eps,
            "linear": (N - 1) ** 2 / N * (1 / (2 * eps) + 1),
        }[weights]
        assert total <= ((1 + eps) * C.min() + constant) * (1 + 1e-9)


@st.composite
def forecasts(draw):
    "A problem with few placements, forecasts made at every step, a horizon."
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    m, k, T = (int(n) for n in rng.integers([1, 0, 1], [5, 5, 14]))
    H = draw(st.integers(0, 6))
    kind = draw(st.sampled_from(["lognormal", "integers", "sparse", "decades", "equal"]))
    loads = draw_loads(rng, kind, (T, m)) * draw(st.sampled_from([0.1, 1.0, 20.0]))
    off = draw(st.sampled_from([0.0, 0.3, 3.0]))
    ends = draw(st.booleans())  # whether the forecast knows where the trace ends
    told = {}
    for t in range(T):
        truth = np.vstack([loads, np.zeros((H, m))])[t + 1 : t + 1 + H]
        guess = truth * np.exp(off * rng.standard_normal(truth.shape))
        if not ends:
            guess[max(T - t - 1, 0) :] = rng.exponential(loads.mean() + 1e-9, (H, m))[
                max(T - t - 1, 0) :
            ]
        told[t] = guess
    w = float(rng.choice([0.0, 0.5, 2.0, 20.0]))
    problem = Problem(loads, k, w, rng.multinomial(k, np.full(m, 1 / m)))
    return problem, H, lambda seen, horizon: told[len(seen) - 1][:horizon], told


def error(problem, told, start, h):
    "The error of the forecast made ``h`` steps before, in the block that begins in ``start``."
    t = start + h
    truth = problem.loads[t] if t < problem.steps else np.zeros(problem.experts)
    off = np.zeros_like(truth) if h == 0 else truth - told[start][h - 1]
    return np.maximum(off, 0).max() + np.maximum(-off, 0).max()


@settings(deadline=None, max_examples=cases(3000, 80))
@given(forecasts())
def test_committed_plans_are_within_their_bound_for_every_phase_and_on_average(drawn):
    problem, H, predictor, told = drawn
    T, wk = problem.steps, problem.move_price * problem.extra
    best, costs = dynamic_program(problem).cost, []
    for phase in range(H + 1):
        policy = Follow(predictor, H, commit=True)
        policy.start(problem.start, problem.extra, problem.move_price)
        policy.phase = phase
        path = np.array([policy.step(r) for r in problem.loads])
        costs.append(Schedule(problem, path).cost)
        starts = sorted({0} | {t for t in range(T) if (t + phase) % (H + 1) == 0})
        ends = [*starts[1:], starts[-1] + H + 1 - (starts[-1] + phase) % (H + 1)]
        wrongs = sum(
            error(problem, told, a, t - a) for a, b in zip(starts, ends) for t in range(a, b)
        )
        bound = best + (len(starts) - 1) * wk + wrongs
        assert costs[-1] <= bound * (1 + 1e-9) + 1e-9
        assert phase > 0 or len(starts) - 1 == (T - 1) // (H + 1)
    mean = sum(
        error(problem, told, max(t - h, 0), min(h, t))
        for t in range(T + H)
        for h in range(H + 1)
        if t - h < T
    ) / (H + 1)
    bound = best + (T - 1) / (H + 1) * wk + mean
    assert np.mean(costs) <= bound * (1 + 1e-9) + 1e-9


@settings(deadline=None, max_examples=cases(1000, 40))
@given(forecasts(), st.floats(0, 1))
def test_forecasts_within_a_factor(drawn, delta):
    problem, H, _, _ = drawn
    rng = np.random.default_rng(problem.steps)

    def near(seen, horizon):
        future = problem.loads[len(seen) : len(seen) + horizon]
        return future * (1 + delta) ** rng.uniform(-1, 1, future.shape)

    cost = run(problem, Follow(near, H, commit=True), certify=False).cost
    joins = (problem.steps - 1) // (H + 1) * problem.move_price * problem.extra
    bound = (1 + delta) ** 2 * (dynamic_program(problem).cost + joins)
    assert cost <= bound * (1 + 1e-9) + 1e-9


def test_the_receding_plan_procrastinates():
    """Never moves, where the committed plan moves once; one step of perfect foresight."""
    loads = np.tile([[0, 0, 0], [0, 7.5, 7.5], [1.5, 0, 6]], (160, 1))
    problem = Problem(loads, 2, 3.0, [0, 0, 2])
    receding = run(problem, Follow(perfect(loads), 1), certify=False)
    assert receding.cost == 1520 and receding.moved.sum() == 0
    costs = {}
    for seed in range(4):
        policy = Follow(perfect(loads), 1, commit=True, seed=seed)
        cost = run(problem, policy, certify=False).cost
        costs[cost] = policy.phase
    assert costs == {1083.0: 0, 1085.75: 1} and dynamic_program(problem).cost == 1083


def test_phases_are_drawn_evenly_and_replay():
    phases = []
    for seed in range(400):
        policy = Follow(last, 3, commit=True, seed=seed)
        for _ in range(2):
            policy.start([1, 1], 2)
            phases.append(policy.phase)
        assert phases[-1] == phases[-2]
    assert np.all(np.abs(np.bincount(phases, minlength=4) / 800 - 0.25) < 0.07)
    for policy in (Follow(last, 3, commit=True), Follow(last, 3)):
        policy.start([1, 1], 2)
        assert policy.phase == 0


def test_a_plan_that_is_over_before_its_block_is_made_anew():
    asked = []

    def short(seen, horizon):
        asked.append((len(seen), horizon))
        return last(seen, min(horizon, 1))

    policy = Follow(short, 4, commit=True)
    policy.start([2, 2], 4)
    for _ in range(12):
        policy.step([9.0, 1.0])
    assert asked == [(1, 4), (3, 2), (5, 0), (6, 4), (8, 2), (10, 0), (11, 4)]


@pytest.mark.parametrize("eps", [0.01, 0.1, 0.25, 1 / 3])
def test_strict_trust(eps):
    """The threshold rule against every load, with every forecast; its bounds are attained."""
    w, small = 1.0, 0.0005
    n = np.arange(1, 9001)
    best = np.minimum(wait_cost(n, np.inf, small, w), wait_cost(n, 0, small, w))
    most, soon = 2 * w * (1 + eps) / (1 - eps), 4 * eps * w / (1 - eps)
    ratio = {y: wait_cost(n, np.round(y / small), small, w) / best for y in (most, soon)}
    right = np.where(n * small >= most, ratio[soon], ratio[most])
    worst = max((3 + eps) / 2, 1 + (1 - eps) / (4 * eps))
    assert right.max() <= 1 + eps + 0.02
    assert abs(max(r.max() for r in ratio.values()) - worst) < 1.5 * worst * small / soon + 0.02
    # a rule that waits longer than ``soon`` is not consistent just above the threshold
    later = wait_cost(n, np.round(1.2 * soon / small) + 2, small, w) / best
    above = n[n * small > most][0]
    assert later[above - 1] > 1 + eps - 1e-9


@pytest.mark.parametrize("eps", [0.05, 0.2, 1 / 3])
def test_a_forecast_at_the_threshold_is_trusted(eps):
    "Where the load is what was said, and just enough, to wait for it and then move is too dear."
    most, soon = 2 * (1 + eps) / (1 - eps), 4 * eps / (1 - eps)
    best = min(most, 1 + most / 2)
    assert soon + 1 + (most - soon) / 2 == pytest.approx((1 + eps) * best)
    assert most + 1 > 1.2 * (1 + eps) * best


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
        assert np.array_equal(
            run(problem, Rounded(RegularizedGreedy(), rounding)).x,
            run(problem, RegularizedGreedy(), rounding).x,
        )


def test_the_limits_of_eps():
    rng = np.random.default_rng(5)
    problem = Problem(rng.exponential(5, (20, 3)), 4, start=[2, 1, 1])
    paths = 4 * rng.dirichlet(np.ones(3), (3, 20))
    assert np.allclose(
        run(problem, Mix([Replay(x) for x in paths], 1e-9)).x, paths.mean(axis=0), atol=1e-6
    )
    mix = Mix([Replay(x) for x in paths], 1e9)
    x = run(problem, mix).x
    leader = np.argmin(np.cumsum([Schedule(problem, p).costs for p in paths], axis=1), axis=0)
    assert np.allclose(x, paths[leader, np.arange(20)])


def test_equal_policies_give_that_policy():
    problem = Problem(trace("ar", 5, 30, 9.0), 7)
    alone = run(problem, RegularizedGreedy())
    for policies in (
        [RegularizedGreedy()] * 1,
        [RegularizedGreedy(), RegularizedGreedy()],
        [RegularizedGreedy() for _ in range(3)],
    ):
        mixed = run(problem, Mix(policies))
        assert np.allclose(mixed.x, alone.x) and np.isclose(mixed.cost, alone.cost)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 3), st.integers(0, 5), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_a_perfect_forecast_of_everything_is_the_optimum(m, k, T, seed):
    rng = np.random.default_rng(seed)
    problem = Problem(
        np.rint(rng.exponential(6, (T, m))),
        k,
        float(rng.choice([0.0, 1.0, 2.0, 1e6])),
        rng.multinomial(k, np.full(m, 1 / m)),
    )
    followed = run(problem, Follow(perfect(problem.loads), T))
    assert np.isclose(followed.cost, dynamic_program(problem).cost)
    assert np.isclose(
        run(problem, Follow(last, 0)).latency[0]
        + problem.move_price * run(problem, Follow(last, 0)).moved[0],
        run(problem, Myopic()).costs[0],
    )


def test_plans_are_exact_up_to_200_placements_and_else_the_best_threshold():
    assert Schedule(AWKWARD, planned(AWKWARD)).cost == 22.0  # no threshold gives it
    for seed in range(20):
        problem = Problem(np.random.default_rng(seed).exponential(10, (8, 8)), 5)
        chain = chain_of(problem)
        u = solve(chain_rows(chain), relaxed=True).x[: chain.events]
        least = min(price(chain, threshold_depths(chain, u, 6)).min(), price(chain, [0] * 8))
        assert Schedule(problem, planned(problem)).cost <= least * (1 + 1e-9)


def test_plans_of_many_experts_are_close_to_the_optimum_and_never_above_bounds():
    problem = Problem(trace("zipf", 12, 25, 20.0, seed=3), 12)
    best = optimum(problem, time_limit=5.0)
    followed = run(problem, Follow(perfect(problem.loads), 25))
    assert best.bound - 1e-6 <= followed.cost <= 1.03 * best.cost
    for policy in (
        Never(),
        Chase(),
        Myopic(),
        Follow(last),
        Follow(wrong),
        Follow(ewma(), commit=True, seed=1),
        Mix([Follow(ewma()), Never()], seed=1),
    ):
        assert run(problem, policy).cost >= best.bound - 1e-6


def test_predictors_say_what_they_say():
    loads = np.arange(20.0).reshape(10, 2)
    seen = loads[:4]
    assert np.array_equal(last(seen, 2), [[6, 7], [6, 7]])
    assert np.array_equal(wrong(seen, 1), [[21, 18]])
    assert (
        np.array_equal(perfect(loads)(seen, 3), loads[4:7]) and len(perfect(loads)(loads, 3)) == 0
    )
    assert np.array_equal(seasonal(3)(seen, 4), [loads[1], loads[2], loads[3], loads[1]])
    assert np.array_equal(seasonal(9)(seen, 1), last(seen, 1))
    mean = seen[0]
    for row in seen[1:]:
        mean = 0.7 * mean + 0.3 * row
    assert np.allclose(ewma(0.3)(seen, 2), [mean, mean])
    assert np.array_equal(noisy(loads, 0.0)(seen, 3), loads[4:7])
    assert np.array_equal(noisy(loads, 0.5, 1)(seen, 3), noisy(loads, 0.5, 1)(seen, 3))
    turns = alternating(perfect(loads), wrong, every=2)
    assert np.array_equal(turns(loads[:2], 1), loads[2:3]) and np.array_equal(
        turns(loads[:3], 1), wrong(loads[:3], 1)
    )


@pytest.mark.parametrize("m, k", [(1, 4), (3, 0), (6, 2)])
@pytest.mark.parametrize("w", [0.0, 2.0, 1e9])
def test_corners(m, k, w):
    for loads in (
        np.zeros((3, m)),
        np.full((1, m), 7.0),
        np.vstack([np.zeros(m), np.arange(m) + 1.0, np.zeros(m)]),
    ):
        problem = Problem(loads, k, w)
        for policy in (
            Follow(last),
            Follow(perfect(loads), commit=True, seed=3),
            Mix([Follow(wrong), RegularizedGreedy()]),
            Mix([Never(), Chase(), ReverseEntropy()], weights="linear"),
            Mix([Never(), Chase()], seed=0),
        ):
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
    with pytest.raises(ValueError, match=r"step 0: forecast\[0, 0\] is nan"):
        policy.step([9.0, 1.0])
    assert policy.x.tolist() == [2, 2] and len(policy.seen) == 0
    policy.step([9.0, 1.0])
    assert len(policy.seen) == 1


def flaky(predictor, fails):
    "A predictor that fails the first time it is asked after some steps."
    left = set(fails)

    def predict(seen, horizon):
        if len(seen) in left:
            left.remove(len(seen))
            raise ConnectionError("no forecast")
        return predictor(seen, horizon)

    return predict


def mixtures(make):
    "A feed that may fail, last, first, nested and drawn; ``make`` gives the feeds."
    yield Mix([RegularizedGreedy(), Follow(make(), 3)])
    yield Mix([Follow(make(), 3), ReverseEntropy()], weights="linear")
    yield Mix([Follow(make(), 0, commit=True, seed=2), RegularizedGreedy()])
    inner = Mix([Rounded(RegularizedGreedy(), Credit()), Follow(make(), 3)], seed=4)
    yield Mix([Rounded(RegularizedGreedy(), Threshold(1)), inner, Chase()], 0.5, seed=2)


def test_a_feed_that_fails_leaves_all_members_as_they_were():
    """Members before the one that fails had stepped once more, and costs meant nothing."""
    problem = Problem(trace("shifts", 4, 20, 20.0, seed=2), 6)
    fails = range(2, 21, 3)
    pairs = zip(mixtures(lambda: last), mixtures(lambda: flaky(last, fails)), strict=True)
    for whole, broken in pairs:
        expected_ = run(problem, whole)
        broken.start(problem.start, problem.extra, problem.move_price)
        failed = 0
        for t, r in enumerate(problem.loads):
            try:
                x = broken.step(r)
            except ConnectionError:
                failed += 1
                x = broken.step(r)
            assert np.array_equal(x, expected_.x[t])
        assert failed == len(fails)
        assert np.array_equal(broken.costs, whole.costs) and broken.guarantee == whole.guarantee
        assert [p.taken for p in broken.policies] == [20] * len(broken.policies)


def test_a_rounding_that_fails_gives_the_policy_its_step_back():
    class Fussy(Credit):
        fail = True

        def targets(self, x):
            if self.fail:
                raise RuntimeError("not now")
            return super().targets(x)

    rounding = Fussy()
    policy = Rounded(RegularizedGreedy(), rounding)
    policy.start([2, 2], 4)
    with pytest.raises(RuntimeError):
        policy.step([9.0, 1.0])
    assert policy.policy.taken == policy.taken == 0
    Fussy.fail = False
    other = Rounded(RegularizedGreedy(), Credit())
    other.start([2, 2], 4)
    assert np.array_equal(policy.step([9.0, 1.0]), other.step([9.0, 1.0]))


def test_a_start_that_fails_leaves_all_members_as_they_were():
    mix = Mix([RegularizedGreedy(), Chase()])
    mix.start([2, 2], 4)
    mix.step([9.0, 1.0])
    before = [p.x.tolist() for p in mix.policies]
    with pytest.raises(ValueError, match="x0"):
        mix.start([1.5, 2.5], 4)  # the chase needs whole GPUs, the other one does not
    assert [p.x.tolist() for p in mix.policies] == before and mix.taken == 1


def test_one_object_in_two_places_is_refused():
    p, credit = RegularizedGreedy(), Credit()
    for build in (
        lambda: Mix([p, p]),
        lambda: Mix([p, Mix([p])]),
        lambda: Mix([Rounded(p, credit), p]),
        lambda: Mix([Rounded(p, credit), Rounded(RegularizedGreedy(), credit)]),
    ):
        with pytest.raises(ValueError, match="in two places"):
            build()
    Mix([p, RegularizedGreedy()])


def test_nothing_is_shared():
    "A step may be changed by who asked for it, and a predictor can only read."
    problem = Problem(trace("ar", 4, 10, 9.0), 6)
    for make in (lambda: Follow(last, 2), *(lambda p=p: p for p in mixtures(lambda: last))):
        policy = make()
        policy.start(problem.start, 6)
        sums = []
        for r in problem.loads:
            x = policy.step(r)
            sums.append(x.sum())
            x += 1
        assert np.allclose(sums, 6)

    def writes(seen, horizon):
        seen[0] = 0.0

    policy = Follow(writes, 2)
    policy.start([2, 2], 4)
    with pytest.raises(ValueError, match="read-only"):
        policy.step([9.0, 1.0])
    with pytest.raises(ValueError, match="read-only"):
        policy.seen[:] = 1.0
    future = np.ones((2, 2))
    policy = Follow(lambda seen, horizon: future, 2)
    policy.start([2, 2], 4)
    policy.step([9.0, 1.0])
    assert future.flags.writeable and np.array_equal(future, np.ones((2, 2)))


@pytest.mark.parametrize(
    "forecast, match",
    [
        (np.ones((3, 2)), "shape"),  # transposed
        (np.ones((5, 3)), "at most 4 rows"),
        (np.ones(3), "shape"),
        (np.ones((1, 1, 3)), "shape"),
        ([[1, 2, -1]], r"forecast\[0, 2\] is -1"),
        ([[1, 2, "3"]], "must be a number"),
        ([[1, 2, 3j]], "must be a number"),
        (None, "must be a number"),
        (np.ma.masked_array([[1.0, 2, 3]], [[0, 1, 0]]), "masked"),
        ([[np.inf, 1, 1]], "finite"),
    ],
)
def test_what_is_no_forecast_is_refused(forecast, match):
    policy = Follow(lambda seen, horizon: forecast, 4)
    policy.start([1, 1, 1], 3)
    with pytest.raises(ValueError, match=match):
        policy.step([3.0, 2.0, 1.0])
    assert policy.taken == 0 and len(policy.seen) == 0


def test_short_and_empty_forecasts_are_taken():
    for forecast in ([], np.empty((0, 3)), [[1, 2, 3]], np.ones((4, 3))):
        policy = Follow(lambda seen, horizon, ahead=forecast: ahead, 4)
        policy.start([1, 1, 1], 3)
        assert policy.step([3.0, 2.0, 1.0]).sum() == 3


def test_a_long_silence_ends():
    "Exponential weights make loads denormal after some hundred idle steps."
    policy = Follow(ewma(0.9), 2)
    policy.start([2, 2, 0], 4, 2.0)
    for t in range(400):
        x = policy.step([9.0, 1.0, 0.0] if t == 0 else [0.0, 0.0, 0.0])
    assert x.sum() == 4


def test_bad_input_is_named():
    for call, match in [
        (lambda: Mix([]), "at least one policy"),
        (lambda: Mix(None), "policies is None"),
        (lambda: last([], 2), "seen"),
        (lambda: last([[1.0, 2.0]], -1), "horizon"),
        (lambda: Mix([Never]), r"policies\[0\]"),
        (lambda: Mix([3]), r"policies\[0\]"),
        (lambda: Mix([Never()], 0.0), "eps"),
        (lambda: Mix([Never()], np.inf), "eps"),
        (lambda: Mix([Never()], np.nan), "eps"),
        (lambda: Mix([Never()], seed=-1), "seed"),
        (lambda: Rounded(Never(), None), "rounding"),
        (lambda: Follow(last, -1), "horizon"),
        (lambda: Follow(last, 1.5), "horizon"),
        (lambda: Follow(last, np.nan), "horizon"),
        (lambda: Follow("last"), "predictor"),
        (lambda: Follow(last, 3, commit=1), "commit is 1"),
        (lambda: Follow(last, 3, seed=1), "seed is 1; only a committed plan draws"),
        (lambda: Follow(last, 3, commit=True, seed=-1), "seed"),
        (lambda: Mix([Never()], weights="straight"), "weights is 'straight'"),
        (lambda: ewma(0), "share"),
        (lambda: ewma(np.nan), "share"),
        (lambda: seasonal(0), "period"),
        (lambda: alternating(last, wrong, 0), "every"),
        (lambda: noisy([[1.0, 2.0]], -1.0), "spread"),
        (lambda: perfect([1.0, 2.0]), "loads"),
        (lambda: perfect([[1.0, np.nan]]), r"loads\[0, 1\]"),
    ]:
        with pytest.raises(ValueError, match=match):
            call()


@pytest.mark.parametrize("kind", ["mirrored", "random", "late"])
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_live_example(kind, share):
    assert "guaranteed for the mixture" in spoil(kind, share, 0.25)
