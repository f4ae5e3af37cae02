"""The look-ahead against its literal rule, the checker against the definition, bounds against
enumeration; what is refused, and the edges of the model."""

import subprocess
import sys
from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_or.fleet import kv_cache
from serving_or.fleet.kv_cache import (
    FCFS,
    MCSF,
    Batching,
    Requests,
    Timetable,
    cache_tokens,
    check_starts,
    look_ahead,
    schedule,
    tokens_held,
    volume_bound,
)
from serving_or.tools.answers import Infeasible
from serving_or.tools.data import RequestTrace, load_requests
from serving_or.tools.models import CARDS, GPUS
from tests.instances import (
    FOUR_IN_NINE,
    SEVEN_REQUESTS,
    instances_of_requests,
    least_latency,
)
from tests.long import cases


def held(requests, starts):
    "Use by the definition, from round 0 on."
    last = int((starts + requests.output).max(initial=0))
    use = np.zeros(last + 2, int)
    for s, o, p in zip(requests.prompt, requests.output, starts):
        for t in range(p + 1, p + o + 1):
            use[t] += s + t - p
    return use


def literal(requests, memory, order, plan):
    "Look-ahead, said as the rule says it."
    a, s, o = requests.arrival, requests.prompt, requests.output
    start, t = {}, 0
    while len(start) < len(requests):
        running = [j for j in start if start[j] + o[j] > t]
        for i in [i for i in order if i not in start and a[i] <= t]:
            present = {j: start[j] for j in running} | {i: t}
            if any(
                sum(s[j] + u - p for j, p in present.items() if u <= p + plan[j]) > memory
                for u in range(t + 1, t + plan[i] + 1)
            ):
                break
            start[i] = t
            running.append(i)
        t += 1
    return np.array([start[i] for i in range(len(requests))], int)


# ---- the look-ahead ----


@settings(max_examples=cases(4000), deadline=None)
@given(instances_of_requests(), st.integers(0, 10**6))
def test_the_array_does_what_the_rule_says(case, seed):
    requests, memory = case
    rng = np.random.default_rng(seed)
    key = rng.integers(0, 3, len(requests))
    plan = np.minimum(requests.output + rng.integers(0, 5, len(requests)), memory - requests.prompt)
    order = np.lexsort((requests.prompt, requests.arrival, key))
    start = look_ahead(requests, memory, key, plan)
    assert (start == literal(requests, memory, order, plan)).all()
    assert check_starts(requests, start, memory) == held(requests, start).max(initial=0)


@settings(max_examples=cases(1000), deadline=None)
@given(instances_of_requests(gap=40))
def test_idle_stretches_are_jumped_over(case):
    requests, memory = case
    for policy in (FCFS(), MCSF()):
        start = schedule(requests, memory, policy).starts
        order = np.lexsort((requests.prompt, requests.arrival, policy.key(requests)))
        assert (start == literal(requests, memory, order, requests.output)).all()
    # the same a long time later
    later = Requests(requests.arrival + 2**50, requests.prompt, requests.output)
    assert (schedule(later, memory).latency == schedule(requests, memory).latency).all()
    assert volume_bound(later, memory) == volume_bound(requests, memory)


def test_a_far_arrival_takes_no_time():
    requests = Requests([0, 2**52], [1, 1], [2, 2])
    assert schedule(requests, 3).starts.tolist() == [0, 2**52]


def by_the_horizon(requests, memory, key, plan):
    "Look-ahead with the planned use of every round there is, in one array."
    a, s, o = requests.arrival, requests.prompt, requests.output
    rank = np.lexsort((s, a, key))
    use = np.zeros(int(a.max() + plan.sum() + plan.max()) + 2, int)
    start, ending, t = np.full(len(a), -1), {}, 0
    while (start < 0).any():
        for i in ending.pop(t, []):
            rest = np.arange(o[i] + 1, plan[i] + 1)
            use[start[i] + rest] -= s[i] + rest
        for i in rank[(start[rank] < 0) & (a[rank] <= t)]:
            ramp = np.arange(1, plan[i] + 1)
            if (use[t + ramp] + s[i] + ramp).max() > memory:
                break
            use[t + ramp] += s[i] + ramp
            start[i] = t
            ending.setdefault(t + o[i], []).append(i)
        t += 1
    return start


