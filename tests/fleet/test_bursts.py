"""The queue against brute force and exact means; burstiness by counting; fewest by scan."""

import time
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_or.fleet import bursts
from serving_or.fleet.bursts import (
    TraceStaffing,
    dispersion,
    gg_wait,
    promised_and_kept,
    simulate_queue,
    squared_cv,
    staff_trace,
)
from serving_or.fleet.staffing import Queue, erlang_c
from serving_or.tools.answers import Infeasible, Status
from serving_or.tools.data import load_requests
from tests.long import cases


def kiefer_wolfowitz(arrivals, services, gpus):
    "Work before each GPU, sorted, from request to request."
    work, waits, before = np.zeros(gpus), [], None
    for t, s in zip(arrivals, services):
        work = np.maximum(work - (0 if before is None else t - before), 0)
        waits.append(work.min())
        work[work.argmin()] += s
        before = t
    return np.array(waits)


def lindley(arrivals, services):
    "One GPU."
    waits = [0.0]
    for gap, s in zip(np.diff(arrivals), services):
        waits.append(max(0.0, waits[-1] + s - gap))
    return np.array(waits)


def traces(most=12):
    "Small ones, with ties and services of 0; whole numbers, so that sums are exact."
    request = st.tuples(st.integers(0, 4), st.integers(0, 6))
    return st.lists(request, min_size=1, max_size=most).map(
        lambda r: (np.cumsum([g for g, _ in r]).astype(float), np.array([s for _, s in r], float))
    )


@settings(max_examples=cases(3000), deadline=None)
@given(traces(), st.integers(1, 6))
def test_the_heap_is_the_recursion(trace, gpus):
    t, s = trace
    waits = simulate_queue(t, s, gpus)
    assert np.array_equal(waits, kiefer_wolfowitz(t, s, gpus))
    assert np.array_equal(simulate_queue(t, s, 1), lindley(t, s))
    # whenever the clock began
    assert np.array_equal(simulate_queue(t - 1000, s, gpus), waits)


@settings(max_examples=cases(2000), deadline=None)
@given(traces(), st.integers(1, 6))
def test_one_gpu_more_makes_nobody_wait_longer(trace, gpus):
    t, s = trace
    assert (simulate_queue(t, s, gpus + 1) <= simulate_queue(t, s, gpus)).all()
    assert (simulate_queue(t, s, len(t)) == 0).all()
    assert (simulate_queue(t, s, 2**50) == 0).all()
    # and longer services make nobody wait less
    assert (simulate_queue(t, s + 1, gpus) >= simulate_queue(t, s, gpus)).all()


def test_at_most_as_many_are_served_as_there_are_gpus():
    rng = np.random.default_rng(0)
    t, s = np.cumsum(rng.exponential(1, 3000)), rng.exponential(5, 3000)
    start = t + simulate_queue(t, s, 6)
    end = start + s
    assert (np.diff(start) >= 0).all()
    busy = [np.sum((start <= x) & (end > x)) for x in start]
    assert max(busy) == 6
    # nobody waits while a GPU is free
    late = start > t
    assert np.isin(start[late], end).all()


def test_with_and_without_numba(monkeypatch):
    pytest.importorskip("numba")
    rng = np.random.default_rng(1)
    t, s = np.cumsum(rng.exponential(1, 20_000)), rng.lognormal(0, 2, 20_000)
    plain = [simulate_queue(t, s, n) for n in (1, 7, 300)]
    monkeypatch.setattr(bursts, "_MANY", 1)
    assert all(np.array_equal(simulate_queue(t, s, n), w) for n, w in zip((1, 7, 300), plain))


@pytest.mark.parametrize("n, rho", [(1, 0.5), (1, 0.8), (4, 0.7), (20, 0.8), (50, 0.9)])
def test_erlang_c_within_the_noise(n, rho):
    "Mean, and the tail at one mean wait; four standard errors over 16 runs."
    runs = []
    for seed in range(16):
        rng = np.random.default_rng(seed)
        t = np.cumsum(rng.exponential(1 / (n * rho), 30_000))
        w = simulate_queue(t, rng.exponential(1.0, t.size), n)[5000:]
        runs.append([w.mean(), (w > 0).mean(), (w > 0.5).mean()])
    mean, noise = np.mean(runs, axis=0), np.std(runs, axis=0, ddof=1) / 4
    queue = Queue(n, n * rho, 1.0)
    exact = np.array([queue.mean_wait, erlang_c(n, n * rho), queue.tail(0.5)])
    assert (abs(mean - exact) < 4.5 * noise).all()


