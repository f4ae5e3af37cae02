"""The birth-death chain against solved chains and exact arithmetic; the simulator against a plain
one that takes every step; replicas against a search over all numbers."""

from fractions import Fraction

import mpmath
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_or.fleet.load_dependent_service import (
    Engine,
    ReplicaCount,
    batching_server,
    fewest_replicas,
    fit_itl,
    largest_rate,
    simulate_steps,
)
from serving_or.tools.answers import Infeasible
from tests.long import cases

times = st.floats(1e-4, 2.0)
engines = st.builds(
    Engine,
    alpha=times,
    beta=st.one_of(st.just(0.0), times),
    batch=st.integers(1, 12),
    output=st.integers(1, 30),
    prefill=st.one_of(st.just(0.0), times),
    stalls=st.booleans(),
)
loads = st.floats(1e-3, 0.97)


def solved(engine, rate, size=6000):
    "The stationary distribution of the chain, cut where nothing is left, state by state."
    p = [1.0]
    for k in range(1, size):
        b = min(k, engine.batch)
        p.append(p[-1] * rate / float(b / engine.service(b)))
    p = np.array(p) / np.sum(p)
    assert p[-1] < 1e-14
    return p


@settings(max_examples=cases(2000), deadline=None)
@given(engines, loads)
def test_every_mean_is_that_of_the_chain(engine, load):
    server = batching_server(engine, load * engine.capacity)
    rate, p = server.rate, solved(engine, server.rate)
    k = np.arange(len(p))
    N = engine.batch
    assert np.allclose(server.presence[:N], p[:N], rtol=1e-9, atol=1e-15)
    assert np.isclose(server.waiting, p[N:].sum(), rtol=1e-9, atol=1e-15)
    # Little's law for all, for the queue, and for those in the batch
    assert np.isclose(server.present, k @ p, rtol=1e-9)
    assert np.isclose(server.wait, np.maximum(k - N, 0) @ p / rate, rtol=1e-9, atol=1e-13)
    assert np.isclose(server.running, np.minimum(k, N) @ p, rtol=1e-9)
    assert np.isclose(server.response, server.wait + server.running / rate, rtol=1e-9)
    assert np.isclose(server.ttft + engine.output * server.tpot, server.response, rtol=1e-9)
    # the rate of completions is that of arrivals
    mu = np.minimum(k, N) / engine.service(np.maximum(np.minimum(k, N), 1))
    assert np.isclose(mu @ p, rate, rtol=1e-9)


@settings(max_examples=cases(1000), deadline=None)
@given(engines, loads, st.floats(0, 5))
def test_the_tail_of_the_wait_is_a_sum_of_completions(engine, load, t):
    server = batching_server(engine, load * engine.capacity)
    p, N = solved(engine, server.rate), engine.batch
    # with N + j present one waits for j + 1 completions: more than t if at most j came by then
    mean = engine.capacity * t
    j = np.arange(len(p) - N)
    log_term = -mean + j * np.log(max(mean, 1e-300)) - np.cumsum(np.log(np.maximum(j, 1)))
    few = np.minimum(np.cumsum(np.exp(log_term)), 1.0)
    assert np.isclose(server.late(t), p[N:] @ few, rtol=1e-7, atol=1e-12)


@settings(max_examples=cases(1000), deadline=None)
@given(engines, loads, st.floats(0, 5), st.integers(0, 12), st.booleans())
def test_goodput_is_a_sum_over_what_a_request_finds(engine, load, spare, steps, first):
    server = batching_server(engine, load * engine.capacity)
    p, N = solved(engine, server.rate), engine.batch
    begins = engine.itl(np.minimum(np.arange(len(p)) + 1, N))
    # between the steps of two sizes of the batch, and beyond all
    each = float(engine.itl(steps + 0.5)) if steps else 0.0
    good = p * (begins <= each)
    if first:
        late = server.late(spare) / max(server.waiting, 1e-300)
        good[N:] *= 1 - late if p[N:].any() else 1.0
    found = server.goodput(engine.prefill + spare if first else None, each)
    assert np.isclose(found, server.rate * good.sum(), rtol=1e-7, atol=1e-9 * server.rate)