def long_cases():
    """Windows that slide many times, idle stretches about as long as the window and its buffer,
    ties, requests that fill the memory alone, and reserves beyond the output."""
    rng = np.random.default_rng(1)
    for longest, memory, n in ((1, 9, 60), (7, 12, 100), (39, 90, 90), (60, 70, 40)):
        for gaps in ([0, 1], [0, 3], [0, 0, 0, longest, longest + 1, longest + 2, 1025, 1200]):
            arrival = np.cumsum(rng.choice(gaps, n))
            output = rng.integers(1, longest + 1, n)
            prompt = np.where(rng.random(n) < 0.2, memory - output, rng.integers(0, 5, n))
            some = Requests(arrival, prompt, output).take(rng.permutation(n))
            plan = np.minimum(some.output + rng.integers(0, 30, n), memory - some.prompt)
            for key in (some.arrival, some.output, rng.integers(0, 2, n)):
                for reserve in (some.output, plan):
                    yield some, memory, key, reserve


def test_the_window_slides_many_times():
    for some, memory, key, plan in long_cases():
        start = look_ahead(some, memory, key, plan)
        assert (start == by_the_horizon(some, memory, key, plan)).all()


def test_compiled_and_plain_are_the_same(monkeypatch):
    pytest.importorskip("numba")
    some = list(long_cases())
    plain = [look_ahead(*case) for case in some]
    monkeypatch.setattr(kv_cache, "_MANY", 1)
    assert all((p == look_ahead(*case)).all() for p, case in zip(plain, some))


def test_nothing_heavy_is_loaded():
    code = "import sys; from serving_or import fleet; r = fleet.Requests([0], [1], [1]);"
    code += " fleet.schedule(r, 3); print({'numba', 'scipy', 'pandas'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@settings(max_examples=cases(1000), deadline=None)
@given(instances_of_requests(), st.randoms())
def test_names_do_not_matter(case, random):
    requests, memory = case
    order = list(range(len(requests)))
    random.shuffle(order)
    # under FCFS, two that arrive together with one prompt stand as they were given
    one, two = (schedule(r, memory, MCSF()) for r in (requests, requests.take(order)))
    assert sorted(one.latency) == sorted(two.latency) and one.bound == two.bound


@settings(max_examples=cases(500), deadline=None)
@given(instances_of_requests(), st.integers(1, 4), st.integers(1, 4))
def test_equal_requests_leave_no_choice(case, prompt, output):
    requests, _ = case
    alike = Requests(requests.arrival, prompt, output)
    memory = prompt + output + 3
    first, short = (schedule(alike, memory, policy) for policy in (FCFS(), MCSF()))
    assert (first.starts == short.starts).all()


@settings(max_examples=cases(500), deadline=None)
@given(instances_of_requests())
def test_with_enough_memory_nobody_waits(case):
    requests, _ = case
    memory = max(int((requests.prompt + requests.output).sum()), 1)
    for policy in (FCFS(), MCSF(), MCSF(requests.output + 2)):
        table = schedule(requests, memory + 2 * len(requests), policy)
        assert not table.waits.any() and table.value == requests.output.sum() == table.bound
        assert table.status == "optimal"


# ---- checker, timetable ----


@settings(max_examples=cases(2000), deadline=None)
@given(instances_of_requests(), st.lists(st.integers(0, 12), min_size=7, max_size=7))
def test_the_checker_is_the_definition(case, late):
    requests, memory = case
    starts = requests.arrival + late[: len(requests)]
    use = held(requests, starts)
    rounds = np.arange(len(use))
    assert (tokens_held(requests.prompt, starts, requests.output, rounds) == use).all()
    if use.max(initial=0) <= memory:
        assert check_starts(requests, starts, memory) == use.max(initial=0)
    else:
        with pytest.raises(ValueError, match=f"round {np.argmax(use > memory)} holds|round"):
            check_starts(requests, starts, memory)


