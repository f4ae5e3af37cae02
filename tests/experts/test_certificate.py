"""The certificate for any policy, and runs: worked examples, roundings, what is refused."""

import pickle
import warnings
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings

from bench.experts_certificate import FirstEdition, Grid, many_traces, traced
from serving_or.experts import certificate
from serving_or.experts.certificate import (
    Certificate,
    burst_bounds,
    burst_guesses,
    certified,
    pool_bounds,
    run,
    step_multipliers,
    tangents,
)
from serving_or.experts.model import Problem, Schedule, water_level
from serving_or.experts.policies import Chase, Myopic, Never, Policy, played
from serving_or.experts.regularized_greedy import (
    RegularizedGreedy,
    ReverseEntropy,
    reverse_factor,
    reverse_step,
)
from serving_or.experts.relaxation import lower_bound, relax
from serving_or.experts.rounding import Credit, Hysteresis, Threshold
from tests.instances import (
    BAD_COUNTS,
    BAD_PRICES,
    WORKED,
    best_schedule,
    draw_start,
    layer_steps,
    online_problems,
    small,
)
from tests.long import cases

few = settings(max_examples=cases(1000, 30))


class Wander(Policy):
    "Goes anywhere."

    def __init__(self, rng):
        self.rng = rng

    def place(self, loads):
        return draw_start(self.rng, loads.size, self.extra)


@few
@given(online_problems())
def test_certificate_is_below_the_relaxation_whoever_plays(case):
    p, eta, rng = case
    prefix = np.array(
        [
            relax(Problem(p.loads[: t + 1], p.extra, p.move_price, p.start)).value
            for t in range(p.steps)
        ]
    )
    level = np.cumsum(water_level(p.loads, p.extra))
    bounds = run(p, Never()).bounds
    assert np.all(bounds <= prefix * (1 + 1e-9) + 1e-12)
    assert np.all(bounds >= level * (1 - 1e-9)) and np.all(np.diff(bounds) >= 0)
    for policy in (RegularizedGreedy(eta), Wander(rng)):
        assert np.array_equal(run(p, policy).bounds, bounds)


def prefixes(p):
    "The problems of the first step, of the first two, ..."
    return [Problem(p.loads[:t], p.extra, p.move_price, p.start) for t in range(1, p.steps + 1)]


def stepped(p):
    "A certificate after each step, and itself."
    c = Certificate(p.start, p.extra, p.move_price)
    return np.array([c.step(r) for r in p.loads]), c


def test_certificate_is_at_most_the_best_schedule_of_every_prefix():
    """Against dynamic programming: ties, zeros, idle experts, silent steps, no price, no GPUs."""
    for seed in range(cases(500)):
        p = small(seed)
        best = np.array([best_schedule(q) for q in prefixes(p)])
        assert np.all(stepped(p)[0] <= best * (1 + 1e-12)), seed


def test_certificate_is_at_least_that_of_the_first_edition():
    """Which had 50 rules for multipliers along one path: on 57 of 60 traces and more."""
    better = []
    for case in many_traces()[:: 1 if cases(60, 15) == 60 else 4]:
        p = traced(*case)
        peer = FirstEdition(p.start, p.extra)
        before = [peer.step(r) for r in p.loads]
        better.append(stepped(p)[0][-1] >= before[-1])
    assert np.mean(better) >= 0.95


def test_tangents_lie_below_and_close():
    for k in (0, 1, 3, 64, 10_000):
        kinks, slopes = tangents(k)
        x = np.unique(np.concatenate([np.linspace(0, k, 2000), kinks]))
        v = 1 / np.sqrt(-slopes)
        largest = (2 / v - (1 + x[:, None]) / v**2).max(axis=1)
        assert np.all(largest <= 1 / (1 + x) * (1 + 1e-12))
        assert np.all(largest >= 1 / (1 + x) / np.cosh(0.075) ** 2 * (1 - 1e-12))
        # and the pieces between kinks are those of the largest
        ends = np.concatenate([[0.0], kinks, [k]])
        value = 1 + np.cumsum(np.append(0.0, slopes * np.diff(ends)))
        assert np.allclose(value, (2 / v - (1 + ends[:, None]) / v**2).max(axis=1), atol=1e-12)


