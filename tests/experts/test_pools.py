"""Sharing a pool against every placement, a plain program, and its own bounds."""

from itertools import product

import numpy as np
import pytest

from serving_or.experts import pools
from serving_or.experts.one_step import best_level
from serving_or.experts.pools import (
    PoolPlacement,
    equal_or_pooled,
    layer_curve,
    place_pool,
    pool_values,
    shared_bound,
)
from serving_or.experts.sizes_and_pools import pool_level
from serving_or.tools.answers import TooLarge
from tests.long import cases


def drawn(rng, layers=None, m=None):
    layers, m = layers or int(rng.integers(1, 4)), m or int(rng.integers(1, 4))
    kinds = [rng.integers(0, 20, (layers, m)), rng.exponential(5.0, (layers, m))]
    s = rng.choice([1.0, 1.0, 2.0, 3.0], (layers, m)) * rng.choice([1.0, 1.0, 0.7, 0.3])
    return kinds[rng.integers(2)].astype(float), s, float(rng.integers(0, 9))


def plain(r, s, K):
    "The least sum, by trying all splits of the budget layer by layer, in a plain recursion."
    if len(r) == 0:
        return 0.0
    best, copies = np.inf, [range(int(K / size + 1e-9) + 1) for size in s[0]]
    for x in product(*copies):
        used = float(np.dot(s[0], x))
        if used <= K + 1e-9:
            best = min(best, (r[0] / (1 + np.array(x))).max() + plain(r[1:], s[1:], K - used))
    return best


@pytest.mark.parametrize("seed", range(cases(1500, 60)))
def test_exact_is_exact_and_hulls_are_bounded(seed):
    rng = np.random.default_rng(seed)
    r, s, K = drawn(rng)
    K = min(K, 5.0 * s.min()) if r.size > 4 else K
    best = plain(r, s, K)
    exact, fast = place_pool(r, K, s), place_pool(r, K, s, exact=False)
    assert np.isclose(exact.value, best) and exact.status == "optimal"
    assert fast.bound <= best * (1 + 1e-9) + 1e-12 and best <= fast.value * (1 + 1e-9)
    for plan in (exact, fast):
        assert (plan.x * s).sum() <= K * (1 + 1e-9) + 1e-9
    for lam in rng.exponential(1.0, 3):
        assert shared_bound(r, K, lam, s) <= best * (1 + 1e-9) + 1e-12


def test_curves_are_those_of_best_level():
    rng = np.random.default_rng(0)
    for _ in range(cases(1000, 40)):
        r = [rng.integers(0, 30, 6), rng.exponential(3.0, 6)][rng.integers(2)].astype(float)
        used, levels = layer_curve(r, 20)
        for k in range(21):
            at = np.searchsorted(used, k, side="right") - 1
            assert np.isclose(levels[at], best_level(r, k))
        assert np.all(np.diff(used) > 0) and np.all(np.diff(levels) < 0)


def test_values_of_all_pools():
    rng = np.random.default_rng(1)
    for _ in range(cases(200, 10)):
        r, s = rng.exponential(3.0, (5, 8)), rng.integers(1, 3, (5, 8)).astype(float)
        values = pool_values(r, 30, s)
        assert np.all(np.diff(values) <= 0) and np.isclose(values[0], r.max(axis=1).sum())
        for K in (0, 7, 30):
            assert np.isclose(values[K], place_pool(r, K, s).value)
            assert pool_level(r, max(K, 1e-9), s)[0] <= values[K] * (1 + 1e-9)


def test_the_unit_does_not_matter():
    """Whole sizes, the same in bytes, in a unit of .37, and perturbed so that there is no unit."""
    rng = np.random.default_rng(2)
    for _ in range(cases(200, 15)):
        r, s = rng.exponential(3.0, (4, 5)), rng.integers(1, 4, (4, 5)).astype(float)
        K = int(rng.integers(0, 25))
        plan = place_pool(r, K, s)
        for unit in (17_300_000.0, 0.37, 2.0**60):
            same = place_pool(r, K * unit, s * unit)
            assert same.status == "optimal" and np.isclose(same.value, plan.value, rtol=1e-12)
            assert np.array_equal(same.x, plan.x)
            # within the last unit nothing changes
            assert place_pool(r, (K + 0.99) * unit, s * unit).value == same.value
        odd = s * (1 - 1e-9 * rng.random(s.shape))
        assert np.isclose(place_pool(r, K, odd).value, plan.value, rtol=1e-12)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("power", [-900, -500, 0, 500, 900])
