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


def test_two_dynamic_programs_agree():
    """Whole sizes on a grid, and the same sizes in units that are no whole numbers."""
    rng = np.random.default_rng(2)
    for _ in range(cases(200, 15)):
        r, s = rng.exponential(3.0, (4, 5)), rng.integers(1, 4, (4, 5)).astype(float)
        K = int(rng.integers(0, 25))
        assert np.isclose(place_pool(r, K, s).value, place_pool(r, K * 0.37, s * 0.37).value)


def test_a_plan_of_hulls_is_within_one_edge():
    rng = np.random.default_rng(3)
    for _ in range(cases(300, 25)):
        r = rng.exponential(1.0, (20, 16)) ** 2
        fast = place_pool(r, 100, exact=False)
        assert fast.value - fast.bound <= r.max() and fast.ratio < 1.1
        assert fast.value <= sum(best_level(row, 5) for row in r) * (1 + 0.05)
        assert place_pool(r, 100).value <= sum(best_level(row, 5) for row in r) * (1 + 1e-12)


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
    monkeypatch.setattr(pools, "_MOST_STATES", 100)
    with pytest.raises(TooLarge, match="exact=False"):
        place_pool(r, 200.0, s)
    assert place_pool(r, 200.0, s, exact=False).ratio < 1.01


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