@few
@given(online_problems())
def test_tangents_against_a_grid_of_multipliers(case):
    """The same work functions seen from the other side, from formulas that share nothing; and a
    grid that is interpolated proves at least what its points prove.
    """
    p, _, _ = case
    c = Certificate(p.start, p.extra, p.move_price)
    fine, rough, points = (
        Grid(p.start, p.extra, p.move_price, 1.0, (0.6,), *how)
        for how in ((199, True), (12, True), (12, False))
    )
    for r in p.loads:
        value = c.step(r) and c._value[0, 1, 1]
        for peer in (fine, rough, points):
            peer.step(r)
        free = fine.W[0].max(axis=1).sum() - fine.paid[0]
        size = np.abs(fine.W[0]).sum() + fine.paid[0]
        assert value <= free + 2e-3 * size and free <= value + 0.02 * size
        assert points.bound <= rough.bound + 1e-9 * size and rough.bound <= fine.bound + 1e-9 * size


@settings(max_examples=cases(4000))
@given(layer_steps())
def test_multipliers_of_a_step_are_weights_and_a_charge(case):
    """Whatever the step; and they meet the optimality conditions where no expert is partial."""
    r, before, eta, w = case
    x = reverse_step(r, before, eta, w)
    p, lam, L = step_multipliers(r, before, x, np.array([w / eta]))
    n, q = 1 + x, 1 + before
    assert np.isclose(p.sum(), 1) and np.all(p >= 0) and lam >= 0 and L == (r / n).max()
    assert np.all(p[r < L * n * (1 - 1e-6)] == 0)
    if L > 0 and np.all(x[p > 0] > 1e-6):
        rise = w / eta * (n - q)
        assert np.allclose((p * L)[p > 0], (rise + lam * n)[p > 0], rtol=1e-6, atol=1e-9 * (L + w))


def test_multipliers_beside_an_expert_that_is_nearly_as_slow():
    before = np.array([2.0, 2.0])
    x = reverse_step([20.0, 13.5], before, 0.5, 2.0)
    p, lam, L = step_multipliers(np.array([20.0, 13.5]), before, x, np.array([4.0]))
    assert 0.99 < 13.5 / (1 + x[1]) / L < 1 and p.tolist() == [1, 0]
    assert np.isclose(lam * (1 + x[0]), L - 4 * (x[0] - 2))


def test_rounding_never_lifts_a_bound():
    """Where the certificate is the cost itself, against exact sums: after every step."""
    rng = np.random.default_rng(0)
    for loads in (np.full(1000, 0.1), rng.exponential(size=300), 10.0 ** rng.uniform(-9, 9, 300)):
        for k in (0, 3):
            c, cost = Certificate([k], k, 1.0), Fraction(0)
            for r in loads:
                cost += Fraction(r) / (1 + k)
                bound = c.step([r])
                assert cost * (1 - Fraction(1, 10**5 if k else 10**11)) <= bound <= cost


def test_a_policy_within_twice_the_certificate():
    """ReverseEntropy at 1/2, after every step: on random loads, on bursts, and on big steps."""
    rng = np.random.default_rng(0)
    for seed in range(cases(400)):
        m, k, T = rng.integers(2, 7), int(rng.integers(1, 60)), int(rng.integers(1, 25))
        loads = rng.exponential(size=(T, m)) * 10.0 ** rng.uniform(-2, 3)
        loads *= rng.random((T, m)) < rng.choice([0.2, 1.0])
        if seed % 4 == 0:
            loads = np.eye(m)[rng.integers(0, m, T)] * 2.0 * (1 + k) ** 2
        p = Problem(loads, k, 2.0, draw_start(rng, m, k))
        bounds, c = stepped(p)
        s = Schedule(p, played(p, ReverseEntropy(0.5)))
        assert np.all(np.cumsum(s.costs) <= 2 * bounds * (1 + 1e-8))
        latencies = (c._latency * certificate._FACTORS).max()
        assert latencies <= relax(p).value * (1 + 1e-7)
    assert np.isclose(certificate._FACTORS[0], reverse_factor(0.5))


