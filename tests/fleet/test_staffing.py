"""Erlang's formulas against exact arithmetic, fifty digits and chains; staffing is minimal."""

import time
from fractions import Fraction
from math import exp, factorial, inf, log, nextafter

import mpmath as mp
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from serving_or.fleet.staffing import (
    Queue,
    Staffing,
    abandonment,
    erlang_a,
    erlang_b,
    erlang_c,
    gpus_for_a_wait,
    halfin_whitt,
    square_root_staffing,
    staff,
)
from serving_or.tools.answers import Infeasible, Status, TooLarge
from tests.long import cases

# the promise is 1e-13
PRECISE, SMALLEST = 2e-14, 1e-290


# oracles


def exact(n, a):
    "B and C as fractions."
    a, inverse = Fraction(a), Fraction(1)
    for k in range(1, n + 1):
        inverse = 1 + k / a * inverse
    b = 1 / inverse
    return b, n * b / (n - a + a * b) if a < n else Fraction(1)


def precise_b(n, a):
    "B with fifty digits, for a million GPUs too: a sum that stops when nothing is added."
    with mp.workdps(50):
        n, a = mp.mpf(n), mp.mpf(a)
        if a >= n and n < 2000 and n != int(n):
            part = n - int(n)
            inverse = mp.gammainc(part + 1, a) * mp.exp(a) / a**part
            for k in range(1, int(n) + 1):
                inverse = 1 + (part + k) / a * inverse
            return 1 / inverse
        if a >= n:
            inverse = term = mp.mpf(1)
            i = 0
            while n - i > 0 and term > inverse * mp.mpf(10) ** -40:
                term *= (n - i) / a
                inverse += term
                i += 1
            return 1 / inverse
        above, term, j = mp.mpf(0), mp.mpf(1), 1
        while term > (1 + above) * mp.mpf(10) ** -40:
            term *= a / (n + j)
            above += term
            j += 1
        p = mp.exp(n * mp.log(a) - a - mp.loggamma(n + 1))
        return p / (1 - p * above)


def precise_c(n, a):
    with mp.workdps(50):
        b = precise_b(n, a)
        return mp.mpf(1) if a >= n else n * b / (n - mp.mpf(a) + a * b)


def chain(n, a, tau, states=4000):
    "Waiting, abandonment and mean wait in service times, from the birth-death chain."
    ratio = [a / k if k <= n else a / (n + (k - n) * tau) for k in range(1, n + states)]
    logs = np.concatenate([[0.0], np.cumsum(np.log(ratio))])
    p = np.exp(logs - logs.max())
    p /= p.sum()
    queue = np.maximum(np.arange(len(p)) - n, 0) @ p
    return p[n:].sum(), tau * queue / a, queue / a


def error(found, log_found, truth):
    "Of the value where it is above 1e-290, of the logarithm below."
    with mp.workdps(50):
        if truth > SMALLEST:
            return float(abs(mp.mpf(found) / truth - 1))
        return float(abs(mp.mpf(log_found) / mp.log(truth) - 1))


# values


@settings(max_examples=cases(2000, 60), deadline=None)
@given(st.integers(1, 400), st.floats(0, 1), st.booleans())
def test_b_and_c_against_fractions(n, u, small):
    a = 10 ** (-6 + u * (6 + np.log10(2 * n))) if small else max(2 * n * u, 1e-6)
    a = float(a)
    for truth, door in zip(exact(n, a), (erlang_b, erlang_c)):
        with mp.workdps(50):
            truth = mp.mpf(truth.numerator) / truth.denominator
        assert error(door(n, a), door(n, a, log=True), truth) <= PRECISE


@pytest.mark.parametrize("seed", range(cases(300, 12)))
def test_b_and_c_with_fifty_digits(seed):
    rng = np.random.default_rng(seed)
    n = 10 ** rng.uniform(0, 6)
    n = n if seed % 3 == 0 else float(round(n))
    a = [n * rng.uniform(0.0, 2), n - rng.uniform(-3, 30) * np.sqrt(n), 10 ** rng.uniform(-6, 6)]
    a = float(min(max(a[seed % 3], 1e-6), 2 * n))
    if seed % 4 == 3:
        n, a = 1e6, 1e6 - rng.uniform(-2000, 5000)
    assert error(erlang_b(n, a), erlang_b(n, a, log=True), precise_b(n, a)) <= PRECISE
    assert error(erlang_c(n, a), erlang_c(n, a, log=True), precise_c(n, a)) <= PRECISE