@settings(max_examples=cases(500), deadline=None)
@given(instances_of_requests())
def test_little(case):
    requests, memory = case
    table = schedule(requests, memory, MCSF())
    rounds = np.arange(1, int(table.completions.max(initial=0)) + 1)
    present = [((requests.arrival < t) & (t <= table.completions)).sum() for t in rounds]
    assert sum(present) == table.value == table.latency.sum()
    assert table.use(rounds).sum() == requests.volume.sum()


def test_a_start_before_the_arrival_is_named():
    for early in (1, 2, 3):
        with pytest.raises(ValueError, match=f"request B starts at {3 - early}"):
            check_starts(Requests([0, 3], 1, 1, labels="AB"), [0, 3 - early], 5)
    with pytest.raises(ValueError, match="request B starts at 0; .* its arrival, 3"):
        check_starts(Requests([0, 3], 1, 1, labels="AB"), [0, 0], 5)


def test_lost_runs_count_in_the_memory():
    pair = Requests([0, 0], [2, 2], [3, 3])
    table = Timetable(pair, 10, [0, 3], lost=[[1, 0, 2]])
    assert table.peak == 8 and table.use([2]).tolist() == [8]
    with pytest.raises(ValueError, match="round 2 holds 8"):
        Timetable(pair, 7, [0, 3], lost=[[1, 0, 2]])
    no_run = ([[2, 0, 1]], [[0, 0]], [[0, -1, 1]], [[0, 0.5, 1]], [[1, 0, 0]], [[1, 2, 2]])
    # as long as the output, or two at once
    for bad in (*no_run, [[1, 0, 3]], [[1, 0, 2], [1, 1, 1]], [[1, 1, 1], [1, 0, 2]]):
        with pytest.raises(ValueError):
            Timetable(pair, 10, [0, 3], lost=bad)
    assert len(Timetable(pair, 10, [0, 3], lost=[[1, 1, 2], [1, 0, 1]]).lost) == 2
    late = Requests([0, 2], [2, 2], [3, 3])
    with pytest.raises(ValueError, match=r"lost\[0\] is \[1, 1, 1\]"):
        Timetable(late, 10, [0, 4], lost=[[1, 1, 1]])


def test_a_timetable_travels(tmp_path):
    table = schedule(SEVEN_REQUESTS, 10, MCSF())
    table.save(tmp_path / "t.json")
    again = Timetable.load(tmp_path / "t.json")
    assert again == table and again.requests.labels == tuple("ABCDEFG")
    assert list(table.to_frame().index) == list("ABCDEFG")
    assert "MCSF: 7 requests" in table.summary() and "value 41, bound" in table.summary()


def test_the_quantile_is_a_latency_that_somebody_has():
    table = Timetable(Requests(np.zeros(4), 1, 1), 9, [0, 1, 2, 6])
    assert [table.quantile(q) for q in (0, 0.25, 0.26, 0.5, 0.75, 0.76, 1)] == [1, 1, 2, 2, 3, 7, 7]


def test_a_bound_above_the_value_is_refused():
    with pytest.raises(ValueError, match="bound"):
        Timetable(SEVEN_REQUESTS, 30, SEVEN_REQUESTS.arrival, bound=28)


def test_a_better_bound_is_kept():
    table = schedule(SEVEN_REQUESTS, 10, MCSF())
    better = Timetable(SEVEN_REQUESTS, 10, table.starts, bound=38)
    assert better.bound == 38 > table.bound and better.ratio == 41 / 38


# ---- bounds and traps ----


@settings(max_examples=cases(400), deadline=None)
@given(instances_of_requests(most=4, longest=3, gap=3))
def test_bounds_hold_for_the_optimum(case):
    requests, memory = case
    if not len(requests):
        return
    best = least_latency(requests, memory)
    bound = volume_bound(requests, memory)
    assert requests.output.sum() <= bound <= best
    assert all(best <= schedule(requests, memory, p).value for p in (FCFS(), MCSF()))
    assert least_latency(requests, memory + 1) <= best