@pytest.mark.parametrize("k, r", [(16, 0.1), (16, 1.0), (16, 30.0), (64, 1.0), (64, 30.0)])
def test_a_burst_of_any_length(k, r):
    """Within 1.15 of the optimum, as long as the burst may last, and beyond (1 + k)^2."""
    steps = int(2 * (1 + k) ** 2 / r)
    steps = min(steps, cases(10_000, 700))
    c = Certificate([k, 0], k, 1.0)
    bounds = np.array([c.step([0, r]) for _ in range(steps)])
    ratio = burst_cost(np.full(steps, r), k) / bounds
    assert np.all(ratio >= 1 - 1e-9) and ratio.max() < 1.15


def burst_cost(loads, k, w=1.0):
    "The optimum after each step of a burst."
    load = np.cumsum(loads)
    x = np.clip(np.sqrt(load / w) - 1, 0, k)
    return load / (1 + x) + w * x


def burst_loads(rng, T=40):
    "Loads from far below the price to far above, rough or smooth."
    return rng.exponential(size=T) * 10.0 ** (rng.uniform(-3, 3) + rng.uniform(-2, 2, T))


def test_a_pool_proves_every_burst_up_to_a_factor():
    rng = np.random.default_rng(1)
    for _ in range(cases(2000)):
        k, q, w = int(rng.integers(0, 2000)), rng.uniform(1.02, 1.6), 10.0 ** rng.uniform(-2, 2)
        r = w * burst_loads(rng)
        optimum, bound = burst_cost(r, k, w), pool_bounds(r, k, w, q)
        assert np.allclose(optimum, certificate.burst_cost(r, k, w), rtol=1e-12)
        assert np.all(bound <= optimum * (1 + 1e-9)) and np.all(optimum < q * bound)
        # evenly spaced guesses, with the price added on both sides
        n = np.geomspace(1, 1 + k, 1 + int(np.ceil(np.log1p(k) / (2 * np.log(q)))))
        fallen = np.minimum(np.cumsum(r) / w / n[:, None] ** 2, 1)
        bound = burst_bounds(r, fallen, k, w).max(axis=0)
        assert np.all(optimum + w <= q * (bound + w) * (1 + 1e-9))


@pytest.mark.parametrize("k", [64, 256, 1024])
def test_a_pool_over_all_lengths(k):
    r = np.ones(cases(k * k, 1 << 16) if k > 256 else k * k)
    worst = (burst_cost(r, k) / pool_bounds(r, k)).max()
    assert 1.07 < worst < 1.0860 and burst_guesses(k).size <= 46


def test_bounds_of_a_burst_are_those_of_the_dual():
    """The same multipliers through `lower_bound`, which finds the best paid falls by itself."""
    rng = np.random.default_rng(2)
    for _ in range(cases(1000)):
        k, w, T = int(rng.integers(1, 50)), 10.0 ** rng.uniform(-1, 1), int(rng.integers(1, 30))
        p = Problem(np.column_stack([np.zeros(T), burst_loads(rng, T)]), k, w, [k, 0])
        fallen = np.sort(rng.random(T) ** rng.choice([0.3, 1, 4]))
        b = w * np.column_stack([np.zeros(T + 1), 1 - np.append(0, fallen)])
        ours = burst_bounds(p.loads[:, 1], fallen, k, w)
        assert np.allclose(ours, lower_bound(p, b), rtol=1e-9, atol=1e-9 * k * w)
        assert np.all(ours <= burst_cost(p.loads[:, 1], k, w) * (1 + 1e-9))