def test_many_values_against_scipy():
    "A million GPUs and more, near the load, where scipy's gamma functions are good."
    n = np.repeat([1e2, 1e4, 1e6, 1e8], 50)
    a = n + np.tile(np.linspace(-3, 3, 50), 4) * np.sqrt(n)
    p = special.xlogy(n, a / n) - a + n
    q = special.gammaincc(n + 1, a)
    s = special.gammaln(n + 1) + n - n * np.log(n)
    assert np.allclose(erlang_b(n, a), np.exp(p - s) / q, rtol=1e-6)


@settings(max_examples=cases(1000), deadline=None)
@given(st.floats(0, 1e6), st.floats(0, 1e6), st.one_of(st.just(0.0), st.floats(1e-9, 1e3)))
def test_order_and_range(n, a, theta):
    b, c, w, lost = erlang_b(n, a), erlang_c(n, a), erlang_a(n, a, theta), abandonment(n, a, theta)
    for x in (b, c, w, lost):
        assert 0 <= x <= 1 and type(x) is float
    slack = 1 + 1e-12
    assert b <= w * slack and w <= c * slack and lost <= w * slack
    # what is not served is lost
    assert a == 0 or theta == 0 or lost >= (1 - n / a) * (1 - 1e-12)


@settings(max_examples=cases(600), deadline=None)
@given(st.floats(1e-3, 1e5), st.floats(1e-3, 1e5), st.floats(1e-6, 1e3), st.floats(1e-3, 10))
def test_everything_falls_in_gpus_and_rises_in_load(n, a, theta, more):
    for door in (erlang_b, erlang_c, lambda n, a, log: erlang_a(n, a, theta, log)):
        assert door(n + more, a, log=True) <= door(n, a, log=True) + 1e-12
        assert door(n, a + more, log=True) >= door(n, a, log=True) - 1e-12 * (
            1 + abs(door(n, a, log=True))
        )
    assert abandonment(n + more, a, theta) <= abandonment(n, a, theta) * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(cases(300, 40)))
def test_a_against_the_chain(seed):
    rng = np.random.default_rng(seed)
    n, tau = int(rng.integers(0, 60)), 10 ** rng.uniform(-1.3, 2)
    a = float(rng.uniform(0.1, 2) * max(n, 1))
    waits, lost, mean = chain(n, a, tau)
    assert np.isclose(erlang_a(n, a, tau), waits, rtol=1e-10)
    assert np.isclose(abandonment(n, a, tau), lost, rtol=1e-10)
    queue = Queue(n, a / 2.0, 2.0, patience=2.0 / tau)
    assert np.isclose(queue.mean_wait, 2 * mean, rtol=1e-10)
    assert np.isclose(np.exp(erlang_a(n, a, tau, log=True)), waits, rtol=1e-10)
    assert np.isclose(np.exp(abandonment(n, a, tau, log=True)), lost, rtol=1e-10)


def test_a_on_both_sides_of_its_cut():
    "The two ways to U meet at a = n + tau, however little patience there is."
    for n, tau in [(10.0, 0.5), (1e5, 3.0), (7.0, 1e4), (1e6, 1e-3), (0.5, 0.1)]:
        a = n + tau
        sides = [
            erlang_a(n, x, tau) for x in (a * (1 - 1e-15), nextafter(a, 0), a, a * (1 + 3e-16))
        ]
        assert np.allclose(sides, sides[0], rtol=1e-11), (n, tau)


