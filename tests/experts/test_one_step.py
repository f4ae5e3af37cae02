"The one-step rules against complete enumeration, and what they refuse."

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from serving_or.experts.model import even_split, latency, water_level
from serving_or.experts.one_step import (
    best_level,
    best_response,
    latency_or_moves,
    lazy_chase,
    lazy_cover,
    myopic,
    need,
    water_fill,
    worst_ratio,
)
from tests.instances import BAD_COUNTS, placements, steps

# the smallest numbers have few digits left
TINY = 1e-320


def close(a, b):
    return a <= b * (1 + 1e-9) + TINY


@given(steps())
@example((np.array([1e300, 1e-300]), np.array([0, 3]), 2.0))
@example((np.zeros(3), np.array([0, 0, 4]), 2.0))
@example((np.array([6.0, 6.0, 0.0]), np.array([0, 0, 1]), 2.0))
def test_best_response_is_optimal(step):
    r, x, _ = step
    mine, everything = best_response(r, int(x.sum())), placements(len(x), int(x.sum()))
    assert mine.sum() == x.sum() and mine.min() >= 0 and mine.dtype.kind == "i"
    assert close(latency(r, mine), latency(r, everything).min())
    assert close(latency(r, everything).min(), best_level(r, int(x.sum())))


def one_at_a_time(r, k):
    x = np.zeros(len(r), int)
    for _ in range(k):
        x[np.argmax(r / (1 + x))] += 1
    return x


@given(st.lists(st.integers(1, 50), min_size=1, max_size=12), st.integers(0, 40))
def test_best_response_is_slowest_first(r, k):
    r = np.array(r, float)
    assert latency(r, best_response(r, k)) == pytest.approx(
        latency(r, one_at_a_time(r, k)), rel=1e-12
    )


@given(steps())
def test_lazy_chase_is_the_nearest_optimum(step):
    r, x, _ = step
    everything = placements(len(x), int(x.sum()))
    best = everything[latency(r, everything) <= latency(r, everything).min() * (1 + 1e-9)]
    mine = lazy_chase(r, x)
    assert close(latency(r, mine), latency(r, best).max()) and mine.sum() == x.sum()
    assert np.maximum(mine - x, 0).sum() == np.maximum(best - x, 0).sum(axis=1).min()


@given(steps())
def test_myopic_is_the_best_step(step):
    r, x, w = step
    assume(r.max() < 1e299 or w == 0)  # latency and price must be comparable in floating point
    everything = placements(len(x), int(x.sum()))
    best = (latency(r, everything) + w * np.maximum(everything - x, 0).sum(axis=1)).min()
    mine = myopic(r, x, w)
    assert mine.sum() == x.sum() and mine.min() >= 0
    assert close(latency(r, mine) + w * np.maximum(mine - x, 0).sum(), best)


def test_myopic_finds_levels_that_need_a_donor():
    "An intermediate level becomes feasible only by taking from an expert with a surplus."
    rng = np.random.default_rng(5)
    for _ in range(2000):
        m, k = rng.integers(2, 5), rng.integers(1, 7)
        everything = placements(m, k)
        r, x = rng.integers(0, 40, m), everything[rng.integers(len(everything))]
        w = rng.uniform(0.05, 8)
        mine = myopic(r, x, w)
        cost = latency(r, mine) + w * np.maximum(mine - x, 0).sum()
        costs = latency(r, everything) + w * np.maximum(everything - x, 0).sum(axis=1)
        assert close(cost, costs.min())


@given(steps(), st.data())
def test_lazy_cover_adds_the_fewest(step, data):
    _, x, _ = step
    a = placements(len(x), data.draw(st.integers(0, int(x.sum()))))
    a = a[data.draw(st.integers(0, len(a) - 1))]
    everything = placements(len(x), int(x.sum()))
    covers = everything[(everything >= a).all(axis=1)]
    mine = lazy_cover(x, a)
    assert (mine >= a).all() and mine.sum() == x.sum()
    fewest = np.maximum(covers - x, 0).sum(axis=1).min()
    assert np.maximum(mine - x, 0).sum() == fewest == np.maximum(a - x, 0).sum()


def test_whom_a_tie_favours():
    "What the docstrings say of ties."
    assert best_response([6, 6, 6], 4).tolist() == [2, 1, 1]
    assert best_response([0, 6, 6], 1).tolist() == [0, 1, 0]
    # one GPU more costs what it saves: 20 / 4 + 1 = 20 / 5 + 2
    assert myopic([20, 4], [2, 2], 1.0).tolist() == [3, 1]
    assert myopic([6, 6, 0], [0, 0, 2], 1.5).tolist() == [0, 0, 2]
    # taken from whoever is furthest above its need, or above what it should keep
    assert lazy_cover([0, 3, 2], [1, 0, 0]).tolist() == [1, 2, 2]
    assert lazy_cover([0, 3, 2], [1, 0, 0], keep=[0, 2.9, 0.5]).tolist() == [1, 3, 1]


@given(steps())
def test_water_level_is_below_every_placement(step):
    r, x, _ = step
    k = int(x.sum())
    level, x = water_level(r, k), water_fill(r, k)
    assert x.sum() == pytest.approx(k, abs=1e-9) and x.min() >= 0
    assert latency(r, x) == pytest.approx(level, rel=1e-9)
    assert close(level, latency(r, placements(len(x), k)).min())
    assert close(best_level(r, k), 2 * level)


def test_rules_are_the_same_on_many_layers_at_once():
    r = np.random.default_rng(0).lognormal(0, 2, (7, 5, 9))
    for rule in (water_level, best_level, water_fill, best_response):
        one = np.array([[rule(r[a, b], 6) for b in range(5)] for a in range(7)])
        assert np.array_equal(rule(r, 6), one)