@settings(max_examples=cases(1000), deadline=None)
@given(engines, loads, loads, st.floats(0, 3), st.floats(0, 3))
def test_all_latencies_rise_with_the_rate(engine, one, two, ttft, tpot):
    low, high = (batching_server(engine, x * engine.capacity) for x in sorted((one, two)))
    slack = 1 + 1e-9
    for name in ("waiting", "wait", "ttft", "tpot", "response", "present", "running"):
        assert getattr(low, name) <= getattr(high, name) * slack
    assert low.late(ttft) <= high.late(ttft) * slack + 1e-15
    assert low.ttft_quantile(0.9) <= high.ttft_quantile(0.9) * slack
    share = [s.goodput(ttft, tpot) / s.rate for s in (low, high)]
    assert share[0] >= share[1] - 1e-9
    S = engine.service(np.arange(1, engine.batch + 1))
    assert (np.diff(S) >= 0).all()
    assert (np.diff(np.arange(1, engine.batch + 1) / S) >= -1e-12 * engine.capacity).all()


@pytest.mark.parametrize("load", [1e-6, 0.3, 0.9, 1 - 1e-9])
@pytest.mark.parametrize("N", [50, 2000])
def test_large_batches_against_fifty_digits(N, load):
    engine = Engine(0.007, 0.0001, N, 200, 0.05)
    server = batching_server(engine, load * engine.capacity)
    mpmath.mp.dps = 50
    rate = mpmath.mpf(server.rate)
    exact = lambda b: (
        mpmath.mpf(engine.prefill)
        + mpmath.mpf(engine.output) * (mpmath.mpf(engine.alpha) + mpmath.mpf(engine.beta) * b)
    )
    terms = [mpmath.mpf(1)]
    for k in range(1, N + 1):
        terms.append(terms[-1] * rate * exact(k) / k)
    terms[-1] /= 1 - rate * exact(N) / N
    total = mpmath.fsum(terms)
    waiting = terms[-1] / total
    if waiting > 1e-290:
        # near saturation the distance to the capacity has lost digits before we see it
        slack = 1e-12 + 1e-15 / (1 - load)
        assert abs(server.waiting / waiting - 1) < slack + 1e-15 * abs(float(mpmath.log(waiting)))
    batch = mpmath.fsum(min(k + 1, N) * t for k, t in enumerate(terms)) / total
    assert abs(server.batch / batch - 1) < 1e-12 + 1e-15 / (1 - load)


def test_huge_batches_and_loads_neither_overflow_nor_warn():
    with np.errstate(all="raise", under="ignore"):
        engine = Engine(1e-3, 1e-9, 10**6, 500)
        for load in (1e-9, 0.5, 0.999, 1 - 1e-12):
            server = batching_server(engine, load * engine.capacity)
            assert np.isfinite([server.ttft, server.tpot, server.response, server.wait]).all()
            assert np.isclose(server.presence.sum(), 1)
        idle = batching_server(engine, 0)
        assert idle.waiting == 0 and idle.response == engine.service(1)


def test_exactly_in_fractions():
    engine = Engine(0.25, 0.5, 3, 2, 0.25)
    S = [Fraction(1, 4) + 2 * (Fraction(1, 4) + Fraction(b, 2)) for b in (1, 2, 3)]
    rate = Fraction(1, 2)
    p = [Fraction(1)]
    for b in (1, 2, 3):
        p.append(p[-1] * rate * S[b - 1] / b)
    p[3] /= 1 - rate * S[2] / 3
    total = sum(p)
    wait = p[3] / total / (3 / S[2] - rate)
    step = sum(q * (Fraction(1, 4) + Fraction(min(k + 1, 3), 2)) for k, q in enumerate(p)) / total
    server = batching_server(engine, 0.5)
    assert np.isclose(server.wait, float(wait), rtol=1e-14)
    assert np.isclose(server.tpot, float(step), rtol=1e-14)