@pytest.mark.parametrize("seed", range(cases(300, 20)))
def test_a_with_fifty_digits(seed):
    "Sums that stop when nothing is added, for many GPUs and for little patience."
    rng = np.random.default_rng(seed)
    n, tau = 10 ** rng.uniform(0, 4), 10 ** rng.uniform(-3, 3)
    a = float(max(n + rng.uniform(-4, 4) * np.sqrt(n * max(1, tau)), 0.1))
    with mp.workdps(50):
        n_, a_, tau_ = mp.mpf(n), mp.mpf(a), mp.mpf(tau)
        u, moment, term, j = mp.mpf(0), mp.mpf(0), mp.mpf(1), 1
        while j < 10 or term > (1 + u) * mp.mpf(10) ** -30:
            term *= a_ / (n_ + j * tau_)
            u, moment, j = u + term, moment + j * term, j + 1
        b = precise_b(n, a)
        waits, lost = b * (1 + u) / (1 + b * u), tau_ * moment / a_ * b / (1 + b * u)
    assert error(erlang_a(n, a, tau), erlang_a(n, a, tau, log=True), waits) <= 1e-12
    assert error(abandonment(n, a, tau), abandonment(n, a, tau, log=True), lost) <= 1e-12


def test_three_limits_of_a():
    rng = np.random.default_rng(2)
    for _ in range(50):
        n, a = int(rng.integers(1, 80)), float(rng.uniform(0.5, 100))
        assert np.isclose(erlang_a(n, a, 1), special.gammainc(n, a), rtol=1e-12)
        assert np.isclose(erlang_a(n, a, 1e12), erlang_b(n, a), rtol=1e-9)
        assert np.isclose(abandonment(n, a, 1e12), erlang_b(n, a), rtol=1e-9)
        assert erlang_a(n, a, 0) == erlang_c(n, a)
        if abs(a - n) > 0.1 * n:
            assert np.isclose(erlang_a(n, a, 1e-12), erlang_c(n, a), rtol=1e-9)


# edges


def test_nobody_and_nothing():
    assert erlang_b(0, 3) == erlang_c(0, 3) == erlang_a(0, 3, 1) == 1
    assert erlang_b(5, 0) == erlang_c(5, 0) == erlang_a(5, 0, 2) == abandonment(5, 0, 2) == 0
    assert erlang_b(0, 0) == erlang_c(0, 0) == 1
    assert erlang_b(5, 0, log=True) == -inf and erlang_c(3, 3) == erlang_c(3, 4) == 1
    assert np.isclose(abandonment(0, 5, 2), 1)
    assert erlang_b([], []).shape == (0,) and erlang_b(np.zeros((2, 0)), 1).shape == (2, 0)


@pytest.mark.parametrize("n", [5e-324, 1e-300, 1e-10, 0.3, 1, 17, 1e6, 1e15, 1e100, 1e150])
@pytest.mark.parametrize("a", [5e-324, 1e-300, 1e-10, 0.3, 1, 17, 1e6, 1e15, 1e100, 1e150])
def test_no_nan_for_any_size(n, a):
    for log_ in (False, True):
        assert not np.isnan([erlang_b(n, a, log_), erlang_c(n, a, log_)]).any()
        for theta in (1e-150, 1e-70, 1e-9, 1, 1e9, 1e150):
            assert not np.isnan([erlang_a(n, a, theta, log_), abandonment(n, a, theta, log_)]).any()
    assert 0 <= erlang_b(n, a) <= erlang_c(n, a) * (1 + 1e-12) <= 1 + 1e-12
    queue = Queue(n, a, 1.0)
    assert queue.mean_wait >= 0 and queue.quantile(0.5) >= 0 and 0 <= queue.tail(1.0) <= 1


@pytest.mark.parametrize("bad", [-1, np.nan, inf, "3", True, None, 1 + 1j, [1, [2]], 1e151])
def test_what_is_refused(bad):
    for call in (
        lambda: erlang_b(bad, 1),
        lambda: erlang_c(1, bad),
        lambda: erlang_a(1, 1, bad),
        lambda: Queue(bad, 1, 1),
        lambda: Queue(1, bad, 1),
        lambda: staff(bad, 1, waiting=0.1),
    ):
        with pytest.raises(ValueError):
            call()


@pytest.mark.parametrize("theta", [5e-324, 1e-200])
def test_patience_that_is_too_long_for_floats(theta):
    with pytest.raises(ValueError, match="0, or at least"):
        erlang_a(3, 3, theta)
    with pytest.raises(ValueError, match="service_time / patience"):
        Queue(3, 3, 1.0, patience=1e200)