@given(steps(), st.data())
def test_smoothness(step, data):
    r, x, _ = step
    everything = placements(len(x), int(x.sum()))
    other = everything[data.draw(st.integers(0, len(everything) - 1))]
    assert close(latency(r, x), worst_ratio(x, other) * latency(r, other))


@pytest.mark.parametrize("scale", [1e-320, 1e-300, 1e300, 2e307])
def test_extreme_loads(scale):
    r = np.array([6.0, 3.0, 1.0])
    with np.errstate(over="raise", invalid="raise"):
        assert best_response(r * scale, 3).tolist() == [2, 1, 0]
        assert lazy_chase(r * scale, np.array([0, 0, 3])).tolist() == [2, 1, 0]
        assert myopic(r * scale, np.array([1, 1, 1]), 0.0).tolist() == [2, 1, 0]
        assert water_level(r * scale, 3) == pytest.approx(1.8 * scale, rel=1e-2)


@pytest.mark.parametrize("shape", [(4,), (4, 4), (2, 0, 4), (3, 2, 4)])
def test_the_smallest_loads_end(shape):
    "The search for the best level once did not end on loads below 1e-312."
    r = np.full(shape, 5e-324)
    x = best_response(r, 5)
    assert x.shape == shape and (x.sum(axis=-1) == 5).all() and np.all(best_level(r, 5) <= 5e-324)
    assert lazy_chase(np.full(4, 5e-324), [5, 0, 0, 0]).tolist() == [2, 1, 1, 1]
    assert myopic(np.full(4, 5e-324), [5, 0, 0, 0], 0.0).sum() == 5
    assert water_fill(r, 5).sum(axis=-1) == pytest.approx(5)


@given(
    st.lists(st.floats(0, 1e-300), min_size=1, max_size=5), st.integers(0, 9), st.integers(0, 1074)
)
def test_small_loads_are_answered_as_large_ones_are(r, k, power):
    "Denormal loads are exact multiples of a power of two, so nothing changes but the unit."
    r = np.array(r)
    large = r * 2.0**600 * 2.0 ** (power % 400)
    x = even_split(len(r), k)
    assert np.array_equal(best_response(r, k), best_response(large, k))
    assert np.array_equal(lazy_chase(r, x), lazy_chase(large, x))
    assert np.allclose(water_fill(r, k), water_fill(large, k))


def test_degenerate_sizes():
    assert best_response([5.0], 3).tolist() == [3] == lazy_chase([5.0], [3]).tolist()
    assert myopic([5.0], [3], 1).tolist() == [3]
    assert best_response([5.0, 1.0], 0).tolist() == [0, 0] == myopic([5.0, 1.0], [0, 0], 1).tolist()
    assert best_response(np.zeros(3), 4).tolist() == [2, 1, 1]
    assert lazy_chase(np.zeros(3), [4, 0, 0]).tolist() == [4, 0, 0]


@pytest.mark.parametrize("extra", BAD_COUNTS, ids=str)
def test_bad_extra(extra):
    with pytest.raises(ValueError, match="extra is .*whole number"):
        best_response([1, 2], extra)


def test_bad_loads():
    with pytest.raises(ValueError, match=r"loads\[1\] is nan"):
        best_response([1, np.nan], 1)
    with pytest.raises(ValueError, match=r"need sums to 5.*at most 2"):
        lazy_cover([1, 1], [3, 2])


def test_arguments_are_not_changed():
    r, x = np.array([9.0, 8.0, 1.0]), np.array([1, 0, 2])
    for array in (r, x):
        array.flags.writeable = False
    for answer in (
        lazy_chase(r, x),
        myopic(r, x, 0.5),
        lazy_cover(x, [1, 1, 0]),
        best_response(r, 3),
    ):
        answer += 1
    assert r.tolist() == [9, 8, 1] and x.tolist() == [1, 0, 2]


def test_the_live_example_is_light():
    assert "water level" in latency_or_moves(7, 1.5, "two tied")


@given(st.floats(1e-6, 1e6), st.integers(0, 2**32 - 1))
def test_scaling_loads_and_price_changes_no_decision(scale, seed):
    rng = np.random.default_rng(seed)
    r, x = rng.integers(0, 30, 5).astype(float), rng.permutation([3, 2, 1, 0, 0])
    assert np.array_equal(myopic(r, x, 1.3), myopic(r * 2**10, x, 1.3 * 2**10))
    assert best_level(r * scale, 6) == pytest.approx(best_level(r, 6) * scale, rel=1e-9)
    assert np.array_equal(need(r, 2.0), need(r * 4, 8.0))


@pytest.mark.parametrize("loads, level", [([1.0, 0.0], 1e-300), ([1e300, 0.0], 1e-10)])
def test_a_need_beyond_all_numbers_is_more_than_there_can_be(loads, level):
    with np.errstate(all="raise"):
        first, second = need(loads, level)
    assert first > 2**20 and second == 0
    with pytest.raises(ValueError, match="need sums to"):
        lazy_cover([1, 1], need(loads, level))


def test_the_exercises():
    "Ties, and where the GPU comes from, against all placements."
    assert lazy_chase([6, 6, 0], [0, 0, 2]).tolist() == [1, 1, 0]
    assert lazy_chase([6, 6, 0], [0, 0, 1]).tolist() == [0, 0, 1]
    assert best_response([6, 6, 0], 1).tolist() == [1, 0, 0]
    assert best_level([9, 8, 1], 3) == 4 and need([9, 8, 1], 4).tolist() == [2, 1, 0]
    assert myopic([9, 8, 1], [1, 0, 2], 0.5).tolist() == [1, 1, 1]
    assert worst_ratio(np.repeat([1, 0], [16, 48]), 16 * np.eye(64)).max() == 17