def test_one_release_is_the_sum_of_the_smallest_volumes():
    rng = np.random.default_rng(3)
    for _ in range(cases(200)):
        n = int(rng.integers(1, 30))
        requests = Requests(np.full(n, 5), rng.integers(0, 9, n), rng.integers(1, 9, n))
        memory = int(rng.integers(18, 60))
        k = -(-np.cumsum(np.sort(requests.volume)) // memory)
        assert volume_bound(requests, memory) == np.maximum(k, np.sort(requests.output)).sum()


def test_no_order_leads_to_the_optimum():
    assert least_latency(FOUR_IN_NINE, 9) == 23
    values = [schedule(FOUR_IN_NINE, 9, ordered(o)).value for o in permutations(range(4))]
    assert min(values) == 24


def ordered(order):
    class Ordered(Batching):
        def key(self, requests):
            return np.argsort(order)

    return Ordered()


def test_more_memory_hurts():
    values = [schedule(SEVEN_REQUESTS, memory, MCSF()).value for memory in (10, 11)]
    assert values == [41, 53]


def test_large_volumes_do_not_overflow():
    n = 300
    requests = Requests(np.zeros(n), 2**22, 2**22)
    bound = volume_bound(requests, 2**23)
    volume = 2**44 + 2**21 * (2**22 + 1)
    assert bound == sum(max(-(-volume * k // 2**23), 2**22) for k in range(1, n + 1))


# ---- edges ----


def test_what_just_fits_and_what_does_not():
    assert schedule(Requests([0], [7], [3]), 10).peak == 10
    with pytest.raises(
        Infeasible, match=r"request B: prompt 8 \+ output 3 = 11 .* raise memory to 11"
    ):
        schedule(Requests([0, 0], [7, 8], [3, 3], labels="AB"), 10)
    rest = Requests([0, 0], [7, 8], [3, 3], labels="AB").fitting(10)
    assert len(rest) == 1 and rest.dropped == 1 and "1 dropped" in rest.summary()


def test_no_requests():
    none = Requests([], [], [])
    table = schedule(none, 5, MCSF())
    assert (table.value, table.bound, table.mean, table.worst, table.peak) == (0, 0, 0, 0, 0)
    assert table.status == "optimal" and table.quantile() == 0 and none.summary() == "no requests"
    assert none.utilisation(3) == 0 and len(none.to_frame()) == 0 and check_starts(none, [], 3) == 0


def test_unit_outputs_and_an_arrival_at_a_completion():
    requests = Requests([0, 0, 1], [2, 2, 2], [1, 1, 1])
    # two hold 6 in round 1; the third starts at the boundary at which they end
    assert schedule(requests, 6).starts.tolist() == [0, 0, 1]


def test_unsorted_arrivals_come_back_in_their_order():
    requests = Requests([9, 0], [1, 2], [2, 3], labels=["late", "early"])
    table = schedule(requests, 5)
    assert table.starts.tolist() == [9, 0] and list(table.to_frame().index) == ["late", "early"]


def test_outputs_of_zero():
    trace = RequestTrace("mine", np.array([0.0, 1, 2]), np.array([5, 6, 7]), np.array([1, 0, 2]))
    with pytest.raises(ValueError, match=r"output\[1\] is 0 .* drop_empty=True"):
        Requests.from_trace(trace, 0.5)
    kept = Requests.from_trace(trace, 0.5, drop_empty=True)
    assert kept.arrival.tolist() == [0, 4] and kept.dropped == 1 and "1 dropped" in kept.summary()
    frame = pd.DataFrame({"arrival": [0.1, 0.3], "prompt": [1, 2], "output": [3, 4]})
    assert Requests.from_trace(frame, 0.1).arrival.tolist() == [1, 3]
    # a boundary stays a boundary, however late
    for late in (1.1, 1e4 + 0.1, 123456789.1):
        frame = pd.DataFrame({"arrival": [late], "prompt": [1], "output": [3]})
        assert Requests.from_trace(frame, 0.1).arrival.tolist() == [round(10 * late)]
    with pytest.raises(ValueError, match=r"arrival\[0\] is -5.0"):
        Requests.from_trace(frame.assign(arrival=-5.0), 0.1)
    with pytest.raises(ValueError, match="trace has no output"):
        Requests.from_trace(frame.drop(columns="output"), 0.1)


@pytest.mark.parametrize("name", ["azure_conv", "mooncake_conversation"])
def test_traces_are_read(name):
    trace = load_requests(name)
    requests = Requests.from_trace(trace, 0.05)
    assert len(requests) == len(trace) and not requests.dropped
    assert (
        (requests.arrival * 0.05 >= trace.arrival - 1e-9)
        & (requests.arrival * 0.05 < trace.arrival + 0.05)
    ).all()


def test_labels_of_a_series():
    arrival = pd.Series([0, 1], index=["x", "y"])
    assert Requests(arrival, 1, 1).labels == ("x", "y")


@pytest.mark.parametrize(
    "given, said",
    [
        (([0, 1], [1], [1, 1]), "prompt has shape"),
        (([0], [-1], [1]), r"prompt\[0\] is -1"),
        (([0], [1.5], [1]), r"prompt\[0\] is 1.5"),
        (([-1], [1], [1]), r"arrival\[0\] is -1"),
        (([0], [1], [2**22 + 1]), r"output\[0\] is 4194305"),
        (([[0]], [1], [1]), "arrival has shape"),
    ],
)
def test_bad_requests(given, said):
    with pytest.raises(ValueError, match=said):
        Requests(*given)


def test_bad_calls():
    requests = Requests([0, 0], [1, 1], [4, 5])
    with pytest.raises(ValueError, match="reserve of request 1 is 4; .* evict"):
        schedule(requests, 9, MCSF([4, 4]))
    with pytest.raises(ValueError, match="policy"):
        schedule(requests, 9, "fcfs")
    with pytest.raises(ValueError, match="requests"):
        schedule([1, 2], 9)
    with pytest.raises(NotImplementedError, match="must define key"):
        schedule(requests, 9, Batching())
    with pytest.raises(ValueError, match="labels are 3"):
        Requests([0], [1], [1], labels="abc")
    assert repr(MCSF()) == "MCSF(predicted=None)"


def test_tokens_of_a_card():
    card, gpu = CARDS["Llama-3.1-70B"], GPUS["H100"]
    with pytest.raises(Infeasible, match="needs 2 GPUs"):
        cache_tokens(card, gpu)
    one, two = cache_tokens(card, gpu, 2), cache_tokens(card, gpu, 4)
    each = 0.9 * gpu.memory
    weights = card.total * 2
    assert one == (2 * each - weights) // 327_680 and two - one == pytest.approx(
        2 * each / 327_680, abs=1
    )
    assert cache_tokens(card.stored(kv_bits=8), gpu, 2) in (2 * one, 2 * one + 1)
    # the share at which the weights just fit, and a little less
    share = weights / (4 * gpu.memory)
    assert cache_tokens(card, gpu, 4, share * 1.000001) in range(2)
    with pytest.raises(Infeasible, match="needs 5 GPUs"):
        cache_tokens(card, gpu, 4, share * 0.999999)


def test_without_numba_the_loop_is_plain(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    assert kv_cache._compiled.__wrapped__(kv_cache._ahead) is kv_cache._ahead


def test_a_picture():
    import matplotlib

    matplotlib.use("Agg")
    ax = schedule(SEVEN_REQUESTS, 10, MCSF()).plot()
    assert max(ax.get_lines()[0].get_ydata()) == 10 and ax.get_title() == "MCSF"
    assert "41 rounds, bound 32" in kv_cache.cache_by_round(10, "shortest")
