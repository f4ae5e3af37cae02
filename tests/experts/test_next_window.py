"""Backtests: what is counted, that nobody sees the future, and the bound; against plain loops."""

import pickle
from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest

from serving_or.experts.hindsight import optimum
from serving_or.experts.model import Problem
from serving_or.experts.next_window import (
    Backtest,
    Keep,
    Link,
    MapPolicy,
    OnePerGpu,
    Rebuild,
    Relabelled,
    Repair,
    arrivals,
    backtest,
    cautious,
    check_physical,
    engine_map,
    fewest_transfers,
    first_map,
    ranges,
    reassigned,
    windows_of,
)
from serving_or.experts.policies import Chase, Myopic, Never
from serving_or.experts.predictions import ewma, seasonal
from serving_or.experts.regularized_greedy import RegularizedGreedy, ReverseEntropy
from serving_or.experts.repair import relabel, who_holds
from serving_or.experts.replicas import balancedness, counts_of, gpu_loads
from serving_or.experts.rounding import Hysteresis, Threshold
from serving_or.tools.data import load_experts
from serving_or.tools.generators import generate_experts
from tests.long import cases


def drawn(seed, layers=2, m=6, steps=6, scale=40):
    "A trace of whole loads, some of them 0."
    rng = np.random.default_rng(seed)
    return rng.poisson(scale * rng.exponential(size=(1, layers, m)) * np.ones((steps, 1, 1)))


def random_map(rng, layers, m, n):
    "Every expert somewhere; duplicates may occur."
    rows = [np.concatenate([np.arange(m), rng.integers(m, size=n - m)]) for _ in range(layers)]
    return rng.permuted(np.array(rows), axis=1)


def everybody():
    "Every policy that plays on any shape."
    return {
        "keep": Keep(),
        "rebuild": Rebuild(),
        "rebuild, ewma": Rebuild(ewma(0.5)),
        "rebuild, cautious": Rebuild(cautious(1.0, 3)),
        "relabelled": Relabelled(),
        "repair": Repair(),
        "repair, seasonal": Repair(0.05, seasonal(2)),
    }


def extras(price=2.0):
    "Every policy for one expert on each GPU."
    return {
        "greedy": OnePerGpu(RegularizedGreedy(), move_price=price),
        "reversed": OnePerGpu(ReverseEntropy(), Hysteresis(), price),
        "threshold": OnePerGpu(RegularizedGreedy(), Threshold(3), price),
        "ewma": OnePerGpu(RegularizedGreedy(), move_price=price, predictor=ewma(0.5)),
        "never": OnePerGpu(Never(), move_price=price),
    }


# What is counted