@pytest.mark.parametrize("law", ["constant", "uniform", "two values"])
def test_pollaczek_with_one_gpu(law):
    draw = {
        "constant": lambda rng, k: np.ones(k),
        "uniform": lambda rng, k: 2 * rng.random(k),
        "two values": lambda rng, k: np.where(rng.random(k) < 0.9, 0.5, 5.5),
    }[law]
    square = {"constant": 1, "uniform": 4 / 3, "two values": 0.9 * 0.25 + 0.1 * 5.5**2}[law]
    exact = 0.6 * square / (2 * 0.4)
    assert np.isclose(gg_wait(1, 0.6, 1.0, service_cv2=square - 1), exact, rtol=1e-12)
    runs = []
    for seed in range(16):
        rng = np.random.default_rng(seed)
        t = np.cumsum(rng.exponential(1 / 0.6, 40_000))
        runs.append(simulate_queue(t, draw(rng, t.size), 1)[2000:].mean())
    assert abs(np.mean(runs) - exact) < 4.5 * np.std(runs, ddof=1) / 4


def test_the_correction():
    assert gg_wait(10, 9, 1.0) == Queue(10, 9, 1.0).mean_wait
    assert gg_wait(10, 9, 1.0, share=0.9) == Queue(10, 9, 1.0).quantile(0.9)
    assert np.isclose(gg_wait(10, 9, 1.0, 3.0, 2.0), 2.5 * Queue(10, 9, 1.0).mean_wait)
    assert gg_wait(10, 9, 1.0, 0.0, 0.0) == 0 and gg_wait(9, 9, 1.0, 0.0, 0.0) == inf
    assert gg_wait([10, 11], [9, 9], 1.0).shape == (2,)
    assert 1e307 < gg_wait(10, 9, 1.0, 1e308, 1e308) < inf
    for bad in ({"arrival_cv2": -1}, {"service_cv2": np.nan}, {"share": 1.0}, {"share": -0.1}):
        with pytest.raises(ValueError):
            gg_wait(10, 9, 1.0, **bad)


# burstiness