def test_arrays_lists_small_integers():
    n = np.array([3, 30, 127], np.int8)
    assert np.array_equal(erlang_c(n, 2), [erlang_c(k, 2) for k in (3, 30, 127)])
    assert erlang_b([[1], [2]], [1, 2, 3]).shape == (2, 3)
    assert np.array_equal(erlang_b(n * 1.0, 2.0), erlang_b(n.tolist(), 2))
    big = erlang_c(np.full(5000, 10.0), np.linspace(0, 12, 5000))
    assert big[1234] == erlang_c(10, np.linspace(0, 12, 5000)[1234])
    with pytest.raises(ValueError):
        Queue([1, 2], [1, 2, 3], 1)


def test_waits_in_seconds():
    queue = Queue(36, 20, 1.5)
    q = np.array([0.0, 0.5, 0.9, 0.99, 0.999999])
    t = queue.quantile(q)
    assert np.allclose(queue.tail(t)[2:], 1 - q[2:], rtol=1e-9) and t[0] == t[1] == 0
    # the mean is the integral of the tail
    grid = np.linspace(0, 60, 600_001)
    assert np.isclose(np.trapezoid(queue.tail(grid), grid), queue.mean_wait, rtol=1e-6)
    over = Queue([30, 29], 20, 1.5)
    assert (over.mean_wait == inf).all() and (over.quantile(0.01) == inf).all()
    assert (over.tail([0.0, 1e9]) == 1).all()
    with pytest.raises(ValueError, match="below 1"):
        queue.quantile(1.0)
    with pytest.raises(ValueError, match="patience"):
        Queue(36, 20, 1.5, patience=1.0).tail(1.0)


@pytest.mark.parametrize("n", [0, 1e-19, 1e-16, 1e-9, 0.01, 1, 30, 1e6, 1e12])
def test_no_probability_above_one(n):
    a = np.concatenate([n * (1 + np.linspace(-1e-15, 1e-15, 21)), np.geomspace(1e-30, 1e15, 200)])
    for theta in (0, 1e-12, 1e-3, 1, 1e3):
        for door in (erlang_a, abandonment):
            assert (door(n, a, theta) <= 1).all() and (door(n, a, theta, log=True) <= 0).all()
    for door in (erlang_b, erlang_c):
        assert (door(n, a) <= 1).all() and (door(n, a, log=True) <= 0).all()


def test_time_does_not_grow_with_gpus():
    def spent(n):
        erlang_c(n, 0.999 * n)
        began = time.process_time()
        for _ in range(30):
            erlang_c(n, 0.999 * n)
        return time.process_time() - began

    assert min(spent(1e12) for _ in range(3)) < 5 * min(spent(1e2) for _ in range(3)) + 0.05


# staffing


def targets():
    return st.one_of(
        st.floats(1e-12, 0.99).map(lambda x: {"waiting": x}),
        st.floats(1e-9, 1e3).map(lambda x: {"mean_wait": x}),
        st.tuples(st.floats(0, 10), st.floats(0, 0.999999)).map(
            lambda p: {"wait": p[0], "share": p[1]}
        ),
    )


@settings(max_examples=cases(1500, 60), deadline=None)
@given(st.floats(1e-3, 1e5), st.floats(1e-3, 1e2), targets(), st.floats(0.01, 100))
def test_staffing_is_minimal(rate, service_time, target, patience):
    plans = [staff(rate, service_time, **target)]
    if "wait" not in target:
        plans.append(staff(rate, service_time, **target, patience=patience))
    for plan in plans:
        assert plan.status == "optimal" and plan.gap == 0
        assert meets(plan.queue, target) and not (
            plan.gpus and meets(plan.before, target, 1 - 1e-13)
        )


def meets(queue, target, slack=1 + 1e-11):
    "By the values themselves, not their logarithms."
    if queue.patience is None and queue.gpus <= queue.offered:
        return False
    if "waiting" in target:
        return queue.waiting <= target["waiting"] * slack
    if "mean_wait" in target:
        return queue.mean_wait <= target["mean_wait"] * slack
    return queue.tail(target["wait"]) <= (1 - target["share"]) * slack