@settings(max_examples=cases(800), deadline=None)
@given(
    engines,
    st.floats(0.05, 30),
    st.floats(1.001, 4),
    st.floats(1.001, 4),
    st.sampled_from([None, 0.5, 0.9, 0.99]),
    st.sampled_from([None, 1.01, 1.5, 3]),
)
def test_the_fewest_replicas_are_found(engine, busy, slow, slower, share, longer):
    alone = batching_server(engine, 0)
    rate = busy * engine.capacity
    targets = {"ttft": slow * alone.ttft + 1e-3, "tpot": slower * alone.tpot, "share": share}
    targets["response"] = longer and longer * alone.response
    try:
        answer = fewest_replicas(engine, rate, **targets)
    except Infeasible:
        # only where a share asks for steps of a batch of one
        raise AssertionError("targets above the floor can be met") from None
    n = answer.replicas
    assert answer.status == "optimal" and answer.value == answer.bound == n

    def meets(server):
        if not server.stable or server.response > (targets["response"] or np.inf):
            return False
        if share is None:
            return server.ttft <= targets["ttft"] and server.tpot <= targets["tpot"]
        return server.goodput(targets["ttft"], targets["tpot"]) >= share * server.rate

    assert meets(answer.server)
    for fewer in {1, n // 2, n - 1} - {0, n}:
        assert not meets(answer.at(fewer))
    assert rate / n <= largest_rate(engine, **targets) * (1 + 1e-9)
    assert n == 1 or rate / (n - 1) >= largest_rate(engine, **targets) * (1 - 1e-9)


def test_a_target_below_the_floor_is_told_from_too_few_replicas():
    engine = Engine(0.04, 0.01, 4, 10, 0.1)
    for targets, word in (
        ({"ttft": 0.0999}, "ttft"),
        ({"tpot": 0.049}, "tpot"),
        ({"response": 0.599}, "response"),
        ({"tpot": 0.049, "share": 0.9}, "tpot"),
    ):
        with pytest.raises(Infeasible, match=f"{word} is .* no number of replicas") as error:
            fewest_replicas(engine, 20, **targets)
        floor = {"ttft": 0.1, "tpot": 0.05, "response": 0.6}[word]
        assert np.isclose(error.value.nearest, floor)
        assert error.value.largest == 0 and largest_rate(engine, **targets) == 0
    with pytest.raises(Infeasible, match="share is 1; with random arrivals"):
        fewest_replicas(engine, 20, ttft=5, share=1)
    # a target that the full batch keeps is kept for all
    assert fewest_replicas(engine, 20, share=1).replicas == 5
    assert fewest_replicas(engine, 20, tpot=0.08, share=1).replicas == 5
    with pytest.raises(Infeasible, match="share is 1"):
        fewest_replicas(engine, 20, tpot=0.079, share=1)
    assert fewest_replicas(engine, 0, ttft=0.5, share=1).replicas == 1
    assert largest_rate(engine, ttft=0.5, share=1) == 0
    with pytest.raises(Infeasible, match="need more than 13 replicas") as error:
        fewest_replicas(engine, 20, ttft=0.5, share=0.99, most=13)
    assert 18 < error.value.largest < 20
    fine = fewest_replicas(engine, error.value.largest, ttft=0.5, share=0.99, most=13)
    assert fine.replicas == 13
    # with the floor itself as a target, only an idle replica meets a mean
    for floor in (
        {"tpot": 0.05},
        {"ttft": 0.1},
        {"response": 0.6},
        {"response": 0.6, "share": 0.9},
    ):
        with pytest.raises(Infeasible, match="no number of replicas can meet it"):
            fewest_replicas(engine, 20, **floor)
        assert largest_rate(engine, **floor) == 0
    # where nobody shares a batch, or a batch costs nothing, all have the same step
    assert fewest_replicas(Engine(0.04, 0.01, 1, 10), 1, tpot=0.05).replicas == 1
    assert fewest_replicas(Engine(0.05, 0, 4, 10), 1, tpot=0.05).replicas == 1
    # a share may be at the floor: some requests are alone
    assert fewest_replicas(engine, 20, ttft=0.1, tpot=0.05, share=0.9).status == "optimal"
    assert fewest_replicas(engine, 0, ttft=0.1, tpot=0.05, response=0.6).replicas == 1


@settings(max_examples=cases(2000), deadline=None)
@given(
    engines,
    st.integers(1, 30),
    st.floats(1.001, 4),
    st.floats(1.001, 4),
    st.sampled_from([None, 0.5, 0.99, 0.9999]),
)
def test_the_rate_that_a_refusal_names_can_be_carried(engine, most, slow, slower, share):
    alone = batching_server(engine, 0)
    targets = {"ttft": slow * alone.ttft + 1e-3, "tpot": slower * alone.tpot, "share": share}
    with pytest.raises(Infeasible, match=f"more than {most} replicas") as error:
        fewest_replicas(engine, 1.01 * most * engine.capacity, **targets, most=most)
    carried = error.value.nearest
    assert carried > 0
    assert fewest_replicas(engine, carried, **targets, most=most).replicas <= most
    with pytest.raises(Infeasible):
        fewest_replicas(engine, 1.0001 * carried, **targets, most=most)


def test_an_answer_that_is_not_the_least_says_so():
    engine = Engine(0.04, 0.01, 4, 10, 0.1)
    wasteful = ReplicaCount(engine, 20, 20, ttft=0.5, share=0.99)
    assert wasteful.bound == 14 and wasteful.status == "feasible" and wasteful.gap == 0.3
    with pytest.raises(ValueError, match="so many do not meet"):
        ReplicaCount(engine, 20, 13, ttft=0.5, share=0.99)
    assert "with one less" in fewest_replicas(engine, 20, ttft=0.5).summary()


def test_an_unstable_replica_has_infinite_waits():
    server = batching_server(Engine(0.04, 0.01, 4, 10, 0.1), 10)
    assert not server.stable and server.wait == server.ttft == server.response == np.inf
    assert server.tpot == pytest.approx(0.08) and server.throughput == server.engine.capacity
    assert server.running == pytest.approx(4) and server.present == np.inf
    assert server.late(1e9) == 1 and server.goodput(ttft=5) == 0 and server.late(np.inf) == 0
    assert server.goodput() == server.throughput and server.ttft_quantile(0.5) == np.inf
    assert "the queue grows" in server.summary()


# the simulator


def every_step(engine, arrival, output, prefill):
    "One step at a time, with lists."
    n = len(arrival)
    start, first, done, left = [None] * n, [None] * n, [None] * n, list(output)
    waiting, inside, t = list(range(n)), [], 0.0
    while waiting or inside:
        if not inside:
            t = max(t, arrival[waiting[0]])
        while waiting and arrival[waiting[0]] <= t and len(inside) < engine.batch:
            i = waiting.pop(0)
            start[i] = t
            t += prefill[i] * engine.stalls
            first[i] = t + prefill[i] * (not engine.stalls)
            inside.append(i)
        ready = [i for i in inside if first[i] <= t]
        if not ready:
            room = waiting and len(inside) < engine.batch
            t = min([first[i] for i in inside] + ([arrival[waiting[0]]] if room else []))
            continue
        t += engine.alpha + engine.beta * len(inside)
        for i in ready:
            left[i] -= 1
            if left[i] == 0:
                done[i] = t
                inside.remove(i)
    return np.array([start, first, done])


@settings(max_examples=cases(3000), deadline=None)
@given(
    st.booleans(),
    st.integers(1, 4),
    st.integers(0, 2),
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 6), st.integers(0, 5)), max_size=9),
)
def test_jumps_are_steps(stalls, batch, beta, requests):
    # all times are multiples of 1/4, so that floats are exact
    engine = Engine(0.5, beta / 4, batch, 3, 0.25, stalls)
    gap, output, prefill = (np.array(x, float) for x in zip(*requests)) if requests else [[]] * 3
    arrival, prefill = np.cumsum(gap) / 4, np.array(prefill) / 4
    seen = simulate_steps(engine, arrival, output, prefill)
    start, first, done = every_step(engine, arrival.tolist(), list(output), prefill.tolist())
    if requests:
        assert np.array_equal(seen.wait, start - arrival)
        assert np.array_equal(seen.ttft, first - arrival)
        assert np.array_equal(seen.response, done - arrival)
        assert (seen.wait >= 0).all() and (seen.ttft >= seen.wait).all()
    else:
        assert seen.summary() == "no requests"