@settings(max_examples=cases(500), deadline=None)
@given(st.lists(st.integers(0, 100), min_size=2, max_size=50), st.integers(1, 20))
def test_dispersion_by_counting(times, window):
    t = np.array(times, float)
    full = int((t.max() - t.min()) // window)
    if full < 2:
        with pytest.raises(ValueError, match="two windows"):
            dispersion(t, window)
        return
    counts = [sum(k * window <= x - t.min() < (k + 1) * window for x in t) for k in range(full)]
    assert np.isclose(dispersion(t, window), np.var(counts, ddof=1) / np.mean(counts))
    assert dispersion(t + 1000, window) == dispersion(t, window)


def test_one_window_is_too_few():
    with pytest.raises(ValueError, match="two windows"):
        dispersion([0.0, 1.5, 1.9], 1.0)
    assert dispersion([0.0, 1.5, 2.0], 1.0) == 0


def test_dispersion_of_known_processes():
    rng = np.random.default_rng(2)
    poisson = np.cumsum(rng.exponential(0.1, 200_000))
    assert abs(dispersion(poisson, 10) - 1) < 0.1
    assert dispersion(np.arange(1000.0), 10) == 0
    assert abs(dispersion(np.repeat(poisson, 3), 10) - 3) < 0.3
    # rates that are drawn for each minute: 1 + var / mean
    arrivals = bursts._minutes(20.0, 6.0, 4000, seed=0)
    assert abs(dispersion(arrivals, 60) - 20) < 2
    assert abs(dispersion(bursts._minutes(1, 6.0, 4000, seed=0), 60) - 1) < 0.1


def test_squared_cv():
    assert squared_cv([2, 2, 2]) == 0 and np.isclose(squared_cv([0, 1]), 1)
    assert np.isclose(squared_cv([1e-320, 3e-320]), 0.25, rtol=1e-3)
    assert np.isclose(squared_cv([1e308, 3e307]), squared_cv([10, 3]))
    for bad in ([], [0.0, 0.0], [-1, 2], [np.nan], 3.0, [[1, 2]]):
        with pytest.raises(ValueError):
            squared_cv(bad)


@pytest.mark.parametrize("window", [0, -1, np.nan, inf, "1", 1e-300])
def test_bad_windows(window):
    with pytest.raises(ValueError):
        dispersion([0.0, 1.0, 2.0, 5.0], window)


# staffing for a trace


@settings(max_examples=cases(1500), deadline=None)
@given(traces(), st.integers(0, 8), st.sampled_from([0.0, 0.3, 0.5, 0.9, 0.99, 1.0]))
def test_fewest_by_scan(trace, wait, share):
    t, s = trace
    plan = staff_trace(t, s, wait, share)
    on_time = [np.mean(simulate_queue(t, s, n) <= wait) for n in range(1, len(t) + 1)]
    scan = next(n for n, part in enumerate(on_time, 1) if part >= share - 1e-12)
    assert plan.gpus == scan and plan.status == "optimal" and plan.value == plan.bound == scan
    assert np.array_equal(plan.waits, simulate_queue(t, s, scan))


def test_a_plan_of_ones_own():
    t, s = [0, 0, 0, 0], [1, 1, 1, 1]
    plan = TraceStaffing(t, s, gpus=4, wait=1.0, share=1.0)
    assert plan.status is Status.FEASIBLE and plan.bound == 2 and plan.gap == 0.5
    assert plan.summary() and plan.plot() and len(plan.to_frame()) == 4
    with pytest.raises(ValueError, match="at least 2"):
        TraceStaffing(t, s, gpus=1, wait=1.0, share=1.0)
    # without any GPU nobody is served, whatever the promise
    with pytest.raises(ValueError, match="gpus is 0"):
        TraceStaffing(t, s, gpus=0, wait=1.0, share=0.0)
    assert staff_trace(t, s, wait=1.0, share=0.0).gpus == 1
    assert staff_trace([], [], 1.0).value == 0 and staff_trace([], [], 1.0).waits.size == 0
    one = staff_trace([5.0], [3.0], 0.0)
    assert one.gpus == 1 and one.status == "optimal" and one.before.tolist() == [inf]


def test_a_share_that_floats_round_up():
    "0.07 of 100 requests are 7, though 0.07 * 100 is a little more."
    for share, count in ((0.07, 7), (0.55, 55), (0.29, 29)):
        plan = staff_trace(np.zeros(100), np.ones(100), wait=0.0, share=share)
        assert plan.gpus == count and plan.status == "optimal"


def test_infeasible_targets_and_too_few_gpus():
    t, s = [0, 0, 0, 0], [1, 1, 1, 1]
    with pytest.raises(Infeasible) as caught:
        staff_trace(t, s, wait=-1.0)
    assert caught.value.nearest == 0
    with pytest.raises(Infeasible) as caught:
        staff_trace(t, s, wait=1.0, share=1.5)
    assert caught.value.nearest == 1
    with pytest.raises(Infeasible, match="needs 4 GPUs") as caught:
        staff_trace(t, s, wait=0.5, share=1.0, most=3)
    assert caught.value.nearest == 4
    assert staff_trace(t, s, wait=0.5, share=1.0, most=4).gpus == 4
    with pytest.raises(Infeasible, match="most is 0"):
        staff_trace(t, s, wait=0.5, most=0)


@pytest.mark.parametrize(
    "arrivals, services, match",
    [
        ([1, 0], [1, 1], r"arrivals\[1\].*must not decrease"),
        ([0, 1], [1], "shape"),
        ([0, 1], [1, -1], r"services\[1\]"),
        ([0, np.nan], [1, 1], r"arrivals\[1\]"),
        ([0, inf], [1, 1], "finite"),
        ([[0, 1]], [[1, 1]], "dimensions"),
        ([0, 1], [1e308, 1e308], "float"),
        ([0, 1.7e308], [1e308, 1], "float"),
    ],
)
def test_bad_traces(arrivals, services, match):
    for call in (
        lambda: simulate_queue(arrivals, services, 1),
        lambda: staff_trace(arrivals, services, 1.0),
    ):
        with pytest.raises(ValueError, match=match):
            call()


@pytest.mark.parametrize("gpus", [0, -1, 1.5, np.nan, "2", None, True])
def test_bad_numbers_of_gpus(gpus):
    with pytest.raises(ValueError):
        simulate_queue([0, 1], [1, 1], gpus)


def test_a_recorded_trace():
    trace = load_requests("azure_conv")
    plan = staff_trace(trace.arrival, 0.02 * trace.output, 1.0)
    assert plan.gpus == 35 and plan.on_time >= 0.99 > np.mean(plan.before <= 1.0)
    assert "19366 requests" in plan.summary()


def test_the_live_example_is_quick():
    began = time.process_time()
    for _ in range(5):
        picture = promised_and_kept(128, 10, 3)
    assert time.process_time() - began < 5 * 0.2 and "promised 1 % above 3 s" in picture