def test_staffing_against_a_scan():
    for rate in (0.5, 3.0, 9.9, 10.0, 55.0):
        for alpha in (0.5, 0.1, 1e-3, 1e-200):
            n = np.arange(1, 1000)
            scan = n[(erlang_c(n, rate, log=True) <= log(alpha)) & (n > rate)][0]
            assert staff(rate, 1.0, waiting=alpha).gpus == scan
        for lost in (0.5, 0.05, 1e-6):
            n = np.arange(0, 400)
            scan = n[abandonment(n, rate, 0.25) <= lost][0]
            assert staff(rate, 1.0, abandoned=lost, patience=4.0).gpus == scan


def test_a_target_that_is_just_met_or_just_missed():
    queue = Queue(40, 20, 1.5)
    for target, met in (("waiting", queue.waiting), ("mean_wait", queue.mean_wait)):
        assert staff(20, 1.5, **{target: met * (1 - 1e-13)}).gpus == 40
        assert staff(20, 1.5, **{target: met * (1 - 1e-10)}).gpus == 41
    # what has no end meets nothing, however weak the target
    assert staff(20, 1.5, waiting=1.0).gpus == staff(20, 1.5, wait=0, share=0).gpus == 31
    assert staff(20, 1.5, mean_wait=1e300).gpus == 31
    assert staff(20, 1.5, response=1.9, mean_wait=0.1).gpus == 35
    assert staff(20, 1.5, response=1.6, mean_wait=9).gpus == 35


def test_many_rates_and_labels():
    rates = pd.Series([5.0, 0.0, 20.0], index=["night", "never", "noon"])
    plan = staff(rates, 1.5, wait=0.2, mean_wait=0.05)
    assert plan.labels == ("night", "never", "noon") and plan.gpus[1] == 0
    one_by_one = [int(staff(r, 1.5, wait=0.2, mean_wait=0.05).gpus) for r in rates]
    assert plan.gpus.tolist() == one_by_one and plan.value == sum(one_by_one)
    assert list(plan.to_frame().index) == ["night", "never", "noon"]
    assert plan.to_frame().loc["never"].isna().sum() == 6 and "inf" not in plan.summary()
    assert "3 periods" in plan.summary() and plan.plot() and staff(20, 1.5, waiting=0.1).plot()
    empty = staff([], 1.5, waiting=0.1)
    assert empty.value == 0 and empty.plot() and len(empty.to_frame()) == 0


def test_targets_that_no_number_of_gpus_meets():
    for target, nearest in [
        ({"response": 1.4}, nextafter(1.5, 2)),
        ({"response": 1.5}, nextafter(1.5, 2)),
        ({"wait": -0.1}, 0.0),
        ({"wait": 0.1, "share": 1.0}, nextafter(1.0, 0)),
        ({"waiting": 0.0}, None),
        ({"waiting": -0.1}, None),
        ({"mean_wait": 0.0}, None),
        ({"abandoned": 0.0, "patience": 2.0}, None),
    ]:
        with pytest.raises(Infeasible, match="any|no") as caught:
            staff(20, 1.5, **target)
        found = caught.value.nearest
        assert nearest is None or found == nearest
        # the nearest can be met
        name = "share" if "share" in target else next(iter(target))
        assert staff(20, 1.5, **{**target, name: found}).status == "optimal"


def test_too_few_gpus_are_something_else():
    with pytest.raises(Infeasible, match="need 41 GPUs") as caught:
        staff(20, 1.5, wait=0.2, most=35)
    assert caught.value.nearest == 41
    largest = caught.value.largest
    assert staff(largest, 1.5, wait=0.2, most=35).gpus == 35
    assert staff(largest * 1.0001, 1.5, wait=0.2).gpus == 36
    assert staff(20, 1.5, wait=0.2, most=41).gpus == 41
    with pytest.raises(Infeasible, match=r"rate\[1\]"):
        staff([1, 20], 1.5, wait=0.2, most=10)
    with pytest.raises(Infeasible, match="rate of 'noon'"):
        staff(pd.Series([1, 20], ["night", "noon"]), 1.5, wait=0.2, most=10)
    with pytest.raises(Infeasible) as caught:
        staff(20, 1.5, abandoned=0.01, patience=5.0, most=20)
    assert staff(caught.value.largest, 1.5, abandoned=0.01, patience=5.0).gpus <= 20
    with pytest.raises(Infeasible) as caught:
        staff(20, 1.5, waiting=0.1, most=0)
    assert caught.value.largest == 0


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"abandoned": 0.1},
        {"share": 0.9},
        {"wait": 1.0, "patience": 1.0},
        {"wait": 1.0, "share": -0.1},
        {"waiting": np.nan},
        {"waiting": "much"},
        # per cent
        {"waiting": 10},
        {"abandoned": 5, "patience": 3.0},
        {"mean_wait": inf},
        {"waiting": 0.1, "patience": 0},
        {"waiting": 0.1, "most": 2.5},
    ],
)
def test_bad_targets(bad):
    with pytest.raises(ValueError) as caught:
        staff(20, 1.5, **bad)
    assert not isinstance(caught.value, Infeasible)