def test_the_units_of_loads_and_sizes_may_be_extreme(power, exact):
    rng = np.random.default_rng(6)
    for _ in range(cases(100, 10)):
        r, s, K = drawn(rng)
        for now in (s, s * (1 - 1e-3 * rng.random(s.shape))):
            plan = place_pool(r, K, now, exact)
            for unit in {power, power // 2, -power if abs(power) <= 500 else power}:
                far = place_pool(np.ldexp(r, power), np.ldexp(K, unit), np.ldexp(now, unit), exact)
                assert np.array_equal(far.x, plan.x)
                assert far.value == np.ldexp(plan.value, power)
                assert np.isclose(np.ldexp(far.bound, -power), plan.bound, rtol=1e-12)


def test_prices_beyond_the_floats_are_refused():
    for r, K, s in (([[4e300, 0], [0, 2e300]], 4e-9, 1e-9), ([[1e150, 2e150]], 3e-200, 1e-200)):
        for exact in (True, False):
            with pytest.raises(ValueError, match="prices of copies beyond the largest float"):
                place_pool(r, K, s, exact)


@pytest.mark.parametrize("exact", [True, False])
def test_bytes(exact):
    plan = place_pool([[3, 1], [1, 1]], 1e11, 17_300_000, exact)
    assert plan.status == "optimal" and plan.used.sum() <= 1e11
    alike = place_pool([[3, 1], [1, 1]], 1e11 // 17_300_000, 1.0, exact)
    assert np.array_equal(plan.x, alike.x) and plan.multiplier * 17_300_000 == alike.multiplier


@pytest.mark.parametrize("seed", range(cases(400, 25)))
def test_odd_bytes_against_every_placement(seed):
    rng = np.random.default_rng(seed)
    r, s = rng.exponential(5.0, (3, 2)), rng.integers(10**7, 3 * 10**7, (3, 2)).astype(float)
    # a budget that some placement uses to the byte, or one byte less
    K = float((s * rng.integers(0, 3, s.shape)).sum()) - rng.integers(2)
    K = min(max(K, 0.0), 9e7)
    plan = place_pool(r, K, s)
    assert np.isclose(plan.value, plain(r, s, K), rtol=1e-12) and plan.used.sum() <= K
    assert plan.status == "optimal"


def test_many_odd_bytes():
    rng = np.random.default_rng(5)
    r, s = rng.exponential(3.0, (26, 32)), rng.integers(17 * 10**6, 18 * 10**6, (26, 32))
    plan, fast = (place_pool(r, 26 * 8 * 17.3e6, s, exact) for exact in (True, False))
    assert plan.status == "optimal" and fast.bound <= plan.value <= fast.value
    assert np.isclose(place_pool(r, 26 * 8, 1.0).value, plan.value, rtol=0.05)


def edges_of(r, K):
    "Edges of all lower hulls by gain: (rate, length), from scratch, sizes 1."
    edges = []
    for row in r:
        V = np.array([best_level(row, k) for k in range(K + 1)])
        c = 0
        while c < K and V[c:].min() < V[c]:
            rates = (V[c] - V[c + 1 :]) / np.arange(1, K - c + 1)
            # the steepest, and of equals the longest
            step = 1 + int(np.flatnonzero(rates >= rates.max() * (1 - 1e-12))[-1])
            edges.append((rates.max(), step))
            c += step
    return sorted(edges, reverse=True)


def test_a_plan_of_hulls_is_within_one_edge():
    rng, later, inside = np.random.default_rng(3), 0, 0
    for _ in range(cases(300, 25)):
        r, K = rng.exponential(1.0, (6, 5)) ** 2, 12
        fast, value, left, used = place_pool(r, K, exact=False), r.max(axis=1).sum(), K, 0
        edges = edges_of(r, K)
        for rate, length in edges:
            if length > left:
                break
            value, left, used = value - rate * length, left - length, used + 1
        else:
            continue
        # the bound is the linear program of the hulls, which takes a part of the edge
        assert np.isclose(fast.bound, value - rate * left) and np.isclose(fast.multiplier, rate)
        assert fast.value - fast.bound <= rate * left + 1e-9 and left < length
        assert fast.value <= value + 1e-9
        inside += fast.value < value - 1e-9
        later += any(size <= left for _, size in edges[used:])
        for price in rate * rng.uniform(0, 3, 5):
            assert shared_bound(r, K, price) <= fast.bound + 1e-9
    assert later and inside


def test_after_the_first_misfit_hulls_go_on():
    # edges of 3, 2.75 and .5 a copy, of two copies, two and one: the second does not fit into three
    plan = place_pool([[12, 12], [11, 11], [1, 0]], 3, exact=False)
    assert plan.x.tolist() == [[1, 1], [0, 0], [1, 0]] and plan.multiplier == 2.75
    # the second edge is from 7 to 3.5 with two copies; a corner above it is at 6.9 with one
    plan = place_pool([[12, 12, 0], [7, 6.9, 0.1]], 3, exact=False)
    assert plan.x.tolist() == [[1, 1, 0], [1, 0, 0]]


def test_rounding_errors_do_not_count_and_sizes_do():
    assert place_pool([[12, 12, 12]], 0.3, 0.1).x.tolist() == [[1, 1, 1]]
    assert place_pool([[12, 12]], 2, [1, 1 + 1e-7]).value == 12


def test_partition_is_decided():
    for a in ([3, 5, 2, 4], [3, 5, 6], [7, 3, 2, 2], [5, 4, 4, 5], [1, 4, 9], [8, 7, 6, 5, 4]):
        r, s, K = 2.0 * np.array(a)[:, None], np.array(a, float)[:, None], sum(a) / 2
        halves = any(np.dot(a, pick) == K for pick in product((0, 1), repeat=len(a)))
        saved = r.sum() - place_pool(r, K, s).value
        assert saved <= K + 1e-9 and np.isclose(saved, K) == halves


def test_examples_of_the_design():
    plan = place_pool([[1, 1], [0.3, 0]], 2)
    assert np.isclose(plan.value, 0.8) and plan.x.tolist() == [[1, 1], [0, 0]]
    assert plan.to_frame().shape == (2, 4) and "0.8" in plan.summary() and "used" in plan.plot()


@pytest.mark.parametrize(
    "change, message",
    [
        ({"loads": [1.0, 2.0]}, "loads has shape"),
        ({"loads": [[1.0, -1.0]]}, "loads"),
        ({"extra": -1}, "extra is -1"),
        ({"extra": np.nan}, "extra is nan"),
        ({"extra": 1e9}, "1,000,000 copies"),
        ({"sizes": [1.0, 0.0]}, "sizes holds 0"),
        ({"sizes": [1.0, 1.0, 1.0]}, "sizes has shape"),
    ],
)
def test_bad_input(change, message):
    with pytest.raises(ValueError, match=message):
        place_pool(**({"loads": [[12.0, 6.0]], "extra": 5} | change))


def test_too_many_states(monkeypatch):
    rng = np.random.default_rng(4)
    r, s = rng.exponential(3.0, (58, 16)), rng.uniform(0.5, 2, (58, 16))
    plan, fast = place_pool(r, 200.0, s), place_pool(r, 200.0, s, exact=False)
    assert plan.status == "optimal" and fast.bound <= plan.value <= fast.value
    monkeypatch.setattr(pools, "_MOST_STATES", 100)
    with pytest.raises(TooLarge, match=f"exact=False has {fast.value:.6g}, at most") as error:
        place_pool(r, 200.0, s)
    assert error.value.limit == 100 < error.value.size


def test_values_in_units_that_are_not_whole():
    rng = np.random.default_rng(6)
    for case in range(cases(200, 25)):
        r, s = rng.integers(0, 20, (2, 2)).astype(float), np.full((2, 2), 0.7)
        if case % 2:
            s = rng.choice([0.7, 1.4, 1.1, 1.7], (2, 2))
        values = pool_values(r, 6, s)
        assert np.allclose(values, [plain(r, s, K) for K in range(7)])
    assert pool_values([[12, 6]], 3, 0.7).tolist() == [12, 6, 6, 3]
    assert pool_values([[12, 6]], 20, 10.0)[[9, 10, 19, 20]].tolist() == [12, 6, 6, 6]
    with pytest.raises(TooLarge, match="larger unit"):
        pool_values([[12, 6]], 10**9, 17_300_000)
    for more, words in (({"extra": 1.5}, "extra"), ({"sizes": 0}, "sizes"), ({"extra": -1}, "ext")):
        with pytest.raises(ValueError, match=words):
            pool_values(**({"loads": [[12, 6]], "extra": 3} | more))


def test_a_bound_needs_a_price():
    with pytest.raises(ValueError, match="multiplier is -1"):
        shared_bound([[12, 6]], 3, -1)


def test_a_placement_refuses():
    one = [[1.0, 1.0]]
    with pytest.raises(ValueError, match="x takes 6"):
        PoolPlacement([[12.0, 6.0]], 5, one, [[3, 3]])
    with pytest.raises(ValueError, match="bound"):
        PoolPlacement([[12.0, 6.0]], 5, one, [[3, 2]], 0.0, 99.0)


def test_edges():
    assert place_pool([[0.0, 0.0]], 3).value == 0
    assert place_pool([[5.0]], 0).value == 5
    assert place_pool(np.array([[3.0, 1], [1, 1]]) * 1e-300, 4).status == "optimal"


def test_the_live_example_draws():
    assert "pool saves" in equal_or_pooled(1.0, 8) and "nan" not in equal_or_pooled(0.0, 2)