def test_geometric_lengths_follow_the_chain():
    "Short steps and no prefill: within the noise of 5 seeds, stated as 6 per cent."
    engine = Engine(0.0004, 0.0002, 6, 300)
    model, seen = batching_server(engine, 0.8 * engine.capacity), []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        arrival = np.cumsum(rng.exponential(1 / model.rate, 100_000))
        s = simulate_steps(engine, arrival, rng.geometric(1 / 300, 100_000))
        seen.append([s.ttft.mean(), s.tpot.mean(), s.response.mean(), s.good(ttft=0.2)])
    ttft, tpot, response, good = np.mean(seen, axis=0)
    assert abs(model.ttft / ttft - 1) < 0.06 and abs(model.response / response - 1) < 0.06
    assert abs(model.tpot / tpot - 1) < 0.02
    assert abs(model.goodput(ttft=0.2) / model.rate - good) < 0.01


# the fit


@settings(max_examples=cases(2000), deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 300), st.floats(1e-4, 1.0)), min_size=2, max_size=8),
    st.floats(0, 0.1),
    st.floats(0, 0.01),
)
def test_no_line_in_the_quadrant_fits_better(points, alpha, beta):
    b, y = map(np.array, zip(*points))
    if len(np.unique(b)) < 2:
        with pytest.raises(ValueError, match="different sizes"):
            fit_itl(b, y)
        return
    fit = fit_itl(b, y)
    error = lambda a, c: np.square(y - a - c * b).sum()
    mine = error(fit.alpha, fit.beta)
    assert fit.alpha >= 0 and fit.beta >= 0
    assert mine <= error(alpha, beta) * (1 + 1e-9)
    for a, c in ((1.01, 1), (0.99, 1), (1, 1.01), (1, 0.99)):
        assert mine <= error(fit.alpha * a, fit.beta * c) + 1e-12
    assert np.allclose(fit.residuals, y - fit.alpha - fit.beta * b)