def test_bad_loads():
    for load in (1e16, 4.6e15):
        with pytest.raises(TooLarge):
            staff(load, 1.0, waiting=0.1)
    with pytest.raises(ValueError):
        staff([[1.0]], 1.0, waiting=0.1)
    assert staff(2e15, 1.0, waiting=0.1).status == "optimal"
    assert staff(1e-300, 1.0, waiting=0.1).gpus == 1
    assert staff(0, 1.0, waiting=0.1).gpus == 0
    with pytest.raises(ValueError, match="mean_wait / service_time"):
        staff(1e-290, 1e290, mean_wait=1e-300)


def test_a_plan_of_ones_own():
    plan = Staffing(gpus=50, rate=20, service_time=1.5, waiting=0.1)
    assert plan.status is Status.FEASIBLE and plan.bound == 39 and plan.gap == 11 / 50
    with pytest.raises(ValueError, match="at least 39"):
        Staffing(gpus=38, rate=20, service_time=1.5, waiting=0.1)
    with pytest.raises(ValueError, match="of 'noon'"):
        Staffing([39, 38], [20, 20], 1.5, waiting=0.1, labels=("night", "noon"))
    with pytest.raises(ValueError):
        Staffing(gpus=[39], rate=20, service_time=1.5, waiting=0.1)
    with pytest.raises(ValueError):
        Staffing(gpus=[39], rate=[20], service_time=1.5, waiting=0.1, labels=("a", "b"))


# the square root


def test_halfin_whitt():
    beta = np.linspace(1e-3, 30, 200)
    phi, Phi = np.exp(-beta * beta / 2) / np.sqrt(2 * np.pi), special.ndtr(beta)
    assert np.allclose(halfin_whitt(beta), 1 / (1 + beta * Phi / phi), rtol=1e-13)
    assert halfin_whitt(0) == 1 and halfin_whitt(60.0) == 0
    n = 1e10
    assert np.allclose(erlang_c(n, n - np.sqrt(n) * beta[:20]), halfin_whitt(beta[:20]), rtol=1e-4)


def test_the_rule_is_never_over_and_at_most_two_short():
    "For these loads and targets, not in general."
    a = np.unique(np.geomspace(1, 1e4, cases(400, 60)).round(3))
    for alpha in (0.1, 0.01, 0.001):
        short = staff(a, 1.0, waiting=alpha).gpus - square_root_staffing(a, alpha)
        assert short.min() >= 0 and short.max() <= 2
    assert square_root_staffing(0, 0.1) == 0
    # the root itself
    for alpha in (0.9, 0.1, 1e-6):
        spare = square_root_staffing(1e14, alpha) - 1e14
        assert np.isclose(halfin_whitt(spare / 1e7), alpha, rtol=1e-5)
    for bad in (0, 1, -1, np.nan):
        with pytest.raises(ValueError):
            square_root_staffing(10, bad)


def test_the_live_example_is_quick_and_true():
    began = time.process_time()
    picture = gpus_for_a_wait(20, 1.5, 200)
    assert time.process_time() - began < 0.2
    assert f"{int(staff(20, 1.5, wait=0.2).gpus)} GPUs" in picture


def test_oracles_agree_among_themselves():
    b, _ = exact(30, 25.0)
    assert abs(float(precise_b(30, 25.0)) - float(b)) < 1e-15
    poisson = [exp(-25.0) * 25.0**k / factorial(k) for k in range(31)]
    assert np.isclose(poisson[-1] / sum(poisson), float(b))