@pytest.mark.parametrize("seed", range(cases(400, 20)))
def test_arrivals_against_sets(seed):
    rng = np.random.default_rng(seed)
    gpus, nodes, m = 4, int(rng.choice([1, 2, 4])), 5
    old, new = (random_map(rng, 2, m, 8) for _ in range(2))
    near, far = arrivals(old, new, m, gpus, nodes)
    for layer in range(2):
        before = [set(p) for p in old[layer].reshape(gpus, 2).tolist()]
        after = [set(p) for p in new[layer].reshape(gpus, 2).tolist()]
        size = gpus // nodes
        for gpu in range(gpus):
            mates = set().union(*before[gpu // size * size : (gpu // size + 1) * size])
            came = after[gpu] - before[gpu]
            assert near[layer, gpu] == len(came & mates)
            assert far[layer, gpu] == len(came - mates)
    assert who_holds(old, m, gpus).sum() == sum(
        len(set(p)) for row in old for p in row.reshape(gpus, 2).tolist()
    )


def test_a_slot_that_changes_its_place_on_its_gpu_costs_nothing():
    near, far = arrivals([[0, 1, 2, 3]], [[1, 0, 3, 2]], 4, 2)
    assert not near.any() and not far.any()


def test_the_time_of_a_rebalance_by_hand():
    link = Link(10.0, near=5.0, far=2.0)
    # layer 0: 2 s and 5 + 2 s; layer 1: nothing and 10 s
    assert link.seconds([[1, 1], [0, 0]], [[0, 1], [0, 2]]) == 7 + 10
    assert link.seconds(np.zeros((2, 3)), np.zeros((2, 3))) == 0


def plain_engine_map(loads, gpus, slots):
    "The rule of the engines, expert by expert."
    copies = [1] * len(loads)
    listed = list(range(len(loads)))
    for _ in range(slots - len(loads)):
        hot = max(range(len(loads)), key=lambda i: loads[i] / copies[i])
        copies[hot] += 1
        listed.append(hot)
    shares = [loads[i] / copies[i] for i in listed]
    parts, sums = [[] for _ in range(gpus)], [0.0] * gpus
    for j in sorted(range(slots), key=lambda j: -shares[j]):
        free = [g for g in range(gpus) if len(parts[g]) < slots // gpus]
        g = min(free, key=lambda g: sums[g])
        parts[g].append(listed[j])
        sums[g] += shares[j]
    return [i for part in parts for i in part]


@pytest.mark.parametrize("seed", range(cases(800, 25)))
def test_the_rule_of_the_engines_against_plain_loops(seed):
    rng = np.random.default_rng(seed)
    m, gpus = int(rng.integers(1, 9)), int(rng.integers(1, 5))
    slots = -(-m // gpus) * gpus + gpus * int(rng.integers(0, 3))
    loads = rng.integers(0, 30, (3, m)).astype(float)
    P = engine_map(loads, gpus, slots)
    assert P.tolist() == [plain_engine_map(list(r), gpus, slots) for r in loads]


def test_the_rule_of_the_engines_on_its_own_example():
    """The first layer of EPLB's README on 8 GPUs: expert 1 twice on one GPU, and 138.5."""
    row = np.array([[90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86]], float)
    P = engine_map(row, 8, 16)
    assert gpu_loads(P, row, 8).max() == 138.5
    assert [1, 1] in P.reshape(8, 2).tolist()


@pytest.mark.parametrize("seed", range(cases(400, 15)))
def test_relabelling_is_the_best_exchange_of_parts(seed):
    rng = np.random.default_rng(seed)
    gpus, m = int(rng.integers(1, 5)), 5
    n = -(-m // gpus) * gpus + gpus
    old, new = (random_map(rng, 2, m, n) for _ in range(2))
    made = relabel(old, new, gpus)
    sent = sum(a.sum(axis=1) for a in arrivals(old, made, m, gpus))
    parts = new.reshape(2, gpus, -1)
    for layer in range(2):
        exchanged = [parts[layer][list(o)].reshape(1, -1) for o in permutations(range(gpus))]
        every = [
            sum(a.sum() for a in arrivals(old[layer : layer + 1], one, m, gpus))
            for one in exchanged
        ]
        assert sent[layer] == min(every)
        there, here = (
            sorted(map(sorted, p.reshape(gpus, -1).tolist())) for p in (made[layer], parts[layer])
        )
        assert there == here


def test_the_scores_are_those_of_the_maps():
    """Recomputed from the maps that a policy has given."""
    loads, given = drawn(1, steps=7), []

    class Watched(Rebuild):
        def place(self, loads):
            given.append(super().place(loads))
            return given[-1]

    run = backtest(loads, 2, 2, policies=[Watched()])
    assert run.names == ("watched",) and run.rebalances == 6 == len(given)
    for t, P in enumerate(given):
        assert np.isclose(run.in_window[0, t], balancedness(P, loads[t], 2))
        assert np.isclose(run.next_window[0, t], balancedness(P, loads[t + 1], 2))
        before = given[t - 1] if t else first_map(6, 2, 8, 2)
        sent = sum(a.sum() for a in arrivals(before, P, 6, 2))
        assert run.transfers[0, t].sum() == sent
        assert np.isclose(run.moved[0, t], sent / 16)
    assert run.times == (1, 2, 3, 4, 5, 6)


def test_which_windows_count():
    loads = drawn(2, steps=5)
    run = backtest(loads, 2, 2, policies=[Keep()])
    first = np.tile([0, 1, 2, 3, 4, 5, 0, 1], (2, 1))
    assert np.isclose(run.next_window[0, 1], balancedness(first, loads[2], 2))
    old = engine_map(np.ones((2, 6)), 2, 8)
    run = backtest(loads, 2, 2, policies=[Keep()], old=old)
    assert run.rebalances == 4 and not run.transfers.any()
    assert np.isclose(run.next_window[0, 0], balancedness(old, loads[1], 2))


def test_windows_are_sums_of_rows():
    loads = drawn(3, steps=13)
    pairs = loads[:12].reshape(6, 2, 2, 6).sum(axis=1)
    a, b = (backtest(t, 2, 2, window=w, policies=everybody()) for t, w in ((loads, 2), (pairs, 1)))
    assert np.array_equal(a.transfers, b.transfers) and np.array_equal(a.peak_next, b.peak_next)
    assert a.times == (1, 2, 3, 4, 5)


def test_labels_come_along():
    import pandas as pd

    frame = pd.DataFrame(drawn(3, layers=1)[:, 0], index=[f"9:0{i}" for i in range(6)])
    run = backtest(frame, 2, 2, policies={"kept": Keep()})
    windows = run.to_windows()
    assert list(windows.index) == ["9:01", "9:02", "9:03", "9:04", "9:05"]
    assert list(windows.columns) == ["kept"]
    assert windows_of(frame, 2)[1] == ("9:01", "9:03", "9:05")


# Nobody sees the future


@pytest.mark.parametrize("seed", range(cases(20, 2)))
def test_changing_the_future_changes_nothing_before_it(seed):
    rng = np.random.default_rng(seed)
    loads = rng.integers(0, 50, (8, 2, 6))
    for change in rng.permutation(range(1, 8))[: cases(7, 3)]:
        other = loads.copy()
        other[change:] = rng.permuted(other[change:], axis=2) + rng.integers(9)
        a, b = (backtest(r, 4, 2, policies=everybody()) for r in (loads, other))
        # rebalance i plans on window i
        before = change
        assert np.array_equal(a.transfers[:, :before], b.transfers[:, :before])
        assert np.array_equal(a.peak_in[:, :before], b.peak_in[:, :before])
        assert np.array_equal(a.peak_next[:, : before - 1], b.peak_next[:, : before - 1])
        a, b = (backtest(r, 8, 2, policies=extras()) for r in (loads, other))
        assert np.array_equal(a.transfers[:, :before], b.transfers[:, :before])


def test_a_policy_that_writes_into_what_it_is_given_changes_nothing():
    class Vandal(Keep):
        def start(self, old, gpus, experts):
            super().start(old, gpus, experts)
            old[:] = 0

        def step(self, loads):
            result = super().step(loads)
            loads[:] = 0
            return result

    loads = drawn(4)
    kept = loads.copy()
    a = backtest(loads, 2, 2, policies={"a": Vandal(), "b": Keep()})
    assert np.array_equal(loads, kept)
    assert np.array_equal(a.peak_next[0], a.peak_next[1])


def test_a_predictor_sees_every_window_once_and_in_order():
    loads, seen = drawn(5, steps=30) + np.arange(30)[:, None, None], []

    def watching(rows, horizon):
        assert horizon == 1 and not rows.flags.writeable
        seen.append(rows.copy())
        return rows[-1:]

    a = backtest(loads, 2, 2, policies={"a": Rebuild(watching), "b": Rebuild()})
    assert [len(rows) for rows in seen] == list(range(1, 30))
    for rows in seen:
        assert np.array_equal(rows, loads[: len(rows)].reshape(len(rows), -1))
    assert np.array_equal(a.transfers[0], a.transfers[1])


def test_cautious_is_mean_and_deviation():
    seen = np.random.default_rng(0).random((9, 4))
    said = cautious(1.5, 4)(seen, 2)
    assert np.allclose(said, seen[-4:].mean(axis=0) + 1.5 * seen[-4:].std(axis=0))
    assert said.shape == (2, 4)
    for bad in (-1, np.nan, "1"):
        with pytest.raises(ValueError, match="z is"):
            cautious(bad)
    with pytest.raises(ValueError, match="windows is 0"):
        cautious(1, 0)
    with pytest.raises(ValueError, match="no rows"):
        cautious()(np.empty((0, 3)), 1)


def test_a_step_that_fails_leaves_the_policy_as_it_was():
    policy = Rebuild(ewma(0.5))
    policy.start([[0, 1, 0, 2]], 2, 3)
    policy.step([[4.0, 2.0, 2.0]])
    before = pickle.dumps(policy.map), policy.taken
    for bad in ([[1.0, np.nan, 1.0]], [[1.0, -1.0, 1.0]], [[1.0, 1.0]], "no"):
        with pytest.raises(ValueError, match="step 1: loads"):
            policy.step(bad)
    assert before == (pickle.dumps(policy.map), policy.taken)
    fresh = Rebuild(ewma(0.5))
    fresh.start([[0, 1, 0, 2]], 2, 3)
    fresh.step([[4.0, 2.0, 2.0]])
    assert policy.step([[1.0, 2.0, 9.0]]).tolist() == fresh.step([[1.0, 2.0, 9.0]]).tolist()


def test_a_bad_forecast_or_map_is_named():
    class Wrong(MapPolicy):
        def place(self, loads):
            return [[0, 1, 1, 1]]

    for policy, said in [
        (Rebuild(lambda seen, horizon: seen), "forecast has shape"),
        (Rebuild(lambda seen, horizon: -seen[-1:]), "forecast"),
        (Wrong(), r"Wrong.place\(loads\): layer 0 has no slot with expert 2"),
        (MapPolicy(), "MapPolicy must define place"),
    ]:
        policy.start([[0, 1, 0, 2]], 2, 3)
        with pytest.raises((ValueError, NotImplementedError), match=said):
            policy.step([[1.0, 2.0, 3.0]])
            policy.step([[1.0, 2.0, 3.0]])
    with pytest.raises(ValueError, match="Keep has no start"):
        Keep().step([[1.0]])


# One expert on each GPU


@pytest.mark.parametrize("seed", range(cases(400, 20)))
def test_reassigned_changes_as_few_slots_as_copies_are_added(seed):
    rng = np.random.default_rng(seed)
    P = random_map(rng, 3, 4, 9)
    wanted = np.array([1 + rng.multinomial(5, np.full(4, 0.25)) for _ in range(3)])
    Q, before = reassigned(P, wanted), counts_of(P, 4)
    assert np.array_equal(counts_of(Q, 4), wanted)
    assert (P != Q).sum() == np.maximum(wanted - before, 0).sum()


@pytest.mark.parametrize("seed", range(cases(60, 4)))
def test_the_bound_holds_for_every_policy_and_the_optimum(seed):
    rng = np.random.default_rng(seed)
    loads = rng.integers(0, 30, (6, 2, 3)).astype(float)
    price = float(rng.choice([0.0, 1.0, 5.0]))
    run = backtest(loads, 6, 3, policies=everybody() | extras(price), move_price=price)
    assert (run.cost >= run.bound - 1e-9).all()
    x0 = counts_of(first_map(3, 6, 6, 2), 3) - 1
    best = sum(optimum(Problem(loads[1:, i], 3, price, x0[i])).cost for i in range(2))
    assert run.bound <= best + 1e-9
    assert best <= run.cost.min() + 1e-9


def test_one_layer_policies_may_play_one_layer():
    loads = drawn(6, layers=1, steps=8)
    run = backtest(loads, 9, 3, policies=[OnePerGpu(Myopic()), OnePerGpu(Chase())], move_price=1.0)
    assert run.names == ("onepergpu 0", "onepergpu 1") and (run.cost >= run.bound).all()
    with pytest.raises(ValueError, match="one layer"):
        backtest(drawn(6), 9, 3, policies=[OnePerGpu(Myopic())])


@pytest.mark.parametrize("slack", [0.0, 0.02, 0.1])
def test_repair_with_one_expert_on_each_gpu_has_the_closed_form(slack):
    """Each expert needs ceil(w / ((1 + slack) L)) copies; what it lacks must be sent, no more."""
    trace = generate_experts(3, 24, 8, 20_000, noise=0.3, seed=2).loads.astype(float)
    policy = Repair(slack)
    physical = engine_map(trace[0], 36, 36)
    policy.start(physical, 36, 24)
    for w in trace[1:]:
        new = policy.step(w)
        best = gpu_loads(engine_map(w, 36, 36), w, 36).max(axis=1, keepdims=True)
        level = (1 + slack) * best
        lacking = fewest_transfers(w, counts_of(physical, 24), slack)
        sent = sum(a.sum(axis=1) for a in arrivals(physical, new, 24, 36))
        assert np.array_equal(sent, lacking)
        assert (gpu_loads(new, w, 36).max(axis=1) <= level[:, 0] * (1 + 1e-9)).all()
        physical = new


@pytest.mark.parametrize("seed", range(cases(200, 25)))
def test_the_fewest_transfers_against_all_maps(seed):
    rng = np.random.default_rng(seed)
    m, n = int(rng.integers(1, 4)), int(rng.integers(4, 6))
    w, slack = rng.integers(0, 13, m).astype(float), float(rng.choice([0.0, 0.1, 0.5]))
    old = random_map(rng, 1, m, n)[0]
    maps = [P for P in product(range(m), repeat=n) if len(set(P)) == m]
    tops = [max(w[i] / P.count(i) for i in range(m)) for P in maps]
    most = (1 + slack) * min(tops) * (1 + 1e-9)
    sent = min(sum(a != b for a, b in zip(P, old)) for P, top in zip(maps, tops) if top <= most)
    assert fewest_transfers([w], counts_of(old[None], m), slack).tolist() == [sent]


def test_the_fewest_transfers_at_the_size_of_deepseek_v3():
    """58 layers of 256 experts, one of 320 slots on each GPU; a few layers in make test."""
    trace = generate_experts(cases(58, 4), 256, 3, 200_000, noise=0.2, seed=3).loads.astype(float)
    for slack in (0.0, 0.02):
        policy = Repair(slack)
        policy.start(engine_map(trace[0], 320, 320), 320, 256)
        for w in trace[1:]:
            before = policy.map
            sent = sum(a.sum(axis=1) for a in arrivals(before, policy.step(w), 256, 320))
            assert np.array_equal(sent, fewest_transfers(w, counts_of(before, 256), slack))


def test_no_rule_that_decides_before_the_loads_can_promise_more_than_the_trivial_factor():
    """A load on an expert without an extra GPU, in every window anew."""
    extra, m, huge = 2, 4, 1e6
    for policy in (Rebuild(), Repair(), OnePerGpu(RegularizedGreedy()), Keep()):
        trace = [np.full((1, m), 1.0)]
        policy.start(first_map(m, m + extra, m + extra), m + extra, m)
        for _ in range(6):
            cold = np.flatnonzero(counts_of(policy.step(trace[-1]), m)[0] == 1)[0]
            trace.append(huge * np.eye(m)[[cold]])
        fresh = (
            type(policy)(RegularizedGreedy()) if isinstance(policy, OnePerGpu) else type(policy)()
        )
        run = backtest(np.array(trace), m + extra, extra, policies=[fresh], move_price=2.0)
        assert np.isclose(run.cost[0] / run.bound, 1 + extra, rtol=1e-3)


# Laws


def test_scale_and_order_of_layers_do_not_matter():
    loads = drawn(7, layers=3).astype(float)
    a = backtest(loads, 2, 2, policies=everybody())
    b = backtest(loads * 2.0**40, 2, 2, policies=everybody())
    c = backtest(loads[:, ::-1], 2, 2, policies=everybody())
    assert np.array_equal(a.transfers, b.transfers) and np.allclose(a.next_window, b.next_window)
    assert np.array_equal(a.transfers, c.transfers[:, :, ::-1])
    assert np.allclose(a.next_window, c.next_window)


def test_steady_loads_move_nothing_but_for_who_rebuilds():
    loads = np.repeat(drawn(8, steps=1), 6, axis=0)
    run = backtest(loads, 4, 2, policies=everybody())
    for name, sent in zip(run.names, run.transfers):
        # the first step comes from the map of an engine that knows nothing
        assert not sent[1:].any(), name
    assert np.allclose(run.in_window, run.next_window)


def test_no_load_is_perfectly_balanced():
    loads = drawn(9)
    loads[3:] = 0
    run = backtest(loads, 2, 2, policies=everybody())
    assert (run.next_window[:, 2:] == 1).all() and np.isfinite(run.next_window).all()


def test_a_backtest_travels():
    loads = drawn(10)
    link = Link(1e6)
    run = backtest(loads, 4, 2, policies=everybody(), link=link, nodes=2)
    assert run == backtest(loads, 4, 2, policies=everybody(), link=link, nodes=2)
    assert pickle.loads(pickle.dumps(run)) == run
    assert "GB" in run.to_frame() and (run.to_frame()["seconds"] >= 0).all()
    assert run.summary().count("\n") == len(run.names) and "<svg" in run.plot()


def test_a_backtest_is_saved_and_loaded(tmp_path):
    run = backtest(drawn(10), 8, 2, policies=extras(), move_price=2.0)
    run.save(tmp_path / "run.json")
    assert Backtest.load(tmp_path / "run.json") == run
    assert "cost / bound" in run.to_frame() and "bound" in run.summary()


def test_a_bound_is_below_every_cost():
    none = backtest(np.zeros((3, 1, 3)), 6, 3, policies=[Keep()], move_price=1.0)
    assert none.bound == 0 and none.to_frame()["cost / bound"].tolist() == [1.0]
    run = backtest(drawn(10), 8, 2, policies=[Keep()], move_price=2.0)
    with pytest.raises(ValueError, match="bound"):
        replace(run, bound=1.001 * float(run.cost[0]))
    with pytest.raises(ValueError, match="without a move_price"):
        replace(run, move_price=None)
    with pytest.raises(ValueError, match="at least one text"):
        replace(run, names=())


def test_ranges_over_runs():
    runs = [backtest(drawn(s), 2, 2, policies=[Keep(), Rebuild()]) for s in range(3)]
    table = ranges(runs)
    next_ones = [run.to_frame().loc["keep", "next window"] for run in runs]
    assert np.isclose(table.loc["keep", ("next window", "mean")], np.mean(next_ones))
    assert table.loc["keep", ("next window", "max")] == max(next_ones)
    with pytest.raises(ValueError, match="same policies"):
        ranges([runs[0], backtest(drawn(0), 2, 2, policies=[Keep()])])
    with pytest.raises(ValueError, match="at least one"):
        ranges([])


def test_progress_is_shown_when_asked(capsys):
    backtest(drawn(0), 2, 2, policies={"kept": Keep()}, verbose=True)
    assert "backtest of kept" in capsys.readouterr().err
    backtest(drawn(0), 2, 2, policies={"kept": Keep()})
    out = capsys.readouterr()
    assert not out.err and not out.out


# What is refused

LOADS = drawn(11)
BAD = {
    "too few windows": ({"trace": LOADS[:1]}, "one to plan on"),
    "no window": ({"window": 7}, "at least window = 7"),
    "one axis": ({"trace": [1.0, 2.0]}, "shape"),
    "nan": ({"trace": np.where(LOADS == LOADS[0, 0, 0], np.nan, LOADS)}, r"trace\[0, 0, 0\]"),
    "negative": ({"trace": LOADS - 1000}, "at least 0"),
    "slots": ({"redundant": 1}, "redundant|slots"),
    "gpus": ({"gpus": 0}, "gpus is 0"),
    "nodes": ({"nodes": 3}, "multiple of nodes"),
    "no policy": ({"policies": []}, "policies is empty"),
    "not a policy": ({"policies": [3]}, "start and step"),
    "a class": ({"policies": [Keep]}, "start and step"),
    "not policies": ({"policies": 3}, "a mapping or a sequence"),
    "link": ({"link": 3}, "link"),
    "old": ({"old": [[0] * 8] * 2}, "no slot with expert 1"),
    "old beyond": ({"old": [[0, 1, 2, 3, 4, 5, 6, 0]] * 2}, "below 6"),
    "old shape": ({"old": [[0, 1, 2, 3, 4, 5, 0, 0]]}, "old has shape"),
    "price": ({"move_price": 1.0}, "one slot on each GPU"),
    "bad price": ({"move_price": -1.0}, "move_price"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_refused(name):
    change, said = BAD[name]
    with pytest.raises(ValueError, match=said):
        backtest(**({"trace": LOADS, "gpus": 4, "redundant": 2, "policies": [Keep()]} | change))


def test_one_object_stands_for_one_policy():
    keep = Keep()
    with pytest.raises(ValueError, match="two names"):
        backtest(LOADS, 4, 2, policies={"a": keep, "b": keep})


def test_counts_of_layers_must_agree():
    with pytest.raises(ValueError, match="rows with sums 5 and 6"):
        fewest_transfers([[1.0, 2.0], [1.0, 2.0]], [[2, 3], [3, 3]])
    for counts, said in (([[2, 3]], "shape"), ([[0, 3], [2, 1]], "at least 1")):
        with pytest.raises(ValueError, match=said):
            fewest_transfers([[1.0, 2.0], [1.0, 2.0]], counts)


def test_slots_must_divide():
    for P, gpus in (([[0, 1, 2]], 2), ([[]], 1)):
        with pytest.raises(ValueError, match="multiple of gpus"):
            check_physical(P, 3, gpus, "P")
    with pytest.raises(ValueError, match="needs one slot on each GPU"):
        OnePerGpu(Never()).start([[0, 1, 2, 0]], 2, 3)
    for bad in (0, -1.0, np.inf, "fast"):
        with pytest.raises(ValueError, match="near"):
            Link(1.0, near=bad)


# On a real model


@pytest.mark.parametrize("gpus, most, most_smooth", [(8, 8.0, 3.5), (16, 17.0, 8.0)])
def test_what_repair_sends_on_a_real_model(gpus, most, most_smooth):
    policies = {"rebuild": Rebuild(), "repair": Repair(), "smooth": Repair(0.05, ewma(0.5))}
    frame = backtest(load_experts(window=4), gpus, gpus, policies=policies).to_frame()
    sent, served = frame["transfers %"], frame["next window"]
    assert sent["repair"] <= most and sent["smooth"] <= most_smooth
    assert served["repair"] >= served["rebuild"] - 0.003
