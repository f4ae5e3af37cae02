"""Policies: the protocol, what it refuses, and that nothing is shared."""

import numpy as np
import pytest

from serving_or.experts import Chase, Myopic, Never, Policy
from serving_or.experts.model import Problem, Schedule
from serving_or.experts.policies import all_or_nothing, played, rounded, wait_cost, wait_then_move
from serving_or.experts.regularized_greedy import RegularizedGreedy, ReverseEntropy
from serving_or.experts.relaxation import relax
from serving_or.experts.rounding import Hysteresis
from tests.instances import BAD_COUNTS, BAD_PRICES


@pytest.mark.parametrize(
    "policy", [Never(), Chase(), Myopic(), RegularizedGreedy(), ReverseEntropy()]
)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_a_broken_load_leaves_no_trace(policy, bad):
    rng = np.random.default_rng(37)
    loads = rng.exponential(5.0, (60, 5))
    policy.start(np.array([2, 1, 1, 0, 0]), 4)
    path = [policy.step(r) for r in loads[:37]]
    broken = loads[37].copy()
    broken[3] = bad
    with pytest.raises(ValueError, match=r"step 37: loads\[3\] is"):
        policy.step(broken)
    with pytest.raises(ValueError, match="step 37: loads has shape"):
        policy.step(loads[37, :4])
    assert np.array_equal(policy.x, path[-1]) and policy.taken == 37
    path += [policy.step(r) for r in loads[37:]]
    # as if it had not happened
    assert np.array_equal(path, played(Problem(loads, 4, start=[2, 1, 1, 0, 0]), policy))


@pytest.mark.parametrize(
    "policy, x0, k, message",
    [
        (Never(), [1, 2], 4, "x0 sums to 3; it must sum to extra = 4"),
        (Never(), [[2, 2], [1, 2]], 4, r"x0\[1\] sums to 3"),
        (Never(), [-1, 5], 4, r"x0\[0\] is -1.0; it must be a finite number, at least 0"),
        (Never(), 3, 3, "x0 has shape"),
        (Never(), [], 0, "x0 has shape"),
        (Never(), [np.nan, 1], 1, r"x0\[0\] is nan"),
        (Never(), ["1", 0], 1, r"x0\[0\] is '1'"),
        (Never(), None, 1, "x0 is None"),
        (Never(), [1e308, 1e308], 4, "x0 sums to inf"),
        (Never(), np.ma.masked_array([1, 0], [0, 1]), 1, r"x0\[1\] is masked"),
        (Chase(), [0.5, 0.5], 1, r"x0\[0\] is 0.5; it must be a whole number"),
        (Myopic(), [[1, 0], [0, 1]], 1, "one layer"),
    ],
)
def test_starts_that_are_none(policy, x0, k, message):
    with np.errstate(over="ignore"), pytest.raises(ValueError, match=message):
        policy.start(x0, k)


def test_a_policy_without_place_says_so():
    class Unfinished(Policy):
        pass

    policy = Unfinished()
    policy.start([1, 0], 1)
    with pytest.raises(NotImplementedError, match="Unfinished must define place"):
        policy.step([1.0, 2.0])


@pytest.mark.parametrize("extra", [*BAD_COUNTS, 1.0000001])
def test_numbers_of_gpus_that_are_none(extra):
    with pytest.raises(ValueError, match="extra is"):
        Never().start([1, 1], extra)


@pytest.mark.parametrize("price", BAD_PRICES)
def test_prices_that_are_none(price):
    with pytest.raises(ValueError, match="move_price is"):
        Never().start([1, 1], 2, price)


def test_a_policy_must_be_started():
    with pytest.raises(ValueError, match="Chase has no start; call start"):
        Chase().step([1.0, 2.0])


@pytest.mark.parametrize("make", [Never, Chase, Myopic, RegularizedGreedy, ReverseEntropy])
def test_nothing_is_shared(make):
    """What comes out may be changed, and so may what went in."""
    rng = np.random.default_rng(0)
    loads = rng.exponential(5.0, (12, 4))
    start = np.array([3, 2, 1, 1])
    alone, spoilt = make(), make()
    alone.start([3, 2, 1, 1], 7)
    spoilt.start(start, 7)
    start += 5
    for r in loads:
        given = r.copy()
        x = spoilt.step(given)
        assert np.array_equal(given, r)
        assert np.array_equal(x, alone.step(r))
        x += 1
        given[:] = np.nan
    assert not spoilt.x.flags.writeable


class Flaky(Policy):
    """Draws, counts, and fails when it is told to."""

    def __init__(self):
        self.rng = np.random.default_rng(1)
        self.fails = False

    def start(self, x0, extra, move_price=2.0):
        super().start(x0, extra, move_price)
        self.seen = 0

    def place(self, loads):
        self.seen = self.seen + 1
        x = self.extra * self.rng.dirichlet(np.ones(loads.size))
        if self.fails:
            raise RuntimeError("no answer")
        return x


class Mean(Policy):
    """The mean of two others, one of them in a list."""

    def __init__(self, first, second):
        self.first, self.others = first, [second]

    def start(self, x0, extra, move_price=2.0):
        super().start(x0, extra, move_price)
        for policy in (self.first, *self.others):
            policy.start(x0, extra, move_price)

    def place(self, loads):
        return (self.first.step(loads) + self.others[0].step(loads)) / 2