def test_a_line_is_found_again_whatever_the_units():
    b = np.array([1, 8, 64], np.int8)
    for unit in (1e-6, 1.0, 1e6):
        fit = fit_itl(b, unit * (0.007 + 0.0001 * b))
        assert np.isclose(fit.alpha, 0.007 * unit) and np.isclose(fit.beta, 0.0001 * unit)
        assert fit.error < 1e-9 and not fit.clipped
    series = pd.Series([0.0071, 0.0078, 0.0134], index=[1, 8, 64])
    engine = fit_itl(series.index, series).engine(64, 100)
    assert np.isclose(engine.itl(64), 0.0134) and len(fit_itl(b, series).to_frame()) == 3


@pytest.mark.parametrize(
    "call, match",
    [
        (lambda: Engine(-1, 0, 1, 1), "alpha is -1"),
        (lambda: Engine(0, 0, 1, 1), "output .* is 0.0"),
        (lambda: Engine(1, 0, 0, 1), "batch is 0"),
        (lambda: Engine(1, 0, 1, 0), "output is 0"),
        (lambda: Engine(1, 0, 1, 1, 0, 1), "stalls is 1"),
        (lambda: Engine(1, 0, 10**9, 1), "batch"),
        (lambda: batching_server(3, 1), "engine is of type int"),
        (lambda: batching_server(Engine(1, 0, 1, 1), -1), "rate is -1"),
        (lambda: fewest_replicas(Engine(1, 0, 1, 1), 1, ttft=np.nan), "ttft is nan"),
        (lambda: fewest_replicas(Engine(1, 0, 1, 1), 1, share=1.5), "share is 1.5"),
        (lambda: fit_itl([1, 2], [1, 0]), r"itl\[1\] is 0.0"),
        (lambda: simulate_steps(Engine(1, 0, 1, 1), [1, 0]), "must not decrease"),
        (lambda: simulate_steps(Engine(1, 0, 1, 1), [1], output=[0]), "output"),
        (lambda: simulate_steps(Engine(1, 0, 1, 1), [1, 2], output=[1]), r"output has shape"),
        (lambda: simulate_steps(Engine(1, 0, 1, 1), [1, 2], prefill=[1] * 3), r"prefill has shape"),
    ],
)
def test_bad_input_is_refused(call, match):
    with pytest.raises(ValueError, match=match):
        call()