def test_many_bursts_on_fresh_experts():
    """The pool that switches at the ends: below the relaxation, and within its factor."""
    rng = np.random.default_rng(3)
    for _ in range(cases(200)):
        M, k, w = int(rng.integers(1, 5)), int(rng.integers(1, 20)), 10.0 ** rng.uniform(-1, 1)
        bursts = [w * burst_loads(rng, int(rng.integers(1, 8))) for _ in range(M)]
        loads = np.zeros((sum(map(len, bursts)), M + 1))
        at = np.repeat(np.arange(1, M + 1), [len(r) for r in bursts])
        loads[np.arange(at.size), at] = np.concatenate(bursts)
        best = relax(Problem(loads, k, w, [k] + [0] * M))
        bound = sum(pool_bounds(r, k, w)[-1] for r in bursts)
        assert bound <= best.value * (1 + 1e-6) and best.bound < 2 ** (1 / 8) * bound


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: burst_bounds([1, -1], [0, 1], 2), "loads"),
        (lambda: burst_bounds([1, 1], [1, 0], 2), "fallen must"),
        (lambda: burst_bounds([1, 1], [0, 1.5], 2), "fallen must"),
        (lambda: burst_bounds([1, 1], [0.5], 2), "fallen must"),
        (lambda: burst_bounds([1, 1], [0, 1], 2, 0), "move_price is 0"),
        (lambda: certificate.burst_cost([1, -1], 2), "loads"),
        (lambda: certificate.burst_cost([1], 2, 0), "move_price is 0"),
        (lambda: certificate.burst_cost([1], -2), "extra is -2"),
        (lambda: burst_guesses(2.5), "extra is 2.5"),
        (lambda: burst_guesses(2, 1), "factor is 1"),
        (lambda: pool_bounds([1, np.nan], 2), "loads"),
    ],
)
def test_what_no_burst_is(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_certificate_of_free_moves_and_of_nothing():
    r = np.random.default_rng(2).exponential(3.0, (5, 4))
    for w, k in [(0.0, 3), (2.0, 0), (1e9, 3)]:
        s = run(Problem(r, k, w), RegularizedGreedy())
        assert water_level(r, k).sum() * (1 - 1e-9) <= s.bound <= s.cost * (1 + 1e-9)
    assert run(Problem(np.zeros((3, 2)), 2), RegularizedGreedy()).summary().startswith("cost 0 ")


@pytest.mark.parametrize("name", WORKED)
def test_worked_examples(name):
    (loads, k, w), table = WORKED[name]
    p = Problem(loads, k, w)
    for who, (latency_, l1, cost) in table.items():
        s = run(
            p,
            {"never": Never, "chase": Chase, "myopic": Myopic}[who]()
            if isinstance(who, str)
            else RegularizedGreedy(who),
        )
        assert np.allclose(
            [s.latency.sum(), 2 * s.moved.sum(), s.cost], [latency_, l1, cost], atol=1.1e-3
        ), who


def test_worked_path_and_bounds():
    p = Problem(WORKED["equal"][0][0], 4)
    s = run(p, RegularizedGreedy())
    assert s.x[:, 0].round(2).tolist() == [2.94, 3.54, 3.94, 2.28, 3.11, 1.75, 0.91, 0.36]
    assert 46.1 <= s.bound <= relax(p).value and np.isclose(relax(p).value, 48.317, atol=1e-3)
    assert run(p, Chase()).x.dtype.kind == "i" and run(p, RegularizedGreedy()).x.dtype.kind == "f"


def test_rounding_protocol():
    """The rounding gets the start, then each step's loads and placement; the bound is the same."""

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
    assert np.array_equal([r for r, _ in rounding.seen], p.loads) and np.array_equal(
        [x for _, x in rounding.seen], fractional.x
    )
    assert s.x.dtype.kind == "i" and np.array_equal(s.bounds, fractional.bounds)


def test_without_a_certificate():
    p = Problem(np.random.default_rng(0).exponential(6.0, (12, 4)), 9, 1.5)
    full, quick = run(p, RegularizedGreedy()), run(p, RegularizedGreedy(), certify=False)
    assert np.array_equal(full.x, quick.x)
    assert np.allclose(quick.bounds, np.cumsum(water_level(p.loads, 9)))
    assert full.bound > quick.bound


def test_runs_of_nothing():
    empty = run(Problem(np.empty((0, 3)), 2), RegularizedGreedy(), Credit())
    assert empty.cost == 0 and empty.bounds.size == 0 and empty.ratio == 1
    one = run(Problem([[5.0]] * 3, 7), RegularizedGreedy())
    assert np.isclose(one.ratio, 1.0)


def test_labels_come_along():
    frame = pd.DataFrame([[9.0, 1.0], [1.0, 9.0]], index=["Mon", "Tue"], columns=["a", "b"])
    schedule = run(Problem(frame, 4), Chase())
    assert schedule.to_frame().index.tolist() == ["Mon", "Tue"]
    assert schedule.counts_frame().columns.tolist() == ["a", "b"]


def test_a_run_prints_nothing_and_one_line_when_it_is_asked(capfd):
    p = Problem(np.random.default_rng(0).exponential(6.0, (12, 4)), 9)
    run(p, RegularizedGreedy(), Credit())
    assert capfd.readouterr() == ("", "")
    run(p, RegularizedGreedy(), verbose=True)
    said = capfd.readouterr()
    assert said.out == "" and "bound" in said.err and said.err.count("\n") <= 1


def test_a_result_goes_everywhere(tmp_path):
    p = Problem(np.random.default_rng(0).exponential(6.0, (6, 4)), 9)
    s = run(p, RegularizedGreedy())
    assert pickle.loads(pickle.dumps(s)) == s
    s.save(tmp_path / "run.json")
    assert Schedule.load(tmp_path / "run.json") == s


@pytest.mark.parametrize(
    "x0", [[np.nan, 4], [-1, 5], [1, 2], 4, [[2, 2], [1, 1]], None, ["2", "2"], [2j, 2]]
)
def test_a_certificate_starts_with_a_placement(x0):
    with pytest.raises(ValueError, match="x0"):
        Certificate(x0, 4)


@pytest.mark.parametrize("extra", BAD_COUNTS)
def test_a_certificate_starts_with_a_number_of_gpus(extra):
    with pytest.raises(ValueError, match="extra is"):
        Certificate([1, 1], extra)


@pytest.mark.parametrize("price", BAD_PRICES)
def test_a_certificate_starts_with_a_price(price):
    with pytest.raises(ValueError, match="move_price is"):
        Certificate([1, 1], 2, price)


def test_a_price_beyond_all_costs_is_refused():
    with pytest.raises(ValueError, match=r"move_price is 1e\+308; costs are beyond"):
        Certificate([1, 1], 2, 1e308)


@pytest.mark.parametrize(
    "loads, message",
    [
        ([np.nan, 1], r"step 2: loads\[0\] is nan"),
        ([1, -1], r"step 2: loads\[1\] is -1"),
        ([1, 1, 1], "step 2: loads has shape"),
        ([1, np.inf], "loads"),
    ],
)
def test_a_broken_measurement_does_not_end_a_certificate(loads, message):
    """After one NaN it went on for ever without growing; now the step is refused and undone."""
    certificate, other = Certificate([2, 2], 4), Certificate([2, 2], 4)
    for c in (certificate, other):
        c.step([20.0, 4.0])
        c.step([4.0, 20.0])
    with pytest.raises(ValueError, match=message):
        certificate.step(loads)
    assert certificate.bound == other.bound
    assert certificate.step([20.0, 4.0]) == other.step([20.0, 4.0]) > 12


def test_costs_beyond_the_largest_float_are_refused():
    c = Certificate([0, 0], 0)
    bound = c.step([1.5e308, 1.0])
    with pytest.raises(ValueError, match="step 1: costs are beyond the largest float"):
        c.step([1.5e308, 1.0])
    assert c.bound == bound and c.step([1.0, 1.0]) >= bound


@pytest.mark.parametrize("late", ["water_level", "step_multipliers", "work_step"])
def test_a_step_happens_whole_or_not_at_all(late, monkeypatch):
    "Also when something fails in the middle of it."
    loads = np.random.default_rng(0).exponential(9.0, (6, 3, 4))
    c, other = Certificate(np.full((3, 4), 2.0), 8), Certificate(np.full((3, 4), 2.0), 8)
    for r in loads:
        with monkeypatch.context() as patch:

            def fail(*_):
                raise MemoryError

            patch.setattr(certificate, late, fail)
            with pytest.raises(MemoryError):
                c.step(r)
        assert np.array_equal(c.step(r), other.step(r))


def test_a_certificate_owns_its_state():
    "Neither the arrays that it was given nor those that it gave can change it."
    x0, loads = np.full((2, 3), 2.0), np.random.default_rng(0).exponential(9.0, (5, 2, 3))
    c, other = Certificate(x0, 6), Certificate(x0.copy(), 6)
    x0[:] = 0
    buffer = np.empty((2, 3))
    for r in loads:
        buffer[:] = r
        got = c.step(buffer)
        buffer[:] = np.nan
        assert np.array_equal(got, other.step(r))
        got += 1e9
        c.bound[:] = 1e9
        assert np.array_equal(c.bound, other.bound)
    again = pickle.loads(pickle.dumps(c))
    assert np.array_equal(again.step(loads[0]), c.step(loads[0]))


@few
@given(online_problems())
def test_layers_together_are_layers_alone(case):
    p, _, rng = case
    shape = (2, 3, p.experts)
    scales = 10.0 ** rng.uniform(-3, 3, shape[:2])[..., None] * (rng.random((2, 3, 1)) < 0.9)
    x0 = np.array([[draw_start(rng, p.experts, p.extra) for _ in range(3)] for _ in range(2)])
    together = Certificate(x0, p.extra, p.move_price)
    alone = [[Certificate(x, p.extra, p.move_price) for x in row] for row in x0]
    for r in p.loads:
        loads = scales * rng.permuted(np.tile(r, (2, 3, 1)), axis=2)
        got = together.step(loads)
        each = [[c.step(v) for c, v in zip(*rows)] for rows in zip(alone, loads)]
        assert np.allclose(got, each, rtol=1e-9) and got.shape == (2, 3)


@pytest.mark.parametrize("scale", [5e-324, 1e-300, 1.0, 1e290])
@pytest.mark.parametrize("price", [0.0, 1e-300, 2.0, 1e290])
def test_extreme_numbers(scale, price):
    """A bound that holds, without a warning, whatever the units."""
    loads = scale * np.array([[3, 1, 0], [0, 0, 0], [1, 1, 1], [0, 2, 9]] * 3, float)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for rounding in (None, Credit(), Hysteresis(), Threshold(1)):
            s = run(Problem(loads, 5, price), RegularizedGreedy(), rounding)
            assert np.isfinite(s.bound) and s.bound <= s.cost and np.all(np.diff(s.bounds) >= 0)


def test_the_live_example_draws():
    for player in ("regularised greedy", "reverse entropy", "chase", "never", "myopic"):
        for scale in (0.1, 4.0):
            assert "ratio" in certified(player, scale) and "nan" not in certified(player, scale)