@pytest.mark.parametrize("inner", [Flaky(), Mean(RegularizedGreedy(), Flaky())])
def test_a_step_happens_whole_or_not_at_all(inner):
    """A policy that fails late takes with it the steps of those that had stepped before."""
    flaky = inner if isinstance(inner, Flaky) else inner.others[0]
    problem = Problem(np.random.default_rng(2).exponential(5.0, (9, 3)), 6)
    flaky.rng = np.random.default_rng(1)
    once = played(problem, Mean(Mean(Chase(), RegularizedGreedy()), inner))
    flaky.rng = np.random.default_rng(1)
    policy = Mean(Mean(Chase(), RegularizedGreedy()), inner)
    policy.start(problem.start, 6)
    path = []
    for r in problem.loads:
        flaky.fails = True
        with pytest.raises(RuntimeError, match="no answer"):
            policy.step(r)
        flaky.fails = False
        path.append(policy.step(r))
    assert np.array_equal(path, once) and policy.taken == flaky.taken == flaky.seen == 9


def test_an_interrupted_block_puts_everything_back():
    policy = Never()
    policy.start([1, 1], 2)
    with pytest.raises(KeyboardInterrupt), all_or_nothing(policy):
        policy.taken, policy.new = 7, 1
        raise KeyboardInterrupt
    assert policy.taken == 0 and not hasattr(policy, "new")


@pytest.mark.parametrize(
    "answer", [[1.0], [1.0, 2.0], [np.nan, 4.0], [-1, 5], [1j, 4], None, "ab", [[2, 2]]]
)
def test_a_place_that_is_none_leaves_no_trace(answer):
    class Own(Policy):
        def place(self, loads):
            return answer if loads[0] else self.x

    policy = Own()
    policy.start([2, 2], 4)
    with pytest.raises(ValueError, match=r"step 0: Own.place\(loads\)"):
        policy.step([1.0, 0.0])
    assert policy.taken == 0 and policy.step([0.0, 1.0]).tolist() == [2, 2]


def test_paths_of_nothing_and_of_objects_that_reuse_their_array():
    assert played(Problem(np.empty((0, 3)), 2), Chase()).shape == (0, 3)

    class Buffer:
        def start(self, x0, extra, move_price):
            self.x = np.array(x0, float)

        def step(self, loads):
            self.x[:] = self.x[::-1]
            return self.x

    problem = Problem(np.ones((4, 2)), 3, start=[2, 1])
    assert played(problem, Buffer()).tolist() == [[1, 2], [2, 1], [1, 2], [2, 1]]
    x = np.tile([1.5, 1.5], (4, 1))
    assert np.array_equal(played(problem, Never(), Hysteresis()), rounded(problem, x, Hysteresis()))


@pytest.mark.parametrize("wait", [0, 1, 4, 7, np.inf])
def test_ski_rental_is_a_schedule(wait):
    for n in (1, 3, 7, 8, 12):
        x = np.array([[0, 1] if t < wait else [1, 0] for t in range(n)])
        problem = Problem(np.tile([3.0, 0.0], (n, 1)), 1, 6.0, [0, 1])
        assert np.isclose(Schedule(problem, x).cost, wait_cost(n, wait, 3.0, 6.0))


@pytest.mark.parametrize("price", [2, 4, 8])
def test_waiting_until_it_would_have_paid(price):
    n = np.arange(1, 2000)
    best = np.minimum(wait_cost(n, 0, 2, price), wait_cost(n, np.inf, 2, price))
    worst = [(wait_cost(n, wait, 2, price) / best).max() for wait in range(60)]
    assert worst[price] < 1.5 and abs(np.argmin(worst) - price) <= 1
    for wait in range(13):
        assert "worst ratio" in wait_then_move(wait, price)
        assert "nan" not in wait_then_move(wait, price)


def test_a_part_of_a_gpu_is_cheaper_than_ski_rental():
    "The two ratios that the chapter states against the relaxation."
    r, w, d = 0.05, 4.0, 160
    winter = Problem(np.tile([r, 0.0], (d + 1, 1)), 1, w, [0, 1])
    ratio = wait_cost(d + 1, d, r, w) / relax(winter).value
    assert np.isclose(ratio, 3 / (2 * np.sqrt(2) - 1), rtol=0.01)
    assert np.isclose(relax(winter).value, (2 * np.sqrt(2) - 1) * w, rtol=0.01)
    phases = np.repeat([[r, 0.0], [0.0, r]] * 8, d + 1, axis=0)
    returning = Problem(phases, 1, w, [0.5, 0.5])
    assert np.isclose(relax(returning).value, 16 * 4 / 3 * w, rtol=0.01)


@pytest.mark.parametrize("k", [2, 8, 30])
def test_three_failures(k):
    loads = np.tile([[2.0, 0.0], [0.0, 2.0]], (20, 1))
    problem = Problem(loads, k, 5.0)
    chase = Schedule(problem, played(problem, Chase()))
    assert np.allclose(chase.costs[1:], 5 * k + 2 / (1 + k))
    assert np.isclose(Schedule(problem, played(problem, Never())).cost, 40 * 2 / (1 + k / 2))
    q, r = 2, 12.0
    stay = Problem(np.tile([[r, 0.0]], (30, 1)), k, r / (q * (q + 1)), [q - 1, k - q + 1])
    assert Schedule(stay, played(stay, Myopic())).moved.sum() == 0
    less = Problem(stay.loads, k, 0.99 * r / (q * (q + 1)), stay.start)
    assert Schedule(less, played(less, Myopic())).moved.sum() > 0


def test_a_policy_that_holds_itself_ends():
    policy = Never()
    policy.start([1, 1], 2)
    policy.others = [policy]
    assert policy.step([1.0, 2.0]).tolist() == [1, 1]
